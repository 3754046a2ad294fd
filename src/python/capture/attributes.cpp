// Attributes of modules, classes, functions and objects, as CPython finds them.
#include "python/capture/names.h"
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/type_dict.h"
#include "support/text.h"

namespace oxy::python {
namespace {

py::object type_object(py::handle o) {
  return borrow(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())));
}

bool is_property(PyObject* descriptor) {
  return PyObject_TypeCheck(descriptor, &PyProperty_Type) &&
         Py_TYPE(descriptor)->tp_descr_get == PyProperty_Type.tp_descr_get &&
         Py_TYPE(descriptor)->tp_descr_set == PyProperty_Type.tp_descr_set;
}

// As a property: Enum.value.
bool is_enum_property(PyObject* descriptor) {
  static const py::object& type = *new py::object(py::module_::import("enum").attr("property"));
  return reinterpret_cast<PyObject*>(Py_TYPE(descriptor)) == type.ptr() &&
         !py::handle(descriptor).attr("fget").is_none();
}

std::string str(py::handle o) {
  // PyObject_Str would run the handlers of signals.
  return PyUnicode_Check(o.ptr()) ? o.cast<std::string>() : py::str(o).cast<std::string>();
}

// What a lazy iterator's stand-in is asked for, and answers as the iterator would.
bool is_generator_method(py::handle name) {
  return PyUnicode_Check(name.ptr()) &&
         (native_traits("builtins", "generator", PyUnicode_AsUTF8(name.ptr())) &
          native::OfIterator) != 0;
}

// What is written to it, its `Writes`, are its items and no slots.
bool writes_items(py::handle o) {
  PyObject* p = o.ptr();
  return PyDict_Check(p) || PyList_Check(p) || PySet_Check(p) || is_deque(o);
}

// An AttributeError names what was asked for, and whom.
void name_what_lacks(py::error_already_set& e, py::handle o, py::handle name) {
  auto* error = reinterpret_cast<PyAttributeErrorObject*>(e.value().ptr());
  if (!e.matches(PyExc_AttributeError) || error->name != nullptr || error->obj != nullptr) return;
  error->name = Py_NewRef(name.ptr());
  error->obj = Py_NewRef(o.ptr());
}

[[noreturn]] void no_attribute(PyTypeObject* type, py::handle name) {
  raise(PyExc_AttributeError,
        cat("'", type->tp_name, "' object has no attribute '", str(name), "'"));
}

// A type written in C that finds attributes in a way of its own.
bool has_own_lookup(PyTypeObject* type) {
  PyObject* found = _PyType_Lookup(type, names().getattribute_);
  if (found == nullptr || Py_TYPE(found) != &PyWrapperDescr_Type) return false;
  void* function = reinterpret_cast<PyWrapperDescrObject*>(found)->d_wrapped;
  return function != reinterpret_cast<void*>(PyObject_GenericGetAttr);
}

// `int | str` and `list[int]` keep these as other objects do.
bool is_part_of_alias(PyTypeObject* type, py::handle name) {
  static const py::object& union_type =
      *new py::object(py::module_::import("types").attr("UnionType"));
  return (type == &Py_GenericAliasType || reinterpret_cast<PyObject*>(type) == union_type.ptr()) &&
         (native_traits("types", "GenericAlias", PyUnicode_AsUTF8(name.ptr())) &
          native::PartOfAlias) != 0;
}

}  // namespace

void require_name(py::handle name) {
  if (!PyUnicode_Check(name.ptr()))
    throw Break(BreakId::attribute_protocol, "an attribute's name that is no string");
}

py::object Tracer::load_attr(py::handle o, py::handle name) {
  require_name(name);
  try {
    return find_attr(o, name);
  } catch (py::error_already_set& e) {
    name_what_lacks(e, o, name);
    throw;
  }
}

