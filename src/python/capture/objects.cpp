// Objects as the captured code sees them: wrapping what was there before, attributes, containers, truth.
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>

#include "python/capture/names.h"
#include "python/capture/plan_rebuild.h"
#include "python/guards/constants.h"
#include "support/check.h"
#include "support/text.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/input_signature.h"

namespace oxy::python {
namespace {

// What __len__ may give.
bool is_length(py::handle o) {
  const bool fits = PyLong_Check(o.ptr()) && PyLong_AsSsize_t(o.ptr()) >= 0;
  PyErr_Clear();
  return fits;
}

py::object type_object(py::handle o) {
  return borrow(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())));
}

}  // namespace

bool is_callable_constant(PyObject* p) {
  return PyFunction_Check(p) || PyType_Check(p) || PyCFunction_Check(p) || PyModule_Check(p) ||
         is_unbound_native(p) || Py_TYPE(p) == &PyGetSetDescr_Type ||
         Py_TYPE(p) == &PyMemberDescr_Type;
}

bool is_enum_member(py::handle o) {
  static const py::object& type = *new py::object(py::module_::import("enum").attr("Enum"));
  return PyObject_TypeCheck(o.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr()));
}

// Enum members, ops of torch and the like: one object for the life of the process.
bool is_singleton(py::handle o) {
  const std::string_view type = Py_TYPE(o.ptr())->tp_name;
  return type == "OpOverload" || type == "OpOverloadPacket" || type.starts_with("numpy.dtypes.") ||
         is_enum_member(o);
}

bool is_constant(PyObject* p) {
  return p == Py_None || p == Py_Ellipsis || p == Py_NotImplemented || PyBool_Check(p) ||
         PyLong_CheckExact(p) || PyFloat_CheckExact(p) || PyUnicode_CheckExact(p) ||
         PyBytes_CheckExact(p) || PyComplex_CheckExact(p) || THPDtype_Check(p) ||
         THPDevice_Check(p) || THPLayout_Check(p) || THPMemoryFormat_Check(p);
}

// Of what the captured code has made itself there is no source, and nothing to guard.
void Tracer::guard(GuardKind kind, SourceId source, py::handle expected, int64_t number) {
  if (!source.valid() || (in_array_code() && is_of_array_code(source))) return;
  guards.add({kind, source, borrow(expected.ptr()), number, {}, user_stack()});
}

Tracer::Known* Tracer::known(py::handle o) {
  auto it = known_.find(o.ptr());
  return it == known_.end() ? nullptr : &it->second;
}

bool Tracer::is_tensor(py::handle o) {
  if (!is_tensor_object(o.ptr())) return false;
  Known* k = known(o);
  return k != nullptr && k->value.has_value();
}

bool Tracer::exists(py::handle o) {
  Known* k = known(o);
  return k != nullptr && k->source.valid() && !k->value && !PyTuple_Check(o.ptr());
}

bool Tracer::keeps_attributes(py::handle o) {
  return exists(o) || (is_enum_member(o) && !is_made_class(type_object(o)));
}

SourceId Tracer::source_of(py::handle existing) {
  Known* k = known(existing);
  if (k != nullptr && k->source.valid()) return k->source;
  return sources.pinned(existing, "");
}

py::object Tracer::wrap(py::handle real, SourceId source) {
  const Takes takes = std::exchange(takes_, Takes::Read);
  if (!source.valid()) return borrow(real.ptr());
  if (auto it = by_source_.find(source); it != by_source_.end()) return it->second;
  PyObject* p = real.ptr();
  if (is_number(p) && (takes == Takes::Unread || (takes == Takes::Varying && is_varying(source))))
    return unread_number(real, source);
  py::object out = borrow(p);
  if (is_tensor_object(p)) {
    out = wrap_tensor(real, source);
  } else if (is_constant(p)) {
    guard(GuardKind::Equals, source, real);
  } else if (is_bound_method(p)) {
    out = wrap_bound(real, source);
  } else if (Py_TYPE(p) == &PySuper_Type) {
    out = wrap_super(real, source);
  } else if (PyFunction_Check(p) && is_made_anew(real, source)) {
    wrap_function(real, source);
  } else if (is_callable_constant(p) || is_singleton(real) || PyCode_Check(p)) {
    guard(GuardKind::IdIs, source, real);
  } else if (PyTuple_Check(p)) {
    out = wrap_tuple(real, source);
  } else if (const py::object array = wrap_array(real, source)) {
    out = array;
  } else if (PySlice_Check(p) || PyRange_Check(p) || PyFrozenSet_CheckExact(p)) {
    guard(GuardKind::IdIs, source, real);
    fixed_.insert(p);
    if (PyFrozenSet_CheckExact(p))
      for (py::handle item : py::list(out)) wrap_held(item);
    if (PySlice_Check(p))
      for (const char* part : {"start", "stop", "step"}) wrap_held(out.attr(part));
  } else {
    guard(GuardKind::TypeIs, source, type_object(real));
    Known& k = known_[p];
    if (!k.source.valid()) {
      k.source = source;
      existing_.push_back(out);
    } else if (k.source != source) {
      guards.add({GuardKind::SameAs, source, {}, 0, k.source, user_stack()});
    }
    held_.push_back(out);
  }
  by_source_.emplace(source, out);
  return out;
}

