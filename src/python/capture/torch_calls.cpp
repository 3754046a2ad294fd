// Calls of torch: run on the fakes under the recorder, and kept as nodes of the Torch IR.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/inner_graph.h"
#include "python/capture/names.h"
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/inner_frames.h"
#include "python/replay.h"
#include "support/text.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/torch_limits.h"

namespace oxy::python {
namespace {

std::string text(py::handle o) {
  // PyObject_Str would run the handlers of signals.
  return PyUnicode_Check(o.ptr()) ? o.cast<std::string>() : py::str(o).cast<std::string>();
}

// Functions that are called as a whole, although they are written in Python.
bool is_leaf_module(std::string_view module) {
  return module == "torch.nn.functional" || module == "torch.functional" ||
         module == "torch._tensor";
}

std::string_view view_of(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<size_t>(size)};
}

std::string_view module_name(PyObject* function) {
  return view_of(reinterpret_cast<PyFunctionObject*>(function)->func_module);
}

// A method of an object that is no module: no function of torch.
bool is_method_of_object(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  return self != nullptr && !is_changeable_class(Py_TYPE(self)) && !PyModule_Check(self) &&
         !PyType_Check(self) && !PyCapsule_CheckExact(self);
}

// Whether there is anything to look for: quick, since it is asked of every callee.
bool may_be_of_torch(PyObject* p) {
  if (PyFunction_Check(p)) return is_leaf_module(module_name(p));
  if (PyCFunction_Check(p)) return !is_method_of_object(p);
  const std::string_view type = Py_TYPE(p)->tp_name;
  return type == "OpOverload" || type == "OpOverloadPacket";
}

// Whether an exception that is raised now comes to a handler of captured code. Where an op raises, only its kernel has the
// words of its exception; rules for shapes have others.
bool may_handle(std::span<TracedFrame* const> frames) {
  return std::ranges::any_of(frames, [](const TracedFrame* f) {
    const auto at = static_cast<int32_t>(f->next) - 1;
    return std::ranges::any_of(f->bytecode->ranges,
                               [at](const auto& r) { return r.start <= at && at < r.end; });
  });
}

// torch.add, torch.ops.aten.add, torch.ops.aten.add.Tensor
bool makes_numbers_tensors(std::string_view name) {
  constexpr std::string_view kOps = "torch.ops.aten.", kTorch = "torch.";
  if (name.starts_with(kOps)) {
    name.remove_prefix(kOps.size());
    if (name.ends_with(".Tensor")) name.remove_suffix(7);
  } else if (name.starts_with(kTorch)) {
    name.remove_prefix(kTorch.size());
  }
  return (native_traits("torch", "", name) & native::OfNumbers) != 0;
}

bool is_plain_number(py::handle o) {
  return PyLong_Check(o.ptr()) || PyFloat_CheckExact(o.ptr()) || PyUnicode_Check(o.ptr());
}

PyObject* call_real_tensor(py::handle callable, const std::vector<py::object>& args,
                           const std::vector<std::pair<py::object, py::object>>& kwargs) {
  py::list given;
  for (const py::object& a : args) given.append(a);
  py::dict named;
  for (const auto& [key, value] : kwargs) named[key] = value;
  return callable(*given, **named).release().ptr();
}

// The name in torch of a function that is called as a whole, "torch.?" for one that cannot be found by a name; empty
// for all else. What a user's decorator made of a function of torch bears its name, but is not found there.
std::string torch_name(py::handle callable) {
  PyObject* p = callable.ptr();
  if (!may_be_of_torch(p)) return {};
  // What torch itself holds by a name lives as long as the process, and so do functions of modules written in C.
  static auto& names = *new std::unordered_map<PyObject*, std::string>();
  if (auto it = names.find(p); it != names.end()) return it->second;
  std::string name = qualified_name(callable);
  const bool of_torch = name.starts_with("torch.");
  if (!of_torch && PyFunction_Check(p)) {
    PyObject* home = PyDict_GetItemString(PyFunction_GetGlobals(p), "__name__");
    return is_leaf_module(view_of(home)) ? "torch.?" : "";
  }
  if (!of_torch) name.clear();
  PyObject* self = PyCFunction_Check(p) ? PyCFunction_GET_SELF(p) : nullptr;
  if (of_torch || (self != nullptr && PyModule_Check(self)))
    names.emplace(callable.inc_ref().ptr(), name);  // even if torch should let it go
  return name;
}

}  // namespace

