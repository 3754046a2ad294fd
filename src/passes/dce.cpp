// Dead code elimination: one backward walk, counting readers.
#include "passes/pass_list.h"

#include <algorithm>
#include <array>

#include "ir/graph.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

bool drop_idle_mutations(ir::Graph& g) {
  return std::erase_if(g.mutations, [&](const ir::Mutation& m) {
           return !m.metadata && m.value == g.inputs()[m.input];
         }) > 0;
}

bool reads_parameter(const ir::Graph& region, size_t i) {
  auto returned = [&](const ir::OutputSpec& o) {
    return o.kind == ir::OutputSpec::Kind::Input && o.index == i;
  };
  return region.use_counts()[region.inputs()[i].index] > 0 ||
         std::ranges::any_of(region.outputs, returned);
}

bool drop_unused_operands(ir::Node& n) {
  const ir::RegionOp& op = ir::region_op(n);
  bool changed = false;
  for (size_t i = n.args.size() - op.arguments; i-- > ir::first_optional_operand(n);) {
    const size_t parameter = i + op.parameters;
    if (std::ranges::any_of(n.regions, [&](auto& r) { return reads_parameter(r, parameter); }))
      continue;
    for (ir::Graph& r : n.regions) r.drop_input(parameter);
    n.args.erase(n.args.begin() + static_cast<ptrdiff_t>(op.arguments + i));
    changed = true;
  }
  return changed;
}

// What a factorisation computes beside the values where an argument asks for it. PyTorch asks for
// tensors that it cannot look into, since it does not know who reads them. Not linalg_eig: what
// computes the eigenvalues alone does not check that its operand is finite, and crashes.
struct Vectors {
  std::string_view op;
  size_t argument = 0;  // true: they are computed; without them they have no elements
  std::array<int, 2> outputs{-1, -1};
};
constexpr Vectors kVectors[] = {{"aten._linalg_eigh.default", 2, {1, -1}},
                                {"aten._linalg_svd.default", 2, {0, 2}}};

bool is_true(const ir::Arg& a) {
  const bool* b = std::get_if<bool>(&a.v);
  return b && *b;
}

bool drop_unread_vectors(ir::Graph& g, ir::Node& n, const std::vector<uint32_t>& uses) {
  const auto* v = std::ranges::find(kVectors, n.target, &Vectors::op);
  if (v == std::end(kVectors) || !is_true(n.arg(v->argument))) return false;
  for (int i : v->outputs)
    if (i >= 0 && uses[n.outputs[static_cast<size_t>(i)].index] > 0) return false;
  n.args[v->argument] = false;
  for (int i : v->outputs) {
    if (i < 0) continue;
    ir::TensorType& type = g.value(n.outputs[static_cast<size_t>(i)]).type.tensor;
    type.sizes = {0};
    type.strides = {1};
  }
  return true;
}

}  // namespace

bool dce(ir::Graph& g) {
  bool changed = drop_idle_mutations(g);
  for (ir::NodeId id : g.order()) {
    ir::Node& n = g.node(id);
    if (!n.dead && n.kind == ir::NodeKind::Region) changed |= drop_unused_operands(n);
  }
  std::vector<uint32_t> uses = g.use_counts();
  const std::vector<ir::NodeId>& order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    ir::Node& n = g.node(order[i]);
    if (n.dead || !is_removable(n)) continue;
    bool read = false;
    for (ir::ValueId v : n.outputs) read |= uses[v.index] > 0;
    if (read) {
      changed |= drop_unread_vectors(g, n, uses);
      continue;
    }
    n.dead = changed = true;
    for_each_value(n, [&](ir::ValueId v) { --uses[v.index]; });
  }
  g.compact();
  return changed;
}

}  // namespace oxy::passes
