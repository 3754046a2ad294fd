// Sorting, selecting by rank, places in what is sorted, and histograms. Of few elements the first
// three are counts: how many stand in front. No branch is mispredicted, and vectors count for many
// at once.
#include <cmath>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

template <size_t Dim>
bool shape_sort(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto dim = a.integer(Dim, -1);
  const auto strides = t ? preserved_strides(*t) : std::nullopt;
  if (!strides || !dim || !wrap_dim(*dim, t->dim()) || ir::is_complex(t->dtype)) return false;
  TensorType values = fresh(*t, t->sizes), places = row_major(DType::I64, t->device, t->sizes);
  values.strides = places.strides = *strides;
  return give(out, std::move(values)) && give(out, std::move(places));
}

// Rows up to which eager's sort is stable without being asked: it inserts.
constexpr int64_t kInserted = 16;
// Elements up to which counting, of all pairs, beats sorting; where nobody asks for the places of
// equal ones.
constexpr int64_t kCounted = 32, kCountedValues = 64;
// Boundaries up to which comparing with all of them beats halving.
constexpr int64_t kCompared = 64;

bool is_ordered(const TensorType& t) { return is_computable(t.dtype) && t.dtype != DType::B8; }

// 0, 1, ... along a dimension of so many.
ValueId counted(Rewriter& r, int64_t count, int64_t dim, int64_t dims, ir::Device device) {
  std::vector<Expr> sizes(static_cast<size_t>(dims), Expr(1));
  sizes[static_cast<size_t>(dim)] = count;
  const ir::Arg none;
  const ValueId row =
      r.call("aten.arange.start_step", {0, count, 1, DType::I64, none, device, none});
  return r.view(row, sizes);
}

// Whether b stands in front of a, of which the latter comes later if they are equal and `later`.
// NaN is larger than all numbers, and equal to NaN.
ValueId in_front(Rewriter& r, ValueId b, ValueId a, ValueId later, bool descending) {
  const auto call = [&](std::string_view op, ValueId x, ValueId y) { return r.call(op, {x, y}); };
  ValueId less = call(descending ? "aten.gt.Tensor" : "aten.lt.Tensor", b, a);
  ValueId equal = call("aten.eq.Tensor", b, a);
  if (ir::is_floating(r.type(a).dtype)) {
    const ValueId larger = descending ? b : a, smaller = descending ? a : b;
    const ValueId nan = call("aten.ne.Tensor", larger, larger);
    const auto and_nan = [&](ValueId x, std::string_view of_smaller) {
      const ValueId both = call("aten.bitwise_and.Tensor", nan, call(of_smaller, smaller, smaller));
      return call("aten.bitwise_or.Tensor", x, both);
    };
    less = and_nan(less, "aten.eq.Tensor");
    equal = and_nan(equal, "aten.ne.Tensor");
  }
  const ValueId before = call("aten.bitwise_and.Tensor", equal, later);
  return call("aten.bitwise_or.Tensor", less, before);
}

// Of each element of a row: how many stand in front.
ValueId places(Rewriter& r, ValueId self, int64_t dim, bool descending) {
  const TensorType t = r.type(self);
  const int64_t count = t.sizes[static_cast<size_t>(dim)].value();
  const ValueId at = r.call("aten.unsqueeze.default", {self, dim + 1});
  const ValueId other = r.call("aten.unsqueeze.default", {self, dim});
  const ValueId later = r.call("aten.lt.Tensor", {counted(r, count, dim + 1, t.dim() + 1, t.device),
                                                  counted(r, count, dim, t.dim() + 1, t.device)});
  return r.sum(in_front(r, other, at, later, descending), {dim + 1}, false);
}

// The length of a dimension of numbers, where it is at least 2 and few; 0 else.
int64_t few_along(const TensorType& t, std::optional<int64_t> dim, int64_t most) {
  if (!dim || !is_ordered(t)) return 0;
  const Expr size = t.sizes[static_cast<size_t>(*dim)];
  return size.is_const() && size.value() >= 2 && size.value() <= most ? size.value() : 0;
}