py::object Tracer::find_attr(py::handle o, py::handle name) {
  PyObject* p = o.ptr();
  if (is_tensor(o)) return tensor_attr(o, name);
  if (is_array(o)) check_array_attr(o, name);
  if (PyModule_Check(p)) return module_member(o, name);
  if (PyType_Check(p)) return load_type_attr(o, name);
  if (PyFunction_Check(p)) return function_attr(o, name);
  if (Py_TYPE(p) == &PySuper_Type) return load_super_attr(o, name);
  if (!lazies_.empty() && lazy(o) && !is_generator_method(name))
    throw Break(BreakId::attribute_protocol, cat("an iterator's ", str(name)));
  if (PyExceptionInstance_Check(p) && !exists(o) && str(name) == "__traceback__")
    throw Break(BreakId::attribute_protocol, "the traceback of an exception");
  if (PyExceptionInstance_Check(p) && str(name) == "__context__" && raised_.contains(p) &&
      reinterpret_cast<PyBaseExceptionObject*>(p)->context == nullptr)
    guard_nothing_handled();
  if (is_constant(p) || PyMethod_Check(p) || PyCFunction_Check(p))
    return steal(PyObject_GetAttr(p, name.ptr()));
  return load_instance_attr(o, name);
}

// What the code around the captured function deals with is the context of what that raises.
void Tracer::guard_nothing_handled() {
  static const py::object& exc_info = *new py::object(py::module_::import("sys").attr("exc_info"));
  if (handled_outside_)
    throw Break(BreakId::attribute_protocol, "the context of an exception, of before the call");
  guard(GuardKind::IdIs, sources.handled(sources.pinned(exc_info, "sys.exc_info")), py::none());
}

py::object Tracer::function_attr(py::handle function, py::handle name) {
  const bool made_here = known(function) && !known(function)->source.valid();
  PyObject* found_on_type = _PyType_Lookup(&PyFunction_Type, name.ptr());
  if (made_here) return steal(PyObject_GetAttr(function.ptr(), name.ptr()));
  if (found_on_type != nullptr && !is_name(name, names().dict_))
    return function_member(function, name, found_on_type);
  py::object dict = existing_dict(steal(PyObject_GenericGetDict(function.ptr(), nullptr)),
                                  sources.instance_dict(function_source(function, "F")));
  if (str(name) == "__dict__") return dict;
  if (py::object found = dict_get(dict, name)) return found;
  raise(PyExc_AttributeError, cat("'function' object has no attribute '", str(name), "'"));
}

// What a function that was there before has of itself: __code__, __defaults__, __name__ ...
py::object Tracer::function_member(py::handle function, py::handle name, PyObject* descriptor) {
  py::object value = steal(PyObject_GetAttr(function.ptr(), name.ptr()));
  if (Py_TYPE(descriptor) != &PyGetSetDescr_Type && Py_TYPE(descriptor) != &PyMemberDescr_Type)
    return value;  // a method
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  if (value.ptr() == f->func_globals) return existing_dict(value, sources.pinned(value, "G"));
  if (PyCode_Check(value.ptr())) return guard_code(function), value;
  return wrap(value, sources.attribute(function_source(function, "F"), name));
}

// The code of a function that was there before stays the one that is captured.
void Tracer::guard_code(py::handle function) {
  Known* k = known(function);
  if (k && !k->source.valid()) return;
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  guard(GuardKind::IdIs, sources.code(function_source(function, str(py::handle(f->func_qualname)))),
        f->func_code);
}

py::object Tracer::module_dict(py::handle module) {
  auto pinned = sources.find_pinned(module);
  if (!pinned) pinned = sources.pinned(module, str(module.attr("__name__")));
  return existing_dict(module.attr("__dict__"), sources.instance_dict(*pinned));
}

