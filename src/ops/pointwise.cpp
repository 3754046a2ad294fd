// Pointwise ops of one to three operands, comparisons, casts: what one output element is.
//
// Two facts of ATen's CPU kernels decide the numerics of half precision: mul and div read a
// one-element operand without rounding it to the common dtype first, every other op rounds it; and
// add with alpha is one fused step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/families.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

constexpr size_t kFirst[] = {0};
constexpr size_t kPair[] = {0, 1};
constexpr uint32_t kArith = Pointwise | Cheap;
constexpr uint32_t kMath = Pointwise;

bool is_single_element(const Args& args, size_t i) {
  const TensorType* t = args.tensor(i);
  return !t || std::ranges::all_of(t->sizes, [](Expr s) { return s.is_const(1); });
}

// Operands of mul and div: a second one of one element is widened directly.
Scalar wide_operand(Element& e, size_t i, DType common_type) {
  const DType compute = opmath(common_type);
  const bool widened = i == 1 && is_single_element(e.args, 1);
  return widened ? e.operand(i, compute) : e.operand(i, compute, common_type);
}

template <LoopOp O>
Scalar binary(Element& e) {
  const DType d = e.result();
  return e.finish(e.op(O, e.operand(0, opmath(d), d), e.operand(1, opmath(d), d)));
}

// Of halves the bits, which are half as wide as numbers to compute with.
Scalar copysign(Element& e) {
  const DType d = e.result();
  if (!ir::is_reduced_float(d)) return binary<LoopOp::CopySign>(e);
  const auto bits = [&](size_t k, int64_t kept) {
    return e.op(LoopOp::And, e.b.bitcast(e.operand(k, d), DType::I16),
                e.b.constant_int(kept, DType::I16));
  };
  return e.b.bitcast(e.op(LoopOp::Or, bits(0, INT16_MAX), bits(1, INT16_MIN)), d);
}

// Integers divided by 0, where eager raises: that is no place in a range of one.
Scalar checked_divisor(Element& e, Scalar y) {
  if (ir::is_floating(y.dtype) || !e.args.tensor(1)) return y;
  const Scalar none = e.op(LoopOp::Eq, y, e.c(0, y.dtype));
  const auto place = [&](int64_t at) { return e.b.constant_int(at, DType::I64); };
  e.b.indirect(e.where(none, place(1), place(0)), 1, false);
  return e.where(none, e.c(1, y.dtype), y);
}

template <LoopOp O>
Scalar rest_of_division(Element& e) {
  const DType d = e.result();
  const Scalar y = checked_divisor(e, e.operand(1, opmath(d), d));
  return e.finish(e.op(O, e.operand(0, opmath(d), d), y));
}

template <LoopOp O>
Scalar compare(Element& e) {
  const DType d = *common_dtype(e.args, kPair, false);
  return e.op(O, e.operand(0, d), e.operand(1, d));
}

template <LoopOp O>
Scalar logical(Element& e) {
  return e.op(O, e.operand(0, DType::B8), e.operand(1, DType::B8));
}

Scalar logical_not(Element& e) { return e.op(LoopOp::Not, e.operand(0, DType::B8)); }

// add, sub and rsub: x + alpha * y (or minus), as one fused step in floating point.
template <bool Minus, bool Swapped = false>
Scalar add(Element& e) {
  const DType d = e.result(), compute = opmath(d);
  const std::optional<double> alpha = e.args.number(2, 1.0);
  if (d == DType::B8) {
    if (alpha == 1.0) return logical<LoopOp::Or>(e);
    const Scalar scaled = e.op(LoopOp::And, e.operand(1, d), e.operand(2, d));
    return e.op(LoopOp::Or, e.operand(0, d), scaled);
  }
  Scalar x = e.operand(0, compute, d), y = e.operand(1, compute, d);
  if (Swapped) std::swap(x, y);
  if (alpha == 1.0) return e.finish(Minus ? e.sub(x, y) : e.add(x, y));
  Scalar scale = e.operand(2, compute, d);
  const bool negated_as_integer = alpha == 0.0 && e.args.number_kind(2) == NumberKind::Int;
  if (Minus && !negated_as_integer) scale = e.op(LoopOp::Neg, scale);
  return e.finish(ir::is_floating(d) ? e.fma(y, scale, x) : e.add(x, e.mul(y, scale)));
}

