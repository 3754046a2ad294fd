// Python's view of execution: plans, the callable of a compiled graph, the memory pool.
#include <ATen/ops/empty_strided.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "ir/text.h"
#include "jit/prebuilt.h"
#include "passes/pass_list.h"
#include "pipeline/compilers.h"
#include "pipeline/extern_plan.h"
#include "pipeline/pipeline.h"
#include "python/bindings.h"
#include "python/bytecode/code.h"
#include "python/compiled_function.h"
#include "python/compiled_graph.h"
#include "python/compiled_plan.h"
#include "python/replay.h"
#include "python/user_passes.h"
#include "runtime/bandwidth.h"
#include "runtime/plan_file.h"
#include "support/check.h"
#include "support/settings.h"
#include "support/text.h"
#include "support/timing.h"
#include "torch_bridge/host.h"
#include "torch_bridge/interrupts.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::python {
namespace {

// Inputs as the recording saw them. The tensors are held by `args`.
std::vector<bridge::Input> inputs_of(const py::tuple& args) {
  std::vector<bridge::Input> out;
  for (py::handle o : args) {
    if (THPVariable_Check(o.ptr())) {
      out.push_back({&THPVariable_Unpack(o.ptr()), 0});
    } else {
      out.push_back({nullptr, o.cast<int64_t>()});
    }
  }
  return out;
}

// The folder of this extension, where the Clang library lies too.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&bind_execution), &info) == 0 || !info.dli_fname) return ".";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

// The inputs of `graph` that are module state and stay what they are during a call.
std::vector<bool> frozen_inputs(const ir::Graph& graph, const std::vector<bool>& module_state,
                                std::span<const bridge::Input> inputs) {
  std::vector<bool> frozen(inputs.size(), false);
  for (size_t i = 0; i < inputs.size(); i++) {
    const at::Tensor* t = inputs[i].tensor;
    frozen[i] = i < module_state.size() && module_state[i] && t != nullptr &&
                bridge::FrozenTensors::can_be_frozen(*t);
    for (const ir::Mutation& m : graph.mutations)
      if (frozen[i] && inputs[m.input].tensor->storage().is_alias_of(t->storage()))
        frozen[i] = false;
  }
  return frozen;
}

// The constants of a frozen graph, on the tensors that it was frozen with.
std::vector<at::Tensor> evaluate(const ir::Graph& constants,
                                 const std::vector<at::Tensor>& attributes,
                                 std::span<const bridge::Input> inputs) {
  if (constants.outputs.empty()) return {};
  bridge::Executable once(pipeline::make_extern_plan(constants), {}, attributes, inputs, {});
  bridge::Outputs outputs;
  std::string reason;
  c10::InferenceMode plain(false);
  if (!once.run(inputs, outputs, reason)) throw InternalError(cat("constants: ", reason));
  return {outputs.begin(), outputs.end()};
}

std::shared_ptr<CompiledPlan> plan_of(Recording r, const TorchIr& torch_ir, const py::tuple& args,
                                      const Settings& settings, const py::list& registered,
                                      pipeline::Trace& trace) {
  bridge::Executable::Options options;
  options.strict = settings.strict;
  options.fence = runtime::fence_of(settings.fence);
  options.own_attributes = r.attributes.size();
  auto inputs = inputs_of(args);
  pipeline::Freezing freezing;
  if (settings.freezing &&
      std::ranges::all_of(r.attributes, bridge::FrozenTensors::can_be_frozen)) {
    options.frozen = true;
    freezing.inputs = frozen_inputs(r.graph, torch_ir.module_state, inputs);
    freezing.evaluate = [&](const ir::Graph& constants) {
      for (at::Tensor& t : evaluate(constants, r.attributes, inputs))
        r.attributes.push_back(std::move(t));
    };
  }
  pipeline::Report report;
  pipeline::Compiled made;
  const std::vector<pipeline::UserPass> passes = user_passes(registered, r, args);
  {
    py::gil_scoped_release released;
    std::string why;
    auto compiler = pipeline::compiler_for(settings, own_folder(), why);
    made = pipeline::compile(r.graph, settings, compiler.get(), trace, report, passes,
                             options.frozen ? &freezing : nullptr);
  }
  auto compiled =
      std::make_shared<CompiledPlan>(std::move(made), r.attributes, inputs, options, r.result);
  compiled->report = report;
  return compiled;
}

void show_torch_graph(pipeline::Trace& trace, const TorchIr& torch_ir) {
  if (torch_ir.code) {
    auto* code = reinterpret_cast<PyCodeObject*>(torch_ir.code.ptr());
    trace.show(std::nullopt, "bytecode.txt", [&] { return to_text(disassemble(code), code); });
  }
  trace.show(std::nullopt, "torch_graph.txt", [&] { return ir::print(torch_ir.graph); });
}

std::shared_ptr<CompiledPlan> make_plan(const Recording& r, const TorchIr& torch_ir,
                                        const py::tuple& args, const Settings& settings,
                                        const py::list& registered) {
  pipeline::Trace trace(settings, r.graph.name);
  show_torch_graph(trace, torch_ir);
  auto compiled = plan_of(r, torch_ir, args, settings, registered, trace);
  trace.finish();
  return compiled;
}

// Records and plans under one trace. What was reached before a failure stays in the folder, with the reason.
std::shared_ptr<CompiledPlan> compile(TorchIr& torch_ir, const py::tuple& args,
                                      const Settings& settings, const py::list& registered) {
  pipeline::Trace trace(settings, torch_ir.graph.name);
  try {
    std::optional<Recording> recording = take_captured(torch_ir, args);
    if (!recording) {
      Phase phase(trace.timeline(), "record");
      recording = record(torch_ir, args);
    }
    show_torch_graph(trace, torch_ir);  // behind the recording, which finds the types
    auto compiled = plan_of(std::move(*recording), torch_ir, args, settings, registered, trace);
    trace.finish();
    return compiled;
  } catch (const std::exception& e) {
    trace.write("error.txt", cat(e.what(), "\n"));
    trace.finish();
    throw;
  }
}

// A plan that was saved, made for inputs like these. `own_attributes`: how many of the attributes are
// the graph's, where the rest was made from constants.
std::shared_ptr<CompiledPlan> load_plan(const py::bytes& bytes, std::vector<at::Tensor> attributes,
                                        const py::tuple& args, const Settings& settings,
                                        std::optional<size_t> own_attributes) {
  runtime::PlanFile file = runtime::load(static_cast<std::string_view>(bytes));
  bridge::Executable::Options options;
  options.strict = settings.strict;
  options.fence = runtime::fence_of(settings.fence);
  options.frozen = own_attributes.has_value();
  options.own_attributes = own_attributes.value_or(attributes.size());
  pipeline::Compiled made{std::move(file.plan), {}};
  if (!file.texts.empty()) {
    std::string why;
    auto compiler = pipeline::compiler_for(settings, own_folder(), why);
    if (!compiler) throw InternalError(why);
    py::gil_scoped_release released;
    made.code = pipeline::compile_texts(file.texts, settings, *compiler);
  }
  pipeline::Report report;
  pipeline::count_steps(made.plan, report);
  report.kernels = static_cast<int>(file.texts.size());
  auto loaded = std::make_shared<CompiledPlan>(std::move(made), std::move(attributes),
                                               inputs_of(args), options, ResultTree());
  loaded->report = report;
  return loaded;
}

// The outputs of a plan, in order: tensors, numbers, None.
py::list run_plan(const CompiledPlan& plan, const py::tuple& args) {
  auto& executable = const_cast<bridge::Executable&>(plan.executable);
  const std::vector<bridge::Input> inputs = inputs_of(args);
  if (!executable.accepts(inputs)) throw UserError("the plan is for other inputs");
  bridge::Outputs outputs;
  std::string reason;
  bool ok = false;
  {
    py::gil_scoped_release released;
    ok = executable.run(inputs, outputs, reason);
  }
  if (!ok) throw InternalError(reason);
  py::list out;
  for (size_t k = 0; k < outputs.size(); k++) {
    const runtime::PlanOutput& o = executable.plan().outputs[k];
    if (o.number)
      out.append(executable.number(outputs[k], o));
    else if (outputs[k].defined())
      out.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(outputs[k])));
    else
      out.append(py::none());
  }
  return out;
}

