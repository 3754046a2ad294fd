// Pieces for arithmetic that has no operator in C++ for scalars and vectors alike, and for
// conversions.
#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

namespace {

// Pieces of one text, which differ in their operation.
constexpr std::string_view kElementwise = R"(#if defined(__clang__)
OXY_INLINE $T @@($T x) { return __builtin_elementwise_$NAME(x); }
#else
OXY_INLINE $T @@($T x) {
  $T r;
  for (int l = 0; l < $N; ++l) (($t*)&r)[l] = $OP$f((($t*)&x)[l]);
  return r;
}
#endif
)";

constexpr std::string_view kEachLane = R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $T r = {};
  for (i64 l = 0; l < n; ++l) r[l] = $OP(a[l], b[l], status, 1);
  return r;
}
)";

// A machine has no division of vectors of integers, but one of floats: of numbers below 2^51 in
// f64, or of 16 bits in f32, the rounded quotient never reaches the next integer. The others, and
// divisors of 0, are divided one by one. Those of -1 negate, so that the least number stays itself.
constexpr std::string_view kDivide = R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $S alone = b == 0, negates = {};
  if (($t)-1 < 0) negates = b == ($t)-1;
#if $B / $N < 8  // constants are multiplied with; of 64 bits there is no such product
  const b8 special = @any.i32(__builtin_convertvector(alone | negates, $i32));
  if (__builtin_constant_p(b[0]) && __builtin_constant_p(special) && !special) return a / b;
#else
  const u64 most = 1ull << 51;
  alone |= (most + ($u)a > 2 * most) | (most + ($u)b > 2 * most);
#endif
  if (@any.i32(__builtin_convertvector(alone, $i32))) return @div_each(a, b, status, n);
  $T divisor = b + ($T)(negates & 2);
#if $B / $N == 8 && !defined(__AVX512DQ__)  // which converts; else by the last bits of 2^52 + x
  $OP shift = @splat.f64(0x1.8p52);
  $OP x = ($OP)(a + ($T)shift) - shift, y = ($OP)(divisor + ($T)shift) - shift;
  $T q = ($T)(@trunc.f64(x / y) + shift) - ($T)shift;
#else
  $T q = __builtin_convertvector(
      __builtin_convertvector(a, $OP) / __builtin_convertvector(divisor, $OP), $T);
#endif
  return ($T)((($u)q ^ ($u)negates) - ($u)negates);
}
)";

// |x| - q |y| with the whole quotient q. A rounded quotient is never too small, and too large by
// one at most; what either leaves of |x| has no more digits than x and y have, so that the fma and
// the sum have no error. Where an infinity or NaN is divided, or 0 or NaN divides, NaN comes of
// itself. Quotients from $OP on, and infinite divisors, go to the function of the table, all lanes.
constexpr std::string_view kFloatRest = R"(OXY_INLINE $T @@($T x, $T y, void* f) {
  $T zero = {};
  $T a = @abs(x), b = @abs(y);
  $T inf = @splat(__builtin_inff());
  $T ratio = a / b;
  $S far = ((ratio >= @splat($OP)) & (a < inf) & (b > zero)) | (b == inf);
  b8 is_far = @any.i32(__builtin_convertvector(far, $i32));
  if (__builtin_expect(is_far, 0)) return @fmod_of(x, y, f);
  $T r = @fma(-@trunc(ratio), b, a);
  $T raised = r + b;
  r = r < zero ? raised : r;
  return @copysign(r, x);
}
)";

// The whole quotient q of the same, less one where the signs differ and something is left: what
// ATen makes of the rest comes to that while quotients are below $OP.
constexpr std::string_view kFloatFloor = R"(OXY_INLINE $T @@($T x, $T y, void* f) {
  $T zero = {}, one = @splat(1);
  $T a = @abs(x), b = @abs(y), ratio = x / y;
  $T size = @abs(ratio), inf = @splat(__builtin_inff());
  $S far = ((size >= @splat($OP)) & (a < inf) & (b > zero)) | (b == inf);
  b8 is_far = @any.i32(__builtin_convertvector(far, $i32));
  if (__builtin_expect(is_far, 0)) return @fmod_floordiv(x, y, @fmod_of(x, y, f));
  $T q = @trunc(size);
  $T r = @fma(-q, b, a);
  $T less = q - one;
  q = @copysign(r < zero ? less : q, ratio);
  less = q - one;
  $S below = __builtin_bit_cast($S, ratio) < ($S){};
  q = below & (r != zero) ? less : q;
  q = r != r ? r : q;
  return y == zero ? ratio : q;
}
)";

