// Gradients of convolutions and attention. They run as calls, but for those of convolutions that
// are gemms, where our kernels are faster than the library.
#include <algorithm>
#include <numeric>

#include "ops/contraction.h"
#include "ops/families.h"
#include "ops/gradients.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// grad_output, input, weight, bias_sizes, then stride and so on as in the forward, output_mask.
// Layouts other than row-major depend on the library that runs it: torch is asked.
bool shape_convolution_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *x = a.tensor(1), *w = a.tensor(2);
  const auto mask = output_mask(a, 10, 3);
  if (!grad || !x || !w || grad->dtype != x->dtype || !mask) return false;
  std::vector<ir::Arg> forward{a[1], a[2], ir::Arg()};
  for (size_t i = 4; i < 10; ++i) forward.push_back(a[i]);
  Types y;
  if (!shape_convolution(a.with(forward), y) || !known_same(y[0].tensor.sizes, grad->sizes))
    return false;
  // oneDNN gives the weight's gradient with the bias's.
  if ((*mask)[2] && !(*mask)[1]) return false;
  return give_wanted(out, (*mask)[0], fresh(*x, x->sizes)) &&
         give_wanted(out, (*mask)[1], fresh(*w, w->sizes)) &&
         give_wanted(out, (*mask)[2], fresh(*w, {grad->sizes[1]}));
}

// ---- gradients of convolutions as gemms ----
//
// With g [N, Co, ...], x [N, Ci, ...] and a filter w [Co, Ci] of one tap:
//   grad_input  = w^T g                      grad_weight = sum over the images of g x^T
// A filter of more taps has the second one, with the patches of x (im2col) in the place of x.

// Of one image of [N, C, ...].
Expr pixels_of(const Sizes& s) {
  return std::accumulate(s.begin() + 2, s.end(), Expr(1), std::multiplies<>());
}

// [N, C, ...] as [N * pixels, C].
ValueId by_pixel(Rewriter& r, ValueId v) {
  const Sizes s = r.type(v).sizes;
  std::vector<int64_t> order{0};
  for (size_t d = 2; d < s.size(); ++d) order.push_back(static_cast<int64_t>(d));
  order.push_back(1);
  v = r.row_major(r.call("aten.permute.default", {v, list_of(order)}));
  return r.view(v, {s[0] * pixels_of(s), s[1]});
}

// [N, C, ...], row-major, as [N, C, pixels].
ValueId by_image(Rewriter& r, ValueId v) {
  const Sizes s = r.type(v).sizes;
  return r.view(v, {s[0], s[1], pixels_of(s)});
}

// The same as [C, N * pixels].
ValueId by_channel(Rewriter& r, ValueId v) {
  v = by_image(r, v);
  const Sizes s = r.type(v).sizes;
  v = r.call("aten.permute.default", {v, list_of(std::vector<int64_t>{1, 0, 2})});
  return r.view(r.row_major(v), {s[1], s[0] * s[2]});
}

ValueId transposed(Rewriter& r, ValueId v) {
  std::vector<int64_t> order{1, 0};
  if (r.type(v).dim() == 3) order = {0, 2, 1};
  return r.call("aten.permute.default", {v, list_of(order)});
}

struct ConvolutionGradient {
  explicit ConvolutionGradient(const Args& a)
      : grad(*a.tensor(0)),
        input(*a.tensor(1)),
        weight(*a.tensor(2)),
        dims(static_cast<size_t>(weight.dim()) - 2) {
    is_known = a.integers(4, stride) && stride.size() == dims && a.integers(5, padding) &&
               padding.size() == dims && a.integers(6, dilation) && dilation.size() == dims &&
               a.boolean(7, true) == false && a.integer(9, 0) == 1;
  }

