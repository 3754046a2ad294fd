// Python's view of execution: plans, the callable of a compiled graph, the memory pool.

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_cpp_function.h>

#include <algorithm>
#include <mutex>

#include "jit/compiler.h"
#include "jit/prebuilt_functions.h"
#include "passes/pass_list.h"
#include "pipeline/pipeline.h"
#include "python/bindings.h"
#include "python/compile_graph.h"
#include "python/fake_implementations.h"
#include "python/replay.h"
#include "runtime/bandwidth.h"
#include "schedule/cpu/pass_list.h"
#include "support/check.h"
#include "support/text.h"
#include "torch_bridge/host.h"
#include "torch_bridge/recorder.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::python {
namespace {

// `own_attributes`: how many of the attributes are the graph's, where the rest was made from
// constants.
std::shared_ptr<CompiledPlan> bind_plan(pipeline::Compiled made, std::vector<at::Tensor> attributes,
                                        const py::tuple& args, const Settings& settings,
                                        std::optional<size_t> own_attributes) {
  const std::vector<bridge::Input> inputs = inputs_of(args);
  return std::make_shared<CompiledPlan>(
      bridge::ExecutableMaker(settings, library_folder())
          .bind(std::move(made), std::move(attributes), inputs, own_attributes),
      ResultTree());
}

std::shared_ptr<CompiledPlan> load_plan(const py::bytes& saved, std::vector<at::Tensor> attributes,
                                        const py::tuple& args, const Settings& settings,
                                        std::optional<size_t> own_attributes) {
  const std::string_view bytes = saved;
  pipeline::Compiled made;
  {
    const py::gil_scoped_release released;
    made = bridge::ExecutableMaker(settings, library_folder()).load(bytes);
  }
  return bind_plan(std::move(made), std::move(attributes), args, settings, own_attributes);
}

// Of a plan without kernels.
std::shared_ptr<CompiledPlan> load_plan_text(const std::string& text,
                                             std::vector<at::Tensor> attributes,
                                             const py::tuple& args, const Settings& settings) {
  return bind_plan({runtime::parse_plan(text), {}}, std::move(attributes), args, settings, {});
}

// The outputs of a plan, in order: tensors, numbers, None.
py::list run_plan(const CompiledPlan& plan, const py::tuple& args) {
  bridge::Executable& executable = plan.executable;
  const std::vector<bridge::Input> inputs = inputs_of(args);
  if (!plan.accepts(inputs)) throw UserError("the plan is for other inputs");
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
      out.append(owned(THPVariable_Wrap(outputs[k])));
    else
      out.append(py::none());
  }
  return out;
}

template <auto member>
auto reported(const CompiledPlan& plan) {
  return plan.report.*member;
}

int64_t moved_bytes(const CompiledPlan& plan) {
  int64_t bytes = 0;
  for (const runtime::PlanStep& step : plan.executable.plan().steps)
    bytes += runtime::moved_bytes(plan.executable.plan(), step);
  return bytes;
}

py::dict pool_stats() {
  const auto s = bridge::output_pool().stats();
  return py::dict(py::arg("cached_bytes") = s.cached_bytes, py::arg("live_bytes") = s.live_bytes,
                  py::arg("hits") = s.hits, py::arg("misses") = s.misses);
}

// Which threads of the pool do a share of the work, by number: for the test that parallel regions
// are parallel.
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

// Whether a node of autograd's has saved tensors, which Python sees as attributes of it.
bool keeps_tensors(torch::autograd::Node& node) {
  constexpr std::string_view kRaw = "_raw_saved_";
  const py::gil_scoped_acquire gil;
  const auto object =
      py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node.getptr()));
  if (!object) throw py::error_already_set();
  try {
    if (py::hasattr(object, "saved_tensors")) return py::len(object.attr("saved_tensors")) > 0;
    // One that Python knows nothing of: ours.
    if (std::string_view(Py_TYPE(object.ptr())->tp_name).ends_with("CppFunction")) return true;
    const PyGetSetDef* a = Py_TYPE(object.ptr())->tp_getset;
    for (; a != nullptr && a->name != nullptr; ++a) {
      const std::string_view name = a->name;
      if (!name.starts_with(kRaw)) continue;
      const std::string kept = cat("_saved_", name.substr(kRaw.size()));
      if (!object.attr(kept.c_str()).is_none()) return true;
    }
    return false;
  } catch (const py::error_already_set&) {
    return true;  // it was written since
  }
}

// The class of nodes that Python knows nothing of, ours among them, is one of nodes.
void register_class_of_nodes() {
  const auto node = c10::make_intrusive<torch::autograd::GraphRoot>(
      torch::autograd::edge_list(), torch::autograd::variable_list());
  const auto object = py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node));
  if (!object) throw py::error_already_set();
  py::module_::import("torch.autograd.graph").attr("Node").attr("register")(py::type::of(object));
}

}  // namespace

