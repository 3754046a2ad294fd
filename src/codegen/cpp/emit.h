// C++ for the CPU: a Kernel as one header-free translation unit.
//
// The text uses vector extension types of Clang and GCC, the prelude of prelude.h and nothing else;
// SSA statements, never nested expressions. It defines
//   extern "C" int kernel(void* const* buffers, long begin, long end, void* scratch,
//                         void* const* math);
// which runs the Parallel points begin .. end-1 (flattened, row-major) of the kernel and returns a
// status word: 0, or kOutOfRange and kDivideByZero or-ed. `buffers` are in the order of
// Kernel::buffers without Local ones, behind the address of the values of Kernel::parameters (i64) where there are any;
// `scratch` has scratch_bytes(kernel) for this call alone, aligned to 64; `math` is the table of math.def: functions of the host (Sleef). Equal kernels of
// repeated layers give equal texts: buffers and values are numbered anew and the function is always
// named `kernel`. Compile it with -O2 or -O3, -ffp-contract=off and the machine's instruction set.
#pragma once

#include <string>

#include "schedule/kernel.h"

namespace oxy::codegen::cpp {

// The machine to emit for.
struct Target {
  int vector_bytes = 64;           // 64: AVX-512, 32: AVX2, 0: plain C++
  bool bf16_instructions = false;  // AVX512_BF16
  // Of a core; only how products are cut depends on them, and no result.
  int64_t first_level_bytes = 32 << 10, second_level_bytes = 512 << 10;
};
Target host_target();

inline constexpr int kOutOfRange = 1;
inline constexpr int kDivideByZero = 2;

std::string emit(const schedule::Kernel& kernel, const Target& target);
sym::Expr scratch_bytes(const schedule::Kernel& kernel);
sym::Expr scratch_bytes(const schedule::KernelBuffer& buffer);
// Symbols of the math table, in order, for a target ("Sleef_sinf16_u10avx512f", ...); the host
// looks them up.
std::vector<std::string> math_symbols(const Target& target);

}  // namespace oxy::codegen::cpp
