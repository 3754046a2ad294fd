// Rebuilding functions, iterators, generators, exceptions and what else has an inside of its own.
#include <pybind11/eval.h>
#include <structmember.h>

#include "python/bound_arguments.h"
#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/cpython/code_object.h"
#include "python/cpython/frames.h"
#include "python/cpython/types.h"

namespace oxy::python {

py::object dict_inside(py::handle o) {
  PyObject* found = nullptr;
  Py_TYPE(o.ptr())->tp_traverse(
      o.ptr(),
      [](PyObject* inner, void* out) {
        if (PyDict_Check(inner)) *static_cast<PyObject**>(out) = inner;
        return 0;
      },
      static_cast<void*>(&found));
  return borrow(found);
}

namespace {

// The view that an iterator over a dict, or a view, belongs to; nullptr for all else.
const char* view_method(PyTypeObject* type) {
  const auto is = [&](const auto&... types) { return ((type == &types) || ...); };
  if (is(PyDictIterKey_Type, PyDictKeys_Type, PyODictKeys_Type)) return "keys";
  if (is(PyDictIterValue_Type, PyDictValues_Type, PyODictValues_Type)) return "values";
  if (is(PyDictIterItem_Type, PyDictItems_Type, PyODictItems_Type)) return "items";
  return nullptr;
}

// Exceptions whose fields are members that can be written.
bool has_plain_members(PyTypeObject* type) {
  const auto known = {PyExc_StopIteration,     PyExc_AttributeError, PyExc_NameError,
                      PyExc_UnboundLocalError, PyExc_ImportError,    PyExc_ModuleNotFoundError};
  return std::ranges::find(known, reinterpret_cast<PyObject*>(type)) != known.end();
}

// (the entry further in or None, code, globals, offset, line, where the frame was left)
PyObject* make_traceback(PyObject*, PyObject* args) {
  PyObject *inner, *code, *globals;
  int offset, line, left;
  if (!PyArg_ParseTuple(args, "OOOiii", &inner, &code, &globals, &offset, &line, &left))
    return nullptr;
  auto body = [=]() -> PyObject* {
    auto frame = owned(frame_at(reinterpret_cast<PyCodeObject*>(code), globals, left));
    if (!frame) return nullptr;
    return PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyTraceBack_Type), "OOii", inner,
                                 frame.ptr(), offset, line);
  };
  return boundary(body, nullptr);
}

// What captured code knows of its name.
PyObject* named(py::object generator, PyObject* const* names) {
  check(PyObject_SetAttrString(generator.ptr(), "__name__", names[0]));
  check(PyObject_SetAttrString(generator.ptr(), "__qualname__", names[1]));
  return generator.release().ptr();
}

// (function, its bound parameters, __name__, __qualname__): one that has not begun.
PyObject* begin(PyObject*, PyObject* args) {
  auto body = [=] {
    PyObject** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(items[0]));
    py::object made = steal(call_bound(items[0], code, items + 1));
    return named(std::move(made), items + PyTuple_GET_SIZE(args) - 2);
  };
  return boundary(body, nullptr);
}

// (function, its positional arguments, __name__, __qualname__): a generator that has yielded once.
PyObject* go_on(PyObject*, PyObject* args) {
  auto body = [=] {
    PyObject** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
    const Py_ssize_t given = PyTuple_GET_SIZE(args) - 3;
    py::object made =
        steal(PyObject_Vectorcall(items[0], items + 1, static_cast<size_t>(given), nullptr));
    PyObject* none = nullptr;
    const bool yields = PyIter_Send(made.ptr(), Py_None, &none) == PYGEN_NEXT;
    Py_XDECREF(none);
    if (!yields && !PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "a generator does not go on");
    if (!yields) throw py::error_already_set();
    return named(std::move(made), items + given + 1);
  };
  return boundary(body, nullptr);
}

// (__name__, __qualname__): a generator at its end.
PyObject* ended(PyObject*, PyObject* args) {
  auto body = [=] {
    static const py::object& make = *[] {
      py::dict names;
      py::exec("def ended():\n    return\n    yield\n", names);
      return new py::object(names["ended"]);
    }();
    py::object made = make();
    Py_XDECREF(PyIter_Next(made.ptr()));
    return named(std::move(made), reinterpret_cast<PyTupleObject*>(args)->ob_item);
  };
  return boundary(body, nullptr);
}

}  // namespace

