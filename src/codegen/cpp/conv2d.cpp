// A parallel point is a block of output pixels (up to 256, all of one image) and a panel of output channels; panels run
// innermost, so that the pixels' pointers are made once a block and their input stays in the cache.
#include "codegen/cpp/conv2d.h"

#include "codegen/cpp/panel_text.h"
#include "support/check.h"

namespace oxy::codegen::cpp {
namespace {

struct Blocking {
  int64_t width, max_rows;
  int64_t channels;  // input channels a panel holds at a time
  int64_t panels, row_blocks, rows_per_block, last_rows;

  Blocking(const Conv2d& s, const Target& t) {
    width = t.vector_bytes / 4 * 2;
    max_rows = PanelWriter::max_rows(t);
    int64_t pieces = ceil_div(s.in_channels * s.taps(), 288);
    channels = ceil_div(s.in_channels, std::min(pieces, s.in_channels));
    panels = ceil_div(s.out_channels, width);
    const int64_t pixels = s.out_h * s.out_w;
    rows_per_block = ceil_div(pixels, ceil_div(pixels, 256));
    row_blocks = ceil_div(pixels, rows_per_block);
    last_rows = pixels - (row_blocks - 1) * rows_per_block;
  }
  int64_t depth(const Conv2d& s) const { return channels * s.taps(); }
  bool partial_panel(const Conv2d& s) const { return s.out_channels % width != 0; }
};

class ConvEmitter {
 public:
  ConvEmitter(const Conv2d& s, const Target& t)
      : s_(s), block_(s, t), prelude_(t), panels_(prelude_, 1, s.in_channels * s.taps(), block_.depth(s)) {}

  std::string text() {
    std::string body;
    panels_.pack(body);
    pixel_pointers(body);
    for (int64_t rows : tile_sizes({block_.rows_per_block, block_.last_rows}, block_.max_rows)) tile(body, rows);
    point_rows(body, "block", block_.rows_per_block);
    if (block_.last_rows != block_.rows_per_block) point_rows(body, "last_block", block_.last_rows);
    kernel(body);
    return cat("// ", print(s_), "\n", prelude_.text(), body);
  }

 private:
  // tileR(rows, channel, panel, c, c_row, count, start): `rows` holds R pointers a tap; channels channel .. channel+count-1.
  void tile(std::string& out, int64_t rows) {
    cat_to(out, "static void tile", rows, "(const f32* const* rows, i64 channel, const f32* panel, f32* c, i64 c_row, ",
           "i64 count, const f32* start) {\n");
    panels_.begin_tile(out, rows);
    cat_to(out, "  for (i64 t = 0; t < ", s_.taps(), "; ++t) {\n");
    for (int64_t i = 0; i < rows; i++)
      cat_to(out, "    const f32* r", i, " = rows[t * ", rows, " + ", i, "] + channel;\n");
    cat_to(out, "    const f32* b = panel + t * ", block_.width, ";\n    for (i64 k = 0; k < count; ++k) {\n");
    panels_.add_to_tile(out, rows, "b", "r#[k]", "      ");
    cat_to(out, "      b += ", s_.taps() * block_.width, ";\n    }\n  }\n");
    panels_.end_tile(out, rows);
    out += "}\n";
  }

