// Recordings of branches and loop bodies as regions of the graph around them.
#include <algorithm>

#include "ir/graph.h"
#include "ir/specialize.h"
#include "ops/op_table.h"
#include "support/check.h"
#include "torch_bridge/recorder.h"

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

// Constants of regions as inputs behind the others, the same in each region: they are returned, as
// operands.
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

// The graph as a region of another one. A result that is a copy of an input becomes the input,
// which the node copies. Unsupported for what no region may be.
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

// Whether they are laid out alike; of sizes that vary that becomes a fact.
bool alike(const Recording& r, const ir::Type& a, const ir::Type& b) {
  const ir::TensorType &x = a.tensor, &y = b.tensor;
  const bool comparable = x.dtype == y.dtype && x.device == y.device &&
                          x.sizes.size() == y.sizes.size() && r.shapes.has_value();
  if (!comparable) return same_layout(x, y);
  auto equal = [&](ir::Expr e, ir::Expr f) { return r.shapes->facts()->decide(sym::equal(e, f)); };
  return std::ranges::equal(x.sizes, y.sizes, equal) &&
         std::ranges::equal(x.strides, y.strides, equal);
}

// Of all blocks, where a region gives the type of one: `query` has the sizes of the others.
ir::TensorType of_all_blocks(ir::TensorType block, const ir::TensorType& query) {
  std::copy_n(query.sizes.begin(), 3, block.sizes.begin());
  block.strides = ir::contiguous_strides(block.sizes);
  return block;
}

// What a node with these regions gives. Unsupported where a branch or a round would give something
// else.
std::vector<ir::Type> result_types(const Recording& r, const ir::RegionOp& op,
                                   const std::vector<RecordedRegion>& regions) {
  const ir::Graph &last = regions.back().graph, &first = regions.front().graph;
  std::vector<ir::Type> out;
  for (size_t i = 0; i < last.outputs.size(); ++i) {
    ir::Type& type = out.emplace_back(result_type(last, last.outputs[i]));
    type.tensor.offset = 0;
    type.tensor.requires_grad = false;
    if (r.shapes) r.shapes->simplify(type.tensor);
    const bool same = op.carries || (i < first.outputs.size() &&
                                     alike(r, result_type(first, first.outputs[i]), type));
    if (!same) throw Unsupported("branches whose results differ in size, strides or dtype");
    if (op.by_blocks() && (type.tensor.dim() != 4 ||
                           !alike(r, last.value(last.inputs()[op.fixed - 3 + i]).type, type)))
      throw Unsupported("a state of blocks that changes its size, strides or dtype");
    if (op.carries && !alike(r, last.value(last.inputs()[i]).type, type))
      throw Unsupported(
          "a loop whose results differ from what it carries in size, strides or dtype");
  }
  if (!op.carries && first.outputs.size() != out.size())
    throw Unsupported("branches with unequal many results");
  return out;
}

// An operand in the layout that the regions were recorded for.
ir::Arg operand(Recording& r, const at::Tensor& t, const ir::Type& wanted) {
  const ir::Arg a = r.arg_of(t);
  if (!a.is_value()) throw Unsupported("a branch or loop of a number");
  const ir::TensorType& type = wanted.tensor;
  if (!same_layout(type, r.graph.tensor_type(a.value())) && type.may_overlap_itself())
    throw Unsupported("a branch or loop of a tensor that overlaps itself");
  return laid_out_as(r.graph, type, a.value());
}

}  // namespace

std::vector<at::Tensor> add_regions(Recording& r, const std::string& op,
                                    std::vector<at::Tensor> args,
                                    std::vector<RecordedRegion> regions) {
  for (const at::Tensor& t : lift_attributes(regions)) args.push_back(r.constant(t).wrapper);
  for (RecordedRegion& region : regions) make_region(region.graph, r.graph.pool);
  const ir::RegionOp& row = *ir::find_region_op(op);
  std::vector<ir::Type> results = result_types(r, row, regions);
  r.simplify_sizes();
  for (RecordedRegion& region : regions)
    if (r.shapes)
      ir::map_exprs(region.graph, [&](ir::Expr e) { return r.shapes->facts()->simplify(e); });
  const ir::Graph& last = regions.back().graph;
  std::vector<ir::Arg> values;
  if (row.by_blocks())
    for (ir::Type& t : results)
      t.tensor = of_all_blocks(t.tensor, r.graph.tensor_type(r.arg_of(args[4]).value()));
  for (size_t i = 0; i < args.size(); ++i)
    values.push_back(
        i < row.arguments
            ? r.arg_of(args[i])
            : operand(r, args[i], last.value(last.inputs().at(i - row.arguments)).type));
  ir::Node& n = r.add_call(ir::NodeKind::Region, op, std::move(values), results);
  for (RecordedRegion& region : regions) n.regions.push_back(std::move(region.graph));
  std::vector<at::Tensor> out;
  for (ir::ValueId v : n.outputs) {
    out.push_back(at::functionalization::impl::to_functional_tensor(r.another_fake(v)));
    forbid_data(out.back());
  }
  return out;
}

}  // namespace oxy::bridge
