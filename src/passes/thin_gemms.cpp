// Writes a gemm that sums nothing as a broadcast multiplication, one with one row as that and a
// sum, and one with few columns as the transposed gemm, whose few rows read the large matrix once,
// as it lies.
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

ValueId transposed(ops::Rewriter& r, ValueId v) {
  return r.call("aten.permute.default", {v, list_of(std::vector<int64_t>{0, 2, 1})});
}

// The transpose of b^T a^T, as batches. Sums of halves are rounded behind the bias.
ValueId by_transposes(ops::Rewriter& r, const ops::ContractionNode& gemm) {
  const bool batched = r.type(gemm.a).dim() == 3;
  const ir::DType dtype = r.type(gemm.a).dtype;
  auto operand = [&](ValueId v) {
    return transposed(r, batched ? v : r.call("aten.unsqueeze.default", {v, 0}));
  };
  const ValueId rows = r.row_major(operand(gemm.b));
  const bool to_f32 = dtype != ir::DType::F32 && gemm.bias.valid();
  ValueId out = r.call(to_f32 ? ops::kBmmToF32 : "aten.bmm.default", {rows, operand(gemm.a)});
  out = r.row_major(transposed(r, out));
  if (!batched) out = r.call("aten.squeeze.dim", {out, 0});
  if (gemm.bias.valid()) out = r.add(out, to_f32 ? r.widen(gemm.bias) : gemm.bias);
  return r.cast(out, dtype);
}

// Of one value of k. Halves are rounded behind the bias.
ValueId outer_product(ops::Rewriter& r, const ops::ContractionNode& gemm, ir::DType result) {
  if (!gemm.bias.valid() && r.type(gemm.a).dtype == result) return r.mul(gemm.a, gemm.b);
  const ValueId out = r.mul(r.widen(gemm.a), r.widen(gemm.b));
  return r.cast(gemm.bias.valid() ? r.add(out, r.widen(gemm.bias)) : out, result);
}

// Of f64 and one row or column each: the library's batches take three times as long as a sum.
bool is_batch_of_vectors(const ir::Graph& g, const ops::ContractionNode& gemm) {
  const ir::TensorType &a = g.tensor_type(gemm.a), &b = g.tensor_type(gemm.b);
  return gemm.what.kind == ops::Contraction::Kind::Gemm && a.dtype == ir::DType::F64 &&
         a.device.is_cpu() && a.dim() == 3 &&
         (b.sizes.back().is_const(1) ||
          ((a.sizes.end() - 2)->is_const(1) && b.strides.back() == 1));
}

bool sums_nothing(const ir::Graph& g, const ops::ContractionNode& gemm) {
  const ir::TensorType& a = g.tensor_type(gemm.a);
  return gemm.what.kind == ops::Contraction::Kind::Gemm && a.sizes.back().is_const(1) &&
         ir::is_floating(a.dtype) && a.device.is_cpu();
}

}  // namespace

bool thin_gemms(ir::Graph& g, const Machine& machine) {
  const ops::Providers providers = ops::providers_on(machine, "auto");
  return replace_calls(g, [&](ops::Rewriter& r, const ir::Node& n) -> std::optional<ValueId> {
    const auto gemm = ops::contraction_of(g, n);
    if (!gemm) return std::nullopt;
    if (sums_nothing(g, *gemm)) return outer_product(r, *gemm, g.tensor_type(n.outputs[0]).dtype);
    const ops::Provider of_transposes = ops::provider_of_transposes(g, n, providers);
    if (of_transposes == ops::Provider::Own) return by_transposes(r, *gemm);
    if (of_transposes != ops::Provider::Loops && !is_batch_of_vectors(g, *gemm) &&
        ops::provider_of(g, n, {}) != ops::Provider::Loops)
      return std::nullopt;
    const ValueId out = rows_times_matrix(r, gemm->a, gemm->b);
    return gemm->bias.valid() ? r.call("aten.add.Tensor", {out, gemm->bias}) : out;
  });
}

}  // namespace oxy::passes