Scalar mul(Element& e) {
  const DType d = e.result();
  if (d == DType::B8) return logical<LoopOp::And>(e);
  return e.finish(e.mul(wide_operand(e, 0, d), wide_operand(e, 1, d)));
}

Scalar div(Element& e) {
  const DType d = e.result();
  return e.finish(e.div(wide_operand(e, 0, d), wide_operand(e, 1, d)));
}

// ATen's div_floor with every step rounded to the dtype, which is what vectors of fp16 and bf16 do.
// A rest, a floor and the distance to it need no rounding.
Scalar stepwise_floor_divide(Element& e) {
  const DType d = DType::F32;
  const auto rounded = [&](Scalar v) { return e.cast(e.finish(v), d); };
  const Scalar x = e.operand(0, d, e.result()), y = e.operand(1, d, e.result());
  const Scalar zero = e.c(0, d), one = e.c(1, d);
  const Scalar rest = e.op(LoopOp::Fmod, x, y), plain = rounded(e.div(x, y));
  const Scalar opposite =
      e.op(LoopOp::Xor, e.op(LoopOp::Lt, y, zero), e.op(LoopOp::Lt, rest, zero));
  const Scalar down = e.op(LoopOp::And, e.op(LoopOp::Ne, rest, zero), opposite);
  // Vectors of fmod give NaN where x / y overflows.
  const Scalar overflows =
      e.op(LoopOp::And, e.op(LoopOp::IsInf, plain), e.op(LoopOp::Not, e.op(LoopOp::IsInf, x)));
  const Scalar exact = rounded(e.div(e.where(overflows, x, rounded(e.sub(x, rest))), y));
  const Scalar quotient = e.where(down, rounded(e.sub(exact, one)), exact);
  const Scalar floor = e.op(LoopOp::Floor, quotient);
  const Scalar up = e.op(LoopOp::Gt, e.sub(quotient, floor), e.c(0.5, d));
  const Scalar nearest = e.where(up, e.add(floor, one), floor);
  const Scalar signed_zero = e.op(LoopOp::CopySign, zero, plain);
  const Scalar result = e.where(e.op(LoopOp::Ne, quotient, zero), nearest, signed_zero);
  return e.finish(e.where(e.op(LoopOp::Eq, y, zero), plain, result));
}

// fp16 and bf16 divided by a tensor of more than one element are rounded at each step; by a single
// number, once.
bool is_stepwise(Element& e) {
  return ir::is_reduced_float(e.result()) && !is_single_element(e.args, 1);
}

Scalar floor_divide(Element& e) {
  const DType d = e.result();
  if (is_stepwise(e)) return stepwise_floor_divide(e);
  const Scalar y = checked_divisor(e, wide_operand(e, 1, d));
  return e.finish(e.op(LoopOp::FloorDiv, wide_operand(e, 0, d), y));
}

Scalar trunc_divide(Element& e) {
  const DType d = e.result();
  Scalar q = e.div(wide_operand(e, 0, d), checked_divisor(e, wide_operand(e, 1, d)));
  if (is_stepwise(e)) q = e.finish(q);
  return e.finish(ir::is_floating(d) ? e.op(LoopOp::Trunc, q) : q);
}

Scalar div_mode(Element& e) {
  const auto mode = e.args.string(2, "");
  if (mode->empty()) return div(e);
  return *mode == "floor" ? floor_divide(e) : trunc_divide(e);
}

