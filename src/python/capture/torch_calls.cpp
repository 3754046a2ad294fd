// Calls of torch: what becomes a node (recording.cpp), what is constant, what no graph can have.
#include <c10/core/InferenceMode.h>

#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/types.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

// Functions that are called as a whole, although they are written in Python.
bool is_leaf_module(std::string_view module) {
  return module == "torch.nn.functional" || module == "torch.functional" ||
         module == "torch._tensor";
}

std::string_view module_name(PyObject* function) {
  return view_of(as_function(function)->func_module);
}

// A method of an object that is no module: no function of torch.
bool is_method_of_object(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  return self != nullptr && !is_changeable_class(Py_TYPE(self)) && !PyModule_Check(self) &&
         !PyType_Check(self) && !PyCapsule_CheckExact(self);
}

// Whether there is anything to look for: quick, since it is asked of every callee.
bool may_be_of_torch(PyObject* p) {
  if (PyFunction_Check(p)) return is_leaf_module(module_name(p)) && !is_put_by_user(p);
  if (PyCFunction_Check(p)) return !is_method_of_object(p);
  const std::string_view type = Py_TYPE(p)->tp_name;
  return type == "OpOverload" || type == "OpOverloadPacket";
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

// A function in Python that hands its numbers on: interpreted where one of them varies.
bool follows_numbers(std::string_view name, py::handle callable) {
  return PyFunction_Check(callable.ptr()) && name.starts_with("torch.nn.functional.");
}
bool follows_sizes(std::string_view name) {
  static constexpr std::string_view kFunctions[] = {
      "torch.nn.functional.lp_pool1d", "torch.nn.functional.lp_pool2d",
      "torch.nn.functional.lp_pool3d", "torch.nn.functional.local_response_norm",
      "torch.nn.functional.group_norm"};
  return std::ranges::find(kFunctions, name) != std::end(kFunctions);
}
// One that computes with the sizes of its tensors.
bool follows_tensors(std::string_view name, const Arguments& args, const Keywords& kwargs) {
  if (name != "torch.nn.functional.cross_entropy") return false;
  auto is_rate = [](const auto& item) {
    return text(item.first) == "label_smoothing" && PyFloat_Check(item.second.ptr()) &&
           PyFloat_AS_DOUBLE(item.second.ptr()) != 0;
  };
  constexpr size_t kPositional = 7;
  return args.size() > kPositional || std::ranges::any_of(kwargs, is_rate);
}
// One that raises by what its tensors hold.
bool follows_checks(std::string_view name) {
  return name == "torch.nn.functional.gaussian_nll_loss";
}
bool is_of_symbols(py::handle o) {
  return is_tensor_object(o.ptr()) && bridge::is_symbolic(THPVariable_Unpack(o.ptr()));
}

// What torch.Tensor answers for the classes that derive from it.
bool is_for_derived(PyObject* p) {
  return PyFunction_Check(p) && module_name(p) == "torch._tensor" &&
         has_word("__torch_function__ _convert", view_of(as_function(p)->func_name));
}

// What code written in C asks of a class.
constexpr const char* kAnswers[] = {"__torch_function__", "__index__",    "__int__", "__float__",
                                    "__complex__",        "__bool__",     "__len__", "__getitem__",
                                    "__iter__",           "__contains__", "__eq__",  "__hash__"};

// A function in Python, or anything of a class in Python; what enum members have reads their
// values.
bool is_of_user(PyObject* found) {
  if (PyFunction_Check(found)) return !is_text(as_function(found)->func_module, "enum");
  return found != Py_None && Py_TYPE(found) != &PyWrapperDescr_Type && !is_unbound_native(found) &&
         !PyCFunction_Check(found);
}

bool is_plain_number(py::handle o) {
  return PyLong_Check(o.ptr()) || PyFloat_CheckExact(o.ptr()) || PyUnicode_Check(o.ptr());
}

}  // namespace

// What a user's decorator made of a function of torch bears its name, but is not found there.
std::string torch_name(py::handle callable) {
  PyObject* p = callable.ptr();
  if (!may_be_of_torch(p)) return {};
  // What torch holds by a name lives as long as the process; so do functions of modules in C.
  static auto& names = *new std::unordered_map<PyObject*, std::string>();
  if (auto it = names.find(p); it != names.end()) return it->second;
  std::string name = qualified_name(callable);
  const bool of_torch = name.starts_with("torch.");
  if (!of_torch && PyFunction_Check(p))
    return is_leaf_module(written_in(as_function(p))) ? "torch.?" : "";
  if (!of_torch) name.clear();
  PyObject* self = PyCFunction_Check(p) ? PyCFunction_GET_SELF(p) : nullptr;
  if (of_torch || (self != nullptr && PyModule_Check(self)))
    names.emplace(callable.inc_ref().ptr(), name);  // even if torch should let it go
  return name;
}