py::object Tracer::tensor_attr(py::handle tensor, py::handle name) {
  const std::string n = text(name);
  if (n == "__class__") return type_of(tensor);
  if (n == "is_leaf") return is_leaf(tensor, name);
  const uint32_t traits = tensor_traits(n);
  if (traits & native::FixedAttribute) return steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));
  if (traits & native::ViewAttribute) {
    static const py::object& get = *new py::object(py::module_::import("builtins").attr("getattr"));
    return record(ir::NodeKind::CallFunction, "builtins.getattr", get,
                  {borrow(tensor.ptr()), borrow(name.ptr())}, {});
  }
  PyObject* found = _PyType_Lookup(Py_TYPE(tensor.ptr()), name.ptr());
  if (found != nullptr && (PyFunction_Check(found) || is_unbound_native(found)))
    return steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));
  if (found == nullptr) {
    // What the user has put there. `__dict__` is read through the descriptor, which makes one where there is none.
    if (Known* k = known(tensor); k->source.valid() && k->original) {
      const py::object dict = k->original.attr("__dict__");
      const SourceId source = sources.attribute(k->source, names().dict_);
      if (py::object own = dict_get(existing_dict(dict, source), name)) return own;
    }
    PyErr_Format(PyExc_AttributeError, "'Tensor' object has no attribute '%U'", name.ptr());
    throw py::error_already_set();
  }
  throw Break(BreakId::tensor_attribute, cat("Tensor.", n));
}

// The recording takes every input for a leaf.
py::object Tracer::is_leaf(py::handle tensor, py::handle name) {
  Known* k = known(tensor);
  const bool here = THPVariable_Unpack(tensor.ptr()).is_leaf();
  if (!here || !k->source.valid() || !k->original) return py::bool_(here);
  return wrap(k->original.attr(name), sources.attribute(k->source, name));
}

// An answer of torch's about itself, which becomes a constant; what keeps it true is guarded.
py::object Tracer::ask_torch(Folded guarded_by, const std::string& name, py::handle callable,
                             const Arguments& args, const Keywords& kwargs) {
  py::object answer = call_real(callable, args, kwargs);
  Arguments given = args;
  for (const auto& [key, value] : kwargs) given.push_back(value);
  const bool of_cpu = !given.empty() && PyUnicode_Check(given[0].ptr()) && text(given[0]) == "cpu";
  if (guarded_by == Folded::OfDevice && !of_cpu) guarded_by = Folded::Asked;
  if (guarded_by != Folded::Asked) return answer;
  if (kwargs.size() > 1 || !is_constant(answer.ptr()) ||
      !std::ranges::all_of(given, [](const py::object& a) { return is_constant(a.ptr()); }))
    throw Break(BreakId::torch_call, name);
  guard(GuardKind::Equals, sources.answer(sources.pinned(callable, name), py::cast(given)), answer);
  return answer;
}

// A function of torch written in Python that is given an object or a function: it may run code of the user's.
bool Tracer::reads_objects(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  auto object = [this](const py::object& o) {
    const bool container = PyList_Check(o.ptr()) || PyDict_Check(o.ptr());
    return PyFunction_Check(o.ptr()) || PyMethod_Check(o.ptr()) || (exists(o) && !container);
  };
  return PyFunction_Check(callable.ptr()) &&
         (std::any_of(args.begin(), args.end(), object) ||
          std::any_of(kwargs.begin(), kwargs.end(),
                      [&](auto& item) { return object(item.second); }));
}

