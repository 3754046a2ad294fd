// Runs the branch that the condition chooses, or the body for as long as it holds.
#include "torch_bridge/run_region.h"

#include <ATen/ops/clone.h>

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/interrupts.h"

namespace oxy::bridge {
namespace {

bool shares_memory(const at::Tensor& t, std::span<const at::Tensor> others) {
  return std::ranges::any_of(others, [&](const at::Tensor& o) { return o.is_alias_of(t); });
}

}  // namespace

BoundRegion::BoundRegion(const runtime::Plan& plan, const runtime::RegionStep& step,
                         const runtime::CodeTable& code, const Executable::Options& options)
    : step_(step) {
  for (size_t i = 0; i < plans_.size(); i++)
    plans_[i] = std::make_unique<Executable>(plan.regions.at(step.plans.at(i)), code, options);
}

std::vector<at::Tensor> BoundRegion::run(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> given;
  for (uint32_t b : step_.operands) given.push_back(tensors[b]);
  Outputs out;
  if (step_.kind == runtime::RegionStep::Kind::Cond)
    run_branch(given, out);
  else
    run_loop(given, out);
  std::vector<at::Tensor> results;
  for (at::Tensor& t : out) {
    if (shares_memory(t, given) || shares_memory(t, results)) t = t.clone();
    results.push_back(std::move(t));
  }
  return results;
}

void BoundRegion::run_branch(std::span<const at::Tensor> given, Outputs& out) {
  run_plan(given[0].is_nonzero() ? 0 : 1, given.subspan(1), out);
}

void BoundRegion::run_loop(std::span<const at::Tensor> given, Outputs& out) {
  std::vector<at::Tensor> now(given.begin(), given.end());
  InterruptClock clock;
  for (;;) {
    Outputs condition, next;
    run_plan(0, now, condition);
    if (!condition[0].is_nonzero()) break;
    run_plan(1, now, next);
    std::move(next.begin(), next.end(), now.begin());
    clock.tick();
  }
  out.assign(now.begin(), now.begin() + static_cast<ptrdiff_t>(step_.results.size()));
}

void BoundRegion::run_plan(size_t which, std::span<const at::Tensor> given, Outputs& out) {
  c10::SmallVector<Input, 16> inputs;
  for (const at::Tensor& t : given) inputs.push_back({&t, 0});
  OXY_CHECK(plans_[which]->has_layouts({inputs.data(), inputs.size()}),
            "a region is given other tensors than its plan is for");
  std::string reason;
  if (!plans_[which]->run({inputs.data(), inputs.size()}, out, reason)) OXY_FAIL(reason);
}

std::vector<std::string> BoundRegion::take_notes() {
  std::vector<std::string> out;
  for (const auto& plan : plans_) {
    if (!plan->has_notes()) continue;
    for (std::string& note : plan->take_notes()) out.push_back(std::move(note));
  }
  return out;
}

}  // namespace oxy::bridge
