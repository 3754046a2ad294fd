// Where an op's function stands in the math table of a kernel (math.def).
#pragma once

#include <optional>

#include "codegen/cpp/emit.h"

namespace oxy::codegen::cpp {

// Row of the function for f32 or f64 operands; nothing where the table has none.
std::optional<int> math_row(ops::LoopOp op, ir::DType dtype);

}  // namespace oxy::codegen::cpp
