// Calls: Python functions are inlined, classes instantiated, functions written in C known by name
// or refused.
#include <pybind11/eval.h>

#include "python/capture/capture.h"
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/code_object.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "torch_bridge/autocast_cache.h"

namespace oxy::python {
namespace {

// By PyFunction_SetVectorcall.
bool has_own_vectorcall(const PyFunctionObject* f) {
  static const vectorcallfunc usual = as_function(member_of<"os.path", "join">())->vectorcall;
  return f->vectorcall != usual;
}

bool is_torch_size(PyTypeObject* type) { return type == as_type(member_of<"torch", "Size">()); }

constexpr size_t kMaxDepth = 150;

// itemgetter, attrgetter and methodcaller.
bool is_operator_object(PyTypeObject* type) {
  return (type_traits(type) & native::OperatorObject) != 0;
}

// Whether a function or method written in C takes that many arguments, as far as it says so.
bool takes_as_many(PyObject* callable, const Arguments& args, const Keywords& kwargs) {
  if (PyCFunction_Check(callable)) {
    const int flags = PyCFunction_GET_FLAGS(callable);
    if ((flags & (METH_NOARGS | METH_O)) == 0) return true;
    return args.size() == ((flags & METH_O) != 0 ? 1 : 0) && kwargs.empty();
  }
  if (!is_method_wrapper(callable)) return true;
  const py::object signature = steal(PyObject_GetAttrString(callable, "__text_signature__"));
  if (signature.is_none()) return true;
  const auto text = signature.cast<std::string>();  // ($self, key, value, /)
  if (!text.ends_with(", /)") || text.find('=') != std::string::npos) return true;
  const auto commas = std::ranges::count(text, ',');
  return args.size() + 1 == static_cast<size_t>(commas) && kwargs.empty();
}

// What torch.compile has made of a function: that is followed, as TorchDynamo does.
bool is_torch_compiled(PyFunctionObject* f) {
  return view_of(code_of(f)->co_name) == "compile_wrapper" &&
         written_in(f) == "torch._dynamo.eval_frame" && f->func_dict != nullptr &&
         PyDict_GetItemString(f->func_dict, "_torchdynamo_orig_callable") != nullptr;
}

// Whether torch.jit.script's function takes it as it is: an int for a float would become one.
bool is_of_script_type(const py::object& o, const std::string& type) {
  if (type == "Tensor") return is_tensor_object(o.ptr());
  if (type == "bool") return PyBool_Check(o.ptr());
  if (type == "int") return PyLong_CheckExact(o.ptr()) || is_symbolic_int(o);
  if (type == "float") return PyFloat_CheckExact(o.ptr()) || is_symbolic_float(o);
  if (type == "str") return PyUnicode_CheckExact(o.ptr());
  if (!type.starts_with("Optional[")) return false;
  return o.is_none() || is_of_script_type(o, type.substr(9, type.size() - 10));
}

// The Python function that torch.jit.script has compiled; null where it may do something else than
// what has been compiled, as what torch.jit.trace was given does.
py::object scripted_function(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  if (!py::type::of(callable).is(member_of<"torch.jit", "ScriptFunction">()) ||
      !py::hasattr(callable, "__name__"))
    return {};
  const py::object function = py::getattr(callable, "_torchdynamo_inline", py::none());
  if (!PyFunction_Check(function.ptr())) return {};
  const py::object names = borrow(code_of(as_function(function))->co_names);
  if (names.contains("is_scripting")) return {};
  const py::list parameters = callable.attr("schema").attr("arguments");
  if (args.size() > parameters.size()) return {};
  auto takes = [](py::handle parameter, const py::object& given) {
    return is_of_script_type(given, py::str(parameter.attr("type")).cast<std::string>());
  };
  for (size_t i = 0; i < args.size(); i++)
    if (!takes(parameters[i], args[i])) return {};
  for (const auto& [name, given] : kwargs)
    for (py::handle parameter : parameters)
      if (py::object(parameter.attr("name")).equal(name) && !takes(parameter, given)) return {};
  return function;
}

// What `function.__get__(object, type)` gives; null where it is no such call.
py::object bound_by_get(PyObject* callable, const Arguments& args, const Keywords& kwargs) {
  if (!is_method_wrapper(callable) || !kwargs.empty() || args.empty() || args.size() > 2 ||
      args[0].is_none())
    return {};
  const py::object function = steal(PyObject_GetAttr(callable, names().self_));
  if (!PyFunction_Check(function.ptr()) || text(py::handle(callable).attr("__name__")) != "__get__")
    return {};
  return steal(PyMethod_New(function.ptr(), args[0].ptr()));
}

// A function of heapq refuses what is no list, in words that depend on Python's version.
bool lacks_heap(py::handle callable, const Arguments& args) {
  return module_of(callable) == "_heapq" && (args.empty() || !PyList_Check(args[0].ptr()));
}

// CPython words it: a function with the same parameters that does nothing is called with as many
// arguments.
[[noreturn]] void wrong_arguments(PyFunctionObject* f, size_t positional, const Keywords& kwargs) {
  static const py::object& nothing =
      *new py::object(py::eval("(lambda: None).__code__", py::dict()));
  const int kept = CO_VARARGS | CO_VARKEYWORDS | CO_OPTIMIZED | CO_NEWLOCALS;
  py::dict changes(py::arg("co_code") = nothing.attr("co_code"),
                   py::arg("co_consts") = nothing.attr("co_consts"),
                   py::arg("co_freevars") = py::tuple(), py::arg("co_cellvars") = py::tuple(),
                   py::arg("co_stacksize") = 1, py::arg("co_flags") = code_of(f)->co_flags & kept);
  if (!kHasBlocks) changes["co_exceptiontable"] = py::bytes();
  py::object same = py::handle(f->func_code).attr("replace")(**changes);
  py::object stand_in = steal(PyFunction_New(same.ptr(), f->func_globals));
  stand_in.attr("__qualname__") = py::handle(f->func_qualname);
  if (f->func_defaults) PyFunction_SetDefaults(stand_in.ptr(), f->func_defaults);
  if (f->func_kwdefaults) PyFunction_SetKwDefaults(stand_in.ptr(), f->func_kwdefaults);
  const py::tuple values = tuple_of(Arguments(positional, py::none()));
  py::dict named;
  for (const auto& [key, value] : kwargs) named[key] = py::none();
  steal(PyObject_Call(stand_in.ptr(), values.ptr(), named.ptr()));
  throw Break(BreakId::builtin_call, "arguments that do not fit");
}

}  // namespace

void refuse_to_make(PyTypeObject* type) {
  if (module_of(type_object(builtin_base(type))) == "decimal")
    throw Break(BreakId::object_construction, type->tp_name);
  static PyObject* const name = PyUnicode_InternFromString("__del__");
  if (_PyType_Lookup(type, name) != nullptr)
    throw Break(BreakId::object_construction, type->tp_name, " has __del__");
}

void raise_with(PyObject* type, py::handle value) {
  PyErr_SetObject(type, value.ptr());
  throw py::error_already_set();
}

std::string name_of(py::handle callable) {
  PyObject* p = callable.ptr();
  if (PyCFunction_Check(p)) return reinterpret_cast<PyCFunctionObject*>(p)->m_ml->ml_name;
  if (is_unbound_native(p)) return py::handle(PyDescr_NAME(p)).cast<std::string>();
  return py::hasattr(callable, "__name__") ? py::str(callable.attr("__name__")).cast<std::string>()
                                           : std::string(Py_TYPE(callable.ptr())->tp_name);
}

std::string module_of(py::handle callable) {
  const py::object module = owned(PyObject_GetAttrString(callable.ptr(), "__module__"));
  if (!module) PyErr_Clear();
  return std::string(view_of(module.ptr()));
}

bool keeps_arguments(const std::string& name) { return (method_traits(name) & native::Keeps) != 0; }

// Whether `is_one` holds for an object or for one in it; what is nested deeper than anybody writes
// is `beyond`.
bool mentions(py::handle o, bool (*is_one)(py::handle), bool beyond, int depth) {
  constexpr int kMaxNesting = 4;
  PyObject* p = o.ptr();
  if (is_one(o)) return true;
  if (depth > kMaxNesting) return beyond;
  auto inside = [&](py::handle held) { return mentions(held, is_one, beyond, depth + 1); };
  if (PyTuple_Check(p) || PyList_Check(p)) {
    PyObject** items = PySequence_Fast_ITEMS(p);
    return std::any_of(items, items + PySequence_Fast_GET_SIZE(p), inside);
  }
  if (PyDict_Check(p)) {
    const auto dict = py::reinterpret_borrow<py::dict>(o);
    return std::any_of(dict.begin(), dict.end(), [&](auto item) { return inside(item.second); });
  }
  if (!PySlice_Check(p)) return false;
  auto* s = reinterpret_cast<PySliceObject*>(p);
  return inside(s->start) || inside(s->stop) || inside(s->step);
}

bool mentions_tensor(py::handle o) {
  return mentions(o, [](py::handle p) { return is_tensor_object(p.ptr()) || is_array(p); }, true);
}

bool any_argument(const Arguments& args, const Keywords& kwargs, bool (*is_one)(py::handle)) {
  return std::ranges::any_of(args, is_one) ||
         std::ranges::any_of(kwargs, is_one, &Keywords::value_type::second);
}

// What a dict gives as its keys, values or items.
static bool is_view(py::handle o) {
  return PyDictViewSet_Check(o.ptr()) || PyDictValues_Check(o.ptr());
}

Arguments held_by(py::handle o) {
  Arguments held;
  auto add = [](PyObject* inside, void* to) {
    static_cast<Arguments*>(to)->push_back(borrow(inside));
    return 0;
  };
  if (const auto traverse = Py_TYPE(o.ptr())->tp_traverse) traverse(o.ptr(), add, &held);
  return held;
}

// Only numbers, strings and what is made of them: nothing that Python code or the user's state
// hides behind.
void Calls::require_plain(py::handle o, py::handle callable) {
  constexpr int kMaxNesting = 50;  // a list may be in itself
  thread_local int nesting = 0;
  struct Inside {
    Inside() { ++nesting; }
    ~Inside() { --nesting; }
  } inside;
  PyObject* p = o.ptr();
  if (nesting > kMaxNesting)
    throw Break(BreakId::builtin_call, name_of(callable), " with containers in containers");
  auto refuse = [&] {
    throw Break(BreakId::builtin_on_existing, name_of(callable), " with a ", Py_TYPE(p)->tp_name);
  };
  if (heap().exists(o) || is_tensor_object(p) || iterators().lazy(o) || PyWeakref_Check(p))
    refuse();
  const auto stays = [this](py::handle held) {
    return is_one_for_all(held) && !heap().exists(held);
  };
  if (PyTuple_Check(p) || PyList_Check(p)) {
    if (answers_itself(o)) refuse();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++)
      require_plain(PySequence_Fast_GET_ITEM(p, i), callable);
  } else if (PyDict_Check(p)) {
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(o)) {
      if (!stays(key)) require_plain(key, callable);
      require_plain(value, callable);
    }
  } else if (PyType_Check(p) || PyModule_Check(p) || PyCode_Check(p)) {
    return;
  } else if (PyFunction_Check(p) || (Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE && !is_deque(o))) {
    refuse();
  } else if (PyExceptionInstance_Check(p)) {
    require_plain(o.attr("args"), callable);
  } else if (is_view(o)) {
    for (py::handle inside : plain_list(o))
      if (!stays(inside)) require_plain(inside, callable);
  } else {  // a set, a slice, an iterator
    for (py::handle inside : held_by(o))
      if (!stays(inside)) require_plain(inside, callable);
  }
}

