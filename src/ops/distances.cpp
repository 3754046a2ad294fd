// Distances of all pairs of rows: differences that are folded as they are made.
#include <algorithm>
#include <cmath>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

bool is_points(const TensorType& t) {
  return t.dim() >= 2 && (t.dtype == DType::F32 || t.dtype == DType::F64);
}

// Batches of points with as many coordinates, at least one.
bool are_points(const TensorType& a, const TensorType& b) {
  return is_points(a) && is_points(b) && a.dtype == b.dtype &&
         sym::certain_equal(a.sizes.back(), b.sizes.back()) == true &&
         sym::certain_less(0, a.sizes.back()) == true;
}

bool have_same_batch(const TensorType& a, const TensorType& b) {
  return a.dim() == b.dim() && std::equal(a.sizes.begin(), a.sizes.end() - 2, b.sizes.begin());
}

// The batch that both go to, then these.
std::optional<TensorType> of_batch(const TensorType& a, const TensorType& b,
                                   std::initializer_list<Expr> rest) {
  auto sizes =
      broadcast({a.sizes.begin(), a.sizes.end() - 2}, {b.sizes.begin(), b.sizes.end() - 2});
  if (!sizes) return std::nullopt;
  sizes->insert(sizes->end(), rest);
  return fresh(a, *sizes);
}

bool shape_distances(const Args& a, Types& out) {
  const TensorType *x1 = a.tensor(0), *x2 = a.tensor(1);
  return x1 && x2 && are_points(*x1, *x2) &&
         give(out, of_batch(*x1, *x2, {*(x1->sizes.end() - 2), *(x2->sizes.end() - 2)}));
}

// torch refuses the other norms.
bool shape_cdist(const Args& a, Types& out) {
  const auto p = a.number(2);
  return p && *p >= 0 && shape_distances(a, out);
}

bool shape_distance_gradient(const Args& a, Types& out) {
  const TensorType *x1 = a.tensor(1), *x2 = a.tensor(2);
  const auto has_some = [](const TensorType& t) {
    return std::ranges::all_of(t.sizes, [](Expr e) { return sym::certain_less(0, e) == true; });
  };
  return x1 && x2 && are_points(*x1, *x2) && has_some(*x1) && has_some(*x2) &&
         give(out, of_batch(*x1, *x2, {*(x1->sizes.end() - 2), x1->sizes.back()}));
}

// x1[..., i, m] - x2[..., j, m]
ValueId differences(Rewriter& r, ValueId x1, ValueId x2) {
  return r.sub(r.call("aten.unsqueeze.default", {x1, r.type(x1).dim() - 1}),
               r.call("aten.unsqueeze.default", {x2, r.type(x2).dim() - 2}));
}
ValueId power(Rewriter& r, ValueId v, double exponent) {
  return r.call("aten.pow.Tensor_Scalar", {v, exponent});
}

// By a gemm where ATen takes one: more than 25 points, unless it is told otherwise.
std::optional<bool> by_gemm(const Args& a, const TensorType& x1, const TensorType& x2, double p) {
  if (p != 2) return false;
  const int64_t mode = a.missing(3) ? 0 : a.integer(3).value_or(0);
  if (mode != 0) return mode == 1;
  const Expr few = 25;
  const auto many1 = sym::certain_less(few, *(x1.sizes.end() - 2));
  const auto many2 = sym::certain_less(few, *(x2.sizes.end() - 2));
  if (many1 == true || many2 == true) return true;
  return many1 && many2 ? std::optional(false) : std::nullopt;
}

bool decompose_cdist(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const ValueId x1 = n.arg(0).value(), x2 = n.arg(1).value();
  const TensorType t1 = r.type(x1), t2 = r.type(x2);
  const auto p = a.number(2);
  if (!p || !are_points(t1, t2)) return false;
  const auto gemm = by_gemm(a, t1, t2, *p);
  if (!gemm) return false;
  if (*gemm)
    return have_same_batch(t1, t2) &&
           give(out, r.call("aten._euclidean_dist.default", {x1, x2}, r.type(n.outputs[0])));
  const ValueId d = differences(r, x1, x2);
  const int64_t last = r.type(d).dim() - 1;
  const ValueId size = r.unary("aten.abs.default", d);
  if (std::isinf(*p)) {  // NaN is passed over
    const ValueId none = r.full({}, 0.0, t1.dtype, t1.device);
    const ValueId number = r.call("aten.eq.Tensor", {d, d});
    return give(out, r.amax(r.call("aten.where.self", {number, size, none}), {last}, false));
  }
  if (*p == 0) {  // how many differ; NaN stays
    const ValueId differ =
        r.call("aten.clamp_max.default", {r.unary("aten.ceil.default", size), 1});
    return give(out, r.sum(differ, {last}, false));
  }
  if (*p == 1) return give(out, r.sum(size, {last}, false));
  if (*p == 2) return give(out, r.unary("aten.sqrt.default", r.sum(r.mul(d, d), {last}, false)));
  return give(out, power(r, r.sum(power(r, size, *p), {last}, false), 1 / *p));
}