// What an object that is guarded by its identity holds for good, and code written in C takes out of it.
py::object Tracer::wrap_held(py::handle real) {
  if (is_constant(real.ptr()) || is_callable_constant(real.ptr())) return borrow(real.ptr());
  py::object out = wrap(real, sources.pinned(real, "held"));
  if (!out.is(real))
    throw Break(BreakId::builtin_on_existing, cat("a ", Py_TYPE(real.ptr())->tp_name, " in it"));
  return out;
}

// Python's own int or float, but no bool.
bool is_number(PyObject* p) { return PyLong_CheckExact(p) || PyFloat_CheckExact(p); }

// A method with its object: another one with the wrapped object.
py::object Tracer::wrap_bound(py::handle real, SourceId source) {
  auto part = [&](const char* name) {
    const py::str key(name);
    return wrap(steal(PyObject_GetAttr(real.ptr(), key.ptr())), sources.attribute(source, key));
  };
  guard(GuardKind::TypeIs, source, type_object(real));
  py::object self = part("__self__"), out;
  if (is_array(self)) {
    out = method_of_array(self, part("__name__"));
  } else if (PyMethod_Check(real.ptr())) {
    out = steal(PyMethod_New(part("__func__").ptr(), self.ptr()));
  } else {
    part("__name__");
    if (Py_TYPE(real.ptr()) == &_PyMethodWrapper_Type) part("__objclass__");
    out = python::bind(method_descriptor(real.ptr()), self);
  }
  return instead_of(real, source, out);
}

// A super object likewise.
py::object Tracer::wrap_super(py::handle real, SourceId source) {
  auto part = [&](const char* name) {
    return wrap(real.attr(name), sources.attribute(source, py::str(name)));
  };
  guard(GuardKind::TypeIs, source, type_object(real));
  py::object type = part("__thisclass__"), self = part("__self__");
  if (is_tensor(self)) throw Break(BreakId::attribute_protocol, "super() of a tensor");
  return instead_of(real, source, type_object(real)(type, self));
}

py::object Tracer::instead_of(py::handle real, SourceId source, const py::object& out) {
  if (auto it = stand_in_of_.find(real.ptr()); it != stand_in_of_.end()) return it->second;
  Known& k = known_[out.ptr()];
  k.source = source;
  k.original = borrow(real.ptr());
  held_.push_back(out);
  stand_in_of_.emplace(real.ptr(), out);
  return out;
}

// A function made in another one that comes with the call may be another one at each call, of the same code.
bool Tracer::is_made_anew(py::handle function, SourceId source) const {
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  const bool inside = reinterpret_cast<PyCodeObject*>(f->func_code)->co_flags & CO_NESTED;
  if ((f->func_closure == nullptr && !inside) || f->func_dict != nullptr) return false;
  while (sources[source].base.valid()) source = sources[source].base;
  return sources[source].kind == SourceKind::Local;
}

void Tracer::wrap_function(py::handle real, SourceId source) {
  auto* f = reinterpret_cast<PyFunctionObject*>(real.ptr());
  guard(GuardKind::TypeIs, source, type_object(real));
  guard(GuardKind::IdIs, sources.code(source), f->func_code);
  guard(GuardKind::IdIs, sources.attribute(source, py::str("__globals__")), f->func_globals);
  for (const auto& [name, held] : {std::pair("__defaults__", f->func_defaults),
                                   std::pair("__kwdefaults__", f->func_kwdefaults)}) {
    const SourceId member = sources.attribute(source, py::str(name));
    if (held == nullptr)
      guard(GuardKind::IdIs, member, Py_None);
    else
      guard(GuardKind::Length, member, {}, PyObject_Length(held));
  }
  Known& k = known_[real.ptr()];
  if (!k.source.valid()) k.source = source;
  held_.push_back(borrow(real.ptr()));
}

