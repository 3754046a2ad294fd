// Functions and methods written in C: maps of the rows of natives.def (by full name, by type, by
// name alone), what the interpreter follows instead of those that call what they are given
// (oxyfuel.polyfills), and the calls of the others: known by name, run for real on plain arguments,
// or refused.
#include "python/capture/natives.h"

#include <ranges>

#include "python/capture/plan_rebuild.h"
#include "python/cpython/code_object.h"
#include "python/cpython/types.h"
#include "python/guards/evaluate.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

using namespace native;

constexpr const char* kPolyfills = "oxyfuel.polyfills";

std::string key_of(std::string_view module, std::string_view type, std::string_view name) {
  return cat(module, ":", type, ":", name);
}

struct Tables {
  std::vector<Native> rows;
  std::unordered_map<std::string, uint32_t> by_place;
  std::unordered_map<std::string_view, uint32_t> by_name;

  void add(std::string_view module, std::string_view type, std::string_view names,
           uint32_t traits) {
    for (auto name : std::views::split(names, ' '))
      rows.push_back({module, type, std::string_view(name.begin(), name.end()), traits});
  }

  Tables() {
#define OXY_NATIVE(module, type, names, traits) add(module, type, names, traits);
#include "python/capture/natives.def"
#undef OXY_NATIVE
    for (const Native& n : rows) {
      by_place[key_of(n.module, n.type, n.name)] |= n.traits;
      by_name[n.name] |= n.traits;
    }
  }
};

const Tables& tables() {
  static const auto& all = *new Tables();
  return all;
}

template <typename Map, typename Key>
uint32_t found_in(const Map& map, const Key& key) {
  auto it = map.find(key);
  return it == map.end() ? 0 : it->second;
}

// Functions and methods that go through this argument, an iterable, to its end.
bool takes_whole(const std::string& name, size_t argument) {
  const uint32_t traits = method_traits(name);
  const bool to_the_end =
      (traits & native::TakesFirst) != 0 || (name == "issubset" && !kIssubsetStopsEarly);
  return (argument == 0 && to_the_end) || (traits & native::TakesEach) != 0;
}

// dict's method, where OrderedDict has one of its own: it leaves the order as it is.
bool is_hidden_by_ordered_dict(PyObject* bound) {
  PyObject* descriptor = method_descriptor(bound);
  if (descriptor == nullptr) return false;
  auto* d = reinterpret_cast<PyDescrObject*>(descriptor);
  return d->d_type == &PyDict_Type &&
         PyDict_GetItemWithError(type_dict(&PyODict_Type), d->d_name) != nullptr;
}

// The traits of a method that is bound to a class: by the metaclass that has it, or, of a class
// method, by the one among the bases.
uint32_t class_method_traits(py::handle bound, PyTypeObject* type, const std::string& name) {
  PyTypeObject* holder = nullptr;
  if (PyObject* descriptor = method_descriptor(bound.ptr())) {
    holder = PyDescr_TYPE(descriptor);
  } else {
    for (py::handle base : borrow(type->tp_mro))
      if (holder == nullptr && PyDict_GetItemString(type_dict(as_type(base)), name.c_str()))
        holder = as_type(base);
  }
  if (holder == nullptr) return 0;
  const std::string_view place = holder->tp_name;
  const size_t dot = place.rfind('.');
  return dot == std::string_view::npos
             ? native_traits("builtins", place, name)
             : native_traits(place.substr(0, dot), place.substr(dot + 1), name);
}

}  // namespace

const std::vector<Native>& native_table() { return tables().rows; }

uint32_t native_traits(std::string_view module, std::string_view type, std::string_view name) {
  return found_in(tables().by_place, key_of(module, type, name));
}

uint32_t type_traits(PyTypeObject* type) {
  static auto& known = *new std::unordered_map<PyTypeObject*, uint32_t>();  // types that stay
  const std::string_view name = type->tp_name;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
    return 0;  // a class of Python's
  if (auto it = known.find(type); it != known.end()) return it->second;
  const uint32_t traits = dot == std::string_view::npos
                              ? native_traits("builtins", "", name)
                              : native_traits(name.substr(0, dot), "", name.substr(dot + 1));
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) known.emplace(type, traits);
  return traits;
}

uint32_t method_traits(std::string_view name) { return found_in(tables().by_name, name); }

uint32_t target_traits(std::string_view target) {
  const size_t dot = target.rfind('.');
  return dot == std::string_view::npos
             ? tensor_traits(target)
             : native_traits(target.substr(0, dot), "", target.substr(dot + 1));
}

