// Allocation of what a plan hands out: small tensors from torch's allocator, large ones from the pool of warm blocks.
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include "support/check.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::bridge {
namespace {

// What torch calls when the storage dies, on whatever thread.
void give_back(void* context) {
  std::unique_ptr<runtime::AlignedBlock> block(static_cast<runtime::AlignedBlock*>(context));
  output_pool().release(std::move(*block));
}

at::Tensor pooled(const runtime::TensorMeta& m, int64_t bytes) {
  auto block =
      std::make_unique<runtime::AlignedBlock>(output_pool().acquire(static_cast<size_t>(bytes)));
  void* data = block->data();
  c10::DataPtr pointer(data, block.release(), &give_back, c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
                       std::move(pointer), c10::GetCPUAllocator(), /*resizable=*/true);
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(m.dtype)));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(m.sizes, m.strides, m.offset);
  return t;
}

}  // namespace

runtime::BlockPool& output_pool() {
  static auto* pool = new runtime::BlockPool();
  return *pool;
}

at::Tensor allocate(const runtime::TensorMeta& m, int64_t bytes) {
  bool plain = m.device.is_cpu() && m.offset == 0;
  OXY_CHECK(plain, "no output can be allocated as ", print(m));
  if (static_cast<size_t>(bytes) >= output_pool().limits().min_block) return pooled(m, bytes);
  return at::detail::empty_strided_cpu(m.sizes, m.strides, static_cast<c10::ScalarType>(m.dtype));
}

}  // namespace oxy::bridge
