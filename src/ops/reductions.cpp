// Reductions: folds with a reduction rule (sum, amax, any ...) and what is written in terms of them
// (mean, var, norms); scans, sorting.
#include <algorithm>
#include <cmath>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;
using Dims = std::vector<int64_t>;
using enum ReduceKind;

// ---- which dimensions ----

// The dimensions that argument `at` names; all of them where it is None or an empty list.
std::optional<Dims> folded_dims(const Args& a, const TensorType& t, size_t at) {
  Dims dims;
  if (!a.missing(at) && (!a.integers(at, dims) || !wrap_dims(dims, t.dim()))) return std::nullopt;
  if (dims.empty()) {
    for (int64_t d = 0; d < t.dim(); ++d) dims.push_back(d);
  }
  return t.dim() == 0 ? Dims() : dims;
}

Sizes folded_sizes(const TensorType& t, const Dims& dims, bool keepdim) {
  Sizes sizes;
  for (int64_t d = 0; d < t.dim(); ++d) {
    const bool folded = std::ranges::binary_search(dims, d);
    if (!folded || keepdim) sizes.push_back(folded ? Expr(1) : t.sizes[d]);
  }
  return sizes;
}

bool folds_nothing(const TensorType& t, const Dims& dims) {
  return std::ranges::any_of(
      dims, [&](int64_t d) { return sym::known_equal(t.sizes[d], 0).value_or(true); });
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

// A fold of no dimension is left to the decomposition.
template <ReduceKind K, size_t DimAt, size_t KeepAt>
bool reduce_dims(const ir::Graph& g, const ir::Node& n, ReductionSpec& spec) {
  Args a(g, n);
  const TensorType& t = *a.tensor(0);
  auto dims = folded_dims(a, t, DimAt);
  if (!dims || dims->empty()) return false;
  const bool position = K == ArgMax || K == ArgMin;
  if (position && dims->size() != 1) return false;
  const DType result = g.tensor_type(n.outputs[0]).dtype;
  const bool truth = K == Any || K == All;
  spec = {K, std::move(*dims), *a.boolean(KeepAt, false),
          truth ? DType::B8 : opmath(position ? t.dtype : result), result};
  return true;
}

// The value folded: through the result's dtype (sum with dtype= rounds its operands), in the
// accumulator's.
template <ReduceKind K>
Scalar element_fold(Element& e) {
  const Scalar x = e.b.load(e.node.arg(0).value(), e.index);
  if (K == Any || K == All) return e.cast(x, DType::B8);
  if (K == ArgMax || K == ArgMin) return e.cast(x, opmath(x.dtype));
  return e.cast(e.cast(x, e.result()), e.compute());
}

// Folding a tensor without dimensions gives itself, in the result's dtype.
bool fold_of_scalar(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const ValueId x = n.arg(0).value();
  if (r.type(x).dim() != 0) return false;
  const bool truth = n.target.starts_with("aten.any.") || n.target.starts_with("aten.all.");
  const ValueId v = r.cast(truth ? r.cast(x, DType::B8) : x, r.type(n.outputs[0]).dtype);
  return give(out, v == x ? r.unary("aten.clone.default", v) : v);
}

// Where x equals the extreme; NaN is one, wherever it stands.
ValueId is_extreme(Rewriter& r, ValueId x, ValueId extreme) {
  const ValueId equal = r.call("aten.eq.Tensor", {x, extreme});
  if (!ir::is_floating(r.type(x).dtype)) return equal;
  return r.call("aten.logical_or.default", {equal, r.unary("aten.isnan.default", x)});
}

// The first place that holds the extreme, or NaN, as two folds of values: these run along whatever
// lies in memory, where a fold of places goes element by element. Places are counted row by row in
// `sizes`, which broadcast against x, and so does the extreme.
ValueId first_place(Rewriter& r, ValueId x, ValueId extreme, const Sizes& sizes, const Dims& dims,
                    bool keepdim) {
  const ir::Device device = r.type(x).device;
  Expr count = 1;
  for (Expr size : sizes) count *= size;
  const DType d = sym::known_less(count, INT32_MAX) == true ? DType::I32 : DType::I64;
  const ValueId places =
      r.view(r.call("aten.arange.default", {count, d, ir::Arg(), device}), sizes);
  const ValueId none = r.full({}, count, d, device);
  const ValueId held = r.call("aten.where.self", {is_extreme(r, x, extreme), places, none});
  return r.cast(r.call("aten.amin.default", {held, list_of(dims), keepdim}), DType::I64);
}

std::string_view extreme_of_place(const ir::Node& n) {
  return n.target == "aten.argmax.default" ? "aten.amax.default" : "aten.amin.default";
}

bool has_folds_of_places(const TensorType& t, Expr count) {
  return is_computable(t.dtype) && t.dtype != DType::B8 && sym::range_of(count).lo > 0;
}

// Along a dimension that is not the contiguous one.
bool place_in_columns(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const ValueId x = n.arg(0).value();
  const TensorType t = r.type(x);
  const auto dim = a.dim(1, t.dim());
  const auto keepdim = a.boolean(2, false);
  if (!dim || !keepdim) return false;
  const auto at = static_cast<size_t>(*dim);
  const bool has_columns = t.strides.back().is_const(1) && at + 1 < t.sizes.size() &&
                           !sym::certain_equal(t.sizes.back(), 1).value_or(false);
  if (!has_columns || !has_folds_of_places(t, t.sizes[at])) return false;
  ValueId extreme = r.call(extreme_of_place(n), {x, list_of(Dims{*dim}), *keepdim});
  if (!*keepdim) extreme = r.call("aten.unsqueeze.default", {extreme, *dim});
  Sizes along(t.sizes.size(), Expr(1));
  along[at] = t.sizes[at];
  return give(out, first_place(r, x, extreme, along, {*dim}, *keepdim));
}

// Among all elements of a tensor that is not row-major, counted row by row.
ValueId place_among_all(Rewriter& r, const ir::Node& n) {
  const ValueId x = n.arg(0).value();
  const TensorType t = r.type(x);
  const Dims all = *folded_dims(Args(r.graph(), n), t, 1);
  const ValueId extreme = r.call(extreme_of_place(n), {x, list_of(all), false});
  return first_place(r, x, extreme, t.sizes, all, false);
}

bool fold_position(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const TensorType result = r.type(n.outputs[0]);
  if (t.dim() == 0) return give(out, r.full({}, 0, DType::I64, t.device));
  if (!n.arg(1).is_none()) return place_in_columns(r, n, out);
  if (t.dim() == 1) return false;
  // The position among all elements, row by row.
  const bool in_order = t.is_row_major() || !has_folds_of_places(t, t.numel());
  const ValueId at =
      in_order ? r.call(n.target, {r.view(r.row_major(n.arg(0).value()), {t.numel()}), 0, false})
               : place_among_all(r, n);
  return give(out, result.dim() == 0 ? at : r.view(at, result.sizes));
}

bool foldable(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.tensor_type(n.outputs[0]).offset.is_const(0);
}

// Also of sizes without a hint that may be 0: a call of the user's is checked not to meet that, and
// decompositions read nothing then (Rewriter::amax).
bool foldable_extreme(const ir::Graph& g, const ir::Node& n) {
  if (foldable(g, n)) return true;
  const Args a(g, n);
  const TensorType& t = *a.tensor(0);
  const auto dims = folded_dims(a, t, 1);
  const bool open = dims && std::ranges::any_of(*dims, [&](int64_t d) {
                      return sym::origin_of(t.sizes[d]) != sym::Origin::Hinted &&
                             !sym::certain_equal(t.sizes[d], 0);
                    });
  return open && has_computable_types(g, n) && g.tensor_type(n.outputs[0]).offset.is_const(0);
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

template <ReduceKind K>
bool split_value_and_position(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() == 0 || !is_computable(t->dtype) || t->dtype == DType::B8) return false;
  const auto given = a.dim(1, t->dim());
  if (!given || folds_nothing(*t, {*given})) return false;  // ATen raises
  const int64_t dim = *given;
  const bool keepdim = *a.boolean(2, false), max = K == Max;
  out.push_back(r.call(max ? "aten.amax.default" : "aten.amin.default",
                       {n.arg(0), list_of(Dims{dim}), keepdim}));
  return give(
      out, r.call(max ? "aten.argmax.default" : "aten.argmin.default", {n.arg(0), dim, keepdim}));
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
  if (!dims || !is_computable(t.dtype) || !is_computable(result.dtype)) return false;
  if (dims->empty()) return fold_of_scalar(r, n, out);
  const bool keepdim = *a.boolean(KeepAt, false);
  const ValueId x = r.widen(r.cast(n.arg(0).value(), result.dtype));
  const ValueId total = r.sum(x, *dims, keepdim);
  return give(out, r.cast(r.div(total, fold_count(t, *dims)), result.dtype));
}

enum class Spread : uint8_t { Var, Std, VarMean, StdMean };

template <Spread S>
bool shape_spread(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || !ir::is_floating(t->dtype) || !is_computable(t->dtype)) return false;
  auto dims = folded_dims(a, *t, 1);
  auto keepdim = a.boolean(3, false);
  if (!dims || !keepdim) return false;
  const TensorType folded = fresh(*t, folded_sizes(*t, *dims, *keepdim));
  return give(out, folded) && (S == Spread::Var || S == Spread::Std || give(out, folded));
}

