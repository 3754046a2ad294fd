// Finds such copies, and writes a loop for each.
#include "schedule/copy_loops.h"

#include "ops/promote.h"

namespace oxy::schedule {

using loops::Buffer;
using loops::BufferId;
using loops::ExternStep;
using loops::Inst;
using loops::Loop;
using loops::LoopOp;
using loops::Program;
using sym::Expr;

namespace {

// Buffers whose layout somebody sees: extern steps, views, the caller.
std::vector<bool> seen_layouts(const Program& p) {
  std::vector<bool> seen(p.buffers.size(), false);
  auto see = [&](BufferId b) { seen[b.index] = seen[memory_of(p, b).index] = true; };
  for (const Buffer& b : p.buffers) {
    if (b.kind == Buffer::Kind::View) see(b.base);
  }
  for (const loops::Step& s : p.steps) {
    if (const loops::Call* call = call_of(s)) {
      for (BufferId b : call->reads) see(b);
    }
  }
  auto see_value = [&](ir::ValueId v) {
    if (auto it = p.buffer_of.find(v); it != p.buffer_of.end()) see(it->second);
  };
  for (const ir::OutputSpec& o : p.graph->outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid()) see_value(o.value);
  }
  for (const ir::Mutation& m : p.graph->mutations) see_value(m.value);
  return seen;
}

// The source's sizes, aligned at the end, are the result's or 1.
bool broadcasts_to(const std::vector<Expr>& from, const std::vector<Expr>& to) {
  if (from.size() > to.size()) return false;
  for (size_t d = 0; d < from.size(); ++d) {
    Expr wanted = to[to.size() - from.size() + d];
    if (!from[d].is_const(1) && !(from[d] == wanted)) return false;
  }
  return true;
}

bool is_loop(const Program& p, const ExternStep& e, const std::vector<bool>& seen) {
  if (!e.node.valid() || p.graph->node(e.node).target != "aten.copy.default") return false;
  if (e.reads.size() != 2 || e.writes.size() != 1 || !e.writes[0].valid()) return false;
  const ir::TensorType &to = p.buffers[e.writes[0]].type, &from = p.buffers[e.reads[1]].type;
  return !seen[e.writes[0].index] && p.buffers[e.writes[0]].kind == Buffer::Kind::Extern &&
         to.dtype == from.dtype && ops::is_computable(to.dtype) && from.device == to.device &&
         broadcasts_to(from.sizes, to.sizes);
}

Loop copy_loop(Program& p, const ExternStep& e, size_t number) {
  Buffer& to = p.buffers[e.writes[0]];
  const Buffer& from = p.buffers[e.reads[1]];
  to.kind = Buffer::Kind::Temp;
  to.type.offset = 0;
  to.type.strides = ir::contiguous_strides(to.type.sizes);
  Loop loop;
  loop.name = cat("op", number, "_copy");
  loop.origins = {e.node};
  loops::VariableScope scope(*p.variables);
  Inst load{.op = LoopOp::Load, .dtype = to.type.dtype, .buffer = e.reads[1]};
  Inst store{.op = LoopOp::Store, .dtype = to.type.dtype, .args = {0}, .buffer = e.writes[0]};
  size_t missing = to.type.sizes.size() - from.type.sizes.size();
  for (size_t d = 0; d < to.type.sizes.size(); ++d) {
    Expr size = to.type.sizes[d], at = 0;
    if (!size.is_const(1)) {
      at = scope.get('p', size);
      loop.axes.push_back({at, size, false});
    }
    store.index.push_back(at);
    if (d >= missing) load.index.push_back(from.type.sizes[d - missing].is_const(1) ? Expr(0) : at);
  }
  loop.body = {std::move(load), std::move(store)};
  return loop;
}

}  // namespace

void copies_to_loops(Program& p) {
  if (!p.graph) return;
  std::optional<std::vector<bool>> seen;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const auto* e = std::get_if<ExternStep>(&p.steps[i]);
    if (!e) continue;
    if (!seen) seen = seen_layouts(p);
    if (is_loop(p, *e, *seen)) p.steps[i] = copy_loop(p, ExternStep(*e), i);
  }
}

}  // namespace oxy::schedule
