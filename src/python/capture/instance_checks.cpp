// isinstance and issubclass, with a guard for each thing that their answer depends on.
#include "python/capture/instance_checks.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "python/capture/capture.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

// The classes of a tuple or union of them. How deep CPython follows tuples depends on how much of
// the stack the caller has used: what is nested deeper than anybody writes is left to it.
void collect_classes(py::handle asked, std::vector<py::object>& out, int depth = 0) {
  static const py::object& union_type = member_of<"types", "UnionType">();
  constexpr int kMaxNesting = 32;
  if (depth > kMaxNesting)
    throw Break(BreakId::builtin_call, "isinstance or issubclass of tuples nested too deeply");
  if (PyTuple_Check(asked.ptr()) || py::type::of(asked).is(union_type))
    for (py::handle one : PyTuple_Check(asked.ptr()) ? borrow(asked) : asked.attr("__args__"))
      collect_classes(one, out, depth + 1);
  else
    out.push_back(borrow(asked));
}

// What a class has for `check` in a metaclass written in Python, to be asked about `o`; null where
// that is the check of `abc` or torch's, but for those of its parameters and buffers, which read an
// attribute of a tensor. Which attributes an object has, which a protocol asks for, no guard tells.
PyObject* check_of(Capture& c, py::handle o, py::handle asked, const char* check) {
  PyTypeObject* meta = Py_TYPE(asked.ptr());
  if (!PyType_Check(asked.ptr()) || !is_changeable_class(meta)) return nullptr;
  PyObject* found = c.objects.type_member(meta, py::str(check));
  if (found == nullptr || !PyFunction_Check(found)) return nullptr;
  const std::string module = text(as_function(found)->func_module);
  if (module == "torch.nn.parameter" && is_tensor_object(o.ptr())) return found;
  if (module == "abc" || module == "torch" || module.starts_with("torch.")) return nullptr;
  if (module != "typing") return found;
  if (py::getattr(asked, "_is_protocol", py::bool_(false)).ptr() == Py_True)
    throw Break(BreakId::builtin_call, "isinstance or issubclass of a protocol");
  return nullptr;
}

// Whether isinstance looks in the object itself for what the protocol has.
bool asks_object(py::handle o, py::handle asked) {
  static PyObject* const meta = py::type::of(member_of<"typing", "Protocol">()).ptr();
  const auto is_true = [&](const char* name) {
    return py::getattr(asked, name, py::none()).ptr() == Py_True;
  };
  if (!PyType_Check(asked.ptr()) || py::type::handle_of(asked).ptr() != meta ||
      !is_true("_is_protocol") || !is_true("_is_runtime_protocol"))
    return false;
  // Where it is not to be asked: of these a capture has no dict.
  return !kProtocolsAskStatically || !(PyType_Check(o.ptr()) || PyModule_Check(o.ptr()) ||
                                       PyFunction_Check(o.ptr()) || is_array(o));
}

// Whether `inspect.getattr_static` finds an instance's attribute; where it `needs_value`, not None.
bool has_statically(Capture& c, const py::object& o, py::handle name, bool needs_value) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  PyObject* of_class = c.objects.type_member(type, name);
  c.objects.guard_kind_of(of_class);
  const bool data = of_class != nullptr && Py_TYPE(of_class)->tp_descr_get != nullptr &&
                    Py_TYPE(of_class)->tp_descr_set != nullptr;
  if (!data && has_instance_dict(type)) {
    PyObject* dict = c.objects.type_member(type, names().dict_);
    if (dict != nullptr && Py_TYPE(dict) != &PyGetSetDescr_Type)
      throw Break(BreakId::builtin_call, "isinstance of a protocol: a __dict__ of its own");
    const py::object own = c.objects.instance_dict(o);
    if (c.effects.dict_has(own, name))
      return !needs_value || !c.effects.dict_get(own, name).is_none();
  }
  return of_class != nullptr && (!needs_value || of_class != Py_None);
}

