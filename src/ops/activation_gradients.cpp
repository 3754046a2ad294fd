// Gradients of activation functions. Each works in f32 for half precision and rounds once; where
// the vector and the scalar part of ATen's CPU kernels treat a NaN in different ways, these do as
// the vector part.
#include <limits>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// ---- shapes: the operands in the order in which ATen's iterator has them ----

template <Needs W, size_t... Operands>
bool shape_of_operands(const Args& a, Types& out) {
  constexpr size_t kOperands[] = {Operands...};
  auto t = elementwise_type(a, kOperands, Promoted);
  if (!t || !meets(W, a, kOperands, t->dtype)) return false;
  return give(out, std::move(t));
}

template <size_t... Operands>
constexpr ShapeRule of = shape_of_operands<Needs::Floating, Operands...>;
template <size_t... Operands>
constexpr ShapeRule of_same = shape_of_operands<Needs::SameFloating, Operands...>;
template <size_t... Operands>
constexpr ShapeRule of_numbers = shape_of_operands<Needs::NotBool, Operands...>;

// All arguments that are no tensors are known.
bool applies_known_numbers(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a.tensor(i) && !a.missing(i) && !a.number(i) && !a.boolean(i)) return false;
  }
  return applies_computable(g, n);
}

// With the error function a library may compute it, which takes tensors of one dtype and size.
bool shape_gelu_backward(const Args& a, Types& out) {
  const auto kind = a.string(2, "none");
  if (kind == "tanh") return of<0, 1>(a, out);
  return kind == "none" && of_same<0, 1>(a, out) &&
         known_same(a.tensor(0)->sizes, a.tensor(1)->sizes);
}

// From the result of a call in place the sign of its operand cannot be told where the slope is
// negative: eager refuses that.
bool is_told(const Args& a, size_t slope, size_t is_result) {
  const auto result = a.boolean(is_result);
  if (!result || !*result) return result.has_value();
  const auto number = a.number(slope);
  return number && *number >= 0;
}

bool shape_leaky_relu_backward(const Args& a, Types& out) {
  return is_told(a, 2, 3) && of<1, 0>(a, out);
}

bool shape_elu_backward(const Args& a, Types& out) { return is_told(a, 1, 4) && of<0, 5>(a, out); }

// Made by empty_like of the gradient.
bool shape_log_sigmoid_backward(const Args& a, Types& out) {
  return of_same<1, 2, 0>(a, out) && lay_out_like(a.tensor(0), out.back().tensor);
}

bool shape_prelu_backward(const Args& a, Types& out) {
  if (!of_same<1, 2, 0>(a, out)) return false;
  out.push_back(out.back());
  return true;
}

// ---- elements ----

Scalar sigmoid_of(Element& e, Scalar x) {
  const Scalar one = e.c(1, x.dtype);
  return e.div(one, e.add(one, e.op(LoopOp::Exp, e.op(LoopOp::Neg, x))));
}

Scalar threshold_backward(Element& e) {
  const DType d = e.compute();
  const Scalar below = e.op(LoopOp::Le, e.operand(1, d), e.operand(2, d));
  return e.finish(e.where(below, e.c(0, d), e.operand(0, d)));
}

Scalar sigmoid_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), y = e.operand(1, d);
  return e.finish(e.mul(e.mul(grad, e.sub(e.c(1, d), y)), y));
}

Scalar tanh_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), y = e.operand(1, d);
  return e.finish(e.mul(grad, e.sub(e.c(1, d), e.mul(y, y))));
}

// d/dx of x/2 (1 + tanh(inner)), inner = sqrt(2 / pi) (x + 0.044715 x^3).
Scalar gelu_tanh_slope(Element& e, Scalar x) {
  const DType d = x.dtype;
  constexpr double kBeta = 0.7978845608028654, kKappa = 0.044715;
  const Scalar half = e.c(0.5, d), one = e.c(1, d), beta = e.c(kBeta, d), square = e.mul(x, x);
  const Scalar cube = e.mul(e.c(kKappa, d), e.mul(square, x));
  const Scalar tanh = e.op(LoopOp::Tanh, e.mul(beta, e.add(x, cube)));
  const Scalar outer = e.sub(one, e.mul(tanh, tanh));
  const Scalar inner = e.mul(beta, e.add(one, e.mul(e.c(3 * kKappa, d), square)));
  const Scalar right = e.mul(e.mul(e.mul(half, x), outer), inner);
  return e.add(e.mul(half, e.add(one, tanh)), right);
}