py::object Calls::tensor_attr(py::handle tensor, py::handle name) {
  const AskedFunctions none(false, wrappers().follows());
  const std::string n = text(name);
  const py::object type = objects().type_of(tensor);
  if (n == "__class__") return type;
  PyObject* found = _PyType_Lookup(as_type(type), name.ptr());
  if (found != nullptr && Py_TYPE(found)->tp_descr_set == nullptr && is_hidden(tensor, name))
    return effects().dict_get(attributes_of_input(tensor), name);
  if (found != nullptr && is_put_by_user(found))
    return PyFunction_Check(found) ? steal(PyMethod_New(found, tensor.ptr()))
                                   : calls().call(py::handle(found).attr("fget"), {borrow(tensor)});
  if (n == "is_leaf") return is_leaf(tensor, name);
  if (n == "requires_grad")
    if (const Tracked* k = heap().tracked(tensor); Inference::is_input(k))
      return heap().wrap(k->original.attr(name), heap().sources.attribute(k->source, name));
  if (n == "grad") return gradient(tensor, name);
  if (n == "data") {
    if (THPVariable_Unpack(tensor.ptr()).key_set().has(c10::DispatchKey::FuncTorchBatched))
      return steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));  // raises
    py::object out = call_method(tensor, "detach", {}, {});
    if (graphs().inner() == nullptr)
      graphs().recorder().set_unseen(innermost(THPVariable_Unpack(out.ptr())));
    return out;
  }
  if (n == "grad_fn" && THPVariable_Unpack(tensor.ptr()).is_leaf() && is_leaf(tensor, name))
    return py::none();
  const uint32_t traits = tensor_traits(n);
  if (traits & native::FixedAttribute) {
    const py::object found = steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));
    return sizes().symbolic() ? from_torch(found) : found;
  }
  if (traits & native::ViewAttribute) {
    return numbers().record_with_numbers(ir::NodeKind::CallFunction, "builtins.getattr",
                                         member_of<"builtins", "getattr">(),
                                         {borrow(tensor), borrow(name)}, {});
  }
  if (found != nullptr && Py_TYPE(found) == &PyStaticMethod_Type)
    return py::handle(found).attr("__func__");
  if (found != nullptr && Py_TYPE(found) == &PyClassMethod_Type && wrappers().is_followed(tensor))
    return steal(PyMethod_New(py::object(py::handle(found).attr("__func__")).ptr(), type.ptr()));
  // A parameter's own is no method of the fake's class.
  if (found != nullptr && PyFunction_Check(found) &&
      found != _PyType_Lookup(Py_TYPE(tensor.ptr()), name.ptr()))
    return steal(PyMethod_New(found, tensor.ptr()));
  if (found != nullptr && (PyFunction_Check(found) || is_unbound_native(found)))
    return steal(PyObject_GetAttr(tensor.ptr(), name.ptr()));
  if (found == nullptr || Py_TYPE(found)->tp_descr_get == nullptr) {
    if (py::object dict = attributes_of_input(tensor)) {
      if (py::object own = effects().dict_get(dict, name)) return own;
    } else if (py::object own = effects().written(tensor, name); own) {
      return own;
    }
    if (found != nullptr) return heap().wrap(found, classes().member_source(type, name));
    PyErr_Format(PyExc_AttributeError, "'Tensor' object has no attribute '%U'", name.ptr());
    throw py::error_already_set();
  }
  throw Break(BreakId::tensor_attribute, "Tensor.", n);
}

// Whether the user has put something there that stands in front of a method. That there is nothing
// is not guarded.
bool Calls::is_hidden(py::handle tensor, py::handle name) {
  const Tracked* k = heap().tracked(tensor);
  if (!k->source.valid() || !k->original) return false;
  PyObject** dict = _PyObject_GetDictPtr(k->original.ptr());  // makes none
  return dict != nullptr && *dict != nullptr && PyDict_Contains(*dict, name.ptr()) == 1;
}

// What the user has put there. The descriptor of `__dict__` makes one where there is none. Null for
// what the code has made.
py::object Calls::attributes_of_input(py::handle tensor) {
  const Tracked* k = heap().tracked(tensor);
  if (!k->source.valid() || !k->original) return {};
  const py::object dict = k->original.attr("__dict__");
  return objects().existing_dict(dict, heap().sources.attribute(k->source, names().dict_));
}

