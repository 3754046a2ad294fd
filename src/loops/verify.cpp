// Checks what loop_ir.h promises; an InternalError names the step.
#include <unordered_set>

#include "loops/loop_ir.h"
#include "support/check.h"

namespace oxy::loops {

namespace {

bool reads_memory(LoopOp op) {
  return op == LoopOp::Load || op == LoopOp::Store || op == LoopOp::StoreAdd;
}

bool takes_args(const Inst& i) {
  if (i.op == LoopOp::Load) return i.args.empty() || i.args.size() == 2;
  return static_cast<int>(i.args.size()) == ops::arity(i.op);
}

void verify_buffers(const Program& p) {
  std::unordered_set<std::string> names;
  for (const Buffer& b : p.buffers) {
    OXY_CHECK(names.insert(b.name).second, "two buffers ", b.name);
    OXY_CHECK(b.type.sizes.size() == b.type.strides.size(), b.name);
    if (b.kind != Buffer::Kind::View) continue;
    OXY_CHECK(p.buffers.contains(b.base) && p.buffers[b.base].kind != Buffer::Kind::View, b.name);
  }
}

void verify_loop(const Program& p, const Loop& l) {
  std::unordered_set<Expr> known;
  std::vector<Expr> used;
  for (const Axis& a : l.axes)
    OXY_CHECK(known.insert(a.var).second, l.name, ": axis ", a.var, " twice");
  std::vector<BufferId> stored;
  for (uint32_t k = 0; k < l.body.size(); ++k) {
    const Inst& i = l.body[k];
    OXY_CHECK(takes_args(i), l.name, ": arguments of %", k, " ", ops::name(i.op));
    for (uint32_t a : i.args) OXY_CHECK(a < k, l.name, ": %", k, " reads %", a);
    if (i.op == LoopOp::Symbol) known.insert(i.index[0]);
    if (reads_memory(i.op)) {
      OXY_CHECK(p.buffers.contains(i.buffer), l.name, ": buffer of %", k);
      const Buffer& b = p.buffers[i.buffer];
      OXY_CHECK(i.index.size() == b.type.sizes.size(), l.name, ": index of ", b.name);
      OXY_CHECK(i.dtype == b.type.dtype, l.name, ": dtype of ", b.name);
      if (i.op != LoopOp::Load) stored.push_back(i.buffer);
    }
    used.clear();
    for (Expr e : i.index) sym::collect_symbols(e, used);
    bool size_only = i.op == LoopOp::Check;
    for (Expr s : used) {
      bool variable =
          !s.name().empty() && (s.name()[0] == 'p' || s.name()[0] == 'r' || s.name()[0] == 'i');
      OXY_CHECK(size_only || !variable || known.contains(s), l.name, ": free variable ", s);
    }
  }
  for (const Inst& i : l.body) {
    if (i.op != LoopOp::Load) continue;
    for (BufferId b : stored) {
      OXY_CHECK(memory_of(p, b) != memory_of(p, i.buffer), l.name,
                " reads what it writes: ", p.buffers[b].name);
    }
  }
}

}  // namespace

void verify(const Program& p) {
  verify_buffers(p);
  std::unordered_set<BufferId> made;
  auto make = [&](BufferId b) {
    OXY_CHECK(made.insert(b).second, p.buffers[b].name, " is written twice");
  };
  auto read = [&](BufferId b) {
    const Buffer& m = p.buffers[memory_of(p, b)];
    bool given = m.kind == Buffer::Kind::Input || m.kind == Buffer::Kind::Attribute;
    OXY_CHECK(given || made.contains(memory_of(p, b)), m.name, " is read before it is written");
  };
  for (const Step& s : p.steps) {
    if (const auto* l = std::get_if<Loop>(&s)) {
      verify_loop(p, *l);
      for (const Inst& i : l->body) {
        if (i.op == LoopOp::Load || i.op == LoopOp::StoreAdd) read(i.buffer);
      }
      for (const Inst& i : l->body) {
        if (i.op == LoopOp::Store) make(memory_of(p, i.buffer));
      }
    } else {
      const auto& e = std::get<ExternStep>(s);
      for (BufferId b : e.reads) read(b);
      for (BufferId b : e.writes) {
        if (b.valid()) make(b);
      }
    }
  }
}

}  // namespace oxy::loops
