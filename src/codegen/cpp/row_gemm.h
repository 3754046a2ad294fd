// Gemms of few rows with a matrix whose rows are contiguous, in f32: eight rows of B at a time are
// read once, as they lie, each value times one of A and added to the row of sums, which stays in
// the first-level cache.
#pragma once

#include "codegen/cpp/gemm.h"

namespace oxy::codegen::cpp {

bool is_row_gemm(const Gemm& p);

// As in gemm.h, for such a gemm.
std::string emit_row_gemm(const Machine& target);
std::vector<int64_t> row_gemm_parameters(const Gemm& p);
int64_t row_gemm_range(const Gemm& p);
int64_t row_gemm_scratch_bytes(const Gemm& p);

}  // namespace oxy::codegen::cpp
