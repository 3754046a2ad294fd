// The emitted text, from the inside out: `tile` (rows of A times the packed panel, in registers), `pack` (a panel of B),
// `kernel` (blocks of rows, panels, blocks of k). All sizes are constants of the text.
#include "codegen/cpp/matmul.h"

#include <algorithm>

#include "codegen/cpp/prelude.h"
#include "support/check.h"

namespace oxy::codegen::cpp {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a product is cut. A block of A is rows_per_block x depth; it stays in the second-level cache.
struct Blocking {
  int lanes;
  int64_t width;           // columns of a panel: two vectors
  int64_t max_rows;        // rows of a tile
  int64_t depth;           // values of k a panel holds at a time
  int64_t panels;
  int64_t row_blocks, rows_per_block;

  Blocking(const Matmul& s, const Target& t) {
    OXY_CHECK(t.vector_bytes >= 32, "products need vectors");
    lanes = t.vector_bytes / 4;
    width = 2 * lanes;
    max_rows = t.vector_bytes == 64 ? 12 : 6;
    depth = std::max<int64_t>(8, ceil_div(ceil_div(s.k, ceil_div(s.k, 256)), 8) * 8);
    panels = ceil_div(s.n, width);
    row_blocks = ceil_div(s.m, 256);
    rows_per_block = ceil_div(s.m, row_blocks);
    row_blocks = ceil_div(s.m, rows_per_block);
  }
  bool partial_panel(const Matmul& s) const { return s.n % width != 0; }
};

// `rows` split into tiles of at most max_rows whose sizes differ by one at most: `big` tiles of size + 1, then `small`.
struct Tiles {
  int64_t size, big, small;
  Tiles(int64_t rows, int64_t max_rows) {
    int64_t count = ceil_div(rows, max_rows);
    size = rows / count;
    big = rows % count;
    small = count - big;
  }
};

class MatmulEmitter {
 public:
  MatmulEmitter(const Matmul& s, const Target& t) : s_(s), block_(s, t), prelude_(t) {
    vec_ = prelude_.type("f32", block_.lanes);
    load_ = prelude_.fn("load", "f32", block_.lanes);
    store_ = prelude_.fn("store", "f32", block_.lanes);
    fma_ = prelude_.fn("fma", "f32", block_.lanes);
  }

