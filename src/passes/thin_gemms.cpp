// Writes a gemm that sums nothing as a broadcast multiplication, one that sums few products, has
// one row or is one of many small matrices times a vector as that and a sum, and one with few
// columns as the transposed gemm, whose few rows read the large matrix once, as it lies.
#include "passes/pass_list.h"

#include "ops/contraction.h"
#include "passes/rewrite.h"
#include "support/tuning.h"

namespace oxy::passes {
namespace {

using ir::ValueId;
using sym::Expr;

// sum over k of x[..., m, k] * w[..., k, n]. Where columns are contiguous, k is the inner loop, so
// that what makes x is not computed in it.
ValueId rows_times_matrix(ops::Rewriter& r, ValueId x, ValueId w) {
  const int64_t k = r.type(x).dim() - 1;
  const bool columns = r.type(w).strides[static_cast<size_t>(k) - 1] == 1;
  if (columns) w = r.call("aten.transpose.int", {w, k - 1, k});
  ValueId rows = r.call("aten.unsqueeze.default", {x, columns ? k : k + 1});
  ValueId matrix = r.call("aten.unsqueeze.default", {w, k - 1});
  return r.sum(r.mul(rows, matrix), {columns ? k + 1 : k}, false);
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

// The same, each product by itself.
ValueId sum_of_products(ops::Rewriter& r, ValueId x, ValueId w) {
  const int64_t k = r.type(x).dim() - 1, count = r.type(x).sizes.back().value();
  const auto at = [&](ValueId v, int64_t dim, int64_t i) {
    return count == 1 ? v : r.call("aten.slice.Tensor", {v, dim, i, i + 1, 1});
  };
  const auto product = [&](int64_t i) { return r.mul(at(x, k, i), at(w, k - 1, i)); };
  ValueId out = product(0);
  for (int64_t i = 1; i < count; ++i) out = r.add(out, product(i));
  return out;
}

// The same, a row at a time: the kernel of all of them reads the matrix once.
ValueId row_by_row(ops::Rewriter& r, ValueId x, ValueId w) {
  const int64_t m = r.type(x).dim() - 2, rows = r.type(x).sizes[static_cast<size_t>(m)].value();
  if (rows == 1) return rows_times_matrix(r, x, w);
  ir::List parts;
  for (int64_t i = 0; i < rows; i++)
    parts.items.push_back(
        rows_times_matrix(r, r.call("aten.slice.Tensor", {x, m, i, i + 1, 1}), w));
  return r.call("aten.cat.default", {std::move(parts), m});
}

// Rows of a matrix that many rows are multiplied with are read as vectors.
ValueId in_rows(ops::Rewriter& r, ValueId v, Expr times) {
  const ir::TensorType& t = r.type(v);
  const bool rows = t.strides.back() == 1 || t.sizes.back().is_const(1);
  const bool many = ops::has_hint(times) && sym::hint(times) >= tuning::inline_transposed;
  return rows || !many ? v : r.row_major(v);
}

// Halves are rounded behind the bias.
ValueId by_loops(ops::Rewriter& r, const ops::ContractionNode& gemm, ir::DType result, bool few,
                 bool alone = false) {
  const Expr rows = *(r.type(gemm.a).sizes.end() - 2);
  const ValueId a = r.widen(gemm.a), b = r.widen(few ? in_rows(r, gemm.b, rows) : gemm.b);
  const ValueId out = few     ? sum_of_products(r, a, b)
                      : alone ? row_by_row(r, a, b)
                              : rows_times_matrix(r, a, b);
  return r.cast(gemm.bias.valid() ? r.add(out, r.widen(gemm.bias)) : out, result);
}

// What a conversion to a wider dtype converts, or nothing.
std::optional<ValueId> widened(const ir::Graph& g, const ir::Node& n) {
  const bool converts =
      n.target == "aten._to_copy.default" || n.target == "prims.convert_element_type.default";
  if (!converts || !n.arg(0).is_value()) return std::nullopt;
  const ir::TensorType &from = g.tensor_type(n.arg(0).value()), &to = g.tensor_type(n.outputs[0]);
  const bool wider = 2 * byte_size(from.dtype) <= byte_size(to.dtype);
  if (!wider || !ops::is_converted(from.dtype) || from.device != to.device) return std::nullopt;
  return n.arg(0).value();
}

// Whether the value is made of a tensor of half its bytes or less, for one reader alone: by views
// and a conversion, or by `arithmetic` as well.
bool is_widened(const ir::Graph& g, const std::vector<uint32_t>& uses, ValueId v, bool arithmetic) {
  const ir::Node& n = g.def(v);
  if (v.index >= uses.size() || uses[v.index] != 1) return false;
  if (widened(g, n)) return true;
  const ops::OpInfo* op = ops::find(n);
  if (op == nullptr || !op->has(ops::View | (arithmetic ? ops::Pointwise : 0)) ||
      !ops::rules_hold(g, n, *op))
    return false;
  const Expr elements = g.tensor_type(v).numel();
  return std::ranges::any_of(n.args, [&](const ir::Arg& a) {
    const ir::TensorType* t = tensor_of(g, a);
    return t != nullptr && t->numel() == elements && is_widened(g, uses, a.value(), arithmetic);
  });
}

bool is_on_cpu(const ir::TensorType& t) {
  return ops::is_computable(t.dtype) && t.dtype != ir::DType::B8 && t.device.is_cpu();
}

// Of f64 and one row or column each the library's batches take three times as long as a sum; of f32
// and a small matrix each ours do.
bool is_batch_of_vectors(const ir::Graph& g, const ops::ContractionNode& gemm) {
  const ir::TensorType &a = g.tensor_type(gemm.a), &b = g.tensor_type(gemm.b);
  if (gemm.what.kind != ops::Contraction::Kind::Gemm || !is_on_cpu(a) || a.dim() != 3) return false;
  const Expr rows = a.sizes[1], k = a.sizes[2];
  const bool columns = b.sizes.back().is_const(1);
  if (a.dtype == ir::DType::F32)
    return columns && (rows * k).is_const() && (rows * k).value() <= tuning::gemm_tiny_matrix;
  return a.dtype == ir::DType::F64 && (columns || (rows.is_const(1) && b.strides.back() == 1));
}

// Few rows read the right operand as it lies, where the wide one would be written and read again.
bool reads_widened(const ir::Graph& g, const ops::ContractionNode& gemm,
                   const std::vector<uint32_t>& uses) {
  const ir::TensorType& a = g.tensor_type(gemm.a);
  if (gemm.what.kind != ops::Contraction::Kind::Gemm || !is_on_cpu(a) ||
      ops::opmath(a.dtype) != ir::DType::F32)
    return false;
  const Expr rows = *(a.sizes.end() - 2);
  const int64_t most = tuning::widened_few_rows / (a.dtype == ir::DType::F32 ? 1 : 2);
  return rows.is_const() && rows.value() >= 1 && rows.value() <= most &&
         is_widened(g, uses, gemm.b, rows.is_const(1));
}

// Of bf16 and int8 weights that lie as a linear layer's the library's kernel for few rows, which
// rounds its sums once, is as fast as memory. It takes whole vectors of k.
std::optional<ValueId> with_int8_weights(ops::Rewriter& r, const ops::ContractionNode& gemm,
                                         const std::vector<uint32_t>& uses) {
  const ir::Graph& g = r.graph();
  const ir::TensorType x = r.type(gemm.a), wide = r.type(gemm.b);
  if (gemm.what.kind != ops::Contraction::Kind::Gemm || !is_on_cpu(x) || x.dim() != 2 ||
      x.dtype != ir::DType::BF16 || gemm.bias.valid() || !x.is_row_major() ||
      !ops::has_hint(x.sizes[0]) || sym::hint(x.sizes[0]) >= tuning::int8_few_rows ||
      !wide.sizes[0].is_const() || wide.sizes[0].value() % 32 != 0 ||
      wide.strides != std::vector<Expr>{1, wide.sizes[0]} || !is_widened(g, uses, gemm.b, false))
    return std::nullopt;
  const auto narrow = [&](ValueId v) { return widened(g, g.def(v)).value_or(v); };
  ValueId weights = narrow(gemm.b);
  while (g.def(weights).target == "aten.permute.default")
    weights = narrow(g.def(weights).arg(0).value());
  const ir::TensorType lies = r.type(weights);
  if (lies.dtype != ir::DType::I8 || !lies.is_row_major() ||
      lies.sizes != std::vector<Expr>{wide.sizes[1], wide.sizes[0]})
    return std::nullopt;
  const ValueId ones = r.full({wide.sizes[1]}, 1, x.dtype, x.device);
  return r.call("aten._weight_int8pack_mm.default", {gemm.a, weights, ones});
}

// Then what takes time is to read and write; or each gemm of a batch is small.
bool sums_few(const ir::Graph& g, const ops::ContractionNode& gemm) {
  const ir::TensorType &a = g.tensor_type(gemm.a), &b = g.tensor_type(gemm.b);
  if (gemm.what.kind != ops::Contraction::Kind::Gemm || !is_on_cpu(a)) return false;
  const auto is_at_most = [](Expr size, int64_t most) {
    return size.is_const() && size.value() >= 1 && size.value() <= most;
  };
  const Expr k = a.sizes.back();
  const int64_t small = tuning::gemm_small;
  // Of a few rows, each product of a loop reads the right operand again, which the first-level
  // cache does not hold.
  const bool shared = a.dim() == 2 && b.strides.back().is_const(1) &&
                      is_at_most(a.sizes[0], tuning::row_most_rows) &&
                      a.sizes[0].value() >= tuning::gemm_few_rows && k.is_const() &&
                      k.value() > tuning::gemm_few_products / 2 &&
                      sym::range_of(b.numel()).lo >= tuning::gemm_shared_elements;
  return (is_at_most(k, tuning::gemm_few_products) && !shared) ||
         (a.dim() == 3 && is_at_most(k, small) && is_at_most(a.sizes[1], small) &&
          is_at_most(b.sizes.back(), small));
}

// Of integers eager takes a scale for one: what it makes of 1.5 is its own.
bool scales_as(const ops::Args& args, ir::DType d) {
  const auto is_int = [&](size_t i) { return args.number_kind(i) != ops::NumberKind::Float; };
  return ir::is_floating(d) || (is_int(3) && is_int(4));
}

// Products with a vector, and what is scaled or added to in another way than a bias is. A library
// reads no operand of products that are multiplied by 0, which are 0 whatever is in them.
std::optional<ValueId> with_scales(ops::Rewriter& r, const ir::Node& n) {
  const bool vector = n.target == "aten.mv.default" || n.target == "aten.addmv.default";
  const bool added = n.target != "aten.mv.default";
  if (!vector && n.target != "aten.addmm.default" && n.target != "aten.baddbmm.default")
    return std::nullopt;
  const ops::Args args(r.graph(), n);
  const ir::TensorType *a = args.tensor(added), *b = args.tensor(added + 1);
  const auto beta = args.number(3, 1), alpha = args.number(4, 1);
  if (!a || !b || a->dtype != b->dtype || a->dim() < 2 || !beta || !alpha || *alpha == 0 ||
      !scales_as(args, a->dtype) ||
      (added && (!args.tensor(0) || args.tensor(0)->dtype != a->dtype)))
    return std::nullopt;
  ops::ContractionNode gemm;
  gemm.a = n.arg(added).value(), gemm.b = n.arg(added + 1).value();
  if (vector) gemm.b = r.call("aten.unsqueeze.default", {gemm.b, 1});
  if (!sums_few(r.graph(), gemm)) return std::nullopt;
  const ir::DType result = a->dtype;
  ValueId out = r.widen(by_loops(r, gemm, ops::opmath(result), true));
  if (vector) out = r.call("aten.squeeze.dim", {out, 1});
  if (*alpha != 1) out = r.call("aten.mul.Scalar", {out, n.arg(4)});
  if (added && *beta != 0) {
    const ValueId self = r.widen(n.arg(0).value());
    out = r.add(out, *beta == 1 ? self : r.call("aten.mul.Scalar", {self, n.arg(3)}));
  }
  return r.cast(out, result);
}

}  // namespace

bool thin_gemms(ir::Graph& g, const Machine& machine) {
  const ops::Providers providers = ops::providers_on(machine, "auto");
  const std::vector<uint32_t> uses = g.use_counts();
  return replace_calls(g, [&](ops::Rewriter& r, const ir::Node& n) -> std::optional<ValueId> {
    const auto gemm = ops::contraction_of(g, n);
    if (!gemm) return with_scales(r, n);
    const bool few = sums_few(g, *gemm);
    if (const auto out = with_int8_weights(r, *gemm, uses)) return out;
    if (reads_widened(g, *gemm, uses))
      return by_loops(r, *gemm, g.tensor_type(n.outputs[0]).dtype, false, true);
    if (few || is_batch_of_vectors(g, *gemm))
      return by_loops(r, *gemm, g.tensor_type(n.outputs[0]).dtype, few);
    const ops::Provider of_transposes = ops::provider_of_transposes(g, n, providers);
    if (of_transposes == ops::Provider::Own) return by_transposes(r, *gemm);
    if (of_transposes != ops::Provider::Loops && ops::provider_of(g, n, {}) != ops::Provider::Loops)
      return std::nullopt;
    const ValueId out = rows_times_matrix(r, gemm->a, gemm->b);
    return gemm->bias.valid() ? r.call("aten.add.Tensor", {out, gemm->bias}) : out;
  });
}

}  // namespace oxy::passes
