// Attributes of modules, classes, functions and objects, as CPython finds them.
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

bool is_property(PyObject* descriptor) {
  return PyObject_TypeCheck(descriptor, &PyProperty_Type) &&
         Py_TYPE(descriptor)->tp_descr_get == PyProperty_Type.tp_descr_get &&
         Py_TYPE(descriptor)->tp_descr_set == PyProperty_Type.tp_descr_set;
}

// As a property: Enum.value.
bool is_enum_property(PyObject* descriptor) {
  static const py::object& kind = *new py::object(  // 3.10 has no class of its own for them
      py::getattr(py::module_::import("enum"), "property",
                  py::module_::import("types").attr("DynamicClassAttribute")));
  return Py_TYPE(descriptor) == as_type(kind) && !py::handle(descriptor).attr("fget").is_none();
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

[[noreturn]] void no_attribute(PyTypeObject* type, py::handle name, const char* more = "") {
  raise(PyExc_AttributeError, "'", type->tp_name, "' object has no attribute '", text(name), "'",
        more);
}

// A slot that is empty.
[[noreturn]] void nothing_in_slot(PyTypeObject* type, py::handle name) {
#if PY_VERSION_HEX >= 0x030D0000
  const py::object whole = steal(PyType_GetFullyQualifiedName(type));
  raise(PyExc_AttributeError, "'", text(whole), "' object has no attribute '", text(name), "'");
#else
  no_attribute(type, name);
#endif
}

[[noreturn]] void nothing_to_delete(PyTypeObject* type, py::handle name) {
  if (kDeletionsTellNames) raise_with(PyExc_AttributeError, name);
  no_attribute(type, name);
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
  return (type == &Py_GenericAliasType ||
          reinterpret_cast<PyObject*>(type) == member_of<"types", "UnionType">().ptr()) &&
         (native_traits("types", "GenericAlias", view_of(name.ptr())) & native::PartOfAlias) != 0;
}

bool is_member(PyObject* descriptor) {
  return Py_TYPE(descriptor) == &PyMemberDescr_Type || Py_TYPE(descriptor) == &PyGetSetDescr_Type;
}

// What a setter is called with: no value where the attribute is deleted.
Arguments with_value(Arguments args, py::handle value) {
  if (value) args.push_back(borrow(value));
  return args;
}

[[noreturn]] void refuse_store(PyTypeObject* type, py::handle name) {
  throw Break(BreakId::side_effect, "assignment to ", type->tp_name, ".", text(name));
}

// Whether a descriptor of the metatype's is one of `type` that tells what the class itself has. The
// annotations of a class are made when they are asked for.
bool tells_own_member(PyObject* descriptor, py::handle type, py::handle name) {
  if (PyDict_GetItemWithError(type_dict(&PyType_Type), name.ptr()) != descriptor) return false;
  const auto told = owned(PyObject_GetAttr(type.ptr(), name.ptr()));
  PyErr_Clear();
  return told && PyDict_GetItemWithError(type_dict(as_type(type)), name.ptr()) == told.ptr();
}

}  // namespace

void require_name(py::handle name) {
  if (!PyUnicode_Check(name.ptr()))
    throw Break(BreakId::attribute_protocol, "an attribute's name that is no string");
}

py::object Objects::load_attr(py::handle o, py::handle name) {
  require_name(name);
  try {
    return find_attr(o, name);
  } catch (py::error_already_set& e) {
    name_what_lacks(e, o, name);
    throw;
  }
}

