// Notices that a tensor which a plan has taken as a constant is no longer what it was.
//
// What is compared, a few nanoseconds a tensor: its memory, its version counter and the version.
// What leaves no trace there is not noticed: writes through `p.data`, numpy, DLPack or a raw
// pointer. Inference tensors have no version and cannot be frozen.
#pragma once

#include "torch_bridge/input_signature.h"

namespace oxy::bridge {

class FrozenTensors {
 public:
  // Keeps memory and counters, so that no others can have their addresses, but not the tensors:
  // torch.utils.swap_tensors wants to be their only owner.
  FrozenTensors(std::span<const Input> inputs, std::span<const uint32_t> which,
                std::span<const at::Tensor> attributes);

  bool unchanged(std::span<const Input> inputs) const noexcept;

  static bool can_be_frozen(const at::Tensor& t) { return !t.is_inference() && t.has_storage(); }

 private:
  struct Item {
    int64_t input = -1;    // or an attribute:
    at::Tensor attribute;  // which the plan holds anyway
    c10::VariableVersion counter;
    c10::Storage storage;
    const void* data = nullptr;
    uint32_t version = 0;
  };
  void add(int64_t input, const at::Tensor& t);

  std::vector<Item> items_;
};

}  // namespace oxy::bridge
