// What this tree relies on of torch beyond its documented interface, checked by name wherever the
// extension is built: another torch that differs does not compile. The rest of it is checked by
//   tools/check_torch_headers.py        the virtual functions that we override, the data members
//                                       that we read (when the build is configured)
//   tests/e2e/test_torch_versions.py    layouts of CPU kernels, functions of torch that capture
//                                       knows by name, what torch raises without data
// docs/torch_versions.md says what a new torch asks for.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/headeronly/version.h>

#if __has_include(<ATen/NodeCreationHooks.h>)
#include <ATen/NodeCreationHooks.h>
#define OXY_NODE_CREATION_HOOKS
#endif

#include "support/dtype.h"

namespace oxy::bridge {

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13 && TORCH_VERSION_MINOR <= 15,
              "Oxyfuel knows torch 2.13 to 2.15: see docs/torch_versions.md");

// The kernel of native_group_norm refuses what is not contiguous; group_norm copies in front of it.
inline constexpr bool kGroupNormIsContiguous = TORCH_VERSION_MINOR < 14;

// Something listens to what is added to autograd's graph (torch.autograd.graph.node_creation_hook,
// since 2.15).
inline bool has_node_creation_hooks() {
#ifdef OXY_NODE_CREATION_HOOKS
  return !at::impl::NodeCreationHooks::empty();
#else
  return false;
#endif
}

// ---- numbers that are cast

#define OXY_SAME(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #theirs " has another number")

OXY_SAME(DType::U8, c10::ScalarType::Byte);
OXY_SAME(DType::I8, c10::ScalarType::Char);
OXY_SAME(DType::I16, c10::ScalarType::Short);
OXY_SAME(DType::I32, c10::ScalarType::Int);
OXY_SAME(DType::I64, c10::ScalarType::Long);
OXY_SAME(DType::F16, c10::ScalarType::Half);
OXY_SAME(DType::F32, c10::ScalarType::Float);
OXY_SAME(DType::F64, c10::ScalarType::Double);
OXY_SAME(DType::C32, c10::ScalarType::ComplexHalf);
OXY_SAME(DType::C64, c10::ScalarType::ComplexFloat);
OXY_SAME(DType::C128, c10::ScalarType::ComplexDouble);
OXY_SAME(DType::B8, c10::ScalarType::Bool);
OXY_SAME(DType::QI8, c10::ScalarType::QInt8);
OXY_SAME(DType::QU8, c10::ScalarType::QUInt8);
OXY_SAME(DType::QI32, c10::ScalarType::QInt32);
OXY_SAME(DType::BF16, c10::ScalarType::BFloat16);
OXY_SAME(DType::F8E5M2, c10::ScalarType::Float8_e5m2);
OXY_SAME(DType::F8E4M3, c10::ScalarType::Float8_e4m3fn);
OXY_SAME(DType::U16, c10::ScalarType::UInt16);
OXY_SAME(DType::U32, c10::ScalarType::UInt32);
OXY_SAME(DType::U64, c10::ScalarType::UInt64);

OXY_SAME(DeviceKind::CPU, c10::DeviceType::CPU);
OXY_SAME(DeviceKind::CUDA, c10::DeviceType::CUDA);
OXY_SAME(DeviceKind::Meta, c10::DeviceType::Meta);

// The order of the words in support/dtype.cpp.
OXY_SAME(0, c10::Layout::Strided);
OXY_SAME(1, c10::Layout::Sparse);
OXY_SAME(2, c10::Layout::SparseCsr);
OXY_SAME(3, c10::Layout::Mkldnn);
OXY_SAME(4, c10::Layout::SparseCsc);
OXY_SAME(5, c10::Layout::SparseBsr);
OXY_SAME(6, c10::Layout::SparseBsc);
OXY_SAME(7, c10::Layout::Jagged);
OXY_SAME(0, c10::MemoryFormat::Contiguous);
OXY_SAME(1, c10::MemoryFormat::Preserve);
OXY_SAME(2, c10::MemoryFormat::ChannelsLast);
OXY_SAME(3, c10::MemoryFormat::ChannelsLast3d);

#undef OXY_SAME

// ---- memory that is read

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
// Where a TensorImpl has what TensorImage compares. May name the protected members; the private
// `autograd_meta_` stands behind `storage_`.
struct TensorImplLayout : c10::TensorImpl {
  static constexpr size_t dims() { return offsetof(TensorImplLayout, sizes_and_strides_); }
  static constexpr size_t rest() { return offsetof(TensorImplLayout, storage_offset_); }
  static constexpr size_t end() { return offsetof(TensorImplLayout, key_set_) + sizeof(key_set_); }
  static constexpr size_t memory() { return offsetof(TensorImplLayout, storage_); }

  static constexpr void check() {
#define OXY_BEHIND(member, before)                                                               \
  static_assert(                                                                                 \
      offsetof(TensorImplLayout, member) == offsetof(TensorImplLayout, before) + sizeof(before), \
      "TensorImpl::" #member " does not stand behind " #before)
    OXY_BEHIND(storage_offset_, sizes_and_strides_);
    OXY_BEHIND(numel_, storage_offset_);
    OXY_BEHIND(data_type_, numel_);
    OXY_BEHIND(device_opt_, data_type_);
#undef OXY_BEHIND
    static_assert(offsetof(TensorImplLayout, key_set_) > offsetof(TensorImplLayout, device_opt_),
                  "TensorImpl::key_set_ does not stand behind the bits");
  }
};
#pragma GCC diagnostic pop

}  // namespace oxy::bridge
