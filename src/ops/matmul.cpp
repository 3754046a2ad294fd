// Gemms, convolutions and attention: mostly shape rules, they run as extern calls.
#include <cmath>

#include "ops/families.h"
#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

// Tensors of this rank, one dtype and one device.
bool alike(const TensorType* a, const TensorType* b, int64_t rank_a, int64_t rank_b) {
  return a && b && a->dim() == rank_a && b->dim() == rank_b && a->dtype == b->dtype &&
         a->device == b->device;
}

bool same_size(Expr a, Expr b) { return known_same({a}, {b}); }

// ---- gemms ----

template <size_t At>
bool shape_mm(const Args& a, Types& out) {
  const TensorType *x = a.tensor(At), *y = a.tensor(At + 1);
  if (!alike(x, y, 2, 2) || !same_size(x->sizes[1], y->sizes[0])) return false;
  if (At == 1 && (!a.tensor(0) || a.tensor(0)->dtype != x->dtype)) return false;
  return give(out, fresh(*x, {x->sizes[0], y->sizes[1]}));
}

template <size_t At>
bool shape_bmm(const Args& a, Types& out) {
  const TensorType *x = a.tensor(At), *y = a.tensor(At + 1);
  if (!alike(x, y, 3, 3) || !same_size(x->sizes[2], y->sizes[1])) return false;
  if (!same_size(x->sizes[0], y->sizes[0])) return false;
  if (At == 1 && (!a.tensor(0) || a.tensor(0)->dtype != x->dtype)) return false;
  return give(out, fresh(*x, {x->sizes[0], x->sizes[1], y->sizes[2]}));
}

bool shape_mv(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *y = a.tensor(1);
  if (!alike(x, y, 2, 1) || !same_size(x->sizes[1], y->sizes[0])) return false;
  return give(out, fresh(*x, {x->sizes[0]}));
}

bool shape_dot(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *y = a.tensor(1);
  if (!alike(x, y, 1, 1) || !same_size(x->sizes[0], y->sizes[0])) return false;
  return give(out, fresh(*x, {}));
}

bool shape_linear(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1);
  if (!x || x->dim() < 2 || !alike(x, w, x->dim(), 2) || !x->is_row_major()) return false;
  if (!same_size(x->sizes.back(), w->sizes[1])) return false;
  if (!a.missing(2) && (!a.tensor(2) || a.tensor(2)->dtype != x->dtype)) return false;
  Sizes sizes = x->sizes;
  sizes.back() = w->sizes[0];
  return give(out, fresh(*x, std::move(sizes)));
}

// ---- convolution ----

Expr convolved(Expr in, Expr kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const Expr reach = Expr(dilation) * (kernel - Expr(1)) + Expr(1);
  return sym::floordiv(in + Expr(2 * padding) - reach, Expr(stride)) + Expr(1);
}

// One number a spatial dimension; a single one counts for all.
bool spatial(const Args& a, size_t at, size_t rank, std::vector<int64_t>& out) {
  if (!a.integers(at, out)) return false;
  if (out.size() == 1) out.resize(rank, out[0]);
  return out.size() == rank;
}

// Layouts other than row-major depend on the library that runs it: torch is asked.
bool shape_convolution(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1);
  if (!alike(x, w, 4, 4) || !x->is_row_major() || !w->is_row_major()) return false;
  std::vector<int64_t> stride, padding, dilation;
  auto transposed = a.boolean(6, false);
  auto groups = a.integer(8, 1);
  if (!spatial(a, 3, 2, stride) || !spatial(a, 4, 2, padding) || !spatial(a, 5, 2, dilation)) {
    return false;
  }
  if (!transposed || *transposed || !groups) return false;
  if (!same_size(x->sizes[1], w->sizes[1] * Expr(*groups))) return false;
  if (x->sizes[1].is_const(0)) return false;  // eager gives no channels then
  // A kernel with one input channel can look like channels-last.
  if (w->sizes[1].is_const(1) || x->sizes[1].is_const(1)) return false;
  Sizes sizes{x->sizes[0], w->sizes[0]};
  for (size_t d = 0; d < 2; ++d) {
    sizes.push_back(
        convolved(x->sizes[2 + d], w->sizes[2 + d], stride[d], padding[d], dilation[d]));
    auto empty = sym::known_less(sizes.back(), 1);
    if (!empty || *empty) return false;
  }
  return give(out, fresh(*x, std::move(sizes)));
}

