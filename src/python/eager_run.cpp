// A captured graph whose functions are called one by one.
#include "python/replay.h"

#include <torch/csrc/autograd/python_variable.h>
#include <traceback.h>

#include <algorithm>

#include "torch_bridge/host.h"

namespace oxy::python {
namespace {

// What a run could have changed: how often the arguments were written, and the random numbers.
class Before {
 public:
  explicit Before(py::handle args) {
    for (py::handle a : args) {
      if (!THPVariable_Check(a.ptr())) continue;
      const at::Tensor& t = THPVariable_Unpack(a.ptr());
      counted_ &= !t.is_inference();
      if (counted_) versions_.emplace_back(t, t._version());
    }
  }

  bool nothing_written() const {
    return counted_ && std::ranges::all_of(
                           versions_, [](const auto& v) { return v.first._version() == v.second; });
  }

  void restore_random_numbers() { bridge::torch_cpu().restore_generator(random_); }

 private:
  bool counted_ = true;  // inference tensors have no versions
  std::vector<std::pair<at::Tensor, int64_t>> versions_;
  runtime::DeviceApi::GeneratorState random_ = bridge::torch_cpu().generator_state();
};

// Raises it again.
void set_with_traceback(py::handle exception) {
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr()))),
                Py_NewRef(exception.ptr()), PyException_GetTraceback(exception.ptr()));
}

}  // namespace

void add_user_lines(py::handle exception, const py::list& frames) {
  set_with_traceback(exception);
  for (size_t i = frames.size(); i-- > 0;) {
    const auto [file, line, function] = frames[i].cast<std::tuple<std::string, int, std::string>>();
    _PyTraceback_Add(function.c_str(), file.c_str(), line);
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (trace) PyException_SetTraceback(exception.ptr(), trace);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

std::optional<py::object> run_captured(const TorchIr& ir, py::handle args) {
  Before before(args);
  ir::NodeId reached;
  try {
    return replay(ir, args, &reached);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;  // KeyboardInterrupt: eager would begin again
    if (before.nothing_written()) {
      before.restore_random_numbers();
      return std::nullopt;
    }
    const py::object value = e.value();
    if (e.trace()) PyException_SetTraceback(value.ptr(), e.trace().ptr());
    py::list frames;
    const ir::StackId stack = reached.valid() ? ir.graph.node(reached).stack : ir::StackId();
    if (ir.graph.has_stack(stack))
      for (const ir::Frame& f : ir.graph.stack(stack))
        frames.append(py::make_tuple(f.file, f.line, f.function));
    add_user_lines(value, frames);
    set_with_traceback(value);
    throw py::error_already_set();
  }
}

}  // namespace oxy::python