bool Calls::is_plain(py::handle o, py::handle callable) try {
  require_plain(o, callable);
  return true;
} catch (const Break&) {
  return false;
}

void Calls::require_plain(const Arguments& args, const Keywords& kwargs, py::handle callable) {
  for (const py::object& a : args) require_plain(a, callable);
  for (const auto& [key, a] : kwargs) require_plain(a, callable);
}

// What `method` of the class written in C that `o` derives its value from makes of the value, where
// o's class has that one.
Done Calls::text_of_value(py::handle o, const char* method, const Arguments& args) {
  if (!is_derived_value(o.ptr())) return std::nullopt;
  PyObject* found = objects().type_member(Py_TYPE(o.ptr()), py::str(method));
  const py::object plain = plain_value(o.ptr());
  if (found == nullptr || !is_unbound_native(found) || PyDescr_TYPE(found) != Py_TYPE(plain.ptr()))
    return std::nullopt;
  return py::handle(found)(plain, *tuple_of(args));
}

// The same for its format(), which without a spec is its str().
Done Calls::formatted_value(py::handle o, const py::object& spec) {
  if (!PyUnicode_CheckExact(spec.ptr())) return std::nullopt;
  auto text = text_of_value(o, "__format__", {spec});
  return text && py::len(spec) == 0 ? text_of(o, false) : text;
}

