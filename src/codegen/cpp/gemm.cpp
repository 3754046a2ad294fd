// The emitted text, from the inside out: `tileR` (R rows of A times the packed panel, in
// registers), `pack` (a panel of B), `pointers` (a block's rows), `kernel`. A parallel iteration is
// a block of up to 256 rows of one batch and a panel; panels run innermost, so that a block's
// pointers are made once and its rows stay in the second-level cache. Where they are too many for
// it, all panels take one piece of k before the next.
#include "codegen/cpp/gemm.h"

#include <algorithm>

#include "codegen/cpp/prelude.h"
#include "support/check.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {
namespace {

constexpr int kTileRows = tuning::gemm_tile_rows, kUnrolledRows = tuning::gemm_unrolled_rows;
constexpr int kRowsFinished = tuning::gemm_rows_finished, kSteps = tuning::gemm_steps;

bool is_half(const Gemm& s) { return s.dtype != ir::DType::F32; }

// How a gemm is cut.
struct Blocking {
  int64_t width;
  Size channels;  // a panel holds at a time
  Size panels, row_blocks, rows_per_block;
  Size together = 1;  // panels that take a piece of k in turn
  // Rows of A are copied where they are fp16 or bf16, or would push each other out of the cache: so
  // far apart. By pieces of k, or once for a block.
  Size copy_row = 0, by_piece = 0;

  Blocking(const Gemm& s, const Machine& t) {
    OXY_CHECK(t.vector_bytes >= 32, "gemms need vectors");
    width = tuning::gemm_panel_columns(t);
    // Values of k that fill the first-level cache, in equal pieces of a multiple of 8.
    const int64_t depth = std::min<int64_t>(tuning::gemm_depth, t.l1.bytes / (width * 4));
    channels = ceil_div(ceil_div(s.channels, ceil_div(s.channels * s.taps(), depth)), 8) * 8;
    panels = ceil_div(s.n, width);
    cut_rows(s, t);
    if (!s.is_convolution()) copy_rows(s, t);
  }

 private:
  // What a block's rows may take of the second-level cache.
  static int64_t cache(const Gemm& s, const Machine& t) {
    // (Rows of B, which the first tile packs, pass through that cache as well.)
    const bool lies_in_rows = s.b_n.is_constant(1) && !s.packed;
    return t.l2.bytes / 4 * (lies_in_rows ? 2 : 3);
  }

  // A block's rows stay in the second-level cache where that costs little: a packed panel is read
  // again for each of a few blocks, another one would be packed again.
  void cut_rows(const Gemm& s, const Machine& t) {
    const int64_t most = tuning::gemm_most_rows;
    const Size fits =
        clamp(Size(cache(s, t)) / (s.channels * 4), Size(tuning::gemm_fewest_rows), most);
    Size most_rows = most;
    if (is_half(s))
      most_rows = fits;
    else if (s.packed && !s.is_convolution())
      most_rows = select(is_at_most(s.m, most), fits, most);
    row_blocks = max(ceil_div(s.m, most_rows), 1);
    // Work for several threads; each block packs the panel anew.
    auto share = [&](int64_t iterations, int64_t fewest_rows) {
      const Size wanted = ceil_div(iterations, max(s.batch * panels, 1));
      row_blocks = max(row_blocks, min(wanted, s.m / fewest_rows));
    };
    share(8, tuning::gemm_fewest_rows);
    share(2, 12);
    rows_per_block = max(ceil_div(s.m, row_blocks), 1);
    row_blocks = ceil_div(s.m, rows_per_block);
  }

