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
    for (Expr s : used)
      OXY_CHECK(size_only || !is_variable(s) || known.contains(s), l.name, ": free variable ", s);
  }
  for (const Inst& i : l.body) {
    if (i.op != LoopOp::Load) continue;
    for (BufferId b : stored) {
      OXY_CHECK(memory_of(p, b) != memory_of(p, i.buffer), l.name,
                " reads what it writes: ", p.buffers[b].name);
    }
  }
}

// Both differ, whatever the symbols are.
bool differ(Expr a, Expr b) { return sym::known_equal(a, b) == false; }

void verify_contraction(const Program& p, const ContractionStep& s) {
  const std::string_view kind = ops::name(s.what.kind);
  const bool gemm = s.what.kind == ops::Contraction::Kind::Gemm;
  OXY_CHECK(s.provider != ops::Provider::Loops, kind, " by nobody");
  OXY_CHECK(s.reads.size() >= 2 && s.reads.size() <= 3 && s.writes.size() == 1, kind, ": operands");
  for (const std::vector<Expr>* list : {&s.what.stride, &s.what.padding, &s.what.dilation})
    OXY_CHECK(list->size() == (gemm ? 0 : 2), kind, ": stride, padding, dilation");
  const std::vector<Expr>&a = p.buffers[s.a()].type.sizes, &b = p.buffers[s.b()].type.sizes,
        &c = p.buffers[s.c()].type.sizes;
  const size_t rank = gemm ? c.size() : 4;
  OXY_CHECK(rank >= 2 && rank <= 4 && a.size() == rank && b.size() == rank && c.size() == rank,
            kind, ": ranks");
  const size_t k = gemm ? rank - 1 : 1;  // a's dimension that is folded
  const Expr n = gemm ? b[rank - 1] : b[0];
  OXY_CHECK(!differ(a[k], gemm ? b[rank - 2] : b[1]) && !differ(n, c[k]) && !differ(a[0], c[0]),
            kind, ": sizes of ", p.buffers[s.c()].name);
  if (s.bias().valid()) {
    const std::vector<Expr>& bias = p.buffers[s.bias()].type.sizes;
    OXY_CHECK(bias.size() == 1 && !differ(bias[0], n), kind, ": size of the bias");
  }
  const bool planned = p.buffers[s.c()].kind != Buffer::Kind::Extern;
  OXY_CHECK(planned == s.is_own(), kind, ": memory of ", p.buffers[s.c()].name);
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
      for (const Inst& i : l->body)
        if (i.op == LoopOp::Load || i.op == LoopOp::StoreAdd) read(i.buffer);
      for (const Inst& i : l->body)
        if (i.op == LoopOp::Store) make(memory_of(p, i.buffer));
    } else {
      if (const auto* c = std::get_if<ContractionStep>(&s)) verify_contraction(p, *c);
      const Call& call = *call_of(s);
      for (BufferId b : call.reads) read(b);
      for (BufferId b : call.writes)
        if (b.valid()) make(b);
    }
  }
}

}  // namespace oxy::loops
