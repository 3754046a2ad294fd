// Gradients of loss functions, by their formulas in ATen's CPU kernels; those of a mean are divided
// by how many losses there were.
#include "ops/families.h"
#include "ops/losses.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// `factor`, divided by how many losses a mean is of, which is computed in f64.
Scalar norm_of(Element& e, int64_t reduction, double factor, DType d) {
  if (reduction != MeanLoss) return e.c(factor, d);
  const Expr count = e.result_type().numel();
  if (count.is_const()) return e.c(factor / static_cast<double>(count.value()), d);
  return e.cast(e.div(e.c(factor, DType::F64), e.cast(e.b.index(count), DType::F64)), d);
}

// ---- grad_output, self, target, reduction: of self's size, row-major ----

bool shape_of_gradients(const Args& a, Types& out) {
  constexpr size_t kOperands[] = {1, 2, 0};
  auto t = elementwise_type(a, kOperands, Promoted);
  if (!t || !meets(Needs::SameFloating, a, kOperands, t->dtype) || !reduction_of(a, 3))
    return false;
  const TensorType& self = *a.tensor(1);
  return known_same(t->sizes, self.sizes) && give(out, fresh(self, self.sizes));
}

bool shape_of_bounded(const Args& a, Types& out) {
  const auto bound = a.number(4);
  return bound && *bound > 0 && shape_of_gradients(a, out);
}

Scalar gap(Element& e, DType d) { return e.sub(e.operand(1, d), e.operand(2, d)); }

Scalar mse_backward(Element& e) {
  const DType d = e.compute();
  const Scalar norm = norm_of(e, *reduction_of(e.args, 3), 2, d);
  return e.finish(e.mul(e.mul(norm, gap(e, d)), e.operand(0, d)));
}

// `end` where the gap reaches the bound, its negative where it reaches it below, else `between`.
Scalar bounded(Element& e, Scalar x, Scalar bound, Scalar end, Scalar between) {
  const Scalar below = e.op(LoopOp::Le, x, e.op(LoopOp::Neg, bound));
  const Scalar above = e.op(LoopOp::Ge, x, bound);
  return e.where(below, e.op(LoopOp::Neg, end), e.where(above, end, between));
}

Scalar smooth_l1_backward(Element& e) {
  const DType d = e.compute();
  const Scalar x = gap(e, d), beta = e.operand(4, d), grad = e.operand(0, d);
  const Scalar norm = norm_of(e, *reduction_of(e.args, 3), 1, d);
  const Scalar between = e.div(e.mul(e.mul(norm, x), grad), beta);
  return e.finish(bounded(e, x, beta, e.mul(norm, grad), between));
}

Scalar huber_backward(Element& e) {
  const DType d = e.compute();
  const Scalar x = gap(e, d), delta = e.operand(4, d), grad = e.operand(0, d);
  const Scalar norm = norm_of(e, *reduction_of(e.args, 3), 1, d);
  const Scalar end = e.mul(e.mul(norm, grad), delta);
  return e.finish(bounded(e, x, delta, end, e.mul(e.mul(norm, x), grad)));
}

// ---- soft_margin: -norm * target * z / (1 + z) * grad, z = exp(-target * self) ----

bool shape_soft_margin_backward(const Args& a, Types& out) {
  constexpr size_t kOperands[] = {2, 1}, kTarget[] = {2};
  auto t = elementwise_type(a, kOperands, Promoted);
  const auto negated = elementwise_type(a, kTarget, Promoted);
  if (!t || !negated || !meets(Needs::SameFloating, a, kOperands, t->dtype) || !reduction_of(a, 3))
    return false;
  const TensorType* grad = a.tensor(0);
  if (!grad || grad->dtype != t->dtype || a.tensor(1)->dtype != t->dtype) return false;
  // Of target * exp(-target * self).
  const TensorType* const product[] = {&*negated, a.tensor(1)};
  const auto inner = elementwise_strides(t->sizes, product, /*has_number=*/false);
  if (!inner) return false;
  TensorType z = *t;
  z.strides = *inner;
  const TensorType* const outer[] = {a.tensor(2), &z};
  auto strides = elementwise_strides(t->sizes, outer, /*has_number=*/false);
  if (!strides) return false;
  t->strides = std::move(*strides);
  const auto common = broadcast(t->sizes, grad->sizes);
  return common && known_same(*common, t->sizes) && known_same(t->sizes, a.tensor(1)->sizes) &&
         give(out, std::move(t));
}

// Every step is rounded.
bool decompose_soft_margin_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const auto reduction = reduction_of(a, 3);
  const Expr count = a.tensor(1)->numel();
  Types types;
  if (!shape_soft_margin_backward(a, types)) return false;
  if (!reduction || (*reduction == MeanLoss && !count.is_const()) || count.is_const(0))
    return false;
  const double mean = *reduction == MeanLoss ? -1.0 / static_cast<double>(count.value()) : -1.0;
  const double norm = round_to(mean, r.type(n.arg(1).value()).dtype);
  const ValueId target = n.arg(2).value();
  const ValueId product = r.mul(r.unary("aten.neg.default", target), n.arg(1).value());
  const ValueId z = r.unary("aten.exp.default", product);
  const ValueId top = r.call("aten.mul.Scalar", {r.mul(target, z), norm});
  return give(out, r.mul(r.div(top, r.add(z, 1.0)), n.arg(0).value()));
}