  bool has_one_tap() const {
    return std::ranges::all_of(weight.sizes.begin() + 2, weight.sizes.end(),
                               [](Expr e) { return e.is_const(1); }) &&
           std::ranges::count(padding, 0) == static_cast<int64_t>(dims);
  }
  bool has_stride() const {
    return std::ranges::any_of(stride, [](int64_t s) { return s != 1; });
  }
  // What the gradient of a weight sums: pixels of all images.
  Expr pixels() const { return grad.sizes[0] * pixels_of(grad.sizes); }
  // Each image is a gemm of its own: no copy brings its pixels together with the others'.
  bool image_by_image() const {
    return sym::hint(pixels_of(grad.sizes)) >= tuning::conv_gradient_image;
  }

  const TensorType grad, input, weight;
  size_t dims;  // spatial
  std::vector<int64_t> stride, padding, dilation;
  bool is_known = false;
};

// The pixels that a filter of one tap meets.
ValueId met_by_filter(Rewriter& r, const ConvolutionGradient& c, ValueId x) {
  for (size_t d = 0; d < c.dims; ++d) {
    if (c.stride[d] == 1) continue;
    const auto dim = static_cast<int64_t>(d) + 2;
    x = r.call("aten.slice.Tensor", {x, dim, 0, c.input.sizes[d + 2], c.stride[d]});
  }
  return x;
}

std::optional<ValueId> input_gradient(Rewriter& r, const ConvolutionGradient& c, ValueId g,
                                      ValueId w) {
  const Expr out = c.weight.sizes[0], in = c.weight.sizes[1];
  const ValueId matrix = r.view(w, {out, in});
  Sizes sizes = c.grad.sizes;
  ValueId v;
  if (c.grad.is_row_major() && c.image_by_image()) {
    sizes[1] = in;
    const Sizes batched{sizes[0], in, out};
    const ValueId weights = r.row_major(transposed(r, matrix));
    v = r.call("aten.bmm.default",
               {r.call("aten.expand.default", {weights, list_of(batched)}), by_image(r, g)});
    v = r.view(v, sizes);
  } else {
    v = r.call("aten.mm.default", {by_pixel(r, g), matrix});
    sizes.erase(sizes.begin() + 1);
    sizes.push_back(in);
    std::vector<int64_t> order{0, static_cast<int64_t>(c.dims) + 1};
    for (size_t d = 0; d < c.dims; ++d) order.push_back(static_cast<int64_t>(d) + 1);
    v = r.call("aten.permute.default", {r.view(v, sizes), list_of(order)});
    if (c.has_stride()) v = r.row_major(v);
  }
  for (size_t d = c.dims; d-- > 0;) {
    if (c.stride[d] == 1) continue;
    Sizes whole = r.type(v).sizes;
    whole[d + 2] = c.input.sizes[d + 2];
    v = r.call("aten.slice_backward.default", {v, list_of(whole), static_cast<int64_t>(d) + 2, 0,
                                               c.input.sizes[d + 2], c.stride[d]});
  }
  return v;
}

ValueId weight_gradient(Rewriter& r, const ConvolutionGradient& c, ValueId g, ValueId x) {
  ValueId v;
  if (!c.has_one_tap()) {
    std::vector<int64_t> taps;
    for (size_t d = 2; d < c.weight.sizes.size(); ++d) taps.push_back(c.weight.sizes[d].value());
    x = r.call("aten.im2col.default",
               {x, list_of(taps), list_of(c.dilation), list_of(c.padding), list_of(c.stride)});
    v = r.call("aten.mm.default", {by_channel(r, g), transposed(r, by_channel(r, x))});
    return r.view(v, c.weight.sizes);
  }
  x = met_by_filter(r, c, x);
  if (!c.grad.is_row_major()) {
    v = r.call("aten.mm.default", {transposed(r, by_pixel(r, g)), by_pixel(r, x)});
  } else if (c.image_by_image() && !c.grad.sizes[0].is_const(1)) {
    x = by_image(r, r.row_major(x));
    v = r.sum(r.call("aten.bmm.default", {by_image(r, g), transposed(r, x)}), {0}, false);
  } else {
    x = by_channel(r, r.row_major(x));
    v = r.call("aten.mm.default", {by_channel(r, g), transposed(r, x)});
  }
  return r.view(v, c.weight.sizes);
}