// What reaches the parts of a function that was there before.
SourceId Tracer::function_source(py::handle function, const std::string& name) {
  Known* k = known(function);
  return k && k->source.valid() ? k->source : sources.pinned(function, name);
}

// Found in the _parameters or _buffers of a module.
bool Tracer::is_module_state(SourceId source) const {
  const Source& item = sources[source];
  if (item.kind != SourceKind::DictItem) return false;
  const Source& dict = sources[item.base];
  return dict.kind == SourceKind::DictItem && sources[dict.base].kind == SourceKind::InstanceDict &&
         PyUnicode_Check(dict.key.ptr()) &&
         (PyUnicode_CompareWithASCIIString(dict.key.ptr(), "_parameters") == 0 ||
          PyUnicode_CompareWithASCIIString(dict.key.ptr(), "_buffers") == 0);
}

py::object Tracer::wrap_tensor(py::handle real, SourceId source) {
  if (auto it = fake_of_.find(real.ptr()); it != fake_of_.end()) {
    guards.add({GuardKind::SameAs, source, {}, 0, known(it->second)->source, user_stack()});
    return it->second;
  }
  const at::Tensor& t = THPVariable_Unpack(real.ptr());
  static const py::object& parameter =
      *new py::object(py::module_::import("torch.nn").attr("Parameter"));
  if (!THPVariable_CheckExact(real.ptr()) && Py_TYPE(real.ptr()) != (PyTypeObject*)parameter.ptr())
    throw Break(BreakId::input_kind, cat("a ", Py_TYPE(real.ptr())->tp_name));
  const char* what = bridge::why_unsupported(t);
  if (what != nullptr && !bridge::has_tangent(*t.unsafeGetTensorImpl()))
    throw Break(BreakId::input_kind, what);
  guard(GuardKind::Tensor, source, real);
  if (what != nullptr) throw Break(BreakId::input_kind, what);
  if (t.is_inference() && !c10::InferenceMode::is_enabled())
    throw Break(BreakId::input_kind, "an inference tensor outside of inference mode");
  std::string name;
  for (char c : sources.text(source)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  py::object fake;
  try {
    fake = steal(THPVariable_Wrap(recorder_->add_input(t, name)));
  } catch (const Unsupported& e) {
    throw Break(BreakId::input_kind, e.what());
  }
  Known k;
  k.source = source;
  k.original = borrow(real.ptr());
  k.value = ir->graph.add_input(name, ir::Type::of(bridge::type_of(t)));
  known_[fake.ptr()] = std::move(k);
  held_.push_back(fake);
  fake_of_.emplace(real.ptr(), fake);
  fetch.push_back(source);
  example_inputs.push_back(borrow(real.ptr()));
  ir->module_state.push_back(is_module_state(source));
  return fake;
}

py::object Tracer::wrap_tuple(py::handle real, SourceId source) {
  guard(GuardKind::TypeIs, source, type_object(real));
  guard(GuardKind::Length, source, {}, PyTuple_GET_SIZE(real.ptr()));
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(real.ptr()));
  py::tuple items(n);
  bool same = true;
  for (size_t i = 0; i < n; i++) {
    PyObject* item = PyTuple_GET_ITEM(real.ptr(), i);
    py::object w = wrap(item, sources.item(source, static_cast<int64_t>(i)));
    same &= w.ptr() == item;
    items[i] = std::move(w);
  }
  py::object out = borrow(real.ptr());
  if (!same) {
    out =
        PyTuple_CheckExact(real.ptr())
            ? py::object(items)
            : steal(PyTuple_Type.tp_new(Py_TYPE(real.ptr()), py::make_tuple(items).ptr(), nullptr));
  }
  if (auto it = stand_in_of_.find(real.ptr()); it != stand_in_of_.end()) return it->second;
  Known& k = known_[out.ptr()];
  if (!k.source.valid()) k.source = source;
  k.original = borrow(real.ptr());
  held_.push_back(out);
  stand_in_of_.emplace(real.ptr(), out);
  return out;
}

