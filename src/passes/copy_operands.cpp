// Clones in front of gemms.
#include <map>

#include "ops/contraction.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"

namespace oxy::passes {

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
      if (is_new)
        it->second = insert_copy(g, id, v, ir::MemoryFormat{0},
                                 ir::contiguous_strides(g.tensor_type(v).sizes));
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