// A number that is 0, where eager raises at each call, stays ATen's, and so does -1.
bool applies_division(const ir::Graph& g, const ir::Node& n) {
  if (!applies_computable(g, n)) return false;
  if (ir::is_floating(g.tensor_type(n.outputs[0]).dtype)) return true;
  if (g.tensor_type(n.outputs[0]).dtype == DType::B8) return false;
  const Args a(g, n);
  const auto divisor = a.integer(1);
  return a.tensor(1) || (divisor && *divisor != 0 && *divisor != -1);
}

bool shape_div_mode(const Args& a, Types& out) {
  auto mode = a.string(2, "");
  if (!mode) return false;
  return mode->empty() ? promoted_float(a, out)
                       : shape_elementwise<Promoted, 2, Needs::NotBool>(a, out);
}

// Shifting by the width or more gives 0 (a signed number to the right: its sign), by less than
// nothing as well.
template <bool Left>
Scalar shift(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), n = e.operand(1, d);
  const int bits = ir::byte_size(d) * 8;
  const Scalar in_range =
      e.op(LoopOp::And, e.op(LoopOp::Ge, n, e.c(0, d)), e.op(LoopOp::Lt, n, e.c(bits, d)));
  const Scalar safe = e.where(in_range, n, e.c(0, d));
  const bool to_zero = Left || ir::name(d)[0] == 'u';
  if (to_zero) return e.where(in_range, e.op(Left ? LoopOp::Shl : LoopOp::Shr, x, safe), e.c(0, d));
  return e.where(in_range, e.op(LoopOp::Shr, x, safe), e.op(LoopOp::Shr, x, e.c(bits - 1, d)));
}

template <LoopOp O>
Scalar skip_nan(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar m = e.op(O, x, y);
  if (!ir::is_floating(d)) return m;
  return e.where(e.op(LoopOp::IsNan, x), y, e.where(e.op(LoopOp::IsNan, y), x, m));
}

Scalar xlogy(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar product = e.mul(x, e.op(LoopOp::Log, y));
  const Scalar zero_or = e.where(e.op(LoopOp::Eq, x, e.c(0, d)), e.c(0, d), product);
  return e.where(e.op(LoopOp::IsNan, y), y, zero_or);
}

Scalar heaviside(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), y = e.operand(1, d), zero = e.c(0, d);
  const Scalar step = e.where(e.op(LoopOp::Gt, x, zero), e.c(1, d), zero);
  return e.where(e.op(LoopOp::Eq, x, zero), y, step);
}

Scalar logaddexp(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d, e.result()), y = e.operand(1, d, e.result());
  const Scalar gap = e.op(LoopOp::Neg, e.op(LoopOp::Abs, e.sub(x, y)));
  const Scalar sum = e.add(e.op(LoopOp::Max, x, y), e.op(LoopOp::Log1p, e.op(LoopOp::Exp, gap)));
  const Scalar same_infinity = e.op(LoopOp::And, e.op(LoopOp::IsInf, x), e.op(LoopOp::Eq, x, y));
  return e.finish(e.where(same_infinity, x, sum));
}

// x to an integer power by squaring; the exponent is small and not negative.
Scalar integer_power(Element& e, Scalar x, int64_t n) {
  const Scalar one = e.c(1, x.dtype);
  std::optional<Scalar> result;
  for (; n > 0; n >>= 1) {
    if (n & 1) result = result ? e.mul(*result, x) : x;
    if (n > 1) x = e.mul(x, x);
  }
  return result.value_or(one);
}

// Of -inf and -0.0 a root is something else than a power.
bool has_short_roots(DType d) { return d != DType::F16; }

