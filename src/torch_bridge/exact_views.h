// Writes through views that are not one place in memory an element, functionalised as eager does
// them.
//
// torch's own functionalisation carries a write through an expanded view back by arithmetic (base +
// sum(view - base)): it rounds, makes NaN of infinities, refuses booleans and counts what is
// written to every copy as often as there are copies. A write through an unfolded view sets to 0
// what lies between the windows. And writes to elements that are one in memory, which eager refuses
// or does in the order of the elements, are values like any other. While an ExactViews lives, views
// that this thread makes have inverses of ours instead, and such writes are refused. What is
// written gets the strides of what was computed, where eager leaves them as they were: so does each
// op that writes here. Memory that has gaps is an input's; such inputs are views that keep their
// layout (`keeping_layout`). To see each view and write above torch's functionalisation, and what
// autocast casts, it takes a dispatch key that torch keeps for tests and that no tensor has.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace oxy::bridge {

// Who decides about writes. Tensors are those below functionalisation, but for those of check_write
// and hear_cast.
class WriteRules {
 public:
  virtual ~WriteRules() = default;
  // Refuses a tensor whose elements are one in memory unless all are known to be the same, as after
  // fill_.
  virtual void check_copies(const at::Tensor& written) = 0;
  // Refuses a write to memory that others see, too.
  virtual void check_write(const at::Tensor& wrapper) = 0;
  // How many nodes have been recorded.
  virtual size_t recorded() const = 0;
  // Behind an op with out=, whose nodes begin at `from`: refuses one whose k-th result has another
  // shape than the tensor had, which it then gets, where somebody else sees that.
  virtual void check_out(const c10::OperatorHandle& op, size_t from, size_t k,
                         const at::Tensor& wrapper, c10::IntArrayRef sizes_before) = 0;
  // Refuses the write that is about to be.
  [[noreturn]] virtual void refuse_write() = 0;
  // A kernel of autocast has cast a tensor, and would keep that in its cache if the tensor is a
  // weight.
  virtual void hear_cast(const at::Tensor& from, const at::Tensor& to) = 0;
  // A written tensor in the layout of the one before.
  virtual at::Tensor lay_out(const at::Tensor& before, const at::Tensor& written) = 0;
};

class ExactViews {
 public:
  explicit ExactViews(WriteRules& rules);
  ~ExactViews();
  ExactViews(const ExactViews&) = delete;
  ExactViews& operator=(const ExactViews&) = delete;

 private:
  WriteRules* before_;
  bool was_included_;
};

// A functional tensor of this value whose layout stays as it is when it is written.
at::Tensor keeping_layout(const at::Tensor& fake);

}  // namespace oxy::bridge