uint32_t RebuildPlan::place_call(py::handle o, py::handle callable,
                                 const std::vector<py::object>& arguments) {
  RebuildStep step{Kind::Call, 0, borrow(callable), {}};
  for (const py::object& a : arguments) step.parts.push_back(place(a));
  kept_.insert(kept_.end(), arguments.begin(), arguments.end());
  return add(o, std::move(step));
}

std::optional<uint32_t> RebuildPlan::place_special(py::handle o) {
  PyObject* p = o.ptr();
  PyTypeObject* type = Py_TYPE(p);
  const std::string name = type->tp_name;
  if (PyMethod_Check(p))
    return place_call(o, type_object(type),
                      {borrow(PyMethod_GET_FUNCTION(p)), borrow(PyMethod_GET_SELF(p))});
  if (PyCell_Check(p)) return add_unfilled(o, {Kind::Cell, 0, {}, {}});
  if (const auto* again = capture_.classes.made_again(o))
    return place_call(o, again->function, again->arguments);
  if (is_polyfill(o)) refuse(o);  // of another class than the original
  if (PyFunction_Check(p)) return capture_.heap.tracked(o) ? place_function(o) : constant(o);
  if (PySlice_Check(p) && !capture_.heap.is_fixed(p)) {
    auto* s = reinterpret_cast<PySliceObject*>(p);
    return place_call(o, type_object(type), {borrow(s->start), borrow(s->stop), borrow(s->step)});
  }
  if (type == &Py_GenericAliasType && !is_plain_key(py::object(o.attr("__args__")).ptr()) &&
      !py::getattr(o, "__unpacked__", py::bool_(false)).cast<bool>())
    return place_call(o, type_object(type), {o.attr("__origin__"), o.attr("__args__")});
  if (PyFrozenSet_CheckExact(p) && made_here(o) && !capture_.heap.is_fixed(p)) {
    if (std::ranges::all_of(plain_list(o), is_one_for_all)) return constant(o);
    return place_call(o, type_object(type), {py::tuple(items_of_set(o))});
  }
  if (PyWeakref_CheckRefExact(p) && !capture_.heap.exists(o))
    return place_call(o, type_object(type), {borrow(PyWeakref_GET_OBJECT(p))});
  if (type == &PySuper_Type)
    return place_call(o, type_object(type), {o.attr("__thisclass__"), o.attr("__self__")});
  if (type == &PyDictProxy_Type) {
    py::object dict = dict_inside(o);
    if (!dict) refuse(o);  // of a mapping that is no dict
    return place_call(o, type_object(type), {dict});
  }
  if (const auto& made = capture_.calls.made_of_texts(); made.contains(p))
    return place_call(o, made.at(p).first, made.at(p).second);
  if (name == "functools.partial" || name.starts_with("operator.")) return place_reduced(o);
  if (PyCFunction_Check(p) || is_method_wrapper(p)) {
    PyObject* descriptor = method_descriptor(p);
    const py::object self = o.attr("__self__");
    if (descriptor == nullptr || self.is_none())
      return constant(o);  // __get__ of None binds nothing
    return place_call(o, py::handle(descriptor).attr("__get__"), {self, py::type::of(self)});
  }
  if (PyExceptionInstance_Check(p)) return place_exception(o);
  if (const auto places = capture_.frames.places_of_traceback(o)) return place_traceback(*places);
  if (name == "collections.defaultdict")
    return fill_later(o, place_call(o, type_object(type), {o.attr("default_factory")}));
  if (is_deque(o)) {
    const py::object limit = o.attr("maxlen");
    if (is_changeable_class(type) && limit.is_none()) return place_instance(o);
    if (is_changeable_class(type)) refuse(o);
    return add_unfilled(o,
                        {Kind::Call, 0, type_object(type), {constant(py::tuple()), place(limit)}});
  }
  if (type == &PyODict_Type && made_here(o) && py::len(o.attr("__dict__")) > 0) refuse(o);
  if (PyIter_Check(p) || view_method(type) != nullptr) return place_iterator(o);
  return std::nullopt;
}

// --------------------------------------------------------------------------------------- functions

uint32_t RebuildPlan::place_function(py::handle o) {
  auto* f = as_function(o);
  auto or_none = [](PyObject* part) { return part ? borrow(part) : py::none(); };
  capture_.objects.existing_dict(f->func_globals,
                                 capture_.heap.sources.pinned(f->func_globals, "G"));
  return fill_later(o,
                    place_call(o, type_object(&PyFunction_Type),
                               {borrow(f->func_code), borrow(f->func_globals), borrow(f->func_name),
                                or_none(f->func_defaults), or_none(f->func_closure)}));
}

