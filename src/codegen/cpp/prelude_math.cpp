// Vector polynomials for the functions of models, each within about 1 ulp of the true value,
// inlined into the loop.
//
// The coefficients are weighted minimax fits in double precision, rounded to f32. Arguments that
// the short way does not serve (overflow, denormal results, large angles) take a second way, all
// lanes together, so that the usual vector pays one compare. Functions that are not here are calls
// through the math table.
#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

namespace {

// Of positive normal numbers; of others, all lanes together, what the logarithm is there.
constexpr std::string_view kLog = R"(OXY_INLINE $T @@($T x) {
  auto usual = __builtin_bit_cast($u32, x) - 0x00800000 < 0x7f000000;
  const b8 special = @any_not(usual);
  $T y = x, e;
  $T bias = @splat(0.0f);
  if (__builtin_expect(special, 0)) {
    auto tiny = x < @splat(1.17549435e-38f);
    $T raised = x * @splat(8388608.0f);
    y = tiny ? raised : x;
    bias = tiny ? @splat(-23.0f) : bias;
  }
  $T r = @log_split(y, &e);
  $T result = $OP(r, e + bias, @splat(0.0f));
  if (__builtin_expect(special, 0)) result = @log_special(y, result);
  return result;
}
)";

// Sleef's give infinity where the square overflows.
constexpr std::string_view kAreaFunction = R"(OXY_INLINE $T @@($T x, void* f, void* log) {
  $T y = @call1(x, f), size = @abs(x), most = @splat(1e18f);
  if (__builtin_expect(@any_not(size <= most), 0)) {
    $T large = @call1(size, log) + @splat(0.693147181f);
    y = $OP;
  }
  return y;
}
)";