py::object Objects::find_attr(py::handle o, py::handle name) {
  PyObject* p = o.ptr();
  if (is_symbolic_int(o) && is_own_of_size(view_of(name.ptr())))
    return steal(PyObject_GenericGetAttr(p, name.ptr()));
  if (is_symbolic(o)) return find_attr(with_numbers(borrow(o)), name);
  const bool tensor = heap().is_tensor(o);
  if (Wrappers::wraps(p) || (tensor && wrappers().has_function(o)))
    if (PyObject* found = wrappers().method(o, name);
        found != nullptr && Py_TYPE(found) == &PyGetSetDescr_Type &&
        !is_name(name, names().dict_) && !is_name(name, names().class_))
      if (auto done = wrappers().attribute(o, name)) return *done;
  if (tensor) return calls().tensor_attr(o, name);
  if (is_array(o)) check_array_attr(o, name);
  if (is_numpy_limits(Py_TYPE(p)) && !is_name(name, names().dict_)) {
    if (heap().exists(o)) heap().guard(GuardKind::IdIs, heap().source_of(o), o);
    const RefusedFrames allowed(nullptr);  // computed on first use
    const auto value = py::reinterpret_steal<py::object>(PyObject_GetAttr(p, name.ptr()));
    if (value && (is_constant(value.ptr()) || is_real_scalar(value.ptr()))) return value;
    PyErr_Clear();
  }
  if (PyModule_Check(p)) return module_member(o, name);
  if (PyType_Check(p)) return load_type_attr(o, name);
  if (PyFunction_Check(p)) return function_attr(o, name);
  if (Py_TYPE(p) == &PySuper_Type) return load_super_attr(o, name);
  if (PyFrame_Check(p))
    if (auto found = frames().frame_attr(o, name)) return *found;
  // Its stand-in answers some as the iterator would.
  if (!iterators().empty() && iterators().lazy(o)) {
    if (!(native_traits("builtins", "generator", view_of(name.ptr())) & native::OfIterator))
      throw Break(BreakId::attribute_protocol, "an iterator's ", text(name));
    if (!is_name(name, names().iter_) && !is_name(name, names().next_))
      iterators().refuse_stand_in(o);
  }
  if (PyExceptionInstance_Check(p) && !heap().exists(o) && text(name) == "__traceback__")
    return frames().traceback_of(o);
  // What the code around the captured function deals with is the context of what that raises.
  if (PyExceptionInstance_Check(p) && text(name) == "__context__" &&
      frames().raised().contains(p) &&
      reinterpret_cast<PyBaseExceptionObject*>(p)->context == nullptr) {
    if (frames().handled_outside)
      throw Break(BreakId::attribute_protocol, "the context of an exception, of before the call");
    heap().guard_nothing_handled();
  }
  if (is_constant(p) || PyMethod_Check(p) || PyCFunction_Check(p))
    return steal(PyObject_GetAttr(p, name.ptr()));
  if (std::string_view(Py_TYPE(p)->tp_name) == "OpOverloadPacket" &&
      _PyType_Lookup(Py_TYPE(p), name.ptr()) == nullptr) {
    const RefusedFrames allowed(nullptr);  // it keeps the overload that it looks up
    py::getattr(o, name, py::none());
  }
  heap().note_question(o);
  return load_instance_attr(o, name);
}

py::object Objects::function_attr(py::handle function, py::handle name) {
  PyObject* found_on_type = _PyType_Lookup(&PyFunction_Type, name.ptr());
  if (heap().is_made_here(function)) return steal(PyObject_GetAttr(function.ptr(), name.ptr()));
  if (found_on_type != nullptr && !is_name(name, names().dict_)) {
    // What it has of itself: __code__, __defaults__, __name__ ...
    py::object value = steal(PyObject_GetAttr(function.ptr(), name.ptr()));
    if (!is_member(found_on_type)) return value;  // a method
    if (value.ptr() == as_function(function)->func_globals)
      return existing_dict(value, heap().sources.pinned(value, "G"));
    if (PyCode_Check(value.ptr())) return guard_code(function), value;
    return heap().wrap(value, heap().sources.attribute(heap().source_of(function, "F"), name));
  }
  py::object dict = existing_dict(steal(PyObject_GenericGetDict(function.ptr(), nullptr)),
                                  heap().sources.instance_dict(heap().source_of(function, "F")));
  if (text(name) == "__dict__") return dict;
  if (py::object found = effects().dict_get(dict, name)) return found;
  raise(PyExc_AttributeError, "'function' object has no attribute '", text(name), "'");
}

// The code of a function that was there before stays the one that is captured.
void Objects::guard_code(py::handle function) {
  if (heap().is_made_here(function)) return;
  auto* f = as_function(function);
  const SourceId source = heap().source_of(function, text(f->func_qualname));
  heap().guard(GuardKind::IdIs, heap().sources.code(source), f->func_code);
}

py::object Objects::module_dict(py::handle module) {
  auto pinned = heap().sources.find_pinned(module);
  if (!pinned) pinned = heap().sources.pinned(module, text(module.attr("__name__")));
  heap().guard(GuardKind::TypeIs, *pinned, py::type::of(module));  // it may be assigned
  return existing_dict(module.attr("__dict__"), heap().sources.instance_dict(*pinned));
}

