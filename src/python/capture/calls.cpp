// Calls: Python functions are inlined, classes instantiated, functions written in C known by name or refused.
#include <torch/csrc/autograd/python_variable.h>

#include <set>

#include "python/capture/names.h"
#include "python/capture/tracer.h"
#include "python/compiled_function.h"
#include "python/cpython/thread_state.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxDepth = 150;

[[noreturn]] void type_error(const std::string& text) {
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw py::error_already_set();
}

std::string name_of(py::handle callable) {
  PyObject* p = callable.ptr();
  if (PyCFunction_Check(p)) return reinterpret_cast<PyCFunctionObject*>(p)->m_ml->ml_name;
  if (Py_TYPE(p) == &PyMethodDescr_Type || Py_TYPE(p) == &PyWrapperDescr_Type)
    return py::handle(PyDescr_NAME(p)).cast<std::string>();
  return py::hasattr(callable, "__name__") ? py::str(callable.attr("__name__")).cast<std::string>()
                                           : std::string(Py_TYPE(callable.ptr())->tp_name);
}

std::string module_of(py::handle callable) {
  PyObject* m = PyObject_GetAttrString(callable.ptr(), "__module__");
  if (m == nullptr) PyErr_Clear();
  py::object held = py::reinterpret_steal<py::object>(m);
  return held && py::isinstance<py::str>(held) ? held.cast<std::string>() : std::string();
}

py::object builtin(const char* name) { return py::module_::import("builtins").attr(name); }

bool has_python_init(PyTypeObject* type) {
  PyObject* init = _PyType_Lookup(type, names().init_);
  return init != nullptr && PyFunction_Check(init);
}

// Iterators written in C that take what they are given apart, and call nothing.
bool takes_iterables(PyTypeObject* type) {
  static const std::set<std::string> names = {
      "chain",        "islice",       "cycle",       "repeat",   "product",
      "permutations", "combinations", "zip_longest", "pairwise", "combinations_with_replacement"};
  const std::string name = type->tp_name;
  return name.starts_with("itertools.") && names.contains(name.substr(10));
}

// What a function of these names and modules does depends on its arguments alone.
bool is_pure(const std::string& module, const std::string& name) {
  static const std::set<std::string> modules = {"math", "_operator", "cmath", "itertools",
                                                "_functools"};
  static const std::set<std::string> builtins = {
      "abs",    "min", "max", "round", "divmod", "pow",        "ord",   "chr",     "hash",
      "format", "bin", "hex", "oct",   "repr",   "issubclass", "ascii", "callable"};
  return modules.contains(module) || (module == "builtins" && builtins.contains(name));
}

bool reads_frame(const std::string& module, const std::string& name) {
  static const std::set<std::string> builtins = {"locals", "vars", "dir", "eval", "exec"};
  return (module == "builtins" && builtins.contains(name)) ||
         (module == "sys" && name == "_getframe");
}

// oxyfuel.graph_break, and torch's own.
bool asks_for_break(PyFunctionObject* f) {
  return PyUnicode_CompareWithASCIIString(f->func_name, "graph_break") == 0 &&
         f->func_module != nullptr &&
         (PyUnicode_CompareWithASCIIString(f->func_module, "oxyfuel.api") == 0 ||
          PyUnicode_CompareWithASCIIString(f->func_module, "torch._dynamo.decorators") == 0);
}

}  // namespace

bool is_disabled(PyFunctionObject* function) {
  if (function->func_dict == nullptr) return false;
  for (const char* mark : {"_oxyfuel_disable", "_torchdynamo_disable"})
    if (PyDict_GetItemString(function->func_dict, mark) != nullptr) return true;
  return false;
}

