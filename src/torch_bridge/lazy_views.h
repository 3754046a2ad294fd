// torch's lazy views: `conj()` and the imaginary part of a conjugated tensor are views with a mark,
// and who reads them computes. In a recording the fakes bear the marks; graph values never do.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace oxy::bridge {

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

// The marks of a view that this op makes of a tensor with `marks`.
inline LazyMarks marks_after(std::string_view op, LazyMarks marks) {
  if (op == "aten._conj.default") marks.conj = !marks.conj;
  if (op == "aten._neg_view.default") marks.neg = !marks.neg;
  return marks;
}

inline bool is_lazy_view(std::string_view op) {
  return op == "aten._conj.default" || op == "aten._neg_view.default";
}

}  // namespace oxy::bridge
