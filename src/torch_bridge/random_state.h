// The state of the default generator of random numbers, to be put back.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace oxy::bridge {

class RandomState {
 public:
  RandomState() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  void restore() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace oxy::bridge