// The items of a list or deque.
py::list Tracer::items_of(py::handle o) {
  const SourceId source = known(o)->source;
  const py::list real = plain_list(o);
  guard(GuardKind::Length, source, {}, static_cast<int64_t>(real.size()));
  py::list items;
  for (size_t i = 0; i < real.size(); i++)
    items.append(wrap(real[i], sources.item(source, static_cast<int64_t>(i))));
  Writes* w = known(o)->writes.get();
  if (w && w->added) {
    w->before = py::tuple(items);
    items.attr("extend")(w->added);
  }
  return items;
}

py::object Tracer::deque_items(py::handle o) {
  const py::list items = items_of(o);
  const py::object limit = read(load_attr(o, py::str("maxlen")));
  return py::handle(reinterpret_cast<PyObject*>(builtin_base(Py_TYPE(o.ptr()))))(items, limit);
}

py::object Tracer::dict_items(py::handle o) {
  const SourceId source = known(o)->source;
  const Writes* w = known(o)->writes.get();
  py::object items = py::dict();
  if (PyODict_Check(o.ptr())) items = steal(PyODict_New());
  if (!w || !w->cleared) {
    py::tuple keys = py::tuple(plain_list(o));
    guard(GuardKind::Keys, source, keys);
    for (py::handle key : keys) {
      if (!is_constant(key.ptr()) && !is_callable_constant(key.ptr()) && !is_singleton(key))
        throw Break(BreakId::builtin_on_existing, "a dict with keys that are objects");
      items[key] = wrap(held_at(o, key), sources.dict_item(source, key));
    }
  }
  if (!w) return items;
  for (auto [key, value] : w->items)
    if ((value.is(missing()) || w->moved.contains(key)) && items.contains(key))
      items.attr("pop")(key);
  for (auto [key, value] : w->items)
    if (!value.is(missing())) items[key] = read(borrow(value.ptr()));
  return items;
}

// A set of constants, whose order is guarded: a copy lies in the same order, or it cannot stand for the set.
py::object Tracer::set_items(py::handle o) {
  const py::list items(borrow(o.ptr()));
  py::set copy(items);
  Py_ssize_t i = 0;
  for (py::handle item : copy)
    if (!is_constant(item.ptr()) || PyList_GET_ITEM(items.ptr(), i++) != item.ptr())
      throw Break(BreakId::builtin_on_existing,
                  "a set of objects, or one that lies in an order of its own");
  guard(GuardKind::Keys, known(o)->source, py::tuple(items));
  if (const Writes* w = known(o)->writes.get())
    for (py::handle put : w->done) {
      auto [change, item] = put.cast<std::pair<int, py::object>>();
      change == kPut ? PySet_Add(copy.ptr(), item.ptr()) : PySet_Discard(copy.ptr(), item.ptr());
    }
  return std::move(copy);
}

namespace {

py::list values_of(py::handle dict) {
  py::list out;
  for (py::handle key : plain_list(dict)) out.append(held_at(dict, key));
  return out;
}

}  // namespace

// `o` with `contents` for what was there before, at any depth.
py::object Tracer::deep_contents(py::handle o, int depth) {
  PyObject* p = o.ptr();
  const bool sequence = PyTuple_Check(p) || PyList_Check(p);
  if (is_tensor(o)) return borrow(p);
  if (PySet_Check(p) || is_deque(o)) return contents(o);
  if (!sequence && !PyDict_Check(p)) return borrow(p);
  if (depth > 20)
    throw Break(BreakId::builtin_on_existing, "containers in containers, without end");
  py::object inside = contents(o);
  bool same = true;
  py::list items;
  for (py::handle item : PyDict_Check(p) ? values_of(inside) : plain_list(inside)) {
    py::object now = deep_contents(item, depth + 1);
    same &= now.is(item);
    items.append(now);
  }
  if (same) return inside;
  if (PyList_Check(p)) return std::move(items);
  if (PyTuple_CheckExact(p)) return py::tuple(items);
  if (PyTuple_Check(p))
    return steal(PyTuple_Type.tp_new(Py_TYPE(p), py::make_tuple(items).ptr(), nullptr));
  if (is_changeable_class(Py_TYPE(inside.ptr())))
    throw Break(BreakId::builtin_on_existing, cat("a ", Py_TYPE(p)->tp_name, " of containers"));
  py::object out = inside.attr("copy")();
  size_t i = 0;
  for (py::handle key : plain_list(inside)) out[key] = items[i++];
  return out;
}