// A class of modules may find what they have not by code of Python: torch.backends.cudnn.benchmark.
py::object Tracer::module_member(py::handle module, py::handle name) {
  py::object members = module_dict(module);
  if (py::object o = written(members, name); o && !o.is(missing())) return o;
  if (PyDict_Contains(members.ptr(), name.ptr()) == 1)
    if (py::object found = dict_get(members, name)) return found;
  PyTypeObject* type = Py_TYPE(module.ptr());
  PyObject* on_type = is_changeable_class(type) ? type_member(type, name) : nullptr;
  if (on_type != nullptr && python_method(on_type, names().get_)) {
    const SourceId source = member_source(reinterpret_cast<PyObject*>(type), name);
    return call_getter(wrap(on_type, source), module, type_object(module), name);
  }
  py::object found = steal(PyObject_GetAttr(module.ptr(), name.ptr()));
  PyObject* computes =
      is_constant(found.ptr()) ? special_method(module, names().getattr_) : nullptr;
  if (on_type == nullptr && computes != nullptr) {
    dict_get(members, name);  // guards that it is not there
    return call(computes, {borrow(module.ptr()), borrow(name.ptr())});
  }
  if (Py_TYPE(found.ptr()) == &_PyMethodWrapper_Type) return found;
  if (!is_callable_constant(found.ptr()) && !is_constant(found.ptr()))
    throw Break(BreakId::attribute_protocol, cat("the module attribute ", str(name)));
  return found;
}

py::object Tracer::load_type_attr(py::handle type, py::handle name) {
  auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
  PyObject* raw = lookup(t, name);
  if (raw != nullptr && is_written_on(t, name)) {
    if (Py_TYPE(raw)->tp_descr_get == nullptr || PyFunction_Check(raw)) return taken(borrow(raw));
    throw Break(BreakId::attribute_protocol, cat(t->tp_name, ".", str(name)));
  }
  if (raw == nullptr && is_written_on(t, name))
    raise(PyExc_AttributeError,
          cat("type object '", t->tp_name, "' has no attribute '", str(name), "'"));
  if (raw == nullptr) return metatype_attr(type, name);
  const SourceId source = member_source(type, name);
  if (Py_TYPE(raw) == &PyStaticMethod_Type || Py_TYPE(raw) == &PyClassMethod_Type) {
    guard(GuardKind::IdIs, source, raw);
    return steal(PyObject_GetAttr(type.ptr(), name.ptr()));
  }
  if (PyFunction_Check(raw) || Py_TYPE(raw)->tp_descr_get == nullptr) return wrap(raw, source);
  if (python_method(raw, names().get_))
    return call_getter(wrap(raw, source), py::none(), type, name);
  guard(GuardKind::IdIs, source, raw);
  return steal(PyObject_GetAttr(type.ptr(), name.ptr()));
}

// Of a class that has nothing under the name.
py::object Tracer::metatype_attr(py::handle type, py::handle name) {
  PyTypeObject* meta = Py_TYPE(type.ptr());
  type_member(reinterpret_cast<PyTypeObject*>(type.ptr()), name);
  PyObject* found = type_member(meta, name);
  if (found != nullptr && is_changeable_class(meta) && Py_TYPE(found)->tp_descr_get == nullptr)
    return wrap(found, member_source(reinterpret_cast<PyObject*>(meta), name));
  return steal(PyObject_GetAttr(type.ptr(), name.ptr()));
}

py::object Tracer::bind(py::handle d, py::handle o, PyTypeObject* type, py::handle name) {
  PyObject* p = d.ptr();
  if (Py_TYPE(p) == &PyStaticMethod_Type) return py::object(d.attr("__func__"));
  if (Py_TYPE(p) == &PyClassMethod_Type) {
    const py::object function = d.attr("__func__");
    if (!PyFunction_Check(function.ptr()) && Py_TYPE(function.ptr())->tp_descr_get != nullptr)
      throw Break(BreakId::attribute_protocol, cat(type->tp_name, ".", str(name)));
    return steal(PyMethod_New(function.ptr(), (PyObject*)type));
  }
  if (PyFunction_Check(p)) return steal(PyMethod_New(p, o.ptr()));
  if (is_unbound_native(p)) return steal(Py_TYPE(p)->tp_descr_get(p, o.ptr(), (PyObject*)type));
  if (Py_TYPE(p)->tp_descr_get == nullptr) return borrow(p);
  throw Break(BreakId::attribute_protocol, cat(type->tp_name, ".", str(name)));
}

