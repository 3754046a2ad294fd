// Notes writers and readers in one walk; removes loops that nobody reads.
#include "schedule/uses.h"

#include <algorithm>

#include "schedule/kernel_access.h"
#include "schedule/pass_list.h"

namespace oxy::schedule {

using loops::Loop;

std::set<BufferId> escaping(const loops::Program& p) {
  std::set<BufferId> out;
  if (!p.graph) return out;
  auto add = [&](ir::ValueId v) {
    if (const BufferId* b = result_of(p, v)) out.insert(memory_of(p, *b));
  };
  for (const ir::OutputSpec& o : p.graph->outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) add(o.value);
  }
  for (const ir::Mutation& m : p.graph->mutations) add(m.value);
  return out;
}

BufferUses buffer_uses(const loops::Program& p) {
  BufferUses u;
  u.writer.assign(p.buffers.size(), -1);
  u.readers.resize(p.buffers.size());
  u.pinned.assign(p.buffers.size(), false);
  u.updated.assign(p.buffers.size(), false);
  auto pin = [&](BufferId b) { u.pinned[memory_of(p, b).index] = true; };
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[BufferId(b)].kind != Buffer::Kind::Temp) pin(BufferId(b));
  }
  for (uint32_t s = 0; s < p.steps.size(); ++s) {
    if (const loops::Call* e = call_of(p.steps[s])) {
      for (BufferId b : e->reads) pin(b);
      for (BufferId b : e->writes) {
        if (b.valid()) u.writer[b.index] = static_cast<int32_t>(s);
      }
      continue;
    }
    for (const Inst& i : std::get<Loop>(p.steps[s]).body) {
      if (!i.buffer.valid()) continue;
      uint32_t b = memory_of(p, i.buffer).index;
      if (i.op != LoopOp::Load) u.writer[b] = static_cast<int32_t>(s);
      if (i.op == LoopOp::StoreAdd) u.updated[b] = true;
      auto& readers = u.readers[b];
      if (i.op != LoopOp::Store && (readers.empty() || readers.back() != s)) readers.push_back(s);
    }
  }
  for (BufferId b : escaping(p)) u.pinned[b.index] = true;
  return u;
}

void remove_dead_loops(loops::Program& p) {
  std::vector<bool> needed = buffer_uses(p).pinned, keep(p.steps.size(), true);
  for (size_t s = p.steps.size(); s-- > 0;) {
    const auto* l = std::get_if<Loop>(&p.steps[s]);
    if (!l) continue;
    keep[s] = std::ranges::any_of(l->body, [&](const Inst& i) {
      return is_any(i.op, LoopOp::Store, LoopOp::StoreAdd) && needed[memory_of(p, i.buffer).index];
    });
    for (const Inst& i : l->body) {
      if (keep[s] && i.op == LoopOp::Load) needed[memory_of(p, i.buffer).index] = true;
    }
  }
  std::erase_if(p.steps, [&](const loops::Step& s) { return !keep[&s - p.steps.data()]; });
}

template <class Call, class Step>
static Call* call_in(Step& s) {
  if (auto* e = std::get_if<ExternCall>(&s)) return &e->step;
  auto* c = std::get_if<ContractionCall>(&s);
  return c ? &c->step : nullptr;
}
loops::Call* call_of(ScheduledStep& s) { return call_in<loops::Call>(s); }
const loops::Call* call_of(const ScheduledStep& s) { return call_in<const loops::Call>(s); }

static void collect_late(Expr e, std::vector<Expr>& out) {
  if (sym::origin_of(e) == sym::Origin::Data) sym::collect_symbols(e, out);
}

static void collect_late(const ir::Arg& a, std::vector<Expr>& out) {
  if (const auto* e = a.get_if<Expr>()) collect_late(*e, out);
  ir::for_each_child(a, [&](const ir::Arg& x) { collect_late(x, out); });
}

static void collect_late(const ir::TensorType& t, std::vector<Expr>& out) {
  for (const auto* list : {&t.sizes, &t.strides})
    for (Expr e : *list) collect_late(e, out);
  collect_late(t.offset, out);
}

std::vector<Expr> symbols_given(const loops::Program& p, const loops::Call& call) {
  std::vector<Expr> out;
  for (const auto& [symbol, node] : p.known_by)
    if (node == call.node) out.push_back(symbol);
  return out;
}

std::vector<Expr> symbols_needed(const loops::Program& p, const loops::Call& call) {
  std::vector<Expr> out;
  if (p.known_by.empty()) return out;
  const ir::Node& n = p.graph->node(call.node);
  for (const ir::Arg& a : n.args) {
    collect_late(a, out);
    ir::for_each_value(a, [&](ir::ValueId v) {
      const ir::Type& type = p.graph->value(v).type;
      if (type.kind == ir::Type::Kind::Int) collect_late(type.expr, out);
    });
  }
  for (const auto* list : {&call.reads, &call.writes})
    for (BufferId b : *list)
      if (b.valid()) collect_late(p.buffers[b].type, out);
  std::erase_if(out, [&](Expr s) {
    const auto it = p.known_by.find(s);
    return it == p.known_by.end() || it->second == call.node;
  });
  return out;
}

StepUses uses_of(const Schedule& s, const ScheduledStep& step) {
  StepUses u;
  auto add_kernel = [&](uint32_t kernel) {
    for (Expr e : s.kernels[kernel].parameters) collect_late(e, u.needs);
    for (const KernelBuffer& b : s.kernels[kernel].buffers) {
      if (!b.buffer.valid()) continue;
      BufferId memory = memory_of(s.program, b.buffer);
      if (b.kind != KernelBuffer::Kind::Write) u.reads.push_back(memory);
      if (b.kind != KernelBuffer::Kind::Read) u.writes.push_back(memory);
    }
  };
  if (const auto* call = std::get_if<KernelCall>(&step)) {
    add_kernel(call->kernel);
    u.raises = has_check(s.kernels[call->kernel]);
  } else if (const loops::Call* e = call_of(step)) {
    for (BufferId b : e->reads) u.reads.push_back(memory_of(s.program, b));
    for (BufferId b : e->writes) {
      if (b.valid()) u.writes.push_back(memory_of(s.program, b));
    }
    u.needs = symbols_needed(s.program, *e);
    u.gives = symbols_given(s.program, *e);
    const auto* c = std::get_if<ContractionCall>(&step);
    if (c && c->epilogue) add_kernel(*c->epilogue);
    u.raises = !c || !c->step.is_own();
  }
  return u;
}

bool reads(const StepUses& u, BufferId b) { return std::ranges::find(u.reads, b) != u.reads.end(); }
bool writes(const StepUses& u, BufferId b) {
  return std::ranges::find(u.writes, b) != u.writes.end();
}

bool conflict(const StepUses& a, const StepUses& b) {
  auto meets = [](const StepUses& x, const StepUses& other) {
    return std::ranges::any_of(x.writes,
                               [&](BufferId w) { return reads(other, w) || writes(other, w); });
  };
  auto waits = [](const StepUses& x, const StepUses& other) {
    return std::ranges::any_of(
        x.needs, [&](Expr s) { return std::ranges::find(other.gives, s) != other.gives.end(); });
  };
  return meets(a, b) || meets(b, a) || waits(a, b) || waits(b, a);
}

}  // namespace oxy::schedule
