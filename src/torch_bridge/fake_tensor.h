// Fakes: tensors with the real device's dispatch keys and no data. Whoever touches their memory
// gets an exception.
//
// They bear the marks of torch's lazy views: `conj()` and the imaginary part of a conjugated tensor
// are views with a mark, and who reads them computes. Graph values are never marked.
#pragma once

#include <ATen/core/Tensor.h>

#include "ir/types.h"

namespace oxy::bridge {

// What the exception says.
inline constexpr const char* kNoData =
    "this tensor stands for one whose data does not exist yet (oxyfuel is recording a computation)";

inline bool is_symbolic(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// The metadata of a strided tensor.
ir::TensorType type_of(const at::Tensor& t);

// A fake of this type (constant sizes only). `storage`: whose memory it is a view of, or nothing
// for its own.
at::Tensor make_fake(const ir::TensorType& type, const c10::Storage* storage = nullptr);

// A tensor on the meta device with the sizes, strides, offset and dtype of `t`; its storage is its
// own.
at::Tensor make_meta(const at::Tensor& t);

// Makes writable access to the data behind a functional wrapper throw (its own storage; the fake
// inside throws on any access). Reading stays possible for torch's sake, which asks the storage for
// its device; kernels that read elements find that a tensor of at least one has no data, and throw.
void forbid_data(const at::Tensor& t);

// Why a tensor cannot be recorded (sparse, quantized, a subclass, ...), or nothing.
std::optional<std::string> why_not_recordable(const at::Tensor& t);

struct LazyMarks {
  bool conj = false, neg = false;
  bool any() const { return conj || neg; }
  friend bool operator==(const LazyMarks&, const LazyMarks&) = default;
};

inline LazyMarks marks_of(const at::Tensor& t) {
  return t.defined() ? LazyMarks{t.is_conj(), t.is_neg()} : LazyMarks{};
}

inline void set_marks(const at::Tensor& t, LazyMarks marks) {
  t._set_conj(marks.conj);
  t._set_neg(marks.neg);
}

}  // namespace oxy::bridge
