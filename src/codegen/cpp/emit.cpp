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