// All of `o`, for a function written in C that looks at it: plain, whatever was there before.
py::object Calls::plain_contents(py::handle o, py::handle callable) {
  const auto is_own = [&](const char* name) {
    return objects().special_method(o, py::str(name)) != nullptr;
  };
  if (heap().exists(o) && is_derived_value(o.ptr()) && !answers_itself(o) && !is_own("__str__") &&
      !is_own("__repr__") && !is_own("__format__"))
    return plain_value(o.ptr());
  const bool of_python = PyList_CheckExact(o.ptr()) || PyDict_CheckExact(o.ptr()) ||
                         PyTuple_CheckExact(o.ptr()) || PySet_CheckExact(o.ptr());
  if (heap().exists(o) && !of_python) require_plain(o, callable);
  const py::object out = with_numbers(heap().deep_contents(o));
  require_plain(out, callable);
  return out;
}

py::object Calls::call_real(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  auto check = [&](const py::object& a) {  // of a lazy iterator C code would see an empty one
    if (!iterators().empty() && iterators().lazy(a) && !keeps_arguments(name_of(callable)))
      throw Break(BreakId::builtin_call, name_of(callable), " with a generator");
  };
  for (const py::object& a : args) check(a);
  for (const auto& [key, value] : kwargs) check(value);
  py::object out = steal(PyObject_Call(callable.ptr(), tuple_of(args).ptr(),
                                       kwargs.empty() ? nullptr : dict_of(kwargs).ptr()));
  if (is_tensor_object(out.ptr()) && !heap().is_tensor(out))
    throw Break(BreakId::torch_call, name_of(callable), " returns a tensor");
  if (sizes().symbolic()) out = from_torch(out);
  heap().hold(out);
  return out;
}

// Whether captured code holds an object that it has made: in a local, on a stack, or inside of what
// is there.
static bool is_held(Capture& c, py::handle o) {
  constexpr int kMaxDepth = 3;
  const std::function<bool(py::handle, int)> has = [&](py::handle held, int depth) {
    PyObject* p = held.ptr();
    if (p == o.ptr()) return true;
    if (p == nullptr || depth == kMaxDepth || c.heap.exists(held) || is_tensor_object(p))
      return false;
    if (PyCell_Check(p)) return has(PyCell_GET(p), depth + 1);
    if (PyList_Check(p) || PyTuple_Check(p)) {
      PyObject** items = PySequence_Fast_ITEMS(p);
      return std::any_of(items, items + PySequence_Fast_GET_SIZE(p),
                         [&](PyObject* item) { return has(item, depth + 1); });
    }
    PyObject** own = PyDict_CheckExact(p) ? &p : _PyObject_GetDictPtr(p);
    if (own == nullptr || *own == nullptr || PyType_Check(p) || PyModule_Check(p)) return false;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(*own))
      if (has(value, depth + 1)) return true;
    return false;
  };
  return std::ranges::any_of(c.frames.stack(), [&](const TracedFrame* f) {
    const auto held = [&](const py::object& local) { return has(local, 0); };
    return std::ranges::any_of(f->fast, held) || std::ranges::any_of(f->stack, held);
  });
}

