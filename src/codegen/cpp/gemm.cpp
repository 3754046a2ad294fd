// The emitted text, from the inside out: `tileR` (R rows of A times the packed panel, in
// registers), `pack` (a panel of B), `pointers` (a block's rows), `kernel`. A parallel iteration is
// a block of up to 256 rows of one batch and a panel; panels run innermost, so that a block's
// pointers are made once and its rows stay in the second-level cache. Where they are too many for
// it, all panels take one piece of k before the next.
//
// A step of k is one value, or a pair of bf16 where the machine multiplies pairs: then the panel
// and the rows consist of pairs (`unit`), and sizes along k count them.
//
// Where the machine multiplies tiles of bf16 (AMX), `gridRxC` (one or two tiles of rows times as
// many of columns) takes the place of `tileR`. Of A a tile is 16 rows as they lie, of B 16 steps of
// 16 columns of the panel; both end with zeros where k does.
#include "codegen/cpp/gemm.h"

#include "codegen/cpp/gemm_blocking.h"
#include "codegen/cpp/prelude.h"
#include "support/check.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int kUnrolledRows = tuning::gemm_unrolled_rows;
constexpr int kRowsFinished = tuning::gemm_rows_finished, kSteps = tuning::gemm_steps;
constexpr int kTilesInPlace = tuning::gemm_tiles_in_place;
constexpr int kColumnsAhead = tuning::gemm_columns_ahead;

class GemmEmitter {
 public:
  GemmEmitter(ir::DType dtype, bool to_f32, const Machine& t)
      : prelude_(t),
        lanes_(t.vector_bytes / 4),
        vectors_(tuning::gemm_panel_vectors(t)),
        pairs_(multiplies_pairs(dtype, t)),
        by_tiles_(multiplies_tiles(dtype, t)),
        per_step_(pairs_ ? 2 : 1),
        lines_(is_line(dtype, t)),
        half_(dtype == ir::DType::F32 ? "" : ir::name(dtype)),
        element_(half_.empty() ? "f32" : "u16"),
        result_(to_f32 ? "f32" : element_),
        unit_(pairs_ ? "u32" : "f32") {
    vec_ = prelude_.type("f32", lanes_);
    unit_vec_ = prelude_.type(unit_, lanes_);
    load_ = prelude_.fn("load", "f32", lanes_);
    store_ = prelude_.fn("store", "f32", lanes_);
    load_unit_ = prelude_.fn("load", unit_, lanes_);
    store_unit_ = prelude_.fn("store", unit_, lanes_);
    splat_ = prelude_.fn("splat", unit_, lanes_);
    multiply_add_ = prelude_.fn(pairs_ ? "dot_bf16" : "fma", "f32", lanes_);
  }

  std::string text() {
    shape();
    transpose();
    pack();
    prefetch();
    write_rows();
    if (by_tiles_) {
      configure();
      for (int r = 1; r <= 2; r++)
        for (int c = 1; c <= 2; c++) grid(r, c);
      grids();
    } else {
      for (int r = 1; r <= kTileRows; r++)
        for (int v = 1; v <= vectors_; v++) tile(r, v);
      tiles();
    }
    if (reads_rows()) pointers();
    if (!pairs_) copy_columns();
    copy_rows();
    kernel();
    return cat("// C = A * B + bias", half_.empty() ? ", or a convolution" : " in ", half_,
               half_.empty() || result_ != "f32" ? "" : " to f32", "; see Shape\n", prelude_.text(),
               "typedef ", element_, " element;\ntypedef ", result_, " result;\ntypedef ", unit_,
               " unit __attribute__((aligned(sizeof(element))));\n", body_);
  }

 private:
  // Rows of A are read where they lie.
  bool reads_rows() const { return half_.empty() || pairs_; }
  // And columns (of pairs there are none).
  bool reads_columns() const { return half_.empty(); }
  int width() const { return vectors_ * lanes_; }

  // Elements as f32, and f32 as elements.
  std::string widened(const std::string& value, int lanes = 1) {
    return half_.empty() ? value
                         : cat(prelude_.fn(cat("f32_of_", half_), "u16", lanes), "(", value, ")");
  }
  std::string narrowed(const std::string& value) {
    if (result_ == "f32") return value;
    const std::string piece = pairs_ ? "bf16_of_sums" : cat(half_, "_of_f32");
    return cat(prelude_.fn(piece, "f32", lanes_), "(", value, ")");
  }
  std::string loaded(const std::string& address) {
    return widened(cat(prelude_.fn("load", element_, lanes_), "(", address, ")"), lanes_);
  }
  // A vector of units that follow each other, of the first `count` elements where that is given.
  std::string units(const std::string& address, const std::string& count = "") {
    const std::string piece = count.empty() ? "load" : "load_part";
    const std::string rest = count.empty() ? ")" : cat(", ", count, ")");
    const int elements = lanes_ * per_step_;
    const std::string value = cat(prelude_.fn(piece, element_, elements), "(", address, rest);
    return pairs_ ? cat("(", unit_vec_, ")", value) : widened(value, lanes_);
  }
  // The same across rows of B that are `row` apart.
  std::string units_of_rows(const std::string& address, const std::string& row,
                            const std::string& count = "") {
    if (!pairs_) return units(address, count);
    const std::string piece = count.empty() ? "pairs_of_rows" : "part_of_pairs_of_rows";
    const std::string rest = count.empty() ? ")" : cat(", ", count, ")");
    return cat(prelude_.fn(piece, unit_, lanes_), "(", address, ", ", row, rest);
  }

