// Compares the memory and version counter of each frozen tensor.
#include "torch_bridge/frozen_tensors.h"

#include <cstring>

#include "support/check.h"

namespace oxy::bridge {
namespace {

// The counter that a tensor shares with its views: VariableVersion is a pointer to it, and has no
// way to ask for it.
const void* counter_of(const c10::VariableVersion& v) {
  const void* counter;
  static_assert(sizeof v == sizeof counter);
  std::memcpy(static_cast<void*>(&counter), static_cast<const void*>(&v), sizeof counter);
  return counter;
}

}  // namespace

FrozenTensors::FrozenTensors(std::span<const Input> inputs, std::span<const uint32_t> which,
                             std::span<const at::Tensor> attributes) {
  for (uint32_t i : which) add(i, *inputs[i].tensor);
  for (const at::Tensor& t : attributes) add(-1, t);
}

void FrozenTensors::add(int64_t input, const at::Tensor& t) {
  OXY_CHECK(can_be_frozen(t), "a tensor without a version is frozen");
  const c10::VariableVersion& counter = t.unsafeGetTensorImpl()->version_counter();
  items_.push_back({input, input < 0 ? t : at::Tensor(), counter, t.storage(), t.storage().data(),
                    counter.current_version()});
}

bool FrozenTensors::unchanged(std::span<const Input> inputs) const noexcept {
  for (const Item& item : items_) {
    const at::Tensor& t =
        item.input < 0 ? item.attribute : *inputs[static_cast<size_t>(item.input)].tensor;
    const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
    const c10::VariableVersion& counter = impl.version_counter();
    if (counter_of(counter) != counter_of(item.counter) ||
        impl.unsafe_storage().unsafeGetStorageImpl() != item.storage.unsafeGetStorageImpl() ||
        item.storage.data() != item.data || counter.current_version() != item.version)
      return false;
  }
  return true;
}

}  // namespace oxy::bridge
