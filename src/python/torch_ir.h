// Torch IR as Python owns it: the graph, and the Python objects that stand behind its names.
#pragma once

#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "python/cpython/handles.h"

namespace oxy::python {

// As THPVariable_Check, but never asks the object, whose class may answer with Python code.
inline bool is_tensor_object(PyObject* o) {
  return PyObject_TypeCheck(o, as_type(THPVariableClass));
}

struct CapturedRecording;  // replay.h

// What a graph of Torch IR, or a region of one, needs of Python.
struct TorchHost {
  std::vector<py::object> objects;  // of Graph::objects
  // By node index: what a CallFunction calls; null for the rest.
  std::vector<py::object> bound;
  // By value index: the node after which nobody reads it (index in the order), so that replay can
  // let go of it.
  std::vector<uint32_t> last_use;
  std::vector<std::vector<TorchHost>> regions;  // by node index: of its regions

  py::object& bound_of(ir::NodeId id) {
    if (bound.size() <= id.index) bound.resize(id.index + 1);
    return bound[id.index];
  }
  std::vector<TorchHost>& regions_of(ir::NodeId id) {
    if (regions.size() <= id.index) regions.resize(id.index + 1);
    return regions[id.index];
  }
  // Computes last_use and the callables that are named only, of regions too; call after the graph
  // is complete.
  void seal(const ir::Graph& graph);
};

struct TorchIr : TorchHost {
  ir::Graph graph{ir::Stage::Torch};
  // Whose attributes the graph reads, or null. They are read anew each time: training replaces
  // them.
  py::object module;
  // By input: whether it is a parameter or buffer of a module. May be shorter.
  std::vector<bool> module_state;
  // By input: whether it is a tensor that holds a number of Python's. May be shorter.
  std::vector<bool> runtime_numbers;
  // Whether the code that it was captured from handles what an op of it raises.
  bool handles_errors = false;
  // The code that it was captured from, or null.
  py::object code;
  // The symbols in the types of its values, where a recording put them there.
  std::shared_ptr<sym::ExprPool> recorded_pool;
  // What the capture that made the graph recorded underneath, until somebody takes it; or null.
  std::shared_ptr<CapturedRecording> captured;

  uint32_t add_object(const py::object& o);
  using TorchHost::seal;
  void seal() { seal(graph); }
  // What an Attribute node reads now; UserError without a module.
  py::object attribute(const ir::Node& n) const;
};

// Of a torch.fx.GraphModule. call_module nodes become calls of the module as an object; the package
// inlines them first where it can (python/oxyfuel/fx.py). `numbers`: its inputs that are tensors
// which hold a number of Python's.
std::shared_ptr<TorchIr> torch_ir_from_fx(const py::object& graph_module,
                                          const std::vector<size_t>& numbers = {});

// A name that finds this callable again ("torch.nn.functional.relu"), or nothing.
std::string qualified_name(py::handle callable);

// Arguments between Python and the IR. `value`: the value of an object that stands for one, or
// nothing; anything without a form in the IR goes to the table of objects. `size`: what stands for
// a symbolic number; Unsupported without it.
ir::Arg arg_from_python(TorchIr& ir, py::handle o,
                        const std::function<std::optional<ir::ValueId>(py::handle)>& value);
py::object arg_to_python(const ir::Arg& a, const std::vector<py::object>& objects,
                         const std::function<py::object(ir::ValueId)>& value,
                         const std::function<py::object(ir::Expr)>& size = nullptr);

}  // namespace oxy::python