  // In the order of gemm_parameters.
  void shape() {
    body_ += R"(struct Shape {
  i64 m, n, channels, taps, a_batch, a_row, a_k, b_batch, b_k, b_n, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias;
  i64 pixels, in_h, in_w, out_w, kernel_h, kernel_w;
  i64 stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  i64 panels, row_blocks, rows_per_block, channels_per_panel;
  i64 panel_at, start_at, zeros_at, edge_at, packed, wide_at, together, copy_row, by_piece;
  i64 odd, epilogue, epilogue_at, all_rows, reads, read[];
};
struct Epilogue {
  int (*kernel)(void* const* buffers, long begin, long end, void* scratch, void* const* math);
  void* const* buffers;
};
struct Finish {
  const struct Epilogue* epilogue;
  void* scratch;
  void* const* math;
  i64 iteration, place;
};
)";
  }

  // transpose: `elements` of each of `columns` rows of `from`, of which there may be fewer than
  // lanes, become columns of `steps` rows of units.
  void transpose() {
    cat_to(body_,
           "OXY_INLINE void transpose(const element* from, i64 from_row, unit* to, i64 to_row,"
           " i64 columns, i64 elements, i64 steps) {\n  ",
           unit_vec_, " r[", lanes_, "];\n  if (columns >= ", lanes_, " && steps == ", lanes_,
           " && elements == ", lanes_ * per_step_, ") {\n    OXY_UNROLL\n    for (int i = 0; i < ",
           lanes_, "; ++i) r[i] = ", units("from + i * from_row"),
           ";\n  } else {\n    OXY_UNROLL\n", "    for (int i = 0; i < ", lanes_,
           "; ++i) r[i] = i < columns ? ", units("from + i * from_row", "elements"), " : (",
           unit_vec_, "){};\n  }\n  ", prelude_.fn("transpose_lanes", unit_, lanes_),
           "(r);\n  OXY_UNROLL\n  for (int i = 0; i < ", lanes_, "; ++i)\n    if (i < steps) ",
           store_unit_, "(to + i * to_row, r[i]);\n}\n");
  }

  // pack: to[step][0..wide) = B's panel, in whole vectors; columns beyond `columns` are 0.
  // `odd`: the last pair of k is half a one.
  void pack() {
    const int w = width();
    const std::string row = cat("b + k * ", per_step_, " * s->b_k + n"), next = "s->b_k";
    const std::string none = cat("(", unit_vec_, "){}");
    cat_to(body_,
           "static void pack(const Shape* s, const element* b, unit* to, i64 count, i64 columns, "
           "i64 odd) {\n  const i64 whole = count - odd, wide = (columns + ",
           lanes_ - 1, ") / ", lanes_, " * ", lanes_, ";\n  if (s->b_n == 1 && columns == ", w,
           ")\n    for (i64 k = 0; k < whole; ++k)\n      OXY_UNROLL\n      for (i64 n = 0; n < ",
           w, "; n += ", lanes_, ") ", store_unit_, "(to + k * ", w, " + n, ",
           units_of_rows(row, next), ");\n  else if (s->b_n == 1)\n",
           "    for (i64 k = 0; k < whole; ++k)\n      for (i64 n = 0; n < wide; n += ", lanes_,
           ") ", store_unit_, "(to + k * ", w, " + n, n < columns ? ",
           units_of_rows(row, next, cat("columns - n < ", lanes_, " ? columns - n : ", lanes_)),
           " : ", none, ");\n  else\n    for (i64 k = 0; k < count; k += ", lanes_,
           ") {\n      const i64 steps = count - k < ", lanes_, " ? count - k : ", lanes_,
           ", elements = steps * ", per_step_,
           " - (odd && k + steps == count);\n      for (i64 n = 0; n < wide; n += ", lanes_,
           ")\n        transpose(b + n * s->b_n + k * ", per_step_, ", s->b_n, to + k * ", w,
           " + n, ", w, ", columns - n, elements, steps);\n    }\n");
    if (pairs_)
      cat_to(body_, "  if (s->b_n == 1 && odd)\n    for (i64 n = 0; n < ", w, "; ++n) to[whole * ",
             w, " + n] = n < columns ? b[whole * 2 * s->b_k + n] : 0;\n");
    if (by_tiles_)
      cat_to(body_, "  for (i64 k = count; k % ", kAmxTile,
             "; ++k)\n    for (i64 n = 0; n < wide; n += ", lanes_, ") ", store_unit_, "(to + k * ",
             w, " + n, ", none, ");\n");
    body_ += "}\n";
  }

  std::string multiplied(const std::string& a, const std::string& b, const std::string& sum) {
    return cat(multiply_add_, "(", a, ", ", b, ", ", sum, ")");
  }

  // One step of a tile: `rows` broadcasts, at `k` of each, times `vectors` of the panel; `k` null:
  // they are side by side. With `packs` the panel comes from B, and is written on the way.
  void step(int rows, int vectors, const char* k, bool packs = false) {
    for (int j = 0; j < vectors; j++) {
      const std::string packed = cat("b + ", j * lanes_);
      const std::string from = cat("from + k * ", per_step_, " * from_row + ", j * lanes_);
      cat_to(body_, "        const ", unit_vec_, " p", j, " = ",
             packs ? units_of_rows(from, "from_row") : cat(load_unit_, "(", packed, ")"), ";\n");
      if (packs) cat_to(body_, "        ", store_unit_, "(", packed, ", p", j, ");\n");
    }
    for (int i = 0; i < rows; i++) {
      const std::string at = k ? cat("r", i, "[", k, "]") : cat("q[", i, "]");
      cat_to(body_, "        const ", unit_vec_, " v", i, " = ", splat_, "(", at, ");\n");
      for (int j = 0; j < vectors; j++)
        cat_to(body_, "        x", i, j, " = ",
               multiplied(cat("v", i), cat("p", j), cat("x", i, j)), ";\n");
    }
    body_ += "        b += panel_row;\n";
  }

  // The steps of a tile whose rows are columns of memory: their values at a step are side by side.
  void steps_of_columns(int rows, int vectors) {
    cat_to(body_, "    if (a_k != 1) {\n      const unit* q = r0;\n      i64 ahead = 0;\n");
    const auto loop = [&](const char* condition, bool packs) {
      cat_to(body_, "      for (; ", condition, "k < count; ++k, q += a_k) {\n",
             "        __builtin_prefetch(q + ", kColumnsAhead, " * a_k);\n");
      if (packs)
        body_ += "        prefetch(&next);\n";
      else if (vectors == vectors_ && is_unrolled(rows))
        cat_to(body_, "        if (++ahead % ", kSteps, " == 0) prefetch(&next);\n");
      step(rows, vectors, nullptr, packs);
      body_ += "      }\n";
    };
    if (can_pack(rows, vectors)) loop("from && ", true);
    loop("", false);
    body_ += "    }\n";
  }

  // The others are remainders: text for them takes time to compile and saves little.
  bool is_unrolled(int rows) const { return rows >= kUnrolledRows; }

  // Of the line of a row that is a panel wide: to the first-level cache, for reading or writing.
  void prefetch_line(const std::string& address, int writes) {
    if (lines_) cat_to(body_, "  __builtin_prefetch(", address, ", ", writes, ", 3);\n");
  }

  // The first tile, that is.
  bool can_pack(int rows, int vectors) const { return rows == kTileRows && vectors == vectors_; }

  // Rounding is one instruction, and the result as wide as the tile.
  bool can_round(int vectors) const {
    return (half_.empty() || (pairs_ && result_ != "f32")) && vectors == vectors_;
  }

  // tileRxV: R rows and V vectors; `rows` holds R pointers a tap; `start` is what the accumulators
  // begin with, or null: the tile's own values. `from`: rows of B, one tap, which the panel does
  // not hold yet, or null. `to`: where the sums go rounded, or null.
  void tile(int rows, int vectors) {
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
          write(cat("x", i, j), cat("c + ", i, " * c_row + ", j * lanes_), j);
    };
    cat_to(body_, "static struct Prefetch tile", rows, "x", vectors,
           "(const unit* const* rows, i64 taps, i64 channel, ", reads_columns() ? "i64 a_k, " : "",
           "unit* panel, i64 panel_row, f32* c, i64 c_row, i64 last, i64 count, const f32* start, "
           "struct Prefetch next",
           can_round(vectors) ? ", result* to, i64 to_row" : "",
           can_pack(rows, vectors) ? ", const element* from, i64 from_row) {\n" : ") {\n");
    each([&](const std::string& x, const std::string& c, int j) {
      const std::string start = cat("start + ", j * lanes_);
      cat_to(body_, "  ", vec_, " ", x, " = ");
      if (j + 1 < vectors)
        cat_to(body_, load_, "(start ? ", start, " : ", c, ");\n");
      else
        cat_to(body_, "start ? ", load_, "(", start,
               ") : ", prelude_.fn("load_part", "f32", lanes_), "(", c, ", last);\n");
    });
    if (is_unrolled(rows) && vectors == vectors_)
      for (int i = 0; i < rows; i++) prefetch_line(cat("c + ", i, " * c_row"), 1);
    body_ += "  for (i64 t = 0; t < taps; ++t) {\n";
    for (int i = 0; i < rows; i++)
      cat_to(body_, "    const unit* r", i, " = rows[t * ", rows, " + ", i, "] + channel;\n");
    cat_to(body_, "    unit* b = panel + t * ", width(), ";\n    i64 k = 0;\n");
    if (reads_columns()) steps_of_columns(rows, vectors);
    if (is_unrolled(rows)) {
      const char* ahead = vectors == vectors_ ? "prefetch(&next);\n      " : "";
      if (can_pack(rows, vectors)) {
        body_ += "    if (from)\n      for (; k < count; ++k) {\n        prefetch(&next);\n";
        prefetch_line(cat("from + (k + ", kColumnsAhead, ") * from_row"), 0);
        step(rows, vectors, "k", true);
        body_ += "      }\n";
      }
      cat_to(body_, "    for (; k + ", kSteps, " <= count; k += ", kSteps, ") {\n      ", ahead,
             "OXY_UNROLL\n      for (int j = 0; j < ", kSteps, "; ++j) {\n");
      step(rows, vectors, "k + j");
      body_ += "      }\n    }\n";
    }
    body_ += "    for (; k < count; ++k) {\n";
    step(rows, vectors, "k");
    body_ += "    }\n  }\n";
    if (can_round(vectors)) {
      body_ += "  if (to) {\n";
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
          cat_to(body_, "    ", prelude_.fn("store", element_, lanes_), "(to + ", i, " * to_row + ",
                 j * lanes_, ", ", narrowed(cat("x", i, j)), ");\n");
      body_ += "    return next;\n  }\n";
    }
    auto store = [&](const std::string& x, const std::string& c, int) {
      cat_to(body_, "    ", store_, "(", c, ", ", x, ");\n");
    };
    cat_to(body_, "  if (last == ", lanes_, ") {\n");
    each(store);
    body_ += "  } else {\n";
    each([&](const std::string& x, const std::string& c, int j) {
      if (j + 1 < vectors) return store(x, c, j);
      cat_to(body_, "    ", prelude_.fn("store_part", "f32", lanes_), "(", c, ", ", x,
             ", last);\n");
    });
    body_ += "  }\n  return next;\n}\n";
  }

  // Prefetch: where the panel lies that is worked on next. Its lines are prefetched one at a time
  // on the way through this one's tiles: a burst of them would wait for memory, and the arithmetic
  // with it.
  void prefetch() {
    cat_to(body_, R"(struct Prefetch {
  const element* at;
  i64 left, run, runs, step, skip, second;
};
OXY_INLINE void prefetch(struct Prefetch* f) {
  __builtin_prefetch(f->at, 0, 2);
  __builtin_prefetch((const char*)f->at + f->second, 0, 2);
  f->at += f->step;
  if (--f->left) return;
  f->runs -= 1;
  f->left = f->runs > 0 ? f->run : 1l << 62;
  f->at += f->runs > 0 ? f->skip : 0;
  f->step = f->runs > 0 ? f->step : 0;
}
OXY_INLINE struct Prefetch prefetch_from(const Shape* s, const element* next, i64 groups) {
  const struct Prefetch none = {(const element*)s, 1l << 62, 0, 0, 0, 0, 0};
  if (!next) return none;
  const b8 wide = s->b_n == 1 || s->packed;
  const i64 depth = s->channels_per_panel * s->taps * )",
           per_step_, R"(, length = wide ? )", width(), R"( : depth, runs = wide ? depth : )",
           width(), R"(;
  i64 step = 64 / sizeof(element);
  const b8 pairs = length / step * runs > groups;
  if (pairs) step *= 2;
  // A run that begins inside of a line ends in one more.
  const b8 apart = ((u64)next | (u64)((wide ? s->b_k : s->b_n) * sizeof(element))) & 63;
  const i64 run = (length + step - 1) / step + apart;
  const i64 gap = (wide ? s->b_k : s->b_n) - run * step;
  const struct Prefetch f = {next, run, run, runs, step, gap, pairs ? 64 : 0};
  return f;
}
static int finish(const struct Finish* f, i64 first, i64 m) {
  const i64 begin = f->iteration + first;
  return f->epilogue->kernel(f->epilogue->buffers, begin, begin + m, f->scratch, f->math);
}
static void prefetch_rows(const Shape* s, const struct Finish* f, i64 first, i64 m, i64 columns) {
  for (i64 b = 0; b < s->reads; ++b)
    for (i64 i = first; i < first + m; ++i)
      for (i64 n = 0; n < columns; n += 64 / sizeof(result))
        __builtin_prefetch((const result*)f->epilogue->buffers[s->read[b]] + f->place +
                           i * s->c_row + n, 0, 2);
}
)");
  }

  // write_rows: sums that are not in their place, rounded, to where they belong.
  void write_rows() {
    cat_to(body_,
           R"(static void write_rows(result* to, i64 row, const f32* sums, i64 m, i64 columns) {
  for (i64 i = 0; i < m; ++i) {
    i64 n = 0;
    for (; n + )",
           lanes_, " <= columns; n += ", lanes_, ") ", prelude_.fn("store", result_, lanes_),
           "(to + i * row + n, ", narrowed(cat(load_, "(sums + i * ", width(), " + n)")),
           ");\n    if (n < columns) ", prelude_.fn("store_part", result_, lanes_),
           "(to + i * row + n, ", narrowed(cat(load_, "(sums + i * ", width(), " + n)")),
           ", columns - n);\n  }\n}\n");
  }

  // tiles: a block of rows, cut into tiles whose sizes differ by one at most. Columns beyond
  // `columns` are 0 in the panel; whole vectors of nothing else are left out. Where `to` is given,
  // the sums in `c` are whole and go to it, a few rows at a time; with `start` they need not stay.
  void tiles() {
    cat_to(body_,
           "static int tiles(const Shape* s, i64 m, const unit* const* rows, i64 channel, "
           "unit* panel, f32* c, i64 c_row, ",
           "i64 count, i64 odd, i64 columns, const f32* start, const element* ahead, const "
           "element* b, "
           "result* to, const struct Finish* f) {\n  const i64 tiles = "
           "(m + ",
           kTileRows - 1, ") / ", kTileRows,
           ", size = m / tiles, big = m % tiles, taps = s->taps;\n",
           "  const i64 vectors = (columns + ", lanes_ - 1, ") / ", lanes_,
           ";\n"
           "  const i64 last = columns - (vectors - 1) * ",
           lanes_, ";\n  const b8 whole = size >= ", kUnrolledRows, " && vectors == ", vectors_,
           ", packs = whole && columns == ", width(), " && size + (big > 0) == ", kTileRows,
           " && s->b_n == 1 && taps == 1 && !s->packed && !odd;\n"
           "  const b8 in_place = ",
           half_.empty() ? "" : "0 && ", "vectors < ", vectors_, " && columns % ", lanes_,
           " == 0 && s->b_n == 1 && taps == 1 && !s->packed && (s->b_k <= ", width(),
           " || tiles <= ", kTilesInPlace,
           ");\n"
           "  if (in_place) panel = (unit*)b;\n"
           "  else if (!packs && !s->packed) pack(s, b, panel, count * taps, columns, odd);\n"
           "  const i64 panel_row = in_place ? s->b_k : taps * ",
           width(),
           ";\n  const "
           "element* from = packs ? b : (const element*)0;\n"
           "  const i64 groups = whole ? tiles * (count * taps / ",
           kSteps,
           ") : 0;\n  struct Prefetch next = prefetch_from(s, ahead, groups);\n"
           "  const i64 burst = (next.runs * next.run - groups) / tiles;\n  i64 finished = 0, done "
           "= 0;\n"
           "  int status = 0;\n  f32* const edge = c;\n",
           "  for (i64 i = 0; i < tiles; ++i) {\n    const i64 r = size + (i < big);\n"
           "    for (i64 j = 0; j < burst; ++j) prefetch(&next);\n"
           "    if (f) prefetch_rows(s, f, done, r, columns);\n",
           can_round(vectors_) ? cat("    result* at = to && columns == ", width(),
                                     " ? to + done * s->c_row : (result*)0;\n")
                               : "",
           "    switch (r * ", vectors_ + 1, " + vectors) {\n");
    for (int r = kTileRows; r >= 1; r--)
      for (int v = vectors_; v >= 1; v--)
        cat_to(body_, "      case ", r * (vectors_ + 1) + v, ": next = tile", r, "x", v,
               "(rows, taps, channel, ", reads_columns() ? "s->copy_row ? 1 : s->a_k, " : "",
               "panel, panel_row, c, c_row, last, count, start, next",
               can_round(v) ? ", at, s->c_row" : "", can_pack(r, v) ? ", from, s->b_k" : "",
               "); break;\n");
    cat_to(body_,
           "    }\n    from = (const element*)0;\n    rows += r * taps;\n    c += r * c_row;\n    "
           "done += r;\n    if (done - finished < ",
           kRowsFinished,
           " && i + 1 < tiles) continue;\n"
           "    if (to) {\n",
           can_round(vectors_) ? cat("      if (columns != ", width(), ")\n  ") : "",
           "      write_rows(to + finished * s->c_row, s->c_row, c - (done - finished) * c_row, "
           "done - finished, columns);\n"
           "      c = start ? edge : c;\n    }\n"
           "    if (f) status |= finish(f, finished, done - finished);\n"
           "    finished = done;\n  }\n  return status;\n}\n");
  }

  // The instructions of tiles; configure: the tiles for a group of so many rows. 0 to 3 are sums,
  // row by row; 4 and 5 are of A, 6 and 7 of B. (Our Clang parses no assembly, other compilers know
  // no builtins.)
  void configure() {
    cat_to(body_, R"TEXT(#if defined(__clang__)
#define LOAD_TILE(tile, from, row) __builtin_ia32_tileloadd64(tile, from, row)
#define STORE_TILE(tile, to, row) __builtin_ia32_tilestored64(tile, to, row)
#define MULTIPLY_TILES(sum, a, b) __builtin_ia32_tdpbf16ps(sum, a, b)
#define CONFIGURE_TILES(t) __builtin_ia32_tile_loadconfig(&t)
#define RELEASE_TILES() __builtin_ia32_tilerelease()
#else
#define LOAD_TILE(tile, from, row) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"(row) : "memory")
#define STORE_TILE(tile, to, row) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"(row) : "memory")
#define MULTIPLY_TILES(sum, a, b) \
  asm volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #sum)
#define CONFIGURE_TILES(t) asm volatile("ldtilecfg %0" : : "m"(t))
#define RELEASE_TILES() asm volatile("tilerelease")
#endif
struct Tiles {
  u8 palette, start_row, reserved[14];
  u16 bytes[16];
  u8 rows[16];
};
static void configure(i64 rows) {
  struct Tiles t = {1};
  const u8 first = rows < )TEXT",
           kAmxTile, " ? rows : ", kAmxTile, ", second = rows > ", kAmxTile, " ? rows - ", kAmxTile,
           " : 1;\n  for (int i = 0; i < 8; ++i) t.bytes[i] = 64, t.rows[i] = ", kAmxTile, R"(;
  t.rows[0] = t.rows[1] = t.rows[4] = first;
  t.rows[2] = t.rows[3] = t.rows[5] = second;
  CONFIGURE_TILES(t);
}
)");
  }

  // gridRxC: as tileRxV, of R tiles of rows and C of columns. `a_row` counts bytes.
  void grid(int rows, int columns) {
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) write(2 * i + j, i, j);
    };
    auto load = [&](const char* indent, int tile, const std::string& from, const char* row) {
      cat_to(body_, indent, "LOAD_TILE(", tile, ", ", from, ", ", row, ");\n");
    };
    cat_to(body_, "static void grid", rows, "x", columns,
           "(const char* a, i64 a_row, const unit* b, f32* c, i64 c_row, i64 count, const f32* "
           "start, struct Prefetch* next) {\n  const i64 b_row = ",
           4 * width(), ";\n  c_row *= 4;\n  if (start) {\n");
    each([&](int tile, int, int j) { load("    ", tile, cat("start + ", j * kAmxTile), "0l"); });
    body_ += "  } else {\n";
    auto place = [&](int i, int j) {
      return cat("(char*)(c + ", j * kAmxTile, ") + ", i * kAmxTile, " * c_row");
    };
    each([&](int tile, int i, int j) { load("    ", tile, place(i, j), "c_row"); });
    cat_to(body_, "  }\n  for (i64 k = 0; k < count; k += ", kAmxTile, ") {\n");
    for (int j = 0; j < columns; j++)
      load("    ", 6 + j, cat("b + k * ", width(), " + ", j * kAmxTile), "b_row");
    for (int i = 0; i < rows; i++)
      load("    ", 4 + i, cat("a + k * 4 + ", i * kAmxTile, " * a_row"), "a_row");
    body_ += "    prefetch(next);\n";
    each([&](int tile, int i, int j) {
      cat_to(body_, "    MULTIPLY_TILES(", tile, ", ", 4 + i, ", ", 6 + j, ");\n");
    });
    body_ += "  }\n";
    each([&](int tile, int i, int j) {
      cat_to(body_, "  STORE_TILE(", tile, ", ", place(i, j), ", c_row);\n");
    });
    body_ += "}\n";
  }

  // tiles, of groups of two tiles' rows.
  void grids() {
    cat_to(body_,
           "static int tiles(const Shape* s, i64 m, const unit* const* rows, i64 channel, "
           "unit* panel, f32* c, i64 c_row, i64 count, i64 odd, i64 columns, const f32* start, "
           "const element* ahead, const element* b, result* to, const struct Finish* f) {\n"
           "  const char* a = (const char*)(rows[0] + channel);\n"
           "  const i64 a_row = s->copy_row ? s->copy_row * 4 : s->a_row * 2;\n  if (!s->packed) "
           "pack(s, b, panel, count, columns, odd);\n  const i64 groups = (m + ",
           2 * kAmxTile - 1, ") / ", 2 * kAmxTile, ", pieces = (columns + ", 2 * kAmxTile - 1,
           ") / ", 2 * kAmxTile, ", steps = (count + ", kAmxTile - 1, ") / ", kAmxTile,
           " * groups * pieces;\n  struct Prefetch next = prefetch_from(s, ahead, steps);\n"
           "  const i64 burst = (next.runs * next.run - steps) / groups;\n  i64 known = 0;\n"
           "  int status = 0;\n  f32* const edge = c;\n",
           "  for (i64 done = 0; done < m; done += ", 2 * kAmxTile, ", a += ", 2 * kAmxTile,
           " * a_row) {\n    const i64 r = m - done < ", 2 * kAmxTile,
           " ? m - done : ", 2 * kAmxTile,
           ";\n    if (r != known) configure(r);\n    known = r;\n"
           "    for (i64 j = 0; j < burst; ++j) prefetch(&next);\n"
           "    if (f) prefetch_rows(s, f, done, r, columns);\n",
           "    for (i64 n = 0; n < columns; n += ", 2 * kAmxTile,
           ") {\n      const f32* first = start ? start + n : start;\n      const int kind = (r > ",
           kAmxTile, ") * 2 + (columns - n > ", kAmxTile, ");\n      switch (kind) {\n");
    for (int i = 0; i < 4; i++)
      cat_to(body_, "        case ", i, ": grid", 1 + i / 2, "x", 1 + i % 2,
             "(a, a_row, panel + n, c + n, c_row, count, first, &next); break;\n");
    body_ +=
        "      }\n    }\n    c += r * c_row;\n    if (to) {\n      write_rows(to + done * "
        "s->c_row, "
        "s->c_row, c - r * c_row, r, columns);\n      c = start ? edge : c;\n    }\n"
        "    if (f) status |= finish(f, done, r);\n  }\n  return status;\n}\n";
  }

  // pointers: rows first .. first+m-1 of A, tap by tap within each tile.
  void pointers() {
    cat_to(body_,
           R"(static void pixel(const Shape* s, const element* a, const unit* zeros, i64 at,
                  const unit** to, i64 step) {
  const element* image = a + at / s->pixels * s->a_batch;
  const i64 pixel = at % s->pixels;
  const i64 y = pixel / s->out_w * s->stride_h - s->pad_h;
  const i64 x = pixel % s->out_w * s->stride_w - s->pad_w;
  const i64 across = s->dilation_w * s->a_row, down = s->dilation_h * s->in_w * s->a_row;
  if (y >= 0 && y + (s->kernel_h - 1) * s->dilation_h < s->in_h && x >= 0 &&
      x + (s->kernel_w - 1) * s->dilation_w < s->in_w) {
    const element* row = image + (y * s->in_w + x) * s->a_row;
    for (i64 h = 0; h < s->kernel_h; ++h, row += down) {
      const element* at = row;
      for (i64 w = 0; w < s->kernel_w; ++w, at += across, to += step) *to = (const unit*)at;
    }
    return;
  }
  for (i64 h = 0; h < s->kernel_h; ++h)
    for (i64 w = 0; w < s->kernel_w; ++w) {
      const i64 iy = y + h * s->dilation_h, ix = x + w * s->dilation_w;
      const b8 inside = iy >= 0 && iy < s->in_h && ix >= 0 && ix < s->in_w;
      const element* at = image + (iy * s->in_w + ix) * s->a_row;
      to[(h * s->kernel_w + w) * step] = inside ? (const unit*)at : zeros;
    }
}
static void pointers(const Shape* s, const element* a, const unit* zeros, i64 first, i64 m,
                     const unit** rows) {
  const i64 tiles = (m + )",
           kTileRows - 1, ") / ", kTileRows, R"(, size = m / tiles, big = m % tiles;
  for (i64 i = 0; i < tiles; ++i) {
    const i64 r = size + (i < big);
    for (i64 j = 0; j < r; ++j, ++first)
      if (s->in_h)
        pixel(s, a, zeros, first, rows + j, r);
      else
        rows[j] = (const unit*)(a + first * s->a_row);
    rows += r * s->taps;
  }
}
)");
  }

  // copy_columns: as copy_rows, of an A that lies in columns.
  void copy_columns() {
    cat_to(
        body_,
        R"(static void copy_columns(const Shape* s, const element* a, i64 first, i64 m, i64 count,
                         unit* wide, const unit** rows) {
  for (i64 i = 0; i < m; ++i) rows[i] = wide + i * s->copy_row;
  for (i64 k = 0; k < count; k += )",
        lanes_, ") {\n    const i64 steps = count - k < ", lanes_, " ? count - k : ", lanes_,
        ";\n    for (i64 i = 0; i < m; i += ", lanes_, ") {\n      const i64 left = m - i < ",
        lanes_, " ? m - i : ", lanes_,
        ";\n      const element* from = a + k * s->a_k + first + i;\n      OXY_UNROLL\n      for "
        "(int l "
        "= ",
        lanes_, "; l < ", 2 * lanes_,
        "; ++l) __builtin_prefetch(from + l * s->a_k);\n"
        "      transpose(from, s->a_k, wide + i * s->copy_row + k, s->copy_row, steps, left, "
        "left);\n"
        "    }\n  }\n}\n");
  }

  // copy_rows: `count` steps of rows first .. first+m-1 as units, in `wide`, copy_row apart.
  void copy_rows() {
    cat_to(body_,
           R"(static void copy_rows(const Shape* s, const element* a, i64 first, i64 m, i64 count,
                      i64 odd, unit* wide, const unit** rows) {
)",
           pairs_ ? ""
                  : "  if (s->a_k != 1) return copy_columns(s, a, first, m, count, wide, rows);\n",
           R"(  for (i64 i = 0; i < m; ++i) {
    const element* from = a + (first + i) * s->a_row;
    unit* to = wide + i * s->copy_row;
    rows[i] = to;
    i64 k = 0;
    for (; k + )",
           lanes_, " <= count - odd; k += ", lanes_, ") ", store_unit_, "(to + k, ",
           units(cat("from + k * ", per_step_)), ");\n");
    if (pairs_)
      cat_to(body_, "    if (k < count) ", store_unit_, "(to + k, ",
             units("from + k * 2", "2 * (count - k) - odd"), ");\n");
    else
      cat_to(body_, "    for (; k < count; ++k) to[k] = ", widened("from[k]"), ";\n");
    body_ += "  }\n}\n";
  }

  void kernel() {
    const int w = width();
    cat_to(body_,
           R"(extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                      void* const* math) {
  const Shape* s = (const Shape*)buffers[0];
  const element* A = (const element*)buffers[1] + s->a_offset;
  const element* B = (const element*)buffers[2] + s->b_offset;
  result* C = (result*)buffers[3] + s->c_offset;
  const unit** rows = (const unit**)scratch;
  unit* panel = (unit*)((char*)scratch + s->panel_at);
  f32* start = (f32*)((char*)scratch + s->start_at);
  unit* zeros = (unit*)((char*)scratch + s->zeros_at);
  f32* edge = (f32*)((char*)scratch + s->edge_at);
  unit* wide = (unit*)((char*)scratch + s->wide_at);
  const i64 per_step = )",
           per_step_, R"(;
  const struct Epilogue* epilogue =
      (const struct Epilogue*)(s->epilogue ? buffers[s->epilogue] : 0);
  int status = 0;
  if (s->in_h)
    for (i64 i = 0; i < s->channels; ++i) zeros[i] = 0;
  i64 known = -1, together = 0;
  for (i64 iteration = begin; iteration < end; iteration += together) {
    const i64 from = iteration % s->panels, block = iteration / s->panels;
    const i64 mb = block % s->row_blocks, batch = block / s->row_blocks;
    const i64 first = mb * s->rows_per_block;
    const i64 m = s->m - first < s->rows_per_block ? s->m - first : s->rows_per_block;
    const element* a = A + batch * s->a_batch;
    together = s->together < s->panels - from ? s->together : s->panels - from;
    if (together > end - iteration) together = end - iteration;
    if (block != known) {
      known = block;
      )",
           reads_rows() ? "if (!s->copy_row) pointers(s, a, zeros, first, m, rows);\n      " : "",
           R"(if (s->copy_row && !s->by_piece)
        copy_rows(s, a, first, m, s->channels, s->odd, wide, rows);
    }
    for (i64 channel = 0; channel < s->channels; channel += s->channels_per_panel) {
      const i64 left = s->channels - channel;
      const i64 count = left < s->channels_per_panel ? left : s->channels_per_panel;
      const i64 odd = left == count ? s->odd : 0;
      if (s->by_piece) copy_rows(s, a + channel * s->a_k, first, m, count, odd, wide, rows);
      for (i64 p = from; p < from + together; ++p) {
        const i64 rest = s->n - p * )",
           w, ", columns = rest < ", w, " ? rest : ", w,
           ";\n        if (!channel)\n          for (i64 n = 0; n < ", w,
           "; ++n) start[n] = s->bias && n < columns ? ",
           widened(cat("((const element*)buffers[4])[s->bias_offset + p * ", w, " + n]")),
           " : 0;\n        const element* b = B + batch * s->b_batch + p * ", w,
           " * s->b_n;\n        result* whole = C + batch * s->c_batch + first * s->c_row + p * ",
           w, ";\n        const b8 partial = ",
           result_ != "f32" ? std::string("true")
           : by_tiles_      ? cat("columns != ", w)
           : half_.empty()  ? std::string("s->by_piece")
                            : std::string("false"),
           ", ends = left == count;\n        f32* c = partial ? edge + (p - from) * "
           "s->rows_per_block * ",
           w, " : (f32*)whole;\n        const i64 c_row = partial ? ", w, R"( : s->c_row;
        const element* now = b + channel * per_step * s->taps * s->b_k;
        const element* next = (const element*)0;
        if (p + 1 < from + together)
          next = now + )",
           w, R"( * s->b_n;
        else if (!ends)
          next = b + (channel + count) * per_step * s->taps * s->b_k - (together - 1) * )",
           w, R"( * s->b_n;
        else if (p + 1 < s->panels && iteration + together < end)
          next = b + )",
           w, R"( * s->b_n;
        const struct Finish f = {epilogue, (char*)scratch + s->epilogue_at, math,
                                 p * s->all_rows + batch * s->m + first, whole - C};
        status |= tiles(s, m, rows, s->by_piece ? 0 : channel)",
           reads_columns() ? " * (s->copy_row ? 1 : s->a_k)" : "",
           R"(, s->packed ? (unit*)now : panel, c, c_row,
              count, odd, columns, channel ? (const f32*)0 : start, next, now,
              partial && ends ? whole : 0, epilogue && ends ? &f : 0);
      }
    }
  }
)",
           by_tiles_ ? "  RELEASE_TILES();\n" : "", "  return status;\n}\n");
  }

  Prelude prelude_;
  const int lanes_, vectors_;
  const bool pairs_, by_tiles_;
  const int per_step_;                // elements along k
  const bool lines_;                  // a row of a panel is a cache line
  const std::string half_, element_;  // "bf16", "f16" or ""; what lies in memory
  const std::string result_, unit_;   // what is written; what is multiplied
  std::string vec_, unit_vec_, load_, store_, load_unit_, store_unit_, splat_, multiply_add_, body_;
};

}  // namespace

