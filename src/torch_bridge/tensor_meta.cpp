// Metadata of tensors, copies into a predicted layout, and the memory of what a plan hands out:
// small tensors from malloc (or the allocator that somebody has set in the place of torch's), large
// ones from the pool of warm blocks.
#include "torch_bridge/tensor_meta.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "support/check.h"

namespace oxy::bridge {
namespace {

// What torch calls when the storage dies, on whatever thread.
void give_back(void* context) {
  runtime::BlockPool::Lease(static_cast<runtime::BlockPool::Block*>(context)).reset();
}

c10::DataPtr pooled(size_t bytes) {
  runtime::BlockPool::Lease block = output_pool().acquire(bytes);
  void* data = block->data;
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

void copy_elements(char* to, const char* from, const at::Tensor& t, const at::Tensor& f,
                   int64_t d) {
  const auto size = static_cast<int64_t>(t.element_size());
  if (d == t.dim()) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return;
  }
  for (int64_t i = 0; i < t.size(d); i++)
    copy_elements(to + i * t.stride(d) * size, from + i * f.stride(d) * size, t, f, d + 1);
}

}  // namespace

runtime::TensorMeta meta_of(const at::Tensor& t) {
  runtime::TensorMeta m;
  m.dtype = static_cast<DType>(t.scalar_type());
  m.device = {static_cast<int8_t>(t.device().type()), static_cast<int8_t>(t.device().index())};
  m.sizes = t.sizes().vec();
  m.strides = t.strides().vec();
  m.offset = t.storage_offset();
  return m;
}

std::string print(const runtime::TensorMeta& m) {
  auto number = [](std::string& out, int64_t n) { append(out, n); };
  return cat(torch_name(m.dtype), "[", join(m.sizes, ", ", number), "] strides=[",
             join(m.strides, ", ", number), "] offset=", m.offset, " ", oxy::print(m.device));
}

bool same_layout(const at::Tensor& t, const runtime::TensorMeta& m) {
  return static_cast<int8_t>(t.scalar_type()) == static_cast<int8_t>(m.dtype) &&
         static_cast<int8_t>(t.device().type()) == m.device.kind &&
         t.sizes() == c10::IntArrayRef(m.sizes) && t.strides() == c10::IntArrayRef(m.strides);
}

bool same_places(const at::Tensor& t, const runtime::TensorMeta& m) {
  if (same_layout(t, m)) return true;
  runtime::TensorMeta alike = m;
  for (size_t d = 0; d < m.sizes.size() && t.dim() == static_cast<int64_t>(m.sizes.size()); d++)
    if (m.sizes[d] < 2 || t.numel() == 0) alike.strides[d] = t.stride(static_cast<int64_t>(d));
  return same_layout(t, alike);
}

at::Tensor alias_of(const at::Tensor& base, const runtime::TensorMeta& m, int64_t offset) {
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(base.storage()), base.key_set(),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(m.dtype)));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(m.sizes, m.strides, offset);
  return t;
}

at::Tensor room_for(const at::Tensor& t, const runtime::TensorMeta& m) {
  return at::empty_strided(m.sizes, m.strides,
                           t.options().dtype(static_cast<c10::ScalarType>(m.dtype)));
}

void fill_room(const at::Tensor& room, const at::Tensor& t) {
  // Elements that are one in memory are written once.
  at::Tensor to = room, from = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (room.stride(d) != 0 || room.size(d) < 2) continue;
    to = to.narrow(d, 0, 1);
    from = from.narrow(d, 0, 1);
  }
  write_values(to, from);
}

at::Tensor copy_as(const at::Tensor& t, const runtime::TensorMeta& m) {
  at::Tensor copy = room_for(t, m);
  fill_room(copy, t);
  return copy;
}

// torch transposes by way of a block of memory.
void write_values(const at::Tensor& to, const at::Tensor& from) {
  try {
    to.copy_(from);
  } catch (const std::exception&) {
    const bool plain = to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() &&
                       to.is_neg() == from.is_neg() && to.is_cpu() && from.is_cpu();
    if (!plain || to.sizes() != from.sizes()) throw;
    copy_elements(static_cast<char*>(to.mutable_data_ptr()),
                  static_cast<const char*>(from.const_data_ptr()), to, from, 0);
  }
}

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