// `descriptor.__get__(o, type)`, of a class written in Python; its getter is guarded.
py::object Tracer::call_getter(py::handle descriptor, py::handle o, py::handle type,
                               py::handle name) {
  static const py::object& cached =
      *new py::object(py::module_::import("functools").attr("cached_property"));
  PyObject* getter = special_method(descriptor, names().get_);
  if (getter == nullptr)
    throw Break(BreakId::attribute_protocol,
                cat(reinterpret_cast<PyTypeObject*>(type.ptr())->tp_name, ".", str(name)));
  // Its lock keeps threads apart, and only one captures.
  if (type_object(descriptor).is(cached) && !o.is_none()) {
    py::object key = load_attr(descriptor, py::str("attrname")), dict = instance_dict(o);
    if (py::object found = dict_get(dict, key)) return found;
    py::object value = call(load_attr(descriptor, py::str("func")), {borrow(o.ptr())});
    if (exists(o))
      dict_write(dict, key, value);
    else
      dict[key] = value;
    return value;
  }
  return call(getter, {borrow(descriptor.ptr()), borrow(o.ptr()), borrow(type.ptr())});
}

// What the class has under this name, guarded; borrowed, null where there is nothing.
PyObject* Tracer::type_member(PyTypeObject* type, py::handle name) {
  PyObject* found = lookup(type, name);
  if (!is_changeable_class(type) || is_written_on(type, name)) return found;
  const SourceId source = member_source(reinterpret_cast<PyObject*>(type), name);
  if (found == nullptr)
    guard(GuardKind::Missing, source);
  else if (is_constant(found))
    guard(GuardKind::TypeIs, source, type_object(found));
  else
    guard(GuardKind::IdIs, source, found);
  return found;
}

// A method that the class of `o` has in Python, guarded, or its absence; borrowed or null.
PyObject* Tracer::special_method(py::handle o, py::handle name) {
  if (!is_changeable_class(Py_TYPE(o.ptr()))) return nullptr;
  PyObject* found = type_member(Py_TYPE(o.ptr()), name);
  if (found == Py_None)
    throw Break(BreakId::attribute_protocol, cat("a ", str(name), " that is None"));
  return found != nullptr && PyFunction_Check(found) ? found : nullptr;
}

// The __dict__ of an object that may have been there before.
py::object Tracer::instance_dict(py::handle o) {
  py::object dict = steal(PyObject_GenericGetDict(o.ptr(), nullptr));
  return keeps_attributes(o) ? existing_dict(dict, sources.instance_dict(source_of(o))) : dict;
}

py::object Tracer::existing_dict(py::handle dict, SourceId source) {
  Known& k = known_[dict.ptr()];
  if (!k.source.valid()) {
    k.source = source;
    held_.push_back(borrow(dict.ptr()));
  }
  return borrow(dict.ptr());
}