bool Tracer::mentions_tensor(py::handle o, int depth) {
  PyObject* p = o.ptr();
  if (is_tensor_object(p)) return true;
  if (depth > 4) return true;
  if (PyTuple_Check(p) || PyList_Check(p)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++)
      if (mentions_tensor(PySequence_Fast_GET_ITEM(p, i), depth + 1)) return true;
  } else if (PyDict_Check(p)) {
    for (auto item : py::reinterpret_borrow<py::dict>(o))
      if (mentions_tensor(item.second, depth + 1)) return true;
  } else if (PySlice_Check(p)) {
    auto* s = reinterpret_cast<PySliceObject*>(p);
    return mentions_tensor(s->start) || mentions_tensor(s->stop) || mentions_tensor(s->step);
  }
  return false;
}

bool Tracer::mentions_tensor(const Arguments& args, const Keywords& kwargs) {
  for (const auto& a : args)
    if (mentions_tensor(a)) return true;
  for (const auto& [key, a] : kwargs)
    if (mentions_tensor(a)) return true;
  return false;
}

// Only numbers, strings and what is made of them: nothing that Python code or the user's state hides behind.
void Tracer::require_plain(py::handle o, py::handle callable) {
  PyObject* p = o.ptr();
  auto refuse = [&] {
    throw Break(BreakId::builtin_on_existing,
                cat(name_of(callable), " with a ", Py_TYPE(p)->tp_name));
  };
  if (exists(o) || is_tensor_object(p) || generators_.contains(p)) refuse();
  if (PyTuple_Check(p) || PyList_Check(p)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++)
      require_plain(PySequence_Fast_GET_ITEM(p, i), callable);
  } else if (PyDict_Check(p)) {
    for (auto item : py::reinterpret_borrow<py::dict>(o)) require_plain(item.second, callable);
  } else if (PyFunction_Check(p) || (Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    if (!PyType_Check(p)) refuse();
  }
}

py::object Tracer::call_real(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  py::tuple positional(args.size());
  for (size_t i = 0; i < args.size(); i++) positional[i] = args[i];
  py::dict named;
  for (const auto& [key, value] : kwargs) named[key] = value;
  py::object out = steal(
      PyObject_Call(callable.ptr(), positional.ptr(), kwargs.empty() ? nullptr : named.ptr()));
  if (is_tensor_object(out.ptr()) && !is_tensor(out))
    throw Break(BreakId::torch_call, cat(name_of(callable), " returns a tensor"));
  held_.push_back(out);
  return out;
}

py::object Tracer::call(py::handle callable, Arguments args, Keywords kwargs) {
  PyObject* p = callable.ptr();
  const bool direct = std::exchange(direct_, false);
  if (PyMethod_Check(p)) {
    args.insert(args.begin(), borrow(PyMethod_GET_SELF(p)));
    direct_ = direct;
    return call(PyMethod_GET_FUNCTION(p), std::move(args), std::move(kwargs));
  }
  if (auto done = call_special(callable, args, kwargs)) return *done;
  if (auto done = call_torch(callable, args, kwargs)) return *done;
  if (PyFunction_Check(p)) {
    direct_ = direct;
    return call_function(callable, std::move(args), std::move(kwargs));
  }
  if (PyType_Check(p)) return call_type(callable, std::move(args), std::move(kwargs));
  if (PyCFunction_Check(p) || Py_TYPE(p) == &PyMethodDescr_Type ||
      Py_TYPE(p) == &PyWrapperDescr_Type || Py_TYPE(p) == &_PyMethodWrapper_Type ||
      Py_TYPE(p) == &PyClassMethodDescr_Type)
    return call_native(callable, std::move(args), std::move(kwargs));
  if (Py_TYPE(p) == compiled_function_type()) {
    guard(GuardKind::IdIs, source_of(callable), callable);
    direct_ = direct;
    return call(callable.attr("__wrapped__"), std::move(args), std::move(kwargs));
  }
  static const py::object& partial =
      *new py::object(py::module_::import("functools").attr("partial"));
  if (partial.ptr() == reinterpret_cast<PyObject*>(Py_TYPE(p))) {
    if (exists(callable)) {
      guard(GuardKind::IdIs, source_of(callable), callable);
      if (mentions_tensor(callable.attr("args")) || mentions_tensor(callable.attr("keywords")))
        throw Break(BreakId::builtin_on_existing, "a partial with tensors");
    }
    Arguments all;
    for (py::handle a : py::tuple(callable.attr("args"))) all.push_back(borrow(a.ptr()));
    all.insert(all.end(), args.begin(), args.end());
    py::dict named = callable.attr("keywords").attr("copy")();
    for (const auto& [key, value] : kwargs) named[key] = value;
    Keywords all_named;
    for (auto [key, value] : named) all_named.emplace_back(borrow(key.ptr()), borrow(value.ptr()));
    direct_ = direct;
    return call(callable.attr("func"), std::move(all), std::move(all_named));
  }
  PyObject* own = _PyType_Lookup(Py_TYPE(p), names().call_);
  if (own != nullptr && PyFunction_Check(own)) {
    guard(GuardKind::IdIs,
          sources.type_attribute(
              sources.pinned(reinterpret_cast<PyObject*>(Py_TYPE(p)), Py_TYPE(p)->tp_name),
              names().call_),
          own);
    args.insert(args.begin(), borrow(p));
    direct_ = direct;
    return call(own, std::move(args), std::move(kwargs));
  }
  if (own == nullptr) type_error(cat("'", Py_TYPE(p)->tp_name, "' object is not callable"));
  throw Break(BreakId::builtin_call, cat("an object of type ", Py_TYPE(p)->tp_name));
}