// Convolutions in f32 on the CPU whose filter has one tap, and the weight's gradient of those with
// more taps where few pixels are summed: there the library's time is that of laying weights out.
bool decompose_convolution_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const auto mask = output_mask(a, 10, 3);
  if (!mask || !a.tensor(0) || !a.tensor(1) || !a.tensor(2) || a.tensor(2)->dim() < 3) return false;
  const ConvolutionGradient c(a);
  const bool row_major = c.grad.is_row_major() && c.input.is_row_major();
  auto is_plain = [&](const TensorType& t) {
    return t.dtype == DType::F32 && t.device.is_cpu() && std::ranges::all_of(t.sizes, has_hint) &&
           std::ranges::all_of(t.sizes, [](Expr e) { return sym::range_of(e).lo > 0; }) &&
           (row_major || (t.dim() == 4 && t.strides == channels_last_strides(t.sizes)));
  };
  if (!c.is_known || !is_plain(c.grad) || !is_plain(c.input) || !c.weight.is_row_major())
    return false;
  const bool one_tap = c.has_one_tap();
  if (!one_tap && (!(*mask)[1] || !row_major || c.dims != 2 ||
                   sym::hint(c.pixels()) > tuning::conv_gradient_pixels))
    return false;
  if (!row_major && c.has_stride()) return false;
  const auto few = [](Expr channels) { return sym::hint(channels) < tuning::conv_fewest_channels; };
  if (few(c.weight.sizes[0]) || few(c.weight.sizes[1])) return false;
  const ValueId g = n.arg(0).value(), x = n.arg(1).value(), w = n.arg(2).value();
  auto laid_out = [&](size_t i, std::optional<ValueId> v) {
    return v ? r.as(*v, r.graph().tensor_type(n.outputs[i])) : v;
  };
  auto of_input = [&]() -> std::optional<ValueId> {
    if (one_tap) return laid_out(0, input_gradient(r, c, g, w));
    std::vector<ir::Arg> args = n.args;
    args[10] = ir::List{{true, false, false}};
    return r.call_multi(n.target, std::move(args))[0];
  };
  std::vector<int64_t> all_but_channels{0};
  for (size_t d = 0; d < c.dims; ++d) all_but_channels.push_back(static_cast<int64_t>(d) + 2);
  return give_wanted(out, (*mask)[0], of_input) &&
         give_wanted(out, (*mask)[1], [&] { return laid_out(1, weight_gradient(r, c, g, x)); }) &&
         give_wanted(out, (*mask)[2],
                     [&] { return std::optional(r.sum(g, all_but_channels, false)); });
}

// [batch, heads, length, size], lying as [batch, length, heads, size].
TensorType with_heads_inside(const TensorType& t) {
  const Sizes& s = t.sizes;
  TensorType out = fresh(t, s);
  out.strides = {s[1] * s[2] * s[3], s[3], s[1] * s[3], Expr(1)};
  return out;
}

// grad_out, query, key, value, out, logsumexp, ...
bool shape_attention_backward(const Args& a, Types& out) {
  const TensorType *q = a.tensor(1), *k = a.tensor(2), *v = a.tensor(3);
  for (size_t i = 0; i < 5; ++i) {
    const TensorType* t = a.tensor(i);
    if (!t || t->dim() != 4 || !q || t->dtype != q->dtype || t->numel().is_const(0)) return false;
  }
  if (!known_same(a.tensor(0)->sizes, a.tensor(4)->sizes)) return false;
  if (!known_same({q->sizes[3]}, {k->sizes[3]}) || !known_same({k->sizes[2]}, {v->sizes[2]}))
    return false;
  for (const TensorType* t : {q, k, v}) give(out, with_heads_inside(*t));
  return true;
}

constexpr OpInfo kContractionGradientOps[] = {
#include "ops/contraction_gradients.def"
};

}  // namespace

std::span<const OpInfo> contraction_gradient_ops() { return kContractionGradientOps; }

}  // namespace oxy::ops