// A class of modules may find what they have not by code of Python: torch.backends.cudnn.benchmark.
py::object Objects::module_member(py::handle module, py::handle name) {
  if (is_text(name.ptr(), "__annotations__")) py::getattr(module, name, py::none());  // makes them
  py::object members = module_dict(module);
  if (is_name(name, names().dict_)) return members;
  PyTypeObject* type = Py_TYPE(module.ptr());
  // Its class finds attributes in a way of its own, and may keep what it has found.
  const bool lazy = type != &PyModule_Type && (type->tp_getattro != PyModule_Type.tp_getattro ||
                                               _PyType_Lookup(type, names().getattr_) != nullptr);
  for (PyObject* how : {names().getattr_, names().getattribute_}) type_member(type, how);
  PyObject* on_class = type_member(type, name);
  guard_kind_of(on_class);
  const bool data = on_class != nullptr && Py_TYPE(on_class)->tp_descr_set != nullptr;
  if (!data && (!lazy || PyDict_Contains(members.ptr(), name.ptr()) == 1))
    if (py::object found = effects().dict_get(members, name)) return found;
  if (on_class != nullptr && python_method(on_class, names().get_)) {
    const SourceId source = classes().member_source(reinterpret_cast<PyObject*>(type), name);
    return call_getter(heap().wrap(on_class, source), module, py::type::of(module), name);
  }
  if (data && is_property(on_class) && !py::handle(on_class).attr("fget").is_none())
    return calls().call(py::handle(on_class).attr("fget"), {borrow(module)});
  if (on_class == nullptr && !lazy) {
    if (py::object fallback = effects().dict_get(members, borrow(names().getattr_)))
      return calls().call(fallback, {borrow(name)});
    if (PyDict_Contains(members.ptr(), name.ptr()) == 1)  // deleted by the captured code
      raise(PyExc_AttributeError, "module '", text(module.attr("__name__")), "' has no attribute '",
            text(name), "'");
  }
  const bool of_ops = module_of(type_object(type)) == "torch._ops";
  PyObject* attribute = PyObject_GetAttr(module.ptr(), name.ptr());
  if (attribute == nullptr && of_ops && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    throw Break(BreakId::attribute_protocol, "an op that nobody has registered, ", text(name));
  }
  py::object found = steal(attribute);
  PyObject* computes =
      is_constant(found.ptr()) ? special_method(module, names().getattr_) : nullptr;
  if (on_class == nullptr && computes != nullptr) {
    effects().dict_get(members, name);  // guards that it is not there
    return calls().call(computes, {borrow(module), borrow(name)});
  }
  if (is_method_wrapper(found.ptr())) return found;
  if (of_ops)  // torch.ops and its parts keep what they find
    if (py::object kept = effects().dict_get(members, name)) return kept;
  if (!is_callable_constant(found.ptr()) && !is_constant(found.ptr()))
    throw Break(BreakId::attribute_protocol, "the module attribute ", text(name));
  return found;
}

py::object Objects::load_type_attr(py::handle type, py::handle name) {
  auto* t = as_type(type);
  if (PyObject* own = special_method(type, names().getattribute_))
    return calls().call(own, {borrow(type), borrow(name)});
  PyObject* first = type_member(Py_TYPE(type.ptr()), name);
  guard_kind_of(first);
  const bool data = first != nullptr && Py_TYPE(first)->tp_descr_set != nullptr;
  if (data && !tells_own_member(first, type, name)) return metatype_attr(type, name);
  PyObject* raw = effects().lookup(t, name);
  guard_kind_of(raw);
  if (effects().is_written_on(t, name)) {
    if (raw == nullptr)
      raise(PyExc_AttributeError, "type object '", t->tp_name, "' has no attribute '", text(name),
            "'");
    if (Py_TYPE(raw)->tp_descr_get == nullptr || PyFunction_Check(raw))
      return numbers().taken(borrow(raw));
    throw Break(BreakId::attribute_protocol, t->tp_name, ".", text(name));
  }
  if (raw == nullptr) return metatype_attr(type, name);
  const SourceId source = classes().member_source(type, name);
  if (PyFunction_Check(raw) || Py_TYPE(raw)->tp_descr_get == nullptr)
    return heap().wrap(raw, source);
  if (python_method(raw, names().get_))
    return call_getter(heap().wrap(raw, source), py::none(), type, name);
  heap().guard(GuardKind::IdIs, source, raw);
  return steal(PyObject_GetAttr(type.ptr(), name.ptr()));
}

