// Values known to hold one number everywhere: what `full` makes, and plain numbers.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace oxy::passes {

// A number as a tensor of this dtype holds it. Integers are exact up to 2^53.
struct Uniform {
  double value = 0;
  // Of a tensor; DType::None for a plain number, which takes the dtype of what it meets.
  ir::DType dtype = ir::DType::None;
};

// Of a number, or of a value that aten.full makes in a dtype that round_to knows.
std::optional<Uniform> uniform_of(const ir::Graph& g, const ir::Arg& a);

// v converted to the dtype as ATen converts numbers; nothing where that is undefined (NaN to an
// integer, out of range) or not exact in a double, and for dtypes that are not folded (f16, f8,
// complex).
std::optional<double> round_to(ir::DType dtype, double v);

}  // namespace oxy::passes
