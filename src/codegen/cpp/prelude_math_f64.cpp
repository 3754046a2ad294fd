// Functions of f64, inlined into the loop: a table of 16 entries, which is one permutation of two
// vectors of AVX-512, and a short polynomial behind it.
//
// Sums that decide the last bit are carried in two parts (T. Dekker, A floating-point technique for
// extending the available precision, 1971). Coefficients are weighted minimax fits. Where a lane
// has an argument that the short way does not serve, all lanes call the math table's function
// `far`.
#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

namespace {

// Of normal numbers; below 0 there is none, and zeros and infinities are common.
constexpr std::string_view kLogOfF64 = R"(OXY_INLINE $T @@($T x, void* far) {
  $u64 bits = __builtin_bit_cast($u64, x);
  auto usual = bits - 0x0010000000000000 < 0x7fe0000000000000;
  $T e, low, high = @log_parts(x, &e, &low), y = $OP(high, low, e);
  if (__builtin_expect(@any_not(usual), 0)) {
    auto normal = bits - 1 >= 0x000fffffffffffff;
    if (@any_not(normal)) return @call1(x, far);
    $T infinity = @splat(__builtin_inf()), nan = @splat(__builtin_nan(""));
    y = x == @splat(0.0) ? -infinity : (x < infinity ? y : x);
    y = x < @splat(0.0) ? nan : y;
  }
  return y;
}
)";

constexpr Piece kMathOfF64[] = {
    // table[at mod 16]
    {"pick16", "f64", 1, 0,
     "OXY_INLINE f64 @@(const f64* table, u64 at) { return table[at & 15]; }\n"},
    {"pick16", "f64", 2, 64, R"(OXY_INLINE $T @@(const f64* table, $u64 at) {
  $T low = @load(table), high = @load(table + 8);
#if defined(__clang__)
  return __builtin_ia32_vpermi2varpd512(low, ($i64)at, high);
#else
  return __builtin_shuffle(low, high, ($i64)at);
#endif
}
)"},
    {"pick16", "f64", 16, 0, R"(OXY_INLINE $T @@(const f64* table, $u64 at) {
  auto low = @pick16.8(table, __builtin_shufflevector(at, at, 0, 1, 2, 3, 4, 5, 6, 7));
  auto high = @pick16.8(table, __builtin_shufflevector(at, at, 8, 9, 10, 11, 12, 13, 14, 15));
  return __builtin_shufflevector(low, high, $IOTA);
}
)"},
    {"pick16", "f64", 2, 0, R"(OXY_INLINE $T @@(const f64* table, $u64 at) {
  $T v;
  OXY_UNROLL for (int l = 0; l < $N; ++l) v[l] = table[at[l] & 15];
  return v;
}
)"},

    // The polynomial of d with the coefficients from `first` to `last` of one of 16 intervals.
    {"series16", "f", 0, 0, R"(OXY_INLINE $T @@(const $t (*table)[16], int first, int last, $u at,
                                              $T d) {
  $T p = @pick16(table[last], at);
  OXY_UNROLL
  for (int k = last - 1; k >= first; --k) p = @fma(p, d, @pick16(table[k], at));
  return p;
}
)"},

    // log x = e log 2 + high + low: x = 2^e m, m from 0.67 to 1.34, and m / c = 1 + r where c is
    // one of 16 numbers whose logarithms are good to 20 bits more than they have. What m / c is
    // rounded by is part of r.
    {"log_parts", "f64", 0, 0, R"(alignas(64) static const f64 @@_inverses[16] = {
    1.4545452773451155, 1.3913041262598103, 1.333333187691305, 1.2799997965205427,
    1.230769284579127, 1.1851850623572573, 1.1428571667414882, 1.1034480664859123,
    1.0666668350229227, 1.0322580928887357, 1.0, 0.9411764182748961, 0.8888887066681204,
    0.8421052734997401, 0.7999999909065123, 0.7619048374214645};
alignas(64) static const f64 @@_logs[16] = {
    -0.3746933276161702, -0.3302415276198028, -0.28768196322025374, -0.24685991896318718,
    -0.20763940849878418, -0.16989893315932794, -0.13353141352332457, -0.09843988306609255,
    -0.06453867897154875, -0.031748725800542645, 0.0, 0.06062467739935932, 0.11778324065476906,
    0.17185024464571796, 0.22314356268106944, 0.2719336163679745};
