// Carries channels-last from convolutions through the graph, with copies where it has to end.
#include "passes/pass_list.h"

#include <algorithm>
#include <unordered_map>

#include "ops/contraction.h"
#include "ops/gradients.h"
#include "ops/op_table.h"
#include "ops/shapes.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

constexpr int8_t kContiguous = 0, kChannelsLast = 2;  // c10::MemoryFormat

class LayoutChooser {
 public:
  LayoutChooser(ir::Graph& g, const Machine& machine)
      : graph_(g), machine_(machine), providers_(ops::providers_on(machine, "auto")) {}

  bool run() {
    const std::vector<ir::NodeId> order = graph_.order();
    for (ir::NodeId id : order) {
      ir::Node& n = graph_.node(id);
      if (n.dead) continue;
      if (ops::wants_channels_last(graph_, n, providers_))
        convert(n);
      else if (ops::library_wants_channels_last(graph_, n, machine_))
        convert_call(n);
      else if (reads_changed(n))
        propagate(n);
    }
    if (!old_type_.empty()) restore_results();
    return !old_type_.empty();
  }

 private:
  void convert(ir::Node& n) {
    n.args[0] = ir::Arg(channels_last(n.args[0].value(), n.id));
    change_to_channels_last(n.outputs[0]);
  }

  // The library's: the filter as well. (What lies otherwise than predicted is copied.)
  void convert_call(ir::Node& n) {
    const size_t operands = n.target == "aten.convolution.default" ? 2 : 3;
    for (size_t i = 0; i < operands; ++i) {
      const ir::ValueId v = n.args[i].value();
      if (ops::is_channels_last(graph_.tensor_type(v))) continue;
      const bool is_read = i != 1 || operands == 2 || needs_image(n);
      n.args[i] = ir::Arg(is_read ? channels_last(v, n.id) : unwritten(v, n.id));
    }
    // ATen asks the strides of the image and of the filter, those of dimensions of size 1 as well.
    const size_t image = operands - 2;
    if (!says_channels_last(n.args[image].value()) &&
        !says_channels_last(n.args[image + 1].value()))
      n.args[image] = ir::Arg(seen_as_channels_last(n.args[image].value(), n.id));
    for (const ir::ValueId v : n.outputs)  // a bias's gradient has one dimension
      if (graph_.value(v).type.is_tensor() && graph_.tensor_type(v).dim() == 4)
        change_to_channels_last(v);
  }

  // The gradient of the image alone reads no more than its sizes.
  bool needs_image(const ir::Node& n) const {
    const auto wanted = ops::output_mask(ops::Args(graph_, n), 10, 3);
    return !wanted || (*wanted)[1];
  }

  ir::ValueId unwritten(ir::ValueId like, ir::NodeId before) {
    const ir::MemoryFormat format{kChannelsLast};
    const ir::ValueId v = insert_copy(graph_, before, like, format,
                                      ops::channels_last_strides(graph_.tensor_type(like).sizes));
    ir::Node& made = graph_.node(graph_.def(v).id);
    const ir::None none;
    made.target = "aten.empty_like.default";
    made.args = {like, none, none, none, none, format};
    return v;
  }

  bool says_channels_last(ir::ValueId v) const {
    return ops::suggests_channels_last(graph_.tensor_type(v)).value_or(false);
  }

  // A view of the same memory, which lies so but for dimensions of size 1.
  ir::ValueId seen_as_channels_last(ir::ValueId v, ir::NodeId before) {
    const ir::TensorType& type = graph_.tensor_type(v);
    const std::vector<ir::Expr> strides = ops::channels_last_strides(type.sizes);
    const ir::Arg sizes = list_of(type.sizes), offset = type.offset;
    return ops::Rewriter(graph_, before)
        .call("aten.as_strided.default", {v, sizes, list_of(strides), offset});
  }

  void change_to_channels_last(ir::ValueId v) {
    ir::TensorType type = graph_.tensor_type(v);
    type.strides = ops::channels_last_strides(type.sizes);
    change(v, std::move(type));
  }

  void change(ir::ValueId v, ir::TensorType type) {
    ir::TensorType& now = graph_.value(v).type.tensor;
    if (now == type) return;
    old_type_.try_emplace(v, now);
    now = std::move(type);
  }

  bool reads_changed(const ir::Node& n) const {
    bool any = false;
    for_each_value(n, [&](ir::ValueId v) { any |= old_type_.contains(v); });
    return any;
  }