Scalar gelu_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d);
  const bool tanh = *e.args.string(2, "none") == "tanh";
  return e.finish(e.mul(grad, tanh ? gelu_tanh_slope(e, x) : e.op(LoopOp::GeluSlope, x)));
}

Scalar silu_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d), one = e.c(1, d);
  const Scalar s = sigmoid_of(e, x);
  return e.finish(e.mul(e.mul(grad, s), e.add(one, e.mul(x, e.sub(one, s)))));
}

Scalar mish_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d);
  const Scalar t = tanh_of_softplus(e, x);
  const Scalar outer = e.sub(e.c(1, d), e.mul(t, t));
  return e.finish(e.mul(grad, e.add(t, e.mul(e.mul(x, sigmoid_of(e, x)), outer))));
}

// The gradient where the operand lies strictly between two numbers.
Scalar hardtanh_backward(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(1, d);
  const Scalar inside =
      e.op(LoopOp::And, e.op(LoopOp::Gt, x, e.operand(2, d)), e.op(LoopOp::Lt, x, e.operand(3, d)));
  return e.finish(e.where(inside, e.operand(0, d), e.c(0, d)));
}

Scalar hardswish_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d), three = e.c(3, d);
  const Scalar between = e.mul(grad, e.add(e.div(x, three), e.c(0.5, d)));
  const Scalar right = e.where(e.op(LoopOp::Ge, x, three), grad, between);
  return e.finish(e.where(e.op(LoopOp::Le, x, e.c(-3, d)), e.c(0, d), right));
}

// ATen has the sixth as a float, whatever the dtype.
Scalar hardsigmoid_backward(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(1, d), sixth = e.c(1.0f / 6.0f, d);
  const Scalar inside =
      e.op(LoopOp::And, e.op(LoopOp::Gt, x, e.c(-3, d)), e.op(LoopOp::Lt, x, e.c(3, d)));
  return e.finish(e.where(inside, e.mul(e.operand(0, d), sixth), e.c(0, d)));
}

// Of hardshrink and softshrink.
Scalar shrink_backward(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(1, d), lambda = e.operand(2, d);
  const Scalar outside =
      e.op(LoopOp::Or, e.op(LoopOp::Lt, x, e.op(LoopOp::Neg, lambda)), e.op(LoopOp::Gt, x, lambda));
  return e.where(outside, e.operand(0, d), e.c(0, d));
}

Scalar leaky_relu_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d);
  const Scalar positive = e.op(LoopOp::Gt, x, e.c(0, d));
  return e.finish(e.where(positive, grad, e.mul(grad, e.operand(2, d))));
}

Scalar elu_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(5, d);
  const Scalar scale = e.operand(2, d), input_scale = e.operand(3, d);
  const Scalar factor = e.mul(e.operand(1, d), scale), scaled = e.mul(grad, input_scale);
  const Scalar negative =
      *e.args.boolean(4) ? e.mul(scaled, e.add(x, factor))
                         : e.mul(e.mul(scaled, factor), e.op(LoopOp::Exp, e.mul(x, input_scale)));
  return e.finish(e.where(e.op(LoopOp::Gt, x, e.c(0, d)), e.mul(grad, scale), negative));
}

Scalar softplus_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), scaled = e.mul(e.operand(1, d), e.operand(2, d));
  const Scalar z = e.op(LoopOp::Exp, scaled);
  const Scalar soft = e.div(e.mul(grad, z), e.add(z, e.c(1, d)));
  return e.finish(e.where(e.op(LoopOp::Gt, scaled, e.operand(3, d)), grad, soft));
}

// The buffer holds exp(-|x|).
Scalar log_sigmoid_backward(Element& e) {
  const DType d = e.compute();
  const Scalar one = e.c(1, d), small = e.operand(2, d);
  const Scalar negative = e.op(LoopOp::Lt, e.operand(1, d), e.c(0, d));
  const Scalar part = e.div(small, e.add(one, small));
  const Scalar slope = e.where(negative, e.sub(one, part), part);
  return e.finish(e.mul(slope, e.operand(0, d)));
}

