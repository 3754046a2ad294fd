// Reductions: folds with a reduction rule (sum, amax, any ...) and what is written in terms of them
// (mean, var, norms).
#include <cmath>
#include <limits>

#include "ops/families.h"
#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;
using Dims = std::vector<int64_t>;

// ---- which dimensions ----

// The dimensions that argument `at` names; all of them where it is None or an empty list.
std::optional<Dims> folded_dims(const Args& a, const TensorType& t, size_t at) {
  Dims dims;
  if (!a.missing(at) && (!a.integers(at, dims) || !wrap_dims(dims, t.dim()))) return std::nullopt;
  if (dims.empty()) {
    for (int64_t d = 0; d < t.dim(); ++d) dims.push_back(d);
  }
  if (t.dim() == 0) dims.clear();
  return dims;
}

Sizes folded_sizes(const TensorType& t, const Dims& dims, bool keepdim) {
  Sizes sizes;
  size_t next = 0;
  for (int64_t d = 0; d < t.dim(); ++d) {
    const bool folded = next < dims.size() && dims[next] == d;
    next += folded;
    if (!folded) sizes.push_back(t.sizes[d]);
    if (folded && keepdim) sizes.push_back(Expr(1));
  }
  return sizes;
}

bool folds_nothing(const TensorType& t, const Dims& dims) {
  for (int64_t d : dims) {
    auto empty = sym::known_equal(t.sizes[d], 0);
    if (!empty || *empty) return true;
  }
  return false;
}

// Where an op keeps its dimensions and flags; kNever means that it has no such argument.
constexpr size_t kNever = 99;

// Dtype of a fold's result, from the operand and the op's dtype argument.
enum class Fold : uint8_t { Same, IntegersToI64, FloatOnly, Truth, Position };

std::optional<DType> fold_dtype(Fold f, DType in, std::optional<DType> asked) {
  if (!is_computable(in)) return std::nullopt;
  if (asked) {
    const bool fits = f != Fold::FloatOnly || ir::is_floating(*asked);
    return fits && is_computable(*asked) ? asked : std::nullopt;
  }
  switch (f) {
    case Fold::Same:
      return in;
    case Fold::IntegersToI64:
      return ir::is_floating(in) ? in : DType::I64;
    case Fold::FloatOnly:
      return ir::is_floating(in) ? std::optional(in) : std::nullopt;
    case Fold::Truth:
      return in == DType::U8 ? DType::U8 : DType::B8;
    case Fold::Position:
      return in == DType::B8 ? std::nullopt : std::optional(DType::I64);
  }
  return std::nullopt;
}

template <Fold F, size_t DimAt, size_t KeepAt, size_t DTypeAt>
bool shape_fold(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t) return false;
  auto keepdim = a.boolean(KeepAt, false);
  auto dims = folded_dims(a, *t, DimAt);
  std::optional<DType> asked;
  if (!a.missing(DTypeAt) && !(asked = a.dtype(DTypeAt))) return false;
  auto dtype = fold_dtype(F, t->dtype, asked);
  if (!keepdim || !dims || !dtype) return false;
  const bool needs_elements = F == Fold::Same || F == Fold::Position;
  if (needs_elements && folds_nothing(*t, *dims)) return false;
  // Position over all dimensions with keepdim, and truth over an explicit empty list, have rules of
  // their own.
  const auto* list = a[DimAt].items();
  if (F == Fold::Truth && list && list->empty()) return false;
  return give(out, row_major(*dtype, t->device, folded_sizes(*t, *dims, *keepdim)));
}

// ---- folds ----

DType accumulator(ReduceKind kind, DType result) {
  if (kind == ReduceKind::Any || kind == ReduceKind::All) return DType::B8;
  return opmath(result);
}

// A fold of no dimension is left to the decomposition.
template <ReduceKind K, size_t DimAt, size_t KeepAt>
bool reduce_dims(const ir::Graph& g, const ir::Node& n, ReductionSpec& spec) {
  Args a(g, n);
  const TensorType& t = *a.tensor(0);
  auto dims = folded_dims(a, t, DimAt);
  if (!dims || dims->empty()) return false;
  const bool position = K == ReduceKind::ArgMax || K == ReduceKind::ArgMin;
  if (position && dims->size() != 1) return false;
  spec.kind = K;
  spec.dims = std::move(*dims);
  spec.keepdim = *a.boolean(KeepAt, false);
  spec.result = g.tensor_type(n.outputs[0]).dtype;
  spec.accumulate = accumulator(K, position ? t.dtype : spec.result);
  return true;
}

