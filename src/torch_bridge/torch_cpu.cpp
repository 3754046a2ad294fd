// The CPU of a process with torch: torch's threads and vector maths, and its default generator.
#include <ATen/CPUGeneratorImpl.h>

#include "torch_bridge/host.h"

namespace oxy::bridge {
namespace {

class TorchCpu : public runtime::CpuDevice {
 public:
  TorchCpu() : CpuDevice(torch_host()) {}

  GeneratorState generator_state() const final {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    return std::make_shared<const at::Tensor>(generator.get_state());
  }
  void restore_generator(const GeneratorState& state) const final {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    generator.set_state(*static_cast<const at::Tensor*>(state.get()));
  }
};

}  // namespace

const runtime::DeviceApi& torch_cpu() {
  static const TorchCpu cpu;
  return cpu;
}

}  // namespace oxy::bridge