// Two passes: the mean, then the mean square of what is left, with the divisor count - correction.
// The mean is rounded: what is left has a sum, which corrects both (Chan, Golub and LeVeque,
// "Algorithms for Computing the Sample Variance", 1983). Equal elements have a variance of 0 so.
template <Spread S>
bool decompose_spread(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType result = r.type(n.outputs[0]).dtype;
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = folded_dims(a, t, 1);
  auto correction = a.number(2, 1.0);
  if (!dims || dims->empty() || !correction || !is_computable(t.dtype)) return false;
  if (!std::isfinite(*correction)) return false;
  const bool keepdim = *a.boolean(3, false);
  const Expr count = fold_count(t, *dims);
  const auto whole = static_cast<int64_t>(*correction);
  if (!count.is_const() && *correction != static_cast<double>(whole)) return false;
  // Eager warns of a divisor that is none.
  if (t.numel().is_const(0) ||
      (count.is_const() && static_cast<double>(count.value()) <= *correction))
    return false;
  const ir::Arg divisor =
      count.is_const() ? ir::Arg(std::max(static_cast<double>(count.value()) - *correction, 0.0))
                       : ir::Arg(sym::max(count - whole, 0));
  // Squares of what f32 holds leave its range, in eager's f64 they do not.
  const ValueId x =
      t.dtype == DType::F16 ? r.widen(n.arg(0).value()) : r.cast(n.arg(0).value(), DType::F64);
  const ValueId mean = r.div(r.sum(x, *dims, true), count);
  const ValueId centered = r.sub(x, mean);
  const ValueId rest = r.sum(centered, *dims, keepdim), shift = r.div(rest, count);
  const ValueId squares =
      r.sub(r.sum(r.mul(centered, centered), *dims, keepdim), r.mul(rest, shift));
  ValueId spread = r.div(r.call("aten.clamp_min.default", {squares, 0}), divisor);
  if (S == Spread::Std || S == Spread::StdMean) spread = r.unary("aten.sqrt.default", spread);
  out.push_back(r.cast(spread, result));
  if (S == Spread::Var || S == Spread::Std) return true;
  const ValueId shaped = keepdim ? mean : r.view(mean, folded_sizes(t, *dims, false));
  return give(out, r.cast(r.add(shaped, shift), result));
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
  const ValueId infinite = r.call("aten.eq.Scalar", {r.unary("aten.abs.default", top), INFINITY});
  const ValueId shift = r.call("aten.masked_fill.Scalar", {top, infinite, 0});
  const ValueId sum = r.sum(r.unary("aten.exp.default", r.sub(x, shift)), *dims, keepdim);
  const ValueId back = keepdim ? shift : r.view(shift, folded_sizes(t, *dims, false));
  return give(out, r.add(r.unary("aten.log.default", sum), back));
}