// ------------------------------------------------------------------------------------------------ Python functions

std::vector<py::object> Tracer::bind_arguments(py::handle function, Arguments args,
                                               Keywords kwargs) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  auto name = [&] { return py::handle(f->func_qualname).cast<std::string>(); };
  const auto positional = static_cast<size_t>(code->co_argcount);
  const auto named = positional + static_cast<size_t>(code->co_kwonlyargcount);
  const bool fresh = known(function) && !known(function)->source.valid();
  std::vector<py::object> fast(static_cast<size_t>(code->co_nlocalsplus));
  const size_t taken = std::min(args.size(), positional);
  for (size_t i = 0; i < taken; i++) fast[i] = std::move(args[i]);
  size_t slot = named;
  if (code->co_flags & CO_VARARGS) {
    py::tuple rest(args.size() - taken);
    for (size_t i = taken; i < args.size(); i++) rest[i - taken] = args[i];
    fast[slot++] = std::move(rest);
  } else if (taken < args.size()) {
    type_error(cat(name(), "() takes ", positional, " positional arguments but ", args.size(),
                   " were given"));
  }
  py::object extra;
  if (code->co_flags & CO_VARKEYWORDS) extra = py::dict();
  for (auto& [key, value] : kwargs) {
    size_t at = named;
    for (size_t i = static_cast<size_t>(code->co_posonlyargcount); i < named; i++)
      if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), key.ptr()) == 0) at = i;
    auto text = [&] { return py::str(key).cast<std::string>(); };
    if (at == named) {
      if (!extra) type_error(cat(name(), "() got an unexpected keyword argument '", text(), "'"));
      extra[key] = value;
    } else if (fast[at]) {
      type_error(cat(name(), "() got multiple values for argument '", text(), "'"));
    } else {
      fast[at] = std::move(value);
    }
  }
  if (code->co_flags & CO_VARKEYWORDS) fast[slot] = extra;
  auto source = [&] { return function_source(function, name()); };
  const Py_ssize_t defaults = f->func_defaults ? PyTuple_GET_SIZE(f->func_defaults) : 0;
  for (size_t i = 0; i < named; i++) {
    if (fast[i]) continue;
    py::object key = borrow(PyTuple_GET_ITEM(code->co_localsplusnames, i));
    if (i < positional) {
      const Py_ssize_t d =
          static_cast<Py_ssize_t>(i) - (static_cast<Py_ssize_t>(positional) - defaults);
      if (d >= 0) {
        PyObject* value = PyTuple_GET_ITEM(f->func_defaults, d);
        fast[i] = fresh ? borrow(value) : wrap(value, sources.default_(source(), d));
        continue;
      }
    } else if (f->func_kwdefaults) {
      if (PyObject* value = PyDict_GetItemWithError(f->func_kwdefaults, key.ptr())) {
        fast[i] = fresh ? borrow(value) : wrap(value, sources.kw_default(source(), key));
        continue;
      }
    }
    type_error(
        cat(name(), "() missing a required argument: '", py::str(key).cast<std::string>(), "'"));
  }
  return fast;
}

