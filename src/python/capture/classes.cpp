// Classes that captured code makes: the body is interpreted, the class itself really made, so that
// CPython gives it its slots and its order of bases. A call that hits the graph makes none.
//
// So a class made here may be used but not leave the call: what is planned for afterwards refuses
// it, and the capture stops in front of its statement. One of collections.namedtuple may: each call
// makes it again. Of its own members nothing is guarded; those that it has from classes that were
// there before are. Code that CPython would run while the class is made (a metaclass,
// __init_subclass__, __set_name__) is a break, too. Of abstract classes what isinstance and
// issubclass say is guarded, which a registration may change.
#include "python/capture/capture.h"
#include "python/cpython/boundary.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

// Metaclasses that change nothing but the class that they make, and call nothing but what is looked
// for here.
bool is_known_metaclass(py::handle meta) {
  return as_type(meta) == &PyType_Type || meta.is(member_of<"abc", "ABCMeta">()) ||
         meta.is(member_of<"enum", "EnumMeta">()) ||
         meta.is(member_of<"torch.autograd.function", "FunctionMeta">());
}

// As CPython finds it: the one that all others are bases of.
py::object metaclass_of(py::object winner, const py::tuple& bases) {
  for (py::handle base : bases)
    if (!PyType_Check(base.ptr())) throw Break(BreakId::local_class, "a base that is no class");
  if (!PyType_Check(winner.ptr()))
    throw Break(BreakId::local_class, "a metaclass that is no class");
  for (py::handle base : bases) {
    const py::object other = py::type::of(base);
    if (PyType_IsSubtype(as_type(winner), as_type(other))) continue;
    if (!PyType_IsSubtype(as_type(other), as_type(winner)))
      throw Break(BreakId::local_class, "metaclasses that do not fit");
    winner = other;
  }
  if (!is_known_metaclass(winner))
    throw Break(BreakId::local_class, "the metaclass ", as_type(winner)->tp_name);
  return winner;
}

// A Python function, or the one in a classmethod; null for all else.
PyObject* python_function(PyObject* found) {
  if (found == nullptr || PyFunction_Check(found)) return found;
  if (Py_TYPE(found) != &PyClassMethod_Type) return nullptr;
  const py::object inside = py::handle(found).attr("__func__");  // the classmethod holds it
  return PyFunction_Check(inside.ptr()) ? inside.ptr() : nullptr;
}

struct Answer {
  PyObject_HEAD;
  PyObject *type, *asked;   // weak references
  PyObject* registrations;  // how many there were when it was asked; null: never
  PyObject* answer;
};

PyObject* ask(PyObject* o) {
  auto* self = reinterpret_cast<Answer*>(o);
  const auto now = owned(PyObject_CallNoArgs(member_of<"_abc", "get_cache_token">().ptr()));
  if (!now) return nullptr;
  if (self->registrations != nullptr) {
    const int same = PyObject_RichCompareBool(now.ptr(), self->registrations, Py_EQ);
    if (same != 0) return same < 0 ? nullptr : Py_NewRef(self->answer);
  }
  const py::object type = borrow(PyWeakref_GetObject(self->type));
  const py::object asked = borrow(PyWeakref_GetObject(self->asked));
  if (type.is_none() || asked.is_none()) return Py_NewRef(Py_None);
  const int yes = PyObject_IsSubclass(type.ptr(), asked.ptr());
  if (yes < 0) return nullptr;
  Py_XSETREF(self->answer, PyBool_FromLong(yes));
  Py_XSETREF(self->registrations, Py_NewRef(now.ptr()));
  return Py_NewRef(self->answer);
}

PyObject* get_answer(PyObject* o, void*) {
  return boundary([=] { return ask(o); }, nullptr);
}