  void copy_rows(const Gemm& s, const Machine& t) {
    // Addresses a page apart share a set of the first-level cache, whose ways are pages.
    const Size row_bytes = s.channels * 4;
    const Size apart = is_half(s) ? row_bytes : s.a_row * 4;
    const Size collide = is_at_most(kTileRows, rows_per_block) * is_equal(apart % t.page_bytes, 0);
    copy_row = is_half(s) ? s.channels + collide * 16 : collide * (s.channels + 16);
    if (is_half(s)) return;
    const Size pieces =
        is_less(channels, s.channels) * is_less(cache(s, t), rows_per_block * row_bytes);
    together = select(
        pieces, clamp(Size(cache(s, t)) / (rows_per_block * (width * 4)), 1, max(panels, 1)), 1);
    by_piece = pieces * collide;
    copy_row = select(by_piece, channels + 16, copy_row);
  }
};

// Where the parts of a thread's scratch begin, in bytes.
struct Scratch {
  Size panel, start, zeros, edge, wide, epilogue, end;  // the pointers come first

  Scratch(const Gemm& s, const Blocking& b) {
    panel = ceil_div(b.rows_per_block * s.taps() * 8, 64) * 64;
    start = panel + b.channels * s.taps() * (b.width * 4);
    zeros = start + b.width * 4;
    edge = zeros;
    if (s.is_convolution()) edge = edge + ceil_div(s.channels, 16) * 64;
    const Size some_edge = is_half(s) ? Size(1) : is_less(0, s.n % b.width);
    wide = edge + some_edge * b.rows_per_block * (b.width * 4);
    epilogue = ceil_div(wide + b.rows_per_block * b.copy_row * 4, 64) * 64;
    end = epilogue + s.epilogue_scratch;
  }
};

class GemmEmitter {
 public:
  GemmEmitter(ir::DType dtype, const Machine& t)
      : prelude_(t),
        lanes_(t.vector_bytes / 4),
        vectors_(tuning::gemm_panel_vectors(t)),
        half_(dtype == ir::DType::F32 ? "" : ir::name(dtype)),
        element_(half_.empty() ? "f32" : "u16") {
    vec_ = prelude_.type("f32", lanes_);
    load_ = prelude_.fn("load", "f32", lanes_);
    store_ = prelude_.fn("store", "f32", lanes_);
    fma_ = prelude_.fn("fma", "f32", lanes_);
    splat_ = prelude_.fn("splat", "f32", lanes_);
  }

  std::string text() {
    shape();
    transpose();
    pack();
    prefetch();
    for (int r = 1; r <= kTileRows; r++)
      for (int v = 1; v <= vectors_; v *= 2) tile(r, v);
    tiles();
    if (half_.empty()) pointers();
    copy_rows();
    kernel();
    return cat("// C = A * B + bias", half_.empty() ? ", or a convolution" : " in ", half_,
               "; see Shape\n", prelude_.text(), "typedef ", element_, " element;\n", body_);
  }

 private:
  int width() const { return vectors_ * lanes_; }

  // Elements as f32, and f32 as elements.
  std::string widened(const std::string& value, int lanes = 1) {
    return half_.empty() ? value
                         : cat(prelude_.fn(cat("f32_of_", half_), "u16", lanes), "(", value, ")");
  }
  std::string narrowed(const std::string& value, int lanes = 1) {
    return half_.empty() ? value
                         : cat(prelude_.fn(cat(half_, "_of_f32"), "f32", lanes), "(", value, ")");
  }
  std::string loaded(const std::string& address) {
    return widened(cat(prelude_.fn("load", element_, lanes_), "(", address, ")"), lanes_);
  }

