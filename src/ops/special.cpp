// Pointwise ops beyond arithmetic: sinc, entr, logarithms of sums, steps between floating-point
// numbers, modified Bessel functions. Halves are rounded at each step where ATen's kernel computes in the dtype itself.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/compose.h"
#include "ops/element.h"
#include "ops/families.h"
#include "ops/shape_elementwise.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

using ir::ValueId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Scalar sinc(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const Scalar product = e.mul(e.c(std::numbers::pi, d), x);
  const Scalar wave = e.div(e.op(LoopOp::Sin, product), product);
  return e.finish(e.where(e.op(LoopOp::Eq, x, e.c(0, d)), e.c(1, d), wave));
}

// -x * log(x); -inf below 0.
Scalar entr(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), zero = e.c(0, d);
  const Scalar inside = e.mul(e.op(LoopOp::Neg, x), e.op(LoopOp::Log, x));
  const Scalar below = e.where(e.op(LoopOp::Eq, x, zero), zero, e.c(-kInfinity, d));
  const Scalar number = e.where(e.op(LoopOp::Gt, x, zero), inside, below);
  return e.where(e.op(LoopOp::IsNan, x), x, number);
}

Scalar xlog1py(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar product = e.mul(x, e.op(LoopOp::Log1p, y));
  const Scalar zero_or = e.where(e.op(LoopOp::Eq, x, e.c(0, d)), e.c(0, d), product);
  return e.where(e.op(LoopOp::IsNan, y), y, zero_or);
}

Scalar logaddexp2(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), y = e.operand(1, d);
  const Scalar gap = e.op(LoopOp::Neg, e.op(LoopOp::Abs, e.sub(x, y)));
  const Scalar bits =
      e.mul(e.op(LoopOp::Log1p, e.op(LoopOp::Exp2, gap)), e.c(1.0 / std::numbers::ln2, d));
  const Scalar sum = e.add(e.op(LoopOp::Max, x, y), bits);
  const Scalar same_infinity = e.op(LoopOp::And, e.op(LoopOp::IsInf, x), e.op(LoopOp::Eq, x, y));
  return e.finish(e.where(same_infinity, x, sum));
}

template <bool Negative>
Scalar is_infinity(Element& e) {
  const Scalar x = e.load(0);
  if (!ir::is_floating(x.dtype)) return e.c(0, DType::B8);
  return e.op(LoopOp::Eq, x, e.c(Negative ? -kInfinity : kInfinity, x.dtype));
}

// Of a real number: pi where it is negative.
Scalar angle(Element& e) {
  const DType d = e.result();
  const Scalar x = e.operand(0, d), zero = e.c(0, d);
  const Scalar turned = e.where(e.op(LoopOp::Lt, x, zero), e.c(std::numbers::pi, d), zero);
  return e.where(e.op(LoopOp::IsNan, x), x, turned);
}

// The neighbour of x on the way to y: floating-point numbers of one sign are ordered as their bits.
Scalar nextafter(Element& e) {
  const DType d = e.result();
  const DType bits = d == DType::F64 ? DType::I64 : DType::I32;
  const Scalar x = e.operand(0, d), y = e.operand(1, d), zero = e.c(0, d);
  const Scalar rises = e.op(LoopOp::Lt, x, y), positive = e.op(LoopOp::Gt, x, zero);
  const Scalar one = e.b.constant_int(1, bits), back = e.b.constant_int(-1, bits);
  const Scalar step = e.where(e.op(LoopOp::Xor, rises, positive), back, one);
  const Scalar moved = e.b.bitcast(e.add(e.b.bitcast(x, bits), step), d);
  const Scalar smallest = e.op(LoopOp::CopySign, e.b.bitcast(one, d), y);
  const Scalar from_zero = e.where(e.op(LoopOp::Eq, x, zero), smallest, moved);
  const Scalar nan = e.op(LoopOp::Or, e.op(LoopOp::IsNan, x), e.op(LoopOp::IsNan, y));
  return e.where(nan, e.add(x, y), e.where(e.op(LoopOp::Eq, x, y), y, from_zero));
}

bool applies_nextafter(const ir::Graph& g, const ir::Node& n) {
  return applies_floating(g, n) && !ir::is_half(g.tensor_type(n.outputs[0]).dtype);
}

