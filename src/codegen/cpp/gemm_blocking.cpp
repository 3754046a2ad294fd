// The sizes of a gemm's blocks, by the machine's caches; all of it may be of sizes that vary.
#include "codegen/cpp/gemm_blocking.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::codegen::cpp {
namespace {

// Between rows of B that are packed as they lie; else 0.
Size bytes_between_rows(const Gemm& s) {
  return s.b_n.is_constant(1) && !s.packed ? s.b_k * ir::byte_size(s.dtype) : Size(0);
}
// Of so many rows of B's as many as have a place each in the second-level cache: those that lie a
// number of pages apart share its sets.
Size prefetched(const Gemm& s, const Machine& t, int64_t rows) {
  if (is_line(s.dtype, t)) return rows;
  const Size apart = bytes_between_rows(s);
  const Size collide = is_less(0, apart) * is_equal(apart % t.page_bytes, 0);
  return select(
      collide, clamp(Size(t.l2.bytes) / max(apart, 1), Size(tuning::gemm_least_depth), rows), rows);
}
// What a block's rows may take of the second-level cache.
int64_t cache(const Gemm& s, const Machine& t) {
  // (Rows of B, which the first tile packs, pass through that cache as well.)
  const bool lies_in_rows = s.b_n.is_constant(1) && !s.packed;
  return t.l2.bytes / 4 * (lies_in_rows ? 2 : 3);
}

// Values of k of so many equal pieces, but for the last one.
Size in_pieces(const Size& k, const Size& pieces, int64_t multiple) {
  return ceil_div(ceil_div(k, pieces), multiple) * multiple;
}

}  // namespace

Gemm in_steps(Gemm s, const Machine& t) {
  if (multiplies_pairs(s.dtype, t)) s.channels = ceil_div(s.channels, 2);
  return s;
}

Blocking::Blocking(const Gemm& given, const Machine& t) {
  OXY_CHECK(t.vector_bytes >= 32, "gemms need vectors");
  const Gemm s = in_steps(given, t);
  width = tuning::gemm_panel_columns(t);
  // Values of k whose panel takes a small part of the second-level cache, in equal pieces of a
  // multiple of 8.
  const bool tiles = multiplies_tiles(s.dtype, t);
  const int64_t multiple = tiles ? kAmxTile : 8;
  const Size depth =
      tiles ? Size(tuning::tiles_depth)
            : prefetched(s, t,
                         std::min<int64_t>(tuning::gemm_depth,
                                           t.l2.bytes / tuning::panel_part_of_l2 / (width * 4)));
  channels = in_pieces(s.channels, ceil_div(s.channels * s.taps(), depth), multiple);
  panels = ceil_div(s.n, width);
  cut_rows(s, t, tiles ? tuning::tiles_most_rows : tuning::gemm_most_rows);
  if (s.is_convolution()) return;
  if (multiplies_pairs(s.dtype, t))
    copy_pairs(s, t, tiles ? is_less(0, given.channels % (2 * kAmxTile)) : given.channels % 2);
  else
    copy_rows(s, t);
}

// A block's rows stay in the second-level cache where that costs little: a packed panel is read
// again for each of a few blocks, another one would be packed again.
void Blocking::cut_rows(const Gemm& s, const Machine& t, int64_t most) {
  const Size fits =
      clamp(Size(cache(s, t)) / (s.channels * 4), Size(tuning::gemm_fewest_rows), most);
  Size most_rows = most;
  if (multiplies_pairs(s.dtype, t))
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

// Addresses a page apart share a set of the first-level cache, whose ways are pages.
Size Blocking::do_collide(const Size& apart, const Machine& t) const {
  return is_at_most(kTileRows, rows_per_block) * is_equal(apart % t.page_bytes, 0);
}

void Blocking::copy_pairs(const Gemm& s, const Machine& t, const Size& broken) {
  const Size collide = do_collide(s.a_row * 2, t);
  copy_row = max(broken, collide) * (ceil_div(s.channels, 16) * 16 + collide * 16);
}

void Blocking::copy_rows(const Gemm& s, const Machine& t) {
  const Size row_bytes = s.channels * 4;
  const bool columns = has_columns(s);
  // Columns that lie near to each other are read where they lie.
  const Size copied = is_half(s) ? Size(1)
                      : columns  ? max(is_less(tuning::gemm_columns_pitch, s.a_k * 4),
                                       is_less(tuning::gemm_columns_panels, panels))
                                 : Size(0);
  // Rows that few panels read are not worth a copy.
  const Size own =
      columns ? Size(0) : do_collide(s.a_row * 4, t) * is_less(tuning::gemm_rows_panels, panels);
  const Size collide = select(copied, do_collide(row_bytes, t), own);
  // Columns are copied in whole vectors.
  copy_row =
      select(copied, s.channels + max(collide, Size(columns)) * 16, collide * (s.channels + 16));
  // Panels side by side share the pages of B's rows, which are gone for the next panel where all
  // of them span more than the cache.
  const Size pieces =
      is_less(channels, s.channels) * max(is_less(cache(s, t), rows_per_block * row_bytes),
                                          is_less(t.l2.bytes, s.channels * bytes_between_rows(s)));
  together = select(pieces,
                    clamp(max(Size(cache(s, t)) / (rows_per_block * (width * 4)),
                              tuning::gemm_piece_columns / width),
                          1, max(panels, 1)),
                    1);
  by_piece = pieces * max(copied, collide);
  // The copy stays in the second-level cache.
  const Size fits = max(Size(t.l2.bytes) / (rows_per_block * 4), tuning::gemm_least_depth);
  channels = select(by_piece * is_less(fits, channels),
                    in_pieces(s.channels, ceil_div(s.channels, fits), 8), channels);
  copy_row = select(by_piece, channels + 16, copy_row);
}

Scratch::Scratch(const Gemm& given, const Machine& t) {
  const Blocking b(given, t);
  const Gemm s = in_steps(given, t);
  panel = ceil_div(b.rows_per_block * s.taps() * 8, 64) * 64;
  start = panel + b.channels * s.taps() * (b.width * 4);
  zeros = start + b.width * 4;
  edge = zeros;
  if (s.is_convolution()) edge = edge + ceil_div(s.channels, 16) * 64;
  const bool by_tiles = multiplies_tiles(s.dtype, t);
  const Size some_edge = !has_f32_result(s) ? Size(1)
                         : !is_half(s)      ? b.by_piece
                                            : by_tiles * is_less(0, s.n % b.width);
  wide = edge + some_edge * b.together * b.rows_per_block * (b.width * 4);
  epilogue = ceil_div(wide + b.rows_per_block * b.copy_row * 4, 64) * 64;
  end = epilogue + s.epilogue_scratch;
}

}  // namespace oxy::codegen::cpp