OXY_INLINE $T @@($T x, $T* e, $T* low) {
  $u64 bits = __builtin_bit_cast($u64, x);
  $u64 at = bits + 0x000a800000000000;
  $u64 power = at >> 52;
  $T m = __builtin_bit_cast($T, bits - (power << 52) + 0x3ff0000000000000);
  *e = __builtin_bit_cast($T, power + 0x4338000000000000) - @splat(6755399441056767.0);
  at >>= 48;
  $T inverse = @pick16(@@_inverses, at), c = @pick16(@@_logs, at);
  $T ratio = m * inverse;
  $T lost = @fma(m, inverse, -ratio);
  $T near = ratio - @splat(1.0);
  $T r = near + lost;
  $T p = @splat(0.11134970283977604);
  p = @fma(p, r, @splat(-0.1252075597853351));
  p = @fma(p, r, @splat(0.14285692727494254));
  p = @fma(p, r, @splat(-0.1666665328643548));
  p = @fma(p, r, @splat(0.20000000007594676));
  p = @fma(p, r, @splat(-0.2500000000259499));
  p = @fma(p, r, @splat(0.33333333333332543));
  $T square = r * r;
  $T rest = @fma(square * r, p, @fma(square, @splat(-0.5), lost));
  $T high = c + near;
  *low = c - high + near + rest;
  return high;
}
)"},
    {"log_sum", "f64", 0, 0, R"(OXY_INLINE $T @@($T high, $T low, $T e) {
  $T sum = @fma(e, @splat(0.6931471805599453), high);
  $T lost = @fma(e, @splat(0.6931471805599453), -sum) + high;
  return sum + (@fma(e, @splat(2.3190468138462996e-17), low) + lost);
}
)"},
    {"log2_sum", "f64", 0, 0, R"(OXY_INLINE $T @@($T high, $T low, $T e) {
  $T part = high * @splat(1.4426950408889634);
  $T lost = @fma(high, @splat(1.4426950408889634), -part);
  $T rest = @fma(high, @splat(2.0355273740931033e-17), lost);
  rest = @fma(low, @splat(1.4426950408889634), rest);
  $T sum = e + part;
  return sum + (e - sum + part + rest);
}
)"},
    // The first part of log10(2) makes an exact product with e.
    {"log10_sum", "f64", 0, 0, R"(OXY_INLINE $T @@($T high, $T low, $T e) {
  $T part = high * @splat(0.4342944819032518);
  $T lost = @fma(high, @splat(0.4342944819032518), -part);
  $T rest = @fma(low, @splat(0.4342944819032518),
                 @fma(high, @splat(1.098319650216765e-17), lost));
  rest = @fma(e, @splat(1.7336659603752853e-12), rest);
  $T whole = e * @splat(0.30102999566224753);
  $T sum = whole + part;
  return sum + (whole - sum + part + rest);
}
)"},
    {"log", "f64", 0, 0, kLogOfF64, "@log_sum"},
    {"log2", "f64", 0, 0, kLogOfF64, "@log2_sum"},
    {"log10", "f64", 0, 0, kLogOfF64, "@log10_sum"},
    // log1p(x + rest) = log y + c / y, where y is 1 + x rounded and c what the rounding took; above
    // 2^52 the quotient is below what is seen.
    {"log1p_parts", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, $T rest) {
  $T y = x + @splat(1.0);
  auto large = x > @splat(1.0);
  $T c = (large ? @splat(1.0) - (y - x) : x - (y - @splat(1.0))) + rest;
  $T e, low, high = @log_parts(y, &e, &low);
  return @log_sum(high, low + c / y, e);
}
)"},
    {"log1p", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T y = x + @splat(1.0);
  auto usual = (y > @splat(1e-300)) & (y < @splat(1e300));
  if (__builtin_expect(@any_not(usual), 0)) return @call1(x, far);
  return @copysign(@log1p_parts(x, @splat(0.0)), x);
}
)"},
    // asinh x = log1p(a + a^2 / (1 + sqrt(1 + a^2))) of a = |x|; of t = x - 1, acosh x = log1p(t +
    // sqrt(t (x + 1))). In two parts; log 2x where the squares leave the range.
    {"asinh", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*, void* log) {
  $T one = @splat(1.0), a = @abs(x), square = a * a, square_low = @fma(a, a, -square);
  $T w = square + one;
  $T w_low = (square > one ? one - (w - square) : square - (w - one)) + square_low;
  $T s = @sqrt(w), s_low = (@fma(-s, s, w) + w_low) / (s + s);
  $T d = s + one, d_low = one - (d - s) + s_low;
  $T r = square / d, r_low = (@fma(-r, d, square) + square_low - r * d_low) / d;
  $T u = a + r;
  $T y = @log1p_parts(u, r - (u - a) + r_low);
  if (__builtin_expect(@any_not(a < @splat(1e150)), 0)) {
    $T large = @log(a, log) + @splat(0.6931471805599453);
    y = a < @splat(1e150) ? y : large;
  }
  return @copysign(y, x);
}
)"},
    {"acosh", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*, void* log) {
  $T one = @splat(1.0), t = x - one, t_low = x - t - one, q = x + one, q_low = one - (q - x);
  $T p = t * q, p_low = @fma(t, q, -p) + @fma(t, q_low, t_low * q);
  $T s = @sqrt(p), s_low = (@fma(-s, s, p) + p_low) / (s + s + @splat(1e-300));
  $T u = s + t;
  $T y = @log1p_parts(u, t - (u - s) + (t_low + s_low));
  if (__builtin_expect(@any_not((x >= one) & (x < @splat(1e150))), 0)) {
    $T large = @log(x, log) + @splat(0.6931471805599453);
    y = x < @splat(1e150) ? y : large;
    y = x >= one ? y : @splat(__builtin_nan(""));
  }
  return y;
}
)"},
    // log1p(q) / 2, q = 2 |x| / (1 - |x|) in two parts
    {"atanh", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x), one = @splat(1.0);
  if (__builtin_expect(@any_not(size < one), 0)) return @call1(x, far);
  $T q, rest = @twice_over_complement(size, @inverse28(one - size), &q);
  return @copysign(@splat(0.5) * @log1p_parts(q, rest), x);
}
)"},

    // A quarter turn is eight steps: x = n pi / 16 + r + low, exact but for low's last bits while n
    // has 32 bits; n is `at`'s last bits. What is near a multiple of pi / 2 is a difference of two
    // that are alike, whose error is computed (a two-sum).
    {"sixteenths", "f64", 0, 0, R"(OXY_INLINE $T @@($T size, $u64* at, $T* low) {
  $T magic = @splat(6755399441055744.0);
  $T t = @fma(size, @splat(5.092958178940651), magic);
  $T n = t - magic;
  *at = __builtin_bit_cast($u64, t);
  $T near = @fma(n, @splat(-0.19634954084936207), size);
  $T more = n * @splat(-7.654042494670958e-18);
  $T more_low = @fma(n, @splat(-7.654042494670958e-18), -more);
  $T r = near + more;
  $T of_more = r - near;
  *low = (near - (r - of_more)) + (more - of_more) + more_low;
  *low = @fma(n, @splat(1.8717311310739623e-34), *low);
  return r;
}
)"},
    // Of r, sin(r) - r and cos(r) - 1.
    {"turn", "f64", 0, 0, R"(OXY_INLINE $T @@($T size, $u64* at, $T* sine, $T* cosine) {
  $T low, r = @sixteenths(size, at, &low);
  $T s = r * r;
  $T p = @splat(2.755142874055035e-06);
  p = @fma(p, s, @splat(-0.00019841269363824176));
  p = @fma(p, s, @splat(0.008333333333318083));
  p = @fma(p, s, @splat(-0.16666666666666666));
  *sine = @fma(p, s * r, low);
  $T q = @splat(2.4795107889730406e-05);
  q = @fma(q, s, @splat(-0.001388888836371175));
  q = @fma(q, s, @splat(0.04166666666649893));
  q = @fma(q, s, @splat(-0.49999999999999983));
  *cosine = @fma(q, s, -r * low);
  return r;
}
)"},
    // sin(a + r) = sin a + (cos a r + cos a (sin r - r) + sin a (cos r - 1)), in two parts.
    {"sine_parts", "f64", 0, 0, R"(alignas(64) static const f64 @@_sines[16] = {
    0.0, 0.19509032201612828, 0.3826834323650898, 0.5555702330196022, 0.7071067811865476,
    0.8314696123025452, 0.9238795325112867, 0.9807852804032304, 1.0, 0.9807852804032304,
    0.9238795325112867, 0.8314696123025452, 0.7071067811865476, 0.5555702330196022,
    0.3826834323650898, 0.19509032201612828};