  // `v` or its one copy.
  ir::ValueId channels_last(ir::ValueId v, ir::NodeId before) {
    const ir::TensorType& type = graph_.tensor_type(v);
    std::vector<ir::Expr> wanted = ops::channels_last_strides(type.sizes);
    if (type.strides == wanted) return v;
    const ir::Node& made = graph_.def(v);
    if (made.target == "aten.clone.default" &&
        graph_.tensor_type(made.args[0].value()).strides == wanted)
      return made.args[0].value();
    auto [it, fresh] = channels_last_.try_emplace(v);
    if (fresh) it->second = insert_copy(graph_, before, v, {kChannelsLast}, std::move(wanted));
    return it->second;
  }

  // Where one of the operands that are as large as the result has become channels-last, all are:
  // the first decides how the result lies, and a sum with a shortcut is read by a convolution.
  void align_operands(ir::Node& n) {
    if (n.outputs.size() != 1 || !graph_.value(n.outputs[0]).type.is_tensor()) return;
    const std::vector<ir::Expr> sizes = graph_.tensor_type(n.outputs[0]).sizes;
    if (sizes.size() != 4) return;
    auto whole = [&](ir::ValueId v) {
      return graph_.value(v).type.is_tensor() && graph_.tensor_type(v).sizes == sizes;
    };
    bool changed = false;
    for_each_value(n, [&](ir::ValueId v) {
      changed |= whole(v) && old_type_.contains(v) && ops::is_channels_last(graph_.tensor_type(v));
    });
    if (!changed) return;
    for (ir::Arg& a : n.args)
      a = ir::map_values(a, [&](ir::ValueId v) { return whole(v) ? channels_last(v, n.id) : v; });
  }

  // The node on operands in their new layouts, if its shape rule knows what comes out; else on
  // copies in the old ones.
  void propagate(ir::Node& n) {
    const ops::OpInfo* info = ops::find(n);
    if (info && info->has(ops::Pointwise)) align_operands(n);
    std::vector<ir::Type> types;
    bool known = info && info->shape && info->element && !n.outputs.empty() &&
                 info->shape(ops::Args(graph_, n), types) && types.size() == n.outputs.size();
    for (size_t i = 0; known && i < types.size(); i++)
      known =
          types[i].is_tensor() && types[i].tensor.sizes == graph_.tensor_type(n.outputs[i]).sizes;
    if (!known) return restore_operands(n);
    for (size_t i = 0; i < types.size(); i++) change(n.outputs[i], std::move(types[i].tensor));
  }

  // `v` in the layout that it had before this pass.
  ir::ValueId restored(ir::ValueId v, ir::NodeId before) {
    auto it = old_type_.find(v);
    if (it == old_type_.end()) return v;
    auto [kept, fresh] = restored_.try_emplace(v);
    if (fresh) kept->second = insert_copy(graph_, before, v, {kContiguous}, it->second.strides);
    return kept->second;
  }

  void restore_operands(ir::Node& n) {
    for (ir::Arg& a : n.args)
      a = ir::map_values(a, [&](ir::ValueId v) { return restored(v, n.id); });
  }

  void restore_results() {
    const ir::NodeId last = graph_.order().back();
    auto at_end = [&](ir::ValueId v) {
      auto it = old_type_.find(v);
      if (it == old_type_.end()) return v;
      auto [kept, fresh] = results_.try_emplace(v);
      if (fresh) {
        ir::Node& c = graph_.add_call(ir::NodeKind::CallOp, "aten.clone.default",
                                      {ir::Arg(v), ir::Arg(ir::MemoryFormat{kContiguous})},
                                      {ir::Type::of(it->second)});
        c.stack = graph_.node(last).stack;
        kept->second = c.outputs[0];
      }
      return kept->second;
    };
    for (ir::OutputSpec& o : graph_.outputs)
      if (o.kind == ir::OutputSpec::Kind::Value && o.value.valid() && !o.any_layout)
        o.value = at_end(o.value);
    for (ir::Mutation& m : graph_.mutations) m.value = at_end(m.value);
  }

  ir::Graph& graph_;
  const Machine& machine_;
  const ops::Providers providers_;
  std::unordered_map<ir::ValueId, ir::TensorType> old_type_;
  std::unordered_map<ir::ValueId, ir::ValueId> channels_last_, restored_, results_;
};

// A layout that `clone` cannot name (a permuted result, say) could not be restored: then nothing is
// changed.
bool all_nameable(const ir::Graph& g) {
  return std::ranges::find(g.outputs, ir::OutputSpec::Kind::ViewOfOutput, &ir::OutputSpec::kind) ==
         g.outputs.end();
}

}  // namespace

bool choose_layouts(ir::Graph& g, const Machine& machine) {
  return all_nameable(g) && LayoutChooser(g, machine).run();
}

}  // namespace oxy::passes
