// What products of all kinds share in their texts: how the columns of B are packed into a panel, how the next panel is
// prefetched, and how rows are cut into tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cpp/prelude.h"

namespace oxy::codegen::cpp {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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
// The distinct sizes of tiles that these numbers of rows need, in ascending order.
std::vector<int64_t> tile_sizes(std::initializer_list<int64_t> rows, int64_t max_rows);

// Writes the functions that deal with panels of B, where B[k, n] lies at b[k * stride_k + n * stride_n] and one of the
// strides is 1. A panel is two vectors wide and up to `depth` values of k deep.
class PanelWriter {
 public:
  PanelWriter(Prelude& prelude, int64_t stride_k, int64_t stride_n, int64_t depth);

  int lanes() const { return lanes_; }
  int64_t width() const { return 2 * lanes_; }
  static int max_rows(const Target& target) { return target.vector_bytes == 64 ? 12 : 6; }

  // pack(b, to, kc, columns): to[k][0..width) = B's panel; columns beyond `columns` are 0.
  void pack(std::string& out);
  // Cache lines of a panel of B before packing, and where line number `line` begins, from the panel's first value.
  int64_t prefetch_lines() const;
  std::string prefetch_offset() const;
  // Statements that set x0, y0 .. x(R-1), y(R-1): from start[0..width), or from the R rows of c.
  void begin_tile(std::string& out, int64_t rows);
  // Statements that add a0..a(R-1) (expressions of one value each) times the panel's row at `panel`.
  void add_to_tile(std::string& out, int64_t rows, const std::string& panel, const std::string& a, const char* indent);
  void end_tile(std::string& out, int64_t rows);

 private:
  void transpose8(std::string& out);

  Prelude& prelude_;
  int64_t stride_k_, stride_n_, depth_;
  int lanes_;
  std::string vec_, load_, store_, fma_, splat_;
};

}  // namespace oxy::codegen::cpp