alignas(64) static const f64 @@_cosines[16] = {
    1.0, 0.9807852804032304, 0.9238795325112867, 0.8314696123025452, 0.7071067811865476,
    0.5555702330196022, 0.3826834323650898, 0.19509032201612828, 0.0, -0.19509032201612828,
    -0.3826834323650898, -0.5555702330196022, -0.7071067811865476, -0.8314696123025452,
    -0.9238795325112867, -0.9807852804032304};
alignas(64) static const f64 @@_rests[16] = {
    0.0, -7.991079068461731e-18, -1.0050772696461588e-17, 4.709410940561677e-17,
    -4.833646656726457e-17, 1.4073856984728024e-18, 1.7645047084336677e-17,
    1.8546939997825006e-17, 0.0, 1.8546939997825006e-17, 1.7645047084336677e-17,
    1.4073856984728024e-18, -4.833646656726457e-17, 4.709410940561677e-17,
    -1.0050772696461588e-17, -7.991079068461731e-18};
OXY_INLINE $T @@($u64 at, $T r, $T sine, $T cosine, $T* low) {
  $T s = @pick16(@@_sines, at), c = @pick16(@@_cosines, at), rest = @pick16(@@_rests, at);
  $T high = @fma(c, r, s);
  *low = @fma(c, r, s - high) + @fma(c, sine, @fma(s, cosine, rest));
  return high;
}
)"},
    // The angle's half turns decide the sign.
    {"sine_turned", "f64", 0, 0, R"(OXY_INLINE $T @@($u64 at, $T r, $T sine, $T cosine, $u64 sign) {
  $T low, high = @sine_parts(at, r, sine, cosine, &low);
  $u64 turned = (at << 59 ^ sign) & 0x8000000000000000;
  return __builtin_bit_cast($T, __builtin_bit_cast($u64, high + low) ^ turned);
}
)"},
    {"sin", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x), sine, cosine;
  if (__builtin_expect(@any_not(size < @splat(1e8)), 0)) return @call1(x, far);
  $u64 at;
  $T r = @turn(size, &at, &sine, &cosine);
  return @sine_turned(at, r, sine, cosine, __builtin_bit_cast($u64, x));
}
)"},
    {"cos", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x), sine, cosine;
  if (__builtin_expect(@any_not(size < @splat(1e8)), 0)) return @call1(x, far);
  $u64 at;
  $T r = @turn(size, &at, &sine, &cosine);
  return @sine_turned(at + 8, r, sine, cosine, at & 0);
}
)"},
    // tan(a + r) = (sin a + cos a u) / (cos a - sin a u), u = tan r, with x = a + r as above: all
    // sixteen steps of a half turn, so that neither sign nor quotient depend on the step.
    {"tan", "f64", 0, 0, R"(alignas(64) static const f64 @@_sines[16] = {
    0.0, 0.19509032201612828, 0.3826834323650898, 0.5555702330196022, 0.7071067811865476,
    0.8314696123025452, 0.9238795325112867, 0.9807852804032304, 1.0, 0.9807852804032304,
    0.9238795325112867, 0.8314696123025452, 0.7071067811865476, 0.5555702330196022,
    0.3826834323650898, 0.19509032201612828};
alignas(64) static const f64 @@_sine_rests[16] = {
    0.0, -7.991079068461731e-18, -1.0050772696461588e-17, 4.709410940561677e-17,
    -4.833646656726457e-17, 1.4073856984728024e-18, 1.7645047084336677e-17, 1.8546939997825006e-17,
    0.0, 1.8546939997825006e-17, 1.7645047084336677e-17, 1.4073856984728024e-18,
    -4.833646656726457e-17, 4.709410940561677e-17, -1.0050772696461588e-17, -7.991079068461731e-18};
alignas(64) static const f64 @@_cosines[16] = {
    1.0, 0.9807852804032304, 0.9238795325112867, 0.8314696123025452, 0.7071067811865476,
    0.5555702330196022, 0.3826834323650898, 0.19509032201612828, 0.0, -0.19509032201612828,
    -0.3826834323650898, -0.5555702330196022, -0.7071067811865476, -0.8314696123025452,
    -0.9238795325112867, -0.9807852804032304};
