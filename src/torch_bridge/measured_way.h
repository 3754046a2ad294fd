// Kernels of ours or ATen's ops, for graphs of a few ops: what is faster here is found out on the
// calls themselves.
//
// After a few calls, the next ones run one way and the other in turn and are timed: either way
// gives the call's result, so that nothing is computed for the measurement alone. What is found is
// kept in the user's cache folder by graph, processor, number of threads, torch and build of this
// library, so that later processes need neither measure nor compile; the log artefact "autotuning"
// tells it. Larger graphs are not asked: there fusion has won before. Where the results of the ways
// may differ in last bits, that is done for functions of as many steps as their operands ask for
// alone, and in the first call, which is computed both ways: all calls have one way's bits. With
// the setting measured_ways `all` it is done for any function, on calls. None is measured under
// torch.use_deterministic_algorithms but those that cannot differ.
#pragma once

#include "ir/graph.h"
#include "torch_bridge/execute.h"

namespace oxy::bridge {

enum class Way : uint8_t { Kernels, Ops };

// The name under which the way of a graph is kept, by the setting measured_ways; empty where it is
// not measured: it has more than a few ops, varying sizes, writes to inputs, regions or gradients.
std::string way_key(const ir::Graph& graph, std::string_view setting, bool gradients);
// What was found in this process or an earlier one.
std::optional<Way> known_way(const std::string& key);

class MeasuredWay {
 public:
  using Make = std::function<std::unique_ptr<Executable>(std::span<const Input> example)>;
  // `by_calls`: on several calls, else in the first one.
  MeasuredWay(std::string key, bool by_calls, Make by_ops)
      : key_(std::move(key)), by_calls_(by_calls), make_(std::move(by_ops)) {}

  // A call. `kernels`: the plan's own run.
  template <typename Run>
  bool run(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
           const Run& kernels) {
    const State state = state_.load(std::memory_order_acquire);
    if (state == State::Kernels) return kernels();
    if (state == State::Ops) return by_ops_->run(inputs, outputs, reason);
    if (timing_.exchange(true, std::memory_order_acquire)) return kernels();  // another thread is
    const Turn turn{timing_};
    if (state_ == State::Open && !by_calls_) return timed_at_once(inputs, outputs, kernels);
    if (state_ != State::Open || ++calls_ <= kUntimed) return kernels();
    return timed(inputs, outputs, reason, kernels);
  }

 private:
  enum class State : uint8_t { Open, Kernels, Ops };
  struct Turn {
    std::atomic<bool>& taken;
    ~Turn() { taken.store(false, std::memory_order_release); }
  };
  static constexpr int kUntimed = 6, kPairs = 5;

  bool timed(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
             const std::function<bool()>& kernels);
  bool timed_at_once(std::span<const Input> inputs, Outputs& outputs,
                     const std::function<bool()>& kernels);
  template <class Run>
  bool timed_run(Way way, const Run& run);
  void make_by_ops(std::span<const Input> inputs);
  bool fits(const Executable& by_ops, const Outputs& outputs) const;
  Way faster() const;
  void decide(Way way);

  const std::string key_;
  const bool by_calls_;
  const Make make_;
  std::atomic<State> state_{State::Open};
  std::atomic<bool> timing_{false};
  int calls_ = 0;
  static constexpr double kNotTimed = 1e9;
  double least_[2] = {kNotTimed, kNotTimed};  // seconds, by way
  std::unique_ptr<Executable> by_ops_;
};

}  // namespace oxy::bridge
