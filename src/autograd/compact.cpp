// Shape rules asked again, for operands of other types.
#include "autograd/compact.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "autograd/recompute.h"
#include "ops/args.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Type;
using ir::ValueId;
using NewTypes = std::unordered_map<uint32_t, Type>;  // by value

// What a node gives when some operands have other types; nothing where no rule knows.
std::optional<std::vector<Type>> types_with(const Graph& g, const Node& n, const NewTypes& types) {
  const ops::OpInfo* info = ops::find(n);
  if (!info || !info->shape) return std::nullopt;
  Graph scratch(g.stage, g.pool);
  std::vector<ir::Arg> args;
  for (const ir::Arg& a : n.args)
    args.push_back(map_values(a, [&](ValueId v) {
      const auto it = types.find(v.index);
      return scratch.add_input("", it == types.end() ? g.value(v).type : it->second);
    }));
  std::vector<Type> out;
  if (!info->shape(ops::Args(scratch, args), out) || out.size() != n.outputs.size())
    return std::nullopt;
  return out;
}

// A view by place of elements, whatever its operand's strides: as_strided is none.
bool follows_layout(const Node& n) { return passes::is_view(n) && ops::find(n)->element; }

// Notes the types of a node that reads something whose type has changed; false where it minds.
bool note_types(const Graph& g, const Node& n, NewTypes& types) {
  if (n.kind == ir::NodeKind::Region) return false;
  bool reads = false;
  for_each_value(n, [&](ValueId v) { reads |= types.contains(v.index); });
  if (!reads) return true;
  const auto given = types_with(g, n, types);
  if (!given) return false;
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const bool changed = types.contains(n.outputs[i].index);
    if (!changed && same_place((*given)[i], g.value(n.outputs[i]).type)) continue;
    if (!follows_layout(n)) return false;
    types[n.outputs[i].index] = (*given)[i];
  }
  return true;
}

}  // namespace

ir::TensorType compact(const ir::TensorType& t) {
  ir::TensorType out = t;
  if (!t.is_dense()) out.strides = ir::contiguous_strides(t.sizes);
  out.offset = 0;
  out.requires_grad = false;
  return out;
}

CompactCopies::CompactCopies(const Graph& g, const Sides& sides)
    : g_(g), readers_(g.value_count()), is_gradient_(g.value_count()) {
  for (NodeId id : g.order())
    if (is_call(g.node(id)) && sides.needed[id.index])
      for_each_value(g.node(id), [&](ValueId v) { readers_[v.index].push_back(id); });
  for (size_t i = forward_results(g); i < g.outputs.size(); ++i)
    if (g.outputs[i].kind == ir::OutputSpec::Kind::Value)
      is_gradient_[g.outputs[i].value.index] = true;
}

bool CompactCopies::is_small_view(ValueId v) const {
  if (!g_.value(v).type.is_tensor()) return false;
  auto operand = [&](ValueId of) { return g_.def(of).args[0].value(); };
  const int64_t own = bytes(g_.tensor_type(v));
  if (own == bytes(g_.tensor_type(operand(v)))) return false;  // rather that one
  ValueId base = v;
  while (passes::is_view(g_.def(base))) base = operand(base);
  return 2 * own <= bytes(g_.tensor_type(base)) && possible(v);
}

bool CompactCopies::possible(ValueId v) const {
  if (!g_.value(v).type.is_tensor()) return false;
  NewTypes types = {{v.index, Type::of(compact(g_.tensor_type(v)))}};
  if (same_place(types.begin()->second, g_.value(v).type)) return true;
  std::vector<ValueId> work = {v};
  while (!work.empty()) {
    const ValueId at = work.back();
    work.pop_back();
    if (is_gradient_[at.index]) return false;
    for (NodeId id : readers_[at.index]) {
      const Node& n = g_.node(id);
      if (!note_types(g_, n, types)) return false;
      for (ValueId o : n.outputs)
        if (types.contains(o.index) && std::ranges::find(work, o) == work.end()) work.push_back(o);
    }
  }
  return true;
}

void update_view_types(Graph& g, const std::vector<ValueId>& changed) {
  NewTypes types;
  for (ValueId v : changed) types[v.index] = g.value(v).type;
  if (types.empty()) return;
  for (NodeId id : g.order())
    if (is_call(g.node(id)))
      OXY_CHECK(note_types(g, g.node(id), types), g.node(id).target, " minds a layout");
  for (auto& [index, type] : types) g.value(ValueId(index)).type = type;
}

}  // namespace oxy::autograd