void RebuildPlan::fill_function(py::handle o, uint32_t step) {
  auto* f = as_function(o);
  auto set = [&](const char* name, PyObject* value) {
    if (value == nullptr) return;
    py::str key(name);
    kept_.push_back(key);
    write(Write::AttributeSet, step, {place(key), place(value)});
  };
  set("__qualname__", f->func_qualname);
  set("__module__", f->func_module);
  set("__doc__", f->func_doc);
  set("__kwdefaults__", f->func_kwdefaults);
  set("__annotations__", f->func_annotations);
  if (f->func_dict != nullptr && PyDict_GET_SIZE(f->func_dict) > 0) set("__dict__", f->func_dict);
}

// --------------------------------------------------------------------------------------- iterators

uint32_t RebuildPlan::place_iterator(py::handle o) {
  PyTypeObject* type = Py_TYPE(o.ptr());
  if (const char* view = view_method(type)) {
    py::object dict = dict_inside(o);
    if (!dict) return place_call(o, member_of<"builtins", "iter">(), {py::list()});  // at its end
    const py::object method = type_object(builtin_base(Py_TYPE(dict.ptr()))).attr(view);
    if (!PyIter_Check(o.ptr())) return place_call(o, method, {dict});
    const Py_ssize_t left = PyObject_LengthHint(o.ptr(), 0);
    const Py_ssize_t taken = PyDict_GET_SIZE(dict.ptr()) - left;
    if (left < 0 || taken < 0) refuse(o);
    iterated_.insert(place(dict));
    py::object view_of = method(dict);
    kept_.push_back(view_of);
    return add(o, {Kind::Iterator, static_cast<uint32_t>(taken), {}, {place(view_of)}, true});
  }
  if ((type_traits(type) & native::Reducible) == 0) refuse(o);
  return place_reduced(o);
}

// The function that `reduced` names; where that would ask a user's class for its `__iter__`, the
// one of the class written in C that the iterator is over.
py::object RebuildPlan::made_by(py::handle o, const py::tuple& reduced) {
  static const std::map<std::string, std::pair<PyTypeObject*, const char*>> over = {
      {"list_iterator", {&PyList_Type, "__iter__"}},
      {"list_reverseiterator", {&PyList_Type, "__reversed__"}},
      {"tuple_iterator", {&PyTuple_Type, "__iter__"}},
      {"str_iterator", {&PyUnicode_Type, "__iter__"}},
      {"str_ascii_iterator", {&PyUnicode_Type, "__iter__"}},
      {"bytes_iterator", {&PyBytes_Type, "__iter__"}}};
  const std::string name = Py_TYPE(o.ptr())->tp_name;
  if (auto it = over.find(name); it != over.end())
    return type_object(it->second.first).attr(it->second.second);
  const bool asks = (type_traits(Py_TYPE(o.ptr())) & native::AsItIs) == 0;
  for (py::handle a : py::tuple(reduced[1]))
    if (asks && is_changeable_class(Py_TYPE(a.ptr())) && !PyCallable_Check(a.ptr())) refuse(o);
  return reduced[0];
}

// By its own __reduce__: a function, its arguments, and perhaps a state.
uint32_t RebuildPlan::place_reduced(py::handle o) {
  py::tuple reduced;
  {
    const Unwarned unwarned;
    reduced = o.attr("__reduce__")();
  }
  kept_.push_back(reduced);
  const uint32_t at = add(o, {Kind::Call, 0, made_by(o, reduced), place_all(reduced[1])});
  if (reduced.size() > 2 && !py::object(reduced[2]).is_none())
    write(Write::State, at, {place(reduced[2])});
  return at;
}

// -------------------------------------------------------------------------------------- generators

// One that has not begun is made by a call of its function. One that is suspended is made by a
// function whose code begins with what the frame holds and goes on at the same yield
// (bytecode/resume.h): it is run up to there, and stands where the captured one does. What closes
// it is then Python's own matter.

