// Metadata of tensors, and copies into a predicted layout.
#include "torch_bridge/tensor_meta.h"

#include <ATen/ops/empty_strided.h>

#include <cstring>

#include "support/check.h"

namespace oxy::bridge {

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

namespace {

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

}  // namespace oxy::bridge
