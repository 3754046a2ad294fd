// Freezes, runs the user's passes and the pipeline, and times the choices of max-autotune.
#include "torch_bridge/make_executable.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "autograd/saved_layouts.h"
#include "ir/python_text.h"
#include "ir/text.h"
#include "ops/contraction.h"
#include "pipeline/assemble.h"
#include "runtime/bandwidth.h"
#include "torch_bridge/measured_way.h"

namespace oxy::bridge {
namespace {

// The inputs that are module state and stay what they are during a call.
std::vector<bool> frozen_inputs(const Recorded& recorded) {
  const auto& inputs = recorded.example;
  std::vector<bool> frozen(inputs.size(), false);
  for (size_t i = 0; i < inputs.size(); i++) {
    const at::Tensor* t = inputs[i].tensor;
    frozen[i] = i < recorded.module_state.size() && recorded.module_state[i] && t != nullptr &&
                FrozenTensors::can_be_frozen(*t) &&
                !is_symbolic(recorded.graph.tensor_type(recorded.graph.inputs().at(i)));
    for (const ir::Mutation& m : recorded.graph.mutations)
      if (frozen[i] && inputs[m.input].tensor->storage().is_alias_of(t->storage()))
        frozen[i] = false;
  }
  return frozen;
}

// The constants of a frozen graph, on the tensors that it was frozen with.
std::vector<at::Tensor> evaluate(const ir::Graph& constants,
                                 const std::vector<at::Tensor>& attributes,
                                 std::span<const Input> inputs) {
  if (constants.outputs.empty()) return {};
  Executable once(pipeline::make_extern_plan(constants), {}, attributes, inputs, {});
  Outputs outputs;
  std::string reason;
  c10::InferenceMode plain(false);
  if (!once.run(inputs, outputs, reason)) throw InternalError(cat("constants: ", reason));
  return {outputs.begin(), outputs.end()};
}

// Copies of the tensors, so that what a plan writes is nobody's. One that overlaps itself is
// written by no plan.
class CopiedInputs {
 public:
  explicit CopiedInputs(std::span<const Input> inputs)
      : copies_(inputs.size()), inputs_(inputs.begin(), inputs.end()) {
    for (size_t i = 0; i < inputs_.size(); i++) {
      if (inputs_[i].tensor == nullptr) continue;
      const at::Tensor& t = *inputs_[i].tensor;
      const bool overlaps = std::ranges::count(t.strides(), 0) != 0;
      copies_[i] = overlaps ? t : at::empty_strided(t.sizes(), t.strides(), t.options()).copy_(t);
      inputs_[i].tensor = &copies_[i];
    }
  }
  operator std::span<const Input>() const { return inputs_; }

