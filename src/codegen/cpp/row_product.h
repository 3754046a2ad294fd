// Products of few rows with a matrix whose rows are contiguous, in f32: eight rows of B at a time are read once, as they lie,
// each value times one of A and added to the row of sums, which stays in the first-level cache.
#pragma once

#include "codegen/cpp/product.h"

namespace oxy::codegen::cpp {

bool is_row_product(const Product& p);

// As in product.h, for such a product.
std::string emit_row_product(const Machine& target);
std::vector<int64_t> row_product_parameters(const Product& p);
int64_t row_product_range(const Product& p);
int64_t row_product_scratch_bytes(const Product& p);

}  // namespace oxy::codegen::cpp
