// The calls that are timed, and the file of what was found.
#include "torch_bridge/measured_way.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>

#include "ir/text.h"
#include "jit/cache/tombstone.h"
#include "ops/op_table.h"
#include "support/content_hash.h"
#include "support/log.h"
#include "support/machine.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

constexpr size_t kMostOps = 3;
constexpr double kGain = 0.95;  // of the kernels' time, from which on the ops are taken
constexpr double kLong = 0.02;  // seconds
constexpr std::string_view kOps = "ops", kKernels = "kernels";

// The processor's name: others of the same caches and instructions take other times. Empty where
// the system does not tell.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line;
  return "";
}

// Of the library that makes the kernels: another build may make better ones.
std::string build() {
  Dl_info found{};
  struct stat of{};
  if (dladdr(reinterpret_cast<const void*>(&host_machine), &found) == 0 ||
      stat(found.dli_fname, &of) != 0)
    return "";
  return cat(of.st_size, ' ', of.st_mtim.tv_sec);
}

// What is known, in memory and in a file of lines "KEY WAY" that processes append to.
class Ways {
 public:
  Ways() {
    const auto folder = jit::cache::writable_directory();
    if (!folder) return;
    const std::string about = cat(print(host_machine()), processor(), TORCH_VERSION, '\n', build());
    path_ = cat(*folder, "/ways-", print(content_hash(about)), ".txt");
    std::ifstream file(path_);
    std::string key, way;
    while (file >> key >> way)
      if (way == kOps || way == kKernels) found_[key] = way == kOps ? Way::Ops : Way::Kernels;
  }
  std::optional<Way> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = found_.find(key);
    return it == found_.end() ? std::nullopt : std::optional(it->second);
  }
  void keep(const std::string& key, Way way) {
    const std::lock_guard lock(mutex_);
    if (!found_.emplace(key, way).second || path_.empty()) return;
    const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    const std::string line = cat(key, ' ', way == Way::Ops ? kOps : kKernels, '\n');
    // One write: lines of several processes do not mix. One that fails is measured again.
    [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
    close(file);
  }

 private:
  ForkMutex mutex_;
  std::map<std::string, Way> found_;
  std::string path_;
};

Ways& ways() {
  static Ways* all = new Ways;
  return *all;
}

bool is_few_ops(const ir::Graph& graph) {
  size_t ops = 0;
  for (const ir::NodeId id : graph.order()) {
    const ir::Node& n = graph.node(id);
    if (n.dead || n.kind == ir::NodeKind::Input || n.kind == ir::NodeKind::Attribute) continue;
    if (n.kind == ir::NodeKind::Region || n.target == ops::kNumber || ++ops > kMostOps)
      return false;
  }
  return ops > 0;
}

bool has_symbols(const ir::Graph& graph) {
  return std::ranges::any_of(graph.inputs(), [&](ir::ValueId v) {
    return !graph.value(v).type.is_tensor() || is_symbolic(graph.tensor_type(v));
  });
}

}  // namespace

std::string way_key(const ir::Graph& graph, std::string_view setting, bool gradients) {
  if (setting == "off" || gradients ||
      (setting == "all" && at::globalContext().deterministicAlgorithms()) ||
      graph.stage != ir::Stage::Aten || !graph.mutations.empty() || !is_few_ops(graph) ||
      has_symbols(graph))
    return "";
  return print(content_hash(cat(setting, ' ', at::get_num_threads(), '\n', ir::print(graph))));
}

std::optional<Way> known_way(const std::string& key) { return ways().find(key); }

// Whether both plans say the same of their results.
bool MeasuredWay::fits(const Executable& by_ops, const Outputs& outputs) const {
  return !by_ops.is_random() && by_ops.plan().outputs.size() == outputs.size() &&
         std::ranges::all_of(by_ops.plan().outputs, [](const runtime::PlanOutput& o) {
           return o.kind == runtime::PlanOutput::Kind::Value && !o.number && o.buffer >= 0;
         });
}

void MeasuredWay::make_by_ops(std::span<const Input> inputs) {
  try {
    by_ops_ = make_(inputs);
  } catch (const std::exception& e) {  // the call has run, by kernels
    log(Artifact::autotuning, key_, cat("no plan of ATen's ops: ", e.what()));
  }
}

template <class Run>
bool MeasuredWay::timed_run(Way way, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  if (!run()) return false;
  double& least = least_[way == Way::Ops];
  least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  return true;
}

bool MeasuredWay::timed(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
                        const std::function<bool()>& kernels) {
  const int n = calls_ - kUntimed - 1;
  const Way way = n % 2 == 1 ? Way::Ops : Way::Kernels;
  const auto run = [&] {
    return way == Way::Ops ? by_ops_->run(inputs, outputs, reason) : kernels();
  };
  const bool first = n < 2;  // fills the caches
  if (!(first ? run() : timed_run(way, run))) {
    decide(Way::Kernels);
    return false;
  }
  if (n == 0) {
    make_by_ops(inputs);
    if (!by_ops_ || !fits(*by_ops_, outputs)) decide(Way::Kernels);
  }
  if (n + 1 == 2 * kPairs) decide(faster());
  return true;
}

// Twice each, unless that takes long.
bool MeasuredWay::timed_at_once(std::span<const Input> inputs, Outputs& outputs,
                                const std::function<bool()>& kernels) {
  if (!timed_run(Way::Kernels, kernels)) return false;
  make_by_ops(inputs);
  Outputs by_ops;
  std::string why;
  const auto ops = [&] { return by_ops_->run(inputs, by_ops, why); };
  const bool both = by_ops_ && fits(*by_ops_, outputs) && timed_run(Way::Ops, ops);
  if (both && least_[0] + least_[1] < kLong) {
    outputs.clear();
    if (!timed_run(Way::Kernels, kernels)) return false;
    by_ops.clear();
    timed_run(Way::Ops, ops);
  }
  const Way way = both ? faster() : Way::Kernels;
  if (way == Way::Ops) outputs = std::move(by_ops);
  decide(way);
  return true;
}

Way MeasuredWay::faster() const { return least_[1] < kGain * least_[0] ? Way::Ops : Way::Kernels; }

void MeasuredWay::decide(Way way) {
  ways().keep(key_, way);
  if (by_ops_ && least_[1] < kNotTimed && log_enabled(Artifact::autotuning)) {
    char times[80];
    std::snprintf(times, sizeof(times), "kernels %.4f ms, ATen's ops %.4f ms: ", least_[0] * 1e3,
                  least_[1] * 1e3);
    log(Artifact::autotuning, key_, cat(times, way == Way::Ops ? kOps : kKernels));
  }
  if (way == Way::Kernels) by_ops_.reset();
  state_.store(way == Way::Ops ? State::Ops : State::Kernels, std::memory_order_release);
}

}  // namespace oxy::bridge
