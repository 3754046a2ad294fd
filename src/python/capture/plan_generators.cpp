// Rebuilding generators. One that has not begun is made by a call of its function. One that is
// suspended is made by a function whose code begins with what the frame holds and goes on at the
// same yield (bytecode/resume.h): it is run up to there, and stands where the captured one does.
// What closes it is then Python's own matter.
#include <pybind11/eval.h>

#include "python/bound_arguments.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {
namespace {

// (function, its bound parameters)
PyObject* begin(PyObject*, PyObject* args) {
  PyObject** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(items[0]));
  return call_bound(items[0], code, items + 1);
}

// What captured code knows of its name.
PyObject* named(py::object generator, PyObject* const* names) {
  check(PyObject_SetAttrString(generator.ptr(), "__name__", names[0]));
  check(PyObject_SetAttrString(generator.ptr(), "__qualname__", names[1]));
  return generator.release().ptr();
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

// A function that makes generators which stand where `f` does; what it takes is added to `values`.
py::object RebuildPlan::function_at_yield(const TracedFrame& f, std::vector<py::object>& values) {
  const size_t at = f.next - 1;
  std::vector<int> with_finalizer;
  const FrameState state =
      capture_.frames.state_left(f, live_locals(*f.bytecode, f.code)[at], values, with_finalizer);
  auto* code = make_generator_code(f.code, *f.bytecode, static_cast<int>(at), state);
  const py::object held = steal(reinterpret_cast<PyObject*>(code));
  return steal(make_function(code, PyFunction_GET_GLOBALS(f.function.ptr())));
}

uint32_t RebuildPlan::place_generator(py::handle o, const LazyIterator& g) {
  const TracedFrame& f = *g.frame;
  if (g.running || is_polyfill(f.function)) refuse(o);
  const py::object name = f.function.attr("__name__"),
                   qualified_name = f.function.attr("__qualname__");
  if (g.done) return place_call(o, function_object<ended>("ended"), {name, qualified_name});
  std::vector<py::object> parts;
  if (!g.started) {
    const int flags = f.code->co_flags;
    const int parameters = f.code->co_argcount + f.code->co_kwonlyargcount +
                           ((flags & CO_VARARGS) != 0) + ((flags & CO_VARKEYWORDS) != 0);
    parts.push_back(f.function);
    parts.insert(parts.end(), f.fast.begin(), f.fast.begin() + parameters);
    const uint32_t at = place_call(o, function_object<begin>("begin"), parts);
    rebuild.steps[at].late |= (flags & CO_VARKEYWORDS) != 0;  // the dict is filled by then
    return at;
  }
  parts.emplace_back();
  parts.front() = function_at_yield(f, parts);
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
  if (name == "itertools.chain") return place_chain(o, l);
  if (name == "itertools.islice") return place_islice(o, l);
  if (type != &PyMap_Type && type != &PyFilter_Type && type != &PyZip_Type && type != &PyEnum_Type)
    refuse(o);
  std::vector<py::object> arguments;
  if (l.function) arguments.push_back(l.function);
  arguments.insert(arguments.end(), l.iterators.begin(), l.iterators.end());
  if (l.count) arguments.push_back(l.count);
  const uint32_t at = place_call(o, py::type::of(o), arguments);
  if (l.strict) write(Write::State, at, {constant(py::bool_(true))});
  return at;
}

// The one that it takes from now comes first.
uint32_t RebuildPlan::place_chain(py::handle o, const LazyIterator& l) {
  const py::object type = py::type::of(o), from_iterable = type.attr("from_iterable");
  if (l.iterators.size() < 2) return place_call(o, from_iterable, {l.iterators[0]});
  const py::list rest;  // a name for the step
  place_call(rest, type, {py::make_tuple(l.iterators[1]), l.iterators[0]});
  return place_call(o, from_iterable, {rest});
}

uint32_t RebuildPlan::place_islice(py::handle o, const LazyIterator& l) {
  const py::object type = py::type::of(o);
  if (l.iterators.empty()) return place_call(o, type, {py::tuple(), py::int_(0)});  // at its end
  py::object stop = l.bounds.attr("stop"), step = l.bounds.attr("step");
  if (!stop.is_none()) stop = py::int_(stop.cast<int64_t>() - l.taken);
  return place_call(o, type, {l.iterators[0], py::int_(l.next - l.taken), stop, step});
}

}  // namespace oxy::python
