// Pieces that move data between memory and registers: contiguous, partial, reversed, strided, by
// index, past the cache.
#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

namespace {

// The first n > 0 lanes of a vector of bytes or halves, by the instructions for it. The others are
// 0 and their memory is not touched.
#define OXY_PART(bytes, bits, element, kind)                                             \
  Piece{"load_part", #bytes, 2, bits / 8,                                                \
        "OXY_INLINE $T @@(const $t* p, i64 n) {\n"                                       \
        "#if defined(__clang__) && defined(__AVX512BW__) && defined(__AVX512VL__)\n"     \
        "  typedef " element                                                             \
        " V __attribute__((vector_size($B)));\n"                                         \
        "  return ($T)__builtin_ia32_loaddqu" kind #bits                                 \
        "_mask((const V*)p, (V){}, (u64)-1 >> (64 - n));\n"                              \
        "#else\n"                                                                        \
        "  return @load_words(p, n);\n"                                                  \
        "#endif\n"                                                                       \
        "}\n"},                                                                          \
      Piece{"store_part", #bytes, 2, bits / 8,                                           \
            "OXY_INLINE void @@($t* p, $T v, i64 n) {\n"                                 \
            "#if defined(__clang__) && defined(__AVX512BW__) && defined(__AVX512VL__)\n" \
            "  typedef " element                                                         \
            " V __attribute__((vector_size($B)));\n"                                     \
            "  __builtin_ia32_storedqu" kind #bits                                       \
            "_mask((V*)p, (V)v, (u64)-1 >> (64 - n));\n"                                 \
            "#else\n"                                                                    \
            "  @store_words(p, v, n);\n"                                                 \
            "#endif\n"                                                                   \
            "}\n"}

// Elements of 2 or 1 bytes (shift: 1 or 2) out of the words of four that they lie in: a word is in
// one page.
constexpr std::string_view kGatherPart = R"(OXY_INLINE $T @@(const $t* p, $i32 at, $i32 m) {
  $i32 place = at + @splat.i32((i32)(((u64)p & 3) >> (2 - $OP)));
  $i32 word = @gather_if.i32((const i32*)((u64)p & ~(u64)3), place >> $OP, m);
  $u32 bits = ($u32)(place & ((1 << $OP) - 1)) * (32 >> $OP);
  return __builtin_convertvector(($u32)word >> bits, $T);
}
)";
constexpr std::string_view kGatherAll =
    "OXY_INLINE $T @@(const $t* p, $i32 at) { return @gather_if(p, at, ~($i32){}); }\n";

// Elements of 2 or 1 bytes.
constexpr std::string_view kLoadIf = R"(OXY_INLINE $T @@(const $t* p, $i32 m) {
#if defined(__clang__) && defined(__AVX512BW__) && defined(__AVX512VL__) && $N == 16
#if $B == 32
  typedef short V __attribute__((vector_size($B)));
#else
  typedef char V __attribute__((vector_size($B)));
#endif
  return ($T)$OP((const V*)p, (V){}, __builtin_ia32_cvtd2mask512(m));
#else
  if (!@any.i32(~m)) return @load(p);
  $T v = {};
  for (int l = 0; l < $N; ++l) if (m[l]) v[l] = p[l];
  return v;
#endif
}
)";

// A part of a square of `side` by `side` elements.
#define OXY_TRANSPOSE_EDGE(side)                                                             \
  "static void @@($t* to, i64 pitch, const $t* from, i64 stride, i64 rows, i64 columns) {\n" \
  "  typedef $t V __attribute__((vector_size(" #side                                         \
  " * sizeof($t))));\n"                                                                      \
  "  V r[" #side                                                                             \
  "];\n"                                                                                     \
  "  OXY_UNROLL\n"                                                                           \
  "  for (int k = 0; k < " #side                                                             \
  "; ++k)\n"                                                                                 \
  "    r[k] = k < columns ? (V)@load_edge." #side                                            \
  "(from + stride * k, rows) : (V){};\n"                                                     \
  "  @transpose_lanes." #side                                                                \
  "(r);\n"                                                                                   \
  "  OXY_UNROLL\n"                                                                           \
  "  for (int k = 0; k < " #side                                                             \
  "; ++k)\n"                                                                                 \
  "    if (k < rows) @store_edge." #side                                                     \
  "(to + pitch * k, r[k], columns);\n"                                                       \
  "}\n"