// `value` is null where the attribute is deleted.
void Calls::set_tensor_attr(py::handle tensor, py::handle name, py::handle value) {
  PyTypeObject* type = as_type(objects().type_of(tensor));
  const auto is_users = [&](PyObject* method) {
    PyObject* found = _PyType_Lookup(type, method);
    return found != nullptr && is_put_by_user(found);
  };
  static const py::str& deleter = *new py::str("__delattr__");
  if (_PyType_Lookup(type, name.ptr()) != nullptr || is_users(names().setattr_) ||
      is_users(deleter.ptr()) || graphs().inner() != nullptr)
    throw Break(BreakId::tensor_attribute, "assignment to ", text(name));
  try {
    if (!value) tensor_attr(tensor, name);  // raises where there is none
  } catch (py::error_already_set& e) {
    if (!kDeletionsTellNames || !e.matches(PyExc_AttributeError)) throw;
    raise_with(PyExc_AttributeError, name);
  }
  if (py::object dict = attributes_of_input(tensor))
    return value ? effects().dict_write(dict, name, value) : effects().dict_delete(dict, name);
  if (heap().tracked(tensor)->source.valid())
    throw Break(BreakId::tensor_attribute, "assignment to ", text(name));
  if (value) return effects().write_attribute(tensor, name, value);
  effects().writes_of(tensor).items.attr("pop")(name);
}

// An input's fake is a leaf where the input is one, until a write makes it the result of an op.
py::object Calls::is_leaf(py::handle tensor, py::handle name) {
  Tracked* k = heap().tracked(tensor);
  const bool here = THPVariable_Unpack(tensor.ptr()).is_leaf();
  if (!k->source.valid() || !k->original || here != THPVariable_Unpack(k->original.ptr()).is_leaf())
    return py::bool_(here);
  return heap().wrap(k->original.attr(name), heap().sources.attribute(k->source, name));
}

// What a tensor of before the call has as its gradient, or what the captured code has put there.
py::object Calls::gradient(py::handle tensor, py::handle name) {
  Tracked* k = heap().tracked(tensor);
  if (!k->source.valid() || !k->original) {
    if (const py::object* found = graphs().gradient_kept(tensor)) return *found;
    if (THPVariable_Unpack(tensor.ptr()).requires_grad())
      throw Break(BreakId::tensor_attribute, "Tensor.grad of what the code has made");
    return py::none();
  }
  if (py::object now = effects().written(tensor, name)) return now;
  const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
  if (real.requires_grad() && !real.is_leaf())  // eager warns
    throw Break(BreakId::tensor_attribute, "Tensor.grad of what is no leaf");
  return heap().wrap(k->original.attr(name), heap().sources.attribute(k->source, name));
}

// `value` is None or a tensor; null where the attribute is deleted.
void Calls::set_gradient(py::handle tensor, py::handle value) {
  static const py::str& name = *new py::str("grad");
  Tracked* k = heap().tracked(tensor);
  auto fits = [&](const at::Tensor& gradient) {
    const at::Tensor& of = THPVariable_Unpack(tensor.ptr());
    return gradient.sym_sizes() == of.sym_sizes() && gradient.dtype() == of.dtype() &&
           !tensor.is(value);
  };
  const bool known = value && (value.is_none() ||
                               (heap().is_tensor(value) && fits(THPVariable_Unpack(value.ptr()))));
  if (py::object* made = known ? graphs().gradient_kept(tensor) : nullptr) {
    *made = borrow(value);
    return;
  }
  if (!known || !k->source.valid() || !k->original ||
      !THPVariable_Unpack(k->original.ptr()).is_leaf())
    throw Break(BreakId::tensor_attribute, "assignment to grad");
  effects().write_attribute(tensor, name, value);
}

// An answer of torch's about itself, which becomes a constant; what keeps it true is guarded.
py::object Calls::ask_torch(Folded guarded_by, const std::string& name, py::handle callable,
                            const Arguments& args, const Keywords& kwargs) {
  const auto is_elsewhere = [this](const py::object& a) {
    return is_tensor_object(a.ptr()) && !heap().is_tensor(a);
  };
  if (std::ranges::any_of(args, is_elsewhere) ||
      std::ranges::any_of(kwargs, is_elsewhere, &Keywords::value_type::second))
    throw Break(BreakId::torch_call, name, " of a tensor that no graph has");
  Arguments given = arrays().with_numbers(name, args, false);
  py::object answer = call_real(callable, given, kwargs);
  for (const auto& [key, value] : kwargs) given.push_back(value);
  const bool of_cpu = !given.empty() && PyUnicode_Check(given[0].ptr()) && text(given[0]) == "cpu";
  if (guarded_by == Folded::OfDevice && !of_cpu) guarded_by = Folded::Asked;
  if (guarded_by != Folded::Asked) return answer;
  if (kwargs.size() > 1 || !is_constant(answer.ptr()) ||
      !std::ranges::all_of(given, [](const py::object& a) { return is_constant(a.ptr()); }))
    throw Break(BreakId::torch_call, name);
  heap().guard(GuardKind::Equals,
               heap().sources.answer(heap().sources.pinned(callable, name), tuple_of(given)),
               answer);
  return answer;
}