// The exponent is known when the loop runs: the short cut that eager would take is chosen there.
Scalar pow_of_runtime_number(Element& e, Scalar x) {
  const Scalar n = e.operand(1, DType::F64), square = e.mul(x, x);
  Scalar out = e.op(LoopOp::Pow, x, e.operand(1, x.dtype, e.result()));
  auto choose = [&](double exponent, Scalar power) {
    out = e.where(e.op(LoopOp::Eq, n, e.c(exponent, DType::F64)), power, out);
  };
  choose(0.0, e.c(1, x.dtype));
  choose(1.0, x);
  choose(2.0, square);
  choose(3.0, e.mul(square, x));
  if (has_short_roots(e.result())) {
    choose(0.5, e.op(LoopOp::Sqrt, x));
    choose(-0.5, e.op(LoopOp::Rsqrt, x));
  }
  choose(-1.0, e.op(LoopOp::Reciprocal, x));
  choose(-2.0, e.op(LoopOp::Reciprocal, square));
  return e.finish(out);
}

// bf16 rounds after each step of the short cuts, as ATen's vectors of bf16 do; f16 at the end.
Scalar pow_scalar(Element& e) {
  const DType d = e.result();
  const DType step = d == DType::BF16 ? d : opmath(d);
  if (e.args.tensor(1)) return pow_of_runtime_number(e, e.operand(0, step, d));
  const double n = *e.args.number(1);
  if (!ir::is_floating(d)) return integer_power(e, e.operand(0, d), static_cast<int64_t>(n));
  const Scalar x = e.operand(0, step, d);
  if (n == 0.0) return e.c(1, d);
  if (n == 1.0) return e.finish(x);
  if (n == 2.0) return e.finish(e.mul(x, x));
  if (n == 3.0) return e.finish(e.mul(e.mul(x, x), x));
  if (n == 0.5 && has_short_roots(d)) return e.finish(e.op(LoopOp::Sqrt, x));
  if (n == -0.5 && has_short_roots(d)) return e.finish(e.op(LoopOp::Rsqrt, x));
  if (n == -1.0) return e.finish(e.op(LoopOp::Reciprocal, x));
  if (n == -2.0) return e.finish(e.op(LoopOp::Reciprocal, e.mul(x, x)));
  return e.finish(e.op(LoopOp::Pow, x, e.operand(1, step, d)));
}

bool applies_pow_scalar(const ir::Graph& g, const ir::Node& n) {
  if (!applies_computable(g, n)) return false;
  const DType d = g.tensor_type(n.outputs[0]).dtype;
  const auto exponent = Args(g, n).number(1);
  if (!exponent) return Args(g, n).tensor(1) && ir::is_floating(d);
  // Of what single precision does not hold, ATen's vectors and scalars give different powers.
  const double narrow = static_cast<float>(*exponent);
  if (d != DType::F64 &&
      ((narrow == 0) != (*exponent == 0) || std::isinf(narrow) != std::isinf(*exponent)))
    return false;
  return ir::is_floating(d) || (d != DType::B8 && *exponent >= 0 && *exponent <= 64);
}

// ---- one operand ----

// Of integers the value itself.
template <LoopOp O>
Scalar rounding(Element& e) {
  if (!ir::is_floating(e.result())) return e.operand(0, e.result());
  return e.finish(e.op(O, e.operand(0, e.compute())));
}

Scalar frac(Element& e) {
  const Scalar x = e.operand(0, e.compute());
  return e.finish(e.sub(x, e.op(LoopOp::Trunc, x)));
}

template <LoopOp O>
Scalar arith(Element& e) {
  const Scalar x = e.operand(0, e.result());
  return e.result() == DType::B8 ? x : e.op(O, x);
}

Scalar bitwise_not(Element& e) { return e.op(LoopOp::Not, e.operand(0, e.result())); }

template <LoopOp O>
Scalar float_class(Element& e) {
  const Scalar x = e.load(0);
  return ir::is_floating(x.dtype) ? e.op(O, x) : e.c(0, DType::B8);
}

Scalar signbit(Element& e) {
  const Scalar x = e.load(0);
  const DType d = x.dtype;
  if (d == DType::B8) return e.c(0, DType::B8);
  if (!ir::is_floating(d)) return e.op(LoopOp::Lt, x, e.c(0, d));
  const Scalar sign = e.op(LoopOp::CopySign, e.c(1, d), x);
  return e.op(LoopOp::Lt, sign, e.c(0, d));
}