// |x|^p summed to the power 1/p, with the short cuts for the usual orders.
ValueId norm_of(Rewriter& r, ValueId x, double p, const Dims& dims, bool keepdim) {
  const ValueId size = r.unary("aten.abs.default", x);
  if (std::isinf(p)) {
    const auto op = p > 0 ? "aten.amax.default" : "aten.amin.default";
    return r.call(op, {size, list_of(dims), keepdim});
  }
  if (p == 2.0) return r.unary("aten.sqrt.default", r.sum(r.mul(x, x), dims, keepdim));
  if (p == 1.0) return r.sum(size, dims, keepdim);
  if (p == 0.0)
    return r.sum(r.cast(r.call("aten.ne.Scalar", {x, 0}), r.type(x).dtype), dims, keepdim);
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
  return give(out, r.cast(norm_of(r, x, *p, *dims, *a.boolean(KeepAt, false)), result));
}

// ---- scans ----

bool shape_scan(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || !a.dim(1, t->dim())) return false;
  std::optional<DType> asked;
  if (!a.missing(2) && !(asked = a.dtype(2))) return false;
  auto dtype = fold_dtype(Fold::IntegersToI64, t->dtype, asked);
  return dtype && give(out, row_major(*dtype, t->device, t->sizes));
}

// Of a tensor with dimensions.
std::optional<int64_t> scanned_dim(const Args& a) {
  const TensorType* t = a.tensor(0);
  return t && t->dim() > 0 ? a.dim(1, t->dim()) : std::nullopt;
}