// Of a class that has nothing under the name, or whose metatype has a data descriptor.
py::object Objects::metatype_attr(py::handle type, py::handle name) {
  PyTypeObject* meta = Py_TYPE(type.ptr());
  type_member(as_type(type), name);
  PyObject* found = type_member(meta, name);
  const bool is_new = effects().is_written_on(meta, name);
  if (is_new && found != nullptr && Py_TYPE(found)->tp_descr_get == nullptr)
    return numbers().taken(borrow(found));
  if (is_new && found != nullptr && !is_property(found))
    throw Break(BreakId::attribute_protocol, meta->tp_name, ".", text(name));
  if (found != nullptr && is_changeable_class(meta) && Py_TYPE(found)->tp_descr_get == nullptr)
    return heap().wrap(found, classes().member_source(reinterpret_cast<PyObject*>(meta), name));
  if (PyObject* fallback = found == nullptr ? type_member(meta, names().getattr_) : nullptr) {
    if (!PyFunction_Check(fallback)) throw Break(BreakId::attribute_protocol, "__getattr__");
    return calls().call(fallback, {borrow(type), borrow(name)});
  }
  if (found != nullptr && is_property(found)) {
    const py::object getter = py::handle(found).attr("fget");
    if (!getter.is_none()) return calls().call(getter, {borrow(type)});
  }
  if (found != nullptr && python_method(found, names().get_)) {
    const SourceId source = classes().member_source(reinterpret_cast<PyObject*>(meta), name);
    return call_getter(heap().wrap(found, source), type, py::type::of(type), name);
  }
  py::object value = steal(PyObject_GetAttr(type.ptr(), name.ptr()));
  // Its name, its bases, its dict, and what follows from them.
  if (found == nullptr || !is_member(found) || !is_changeable_class(as_type(type)) ||
      classes().is_made_class(type))
    return value;
  const SourceId of_type = heap().sources.pinned(type, as_type(type)->tp_name);
  if (Py_TYPE(value.ptr()) == &PyDictProxy_Type) {
    existing_dict(borrow(type_dict(as_type(type))), heap().sources.instance_dict(of_type));
    heap().found_at(value, heap().sources.attribute(of_type, name));
    return value;
  }
  return heap().wrap(value, heap().sources.attribute(of_type, name));
}

py::object Objects::bind(py::handle d, py::handle o, PyTypeObject* type, py::handle name) {
  PyObject* p = d.ptr();
  if (Py_TYPE(p) == &PyStaticMethod_Type) return py::object(d.attr("__func__"));
  if (Py_TYPE(p) == &PyClassMethod_Type) {
    const py::object function = d.attr("__func__");
    if (!PyFunction_Check(function.ptr()) && Py_TYPE(function.ptr())->tp_descr_get != nullptr)
      throw Break(BreakId::attribute_protocol, type->tp_name, ".", text(name));
    return steal(PyMethod_New(function.ptr(), (PyObject*)type));
  }
  const std::string_view kind = Py_TYPE(p)->tp_name;
  if (PyFunction_Check(p) || kind == "functools._lru_cache_wrapper" ||
      kind.ends_with(".cython_function_or_method"))
    return steal(PyMethod_New(p, o.ptr()));
  if (is_unbound_native(p)) return steal(Py_TYPE(p)->tp_descr_get(p, o.ptr(), (PyObject*)type));
  if (Py_TYPE(p)->tp_descr_get == nullptr) return borrow(p);
  throw Break(BreakId::attribute_protocol, type->tp_name, ".", text(name));
}

// `descriptor.__get__(o, type)`, of a class written in Python; its getter is guarded.
py::object Objects::call_getter(py::handle descriptor, py::handle o, py::handle type,
                                py::handle name) {
  PyObject* getter = special_method(descriptor, names().get_);
  if (getter == nullptr)
    throw Break(BreakId::attribute_protocol, as_type(type)->tp_name, ".", text(name));
  // Its lock keeps threads apart, and only one captures.
  if (py::type::of(descriptor).is(member_of<"functools", "cached_property">()) && !o.is_none()) {
    py::object key = load_attr(descriptor, py::str("attrname")), dict = instance_dict(o);
    if (py::object found = effects().dict_get(dict, key)) return found;
    py::object value = calls().call(load_attr(descriptor, py::str("func")), {borrow(o)});
    if (heap().exists(o))
      effects().dict_write(dict, key, value);
    else
      dict[key] = value;
    return value;
  }
  return calls().call(getter, {borrow(descriptor), borrow(o), borrow(type)});
}

// What the class has under this name, guarded; borrowed, null where there is nothing.
PyObject* Objects::type_member(PyTypeObject* type, py::handle name) {
  PyObject* found = effects().lookup(type, name);
  if (!is_changeable_class(type) || effects().is_written_on(type, name)) return found;
  const SourceId source = classes().member_source(reinterpret_cast<PyObject*>(type), name);
  if (found == nullptr)
    heap().guard(GuardKind::Missing, source);
  else if (is_constant(found))
    heap().guard(GuardKind::TypeIs, source, py::type::of(found));
  else
    heap().guard(GuardKind::IdIs, source, found);
  return found;
}