Scalar copy(Element& e) { return e.operand(0, e.result()); }

// fp16 and bf16 are rounded at each step, as in eager. Beyond 0.5 the lower bound is above the
// upper one, and goes first.
Scalar logit(Element& e) {
  const DType d = e.result();
  Scalar x = e.operand(0, d);
  if (auto eps = e.args.number(1)) {
    const Scalar low = e.c(*eps, d), high = e.c(1.0 - *eps, d);
    x = e.where(e.op(LoopOp::Lt, x, low), low, e.where(e.op(LoopOp::Gt, x, high), high, x));
  }
  return e.finish(e.op(LoopOp::Log, e.div(x, e.sub(e.c(1, d), x))));
}

double largest(DType d) {
  if (d == DType::F16) return 65504.0;
  if (d == DType::BF16) return 3.3895313892515355e38;
  return d == DType::F32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
}

Scalar nan_to_num(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d);
  if (!ir::is_floating(d)) return x;
  const double inf = std::numeric_limits<double>::infinity();
  const Scalar no_nan = e.where(e.op(LoopOp::IsNan, x), e.number(1, d, 0.0), x);
  const Scalar above = e.op(LoopOp::Eq, x, e.c(inf, d)), below = e.op(LoopOp::Eq, x, e.c(-inf, d));
  return e.where(above, e.number(2, d, largest(d)),
                 e.where(below, e.number(3, d, -largest(d)), no_nan));
}

// ---- shapes that are not plain TensorIterator ----

// c10::MemoryFormat numbers.
enum class Format : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

// The copy of `t` in the memory format of argument `at` (preserve where it was left out).
bool copy_type(const Args& a, size_t at, const TensorType& t, DType dtype,
               std::vector<ir::Type>& out) {
  auto format = Format::Preserve;
  if (!a.missing(at)) {
    const auto* f = a[at].get_if<ir::MemoryFormat>();
    if (!f) return false;
    format = static_cast<Format>(f->value);
  }
  auto r = empty_like(t);
  if (!r) return false;
  r->dtype = dtype;
  if (format == Format::Contiguous) {
    r->strides = ir::contiguous_strides(r->sizes);
  } else if (format == Format::ChannelsLast && t.dim() == 4) {
    r->strides = channels_last_strides(r->sizes);
  } else if (format == Format::ChannelsLast3d && t.dim() == 5) {
    r->strides = channels_last_strides(r->sizes);
  } else if (format != Format::Preserve) {
    return false;
  }
  return give(out, std::move(r));
}

bool shape_clone(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return t && copy_type(a, 1, *t, t->dtype, out);
}

bool shape_to_copy(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || a.boolean(4, false).value_or(true)) return false;
  auto dtype = a.dtype(1, t->dtype);
  if (!dtype) return false;
  if (!a.missing(3)) {
    const auto* device = a[3].get_if<ir::Device>();
    if (!device || device->kind != t->device.kind || !device->is_cpu()) return false;
  }
  return copy_type(a, 6, *t, *dtype, out);
}

bool shape_convert(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dtype = a.dtype(1);
  return t && dtype && copy_type(a, 2, *t, *dtype, out);
}

bool applies_same_device(const ir::Graph& g, const ir::Node& n) {
  if (!applies_converted(g, n)) return false;
  const TensorType* t = Args(g, n).tensor(0);
  return t && t->device == g.tensor_type(n.outputs[0]).device;
}

bool shape_pow_scalar(const Args& a, Types& out) {
  return give(out, elementwise_type(a, kPair, Promoted, kFirst));
}

