// Entry points of the C++ emitter.
#include "codegen/cpp/emit.h"

#include "codegen/cpp/kernel_writer.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

std::string emit(const schedule::Kernel& kernel, const Machine& target) {
  OXY_CHECK(target.vector_bytes == 0 || target.vector_bytes == 32 || target.vector_bytes == 64,
            "target");
  return KernelWriter(kernel, target).write();
}

int64_t scratch_bytes(const schedule::Kernel& kernel) {
  int64_t bytes = 0;
  for (const schedule::KernelBuffer& b : kernel.buffers) {
    if (b.kind != schedule::KernelBuffer::Kind::Local) continue;
    OXY_CHECK(b.elements.is_const(), "symbolic size of a local buffer");
    bytes += (b.elements.value() * ir::byte_size(b.dtype) + 63) / 64 * 64;
  }
  return bytes;
}

}  // namespace oxy::codegen::cpp