// What a class has under a name, or null, may become a descriptor, or another kind of one.
void Objects::guard_kind_of(PyObject* member) {
  if (member == nullptr || !is_changeable_class(Py_TYPE(member))) return;
  for (const char* method : {"__get__", "__set__", "__delete__"})
    type_member(Py_TYPE(member), py::str(method));
}

// A method that the class of `o` has in Python, guarded, or its absence; borrowed or null.
PyObject* Objects::special_method(py::handle o, py::handle name) {
  if (!is_changeable_class(Py_TYPE(o.ptr()))) return nullptr;
  PyObject* found = type_member(Py_TYPE(o.ptr()), name);
  if (found == Py_None) throw Break(BreakId::attribute_protocol, "a ", text(name), " that is None");
  return found != nullptr && PyFunction_Check(found) ? found : nullptr;
}

// The __dict__ of an object that may have been there before.
py::object Objects::instance_dict(py::handle o) {
  if (heap().exists(o) && is_thread_local(o.ptr())) {
    const py::object of_thread = owned(thread_local_dict(o.ptr()));
    if (!of_thread)
      throw Break(BreakId::attribute_protocol, "a threading.local that is new to this thread");
    return existing_dict(of_thread, heap().sources.thread_dict(heap().source_of(o)));
  }
  py::object dict = steal(PyObject_GenericGetDict(o.ptr(), nullptr));
  if (!heap().keeps_attributes(o)) return dict;
  return existing_dict(dict, heap().sources.instance_dict(heap().source_of(o)));
}

// The dict of a class, of what its __dict__ gives, or of another mappingproxy; null for all else.
py::object Objects::class_dict(py::handle proxy) {
  if (Py_TYPE(proxy.ptr()) != &PyDictProxy_Type || !heap().exists(proxy)) return {};
  const py::object dict = dict_inside(proxy);
  const Tracked* k = dict ? heap().tracked(dict) : nullptr;
  const SourceId place = heap().tracked(proxy)->source;
  if (k == nullptr || !k->source.valid()) {
    if (!dict || !(PyDict_CheckExact(dict.ptr()) || PyODict_CheckExact(dict.ptr()))) return {};
    heap().guard(GuardKind::IdIs, place, proxy);
    return existing_dict(dict, heap().sources.pinned(dict, "the dict of a mappingproxy"));
  }
  const Source& source = heap().sources[place];
  if (source.kind != SourceKind::Attribute || !is_text(source.key.ptr(), "__dict__"))
    heap().guard(GuardKind::IdIs, place, proxy);  // so is its dict, for as long as it lives
  if (effects().writes_classes())
    throw Break(BreakId::side_effect, "the __dict__ of a class behind an assignment to one");
  return dict;
}

py::object Objects::existing_dict(py::handle dict, SourceId source) {
  if (!heap().entry(dict.ptr()).source.valid()) heap().found_at(dict, source);
  return borrow(dict);
}

// What the classes behind a super object's own have under the name. Methods are bound by CPython;
// what would run Python code or read the object is done here.
py::object Objects::load_super_attr(py::handle super, py::handle name) {
  const py::object self = super.attr("__self__"), first = super.attr("__thisclass__");
  py::tuple mro;
  if (!self.is_none() && !is_name(name, names().class_))
    mro = super.attr("__self_class__").attr("__mro__");
  if (!mro.empty()) classes().guard_bases(as_type(py::object(super.attr("__self_class__"))));
  bool behind = false;
  for (py::handle entry : mro) {
    auto* type = as_type(entry);
    PyObject* found = behind ? PyDict_GetItemWithError(type_dict(type), name.ptr()) : nullptr;
    if (behind) type_member(type, name);
    behind |= entry.is(first);
    if (found == nullptr) continue;
    guard_kind_of(found);
    if (Py_TYPE(found)->tp_descr_get == nullptr && !effects().is_written_on(type, name))
      return heap().wrap(found, classes().member_source(entry, name));
    if (is_property(found)) {
      heap().guard(GuardKind::IdIs, classes().member_source(entry, name), found);
      return calls().call(py::handle(found).attr("fget"), {self});
    }
    if (Py_TYPE(found)->tp_descr_set != nullptr || python_method(found, names().get_))
      throw Break(BreakId::attribute_protocol, "super().", text(name));
    break;
  }
  return steal(PyObject_GetAttr(super.ptr(), name.ptr()));
}