// As many as there are, at most.
bool shape_topk(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto k = a.expr(1);
  const auto dim = t && t->dim() > 0 ? a.dim(2, t->dim(), -1) : std::nullopt;
  if (!dim || !k || !is_computable(t->dtype)) return false;
  if (sym::known_less(*k, 0) != false || sym::known_less(t->sizes[*dim], *k) != false) return false;
  Sizes sizes = t->sizes;
  sizes[*dim] = *k;
  return give(out, fresh(*t, sizes)) && give(out, row_major(DType::I64, t->device, sizes));
}

bool shape_kthvalue(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto k = a.expr(1);
  const auto dim = t && t->dim() > 0 ? a.dim(2, t->dim(), -1) : std::nullopt;
  const auto keeps = a.boolean(3, false);
  if (!dim || !k || !keeps || !is_computable(t->dtype)) return false;
  if (sym::known_less(*k, 1) != false || sym::known_less(t->sizes[*dim], *k) != false) return false;
  return give_selected(out, *t, *dim, *keeps);
}

bool shape_extreme(const Args& a, Types& out) {
  if (!scanned_dim(a)) return false;
  const TensorType& t = *a.tensor(0);
  return give(out, fresh(t, t.sizes)) && give(out, row_major(DType::I64, t.device, t.sizes));
}

// The distances of each two rows.
bool shape_pairs(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() != 2 || !ir::is_floating(t->dtype)) return false;
  const Expr rows = t->sizes[0];
  return give(out, fresh(*t, {sym::floordiv(rows * (rows - Expr(1)), Expr(2))}));
}

// ---- histograms: ATen's kernels ----

// Argument `at`: nothing, or the weight of each element.
bool weighs(const Args& a, size_t at, const TensorType& self, const Sizes& elements) {
  const TensorType* weight = a.tensor(at);
  return a.missing(at) ||
         (weight && weight->dtype == self.dtype && known_same(weight->sizes, elements));
}

// Argument `at`: nothing, or the least and the largest value of each coordinate.
bool bounds(const Args& a, size_t at, size_t coordinates) {
  if (a.missing(at)) return true;
  const auto* items = a[at].items();
  if (!items || items->size() != 2 * coordinates) return false;
  const Args ends = a.with(*items);
  for (size_t i = 0; i < items->size(); i += 2) {
    const auto least = ends.number(i), most = ends.number(i + 1);
    if (!least || !most || !std::isfinite(*least) || !std::isfinite(*most) || *most < *least)
      return false;
  }
  return true;
}

bool is_counted(const TensorType* t) {
  return t && (t->dtype == DType::F32 || t->dtype == DType::F64);
}

bool shape_histogram(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto bins = a.integer(1, 100);
  if (!is_counted(t) || !bins || *bins < 1 || !bounds(a, 2, 1) || !weighs(a, 3, *t, t->sizes))
    return false;
  return give(out, fresh(*t, {*bins})) && give(out, fresh(*t, {*bins + 1}));
}