// A list, dict or set that was there before, with its items wrapped; guards its keys or its length.
py::object Tracer::contents(py::handle o) {
  PyObject* p = o.ptr();
  if (!exists(o)) return borrow(p);
  if (known(o)->shadow) return known(o)->shadow;
  takes_ = Takes::Read;  // what is asked for next is one of its items
  py::object shadow;
  if (PyList_Check(p))
    shadow = items_of(o);
  else if (PyDict_Check(p))
    shadow = dict_items(o);
  else if (PySet_Check(p))
    shadow = set_items(o);
  else if (is_deque(o))
    shadow = deque_items(o);
  else
    throw Break(BreakId::builtin_on_existing, cat("a ", Py_TYPE(p)->tp_name));
  known(o)->shadow = shadow;
  shadowed_[shadow.ptr()] = p;
  return shadow;
}

py::object Tracer::type_of(py::handle o) {
  if (is_array(o)) return type_of_array(o);
  Known* k = known(o);
  return type_object(k && k->original && k->value ? k->original : py::handle(o));
}

// ---------------------------------------------------------------------------------------------------- protocols

bool Tracer::truth(py::handle o) {
  PyObject* p = o.ptr();
  if (is_tensor(o)) {
    if (const py::object number = use_number(o)) return PyObject_IsTrue(number.ptr()) == 1;
    throw Break(BreakId::data_dependent, "the truth of a tensor");
  }
  if (is_constant(p) || is_callable_constant(p) || PyTuple_Check(p)) return PyObject_IsTrue(p) == 1;
  if (exists(o) && PyDict_Check(p)) return PyDict_Size(contents(o).ptr()) > 0;
  if (exists(o) && (PyList_Check(p) || PySet_Check(p) || is_deque(o)))
    return PyObject_Length(contents(o).ptr()) > 0;
  for (PyObject* method : {names().bool_, names().len_}) {
    PyObject* found = type_member(Py_TYPE(p), method);
    if (found == nullptr) continue;
    if (PyFunction_Check(found)) {
      py::object answer = read(call(found, {borrow(p)}));
      const bool of_bool = method == names().bool_;
      if (of_bool ? !PyBool_Check(answer.ptr()) : !is_length(answer))
        throw Break(BreakId::builtin_call, "an error of __bool__ or __len__");
      return truth(answer);
    }
    if (found == Py_None) throw Break(BreakId::builtin_call, "a __bool__ that is None");
    if (exists(o))
      throw Break(BreakId::builtin_on_existing, cat("the truth of a ", Py_TYPE(p)->tp_name));
    const int yes = PyObject_IsTrue(p);
    if (yes < 0) throw py::error_already_set();
    return yes == 1;
  }
  return true;
}

py::object Tracer::subscript(py::handle o, py::handle key, bool generic) {
  PyObject* p = o.ptr();
  static const py::object& getitem =
      *new py::object(py::module_::import("operator").attr("getitem"));
  if (is_tensor(o)) return operate(getitem, {borrow(p), borrow(key.ptr())});
  // A dict finds tensors by their identity.
  if (is_tensor(key) && !PyDict_Check(p))
    throw Break(BreakId::data_dependent, "a tensor as an index");
  if (PyObject* own = special_method(o, names().getitem_); own != nullptr && !generic)
    return call(own, {borrow(p), borrow(key.ptr())});
  if (exists(o) && PyDict_Check(p)) {
    if (py::object found = dict_get(o, key)) return found;
    if (PyObject* other = _PyType_Lookup(Py_TYPE(p), py::str("__missing__").ptr())) {
      if (PyFunction_Check(other)) return call(other, {borrow(p), borrow(key.ptr())});
      py::object factory = load_attr(o, py::str("default_factory"));
      if (!factory.is_none()) {
        py::object value = call(factory, {});
        dict_write(o, key, value);
        return value;
      }
    }
    PyErr_SetObject(PyExc_KeyError, key.ptr());
    throw py::error_already_set();
  }
  if (PyDict_Check(p) && !PyDict_CheckExact(p))
    if (PyObject* other = special_method(o, py::str("__missing__")); other && !dict_has(o, key))
      return call(other, {borrow(p), borrow(key.ptr())});
  if (exists(key) && PyDict_Check(p) && !is_constant(key.ptr()))
    for (auto [held, value] : py::reinterpret_borrow<py::dict>(o)) guard_apart(held, key);
  return steal(PyObject_GetItem(contents(o).ptr(), key.ptr()));
}