bool Objects::is_existing_tuple(py::handle o) {
  if (!PyTuple_Check(o.ptr()) || PyTuple_CheckExact(o.ptr())) return false;
  Tracked* k = heap().tracked(o);
  return k != nullptr && k->source.valid();
}

// As CPython: what is not found, and what a getter raises AttributeError for, the class's
// __getattr__ is asked for; `generic`, as object.__getattribute__, does not ask.
py::object Objects::load_instance_attr(py::handle o, py::handle name, bool generic) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  PyObject* own = generic ? nullptr : special_method(o, names().getattribute_);
  py::object found;
  try {
    found = own != nullptr ? calls().call(own, {borrow(o), borrow(name)}) : found_attr(o, name);
  } catch (py::error_already_set& e) {
    if (generic || !e.matches(PyExc_AttributeError) ||
        type_member(type, names().getattr_) == nullptr)
      throw;
  }
  if (found) return found;
  if (PyObject* fallback = generic ? nullptr : type_member(type, names().getattr_)) {
    if (!PyFunction_Check(fallback) && !is_unbound_native(fallback))  // such as dict.get
      throw Break(BreakId::attribute_protocol, "__getattr__");
    return calls().call(fallback, {borrow(o), borrow(name)});
  }
  try {
    no_attribute(type, name);
  } catch (py::error_already_set& e) {
    name_what_lacks(e, o, name);
    throw;
  }
}

// What the class or the object has under the name; null where there is nothing.
py::object Objects::found_attr(py::handle o, py::handle name) {
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  const bool old = heap().keeps_attributes(o);
  if (is_name(name, names().class_) &&
      effects().lookup(type, name) == _PyType_Lookup(&PyBaseObject_Type, name.ptr())) {
    iterators().refuse_stand_in(o);
    return type_of(o);
  }
  // Of 3.13: it has weak references for keys, and gives what would be made anew.
  if (py::handle(type_object(type)).is(member_of<"functools", "singledispatchmethod">()) &&
      is_text(name.ptr(), "_method_cache"))
    return py::none();
  if (PyTraceBack_Check(p) && PyUnicode_CompareWithASCIIString(name.ptr(), "tb_frame") == 0)
    throw Break(BreakId::frame_access, "the frame of a traceback");
  const bool of_thread = old && is_thread_local(p);
  if (of_thread && is_name(name, names().dict_)) return instance_dict(o);  // no member of its class
  if (!of_thread && has_own_lookup(type) && !is_part_of_alias(type, name)) {
    if (old || PyWeakref_CheckProxy(p))
      throw Break(BreakId::attribute_protocol, type->tp_name, ".", text(name));
    return steal(PyObject_GetAttr(p, name.ptr()));
  }
  if (!old && type->tp_dictoffset == 0 && !is_changeable_class(type))
    return steal(PyObject_GetAttr(p, name.ptr()));  // an object of a type written in C
  SourceId source = old ? heap().source_of(o) : SourceId();
  py::object pinned = py::type::of(o);
  const SourceId on_type = classes().member_source(pinned, name);
  PyObject* descriptor = effects().lookup(type, name);
  const bool written_on_type = effects().is_written_on(type, name);
  auto wrapped = [&] {
    return written_on_type ? borrow(descriptor) : heap().wrap(descriptor, on_type);
  };
  if (descriptor != nullptr) {
    if (!is_constant(descriptor) && !written_on_type)
      heap().guard(GuardKind::IdIs, on_type, descriptor);
    guard_kind_of(descriptor);
    if (is_property(descriptor) || is_enum_property(descriptor)) {
      py::object getter = py::handle(descriptor).attr("fget");
      if (getter.is_none())  // says so
        return steal(PyProperty_Type.tp_descr_get(descriptor, p, pinned.ptr()));
      return calls().call(getter, {borrow(p)});
    }
    // A field of a namedtuple, whose items are wrapped. The type's module has an underscore up to
    // 3.11.
    if (PyTuple_Check(p) &&
        std::string_view(Py_TYPE(descriptor)->tp_name).ends_with("collections._tuplegetter"))
      return steal(PyObject_GenericGetAttr(p, name.ptr()));
    const bool data = Py_TYPE(descriptor)->tp_descr_set != nullptr;
    if (data && python_method(descriptor, names().get_))
      return call_getter(wrapped(), o, pinned, name);
    if (data && Py_TYPE(descriptor)->tp_descr_get != nullptr) {
      if (is_name(name, names().dict_) && is_existing_tuple(o))
        throw Break(BreakId::attribute_protocol, "the __dict__ of a tuple");
      if (old && is_name(name, names().dict_))
        return heap().wrap(steal(PyObject_GenericGetDict(p, nullptr)),
                           heap().sources.instance_dict(source));
      if (!is_member(descriptor))
        throw Break(BreakId::attribute_protocol, type->tp_name, ".", text(name));
      if (py::object now = old && !writes_items(o) ? effects().written(o, name) : py::object()) {
        if (!now.is(missing())) return now;
        nothing_in_slot(type, name);
      }
      py::object value = owned(PyObject_GenericGetAttr(p, name.ptr()));
      const SourceId slot = old ? heap().sources.attribute(source, name) : SourceId();
      if (!value) {  // a slot that nothing has been put into
        py::error_already_set raised;
        heap().guard(GuardKind::Missing, slot);
        throw raised;
      }
      return heap().wrap(value, slot);
    }
  } else if (!written_on_type) {
    heap().guard(GuardKind::Missing, on_type);
  }
  const bool has_dict = of_thread || has_instance_dict(type);
  if (has_dict && is_existing_tuple(o)) {
    // It stands for its items, which are wrapped; its other attributes are not.
    const Tracked& k = *heap().tracked(o);
    const py::object dict = steal(PyObject_GenericGetDict(k.original.ptr(), nullptr));
    if (py::len(dict) > 0) throw Break(BreakId::attribute_protocol, "attributes of a tuple");
    heap().guard(GuardKind::Length, heap().sources.instance_dict(k.source));
  } else if (has_dict) {
    py::object dict = instance_dict(o);
    if (py::object found = effects().dict_get(dict, name)) return found;
  }
  if (descriptor != nullptr) {
    if (written_on_type && Py_TYPE(descriptor)->tp_descr_get == nullptr)
      return numbers().taken(borrow(descriptor));
    if (is_constant(descriptor) || Py_TYPE(descriptor)->tp_descr_get == nullptr)
      return heap().wrap(descriptor, on_type);
    if (python_method(descriptor, names().get_)) return call_getter(wrapped(), o, pinned, name);
    return bind(descriptor, o, type, name);
  }
  return {};
}

