// The numbers that rules decide by: those of tuning.def as constants, and what follows from a
// machine.
#pragma once

#include <algorithm>
#include <cstddef>

#include "support/machine.h"

namespace oxy::tuning {

#define OXY_TUNING(type, name, value, unit, decides, found) inline constexpr type name = value;
#include "support/tuning.def"
#undef OXY_TUNING

// What the threads of one process count on of the last-level cache.
inline int64_t last_level_bytes(const Machine& m) {
  const Cache& c = m.l3.bytes > 0 ? m.l3 : m.l2;
  return std::min(c.bytes * std::min<int64_t>(m.threads, c.shared_by) / c.shared_by,
                  last_level_most);
}
// Attention whose matrix of scores is larger goes through memory.
inline int64_t attention_bytes(const Machine& m, bool halves = false) {
  return (halves ? half_attention_of_last_level : attention_of_last_level) * last_level_bytes(m);
}
inline int64_t scores_at_once(const Machine& m) {
  return m.l2.bytes / scores_of_l2 / static_cast<int64_t>(sizeof(float));
}
// Columns that our gemms finish at a time: tiles of gemm_tile_rows leave a quarter of the
// registers, of which AVX-512 has 32 and AVX2 16.
inline int gemm_panel_vectors(const Machine& m) { return m.vector_bytes == 64 ? 4 : 2; }
inline int64_t gemm_panel_columns(const Machine& m) {
  return m.vector_bytes / 4 * gemm_panel_vectors(m);
}
// Rows of a gemm of few rows without tiles, each of whose elements is a sum of k values.
inline int64_t dot_rows(bool halves, int64_t k) {
  return std::min(dot_most_rows, k / (halves ? dot_least_sum_of_halves : dot_least_sum));
}
// The most columns of a gemm that has one vector of them.
inline int64_t narrow_most_columns(const Machine& m) { return m.vector_bytes / 4; }
// Values of k of halves that it widens.
inline int64_t narrow_most_depth(const Machine& m, bool bf16) {
  return bf16 && m.avx512_bf16 && m.vector_bytes == 64 ? narrow_most_pairs : narrow_depth;
}
// Rows of a gemm of few rows whose sums are in registers, two vectors of each.
inline int row_tile_rows(const Machine& m) { return m.vector_bytes == 64 ? 12 : gemm_tile_rows; }
inline int64_t local_bytes(const Machine& m) { return m.l2.bytes / local_part_of_l2; }
inline int64_t table_bytes(const Machine& m) { return m.l1.bytes / tables_part_of_l1; }
// Loops that store nothing prefetch where a vector is a cache line: see docs/kernels.md.
inline bool prefetches_reads(const Machine& m) { return m.vector_bytes >= m.line_bytes; }
inline int64_t prefetch_ahead_bytes(const Machine& m) { return prefetch_lines * m.line_bytes; }
inline int64_t prefetch_run_bytes(const Machine& m) { return prefetch_least_run * m.page_bytes; }
inline int64_t prefetch_row_bytes(const Machine& m) { return m.l2.bytes / prefetch_part_of_l2; }
inline int64_t jam_row_bytes(const Machine& m) { return jam_shortest_row * m.page_bytes; }

}  // namespace oxy::tuning
