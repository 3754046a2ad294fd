// Activation functions. Each works in f32 for half precision and rounds once; formulas as ATen's
// CPU kernels.
#include "ops/families.h"

namespace oxy::ops {
namespace {

Scalar one_plus_exp_of_minus(Element& e, Scalar x) {
  return e.add(e.c(1, x.dtype), e.op(LoopOp::Exp, e.op(LoopOp::Neg, x)));
}

Scalar sigmoid(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.div(e.c(1, x.dtype), one_plus_exp_of_minus(e, x)));
}

Scalar silu(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.div(x, one_plus_exp_of_minus(e, x)));
}

Scalar gelu(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), half = e.c(0.5, d), one = e.c(1, d);
  if (*e.args.string(1, "none") == "tanh") {
    constexpr double kBeta = 0.7978845608028654;  // sqrt(2 / pi)
    const Scalar cube = e.mul(e.mul(x, x), x);
    const Scalar inner = e.mul(e.c(kBeta, d), e.add(x, e.mul(e.c(0.044715, d), cube)));
    return e.finish(e.mul(e.mul(half, x), e.add(one, e.op(LoopOp::Tanh, inner))));
  }
  return e.finish(e.op(LoopOp::Gelu, x));
}

Scalar relu(Element& e) {
  const DType d = e.result();
  return e.op(LoopOp::Max, e.operand(0, d), e.c(0, d));
}

Scalar clamp_between(Element& e, Scalar x, double low, double high) {
  return e.op(LoopOp::Min, e.op(LoopOp::Max, x, e.c(low, x.dtype)), e.c(high, x.dtype));
}

Scalar hardtanh(Element& e) {
  const DType d = e.result();
  const Scalar above = e.op(LoopOp::Max, e.operand(0, d), e.number(1, d, -1));
  return e.op(LoopOp::Min, above, e.number(2, d, 1));
}

Scalar relu6(Element& e) { return clamp_between(e, e.operand(0, e.result()), 0, 6); }

Scalar leaky_relu(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  return e.finish(e.where(e.op(LoopOp::Gt, x, e.c(0, d)), x, e.mul(x, e.number(1, d, 0.01))));
}

Scalar prelu(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  return e.finish(e.where(e.op(LoopOp::Gt, x, e.c(0, d)), x, e.mul(e.operand(1, d), x)));
}

Scalar elu(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const double alpha = *e.args.number(1, 1.0), scale = *e.args.number(2, 1.0);
  const double input_scale = *e.args.number(3, 1.0);
  const Scalar inner = e.op(LoopOp::Expm1, e.mul(x, e.c(input_scale, d)));
  const Scalar negative = e.mul(inner, e.c(alpha * scale, d));
  return e.finish(e.where(e.op(LoopOp::Lt, x, e.c(0, d)), negative, e.mul(x, e.c(scale, d))));
}

Scalar softplus(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), beta = e.number(1, d, 1), limit = e.number(2, d, 20);
  const Scalar scaled = e.mul(x, beta);
  const Scalar soft = e.div(e.op(LoopOp::Log1p, e.op(LoopOp::Exp, scaled)), beta);
  return e.finish(e.where(e.op(LoopOp::Gt, scaled, limit), x, soft));
}

Scalar mish(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.mul(x, tanh_of_softplus(e, x)));
}

Scalar shifted_clamp(Element& e, Scalar x) {
  return clamp_between(e, e.add(x, e.c(3, x.dtype)), 0, 6);
}

Scalar hardswish(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.div(e.mul(x, shifted_clamp(e, x)), e.c(6, x.dtype)));
}

Scalar hardsigmoid(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.div(shifted_clamp(e, x), e.c(6, x.dtype)));
}

Scalar threshold(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  return e.finish(e.where(e.op(LoopOp::Le, x, e.operand(1, d)), e.operand(2, d), x));
}

// Outside [-lambda, lambda] the value moved towards 0; inside 0, NaN staying NaN.
Scalar softshrink(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), lambda = e.number(1, d, 0.5);
  const Scalar below = e.op(LoopOp::Lt, x, e.op(LoopOp::Neg, lambda));
  const Scalar inside = e.where(below, e.add(x, lambda), e.mul(x, e.c(0, d)));
  return e.finish(e.where(e.op(LoopOp::Gt, x, lambda), e.sub(x, lambda), inside));
}

