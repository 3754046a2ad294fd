// Writes through `expand` and `unfold`, functionalised as eager does them.
//
// torch's own functionalisation carries a write through an expanded view back by arithmetic (base + sum(view - base)): it
// rounds, makes NaN of infinities, refuses booleans and counts what is written to every copy as often as there are
// copies. A write through an unfolded view sets to 0 what lies between the windows. While an ExactViews lives, views that
// this thread makes have inverses of ours instead. And what is written gets the strides of what was computed, which an
// input's memory does not: such inputs are views that keep their layout (`keeping_layout`). To see each view behind torch's functionalisation, it takes a dispatch
// key that torch keeps for tests and that no tensor has.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace oxy::bridge {

class ExactViews {
 public:
  // `check_copies` refuses a tensor below functionalisation, written to elements that are one in memory, unless all its
  // elements are known to be the same, as after fill_: eager allows that. `lay_out` gives a written tensor the layout of
  // the one before.
  ExactViews(
      std::function<void(const at::Tensor&)> check_copies,
      std::function<at::Tensor(const at::Tensor& before, const at::Tensor& written)> lay_out);
  ~ExactViews();
  ExactViews(const ExactViews&) = delete;
  ExactViews& operator=(const ExactViews&) = delete;

  void check_copies(const at::Tensor& t) const { check_copies_(t); }
  at::Tensor lay_out(const at::Tensor& before, const at::Tensor& written) const {
    return lay_out_(before, written);
  }

 private:
  std::function<void(const at::Tensor&)> check_copies_;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> lay_out_;
  ExactViews* before_;
  bool was_included_;
};

// A functional tensor of this value whose layout stays as it is when it is written.
at::Tensor keeping_layout(const at::Tensor& fake);

}  // namespace oxy::bridge
