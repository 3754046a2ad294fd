// Gemms of few rows with a matrix that is contiguous along k (a linear layer's weights): each
// element of C is a sum along the lanes, so that B is read once, as it lies, without being packed.
// Six rows of A (three without AVX-512) times four columns of B stay in registers.
#pragma once

#include "codegen/cpp/gemm.h"

namespace oxy::codegen::cpp {

bool is_dot_gemm(const Gemm& p);

// As in gemm.h, for such a gemm.
std::string emit_dot_gemm(ir::DType dtype, const Machine& target);
std::vector<int64_t> dot_gemm_parameters(const Gemm& p);
int64_t dot_gemm_range(const Gemm& p);

}  // namespace oxy::codegen::cpp