py::object polyfill_of(py::handle callable) {
  static const auto& table = *[] {
    auto* made = new std::unordered_map<PyObject*, py::object>();
    const RefusedFrames allowed(nullptr);  // the import runs
    const py::module_ functions = py::module_::import(kPolyfills);
    auto add = [&](const char* module, const char* name) {
      const py::object original = py::module_::import(module).attr(name);
      made->emplace(original.inc_ref().ptr(), functions.attr(name));
    };
    add("collections", "_count_elements");
    add("functools", "_lru_cache_wrapper");
    add("torch._C", "_group_tensors_by_device_and_dtype");
    add("torch", "istft");
    for (const char* name : {"accumulate", "compress", "dropwhile", "filterfalse", "groupby",
                             "starmap", "takewhile", "tee"})
      add("itertools", name);
    for (const char* name : {"heappush", "heappop", "heapreplace", "heappushpop", "heapify"})
      add("heapq", name);
    const py::module_ heaps = py::module_::import("heapq");
    constexpr size_t kOfName = PY_VERSION_HEX >= 0x030E0000 ? 1 : 0;  // without an underscore
    for (const char* name : {"_heapify_max", "_heappop_max", "_heapreplace_max"})
      made->emplace(py::object(heaps.attr(name + kOfName)).release().ptr(), functions.attr(name));
    for (const char* name : {"bisect_left", "bisect_right", "insort_left", "insort_right"})
      add("bisect", name);
    const py::module_ torch = py::module_::import("torch");
    const py::module_ steps = py::module_::import("oxyfuel.fused_optimizers");
    for (const char* name : {"_fused_sgd_", "_fused_adagrad_", "_fused_adam_", "_fused_adamw_"})
      made->emplace(py::object(torch.attr(name)).release().ptr(), steps.attr(name));
    return made;
  }();
  auto it = table.find(callable.ptr());
  return it == table.end() ? py::object() : it->second;
}

py::object polyfill(const char* name) {
  const RefusedFrames allowed(nullptr);  // the import runs
  return py::module_::import(kPolyfills).attr(name);
}

bool is_polyfill(py::handle o) {
  PyObject* p = o.ptr();
  return kPolyfills == (PyFunction_Check(p)
                            ? written_in(as_function(p))
                            : view_of(PyDict_GetItemString(type_dict(Py_TYPE(p)), "__module__")));
}

// Known by name, of plain arguments.
py::object Calls::call_module_function(py::handle callable, const std::string& name, Arguments args,
                                       Keywords kwargs) {
  const std::string module = module_of(callable);
  if (module == "_operator" && kwargs.empty())
    if (auto done = objects().call_operator(callable, name, args)) return *done;
  if (module == "_contextvars") throw Break(BreakId::context_variable, name);
  const uint32_t traits = native_traits(module, "", name) | native_traits(module, "", "*");
  if (traits & native::ReadsFrame) throw Break(BreakId::frame_access, name);
  if (!(traits & native::Pure)) throw Break(BreakId::builtin_call, module, ".", name);
  sizes().make_plain(args, kwargs);
  for (auto& a : args) a = plain_contents(arrays().with_scalars(a), callable);
  for (const auto& [key, a] : kwargs) require_plain(a, callable);
  return call_real(callable, args, kwargs);
}

// Each call asks which they are.
py::object Calls::subclasses(py::handle callable, const py::object& self) {
  const py::list all = callable();
  const py::object ask = polyfill("places_of_subclasses");
  py::object places;
  {
    const RefusedFrames allowed(nullptr);
    places = ask(self);
  }
  const SourceId asked = heap().sources.pinned(ask, "places_of_subclasses");
  heap().guard(GuardKind::Equals, heap().sources.answer(asked, py::make_tuple(self)), places);
  py::list out;
  for (py::handle one : all) {
    classes().refuse_made_class(one);
    // A capture would keep it alive.
    if (text(one.attr("__qualname__")).find("<locals>") != std::string::npos)
      throw Break(BreakId::attribute_protocol,
                  "type.__subclasses__, one of them made in a function");
    out.append(heap().wrap(one, heap().sources.pinned(one, text(one.attr("__name__")))));
  }
  heap().hold(out);
  return std::move(out);
}