// Places are given where equal ones have eager's.
template <size_t Dim>
bool decompose_sort(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const ValueId self = n.arg(0).value();
  const TensorType t = r.type(self);
  const auto descending = a.boolean(Dim + 1, false);
  const auto stable = Dim == 2 ? a.boolean(1, false) : false;
  const auto dim = t.dim() > 0 ? a.dim(Dim, t.dim(), -1) : std::nullopt;
  const int64_t count = few_along(t, dim, kCountedValues);
  if (count == 0 || !descending || !stable) return false;
  const ValueId place = places(r, self, *dim, *descending);
  const auto placed = [&](ValueId v) {
    const ValueId begin = r.full(t.sizes, 0, r.type(v).dtype, t.device);
    return r.call("aten.scatter.src", {begin, *dim, place, v});
  };
  out.push_back(placed(self));
  if (count > (*stable ? kCounted : kInserted)) return give(out, ValueId());
  const ValueId index =
      r.call("aten.expand.default", {counted(r, count, *dim, t.dim(), t.device), list_of(t.sizes)});
  return give(out, placed(index));
}

// The value of a rank in each row; where it stands is left open.
bool select_rank(Rewriter& r, const ir::Node& n, int64_t dim, int64_t rank, bool keepdim,
                 std::vector<ValueId>& out) {
  const ValueId self = n.arg(0).value();
  const TensorType t = r.type(self);
  const ValueId chosen = r.call("aten.eq.Scalar", {places(r, self, dim, false), rank});
  // The largest of one number and infinities: its zero has a sign.
  const bool floating = ir::is_floating(t.dtype);
  const ir::Arg rest = floating ? ir::Arg(-HUGE_VAL) : ir::Arg(0);
  const ValueId v = r.call("aten.where.self", {chosen, self, r.full({}, rest, t.dtype, t.device)});
  out.push_back(floating ? r.amax(v, {dim}, keepdim) : r.cast(r.sum(v, {dim}, keepdim), t.dtype));
  return give(out, ValueId());
}

bool shape_median(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto dim = t && t->dim() > 0 ? a.dim(1, t->dim()) : std::nullopt;
  const auto keepdim = a.boolean(2, false);
  if (!dim || !keepdim || !is_computable(t->dtype) || t->dtype == DType::B8 ||
      sym::known_less(0, t->sizes[static_cast<size_t>(*dim)]) != true)
    return false;
  return give_selected(out, *t, *dim, *keepdim);
}

// NaN is the largest: where there is one, it is the median.
bool decompose_median(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const ValueId self = n.arg(0).value();
  const TensorType t = r.type(self);
  const auto dim = t.dim() > 0 ? a.dim(1, t.dim()) : std::nullopt;
  const auto keepdim = a.boolean(2, false);
  const int64_t count = few_along(t, dim, kCounted);
  if (count == 0 || !keepdim || !select_rank(r, n, *dim, (count - 1) / 2, *keepdim, out))
    return false;
  if (!ir::is_floating(t.dtype)) return true;
  const ValueId nan =
      r.call("aten.any.dim", {r.call("aten.ne.Tensor", {self, self}), *dim, *keepdim});
  const ValueId number = r.full({}, std::nan(""), t.dtype, t.device);
  out[0] = r.call("aten.where.self", {nan, number, out[0]});
  return true;
}

// Row-major, with the sizes of what is looked for.
template <size_t Of>
bool shape_places(const Args& a, Types& out) {
  const TensorType *t = a.tensor(Of), *in = a.tensor(1 - Of);
  const auto narrow = a.boolean(2, false);
  if (!t || !in || !narrow) return false;
  return give(out, row_major(*narrow ? DType::I32 : DType::I64, t->device, t->sizes));
}

