// The emitted text, from the inside out: `tile` (rows of A times the packed panel, in registers), `pack` (a panel of B),
// `kernel` (blocks of rows, panels, blocks of k). All sizes are constants of the text.
#include "codegen/cpp/matmul.h"

#include <algorithm>

#include "codegen/cpp/panel_text.h"
#include "support/check.h"

namespace oxy::codegen::cpp {
namespace {

// How a product is cut. A block of A is rows_per_block x depth; it stays in the second-level cache.
struct Blocking {
  int64_t width;           // columns of a panel: two vectors
  int64_t max_rows;        // rows of a tile
  int64_t depth;           // values of k a panel holds at a time
  int64_t panels;
  int64_t row_blocks, rows_per_block;

  Blocking(const Matmul& s, const Target& t) {
    width = t.vector_bytes / 4 * 2;
    max_rows = PanelWriter::max_rows(t);
    depth = std::max<int64_t>(8, ceil_div(ceil_div(s.k, ceil_div(s.k, 256)), 8) * 8);
    panels = ceil_div(s.n, width);
    row_blocks = ceil_div(s.m, 256);
    rows_per_block = ceil_div(s.m, row_blocks);
    row_blocks = ceil_div(s.m, rows_per_block);
  }
  bool partial_panel(const Matmul& s) const { return s.n % width != 0; }
};

class MatmulEmitter {
 public:
  MatmulEmitter(const Matmul& s, const Target& t)
      : s_(s), block_(s, t), prelude_(t), panels_(prelude_, s.b_k, s.b_n, block_.depth) {}

  std::string text() {
    std::string body;
    panels_.pack(body);
    for (int64_t rows : tile_sizes({block_.rows_per_block, last_block_rows()}, block_.max_rows)) tile(body, rows);
    rows_of_tiles(body, "block", block_.rows_per_block);
    if (last_block_rows() != block_.rows_per_block) rows_of_tiles(body, "last_block", last_block_rows());
    kernel(body);
    return cat("// ", print(s_), "\n", prelude_.text(), body);
  }

 private:
  int64_t last_block_rows() const { return s_.m - (block_.row_blocks - 1) * block_.rows_per_block; }

  // tileR(a, panel, c, row stride of c, kc, start): R rows; `start` is what the accumulators begin with (width values),
  // or null: the tile's own values.
  void tile(std::string& out, int64_t rows) {
    cat_to(out, "static void tile", rows, "(const f32* a, const f32* panel, f32* c, i64 c_row, i64 kc, ",
           "const f32* start) {\n");
    panels_.begin_tile(out, rows);
    out += "  for (i64 k = 0; k < kc; ++k) {\n";
    panels_.add_to_tile(out, rows, cat("panel + k * ", block_.width), cat("a[# * ", s_.a_row, "L + k]"), "    ");
    out += "  }\n";
    panels_.end_tile(out, rows);
    out += "}\n";
  }

  // name(a, panel, c, c_row, kc, start, next, lines): all tiles of a block of rows, prefetching `next` along the way.
  void rows_of_tiles(std::string& out, const char* name, int64_t rows) {
    Tiles t(rows, block_.max_rows);
    const int64_t lines = panels_.prefetch_lines(), each = ceil_div(lines, t.big + t.small);
    cat_to(out, "static void ", name, "(const f32* a, const f32* panel, f32* c, i64 c_row, i64 kc, ",
           "const f32* start, const f32* next) {\n  i64 line = 0;\n");
    auto loop = [&](int64_t count, int64_t size) {
      if (!count) return;
      cat_to(out, "  for (i64 i = 0; i < ", count, "; ++i) {\n    if (next)\n      for (i64 j = 0; j < ", each,
             " && line < ", lines, "; ++j, ++line) __builtin_prefetch(next + ", panels_.prefetch_offset(), ", 0, 2);\n",
             "    tile", size, "(a, panel, c, c_row, kc, start);\n    a += ", size * s_.a_row, ";\n    c += ", size,
             " * c_row;\n  }\n");
    };
    loop(t.big, t.size + 1);
    loop(t.small, t.size);
    out += "}\n";
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
  PanelWriter panels_;
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