void drop(PyObject* o) {
  auto* self = reinterpret_cast<Answer*>(o);
  boundary([=] {
    Py_XDECREF(self->type);
    Py_XDECREF(self->asked);
    Py_XDECREF(self->registrations);
    Py_XDECREF(self->answer);
  });
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyTypeObject* answer_type() {
  static PyGetSetDef members[] = {{"answer", get_answer, nullptr, nullptr, nullptr}, {}};
  static PyType_Slot slots[] = {
      {Py_tp_getset, members}, {Py_tp_dealloc, reinterpret_cast<void*>(drop)}, {0, nullptr}};
  static PyType_Spec spec = {"oxyfuel.IsSubclass", sizeof(Answer), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  static PyObject* type = steal(PyType_FromSpec(&spec)).release().ptr();
  return as_type(type);
}

// An object whose attribute `answer` is issubclass(type, asked), of an abstract class where a
// registration may change that: the same object for the same classes, which it does not keep alive.
// They are asked again only where something was registered since.
py::object answer_of(py::handle type, py::handle asked) {
  const py::object& weak = member_of<"weakref", "WeakKeyDictionary">();
  static const py::object& answers = *new py::object(weak());
  const py::object of_asked = answers.attr("setdefault")(asked, weak());
  py::object answer = of_asked.attr("get")(type);
  if (!answer.is_none()) return answer;
  answer = steal(answer_type()->tp_alloc(answer_type(), 0));
  auto* a = reinterpret_cast<Answer*>(answer.ptr());
  a->type = py::weakref(type).release().ptr();
  a->asked = py::weakref(asked).release().ptr();
  of_asked.attr("__setitem__")(type, answer);
  return answer;
}

}  // namespace

// Its bases are asked for their subclasses by code that does not know of a capture.
Classes::~Classes() {
  if (made_classes_.empty()) return;
  const py::error_scope others;
  for (const auto& [made, place] : made_classes_) leave_bases(as_type(made));
}

py::object name_in(py::handle names, py::handle name) {
  if (!names || !PyDict_Check(names.ptr()))
    throw Break(BreakId::instruction, "names of a scope that is no class");
  return item_in(names, name);
}

py::object Classes::load_name(TracedFrame& f, py::handle name) {
  if (py::object found = name_in(f.names, name)) return found;
  return frames().load_global(f, name);
}

// `value` is null where the name is deleted.
void Classes::store_name(TracedFrame& f, py::handle name, py::handle value) {
  if (!name_in(f.names, name) && !value) name_error(name);
  check(value ? PyObject_SetItem(f.names.ptr(), name.ptr(), value.ptr())
              : PyObject_DelItem(f.names.ptr(), name.ptr()));
}

py::object Classes::load_build_class(const TracedFrame& f) {
  static PyObject* const name = PyUnicode_InternFromString("__build_class__");
  auto* function = as_function(f.function);
  PyObject* found = PyDict_GetItemWithError(function->func_builtins, name);
  if (found == nullptr) throw Break(BreakId::local_class, "there is no __build_class__");
  return heap().wrap(found, heap().sources.dict_item(
                                heap().sources.pinned(function->func_builtins, "builtins"), name));
}

// __build_class__(body, name, *bases, metaclass, **keywords)
py::object Classes::build_class(Arguments args, Keywords kwargs) {
  if (args.size() < 2 || !PyFunction_Check(args[0].ptr()) || !PyUnicode_CheckExact(args[1].ptr()))
    throw Break(BreakId::local_class, "__build_class__ of what is no class statement");
  const py::tuple bases = tuple_of({args.begin() + 2, args.end()});
  py::object meta = type_object(&PyType_Type);
  std::erase_if(kwargs, [&](const auto& keyword) {
    const bool found = keyword.first.equal(py::str("metaclass"));
    if (found) meta = keyword.second;
    return found;
  });
  meta = metaclass_of(meta, bases);
  const py::object names = meta.attr("__prepare__")(args[1], bases, **dict_of(kwargs));
  if ((code_of(args[0])->co_flags & (CO_OPTIMIZED | CO_NEWLOCALS | CO_GENERATOR)) != 0)
    throw Break(BreakId::local_class, "a body that is a function");
  objects().guard_code(args[0]);
  TracedFrame body(args[0]);
  body.names = names;
  const py::object cell = frames().interpret(body);
  py::object made = make_class(meta, {args[1], bases, names}, kwargs);
  if (PyCell_Check(cell.ptr()) && PyCell_GET(cell.ptr()) != made.ptr())
    throw Break(BreakId::local_class, "__class__ is another class");
  return made;
}

// What type.__new__ and the metaclasses above would call.
void Classes::refuse_class_hooks(py::handle bases, py::handle names) {
  for (py::handle base : py::reinterpret_borrow<py::tuple>(bases)) {
    PyObject* hook =
        python_function(objects().type_member(as_type(base), py::str("__init_subclass__")));
    if (hook != nullptr && module_of(hook) != "enum")
      throw Break(BreakId::local_class, as_type(base)->tp_name, ".__init_subclass__");
  }
  for (auto [name, value] : py::reinterpret_borrow<py::dict>(names)) {
    PyObject* hook =
        python_function(objects().type_member(Py_TYPE(value.ptr()), py::str("__set_name__")));
    const std::string module = hook != nullptr ? module_of(hook) : "";
    if (hook != nullptr && module != "functools" && module != "enum" && module != "dataclasses")
      throw Break(BreakId::local_class, Py_TYPE(value.ptr())->tp_name, ".__set_name__");
    if (name.equal(py::str("__slots__")) && (heap().exists(value) || iterators().lazy(value)))
      throw Break(BreakId::local_class, "__slots__ of an object that was there before");
  }
}

// metaclass(name, bases, names, **keywords)
py::object Classes::make_class(py::handle metaclass, const Arguments& args,
                               const Keywords& kwargs) {
  if (args.size() != 3 || !PyTuple_CheckExact(args[1].ptr()) || !PyDict_Check(args[2].ptr()))
    throw Break(BreakId::local_class, "a class of something else than names");
  const py::tuple bases(args[1]);
  const py::object meta = metaclass_of(borrow(metaclass), bases);
  py::object names = heap().contents(args[2]);
  if (PyDict_CheckExact(names.ptr())) names = names.attr("copy")();
  auto* maker = as_function(frames().stack().back()->function);
  if (!name_in(names, py::str("__module__")))  // CPython would ask the frame that runs
    if (PyObject* module = PyDict_GetItemString(maker->func_globals, "__name__"))
      names[py::str("__module__")] = py::handle(module);
  refuse_class_hooks(bases, names);
  if (meta.is(member_of<"enum", "EnumMeta">())) {  // it makes the members
    for (py::handle base : bases)
      if (base.attr("__module__").cast<std::string>() != "enum")
        throw Break(BreakId::local_class, "an enum with a base");
    for (auto [name, value] : py::reinterpret_borrow<py::dict>(names)) {
      const auto text = name.cast<std::string>();
      PyObject* function = python_function(value.ptr());
      const bool counts =
          text == "_generate_next_value_" && (function == nullptr || module_of(function) != "enum");
      if (mentions_tensor(value) || text == "__new__" || text == "__init__" || text == "__eq__" ||
          text == "__hash__" || counts)
        throw Break(BreakId::local_class, "an enum with ", text);
    }
  }
  py::object made = meta(args[0], bases, names, **dict_of(kwargs));
  add_made_class(made);
  return made;
}

void Classes::add_made_class(const py::object& made) {
  heap().hold(made);
  made_classes_.emplace(made.ptr(), MadeClass{frames().here(), {}});
}

// What dataclasses.dataclass does to a class: it runs as it is. It reads the class, its bases'
// fields and the texts of defaults.
py::object Classes::make_dataclass(py::handle maker, const Arguments& args,
                                   const Keywords& kwargs) {
  for (const char* name : {"__dataclass_fields__", "__dataclass_params__", "__hash__"})
    objects().type_member(as_type(args[0]), py::str(name));
  for (auto [name, value] : py::dict(args[0].attr("__dict__"))) {
    const bool field = py::hasattr(py::type::of(value), "default_factory");
    if (mentions_tensor(value) || (field && mentions_tensor(value.attr("default"))))
      throw Break(BreakId::local_class, "a field that is a tensor");
  }
  py::object made = calls().call_real(maker, args, kwargs);
  if (!is_made_class(made)) add_made_class(made);
  add_made_methods(made);
  return made;
}

void Classes::add_made_methods(const py::object& made) {
  for (auto [name, value] : py::dict(made.attr("__dict__"))) {
    PyObject* function = python_function(value.ptr());
    if (function == nullptr || heap().tracked(function)) continue;
    heap().entry(function);
    heap().hold(borrow(function));
  }
}

// collections.namedtuple of plain names and values runs as it is, and in each call that gives the
// class away.
std::optional<py::object> Classes::make_named_tuple(py::handle maker, const Arguments& args,
                                                    const Keywords& kwargs) {
  bool plain = true;
  const auto read = [&](const py::object& a) -> py::object {
    const bool items = PyList_CheckExact(a.ptr()) || PyTuple_CheckExact(a.ptr());
    py::object out = items ? py::object(py::tuple(heap().contents(a))) : a;
    plain &= is_plain_key(out.ptr());
    return out;
  };
  Arguments names;
  py::dict settings;
  for (const py::object& a : args) names.push_back(read(a));
  for (const auto& [key, value] : kwargs) settings[key] = read(value);
  PyObject* module = PyDict_GetItemString(
      as_function(frames().stack().back()->function)->func_globals, "__name__");
  if (!settings.contains("module") && module != nullptr)  // CPython would ask the frame that runs
    settings["module"] = py::handle(module);
  if (!plain) return std::nullopt;
  const py::object again = member_of<"functools", "partial">()(maker, **settings);
  py::object made = again(*tuple_of(names));
  add_made_class(made);
  made_classes_.at(made.ptr()).again = Again{again, names};
  add_made_methods(made);
  return made;
}

const Classes::Again* Classes::made_again(py::handle type) const {
  auto it = made_classes_.find(type.ptr());
  return it == made_classes_.end() || !it->second.again.function ? nullptr : &it->second.again;
}

// Where a member of the class was found: nowhere for what the captured code has made. What stands
// in front of it in classes that were there before is guarded.
SourceId Classes::member_source(py::handle type, py::handle name) {
  auto of = [&](PyObject* t) {
    return heap().sources.type_attribute(heap().sources.pinned(t, as_type(t)->tp_name), name);
  };
  if (!is_made_class(type)) return of(type.ptr());
  for (py::handle base : py::reinterpret_borrow<py::tuple>(as_type(type)->tp_mro)) {
    const bool has = PyDict_GetItemWithError(type_dict(as_type(base)), name.ptr()) != nullptr;
    if (is_made_class(base) && has) return {};
    if (has) return of(base.ptr());
    if (is_made_class(base) || !is_changeable_class(as_type(base))) continue;
    if (PyObject* further = _PyType_Lookup(as_type(base), name.ptr()))
      heap().guard(GuardKind::IdIs, of(base.ptr()), further);
    else
      heap().guard(GuardKind::Missing, of(base.ptr()));
  }
  return {};
}

// With abstract classes among `asked`, a class or a tuple, `type` may come to be registered.
void Classes::guard_registrations(PyTypeObject* type, py::handle asked) {
  if (!PyType_Check(asked.ptr()) || PyType_IsSubtype(type, as_type(asked)) ||
      !PyObject_TypeCheck(asked.ptr(), as_type(member_of<"abc", "ABCMeta">())) ||
      is_made_class(asked))
    return;
  const py::str attribute("answer");
  const py::object object = answer_of(type_object(type), asked);
  const SourceId source =
      heap().sources.pinned(object, cat("issubclass(", type->tp_name, ", ", name_of(asked), ")"));
  heap().guard(GuardKind::Equals, heap().sources.attribute(source, attribute),
               object.attr(attribute));
}

// Which classes are bases of `type`, in order: an assignment to its __bases__, or to those of one
// of them, makes another tuple.
void Classes::guard_bases(PyTypeObject* type) {
  const auto guard = [this](PyTypeObject* t) {
    if (!is_changeable_class(t)) return;
    const SourceId source = heap().sources.pinned(type_object(t), t->tp_name);
    heap().guard(GuardKind::IdIs, heap().sources.attribute(source, py::str("__mro__")), t->tp_mro);
  };
  if (!is_made_class(type_object(type))) return guard(type);
  for (py::handle base : borrow(type->tp_mro))
    if (!is_made_class(base)) guard(as_type(base));
}

// A registration changes that of the class and of all that derive from it.
bool Classes::matches_as(py::handle o, unsigned long flag) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  for (py::handle base : borrow(type->tp_mro)) {
    if (is_made_class(base) || !is_changeable_class(as_type(base))) continue;
    guard_registrations(as_type(base), member_of<"collections.abc", "Sequence">());
    guard_registrations(as_type(base), member_of<"collections.abc", "Mapping">());
  }
  return (type->tp_flags & flag) != 0;
}

// Neither a class made here nor an object of one outlives the capture, unless it can be made again.
void Classes::refuse_made_class(py::handle o) const {
  if (made_classes_.empty()) return;
  auto it = made_classes_.find(o.ptr());
  if (it == made_classes_.end()) it = made_classes_.find(py::type::handle_of(o).ptr());
  if (it == made_classes_.end() &&
      (Py_TYPE(o.ptr()) == &PyMemberDescr_Type || Py_TYPE(o.ptr()) == &PyGetSetDescr_Type))
    it = made_classes_.find((PyObject*)PyDescr_TYPE(o.ptr()));
  if (it == made_classes_.end() || it->second.again.function) return;
  it->second.place.refuse(BreakId::local_class, as_type(it->first)->tp_name);
}

}  // namespace oxy::python