Scalar logit_backward(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(1, d), one = e.c(1, d);
  const Scalar slope = e.div(e.operand(0, d), e.mul(x, e.sub(one, x)));
  const double eps = e.args.number(2, -1.0).value_or(-1.0);
  const bool open = eps < 0;
  // Rounded to the result's dtype, as 1 - eps is.
  const Scalar margin = e.c(open ? 0 : eps, e.result()), whole = e.c(1, e.result());
  const Scalar low = e.cast(margin, d), high = e.cast(e.sub(whole, margin), d);
  const Scalar inside = e.op(LoopOp::And, e.op(LoopOp::Ge, x, low), e.op(LoopOp::Le, x, high));
  const double outside = open ? std::numeric_limits<double>::quiet_NaN() : 0;
  return e.finish(e.where(inside, slope, e.c(outside, d)));
}

// Of the operand, and of the weight at each element.
Scalar prelu_backward(Element& e) {
  const DType d = e.compute();
  const Scalar grad = e.operand(0, d), x = e.operand(1, d);
  const Scalar positive = e.op(LoopOp::Gt, x, e.c(0, d));
  if (e.out == 1) return e.finish(e.where(positive, e.c(0, d), e.mul(x, grad)));
  return e.finish(e.where(positive, grad, e.mul(e.operand(2, d), grad)));
}

// ---- rrelu: in training the noise, else leaky_relu with the slope in the middle ----

bool shape_rrelu_backward(const Args& a, Types& out) {
  const auto training = a.boolean(5), is_result = a.boolean(6);
  const auto lower = a.number(3), upper = a.number(4);
  if (!training || !is_result || !lower || !upper) return false;
  if (*training) return of<2, 0>(a, out);
  return (!*is_result || *lower + *upper >= 0) && of<1, 0>(a, out);
}

bool decompose_rrelu_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const auto training = a.boolean(5);
  const auto lower = a.number(3), upper = a.number(4);
  if (!training || !lower || !upper) return false;
  if (*training) return give(out, r.mul(n.arg(2).value(), n.arg(0).value()));
  const double middle = (*lower + *upper) / 2;
  return give(out,
              r.call("aten.leaky_relu_backward.default", {n.arg(0), n.arg(1), middle, n.arg(6)}));
}

// ---- glu: of the first half of a dimension, then of the second ----

bool shape_glu_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  if (!grad || !t || t->dim() == 0 || !ir::is_floating(t->dtype) || grad->dtype != t->dtype)
    return false;
  const auto dim = a.dim(2, t->dim());
  if (!dim || !sym::known_equal(sym::mod(t->sizes[*dim], 2), 0).value_or(false)) return false;
  Sizes half = t->sizes;
  half[*dim] = sym::floordiv(half[*dim], 2);
  return known_same(grad->sizes, half) && give(out, fresh(*t, t->sizes));
}

// The sigmoid of the second half is rounded, since ATen writes it to where the result will stand.
bool decompose_glu_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const auto dim = Args(r.graph(), n).dim(2, result.dim());
  if (!dim || !is_computable(result.dtype)) return false;
  const Expr size = result.sizes[*dim], middle = sym::floordiv(size, 2);
  const auto part = [&](Expr from, Expr to) {
    return r.call("aten.slice.Tensor", {n.arg(1), *dim, from, to, 1});
  };
  const ValueId gate = r.unary("aten.sigmoid.default", part(middle, size));
  const ValueId grad = n.arg(0).value(), wide = r.widen(gate);
  const ValueId slope = r.mul(r.call("aten.rsub.Scalar", {wide, 1, 1}), wide);
  const ValueId second = r.mul(r.mul(slope, r.widen(part(0, middle))), r.widen(grad));
  ir::List halves;
  halves.items = {r.mul(gate, grad), r.cast(second, result.dtype)};
  return give(out, r.as(r.call("aten.cat.default", {std::move(halves), *dim}), result));
}

constexpr OpInfo kActivationGradientOps[] = {
#include "ops/activation_gradients.def"
};

}  // namespace

std::span<const OpInfo> activation_gradient_ops() { return kActivationGradientOps; }

}  // namespace oxy::ops