// What the classes behind a super object's own have under the name. Methods are bound by CPython; what would run Python code
// or read the object is done here.
py::object Tracer::load_super_attr(py::handle super, py::handle name) {
  const py::object self = super.attr("__self__"), first = super.attr("__thisclass__");
  py::tuple mro;
  if (!self.is_none() && !is_name(name, names().class_))
    mro = super.attr("__self_class__").attr("__mro__");
  bool behind = false;
  for (py::handle entry : mro) {
    auto* type = reinterpret_cast<PyTypeObject*>(entry.ptr());
    PyObject* found = behind ? PyDict_GetItemWithError(type_dict(type), name.ptr()) : nullptr;
    if (behind) type_member(type, name);
    behind |= entry.is(first);
    if (found == nullptr) continue;
    if (Py_TYPE(found)->tp_descr_get == nullptr && !is_written_on(type, name))
      return wrap(found, member_source(entry, name));
    if (is_property(found)) {
      guard(GuardKind::IdIs, member_source(entry, name), found);
      return call(py::handle(found).attr("fget"), {self});
    }
    if (Py_TYPE(found)->tp_descr_set != nullptr || python_method(found, names().get_))
      throw Break(BreakId::attribute_protocol, cat("super().", str(name)));
    break;
  }
  return steal(PyObject_GetAttr(super.ptr(), name.ptr()));
}

bool Tracer::is_existing_tuple(py::handle o) {
  if (!PyTuple_Check(o.ptr()) || PyTuple_CheckExact(o.ptr())) return false;
  Known* k = known(o);
  return k != nullptr && k->source.valid();
}

// A tuple stands for its items, which are wrapped; its other attributes are not.
void Tracer::guard_no_attributes(PyObject* tuple, SourceId source) {
  const py::object original = known(tuple)->original;
  PyObject** dict = _PyObject_GetDictPtr(original.ptr());
  const SourceId held = sources.instance_dict(source);
  if (dict == nullptr || *dict == nullptr) return guard(GuardKind::Missing, held);
  if (PyDict_Size(*dict) > 0) throw Break(BreakId::attribute_protocol, "attributes of a tuple");
  guard(GuardKind::Length, held, {}, 0);
}