  // In the order of gemm_parameters.
  void shape() {
    body_ += R"(struct Shape {
  i64 m, n, channels, taps, a_batch, a_row, b_batch, b_k, b_n, c_batch, c_row;
  i64 a_offset, b_offset, c_offset, bias_offset, bias;
  i64 in_h, in_w, out_w, kernel_h, kernel_w;
  i64 stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  i64 panels, row_blocks, rows_per_block, channels_per_panel;
  i64 panel_at, start_at, zeros_at, edge_at, packed, wide_at, together, copy_row, by_piece;
  i64 epilogue, epilogue_at, all_rows, reads, read[];
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

  // A square of B, rows along k, transposed.
  void transpose() {
    const std::string load = loaded("b + i * stride"), store = prelude_.fn("store", "f32", lanes_);
    cat_to(body_, "OXY_INLINE void transpose(const element* b, i64 stride, f32* to) {\n  ", vec_,
           " r[", lanes_, "];\n  OXY_UNROLL\n  for (int i = 0; i < ", lanes_,
           "; ++i) r[i] = ", load, ";\n  ", prelude_.fn("transpose_lanes", "f32", lanes_),
           "(r);\n  OXY_UNROLL\n  for (int i = 0; i < ", lanes_, "; ++i) ", store, "(to + i * ",
           width(), ", r[i]);\n}\n");
  }

  // pack: to[k][0..width) = B's panel; columns beyond `columns` are 0.
  void pack() {
    const int w = width();
    cat_to(
        body_,
        "static void pack(const Shape* s, const element* b, f32* to, i64 count, i64 columns) {\n  "
        "i64 k = 0;\n",
        "  if (columns == ", w,
        " && s->b_n == 1)\n    for (; k < count; ++k)\n      OXY_UNROLL\n      for (i64 n = 0; n "
        "< ",
        w, "; n += ", lanes_, ") ", store_, "(to + k * ", w, " + n, ", loaded("b + k * s->b_k + n"),
        ");\n  else if (columns == ", w, ")\n    for (; k + ", lanes_, " <= count; k += ", lanes_,
        ")\n      for (i64 n = 0; n < ", w, "; n += ", lanes_,
        ") transpose(b + n * s->b_n + k, s->b_n, to + k * ", w, " + n);\n",
        "  for (; k < count; ++k)\n    for (i64 n = 0; n < ", w, "; ++n) to[k * ", w,
        " + n] = n < columns ? ", widened("b[n * s->b_n + k * s->b_k]"), " : 0;\n}\n");
  }

  // One k of a tile: `rows` broadcasts times `vectors` of the panel.
  // With `packs` it comes from B, and goes into the panel on the way.
  void step(int rows, int vectors, const char* k, bool packs = false) {
    for (int j = 0; j < vectors; j++) {
      const std::string packed = cat("b + ", j * lanes_);
      cat_to(
          body_, "        const ", vec_, " p", j, " = ",
          packs ? loaded(cat("from + k * from_row + ", j * lanes_)) : cat(load_, "(", packed, ")"),
          ";\n");
      if (packs) cat_to(body_, "        ", store_, "(", packed, ", p", j, ");\n");
    }
    for (int i = 0; i < rows; i++) {
      cat_to(body_, "        const ", vec_, " v", i, " = ", splat_, "(r", i, "[", k, "]);\n");
      for (int j = 0; j < vectors; j++)
        cat_to(body_, "        x", i, j, " = ", fma_, "(v", i, ", p", j, ", x", i, j, ");\n");
    }
    cat_to(body_, "        b += taps * ", width(), ";\n");
  }

  // The others are remainders: text for them takes time to compile and saves little.
  bool is_unrolled(int rows, int vectors) const {
    return rows >= kUnrolledRows && vectors == vectors_;
  }

  // The first tile, that is.
  bool can_pack(int rows, int vectors) const { return rows == kTileRows && vectors == vectors_; }

  // tileRxV: R rows and V vectors; `rows` holds R pointers a tap; `start` is what the accumulators
  // begin with, or null: the tile's own values. `from`: rows of B, one tap, which the panel does
  // not hold yet, or null.
  void tile(int rows, int vectors) {
    auto each = [&](auto&& write) {
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
          write(cat("x", i, j), cat("c + ", i, " * c_row + ", j * lanes_), j * lanes_);
    };
    cat_to(body_, "static struct Prefetch tile", rows, "x", vectors,
           "(const f32* const* rows, i64 taps, i64 channel, f32* panel, f32* c, ",
           "i64 c_row, i64 count, const f32* start, struct Prefetch next",
           can_pack(rows, vectors) ? ", const element* from, i64 from_row) {\n" : ") {\n");
    each([&](const std::string& x, const std::string& c, int column) {
      cat_to(body_, "  ", vec_, " ", x, " = ", load_, "(start ? start + ", column, " : ", c,
             ");\n");
    });
    body_ += "  for (i64 t = 0; t < taps; ++t) {\n";
    for (int i = 0; i < rows; i++)
      cat_to(body_, "    const f32* r", i, " = rows[t * ", rows, " + ", i, "] + channel;\n");
    cat_to(body_, "    f32* b = panel + t * ", width(), ";\n    i64 k = 0;\n");
    if (is_unrolled(rows, vectors)) {
      if (can_pack(rows, vectors)) {
        body_ += "    if (from)\n      for (; k < count; ++k) {\n        prefetch(&next);\n";
        step(rows, vectors, "k", true);
        body_ += "      }\n";
      }
      cat_to(body_, "    for (; k + ", kSteps, " <= count; k += ", kSteps,
             ") {\n      prefetch(&next);\n      OXY_UNROLL\n      for (int j = 0; j < ", kSteps,
             "; ++j) {\n");
      step(rows, vectors, "k + j");
      body_ += "      }\n    }\n";
    }
    body_ += "    for (; k < count; ++k) {\n";
    step(rows, vectors, "k");
    body_ += "    }\n  }\n";
    each([&](const std::string& x, const std::string& c, int) {
      cat_to(body_, "  ", store_, "(", c, ", ", x, ");\n");
    });
    body_ += "  return next;\n}\n";
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
  const i64 depth = s->channels_per_panel * s->taps, length = wide ? )",
           width(), R"( : depth, runs = wide ? depth : )", width(), R"(;
  i64 step = 64 / sizeof(element);
  const b8 pairs = length / step * runs > groups;
  if (pairs) step *= 2;
  const i64 run = (length + step - 1) / step;
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
      for (i64 n = 0; n < columns; n += 64 / sizeof(element))
        __builtin_prefetch((const element*)f->epilogue->buffers[s->read[b]] + f->place +
                           i * s->c_row + n, 0, 2);
}
)");
  }

  // tiles: a block of rows, cut into tiles whose sizes differ by one at most. Columns beyond
  // `columns` are 0 in the panel; whole vectors of nothing else are left out, to the next power of
  // two.
  void tiles() {
    cat_to(body_,
           "static int tiles(const Shape* s, i64 m, const f32* const* rows, i64 channel, "
           "f32* panel, f32* c, i64 c_row, ",
           "i64 count, i64 columns, const f32* start, const element* ahead, const element* b, "
           "const struct Finish* f) {\n  const i64 tiles = "
           "(m + ",
           kTileRows - 1, ") / ", kTileRows,
           ", size = m / tiles, big = m % tiles, taps = s->taps;\n",
           "  i64 vectors = 1;\n  while (vectors * ", lanes_,
           " < columns) vectors *= 2;\n"
           "  const b8 whole = size >= ",
           kUnrolledRows, " && vectors == ", vectors_, ", packs = whole && columns == ", width(),
           " && size + (big > 0) == ", kTileRows,
           " && s->b_n == 1 && taps == 1 && !s->packed;\n"
           "  if (!packs && !s->packed) pack(s, b, panel, count * taps, columns);\n  const "
           "element* from = packs ? b : (const element*)0;\n"
           "  const i64 groups = whole ? tiles * (count * taps / ",
           kSteps,
           ") : 0;\n  struct Prefetch next = prefetch_from(s, ahead, groups);\n"
           "  const i64 burst = (next.runs * next.run - groups) / tiles;\n  i64 finished = 0, done "
           "= 0;\n"
           "  int status = 0;\n",
           "  for (i64 i = 0; i < tiles; ++i) {\n    const i64 r = size + (i < big);\n"
           "    for (i64 j = 0; j < burst; ++j) prefetch(&next);\n"
           "    if (f) prefetch_rows(s, f, done, r, columns);\n    switch (r * ",
           vectors_ + 1, " + vectors) {\n");
    for (int r = kTileRows; r >= 1; r--)
      for (int v = vectors_; v >= 1; v /= 2)
        cat_to(body_, "      case ", r * (vectors_ + 1) + v, ": next = tile", r, "x", v,
               "(rows, taps, channel, panel, c, c_row, count, start, next",
               can_pack(r, v) ? ", from, s->b_k" : "", "); break;\n");
    cat_to(
        body_,
        "    }\n    from = (const element*)0;\n    rows += r * taps;\n    c += r * c_row;\n    "
        "done += r;\n"
        "    if (f && (done - finished >= ",
        kRowsFinished,
        " || i + 1 == tiles)) status |= finish(f, finished, done - finished), finished = done;\n",
        "  }\n  return status;\n}\n");
  }

  // pointers: rows first .. first+m-1 of A, tap by tap within each tile.
  void pointers() {
    cat_to(body_,
           R"(static void pixel(const Shape* s, const f32* image, const f32* zeros, i64 at,
                  const f32** to, i64 step) {
  const i64 y = at / s->out_w * s->stride_h - s->pad_h, x = at % s->out_w * s->stride_w - s->pad_w;
  for (i64 h = 0; h < s->kernel_h; ++h)
    for (i64 w = 0; w < s->kernel_w; ++w) {
      const i64 iy = y + h * s->dilation_h, ix = x + w * s->dilation_w;
      const b8 inside = iy >= 0 && iy < s->in_h && ix >= 0 && ix < s->in_w;
      to[(h * s->kernel_w + w) * step] = inside ? image + (iy * s->in_w + ix) * s->a_row : zeros;
    }
}
static void pointers(const Shape* s, const f32* a, const f32* zeros, i64 first, i64 m,
                     const f32** rows) {
  const i64 tiles = (m + )",
           kTileRows - 1, ") / ", kTileRows, R"(, size = m / tiles, big = m % tiles;
  for (i64 i = 0; i < tiles; ++i) {
    const i64 r = size + (i < big);
    for (i64 j = 0; j < r; ++j, ++first)
      if (s->in_h)
        pixel(s, a, zeros, first, rows + j, r);
      else
        rows[j] = a + first * s->a_row;
    rows += r * s->taps;
  }
}
)");
  }

  // copy_rows: `count` values of rows first .. first+m-1 as f32, in `wide`, copy_row apart.
  void copy_rows() {
    const std::string value = loaded("from + k"), rest = widened("from[k]");
    cat_to(body_,
           R"(static void copy_rows(const Shape* s, const element* a, i64 first, i64 m, i64 count,
                      f32* wide, const f32** rows) {
  for (i64 i = 0; i < m; ++i) {
    const element* from = a + (first + i) * s->a_row;
    f32* to = wide + i * s->copy_row;
    rows[i] = to;
    i64 k = 0;
    for (; k + )",
           lanes_, " <= count; k += ", lanes_, ") ", store_, "(to + k, ", value,
           ");\n    for (; k < count; ++k) to[k] = ", rest, ";\n  }\n}\n");
  }

  void kernel() {
    const int w = width();
    cat_to(body_,
           R"(extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
                      void* const* math) {
  const Shape* s = (const Shape*)buffers[0];
  const element* A = (const element*)buffers[1] + s->a_offset;
  const element* B = (const element*)buffers[2] + s->b_offset;
  element* C = (element*)buffers[3] + s->c_offset;
  const f32** rows = (const f32**)scratch;
  f32* panel = (f32*)((char*)scratch + s->panel_at);
  f32* start = (f32*)((char*)scratch + s->start_at);
  f32* zeros = (f32*)((char*)scratch + s->zeros_at);
  f32* edge = (f32*)((char*)scratch + s->edge_at);
  f32* wide = (f32*)((char*)scratch + s->wide_at);
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
           half_.empty() ? "if (!s->copy_row) pointers(s, a, zeros, first, m, rows);\n      " : "",
           R"(if (s->copy_row && !s->by_piece) copy_rows(s, a, first, m, s->channels, wide, rows);
    }
    for (i64 channel = 0; channel < s->channels; channel += s->channels_per_panel) {
      const i64 left = s->channels - channel;
      const i64 count = left < s->channels_per_panel ? left : s->channels_per_panel;
      if (s->by_piece) copy_rows(s, a + channel, first, m, count, wide, rows);
      for (i64 p = from; p < from + together; ++p) {
        const i64 rest = s->n - p * )",
           w, ", columns = rest < ", w, " ? rest : ", w,
           ";\n        if (!channel)\n          for (i64 n = 0; n < ", w,
           "; ++n) start[n] = s->bias && n < columns ? ",
           widened(cat("((const element*)buffers[4])[s->bias_offset + p * ", w, " + n]")),
           " : 0;\n        const element* b = B + batch * s->b_batch + p * ", w,
           " * s->b_n;\n        element* whole = C + batch * s->c_batch + first * s->c_row + p * ",
           w, ";\n        const b8 partial = ",
           half_.empty() ? cat("columns != ", w) : std::string("true"),
           ", ends = left == count;\n        f32* c = partial ? edge : (f32*)whole;\n        const "
           "i64 c_row = partial ? ",
           w, R"( : s->c_row;
        const element* now = b + channel * s->taps * s->b_k;
        const element* next = (const element*)0;
        if (p + 1 < from + together)
          next = now + )",
           w, R"( * s->b_n;
        else if (!ends)
          next = b + (channel + count) * s->taps * s->b_k - (together - 1) * )",
           w, R"( * s->b_n;
        else if (p + 1 < s->panels && iteration + together < end)
          next = b + )",
           w, R"( * s->b_n;
        const struct Finish f = {epilogue, (char*)scratch + s->epilogue_at, math,
                                 p * s->all_rows + batch * s->m + first, whole - C};
        status |= tiles(s, m, rows, s->by_piece ? 0 : channel, s->packed ? (f32*)now : panel, c,
              c_row, count, columns, channel ? (const f32*)0 : start, next, now,
              epilogue && ends && !partial ? &f : 0);
        if (partial && ends)
          for (i64 i = 0; i < m; ++i) {
            i64 n = 0;
            for (; n + )",
           lanes_, " <= columns; n += ", lanes_, ") ", prelude_.fn("store", element_, lanes_),
           "(whole + i * s->c_row + n, ", narrowed(cat(load_, "(edge + i * ", w, " + n)"), lanes_),
           R"();
            for (; n < columns; ++n) whole[i * s->c_row + n] = )",
           narrowed(cat("edge[i * ", w, " + n]")), R"(;
          }
        if (epilogue && ends && partial) status |= finish(&f, 0, m);
      }
    }
  }
  return status;
}
)");
  }

  Prelude prelude_;
  const int lanes_, vectors_;
  const std::string half_, element_;  // "bf16", "f16" or ""; what lies in memory
  std::string vec_, load_, store_, fma_, splat_, body_;
};

}  // namespace