void bind_execution(py::module_& m) {
  register_class_of_nodes();
  bridge::set_keeps_tensors(keeps_tensors);
  provide_fake_implementations();
  bridge::set_interrupt_poll([] {
    const py::gil_scoped_acquire gil;
    check(PyErr_CheckSignals());
  });
  bridge::set_unlocked([](const std::function<void()>& f) {
    const py::gil_scoped_release released;
    try {
      f();
    } catch (python_error& e) {
      const py::gil_scoped_acquire gil;
      if (!PyErr_Occurred()) e.restore();
      const py::error_already_set raised;
      if (!raised.matches(PyExc_Exception)) throw raised;
      throw bridge::BackwardRaises(cat("a backward that raises: ", one_line(raised)));
    }
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
  jit::use_prebuilt(jit::prebuilt_gemms());
  jit::use_prebuilt_functions(jit::prebuilt_functions());
  py::class_<CompiledPlan, std::shared_ptr<CompiledPlan>>(m, "CompiledPlan",
                                                          "Steps that a call runs natively.")
      .def("text", [](const CompiledPlan& p) { return runtime::print(p.executable.plan()); })
      .def(
          "save",
          [](const CompiledPlan& p) {
            return py::bytes(pipeline::save_plan(p.executable.plan(), p.executable.code()));
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
      .def("extern_count", &reported<&pipeline::Report::extern_calls>, "Extern calls a call makes.")
      .def("kernel_count", &reported<&pipeline::Report::kernels>, "Distinct kernels.")
      .def("moved_bytes", &moved_bytes, "Memory that the kernels of a call read and write.")
      .def(
          "bandwidth_text",
          [](CompiledPlan& p, const py::tuple& args) {
            const std::vector<bridge::Input> inputs = inputs_of(args);
            const py::gil_scoped_release released;
            return bridge::bandwidth_text(p.executable, inputs);
          },
          py::arg("inputs"),
          "A table of the kernels: memory moved, time, part of the machine's bandwidth.")
      .def_readonly("choices", &CompiledPlan::choices, "What max-autotune tried, a row each.")
      .def("kernel_calls", &reported<&pipeline::Report::kernel_calls>, "Kernels a call runs.");
  m.def("make_plan", &plan_recording, py::arg("recording"), py::arg("torch_graph"),
        py::arg("example_inputs"), py::arg("settings"), py::arg("passes") = py::list(),
        "A plan for inputs like these.");
  m.def("load_plan", &load_plan, py::arg("saved"), py::arg("attributes"), py::arg("example_inputs"),
        py::arg("settings"), py::arg("own_attributes") = py::none(),
        "A plan that was saved, for inputs like these.");
  m.def("load_plan_text", &load_plan_text, py::arg("text"), py::arg("attributes"),
        py::arg("example_inputs"), py::arg("settings"), "A plan of extern calls, from its text.");
  m.def(
      "parse_plan",
      [](const std::string& text) { return runtime::print(runtime::parse_plan(text)); },
      py::arg("text"), "Reads the text of a plan and writes it again.");
  py::class_<UserPattern, std::shared_ptr<UserPattern>>(m, "Pattern", "What a replacement is for.")
      .def(py::init(&make_user_pattern), py::arg("search"), py::arg("numbers"), py::arg("record"));
  m.def(
      "compile",
      [](const std::shared_ptr<TorchIr>& ir, const py::tuple& args, const Settings& settings,
         const py::list& passes, bool freezing, const py::dict& dynamic) {
        using Dims = std::vector<std::pair<int64_t, std::string>>;
        RecordOptions options{.shape_rules = true, .dynamic = {}};
        for (auto [key, value] : dynamic) {
          DynamicInput& input = options.dynamic[key.cast<size_t>()];
          auto [dims, group] = value.cast<std::pair<Dims, std::optional<std::string>>>();
          for (auto& [dim, name] : dims) input.dims.push_back({dim, name});
          input.number_group = group;
        }
        return compile_graph(ir, args, settings, passes, freezing, options);
      },
      py::arg("torch_graph"), py::arg("example_inputs"), py::arg("settings"), py::arg("passes"),
      py::arg("freezing"), py::arg("dynamic") = py::dict(),
      "Records a call with inputs like these and plans it: a CompiledPlan, or (kind, reason). "
      "`dynamic`: by input the dimensions whose sizes are symbols, each with a group, and the "
      "group of a number or None for a symbol of its own; sizes of one group that are equal share "
      "a symbol.");
  m.attr("CompiledFunction") = py::handle(reinterpret_cast<PyObject*>(compiled_function_type()));
  m.def(
      "compile_everything_like",
      [](py::handle compiled) {
        if (Py_TYPE(compiled.ptr()) != compiled_function_type())
          throw py::type_error("not a compiled function");
        compile_everything_like(compiled.ptr());
      },
      py::arg("compiled"), "From now on every Python function is compiled as this one is.");
  m.attr("CompiledGraph") = owned(make_compiled_graph_type());
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
        for (const schedule::Pass& p : schedule::cpu_passes())
          if (!p.required) out.emplace_back(p.name);
        return out;
      },
      "The passes that the option disabled_passes knows.");
  m.def("threads_used", &threads_used, py::arg("range"), py::arg("grain"),
        "(thread number, iterations) of each share of a parallel region.");
}

}  // namespace oxy::python