// A function of torch in Python that is given an object or a function may run code of the user's.
bool Calls::reads_objects(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  auto object = [this](const py::object& o) {
    const bool container = PyList_Check(o.ptr()) || PyDict_Check(o.ptr());
    return PyFunction_Check(o.ptr()) || PyMethod_Check(o.ptr()) || (heap().exists(o) && !container);
  };
  return PyFunction_Check(callable.ptr()) &&
         (std::ranges::any_of(args, object) ||
          std::ranges::any_of(kwargs, [&](auto& item) { return object(item.second); }));
}

// Whether code written in C would ask a user's methods of it.
bool Calls::answers_itself(py::handle o) {
  return is_of_python_class(o.ptr()) && std::ranges::any_of(kAnswers, [&](const char* name) {
           PyObject* found = objects().type_member(Py_TYPE(o.ptr()), py::str(name));
           return found != nullptr && is_of_user(found);
         });
}

// What is called as a whole runs what classes written in Python have (__index__, __len__,
// __torch_function__), and reads what objects of C hold: nothing guards either.
void Calls::refuse_objects(const Arguments& args, const Keywords& kwargs,
                           const std::string& target) {
  for (const py::object& a : args) refuse_object(a, target, 0);
  for (const auto& [key, a] : kwargs) refuse_object(a, target, 0);
}

void Calls::refuse_object(py::handle o, const std::string& target, int depth) {
  constexpr int kMaxNesting = 20;
  PyObject* p = o.ptr();
  if (is_constant(p) || is_tensor_object(p) || is_symbolic(o) || is_array(o) ||
      numbers().is_graph_float(o))
    return;
  const auto refuse = [&] {
    throw Break(BreakId::builtin_on_existing, target, " with a ", Py_TYPE(p)->tp_name);
  };
  if (depth > kMaxNesting) refuse();
  const bool container = PyTuple_Check(p) || PyList_Check(p) || PyDict_Check(p);
  if (is_of_python_class(p) && !container && !is_derived_value(p)) refuse();
  if (answers_itself(o)) refuse();
  if (PySlice_Check(p)) {
    auto* s = reinterpret_cast<PySliceObject*>(p);
    for (PyObject* part : {s->start, s->stop, s->step}) refuse_object(part, target, depth + 1);
  } else if (container) {
    const py::object inside = heap().contents(o);
    const py::list items =
        PyDict_Check(p) ? py::list(steal(PyDict_Values(inside.ptr()))) : plain_list(inside);
    for (py::handle item : items) refuse_object(item, target, depth + 1);
  } else if (heap().exists(o) && !PySet_Check(p) && !is_derived_value(p) &&
             (PyObject_CheckBuffer(p) || PyNumber_Check(p) || PySequence_Check(p))) {
    refuse();
  }
}

// The objects that a function of torch in C asks for its result, a tensor's place taken by each or
// by the items of a list: of each class the first, a derived class in front of its bases.
static Arguments asked_objects(Objects& objects, Heap& heap, const Arguments& args,
                               const Keywords& kwargs) {
  Arguments out;
  auto add = [&](const py::object& o) {
    if (!objects.has_torch_function(o)) return;
    const py::object type = objects.type_of(o);
    if (std::ranges::any_of(out, [&](const py::object& a) { return objects.type_of(a).is(type); }))
      return;
    auto derives = [&](const py::object& a) {
      return PyType_IsSubtype(as_type(type), as_type(objects.type_of(a)));
    };
    out.insert(std::ranges::find_if(out, derives), o);
  };
  auto add_all = [&](const py::object& o) {
    add(o);
    if (PyList_CheckExact(o.ptr()) || PyTuple_CheckExact(o.ptr()))
      for (py::handle item : heap.contents(o)) add(borrow(item));
  };
  for (const py::object& a : args) add_all(a);
  for (const auto& [name, a] : kwargs) add_all(a);
  return out;
}

Done Calls::ask_objects(py::handle function, const Arguments& args, const Keywords& kwargs) {
  const Arguments asked = asked_objects(objects(), heap(), args, kwargs);
  if (asked.empty()) return std::nullopt;
  py::tuple types(asked.size());
  for (size_t i = 0; i < types.size(); i++) types[i] = objects().type_of(asked[i]);
  for (const py::object& o : asked) {
    Arguments all{borrow(function), types, tuple_of(args)};
    if (!kwargs.empty()) all.push_back(dict_of(kwargs));
    const py::object asks = is_tensor_object(o.ptr()) ? objects().type_of(o) : o;
    const py::object method = objects().load_attr(asks, py::str("__torch_function__"));
    const py::object result = call(method, std::move(all));
    if (result.ptr() != Py_NotImplemented) return result;
  }
  return std::nullopt;
}