bool multiplies_tiles(ir::DType dtype, const Machine& target) {
  return multiplies_pairs(dtype, target) && target.amx_bf16;
}

bool multiplies_pairs(ir::DType dtype, const Machine& target) {
  return dtype == ir::DType::BF16 && target.avx512_bf16 && target.vector_bytes == 64;
}

namespace {

// bf16 with few values of k is widened, as where pairs are not multiplied: tiles take 32 at once.
Machine machine_for(const Gemm& s, const Machine& machine) {
  Machine m = machine;
  if (!s.is_convolution() && s.channels.is_constant() &&
      s.channels.hint() <= tuning::narrow_most_pairs)
    m.avx512_bf16 = m.amx_bf16 = false;
  return m;
}

// The images of a convolution as one matrix: their pixels follow each other.
Gemm in_one_matrix(Gemm s) {
  if (!s.is_convolution()) return s;
  s.m = s.batch * s.m;
  s.batch = 1;
  return s;
}

}  // namespace

std::string emit_gemm(const Gemm& shape, const Machine& machine) {
  const Machine target = machine_for(shape, machine);
  if (is_dot_gemm(shape, target)) return emit_dot_gemm(shape.dtype, shape.to_f32, target);
  if (is_row_gemm(shape, target)) return emit_row_gemm(shape.dtype, shape.to_f32, target);
  if (is_narrow_gemm(shape, target)) return emit_narrow_gemm(shape.dtype, shape.to_f32, target);
  return GemmEmitter(shape.dtype, shape.to_f32, target).text();
}