// The value folded: through the result's dtype (sum with dtype= rounds its operands), in the
// accumulator's.
template <ReduceKind K>
Scalar element_fold(Element& e) {
  const Scalar x = e.b.load(e.node.arg(0).value(), e.index);
  if (K == ReduceKind::Any || K == ReduceKind::All) return e.cast(x, DType::B8);
  if (K == ReduceKind::ArgMax || K == ReduceKind::ArgMin) return e.cast(x, opmath(x.dtype));
  return e.cast(e.cast(x, e.result()), e.compute());
}

bool is_truth(std::string_view op) {
  return op.starts_with("aten.any.") || op.starts_with("aten.all.");
}

// Folding a tensor without dimensions gives itself, in the result's dtype.
bool fold_of_scalar(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const TensorType result = r.type(n.outputs[0]);
  if (t.dim() != 0) return false;
  ValueId v = n.arg(0).value();
  if (is_truth(n.target)) v = r.cast(v, DType::B8);
  const ValueId cast = r.cast(v, result.dtype);
  return give(out, cast == n.arg(0).value() ? r.unary("aten.clone.default", cast) : cast);
}

bool fold_position(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const TensorType result = r.type(n.outputs[0]);
  const Args a(r.graph(), n);
  if (t.dim() == 0) {
    return give(out, r.call("aten.full.default", {ir::List{}, 0, DType::I64, ir::Arg(), t.device}));
  }
  if (!a.missing(1) || t.dim() == 1) return false;
  // The position among all elements, row by row.
  ValueId flat = n.arg(0).value();
  if (!t.is_row_major()) {
    flat = r.call("aten.clone.default", {flat, ir::MemoryFormat{0}});
  }
  const ValueId at = r.call(n.target, {r.view(flat, {t.numel()}), 0, false});
  return give(out, result.dim() == 0 ? at : r.view(at, result.sizes));
}

bool applies_fold(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.tensor_type(n.outputs[0]).offset.is_const(0);
}

// ATen's product rounds fp16 and bf16 at each step, in an order of its own.
bool applies_product(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && !ir::is_reduced_float(g.tensor_type(n.outputs[0]).dtype);
}

// ---- values and positions together ----

bool shape_value_and_position(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = a.integer(1);
  auto keepdim = a.boolean(2, false);
  if (!t || !dim || !keepdim || !is_computable(t->dtype)) return false;
  Dims dims{*dim};
  if (!wrap_dims(dims, t->dim())) return false;
  if (t->dim() == 0) dims.clear();
  if (folds_nothing(*t, dims)) return false;
  const Sizes sizes = folded_sizes(*t, dims, *keepdim);
  return give(out, fresh(*t, sizes)) && give(out, row_major(DType::I64, t->device, sizes));
}

template <bool Max>
bool split_value_and_position(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() == 0 || !is_computable(t->dtype) || t->dtype == DType::B8) return false;
  const int64_t dim = *wrap_dim(*a.integer(1), t->dim());
  const bool keepdim = *a.boolean(2, false);
  const ValueId x = n.arg(0).value();
  out.push_back(
      r.call(Max ? "aten.amax.default" : "aten.amin.default", {x, list_of(Dims{dim}), keepdim}));
  return give(out, r.call(Max ? "aten.argmax.default" : "aten.argmin.default", {x, dim, keepdim}));
}

// ---- mean, variance ----

// How many elements of `t` fall into one result.
Expr fold_count(const TensorType& t, const Dims& dims) {
  Expr count = 1;
  for (int64_t d : dims) count = count * t.sizes[d];
  return count;
}

template <size_t DimAt, size_t KeepAt, size_t DTypeAt>
bool decompose_mean(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = folded_dims(a, t, DimAt);
  if (!dims || !is_computable(t.dtype)) return false;
  if (dims->empty()) return fold_of_scalar(r, n, out);
  const bool keepdim = *a.boolean(KeepAt, false);
  const ValueId x = r.widen(r.cast(n.arg(0).value(), result.dtype));
  const ValueId total = r.sum(x, *dims, keepdim);
  return give(out, r.cast(r.div(total, fold_count(t, *dims)), result.dtype));
}

enum class Spread : uint8_t { Var, Std, VarMean, StdMean };