std::optional<py::object> Calls::call_torch(py::handle callable, Arguments& args,
                                            Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (auto done = wrappers().call(callable, args, kwargs)) return *done;
  if (PyCFunction_Check(p) || is_method_wrapper(p)) {
    py::object self = PyCFunction_Check(p) ? borrow(PyCFunction_GET_SELF(p))
                                           : steal(PyObject_GetAttr(p, names().self_));
    if (self && heap().is_tensor(self))
      return call_method(self, text(callable.attr("__name__")), args, kwargs);
  }
  const bool asked = PyFunction_Check(p) && wrappers().any(args, kwargs);
  if (PyFunction_Check(p) && !asked && !args.empty() && heap().is_tensor(args[0]) &&
      module_name(p) == "torch._tensor" && !is_put_by_user(p)) {
    py::object self = args[0];
    const std::string method = text(callable.attr("__name__"));
    if (!py::hasattr(member_of<"torch", "Tensor">(), method.c_str())) return std::nullopt;
    if (objects().user_method(self, method) != nullptr) return std::nullopt;
    return call_method(self, method, {args.begin() + 1, args.end()}, kwargs);
  }
  const std::string name = torch_name(callable);
  if (name.empty() || reads_objects(callable, args, kwargs)) return std::nullopt;
  if (PyFunction_Check(p) && is_torch_patched()) return std::nullopt;
  if (asked || is_for_derived(p)) return std::nullopt;
  // A check or a choice that the graph has no part in.
  if (PyFunction_Check(p) && !any_argument(args, kwargs, mentions_tensor)) return std::nullopt;
  if (name == "torch._C._log_api_usage_once") return py::none();
  if (name == "torch.detach_" && args.size() == 1 && kwargs.empty() && heap().is_tensor(args[0]))
    return call_method(args[0], "detach_", {}, {});
  if (name == "torch.nn.functional.dropout" || name == "torch.dropout") drop_rate(args, kwargs);
  if (auto done = numbers().call_in_python(name, args, kwargs)) return done;
  if (follows_numbers(name, callable) && any_argument(args, kwargs, is_symbolic_float))
    return std::nullopt;
  if (follows_checks(name)) return std::nullopt;
  if (follows_sizes(name) && any_argument(args, kwargs, mentions_symbolic_int)) return std::nullopt;
  if (follows_tensors(name, args, kwargs) && any_argument(args, kwargs, is_of_symbols))
    return std::nullopt;
  if (auto done = draws().call_torch(name, callable, args, kwargs)) return done;
  if (name == "torch._C._push_on_torch_function_stack") {
    // Of flex_attention's; in captured code `table[index]` by a tensor stays in the graph anyway.
    if (args.size() != 1 ||
        std::string_view(Py_TYPE(args[0].ptr())->tp_name) != "TransformGetItemToIndex")
      throw Break(BreakId::torch_call, "a TorchFunctionMode is entered");
    ++indexing_modes_;
    return py::none();
  }
  if (name == "torch._C._pop_torch_function_stack" && indexing_modes_ > 0) {
    --indexing_modes_;
    return py::none();
  }
  if (PyCFunction_Check(p))
    if (auto done = ask_objects(callable, args, kwargs)) return done;
  refuse_objects(args, kwargs, name);
  if (auto done = graphs().set_mode(name, callable, args, kwargs)) return done;
  for (const char* prefix : {"torch.set_", "torch.clear_", "torch.init_", "torch.import_"})
    if (name.starts_with(prefix)) throw Break(BreakId::torch_call, name);  // changes torch's state
  if (auto it = folded_functions().find(name); it != folded_functions().end())
    return ask_torch(it->second, name, callable, args, kwargs);
  // What Module.to has been given.
  if (name == "torch._C._nn._parse_to" && !any_argument(args, kwargs, mentions_tensor))
    return call_real(callable, args, kwargs);
  // Under a mode of the user's nothing is captured, and the recorder's own is not to be seen.
  if (name == "torch._C._len_torch_dispatch_stack") return py::int_(0);
  if (makes_numbers_tensors(name) && std::ranges::all_of(args, is_plain_number)) {
    const py::object real = callable(*tuple_of(args), **dict_of(kwargs));
    const py::object value = real.attr("item")();
    py::object made =
        graphs().record(ir::NodeKind::CallFunction, "torch.tensor", member_of<"torch", "tensor">(),
                        {value}, {{py::str("dtype"), real.attr("dtype")}});
    numbers().set_constant_number(made, {value, py::list()});
    return made;
  }
  if (auto made = tensor_of_numbers(name, callable, args, kwargs)) return made;
  if (auto classes = one_hot(name, args, kwargs)) return classes;
  if (auto answer = numbers().comparison_of_data(name, args, kwargs)) return answer;
  // With those that have a function in Python in front: torch._VF.
  static constexpr std::array kFunctionsInC = {"torch._C._nn", "torch._C._fft", "torch._C._linalg",
                                               "torch._C._special",
                                               "torch._C._VariableFunctionsClass"};
  if (!name.starts_with("torch._C._") ||
      std::ranges::any_of(kFunctionsInC, [&](auto home) { return name.starts_with(home); })) {
    if (PyFunction_Check(p)) objects().guard_code(callable);
    py::object result = numbers().record_with_numbers(
        ir::NodeKind::CallFunction, name == "torch.?" ? "" : name, callable, args, kwargs);
    if (!PyCFunction_Check(p) && !PyFunction_Check(p)) graphs().note_op(result);
    const bool changes_list = name.starts_with("torch._foreach_") && name.ends_with('_');
    return changes_list && !args.empty() ? args[0] : result;
  }
  throw Break(BreakId::torch_call, name);
}