constexpr Piece kMathPieces[] = {
    {"asinh", "f32", 0, 0, kAreaFunction, "size > most ? @copysign(large, x) : y"},
    {"acosh", "f32", 0, 0, kAreaFunction, "x > most ? large : y"},
    // e^x = 2^n e^r with n = round(x / ln 2); adding 1.5 * 2^23 rounds to an integer and leaves it
    // in the low bits.
    {"exp_reduced", "f32", 0, 0, R"(OXY_INLINE $T @@($T r) {
  $T q = @splat(0.00139507174f);
  q = @fma(q, r, @splat(0.00836902577f));
  q = @fma(q, r, @splat(0.0416662022f));
  q = @fma(q, r, @splat(0.166665182f));
  q = @fma(q, r, @splat(0.5f));
  $T square = r * r;
  $T p = @fma(q, square, r);
  return p + @splat(1.0f);
}
)"},
    // x 2^n, n an integer, in two products: the power itself may be none.
    {"scale", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, $T n) {
  $i32 k = @i32_of_f32(n), half = k >> 1;
  $T y = x * __builtin_bit_cast($T, (half + 127) << 23);
  return y * __builtin_bit_cast($T, (k - half + 127) << 23);
}
)"},
    {"exp_any", "f32", 0, 0, R"(static __attribute__((noinline)) $T @@($T x) {
  $T high = @splat(104.5f);
  $T low = @splat(-104.5f);
  $T c = x > high ? high : x;
  c = c < low ? low : c;
  $T magic = @splat(12582912.0f);
  $T t = @fma(c, @splat(1.44269504f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-0.693147182f), c);
  r = @fma(n, @splat(1.90465421e-9f), r);
  $T p = @exp_reduced(r);
  $T y = @scale(p, n);
  return x != x ? x : y;
}
)"},
    // Lanes that are 0, as those of a mask are, stay on the short way.
    {"exp", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  auto none = x < @splat(-104.5f);
  auto usual = (size < @splat(87.0f)) | none;
  if (__builtin_expect(@any_not(usual), 0)) return @exp_any(x);
  $T magic = @splat(12582912.0f);
  $T t = @fma(x, @splat(1.44269504f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-0.693147182f), x);
  r = @fma(n, @splat(1.90465421e-9f), r);
  $T p = @exp_reduced(r);
  $u32 shift = __builtin_bit_cast($u32, t) << 23;
  $T y = __builtin_bit_cast($T, __builtin_bit_cast($u32, p) + shift);
  return none ? @splat(0.0f) : y;
}
)"},
    // 2^x = 2^n 2^r, where r is at most a half and exact. Where the result is 0, 0 is scaled: what
    // rounds to 0 is slow. Within 0.8 ulp.
    {"exp2", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T high = @splat(129.0f), low = @splat(-150.0f), magic = @splat(12582912.0f);
  $T c = x > high ? high : x;
  c = c < low ? low : c;
  $T n = c + magic - magic;
  $T r = c - n;
  $T p = @splat(0.00015326461f);
  p = @fma(p, r, @splat(0.0013390806f));
  p = @fma(p, r, @splat(0.009618506f));
  p = @fma(p, r, @splat(0.0555036f));
  p = @fma(p, r, @splat(0.24022648f));
  p = @fma(p, r, @splat(0.6931472f));
  p = @fma(p, r, @splat(1.0f));
  $T y = @scale(x <= low ? @splat(0.0f) : p, n);
  return x != x ? x : y;
}
)"},
    {"scale", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, $T n) {
  $T magic = @splat(6755399441056767.0), half = @fma(n, @splat(0.5), magic);
  $T other = n - (half - magic) + magic;
  $T y = x * __builtin_bit_cast($T, __builtin_bit_cast($u64, half) << 52);
  return y * __builtin_bit_cast($T, __builtin_bit_cast($u64, other) << 52);
}
)"},
    // e^r = 1 + r + r^2 P(r).
    {"exp_series", "f64", 0, 0, R"(OXY_INLINE $T @@($T r) {
  $T q = @splat(2.4999852868185495e-08);
  q = @fma(q, r, @splat(2.7630523070764084e-07));
  q = @fma(q, r, @splat(2.7557588437438057e-06));
  q = @fma(q, r, @splat(2.4801492389487458e-05));
  q = @fma(q, r, @splat(0.00019841269502726355));
  q = @fma(q, r, @splat(0.0013888888944247981));
  q = @fma(q, r, @splat(0.008333333333496926));
  q = @fma(q, r, @splat(0.04166666666652811));
  q = @fma(q, r, @splat(0.16666666666666408));
  return @fma(q, r, @splat(0.5000000000000011));
}
)"},
    // The same to 53 bits; the second way is the math table's.
    {"exp", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  auto none = x < @splat(-746.0);
  auto usual = (@abs(x) < @splat(708.0)) | none;
  if (__builtin_expect(@any_not(usual), 0)) return @call1(x, far);
  $T magic = @splat(6755399441055744.0);
  $T t = @fma(x, @splat(1.4426950408889634), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-0.6931471805599453), x);
  r = @fma(n, @splat(-2.3190468138462996e-17), r);
  $T p = @fma(@exp_series(r), r * r, r) + @splat(1.0);
  $u64 shift = __builtin_bit_cast($u64, t) << 52;
  $T y = __builtin_bit_cast($T, __builtin_bit_cast($u64, p) + shift);
  return none ? @splat(0.0) : y;
}
)"},
    // x / d, correctly rounded: for sizes from 2^-60 to 2^60, and 0, two steps of P. Markstein
    // (Computation of elementary functions on the IBM RISC System/6000 processor, 1990), since 1 /
    // d is. For others, and -0, the division itself.
    {"divide_by", "f32", 2, 64, R"(OXY_INLINE $T @@($T x, f32 d) {
  $u32 bits = __builtin_bit_cast($u32, x);
  auto usual = ((bits & 0x7fffffff) - 0x21800000 < 0x3c000000) | (bits == 0);
  b8 fits = (__builtin_bit_cast(u32, d) & 0x7fffffff) - 0x21800000 < 0x3c000000;
  $T by = @splat(d), one_by = @splat(1.0f / d);
  $T q = x * one_by;
  q = @fma(@fma(-q, by, x), one_by, q);
  q = @fma(@fma(-q, by, x), one_by, q);
  if (__builtin_expect(@any_not(usual & @splat.i32(fits ? -1 : 0)), 0)) return x / by;
  return q;
}
)"},
    {"any_not", "f", 1, 0, "OXY_INLINE b8 @@(b8 m) { return !m; }\n"},
    {"any_not", "f32", 2, 0, "OXY_INLINE b8 @@($i32 m) { return @any.i32(~m); }\n"},
    {"any_not", "f64", 2, 0, "OXY_INLINE b8 @@($i64 m) { return @any.i64(~m); }\n"},

    // expm1 x = 2^n expm1(r) + 2^n - 1: what r's larger part adds to 2^n - 1 is rounded once, and
    // the rounding (T. Dekker's fast sum of two) is added with the rest.
    {"expm1_joined", "f", 0, 0, R"(OXY_INLINE $T @@($T power, $T high, $T low) {
  $T less = power - @splat(1);
  $T sum = @fma(power, high, less);
  $T rounding = @fma(power, high, less - sum);
  return sum + @fma(power, low, rounding);
}
)"},
    // -1 below -30.
    {"expm1_usual", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T magic = @splat(12582912.0f);
  $T t = @fma(x, @splat(1.44269504f), magic);
  $T n = t - magic;
  $T high = @fma(n, @splat(-0.693147182f), x);
  $T rest = n * @splat(1.90465421e-9f);
  $T r = high + rest;
  $T q = @splat(0.000198461508f);
  q = @fma(q, r, @splat(0.00139416091f));
  q = @fma(q, r, @splat(0.00833339151f));
  q = @fma(q, r, @splat(0.0416663475f));
  q = @fma(q, r, @splat(0.166666657f));
  q = @fma(q, r, @splat(0.5f));
  $T square = r * r;
  $T low = @fma(q, square, rest);
  $T power = __builtin_bit_cast($T, (__builtin_bit_cast($u32, t) << 23) + 0x3f800000);
  return @copysign(@expm1_joined(power, high, low), x);
}
)"},
    {"expm1_any", "f32", 0, 0, R"(static __attribute__((noinline)) $T @@($T x) {
  $T high = @splat(87.0f);
  $T y = @expm1_usual(x > high ? high : x), large = @exp_any(x);
  y = x > high ? large : y;
  return x != x ? x : y;
}
)"},
    {"expm1", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T low = @splat(-30.0f);
  $T c = x < low ? low : x;
  if (__builtin_expect(@any_not(c < @splat(87.0f)), 0)) return @expm1_any(c);
  return @expm1_usual(c);
}
)"},

    // log1p(r) - r for 1 + r in [sqrt(1/2), sqrt(2)); `more` is small, and added.
    {"log_rest", "f32", 0, 0, R"(OXY_INLINE $T @@($T r, $T more) {
  $T p = @splat(-0.0763422549f);
  p = @fma(p, r, @splat(0.127614677f));
  p = @fma(p, r, @splat(-0.131602332f));
  p = @fma(p, r, @splat(0.142017767f));
  p = @fma(p, r, @splat(-0.16623354f));
  p = @fma(p, r, @splat(0.200012267f));
  p = @fma(p, r, @splat(-0.250008225f));
  p = @fma(p, r, @splat(0.333333313f));
  $T square = r * r;
  $T cube = square * r;
  $T low = @fma(cube, p, more);
  return @fma(square, @splat(-0.5f), low);
}
)"},
    // log(2^e (1 + r)) to each base: e and log1p(r) times constants in two parts, of which e's
    // first one makes an exact product. What the first sum of base 2 and 10 is rounded by is
    // carried along.
    {"log_reduced", "f32", 0, 0, R"(OXY_INLINE $T @@($T r, $T e, $T more) {
  $T low = @log_rest(r, @fma(e, @splat(-1.90465421e-9f), more));
  $T sum = r + low;
  return @fma(e, @splat(0.693147182f), sum);
}
)"},
    {"log2_reduced", "f32", 0, 0, R"(OXY_INLINE $T @@($T r, $T e, $T more) {
  $T low = r * @splat(1.92596303e-8f);
  low = @fma(@log_rest(r, more), @splat(1.44269502f), low);
  $T sum = @fma(r, @splat(1.44269502f), e);
  return sum + (@fma(r, @splat(1.44269502f), e - sum) + low);
}
)"},
    {"log10_reduced", "f32", 0, 0, R"(OXY_INLINE $T @@($T r, $T e, $T more) {
  $T low = @fma(r, @splat(-1.010305e-08f), e * @splat(0.000248745666f));
  low = @fma(@log_rest(r, more), @splat(0.434294492f), low);
  $T whole = e * @splat(0.30078125f);
  $T sum = @fma(r, @splat(0.434294492f), whole);
  return sum + (@fma(r, @splat(0.434294492f), whole - sum) + low);
}
)"},
    // Of a sum y that is not a subnormal number, or of such a number's y.
    {"log_special", "f32", 0, 0, R"(OXY_INLINE $T @@($T y, $T result) {
  $T infinity = @splat(__builtin_inff());
  result = y == infinity ? infinity : result;
  result = y == @splat(0.0f) ? -infinity : result;
  result = y < @splat(0.0f) ? @splat(__builtin_nanf("")) : result;
  return y != y ? y : result;
}
)"},
    {"log_split", "f32", 0, 0, R"(OXY_INLINE $T @@($T y, $T* e) {
  $i32 bits = __builtin_bit_cast($i32, y);
  $i32 power = (bits - 0x3f3504f3) >> 23;
  *e = @f32_of_i32(power);
  return __builtin_bit_cast($T, bits - (power << 23)) - @splat(1.0f);
}
)"},
    {"log", "f32", 0, 0, kLog, "@log_reduced"},
    {"log2", "f32", 0, 0, kLog, "@log2_reduced"},
    {"log10", "f32", 0, 0, kLog, "@log10_reduced"},
    // log1p x = log y + c / y, where y is 1 + x rounded and c what the rounding took. With
    // y = 2^e m and m = 1 + r, 1 / m is (1 - r) (1 + r^2) up to r^4, of which c's last bits see
    // nothing.
    // `rest` is added to x.
    {"log1p_parts", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, $T rest) {
  $T y = x + @splat(1.0f);
  $T c = x - (y - @splat(1.0f)) + rest;
  $i32 bits = __builtin_bit_cast($i32, y);
  $i32 e = (bits - 0x3f3504f3) >> 23;
  $T m = __builtin_bit_cast($T, bits - (e << 23));
  $i32 most = @splat.i32(126);
  c *= __builtin_bit_cast($T, (127 - (e < most ? e : most)) << 23);
  $T r = m - @splat(1.0f);
  $T inverse = @splat(1.0f) - r;
  inverse = @fma(inverse, r * r, inverse);
  return @log_special(y, @log_reduced(r, @f32_of_i32(e), c * inverse));
}
)"},
    {"log1p", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  return @copysign(@log1p_parts(x, @splat(0.0f)), x);
}
)"},
    // q = 2 x / (1 - x), of 0 <= x < 1, with 1 / (1 - x) about `one_by`; what q has been rounded by
    {"twice_over_complement", "f", 0, 0, R"(OXY_INLINE $T @@($T x, $T one_by, $T* q) {
  $T one = @splat(1), bottom = one - x, top = x + x;
  $T bottom_low = one - bottom - x;
  $T estimate = top * one_by;
  *q = @fma(@fma(-estimate, bottom, top), one_by, estimate);
  return @fma(-*q, bottom_low, @fma(-*q, bottom, top)) * one_by;
}
)"},
    // log1p(q) / 2, q = 2 |x| / (1 - |x|) in two parts
    {"atanh", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x), one = @splat(1.0f);
  $T q, rest = @twice_over_complement(size, one / (one - size), &q);
  $T y = @splat(0.5f) * @log1p_parts(q, rest);
  return @copysign(size == one ? @splat(__builtin_inff()) : y, x);
}
)"},
    {"i32_of_f32", "f32", 1, 0, "OXY_INLINE i32 @@(f32 x) { return (i32)x; }\n"},
    {"i32_of_f32", "f32", 2, 0,
     "OXY_INLINE $i32 @@($f32 x) { return __builtin_convertvector(x, $i32); }\n"},
    {"f32_of_i32", "f32", 1, 0, "OXY_INLINE f32 @@(i32 x) { return (f32)x; }\n"},
    {"f32_of_i32", "f32", 2, 0,
     "OXY_INLINE $f32 @@($i32 x) { return __builtin_convertvector(x, $f32); }\n"},

    // sin of r + n pi, |r| <= pi / 2: the sign of n's parity, then an odd polynomial, which is 1
    // at pi / 2 and nowhere more. `turn` is n's parity in bit 31.
    {"sin_reduced", "f32", 0, 0, R"(OXY_INLINE $T @@($T r, $u32 turn) {
  $T s = r * r;
  $T p = @splat(-2.38865994e-08f);
  p = @fma(p, s, @splat(2.7525202e-06f));
  p = @fma(p, s, @splat(-0.00019840883f));
  p = @fma(p, s, @splat(0.008333327f));
  p = @fma(p, s, @splat(-0.16666666f));
  $T cube = s * r;
  $T y = @fma(p, cube, r);
  return __builtin_bit_cast($T, __builtin_bit_cast($u32, y) ^ turn);
}
)"},
    // Three parts of pi: the first product is exact by fma, so r is right to an ulp up to the
    // bound.
    {"sin", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x);
  auto usual = size < @splat(30000.0f);
  if (__builtin_expect(@any_not(usual), 0)) return @call1(x, far);
  $T magic = @splat(12582912.0f);
  $T t = @fma(size, @splat(0.318309886f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-3.14159274f), size);
  r = @fma(n, @splat(8.74227766e-08f), r);
  r = @fma(n, @splat(3.43024902e-15f), r);
  $u32 turn = __builtin_bit_cast($u32, t) << 31;
  $u32 sign = __builtin_bit_cast($u32, x) & 0x80000000;
  return @sin_reduced(r, turn ^ sign);
}
)"},
    // cos x = sin(x + pi / 2): n is the nearest half-integer. Of the smallest x, where 1 - cos x is
    // all that matters to some, it is 1 and not an ulp less.
    {"cos", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x);
  auto usual = size < @splat(30000.0f);
  if (__builtin_expect(@any_not(usual), 0)) return @call1(x, far);
  $T magic = @splat(12582912.0f);
  $T shifted = @fma(x, @splat(0.318309886f), @splat(0.5f));
  $T t = shifted + magic;
  $T n = t - magic;
  n = n - @splat(0.5f);
  $T r = @fma(n, @splat(-3.14159274f), x);
  r = @fma(n, @splat(8.74227766e-08f), r);
  r = @fma(n, @splat(3.43024902e-15f), r);
  $u32 turn = __builtin_bit_cast($u32, t) << 31;
  return size < @splat(0.00024414062f) ? @splat(1.0f) : @sin_reduced(r, turn);
}
)"},

    // tan of r + n pi / 2, |r| <= pi / 4: an odd polynomial, of which n's parity takes -1 / tan.
    {"tan", "f32", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x);
  auto usual = size < @splat(15000.0f);
  if (__builtin_expect(@any_not(usual), 0)) return @call1(x, far);
  $T magic = @splat(12582912.0f);
  $T t = @fma(size, @splat(0.636619772f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-1.57079637f), size);
  r = @fma(n, @splat(4.37113883e-08f), r);
  r = @fma(n, @splat(1.71512451e-15f), r);
  $T s = r * r;
  $T p = @splat(0.00438706717f);
  p = @fma(p, s, @splat(6.82218015e-05f));
  p = @fma(p, s, @splat(0.0108521655f));
  p = @fma(p, s, @splat(0.0212760624f));
  p = @fma(p, s, @splat(0.0540610664f));
  p = @fma(p, s, @splat(0.13332653f));
  p = @fma(p, s, @splat(0.333333492f));
  $T cube = s * r;
  $T y = @fma(p, cube, r);
  auto odd = (__builtin_bit_cast($i32, t) & 1) != 0;
  $T turned = @splat(-1.0f) / y;
  y = odd ? turned : y;
  $u32 sign = __builtin_bit_cast($u32, x) & 0x80000000;
  return __builtin_bit_cast($T, __builtin_bit_cast($u32, y) ^ sign);
}
)"},

    // z + z^3 P(z^2) of z = |x| up to 1, pi / 2 less that of 1 / |x| beyond.
    {"atan", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x), one = @splat(1.0f);
  auto beyond = size > one;
  $T inverse = @splat(-1.0f) / size;
  $T z = beyond ? inverse : size;
  $T s = z * z;
  $T p = @splat(-0.00179359387f);
  p = @fma(p, s, @splat(0.0109144812f));
  p = @fma(p, s, @splat(-0.0311776139f));
  p = @fma(p, s, @splat(0.0579573587f));
  p = @fma(p, s, @splat(-0.0840343684f));
  p = @fma(p, s, @splat(0.109521814f));
  p = @fma(p, s, @splat(-0.142642409f));
  p = @fma(p, s, @splat(0.199985489f));
  p = @fma(p, s, @splat(-0.333332986f));
  $T cube = s * z;
  $T rest = beyond ? @splat(-4.37113883e-08f) : @splat(0.0f);
  $T y = z + @fma(p, cube, rest);
  y = y + (beyond ? @splat(1.57079637f) : @splat(0.0f));
  return @copysign(y, x);
}
)"},

    // P(s): asin(z) is z + z^3 P(z^2) up to 1 / 2; asin and acos beyond are made of 2 asin(z) with
    // z^2 = (1 - |x|) / 2.
    {"asin_rest", "f32", 0, 0, R"(OXY_INLINE $T @@($T z, $T s) {
  $T p = @splat(0.0422185473f);
  p = @fma(p, s, @splat(0.0241476111f));
  p = @fma(p, s, @splat(0.045477096f));
  p = @fma(p, s, @splat(0.0749524161f));
  p = @fma(p, s, @splat(0.166667536f));
  return p * (s * z);
}
)"},
    {"asin", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  auto beyond = size > @splat(0.5f);
  $T half = @fma(size, @splat(-0.5f), @splat(0.5f));
  $T s = beyond ? half : size * size;
  $T z = beyond ? @root(half) : size;
  $T rest = @asin_rest(z, s);
  $T away = @fma(z, @splat(-2.0f), @fma(rest, @splat(-2.0f), @splat(-4.37113883e-08f)));
  $T y = beyond ? away + @splat(1.57079637f) : z + rest;
  return @copysign(y, x);
}
)"},
    {"acos", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  auto beyond = size > @splat(0.5f);
  $T half = @fma(size, @splat(-0.5f), @splat(0.5f));
  $T s = beyond ? half : x * x;
  $T z = beyond ? @root(half) : x;
  $T rest = @asin_rest(z, s);
  $T near = @splat(1.57079637f) - (z + (rest + @splat(4.37113883e-08f)));
  $T twice = @fma(rest, @splat(2.0f), z + z);
  $T behind = @splat(3.14159274f) - (twice + @splat(8.74227766e-08f));
  $T away = x < @splat(0.0f) ? behind : twice;
  return beyond ? away : near;
}
)"},

    // Odd polynomial near 0, 1 - 2 / (e^2x + 1) elsewhere.
    {"tanh", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  $T s = x * x;
  $T p = @splat(-0.00589517225f);
  p = @fma(p, s, @splat(0.0207959842f));
  p = @fma(p, s, @splat(-0.053783834f));
  p = @fma(p, s, @splat(0.133319244f));
  p = @fma(p, s, @splat(-0.333332986f));
  $T cube = s * size;
  $T near = @fma(p, cube, size);
  $T bounded = size < @splat(10.0f) ? size : @splat(10.0f);
  $T twice = bounded + bounded;
  $T magic = @splat(12582912.0f);
  $T t = @fma(twice, @splat(1.44269504f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-0.693147182f), twice);
  r = @fma(n, @splat(1.90465421e-9f), r);
  $T e = @exp_reduced(r);
  $u32 shift = __builtin_bit_cast($u32, t) << 23;
  e = __builtin_bit_cast($T, __builtin_bit_cast($u32, e) + shift);
  $T bottom = e + @splat(1.0f);
  $T ratio = @splat(2.0f) / bottom;
  $T away = @splat(1.0f) - ratio;
  $T y = size < @splat(0.6f) ? near : away;
  y = @copysign(y, x);
  return x != x ? x : y;
}
)"},

    // P(s): erf(x) is x + x P(x^2) near 0.
    {"erf_near", "f32", 0, 0, R"(OXY_INLINE $T @@($T s) {
  $T p = @splat(8.51339792e-05f);
  p = @fma(p, s, @splat(-0.000817571708f));
  p = @fma(p, s, @splat(0.00520386687f));
  p = @fma(p, s, @splat(-0.0268605128f));
  p = @fma(p, s, @splat(0.112837151f));
  p = @fma(p, s, @splat(-0.376126349f));
  p = @fma(p, s, @splat(0.128379166f));
  return p;
}
)"},

    // x + x P(x^2) near 0, 1 - e^-(x + x Q(x)) elsewhere, 1 beyond 4.
    {"erf", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  $T p = @erf_near(x * x);
  $T near = @fma(p, x, x);
  $T a = size < @splat(3.95f) ? size : @splat(3.95f);
  $T q = @splat(-1.04337805e-05f);
  q = @fma(q, a, @splat(0.000314864417f));
  q = @fma(q, a, @splat(-0.00361036626f));
  q = @fma(q, a, @splat(0.0236946139f));
  q = @fma(q, a, @splat(-0.106159098f));
  q = @fma(q, a, @splat(-0.635197997f));
  q = @fma(q, a, @splat(-0.128637075f));
  $T power = @fma(q, a, -a);
  $T magic = @splat(12582912.0f);
  $T t = @fma(power, @splat(1.44269504f), magic);
  $T n = t - magic;
  $T r = @fma(n, @splat(-0.693147182f), power);
  r = @fma(n, @splat(1.90465421e-9f), r);
  $T e = @exp_reduced(r);
  $u32 shift = __builtin_bit_cast($u32, t) << 23;
  e = __builtin_bit_cast($T, __builtin_bit_cast($u32, e) + shift);
  $T away = @splat(1.0f) - e;
  away = @copysign(away, x);
  $T y = size < @splat(0.9f) ? near : away;
  return x != x ? x : y;
}
)"},

    // 2^x for x <= 0; 0 below -126.
    {"exp2_of_negative", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T low = @splat(-127.0f), magic = @splat(12582912.0f);
  $T c = low > x ? low : x;
  $T t = c + magic;
  $T r = c - (t - magic);
  $T p = @splat(0.00132645999f);
  p = @fma(p, r, @splat(0.00967151113f));
  p = @fma(p, r, @splat(0.0555073395f));
  p = @fma(p, r, @splat(0.240222424f));
  p = @fma(p, r, @splat(0.693147004f));
  p = @fma(p, r, @splat(1.0f));
  $u32 shift = __builtin_bit_cast($u32, t) << 23;
  return __builtin_bit_cast($T, __builtin_bit_cast($u32, p) + shift);
}
)"},
    // max(x, 0) - |x| Q(|x|) with the normal distribution's tail Q(a) = 2^(a P(a) - 1). Within
    // 9.1e-8 |x|.
    {"gelu", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T far = @splat(16.0f), zero = @splat(-0.0f);
  $T size = @abs(far < x ? far : x);
  $T a = far < size ? far : size;
  $T a2 = a * a;
  $T even = @splat(3.9379007e-05f);
  even = @fma(even, a2, @splat(-0.00013692652f));
  even = @fma(even, a2, @splat(-0.052496172f));
  even = @fma(even, a2, @splat(-1.1511052f));
  $T odd = @splat(-2.8350457e-06f);
  odd = @fma(odd, a2, @splat(-0.00018618534f));
  odd = @fma(odd, a2, @splat(0.0070634102f));
  odd = @fma(odd, a2, @splat(-0.4592082f));
  $T power = @fma(@fma(odd, a, even), a, @splat(-1.0f));
  return @fma(-size, @exp2_of_negative(power), zero > x ? zero : x);
}
)"},
    // Its derivative: S(|x|) below 0 and 1 - S(|x|) above, where S(a) = Q(a) - a q(a), q is the
    // density, and Q(a) / q(a) a polynomial of t = 1 / (1 + 0.275 a) (as C. Hastings,
    // Approximations for digital computers, 1955, has it of erf). Within 1.9e-7.
    {"gelu_slope", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T far = @splat(16.0f), one = @splat(1.0f);
  $T size = @abs(x);
  $T a = far < size ? far : size;
  $T density = @exp2_of_negative(a * a * @splat(-0.72134752f));
  $T t = one / @fma(a, @splat(0.275f), one);
  $T p = @splat(-0.11485835f);
  p = @fma(p, t, @splat(0.45199877f));
  p = @fma(p, t, @splat(-0.3309935f));
  p = @fma(p, t, @splat(0.33393237f));
  p = @fma(p, t, @splat(0.04211145f));
  p = @fma(p, t, @splat(0.11780926f));
  $T s = @fma(density, @fma(p, t, a * @splat(-0.39894228f)), x - x);
  return x < @splat(0.0f) ? s : one - s;
}
)"},

    // 1 - x - x P(x^2) near 0, e^-(x^2) t Q(1 - 6 t) with t = 1 / (x + 3) elsewhere, what t and x^2
    // have been rounded by carried along; 2 minus that below 0. Within 4.1 ulp, 0.4 in the mean.
    {"erfc", "f32", 0, 0, R"(OXY_INLINE $T @@($T x) {
  $T size = @abs(x);
  $T p = @erf_near(x * x);
  $T near = @fma(-p, x, @splat(1.0f) - x);
  $T a = size < @splat(10.5f) ? size : @splat(10.5f);
  $T bottom = a + @splat(3.0f);
  $T lost = a - (bottom - @splat(3.0f));
  $T t = @splat(1.0f) / bottom;
  $T rest = @fma(-t, lost, @fma(-t, bottom, @splat(1.0f))) * t;
  $T z = @fma(rest, @splat(-6.0f), @fma(t, @splat(-6.0f), @splat(1.0f)));
  $T q = @splat(-0.000326256384f);
  q = @fma(q, z, @splat(-0.000483571552f));
  q = @fma(q, z, @splat(0.00308213732f));
  q = @fma(q, z, @splat(-0.00122546358f));
  q = @fma(q, z, @splat(-0.0268405695f));
  q = @fma(q, z, @splat(0.119528718f));
  q = @fma(q, z, @splat(-0.310465902f));
  q = @fma(q, z, @splat(0.590228319f));
  q = @fma(q, z, @splat(-0.88339448f));
  q = @fma(q, z, @splat(1.07400692f));
  q = @fma(q, rest, q * t);
  $T square = a * a;
  $T magic = @splat(12582912.0f);
  $T n = @fma(square, @splat(-1.44269504f), magic) - magic;
  $T r = @fma(n, @splat(-0.693147182f), -square);
  r = @fma(n, @splat(1.90465421e-9f), r) + @fma(-a, a, square);
  $T e = q * @exp_reduced(r);
  e = @scale(size < @splat(10.5f) ? e : @splat(0.0f), n);
  $T far = x < @splat(0.0f) ? @splat(2.0f) - e : e;
  $T y = size < @splat(0.5f) ? near : far;
  return x != x ? x : y;
}
)"},

    // y P, of w = -log(1 - y^2) (M. Giles, Approximating the erfinv function, GPU Computing Gems
    // Jade Edition, 2011)
    {"erfinv", "f32", 0, 0, R"(OXY_INLINE $T @@($T y, $T w) {
  $T near = w - @splat(2.5f), far = @root(w) - @splat(3.0f);
  $T p = @splat(2.81022636e-08f);
  p = @fma(p, near, @splat(3.43273939e-07f));
  p = @fma(p, near, @splat(-3.5233877e-06f));
  p = @fma(p, near, @splat(-4.39150654e-06f));
  p = @fma(p, near, @splat(0.00021858087f));
  p = @fma(p, near, @splat(-0.00125372503f));
  p = @fma(p, near, @splat(-0.00417768164f));
  p = @fma(p, near, @splat(0.246640727f));
  p = @fma(p, near, @splat(1.50140941f));
  $T q = @splat(-0.000200214257f);
  q = @fma(q, far, @splat(0.000100950558f));
  q = @fma(q, far, @splat(0.00134934322f));
  q = @fma(q, far, @splat(-0.00367342844f));
  q = @fma(q, far, @splat(0.00573950773f));
  q = @fma(q, far, @splat(-0.0076224613f));
  q = @fma(q, far, @splat(0.00943887047f));
  q = @fma(q, far, @splat(1.00167406f));
  q = @fma(q, far, @splat(2.83297682f));
  $T x = y * (w < @splat(5.0f) ? p : q);
  return @copysign(@abs(y) == @splat(1.0f) ? @splat(__builtin_inff()) : x, y);
}
)"},

    // Two steps of R. Goldschmidt's and one of P. Markstein's from an estimate of 14 bits. Of f64
    // the sum before its rounding is within 2^-49 ulp of the root, and the roots that lie so near
    // to the middle of two numbers are those of some thirty significands: test_math.cpp tries them.
    {"root", "f64", 2, 64, R"(OXY_INLINE $T @@($T x) {
  auto usual = __builtin_bit_cast($u64, x) - 0x1000000000000000 < 0x5fe0000000000000;
  $T half = @splat(0.5);
  $T estimate = @rsqrt14(x);
  $T y = x * estimate, h = estimate * half;
  $T r = @fma(-y, h, half);
  y = @fma(y, r, y);
  h = @fma(h, r, h);
  r = @fma(-y, h, half);
  y = @fma(y, r, y);
  h = @fma(h, r, h);
  y = @fma(@fma(-y, y, x), h, y);
  if (__builtin_expect(@any_not(usual), 0)) return @sqrt(x);
  return y;
}
)"},
    {"root", "f32", 2, 64, R"(OXY_INLINE $T @@($T x) {
  auto usual = __builtin_bit_cast($u32, x) - 0x20000000 < 0x5f800000;
  $T half = @splat(0.5f);
  $T estimate = @rsqrt14(x);
  $T y = x * estimate, h = estimate * half;
  $T r = @fma(-y, h, half);
  y = @fma(y, r, y);
  h = @fma(h, r, h);
  y = @fma(@fma(-y, y, x), h, y);
  if (__builtin_expect(@any_not(usual), 0)) return @sqrt(x);
  return y;
}
)"},
    {"root", "f", 0, 0, "OXY_INLINE $T @@($T x) { return @sqrt(x); }\n"},
    {"rsqrt14", "f64", 2, 64,
     "OXY_INLINE $T @@($T x) { return __builtin_ia32_rsqrt14pd512_mask(x, x, -1); }\n"},
    {"rsqrt14", "f32", 2, 64,
     "OXY_INLINE $T @@($T x) { return __builtin_ia32_rsqrt14ps512_mask(x, x, -1); }\n"},

    // A function of the math table, which takes vectors of the machine's width: `f` on each part of
    // x.
    {"call1", "", 0, 0, R"(OXY_INLINE $T @@($T x, void* f) {
  typedef $host part;
  $T r;
  if (sizeof($T) >= sizeof(part)) {
    for (unsigned i = 0; i < sizeof($T) / sizeof(part); ++i) {
      part a;
      __builtin_memcpy(&a, (const char*)&x + i * sizeof a, sizeof a);
      a = ((part(*)(part))f)(a);
      __builtin_memcpy((char*)&r + i * sizeof a, &a, sizeof a);
    }
  } else {
    part a = {};
    __builtin_memcpy(&a, &x, sizeof x);
    a = ((part(*)(part))f)(a);
    __builtin_memcpy(&r, &a, sizeof r);
  }
  return r;
}
)"},
    {"call2", "", 0, 0, R"(OXY_INLINE $T @@($T x, $T y, void* f) {
  typedef $host part;
  $T r;
  if (sizeof($T) >= sizeof(part)) {
    for (unsigned i = 0; i < sizeof($T) / sizeof(part); ++i) {
      part a, b;
      __builtin_memcpy(&a, (const char*)&x + i * sizeof a, sizeof a);
      __builtin_memcpy(&b, (const char*)&y + i * sizeof b, sizeof b);
      a = ((part(*)(part, part))f)(a, b);
      __builtin_memcpy((char*)&r + i * sizeof a, &a, sizeof a);
    }
  } else {
    part a = {}, b = {};
    __builtin_memcpy(&a, &x, sizeof x);
    __builtin_memcpy(&b, &y, sizeof y);
    a = ((part(*)(part, part))f)(a, b);
    __builtin_memcpy(&r, &a, sizeof r);
  }
  return r;
}
)"},
};

}  // namespace

std::span<const Piece> math_pieces() { return kMathPieces; }

}  // namespace oxy::codegen::cpp