// ---- attention ----

// query, key, value: [batch, heads, length, size]. The result has the layout of the query, the
// logarithms of the sums lie as [batch, length, heads].
bool shape_attention(const Args& a, Types& out) {
  const TensorType *q = a.tensor(0), *k = a.tensor(1), *v = a.tensor(2);
  if (!alike(q, k, 4, 4) || !alike(q, v, 4, 4)) return false;
  if (!same_size(q->sizes[3], v->sizes[3]) || !same_size(q->sizes[3], k->sizes[3])) return false;
  auto y = empty_like(*q);
  if (!y || q->numel().is_const(0)) return false;
  const Expr batch = q->sizes[0], heads = q->sizes[1], length = q->sizes[2];
  const DType wide = q->dtype == DType::F64 ? DType::F64 : DType::F32;
  TensorType sums = row_major(wide, q->device, {batch, heads, length});
  sums.strides = {heads * length, Expr(1), heads};
  return give(out, std::move(y)) && give(out, std::move(sums));
}

// Attention of few queries (decoding): reading keys and values is all, and as loops that takes in
// what makes them. ATen's kernel gives 0 where every key is masked.
bool decompose_attention(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out) {
  using ir::ValueId;
  const Args a(r.graph(), n);
  const TensorType *q = a.tensor(0), *mask = a.tensor(5);
  const auto scale = a.number(6, 0.0);
  const bool given = !a.missing(6);
  if (!q || q->dtype != DType::F32 || !q->device.is_cpu() || a.number(3, 0.0) != 0.0 || !scale ||
      a.boolean(4, false) != false || (!a.missing(5) && (!mask || mask->dtype != q->dtype)))
    return false;
  const Expr length = q->sizes[2], size = q->sizes[3];
  if (!length.is_const() || length.value() >= tuning::gemm_few_rows || !size.is_const() ||
      q->numel().is_const(0) || a.tensor(1)->numel().is_const(0))
    return false;
  const double factor = given ? *scale : 1.0 / std::sqrt(static_cast<double>(size.value()));
  auto unsqueezed = [&](ValueId v, int64_t dim) {
    return r.call("aten.unsqueeze.default", {v, dim});
  };
  auto filled = [&](ValueId v, ValueId where, double value) {
    return r.call("aten.masked_fill.Scalar", {v, where, value});
  };
  const ValueId query = unsqueezed(n.arg(0).value(), 3), key = unsqueezed(n.arg(1).value(), 2);
  ValueId scores = r.sum(r.mul(query, key), {4}, false);
  scores = r.call("aten.mul.Scalar", {scores, factor});
  if (mask) scores = r.add(scores, n.arg(5).value());
  const ValueId masked = r.call("aten.eq.Scalar", {scores, -INFINITY});
  const ValueId shifted = r.sub(scores, r.amax(scores, {3}, true));
  const ValueId weights = filled(r.unary("aten.exp.default", shifted), masked, 0.0);
  ValueId sum = r.sum(weights, {3}, true);
  sum = filled(sum, r.call("aten.eq.Scalar", {sum, 0.0}), 1.0);
  const ValueId shares = unsqueezed(r.div(weights, sum), 4);
  out = {r.sum(r.mul(shares, unsqueezed(n.arg(2).value(), 2)), {3}, false), ValueId()};
  return true;
}

constexpr OpInfo kRows[] = {
#include "ops/matmul.def"
};

}  // namespace

std::span<const OpInfo> matmul_ops() { return kRows; }

}  // namespace oxy::ops
