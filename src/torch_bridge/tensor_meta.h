// Between runtime::TensorMeta and real tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/memory.h"
#include "runtime/sized_plan.h"

namespace oxy::bridge {

runtime::TensorMeta meta_of(const at::Tensor& t);
// "float32[2, 3] strides=[3, 1] offset=0 cpu"
std::string print(const runtime::TensorMeta& m);

// dtype, device, sizes and strides are the predicted ones (not the storage offset).
bool same_layout(const at::Tensor& t, const runtime::TensorMeta& m);

// The same, but for strides that step over nothing: of an empty tensor, and of single elements.
bool same_places(const at::Tensor& t, const runtime::TensorMeta& m);

// A tensor of this metadata over memory of its own: from the output pool where it is large. Under
// inference mode an inference tensor.
at::Tensor allocate(const runtime::TensorMeta& m, int64_t bytes);
// A tensor of this metadata in the storage of `base`, as an independent object (not a view for
// autograd).
at::Tensor alias_of(const at::Tensor& base, const runtime::TensorMeta& m, int64_t offset);
// The same values in memory of their own, laid out as `m`: room for them, and the values.
at::Tensor copy_as(const at::Tensor& t, const runtime::TensorMeta& m);
at::Tensor room_for(const at::Tensor& t, const runtime::TensorMeta& m);
void fill_room(const at::Tensor& room, const at::Tensor& t);
// Writes the values of one tensor to another of its sizes and dtype, also where there is no memory
// to be had.
void write_values(const at::Tensor& to, const at::Tensor& from);

// The pool behind allocate(): one a process, never destroyed, since torch may free a storage at any
// time.
runtime::BlockPool& output_pool();

}  // namespace oxy::bridge
