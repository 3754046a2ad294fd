// The Tensor guards of a program on the hot path: every tensor is looked at in every call, and
// there may be hundreds.
//
// A tensor is half a dozen cache lines in three places: the Python object, the TensorImpl and what
// autograd keeps. So the addresses of all three are known in front, no load waits for another one,
// and what is kept beside them is short: what many tensors have in common, their images, is kept
// once. One branch a tensor asks whether anything differs.
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

  // What tensors of one layout, type and kind have in common.
  struct Image {
    PyTypeObject* type = nullptr;  // none of no tensor
    Py_ssize_t dict_at = 0;        // where its objects have their __dict__, in bytes
    bridge::TensorImage words;
  };
  // Where things lay when the tensor was last found to be right.
  struct Tensor {
    PyObject* object;
    const c10::TensorImpl* impl = nullptr;
    PyObject* dict = nullptr;  // its __dict__, mostly none
    uint64_t version = 0;      // and what that one's is
    bridge::TensorImage::Owned owned;
    uint32_t image = 0;  // where it begins among images_, in bytes: the first one is of no tensor
    uint32_t own = 0;    // the position of an image that no other tensor has
  };

 private:
  bool holds(size_t i);
  bool are_distinct() const;
  uint32_t image_of(size_t i, const bridge::TensorImage& words);

  const GuardWalk& walk_;
  std::vector<Tensor> tensors_;
  std::vector<Image> images_;  // that of no tensor, those that are shared, those of single tensors
  uint32_t shared_ = 0;        // the last one that is shared
  std::vector<uint32_t> sources_;
  std::vector<uint32_t> live_;  // tensors of sources that are looked up on every check
  std::vector<bool> is_live_;
  // A storage, or a tensor that may share one, is another one since sharing was found to be right.
  bool moved_ = true;
  bridge::StorageSharing sharing_;
  size_t fetched_ = 0;  // how many of walk_.fetch() are, in order, the sources of the first tensors
};

}  // namespace oxy::python