constexpr Piece kMemoryPieces[] = {
    {"splat", "", 1, 0, "OXY_INLINE $T @@($T x) { return x; }\n"},
    {"splat", "", 2, 0, "OXY_INLINE $T @@($t x) { return x - ($T){}; }\n"},
    {"iota", "", 2, 0, "OXY_INLINE $T @@() { return ($T){$IOTA}; }\n"},
    {"reverse", "", 2, 0,
     "OXY_INLINE $T @@($T x) { return __builtin_shufflevector(x, x, $REV); }\n"},
    // i32 mask of the first n lanes.
    {"first", "i32", 2, 0, "OXY_INLINE $T @@(i64 n) { return @iota() < @splat((i32)n); }\n"},

    {"load", "", 2, 0, "OXY_INLINE $T @@(const $t* p) { return *(const $T_u*)p; }\n"},
    {"store", "", 2, 0, "OXY_INLINE void @@($t* p, $T v) { *($T_u*)p = v; }\n"},
    {"stream", "", 2, 0, R"(OXY_INLINE void @@($t* p, $T v) {
#if defined(__clang__)
  if (((u64)p & ($B - 1)) == 0) {
    __builtin_nontemporal_store(v, ($T*)p);
    return;
  }
#endif
  *($T_u*)p = v;
}
)"},

    // Of up to eight bytes the first n: two pieces that overlap, in a register.
    {"load_bytes", "", 1, 0, R"(OXY_INLINE u64 @@(const char* p, i64 n) {
  u64 all;
  u32 word, last_word;
  u16 half, last_half;
  if (n >= 8) {
    __builtin_memcpy(&all, p, 8);
    return all;
  }
  if (n >= 4) {
    __builtin_memcpy(&word, p, 4);
    __builtin_memcpy(&last_word, p + n - 4, 4);
    return word | (u64)last_word << 8 * (n - 4);
  }
  if (n >= 2) {
    __builtin_memcpy(&half, p, 2);
    __builtin_memcpy(&last_half, p + n - 2, 2);
    return half | (u64)last_half << 8 * (n - 2);
  }
  return n > 0 ? (u8)*p : 0;
}
)"},
    {"store_bytes", "", 1, 0, R"(OXY_INLINE void @@(char* p, u64 all, i64 n) {
  if (n >= 8) {
    __builtin_memcpy(p, &all, 8);
  } else if (n >= 4) {
    u32 word = all, last_word = all >> 8 * (n - 4);
    __builtin_memcpy(p, &word, 4);
    __builtin_memcpy(p + n - 4, &last_word, 4);
  } else if (n >= 2) {
    u16 half = all, last_half = all >> 8 * (n - 2);
    __builtin_memcpy(p, &half, 2);
    __builtin_memcpy(p + n - 2, &last_half, 2);
  } else if (n > 0) {
    *p = all;
  }
}
)"},
    {"load_words", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
#if $B < 8
  u64 all = @load_bytes.1((const char*)p, n * sizeof($t));
  $T v;
  __builtin_memcpy(&v, &all, $B);
  return v;
#else
  typedef u64 Words __attribute__((vector_size($B)));
  Words w = {};
  OXY_UNROLL
  for (int k = 0; k < $B / 8; ++k)
    w[k] = @load_bytes.1((const char*)p + 8 * k, n * sizeof($t) - 8 * k);
  return ($T)w;
#endif
}
)"},
    {"store_words", "", 2, 0, R"(OXY_INLINE void @@($t* p, $T v, i64 n) {
#if $B < 8
  u64 all = 0;
  __builtin_memcpy(&all, &v, $B);
  @store_bytes.1((char*)p, all, n * sizeof($t));
#else
  typedef u64 Words __attribute__((vector_size($B)));
  Words w = (Words)v;
  OXY_UNROLL
  for (int k = 0; k < $B / 8; ++k)
    @store_bytes.1((char*)p + 8 * k, w[k], n * sizeof($t) - 8 * k);
#endif
}
)"},
    // The first n lanes only; the others are 0 and their memory is not touched.
    {"load_part", "4", 2, 32, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
  return ($T)__builtin_ia32_maskloadd256((const $i32*)p, @first.i32(n));
}
)"},
    {"load_part", "8", 2, 32, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
  typedef long long V __attribute__((vector_size(32)));
  return ($T)__builtin_ia32_maskloadq256((const V*)p, (V)(@iota.i64() < @splat.i64(n)));
}
)"},
    {"load_part", "4", 2, 64, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
  return ($T)__builtin_ia32_loaddqusi512_mask((const i32*)p, ($i32){}, (u16)((1u << n) - 1));
}
)"},
    // The same where n is not known: else some of eight elements are faster loaded as they come.
    {"load_edge", "8", 2, 64, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
  typedef long long V __attribute__((vector_size(64)));
  return ($T)__builtin_ia32_loaddqudi512_mask((const long long*)p, (V){}, (u8)((1u << n) - 1));
}
)"},
    OXY_PART(1, 128, "char", "qi"),
    OXY_PART(1, 256, "char", "qi"),
    OXY_PART(1, 512, "char", "qi"),
    OXY_PART(2, 128, "short", "hi"),
    OXY_PART(2, 256, "short", "hi"),
    OXY_PART(2, 512, "short", "hi"),
    // Pairs down two rows that are `row` apart; of the first n columns only.
    {"pairs_of_rows", "u32", 2, 0, R"(OXY_INLINE $T @@(const u16* p, i64 row) {
  return __builtin_convertvector(@load.u16(p), $T) |
         __builtin_convertvector(@load.u16(p + row), $T) << 16;
}
)"},
    {"part_of_pairs_of_rows", "u32", 2, 0, R"(OXY_INLINE $T @@(const u16* p, i64 row, i64 n) {
  return __builtin_convertvector(@load_part.u16(p, n), $T) |
         __builtin_convertvector(@load_part.u16(p + row, n), $T) << 16;
}
)"},
    {"load_part", "", 2, 0, "OXY_INLINE $T @@(const $t* p, i64 n) { return @load_words(p, n); }\n"},
    // Masked stores of AVX2 take a dozen cycles on AMD's processors, loads one.
    {"store_part", "4", 2, 64, R"(OXY_INLINE void @@($t* p, $T v, i64 n) {
  __builtin_ia32_storedqusi512_mask((i32*)p, ($i32)v, (u16)((1u << n) - 1));
}
)"},
    {"store_edge", "8", 2, 64, R"(OXY_INLINE void @@($t* p, $T v, i64 n) {
  typedef long long V __attribute__((vector_size(64)));
  __builtin_ia32_storedqudi512_mask((long long*)p, (V)v, (u8)((1u << n) - 1));
}
)"},
    {"store_part", "", 2, 0, "OXY_INLINE void @@($t* p, $T v, i64 n) { @store_words(p, v, n); }\n"},
    {"load_edge", "", 2, 0, "OXY_INLINE $T @@(const $t* p, i64 n) { return @load_part(p, n); }\n"},
    {"store_edge", "", 2, 0, "OXY_INLINE void @@($t* p, $T v, i64 n) { @store_part(p, v, n); }\n"},
    // Of the lanes of an i32 mask only, the others are 0 and their memory is not touched.
    {"load_if", "1", 2, 0, kLoadIf, "__builtin_ia32_loaddquqi128_mask"},
    {"load_if", "2", 2, 0, kLoadIf, "__builtin_ia32_loaddquhi256_mask"},
    {"load_if", "4", 2, 32, R"(OXY_INLINE $T @@(const $t* p, $i32 m) {
  return ($T)__builtin_ia32_maskloadd256((const $i32*)p, m);
}
)"},
    {"load_if", "4", 2, 64, R"(OXY_INLINE $T @@(const $t* p, $i32 m) {
  return ($T)__builtin_ia32_loaddqusi512_mask((const i32*)p, ($i32){},
                                              __builtin_ia32_cvtd2mask512(m));
}
)"},
    // Lane l lies at p[at[l]]. Where the lanes lie behind the first one and none behind the last
    // one, all within a vector, they are loaded at once and moved to their places; no memory
    // outside of theirs is touched.
    {"gather", "4", 2, 0, R"(OXY_INLINE $T @@(const $t* p, $i32 at) {
#if defined(__clang__)
  $u32 away = ($u32)(at - @splat.i32(at[0])), ends = @splat.u32(away[$R]);
  ends = ends < @splat.u32($R) ? ends : @splat.u32($R);
  if (!@any.i32(($i32)(away > ends)))
    return @permuted(@load_if(p + at[0], ($i32)(@iota.u32() <= ends)), ($i32)away);
#endif
  return @gather_if(p, at, ~($i32){});
}
)"},
    // Lane l lies at p[away[l]], within a vector that may be read.
    {"gather_near", "4", 2, 0, R"(OXY_INLINE $T @@(const $t* p, $i32 away) {
  return @permuted(@load(p), away);
}
)"},
    {"gather_near", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, $i32 away) {
  $i32 from = __builtin_convertvector(@load(p), $i32);
  return __builtin_convertvector(@permuted.i32(from, away), $T);
}
)"},
    // Whether a table of n >= 2 * $N places ascends, by $R or more in all and by no more than that
    // in each vector.
    {"are_near", "i32", 2, 0, R"(OXY_INLINE b8 @@(const i32* t, i64 n) {
  $T far = @load(t + n - $N - 1) > @load(t + n - $N);
  const i64 last = n - $N - $R;
  for (i64 k = 0; k < last + $N; k += $N) {
    const i64 i = k < last ? k : last;
    const $T here = @load(t + i);
    far |= (here > @load(t + i + 1)) | ($T)(($u)(@load(t + i + $R) - here) > @splat.u32($R));
  }
  return !@any(far) && t[n - 1] - t[0] >= $R;
}
)"},
    {"permuted", "4", 2, 32, R"(OXY_INLINE $T @@($T x, $i32 at) {
#if defined(__clang__)
  return ($T)__builtin_ia32_permvarsi256(($i32)x, at);
#else
  return __builtin_shuffle(x, at);
#endif
}
)"},
    {"permuted", "4", 2, 64, R"(OXY_INLINE $T @@($T x, $i32 at) {
#if defined(__clang__)
  return ($T)__builtin_ia32_permvarsi512(($i32)x, at);
#else
  return __builtin_shuffle(x, at);
#endif
}
)"},
    {"gather", "2", 2, 0, kGatherAll},
    {"gather", "1", 2, 0, kGatherAll},
    {"gather", "8", 2, 0,
     "OXY_INLINE $T @@(const $t* p, $i64 at) { return @gather_if(p, at, ~($i32){}); }\n"},
    // Of the lanes of an i32 mask only, the others are 0 and their memory is not touched.
    {"gather_if", "4", 2, 64, R"(OXY_INLINE $T @@(const $t* p, $i32 at, $i32 m) {
  return ($T)__builtin_ia32_gathersiv16si(($i32){}, p, at, __builtin_ia32_cvtd2mask512(m), 4);
}
)"},
    {"gather_if", "4", 2, 32, R"(OXY_INLINE $T @@(const $t* p, $i32 at, $i32 m) {
#if defined(__clang__)
  return ($T)__builtin_ia32_gatherd_d256(($i32){}, (const i32*)p, at, m, 4);
#else
  return ($T)__builtin_ia32_gathersiv8si(($i32){}, (const i32*)p, at, m, 4);
#endif
}
)"},
    {"gather_if", "8", 2, 64, R"(OXY_INLINE $T @@(const $t* p, $i64 at, $i32 m) {
  typedef long long V __attribute__((vector_size(64)));
  return ($T)__builtin_ia32_gatherdiv8di((V){}, p, (V)at, __builtin_ia32_cvtd2mask256(m), 8);
}
)"},
    {"gather_if", "2", 2, 0, kGatherPart, "1"},
    {"gather_if", "1", 2, 0, kGatherPart, "2"},
    {"gather_if", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, $S at, $i32 m) {
  $T v = {};
  for (int l = 0; l < $N; ++l) if (m[l]) v[l] = p[at[l]];
  return v;
}
)"},
    // Lane l lies at p[2 * l], the last one within the second vector's last lane.
    {"load_second", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p) {
  return __builtin_shufflevector(@load(p), @load(p + $R), $SECOND);
}
)"},
    {"load_second_part", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, i64 n) {
  $T low = @load_part(p, 2 * n - 1 < $N ? 2 * n - 1 : $N);
  $T high = 2 * n > $N ? @load_part(p + $R, 2 * n - $N) : ($T){};
  return __builtin_shufflevector(low, high, $SECOND);
}
)"},
    {"load_second_if", "4", 2, 0, R"(OXY_INLINE $T @@(const $t* p, $i32 m) {
  $T low = @load_if(p, __builtin_shufflevector(m, ($i32){}, $LOWSPREAD));
  $T high = @load_if(p + $R, __builtin_shufflevector(m, ($i32){}, $HIGHSPREAD));
  return __builtin_shufflevector(low, high, $SECOND);
}
)"},
    // Lane l lies at p[s * l]. Written out: unrolling a loop at each use takes a third of the time
    // of all passes where there are many.
    {"load_strided", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, i64 s) { return ($T){$LOADS}; }
)"},
    {"load_strided_part", "", 2, 0, R"(OXY_INLINE $T @@(const $t* p, i64 s, i64 n) {
  $T v = {};
  for (i64 l = 0; l < n; ++l) v[l] = p[s * l];
  return v;
}
)"},
    {"store_strided", "", 2, 0, R"(OXY_INLINE void @@($t* p, i64 s, $T v) { $STORES; }
)"},
    {"store_strided_part", "", 2, 0, R"(OXY_INLINE void @@($t* p, i64 s, $T v, i64 n) {
  for (i64 l = 0; l < n; ++l) p[s * l] = v[l];
}
)"},

    // to[pitch * i + j] = from[i + stride * j] for i < rows, j < columns; in squares of 16 or 8.
    {"transpose_squares", "4", 2, 64,
     R"(OXY_INLINE void @@($t* to, i64 pitch, const $t* from, i64 stride) {
  $T r[16];
  OXY_UNROLL
  for (int k = 0; k < 16; ++k) r[k] = @load(from + stride * k);
  @transpose_lanes(r);
  OXY_UNROLL
  for (int k = 0; k < 16; ++k) @store(to + pitch * k, r[k]);
}
)"},
    {"transpose_squares", "", 2, 0,
     R"(OXY_INLINE void @@($t* to, i64 pitch, const $t* from, i64 stride) {
  $T8 r[8];
  OXY_UNROLL
  for (int k = 0; k < 8; ++k) r[k] = @load.8(from + stride * k);
  @transpose_lanes.8(r);
  OXY_UNROLL
  for (int k = 0; k < 8; ++k) @store.8(to + pitch * k, r[k]);
}
)"},
    // The same of a part of a square: vectors of `rows` lanes, of which `columns` are read.
    {"transpose_edge", "4", 2, 64, OXY_TRANSPOSE_EDGE(16)},
    {"transpose_edge", "4", 2, 32, OXY_TRANSPOSE_EDGE(8)},
    {"transpose_edge", "8", 2, 64, OXY_TRANSPOSE_EDGE(8)},
    {"transpose_edge", "2", 2, 32, OXY_TRANSPOSE_EDGE(8)},
    {"transpose_edge", "", 2, 0,
     R"(OXY_INLINE void @@($t* to, i64 pitch, const $t* from, i64 stride, i64 rows, i64 columns) {
  for (i64 i = 0; i < rows; ++i)
    for (i64 k = 0; k < columns; ++k) to[pitch * i + k] = from[i + stride * k];
}
)"},
    {"transpose", "", 2, 0,
     R"(static void @@($t* to, i64 pitch, const $t* from, i64 stride, i64 rows, i64 columns) {
  const i64 side = sizeof($t) == 4 ? $N : 8;
  i64 j = 0;
  for (; j + side <= columns; j += side) {
    i64 i = 0;
    for (; i + side <= rows; i += side)
      @transpose_squares(to + pitch * i + j, pitch, from + i + stride * j, stride);
    if (i < rows)
      @transpose_edge(to + pitch * i + j, pitch, from + i + stride * j, stride, rows - i, side);
  }
  if (j >= columns) return;  // there may be fewer than none
  for (i64 i = 0; i < rows; i += side)
    @transpose_edge(to + pitch * i + j, pitch, from + i + stride * j, stride,
                    rows - i < side ? rows - i : side, columns - j);
}
)"},

    // r[i][j] = r[j][i] of 8 vectors of 8 lanes, or of 16 of 16.
    {"transpose_lanes", "4", 2, 64, R"(OXY_INLINE void @@($T* r) {
  $T t[16], u[16];
  OXY_UNROLL
  for (int k = 0; k < 16; k += 2) {
    t[k] = __builtin_shufflevector(r[k], r[k + 1],
        0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    t[k + 1] = __builtin_shufflevector(r[k], r[k + 1],
        2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  OXY_UNROLL
  for (int k = 0; k < 16; k += 4) {
    OXY_UNROLL
    for (int h = 0; h < 2; ++h) {
      $T a = t[k + h];
      $T b = t[k + h + 2];
      u[k + 2 * h] = __builtin_shufflevector(a, b,
          0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      u[k + 2 * h + 1] = __builtin_shufflevector(a, b,
          2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  OXY_UNROLL
  for (int k = 0; k < 4; ++k) {
    $T a = __builtin_shufflevector(u[k], u[k + 4],
        0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    $T b = __builtin_shufflevector(u[k], u[k + 4],
        4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    $T c = __builtin_shufflevector(u[k + 8], u[k + 12],
        0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    $T d = __builtin_shufflevector(u[k + 8], u[k + 12],
        4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    $T p = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    $T q = __builtin_shufflevector(b, d, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    $T v = __builtin_shufflevector(a, c,
        4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    $T w = __builtin_shufflevector(b, d,
        4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    r[k] = p;
    r[k + 4] = q;
    r[k + 8] = v;
    r[k + 12] = w;
  }
}
)"},
    {"transpose_lanes", "4", 2, 32, R"(OXY_INLINE void @@($T* r) {
  $T t[8], u[8];
  OXY_UNROLL
  for (int k = 0; k < 8; k += 2) {
    t[k] = __builtin_shufflevector(r[k], r[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[k + 1] = __builtin_shufflevector(r[k], r[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  OXY_UNROLL
  for (int k = 0; k < 8; k += 4) {
    u[k] = __builtin_shufflevector(t[k], t[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    u[k + 1] = __builtin_shufflevector(t[k], t[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    u[k + 2] = __builtin_shufflevector(t[k + 1], t[k + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    u[k + 3] = __builtin_shufflevector(t[k + 1], t[k + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  OXY_UNROLL
  for (int k = 0; k < 4; ++k) {
    r[k] = __builtin_shufflevector(u[k], u[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[k + 4] = __builtin_shufflevector(u[k], u[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
)"},
    {"transpose_lanes", "8", 2, 0, R"(OXY_INLINE void @@($T* r) {
  $T t[8], u[8];
  OXY_UNROLL
  for (int k = 0; k < 8; k += 2) {
    t[k] = __builtin_shufflevector(r[k], r[k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[k + 1] = __builtin_shufflevector(r[k], r[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  OXY_UNROLL
  for (int k = 0; k < 8; ++k) {
    $T a = t[k & ~2], b = t[k | 2];
    u[k] = k & 2 ? __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
                 : __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
  }
  OXY_UNROLL
  for (int k = 0; k < 4; ++k) {
    r[k] = __builtin_shufflevector(u[k], u[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[k + 4] = __builtin_shufflevector(u[k], u[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
)"},
    {"transpose_lanes", "", 2, 0, R"(OXY_INLINE void @@($T* r) {
  $T t[8];
  OXY_UNROLL
  for (int round = 0; round < 3; ++round) {
    OXY_UNROLL
    for (int k = 0; k < 8; ++k) t[k] = r[k];
    OXY_UNROLL
    for (int k = 0; k < 4; ++k) {
      r[2 * k] = __builtin_shufflevector(t[k], t[k + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      r[2 * k + 1] = __builtin_shufflevector(t[k], t[k + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  }
}
)"},

    // b8: a byte of 0 or 1 in memory, an i32 of 0 or -1 in a lane.
    {"mask_of", "u8", 2, 0,
     "OXY_INLINE $i32 @@($T v) { return __builtin_convertvector(v, $i32) != 0; }\n"},
    {"bytes_of", "i32", 2, 0,
     "OXY_INLINE $u8 @@($T m) { return __builtin_convertvector(m & 1, $u8); }\n"},

    // True when a mask holds in some of its lanes, in all of them.
    {"any", "i32", 2, 32,
     "OXY_INLINE b8 @@($T m) { return __builtin_ia32_movmskps256(($f32)m) != 0; }\n"},
    {"any", "i32", 2, 64,
     "OXY_INLINE b8 @@($T m) { return (u16)__builtin_ia32_cvtd2mask512(m) != 0; }\n"},
    {"any", "i64", 2, 32,
     "OXY_INLINE b8 @@($T m) { return __builtin_ia32_movmskpd256(($f64)m) != 0; }\n"},
    {"any", "i64", 2, 64,
     "OXY_INLINE b8 @@($T m) { return (u8)__builtin_ia32_cvtq2mask512(m) != 0; }\n"},
    {"any", "", 2, 0, R"(OXY_INLINE b8 @@($T m) {
#if defined(__clang__)
  return __builtin_reduce_or(m) != 0;
#else
  $t any = 0;
  for (int l = 0; l < $N; ++l) any |= m[l];
  return any != 0;
#endif
}
)"},
    {"any", "b8", 1, 0, "OXY_INLINE b8 @@(b8 m) { return m; }\n"},
};

}  // namespace

std::span<const Piece> memory_pieces() { return kMemoryPieces; }

}  // namespace oxy::codegen::cpp