py::object Tracer::call_function(py::handle function, Arguments args, Keywords kwargs) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (frames_.size() > kMaxDepth || static_cast<int>(frames_.size()) >= recursion_left())
    throw Break(BreakId::deep_inlining, name_of(function));
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, name_of(function));
  if (asks_for_break(f)) throw Break(BreakId::asked, "");
  if (is_disabled(f)) throw Break(BreakId::disabled, name_of(function));
  const bool direct = std::exchange(direct_, false);
  auto frame = std::make_unique<TracedFrame>();
  frame->function = borrow(function.ptr());
  frame->code = code;
  frame->bytecode = bytecode_of(code);
  frame->fast = bind_arguments(function, std::move(args), std::move(kwargs));
  if (code->co_flags & CO_GENERATOR) {
    TracedFrame* raw = frame.release();
    py::object capsule = steal(PyCapsule_New(raw, nullptr, [](PyObject* c) {
      delete static_cast<TracedFrame*>(PyCapsule_GetPointer(c, nullptr));
    }));
    py::object stand_in = builtin("object")();
    held_.push_back(stand_in);
    generators_[stand_in.ptr()] = capsule;
    return stand_in;
  }
  direct_ = direct;
  return interpret(*frame);
}

// ---------------------------------------------------------------------------------------------------- classes

py::object Tracer::call_type(py::handle type, Arguments args, Keywords kwargs) {
  auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
  const bool iterates = t == &PyEnum_Type || t == &PyZip_Type || t == &PyList_Type ||
                        t == &PyTuple_Type || t == &PySet_Type;
  for (auto& a : args)
    if (generators_.contains(a.ptr()) || (iterates && is_tensor(a))) a = list_of(a);
  const bool heap = t->tp_flags & Py_TPFLAGS_HEAPTYPE;
  const bool exception = PyType_IsSubtype(t, (PyTypeObject*)PyExc_BaseException);
  const std::string module = module_of(type);
  const bool exception_of_python = exception && has_python_init(t);
  static const py::object& enum_meta =
      *new py::object(py::module_::import("enum").attr("EnumMeta"));
  if (!heap || module == "builtins" || module == "collections" || module == "itertools" ||
      module == "functools" || (exception && !exception_of_python) ||
      py::isinstance(type, enum_meta)) {
    for (auto& a : args) {
      if (t == &PySuper_Type || t == &PyStaticMethod_Type || exception || module == "functools")
        continue;
      PyObject* own = _PyType_Lookup(Py_TYPE(a.ptr()), names().iter_);
      if (own != nullptr && PyFunction_Check(own) && !is_tensor(a) && !PyType_Check(a.ptr()))
        a = list_of(a);
      else if (exists(a))
        a = contents(a);
    }
    const bool container = t == &PyList_Type || t == &PyTuple_Type || t == &PyDict_Type ||
                           t == &PyEnum_Type || t == &PyZip_Type || t == &PyReversed_Type ||
                           t == &PySlice_Type || t == &PyBaseObject_Type || t == &PySuper_Type ||
                           t == &PyStaticMethod_Type || module == "collections" ||
                           module == "functools" || t == &PyDictProxy_Type || exception ||
                           takes_iterables(t) || std::string(t->tp_name) == "types.SimpleNamespace";
    if (!container) {
      for (const auto& a : args) require_plain(a, type);
      for (const auto& [key, a] : kwargs) require_plain(a, type);
    }
    return call_real(type, args, kwargs);
  }
  PyObject* metacall = _PyType_Lookup(Py_TYPE(type.ptr()), names().call_);
  if (metacall != nullptr && PyFunction_Check(metacall))
    throw Break(BreakId::object_construction, cat(t->tp_name, ": its metaclass has __call__"));
  py::object made;
  py::object creator = borrow(_PyType_Lookup(t, names().new_));
  if (Py_TYPE(creator.ptr()) == &PyStaticMethod_Type) {
    Arguments with_type = args;
    with_type.insert(with_type.begin(), borrow(type.ptr()));
    made = call(creator.attr("__func__"), with_type, kwargs);
  } else {
    py::tuple given(exception ? args.size() : 0);
    for (size_t i = 0; i < given.size(); i++) given[i] = args[i];
    made = steal(t->tp_new(t, given.ptr(), nullptr));
  }
  held_.push_back(made);
  if (!PyType_IsSubtype(Py_TYPE(made.ptr()), t)) return made;
  PyObject* init = _PyType_Lookup(t, names().init_);
  if (init != nullptr && PyFunction_Check(init)) {
    args.insert(args.begin(), made);
    call(init, std::move(args), std::move(kwargs));
  } else if (t->tp_init != PyBaseObject_Type.tp_init) {
    for (auto& a : args) a = contents(a);
    call_real(steal(PyObject_GetAttr(made.ptr(), names().init_)), args, kwargs);
  }
  return made;
}