py::object Calls::call(py::handle callable, Arguments args, Keywords kwargs) {
  PyObject* p = callable.ptr();
  frames().meets_weak |= makes_weak_reference(callable);
  const bool direct = std::exchange(frames().direct, false);
  if (PyMethod_Check(p)) {
    args.insert(args.begin(), borrow(PyMethod_GET_SELF(p)));
    frames().direct = direct;
    return call(PyMethod_GET_FUNCTION(p), std::move(args), std::move(kwargs));
  }
  if (PyFunction_Check(p))
    if (auto done = call_special_by_name(callable, args, kwargs, direct)) return *done;
  if (auto done = draws().call(callable, args, kwargs)) return *done;
  if (!takes_as_many(p, args, kwargs))
    throw Break(BreakId::builtin_call, name_of(callable), " with too few or many arguments");
  if (PyFunction_Check(p) || PyCFunction_Check(p))
    if (auto done = call_that_tells(callable, args, kwargs)) return *done;
  if (auto done = call_control(callable, args, kwargs)) return *done;
  if (auto done = call_special(callable, args, kwargs)) return *done;
  if (auto done = arrays().call_numpy(callable, args, kwargs)) return *done;
  if (auto done = call_format(callable, args, kwargs)) return *done;
  if (PyType_Check(p) || PyCFunction_Check(p))
    if (const py::object polyfill = polyfill_of(callable);
        polyfill && !lacks_heap(callable, args)) {
      // tee of what tee has made is a copy of it.
      if (name_of(callable) == "tee" && !args.empty() && iterators().stands_in(args[0]))
        throw Break(BreakId::builtin_call, "tee of an iterator of itertools");
      return call_function(polyfill, std::move(args), std::move(kwargs));
    }
  if (auto done = call_torch(callable, args, kwargs)) return *done;
  if (PyFunction_Check(p)) {
    frames().direct = direct;
    return call_function(callable, std::move(args), std::move(kwargs));
  }
  const py::object& partial = member_of<"functools", "partial">();
  if (PyType_Check(p) && PyType_IsSubtype(as_type(callable), as_type(partial)) && !args.empty() &&
      heap().exists(args[0]) && PyObject_TypeCheck(args[0].ptr(), as_type(partial)))
    take_partial_apart(args, kwargs);
  if (PyType_Check(p)) return call_type(callable, std::move(args), std::move(kwargs));
  if (py::object method = bound_by_get(p, args, kwargs)) return method;
  if (is_unbound_native(p) && PyDescr_TYPE(p) == &PyFloat_Type)  // takes what is really a float
    for (py::object& a : args) a = numbers().with_plain_floats(a);
  if (PyCFunction_Check(p) || is_unbound_native(p) || is_method_wrapper(p) ||
      Py_TYPE(p) == &PyClassMethodDescr_Type)
    return call_native(callable, std::move(args), std::move(kwargs));
  if (Py_TYPE(p) == compiled_type) {
    heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
    frames().direct = direct;
    return call(callable.attr("__wrapped__"), std::move(args), std::move(kwargs));
  }
  if (partial.ptr() == reinterpret_cast<PyObject*>(Py_TYPE(p))) {
    const py::object function = join_arguments(callable, args, kwargs);
    frames().direct = direct;
    return call(function, std::move(args), std::move(kwargs));
  }
  if (PyWeakref_CheckRefExact(p) && args.empty() && kwargs.empty()) {
    const py::object referent = borrow(PyWeakref_GET_OBJECT(p));
    const bool made = !heap().exists(callable) && !heap().exists(referent);
    if (!referent.is_none() &&
        !(made ? is_held(capture_, referent) : heap().surely_lives(referent)))
      throw Break(BreakId::builtin_call, "a weak reference to what may be gone");
    if (!heap().exists(callable)) return referent;
    return heap().wrap(referent, heap().sources.referent(heap().source_of(callable)));
  }
  const std::string_view type = Py_TYPE(p)->tp_name;
  if (type == "functools._lru_cache_wrapper") {
    if (auto done = call_logging_once(callable, args, kwargs)) return *done;
    return call_cached(callable, args, kwargs);
  }
  const bool of_numpy =
      type == "numpy.ufunc" || (type == "numpy._ArrayFunctionDispatcher" &&
                                native_traits("numpy", "", name_of(callable)) & native::Pure);
  if (of_numpy && !any_argument(args, kwargs, mentions_tensor)) {
    sizes().make_plain(args, kwargs);
    for (py::object& a : args) a = plain_contents(a, callable);
    require_plain(args, kwargs, callable);
    const RefusedFrames allowed(nullptr);  // NumPy's own, in Python
    return call_real(callable, args, kwargs);
  }
  if (callable.is(member_of<"torch._higher_order_ops.wrap", "wrap">()) && !args.empty())
    return call(args[0], {args.begin() + 1, args.end()}, std::move(kwargs));
  if (PyObject_TypeCheck(p, as_type(member_of<"torch._ops", "HigherOrderOperator">())))
    return call_higher_order(callable, args, kwargs);
  if (Py_TYPE(p) == &Py_GenericAliasType) {
    if (heap().exists(callable))
      heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
    const py::object origin = callable.attr("__origin__");
    if (PyType_Check(origin.ptr()) && as_type(origin)->tp_dictoffset == 0 &&
        as_type(origin)->tp_setattro == PyObject_GenericSetAttr)  // no place for __orig_class__
      return call(origin, std::move(args), std::move(kwargs));
  }
  if (type == "functools.KeyWrapper" && args.size() == 1 && kwargs.empty() &&
      !heap().exists(callable))
    return call_real(callable, args, kwargs);
  if (is_operator_object(Py_TYPE(p))) {
    if (!kwargs.empty()) type_error(Py_TYPE(p)->tp_name, " takes no keyword arguments");
    return call_operator_object(callable, args);
  }
  if (const py::object function = scripted_function(callable, args, kwargs)) {
    heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
    return call(function, std::move(args), std::move(kwargs));
  }
  PyObject* own = objects().type_member(Py_TYPE(p), names().call_);
  if (own != nullptr && PyFunction_Check(own)) {
    args.insert(args.begin(), borrow(p));
    frames().direct = direct;
    return call(own, std::move(args), std::move(kwargs));
  }
  if (own == nullptr) type_error("'", Py_TYPE(p)->tp_name, "' object is not callable");
  throw Break(BreakId::builtin_call, "an object of type ", Py_TYPE(p)->tp_name);
}

// Puts what a functools.partial holds in front of the arguments; gives its function.
py::object Calls::join_arguments(py::handle partial, Arguments& args, Keywords& kwargs) {
  auto part = [&](const char* name) {
    py::object held = partial.attr(name);
    if (!heap().exists(partial)) return held;
    return heap().wrap(held, heap().sources.attribute(heap().source_of(partial), py::str(name)));
  };
  Arguments all;
  for (py::handle a : py::tuple(part("args"))) all.push_back(borrow(a));
  args.insert(args.begin(), all.begin(), all.end());
  py::dict named = heap().contents(part("keywords")).attr("copy")();
  for (const auto& [key, value] : kwargs) named[key] = value;
  kwargs.clear();
  for (auto [key, value] : named) kwargs.emplace_back(borrow(key), borrow(value));
  return part("func");
}

// What functools.partial does with a partial of before the call: one that has no attributes is none
// of the parts of the new one.
void Calls::take_partial_apart(Arguments& args, Keywords& kwargs) {
  const py::object inner = args[0];
  PyTypeObject* partial = as_type(member_of<"functools", "partial">());
  if (!Py_IS_TYPE(inner.ptr(), partial) || has_dict(inner.ptr()) ||
      PyObject_TypeCheck(py::object(inner.attr("func")).ptr(), partial))
    throw Break(BreakId::builtin_on_existing, "a partial of a partial");
  heap().guard(GuardKind::HasDict, heap().source_of(inner), {}, 0);
  args.erase(args.begin());
  const py::object function = join_arguments(inner, args, kwargs);
  args.insert(args.begin(), function);
}

