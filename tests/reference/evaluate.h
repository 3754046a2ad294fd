// Runs an ATen graph by the rules of the op table on numbers, one element at a time: the meaning of
// the rules, for tests. Shapes are constants; an op without a rule is Unsupported.
#pragma once

#include <vector>

#include "ops/op_table.h"

namespace oxy::ops {

// A number of any dtype that loops compute with.
union Number {
  double real;  // floating dtypes
  int64_t integer = 0;
};

// The elements in row-major order, whatever the strides of the type say.
using Elements = std::vector<Number>;

// The elements of each output of `g` (every one a Value) for those of its inputs.
std::vector<Elements> evaluate(const ir::Graph& g, const std::vector<Elements>& inputs);

}  // namespace oxy::ops