// (-2 x1, |x1|^2, 1) times (x2, 1, |x2|^2), as ATen does.
bool decompose_euclidean(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const ValueId x1 = n.arg(0).value(), x2 = n.arg(1).value();
  const TensorType t1 = r.type(x1), t2 = r.type(x2);
  if (!are_points(t1, t2) || !have_same_batch(t1, t2) || t1.dim() > 3) return false;
  const int64_t last = t1.dim() - 1;
  const auto side_by_side = [&](ValueId a, ValueId b, ValueId c) {
    ir::List all;
    for (ValueId v : {a, b, c}) all.items.emplace_back(v);
    return r.call("aten.cat.default", {std::move(all), last});
  };
  const auto square = [&](ValueId v) { return r.sum(r.mul(v, v), {last}, true); };
  const auto one = [&](ValueId v) { return r.full(r.type(v).sizes, 1.0, t1.dtype, t1.device); };
  const ValueId s1 = square(x1), s2 = square(x2);
  const ValueId a = side_by_side(r.call("aten.mul.Scalar", {x1, -2}), s1, one(s1));
  const ValueId b = side_by_side(x2, one(s2), s2);
  const ValueId product = r.call(last == 1 ? "aten.mm.default" : "aten.bmm.default",
                                 {a, r.call("aten.transpose.int", {b, -2, -1})});
  return give(out, r.unary("aten.sqrt.default", r.call("aten.clamp_min.default", {product, 0})));
}

// d |x1 - x2|_p / d x1, summed over the points of x2.
bool decompose_cdist_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const ValueId x1 = n.arg(1).value(), x2 = n.arg(2).value();
  const TensorType t1 = r.type(x1), t2 = r.type(x2), result = r.type(n.outputs[0]);
  const auto p = a.number(3);
  if (!p || !are_points(t1, t2) || r.type(n.arg(0).value()).dtype != t1.dtype) return false;
  if (*p == 0) return give(out, r.full(result.sizes, 0.0, t1.dtype, t1.device));
  const ValueId d = differences(r, x1, x2);
  const int64_t last = r.type(d).dim() - 1;
  const auto of_pairs = [&](size_t i) {
    return r.call("aten.unsqueeze.default", {n.arg(i).value(), last});
  };
  const ValueId grad = of_pairs(0), distance = of_pairs(4);
  const ValueId zero = r.full({}, 0.0, t1.dtype, t1.device);
  const auto where = [&](ValueId mask, ValueId v) {
    return r.call("aten.where.self", {mask, zero, v});
  };
  const ValueId none = r.call("aten.eq.Scalar", {distance, 0});
  const ValueId sign = r.unary("aten.sign.default", d), size = r.unary("aten.abs.default", d);
  ValueId each;
  if (*p == 1) {
    each = r.mul(grad, sign);
  } else if (*p == 2) {
    each = where(none, r.div(r.mul(grad, d), distance));
  } else if (std::isinf(*p)) {
    const ValueId largest = r.call("aten.eq.Tensor", {size, distance});
    each = r.mul(r.mul(grad, sign), r.cast(largest, t1.dtype));
  } else if (*p < 2) {
    ValueId mask = none;
    if (*p < 1) mask = r.call("aten.bitwise_or.Tensor", {none, r.call("aten.eq.Scalar", {d, 0})});
    const ValueId steep = r.mul(r.mul(sign, power(r, size, *p - 1)), grad);
    each = where(mask, r.div(steep, power(r, distance, *p - 1)));
  } else {
    const ValueId steep = r.mul(r.mul(d, power(r, size, *p - 2)), grad);
    each = where(none, r.div(steep, power(r, distance, *p - 1)));
  }
  const ValueId sum = r.sum(each, {last - 1}, false);
  return r.type(sum).sizes == result.sizes && give(out, sum);
}

constexpr OpInfo kDistanceOps[] = {
#include "ops/distances.def"
};

}  // namespace

std::span<const OpInfo> distance_ops() { return kDistanceOps; }

}  // namespace oxy::ops