  std::string text() {
    std::string body;
    pack(body);
    std::vector<int64_t> sizes;
    for (int64_t rows : {block_.rows_per_block, last_block_rows()}) {
      Tiles t(rows, block_.max_rows);
      if (t.big) sizes.push_back(t.size + 1);
      sizes.push_back(t.size);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (int64_t rows : sizes) tile(body, rows);
    rows_of_tiles(body, "block", block_.rows_per_block);
    if (last_block_rows() != block_.rows_per_block) rows_of_tiles(body, "last_block", last_block_rows());
    kernel(body);
    return cat("// ", print(s_), "\n", prelude_.text(), body);
  }

 private:
  int64_t last_block_rows() const { return s_.m - (block_.row_blocks - 1) * block_.rows_per_block; }

  // pack(b, to, kc, columns): to[k][0..width) = B's panel; columns beyond `columns` are 0.
  void pack(std::string& out) {
    const int64_t w = block_.width;
    if (s_.b_n == 1) {
      cat_to(out, "static void pack(const f32* b, f32* to, i64 kc, i64 columns) {\n",
             "  if (columns == ", w, ") {\n    for (i64 k = 0; k < kc; ++k) {\n",
             "      ", store_, "(to + k * ", w, ", ", load_, "(b + k * ", s_.b_k, "));\n",
             "      ", store_, "(to + k * ", w, " + ", block_.lanes, ", ", load_, "(b + k * ", s_.b_k, " + ",
             block_.lanes, "));\n    }\n    return;\n  }\n",
             "  for (i64 k = 0; k < kc; ++k)\n    for (i64 n = 0; n < ", w, "; ++n) to[k * ", w,
             " + n] = n < columns ? b[k * ", s_.b_k, " + n] : 0;\n}\n");
      return;
    }
    transpose8(out);
    cat_to(out, "static void pack(const f32* b, f32* to, i64 kc, i64 columns) {\n  i64 k = 0;\n",
           "  if (columns == ", w, ")\n    for (; k + 8 <= kc; k += 8)\n      for (i64 n = 0; n < ", w,
           "; n += 8) transpose8(b + n * ", s_.b_n, " + k, to + k * ", w, " + n);\n",
           "  for (; k < kc; ++k)\n    for (i64 n = 0; n < ", w, "; ++n) to[k * ", w,
           " + n] = n < columns ? b[n * ", s_.b_n, " + k] : 0;\n}\n");
  }

  // 8 rows of 8 values, transposed in three rounds of shuffles.
  void transpose8(std::string& out) {
    const std::string v8 = prelude_.type("f32", 8), load = prelude_.fn("load", "f32", 8),
                      store = prelude_.fn("store", "f32", 8);
    const std::string r2 = cat(v8, " ");
    cat_to(out, "OXY_INLINE void transpose8(const f32* b, f32* to) {\n");
    for (int i = 0; i < 8; i++)
      cat_to(out, "  const ", r2, "r", i, " = ", load, "(b + ", i, " * ", s_.b_n, "L);\n");
    auto shuffle = [&](const std::string& to, const std::string& a, const std::string& b, const char* order) {
      cat_to(out, "  const ", r2, to, " = __builtin_shufflevector(", a, ", ", b, ", ", order, ");\n");
    };
    for (int i = 0; i < 4; i++) {
      std::string a = cat("r", 2 * i), b = cat("r", 2 * i + 1);
      shuffle(cat("s", 2 * i), a, b, "0, 8, 1, 9, 4, 12, 5, 13");
      shuffle(cat("s", 2 * i + 1), a, b, "2, 10, 3, 11, 6, 14, 7, 15");
    }
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < 2; i++) {
        std::string a = cat("s", 4 * half + i), b = cat("s", 4 * half + 2 + i);
        shuffle(cat("t", 4 * half + 2 * i), a, b, "0, 1, 8, 9, 4, 5, 12, 13");
        shuffle(cat("t", 4 * half + 2 * i + 1), a, b, "2, 3, 10, 11, 6, 7, 14, 15");
      }
    }
    for (int i = 0; i < 4; i++) {
      std::string a = cat("t", i), b = cat("t", 4 + i);
      cat_to(out, "  ", store, "(to + ", i * block_.width, ", __builtin_shufflevector(", a, ", ", b,
             ", 0, 1, 2, 3, 8, 9, 10, 11));\n");
      cat_to(out, "  ", store, "(to + ", (i + 4) * block_.width, ", __builtin_shufflevector(", a, ", ", b,
             ", 4, 5, 6, 7, 12, 13, 14, 15));\n");
    }
    out += "}\n";
  }

  // tileR(a, panel, c, row stride of c, kc, start): R rows; `start` is what the accumulators begin with (width values),
  // or null: the tile's own values.
  void tile(std::string& out, int64_t rows) {
    cat_to(out, "static void tile", rows, "(const f32* a, const f32* panel, f32* c, i64 c_row, i64 kc, ",
           "const f32* start) {\n  ", vec_);
    for (int64_t i = 0; i < rows; i++) cat_to(out, i ? ", " : " ", "x", i, ", y", i);
    out += ";\n  if (start) {\n";
    for (int64_t i = 0; i < rows; i++)
      cat_to(out, "    x", i, " = ", load_, "(start);\n    y", i, " = ", load_, "(start + ", block_.lanes, ");\n");
    out += "  } else {\n";
    for (int64_t i = 0; i < rows; i++)
      cat_to(out, "    x", i, " = ", load_, "(c + ", i, " * c_row);\n    y", i, " = ", load_, "(c + ", i,
             " * c_row + ", block_.lanes, ");\n");
    cat_to(out, "  }\n  for (i64 k = 0; k < kc; ++k) {\n    const ", vec_, " p = ", load_, "(panel + k * ",
           block_.width, ");\n    const ", vec_, " q = ", load_, "(panel + k * ", block_.width, " + ", block_.lanes,
           ");\n");
    const std::string splat = prelude_.fn("splat", "f32", block_.lanes);
    for (int64_t i = 0; i < rows; i++)
      cat_to(out, "    const ", vec_, " a", i, " = ", splat, "(a[", i, " * ", s_.a_row, "L + k]);\n    x", i, " = ",
             fma_, "(a", i, ", p, x", i, ");\n    y", i, " = ", fma_, "(a", i, ", q, y", i, ");\n");
    out += "  }\n";
    for (int64_t i = 0; i < rows; i++)
      cat_to(out, "  ", store_, "(c + ", i, " * c_row, x", i, ");\n  ", store_, "(c + ", i, " * c_row + ",
             block_.lanes, ", y", i, ");\n");
    out += "}\n";
  }

