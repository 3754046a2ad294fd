// Replacements: a table from value to value.
#include "passes/replace.h"

#include <algorithm>

#include "ops/op_table.h"

namespace oxy::passes {

Replacements::Replacements(ir::Graph& g)
    : graph_(g), to_(g.value_count()), escapes_(g.value_count()) {
  mark_escaping();
}

void Replacements::mark_escaping() {
  for (const ir::OutputSpec& o : graph_.outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value) escapes_[o.value.index] = true;
  }
  for (const ir::Mutation& m : graph_.mutations) escapes_[m.value.index] = true;
  // Backwards, so that a chain of views is followed to its base. An op without a row may be a view
  // of any operand.
  const std::vector<ir::NodeId>& order = graph_.order();
  for (size_t i = order.size(); i-- > 0;) {
    const ir::Node& n = graph_.node(order[i]);
    const ops::OpInfo* info = ops::find(n);
    if (n.dead || n.kind == ir::NodeKind::Region || (info && !info->has(ops::View))) continue;
    bool any = std::ranges::any_of(n.outputs, [&](ir::ValueId v) { return escapes_[v.index]; });
    if (any) for_each_value(n, [&](ir::ValueId v) { escapes_[v.index] = true; });
  }
}

bool Replacements::replace(ir::ValueId from, ir::ValueId to) {
  to = resolve(to);
  if (from == to || !same_place(graph_.value(from).type, graph_.value(to).type)) return false;
  if (escapes(from)) {
    const ir::Node& def = graph_.def(to);
    const ops::OpInfo* info = ops::find(def);
    bool own = def.kind == ir::NodeKind::Region || (info && !info->has(ops::View));
    if (!own || escapes(to)) return false;
  }
  set(from, to);
  return true;
}

bool Replacements::replace_node(ir::Node& n, ir::ValueId to) {
  if (n.outputs.size() != 1 || !replace(n.outputs[0], to)) return false;
  n.dead = true;
  return true;
}

void Replacements::replace_unchecked(ir::ValueId from, ir::ValueId to) { set(from, resolve(to)); }

void Replacements::set(ir::ValueId from, ir::ValueId to) {
  to_.resize(graph_.value_count());
  escapes_.resize(graph_.value_count());
  to_[from.index] = to;
  if (escapes_[from.index]) escapes_[to.index] = true;
  ++count_;
}

ir::ValueId Replacements::resolve(ir::ValueId v) const {
  while (v.index < to_.size() && to_[v.index].valid()) v = to_[v.index];
  return v;
}

void Replacements::apply() {
  if (empty()) return;
  graph_.replace_uses([this](ir::ValueId v) { return resolve(v); });
  graph_.compact();
}

}  // namespace oxy::passes