// Of a dropout that does nothing only the range of its rate is a fact.
void Calls::drop_rate(Arguments& args, Keywords& kwargs) {
  auto argument = [&](size_t position, const char* name, const char* other) -> py::object* {
    if (position < args.size()) return &args[position];
    for (auto& [key, value] : kwargs)
      if (is_text(key.ptr(), name) || is_text(key.ptr(), other)) return &value;
    return nullptr;
  };
  py::object *rate = argument(1, "p", "p"), *training = argument(2, "training", "train");
  if (rate == nullptr || training == nullptr || !is_symbolic_float(*rate) ||
      training->ptr() != Py_False)
    return;
  auto holds = [&](double bound, int operation) {
    return objects().truth(numbers().compare(*rate, py::float_(bound), operation));
  };
  if (holds(0, Py_GE) && holds(1, Py_LE)) *rate = py::float_(0.0);
}

// one_hot as the scatter that it is: ATen's looks at the values first, and a scatter raises for the
// same ones. The number of classes that is not said is a number of data.
std::optional<py::object> Calls::one_hot(const std::string& name, const Arguments& args,
                                         const Keywords& kwargs) {
  if (name != "torch._C._nn.one_hot" && name != "torch.nn.functional.one_hot") return std::nullopt;
  py::object classes = args.size() == 2 ? args[1] : py::int_(-1);
  for (const auto& [key, value] : kwargs)
    if (text(key) == "num_classes") classes = value;
  if (args.empty() || args.size() + kwargs.size() > 2 || !heap().is_tensor(args[0]))
    return std::nullopt;
  const at::Tensor& t = THPVariable_Unpack(args[0].ptr());
  if (t.scalar_type() != at::kLong || t.sym_numel() == 0) return std::nullopt;
  if (PyLong_CheckExact(classes.ptr()) && PyLong_AsLong(classes.ptr()) == -1)
    classes = call_method(call_method(args[0], "max", {}, {}), "add", {py::int_(1)}, {});
  if (heap().is_tensor(classes)) classes = sizes().number_in(classes);
  if (!classes) return std::nullopt;
  const bool some = !is_symbolic_int(classes)
                        ? PyLong_CheckExact(classes.ptr()) && PyLong_AsLong(classes.ptr()) > 0
                    : has_hint(classes)
                        ? graphs().recorder().facts()->decide(sym::less(0, expr_of(classes)))
                        : sizes().assume(objects().compare(classes, py::int_(0), Py_GT));
  if (!some) return std::nullopt;
  py::list sizes;
  for (const c10::SymInt& size : t.sym_sizes()) sizes.append(from_torch(py::cast(size)));
  sizes.append(classes);
  const py::object zeros = call_method(args[0], "new_zeros", {sizes}, {});
  const py::object places = call_method(args[0], "unsqueeze", {py::int_(-1)}, {});
  return call_method(zeros, "scatter", {py::int_(-1), places, py::int_(1)}, {});
}

// In the recording a tensor that is written has memory of its own, from the start of which it lies.
py::object Calls::storage_offset(py::handle tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  graphs().offsets_matter = true;
  if (!t.is_inference() && t._version() == 0) return from_torch(py::cast(t.sym_storage_offset()));
  if (bridge::is_symbolic(t))
    throw Break(BreakId::tensor_attribute, "Tensor.storage_offset of what has symbolic sizes");
  if (Tracked* k = heap().tracked(tensor); k->source.valid() && k->original) {
    const at::Tensor& real = THPVariable_Unpack(k->original.ptr());
    if (real.sizes() == t.sizes() && real.strides() == t.strides())
      return py::int_(real.storage_offset());
  }
  throw Break(BreakId::tensor_attribute, "Tensor.storage_offset of what may be written");
}