std::vector<std::string> gemm_texts(const Machine& target) {
  std::vector<std::string> texts;
  auto add = [&](ir::DType dtype, bool to_f32) {
    texts.push_back(GemmEmitter(dtype, to_f32, target).text());
    texts.push_back(emit_dot_gemm(dtype, to_f32, target));
    texts.push_back(emit_row_gemm(dtype, to_f32, target));
    texts.push_back(emit_narrow_gemm(dtype, to_f32, target));
  };
  add(ir::DType::F32, false);
  for (ir::DType dtype : {ir::DType::BF16, ir::DType::F16})
    for (bool to_f32 : {false, true}) add(dtype, to_f32);
  return texts;
}

std::vector<Size> gemm_parameters(const Gemm& given, const Machine& machine) {
  const Machine target = machine_for(given, machine);
  OXY_CHECK(!given.epilogue || !reads_as_it_lies(given, target), print(given));
  if (is_dot_gemm(given, target)) return dot_gemm_parameters(given, target);
  if (is_row_gemm(given, target)) return row_gemm_parameters(given);
  if (is_narrow_gemm(given, target)) return narrow_gemm_parameters(given);
  const Size image_pixels = given.m;
  Gemm s = in_one_matrix(given);
  if (s.packed) {  // k rows of a panel's columns each, one panel behind the other
    const Size k = s.channels * s.taps();
    s.b_offset = 0;
    s.b_k = tuning::gemm_panel_columns(target);
    s.b_n = k;
    if (!s.b_batch.is_constant(0)) s.b_batch = ceil_div(s.n, s.b_k) * k * s.b_k;
  }
  OXY_CHECK(s.channels.hint() > 0 && (s.packed || s.b_k.is_constant(1) || s.b_n.is_constant(1)),
            print(s));
  OXY_CHECK(!has_columns(s) || !multiplies_pairs(s.dtype, target), print(s));
  const Blocking b(s, target);
  const Scratch at(s, target);
  const Size odd = multiplies_pairs(s.dtype, target) ? s.channels % 2 : Size(0);
  s = in_steps(s, target);
  std::vector<Size> out{s.m,          s.n,          s.channels,   s.taps(),
                        s.a_batch,    s.a_row,      s.a_k,        s.b_batch,
                        s.b_k,        s.b_n,        s.c_batch,    s.c_row,
                        s.a_offset,   s.b_offset,   s.c_offset,   s.bias_offset,
                        s.bias,       image_pixels, s.in_h,       s.in_w,
                        s.out_w,      s.kernel_h,   s.kernel_w,   s.stride_h,
                        s.stride_w,   s.pad_h,      s.pad_w,      s.dilation_h,
                        s.dilation_w, b.panels,     b.row_blocks, b.rows_per_block,
                        b.channels,   at.panel,     at.start,     at.zeros,
                        at.edge,      s.packed,     at.wide,      b.together,
                        b.copy_row,   b.by_piece};
  const auto reads = static_cast<int64_t>(s.epilogue_reads.size());
  out.insert(out.end(), {odd, s.epilogue ? 4 + s.bias : 0, at.epilogue, s.batch * s.m, reads});
  out.insert(out.end(), s.epilogue_reads.begin(), s.epilogue_reads.end());
  return out;
}

