// Functions of as many steps as their operands ask for: all lanes of a vector take them together,
// and those that have their result keep it. The same functions of one number, which these are
// compared with, stand in tests/reference.
#include "codegen/cpp/prelude.h"
#include "ops/expansions.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

// Orthogonal polynomials by their three-term recurrences:
//   Chebyshev   u(k+1) = 2 x u(k) - u(k-1), from 1 and `first`: x, 2x, 2x - 1 or 2x + 1 for the
//               four kinds
//   Hermite     H(k+1) = 2 x H(k) - 2 k H(k-1), from 1 and 2x; He(k+1) = x He(k) - k He(k-1), from
//               1 and x
//   Laguerre    L(k+1) = ((2k + 1 - x) L(k) - k L(k-1)) / (k + 1), from 1 and 1 - x
//   Legendre    P(k+1) = ((2k + 1) x P(k) - k P(k-1)) / (k + 1), from 1 and x
// The product with u(k) and the difference are rounded once, as eager's compiler does it. A degree
// is a whole number, and what is below 1 gives 1. `next` is the polynomial of degree k + 1 from `p`
// and `q`, those of k and k - 1. Every 64th step looks whether all lanes are NaN, which ends a
// recurrence.
#define OXY_RECURRENCE(name, operands, first, next)                         \
  Piece{name, "", 0, 0,                                                     \
        "static __attribute__((noinline)) $T @@(" operands                  \
        ", $T degree) {\n"                                                  \
        "  $S left = @whole(degree);\n"                                     \
        "  $T one = @splat(1), q = one, p = " first                         \
        ", result = degree < one ? one : p;\n"                              \
        "  for (int k = 1, steps = @most(degree); k < steps; ++k) {\n"      \
        "    if (k % 64 == 0 && !@some(p == p ? one : @splat(0))) break;\n" \
        "    $T next = " next                                               \
        ";\n"                                                               \
        "    q = p;\n"                                                      \
        "    p = next;\n"                                                   \
        "    left = left - 1;\n"                                            \
        "    result = left > 0 ? p : result;\n"                             \
        "  }\n"                                                             \
        "  return result;\n"                                                \
        "}\n"}

constexpr std::string_view kGamma =
    R"(OXY_INLINE $T @@($T a, $T x, void* exp, void* log, void* log1p, void* lgamma, void* erfc,
                 void* expm1) {
  return @incomplete_gamma(a, x, $OP, 1.1102230246251565e-16, exp, log, log1p, lgamma, erfc, expm1);
}
)";
// Of f32, in f64 but for what f32 does not see.
constexpr std::string_view kGammaOfF32 =
    R"(OXY_INLINE $T @@($T a, $T x, void* exp, void* log, void* log1p, void* lgamma, void* erfc,
                 void* expm1) {
  return @f32_of_f64(@incomplete_gamma.f64(@f64_of_f32(a), @f64_of_f32(x), $OP, 2.3283064e-10, exp,
                                           log, log1p, lgamma, erfc, expm1));
}
)";