  // name(a, panel, c, c_row, kc, start, next, lines): all tiles of a block of rows, prefetching `next` along the way.
  void rows_of_tiles(std::string& out, const char* name, int64_t rows) {
    Tiles t(rows, block_.max_rows);
    const int64_t lines = prefetch_lines(), each = ceil_div(lines, t.big + t.small);
    cat_to(out, "static void ", name, "(const f32* a, const f32* panel, f32* c, i64 c_row, i64 kc, ",
           "const f32* start, const f32* next) {\n  i64 line = 0;\n");
    auto loop = [&](int64_t count, int64_t size) {
      if (!count) return;
      cat_to(out, "  for (i64 i = 0; i < ", count, "; ++i) {\n    if (next)\n      for (i64 j = 0; j < ", each,
             " && line < ", lines, "; ++j, ++line) __builtin_prefetch(next + ", prefetch_offset(), ", 0, 2);\n",
             "    tile", size, "(a, panel, c, c_row, kc, start);\n    a += ", size * s_.a_row, ";\n    c += ", size,
             " * c_row;\n  }\n");
    };
    loop(t.big, t.size + 1);
    loop(t.small, t.size);
    out += "}\n";
  }

  // The next panel, in cache lines of 16 values.
  int64_t prefetch_lines() const {
    return s_.b_n == 1 ? block_.depth * ceil_div(block_.width, 16) : block_.width * ceil_div(block_.depth, 16);
  }
  std::string prefetch_offset() const {
    if (s_.b_n == 1) {
      int64_t lines_a_row = ceil_div(block_.width, 16);
      return cat("line / ", lines_a_row, " * ", s_.b_k, "L + line % ", lines_a_row, " * 16");
    }
    return cat("line % ", block_.width, " * ", s_.b_n, "L + line / ", block_.width, " * 16");
  }