std::optional<py::object> Tracer::call_torch(py::handle callable, Arguments& args,
                                             Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (PyCFunction_Check(p) || Py_TYPE(p) == &_PyMethodWrapper_Type) {
    py::object self = PyCFunction_Check(p) ? borrow(PyCFunction_GET_SELF(p))
                                           : steal(PyObject_GetAttr(p, names().self_));
    if (self && is_tensor(self))
      return call_method(self, text(callable.attr("__name__")), args, kwargs);
  }
  if (PyFunction_Check(p) && !args.empty() && is_tensor(args[0]) &&
      module_name(p) == "torch._tensor") {
    py::object self = args[0];
    return call_method(self, text(callable.attr("__name__")), {args.begin() + 1, args.end()},
                       kwargs);
  }
  const std::string name = torch_name(callable);
  if (name.empty() || reads_objects(callable, args, kwargs)) return std::nullopt;
  // A check or a choice that the graph has no part in.
  if (PyFunction_Check(p) && !any_argument(args, kwargs, mentions_tensor)) return std::nullopt;
  if (name == "torch._C._log_api_usage_once") return py::none();
  if (auto done = set_mode(name, callable, args, kwargs)) return *done;
  for (const char* prefix : {"torch.set_", "torch.clear_", "torch.init_", "torch.import_"})
    if (name.starts_with(prefix)) throw Break(BreakId::torch_call, name);  // changes torch's state
  if (auto it = folded_functions().find(name); it != folded_functions().end())
    return ask_torch(it->second, name, callable, args, kwargs);
  // Under a mode of the user's nothing is captured, and the recorder's own is not to be seen.
  if (name == "torch._C._len_torch_dispatch_stack") return py::int_(0);
  if (makes_numbers_tensors(name) && std::all_of(args.begin(), args.end(), is_plain_number)) {
    const py::object real =
        py::reinterpret_steal<py::object>(call_real_tensor(callable, args, kwargs));
    static const py::object& make = *new py::object(py::module_::import("torch").attr("tensor"));
    const py::object value = real.attr("item")();
    py::object made = record(ir::NodeKind::CallFunction, "torch.tensor", make, {value},
                             {{py::str("dtype"), real.attr("dtype")}});
    set_known_number(made, {value, py::list()});
    return made;
  }
  if (auto classes = one_hot(name, args, kwargs)) return *classes;
  if (!name.starts_with("torch._C._") || name.starts_with("torch._C._nn") ||
      name.starts_with("torch._C._fft") || name.starts_with("torch._C._linalg") ||
      name.starts_with("torch._C._special"))
    return record_with_numbers(ir::NodeKind::CallFunction, name == "torch.?" ? "" : name, callable,
                               args, kwargs);
  throw Break(BreakId::torch_call, name);
}

// one_hot with a number of classes, as the scatter that it is: ATen's looks at the values first, and a scatter raises for
// the same ones.
std::optional<py::object> Tracer::one_hot(const std::string& name, const Arguments& args,
                                          const Keywords& kwargs) {
  if (name != "torch._C._nn.one_hot" && name != "torch.nn.functional.one_hot") return std::nullopt;
  py::object classes = args.size() == 2 ? args[1] : py::object();
  for (const auto& [key, value] : kwargs)
    if (text(key) == "num_classes") classes = value;
  if (args.empty() || args.size() + kwargs.size() != 2 || !classes || !is_tensor(args[0]) ||
      !PyLong_CheckExact(classes.ptr()))
    return std::nullopt;
  const at::Tensor& t = THPVariable_Unpack(args[0].ptr());
  if (t.scalar_type() != at::kLong || t.numel() == 0 || PyLong_AsLong(classes.ptr()) <= 0)
    return std::nullopt;
  py::list sizes;
  for (const int64_t size : t.sizes()) sizes.append(size);
  sizes.append(classes);
  const py::object zeros = call_method(args[0], "new_zeros", {sizes}, {});
  const py::object places = call_method(args[0], "unsqueeze", {py::int_(-1)}, {});
  return call_method(zeros, "scatter", {py::int_(-1), places, py::int_(1)}, {});
}

