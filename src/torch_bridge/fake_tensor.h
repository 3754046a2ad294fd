// Fakes: tensors with the real device's dispatch keys and no data. Whoever touches their memory
// gets an exception.
#pragma once

#include <ATen/core/Tensor.h>

#include "ir/types.h"

namespace oxy::bridge {

// The metadata of a strided tensor with known sizes.
ir::TensorType type_of(const at::Tensor& t);

// A fake of this type (constant sizes only). `storage`: whose memory it is a view of, or nothing
// for its own.
at::Tensor make_fake(const ir::TensorType& type, const c10::Storage* storage = nullptr);

// A fake in the place of another tensor, fake or not.
at::Tensor like(const at::Tensor& t);

// A tensor on the meta device with the sizes, strides, offset and dtype of `t`; its storage is its
// own.
at::Tensor make_meta(const at::Tensor& t);

// Makes writable access to the data behind a functional wrapper throw (its own storage; the fake
// inside throws on any access). Reading stays possible for torch's sake, which asks the storage for
// its device, and finds null.
void forbid_data(const at::Tensor& t);

// Why a tensor cannot be recorded (sparse, quantized, a subclass, ...), or nothing.
std::optional<std::string> why_not_recordable(const at::Tensor& t);

}  // namespace oxy::bridge
