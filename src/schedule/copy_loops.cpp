// Finds such copies, and writes a loop for each.
#include "ops/promote.h"
#include "schedule/pass_list.h"
#include "schedule/uses.h"

namespace oxy::schedule {

using loops::ExternStep;
using loops::Loop;
using loops::Program;

namespace {

// Buffers whose layout somebody sees: extern steps, views, the caller. A view is its memory.
std::vector<bool> seen_layouts(const Program& p) {
  std::vector<bool> seen(p.buffers.size(), false);
  for (const Buffer& b : p.buffers) {
    if (b.kind == Buffer::Kind::View) seen[b.base.index] = true;
  }
  for (const loops::Step& s : p.steps) {
    if (const loops::Call* call = call_of(s)) {
      for (BufferId b : call->reads) seen[memory_of(p, b).index] = true;
    }
  }
  for (BufferId b : escaping(p)) seen[b.index] = true;
  return seen;
}

// The source's sizes, aligned at the end, are the result's or 1.
bool broadcasts_to(const std::vector<Expr>& from, const std::vector<Expr>& to) {
  return from.size() <= to.size() &&
         std::equal(from.rbegin(), from.rend(), to.rbegin(),
                    [](Expr own, Expr wanted) { return own.is_const(1) || own == wanted; });
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
  Loop loop{.name = cat("op", number, "_copy"), .origins = {e.node}};
  loops::VariableScope scope(*p.variables);
  Inst load{.op = LoopOp::Load, .dtype = to.type.dtype, .buffer = e.reads[1]};
  Inst store{.op = LoopOp::Store, .dtype = to.type.dtype, .args = {0}, .buffer = e.writes[0]};
  size_t missing = to.type.sizes.size() - from.type.sizes.size();
  for (size_t d = 0; d < to.type.sizes.size(); ++d) {
    const Expr size = to.type.sizes[d], at = size.is_const(1) ? 0 : scope.get('p', size);
    if (!size.is_const(1)) loop.axes.push_back({at, size, false});
    store.index.push_back(at);
    if (d >= missing) load.index.push_back(from.type.sizes[d - missing].is_const(1) ? Expr(0) : at);
  }
  loop.body = {std::move(load), std::move(store)};
  return loop;
}

// By the caller or a call, and `by_loops` too.
bool is_read(const Program& p, BufferId memory, bool by_loops) {
  auto is_it = [&](BufferId b) { return b.valid() && memory_of(p, b) == memory; };
  return escaping(p).contains(memory) || std::ranges::any_of(p.steps, [&](const loops::Step& s) {
           if (const loops::Call* call = call_of(s)) return std::ranges::any_of(call->reads, is_it);
           return by_loops && std::ranges::any_of(std::get<Loop>(s).body, is_it, &Inst::buffer);
         });
}

// Memory that a copy was made into, and nobody reads by now. What was read to make it, its layout
// alone, may stay in registers where no other call reads it.
void remove_unread_memory(Program& p) {
  for (size_t i = p.steps.size(); i-- > 0;) {
    const auto* e = std::get_if<ExternStep>(&p.steps[i]);
    if (!e || !e->node.valid() ||
        p.graph->node(e->node).target != "aten.new_empty_strided.default" ||
        is_read(p, memory_of(p, e->writes[0]), true))
      continue;
    const BufferId like = memory_of(p, e->reads[0]);
    p.steps.erase(p.steps.begin() + static_cast<ptrdiff_t>(i));
    if (p.buffers[like].kind == Buffer::Kind::Output && !is_read(p, like, false))
      p.buffers[like].kind = Buffer::Kind::Temp;
  }
}

}  // namespace

void copies_to_loops(Program& p) {
  if (!p.graph) return;
  const std::vector<bool> seen = seen_layouts(p);
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const auto* e = std::get_if<ExternStep>(&p.steps[i]);
    if (e && is_loop(p, *e, seen)) p.steps[i] = copy_loop(p, ExternStep(*e), i);
  }
  remove_unread_memory(p);
}

}  // namespace oxy::schedule