constexpr std::string_view kFromQuotient = R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $T q = @div(a, b, status, n);
  $T r = ($T)(($u)a - ($u)q * ($u)b);
  $S inexact = (b != 0) & (r != 0) & ((r < 0) != (b < 0));
  (void)inexact;
  return $OP;
}
)";

// One value of all lanes: halves together, then quarters. Written out, as kernels are compiled
// without the passes that unroll loops and find shuffles.
constexpr std::string_view kFold = R"(OXY_INLINE $t @@($T v) {
  $T w;
#if $N == 16
  w = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
  v = $OP;
  w = __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  v = $OP;
  w = __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
  v = $OP;
  w = __builtin_shufflevector(v, v, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
#elif $N == 8
  w = __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7);
  v = $OP;
  w = __builtin_shufflevector(v, v, 2, 3, 2, 3, 2, 3, 2, 3);
  v = $OP;
  w = __builtin_shufflevector(v, v, 1, 1, 1, 1, 1, 1, 1, 1);
#else
  w = __builtin_shufflevector(v, v, 2, 3, 2, 3);
  v = $OP;
  w = __builtin_shufflevector(v, v, 1, 1, 1, 1);
#endif
  v = $OP;
  return v[0];
}
)";

constexpr std::string_view kBeatsOne = R"(OXY_INLINE b8 @@($T a, i64 ia, $T b, i64 ib) {
  if (ib < 0) return false;
  if (ia < 0) return true;
  b8 better = b $OP a || (b != b && a == a);
  b8 same = b == a || (b != b && a != a);
  return better || (same && ib < ia);
}
)";

constexpr std::string_view kBeats = R"(OXY_INLINE $i32 @@($T a, $i64 ia, $T b, $i64 ib) {
  $S better = (b $OP a) | ((b != b) & (a == a));
  $S same = (b == a) | ((b != b) & (a != a));
  $i32 less = __builtin_convertvector(ib < ia, $i32);
  $i32 first = __builtin_convertvector(ia < ($i64){}, $i32);
  $i32 none = __builtin_convertvector(ib < ($i64){}, $i32);
  $i32 wins = __builtin_convertvector(better, $i32);
  $i32 ties = __builtin_convertvector(same, $i32);
  return (wins | (ties & less) | first) & ~none;
}
)";

constexpr std::string_view kLater = R"(OXY_INLINE $i32 @@($T a, $T b) {
  $S wins = ~(b $OP a) & (a == a);
  return __builtin_convertvector(wins, $i32);
}
)";

// Without a NaN the extreme is one instruction a step.
constexpr std::string_view kFoldNan = R"(OXY_INLINE $t @@($T v) {
  if (__builtin_expect(@any.i32(__builtin_convertvector(v != v, $i32)), 0))
    return ($t)__builtin_nanf("");
  return $OP;
}
)";

constexpr std::string_view kArg = R"(OXY_INLINE i64 @@($T v, $i64 at) {
  $i32 held = ~__builtin_convertvector(at < ($i64){}, $i32);
  $i32 best = __builtin_convertvector(v != v, $i32) & held;
  if (!@any.i32(best)) best = __builtin_convertvector(v == @splat($OP), $i32) & held;
  i64 where = @fold_min.i64(@select.i64(best, at, @splat.i64(0x7fffffffffffffff)));
  return where == 0x7fffffffffffffff ? -1 : where;
}
)";
constexpr std::string_view kArgNear = R"(OXY_INLINE i64 @@($T v, $i32 at) {
  $i32 held = at >= ($i32){};
  $i32 best = __builtin_convertvector(v != v, $i32) & held;
  if (!@any.i32(best)) best = __builtin_convertvector(v == @splat($OP), $i32) & held;
  i32 where = @fold_min.i32(@select.i32(best, at, @splat.i32(0x7fffffff)));
  return where == 0x7fffffff ? -1 : where;
}
)";

