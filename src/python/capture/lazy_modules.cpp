// Runs a lazy module's own initialisation for real, then starts the capture again.
#include "python/capture/lazy_modules.h"

#include <torch/csrc/autograd/python_variable.h>

#include "python/inner_frames.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

// That the class has the method from a module of torch's.
bool is_of_torch(py::handle type, const char* method) {
  const py::object found = py::getattr(type, method, py::none());
  return PyFunction_Check(found.ptr()) && module_of(found).starts_with("torch.nn.modules.");
}

}  // namespace

void infer_parameters(Capture& t, py::handle callable, const Arguments& args) {
  if (args.size() != 4 || t.graphs.inner() || !args[0].is(args[1]) || !t.heap.exists(args[0]))
    return;
  const py::type type = py::type::of(args[0]);
  if (!is_of_torch(type, "initialize_parameters") || !is_of_torch(type, "reset_parameters") ||
      t.heap.tracked(args[0])->writes)
    return;
  py::list given;
  for (py::handle a : t.heap.contents(args[2])) {
    if (!t.heap.is_tensor(a)) return;
    const at::Tensor meta = bridge::make_meta(THPVariable_Unpack(a.ptr()));
    given.append(owned(THPVariable_Wrap(meta)));
  }
  if (bridge::heard().draws != Attempt::current().before.draws)
    throw Break(BreakId::torch_call, "a lazy module is initialised behind an op that draws");
  const RefusedFrames allowed(false);
  callable(args[0], args[1], py::tuple(given), t.heap.contents(args[3]));
  throw StartAgain{};
}

}  // namespace oxy::python