bool reads_as_it_lies(const Gemm& s, const Machine& machine) {
  const Machine target = machine_for(s, machine);
  return is_dot_gemm(s, target) || is_row_gemm(s, target) || is_narrow_gemm(s, target);
}

int64_t few_rows_limit(const Gemm& s, const Machine& machine) {
  const Machine target = machine_for(s, machine);
  Gemm few = s;
  few.rows = Gemm::Rows::Few;
  if (is_dot_gemm(few, target)) return dot_most_rows(s, target);
  return is_row_gemm(few, target) ? row_most_rows(s) : 0;
}

Size gemm_range(const Gemm& shape, const Machine& machine) {
  const Machine target = machine_for(shape, machine);
  if (is_dot_gemm(shape, target)) return dot_gemm_range(shape);
  if (is_row_gemm(shape, target)) return row_gemm_range(shape);
  if (is_narrow_gemm(shape, target)) return narrow_gemm_range(shape);
  const Gemm s = in_one_matrix(shape);
  const Blocking b(s, target);
  return s.batch * b.row_blocks * b.panels;
}

Size gemm_scratch_bytes(const Gemm& shape, const Machine& machine) {
  const Machine target = machine_for(shape, machine);
  if (is_dot_gemm(shape, target)) return dot_gemm_scratch_bytes(shape, target);
  if (is_row_gemm(shape, target)) return row_gemm_scratch_bytes(shape);
  if (is_narrow_gemm(shape, target)) return narrow_gemm_scratch_bytes(shape, target);
  return Scratch(in_one_matrix(shape), target).end;
}