// ---- binary_cross_entropy: grad_output, self, target, weight, reduction ----

// Laid out as self.
bool shape_bce_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1), *target = a.tensor(2);
  if (!grad || !t || !target || !ir::is_floating(t->dtype) || !reduction_of(a, 4)) return false;
  if (!known_same(t->sizes, target->sizes) || target->dtype != t->dtype) return false;
  for (size_t i : {0, 3}) {
    if (a.missing(i)) continue;
    const TensorType* other = a.tensor(i);
    const auto common = other ? broadcast(t->sizes, other->sizes) : std::nullopt;
    if (!common || other->dtype != t->dtype || !known_same(*common, t->sizes)) return false;
  }
  return give(out, empty_like(*t));
}

Scalar bce_backward(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(1, d);
  const Scalar slope = e.mul(e.sub(e.c(1, d), x), x);
  const Scalar least = e.c(1e-12f, d);
  Scalar v = e.div(e.mul(e.operand(0, d), gap(e, d)), e.op(LoopOp::Max, slope, least));
  if (!e.args.missing(3)) v = e.mul(v, e.operand(3, d));
  if (*reduction_of(e.args, 4) != MeanLoss) return v;
  return e.div(v, e.cast(e.b.index(e.result_type().numel()), d));
}

// Of fp16 and bf16 ATen rounds every step, with a least slope that is 0 in fp16.
bool applies_wide_loss(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && !ir::is_reduced_float(g.tensor_type(n.outputs[0]).dtype);
}

// ---- nll_loss: grad_output, self, target, weight, reduction, ignore_index, total_weight ----

// Where the classes stand among self's dimensions.
size_t classes_of(const TensorType& t) { return t.dim() == 1 ? 0 : 1; }

Sizes without(Sizes sizes, size_t dim) {
  sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(dim));
  return sizes;
}

bool is_single(const TensorType* t, DType d) {
  return t && t->dtype == d && t->dim() <= 1 && known_same({t->numel()}, {Expr(1)});
}

// Of up to `Rank` dimensions; images have all.
template <int64_t Rank>
bool shape_nll_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1), *target = a.tensor(2),
                   *weight = a.tensor(3);
  const auto reduction = reduction_of(a, 4);
  if (!grad || !t || !target || !ir::is_floating(t->dtype) || !reduction || !a.expr(5))
    return false;
  const bool rank = Rank == 4 ? t->dim() == 4 : t->dim() == 1 || t->dim() == 2;
  if (!rank || (target->dtype != DType::I64 && target->dtype != DType::U8)) return false;
  const size_t classes = classes_of(*t);
  const Sizes others = without(t->sizes, classes);
  if (t->sizes[classes].is_const(0)) return false;  // no target is one
  if (!known_same(target->sizes, others) || !is_single(a.tensor(6), t->dtype)) return false;
  const bool each = *reduction == EachLoss && t->dim() > 1;
  if (grad->dtype != t->dtype || (each && !known_same(grad->sizes, others))) return false;
  if (!each && !is_single(grad, t->dtype)) return false;
  const Sizes all_classes{t->sizes[classes]};
  if (!a.missing(3) &&
      (!weight || weight->dtype != t->dtype || !known_same(weight->sizes, all_classes)))
    return false;
  // Of images ATen raises where empty_like gives another layout.
  if (Rank == 4 && !t->is_row_major()) return false;
  return give(out, fresh(*t, t->sizes));
}

// At the class of the target the gradient of its loss, else 0.
Scalar nll_backward(Element& e) {
  const DType d = e.result();
  const TensorType &t = *e.args.tensor(1), &grads = *e.args.tensor(0);
  const size_t classes = classes_of(t);
  Index row = e.index;
  row.erase(row.begin() + static_cast<ptrdiff_t>(classes));
  const Scalar target = e.cast(e.load(2, row), DType::I64);
  const Scalar ignored = e.op(LoopOp::Eq, target, e.b.index(*e.args.expr(5)));
  const Scalar known = e.where(ignored, e.b.constant_int(0, DType::I64), target);
  const Expr at = e.b.indirect(known, t.sizes[classes], false);
  const int64_t reduction = *reduction_of(e.args, 4);
  const bool each = reduction == EachLoss && t.dim() > 1;
  Scalar grad = e.load(0, each ? row : Index(grads.sizes.size(), Expr(0)));
  if (reduction == MeanLoss)
    grad = e.div(grad, e.load(6, Index(e.args.tensor(6)->sizes.size(), Expr(0))));
  grad = e.op(LoopOp::Neg, grad);
  if (!e.args.missing(3)) grad = e.mul(grad, e.load(3, {at}));
  const Scalar hit = e.op(LoopOp::Eq, e.b.index(e.index[classes]), known);
  const Scalar counted = e.op(LoopOp::And, hit, e.op(LoopOp::Not, ignored));
  return e.where(counted, grad, e.c(0, d));
}

// ---- margins and CTC: gradient, operand ----

bool shape_row_major(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  if (!grad || !t || grad->dtype != t->dtype || !ir::is_floating(t->dtype)) return false;
  return give(out, fresh(*t, t->sizes));
}

constexpr OpInfo kLossGradientOps[] = {
#include "ops/loss_gradients.def"
};

}  // namespace

std::span<const OpInfo> loss_gradient_ops() { return kLossGradientOps; }

}  // namespace oxy::ops
