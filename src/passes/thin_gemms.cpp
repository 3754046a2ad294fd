// Writes a gemm with few rows as a broadcast multiplication and a sum.
#include "passes/pass_list.h"

#include "ops/contraction.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::ValueId;

// sum over k of x[..., m, k] * w[..., k, n]
ValueId rows_times_matrix(ops::Rewriter& r, ValueId x, ValueId w) {
  const int64_t k = r.type(x).dim() - 1;
  ValueId rows = r.call("aten.unsqueeze.default", {x, k + 1});
  ValueId columns = r.call("aten.unsqueeze.default", {w, k - 1});
  return r.sum(r.mul(rows, columns), {k}, false);
}

}  // namespace

bool thin_gemms(ir::Graph& g) {
  return replace_calls(g, [&](ops::Rewriter& r, const ir::Node& n) -> std::optional<ValueId> {
    const auto gemm = ops::contraction_of(g, n);
    if (!gemm || ops::provider_of(g, n, {}) != ops::Provider::Loops) return std::nullopt;
    const ValueId out = rows_times_matrix(r, gemm->a, gemm->b);
    return gemm->bias.valid() ? r.call("aten.add.Tensor", {out, gemm->bias}) : out;
  });
}

}  // namespace oxy::passes
