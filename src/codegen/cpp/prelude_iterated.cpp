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

constexpr Piece kPieces[] = {
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
  $T sum = @call2(q, -x, pow), w = q, power = zero;
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
};
#undef OXY_RECURRENCE

}  // namespace

std::span<const Piece> iterated_pieces() { return kPieces; }

std::span<const double> piece_numbers(std::string_view name) {
  if (name == "zeta_factors") return ops::kZetaFactors;
  if (name == "temme_factors") return ops::kTemmeFactors;
  if (name == "stirling_factors") return ops::kStirlingFactors;
  OXY_FAIL("no table ", name);
}

}  // namespace oxy::codegen::cpp