py::object Tracer::load_instance_attr(py::handle o, py::handle name, bool generic) {
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  const bool old = keeps_attributes(o);
  if (PyObject* own = python_method(p, names().getattribute_); own != nullptr && !generic)
    return call(own, {borrow(p), borrow(name.ptr())});
  if (is_name(name, names().class_) &&
      lookup(type, name) == _PyType_Lookup(&PyBaseObject_Type, name.ptr()))
    return type_of(o);
  if (PyTraceBack_Check(p) && PyUnicode_CompareWithASCIIString(name.ptr(), "tb_frame") == 0)
    throw Break(BreakId::frame_access, "the frame of a traceback");
  if (has_own_lookup(type) && !is_part_of_alias(type, name)) {
    if (old || PyWeakref_CheckProxy(p))
      throw Break(BreakId::attribute_protocol, cat(type->tp_name, ".", str(name)));
    return steal(PyObject_GetAttr(p, name.ptr()));
  }
  if (!old && type->tp_dictoffset == 0 && !is_changeable_class(type))
    return steal(PyObject_GetAttr(p, name.ptr()));  // an object of a type written in C
  SourceId source = old ? source_of(o) : SourceId();
  py::object pinned = type_object(o);
  const SourceId on_type = member_source(pinned, name);
  PyObject* descriptor = lookup(type, name);
  const bool written_on_type = is_written_on(type, name);
  if (descriptor != nullptr) {
    if (!is_constant(descriptor) && !written_on_type) guard(GuardKind::IdIs, on_type, descriptor);
    if (is_property(descriptor) || is_enum_property(descriptor)) {
      py::object getter = py::handle(descriptor).attr("fget");
      if (getter.is_none())  // says so
        return steal(PyProperty_Type.tp_descr_get(descriptor, p, pinned.ptr()));
      return call(getter, {borrow(p)});
    }
    // A field of a namedtuple, whose items are wrapped. The type's module has an underscore up to 3.11.
    if (PyTuple_Check(p) &&
        std::string_view(Py_TYPE(descriptor)->tp_name).ends_with("collections._tuplegetter"))
      return steal(PyObject_GenericGetAttr(p, name.ptr()));
    const bool data = Py_TYPE(descriptor)->tp_descr_set != nullptr;
    if (data && python_method(descriptor, names().get_))
      return call_getter(written_on_type ? borrow(descriptor) : wrap(descriptor, on_type), o,
                         pinned, name);
    if (data && Py_TYPE(descriptor)->tp_descr_get != nullptr) {
      if (is_name(name, names().dict_) && is_existing_tuple(o))
        throw Break(BreakId::attribute_protocol, "the __dict__ of a tuple");
      if (old && is_name(name, names().dict_)) {
        py::object dict = steal(PyObject_GenericGetDict(p, nullptr));
        return wrap(dict, sources.instance_dict(source));
      }
      if (Py_TYPE(descriptor) != &PyMemberDescr_Type && Py_TYPE(descriptor) != &PyGetSetDescr_Type)
        throw Break(BreakId::attribute_protocol, cat(type->tp_name, ".", str(name)));
      if (py::object now = old && !writes_items(o) ? written(o, name) : py::object()) {
        if (!now.is(missing())) return now;
        raise(PyExc_AttributeError, str(name));
      }
      py::object value = steal(PyObject_GenericGetAttr(p, name.ptr()));
      return old ? wrap(value, sources.attribute(source, name)) : value;
    }
  } else if (!written_on_type) {
    guard(GuardKind::Missing, on_type);
  }
  const bool has_dict = type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT);
  if (has_dict && is_existing_tuple(o)) {
    guard_no_attributes(p, known(o)->source);
  } else if (has_dict) {
    py::object dict = instance_dict(o);
    if (py::object found = dict_get(dict, name)) return found;
  }
  if (descriptor != nullptr) {
    if (written_on_type && Py_TYPE(descriptor)->tp_descr_get == nullptr)
      return taken(borrow(descriptor));
    if (is_constant(descriptor)) return wrap(descriptor, on_type);
    if (Py_TYPE(descriptor)->tp_descr_get == nullptr) return wrap(descriptor, on_type);
    if (python_method(descriptor, names().get_))
      return call_getter(written_on_type ? borrow(descriptor) : wrap(descriptor, on_type), o,
                         pinned, name);
    return bind(descriptor, o, type, name);
  }
  PyObject* fallback = _PyType_Lookup(type, names().getattr_);
  if (fallback != nullptr && PyFunction_Check(fallback)) {
    guard(GuardKind::IdIs, member_source(pinned, names().getattr_), fallback);
    return call(fallback, {borrow(p), borrow(name.ptr())});
  }
  try {
    no_attribute(type, name);
  } catch (py::error_already_set& e) {
    name_what_lacks(e, o, name);
    throw;
  }
}

// `descriptor.__set__(o, value)` or `descriptor.__delete__(o)`, of a class that is not CPython's own.
void Tracer::call_setter(PyObject* descriptor, py::handle o, py::handle name, py::handle value) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  const char* method = value ? "__set__" : "__delete__";
  PyObject* setter = special_method(descriptor, py::str(method));
  if (setter == nullptr && _PyType_Lookup(Py_TYPE(descriptor), py::str(method).ptr()) == nullptr)
    raise(PyExc_AttributeError, method);
  if (setter == nullptr)
    throw Break(BreakId::side_effect, cat("assignment to ", type->tp_name, ".", str(name)));
  py::object held = borrow(descriptor);
  if (!is_written_on(type, name)) held = wrap(descriptor, member_source(type_object(o), name));
  Arguments args{held, borrow(o.ptr())};
  if (value) args.push_back(borrow(value.ptr()));
  call(setter, args);
}

