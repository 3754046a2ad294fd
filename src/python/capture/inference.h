// torch.inference_mode() in captured code that runs outside of it, and inference tensors there.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "ir/graph.h"
#include "python/capture/part.h"

namespace oxy::python {

// While a block of captured code stands in inference mode, the recording runs without grad mode, on
// fakes that are normal tensors; what is known here is which memory would be of inference tensors.
// Results over such memory are made inference tensors once the graph has run. What a graph cannot
// have of it breaks in front of the block: no frame is left inside.
class Inference : public Part {
 public:
  using Part::Part;

  void enter(bool mode);
  void leave();
  bool is_open() const { return open_ != 0; }  // what comes next is in such a block
  Done answer() const;                         // of torch.is_inference_mode_enabled()
  void refuse_inside(const char* what) const;

  // Whether it is one of before the call. No fake of one requires gradients.
  static bool is_input(const Tracked* k);
  void note_input(const at::Tensor& fake);  // of an inference tensor, outside of inference mode
  // In a block: what a call has given of what it was given.
  void note_results(const py::object& result, const Arguments& given, const py::dict& named);
  bool is_inference(const at::Tensor& fake) const;
  // Whether it is to be made an inference tensor; a Break for what is no result.
  bool is_result(const at::Tensor& fake) const;
  // Eager raises where an inference tensor would be saved for a backward, and has gradients by one
  // that is a leaf.
  void refuse_saved(const std::string& target, const Arguments& args, const Keywords& kwargs) const;
  void refuse_writes() const;

 private:
  struct Memory {
    c10::Storage storage;  // held, for its address to stay its own
    size_t writes;         // that inference mode has allowed
    bool made;             // in a block
  };

  [[noreturn]] void refuse_block(const char* why) const;

  std::vector<bool> blocks_;  // that stand around the code: grad mode in front of each
  size_t open_ = 0;           // the block that switches inference mode on, from 1
  bool was_entered_ = false;
  Place first_;  // of the blocks that there were
  std::unordered_map<const c10::StorageImpl*, Memory> memory_;
  std::vector<at::Tensor> views_;  // made in a block, of memory of normal tensors
};

// What makes an inference tensor over the memory of a result.
const py::object& inference_function();

}  // namespace oxy::python
