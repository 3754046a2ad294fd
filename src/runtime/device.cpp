// The CPU's allocations and launches.
#include "runtime/device.h"

#include "runtime/launch.h"
#include "runtime/memory.h"

namespace oxy::runtime {

Memory CpuDevice::allocate(int64_t bytes, Queue) const {
  auto block = std::make_shared<AlignedBlock>(static_cast<size_t>(bytes));
  return {block->data(), block};
}

int CpuDevice::launch(const SizedKernel& kernel, void* const* arguments, char* scratch,
                      Queue) const {
  return runtime::launch(kernel, arguments, scratch, host_);
}

}  // namespace oxy::runtime
