// Makes TensorImpls on a storage that throws.
#include "torch_bridge/fake_tensor.h"

#include <ATen/EmptyTensor.h>

#include "support/check.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

c10::Storage make_storage(c10::Device device, size_t bytes) {
  c10::Storage out(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, device), nullptr,
                   /*resizable=*/false);
  out.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(kNoData);
  return out;
}

int64_t value_of(sym::Expr e) {
  if (!e.is_const()) throw Unsupported("a symbolic size in a fake tensor");
  return e.value();
}

c10::DispatchKeySet backend_keys(c10::Device device) {
  if (!device.is_cpu() && !device.is_cuda() && !device.is_meta())
    throw Unsupported(cat("tensors on ", device.str()));
  return c10::DispatchKeySet(c10::computeDispatchKey(std::nullopt, c10::kStrided, device));
}

}  // namespace

ir::TensorType type_of(const at::Tensor& t) {
  ir::TensorType type;
  type.dtype = static_cast<ir::DType>(t.scalar_type());
  type.device = {static_cast<int8_t>(t.device().type()), static_cast<int8_t>(t.device().index())};
  if (is_symbolic(t)) {
    read_symbolic_sizes(t, type);
  } else {
    for (int64_t s : t.sizes()) type.sizes.emplace_back(s);
    for (int64_t s : t.strides()) type.strides.emplace_back(s);
    type.offset = t.storage_offset();
  }
  type.requires_grad = t.requires_grad();
  return type;
}

at::Tensor make_fake(const ir::TensorType& type, const c10::Storage* storage) {
  c10::SmallVector<int64_t, 8> sizes, strides;
  for (auto s : type.sizes) sizes.push_back(value_of(s));
  for (auto s : type.strides) strides.push_back(value_of(s));
  int64_t offset = value_of(type.offset);
  auto dtype = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(type.dtype));
  c10::Device device(static_cast<c10::DeviceType>(type.device.kind), type.device.index);
  c10::Storage own =
      storage
          ? *storage
          : make_storage(device, at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize(),
                                                                  static_cast<size_t>(offset)));
  auto t = at::detail::make_tensor<c10::TensorImpl>(std::move(own), backend_keys(device), dtype);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

at::Tensor make_meta(const at::Tensor& t) {
  c10::Device device(c10::kMeta);
  const size_t bytes = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size(),
                                                        static_cast<size_t>(t.storage_offset()));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, device),
                       c10::GetAllocator(c10::kMeta), /*resizable=*/true);
  auto m = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), t.dtype());
  m.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    m.unsafeGetTensorImpl()->set_wrapped_number(true);
  return m;
}

void forbid_data(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage()) return;
  t.storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
}

std::optional<std::string> why_not_recordable(const at::Tensor& t) {
  using c10::DispatchKey;
  auto keys = t.key_set();
  if (keys.has(DispatchKey::Python)) return "a tensor subclass or a tensor under another mode";
  if (keys.has(DispatchKey::Conjugate) || keys.has(DispatchKey::Negative) ||
      keys.has(DispatchKey::ZeroTensor))
    return "a lazily conjugated, negated or zero tensor";
  if (t.layout() != c10::kStrided)
    return cat("a tensor of layout ", std::string(c10::str(t.layout())));
  if (t.is_quantized()) return "a quantized tensor";
  if (t.is_mkldnn() || t.is_nested()) return "a nested or mkldnn tensor";
  if (!t.is_cpu() && !t.is_cuda()) return cat("a tensor on ", t.device().str());
  if (!is_dtype(static_cast<int8_t>(t.scalar_type()))) return "a tensor of an unknown dtype";
  return std::nullopt;
}

}  // namespace oxy::bridge