  void kernel(std::string& out) {
    const int64_t w = block_.width, rows = block_.rows_per_block;
    const bool partial = block_.partial_panel(s_);
    cat_to(out, "extern \"C\" int kernel(void* const* buffers, long begin, long end, void* scratch, void* const* math) {\n",
           "  (void)math;\n  const f32* A = (const f32*)buffers[0] + ", s_.a_offset, ";\n  const f32* B = (const f32*)buffers[1] + ",
           s_.b_offset, ";\n");
    if (s_.bias) cat_to(out, "  const f32* bias = (const f32*)buffers[2] + ", s_.bias_offset, ";\n");
    cat_to(out, "  f32* C = (f32*)buffers[", s_.bias ? 3 : 2, "] + ", s_.c_offset, ";\n  f32* panel = (f32*)scratch;\n  f32* start = panel + ",
           block_.depth * w, ";\n");
    if (partial) cat_to(out, "  f32* edge = start + ", w, ";\n");
    if (!s_.bias) cat_to(out, "  for (i64 n = 0; n < ", w, "; ++n) start[n] = 0;\n");
    cat_to(out, "  for (i64 point = begin; point < end; ++point) {\n    const i64 p = point % ", block_.panels,
           ";\n    const i64 mb = point / ", block_.panels, " % ", block_.row_blocks, ";\n    const i64 batch = point / ",
           block_.panels * block_.row_blocks, ";\n");
    cat_to(out, "    const i64 columns = ", partial ? cat("p == ", block_.panels - 1, " ? ", s_.n - (block_.panels - 1) * w, " : ", w) : cat(w),
           ";\n    const f32* a = A + batch * ", s_.a_batch, "L + mb * ", rows * s_.a_row, "L;\n    const f32* b = B + batch * ",
           s_.b_batch, "L + p * ", w * s_.b_n, "L;\n    f32* c = C + batch * ", s_.c_batch, "L + mb * ", rows * s_.c_row,
           "L + p * ", w, ";\n    i64 c_row = ", s_.c_row, ";\n");
    if (partial) cat_to(out, "    f32* whole = c;\n    if (columns != ", w, ") {\n      c = edge;\n      c_row = ", w, ";\n    }\n");
    if (s_.bias)
      cat_to(out, "    for (i64 n = 0; n < ", w, "; ++n) start[n] = n < columns ? bias[p * ", w, " + n] : 0;\n");
    cat_to(out, "    for (i64 k = 0; k < ", s_.k, "; k += ", block_.depth, ") {\n      const i64 kc = ", s_.k, " - k < ",
           block_.depth, " ? ", s_.k, " - k : ", block_.depth, ";\n      pack(b + k * ", s_.b_k, "L, panel, kc, columns);\n",
           "      const f32* next = k + ", block_.depth, " < ", s_.k, " ? b + (k + ", block_.depth, ") * ", s_.b_k,
           "L : p + 1 < ", block_.panels, " && point + 1 < end ? b + ", w * s_.b_n, "L : (const f32*)0;\n");
    auto call = [&](const char* name) {
      return cat(name, "(a + k, panel, c, c_row, kc, k ? (const f32*)0 : start, next);\n");
    };
    if (last_block_rows() != rows)
      cat_to(out, "      if (mb == ", block_.row_blocks - 1, ") ", call("last_block"), "      else ", call("block"));
    else
      cat_to(out, "      ", call("block"));
    out += "    }\n";
    if (partial)
      cat_to(out, "    if (columns != ", w, ") {\n      const i64 rows = mb == ", block_.row_blocks - 1, " ? ",
             last_block_rows(), " : ", rows, ";\n      for (i64 m = 0; m < rows; ++m)\n",
             "        for (i64 n = 0; n < columns; ++n) whole[m * ", s_.c_row, "L + n] = edge[m * ", w, " + n];\n    }\n");
    out += "  }\n  return 0;\n}\n";
  }

  const Matmul& s_;
  Blocking block_;
  Prelude prelude_;
  std::string vec_, load_, store_, fma_;
};

}  // namespace

std::string emit_matmul(const Matmul& shape, const Target& target) {
  OXY_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0 && (shape.b_k == 1 || shape.b_n == 1), print(shape));
  return MatmulEmitter(shape, target).text();
}

int64_t matmul_range(const Matmul& shape, const Target& target) {
  Blocking b(shape, target);
  return shape.batch * b.row_blocks * b.panels;
}

int64_t matmul_scratch_bytes(const Matmul& shape, const Target& target) {
  Blocking b(shape, target);
  int64_t floats = b.depth * b.width + b.width;
  if (b.partial_panel(shape)) floats += b.rows_per_block * b.width;
  return floats * 4;
}

std::string print(const Matmul& s) {
  std::string batch = s.batch > 1 ? cat(s.batch, ", ") : "";
  return cat("[", batch, s.m, ", ", s.k, "] x [", s.b_batch ? batch : "", s.k, ", ", s.n, "]",
             s.b_n == 1 ? "" : " transposed", s.bias ? " + bias" : "");
}

}  // namespace oxy::codegen::cpp