// What eager refuses: an alpha that the result's dtype cannot hold.
template <ShapeRule Rule>
bool with_alpha(const Args& a, Types& out) {
  if (!Rule(a, out)) return false;
  const auto kind = a.number_kind(2);
  const TensorType* varying = a.tensor(2);  // a number that each call has
  const bool is_float =
      kind == NumberKind::Float || (varying != nullptr && ir::is_floating(varying->dtype));
  const DType d = out[0].tensor.dtype;
  const bool refused =
      (kind == NumberKind::Bool && d != DType::B8) || (is_float && !ir::is_floating(d));
  if (refused) out.clear();
  return !refused;
}

// ---- where, masked_fill ----

bool shape_where(const Args& a, Types& out) {
  constexpr size_t kAll[] = {0, 1, 2}, kValues[] = {1, 2};
  return give(out, elementwise_type(a, kValues, Promoted, kAll));
}

Scalar where(Element& e) {
  return e.where(e.load(0), e.operand(1, e.result()), e.operand(2, e.result()));
}

template <size_t Mask>
bool applies_mask(const ir::Graph& g, const ir::Node& n) {
  const TensorType* mask = Args(g, n).tensor(Mask);
  return mask && mask->dtype == DType::B8 && applies_computable(g, n);
}

// A row-major copy of self, expanded to the mask.
bool shape_masked_fill(const Args& a, Types& out) {
  const TensorType *self = a.tensor(0), *mask = a.tensor(1);
  if (!self || !mask || mask->dtype != DType::B8 || mask->device != self->device) return false;
  if (a.tensor(2) && !a.tensor(2)->sizes.empty()) return false;
  auto sizes = broadcast(self->sizes, mask->sizes);
  return sizes && give(out, fresh(*self, std::move(*sizes)));
}

Scalar masked_fill(Element& e) {
  const DType d = e.result();
  return e.where(e.load(1), e.operand(2, d), e.operand(0, d));
}

// ---- clamp ----

// self, and the bounds that are given; none where no bound is.
std::vector<size_t> clamp_operands(const Args& a) {
  std::vector<size_t> operands;
  for (size_t i = 0; i < 3; ++i) {
    if (!a.missing(i)) operands.push_back(i);
  }
  return operands.size() < 2 ? std::vector<size_t>() : operands;
}

// Layout from self alone.
bool shape_clamp(const Args& a, Types& out) {
  const auto operands = clamp_operands(a);
  return !operands.empty() && give(out, elementwise_type(a, operands, Promoted, kFirst));
}

bool shape_clamp_tensor(const Args& a, Types& out) {
  const auto operands = clamp_operands(a);
  return !operands.empty() && give(out, elementwise_type(a, operands, Promoted));
}

// NaN in any operand gives NaN; a lower bound above the upper one gives the upper one.
Scalar clamp(Element& e) {
  const DType d = e.result();
  Scalar x = e.operand(0, d);
  if (!e.args.missing(1)) x = e.op(LoopOp::Max, x, e.operand(1, d));
  if (!e.args.missing(2)) x = e.op(LoopOp::Min, x, e.operand(2, d));
  return x;
}

template <LoopOp O>
Scalar bound(Element& e) {
  const DType d = e.result();
  return e.op(O, e.operand(0, d), e.operand(1, d));
}

// ---- addcmul, addcdiv, lerp: operands of other dtypes are rounded to the result's first ----

Scalar addcmul(Element& e) {
  const DType d = e.compute(), result = e.result();
  const Scalar self = e.operand(0, d, result);
  const Scalar x = e.operand(1, d, result), y = e.operand(2, d, result);
  const Scalar scaled = e.args.number(3, 1.0) == 1.0 ? x : e.mul(e.number(3, d, 1.0), x);
  return e.finish(ir::is_floating(d) ? e.fma(scaled, y, self) : e.add(self, e.mul(scaled, y)));
}

Scalar addcdiv(Element& e) {
  const DType d = e.compute(), result = e.result();
  const Scalar x = e.mul(e.number(3, d, 1.0), e.operand(1, d, result));
  return e.finish(e.add(e.operand(0, d, result), e.div(x, e.operand(2, d, result))));
}