// How many of a row of `in` stand in front of each element: those below, or those up to it.
bool count_places(Rewriter& r, const ir::Node& n, ValueId in, ValueId of, bool right,
                  std::vector<ValueId>& out) {
  const TensorType rows = r.type(in), t = r.type(of);
  const auto narrow = Args(r.graph(), n).boolean(2, false);
  const Expr count = rows.dim() > 0 ? rows.sizes.back() : Expr(0);
  if (!narrow || rows.dtype != t.dtype || !is_ordered(t) || !count.is_const() ||
      count.value() < 1 || count.value() > kCompared)
    return false;
  if (rows.dim() > 1) {
    if (rows.dim() != t.dim()) return false;
    in = r.call("aten.unsqueeze.default", {in, rows.dim() - 1});
  }
  const ValueId at = r.call("aten.unsqueeze.default", {of, t.dim()});
  const ValueId behind = r.call(right ? "aten.gt.Tensor" : "aten.ge.Tensor", {in, at});
  const ValueId in_front = r.call("aten.bitwise_not.default", {behind});
  ValueId places = r.sum(in_front, {t.dim()}, false);
  if (*narrow) places = r.cast(places, DType::I32);
  return give(out, places);
}

bool decompose_bucketize(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const auto right = Args(r.graph(), n).boolean(3, false);
  return right && r.type(n.arg(1).value()).dim() == 1 &&
         count_places(r, n, n.arg(1).value(), n.arg(0).value(), *right, out);
}

bool decompose_searchsorted(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const auto right = a.boolean(3, false);
  const auto side = a.string(4, right.value_or(false) ? "right" : "left");
  if (!right || !side || !n.arg(5).is_none()) return false;
  return count_places(r, n, n.arg(0).value(), n.arg(1).value(), *side == "right", out);
}

bool shape_histc(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto bins = a.expr(1, 100);
  return t && bins && (t->dtype == DType::F32 || t->dtype == DType::F64) &&
         sym::known_less(0, *bins) == true && give(out, fresh(*t, {*bins}));
}

// Elements between ends that are given, the upper one in the last bin.
bool decompose_histc(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  const auto bins = a.integer(1, 100);
  const auto low = a.number(2, 0), high = a.number(3, 0);
  if (!bins || *bins < 1 || !low || !high || !(*low < *high) || !std::isfinite(*high - *low) ||
      (t.dtype != DType::F32 && t.dtype != DType::F64))
    return false;
  const ValueId x = r.view(r.row_major(n.arg(0).value()), {t.numel()});
  const auto call = [&](std::string_view op, ValueId v, ir::Arg by) {
    return r.call(op, {v, std::move(by)});
  };
  const ValueId inside = r.call("aten.bitwise_and.Tensor", {call("aten.ge.Scalar", x, *low),
                                                            call("aten.le.Scalar", x, *high)});
  // The ends have the dtype of the elements.
  const double begin = round_to(*low, t.dtype), length = round_to(*high, t.dtype) - begin;
  const ValueId scaled = call("aten.mul.Scalar", r.add(x, -begin), static_cast<double>(*bins));
  const ValueId place = r.call("aten.where.self", {inside, r.div(scaled, round_to(length, t.dtype)),
                                                   r.full({}, 0.0, t.dtype, t.device)});
  const ValueId bin = call("aten.clamp_max.default", r.cast(place, DType::I64), *bins - 1);
  const ValueId none = r.full({Expr(*bins)}, 0.0, t.dtype, t.device);
  return give(out, r.call("aten.scatter_add.default", {none, 0, bin, r.cast(inside, t.dtype)}));
}

constexpr OpInfo kOrderingOps[] = {
#include "ops/ordering.def"
};

}  // namespace

bool decompose_kthvalue(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.arg(0).value());
  const auto k = a.integer(1);
  const auto dim = t.dim() > 0 ? a.dim(2, t.dim(), -1) : std::nullopt;
  const auto keepdim = a.boolean(3, false);
  const int64_t count = few_along(t, dim, kCounted);
  return k && keepdim && *k >= 1 && *k <= count && select_rank(r, n, *dim, *k - 1, *keepdim, out);
}

std::span<const OpInfo> ordering_ops() { return kOrderingOps; }

}  // namespace oxy::ops