// ------------------------------------------------------------------------------------------- functions written in C

py::object Tracer::call_native(py::handle callable, Arguments args, Keywords kwargs) {
  PyObject* p = callable.ptr();
  const std::string name = name_of(callable);
  if (Py_TYPE(p) == &PyMethodDescr_Type || Py_TYPE(p) == &PyWrapperDescr_Type) {
    if (args.empty()) type_error(cat("unbound method ", name, " needs an argument"));
    py::object self = args.front();
    args.erase(args.begin());
    if (is_tensor(self)) return call_method(self, name, args, kwargs);
    auto* type = (PyObject*)Py_TYPE(self.ptr());
    return call_native(steal(Py_TYPE(p)->tp_descr_get(p, self.ptr(), type)), std::move(args),
                       std::move(kwargs));
  }
  py::object self = steal(PyObject_GetAttr(p, names().self_));
  for (auto& a : args)
    if (generators_.contains(a.ptr())) a = list_of(a);
  if (name == "__new__" && PyType_Check(self.ptr())) {
    if (args.empty() || !PyType_Check(args[0].ptr())) type_error("__new__ needs a type");
    for (size_t i = 1; i < args.size(); i++)
      if (exists(args[i])) args[i] = contents(args[i]);
    return call_real(callable, args, kwargs);
  }
  if (PyModule_Check(self.ptr()) || self.is_none()) {
    const std::string module = module_of(callable);
    if (module == "_operator" && mentions_tensor(args, kwargs)) return operate(callable, args);
    if (reads_frame(module, name)) throw Break(BreakId::frame_access, name);
    if (!is_pure(module, name)) throw Break(BreakId::builtin_call, cat(module, ".", name));
    for (auto& a : args) {
      if (exists(a)) a = contents(a);
      require_plain(a, callable);
    }
    return call_real(callable, args, kwargs);
  }
  if (PyType_Check(self.ptr())) {
    for (const auto& a : args)
      if (exists(a)) throw Break(BreakId::builtin_on_existing, name);
    return call_real(callable, args, kwargs);
  }
  if (name == "__init__" && args.empty()) return py::none();
  if (name == "__getattribute__" && args.size() == 1)
    return load_instance_attr(self, args[0], true);
  if (name == "__setattr__" && args.size() == 2) {
    store_generic_attr(self, args[0], args[1]);
    return py::none();
  }
  if (name == "__delattr__" && args.size() == 1) {
    store_generic_attr(self, args[0], {});
    return py::none();
  }
  py::object target = borrow(p);
  if (exists(self)) {
    static const std::set<std::string> reads = {
        "keys",         "values",     "items",        "copy",         "index",
        "count",        "__len__",    "__iter__",     "__contains__", "__getitem__",
        "__reversed__", "union",      "intersection", "difference",   "symmetric_difference",
        "issubset",     "issuperset", "isdisjoint"};
    if (auto done = change_existing(self, name, args, kwargs)) return *done;
    if (name == "copy" && PyDict_Check(self.ptr()) && !PyDict_CheckExact(self.ptr()) &&
        Py_TYPE(self.ptr()) != &PyODict_Type)
      throw Break(BreakId::builtin_on_existing, cat(Py_TYPE(self.ptr())->tp_name, ".copy"));
    if (!reads.contains(name))
      throw Break(BreakId::side_effect, cat(Py_TYPE(self.ptr())->tp_name, ".", name));
    if (name == "__contains__" && args.size() == 1) return contains(self, args[0]);
    if (name == "__getitem__" && args.size() == 1) return subscript(self, args[0]);
    target = contents(self).attr(name.c_str());
  }
  if (name == "sort" && PyList_Check(self.ptr()) && args.empty())
    return sort(self, kwargs), py::none();
  static const std::set<std::string> comparing = {"index",  "count",  "remove",      "__eq__",
                                                  "__ne__", "__lt__", "__contains__"};
  if (comparing.contains(name) && (mentions_tensor(self) || mentions_tensor(args, kwargs)))
    throw Break(BreakId::data_dependent, cat(name, " compares tensors"));
  const bool text = PyUnicode_Check(self.ptr()) || PyBytes_Check(self.ptr()) ||
                    PyLong_Check(self.ptr()) || PyFloat_Check(self.ptr());
  static const std::set<std::string> keeping = {
      "append", "appendleft", "insert", "add", "setdefault", "get", "pop", "__setitem__"};
  for (auto& a : args) {
    if (!keeping.contains(name)) a = deep_contents(a);
    if (text) require_plain(a, callable);
  }
  const bool known_self = text || PyList_Check(self.ptr()) || PyTuple_Check(self.ptr()) ||
                          PyDict_Check(self.ptr()) || PyAnySet_Check(self.ptr()) ||
                          module_of((PyObject*)Py_TYPE(self.ptr())) == "collections" ||
                          (PyExceptionInstance_Check(self.ptr()) && name == "__init__");
  if (!known_self) throw Break(BreakId::builtin_call, cat(Py_TYPE(self.ptr())->tp_name, ".", name));
  return call_real(target, args, kwargs);
}

