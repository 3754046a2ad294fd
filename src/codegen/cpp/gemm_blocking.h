// How the general gemm (gemm.cpp) is cut into blocks of rows, panels of columns and pieces of k,
// and what a thread's scratch holds.
#pragma once

#include <cstdint>

#include "codegen/cpp/gemm.h"
#include "support/tuning.h"

namespace oxy::codegen::cpp {

constexpr int kTileRows = tuning::gemm_tile_rows;
constexpr int kAmxTile = 16;  // rows, columns and steps of k of a tile of AMX

inline bool is_half(const Gemm& s) { return s.dtype != ir::DType::F32; }
inline bool has_columns(const Gemm& s) { return !s.a_k.is_constant(1); }
inline bool has_f32_result(const Gemm& s) { return !is_half(s) || s.to_f32; }
// A row of a panel is a cache line, which is asked for on the way through the rows.
inline bool is_line(ir::DType dtype, const Machine& m) {
  return dtype == ir::DType::F32 && tuning::gemm_panel_columns(m) * 4 == m.line_bytes;
}
// The same gemm with k in steps: of one value, or of a pair where the machine multiplies pairs.
Gemm in_steps(Gemm s, const Machine& target);

struct Blocking {
  int64_t width;  // of a panel
  Size channels;  // a panel holds at a time
  Size panels, row_blocks, rows_per_block;
  Size together = 1;  // panels that take a piece of k in turn
  // Rows of A are copied where they are converted, end with half a pair or a part of a tile, or
  // would push each other out of the cache: so far apart. By pieces of k, or once for a block.
  Size copy_row = 0, by_piece = 0;

  Blocking(const Gemm& given, const Machine& target);

 private:
  void cut_rows(const Gemm& s, const Machine& t, int64_t most);
  Size do_collide(const Size& apart, const Machine& t) const;
  void copy_pairs(const Gemm& s, const Machine& t, const Size& broken);
  void copy_rows(const Gemm& s, const Machine& t);
};

// Where the parts of a thread's scratch begin, in bytes.
struct Scratch {
  Size panel, start, zeros, edge, wide, epilogue, end;  // the pointers come first

  Scratch(const Gemm& given, const Machine& target);
};

}  // namespace oxy::codegen::cpp
