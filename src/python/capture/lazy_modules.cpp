// Modules that take the sizes of their parameters from their first input (torch.nn.LazyLinear).
//
// The first call changes what capture looks at: parameters, hooks, the module's class. torch's own modules read nothing of
// their input but its sizes, so what eager would do now is done for real, and the capture starts again on a module like any
// other. Random numbers are drawn in eager's order: an op of the graph that draws in front of it is a break.
#include <torch/csrc/autograd/python_variable.h>

#include "ops/op_table.h"
#include "python/capture/tracer.h"
#include "python/inner_frames.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

// That the class has the method from a module of torch's.
bool is_of_torch(py::handle type, const char* method) {
  const py::object found = py::getattr(type, method, py::none());
  return PyFunction_Check(found.ptr()) && module_of(found).starts_with("torch.nn.modules.");
}

bool draws(const ir::Graph& graph) {
  return std::ranges::any_of(graph.order(), [&](ir::NodeId id) {
    const ops::OpInfo* info = ops::find(graph.node(id));
    return info && info->has(ops::Random);
  });
}

}  // namespace

// LazyModuleMixin._infer_parameters(self, module, args, kwargs).
std::optional<py::object> Tracer::infer_parameters(py::handle callable, const Arguments& args) {
  if (args.size() != 4 || inner_ || !args[0].is(args[1]) || !exists(args[0])) return std::nullopt;
  const py::type type = py::type::of(args[0]);
  if (!is_of_torch(type, "initialize_parameters") || !is_of_torch(type, "reset_parameters") ||
      known(args[0])->writes)
    return std::nullopt;
  if (draws(recorder_now().graph()))
    throw Break(BreakId::torch_call, "a lazy module is initialised behind an op that draws");
  py::list given;
  for (py::handle a : contents(args[2])) {
    if (!is_tensor(a)) return std::nullopt;
    const at::Tensor& t = THPVariable_Unpack(a.ptr());
    given.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(bridge::make_meta(t))));
  }
  const RefusedFrames allowed(false);
  callable(args[0], args[1], py::tuple(given), contents(args[3]));
  throw StartAgain{};
}

}  // namespace oxy::python