alignas(64) static const f64 @@_cosine_rests[16] = {
    0.0, 1.8546939997825006e-17, 1.7645047084336677e-17, 1.4073856984728024e-18,
    -4.833646656726457e-17, 4.709410940561677e-17, -1.0050772696461588e-17, -7.991079068461731e-18,
    0.0, 7.991079068461731e-18, 1.0050772696461588e-17, -4.709410940561677e-17,
    4.833646656726457e-17, -1.4073856984728024e-18, -1.7645047084336677e-17,
    -1.8546939997825006e-17};
OXY_INLINE $T @@($T x, void* far) {
  $T size = @abs(x);
  if (__builtin_expect(@any_not(size < @splat(1e8)), 0)) return @call1(x, far);
  $u64 at;
  $T low, r = @sixteenths(size, &at, &low);
  $T square = r * r;
  $T p = @splat(0.008966083602879234);
  p = @fma(p, square, @splat(0.021868398419638852));
  p = @fma(p, square, @splat(0.05396825920686351));
  p = @fma(p, square, @splat(0.13333333332235267));
  p = @fma(p, square, @splat(0.3333333333333408));
  p = @fma(p, square * r, low);
  $T u = r + p;
  $T rest = r - u + p;
  $T s = @pick16(@@_sines, at), c = @pick16(@@_cosines, at);
  $T top = @fma(c, u, s), bottom = @fma(-s, u, c);
  $T top_low = @fma(c, u, s - top) + @fma(c, rest, @pick16(@@_sine_rests, at));
  $T bottom_low = @fma(-s, u, c - bottom) + @fma(-s, rest, @pick16(@@_cosine_rests, at));
  $T y = @divide_parts(top, top_low, bottom, bottom_low);
  $u64 sign = __builtin_bit_cast($u64, x) & 0x8000000000000000;
  return __builtin_bit_cast($T, __builtin_bit_cast($u64, y) ^ sign);
}
)"},
    // (a + a_low) / (b + b_low), where a and b are the sums rounded: a step of P. Markstein's
    // behind a quotient that is good to 28 bits.
    {"divide_parts", "f64", 0, 0, R"(OXY_INLINE $T @@($T a, $T a_low, $T b, $T b_low) {
  $T one_by = @inverse28(b);
  $T q = a * one_by;
  return @fma(@fma(-q, b, a) + @fma(-q, b_low, a_low), one_by, q);
}
)"},
    // 1 / x to 28 bits at least
    {"inverse28", "f64", 0, 0, "OXY_INLINE $T @@($T x) { return @splat(1.0) / x; }\n"},

    // z + z^3 P(z^2) of z up to tan(pi / 8): x, (x - 1) / (x + 1) or -1 / x, and an eighth or a
    // quarter turn.
    {"atan", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), one = @splat(1.0), none = @splat(0.0);
  auto beyond = size > @splat(2.414213562373095);
  auto middle = (size > @splat(0.41421356237309503)) & (size <= @splat(2.414213562373095));
  $T top = middle ? size - one : size, bottom = middle ? size + one : one;
  top = beyond ? -one : top;
  $T most = @splat(1e300);  // behind which the last bit is the same
  bottom = beyond ? (size > most ? most : size) : bottom;
  $T turn = middle ? @splat(0.7853981633974483) : none;
  $T rest = middle ? @splat(3.061616997868383e-17) : none;
  turn = beyond ? @splat(1.5707963267948966) : turn;
  rest = beyond ? @splat(6.123233995736766e-17) : rest;
  // What the sum and the difference have been rounded by.
  $T top_low = middle ? size - (top + one) : none;
  $T bottom_low = middle ? size - (bottom - one) : none;
  $T one_by = one / bottom;
  $T z = top * one_by;
  rest = @fma(@fma(-z, bottom, top) + @fma(-z, bottom_low, top_low), one_by, rest);
  $T s = z * z;
  $T p = @splat(-0.017920817320369386);
  p = @fma(p, s, @splat(0.038077016381733234));
  p = @fma(p, s, @splat(-0.05039795441882226));
  p = @fma(p, s, @splat(0.058479981081013516));
  p = @fma(p, s, @splat(-0.06663118943507483));
  p = @fma(p, s, @splat(0.07692061514685067));
  p = @fma(p, s, @splat(-0.0909089782982741));
  p = @fma(p, s, @splat(0.11111110785917386));
  p = @fma(p, s, @splat(-0.1428571428024431));
  p = @fma(p, s, @splat(0.19999999999954043));
  p = @fma(p, s, @splat(-0.333333333333332));
  $T high = turn + z;
  $T low = turn - high + z + @fma(p, s * z, rest);
  return @copysign(high + low, x);
}
)"},

    // As of f32: P(s), asin(z) is z + z^3 P(z^2) up to 1 / 2; beyond, 2 asin(z) with z^2 half of
    // 1 - |x|.
    {"asin_rest", "f64", 0, 0, R"(OXY_INLINE $T @@($T z, $T s) {
  $T p = @splat(0.031959161973390826);
  p = @fma(p, s, @splat(-0.01629436387164433));
  p = @fma(p, s, @splat(0.019574093872990823));
  p = @fma(p, s, @splat(0.006510783497550447));
  p = @fma(p, s, @splat(0.012173295873879221));
  p = @fma(p, s, @splat(0.0138845958463958));
  p = @fma(p, s, @splat(0.017359771389191037));
  p = @fma(p, s, @splat(0.022371753502981574));
  p = @fma(p, s, @splat(0.030381959332187968));
  p = @fma(p, s, @splat(0.04464285682345725));
  p = @fma(p, s, @splat(0.0750000000034308));
  p = @fma(p, s, @splat(0.16666666666665383));
  return p * (s * z);
}
)"},
    {"asin", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), turn = @splat(1.5707963267948966);
  auto beyond = size > @splat(0.5);
  $T half = @fma(size, @splat(-0.5), @splat(0.5));
  $T s = beyond ? half : size * size;
  $T z = beyond ? @root(half) : size;
  $T rest = @asin_rest(z, s);
  $T high = @fma(z, @splat(-2.0), turn);
  $T lost = @fma(rest, @splat(-2.0), @splat(6.123233995736766e-17));
  $T low = @fma(z, @splat(-2.0), turn - high) + lost;
  $T y = beyond ? high + low : z + rest;
  return @copysign(y, x);
}
)"},
    {"acos", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), quarter = @splat(1.5707963267948966), turn = @splat(3.141592653589793);
  auto beyond = size > @splat(0.5);
  $T half = @fma(size, @splat(-0.5), @splat(0.5));
  $T s = beyond ? half : x * x;
  $T z = beyond ? @root(half) : x;
  $T rest = @asin_rest(z, s);
  $T high = quarter - z;
  $T near = high + (quarter - high - z - (rest - @splat(6.123233995736766e-17)));
  $T twice = z + z, twice_rest = rest + rest;
  $T low = turn - twice;
  $T behind = low + (turn - low - twice - (twice_rest - @splat(1.2246467991473532e-16)));
  $T away = x < @splat(0.0) ? behind : twice + twice_rest;
  return beyond ? away : near;
}
)"},

    // E / (E + 2), E = e^2x - 1 = 2^n (e^r - 1) + 2^n - 1 in two parts. From 20 on it is 1.
    {"tanh", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), far = @splat(20.0), one = @splat(1.0), two = @splat(2.0);
  $T bounded = size < far ? size : far;
  $T twice = bounded + bounded;
  $T magic = @splat(6755399441055744.0);
  $T t = @fma(twice, @splat(1.4426950408889634), magic);
  $T n = t - magic;
  $T near = @fma(n, @splat(-0.6931471805599453), twice);
  $T shift = n * @splat(-2.3190468138462996e-17);
  $T r = near + shift;
  $T lost = near - r + shift;
  $T p = @splat(2.5112177922676477e-08);
  p = @fma(p, r, @splat(2.7622309970107825e-07));
  p = @fma(p, r, @splat(2.755723570271184e-06));
  p = @fma(p, r, @splat(2.4801516148438906e-05));
  p = @fma(p, r, @splat(0.0001984126989372079));
  p = @fma(p, r, @splat(0.0013888888920657642));
  p = @fma(p, r, @splat(0.008333333333319218));
  p = @fma(p, r, @splat(0.041666666666619646));
  p = @fma(p, r, @splat(0.1666666666666668));
  $T square = r * r;
  $T rest = @fma(square, @splat(0.5), @fma(p, square * r, @fma(lost, r, lost)));
  $T high = r + rest;
  $T low = r - high + rest;
  $T power = __builtin_bit_cast($T, (__builtin_bit_cast($u64, t) << 52) + 0x3ff0000000000000);
  $T less = power - one;
  $T top = @fma(power, high, less);
  $T top_low = @fma(power, high, less - top) + power * low;
  $T bottom = top + two;
  $T bottom_low = (top < two ? two - bottom + top : top - bottom + two) + top_low;
  $T y = @copysign(@divide_parts(top, top_low, bottom, bottom_low), x);
  return x != x ? x : y;
}
)"},
    // 1 - x - x P(x^2) below 1, e^-(x^2) t Q(z) with t = 1 / (x + 3) and z from 0 to 2 linear in
    // it elsewhere, what t and x^2 have been rounded by carried along; 2 minus that below 0.
    {"erfc", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), one = @splat(1.0);
  $T s = x * x;
  $T p = @splat(5.958930743134941e-11);
  p = @fma(p, s, @splat(-1.1373902296430911e-09));
  p = @fma(p, s, @splat(1.4660051998394848e-08));
  p = @fma(p, s, @splat(-1.6350354461959655e-07));
  p = @fma(p, s, @splat(1.6461004480962034e-06));
  p = @fma(p, s, @splat(-1.4925595519506043e-05));
  p = @fma(p, s, @splat(0.00012055331122299266));
  p = @fma(p, s, @splat(-0.0008548326981129666));
  p = @fma(p, s, @splat(0.005223977624823223));
  p = @fma(p, s, @splat(-0.026866170645077334));
  p = @fma(p, s, @splat(0.11283791670954882));
  p = @fma(p, s, @splat(-0.3761263890318375));
  p = @fma(p, s, @splat(0.1283791670955126));
  $T near = @fma(-p, x, one - x);
  $T a = size < @splat(27.5) ? size : @splat(27.5);
  $T bottom = a + @splat(3.0);
  $T lost = a - (bottom - @splat(3.0));
  $T t = one / bottom;
  $T rest = @fma(-t, lost, @fma(-t, bottom, one)) * t;
  $T by = @splat(9.20754716981132);
  $T z = @fma(rest, by, @fma(t, by, @splat(-0.3018867924528302)));
  $T z2 = z * z;
  $T even = @splat(1.4525905933819965e-11);
  even = @fma(even, z2, @splat(5.284685619115353e-09));
  even = @fma(even, z2, @splat(6.180193034676402e-08));
  even = @fma(even, z2, @splat(1.993094205077331e-07));
  even = @fma(even, z2, @splat(-4.1665159410268054e-07));
  even = @fma(even, z2, @splat(-2.8645686698709093e-06));
  even = @fma(even, z2, @splat(0.00027030549041531966));
  even = @fma(even, z2, @splat(0.006141835222278958));
  even = @fma(even, z2, @splat(0.07395083507291596));
  $T odd = @splat(1.5064020647255608e-12);
  odd = @fma(odd, z2, @splat(-5.678090808609372e-10));
  odd = @fma(odd, z2, @splat(-2.4214518598539312e-08));
  odd = @fma(odd, z2, @splat(-1.0559353266941217e-07));
  odd = @fma(odd, z2, @splat(-1.782617631627298e-07));
  odd = @fma(odd, z2, @splat(-2.5050147047756015e-06));
  odd = @fma(odd, z2, @splat(2.9817232518897395e-05));
  odd = @fma(odd, z2, @splat(0.0014468583677330058));
  odd = @fma(odd, z2, @splat(0.022499811376482264));
  $T q = @fma(odd, z, even);
  q = @fma(q, z, @splat(0.22294175322352577));
  q = @fma(q, z, @splat(0.6253246452307514));
  $T square = a * a, magic = @splat(6755399441055744.0);
  $T shifted = @fma(square, @splat(-1.4426950408889634), magic);
  $T n = shifted - magic;
  $T r = @fma(n, @splat(-0.6931471805599453), -square);
  r = @fma(n, @splat(-2.3190468138462996e-17), r) + @fma(-a, a, square);
  $T less = @fma(@exp_series(r), r * r, r), low = q * rest, high = q * t;
  $T e = @scale(high + @fma(high, less, @fma(low, less, low)), n);
  $T far = x < @splat(0.0) ? @splat(2.0) - e : e;
  $T y = size < one ? near : far;
  return x != x ? x : y;
}
)"},
    // -1 below -40.
    {"expm1", "f64", 0, 0, R"(OXY_INLINE $T @@($T x, void* far) {
  $T c = x < @splat(-40.0) ? @splat(-40.0) : x;
  if (__builtin_expect(@any_not(c < @splat(709.0)), 0)) return @call1(x, far);
  $T magic = @splat(6755399441055744.0);
  $T t = @fma(c, @splat(1.4426950408889634), magic);
  $T n = t - magic;
  $T high = @fma(n, @splat(-0.6931471805599453), c);
  $T rest = n * @splat(-2.3190468138462996e-17);
  $T r = high + rest;
  $T low = @fma(@exp_series(r), r * r, rest);
  $T power = __builtin_bit_cast($T, (__builtin_bit_cast($u64, t) << 52) + 0x3ff0000000000000);
  return @copysign(@expm1_joined(power, high, low), x);
}
)"},

    // x P(x - c), where c is the middle of one of 16 intervals up to 6 and P that interval's
    // polynomial, whose first coefficient is good to 10 bits more than it has; 1 beyond.
    {"erf", "f64", 0, 0, R"(alignas(64) static const f64 @@_centers[16] = {
    0.1874999979533527, 0.5624999843830665, 0.9375000322483515, 1.3124999498409124,
    1.6875000312812745, 2.0624999504101424, 2.4374999887303375, 2.812499955282078,
    3.1875000431447233, 3.562499990129538, 3.9374999802445245, 4.312499978495168,
    4.68750005381213, 5.062500013266174, 5.437500031354318, 5.812500038550297};
