// Gives what a write into a part of a part makes memory of its own, and what reads that the types
// that follow.
#include <algorithm>
#include <unordered_map>

#include "passes/pass_list.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

// Its result has the layout of the view that is written.
bool is_sparse_write(const ir::Graph& g, const ir::Node& n) {
  static constexpr std::string_view kWrites[] = {
      "aten.copy.default", "aten.diagonal_scatter.default", "aten.select_scatter.default",
      "aten.slice_scatter.default"};
  if (n.dead || n.kind != ir::NodeKind::CallOp || std::ranges::count(kWrites, n.target) == 0)
    return false;
  const ir::TensorType& t = g.tensor_type(n.outputs[0]);
  return !t.offset.is_const(0) || !t.is_dense();
}

class WriteCompacter {
 public:
  explicit WriteCompacter(ir::Graph& g) : graph_(g), seen_(g), readers_(g.value_count()) {}

  bool run() {
    const std::vector<ir::NodeId> order = graph_.order();
    for (ir::NodeId id : order)
      for_each_value(graph_.node(id), [&](ir::ValueId v) { readers_[v.index].push_back(id); });
    bool changed = false;
    for (ir::NodeId id : order)
      if (is_sparse_write(graph_, graph_.node(id))) changed |= compact(graph_.node(id));
    if (changed) graph_.compact();
    return changed;
  }

 private:
  bool compact(ir::Node& n) {
    const ir::ValueId out = n.outputs[0];
    ir::TensorType type = graph_.tensor_type(out);
    type.strides = ir::contiguous_strides(type.sizes);
    type.offset = 0;
    const size_t first = graph_.node_count();
    const bool is_copy = n.target == "aten.copy.default";
    const std::optional<ir::ValueId> made = where_shapes_are_known(graph_, [&] {
      ops::Rewriter r(graph_, n.id);
      return std::optional(is_copy ? copied(r, n.args[1].value(), type)
                                   : r.compact(n.args[0].value()));
    });
    old_.clear();
    if (!made || !change(out, type)) {
      for (auto& [v, before] : old_) graph_.value(v).type.tensor = before;
      kill_from(graph_, first);
      return false;
    }
    if (!is_copy) {
      n.args[0] = *made;
      return true;
    }
    graph_.replace_uses(out, *made);
    return n.dead = true;
  }

  static ir::ValueId copied(ops::Rewriter& r, ir::ValueId source, const ir::TensorType& to) {
    const ir::ValueId v = r.cast(source, to.dtype);
    return r.compact(
        r.type(v).sizes == to.sizes ? v : r.call("aten.expand.default", {v, list_of(to.sizes)}));
  }

  // Gives a value another layout, and all that is computed of it what follows. False where somebody
  // would see it, or what follows is not known.
  bool change(ir::ValueId v, const ir::TensorType& type) {
    ir::TensorType& now = graph_.value(v).type.tensor;
    if (same_place(now, type)) return true;
    if (seen_.escapes(v) || type.sizes != now.sizes) return false;
    old_.try_emplace(v, now);
    now = type;
    if (v.index >= readers_.size()) return true;
    return std::ranges::all_of(readers_[v.index], [&](ir::NodeId id) { return follow(id); });
  }

  bool follow(ir::NodeId id) {
    const ir::Node& n = graph_.node(id);
    const ops::OpInfo* info = ops::find(n);
    std::vector<ir::Type> types;
    const bool known = info && info->shape && (info->element || info->reduction) &&
                       info->shape(ops::Args(graph_, n), types) && types.size() == n.outputs.size();
    if (!known) return false;
    for (size_t i = 0; i < types.size(); ++i)
      if (!types[i].is_tensor() || !change(n.outputs[i], types[i].tensor)) return false;
    return true;
  }

  ir::Graph& graph_;
  const Replacements seen_;  // by the caller
  std::vector<std::vector<ir::NodeId>> readers_;
  std::unordered_map<ir::ValueId, ir::TensorType> old_;  // types from before the change
};

}  // namespace

bool compact_writes(ir::Graph& g) {
  const auto is_one = [&](ir::NodeId id) { return is_sparse_write(g, g.node(id)); };
  if (std::ranges::none_of(g.order(), is_one)) return false;
  return WriteCompacter(g).run();
}

}  // namespace oxy::passes
