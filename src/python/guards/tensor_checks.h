// The Tensor guards of a program on the hot path: every tensor is looked at in every call, and
// there may be hundreds. What takes the time is waiting for memory (a tensor is half a dozen cache
// lines in three places), so what is known of one lies together, and those to come are prefetched.
#pragma once

#include "python/guards/guard_walk.h"
#include "torch_bridge/tensor_image.h"

namespace oxy::python {

class TensorChecks {
 public:
  explicit TensorChecks(const GuardWalk& walk);

  // From now on the tensors are those among `values`; those of live sources may be others on every
  // check.
  void keep(const GuardWalk::Values& values, const std::vector<bool>& stable);

  // Whether all guards hold and storages are shared as they were. New references to what the walk
  // fetches go to `fetched`, whatever the answer.
  bool check(const GuardWalk::Values& values, Fetched& fetched);

 private:
  struct Tensor {
    PyObject* object;
    PyObject* type;
    // Where things lay the last time: only ever prefetched.
    const c10::TensorImpl* impl = nullptr;
    const torch::autograd::AutogradMeta* meta = nullptr;
    bridge::TensorImage image;  // of a tensor that was found to be right
  };
  static void prefetch(const Tensor& t);
  bool holds(size_t i, const c10::TensorImpl& impl);

  const GuardWalk& walk_;
  std::vector<Tensor> tensors_;
  std::vector<uint32_t> sources_;
  std::vector<uint32_t> live_;  // tensors of sources that are looked up on every check
  std::vector<const void*> storages_;
  bridge::StorageSharing sharing_;
  size_t fetched_ = 0;  // how many of walk_.fetch() are, in order, the sources of the first tensors
};

}  // namespace oxy::python