alignas(64) static const f64 @@_c[13][16] = {
    {1.1152942779326653, 1.0198657061344512, 0.8694425473131744, 0.7135760764919833,
     0.5825124150677198, 0.4831339510488601, 0.4100239841365451, 0.3555307964891333,
     0.31372343100097144, 0.2807016232092018, 0.2539682487157, 0.23188405887951857,
     0.2133333308770797, 0.19753086367974543, 0.18390804491653773, 0.1720430096116457},
    {-0.13810919414214998, -0.35118993412844096, -0.42762450662234447, -0.3901390886117484,
     -0.30642306906137046, -0.2264733308564073, -0.16699824900737845, -0.1262637119997685,
     -0.09840934264473467, -0.078792463563754, -0.06449982005018605, -0.05377021462777325,
     -0.04551110999563668, -0.03901844210444735, -0.033822168984993795, -0.02959879715623241},
    {-0.35281642751540876, -0.19798369566516918, -0.012411767190873281, 0.09573029852018564,
     0.11616056111787097, 0.09377253657612841, 0.0655463484105615, 0.04447965284434678,
     0.030829871768165814, 0.022113710274970902, 0.016380698219282598, 0.012468446174470148,
     0.009709036364127172, 0.007707346559980563, 0.0062201689727041575, 0.005092266143640447},
    {0.08115347642104548, 0.17303996255559026, 0.1394859619652668, 0.052212030373260165,
     -0.008157630033720716, -0.026011633800482183, -0.022477032605518595, -0.015087607644367972,
     -0.009583930866469149, -0.006199434918526179, -0.004159647577201287, -0.002891207461655481,
     -0.0020712600793546926, -0.0015224387950242895, -0.0011439391142400123,
     -0.0008760887930862392},
    {0.09911446455988343, 0.01680487563267054, -0.05178166478150457, -0.054737041554160766,
     -0.02455530356850629, -0.0021058309069817904, 0.004830640596332266, 0.004479641672340366,
     0.002880726534500984, 0.0017272380568793457, 0.001055444968597139, 0.0006703710440486615,
     0.00044186660433748784, 0.00030072858287946436, 0.0002103796044794102, 0.0001507249526237904},
    {-0.02834521145703126, -0.04919309868628798, -0.01901650921280577, 0.012011726736287955,
     0.016185695946848027, 0.007326821052758592, 0.00097500406360368, -0.0008155293375999654,
     -0.0007695670569069017, -0.0004687557216094275, -0.00026667523428575314,
     -0.00015536335386516888, -9.426103177693447e-05, -5.940304892107205e-05,
     -3.869049860946967e-05, -2.5931174415707598e-05},
    {-0.021940918910065776, 0.00456141816022226, 0.017619928362897278, 0.007827143590026658,
     -0.002673688390389492, -0.0039629685745687, -0.0016315510258037528, -0.0002027315218680228,
     0.00013245478577640914, 0.00011593640754220945, 6.618288938136079e-05, 3.5918457962415336e-05,
     2.0103604282643954e-05, 1.1733737836309937e-05, 7.115488670171196e-06, 4.461277185215305e-06},
    {0.007181491270658877, 0.009812363812894482, -0.00040228338245510233, -0.0052609513552214476,
     -0.002140122096191291, 0.0006619989322282063, 0.0008230394033792736, 0.000282944654513969,
     2.574329178414981e-05, -2.0449342286295285e-05, -1.5398386720954997e-05,
     -8.216297933615483e-06, -4.28243069711133e-06, -2.3175198089895696e-06,
     -1.3085881505276177e-06, -7.67531396625902e-07},
    {0.003943443182267902, -0.00220164004545471, -0.00331065928876729, 0.00013946352308760097,
     0.0013571125606997656, 0.00041640954046172834, -0.00016740548852250836,
     -0.00014328714840520108, -3.835180277966575e-05, -1.6789202646479158e-06,
     2.853658798203488e-06, 1.8069165232894251e-06, 9.073181807475388e-07, 4.5750060435739256e-07,
     2.406508745206059e-07, 1.3204820273376853e-07},
    {-0.0014345934500737956, -0.0014759616792000285, 0.00073406876300279, 0.0008855505344746365,
     -0.00011328157763455464, -0.00029497640679066047, -5.3435589235514574e-05,
     3.662458948719465e-05, 2.0393076660439226e-05, 3.993149429613558e-06, -7.410655915033341e-08,
     -3.4671061567786683e-07, -1.8826877800780254e-07, -9.010370700233735e-08,
     -4.424795923978307e-08, -2.2717631892870403e-08},
    {-0.000592957570642833, 0.0005205762905407726, 0.0004061612922596756, -0.000247217939250196,
     -0.00018182533437205217, 5.030891387106723e-05, 5.117974774690223e-05, 2.6249882600571582e-06,
     -6.344700011872151e-06, -2.311378884760242e-06, -3.0573834720433936e-07, 3.55083424059277e-08,
     3.631524465407905e-08, 1.7578548422423754e-08, 8.128889137271148e-09, 3.908163600542384e-09},
    {0.00023327451902913646, 0.00016981086876022492, -0.00017510855755822332,
     -7.592017199384459e-05, 6.985101331246286e-05, 2.575886984642145e-05, -1.3710649837705542e-05,
     -6.617737632556415e-06, 5.53322321918536e-07, 8.417172306511402e-07, 2.0625908375435958e-07,
     1.5880924780456466e-08, -5.257935728247433e-09, -3.3194755809215234e-09,
     -1.4932305969923111e-09, -6.744200465202495e-10},
    {7.526007238677504e-05, -8.749263343593686e-05, -2.9902348359406276e-05, 5.013168252966703e-05,
     6.150687992648767e-06, -1.5355772941139696e-05, -1.6270522179308192e-06,
     2.5953078368147424e-06, 5.601539621901128e-07, -1.683922965560196e-07, -8.550902627026635e-08,
     -1.3798225823463072e-08, -2.1439505160966072e-10, 5.516019035019705e-10,
     2.6946559995169575e-10, 1.1590481478607632e-10}};