void Tracer::store_subscript(py::handle o, py::handle key, py::handle value) {
  static const py::object& setitem =
      *new py::object(py::module_::import("operator").attr("setitem"));
  if (is_tensor(o)) {
    operate(setitem, {borrow(o.ptr()), borrow(key.ptr()), borrow(value.ptr())});
    return;
  }
  if (PyObject* own = special_method(o, names().setitem_)) {
    call(own, {borrow(o.ptr()), borrow(key.ptr()), borrow(value.ptr())});
    return;
  }
  if (exists(o)) {
    Arguments args{borrow(key.ptr()), borrow(value.ptr())};
    Keywords none;
    if (change_existing(o, "__setitem__", args, none)) return;
    throw Break(BreakId::side_effect,
                cat("assignment to an item of a ", Py_TYPE(o.ptr())->tp_name));
  }
  py::object items = borrow(value.ptr());
  if (PySlice_Check(key.ptr()) && PyList_Check(o.ptr())) items = list_of(value);
  if (PyObject_SetItem(o.ptr(), key.ptr(), items.ptr()) != 0) throw py::error_already_set();
}

void Tracer::delete_subscript(py::handle o, py::handle key) {
  if (PyObject* own = special_method(o, py::str("__delitem__"))) {
    call(own, {borrow(o.ptr()), borrow(key.ptr())});
  } else if (exists(o)) {
    Arguments args{borrow(key.ptr())};
    Keywords none;
    if (!change_existing(o, "__delitem__", args, none))
      throw Break(BreakId::side_effect, cat("del of an item of a ", Py_TYPE(o.ptr())->tp_name));
  } else if (PyObject_DelItem(o.ptr(), key.ptr()) != 0) {
    throw py::error_already_set();
  }
}

py::object Tracer::contains(py::handle container, py::handle item_given, bool generic) {
  const py::object item = deep_contents(item_given);  // what is in it decides as well
  if (PyObject* own = special_method(container, names().contains_); own != nullptr && !generic)
    return py::bool_(truth(call(own, {borrow(container.ptr()), borrow(item.ptr())})));
  if (is_tensor(container)) throw Break(BreakId::data_dependent, "a test of membership");
  if (exists(container) && PyDict_Check(container.ptr()))
    return py::bool_(dict_has(container, item));
  const bool takes_items = lazy(container) ||
                           (exists(container) && PyIter_Check(container.ptr())) ||
                           (special_method(container, names().iter_) && !generic);
  if (takes_items) {
    py::object iterator = iterate(container);
    while (py::object found = iter_next(iterator))
      if (found.is(item) || truth(compare(found, item, Py_EQ))) return py::bool_(true);
    return py::bool_(false);
  }
  py::object inside = deep_contents(container);
  // Tensors are hashed and found by their identity.
  const bool hashes = PyDict_Check(inside.ptr()) || PyAnySet_Check(inside.ptr());
  const bool by_identity = hashes && is_tensor(item);
  if (!by_identity && (mentions_tensor(item) || (!hashes && mentions_tensor(inside))))
    throw Break(BreakId::data_dependent, "a test of membership among tensors");
  const bool by_itself = (exists(item) && !is_constant(item.ptr())) || is_nan(item.ptr());
  if (by_itself && PyIter_Check(inside.ptr()) == 0)
    for (py::handle held : py::list(inside)) guard_apart(held, item);
  const int found = PySequence_Contains(inside.ptr(), item.ptr());
  if (found < 0) throw py::error_already_set();
  return py::bool_(found == 1);
}

py::object Tracer::compare(py::handle a, py::handle b, int op) {
  static const auto& functions = *[] {
    const py::module_ module = py::module_::import("operator");
    return new std::array<py::object, 6>{module.attr("lt"), module.attr("le"), module.attr("eq"),
                                         module.attr("ne"), module.attr("gt"), module.attr("ge")};
  }();
  return operate(functions.at(static_cast<size_t>(op)), {borrow(a.ptr()), borrow(b.ptr())});
}

}  // namespace oxy::python
