// Functions of as many steps as their operands ask for: all lanes of a vector take them together, and those that have
// their result keep it. The same functions of one number, which these are compared with, stand in src/ops.
#include "codegen/cpp/prelude.h"
#include "ops/zeta.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

constexpr Piece kPieces[] = {
    {"some", "", 1, 0, "OXY_INLINE b8 @@($T x) { return x != 0; }\n"},
    {"some", "", 2, 0, R"(OXY_INLINE b8 @@($T x) {
  b8 r = false;
  for (int l = 0; l < $N; ++l) r |= x[l] != 0;
  return r;
}
)"},

    // ops/zeta.h, all lanes together: `live` is 1 in those that have not got their result.
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

}  // namespace

std::span<const Piece> iterated_pieces() { return kPieces; }

std::span<const double> piece_numbers(std::string_view name) {
  if (name == "zeta_factors") return ops::zeta_factors();
  OXY_FAIL("no table ", name);
}

}  // namespace oxy::codegen::cpp