// copy.deepcopy of a tensor, whose table the interpreted code keeps: a clone, where the tensor lies
// in memory of its own without gaps and nothing else hangs on it.
py::object Calls::deep_copy(py::handle tensor, const py::object& table) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  auto refuse = [](const char* why) {
    throw Break(BreakId::torch_call, "Tensor.__deepcopy__ ", why);
  };
  Tracked* k = heap().tracked(tensor);
  const bool existing = k->source.valid() && k->original;
  if (!objects().type_of(tensor).is(member_of<"torch", "Tensor">())) refuse("of a parameter");
  if (t.requires_grad() || is_wrapped(t)) refuse("of what has gradients");
  if (!(bridge::is_symbolic(t) ? t.is_contiguous() : t.is_non_overlapping_and_dense()))
    refuse("of these strides");
  if (t.is_conj() || t.is_neg()) refuse("of a view that conjugates or negates");
  if (existing) {
    const py::object dict = k->original.attr("__dict__");
    if (!gradient(tensor, py::str("grad")).is_none()) refuse("with its gradient");
    const Tracked* attributes = heap().tracked(dict);
    if (PyDict_Size(dict.ptr()) != 0 || (attributes != nullptr && attributes->writes))
      refuse("with attributes");
    heap().guard(GuardKind::Length, heap().sources.attribute(k->source, names().dict_), {}, 0);
  }
  if (!existing && k->writes) refuse("with attributes");
  if (!storage_offset(tensor).equal(py::int_(0))) refuse("of a part of its memory");
  // Tensors that share memory have copies that share one.
  heap().hold(table);
  if (!deep_copied_.emplace(table.ptr(), innermost(t).storage().unsafeGetStorageImpl()).second)
    refuse("of memory that was copied before");
  return call_method(tensor, "clone", {}, {});
}

// object.__setattr__ and the like.
Done Calls::call_of_attributes(py::handle tensor, const std::string& name, const Arguments& args) {
  const bool sets = name == "__setattr__" && args.size() == 2;
  if (name == "__getattribute__" && args.size() == 1) return objects().load_attr(tensor, args[0]);
  if (!sets && !(name == "__delattr__" && args.size() == 1)) return std::nullopt;
  objects().store_attr(tensor, args[0], sets ? args[1] : py::object());
  return py::none();
}