int64_t gemm_bytes(const Gemm& s) {
  const bool convolution = s.is_convolution();
  const Size pixels = convolution ? s.in_h * s.in_w : s.m, filters = s.channels * s.taps() * s.n;
  const Size right = convolution || s.b_batch.is_constant(0) ? filters : s.batch * filters;
  const int64_t size = ir::byte_size(s.dtype);
  return (s.batch * pixels * s.channels + right).hint() * size +
         (s.batch * s.m * s.n).hint() * (s.to_f32 ? 4 : size);
}

std::string print(const Gemm& s) {
  if (s.is_convolution())
    return cat("convolution of ", s.batch, " x ", s.in_h, " x ", s.in_w, " x ", s.channels, " to ",
               s.m, " pixels x ", s.n, ", filter ", s.kernel_h, " x ", s.kernel_w,
               s.packed ? " packed" : "", s.bias ? " + bias" : "");
  return cat(s.dtype == ir::DType::F32 ? "" : cat(ir::name(s.dtype), " "), "gemm of ", s.batch,
             " x ", s.m, " x ", s.channels, has_columns(s) ? " in columns by " : " by ", s.channels,
             " x ", s.n,
             s.packed               ? " packed"
             : s.b_n.is_constant(1) ? ""
                                    : " transposed",
             s.bias ? " + bias" : "", s.to_f32 ? " to f32" : "");
}

}  // namespace oxy::codegen::cpp
