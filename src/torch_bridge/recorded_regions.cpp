// Lifts attributes to the regions' inputs, and makes recordings regions of a graph.
#include "torch_bridge/recorded_regions.h"

#include <algorithm>

#include "ops/op_table.h"
#include "support/check.h"

namespace oxy::bridge {
namespace {

using OutputKind = ir::OutputSpec::Kind;

std::vector<ir::NodeId> attributes_of(const ir::Graph& g) {
  std::vector<ir::NodeId> out;
  for (ir::NodeId id : g.order())
    if (!g.node(id).dead && g.node(id).kind == ir::NodeKind::Attribute) out.push_back(id);
  return out;
}

// The input that a value is a copy of.
std::optional<uint32_t> copied_input(const ir::Graph& g, ir::ValueId v) {
  const ir::Node& n = g.def(v);
  if (n.target != "aten.clone.default" || !n.arg(0).is_value()) return std::nullopt;
  const ir::ValueId of = n.args[0].value();
  auto it = std::ranges::find(g.inputs(), of);
  if (it == g.inputs().end() || !same_layout(g.tensor_type(of), g.tensor_type(v)))
    return std::nullopt;
  return static_cast<uint32_t>(it - g.inputs().begin());
}

const ir::Type& result_type(const ir::Graph& g, const ir::OutputSpec& o) {
  return g.value(o.kind == OutputKind::Input ? g.inputs()[o.index] : o.value).type;
}

}  // namespace

std::vector<at::Tensor> lift_attributes(std::vector<RecordedRegion>& regions) {
  std::vector<at::Tensor> out;
  for (const RecordedRegion& r : regions)
    for (const at::Tensor& t : r.attributes)
      if (std::ranges::none_of(out, [&](const at::Tensor& o) { return o.is_same(t); }))
        out.push_back(t);
  for (RecordedRegion& r : regions) {
    const std::vector<ir::NodeId> nodes = attributes_of(r.graph);
    OXY_CHECK(nodes.size() == r.attributes.size(), "a recording with other attributes");
    for (const at::Tensor& t : out) {
      const ir::ValueId input = r.graph.add_input("constant", ir::Type::of(type_of(t)));
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (!r.attributes[i].is_same(t)) continue;
        r.graph.replace_uses(r.graph.node(nodes[i]).outputs[0], input);
        r.graph.kill(nodes[i]);
      }
    }
    r.graph.compact();
  }
  return out;
}

void make_region(ir::Graph& graph, const std::shared_ptr<sym::ExprPool>& pool) {
  if (!graph.mutations.empty())
    throw Unsupported("a branch or loop that writes to a tensor from outside");
  for (ir::NodeId id : graph.order()) {
    const ops::OpInfo* op = ops::find(graph.node(id));
    if (op && op->has(ops::Random)) throw Unsupported("a branch or loop that draws random numbers");
    // An operand may lie elsewhere in its memory than the tensor that was recorded.
    if (graph.node(id).target.starts_with("aten.as_strided"))
      throw Unsupported("a branch or loop that names places in memory");
  }
  std::vector<bool> given(graph.value_count());
  for (ir::OutputSpec& o : graph.outputs) {
    if (o.kind != OutputKind::Value || o.conj || o.neg || given[o.value.index])
      throw Unsupported("a branch or loop whose results share memory");
    given[o.value.index] = true;
    if (const auto input = copied_input(graph, o.value)) {
      o.kind = OutputKind::Input;
      o.index = *input;
    }
  }
  graph.pool = pool;
  ir::for_each_region(graph, [&](ir::Graph& region) { region.pool = pool; });
}

std::vector<ir::Type> result_types(const ir::RegionOp& op,
                                   const std::vector<RecordedRegion>& regions) {
  const ir::Graph &last = regions.back().graph, &first = regions.front().graph;
  std::vector<ir::Type> out;
  for (size_t i = 0; i < last.outputs.size(); ++i) {
    ir::Type& type = out.emplace_back(result_type(last, last.outputs[i]));
    type.tensor.offset = 0;
    type.tensor.requires_grad = false;
    const bool same =
        op.carries || (i < first.outputs.size() &&
                       same_layout(result_type(first, first.outputs[i]).tensor, type.tensor));
    if (!same) throw Unsupported("branches whose results differ in size, strides or dtype");
    if (op.carries && !same_layout(last.tensor_type(last.inputs()[i]), type.tensor))
      throw Unsupported("a loop whose results differ from what it carries");
  }
  if (!op.carries && first.outputs.size() != out.size())
    throw Unsupported("branches with unequal many results");
  return out;
}

}  // namespace oxy::bridge
