// Python's view of execution: plans, the callable of a compiled graph, the memory pool.

#include <algorithm>
#include <mutex>

#include "jit/prebuilt.h"
#include "passes/pass_list.h"
#include "python/bindings.h"
#include "python/compile_graph.h"
#include "python/compiled_function.h"
#include "python/compiled_graph.h"
#include "python/user_passes.h"
#include "runtime/bandwidth.h"
#include "torch_bridge/host.h"
#include "torch_bridge/tensor_meta.h"

namespace oxy::python {
namespace {

int64_t moved_bytes(const CompiledPlan& plan) {
  int64_t bytes = 0;
  for (const runtime::PlanStep& step : plan.executable.plan().steps)
    if (auto* k = std::get_if<runtime::KernelStep>(&step))
      bytes += runtime::moved_bytes(plan.executable.plan(), *k);
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
  jit::use_prebuilt(jit::prebuilt_products());
  py::class_<CompiledPlan, std::shared_ptr<CompiledPlan>>(m, "CompiledPlan",
                                                          "Steps that a call runs natively.")
      .def("text", [](const CompiledPlan& p) { return runtime::print(p.executable.plan()); })
      .def(
          "extern_count", [](const CompiledPlan& p) { return p.report.extern_calls; },
          "Extern calls a call makes.")
      .def(
          "kernel_count", [](const CompiledPlan& p) { return p.report.kernels; },
          "Distinct kernels.")
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
      .def(
          "kernel_calls", [](const CompiledPlan& p) { return p.report.kernel_calls; },
          "Kernels a call runs.");
  m.def("make_plan", &plan_recording, py::arg("recording"), py::arg("torch_graph"),
        py::arg("example_inputs"), py::arg("settings"), py::arg("passes") = py::list(),
        "A plan for inputs like these.");
  py::class_<UserPattern, std::shared_ptr<UserPattern>>(m, "Pattern", "What a replacement is for.")
      .def(py::init(&make_user_pattern), py::arg("search"), py::arg("numbers"), py::arg("record"));
  m.def("compile", &compile_graph, py::arg("torch_graph"), py::arg("example_inputs"),
        py::arg("settings"), py::arg("passes"), py::arg("freezing"),
        "Records a call with inputs like these and plans it: a CompiledPlan, or (kind, reason).");
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
