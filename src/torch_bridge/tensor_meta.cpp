#include "torch_bridge/tensor_meta.h"

#include <ATen/ops/empty_strided.h>

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

at::Tensor copy_as(const at::Tensor& t, const runtime::TensorMeta& m) {
  at::Tensor copy = at::empty_strided(m.sizes, m.strides,
                                      t.options().dtype(static_cast<c10::ScalarType>(m.dtype)));
  // Elements that are one in memory are written once.
  at::Tensor to = copy, from = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (copy.stride(d) != 0 || copy.size(d) < 2) continue;
    to = to.narrow(d, 0, 1);
    from = from.narrow(d, 0, 1);
  }
  to.copy_(from);
  return copy;
}

}  // namespace oxy::bridge