// What itemgetter, attrgetter and methodcaller do: their __reduce__ tells what they hold.
py::object Calls::call_operator_object(py::handle callable, const Arguments& args) {
  if (args.size() != 1) type_error(name_of(callable), " expected 1 argument");
  if (heap().exists(callable)) heap().guard(GuardKind::IdIs, heap().source_of(callable), callable);
  const std::string type = Py_TYPE(callable.ptr())->tp_name;
  py::tuple reduced = callable.attr("__reduce__")();
  py::tuple held = reduced[1];
  if (mentions_tensor(held)) throw Break(BreakId::builtin_call, type);
  if (heap().exists(callable))
    for (py::handle item : held) heap().wrap_held(item);
  if (type == "operator.methodcaller") {
    Keywords kwargs;
    py::object name;
    if (py::type::of(callable).is(py::object(reduced[0]))) {
      name = held[0];
    } else {  // a partial, with keywords
      py::object partial = reduced[0];
      name = py::tuple(partial.attr("args"))[0];
      for (auto [key, value] : py::dict(partial.attr("keywords")))
        kwargs.emplace_back(borrow(key), borrow(value));
    }
    Arguments given;
    for (size_t i = kwargs.empty() ? 1 : 0; i < held.size(); i++) given.push_back(held[i]);
    return call(objects().load_attr(args[0], name), std::move(given), std::move(kwargs));
  }
  py::tuple found(held.size());
  for (size_t i = 0; i < held.size(); i++) {
    py::object o = args[0];
    if (type == "operator.itemgetter")
      o = objects().subscript(o, held[i]);
    else
      for (py::handle part : py::object(held[i].attr("split")(".")))
        o = objects().load_attr(o, part);
    found[i] = o;
  }
  return held.size() == 1 ? py::object(found[0]) : py::object(found);
}

bool is_of_context(py::handle o) {
  PyObject* p = o.ptr();
  return PyContextVar_CheckExact(p) || PyContext_CheckExact(p) || PyContextToken_CheckExact(p);
}

// A method of a context variable, a context or a token. Reading a variable leaves a guard on the
// value that the caller's context has; writing one is a break.
py::object Calls::call_of_context(py::handle self, const std::string& name, const Arguments& args,
                                  const Keywords& kwargs) {
  if (!PyContextVar_CheckExact(self.ptr()) || !heap().exists(self) || name != "get" ||
      args.size() > 1 || !kwargs.empty())
    throw Break(BreakId::context_variable, Py_TYPE(self.ptr())->tp_name, ".", name);
  auto value = [&](PyObject* otherwise) {
    PyObject* found = nullptr;
    check(PyContextVar_Get(self.ptr(), otherwise, &found));
    return owned(found);
  };
  const SourceId var = heap().tracked(self)->source, set = heap().sources.context_value(var, false);
  const py::object in_context = value(missing().ptr());
  if (!in_context.is(missing())) return heap().wrap(in_context, set);
  heap().guard(GuardKind::Missing, set);
  if (!args.empty()) return args[0];
  const SourceId any = heap().sources.context_value(var, true);
  if (const py::object own = value(nullptr)) return heap().wrap(own, any);
  heap().guard(GuardKind::Missing, any);
  raise_with(PyExc_LookupError, self);
}

// -------------------------------------------------------------------------------- Python functions

std::vector<py::object> Calls::bind_arguments(py::handle function, Arguments args,
                                              Keywords kwargs) {
  auto* f = as_function(function);
  auto* code = code_of(f);
  const auto positional = static_cast<size_t>(code->co_argcount);
  const auto named = positional + static_cast<size_t>(code->co_kwonlyargcount);
  const bool fresh = heap().is_made_here(function);
  std::vector<py::object> fast(static_cast<size_t>(slot_count(code)));
  const size_t taken = std::min(args.size(), positional);
  for (size_t i = 0; i < taken; i++) fast[i] = std::move(args[i]);
  size_t slot = named;
  if (code->co_flags & CO_VARARGS) {
    const Arguments rest(args.begin() + static_cast<ptrdiff_t>(taken), args.end());
    const bool has_deferred =
        std::ranges::any_of(rest, [this](py::handle o) { return numbers().must_be_packed(o); });
    fast[slot++] = has_deferred ? numbers().pack(rest) : tuple_of(rest);
  } else if (taken < args.size()) {
    wrong_arguments(f, args.size(), kwargs);
  }
  Keywords extra;
  for (auto& [key, value] : kwargs) {
    size_t at = named;
    for (size_t i = static_cast<size_t>(code->co_posonlyargcount); i < named; i++)
      if (PyUnicode_Compare(slot_name(code, static_cast<int>(i)), key.ptr()) == 0) at = i;
    if (at == named && (code->co_flags & CO_VARKEYWORDS))
      extra.emplace_back(key, value);
    else if (at == named || fast[at])
      wrong_arguments(f, args.size(), kwargs);
    else
      fast[at] = std::move(value);
  }
  if (code->co_flags & CO_VARKEYWORDS) fast[slot] = numbers().pack_named(extra);
  auto source = [&] { return heap().source_of(function, std::string(view_of(f->func_qualname))); };
  const Py_ssize_t defaults = f->func_defaults ? PyTuple_GET_SIZE(f->func_defaults) : 0;
  for (size_t i = 0; i < named; i++) {
    if (fast[i]) continue;
    py::object key = borrow(slot_name(code, static_cast<int>(i)));
    if (i < positional) {
      const auto d = static_cast<Py_ssize_t>(i) - static_cast<Py_ssize_t>(positional) + defaults;
      if (d >= 0) {
        PyObject* value = PyTuple_GET_ITEM(f->func_defaults, d);
        fast[i] = fresh ? borrow(value) : heap().wrap(value, heap().sources.default_(source(), d));
        continue;
      }
    } else if (f->func_kwdefaults) {
      const Tracked* k = fresh ? nullptr : heap().tracked(f->func_kwdefaults);
      if (k != nullptr && k->writes) {
        if ((fast[i] = effects().dict_get(f->func_kwdefaults, key))) continue;
      } else if (PyObject* value = PyDict_GetItemWithError(f->func_kwdefaults, key.ptr())) {
        fast[i] =
            fresh ? borrow(value) : heap().wrap(value, heap().sources.kw_default(source(), key));
        continue;
      }
    }
    wrong_arguments(f, args.size(), kwargs);
  }
  return fast;
}