// From the nearer end, so that weights 0 and 1 give the ends exactly.
Scalar lerp(Element& e) {
  const DType d = e.compute();
  const bool by_number = e.node.target == "aten.lerp.Scalar";
  const Scalar start = e.operand(0, d), end = e.operand(1, d);
  const Scalar weight = e.operand(2, d, by_number ? d : e.result());
  const Scalar gap = e.sub(end, start);
  auto from_start = [&] { return e.fma(weight, gap, start); };
  auto from_end = [&] { return e.fma(e.op(LoopOp::Neg, gap), e.sub(e.c(1, d), weight), end); };
  if (auto w = e.args.number(2))
    return e.finish(std::abs(static_cast<float>(*w)) < 0.5f ? from_start() : from_end());
  // A weight that is a number is compared as one of f32.
  const DType compared = by_number ? DType::F32 : d;
  const Scalar size = e.op(LoopOp::Abs, by_number ? e.operand(2, compared) : weight);
  const Scalar near_start = e.op(LoopOp::Lt, size, e.c(0.5, compared));
  return e.finish(e.where(near_start, from_start(), from_end()));
}

// Eager makes the result for integers by empty_like, and compares |self| of floats with a number.
bool shape_isinf(const Args& a, Types& out) {
  if (!unary_bool(a, out)) return false;
  ir::TensorType& result = out.back().tensor;
  if (!ir::is_floating(a.tensor(0)->dtype)) return lay_out_like(a.tensor(0), result);
  const ir::TensorType* absolute[] = {&result};
  auto strides = elementwise_strides(result.sizes, absolute, /*has_number=*/true);
  if (strides) result.strides = std::move(*strides);
  return strides.has_value();
}

constexpr ShapeRule like_first = shape_like_first<Promoted, 1>;
constexpr ShapeRule unary = shape_elementwise<Promoted, 1>;
constexpr ShapeRule unary_integer = shape_elementwise<Promoted, 1, Needs::Integers>;
constexpr ShapeRule promoted_number = shape_elementwise<Promoted, 2, Needs::NotBool>;

// A power of a number is row-major in eager.
bool power_of_number(const Args& a, Types& out) {
  if (!promoted_number(a, out)) return false;
  ir::TensorType& t = out.back().tensor;
  t.strides = ir::contiguous_strides(t.sizes);
  return true;
}
constexpr ShapeRule without_bool = shape_elementwise<Promoted, 2, Needs::NoBool>;
constexpr ShapeRule swapped = shape_elementwise<Promoted, 2, Needs::NoBool, true>;
constexpr ShapeRule scaled = with_alpha<promoted>;
constexpr ShapeRule scaled_without_bool = with_alpha<without_bool>;
constexpr ShapeRule scaled_swapped = with_alpha<swapped>;
constexpr ShapeRule one_dtype = shape_elementwise<Promoted, 2, Needs::SameDType>;
constexpr ShapeRule integers = shape_elementwise<Promoted, 2, Needs::Integers>;
constexpr ShapeRule comparison = shape_elementwise<ResultDType::Bool, 2>;
constexpr ShapeRule addcmul_shape = shape_elementwise<Promoted, 3, Needs::NotBool>;
constexpr ShapeRule addcdiv_shape = shape_elementwise<Promoted, 3, Needs::AllFloating>;
constexpr ShapeRule lerp_ends = shape_elementwise<Promoted, 2, Needs::SameFloating>;
// A weight without dimensions may have a dtype of its own.
bool lerp_shape(const Args& a, Types& out) {
  const TensorType* weight = a.tensor(2);
  if (!weight || !weight->sizes.empty() || !ir::is_floating(weight->dtype))
    return shape_elementwise<Promoted, 3, Needs::SameFloating>(a, out);
  return lerp_ends(a, out);
}

constexpr OpInfo kPointwiseOps[] = {
#include "ops/pointwise.def"
};

}  // namespace

std::span<const OpInfo> pointwise_ops() { return kPointwiseOps; }

}  // namespace oxy::ops