// In the recording a tensor that is written has memory of its own, from the start of which it lies.
py::object Tracer::storage_offset(py::handle tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (!t.is_inference() && t._version() == 0) return py::int_(t.storage_offset());
  if (Known* k = known(tensor); k->source.valid() && k->original) {
    const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
    if (real.sizes() == t.sizes() && real.strides() == t.strides())
      return py::int_(real.storage_offset());
  }
  throw Break(BreakId::tensor_attribute, "Tensor.storage_offset of what may be written");
}

py::object Tracer::call_method(py::handle tensor, const std::string& name, const Arguments& args,
                               const Keywords& kwargs) {
  const uint32_t traits = tensor_traits(name);
  if (traits & native::ReadsValue)
    if (const py::object value = args.empty() ? use_number(tensor) : py::object())
      return name == "__bool__"    ? py::object(py::bool_(value))
             : name == "__int__"   ? py::object(py::int_(value))
             : name == "__float__" ? py::object(py::float_(value))
                                   : value;
  if (traits & native::ReadsValue) throw Break(BreakId::data_dependent, cat("Tensor.", name));
  if (name == "numpy") return array_over(tensor, args, kwargs);
  if (traits & native::NotInGraph) throw Break(BreakId::torch_call, cat("Tensor.", name));
  if (name == "storage_offset" && args.empty()) return storage_offset(tensor);
  if (traits & native::FixedMethod) return call_real(tensor.attr(name.c_str()), args, kwargs);
  Arguments all = args;
  all.insert(all.begin(), borrow(tensor.ptr()));
  return record_with_numbers(ir::NodeKind::CallMethod, name, {}, all, kwargs);
}

