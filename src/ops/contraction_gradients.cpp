// Gradients of convolutions and attention: their shapes; they run as calls.
#include "ops/families.h"
#include "ops/gradients.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

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