OXY_INLINE $T @@($T x, void*) {
  $T size = @abs(x), end = @splat(5.93), one = @splat(1.0);
  auto inside = size < end;
  $T a = inside ? size : end;
  $T t = @fma(a, @splat(2.6666666666666665), @splat(-0.5)) + @splat(6755399441055744.0);
  $u64 at = __builtin_bit_cast($u64, t);
  $T d = a - @pick16(@@_centers, at);
  $T p = @series16(@@_c, 1, 12, at, d);
  $T rest = a * (p * d);
  $T y = @fma(a, @pick16(@@_c[0], at), rest);
  y = y < one ? y : one;
  y = @copysign(inside ? y : one, x);
  return x != x ? x : y;
}
)"},
    // y P(w - c) of w = -log(1 - y^2), where w + 2.5 lies in a quarter of an octave from 2.5 on,
    // of which w is c at the centre. Even and odd powers of P are two chains of additions.
    {"erfinv", "f64", 0, 0, R"(alignas(64) static const f64 @@_centers[16] = {
    33.06953333333333, 0.24953333333333333, 0.7548, 1.2528, 1.9928666666666666,
     2.9978666666666665, 3.997933333333333, 4.990066666666666, 6.511866666666666, 8.4904,
     10.5048, 12.498, 15.4688, 19.505066666666668, 23.5128, 27.5384};