// Copies of the tensors, so that what a plan writes is nobody's. One that overlaps itself is written by no plan.
std::vector<at::Tensor> copies_of(const py::tuple& args) {
  std::vector<at::Tensor> out;
  for (py::handle o : args) {
    if (!THPVariable_Check(o.ptr())) {
      out.emplace_back();
      continue;
    }
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    const at::IntArrayRef strides = t.strides();
    const bool overlaps = std::find(strides.begin(), strides.end(), 0) != strides.end();
    out.push_back(overlaps ? t : at::empty_strided(t.sizes(), t.strides(), t.options()).copy_(t));
  }
  return out;
}

// The median time in seconds of a run of each plan, taken in turn.
std::vector<double> time_plans(const std::vector<std::shared_ptr<CompiledPlan>>& plans,
                               const py::tuple& args, double budget) {
  using Clock = std::chrono::steady_clock;
  const std::vector<at::Tensor> copies = copies_of(args);
  std::vector<bridge::Input> inputs = inputs_of(args);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].tensor) inputs[i].tensor = &copies[i];
  }
  std::vector<std::vector<double>> times(plans.size());
  py::gil_scoped_release released;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const Clock::time_point begin = Clock::now();
  while (times[0].size() < 4 || (seconds(Clock::now() - begin) < budget && times[0].size() < 200)) {
    for (size_t i = 0; i < plans.size(); ++i) {
      bridge::Outputs outputs;
      std::string reason;
      const Clock::time_point start = Clock::now();
      if (!plans[i]->executable.run(inputs, outputs, reason)) throw InternalError(reason);
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

// A row a kernel step: the memory that it moves, its best time in a few runs, and what part of the speed of a copy that is.
std::string bandwidth_text(const CompiledPlan& plan, const py::tuple& args) {
  constexpr int kRuns = 8;
  const std::vector<at::Tensor> copies = copies_of(args);
  std::vector<bridge::Input> inputs = inputs_of(args);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].tensor) inputs[i].tensor = &copies[i];
  py::gil_scoped_release released;
  auto& executable = const_cast<bridge::Executable&>(plan.executable);
  std::vector<double> best;
  for (int run = 0; run < kRuns; ++run) {
    bridge::Outputs outputs;
    std::string reason;
    std::vector<double> seconds;
    if (!executable.run(inputs, outputs, reason, &seconds)) throw InternalError(reason);
    if (best.empty()) best = seconds;
    for (size_t i = 0; i < seconds.size(); ++i) best[i] = std::min(best[i], seconds[i]);
  }
  const double copy = runtime::copy_bandwidth(bridge::torch_host());
  return runtime::bandwidth_text(executable.plan(), best, copy);
}