bool shape_histogram_of_edges(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *edges = a.tensor(1);
  if (!is_counted(t) || !edges || edges->dtype != t->dtype || edges->dim() != 1 ||
      sym::known_less(1, edges->sizes[0]) != true || !weighs(a, 2, *t, t->sizes))
    return false;
  return give(out, fresh(*t, {edges->sizes[0] - Expr(1)})) && give(out, fresh(*t, edges->sizes));
}

// How many bins each coordinate has, the last dimension being a point's; false for what eager
// refuses.
bool bins_of_points(const Args& a, std::vector<int64_t>& bins) {
  const TensorType* t = a.tensor(0);
  if (!is_counted(t) || t->dim() < 2 || !a.integers(1, bins) ||
      !t->sizes.back().is_const(static_cast<int64_t>(bins.size())))
    return false;
  const Sizes points(t->sizes.begin(), t->sizes.end() - 1);
  return std::ranges::all_of(bins, [](int64_t n) { return n > 0; }) && bounds(a, 2, bins.size()) &&
         weighs(a, 3, *t, points);
}

bool shape_histogramdd(const Args& a, Types& out) {
  std::vector<int64_t> bins;
  if (!bins_of_points(a, bins)) return false;
  return give(out, fresh(*a.tensor(0), Sizes(bins.begin(), bins.end())));
}

bool shape_histogramdd_edges(const Args& a, Types& out) {
  std::vector<int64_t> bins;
  if (!bins_of_points(a, bins)) return false;
  for (const int64_t n : bins) give(out, fresh(*a.tensor(0), {n + 1}));
  return true;
}

bool shape_histogramdd_of_edges(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<const TensorType*> edges;
  if (!is_counted(t) || t->dim() < 2 || !a.tensors(1, edges) ||
      !t->sizes.back().is_const(static_cast<int64_t>(edges.size())) ||
      !weighs(a, 2, *t, Sizes(t->sizes.begin(), t->sizes.end() - 1)))
    return false;
  Sizes bins;
  for (const TensorType* e : edges) {
    if (e->dtype != t->dtype || e->dim() != 1 || sym::known_less(1, e->sizes[0]) != true)
      return false;
    bins.push_back(e->sizes[0] - Expr(1));
  }
  return give(out, fresh(*t, bins));
}

bool shape_logcumsumexp(const Args& a, Types& out) {
  if (!scanned_dim(a) || !ir::is_floating(a.tensor(0)->dtype)) return false;
  return give(out, fresh(*a.tensor(0), a.tensor(0)->sizes));
}

Scalar scanned(Element& e) { return e.load(0, e.index); }

// ATen adds up f32 in f64, fp16 and bf16 in f32.
template <ReduceKind K>
bool scan(const ir::Graph& g, const ir::Node& n, ReductionSpec& spec) {
  auto dim = scanned_dim(Args(g, n));
  if (!dim) return false;
  const DType result = g.tensor_type(n.outputs[0]).dtype;
  const bool exact = K == Max || K == Min || result != DType::F32;
  spec = {K, {*dim}, true, exact ? opmath(result) : DType::F64, result};
  return true;
}

// A single row of floating-point numbers is one chain of additions, which ATen walks as fast.
bool applies_scan(const ir::Graph& g, const ir::Node& n) {
  const TensorType& t = g.tensor_type(n.outputs[0]);
  const Args a(g, n);
  auto dim = a.dim(1, t.dim());
  bool single = dim && t.dim() > 0 && ir::is_floating(t.dtype) && a.tensor(0)->dtype == t.dtype;
  for (int64_t d = 0; single && d < t.dim(); ++d) single = d == *dim || t.sizes[d].is_const(1);
  return !single && applies_computable(g, n);
}

// The places have been taken from the values by then.
bool applies_extreme(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.use_counts()[n.outputs[1].index] == 0;
}