std::string emit_gemm(const Gemm& shape, const Machine& target) {
  if (is_dot_gemm(shape)) return emit_dot_gemm(shape.dtype, target);
  if (is_row_gemm(shape)) return emit_row_gemm(target);
  return GemmEmitter(shape.dtype, target).text();
}

std::vector<std::string> gemm_texts(const Machine& target) {
  std::vector<std::string> texts{emit_row_gemm(target)};
  for (ir::DType dtype : {ir::DType::F32, ir::DType::BF16, ir::DType::F16}) {
    texts.push_back(GemmEmitter(dtype, target).text());
    texts.push_back(emit_dot_gemm(dtype, target));
  }
  return texts;
}

std::vector<Size> gemm_parameters(const Gemm& given, const Machine& target) {
  OXY_CHECK(!given.epilogue || !reads_as_it_lies(given), print(given));
  if (is_dot_gemm(given)) return dot_gemm_parameters(given);
  if (is_row_gemm(given)) return row_gemm_parameters(given);
  Gemm s = given;
  if (s.packed) {  // k rows of a panel's columns each, one panel behind the other
    const Size k = s.channels * s.taps();
    s.b_offset = 0;
    s.b_k = tuning::gemm_panel_columns(target);
    s.b_n = k;
    if (!s.b_batch.is_constant(0)) s.b_batch = ceil_div(s.n, s.b_k) * k * s.b_k;
  }
  OXY_CHECK(s.channels.hint() > 0 && (s.packed || s.b_k.is_constant(1) || s.b_n.is_constant(1)),
            print(s));
  const Blocking b(s, target);
  const Scratch at(s, b);
  std::vector<Size> out{s.m,          s.n,          s.channels, s.taps(),     s.a_batch,
                        s.a_row,      s.b_batch,    s.b_k,      s.b_n,        s.c_batch,
                        s.c_row,      s.a_offset,   s.b_offset, s.c_offset,   s.bias_offset,
                        s.bias,       s.in_h,       s.in_w,     s.out_w,      s.kernel_h,
                        s.kernel_w,   s.stride_h,   s.stride_w, s.pad_h,      s.pad_w,
                        s.dilation_h, s.dilation_w, b.panels,   b.row_blocks, b.rows_per_block,
                        b.channels,   at.panel,     at.start,   at.zeros,     at.edge,
                        s.packed,     at.wide,      b.together, b.copy_row,   b.by_piece};
  const auto reads = static_cast<int64_t>(s.epilogue_reads.size());
  out.insert(out.end(), {s.epilogue ? 4 + s.bias : 0, at.epilogue, s.batch * s.m, reads});
  out.insert(out.end(), s.epilogue_reads.begin(), s.epilogue_reads.end());
  return out;
}