  // NAME_pointers: the pointers of a block's pixels. NAME: all its tiles with a panel.
  void point_rows(std::string& out, const char* name, int64_t rows) {
    Tiles t(rows, block_.max_rows);
    const int64_t lines = panels_.prefetch_lines(), each = ceil_div(lines, t.big + t.small);
    cat_to(out, "static void ", name, "_pointers(const f32* image, const f32* zeros, i64 pixel, const f32** rows) {\n");
    auto pointers = [&](int64_t count, int64_t size) {
      if (!count) return;
      cat_to(out, "  for (i64 i = 0; i < ", count, "; ++i) {\n    for (i64 r = 0; r < ", size,
             "; ++r) pixel_pointers(image, zeros, pixel++, rows + r, ", size, ");\n    rows += ", size * s_.taps(), ";\n  }\n");
    };
    pointers(t.big, t.size + 1);
    pointers(t.small, t.size);
    cat_to(out, "}\nstatic void ", name, "(const f32* const* rows, i64 channel, const f32* panel, f32* c, i64 c_row, ",
           "i64 count, const f32* start, const f32* next) {\n  i64 line = 0;\n");
    auto tiles = [&](int64_t count, int64_t size) {
      if (!count) return;
      cat_to(out, "  for (i64 i = 0; i < ", count, "; ++i) {\n    if (next)\n      for (i64 j = 0; j < ", each,
             " && line < ", lines, "; ++j, ++line) __builtin_prefetch(next + ", panels_.prefetch_offset(), ", 0, 2);\n",
             "    tile", size, "(rows, channel, panel, c, c_row, count, start);\n    rows += ", size * s_.taps(),
             ";\n    c += ", size, " * c_row;\n  }\n");
    };
    tiles(t.big, t.size + 1);
    tiles(t.small, t.size);
    out += "}\n";
  }

  // The input pixels under the filter at an output pixel, one a tap, `step` pointers apart.
  void pixel_pointers(std::string& out) const {
    cat_to(out, "OXY_INLINE void pixel_pointers(const f32* image, const f32* zeros, i64 pixel, const f32** to, i64 step) {\n",
           "  const i64 y = pixel / ", s_.out_w, " * ", s_.stride_h, " - ", s_.pad_h, ", x = pixel % ", s_.out_w, " * ",
           s_.stride_w, " - ", s_.pad_w, ";\n  for (i64 h = 0; h < ", s_.kernel_h, "; ++h)\n    for (i64 w = 0; w < ",
           s_.kernel_w, "; ++w) {\n      const i64 iy = y + h * ", s_.dilation_h, ", ix = x + w * ", s_.dilation_w,
           ";\n      const b8 inside = iy >= 0 && iy < ", s_.in_h, " && ix >= 0 && ix < ", s_.in_w,
           ";\n      to[(h * ", s_.kernel_w, " + w) * step] = inside ? image + (iy * ", s_.in_w, " + ix) * ", s_.in_channels,
           " : zeros;\n    }\n}\n");
  }

