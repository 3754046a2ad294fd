// Writes a gemm with few rows as a broadcast multiplication and a sum.
#include "passes/thin_gemms.h"

#include "ops/contraction.h"
#include "ops/rewriter.h"
#include "passes/replace.h"

namespace oxy::passes {
namespace {

using ir::ValueId;

// sum over k of x[..., m, k] * w[..., k, n]
ValueId rows_times_matrix(ops::Rewriter& r, ValueId x, ValueId w) {
  const int64_t k = r.type(x).dim() - 1;
  ValueId rows = r.call("aten.unsqueeze.default", {x, k + 1});
  ValueId columns = r.call("aten.unsqueeze.default", {w, k - 1});
  ValueId terms = r.call("aten.mul.Tensor", {rows, columns});
  return r.call("aten.sum.dim_IntList", {terms, ir::Arg(ir::List{{k}}), false});
}

}  // namespace

bool thin_gemms(ir::Graph& g) {
  Replacements replacements(g);
  const std::vector<ir::NodeId> order = g.order();
  for (ir::NodeId id : order) {
    const ir::Node n = g.node(id);
    if (n.dead) continue;
    const auto gemm = ops::contraction_of(g, n);
    if (!gemm || ops::provider_of(g, n, {}) != ops::Provider::Loops) continue;
    ops::Rewriter r(g, id);
    ValueId out = rows_times_matrix(r, gemm->a, gemm->b);
    if (gemm->bias.valid()) out = r.call("aten.add.Tensor", {out, gemm->bias});
    if (!same_place(g.value(out).type, g.value(n.outputs[0]).type)) continue;
    replacements.replace_unchecked(n.outputs[0], out);
    g.kill(id);
  }
  const bool changed = !replacements.empty();
  replacements.apply();
  g.compact();
  return changed;
}

}  // namespace oxy::passes