Scalar round_decimals(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d);
  const int64_t decimals = *e.args.integer(1);
  if (decimals == 0) return e.finish(e.op(LoopOp::Round, x));
  const Scalar scale = e.c(std::pow(10.0, std::abs(static_cast<double>(decimals))), d);
  if (decimals < 0) return e.finish(e.mul(e.op(LoopOp::Round, e.div(x, scale)), scale));
  return e.finish(e.div(e.op(LoopOp::Round, e.mul(x, scale)), scale));
}

bool applies_decimals(const ir::Graph& g, const ir::Node& n) {
  return applies_floating(g, n) && Args(g, n).integer(1).has_value();
}

// ---- modified Bessel functions ----

// Chebyshev coefficients in y: of e^-x I0(x) and e^-x I1(x) / x in y = x / 2 - 2 for x up to 8, of e^-x sqrt(x) I(x) in
// y = 32 / x - 2 beyond; fitted in double precision.
constexpr double kI0Small[] = {
    0.6767952744094761,      -0.3046826723431983,     0.17162090152220869,
    -0.09490109704804756,    0.04930528423967061,     -0.023737414805899408,
    0.01054646039459494,     -0.004324309995050478,   0.0016394756169412425,
    -0.0005763755745387435,  0.00018850288509569824,  -5.754195010053767e-05,
    1.6448448070758084e-05,  -4.416738358718059e-06,  1.1173875390409205e-06,
    -2.670793850627351e-07,  6.046994993451349e-08,   -1.3000250233957678e-08,
    2.6598238368757965e-09,  -5.189794115290081e-10,  9.675811367404474e-11,
    -1.7268075858112297e-11, 2.9547718438660553e-12,  -4.853999147069743e-13,
    7.661926648694362e-14,   -1.1872447469585268e-14, 2.0643209364124004e-15,
    -4.926614671774132e-16};
constexpr double kI0Large[] = {
    0.8044904110141089,      0.0033691164782557285,   6.889758346915174e-05,
    2.891370520865383e-06,   2.0489185891567167e-07,  2.2666689880948554e-08,
    3.3962320115498573e-09,  4.940602475744793e-10,   1.1889100814954645e-11,
    -3.149928234913446e-11,  -1.3215862215351648e-11, -1.7940683660899737e-12,
    7.180549557728177e-13,   3.8513116307203887e-13,  1.535620589021569e-14,
    -4.1446013288037875e-14, -9.738737594133795e-15,  3.783431901105416e-15,
    1.8447699964840858e-15};
constexpr double kI1Small[] = {
    0.25258718644363365,     -0.17641651835783403,    0.10264365868984707,
    -0.052945981208094954,   0.02472644903062647,     -0.010564084894626156,
    0.0041564229443128535,   -0.0015135724506312072,  0.0005122859561685318,
    -0.0001617608158259714,  4.781565107542848e-05,   -1.3273163655902476e-05,
    3.4702513081498465e-06,  -8.568720265989677e-07,  2.003294753260415e-07,
    -4.445059112803684e-08,  9.381537262320716e-09,   -1.8872498269012494e-09,
    3.625590903888476e-10,   -6.66348348027368e-11,   1.173619361416467e-11,
    -1.9838939518956877e-12, 3.2224396762092766e-13,  -5.029830718594752e-14,
    7.523495715311412e-15,   -1.2091022627558345e-15, 3.174543961037557e-16,
    -1.3530843112619095e-16};
constexpr double kI1Large[] = {
    0.7785762350182801,      -0.009761097491361427,   -0.00011058893876264618,
    -3.882564808835309e-06,  -2.5122362383922167e-07, -2.6314688483797255e-08,
    -3.8353803868745526e-09, -5.589743390377322e-10,  -1.897498130842834e-11,
    3.252588476332363e-11,   1.412574527834276e-11,   2.0357413671456825e-12,
    -7.198206874309276e-13,  -4.0849788829344647e-13, -2.1061494562268912e-14,
    4.27678725767322e-14,    1.0227929614359255e-14,  -3.854555563620465e-15,
    -1.8060639789263533e-15, 4.0766001685454967e-16};