bool reads_as_it_lies(const Gemm& s) { return is_dot_gemm(s) || is_row_gemm(s); }

int64_t few_rows_limit(const Gemm& s) {
  Gemm few = s;
  few.rows = Gemm::Rows::Few;
  if (is_dot_gemm(few)) return tuning::dot_most_rows;
  return is_row_gemm(few) ? tuning::row_most_rows : 0;
}

Size gemm_range(const Gemm& shape, const Machine& target) {
  if (is_dot_gemm(shape)) return dot_gemm_range(shape);
  if (is_row_gemm(shape)) return row_gemm_range(shape);
  const Blocking b(shape, target);
  return shape.batch * b.row_blocks * b.panels;
}

Size gemm_scratch_bytes(const Gemm& shape, const Machine& target) {
  if (is_dot_gemm(shape)) return 0;
  if (is_row_gemm(shape)) return row_gemm_scratch_bytes(shape);
  return Scratch(shape, Blocking(shape, target)).end;
}

int64_t gemm_bytes(const Gemm& s) {
  const bool convolution = s.is_convolution();
  const Size pixels = convolution ? s.in_h * s.in_w : s.m, filters = s.channels * s.taps() * s.n;
  const Size right = convolution || s.b_batch.is_constant(0) ? filters : s.batch * filters;
  return (s.batch * (pixels * s.channels + s.m * s.n) + right).hint() * ir::byte_size(s.dtype);
}

std::string print(const Gemm& s) {
  if (s.is_convolution())
    return cat("convolution of ", s.batch, " x ", s.in_h, " x ", s.in_w, " x ", s.channels, " to ",
               s.m, " pixels x ", s.n, ", filter ", s.kernel_h, " x ", s.kernel_w,
               s.packed ? " packed" : "", s.bias ? " + bias" : "");
  return cat(s.dtype == ir::DType::F32 ? "" : cat(ir::name(s.dtype), " "), "gemm of ", s.batch,
             " x ", s.m, " x ", s.channels, " by ", s.channels, " x ", s.n,
             s.packed               ? " packed"
             : s.b_n.is_constant(1) ? ""
                                    : " transposed",
             s.bias ? " + bias" : "");
}

}  // namespace oxy::codegen::cpp