uint32_t RebuildPlan::place_generator(py::handle o, const LazyIterator& g) {
  const TracedFrame& f = *g.frame;
  if (g.running || is_polyfill(f.function)) refuse(o);
  const py::object name = f.function.attr("__name__"),
                   qualified_name = f.function.attr("__qualname__");
  if (g.done) return place_call(o, function_object<ended>("ended"), {name, qualified_name});
  std::vector<py::object> parts;
  if (!g.started) {
    const int parameters = parameter_count(f.code);
    parts.push_back(f.function);
    parts.insert(parts.end(), f.fast.begin(), f.fast.begin() + parameters);
    parts.insert(parts.end(), {name, qualified_name});
    const uint32_t at = place_call(o, function_object<begin>("begin"), parts);
    rebuild.steps[at].late |=
        (f.code->co_flags & CO_VARKEYWORDS) != 0;  // the dict is filled by then
    return at;
  }
  // A function that makes generators which stand where this one does, and what it takes.
  parts.emplace_back();
  const size_t at = suspended_at(f);
  std::vector<int> with_finalizer;
  const FrameState state =
      capture_.frames.state_left(f, live_locals(*f.bytecode, f.code)[at], parts, with_finalizer);
  auto* code = make_generator_code(f.code, *f.bytecode, static_cast<int>(at), state);
  const py::object held = steal(reinterpret_cast<PyObject*>(code));
  parts.front() = steal(make_function(code, PyFunction_GET_GLOBALS(f.function.ptr())));
  parts.insert(parts.end(), {name, qualified_name});
  return place_call(o, function_object<go_on>("go_on"), parts);
}

// Generators; map, filter, zip, enumerate, chain and islice over what they have not taken yet.
uint32_t RebuildPlan::place_lazy(py::handle o) {
  const LazyIterator& l = *capture_.iterators.lazy(o);
  if (l.frame) return place_generator(o, l);
  PyTypeObject* type = Py_TYPE(o.ptr());
  for (const py::object& i : l.iterators)
    if (is_changeable_class(Py_TYPE(i.ptr()))) refuse(o);  // its __iter__ would run again
  const std::string_view name = type->tp_name;
  const py::object made_by = py::type::of(o);
  if (name == "itertools.chain") {
    const py::object from_iterable = made_by.attr("from_iterable");
    if (l.iterators.size() < 2) return place_call(o, from_iterable, {l.iterators[0]});
    // The one that it takes from now comes first.
    const py::list rest;  // a name for the step
    place_call(rest, made_by, {py::make_tuple(l.iterators[1]), l.iterators[0]});
    return place_call(o, from_iterable, {rest});
  }
  if (name == "itertools.islice") {
    if (l.iterators.empty()) return place_call(o, made_by, {py::tuple(), py::int_(0)});  // its end
    py::object stop = l.bounds.attr("stop"), step = l.bounds.attr("step");
    if (!stop.is_none()) stop = py::int_(stop.cast<int64_t>() - l.taken);
    return place_call(o, made_by, {l.iterators[0], py::int_(l.next - l.taken), stop, step});
  }
  if (type != &PyMap_Type && type != &PyFilter_Type && type != &PyZip_Type && type != &PyEnum_Type)
    refuse(o);
  std::vector<py::object> arguments;
  if (l.function) arguments.push_back(l.function);
  arguments.insert(arguments.end(), l.iterators.begin(), l.iterators.end());
  if (l.count) arguments.push_back(l.count);
  const uint32_t at = place_call(o, made_by, arguments);
  if (l.strict) write(Write::State, at, {constant(py::bool_(true))});
  return at;
}

// ----------------------------------------------------------------------------------- other classes

uint32_t RebuildPlan::place_exception(py::handle o) {
  PyTypeObject* base = builtin_base(Py_TYPE(o.ptr()));
  const auto* plain = as_type(PyExc_Exception);
  const bool has_members = base->tp_basicsize != plain->tp_basicsize;
  const bool is_group = is_exception_group(o);
  if (has_members && !has_plain_members(base) && !is_group) refuse(o);
  // A group wants its exceptions at once, which a list does not have yet.
  const py::object given = is_group ? py::make_tuple(o.attr("message"), o.attr("exceptions"))
                                    : py::object(o.attr("args"));
  const uint32_t at = add_instance(o, {Kind::Instance, 0, py::type::of(o), place_all(given)});
  // The tuple itself: the code may have looked at it.
  write(Write::AttributeSet, at, {place(py::str("args")), place(o.attr("args"))});
  for (PyTypeObject* t = base; has_members && !is_group && t != plain; t = t->tp_base) {
    for (auto [name, descriptor] : py::reinterpret_borrow<py::dict>(type_dict(t))) {
      if (Py_TYPE(descriptor.ptr()) != &PyMemberDescr_Type) continue;
      py::object value = o.attr(name);
      kept_.push_back(value);
      write(Write::AttributeSet, at, {place(name), place(value)});
    }
  }
  auto raised = capture_.frames.raised().find(o.ptr());
  const bool was_raised = raised != capture_.frames.raised().end();
  py::object cause = o.attr("__cause__"), context = o.attr("__context__");
  // What the caller of the captured code deals with is not this call's own.
  if (PyExceptionInstance_Check(context.ptr()) && !made_here(context) &&
      !capture_.heap.tracked(context))
    context = py::none();
  const py::object suppresses = o.attr("__suppress_context__");
  if (!cause.is_none() || !context.is_none() || suppresses.is(py::bool_(true)) || was_raised)
    write(Write::Exception, at,
          {place(cause), place(context), place(suppresses),
           was_raised ? place_traceback(raised->second) : place(py::none()),
           constant(py::bool_(was_raised))});
  return at;
}