bool shape_spread(const Args& a, Types& out, bool with_mean) {
  const TensorType* t = a.tensor(0);
  if (!t || !ir::is_floating(t->dtype) || !is_computable(t->dtype)) return false;
  auto dims = folded_dims(a, *t, 1);
  auto keepdim = a.boolean(3, false);
  if (!dims || !keepdim) return false;
  const TensorType folded = fresh(*t, folded_sizes(*t, *dims, *keepdim));
  return give(out, folded) && (!with_mean || give(out, folded));
}

template <Spread S>
bool shape_of_spread(const Args& a, Types& out) {
  return shape_spread(a, out, S == Spread::VarMean || S == Spread::StdMean);
}

// Two passes: the mean, then the mean square of what is left, with the divisor count - correction.
template <Spread S>
bool decompose_spread(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType result = r.type(n.outputs[0]).dtype;
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = folded_dims(a, t, 1);
  auto correction = a.number(2, 1.0);
  if (!dims || dims->empty() || !correction || !is_computable(t.dtype)) return false;
  const bool keepdim = *a.boolean(3, false);
  const Expr count = fold_count(t, *dims);
  if (!count.is_const()) return false;
  const double divisor = std::max(static_cast<double>(count.value()) - *correction, 0.0);
  const ValueId x = r.widen(n.arg(0).value());
  const ValueId mean = r.div(r.sum(x, *dims, true), count);
  const ValueId centered = r.sub(x, mean);
  const ValueId squares = r.sum(r.mul(centered, centered), *dims, keepdim);
  ValueId spread = r.div(squares, divisor);
  if (S == Spread::Std || S == Spread::StdMean) spread = r.unary("aten.sqrt.default", spread);
  out.push_back(r.cast(spread, result));
  if (S == Spread::Var || S == Spread::Std) return true;
  const ValueId shaped = keepdim ? mean : r.view(mean, folded_sizes(t, *dims, false));
  return give(out, r.cast(shaped, result));
}

// ---- logsumexp, norms ----

// Eager's own composition: every step rounds to the operand's dtype.
bool decompose_logsumexp(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = folded_dims(a, t, 1);
  const bool keepdim = *a.boolean(2, false);
  if (!dims || dims->empty() || !ir::is_floating(t.dtype) || folds_nothing(t, *dims)) return false;
  const ValueId x = n.arg(0).value();
  const ValueId top = r.amax(x, *dims, true);
  const double inf = std::numeric_limits<double>::infinity();
  const ValueId infinite = r.call("aten.eq.Scalar", {r.unary("aten.abs.default", top), inf});
  const ValueId shift = r.call("aten.masked_fill.Scalar", {top, infinite, 0});
  const ValueId sum = r.sum(r.unary("aten.exp.default", r.sub(x, shift)), *dims, keepdim);
  const ValueId back = keepdim ? shift : r.view(shift, folded_sizes(t, *dims, false));
  return give(out, r.add(r.unary("aten.log.default", sum), back));
}

// |x|^p summed to the power 1/p, with the short cuts for the usual orders.
std::optional<ValueId> norm_of(Rewriter& r, ValueId x, double p, const Dims& dims, bool keepdim) {
  const ValueId size = r.unary("aten.abs.default", x);
  if (std::isinf(p)) {
    const auto op = p > 0 ? "aten.amax.default" : "aten.amin.default";
    return r.call(op, {size, list_of(dims), keepdim});
  }
  if (p == 2.0) return r.unary("aten.sqrt.default", r.sum(r.mul(x, x), dims, keepdim));
  if (p == 1.0) return r.sum(size, dims, keepdim);
  if (p == 0.0) {
    const ValueId nonzero = r.call("aten.ne.Scalar", {x, 0});
    return r.sum(r.cast(nonzero, r.type(x).dtype), dims, keepdim);
  }
  const ValueId powers = r.call("aten.pow.Tensor_Scalar", {size, p});
  return r.call("aten.pow.Tensor_Scalar", {r.sum(powers, dims, keepdim), 1.0 / p});
}

template <size_t DimAt, size_t KeepAt>
bool decompose_norm(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType result = r.type(n.outputs[0]).dtype;
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = folded_dims(a, t, DimAt);
  auto p = a.number(1, 2.0);
  const bool known = dims && p && !dims->empty() && ir::is_floating(t.dtype);
  if (!known || !is_computable(t.dtype) || folds_nothing(t, *dims)) return false;
  const ValueId x = r.widen(r.cast(n.arg(0).value(), result));
  auto norm = norm_of(r, x, *p, *dims, *a.boolean(KeepAt, false));
  return give(out, r.cast(*norm, result));
}

