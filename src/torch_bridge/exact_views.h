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

namespace oxy::bridge {

class AutocastCasts;
class OpRecorder;
class Recording;

class ExactViews {
 public:
  ExactViews(Recording& recording, OpRecorder& ops, AutocastCasts& casts);
  ~ExactViews();
  C10_DISABLE_COPY_AND_ASSIGN(ExactViews);

  // Whose writes it sees.
  Recording& recording;
  OpRecorder& ops;
  AutocastCasts& casts;

 private:
  ExactViews* before_;
  bool was_included_;
};

// Whether the op that this thread records is the functional form of a write, not a call of the
// user's.
bool is_inside_write();

// A functional tensor of this value whose layout stays as it is when it is written.
at::Tensor keeping_layout(const at::Tensor& fake);

}  // namespace oxy::bridge
