// A branch or a loop of a plan: its sub-plans, run on the tensors of the call around it. No Python,
// no GIL.
#pragma once

#include <array>

#include "torch_bridge/execute.h"

namespace oxy::bridge {

class BoundRegion {
 public:
  BoundRegion(const runtime::Plan& plan, const runtime::RegionStep& step,
              const runtime::CodeTable& code, const Executable::Options& options);

  const std::vector<uint32_t>& operands() const { return step_.operands; }
  const std::vector<int64_t>& results() const { return step_.results; }
  bool is_random() const { return plans_[0]->is_random() || plans_[1]->is_random(); }

  // New tensors, one a result: never an operand, and no two in one memory. `tensors`: by buffer. An
  // exception where a sub-plan fails, Interrupted from between two rounds of a loop.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors);
  // What the sub-plans noted.
  std::vector<std::string> take_notes();

 private:
  void run_plan(size_t which, std::span<const at::Tensor> given, Outputs& out);
  void run_branch(std::span<const at::Tensor> given, Outputs& out);
  void run_loop(std::span<const at::Tensor> given, Outputs& out);

  const runtime::RegionStep step_;
  std::array<std::unique_ptr<Executable>, 2> plans_;
};

}  // namespace oxy::bridge