// As object.__setattr__ and object.__delattr__.
void Tracer::store_generic_attr(py::handle o, py::handle name, py::handle value) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  if (PyWeakref_CheckProxy(o.ptr()))
    throw Break(BreakId::side_effect, "assignment to an attribute of a proxy");
  PyObject* descriptor = type_member(type, name);
  if (descriptor != nullptr && is_property(descriptor)) {
    py::object setter = py::handle(descriptor).attr(value ? "fset" : "fdel");
    if (setter.is_none()) {  // says so
      PyProperty_Type.tp_descr_set(descriptor, o.ptr(), value.ptr());
      throw py::error_already_set();
    }
    Arguments args{borrow(o.ptr())};
    if (value) args.push_back(borrow(value.ptr()));
    call(setter, args);
    return;
  }
  const bool data = descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr;
  if (data && is_changeable_class(Py_TYPE(descriptor)))
    return call_setter(descriptor, o, name, value);
  if (is_existing_tuple(o))
    throw Break(BreakId::side_effect, cat("assignment to ", type->tp_name, ".", str(name)));
  if (!exists(o) && keeps_attributes(o))
    throw Break(BreakId::side_effect, cat("assignment to ", type->tp_name, ".", str(name)));
  if (!exists(o)) {
    const py::object held = value ? read(borrow(value.ptr())) : py::object();
    if (PyObject_GenericSetAttr(o.ptr(), name.ptr(), held.ptr()) != 0)
      throw py::error_already_set();
  } else if (data && Py_TYPE(descriptor) == &PyMemberDescr_Type && is_changeable_class(type)) {
    if (!value) check_slot(o, name);
    if (writes_items(o)) throw Break(BreakId::side_effect, cat("a slot of a ", type->tp_name));
    write_attribute(o, name, value);
  } else if (data || (type->tp_dictoffset == 0 && !(type->tp_flags & Py_TPFLAGS_MANAGED_DICT))) {
    if (descriptor == nullptr) no_attribute(type, name);
    throw Break(BreakId::side_effect, cat("assignment to ", type->tp_name, ".", str(name)));
  } else if (value) {
    dict_write(instance_dict(o), name, value);
  } else {
    delete_member(type, instance_dict(o), name);
  }
}

// That there is something to delete.
void Tracer::check_slot(py::handle o, py::handle name) {
  try {
    find_attr(o, name);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_AttributeError)) throw;
    PyErr_SetObject(PyExc_AttributeError, name.ptr());
    throw py::error_already_set();
  }
}

void Tracer::delete_member(PyTypeObject* type, py::handle dict, py::handle name) {
  if (!dict_has(dict, name)) no_attribute(type, name);
  dict_delete(dict, name);
}

void Tracer::store_attr(py::handle o, py::handle name, py::handle value) {
  require_name(name);
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  if (is_tensor(o)) throw Break(BreakId::tensor_attribute, cat("assignment to ", str(name)));
  if (is_array(o) && !in_array_code())
    throw Break(BreakId::numpy, cat("assignment to ", str(name)));
  if (PyType_Check(p)) return write_type(o, name, value);
  const bool made_function = PyFunction_Check(p) && known(o) && !known(o)->source.valid();
  if (made_function) {
    const py::object held = value ? read(borrow(value.ptr())) : py::object();
    if (PyObject_SetAttr(p, name.ptr(), held.ptr()) != 0) throw py::error_already_set();
    return;
  }
  if (PyFunction_Check(p) || PyModule_CheckExact(p)) {
    if (_PyType_Lookup(type, name.ptr()) != nullptr)
      throw Break(BreakId::side_effect, cat("assignment to ", type->tp_name, ".", str(name)));
    py::object dict = PyModule_Check(p) ? module_dict(o) : function_attr(o, py::str("__dict__"));
    return value ? dict_write(dict, name, value) : delete_member(type, dict, name);
  }
  static const py::str& deleter = *new py::str("__delattr__");
  if (PyObject* setter = special_method(o, value ? names().setattr_ : deleter.ptr())) {
    Arguments args{borrow(p), borrow(name.ptr())};
    if (value) args.push_back(borrow(value.ptr()));
    call(setter, args);
    return;
  }
  store_generic_attr(o, name, value);
}

}  // namespace oxy::python
