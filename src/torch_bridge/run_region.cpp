// Runs the branch that the condition chooses, or the body for as long as it holds.
#include <ATen/ops/clone.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>

#include "torch_bridge/execute.h"

namespace oxy::bridge {
namespace {

constexpr std::chrono::milliseconds kBetweenPolls{10};
InterruptPoll host_poll = nullptr;

// Asks the host whether the run is to stop, at most every ten milliseconds.
class InterruptClock {
 public:
  void tick() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kBetweenPolls || host_poll == nullptr) return;
    last_ = now;
    try {
      host_poll();
    } catch (const abi::__forced_unwind&) {  // the end of a daemon thread
      throw;
    } catch (...) {
      throw Interrupted{std::current_exception()};
    }
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

bool shares_memory(const at::Tensor& t, std::span<const at::Tensor> others) {
  return std::ranges::any_of(others, [&](const at::Tensor& o) { return o.is_alias_of(t); });
}

}  // namespace

void set_interrupt_poll(InterruptPoll poll) { host_poll = poll; }

BoundRegion::BoundRegion(const runtime::Plan& plan, const runtime::RegionStep& step,
                         const runtime::CodeTable& code, const Executable::Options& options)
    : step_(step) {
  for (size_t i = 0; i < plans_.size(); i++)
    plans_[i] = std::make_unique<Executable>(plan.regions.at(step.plans.at(i)), code, options);
}

std::vector<at::Tensor> BoundRegion::run(const std::vector<at::Tensor>& tensors, Slots slots) {
  std::vector<at::Tensor> given;
  for (uint32_t b : step_.operands) given.push_back(tensors[b]);
  Outputs out;
  if (step_.kind == runtime::RegionStep::Kind::Cond)
    run_plan(given[0].is_nonzero() ? 0 : 1, std::span(given).subspan(1), slots, out);
  else
    run_loop(given, slots, out);
  std::vector<at::Tensor> results;
  for (at::Tensor& t : out) {
    if (shares_memory(t, given) || shares_memory(t, results)) t = t.clone();
    results.push_back(std::move(t));
  }
  return results;
}

void BoundRegion::run_loop(std::vector<at::Tensor> now, Slots slots, Outputs& out) {
  InterruptClock clock;
  for (;;) {
    Outputs condition, next;
    run_plan(0, now, slots, condition);
    if (!condition[0].is_nonzero()) break;
    run_plan(1, now, slots, next);
    std::move(next.begin(), next.end(), now.begin());
    clock.tick();
  }
  out.assign(now.begin(), now.begin() + static_cast<ptrdiff_t>(step_.results.size()));
}

void BoundRegion::run_plan(size_t which, std::span<const at::Tensor> given, Slots slots,
                           Outputs& out) {
  c10::SmallVector<Input, 16> inputs;
  for (const at::Tensor& t : given) inputs.push_back({&t, 0});
  for (const runtime::Slot s : step_.numbers) inputs.push_back({nullptr, slots[s.index]});
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