 private:
  std::vector<at::Tensor> copies_;
  std::vector<Input> inputs_;
};

constexpr double kBudget = 1.0;  // seconds of timing a row

// The median seconds of a run of each, taken in turn.
std::vector<double> time_in_turn(std::span<const ExecutableMaker::Made> ways,
                                 std::span<const Input> example) {
  using Clock = std::chrono::steady_clock;
  const CopiedInputs copies(example);
  std::vector<std::vector<double>> times(ways.size());
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const Clock::time_point begin = Clock::now();
  while (times[0].size() < 4 ||
         (seconds(Clock::now() - begin) < kBudget && times[0].size() < 200)) {
    for (size_t i = 0; i < ways.size(); ++i) {
      Outputs outputs;
      std::string reason;
      const Clock::time_point start = Clock::now();
      if (!ways[i].executable->run(copies, outputs, reason)) throw InternalError(reason);
      times[i].push_back(seconds(Clock::now() - start));
    }
  }
  std::vector<double> out;
  for (std::vector<double>& t : times) {
    t.erase(t.begin());  // the first run fills caches and pools
    std::ranges::nth_element(t, t.begin() + static_cast<ptrdiff_t>(t.size() / 2));
    out.push_back(t[t.size() / 2]);
  }
  return out;
}

std::string row_text(const char* setting, const char* value, double seconds, bool kept) {
  char row[80];
  std::snprintf(row, sizeof(row), "%s=%-8s %10.4f ms%s\n", setting, value, seconds * 1e3,
                kept ? " (kept)" : "");
  return row;
}

Executable::Options options_of(const Settings& settings, bool frozen, size_t own_attributes) {
  return {settings.strict, runtime::fence_of(settings.fence), frozen, own_attributes};
}

constexpr const char* kOtherInputs = "the plan was made for other inputs or attributes";

// What a size program reads of an input is there.
void require_ranks(const runtime::Plan& plan, std::span<const Input> example) {
  for (size_t i = 0; i < std::min(example.size(), plan.inputs.size()); i++) {
    const at::Tensor* t = example[i].tensor;
    const runtime::TensorSlots& wanted = plan.inputs[i];
    if (t == nullptr ? wanted.dtype != DType::None
                     : static_cast<size_t>(t->dim()) != wanted.sizes.size())
      throw UserError(kOtherInputs);
  }
}

}  // namespace

ExecutableMaker::Made ExecutableMaker::make(const Recorded& recorded,
                                            pipeline::Trace& trace) const {
  return settings_.autotune ? fastest(recorded, trace) : make_with(recorded, settings_, trace);
}

ExecutableMaker::Made ExecutableMaker::make_with(const Recorded& recorded, const Settings& settings,
                                                 pipeline::Trace& trace) const {
  if (recorded.graph.stage == ir::Stage::Joint)
    return make_differentiable(recorded, settings, trace);
  const bool frozen =
      settings.freezing && std::ranges::all_of(recorded.attributes, FrozenTensors::can_be_frozen);
  const Gradients& gradients = recorded.gradients;
  const bool requires_grad =
      gradients.turns_grad_on || std::ranges::count(gradients.required, true);
  const std::string way = settings.kernels && !frozen
                              ? way_key(recorded.graph, settings.measured_ways, requires_grad)
                              : "";
  if (known_way(way) == Way::Ops) return by_ops(recorded, settings);
  std::vector<at::Tensor> constants;
  pipeline::Freezing freezing;
  if (frozen) {
    freezing.inputs = frozen_inputs(recorded);
    freezing.evaluate = [&](const ir::Graph& graph) {
      constants = evaluate(graph, recorded.attributes, recorded.example);
    };
  }
  Made made;
  std::string why;
  auto compiler = pipeline::compiler_for(settings, folder_, why);
  pipeline::Compiled compiled =
      pipeline::compile(recorded.graph, settings, compiler.get(), trace, made.report,
                        recorded.passes, frozen ? &freezing : nullptr, recorded.facts.get());
  std::vector<at::Tensor> attributes = recorded.attributes;
  attributes.insert(attributes.end(), constants.begin(), constants.end());
  auto options = options_of(settings, frozen, recorded.attributes.size());
  options.offsets = recorded.names_places;
  options.requires_grad = gradients.required;
  options.turns_grad_on = gradients.turns_grad_on;
  made.executable = std::make_unique<Executable>(std::move(compiled.plan), std::move(compiled.code),
                                                 std::move(attributes), recorded.example, options);
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  const bool by_calls = made.report.exact || (settings.measured_ways == "all" && !deterministic);
  if (!way.empty() && (by_calls || (made.report.iterated && !deterministic)) &&
      made.report.kernels > 0 && !made.executable->is_random() && !known_way(way))
    made.executable->set_measured_way(std::make_unique<MeasuredWay>(
        way, by_calls,
        [graph = recorded.graph, own = recorded.attributes,
         options](std::span<const Input> example) {
          return std::make_unique<Executable>(pipeline::make_extern_plan(graph),
                                              runtime::CodeTable(), own, example, options);
        }));
  return made;
}

// ATen's op for each node.
ExecutableMaker::Made ExecutableMaker::by_ops(const Recorded& recorded,
                                              const Settings& settings) const {
  runtime::Plan plan = pipeline::make_extern_plan(recorded.graph);
  Made made;
  pipeline::count_steps(plan, made.report);
  auto options = options_of(settings, false, recorded.attributes.size());
  options.offsets = recorded.names_places;
  made.executable = std::make_unique<Executable>(std::move(plan), runtime::CodeTable(),
                                                 recorded.attributes, recorded.example, options);
  return made;
}

// What makes plans of a backward, when gradients arrive.
Backward::Make ExecutableMaker::backward_maker(const Recorded& recorded,
                                               const Settings& settings) const {
  return [settings, folder = folder_, attributes = recorded.attributes, facts = recorded.facts](
             const ir::Graph& graph, std::span<const Input> example, bool by_ops) {
    Executable::Options options = options_of(settings, false, attributes.size());
    options.releases = true;
    if (by_ops)
      return std::make_unique<Executable>(pipeline::make_extern_plan(graph), runtime::CodeTable(),
                                          attributes, example, options);
    pipeline::Trace trace(settings, graph.name);
    pipeline::Report report;
    std::string why;
    const auto compiler = pipeline::compiler_for(settings, folder, why);
    pipeline::Compiled compiled =
        pipeline::compile(graph, settings, compiler.get(), trace, report, {}, nullptr, facts.get());
    trace.finish();
    return std::make_unique<Executable>(std::move(compiled.plan), std::move(compiled.code),
                                        attributes, example, options);
  };
}

ExecutableMaker::Made ExecutableMaker::make_differentiable(const Recorded& recorded,
                                                           const Settings& settings,
                                                           pipeline::Trace& trace) const {
  const ir::Graph& joint = recorded.graph;
  trace.show(Artifact::aot_joint_graph, "joint_graph.txt", [&] { return ir::print(joint); });
  trace.show(std::nullopt, "joint_graph.py", [&] { return ir::python_module(joint); });
  // Who calls may write to inputs and results before the backward runs.
  autograd::PartitionOptions how{.policy = settings.partitioner == "default"
                                               ? autograd::Policy::Default
                                               : autograd::Policy::MinCut,
                                 .memory_budget = settings.activation_memory_budget,
                                 .allows_writes = true,
                                 .written_unseen = versioned_apart(recorded.example)};
  if (recorded.passes.empty()) how.forward_nodes = recorded.gradients.forward_nodes;
  const Machine machine = pipeline::machine_of(settings);
  if (settings.decompose && !settings.pass_disabled("expand_attention") &&
      ops::providers_on(machine, settings.gemm_backend).own)
    how.machine = &machine;
  autograd::Partition parts = autograd::partition(joint, how);
  trace.show(Artifact::aot_joint_graph, "saved_for_backward.txt",
             [&] { return autograd::print(parts.saved); });
  autograd::open_layouts(parts, machine);
  Settings plain = settings;
  plain.freezing = false;
  Made made = make_with(
      {parts.forward, recorded.attributes, recorded.example, recorded.module_state, recorded.passes,
       recorded.restart, recorded.facts, recorded.names_places, recorded.gradients},
      plain, trace);
  autograd::close_layouts(parts, made.report.layouts);
  Gradients gradients = recorded.gradients;
  if (!recorded.passes.empty()) gradients.no_second_order = "a pass of the user's";
  auto with_history = std::make_unique<GradientFunction>(joint, gradients, recorded.attributes);
  made.executable->set_backward(std::make_shared<Backward>(
      std::move(parts), std::move(gradients), recorded.buckets, settings.strict,
      backward_maker(recorded, plain), std::move(with_history)));
  return made;
}

pipeline::Compiled ExecutableMaker::load(std::string_view saved) const {
  return pipeline::load_plan(saved, settings_, [&] {
    std::string why;
    auto found = pipeline::compiler_for(settings_, folder_, why);
    if (!found) throw InternalError(why);
    return found;
  });
}

ExecutableMaker::Made ExecutableMaker::bind(pipeline::Compiled compiled,
                                            std::vector<at::Tensor> attributes,
                                            std::span<const Input> example,
                                            std::optional<size_t> own_attributes) const {
  const auto options =
      options_of(settings_, own_attributes.has_value(), own_attributes.value_or(attributes.size()));
  require_ranks(compiled.plan, example);
  Made made;
  pipeline::count_steps(compiled.plan, made.report);
  made.executable = std::make_unique<Executable>(std::move(compiled.plan), std::move(compiled.code),
                                                 std::move(attributes), example, options);
  if (!made.executable->has_layouts(example)) throw UserError(kOtherInputs);
  return made;
}

ExecutableMaker::Made ExecutableMaker::fastest(const Recorded& recorded,
                                               pipeline::Trace& trace) const {
  Settings best = settings_;
  Made out;
  std::string table;
  // One row after the other, each on top of the best so far.
  static const std::pair<const char*, std::vector<const char*>> choices[] = {
      {"gemm_backend", {"auto", "onednn", "aten"}}, {"streaming_stores", {"True", "False"}}};
  for (const auto& [setting, values] : choices) {
    std::vector<Made> ways;
    for (const char* value : values) {
      Settings changed = best;
      changed.set(setting, value);
      recorded.restart();
      ways.push_back(make_with(recorded, changed, trace));
    }
    const std::vector<double> times = time_in_turn(ways, recorded.example);
    const auto kept = static_cast<size_t>(std::ranges::min_element(times) - times.begin());
    for (size_t i = 0; i < ways.size(); i++)
      table += row_text(setting, values[i], times[i], i == kept);
    best.set(setting, values[kept]);
    out = std::move(ways[kept]);
  }
  table.pop_back();
  out.choices = std::move(table);
  return out;
}

std::string bandwidth_text(Executable& executable, std::span<const Input> inputs) {
  constexpr int kRuns = 8;
  const CopiedInputs copies(inputs);
  std::vector<double> best;
  for (int run = 0; run < kRuns; ++run) {
    Outputs outputs;
    std::string reason;
    std::vector<double> seconds;
    if (!executable.run(copies, outputs, reason, &seconds)) throw InternalError(reason);
    if (best.empty()) best = seconds;
    for (size_t i = 0; i < seconds.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  return runtime::bandwidth_text(executable.plan(), best, runtime::copy_bandwidth(torch_host()));
}

}  // namespace oxy::bridge
