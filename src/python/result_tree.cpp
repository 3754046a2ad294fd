// Flattens results to tensors and builds them again.
#include "python/result_tree.h"

#include <torch/csrc/autograd/python_variable.h>

#include "python/cpython/handles.h"

namespace oxy::python {

namespace py = pybind11;

py::object ResultTree::build(const std::vector<py::object>& outputs) const {
  if (kind == Kind::Output) return outputs[output];
  if (kind == Kind::Constant) return constant;
  py::list made(items.size());
  for (size_t i = 0; i < items.size(); ++i) made[i] = items[i].build(outputs);
  if (kind == Kind::List) return std::move(made);
  if (kind == Kind::Tuple) return py::tuple(made);
  if (kind == Kind::NamedTuple) return constant(py::tuple(made));
  py::dict out;
  for (size_t i = 0; i < items.size(); ++i) out[keys[i]] = made[i];
  return std::move(out);
}

ResultTree take_apart(py::handle result, std::vector<at::Tensor>& tensors) {
  ResultTree tree;
  PyObject* p = result.ptr();
  if (THPVariable_Check(p)) {
    const at::Tensor& t = THPVariable_Unpack(p);
    tree.kind = ResultTree::Kind::Output;
    for (tree.output = 0; tree.output < tensors.size(); ++tree.output)
      if (tensors[tree.output].is_same(t)) return tree;
    tensors.push_back(t);
  } else if (PyTuple_CheckExact(p) || PyList_Check(p)) {
    tree.kind = PyTuple_Check(p) ? ResultTree::Kind::Tuple : ResultTree::Kind::List;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); ++i)
      tree.items.push_back(take_apart(PySequence_Fast_GET_ITEM(p, i), tensors));
  } else if (PyDict_Check(p)) {
    tree.kind = ResultTree::Kind::Dict;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(result)) {
      tree.keys.push_back(borrow(key));
      tree.items.push_back(take_apart(value, tensors));
    }
  } else if (PyTuple_Check(p)) {
    // A collections.namedtuple, or one written in C (torch.return_types, torch.Size).
    const py::object type = py::type::of(result);
    tree.kind = ResultTree::Kind::NamedTuple;
    tree.constant = py::hasattr(type, "_make") ? py::object(type.attr("_make")) : type;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); ++i)
      tree.items.push_back(take_apart(PyTuple_GET_ITEM(p, i), tensors));
  } else {
    tree.constant = borrow(result);
  }
  return tree;
}

}  // namespace oxy::python