py::object Calls::call_higher_order(py::handle op, const Arguments& args, const Keywords& kwargs) {
  const std::string name = name_of(op);
  if (name != "flex_attention") throw Break(BreakId::control_flow, name);
  bridge::register_autocast_ops();  // and bmm_to_f32
  return call_own("oxyfuel.attention", name, args, kwargs);
}

py::object Calls::call_own(const char* module, const std::string& name, const Arguments& args,
                           const Keywords& kwargs, bool direct) {
  const py::object function = own_function(module, name.c_str());
  frames().direct = direct;
  return call_function(function, args, kwargs);
}

py::object Calls::call_function(py::handle function, Arguments args, Keywords kwargs) {
  auto* f = as_function(function);
  auto* code = code_of(f);
  if (frames().stack().size() > kMaxDepth ||
      static_cast<int>(frames().stack().size()) >= recursion_left())
    throw Break(BreakId::deep_inlining, name_of(function));
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, name_of(function));
  objects().guard_code(function);
  if (is_torch_compiled(f)) {
    const py::object inside = objects().load_attr(function, py::str("_torchdynamo_orig_callable"));
    return call(inside, std::move(args), std::move(kwargs));
  }
  if (is_disabled(f)) throw Break(BreakId::disabled, name_of(function));
  arrays().refuse_sampler(f, args, kwargs);
  if (is_left_call(f->func_code)) throw Break(BreakId::library_call, name_of(function));
  if (has_own_vectorcall(f))
    throw Break(BreakId::builtin_call, name_of(function), ", whose calls C code has taken over");
  const bool direct = std::exchange(frames().direct, false);
  // What the caller's stack keeps until the call is over.
  const Arguments kept = kCallersKeepArguments ? args : Arguments();
  const Keywords kept_by_name = kCallersKeepArguments ? kwargs : Keywords();
  auto frame = std::make_unique<TracedFrame>(function);
  const bool stands_for_numpy = is_array_code(f) && !arrays().in_array_code();
  try {
    frame->fast = bind_arguments(function, std::move(args), std::move(kwargs));
  } catch (const py::error_already_set& e) {
    if (!stands_for_numpy) throw;
    throw Break(BreakId::numpy, text(e.value()));  // NumPy's own takes more
  }
  if (code->co_flags & CO_GENERATOR) return iterators().make_generator(std::move(frame));
  frames().direct = direct;
  if (stands_for_numpy) return arrays().call_array_code(*frame);
  return frames().interpret(*frame);
}

// ----------------------------------------------------------------------------------------- classes

// For C code that takes nothing but an int.
static py::object plain_size(const py::object& o) { return is_symbolic(o) ? with_numbers(o) : o; }

// A `__new__` written in C.
py::object Calls::call_new(PyTypeObject* t, const Arguments& args, const Keywords& kwargs) {
  PyTypeObject* base = builtin_base(t);
  const bool of_text = base == &PyUnicode_Type || base == &PyBytes_Type || base == &PyLong_Type ||
                       base == &PyFloat_Type || base == &PyComplex_Type;
  // That of object leaves the arguments to __init__.
  const bool takes_any =
      t->tp_new != PyBaseObject_Type.tp_new || t->tp_init == PyBaseObject_Type.tp_init;
  if ((is_changeable_class(base) || t->tp_new != base->tp_new) && !is_operator_object(t))
    throw Break(BreakId::object_construction, t->tp_name);
  Arguments given = takes_any ? args : Arguments();
  for (py::object& a : given) {
    if (base == &PyTuple_Type || base == &PyFrozenSet_Type)
      a = iterators().list_of(a, base == &PyTuple_Type);
    else if (heap().exists(a))
      a = heap().contents(a);
    if (base == &PyFrozenSet_Type) arrays().guard_keys_in(a);
    if (of_text) require_plain(a, reinterpret_cast<PyObject*>(t));
  }
  const bool named = takes_any && !kwargs.empty();
  return steal(t->tp_new(t, tuple_of(given).ptr(), named ? dict_of(kwargs).ptr() : nullptr));
}

// Whether a dict is filled from it by its keys() and its items, as from any mapping, and these are
// a user's.
bool Calls::is_read_by_key(py::handle mapping) {
  PyTypeObject* type = Py_TYPE(mapping.ptr());
  if (!is_changeable_class(type)) return false;
  if (!PyDict_Check(mapping.ptr())) return effects().lookup(type, py::str("keys")) != nullptr;
  if (type->tp_iter == PyDict_Type.tp_iter) return false;
  return std::ranges::any_of(std::array{"__iter__", "keys", "__getitem__"}, [&](const char* name) {
    return objects().special_method(mapping, py::str(name)) != nullptr;
  });
}

// What dict makes of a mapping that it reads by its keys.
py::object Calls::dict_of_mapping(py::handle mapping) {
  py::dict out;
  const py::object keys = call(objects().load_attr(mapping, py::str("keys")), {});
  for (py::handle key : iterators().list_of(keys)) out[key] = objects().subscript(mapping, key);
  return std::move(out);
}

// A class of enum, whose call gives one of its members: a member itself, which it is given.
bool Calls::is_enum(py::handle type) {
  const py::object& meta = member_of<"enum", "EnumMeta">();
  return py::isinstance(type, meta) && objects().type_member(Py_TYPE(type.ptr()), names().call_) ==
                                           _PyType_Lookup(as_type(meta), names().call_);
}