py::object Calls::call_method(py::handle tensor, const std::string& name, const Arguments& args,
                              const Keywords& kwargs) {
  const uint32_t traits = tensor_traits(name);
  if (auto done = call_of_attributes(tensor, name, args)) return *done;
  if (auto done = draws().fill(tensor, name, args, kwargs)) return *done;
  if (name == "__deepcopy__" && args.size() == 1 && kwargs.empty())
    return deep_copy(tensor, args[0]);
  if (!(traits & native::NotInGraph)) refuse_objects(args, kwargs, cat("Tensor.", name));
  if (traits & native::ReadsValue)
    if (const py::object value = args.empty() ? numbers().use_number(tensor) : py::object())
      return is_symbolic(value)    ? number_of_size(value, name)
             : name == "__bool__"  ? py::object(py::bool_(value))
             : name == "__int__"   ? py::object(py::int_(value))
             : name == "__float__" ? py::object(py::float_(value))
                                   : value;
  if ((name == "item" || name == "__float__") && args.empty() && kwargs.empty())
    if (py::object number = numbers().float_in(borrow(tensor), name == "item")) return number;
  if ((traits & native::ReadsValue) && args.empty() && kwargs.empty()) {
    py::object given = arrays().number_of_scalar(tensor);
    if (!given) given = sizes().number_in_argument(borrow(tensor));
    if (given)
      return name == "__bool__"    ? py::object(py::bool_(objects().truth(given)))
             : name == "__int__"   ? call(type_object(&PyLong_Type), {given}, {})
             : name == "__float__" ? call(type_object(&PyFloat_Type), {given}, {})
                                   : given;
    const bool number = name == "item" || name == "__int__";
    py::object found = number             ? sizes().number_in(borrow(tensor))
                       : name == "tolist" ? sizes().list_of(borrow(tensor))
                                          : py::object();
    if (!found && (name == "item" || name == "__float__")) {
      const bool whole = at::isIntegralType(THPVariable_Unpack(tensor.ptr()).scalar_type(), true);
      found = numbers().number_of_data(
          name == "__float__" && whole ? call_method(tensor, "double", {}, {}) : borrow(tensor),
          name == "item");
    }
    if (!found && name == "__int__")
      if (const py::object number = numbers().number_of_data(borrow(tensor), false))
        found = numbers().whole_of_data(number, Rounding::ToZero).value_or(py::object());
    if (found) return found;
  }
  if (name == "equal" || name == "allclose") {
    Arguments both = args;
    both.insert(both.begin(), borrow(tensor));
    if (auto answer = numbers().comparison_of_data(cat("torch.", name), both, kwargs))
      return *answer;
  }
  if (traits & native::ReadsValue) throw Break(BreakId::data_dependent, "Tensor.", name);
  if (name == "numpy") {
    Numbers::forget_numbers(tensor);
    return arrays().array_over(tensor, args, kwargs);
  }
  if (name == "backward" && args.size() <= 4) {
    auto given = [&](size_t position, const char* parameter) -> py::object {
      if (position < args.size()) return args[position];
      for (const auto& [key, value] : kwargs)
        if (text(key) == parameter) return value;
      return {};
    };
    return graphs().record_backward(borrow(tensor), given(0, "gradient"), given(1, "retain_graph"),
                                    given(2, "create_graph"), given(3, "inputs"));
  }
  if (name == "as_subclass" && args.size() == 1 && kwargs.empty() && graphs().inner() == nullptr &&
      (Wrappers::is_derived(args[0]) || args[0].is(member_of<"torch", "Tensor">()))) {
    const py::object alias = own_function("oxyfuel.wrappers", "alias");
    py::object made = graphs().record(ir::NodeKind::CallFunction, "torch.ops.aten.alias.default",
                                      alias, {borrow(tensor)}, {});
    return wrappers().of_class(std::move(made), args[0]);
  }
  if (name == "requires_grad_" && args.empty() && kwargs.empty() &&
      is_wrapped(THPVariable_Unpack(tensor.ptr())))
    return graphs().differentiate_by(borrow(tensor));
  if (name == "requires_grad_" && args.size() + kwargs.size() <= 1 &&
      (kwargs.empty() || text(kwargs[0].first) == "requires_grad")) {
    const bool wanted = (args.empty() && kwargs.empty()) ||
                        objects().truth(args.empty() ? kwargs[0].second : args[0]);
    const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
    if (t.requires_grad() == wanted || !is_wrapped(t))
      return graphs().require_gradient(borrow(tensor), wanted);
  }
  if (name == "register_hook" && args.size() == 1 && kwargs.empty())
    return register_hook(borrow(tensor), args[0]);
  if (name == "register_post_accumulate_grad_hook" && args.size() == 1 && kwargs.empty())
    return register_leaf_hook(borrow(tensor), args[0], "_post_accumulate_grad_hooks");
  if (name == "is_inference" && args.empty() && kwargs.empty()) {
    const Tracked* k = heap().tracked(tensor);
    if (k != nullptr && k->source.valid())
      return py::bool_(THPVariable_Unpack(k->original.ptr()).is_inference());
    if (c10::InferenceMode::is_enabled())  // a view of an input is what that is
      return py::bool_(!heap().is_view_of_normal_input(tensor));
    return py::bool_(inference().is_inference(THPVariable_Unpack(tensor.ptr())));
  }
  if (name == "retain_grad" && args.empty() && kwargs.empty())
    return retain_gradient(borrow(tensor));
  if (name == "detach_" && args.empty() && kwargs.empty())
    return graphs().detach_in_place(borrow(tensor));
  if (traits & native::NotInGraph) throw Break(BreakId::torch_call, "Tensor.", name);
  if (name == "storage_offset" && args.empty()) return storage_offset(tensor);
  if (traits & native::FixedMethod) {
    const AskedFunctions none(false, wrappers().follows());
    return call_real(tensor.attr(name.c_str()), args, kwargs);
  }
  if (name == "new_tensor")
    if (auto made = tensor_like(tensor, args, kwargs)) return *made;
  Arguments all = args;
  all.insert(all.begin(), borrow(tensor));
  if (bridge::is_symbolic(THPVariable_Unpack(tensor.ptr())) ||
      any_argument(args, kwargs, [](py::handle o) { return mentions(o, is_symbolic, false); }))
    if (auto done = numbers().call_in_python(cat("torch.", name), all, kwargs)) return *done;
  if (name == "new_full" && args.size() == 2 && is_symbolic_float(args[1]) &&
      std::ranges::none_of(kwargs, [](auto& k) { return is_text(k.first.ptr(), "requires_grad"); }))
    return filled_with_float(name, {}, all, kwargs);
  if (objects().user_method(tensor, name) != nullptr)  // torch's own, by another way than its name
    return numbers().record_with_numbers(ir::NodeKind::CallFunction, cat("torch.Tensor.", name),
                                         member_of<"torch._C", "TensorBase">().attr(name.c_str()),
                                         all, kwargs);
  return numbers().record_with_numbers(ir::NodeKind::CallMethod, name, {}, all, kwargs);
}

}  // namespace oxy::python