constexpr Piece kIteratedPieces[] = {
    {"some", "", 1, 0, "OXY_INLINE b8 @@($T x) { return x != 0; }\n"},
    {"some", "", 2, 0, R"(OXY_INLINE b8 @@($T x) {
  b8 r = false;
  for (int l = 0; l < $N; ++l) r |= x[l] != 0;
  return r;
}
)"},

    // Degrees as whole numbers, as many as an int can count; the largest of them.
    {"whole", "", 1, 0, R"(OXY_INLINE $S @@($T degree) {
  $T most = @splat(2147483520);
  return ($S)(degree < most ? degree : most);
}
)"},
    {"whole", "", 2, 0, R"(OXY_INLINE $S @@($T degree) {
  $T most = @splat(2147483520);
  return __builtin_convertvector(degree < most ? degree : most, $S);
}
)"},
    {"most", "", 0, 0, R"(OXY_INLINE i32 @@($T degree) {
  $t each[$N], most = 0;
  __builtin_memcpy(each, &degree, sizeof degree);
  for (int l = 0; l < $N; ++l) most = each[l] > most ? each[l] : most;
  return most < 2147483520 ? (i32)most : 2147483520;
}
)"},
    OXY_RECURRENCE("chebyshev", "$T x, $T first", "first", "@fma(x + x, p, -q)"),
    OXY_RECURRENCE("hermite_h", "$T x", "x + x", "@fma(x + x, p, -(@splat(2l * k) * q))"),
    OXY_RECURRENCE("hermite_he", "$T x", "x", "@fma(x, p, -(@splat(k) * q))"),
    OXY_RECURRENCE("laguerre", "$T x", "one - x",
                   "@fma(@splat(2l * k) + (one - x), p, -(@splat(k) * q)) / @splat(k + 1l)"),
    OXY_RECURRENCE("legendre", "$T x", "x",
                   "@fma(@splat(2l * k + 1) * x, p, -(@splat(k) * q)) / @splat(k + 1l)"),

    // Hurwitz's zeta function, the sum of (q + k)^-x over k = 0, 1, ... Infinite where x is 1 or q
    // a negative integer or 0; NaN for x below 1 and for a negative q with a broken x. Terms are
    // added until they are below the precision, nine at least and to beyond q = 9, then Euler and
    // Maclaurin's correction (as in the Cephes library). `live` is 1 in the lanes that have not got
    // their result.
    {"zeta", "", 0, 0, R"(static __attribute__((noinline)) $T @@($T x, $T q, void* pow) {
  const $t factors[] = {$[zeta_factors]};
  $T zero = @splat(0), one = @splat(1), precision = @splat(1.1102230246251565e-16);
  $T whole_q = @floor(q), whole_x = @floor(x);
  auto edge = (x <= one) | ((q <= zero) & ((q == whole_q) | (x != whole_x)));
  $T live = edge ? zero : one;
  $T sum = @some(live) ? @call2(q, -x, pow) : zero, w = q, power = zero;
  for (int i = 0;; ++i) {
    $T more = w <= @splat(9) ? live : zero;
    if (i < 9) more = live;
    if (!@some(more)) break;
    $T next = w + one;
    $T term = @call2(next, -x, pow);
    w = more != zero ? next : w;
    power = more != zero ? term : power;
    sum = more != zero ? sum + term : sum;
    live = @abs(power) < precision * sum ? zero : live;
  }
  $T corrected = sum + (power * w / (x - one) - @splat(0.5) * power);
  sum = live != zero ? corrected : sum;
  $T rising = one, k = zero;
  for (int i = 0; i < (int)(sizeof factors / sizeof *factors) && @some(live); ++i) {
    rising *= x + k;
    power /= w;
    $T term = rising * power / factors[i];
    sum = live != zero ? sum + term : sum;
    live = @abs(term / sum) < precision ? zero : live;
    rising *= x + k + one;
    power /= w;
    k += @splat(2);
  }
  $T infinity = @splat(__builtin_inff()), nan = @splat(__builtin_nanf(""));
  $T pole = q == whole_q ? infinity : nan;
  sum = edge ? pole : sum;
  sum = x < one ? nan : sum;
  return x == one ? infinity : sum;
}
)"},

    // The regularised incomplete gamma functions on vectors of f64.
    //
    // P(a, x) is the integral of t^(a-1) e^-t from 0 to x over that to infinity, Q = 1 - P. The
    // methods, and where each is taken, as eager has them:
    //   - a large and x near it: Temme's uniform expansion (DLMF 8.12.3, 8.12.4, 8.12.7-8.12.12),
    //     in powers of 1/a
    //   - x up to a: the series of P (DLMF 8.11.4)
    //   - x above: the continued fraction of Q (DLMF 8.9.2), by the recurrence of its convergents
    //   - x up to 1.1, for Q: the series of DLMF 8.7.3, which does not cancel there
    // Series and fraction end where a step changes less than `least` of them, and after 2000 terms.
    // Outside of both quadrants: NaN where a or x is negative, and P(0, x) = 1, P(a, 0) = 0,
    // P(inf, x) = 0, P(a, inf) = 1 with NaN at both zeros and both infinities.
    //
    // Each method runs where a lane takes it; the other lanes hold numbers that do no harm. Masks
    // are 1 and 0. No terms are added where the result is 0, or 1 minus what 1 does not see.
    {"gamma_log_minus", "f64", 0, 0, R"(OXY_INLINE $T @@($T a, $T x, void* log) {
  $T zero = @splat(0), one = @splat(1), m = (x - a) / a;
  $T s = m / (@splat(2) + m), square = s * s, sum = zero;
  for (int k = 12; k > 0; --k) sum = @fma(sum, square, @splat(1.0 / (2 * k + 1)));
  $T near = @fma(@splat(2) * s * square, sum, -m * s);
  $T far = @abs(m) > @splat(0.4) ? one : zero;
  if (!@some(far)) return near;
  return far != zero ? @call1(x / a, log) - m : near;
}
)"},
    {"gamma_stirling", "f64", 0, 0, R"(OXY_INLINE $T @@($T a) {
  const $t factors[] = {$[stirling_factors]};
  $T inverse = @splat(1) / a, square = inverse * inverse, sum = @splat(0);
  for (unsigned i = 0; i < sizeof factors / sizeof *factors; ++i)
    sum = @fma(sum, square, @splat(factors[i]));
  return sum * inverse;
}
)"},
    {"gamma_density", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, void* exp, void* log, void* log1p) {
  $T zero = @splat(0), one = @splat(1), ten = @splat(10), power = zero;
  $T factor = @splat(0.3989422804014327);
  $T small = a < ten ? one : zero, high = small != zero ? a + ten : a;
  $T stirling = @gamma_stirling(high);
  if (@some(small)) {
    $T rising = high;
    for (int k = 1; k < 10; ++k) rising *= a + @splat(k);
    $T gamma = @fma(high, @call1(a * @splat(0.1), log1p), stirling);
    power = @fma(a, @call1(x, log) - @splat(1.3025850929940457), -x) - gamma;
    factor = small != zero ? rising * @splat(8.7872884933643468e-7) : factor;
  }
  if (@some(one - small)) {
    $T large = @fma(a, @gamma_log_minus(a, x, log), -stirling);
    power = small != zero ? power : large;
  }
  return @call1(power, exp) * factor / @sqrt(high);
}
)"},
    {"gamma_series_of_p", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, $T live, f64 least) {
  $T zero = @splat(0), one = @splat(1), term = one, sum = one, r = a;
  for (int i = 0; i < 2000 && @some(live); ++i) {
    r += one;
    term *= x / r;
    sum = live != zero ? sum + term : sum;
    live = term > @splat(least) * sum ? live : zero;
  }
  return sum;
}
)"},
    {"gamma_series_of_q", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, $T live, f64 least, void* log,
                                       void* lgamma, void* expm1) {
  $T zero = @splat(0), one = @splat(1), factor = one, sum = zero, n = zero;
  for (int i = 1; i < 2000 && @some(live); ++i) {
    n += one;
    factor *= -x / n;
    $T term = factor / (a + n);
    sum = live != zero ? sum + term : sum;
    live = @abs(term) <= @splat(least) * @abs(sum) ? zero : live;
  }
  $T exponent = a * @call1(x, log) - @call1(one + a, lgamma);
  $T power = @call1(exponent, expm1);
  return -power - a * (one + power) * sum;
}
)"},
    {"gamma_fraction_of_q", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, $T live, f64 least) {
  $T zero = @splat(0), one = @splat(1), y = one - a, z = x + y + one, c = zero;
  $T top = x + one, top_before = one, bottom = z * x, bottom_before = x;
  $T value = top / bottom;
  for (int i = 0; i < 2000 && @some(live); ++i) {
    c += one;
    y += one;
    z += @splat(2);
    $T product = y * c;
    $T top_next = top * z - top_before * product;
    $T bottom_next = bottom * z - bottom_before * product;
    $T scale = @abs(top_next) > @splat(4503599627370496) ? @splat(2.220446049250313e-16) : one;
    $T next = top_next / bottom_next;
    top_before = top * scale;
    bottom_before = bottom * scale;
    top = top_next * scale;
    bottom = bottom_next * scale;
    $T change = @abs(value - next);
    value = live != zero ? next : value;
    live = change <= @splat(least) * @abs(next) ? zero : live;
  }
  return value;
}
)"},
    {"gamma_temme", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, $T side, void* exp, void* log,
                                       void* erfc) {
  const $t factors[] = {$[temme_factors]};
  const $t* last = factors + sizeof factors / sizeof *factors;
  $T half_square = -@gamma_log_minus(a, x, log);
  $T eta = @copysign(@sqrt(@splat(2) * half_square), x - a);
  $T inverse = @splat(1) / a, sum = @splat(0);
  for (int length = 6; length <= 16; ++length) {
    $T row = @splat(0);
    for (int n = 0; n < length; ++n) row = @fma(row, eta, @splat(*--last));
    sum = @fma(sum, inverse, row);
  }
  $T power = @call1(-a * half_square, exp);
  $T rest = power * sum / @sqrt(@splat(2 * 3.1415927410125732) * a);
  $T lead = @call1(side * eta * @sqrt(a * @splat(0.5)), erfc);
  return @splat(0.5) * lead + side * rest;
}
)"},
    {"gamma_edge_of_p", "f64", 0, 0, R"(OXY_INLINE $T @@($T a, $T x) {
  $T zero = @splat(0), one = @splat(1);
  $T infinity = @splat(__builtin_inf()), nan = @splat(__builtin_nan(""));
  $T value = x == infinity ? one : nan;
  $T beyond = x == infinity ? nan : zero;
  value = a == infinity ? beyond : value;
  value = x == zero ? zero : value;
  $T lower = x > zero ? one : nan;
  value = a == zero ? lower : value;
  return (x < zero) | (a < zero) ? nan : value;
}
)"},
    {"gamma_below", "f64", 0, 0, R"(OXY_INLINE $T @@($T a, $T x, void* log) {
  $T zero = @splat(0), one = @splat(1), low = x <= @splat(0.5) ? one : zero;
  $T bound = x > @splat(1.1) ? x : x * @splat(1.1);
  if (@some(low)) {
    $T steep = @splat(-0.4) / @call1(low != zero ? x : @splat(0.5), log);
    bound = low != zero ? steep : bound;
  }
  return bound < a ? one : zero;
}
)"},
    {"gamma_near", "f64", 0, 0, R"(OXY_INLINE $T @@($T a, $T x) {
  $T zero = @splat(0), one = @splat(1), distance = @abs(x - a) / a;
  $T large = distance < @splat(4.5) / @sqrt(a) ? one : zero;
  $T middle = distance < @splat(0.3) ? one : zero;
  middle = a < @splat(200) ? middle : zero;
  middle = a > @splat(20) ? middle : zero;
  return a > @splat(200) ? large : middle;
}
)"},
    {"incomplete_gamma", "f64", 0, 0,
     R"(static __attribute__((noinline)) $T @@($T a, $T x, b8 upper, f64 least, void* exp,
                                       void* log, void* log1p, void* lgamma, void* erfc,
                                       void* expm1) {
  $T zero = @splat(0), one = @splat(1), infinity = @splat(__builtin_inf());
  auto inside = (a > zero) & (x > zero) & (a < infinity) & (x < infinity);
  $T edge = @gamma_edge_of_p(a, x);
  edge = upper ? one - edge : edge;
  $T live = inside ? one : zero;
  if (!@some(live)) return edge;
  a = inside ? a : one;
  x = inside ? x : one;
  $T near = @gamma_near(a, x), value = edge;
  if (@some(near)) {
    $T thirty = @splat(30), side = upper ? one : -one;
    $T safe_a = near != zero ? a : thirty, safe_x = near != zero ? x : thirty;
    $T temme = @gamma_temme(safe_a, safe_x, side, exp, log, erfc);
    value = near != zero ? temme : value;
  }
  live = near != zero ? zero : live;
  if (!@some(live)) return value;
  $T high = x > @splat(1.1) ? live : zero;
  $T above = x > a ? high : zero;
  $T series = upper ? @gamma_below(a, x, log) : one - above;
  series = live != zero ? series : zero;
  $T other = series != zero ? zero : live;
  $T fraction = other * high, small = other * (one - high);
  $T from_one = upper ? series : other;
  $T p_or_q = zero, density = zero, seen = zero;
  if (@some(series + fraction)) {
    density = @gamma_density(a, x, exp, log, log1p);
    $T fewest = from_one != zero ? @splat(1e-20) : zero;
    seen = density * (a + one) > fewest ? one : zero;
  }
  if (@some(series)) p_or_q = density * @gamma_series_of_p(a, x, series * seen, least);
  if (@some(fraction)) {
    $T q = a * density * @gamma_fraction_of_q(a, x, fraction * seen, least);
    q = seen != zero ? q : zero;
    p_or_q = fraction != zero ? q : p_or_q;
  }
  if (@some(small)) {
    $T q = @gamma_series_of_q(a, x, small, least, log, lgamma, expm1);
    p_or_q = small != zero ? q : p_or_q;
  }
  p_or_q = from_one != zero ? one - p_or_q : p_or_q;
  return live != zero ? p_or_q : value;
}
)"},
    {"f64_of_f32", "f32", 1, 0, "OXY_INLINE f64 @@(f32 x) { return x; }\n"},
    {"f64_of_f32", "f32", 2, 0,
     "OXY_INLINE $f64 @@($T x) { return __builtin_convertvector(x, $f64); }\n"},
    {"f32_of_f64", "f32", 1, 0, "OXY_INLINE f32 @@(f64 x) { return (f32)x; }\n"},
    {"f32_of_f64", "f32", 2, 0,
     "OXY_INLINE $T @@($f64 x) { return __builtin_convertvector(x, $T); }\n"},
    {"gamma_p", "f32", 0, 0, kGammaOfF32, "false"},
    {"gamma_q", "f32", 0, 0, kGammaOfF32, "true"},
    {"gamma_p", "f64", 0, 0, kGamma, "false"},
    {"gamma_q", "f64", 0, 0, kGamma, "true"},
};
#undef OXY_RECURRENCE

}  // namespace

std::span<const Piece> iterated_pieces() { return kIteratedPieces; }

std::span<const double> piece_numbers(std::string_view name) {
  if (name == "zeta_factors") return ops::kZetaFactors;
  if (name == "temme_factors") return ops::kTemmeFactors;
  if (name == "stirling_factors") return ops::kStirlingFactors;
  OXY_FAIL("no table ", name);
}

}  // namespace oxy::codegen::cpp