bool is_of_protocol(Capture& c, const py::object& o, py::handle asked) {
  const auto answer = [&](const py::object& function, const py::tuple& args) {
    const RefusedFrames allowed(nullptr);  // they are written in Python
    py::object now = function(*args);
    const SourceId source = c.heap.sources.pinned(function, name_of(function));
    c.heap.guard(GuardKind::Equals, c.heap.sources.answer(source, args), now);
    return now;
  };
  const py::tuple members = answer(polyfill("members_of_protocol"), py::make_tuple(asked));
  const py::tuple all = members[0], methods = members[1];
  // Derived from it, or registered, or of a class that has them all or had them when asked before.
  const auto is_of_class = [&] {
    c.classes.guard_bases(Py_TYPE(o.ptr()));
    for (py::handle name : all) c.objects.type_member(Py_TYPE(o.ptr()), name);
    answer(member_of<"abc", "get_cache_token">(), py::tuple());
    const RefusedFrames allowed(nullptr);
    return member_of<"abc", "ABCMeta">().attr("__instancecheck__")(asked, o).ptr() == Py_True;
  };
  const bool class_first = kProtocolsAskStatically || all.size() == methods.size();
  if (class_first && is_of_class()) return true;
  if (kProtocolsAskStatically
          ? std::ranges::all_of(
                all,
                [&](py::handle name) { return has_statically(c, o, name, methods.contains(name)); })
          : c.objects.truth(c.calls.call(polyfill("has_members"), {o, all, methods})))
    return true;
  return !class_first && is_of_class();
}

// `given`: what code of the class is called with.
bool is_instance_of(Capture& c, const py::object& o, const py::object& given, py::handle asked) {
  if (!is_tensor_object(o.ptr()) && !py::type::of(o).is(asked) && asks_object(o, asked))
    return is_of_protocol(c, o, asked);
  PyObject* own = py::type::of(o).is(asked) ? nullptr : check_of(c, o, asked, "__instancecheck__");
  if (own != nullptr) return c.objects.truth(c.calls.call(own, {borrow(asked), given}));
  c.classes.guard_registrations(Py_TYPE(o.ptr()), asked);
  if (!py::type::of(o).is(asked)) c.classes.guard_bases(Py_TYPE(o.ptr()));
  int yes = PyObject_IsInstance(o.ptr(), asked.ptr());
  if (yes == 0 && is_array(o)) yes = PyObject_IsSubclass(c.objects.type_of(o).ptr(), asked.ptr());
  check(yes);
  // Of an iterator of itertools that is followed as a generator.
  static const py::object& other =
      *new py::object(member_of<"itertools", "accumulate">()(py::tuple()));
  if (c.iterators.stands_in(o) &&
      (PyObject_IsInstance(other.ptr(), asked.ptr()) != yes || module_of(asked) == "itertools"))
    c.iterators.refuse_stand_in(o);
  return yes == 1;
}

}  // namespace

py::object is_instance(Capture& c, const Arguments& args) {
  c.heap.note_question(args[0]);
  py::object o = c.numbers.typed(args[0]);
  if (is_symbolic_int(o)) o = number_of(o, false);
  if (is_symbolic_bool(o)) o = py::bool_(true);
  const py::object graph_number = c.numbers.is_graph_float(o) ? o : py::object();
  if (graph_number) o = py::float_(1.5);  // it is one, for all but its own code
  const py::object given = o;
  if (Tracked* k = c.heap.tracked(o); k && k->value && k->original) o = k->original;
  std::vector<py::object> classes;
  collect_classes(args[1], classes);
  auto of = [&](const py::object& one) {
    return (graph_number && py::type::of(graph_number).is(one)) || is_instance_of(c, o, given, one);
  };
  return py::bool_(std::ranges::any_of(classes, of));
}

std::optional<py::object> is_subclass(Capture& c, const Arguments& args) {
  if (!PyType_Check(args[0].ptr())) return std::nullopt;
  std::vector<py::object> classes;
  collect_classes(args[1], classes);
  auto of = [&](const py::object& one) {
    if (PyObject* own = check_of(c, args[0], one, "__subclasscheck__"))
      return c.objects.truth(c.calls.call(own, {one, args[0]}));
    c.classes.guard_registrations(as_type(args[0]), one);
    c.classes.guard_bases(as_type(args[0]));
    const int yes = PyObject_IsSubclass(args[0].ptr(), one.ptr());
    check(yes);
    return yes == 1;
  };
  return py::bool_(std::ranges::any_of(classes, of));
}

}  // namespace oxy::python
