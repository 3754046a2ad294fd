// Products of few rows with a matrix that is contiguous along k (a linear layer's weights): each element of C is a sum along
// the lanes, so that B is read once, as it lies, without being packed. Six rows of A (three without AVX-512) times four
// columns of B stay in registers.
#pragma once

#include "codegen/cpp/product.h"

namespace oxy::codegen::cpp {

bool is_dot_product(const Product& p);

// As in product.h, for such a product.
std::string emit_dot_product(ir::DType dtype, const Machine& target);
std::vector<int64_t> dot_product_parameters(const Product& p);
int64_t dot_product_range(const Product& p);

}  // namespace oxy::codegen::cpp