int64_t moved_bytes(const CompiledPlan& plan) {
  int64_t bytes = 0;
  for (const runtime::PlanStep& step : plan.executable.plan().steps)
    bytes += runtime::moved_bytes(plan.executable.plan(), step);
  return bytes;
}

py::dict pool_stats() {
  auto s = bridge::output_pool().stats();
  py::dict d;
  d["cached_bytes"] = s.cached_bytes;
  d["live_bytes"] = s.live_bytes;
  d["hits"] = s.hits;
  d["misses"] = s.misses;
  return d;
}

// Which threads of the pool do a share of the work, by number: for the test that parallel regions are parallel.
py::list threads_used(int64_t range, int64_t grain) {
  struct Seen {
    std::mutex mutex;
    std::vector<std::pair<int, int64_t>> shares;
  } seen;
  {
    py::gil_scoped_release released;
    bridge::torch_host().parallel(
        range, grain,
        [](void* context, int64_t begin, int64_t end, int thread) {
          auto* s = static_cast<Seen*>(context);
          std::lock_guard lock(s->mutex);
          s->shares.emplace_back(thread, end - begin);
        },
        &seen);
  }
  std::sort(seen.shares.begin(), seen.shares.end());
  return py::cast(seen.shares);
}

}  // namespace

void bind_execution(py::module_& m) {
  bridge::set_interrupt_poll([] {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const bridge::Interrupted& i) {
      try {
        std::rethrow_exception(i.why);
      } catch (py::error_already_set& e) {
        e.restore();
      }
    }
  });
  jit::use_prebuilt(jit::prebuilt_products());
  py::class_<CompiledPlan, std::shared_ptr<CompiledPlan>>(m, "CompiledPlan",
                                                          "Steps that a call runs natively.")
      .def("text", [](const CompiledPlan& p) { return runtime::print(p.executable.plan()); })
      .def(
          "save",
          [](const CompiledPlan& p) {
            return py::bytes(runtime::save(p.executable.plan(), p.executable.code()));
          },
          "As bytes, with the texts of its kernels; load_plan reads them back.")
      .def(
          "attributes", [](const CompiledPlan& p) { return p.executable.attributes(); },
          "The constants that its steps read.")
      .def(
          "own_attributes",
          [](const CompiledPlan& p) -> std::optional<size_t> {
            const auto& o = p.executable.options();
            return o.frozen ? std::optional(o.own_attributes) : std::nullopt;
          },
          "Of a plan with frozen parameters: how many of the attributes are the graph's.")
      .def("run", &run_plan, py::arg("inputs"), "Its outputs, in order.")
      .def(
          "extern_count", [](const CompiledPlan& p) { return p.report.extern_calls; },
          "Extern calls a call makes.")
      .def(
          "kernel_count", [](const CompiledPlan& p) { return p.report.kernels; },
          "Distinct kernels.")
      .def("moved_bytes", &moved_bytes, "Memory that the kernels of a call read and write.")
      .def("bandwidth_text", &bandwidth_text, py::arg("inputs"),
           "A table of the kernels: memory moved, time, part of the machine's bandwidth.")
      .def(
          "kernel_calls", [](const CompiledPlan& p) { return p.report.kernel_calls; },
          "Kernels a call runs.");
  m.def("make_plan", &make_plan, py::arg("recording"), py::arg("torch_graph"),
        py::arg("example_inputs"), py::arg("settings"), py::arg("passes") = py::list(),
        "A plan for inputs like these.");
  m.def("load_plan", &load_plan, py::arg("saved"), py::arg("attributes"), py::arg("example_inputs"),
        py::arg("settings"), py::arg("own_attributes") = py::none(),
        "A plan that was saved, for inputs like these.");
  m.def(
      "parse_plan",
      [](const std::string& text) { return runtime::print(runtime::parse_plan(text)); },
      py::arg("text"), "Reads the text of a plan and writes it again.");
  m.def("time_plans", &time_plans, py::arg("plans"), py::arg("example_inputs"), py::arg("budget"),
        "The median seconds of a run of each plan, taken in turn for so long.");
  py::class_<UserPattern, std::shared_ptr<UserPattern>>(m, "Pattern", "What a replacement is for.")
      .def(py::init(&make_user_pattern), py::arg("search"), py::arg("numbers"), py::arg("record"));
  m.def("compile", &compile, py::arg("torch_graph"), py::arg("example_inputs"), py::arg("settings"),
        py::arg("passes") = py::list(), "Records a call with inputs like these, and plans it.");
  m.attr("CompiledFunction") = py::handle(reinterpret_cast<PyObject*>(compiled_function_type()));
  m.def(
      "compile_everything_like",
      [](py::handle compiled) {
        if (Py_TYPE(compiled.ptr()) != compiled_function_type())
          throw py::type_error("not a compiled function");
        compile_everything_like(compiled.ptr());
      },
      py::arg("compiled"), "From now on every Python function is compiled as this one is.");
  m.attr("CompiledGraph") = py::reinterpret_steal<py::object>(make_compiled_graph_type());
  m.def(
      "copy_once",
      [] {
        py::gil_scoped_release released;
        return runtime::copy_once(bridge::torch_host());
      },
      "Bytes a second that a large copy reads and writes, now.");
  m.def("pool_stats", &pool_stats,
        "The pool of large outputs: bytes cached and in use, hits, misses.");
  m.def("trim_pool", [] { bridge::output_pool().trim(); }, "Gives the pool's idle memory back.");
  m.def(
      "pass_names",
      [] {
        std::vector<std::string> out;
        for (const passes::Pass& p : passes::all_passes()) out.emplace_back(p.name);
        return out;
      },
      "The passes that the option disabled_passes knows.");
  m.def("threads_used", &threads_used, py::arg("range"), py::arg("grain"),
        "(thread number, points) of each share of a parallel region.");
}

}  // namespace oxy::python