alignas(64) static const f64 @@_c[13][16] = {
    {5.608100645846122, 0.9448044776421748, 1.0668966994661286, 1.1902602517542318,
     1.3754334330904174, 1.623026502162507, 1.858307148570462, 2.077689265795921,
     2.3869527637911547, 2.7467368934294627, 3.0749502108049596, 3.371000510620247,
     3.7721935781256604, 4.260355531229561, 4.697348545543585, 5.100150619544522},
    {0.08780209675505805, 0.23733431528229618, 0.24531450694954343, 0.24953364576648432,
     0.24979588909310244, 0.2416548754521893, 0.22838452976773096, 0.2138468599838023,
     0.193131621590106, 0.1715717592582362, 0.15506451507884222, 0.14250647536235675,
     0.12831201379477286, 0.1143642266155091, 0.10417885862168728, 0.09625127335770382},
    {-0.0006670329225055197, 0.009760786838940607, 0.00602903237484431, 0.0024927602409959082,
     -0.0019318656671302476, -0.005732778329924735, -0.00721979227751824, -0.007268561959419301,
     -0.006238345155401081, -0.004707461290260681, -0.003560095695030503, -0.002789244916924543,
     -0.0020503949275074655, -0.0014601655490166466, -0.001108003491253335,
     -0.0008762724132467772},
    {1.0040509898275038e-05, -0.002433393670510552, -0.0024504180908700864,
     -0.0022521679593755783, -0.0016983059014475906, -0.0008378468786094572,
     -0.00020495540331421538, 0.00012852363794649353, 0.0002726765761115378,
     0.00022726799480264577, 0.00015534864216452008, 0.00010616403986657052,
     6.430153783633304e-05, 3.673001026730459e-05, 2.327035114714583e-05, 1.577978528729343e-05},
    {-1.8791098715859048e-07, -6.855903877179673e-05, 4.9752143052122564e-05,
     0.00014402627178787612, 0.00021566365611426621, 0.00019519684677019852,
     0.00011903814336993189, 5.3257907629692075e-05, 3.287163403477818e-06,
     -9.590693149400583e-06, -7.620675215723773e-06, -4.86215264128032e-06,
     -2.486870951962933e-06, -1.1451268362363796e-06, -6.065457386210608e-07,
     -3.5298196871160315e-07},
    {3.9244524304641955e-09, 4.829055612045827e-05, 4.368091491338856e-05, 3.107108624567699e-05,
     7.790515002329358e-06, -1.2694005200029923e-05, -1.5521158393557994e-05,
     -1.0526843784670558e-05, -3.3420410201863884e-06, -1.0685163294228255e-07,
     3.0948524713702946e-07, 2.279574708940405e-07, 1.0561149736664161e-07,
     3.972988785138094e-08, 1.762090329426512e-08, 8.805916072545739e-09},
    {-8.757575077706828e-11, 2.164300069927377e-07, -3.109287278055615e-06,
     -5.05130460918962e-06, -4.890197921186414e-06, -1.7547248908845088e-06,
     4.83974316103673e-07, 9.801518310288697e-07, 5.283763536890739e-07, 9.819498821315721e-08,
     1.241873668655594e-10, -8.951296601063976e-09, -4.5979847940538595e-09,
     -1.4661601053414885e-09, -5.464164252750284e-10, -2.346310363462143e-10},
    {2.0429576595201225e-12, -1.0351829204627406e-06, -7.8676793836565e-07,
     -3.0974193821561267e-07, 3.129779619617286e-07, 4.503889172955034e-07,
     1.777968434292415e-07, -6.877186923460635e-09, -4.8824366814074874e-08,
     -1.4985493681957128e-08, -2.101102741664421e-09, 8.775054497932076e-11,
     1.883353532606278e-10, 5.5945479508783504e-11, 1.768835455034086e-11, 6.532928859546465e-12},
    {-4.919637828448095e-14, 1.4648488672126447e-08, 1.0088966270663703e-07,
     1.2753747151267204e-07, 6.988945387442103e-08, -2.358351980358099e-08,
     -3.34708210550175e-08, -1.2893862788662501e-08, 1.7769104967125549e-09,
     1.5041749629545754e-09, 3.1559961243083623e-10, 3.613906344613587e-11, -5.899206076669e-12,
     -2.1446895414571848e-12, -5.893431838418531e-13, -1.8769101173233008e-13},
    {1.2129481985295826e-15, 2.2859370939257837e-08, 1.328395362912012e-08,
     -1.3198403966350681e-09, -1.2875834274337655e-08, -5.49155832716296e-09,
     1.8438999821735622e-09, 2.0747847460884345e-09, 2.813978061971891e-10,
     -1.0121270834945716e-10, -3.203847172214097e-11, -5.486627174477815e-12,
     -1.2193032374606152e-14, 7.899277212278112e-14, 1.996347942919071e-14, 5.517901075842872e-15},
    {-3.045254758305302e-17, -6.963650086395381e-10, -2.790221644277477e-09,
     -2.715286251839709e-09, -2.794713726105148e-10, 1.1114786524377066e-09,
     2.926717623499039e-10, -1.3020528841422207e-10, -6.462584145215366e-11,
     2.2912576743655787e-12, 2.4752526281377294e-12, 5.47199998403854e-13, 2.538716481776636e-14,
     -2.536939426515299e-15, -6.771522544773573e-16, -1.6493069306725084e-16},
    {7.978677873031596e-19, -5.104334360001141e-10, -1.9146773656947557e-10,
     1.9448610984692447e-10, 2.9216510125230065e-10, -2.8813000825508207e-11,
     -7.150661773489069e-11, -1.0471233525225742e-11, 6.730932119133297e-12,
     5.62994099416407e-13, -1.3437209515715421e-13, -4.364584493013686e-14,
     -3.2588959466828116e-15, 4.4010268278757625e-17, 2.264957095658423e-17,
     5.040618684000035e-18},
    {-2.1161079042659535e-20, 2.3472341843856675e-11, 7.065618004128525e-11,
     4.878639801032543e-11, -2.04572535050365e-11, -1.7321361991514894e-11,
     5.098588518484028e-12, 3.3794604728906726e-12, -2.83802467009821e-13,
     -1.0003407730774982e-13, 2.3290579182190033e-15, 2.758553401288355e-15,
     2.663579397197639e-16, 2.4632534944089836e-18, -6.948669456146822e-19,
     -1.5490286938490084e-19}};
OXY_INLINE $T @@($T y, $T w) {
  $T place = w + @splat(2.5);
  $u64 at = __builtin_bit_cast($u64, place) >> 50;
  $T d = w - @pick16(@@_centers, at);
  $T square = d * d, p = @pick16(@@_c[12], at), q = @pick16(@@_c[11], at);
  OXY_UNROLL
  for (int k = 10; k > 0; k -= 2) {
    p = @fma(p, square, @pick16(@@_c[k], at));
    q = @fma(q, square, @pick16(@@_c[k - 1], at));
  }
  p = @fma(p, d, q);
  $T x = @fma(y, @pick16(@@_c[0], at), y * (p * d));
  return @copysign(@abs(y) == @splat(1.0) ? @splat(__builtin_inf()) : x, y);
}
)"},
};

}  // namespace

std::span<const Piece> f64_math_pieces() { return kMathOfF64; }

}  // namespace oxy::codegen::cpp