py::object Tracer::record(ir::NodeKind kind, const std::string& target, py::handle callable,
                          const Arguments& args, const Keywords& kwargs) {
  // Eager has short cuts for some exponents, which are no tensors.
  const std::string_view word = std::string_view(target).substr(target.rfind('.') + 1);
  if (word == "pow" && args.size() == 2 && unread_.contains(args[1].ptr())) {
    static const py::object& power =
        *new py::object(py::module_::import("oxyfuel._C").attr("power"));
    return record(ir::NodeKind::CallFunction, "oxyfuel._C.power", power, args, kwargs);
  }
  if (any_argument(args, kwargs, mentions_array)) {
    const Arguments numbers = with_numbers(args);
    if (any_argument(numbers, kwargs, mentions_array))
      throw Break(BreakId::numpy, cat(target, " of an array"));
    return record(kind, target, callable, numbers, kwargs);
  }
  auto value = [this](py::handle o) -> std::optional<ir::ValueId> {
    Known* k = known(o);
    return k ? k->value : std::nullopt;
  };
  bring_graph_to(TorchModes());
  auto given = [&](const py::object& a) {
    if (unread_.contains(a.ptr())) return lift(number_input(a, met_dtype(args).value()));
    if (lazy(a)) throw Break(BreakId::torch_call, cat(target, " of an iterator"));
    const py::object inside = deep_contents(a);
    return inner_ ? lifted(inside) : inside;
  };
  std::vector<ir::Arg> ir_args;
  Arguments seen;
  for (const auto& a : args) {
    seen.push_back(given(a));
    ir_args.push_back(arg_from_python(ir_now(), seen.back(), value));
  }
  std::string name = target;
  if (kind == ir::NodeKind::CallFunction && name.empty())
    name = cat("@obj", ir_now().add_object(borrow(callable.ptr())));
  ir::Node& node = ir_now().graph.add_call(kind, name, std::move(ir_args), {ir::Type::opaque()});
  py::dict named;
  for (const auto& [key, a] : kwargs) {
    py::object seen_value = given(a);
    node.kwargs.emplace_back(text(key), arg_from_python(ir_now(), seen_value, value));
    named[key] = seen_value;
  }
  const StackIds stack = stack_ids(user_stack());
  node.stack = stack.torch;
  if (kind == ir::NodeKind::CallFunction) ir_now().bound_of(node.id) = borrow(callable.ptr());
  const ir::NodeId id = node.id;
  recorder_now().set_position(stack.aten, id);
  recorder_now().expect_write(name, named.contains("out"));
  if (name.starts_with("torch.ops.") && !name.starts_with("torch.ops.aten.")) {
    const size_t dot = name.find('.', 10);
    if (dot != std::string::npos)
      recorder_now().expect_op(cat(name.substr(10, dot - 10),
                                   "::", name.substr(dot + 1, name.find('.', dot + 1) - dot - 1)));
  }
  py::tuple positional(seen.size());
  for (size_t i = 0; i < seen.size(); i++) positional[i] = seen[i];
  py::object function = borrow(callable.ptr());
  if (kind == ir::NodeKind::CallMethod) {
    function = steal(PyObject_GetAttrString(seen[0].ptr(), target.c_str()));
    positional = py::tuple(positional[py::slice(1, static_cast<ssize_t>(seen.size()), 1)]);
  }
  recorder_now().enter();
  py::object result;
  {
    const RefusedFrames allowed(false);
    result = py::reinterpret_steal<py::object>(
        PyObject_Call(function.ptr(), positional.ptr(), kwargs.empty() ? nullptr : named.ptr()));
  }
  std::optional<py::error_already_set> error;
  if (result)
    lay_out_as_eager(name, result);
  else
    error.emplace();
  recorder_now().leave();
  if (error) {
    recorded_all_ = false;
    ir_now().graph.kill(id);
    if (const auto failure = recorder_now().failure()) {
      const bool data = failure->find("depends on data") != std::string::npos;
      const bool value = failure->find("_local_scalar_dense") != std::string::npos;
      Break b(!data   ? BreakId::torch_call
              : value ? BreakId::data_dependent
                      : BreakId::data_dependent_size,
              *failure);
      b.of_sizes = data && (!value || target != "operator.getitem");
      throw b;
    }
    const char* limit = bridge::torch_limit(error->what());
    if (limit || error->matches(PyExc_NotImplementedError))
      throw Break(BreakId::torch_call, limit ? limit : error->what());
    if (!error->matches(PyExc_TypeError) && may_handle(frames_))
      throw Break(BreakId::torch_call, cat(target, " raises, and captured code may look at it"));
    throw *error;
  }
  note_results(result, ir_now().graph.node(id).outputs[0]);
  return result;
}

// The stack's numbers in the graphs.
Tracer::StackIds Tracer::stack_ids(const UserStack& stack) {
  if (stack.empty()) return {};
  auto it = stack_ids_.find(stack.id());
  if (it != stack_ids_.end()) return it->second;
  const StackIds caller = stack_ids(stack.caller());
  ir::Frame frame = stack.innermost();
  StackIds ids{stack, ir_now().graph.add_frame(caller.torch, frame), {}};
  ids.aten = recorder_now().add_frame(caller.aten, std::move(frame));
  return stack_ids_.emplace(stack.id(), ids).first->second;
}