// What has a meaning of its own for the interpreter.
std::optional<py::object> Tracer::call_special(py::handle callable, Arguments& args,
                                               Keywords& kwargs) {
  enum Special {
    IsInstance,
    Type,
    Len,
    GetAttr,
    HasAttr,
    SetAttr,
    DelAttr,
    Sorted,
    Reduce,
    Accumulate,
    Iter,
    Next,
    Any,
    All,
    Sum,
    Map,
    Filter,
    Bool,
    Int,
    Float,
    Super,
    Callable,
    Signature,
    True_,
    False_
  };
  static const std::unordered_map<PyObject*, Special>& specials = *[] {
    auto* m = new std::unordered_map<PyObject*, Special>();
    auto add = [&](const py::object& o, Special s) { m->emplace(o.inc_ref().ptr(), s); };
    add(builtin("isinstance"), IsInstance), add(builtin("type"), Type), add(builtin("len"), Len);
    add(builtin("getattr"), GetAttr), add(builtin("hasattr"), HasAttr);
    add(builtin("delattr"), DelAttr), add(builtin("sorted"), Sorted);
    add(builtin("setattr"), SetAttr), add(builtin("iter"), Iter), add(builtin("next"), Next);
    add(builtin("any"), Any), add(builtin("all"), All), add(builtin("sum"), Sum);
    add(builtin("map"), Map), add(builtin("filter"), Filter), add(builtin("bool"), Bool);
    add(builtin("int"), Int), add(builtin("float"), Float), add(builtin("super"), Super);
    add(builtin("callable"), Callable);
    add(py::module_::import("inspect").attr("signature"), Signature);
    add(py::module_::import("functools").attr("reduce"), Reduce);
    add(py::module_::import("itertools").attr("accumulate"), Accumulate);
    py::module_ torch = py::module_::import("torch");
    add(torch.attr("compiler").attr("is_compiling"), True_);
    add(torch.attr("compiler").attr("is_dynamo_compiling"), True_);
    add(torch.attr("jit").attr("is_scripting"), False_);
    add(torch.attr("jit").attr("is_tracing"), False_);
    for (const char* name :
         {"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"})
      add(torch.attr("overrides").attr(name), False_);
    return m;
  }();
  auto it = specials.find(callable.ptr());
  if (it == specials.end()) return std::nullopt;
  auto real = [&](const py::object& o) {
    Known* k = known(o);
    return k && k->value && k->original ? k->original : o;
  };
  switch (it->second) {
    case True_:
      return py::bool_(true);
    case False_:
      return py::bool_(false);
    case IsInstance: {
      if (args.size() != 2) type_error("isinstance expected 2 arguments");
      const int yes = PyObject_IsInstance(real(args[0]).ptr(), args[1].ptr());
      if (yes < 0) throw py::error_already_set();
      return py::bool_(yes == 1);
    }
    case Type:
      if (args.size() != 1) return std::nullopt;
      return type_of(args[0]);
    case Len: {
      if (args.size() != 1) return std::nullopt;
      if (is_tensor(args[0])) return py::int_(THPVariable_Unpack(args[0].ptr()).size(0));
      PyObject* own = _PyType_Lookup(Py_TYPE(args[0].ptr()), names().len_);
      if (own != nullptr && PyFunction_Check(own)) return call(own, {args[0]});
      if (exists(args[0]) && PyDict_Check(args[0].ptr()) && !known(args[0])->writes) {
        guard(GuardKind::Length, known(args[0])->source, {}, PyDict_Size(args[0].ptr()));
        return py::int_(PyDict_Size(args[0].ptr()));
      }
      return call_real(callable, {contents(args[0])}, {});
    }
    case GetAttr:
      if (args.size() == 3) {
        try {
          return load_attr(args[0], args[1]);
        } catch (py::error_already_set& e) {
          if (!e.matches(PyExc_AttributeError)) throw;
          return args[2];
        }
      }
      if (args.size() != 2) type_error("getattr expected 2 or 3 arguments");
      return load_attr(args[0], args[1]);
    case HasAttr:
      if (args.size() != 2) type_error("hasattr expected 2 arguments");
      try {
        load_attr(args[0], args[1]);
        return py::bool_(true);
      } catch (py::error_already_set& e) {
        if (!e.matches(PyExc_AttributeError)) throw;
        return py::bool_(false);
      }
    case SetAttr:
      if (args.size() != 3) type_error("setattr expected 3 arguments");
      store_attr(args[0], args[1], args[2]);
      return py::none();
    case DelAttr:
      if (args.size() != 2) type_error("delattr expected 2 arguments");
      store_attr(args[0], args[1], {});
      return py::none();
    case Sorted: {
      if (args.size() != 1) type_error("sorted expected 1 argument");
      py::object list = list_of(args[0]);
      sort(list, kwargs);
      return list;
    }
    case Reduce: {
      py::object iterator = iterate(args.at(1));
      py::object total = args.size() > 2 ? args[2] : iter_next(iterator);
      if (!total) type_error("reduce() of empty iterable with no initial value");
      while (py::object item = iter_next(iterator)) total = call(args[0], {total, item});
      return total;
    }
    case Accumulate: {
      if (!kwargs.empty() || args.empty()) throw Break(BreakId::builtin_call, "accumulate");
      static const py::object& add = *new py::object(py::module_::import("operator").attr("add"));
      const py::object function = args.size() > 1 && !args[1].is_none() ? args[1] : add;
      py::list totals;
      py::object iterator = iterate(args[0]), total;
      while (py::object item = iter_next(iterator)) {
        total = !total             ? item
                : function.is(add) ? operate(add, {total, item})
                                   : call(function, {total, item});
        totals.append(total);
      }
      return steal(PyObject_GetIter(totals.ptr()));
    }
    case Iter:
      if (args.size() != 1) return std::nullopt;
      return iterate(args[0]);
    case Next:
      if (args.empty()) return std::nullopt;
      if (py::object item = iter_next(args[0])) return item;
      if (args.size() > 1) return args[1];
      PyErr_SetNone(PyExc_StopIteration);
      throw py::error_already_set();
    case Any:
    case All: {
      const bool stop = it->second == Any;
      py::object iterator = iterate(args.at(0));
      while (py::object item = iter_next(iterator))
        if (truth(item) == stop) return py::bool_(stop);
      return py::bool_(!stop);
    }
    case Sum: {
      static const py::object& add = *new py::object(py::module_::import("operator").attr("add"));
      py::object total = args.size() > 1      ? args[1]
                         : kwargs.size() == 1 ? kwargs[0].second
                                              : py::int_(0);
      py::object iterator = iterate(args.at(0));
      while (py::object item = iter_next(iterator)) total = operate(add, {total, item});
      return total;
    }
    case Map: {
      std::vector<py::object> iterators;
      for (size_t i = 1; i < args.size(); i++) iterators.push_back(iterate(args[i]));
      py::list out;
      for (bool more = !iterators.empty(); more;) {
        Arguments items;
        for (auto& iterator : iterators) {
          py::object item = iter_next(iterator);
          more = more && item;
          if (!more) break;
          items.push_back(item);
        }
        if (more) out.append(call(args[0], items));
      }
      return steal(PyObject_GetIter(out.ptr()));
    }
    case Filter: {
      py::list out;
      py::object iterator = iterate(args.at(1));
      while (py::object item = iter_next(iterator))
        if (truth(args[0].is_none() ? item : call(args[0], {item}))) out.append(item);
      return steal(PyObject_GetIter(out.ptr()));
    }
    case Callable:
      return py::bool_(PyCallable_Check(args.at(0).ptr()) != 0);
    case Signature:  // of a function or method: its code and defaults, which are guarded by identity
      if (args.size() != 1 || !(PyFunction_Check(args[0].ptr()) || PyMethod_Check(args[0].ptr())))
        return std::nullopt;
      return call_real(callable, args, kwargs);
    case Bool:
      return py::bool_(!args.empty() && truth(args[0]));
    case Int:
    case Float:
      if (!args.empty() && is_tensor(args[0]))
        throw Break(BreakId::data_dependent, "a number made of a tensor");
      return std::nullopt;
    case Super: {
      if (!args.empty() || frames_.empty()) return std::nullopt;
      TracedFrame& f = *frames_.back();
      for (int i = 0; i < f.code->co_nlocalsplus; i++) {
        PyObject* name = PyTuple_GET_ITEM(f.code->co_localsplusnames, i);
        if (!is_name(name, names().class_) || !PyCell_Check(f.fast[i].ptr())) continue;
        py::object self = f.fast[0];
        if (PyCell_Check(self.ptr())) self = borrow(PyCell_GET(self.ptr()));
        return call_real(callable, {borrow(PyCell_GET(f.fast[i].ptr())), self}, {});
      }
      throw Break(BreakId::builtin_call, "super() without a class");
    }
  }
  return std::nullopt;
}

}  // namespace oxy::python