Scalar hardshrink(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), lambda = e.number(1, d, 0.5);
  const Scalar inside = e.op(LoopOp::And, e.op(LoopOp::Ge, x, e.op(LoopOp::Neg, lambda)),
                             e.op(LoopOp::Le, x, lambda));
  return e.finish(e.where(inside, e.c(0, d), x));
}

// All arguments but the first are known, or the numbers of this call.
bool numbers(const ir::Graph& g, const ir::Node& n) {
  Args a(g, n);
  for (size_t i = 1; i < a.size(); ++i) {
    if (!a.missing(i) && !a.number(i) && !a.tensor(i)) return false;
  }
  return applies_floating(g, n);
}

// What eager refuses is left to torch.
bool shape_gelu(const Args& a, Types& out) {
  const auto kind = a.string(1, "none");
  return (kind == "none" || kind == "tanh") && unary_real(a, out);
}

bool shape_softshrink(const Args& a, Types& out) {
  auto lambda = a.number(1, 0.5);
  return ((lambda && *lambda >= 0) || a.tensor(1)) && unary_real(a, out);
}

// ---- log_sigmoid_forward: the result, and exp(-|x|) for the backward ----

bool shape_log_sigmoid(const Args& a, Types& out) {
  if (!unary_real(a, out)) return false;
  const ir::TensorType t =
      fresh(out[0].tensor, out[0].tensor.sizes);  // whatever the input's layout
  out.clear();
  return give(out, t) && give(out, t);
}

Scalar log_sigmoid(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const Scalar small = e.op(LoopOp::Exp, e.op(LoopOp::Neg, e.op(LoopOp::Abs, x)));
  if (e.out == 1) return e.finish(small);
  return e.finish(e.sub(e.op(LoopOp::Min, x, e.c(0, d)), e.op(LoopOp::Log1p, small)));
}

// ---- glu: the first half of a dimension, times the sigmoid of the second ----

std::optional<int64_t> glu_dim(const Args& a) {
  const ir::TensorType* t = a.tensor(0);
  return t && t->dim() > 0 ? a.dim(1, t->dim(), -1) : std::nullopt;
}

bool shape_glu(const Args& a, Types& out) {
  auto dim = glu_dim(a);
  if (!dim || !ir::is_floating(a.tensor(0)->dtype)) return false;
  ir::TensorType half = *a.tensor(0);
  if (!sym::known_equal(sym::mod(half.sizes[*dim], 2), 0).value_or(false)) return false;
  half.sizes[*dim] = sym::floordiv(half.sizes[*dim], 2);
  const ir::TensorType* halves[] = {&half, &half};
  auto strides = elementwise_strides(half.sizes, halves, false);
  if (!strides) return false;
  half.strides = std::move(*strides);
  half.offset = 0;
  half.requires_grad = false;
  return give(out, std::move(half));
}

Scalar glu(Element& e) {
  const DType d = e.compute();
  const int64_t dim = *glu_dim(e.args);
  Index second = e.index;
  second[dim] += e.result_type().sizes[dim];
  const Scalar x = e.cast(e.load(0, e.index), d), gate = e.cast(e.load(0, second), d);
  return e.finish(e.mul(x, e.div(e.c(1, d), one_plus_exp_of_minus(e, gate))));
}

constexpr ShapeRule like_first = shape_like_first<Promoted, 1, Needs::NotBool>;
constexpr ShapeRule prelu_shape = shape_like_first<Promoted, 2, Needs::SameFloating>;

constexpr OpInfo kActivationOps[] = {
#include "ops/activations.def"
};

}  // namespace

// With w = e^x (e^x + 2), tanh(log(1 + e^x)) = w / (w + 2); 1 from `limit` on.
Scalar tanh_of_softplus(Element& e, Scalar x) {
  const Scalar limit = e.c(x.dtype == DType::F64 ? 40 : 20, x.dtype), two = e.c(2, x.dtype);
  const Scalar power = e.op(LoopOp::Exp, e.op(LoopOp::Min, x, limit));
  const Scalar w = e.mul(power, e.add(power, two));
  return e.div(w, e.add(w, two));
}

std::span<const OpInfo> activation_ops() { return kActivationOps; }

}  // namespace oxy::ops