// Every tensor that comes back must be the recording's own.
void Tracer::note_results(py::handle result, ir::ValueId value) {
  PyObject* p = result.ptr();
  held_.push_back(borrow(p));
  if (is_tensor_object(p)) {
    const at::Tensor& t = THPVariable_Unpack(p);
    if (!recorder_now().owns(t))
      throw Break(BreakId::torch_call, "it returns a tensor that the recording did not make");
    recorder_now().seal(t);
    ir_now().graph.value(value).type = ir::Type::of(bridge::type_of(t));
    Known& k = known_[p];
    if (!k.value) k.value = value, k.graph = inner_ ? inner_->number : 0;
  } else if (PyTuple_Check(p) || PyList_Check(p)) {
    static const py::object& getitem =
        *new py::object(py::module_::import("operator").attr("getitem"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++) {
      ir::Node& item =
          ir_now().graph.add_call(ir::NodeKind::CallFunction, "operator.getitem",
                                  {value, static_cast<int64_t>(i)}, {ir::Type::opaque()});
      item.stack = ir_now().graph.def(value).stack;
      ir_now().bound_of(item.id) = getitem;
      note_results(PySequence_Fast_GET_ITEM(p, i), item.outputs[0]);
    }
  } else if (p != Py_None) {
    throw Break(BreakId::torch_call, cat("it returns a ", Py_TYPE(p)->tp_name));
  }
}

py::object Tracer::operate(py::handle function, const Arguments& args) {
  const std::string name = text(function.attr("__name__"));
  // As torch.Tensor.__rmul__ and __rtruediv__ compute it.
  if (name == "mul" && unread_.contains(args[0].ptr()) && is_tensor(args[1]))
    return operate(function, {args[1], args[0]});
  if (name == "truediv" && unread_.contains(args[0].ptr())) {
    static const py::object& multiply =
        *new py::object(py::module_::import("operator").attr("mul"));
    return operate(multiply, {call_method(args[1], "reciprocal", {}, {}), args[0]});
  }
  for (const auto& a : args) {
    if (THPVariable_Check(a.ptr())) {
      return record_with_numbers(ir::NodeKind::CallFunction, cat("operator.", name), function, args,
                                 {});
    }
  }
  if (auto done = ask_operands(name, args)) return *done;
  const bool comparison =
      name == "eq" || name == "ne" || name == "lt" || name == "le" || name == "gt" || name == "ge";
  // The result has the items themselves.
  const bool joins = name == "add" || name == "iadd" || name == "mul" || name == "imul" ||
                     name == "or_" || name == "ior" || name == "concat" || name == "iconcat";
  Arguments plain;
  for (const auto& a : args) {
    // The copy of a defaultdict is a dict.
    if (name == "or_" && exists(a) && PyDict_Check(a.ptr()) && !PyODict_Check(a.ptr()) &&
        Py_TYPE(a.ptr())->tp_as_number->nb_or != PyDict_Type.tp_as_number->nb_or)
      throw Break(BreakId::builtin_on_existing, cat("| of a ", Py_TYPE(a.ptr())->tp_name));
    const bool container = PyList_Check(a.ptr()) || PyDict_Check(a.ptr());
    const bool as_they_are = joins && (container || PyTuple_Check(a.ptr()));
    const bool shallow = as_they_are || PyAnySet_Check(a.ptr()) || is_deque(a);
    plain.push_back(shallow ? contents(a) : deep_contents(a));
    if (exists(a) && !container && !PyAnySet_Check(a.ptr()) && !is_deque(a) &&
        Py_TYPE(a.ptr())->tp_richcompare != PyBaseObject_Type.tp_richcompare)
      throw Break(BreakId::builtin_on_existing, cat("operator.", name));
    if (comparison && mentions_tensor(a))
      throw Break(BreakId::data_dependent, "a comparison of containers of tensors");
  }
  if (comparison) guard_apart(plain[0], plain[1]);
  try {
    return call_real(function, plain, {});
  } catch (py::error_already_set&) {  // its text may name the classes
    for (size_t i = 0; i < args.size(); i++)
      if (Py_TYPE(args[i].ptr()) != Py_TYPE(plain[i].ptr()))
        throw Break(BreakId::builtin_on_existing, cat("operator.", name, " raises"));
    throw;
  }
}

}  // namespace oxy::python
