// Runs fake implementations on meta tensors (oxyfuel/fake_sizes.py).
#include "python/fake_implementations.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>

#include "python/cpython/handles.h"
#include "torch_bridge/shape_fallback.h"

namespace oxy::python {
namespace {

// Null where nothing is registered.
py::object implementation_of(const c10::OperatorName& name) {
  const std::string& overload = name.overload_name;
  const py::object entry = member_of<"torch._library.simple_registry", "singleton">().attr("get")(
      overload.empty() ? name.name : name.name + "." + overload);
  if (entry.is_none()) return {};
  const py::object kernel = entry.attr("fake_impl").attr("kernel");
  return kernel.is_none() ? py::object() : kernel;
}

size_t run_fake(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                std::span<const int64_t> sizes_of_data) {
  const py::gil_scoped_acquire gil;
  const py::object implementation = implementation_of(op.operator_name());
  if (!implementation) return 0;
  py::list args, sizes;
  py::dict kwargs;
  for (size_t i = 0; i < stack.size(); i++) {
    const c10::Argument& formal = op.schema().arguments()[i];
    py::object given = torch::jit::toPyObject(stack[i]);
    if (formal.kwarg_only())
      kwargs[formal.name().c_str()] = std::move(given);
    else
      args.append(std::move(given));
  }
  for (const int64_t size : sizes_of_data) sizes.append(size);
  const py::tuple done =
      member_of<"oxyfuel.fake_sizes", "run_fake">()(implementation, sizes, args, kwargs);
  const py::object out = done[0];
  const auto& returns = op.schema().returns();
  stack.clear();
  for (size_t i = 0; i < returns.size(); i++)
    stack.push_back(torch::jit::toIValue(returns.size() == 1 ? out : py::object(out[py::int_(i)]),
                                         returns[i].real_type()));
  return done[1].cast<size_t>();
}

}  // namespace

void provide_fake_implementations() { bridge::set_run_fake(run_fake); }

}  // namespace oxy::python