// ---- scans ----

bool shape_scan(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = a.integer(1);
  if (!t || !dim || !wrap_dim(*dim, t->dim())) return false;
  std::optional<DType> asked;
  if (!a.missing(2) && !(asked = a.dtype(2))) return false;
  auto dtype = fold_dtype(Fold::IntegersToI64, t->dtype, asked);
  if (!dtype) return false;
  return give(out, row_major(*dtype, t->device, t->sizes));
}

// ATen adds up f32 in f64, fp16 and bf16 in f32.
template <ReduceKind K>
bool scan_dim(const ir::Graph& g, const ir::Node& n, ReductionSpec& spec) {
  Args a(g, n);
  const TensorType& t = *a.tensor(0);
  if (t.dim() == 0) return false;
  spec.kind = K;
  spec.dims = {*wrap_dim(*a.integer(1), t.dim())};
  spec.keepdim = true;
  spec.result = g.tensor_type(n.outputs[0]).dtype;
  spec.accumulate = spec.result == DType::F32 ? DType::F64 : opmath(spec.result);
  return true;
}

// A single row of floating-point numbers is one chain of additions, which ATen walks as fast.
bool applies_scan(const ir::Graph& g, const ir::Node& n) {
  const TensorType& t = g.tensor_type(n.outputs[0]);
  const Args a(g, n);
  auto dim = a.integer(1);
  bool single = dim && t.dim() > 0 && ir::is_floating(t.dtype) && a.tensor(0)->dtype == t.dtype;
  for (int64_t d = 0; single && d < t.dim(); ++d) {
    single = d == *wrap_dim(*dim, t.dim()) || t.sizes[d].is_const(1);
  }
  return !single && applies_computable(g, n);
}

constexpr Applies fold = applies_fold;
constexpr ReduceKind Sum = ReduceKind::Sum, Prod = ReduceKind::Prod;
constexpr ReduceKind Max = ReduceKind::Max, Min = ReduceKind::Min;
constexpr ReduceKind Any = ReduceKind::Any, All = ReduceKind::All;
constexpr ReduceKind ArgMax = ReduceKind::ArgMax, ArgMin = ReduceKind::ArgMin;

// Shapes by where the arguments stand: all dimensions, or `dim, keepdim`, then `dtype`.
constexpr ShapeRule sum_all = shape_fold<Fold::IntegersToI64, kNever, kNever, 1>;
constexpr ShapeRule sum_dims = shape_fold<Fold::IntegersToI64, 1, 2, 3>;
constexpr ShapeRule mean_all = shape_fold<Fold::FloatOnly, kNever, kNever, 1>;
constexpr ShapeRule mean_dims = shape_fold<Fold::FloatOnly, 1, 2, 3>;
constexpr ShapeRule same_all = shape_fold<Fold::Same, kNever, kNever, kNever>;
constexpr ShapeRule same_dims = shape_fold<Fold::Same, 1, 2, kNever>;
constexpr ShapeRule truth_all = shape_fold<Fold::Truth, kNever, kNever, kNever>;
constexpr ShapeRule truth_dims = shape_fold<Fold::Truth, 1, 2, kNever>;
constexpr ShapeRule float_dims = shape_fold<Fold::FloatOnly, 1, 2, kNever>;
constexpr ShapeRule norm_dims = shape_fold<Fold::FloatOnly, 2, 3, 4>;
constexpr ShapeRule norm_all = shape_fold<Fold::FloatOnly, kNever, kNever, kNever>;
constexpr ShapeRule position = shape_fold<Fold::Position, 1, 2, kNever>;

template <ReduceKind K>
constexpr ReductionRule scan = scan_dim<K>;
template <ReduceKind K>
constexpr ReductionRule all_dims = reduce_dims<K, kNever, kNever>;
template <ReduceKind K>
constexpr ReductionRule some_dims = reduce_dims<K, 1, 2>;
constexpr Decomposition mean_of_all = decompose_mean<kNever, kNever, 1>;
constexpr Decomposition mean_of_some = decompose_mean<1, 2, 3>;
constexpr Decomposition norm_of_some = decompose_norm<2, 3>;
constexpr Decomposition norm_of_all = decompose_norm<kNever, kNever>;

constexpr OpInfo kRows[] = {
#include "ops/reductions.def"
};

}  // namespace

std::span<const OpInfo> reduction_ops() { return kRows; }

}  // namespace oxy::ops