// A tensor that wraps others: its class and its shape, and what it has as attributes.
uint32_t RebuildPlan::place_wrapper(py::handle o) {
  const at::Tensor& t = THPVariable_Unpack(o.ptr());
  auto numbers = [](c10::SymIntArrayRef of) {
    py::list out;
    for (const c10::SymInt& n : of) out.append(from_torch(py::cast(n)));
    return py::tuple(out);
  };
  const AskedFunctions none(false);
  const Arguments parts{py::type::of(o),          numbers(t.sym_sizes()),
                        numbers(t.sym_strides()), from_torch(py::cast(t.sym_storage_offset())),
                        o.attr("dtype"),          o.attr("device")};
  kept_.insert(kept_.end(), parts.begin(), parts.end());
  return add_instance(o, {Kind::Call, 0, function_object<make_wrapper>("make_wrapper"),
                          place_all(tuple_of(parts))});
}

// Of frames that are no more: each entry is made on one of the same code, with its line.
uint32_t RebuildPlan::place_traceback(const std::vector<RaisedAt>& places) {
  py::object inner = py::none();
  uint32_t at = place(inner);
  std::vector<std::tuple<PyObject*, int, int>> same;  // parts of a group share one
  for (const RaisedAt& raised : places) {
    same.emplace_back(raised.code.ptr(), raised.offset, raised.line);
    if (auto it = tracebacks_.find(same); it != tracebacks_.end()) {
      std::tie(inner, at) = it->second;
      continue;
    }
    capture_.objects.existing_dict(raised.globals,
                                   capture_.heap.sources.pinned(raised.globals, "G"));
    py::object key = py::make_tuple(raised.line);
    at = place_call(key, function_object<make_traceback>("traceback"),
                    {inner, raised.code, raised.globals, py::int_(raised.offset),
                     py::int_(raised.line), py::int_(raised.left)});
    inner = key;
    tracebacks_.emplace(same, std::pair(inner, at));
  }
  return at;
}

void RebuildPlan::fill_slots(py::handle o, uint32_t step) {
  py::tuple bases = py::type::of(o).attr("__mro__");
  for (py::handle base : bases) {
    if (!is_changeable_class(as_type(base))) continue;
    for (auto [name, descriptor] : py::dict(base.attr("__dict__"))) {
      if (Py_TYPE(descriptor.ptr()) != &PyMemberDescr_Type) continue;
      auto* type = Py_TYPE(o.ptr());
      py::object value = owned(
          Py_TYPE(descriptor.ptr())->tp_descr_get(descriptor.ptr(), o.ptr(), (PyObject*)type));
      if (!value) {
        PyErr_Clear();
        continue;
      }
      constexpr int kReadOnly = 1;  // Py_READONLY; of types made in C alone
      if (reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr())->d_member->flags & kReadOnly)
        throw Break(BreakId::side_effect, "an object of ", type->tp_name,
                    ", which is written in C");
      if (_PyType_Lookup(type, name.ptr()) != descriptor.ptr())
        throw Break(BreakId::side_effect, "a slot that ", type->tp_name, " hides");
      kept_.push_back(value);
      write(Write::AttributeSet, step, {place(name), place(value)});
    }
  }
}

// The items of a set in an order in which one that lies like it is made of them.
py::list RebuildPlan::items_of_set(py::handle set) {
  for (py::handle item : plain_list(set)) require_plain_hash(item);
  auto items = order_of_adding(set);
  if (!items) refuse(set);
  return *items;
}

}  // namespace oxy::python
