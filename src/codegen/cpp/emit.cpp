// Entry points of the C++ emitter.
#include "codegen/cpp/emit.h"

#include <unistd.h>

#include "codegen/cpp/kernel_writer.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

Target host_target() {
  Target t{0, false};
#ifdef _SC_LEVEL2_CACHE_SIZE
  if (const int64_t bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE); bytes > 0) t.first_level_bytes = bytes;
  if (const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) t.second_level_bytes = bytes;
#endif
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    t.vector_bytes = 64;
    t.bf16_instructions = __builtin_cpu_supports("avx512bf16");
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    t.vector_bytes = 32;
  }
#endif
  return t;
}

std::string emit(const schedule::Kernel& kernel, const Target& target) {
  OXY_CHECK(target.vector_bytes == 0 || target.vector_bytes == 32 || target.vector_bytes == 64,
            "target");
  return KernelWriter(kernel, target).write();
}

sym::Expr scratch_bytes(const schedule::KernelBuffer& b) {
  if (b.kind != schedule::KernelBuffer::Kind::Local) return 0;
  return sym::ceildiv(b.elements * ir::byte_size(b.dtype), 64) * 64;
}

sym::Expr scratch_bytes(const schedule::Kernel& kernel) {
  sym::Expr bytes = 0;
  for (const schedule::KernelBuffer& b : kernel.buffers) bytes += scratch_bytes(b);
  return bytes;
}

}  // namespace oxy::codegen::cpp