constexpr Piece kOperatorPieces[] = {
    {"select", "b8", 1, 0, "OXY_INLINE b8 @@(b8 m, b8 a, b8 b) { return m ? a : b; }\n"},
    {"select", "", 1, 0, "OXY_INLINE $T @@(b8 m, $T a, $T b) { return m ? a : b; }\n"},
    {"select", "4", 2, 0, "OXY_INLINE $T @@($i32 m, $T a, $T b) { return m ? a : b; }\n"},
    {"select", "", 2, 0, R"(OXY_INLINE $T @@($i32 m, $T a, $T b) {
  $S wide = __builtin_convertvector(m, $S);
  return wide ? a : b;
}
)"},
    // A comparison's result as an i32 mask.
    {"narrow", "i32", 2, 0, "OXY_INLINE $i32 @@($T m) { return m; }\n"},
    {"narrow", "", 2, 0, "OXY_INLINE $i32 @@($T m) { return __builtin_convertvector(m, $i32); }\n"},

    // Of places and sizes, below 2^51: the quotient of two doubles, rounded to an integer in the
    // low bits of a sum, is the floor or one more, where the rest is negative.
    {"floor_quotient", "i64", 2, 0, R"(OXY_INLINE $T @@($T n, i64 d) {
  $f64 integer = @splat.f64(6755399441055744.0), by = @splat.f64((f64)d);
  $f64 x = ($f64)(n + ($T)integer) - integer;
  $f64 t = x * @splat.f64(1.0 / (f64)d) + integer;
  return ($T)t - ($T)integer + ($T)(x - (t - integer) * by < @splat.f64(0.0));
}
)"},
    {"floor_remainder", "i64", 2, 0, R"(OXY_INLINE $T @@($T n, i64 d) {
  $f64 integer = @splat.f64(6755399441055744.0), by = @splat.f64((f64)d);
  $f64 x = ($f64)(n + ($T)integer) - integer;
  $f64 t = x * @splat.f64(1.0 / (f64)d) + integer;
  $f64 rest = x - (t - integer) * by;
  rest = rest < @splat.f64(0.0) ? rest + by : rest;
  return ($T)(rest + integer) - ($T)integer;
}
)"},

    {"floor", "f", 0, 0, kElementwise, "__builtin_floor"},
    {"ceil", "f", 0, 0, kElementwise, "__builtin_ceil"},
    {"trunc", "f", 0, 0, kElementwise, "__builtin_trunc"},
    {"roundeven", "f", 0, 0, kElementwise, "__builtin_rint"},
    {"sqrt", "f", 0, 0, kElementwise, "__builtin_sqrt"},
    {"fma", "f", 0, 0, R"(#if defined(__clang__)
OXY_INLINE $T @@($T a, $T b, $T c) { return __builtin_elementwise_fma(a, b, c); }
#else
OXY_INLINE $T @@($T a, $T b, $T c) {
  $T r;
  $t* x = ($t*)&a, *y = ($t*)&b, *z = ($t*)&c, *to = ($t*)&r;
  for (int l = 0; l < $N; ++l) to[l] = __builtin_fma$f(x[l], y[l], z[l]);
  return r;
}
#endif
)"},
    {"abs", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  return __builtin_bit_cast($T, __builtin_bit_cast($i32, x) & 0x7fffffff);
}
)"},
    {"abs", "f64", 0, 0, R"(OXY_INLINE $T @@($T x) {
  return __builtin_bit_cast($T, __builtin_bit_cast($i64, x) & 0x7fffffffffffffff);
}
)"},
    // Hides a value's making from the compiler. LLVM 19 merges three bitwise operations and a
    // selection of one of their operands into a masked vpternlog, with the wrong table where
    // another operand is a constant in memory.
    {"apart", "", 1, 0, "OXY_INLINE $T @@($T x) { return x; }\n"},
    {"apart", "", 2, 0, R"(OXY_INLINE $T @@($T x) {
#if defined(__clang__) && defined(__AVX512VL__)
  constexpr int pieces = $B > 64 ? $B / 64 : 1;
  typedef i32 piece __attribute__((vector_size($B < 16 ? 16 : $B / pieces)));
  piece p[pieces];
  __builtin_memcpy(p, &x, $B);
  OXY_UNROLL
  for (int i = 0; i < pieces; ++i) asm("" : "+v"(p[i]));
  __builtin_memcpy(&x, p, $B);
#endif
  return x;
}
)"},
    {"copysign", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, $T s) {
  $i32 magnitude = __builtin_bit_cast($i32, x) & 0x7fffffff;
  $i32 sign = __builtin_bit_cast($i32, s) & (i32)0x80000000;
  return @apart(__builtin_bit_cast($T, magnitude | sign));
}
)"},
    {"copysign", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, $T s) {
  $i64 magnitude = __builtin_bit_cast($i64, x) & 0x7fffffffffffffff;
  $i64 sign = __builtin_bit_cast($i64, s) & (i64)0x8000000000000000;
  return @apart(__builtin_bit_cast($T, magnitude | sign));
}
)"},
    // NaN wins, as in ATen.
    {"max_nan", "", 1, 0, "OXY_INLINE $T @@($T a, $T b) { return a >= b || a != a ? a : b; }\n"},
    {"max_nan", "", 2, 0,
     "OXY_INLINE $T @@($T a, $T b) {\n  $T m = b > a ? b : a;\n  return b == b ? m : b;\n}\n"},
    {"min_nan", "", 1, 0, "OXY_INLINE $T @@($T a, $T b) { return a <= b || a != a ? a : b; }\n"},
    {"min_nan", "", 2, 0,
     "OXY_INLINE $T @@($T a, $T b) {\n  $T m = b < a ? b : a;\n  return b == b ? m : b;\n}\n"},
    {"max", "", 0, 0, "OXY_INLINE $T @@($T a, $T b) { return a > b ? a : b; }\n"},
    {"min", "", 0, 0, "OXY_INLINE $T @@($T a, $T b) { return a < b ? a : b; }\n"},
    {"gcd", "", 1, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $T x = a < 0 ? ($T)(0 - ($u)a) : a;
  $T y = b < 0 ? ($T)(0 - ($u)b) : b;
  while (y != 0) {
    $T rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}
)"},
    // All lanes together by J. Stein's algorithm (Computational problems associated with Racah
    // algebra, 1967). The lowest bit that is set is a power of 2, of which a float keeps the
    // exponent. The least number has no size: gcd.1 says what it gives.
    {"gcd", "i32", 2, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $u32 x = ($u32)a, y = ($u32)b;
  x = a < 0 ? 0 - x : x;
  y = b < 0 ? 0 - y : y;
  if (__builtin_expect(@any(($i32)(x | y) < 0), 0)) return @gcd_by_lane(a, b);
  x = x == 0 ? y : x;
  y = y == 0 ? x : y;
  $u32 shift = @zeros_behind(x | y);
  x >>= @zeros_behind(x);
  do {
    y = y == 0 ? x : y >> @zeros_behind(y);  // lanes that are done stay
    $u32 least = x < y ? x : y;
    y = (x > y ? x : y) - least;
    x = least;
  } while (@any(($T)(y != 0)));
  return ($T)(x << shift);
}
)"},
    {"gcd_by_lane", "", 2, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $T r = a;
  for (int l = 0; l < $N; ++l) r[l] = @gcd.1(a[l], b[l]);
  return r;
}
)"},
    // Numbers of other widths, where they have a size in 32 bits and their own.
    {"gcd", "", 2, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $i32 x = __builtin_convertvector(a, $i32), y = __builtin_convertvector(b, $i32);
  const i32 least = sizeof($t) < 4 ? -(1 << (8 * sizeof($t) - 1)) : -2147483647 - 1;
  $i32 fails = (x == least) | (y == least);
  if (sizeof($t) > 4) {
    $S wide = ($S)((__builtin_convertvector(x, $T) != a) | (__builtin_convertvector(y, $T) != b));
    fails |= __builtin_convertvector(wide, $i32);
  }
  if (__builtin_expect(@any.i32(fails), 0)) return @gcd_by_lane(a, b);
  return __builtin_convertvector(@gcd.i32(x, y), $T);
}
)"},
    // Of 0: 0.
    {"zeros_behind", "i32", 2, 0, R"(OXY_INLINE $u32 @@($u32 x) {
  $i32 lowest = ($i32)(x & (0 - x));
  $u32 exponent = ($u32)__builtin_convertvector(lowest, $f32) >> 23 & 255;
  return exponent == 0 ? exponent : exponent - 127;
}
)"},
    // The smaller exponential is at most 1. Equal infinities have no difference.
    {"logaddexp", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b, void* exp, void* log1p) {
  $T high = @max_nan(a, b);
  $T low = @min_nan(a, b);
  $T small = @call1(low - high, exp);
  $T sum = high + @call1(small, log1p);
  auto same = low == high;
  $T least = same ? high : sum;
  $T size = @abs(high);
  return size == @splat(__builtin_inf()) ? least : sum;
}
)"},
    {"sign", "", 1, 0, "OXY_INLINE $T @@($T x) { return ($T)((x > 0) - (x < 0)); }\n"},
    {"sign", "f", 2, 0, R"(OXY_INLINE $T @@($T x) {
  $T up = x > ($T){} ? @splat(1) : ($T){};
  $T down = x < ($T){} ? @splat(1) : ($T){};
  return up - down;
}
)"},
    {"sign", "", 2, 0, "OXY_INLINE $T @@($T x) { return ($T)((x < ($T){}) - (x > ($T){})); }\n"},

    // Floating point to integers, truncating. A number out of range gives what the machine's
    // conversion to i32 or i64 gives, cut to the type; `fits` keeps it out of the C++ conversion,
    // which would be undefined.
    {"i64_of", "", 1, 0, R"(OXY_INLINE i64 @@($t x) {
  b8 fits = x >= ($t)-9223372036854775808.0 && x < ($t)9223372036854775808.0;
  return fits ? (i64)x : (i64)0x8000000000000000;
}
)"},
    {"i32_of", "", 1, 0, R"(OXY_INLINE i32 @@($t x) {
  b8 fits = x > ($t)-2147483649.0 && x < ($t)2147483648.0;
  return fits ? (i32)x : (i32)0x80000000;
}
)"},
    {"i64_of", "", 2, 64, R"(OXY_INLINE $i64 @@($T x) {
  $S fits = (x >= @splat(-9223372036854775808.0)) & (x < @splat(9223372036854775808.0));
  $i64 wide = __builtin_convertvector(fits, $i64);
  $i64 r = __builtin_convertvector(($T)(($S)x & fits), $i64);
  return wide ? r : @splat.i64((i64)0x8000000000000000);
}
)"},
    // Without an instruction for it, where some lane needs it.
    {"i64_of", "", 2, 0, R"(OXY_INLINE $i64 @@($T x) {
  $i32 near = @i32_of(x);
  if (!@any.i32(near == @splat.i32((i32)0x80000000))) return __builtin_convertvector(near, $i64);
  $i64 r;
  for (int l = 0; l < $N; ++l) r[l] = @i64_of.1(x[l]);
  return r;
}
)"},
    {"i32_of", "f32", 2, 32,
     "OXY_INLINE $i32 @@($T x) { return ($i32)__builtin_ia32_cvttps2dq256(x); }\n"},
    {"i32_of", "", 2, 0, R"(OXY_INLINE $i32 @@($T x) {
  $S fits = (x > @splat(-2147483649.0)) & (x < @splat(2147483648.0));
  $i32 narrow = __builtin_convertvector(fits, $i32);
  $i32 r = __builtin_convertvector(($T)(($S)x & fits), $i32);
  return narrow ? r : @splat.i32((i32)0x80000000);
}
)"},
#define CUT(to, wide)                                                                       \
  {to "_of", "", 1, 0, "OXY_INLINE " to " @@($t x) { return (" to ")@" wide "_of(x); }\n"}, \
      {to "_of", "", 2, 0,                                                                  \
       "OXY_INLINE $" to " @@($T x) { return __builtin_convertvector(@" wide "_of(x), $" to \
       "); }\n"}
    CUT("i16", "i32"),
    CUT("i8", "i32"),
    CUT("u8", "i64"),
    CUT("u16", "i64"),
    CUT("u32", "i64"),
    CUT("u64", "i64"),
