// Allocation of what a plan hands out: small tensors from malloc (or the allocator that somebody
// has set in the place of torch's), large ones from the pool of warm blocks.
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <new>

#include "support/check.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::bridge {
namespace {

// What torch calls when the storage dies, on whatever thread.
void give_back(void* context) {
  std::unique_ptr<runtime::AlignedBlock> block(static_cast<runtime::AlignedBlock*>(context));
  output_pool().release(std::move(*block));
}

c10::DataPtr pooled(size_t bytes) {
  auto block = std::make_unique<runtime::AlignedBlock>(output_pool().acquire(bytes));
  void* data = block->data();
  return {data, block.release(), &give_back, c10::Device(c10::kCPU)};
}

// malloc's caches serve small requests in a fraction of the time that its aligned ones take.
c10::DataPtr small(size_t bytes) {
  if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
  void* start = std::malloc(bytes + runtime::kAlignment - alignof(std::max_align_t));
  if (start == nullptr) throw std::bad_alloc();
  const auto aligned =
      (reinterpret_cast<uintptr_t>(start) + runtime::kAlignment - 1) & -runtime::kAlignment;
  return {reinterpret_cast<void*>(aligned), start, &std::free, c10::Device(c10::kCPU)};
}

c10::DataPtr memory(size_t bytes) {
  if (bytes >= runtime::BlockPool::kMinBlock) return pooled(bytes);
  c10::Allocator* allocator = c10::GetCPUAllocator();
  return allocator == c10::GetDefaultCPUAllocator() ? small(bytes) : allocator->allocate(bytes);
}

}  // namespace

runtime::BlockPool& output_pool() {
  static auto* pool = new runtime::BlockPool();
  return *pool;
}

at::Tensor allocate(const runtime::TensorMeta& m, int64_t bytes) {
  bool plain = m.device.is_cpu() && m.offset == 0;
  OXY_CHECK(plain, "no output can be allocated as ", print(m));
  const auto size = static_cast<size_t>(bytes);
  c10::Storage storage(c10::Storage::use_byte_size_t(), size, memory(size), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(m.dtype)));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(m.sizes, m.strides, m.offset);
  return t;
}

}  // namespace oxy::bridge
