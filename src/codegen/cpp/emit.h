// C++ for the CPU: a Kernel as one header-free translation unit.
//
// The text uses vector extension types of Clang and GCC, the prelude of prelude.h and nothing else;
// SSA statements, never nested expressions. It defines
//   extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
//                         void* const* math);
// which runs the Parallel iterations begin .. end-1 (flattened, row-major) of the kernel and
// returns a status word: 0, or kOutOfRange and kDivideByZero or-ed. `buffers` are in the order of
// Kernel::buffers without Local ones, behind the address of the values of Kernel::parameters (i64)
// where there are any; `scratch` has scratch_bytes(kernel) for this call alone, aligned to 64;
// `math` is the table of math.def: functions of the host (Sleef). Equal kernels of repeated layers
// give equal texts: buffers and values are numbered anew and the function is always named `kernel`.
// Compile it with -O2 or -O3, -ffp-contract=off and the machine's instruction set.
#pragma once

#include <string>

#include "schedule/kernel.h"
#include "support/machine.h"

namespace oxy::codegen::cpp {

inline constexpr int kOutOfRange = 1;
inline constexpr int kDivideByZero = 2;

// Of the machine only the width of its vectors enters the texts; its caches decide how gemms are
// cut.
std::string emit(const schedule::Kernel& kernel, const Machine& target);
sym::Expr scratch_bytes(const schedule::Kernel& kernel);
sym::Expr scratch_bytes(const schedule::KernelBuffer& buffer);
// Symbols of the math table, in order, for a target ("Sleef_sinf16_u10avx512f", ...); the host
// looks them up.
std::vector<std::string> math_symbols(const Machine& target);

}  // namespace oxy::codegen::cpp
