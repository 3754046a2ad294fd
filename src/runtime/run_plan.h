// Runs plans without torch, on arrays: those whose steps are launches and gemms. For tools and
// tests; a model's calls go through src/torch_bridge/execute.h.
#pragma once

#include "runtime/code_table.h"
#include "runtime/device.h"
#include "runtime/launch.h"

namespace oxy::runtime {

// A strided array in memory that it shares with others: of a number (dtype None), `meta.offset`.
struct Array {
  TensorMeta meta;
  Memory memory;  // `data` is where the storage begins
};
Array make_array(const TensorMeta& meta);
// The elements in row-major order, and back.
std::string gather(const Array& a);
void scatter(std::string_view elements, const Array& a);

class PlanRunner {
 public:
  // Throws Unsupported where a step needs torch.
  PlanRunner(Plan plan, CodeTable code, std::vector<Array> attributes, const DeviceApi& device);

  // One array an output; a number is one of dtype None, what is no output has no memory. Mutated
  // inputs are written. Throws UserError where the inputs are not what the plan is for.
  std::vector<Array> run(std::span<const Array> inputs) const;
  const Plan& plan() const { return plan_; }

 private:
  struct Call;
  SizedPlan sizes_of(std::span<const Array> inputs) const;
  void check_inputs(const SizedPlan& sizes, std::span<const Array> inputs) const;
  void place_buffers(Call& c) const;
  void run_steps(Call& c) const;
  Array value(const Call& c, uint32_t buffer) const;
  Array own_value(const Call& c, uint32_t buffer) const;
  Array output(const Call& c, size_t i, const std::vector<Array>& outputs) const;
  void write_inputs(const Call& c) const;

  const Plan plan_;
  const CodeTable code_;
  const std::vector<KernelFn> entries_;
  const std::vector<Array> attributes_;
  const DeviceApi& device_;
  std::vector<BoundLaunch> launches_;
};

}  // namespace oxy::runtime