// An element that equals the extreme up to itself is the newest one that does; NaN is extreme. The
// place of the newest one so far is the largest of their places so far.
bool decompose_places(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  auto dim = scanned_dim(a);
  if (!dim || r.graph().use_counts()[n.outputs[1].index] == 0) return false;
  const TensorType t = r.type(n.arg(0).value());
  if (!is_computable(t.dtype) || t.numel().is_const(0)) return false;
  const ValueId values = r.call_multi(n.target, {n.arg(0), n.arg(1)})[0];
  const ValueId extreme = is_extreme(r, n.arg(0).value(), values);
  Sizes line(t.sizes.size(), Expr(1));
  line[*dim] = t.sizes[*dim];
  const ValueId count = r.call("aten.arange.default", {t.sizes[*dim], DType::I64});
  const ValueId zero = r.full({}, 0, DType::I64, t.device);
  const ValueId places = r.call("aten.where.self", {extreme, r.view(count, line), zero});
  out.push_back(values);
  return give(out, r.call_multi("aten.cummax.default", {places, *dim})[0]);
}

// ---- reductions made of others ----

// The dimensions that argument 1 names: all of them where it is missing or empty.
std::optional<Dims> named_dims(const Args& a) {
  const TensorType& t = *a.tensor(0);
  const auto* items = a[1].items();
  if (t.dim() == 0 && !a.missing(1) && !(items && items->empty())) return std::nullopt;
  return folded_dims(a, t, 1);
}

bool decompose_nansum(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = named_dims(a);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype)) return false;
  const bool real = ir::is_floating(t.dtype);
  if (!a.missing(3) && (!real || !a.dtype(3) || !ir::is_floating(*a.dtype(3)))) return false;
  ValueId x = n.arg(0).value();
  if (real) {
    const ir::Arg zero = r.full({}, 0, t.dtype, t.device);
    x = r.call("aten.where.self", {r.unary("aten.isnan.default", x), zero, x});
  }
  return give(out, r.call("aten.sum.dim_IntList", {x, list_of(*dims), *keepdim, n.arg(3)}));
}

bool decompose_aminmax(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType& t = *a.tensor(0);
  auto dims = named_dims(a);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype) || t.dim() == 0) return false;
  if (!std::ranges::all_of(t.sizes, [](Expr s) { return sym::known_less(0, s) == true; }))
    return false;
  for (const char* op : {"aten.amin.default", "aten.amax.default"}) {
    out.push_back(r.call(op, {n.arg(0), list_of(*dims), *keepdim}));
  }
  return true;
}

bool decompose_count_nonzero(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  auto dims = named_dims(a);
  if (!dims || !is_computable(a.tensor(0)->dtype)) return false;
  return give(out, r.sum(r.call("aten.ne.Scalar", {n.arg(0), 0}), *dims, false));
}

bool shape_aminmax(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return t && t->dtype != DType::B8 && shape_fold<Fold::Same, 1, 2, kNever>(a, out) &&
         give(out, out[0].tensor);
}

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

// How many elements are not 0: no list of dimensions, or an empty one, is all.
bool shape_count(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> dims;
  if (!t || (!a.missing(1) && (!a.integers(1, dims) || !wrap_dims(dims, t->dim())))) return false;
  Sizes sizes;
  for (int64_t d = 0; d < t->dim() && !dims.empty(); ++d)
    if (std::ranges::find(dims, d) == dims.end()) sizes.push_back(t->sizes[static_cast<size_t>(d)]);
  return give(out, row_major(DType::I64, t->device, std::move(sizes)));
}

bool truth_of_truths(const Args& a, Types& out) {
  return a.tensor(0) && a.tensor(0)->dtype == DType::B8 && truth_all(a, out);
}

template <ReduceKind K>
constexpr ReductionRule all_dims = reduce_dims<K, kNever, kNever>;
template <ReduceKind K>
constexpr ReductionRule some_dims = reduce_dims<K, 1, 2>;

constexpr OpInfo kReductionOps[] = {
#include "ops/reductions.def"
};

}  // namespace

bool give_selected(Types& out, const TensorType& t, int64_t dim, bool keepdim) {
  Sizes sizes = t.sizes;
  if (keepdim)
    sizes[static_cast<size_t>(dim)] = 1;
  else
    sizes.erase(sizes.begin() + dim);
  return give(out, fresh(t, sizes)) && give(out, row_major(DType::I64, t.device, sizes));
}

std::span<const OpInfo> reduction_ops() { return kReductionOps; }

}  // namespace oxy::ops
