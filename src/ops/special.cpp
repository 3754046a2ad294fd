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
// y = 32 / x - 2 beyond; fitted with fifty digits.
constexpr double kI0Small[] = {
    0.6767952744094761,     -0.3046826723431984,     0.17162090152220877,    -0.09490109704804764,
    0.04930528423967071,    -0.02373741480589947,    0.010546460394594998,   -0.004324309995050576,
    0.0016394756169413357,  -0.0005763755745385824,  0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07,
    6.046995022541919e-08,  -1.300025009986248e-08,  2.6598237246823866e-09, -5.189795601635263e-10,
    9.675809035373237e-11,  -1.726826291441556e-11,  2.95505266312964e-12,   -4.856446783111929e-13,
    7.676185498604936e-14,  -1.1685332877993451e-14, 1.715391285555133e-15,  -2.431279846547955e-16,
    3.3307945188222384e-17, -4.4153416464793395e-18};
constexpr double kI0Large[] = {
    0.8044904110141088,      0.0033691164782556943,   6.889758346916825e-05,
    2.8913705208347567e-06,  2.0489185894690638e-07,  2.266668990498178e-08,
    3.3962320257083865e-09,  4.94060238822497e-10,    1.1889147107846439e-11,
    -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13,   3.8527783827421426e-13,  1.54008621752141e-14,
    -4.150569347287222e-14,  -9.554846698828307e-15,  3.8116806693526224e-15,
    1.7725601330565263e-15,  -3.425485619677219e-16,  -2.8276239805165836e-16,
    3.461222867697461e-17,   4.46562142029676e-17,    -4.830504485944182e-18,
    -7.233180487874754e-18,  9.921475412173699e-19,   1.193650890845982e-18};
constexpr double kI1Small[] = {
    0.25258718644363365,     -0.17641651835783406,    0.1026436586898471,
    -0.05294598120809499,    0.024726449030626516,    -0.010564084894626197,
    0.004156422944312888,    -0.0015135724506312532,  0.0005122859561685758,
    -0.00016176081582589674, 4.781565107550054e-05,   -1.3273163656039436e-05,
    3.4702513081376785e-06,  -8.568720264695455e-07,  2.0032947535521353e-07,
    -4.445059128796328e-08,  9.381537386495773e-09,   -1.8872497517228294e-09,
    3.625590281552117e-10,   -6.663489723502027e-11,  1.1736186298890901e-11,
    -1.9839743977649436e-12, 3.223793365945575e-13,   -5.042185504727912e-14,
    7.600684294735408e-15,   -1.1055969477353862e-15, 1.5536319577362005e-16,
    -2.111421214358166e-17,  2.7779141127610464e-18,  -3.541581772542136e-19};
constexpr double kI1Large[] = {
    0.7785762350182801,      -0.009761097491361469,   -0.00011058893876262371,
    -3.882564808877691e-06,  -2.512236237870209e-07,  -2.6314688468895196e-08,
    -3.835380385964237e-09,  -5.589743462196584e-10,  -1.8974958123505413e-11,
    3.2526035830154884e-11,  1.4125807436613782e-11,  2.0356285441470896e-12,
    -7.198551776245908e-13,  -4.0835511110921974e-13, -2.1015418427726643e-14,
    4.272440016711951e-14,   1.0420276984128802e-14,  -3.8144030724370075e-15,
    -1.8803547755107825e-15, 3.3082023109209285e-16,  2.96262899764595e-16,
    -3.209525921993424e-17,  -4.6503053684893586e-17, 4.414348323071708e-18,
    7.517296310842105e-18,   -9.314178867326884e-19,  -1.242193275194891e-18};

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