// Whether an enum asks its own `_missing_` which of its members has this value.
bool Calls::is_missing_member(py::handle type, py::handle value) {
  if (!is_constant(value.ptr()) || !is_enum(type) ||
      !py::object(type.attr("__new__")).is(member_of<"enum", "Enum">().attr("__new__")))
    return false;
  auto own = [](py::handle of) { return py::object(of.attr("_missing_").attr("__func__")); };
  if (own(type).is(own(member_of<"enum", "Enum">())) ||
      PyType_IsSubtype(as_type(type), as_type(member_of<"enum", "Flag">())))
    return false;
  return !py::dict(type.attr("_value2member_map_")).contains(value);
}

py::object Calls::call_type(py::handle type, Arguments args, Keywords kwargs, bool generic) {
  auto* t = as_type(type);
  if (auto done = iterators().call_lazy_type(type, args, kwargs)) return *done;
  if (t == &PyReversed_Type && args.size() == 1 && kwargs.empty()) {
    if (PyObject* own = objects().special_method(args[0], py::str("__reversed__")))
      return call(own, {args[0]});
    if (_PyType_Lookup(Py_TYPE(args[0].ptr()), py::str("__reversed__").ptr()) == nullptr &&
        objects().special_method(args[0], names().getitem_) != nullptr)
      return call(polyfill("reversed_sequence"), std::move(args));
    if (PyTuple_Check(args[0].ptr()) && answers_itself(args[0])) require_plain(args[0], type);
  }
  if (t == &PyBytes_Type && args.size() == 1 && kwargs.empty())
    if (PyObject* own = objects().special_method(args[0], py::str("__bytes__"))) {
      py::object made = call(own, {args[0]});
      if (!PyBytes_Check(made.ptr()))
        type_error("__bytes__ returned non-bytes (type ", Py_TYPE(made.ptr())->tp_name, ")");
      return made;
    }
  if (args.size() == 1 && kwargs.empty() && py::type::handle_of(args[0]).is(type) && is_enum(type))
    return args[0];
  if (args.size() == 1 && kwargs.empty() && is_missing_member(type, args[0]))
    return call(polyfill("missing_member"), {borrow(type), args[0]});
  if (is_numpy_limits(t) && args.size() == 1 && kwargs.empty()) {
    const RefusedFrames allowed(nullptr);
    return call_real(type, {plain_contents(args[0], type)}, {});
  }
  if (t == &PyMethod_Type && args.size() == 2 && kwargs.empty() && !args[1].is_none() &&
      PyCallable_Check(args[0].ptr()))
    return steal(PyMethod_New(args[0].ptr(), args[1].ptr()));
  // What is made here lives as long as the capture: who asks is told only where it surely lives.
  if (t == &_PyWeakref_RefType && args.size() == 1 && kwargs.empty()) {
    PyTypeObject* of = Py_TYPE(args[0].ptr());
    const bool made = (of->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && !PyType_Check(args[0].ptr()) &&
                      !heap().is_tensor(args[0]) && !is_array(args[0]) &&
                      !iterators().lazy(args[0]);
    if (PyType_SUPPORTS_WEAKREFS(of) && (heap().exists(args[0]) || made))
      return steal(PyWeakref_NewRef(args[0].ptr(), nullptr));
  }
  if (t == &PySuper_Type && args.size() == 2 && heap().is_tensor(args[1]))
    throw Break(BreakId::attribute_protocol, "super() of a tensor");
  const bool iterates = t == &PyList_Type || t == &PyTuple_Type || t == &PySet_Type;
  // It takes all items of what it is given first.
  const bool consumes = iterates || is_torch_size(t) ||
                        type.is(member_of<"collections", "Counter">()) ||
                        (type_traits(t) & native::TakesAll) != 0;
  // An iterator in C would ask torch for the rows, which has them of constant sizes alone.
  const bool iterates_tensors =
      iterates || type.is(member_of<"collections", "deque">()) ||
      (type_traits(t) & (native::TakesApart | native::AsItIs)) == native::TakesApart;
  auto has_rows = [this, iterates](const py::object& a) {
    return heap().is_tensor(a) && (iterates || THPVariable_Unpack(a.ptr()).dim() > 0);
  };
  auto is_taken = [this](const py::object& a) {
    return iterators().lazy(a) || (PyIter_Check(a.ptr()) != 0 && heap().exists(a));
  };
  for (auto& a : args)
    if ((consumes && is_taken(a)) || (iterates_tensors && has_rows(a))) a = iterators().list_of(a);
  auto guard_filling = [this](py::object& a) {  // of a dict or set
    if ((PyIter_Check(a.ptr()) || is_view(a)) && !heap().exists(a)) a = iterators().list_of(a);
    arrays().guard_keys_in(a);
  };
  const bool heap_type = t->tp_flags & Py_TPFLAGS_HEAPTYPE;
  const bool exception = PyType_IsSubtype(t, (PyTypeObject*)PyExc_BaseException);
  PyObject* own_init = _PyType_Lookup(t, names().init_);
  const std::string module = module_of(type);
  const bool is_descriptor =
      t == &PyStaticMethod_Type || t == &PyClassMethod_Type || t == &PyProperty_Type;
  refuse_to_make(t);
  const bool of_collections = module == "collections" && builtin_base(t) != &PyBaseObject_Type;
  if (!heap_type || module == "builtins" || of_collections || module == "itertools" ||
      module == "functools" ||
      (exception && (own_init == nullptr || !PyFunction_Check(own_init))) ||
      py::isinstance(type, member_of<"enum", "EnumMeta">())) {
    const bool takes_apart = consumes || (type_traits(t) & native::TakesApart) != 0 ||
                             module == "collections" || t == &PyEnum_Type || t == &PyZip_Type ||
                             is_torch_size(t);
    // It takes the items of a set as they lie there.
    const bool of_set = t == &PySet_Type || t == &PyFrozenSet_Type;
    for (auto& a : args) {
      if (t == &PySuper_Type || is_descriptor || module == "functools") continue;
      // An exception keeps its arguments, a group looks at the list of its exceptions.
      if (exception && !(heap().exists(a) && is_exception_group_class(t))) continue;
      PyObject* own = _PyType_Lookup(Py_TYPE(a.ptr()), names().iter_);
      // What it counts, or copies, comes first.
      if (t == &PyBytes_Type || t == &PyByteArray_Type) {
        a = plain_size(a);
        if (is_of_python_class(a.ptr()) &&
            (PyIndex_Check(a.ptr()) || PyObject_CheckBuffer(a.ptr())))
          require_plain(a, type);
      }
      if (PyType_IsSubtype(t, &PyDict_Type) && is_read_by_key(a))
        a = dict_of_mapping(a);
      else if (takes_apart && !heap().is_tensor(a) &&
               ((own != nullptr && PyFunction_Check(own)) || iterators().goes_by_items(a)) &&
               !PyType_Check(a.ptr()) && !(of_set && PyAnySet_Check(a.ptr())))
        a = iterators().list_of(a, t == &PyList_Type || t == &PyTuple_Type);
      else if (heap().exists(a) && !(t == &PySlice_Type && is_derived_value(a.ptr())))
        a = heap().contents(a);
    }
    for (py::object& a : args)  // of a mapping it takes the keys
      if (of_set && (PyDict_Check(a.ptr()) || Py_TYPE(a.ptr()) == &PyDictProxy_Type))
        a = iterators().list_of(a);
    if (PyType_IsSubtype(t, &PyDict_Type) || of_set)
      for (py::object& a : args) guard_filling(a);
    const bool container = t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type ||
                           t == &PyEnum_Type || t == &PyZip_Type || t == &PyReversed_Type ||
                           t == &PySlice_Type || t == &PyBaseObject_Type || t == &PySuper_Type ||
                           is_descriptor || module == "collections" || module == "functools" ||
                           t == &PyDictProxy_Type || exception || module == "torch.return_types" ||
                           (type_traits(t) & native::TakesApart) != 0 ||
                           std::string_view(t->tp_name) == "types.SimpleNamespace";
    if (is_torch_size(t) && args.size() == 1 && mentions_symbolic_int(args[0]))
      return steal(PyTuple_Type.tp_new(t, tuple_of(args).ptr(), nullptr));
    // Beside the items there is how many.
    if ((type_traits(t) & native::TakesAll) != 0 && !PyType_IsSubtype(t, &PyDict_Type)) {
      for (py::object& a : args) a = plain_size(a);
      for (auto& [name, a] : kwargs) a = plain_size(a);
    }
    if (!container) {
      for (py::object& a : args) a = arrays().with_scalars(a);
      sizes().make_plain(args, kwargs);
      // The keys of a set are guarded.
      if (!of_set || !std::ranges::all_of(args, [](const py::object& a) {
            return PyList_CheckExact(a.ptr()) || PyTuple_CheckExact(a.ptr()) ||
                   PyAnySet_CheckExact(a.ptr());
          }))
        require_plain(args, kwargs, type);
    }
    py::object made = call_real(type, args, kwargs);
    if (PyType_Check(made.ptr())) throw Break(BreakId::local_class, "an enum made by a call");
    return made;
  }
  // Made by tp_new alone, an object of C++ is an empty one.
  if (std::string_view(Py_TYPE(type.ptr())->tp_name) == "pybind11_builtins.pybind11_type")
    throw Break(BreakId::object_construction, t->tp_name);
  // That of a TypedDict is `dict`, which a call does not bind to the class.
  PyObject* on_call = objects().type_member(Py_TYPE(type.ptr()), names().call_);
  if (on_call != nullptr && PyType_Check(on_call))
    return call_type(on_call, std::move(args), std::move(kwargs));
  static PyObject* const make = _PyType_Lookup(&PyType_Type, names().call_);
  if (on_call != nullptr && on_call != make && !generic) {
    if (!PyFunction_Check(on_call))
      throw Break(BreakId::object_construction, t->tp_name, ": its metaclass has __call__");
    args.insert(args.begin(), borrow(type));
    return call(on_call, std::move(args), std::move(kwargs));
  }
  if (objects().type_member(t, py::str("__del__")) != nullptr)
    throw Break(BreakId::object_construction, t->tp_name, ": it has a __del__");
  if (PyType_IsSubtype(t, as_type(member_of<"torch", "Tensor">())) &&
      any_argument(args, kwargs, mentions_array))
    throw Break(BreakId::numpy, t->tp_name, " of an array");
  py::object made;
  py::object creator = borrow(objects().type_member(t, names().new_));
  if (Py_TYPE(creator.ptr()) == &PyStaticMethod_Type) {
    Arguments with_type{borrow(type)};
    with_type.insert(with_type.end(), args.begin(), args.end());
    made = call(creator.attr("__func__"), std::move(with_type), kwargs);
  } else {
    made = call_new(t, args, kwargs);
  }
  heap().hold(made);
  if (!PyType_IsSubtype(Py_TYPE(made.ptr()), t)) return made;
  t = Py_TYPE(made.ptr());  // __new__ may have made one of a derived class
  PyObject* init = objects().type_member(t, names().init_);
  if (init != nullptr && PyFunction_Check(init)) {
    args.insert(args.begin(), made);
    py::object out = call(init, std::move(args), std::move(kwargs));
    if (!out.is_none())
      type_error("__init__() should return None, not '", Py_TYPE(out.ptr())->tp_name, "'");
  } else if (t->tp_init != PyBaseObject_Type.tp_init) {
    for (auto& a : args)
      if (!is_derived_value(a.ptr())) a = heap().contents(a);
    if (PyDict_Check(made.ptr()) || PySet_Check(made.ptr()))
      for (py::object& a : args) guard_filling(a);
    if (is_deque(made)) {
      for (py::object& a : args) a = plain_size(a);
      for (auto& [name, a] : kwargs) a = plain_size(a);
    }
    call_real(steal(PyObject_GetAttr(made.ptr(), names().init_)), args, kwargs);
  }
  return made;
}

}  // namespace oxy::python