  void kernel(std::string& out) {
    const int64_t w = block_.width, taps = s_.taps(), k = s_.in_channels * taps, depth = block_.depth(s_);
    const bool partial = block_.partial_panel(s_), last = block_.last_rows != block_.rows_per_block;
    const int64_t pixels = s_.out_h * s_.out_w;
    cat_to(out, "extern \"C\" int kernel(void* const* buffers, long begin, long end, void* scratch, void* const* math) {\n",
           "  (void)math;\n  const f32* X = (const f32*)buffers[0] + ", s_.x_offset, ";\n  const f32* W = (const f32*)buffers[1] + ",
           s_.w_offset, ";\n");
    if (s_.bias) cat_to(out, "  const f32* bias = (const f32*)buffers[2] + ", s_.bias_offset, ";\n");
    cat_to(out, "  f32* C = (f32*)buffers[", s_.bias ? 3 : 2, "];\n  const f32** rows = (const f32**)scratch;\n",
           "  f32* panel = (f32*)(rows + ", block_.rows_per_block * taps, ");\n  f32* start = panel + ", depth * w,
           ";\n  f32* zeros = start + ", w, ";\n");
    if (partial) cat_to(out, "  f32* edge = zeros + ", s_.in_channels, ";\n");
    cat_to(out, "  for (i64 n = 0; n < ", s_.in_channels, "; ++n) zeros[n] = 0;\n");
    if (!s_.bias) cat_to(out, "  for (i64 n = 0; n < ", w, "; ++n) start[n] = 0;\n");
    cat_to(out, "  i64 known = -1;\n  for (i64 point = begin; point < end; ++point) {\n    const i64 p = point % ", block_.panels,
           ";\n    const i64 block_number = point / ", block_.panels, ";\n    const i64 mb = block_number % ", block_.row_blocks,
           ";\n    const i64 batch = block_number / ", block_.row_blocks, ";\n    const i64 columns = ",
           partial ? cat("p == ", block_.panels - 1, " ? ", s_.out_channels - (block_.panels - 1) * w, " : ", w) : cat(w),
           ";\n    if (block_number != known) {\n      known = block_number;\n      const f32* image = X + batch * ",
           s_.in_h * s_.in_w * s_.in_channels, "L;\n      ");
    auto choose = [&](const char* suffix, const std::string& arguments) {
      std::string plain = cat("block", suffix, arguments);
      return last ? cat("if (mb == ", block_.row_blocks - 1, ") last_", plain, "      else ", plain) : plain;
    };
    out += choose("_pointers", cat("(image, zeros, mb * ", block_.rows_per_block, ", rows);\n"));
    cat_to(out, "    }\n    const f32* b = W + p * ", w * k, "L;\n    f32* c = C + (batch * ", pixels, "L + mb * ",
           block_.rows_per_block, "L) * ", s_.out_channels, " + p * ", w, ";\n    i64 c_row = ", s_.out_channels, ";\n");
    if (partial) cat_to(out, "    f32* whole = c;\n    if (columns != ", w, ") {\n      c = edge;\n      c_row = ", w, ";\n    }\n");
    if (s_.bias) cat_to(out, "    for (i64 n = 0; n < ", w, "; ++n) start[n] = n < columns ? bias[p * ", w, " + n] : 0;\n");
    cat_to(out, "    for (i64 channel = 0; channel < ", s_.in_channels, "; channel += ", block_.channels,
           ") {\n      const i64 count = ", s_.in_channels, " - channel < ", block_.channels, " ? ", s_.in_channels,
           " - channel : ", block_.channels, ";\n      pack(b + channel * ", taps, ", panel, count * ", taps,
           ", columns);\n      const f32* next = channel + ", block_.channels, " < ", s_.in_channels, " ? b + (channel + ",
           block_.channels, ") * ", taps, " : p + 1 < ", block_.panels, " && point + 1 < end ? b + ", w * k,
           "L : (const f32*)0;\n      ",
           choose("", "(rows, channel, panel, c, c_row, count, channel ? (const f32*)0 : start, next);\n"), "    }\n");
    if (partial)
      cat_to(out, "    if (columns != ", w, ") {\n      const i64 count = mb == ", block_.row_blocks - 1, " ? ", block_.last_rows,
             " : ", block_.rows_per_block, ";\n      for (i64 m = 0; m < count; ++m)\n        for (i64 n = 0; n < columns; ++n) ",
             "whole[m * ", s_.out_channels, "L + n] = edge[m * ", w, " + n];\n    }\n");
    out += "  }\n  return 0;\n}\n";
  }

  const Conv2d& s_;
  Blocking block_;
  Prelude prelude_;
  PanelWriter panels_;
};

}  // namespace

std::string emit_conv2d(const Conv2d& shape, const Target& target) { return ConvEmitter(shape, target).text(); }

int64_t conv2d_range(const Conv2d& shape, const Target& target) {
  Blocking b(shape, target);
  return shape.batch * b.row_blocks * b.panels;
}

int64_t conv2d_scratch_bytes(const Conv2d& shape, const Target& target) {
  Blocking b(shape, target);
  int64_t floats = b.depth(shape) * b.width + b.width + shape.in_channels;
  if (b.partial_panel(shape)) floats += b.rows_per_block * b.width;
  return b.rows_per_block * shape.taps() * 8 + floats * 4;
}

std::string print(const Conv2d& s) {
  return cat("[", s.batch, ", ", s.in_channels, ", ", s.in_h, ", ", s.in_w, "] * [", s.out_channels, ", ", s.in_channels,
             ", ", s.kernel_h, ", ", s.kernel_w, "], stride ", s.stride_h, " ", s.stride_w, ", padding ", s.pad_h, " ",
             s.pad_w, ", channels last", s.bias ? " + bias" : "");
}

}  // namespace oxy::codegen::cpp