// `descriptor.__set__(o, value)` or `descriptor.__delete__(o)`, of a class that is not CPython's
// own.
void Objects::call_setter(PyObject* descriptor, py::handle o, py::handle name, py::handle value) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  const char* method = value ? "__set__" : "__delete__";
  PyObject* setter = special_method(descriptor, py::str(method));
  if (setter == nullptr && _PyType_Lookup(Py_TYPE(descriptor), py::str(method).ptr()) == nullptr)
    raise(PyExc_AttributeError, method);
  if (setter == nullptr) refuse_store(type, name);
  py::object held = borrow(descriptor);
  if (!effects().is_written_on(type, name))
    held = heap().wrap(descriptor, classes().member_source(py::type::of(o), name));
  calls().call(setter, with_value({held, borrow(o)}, value));
}

// As object.__setattr__ and object.__delattr__.
void Objects::store_generic_attr(py::handle o, py::handle name, py::handle value) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  if (is_symbolic_int(o) || is_symbolic_bool(o)) {
    const py::object number = type_of(borrow(o));
    if (_PyType_Lookup(as_type(number), name.ptr()) == nullptr)
      no_attribute(as_type(number), name, kNoDictToSet);
    refuse_store(as_type(number), name);
  }
  const bool of_thread = heap().exists(o) && is_thread_local(o.ptr());
  if (of_thread && is_name(name, names().dict_)) refuse_store(type, name);
  if (has_own_lookup(type) && !of_thread && !PyModule_Check(o.ptr()) && !PyType_Check(o.ptr()))
    throw Break(BreakId::side_effect, "assignment to an attribute of a ", type->tp_name);
  // 3.10 would go on with the traceback that an exception was caught with.
  if (PyExceptionInstance_Check(o.ptr()) && (kHasBlocks || !heap().exists(o)) && value &&
      (value.is_none() || PyTraceBack_Check(value.ptr())) && is_text(name.ptr(), "__traceback__"))
    return frames().set_traceback(o, value);
  PyObject* descriptor = type_member(type, name);
  guard_kind_of(descriptor);
  if (descriptor != nullptr && is_property(descriptor)) {
    py::object setter = py::handle(descriptor).attr(value ? "fset" : "fdel");
    if (setter.is_none()) {  // says so
      PyProperty_Type.tp_descr_set(descriptor, o.ptr(), value.ptr());
      throw py::error_already_set();
    }
    calls().call(setter, with_value({borrow(o)}, value));
    return;
  }
  const bool data = descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr;
  if (data && is_changeable_class(Py_TYPE(descriptor)))
    return call_setter(descriptor, o, name, value);
  const bool is_module = PyModule_Check(o.ptr());  // of a class of its own; no module is tracked
  if (is_existing_tuple(o) || (!heap().exists(o) && heap().keeps_attributes(o)))
    refuse_store(type, name);
  if (!heap().exists(o) && !is_module) {
    check(PyObject_GenericSetAttr(o.ptr(), name.ptr(), numbers().carried(borrow(value)).ptr()));
  } else if (data && Py_TYPE(descriptor) == &PyMemberDescr_Type && is_changeable_class(type)) {
    try {  // there is something to delete
      if (!value) find_attr(o, name);
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_AttributeError)) throw;
      raise_with(PyExc_AttributeError, name);
    }
    if (writes_items(o) || is_module)
      throw Break(BreakId::side_effect, "a slot of a ", type->tp_name);
    effects().write_attribute(o, name, value);
  } else if (data || !(of_thread || has_instance_dict(type))) {
    if (descriptor == nullptr) no_attribute(type, name, kNoDictToSet);
    refuse_store(type, name);
  } else {
    const py::object members = is_module ? module_dict(o) : instance_dict(o);
    if (value)
      effects().dict_write(members, name, value);
    else
      delete_member(type, members, name);
  }
}