#undef CUT

    // Shifts by a negative number or by all bits: 0, or the sign's bits, as ATen.
    {"shl", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $u in = ($u)b;
  $u amount = in & (8 * sizeof($t) - 1);
  $u shifted = ($u)a << amount;
  return in == amount ? ($T)shifted : ($T){};
}
)"},
    {"shr", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b) {
  $u in = ($u)b;
  $u amount = in & (8 * sizeof($t) - 1);
  $u all = ($u){} + (8 * sizeof($t) - 1);
  $u used = in == amount ? amount : all;
  return a >> ($T)used;
}
)"},

    // Integer division. A divisor of 0 sets the status and gives 0; the smallest number by -1
    // wraps. `n`: lanes in use.
    {"div", "", 1, 0, R"(OXY_INLINE $T @@($T a, $T b, int* status, i64) {
  if (b == 0) {
    *status |= 2;
    return 0;
  }
  if (($T)-1 < 0 && b == ($T)-1) return ($T)(0 - ($u)a);
  return ($T)(a / b);
}
)"},
    {"floordiv", "", 1, 0, R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $T q = @div(a, b, status, n);
  $T r = ($T)(($u)a - ($u)q * ($u)b);
  return b != 0 && r != 0 && (r < 0) != (b < 0) ? ($T)(q - 1) : q;
}
)"},
    {"mod", "", 1, 0, R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $T q = @div(a, b, status, n);
  $T r = ($T)(($u)a - ($u)q * ($u)b);
  return b != 0 && r != 0 && (r < 0) != (b < 0) ? ($T)(r + b) : r;
}
)"},
    {"fmod", "", 1, 0, R"(OXY_INLINE $T @@($T a, $T b, int* status, i64 n) {
  $T q = @div(a, b, status, n);
  return ($T)(($u)a - ($u)q * ($u)b);
}
)"},
    {"div_each", "", 2, 0, kEachLane, "@div.1"},
    {"div", "i64", 2, 0, kDivide, "$f64"},
    {"div", "i32", 2, 0, kDivide, "$f64"},
    {"div", "", 2, 0, kDivide, "$f32"},
    {"floordiv", "", 2, 0, kFromQuotient, "q + ($T)inexact"},
    {"mod", "", 2, 0, kFromQuotient, "r + (($T)inexact & b)"},
    {"fmod", "", 2, 0, kFromQuotient, "r"},

    // The function of the math table, which goes on for long where a lane is divided by 0, as those
    // that a mask leaves out are.
    {"fmod_of", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b, void* f) {
  $T zero = {};
  auto none = b == zero;
  $T r = @call2(a, none ? @splat(1) : b, f);
  return none ? @splat(__builtin_nanf("")) : r;
}
)"},
    {"fmod_near", "f32", 2, 0, kFloatRest, "4194304.0f"},
    {"fmod_near", "f64", 2, 0, kFloatRest, "1125899906842624.0"},
    {"floordiv_near", "f32", 2, 0, kFloatFloor, "4194304.0f"},
    {"floordiv_near", "f64", 2, 0, kFloatFloor, "1125899906842624.0"},
    // Floating point, from r = fmod(a, b), as ATen: vectors of fmod give NaN where a / b overflows.
    {"fmod_floordiv", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b, $T r) {
  $T zero = {};
  $T ratio = a / b;
  $T inf = @splat(__builtin_inff());
  auto overflows = (@abs(ratio) == inf) & (@abs(a) != inf);
  $T multiple = a - r;
  multiple = overflows ? a : multiple;
  $T q = multiple / b;
  $T lower = q - @splat(1);
  auto other_side = (r < zero) != (b < zero);
  auto inexact = r != zero;
  q = (inexact & other_side) ? lower : q;
  $T whole = @floor(q);
  $T above = whole + @splat(1);
  $T gap = q - whole;
  whole = gap > @splat(0.5f) ? above : whole;
  $T signed_zero = @copysign(zero, ratio);
  whole = q != zero ? whole : signed_zero;
  return b == zero ? ratio : whole;
}
)"},
    {"fmod_mod", "", 0, 0, R"(OXY_INLINE $T @@($T a, $T b, $T r) {
  $T zero = {};
  $T shifted = r + b;
  auto other_side = (r < zero) != (b < zero);
  auto inexact = r != zero;
  return (inexact & other_side) ? shifted : r;
}
)"},

    {"fold_add", "", 2, 0, kFold, "v + w"},
    {"fold_mul", "", 2, 0, kFold, "v * w"},
    {"fold_or", "", 2, 0, kFold, "v | w"},
    {"fold_and", "", 2, 0, kFold, "v & w"},
    {"fold_max", "", 2, 0, kFold, "@max(v, w)"},
    {"fold_min", "", 2, 0, kFold, "@min(v, w)"},
    {"fold_max_nan", "", 2, 0, kFoldNan, "@fold_max(v)"},
    {"fold_min_nan", "", 2, 0, kFoldNan, "@fold_min(v)"},

    // Element b at index ib takes the place of element a at ia in an arg-max (arg-min): an extreme,
    // or NaN, first wins. An index below 0 says that there is no element yet.
    {"beats_max", "", 1, 0, kBeatsOne, ">"},
    {"beats_min", "", 1, 0, kBeatsOne, "<"},
    {"beats_max", "", 2, 0, kBeats, ">"},
    {"beats_min", "", 2, 0, kBeats, "<"},
    // The same where b comes behind a, and a starts as the identity of max (min).
    {"later_max", "", 1, 0, "OXY_INLINE b8 @@($T a, $T b) { return !(b <= a) && a == a; }\n"},
    {"later_min", "", 1, 0, "OXY_INLINE b8 @@($T a, $T b) { return !(b >= a) && a == a; }\n"},
    {"later_max", "", 2, 0, kLater, "<="},
    {"later_min", "", 2, 0, kLater, ">="},
    // The index of the best lane, below 0 where no lane has one; "near": those fit four bytes.
    {"arg_max", "", 2, 0, kArg, "@fold_max(v)"},
    {"arg_min", "", 2, 0, kArg, "@fold_min(v)"},
    {"arg_max_near", "", 2, 0, kArgNear, "@fold_max(v)"},
    {"arg_min_near", "", 2, 0, kArgNear, "@fold_min(v)"},

    // bf16 and f16 are their bits in registers (u16).
    {"f32_of_bf16", "u16", 1, 0,
     "OXY_INLINE f32 @@(u16 x) { return __builtin_bit_cast(f32, (u32)x << 16); }\n"},
    {"f32_of_bf16", "u16", 2, 0, R"(OXY_INLINE $f32 @@($u16 x) {
  $u32 wide = __builtin_convertvector(x, $u32);
  return ($f32)(wide << 16);
}
)"},
    {"bf16_of_f32", "f32", 1, 0, R"(OXY_INLINE u16 @@(f32 x) {
  u32 bits = __builtin_bit_cast(u32, x);
  u32 even = (bits >> 16) & 1;
  u32 rounded = (bits + 0x7fff + even) >> 16;
  return (u16)(x != x ? 0x7fc0 : rounded);
}
)"},
    // The instruction takes denormals for 0.
    {"bf16_of_f32", "f32", 2, 0, R"(OXY_INLINE $u16 @@($f32 x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__clang__) && $N == 16
  typedef __bf16 halves __attribute__((vector_size(32)));
  if (__builtin_expect(!__builtin_ia32_fpclassps512_mask(x, 0x20, -1), 1))
    return __builtin_bit_cast($u16, __builtin_ia32_cvtneps2bf16_512_mask(x, (halves){}, -1));
#endif
  $u32 bits = ($u32)x;
  $u32 even = (bits >> 16) & 1;
  $u32 rounded = (bits + 0x7fff + even) >> 16;
  $u32 quiet = @splat.u32(0x7fc0);
  $i32 nan = x != x;
  $u32 kept = nan ? quiet : rounded;
  return __builtin_convertvector(kept, $u16);
}
)"},
    // Of a number that bf16 has.
    {"bf16_in_f32", "f32", 1, 0,
     "OXY_INLINE u16 @@(f32 x) { return (u16)(__builtin_bit_cast(u32, x) >> 16); }\n"},
    {"bf16_in_f32", "f32", 2, 0,
     "OXY_INLINE $u16 @@($f32 x) { return __builtin_convertvector(($u32)x >> 16, $u16); }\n"},
    // sum + a[2l] * b[2l] + a[2l + 1] * b[2l + 1], of pairs of bf16; denormals count as 0.
    {"dot_bf16", "f32", 2, 64, R"(OXY_INLINE $T @@($u32 a, $u32 b, $T sum) {
#if defined(__clang__)
  typedef __bf16 halves __attribute__((vector_size(64)));
  return __builtin_ia32_dpbf16ps_512(sum, __builtin_bit_cast(halves, a),
                                     __builtin_bit_cast(halves, b));
#else
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#endif
}
)"},
    // Of what dot_bf16 gives, which is no denormal.
    {"bf16_of_sums", "f32", 2, 64, R"(OXY_INLINE $u16 @@($T x) {
  $u16 r;
#if defined(__clang__)
  typedef __bf16 halves __attribute__((vector_size(32)));
  r = __builtin_bit_cast($u16, __builtin_ia32_cvtneps2bf16_512_mask(x, (halves){}, -1));
#else
  asm("vcvtneps2bf16 %1, %0" : "=v"(r) : "v"(x));
#endif
  return r;
}
)"},
    {"f32_of_f16", "u16", 1, 0, R"(OXY_INLINE f32 @@(u16 x) {
#if defined(__F16C__)
  typedef short halves __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps((halves){(short)x})[0];
#else
  u32 sign = (u32)(x & 0x8000) << 16;
  u32 magnitude = x & 0x7fff;
  if (magnitude >= 0x7c00) {
    return __builtin_bit_cast(f32, sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  f32 scaled = __builtin_bit_cast(f32, magnitude << 13) * 0x1p112f;
  return __builtin_bit_cast(f32, sign | __builtin_bit_cast(u32, scaled));
#endif
}
)"},
    {"f16_of_f32", "f32", 1, 0, R"(OXY_INLINE u16 @@(f32 x) {
#if defined(__F16C__)
  typedef f32 floats __attribute__((vector_size(16)));
  return (u16)__builtin_ia32_vcvtps2ph((floats){x}, 4)[0];
#else
  u32 bits = __builtin_bit_cast(u32, x);
  u32 sign = bits >> 16 & 0x8000;
  u32 magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (u16)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (u16)(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    f32 shifted = __builtin_bit_cast(f32, magnitude) + 0.5f;
    return (u16)(sign | (__builtin_bit_cast(u32, shifted) - 0x3f000000));
  }
  u32 even = magnitude >> 13 & 1;
  return (u16)(sign | (magnitude - 0x38000000 + 0xfff + even) >> 13);
#endif
}
)"},
    // LLVM would move a comparison of what is converted in front of the conversion, where it
    // compares one lane after the other: hence the empty asm.
    {"f32_of_f16", "u16", 2, 0, R"(OXY_INLINE $f32 @@($u16 x) {
  $f32 r;
#if defined(__AVX512F__) && $N % 16 == 0
  typedef short halves __attribute__((vector_size(32)));
  typedef f32 floats __attribute__((vector_size(64)));
  halves from[$N / 16];
  floats to[$N / 16];
  __builtin_memcpy(from, &x, sizeof from);
  OXY_UNROLL
  for (int i = 0; i < $N / 16; ++i) {
    to[i] = __builtin_ia32_vcvtph2ps512_mask(from[i], (floats){}, -1, 4);
    asm("" : "+v"(to[i]));
  }
  __builtin_memcpy(&r, to, sizeof to);
#elif defined(__F16C__) && $N % 8 == 0
  typedef short halves __attribute__((vector_size(16)));
  typedef f32 floats __attribute__((vector_size(32)));
  halves from[$N / 8];
  floats to[$N / 8];
  __builtin_memcpy(from, &x, sizeof from);
  OXY_UNROLL
  for (int i = 0; i < $N / 8; ++i) {
    to[i] = __builtin_ia32_vcvtph2ps256(from[i]);
    asm("" : "+x"(to[i]));
  }
  __builtin_memcpy(&r, to, sizeof to);
#else
  for (int l = 0; l < $N; ++l) r[l] = @f32_of_f16.1(x[l]);
#endif
  return r;
}
)"},
    {"f16_of_f32", "f32", 2, 0, R"(OXY_INLINE $u16 @@($f32 x) {
  $u16 r;
#if defined(__AVX512F__) && $N % 16 == 0
  typedef short halves __attribute__((vector_size(32)));
  typedef f32 floats __attribute__((vector_size(64)));
  halves to[$N / 16];
  floats from[$N / 16];
  __builtin_memcpy(from, &x, sizeof from);
  OXY_UNROLL
  for (int i = 0; i < $N / 16; ++i)
    to[i] = __builtin_ia32_vcvtps2ph512_mask(from[i], 4, (halves){}, -1);
  __builtin_memcpy(&r, to, sizeof to);
#elif defined(__F16C__) && $N % 8 == 0
  typedef short halves __attribute__((vector_size(16)));
  typedef f32 floats __attribute__((vector_size(32)));
  halves to[$N / 8];
  floats from[$N / 8];
  __builtin_memcpy(from, &x, sizeof from);
  OXY_UNROLL
  for (int i = 0; i < $N / 8; ++i) to[i] = __builtin_ia32_vcvtps2ph256(from[i], 4);
  __builtin_memcpy(&r, to, sizeof to);
#else
  for (int l = 0; l < $N; ++l) r[l] = @f16_of_f32.1(x[l]);
#endif
  return r;
}
)"},
};

}  // namespace

std::span<const Piece> operator_pieces() { return kOperatorPieces; }

}  // namespace oxy::codegen::cpp
