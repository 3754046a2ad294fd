// Python's view of execution: plans, the callable of a compiled graph, the memory pool.
#include <algorithm>
#include <mutex>

#include "python/bindings.h"
#include "python/compiled_graph.h"
#include "python/compiled_plan.h"
#include "python/replay.h"
#include "runtime/extern_plan.h"
#include "support/settings.h"
#include "torch_bridge/host.h"
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

int64_t count_extern_calls(const runtime::Plan& plan) {
  return std::count_if(plan.steps.begin(), plan.steps.end(),
                       [](const auto& s) { return std::holds_alternative<runtime::ExternStep>(s); });
}

std::shared_ptr<CompiledPlan> make_plan(const Recording& r, const py::tuple& args, const Settings& settings) {
  bridge::Executable::Options options;
  options.strict = settings.strict;
  runtime::Plan plan = runtime::make_extern_plan(r.graph);
  return std::make_shared<CompiledPlan>(std::move(plan), r.attributes, inputs_of(args), options, r.result);
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
  py::class_<CompiledPlan, std::shared_ptr<CompiledPlan>>(m, "CompiledPlan", "Steps that a call runs natively.")
      .def("text", [](const CompiledPlan& p) { return runtime::print(p.executable.plan()); })
      .def("extern_count", [](const CompiledPlan& p) { return count_extern_calls(p.executable.plan()); })
      .def("kernel_count", [](const CompiledPlan& p) { return p.executable.plan().kernels.size(); });
  m.def("make_plan", &make_plan, py::arg("recording"), py::arg("example_inputs"), py::arg("settings"),
        "A plan for inputs like these.");
  m.attr("CompiledGraph") = py::reinterpret_steal<py::object>(make_compiled_graph_type());
  m.def("pool_stats", &pool_stats, "The pool of large outputs: bytes cached and in use, hits, misses.");
  m.def("trim_pool", [] { bridge::output_pool().trim(); }, "Gives the pool's idle memory back.");
  m.def("threads_used", &threads_used, py::arg("range"), py::arg("grain"),
        "(thread number, points) of each share of a parallel region.");
}

}  // namespace oxy::python