void Objects::delete_member(PyTypeObject* type, py::handle dict, py::handle name) {
  if (!effects().dict_has(dict, name)) nothing_to_delete(type, name);
  effects().dict_delete(dict, name);
}

// A method written in C that a class has under another name than its own; null for all else.
PyObject* Objects::method_by_other_name(PyTypeObject* type, py::handle name) {
  PyObject* found = is_changeable_class(type) ? type_member(type, name) : nullptr;
  return found != nullptr && is_unbound_native(found) &&
                 PyUnicode_Compare(PyDescr_NAME(found), name.ptr()) != 0
             ? found
             : nullptr;
}

// A function of torch's, which others that are no captured code would call.
static void refuse_to_patch(py::handle module, py::handle name) {
  const std::string of = text(module.attr("__name__"));
  PyObject* before = PyDict_GetItemWithError(PyModule_GetDict(module.ptr()), name.ptr());
  if ((of == "torch" || of.starts_with("torch.")) && before != nullptr && PyCallable_Check(before))
    throw Break(BreakId::side_effect, "assignment to ", of, ".", text(name));
}

void Objects::store_attr(py::handle o, py::handle name, py::handle value) {
  require_name(name);
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  if (heap().is_tensor(o) && is_text(name.ptr(), "grad")) return calls().set_gradient(o, value);
  if (heap().is_tensor(o) && is_text(name.ptr(), "requires_grad") && value &&
      PyBool_Check(value.ptr()) && !is_wrapped(THPVariable_Unpack(o.ptr()))) {
    graphs().require_gradient(borrow(o), value.ptr() == Py_True);
    return;
  }
  if (heap().is_tensor(o)) {
    if (is_text(name.ptr(), "data")) return calls().set_data(o, value);
    return calls().set_tensor_attr(o, name, value);
  }
  if (is_array(o) && !arrays().in_array_code())
    throw Break(BreakId::numpy, "assignment to ", text(name));
  if (PyType_Check(p)) return effects().write_type(o, name, value);
  if (PyFunction_Check(p) && heap().is_made_here(o))
    return check(PyObject_SetAttr(p, name.ptr(), numbers().carried(borrow(value)).ptr()));
  if (PyModule_Check(p)) refuse_to_patch(o, name);
  if (PyFunction_Check(p) || PyModule_CheckExact(p)) {
    if (_PyType_Lookup(type, name.ptr()) != nullptr) refuse_store(type, name);
    py::object dict = PyModule_Check(p) ? module_dict(o) : function_attr(o, py::str("__dict__"));
    return value ? effects().dict_write(dict, name, value) : delete_member(type, dict, name);
  }
  static const py::str& deleter = *new py::str("__delattr__");
  const py::handle method = value ? names().setattr_ : deleter.ptr();
  if (PyObject* setter = special_method(o, method))
    calls().call(setter, with_value({borrow(p), borrow(name)}, value));
  else if (PyObject* other = method_by_other_name(type, method))  // such as dict.__setitem__
    calls().call(other, with_value({borrow(p), borrow(name)}, value));
  else
    store_generic_attr(o, name, value);
}

}  // namespace oxy::python