// A method of a metaclass, or a class method.
py::object Calls::call_class_method(py::handle callable, const py::object& self,
                                    const std::string& name, Arguments args, Keywords kwargs) {
  if (name == "__call__") return call_type(self, std::move(args), std::move(kwargs), true);
  if (name == "__setattr__" || name == "__delattr__" || name == "__init__")
    throw Break(BreakId::side_effect, "type.", name);
  if (name == "__subclasses__" && args.empty() && kwargs.empty()) return subclasses(callable, self);
  if (name == "__getattribute__" || name == "__subclasses__" || name == "__dir__")
    throw Break(BreakId::attribute_protocol, "type.", name);
  if (name == "apply" && module_of(callable).empty())
    return call_autograd_function(self, std::move(args), std::move(kwargs));
  if (name != "__class_getitem__" &&
      !(class_method_traits(callable, as_type(self), name) & native::Pure))
    throw Break(BreakId::builtin_call, as_type(self)->tp_name, ".", name);
  if (name == "fromkeys" && !args.empty()) args[0] = heap().contents(args[0]);
  for (const auto& a : args)
    if (heap().exists(a) && name != "fromkeys" && !Wrappers::wraps(a.ptr()))
      throw Break(BreakId::builtin_on_existing, name);
  if (name != "fromkeys") sizes().make_plain(args, kwargs);  // it only keeps them
  return call_real(callable, args, kwargs);
}

