// Matrix products of f32 in our own kernels: C[b, m, n] = A[b, m, k] * B[b, k, n] + bias[n].
//
// The method is that of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008) with the
// packing of A left out, since A's rows are read as broadcasts: for a block of `depth` values of k, a panel of B as wide
// as two vectors is packed into the first-level cache, and tiles of up to six (twelve with AVX-512) rows of A times that
// panel are kept in registers. While a panel is worked on, the next one is prefetched, so that weights arrive from
// memory at full speed without being packed ahead of the call.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/cpp/emit.h"

namespace oxy::codegen::cpp {

struct Matmul {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_batch = 0, a_row = 0;              // strides of A in elements; along k it is 1
  int64_t b_batch = 0, b_k = 0, b_n = 0;       // strides of B; one of b_k and b_n is 1
  int64_t c_batch = 0, c_row = 0;              // strides of C; along n it is 1
  // Of the first element, from the start of its buffer.
  int64_t a_offset = 0, b_offset = 0, c_offset = 0, bias_offset = 0;
  bool bias = false;                           // n values, contiguous
  friend bool operator==(const Matmul&, const Matmul&) = default;
};

// The kernel, with the interface of emit.h; its buffers are A, B, the bias where there is one, C. `target` must have
// vectors.
std::string emit_matmul(const Matmul& shape, const Target& target);
int64_t matmul_range(const Matmul& shape, const Target& target);          // parallel points
int64_t matmul_scratch_bytes(const Matmul& shape, const Target& target);  // a thread
std::string print(const Matmul& shape);                                   // "[128, 768] x [768, 3072] + bias"

}  // namespace oxy::codegen::cpp