// The sum of c[k] T_k(y / 2), c[0] halved, by Clenshaw's recurrence; f32 needs the first terms only.
Scalar chebyshev(Element& e, Scalar y, std::span<const double> c) {
  const DType d = y.dtype;
  size_t terms = c.size();
  const double least = (d == DType::F32 ? 1e-10 : 0.0) * std::abs(c[0]);
  while (std::abs(c[terms - 1]) < least) --terms;
  Scalar last = e.c(0, d), sum = e.c(c[terms - 1], d);
  for (size_t k = terms - 1; k-- > 0;) {
    const Scalar next = e.add(e.sub(e.mul(y, sum), last), e.c(c[k], d));
    if (k == 0) return e.mul(e.c(0.5, d), e.sub(next, last));
    last = sum;
    sum = next;
  }
  OXY_FAIL("a series of one term");
}

template <int Order, bool Scaled>
Scalar bessel_i(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.operand(0, d), size = e.op(LoopOp::Abs, x);
  const Scalar y = e.sub(e.div(size, e.c(2, d)), e.c(2, d));
  const Scalar far_y = e.sub(e.div(e.c(32, d), size), e.c(2, d));
  Scalar near = chebyshev(e, y, Order == 0 ? std::span<const double>(kI0Small) : kI1Small);
  Scalar far = chebyshev(e, far_y, Order == 0 ? std::span<const double>(kI0Large) : kI1Large);
  if (Order == 1) near = e.mul(near, size);
  if (!Scaled) {
    const Scalar power = e.op(LoopOp::Exp, size);
    near = e.mul(near, power);
    far = e.mul(power, far);
  }
  far = e.div(far, e.op(LoopOp::Sqrt, size));
  const Scalar value = e.where(e.op(LoopOp::Le, size, e.c(8, d)), near, far);
  if (Order == 0) return e.finish(value);
  const Scalar below = e.op(LoopOp::Lt, x, e.c(0, d));
  return e.finish(e.where(below, e.op(LoopOp::Neg, value), value));
}

// ---- written with other ops ----

// Times a number, as ATen does it.
template <bool ToDegrees>
bool decompose_angle_unit(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  Compose c(r);
  const double factor = ToDegrees ? 180.0 / std::numbers::pi : std::numbers::pi / 180.0;
  if (!is_computable(r.type(n.arg(0).value()).dtype)) return false;
  out.push_back(c.call("aten.mul.Scalar", {n.arg(0), factor}));
  return true;
}

bool decompose_celu(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  Compose c(r);
  auto alpha = Args(r.graph(), n).number(1, 1.0);
  const DType d = r.type(n.arg(0).value()).dtype;
  if (!alpha || *alpha == 0 || !ir::is_floating(d) || !is_computable(d)) return false;
  out.push_back(c.call("aten.elu.default", {n.arg(0), *alpha, 1.0, 1.0 / *alpha}));
  return true;
}

// self * 2 ** other
bool decompose_ldexp(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  Compose c(r);
  const DType self = r.type(n.arg(0).value()).dtype, other = r.type(n.arg(1).value()).dtype;
  if (!is_computable(self) || !is_computable(other)) return false;
  const ValueId power = c.call("aten.pow.Scalar", {2.0, n.arg(1)});
  out.push_back(c.mul(n.arg(0).value(), power));
  return true;
}

#define E(f) element_rule<f>
#define D(f) decompose<f>
#define none nullptr
constexpr ShapeRule unary_real = shape_elementwise<ResultDType::Promoted, 1, Needs::Floating>;
constexpr ShapeRule unary_float = shape_elementwise<ResultDType::Float, 1>;
constexpr ShapeRule unary_bool = shape_elementwise<ResultDType::Bool, 1>;
constexpr ShapeRule promoted_real = shape_elementwise<ResultDType::Promoted, 2, Needs::Floating>;
constexpr ShapeRule promoted_float = shape_elementwise<ResultDType::Float, 2>;
constexpr ElementRule i0 = element_rule<bessel_i<0, false>>;
constexpr ElementRule i0e = element_rule<bessel_i<0, true>>;
constexpr ElementRule i1 = element_rule<bessel_i<1, false>>;
constexpr ElementRule i1e = element_rule<bessel_i<1, true>>;
constexpr Applies real = applies_computable;
constexpr Applies floating = applies_floating;

constexpr OpInfo kRows[] = {
#define OP OXY_OP_ROW
#include "ops/special.def"
#undef OP
};

}  // namespace

std::span<const OpInfo> special_ops() { return kRows; }

}  // namespace oxy::ops