// Methods that say of a tensor on the device meta what its attributes do.
static bool is_told_on_meta(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "dim", "is_complex", "is_floating_point", "ndimension", "nelement", "numel", "size"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// A method of a container, a text, a number or an exception.
py::object Calls::call_container_method(py::handle callable, const py::object& self,
                                        const std::string& name, Arguments args, Keywords kwargs) {
  const bool compares = (method_traits(name) & native::Compares) != 0;
  py::object target = borrow(callable);
  const bool of_proxy = Py_TYPE(self.ptr()) == &PyDictProxy_Type && !name.starts_with("__");
  if (of_proxy) {  // of a dict, which it reads: one of the captured code, or a class's
    py::object dict = heap().exists(self) ? py::object() : dict_inside(self);
    if (!dict) dict = objects().class_dict(self);
    if (dict) return call(dict.attr(name.c_str()), std::move(args), std::move(kwargs));
  }
  if (PySlice_Check(self.ptr()) && name == "indices" && args.size() == 1 && kwargs.empty())
    return call(polyfill("slice_indices"), {self, args[0]});
  if (heap().exists(self)) {
    if (PyODict_Check(self.ptr()) && is_hidden_by_ordered_dict(callable.ptr()))
      throw Break(BreakId::side_effect, "dict.", name, " of an OrderedDict");
    if (auto done = effects().change_existing(self, name, args, kwargs)) return *done;
    if (is_tensor_object(self.ptr()) && is_told_on_meta(name)) {
      args.insert(args.begin(), self);
      return call_own("oxyfuel.tensors_on_meta", name, args, kwargs);
    }
    if (name == "copy" && PyDict_Check(self.ptr()) && !PyDict_CheckExact(self.ptr()) &&
        Py_TYPE(self.ptr()) != &PyODict_Type)
      throw Break(BreakId::builtin_on_existing, Py_TYPE(self.ptr())->tp_name, ".copy");
    if ((method_traits(name) & native::Reads) == 0)
      throw Break(BreakId::side_effect, Py_TYPE(self.ptr())->tp_name, ".", name);
    if (name == "__contains__" && args.size() == 1) return objects().contains(self, args[0], true);
    if (name == "__getitem__" && args.size() == 1) return objects().subscript(self, args[0], true);
    target = heap().contents(self).attr(name.c_str());
  }
  if (name == "sort" && PyList_Check(self.ptr()) && args.empty())
    return effects().sort(self, kwargs), py::none();
  const bool text = PyUnicode_Check(self.ptr()) || PyBytes_Check(self.ptr()) ||
                    PyLong_Check(self.ptr()) || PyFloat_Check(self.ptr()) ||
                    PyComplex_Check(self.ptr());
  if (compares && name == "index" && args.size() == 1 && kwargs.empty() &&
      (PyList_CheckExact(self.ptr()) || PyTuple_CheckExact(self.ptr())))
    if (const auto place = objects().place_in(heap().contents(self), args[0]); place && *place >= 0)
      return py::int_(*place);
  if (compares && (mentions_tensor(self) || any_argument(args, kwargs, mentions_tensor)))
    throw Break(BreakId::data_dependent, name, " compares tensors");
  if ((name == "count" || name == "index") && !args.empty() && !text) {
    const py::object inside = target.attr("__self__");
    if (numbers().may_share_nan(inside, args[0])) {
      target = numbers().with_plain_floats(inside).attr(name.c_str());
      args[0] = numbers().with_plain_floats(args[0]);
    }
  }
  const bool by_hash = PyDict_Check(self.ptr()) || PyAnySet_Check(self.ptr());
  if (compares || (name == "get" && PyDict_Check(self.ptr())))
    for (const auto& a : args)
      if (((heap().exists(a) && !is_constant(a.ptr())) || is_nan(a.ptr()) || !by_hash) && !text &&
          Py_TYPE(self.ptr())->tp_iter != nullptr)
        for (py::handle held : py::list(target.attr("__self__"))) heap().guard_apart(held, a);
  for (auto& a : args) {
    if (text && heap().exists(a) && PyDict_Check(a.ptr()) &&
        !PyDict_CheckExact(a.ptr()))  // __missing__
      throw Break(BreakId::builtin_on_existing, name, " with a ", Py_TYPE(a.ptr())->tp_name);
    if ((name == "extend" || name == "extendleft") && heap().is_tensor(a))
      a = iterators().list_of(a);
    else if (name == "update" || name == "extend")
      a = heap().contents(a);
    else if (!keeps_arguments(name))
      a = heap().deep_contents(a);
    if (text || name == "add_note") {
      a = with_numbers(a);
      require_plain(a, callable);
    }
  }
  if (name == "numel" && PyTuple_Check(self.ptr()) && mentions_symbolic_int(self))
    return call(member_of<"math", "prod">(), {self});
  const bool known_self =
      text || PyList_Check(self.ptr()) || PyTuple_Check(self.ptr()) || PyDict_Check(self.ptr()) ||
      PyAnySet_Check(self.ptr()) || PyDictViewSet_Check(self.ptr()) ||
      PyDictValues_Check(self.ptr()) || is_deque(self) ||
      (PyExceptionInstance_Check(self.ptr()) && (name == "__init__" || name == "add_note"));
  if (!known_self) throw Break(BreakId::builtin_call, Py_TYPE(self.ptr())->tp_name, ".", name);
  if (name == "__hash__" || name == "__repr__" || name == "__str__")
    require_plain(target.attr("__self__"), callable);
  try {
    return call_real(target, args, kwargs);
  } catch (const py::error_already_set&) {
    if (name == "index") require_plain(args, kwargs, callable);  // the error has its text
    throw;
  }
}

py::object Calls::call_native(py::handle callable, Arguments args, Keywords kwargs) {
  PyObject* p = callable.ptr();
  const std::string name = name_of(callable);
  if (is_unbound_native(p)) {
    if (args.empty()) type_error("unbound method ", name, " needs an argument");
    py::object self = args.front();
    args.erase(args.begin());
    if (heap().is_tensor(self)) return call_method(self, name, args, kwargs);
    if (is_symbolic(self))
      return call(objects().load_attr(self, py::str(name)), std::move(args), std::move(kwargs));
    auto* type = (PyObject*)Py_TYPE(self.ptr());
    return call_native(steal(Py_TYPE(p)->tp_descr_get(p, self.ptr(), type)), std::move(args),
                       std::move(kwargs));
  }
  py::object self = steal(PyObject_GetAttr(p, names().self_));
  if (auto done = wrappers().call_of_context(self, name)) return *done;
  if (is_plain_cpu(self)) {
    if (name == "__enter__") return set_default_devices(default_devices() + 1), self;
    if (name == "__exit__" && default_devices() + (WithoutDefaultDevice::is_set() ? 1 : 0) > 0)
      return set_default_devices(default_devices() - 1), py::none();
  }
  // What it holds is guarded where it was found, and the methods of its base read nothing else.
  if (heap().exists(self) && is_derived_value(self.ptr()) && !name.starts_with("__"))
    return call(py::object(plain_value(self.ptr()).attr(name.c_str())), std::move(args),
                std::move(kwargs));
  if (LazyIterator* l = iterators().lazy(self)) return iterators().call_lazy_method(*l, name, args);
  if (name == "with_traceback" && PyExceptionInstance_Check(self.ptr()) && args.size() == 1 &&
      kwargs.empty()) {
    objects().store_generic_attr(self, py::str("__traceback__"), args[0]);
    return self;
  }
  if (is_of_context(self)) return call_of_context(self, name, args, kwargs);
  if (is_symbolic_int(self) && is_own_of_size(name)) return call_real(callable, args, kwargs);
  if (name == "from_iterable" && args.size() == 1 && name_of(self) == "chain")
    return iterators().make_chain(args[0]);
  const bool compares = (method_traits(name) & native::Compares) != 0;
  if (compares || name == "get")
    for (py::object& a : args) a = arrays().with_scalars(a);
  if (!args.empty() && (PyDict_Check(self.ptr()) || PyAnySet_Check(self.ptr())))
    args[0] = arrays().as_key(args[0]);
  // An iterator that was there before is not asked for real, nor a user's __iter__. A set takes
  // another one's items as they lie there.
  for (size_t i = 0; i < args.size(); i++) {
    const bool as_it_lies =
        PyDict_Check(self.ptr()) || (PyAnySet_Check(self.ptr()) && PyAnySet_Check(args[i].ptr()));
    if (!as_it_lies && takes_whole(name, i) && !heap().is_tensor(args[i]) &&
        (objects().special_method(args[i], names().iter_) || iterators().goes_by_items(args[i]))) {
      args[i] = iterators().items_to_add(args[i], PyList_Check(self.ptr()));
      continue;
    }
    const bool runs =
        iterators().lazy(args[i]) || (heap().exists(args[i]) && PyIter_Check(args[i].ptr()));
    if (!runs || keeps_arguments(name) || compares) continue;
    const bool makes = name == "__new__" && i == 1 &&
                       (self.ptr() == reinterpret_cast<PyObject*>(&PyTuple_Type) ||
                        self.ptr() == reinterpret_cast<PyObject*>(&PyFrozenSet_Type));
    if (!makes && !takes_whole(name, i))
      throw Break(BreakId::builtin_call, name, " of an iterator");
    args[i] = iterators().items_to_add(args[i]);
  }
  if (PyAnySet_Check(self.ptr()) || ((PyDict_Check(self.ptr()) || PyType_Check(self.ptr())) &&
                                     (name == "update" || name == "fromkeys")))
    for (const py::object& a : args) arrays().guard_keys_in(a);
  if (name == "__new__" && PyType_Check(self.ptr())) {
    if (args.empty() || !PyType_Check(args[0].ptr())) type_error("__new__ needs a type");
    refuse_to_make(reinterpret_cast<PyTypeObject*>(args[0].ptr()));
    for (size_t i = 1; i < args.size(); i++)
      if (heap().exists(args[i]) && !is_derived_value(args[i].ptr()))
        args[i] = heap().contents(args[i]);
    return call_real(callable, args, kwargs);
  }
  if (name == "__getattribute__" && PyModule_Check(self.ptr()) && args.size() == 1)
    return objects().module_member(self, args[0]);
  if (PyModule_Check(self.ptr()) || (self.is_none() && PyCFunction_Check(p)))
    return call_module_function(callable, name, args, kwargs);
  if (name == "__reduce_ex__" && args.size() == 1)
    if (auto parts = reduce_plain(self)) return *parts;
  if (PyType_Check(self.ptr()))
    return call_class_method(callable, self, name, std::move(args), std::move(kwargs));
  if (name == "__init__" && args.empty() && kwargs.empty()) {
    const bool exception = PyExceptionInstance_Check(self.ptr());
    if (exception && heap().exists(self))
      throw Break(BreakId::side_effect, "__init__ of an exception");
    if (exception) return call_real(callable, args, kwargs);  // its args are () now
    const bool empties = PyList_Check(self.ptr()) || PySet_Check(self.ptr()) || is_deque(self);
    auto* base = reinterpret_cast<PyObject*>(builtin_base(Py_TYPE(self.ptr())));
    return empties ? call_native(py::handle(base).attr("clear"), {self}, {}) : py::none();
  }
  if (PyObject_TypeCheck(self.ptr(), &PyProperty_Type) && args.size() == 1 &&
      !heap().exists(self) &&
      (name == "getter" || name == "setter" || name == "deleter" || name == "__init__"))
    return call_real(callable, args, kwargs);
  const bool stores =
      (name == "__setattr__" && args.size() == 2) || (name == "__delattr__" && args.size() == 1);
  if (stores || (name == "__getattribute__" && args.size() == 1)) {
    require_name(args[0]);
    if (!stores) return objects().load_instance_attr(self, args[0], true);
    objects().store_generic_attr(self, args[0], args.size() == 2 ? args[1] : py::object());
    return py::none();
  }
  if (is_found_in_text(self)) {
    if (heap().exists(self)) heap().guard(GuardKind::IdIs, heap().source_of(self), self);
    if (auto done = call_of_texts(callable, args, kwargs)) return *done;
  }
  if (name == "__next__" && args.empty() && kwargs.empty() && PyIter_Check(self.ptr())) {
    if (py::object item = iterators().iter_next(self)) return item;
    iterators().stop_iteration();
  }
  return call_container_method(callable, self, name, std::move(args), std::move(kwargs));
}

}  // namespace oxy::python
