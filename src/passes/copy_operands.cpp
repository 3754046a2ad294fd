// Clones in front of gemms.
#include <map>

#include "ops/contraction.h"
#include "passes/pass_list.h"

namespace oxy::passes {
namespace {

ir::ValueId row_major_copy(ir::Graph& g, const ir::Node& n, ir::ValueId v) {
  ir::TensorType type = g.tensor_type(v);
  type.strides = ir::contiguous_strides(type.sizes);
  type.offset = 0;
  ir::Node& copy = g.insert_call(n.id, ir::NodeKind::CallOp, "aten.clone.default",
                                 {v, ir::MemoryFormat{0}}, {ir::Type::of(std::move(type))});
  copy.stack = n.stack;
  copy.parent = n.parent;
  return copy.outputs[0];
}

}  // namespace

bool copy_operands(ir::Graph& g, const Machine& machine) {
  const ops::Providers providers = ops::providers_on(machine, "auto");
  std::map<uint32_t, ir::ValueId> copies;  // by value
  const std::vector<ir::NodeId> order = g.order();
  for (ir::NodeId id : order) {
    ir::Node& n = g.node(id);
    if (n.dead) continue;
    const ops::OperandCopies wanted = ops::wants_row_major(g, n, providers);
    if (!wanted.a && !wanted.b) continue;
    const auto gemm = ops::contraction_of(g, n);
    auto copied = [&](ir::ValueId v) {
      const auto [it, is_new] = copies.try_emplace(v.index);
      if (is_new) it->second = row_major_copy(g, n, v);
      return it->second;
    };
    const ir::ValueId a = wanted.a ? copied(gemm->a) : gemm->a;
    const ir::ValueId b = wanted.b ? copied(gemm->b) : gemm->b;
    const size_t first = gemm->bias.valid() ? 1 : 0;
    n.args[first] = a;
    n.args[first + 1] = b;
  }
  return !copies.empty();
}

}  // namespace oxy::passes
