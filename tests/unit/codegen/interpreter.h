// Runs a kernel statement by statement on scalars: what the emitted text must compute.
#pragma once

#include <vector>

#include "schedule/kernel.h"

namespace oxy::codegen::cpp::testing {

// `buffers` as the emitted function takes them. Floating-point values are computed in double and
// rounded to their dtype after each statement; sums are folded in double. Returns the status word.
int interpret(const schedule::Kernel& kernel, const std::vector<void*>& buffers);

// An element of memory as a number, and back (rounded to the dtype).
double read_number(ir::DType dtype, const void* memory, int64_t at);
void write_number(ir::DType dtype, void* memory, int64_t at, double v);

}  // namespace oxy::codegen::cpp::testing
