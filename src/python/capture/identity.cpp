// Which objects are one object. Guards look at the values of strings, numbers and tuples alone;
// where captured code asks whether two of them are one object, or hands one on, the answer of this
// call is guarded as well.
#include <torch/csrc/Device.h>

#include "python/capture/capture.h"
#include "python/guards/evaluate.h"

namespace oxy::python {
namespace {

constexpr long kLeastShared = -5, kMostShared = 256;  // of these CPython has one object each

bool is_shared_int(PyObject* p) {
  int over = 0;
  const long value = PyLong_AsLongAndOverflow(p, &over);
  return over == 0 && value >= kLeastShared && value <= kMostShared;
}

bool is_shared_text(PyObject* p) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(p);
  return length == 0 || (length == 1 && PyUnicode_READ_CHAR(p, 0) < 256);
}

// A constant of the code, or one inside of a tuple, frozenset or slice among them.
bool has_constant(PyObject* constants, PyObject* p) {
  if (PySlice_Check(constants)) {
    auto* slice = reinterpret_cast<PySliceObject*>(constants);
    return slice->start == p || slice->stop == p || slice->step == p;
  }
  if (!PyTuple_Check(constants) && !PyFrozenSet_CheckExact(constants)) return false;
  for (py::handle item : borrow(constants))
    if (item.ptr() == p || has_constant(item.ptr(), p)) return true;
  return false;
}

}  // namespace

// Whether other calls may have an equal value in another object.
bool may_be_another(PyObject* p) {
  if (PyLong_CheckExact(p)) return !is_shared_int(p);
  if (PyUnicode_CheckExact(p)) return !is_shared_text(p);
  if (PyBytes_CheckExact(p)) return PyBytes_GET_SIZE(p) > 1;
  if (PyTuple_Check(p)) return PyTuple_GET_SIZE(p) > 0 || !PyTuple_CheckExact(p);
  return PyFloat_CheckExact(p) || PyComplex_CheckExact(p) || THPDevice_Check(p) ||
         PyFunction_Check(p) || is_bound_method(p) || Py_TYPE(p) == &PySuper_Type;
}

// Where the object comes from, in the order in which it was found: sources, keys of dicts and items
// of sets, and as a pinned one the code itself and what is guarded by its identity.
std::vector<SourceId> Heap::places_of(py::handle o) {
  std::vector<SourceId> out;
  for (const auto& [source, found] : by_source_)
    if (found.is(o)) out.push_back(source);
  std::ranges::sort(out, [](SourceId a, SourceId b) { return a.index < b.index; });
  for (const Guard& g : guards.guards()) {
    if (g.kind != GuardKind::Keys) continue;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(g.expected.ptr()); i++)
      if (PyTuple_GET_ITEM(g.expected.ptr(), i) == o.ptr()) out.push_back(sources.key(g.source, i));
  }
  auto has = [&](PyObject* constants) { return has_constant(constants, o.ptr()); };
  if (std::ranges::any_of(frames().codes(), has, &PyCodeObject::co_consts) ||
      std::ranges::any_of(fixed_, has))
    out.push_back(sources.pinned(o, "constant"));
  return out;
}

// Wherever a later call finds `o`, it is one object.
void Heap::guard_one_object(py::handle o) {
  const std::vector<SourceId> places = places_of(o);
  for (size_t i = 1; i < places.size(); i++) guard_pair(GuardKind::SameAs, places[i], places[0]);
}

// a and b are two objects, and the guards on their values do not say so.
void Heap::guard_two_objects(py::handle a, py::handle b) {
  PyObject *p = a.ptr(), *q = b.ptr();
  if (Py_TYPE(p) != Py_TYPE(q)) return;
  if (is_array(a))
    if (const SourceId here = arrays().source_of_array(a), there = arrays().source_of_array(b);
        here.valid() && there.valid())
      return guard_pair(GuardKind::NotSameAs, here, there);
  auto guard_places = [this](SourceId here, SourceId there) {
    const bool both_stay =
        sources[here].kind == SourceKind::Pinned && sources[there].kind == SourceKind::Pinned;
    if (!both_stay) guard_pair(GuardKind::NotSameAs, here, there);
  };
  if (!may_be_another(p)) {
    if (exists(a) && exists(b)) guard_places(source_of(a), source_of(b));
  } else if (!is_constant(p) || same_constant(p, q)) {
    for (SourceId here : places_of(a))
      for (SourceId there : places_of(b)) guard_places(here, there);
  }
}

// `a is b`, and the guards by which it is so at a hit.
bool Heap::is_same(py::handle a, py::handle b) {
  if (!a.is(b)) return guard_two_objects(a, b), false;
  if (may_be_another(a.ptr())) guard_one_object(a);
  return true;
}

// id() for the table that copy.deepcopy keeps: what it has met before must be met again, and
// nothing else.
py::object Heap::id_of(const py::object& o) {
  constexpr size_t kMost = 64;
  PyObject* p = o.ptr();
  const bool by_value = THPDevice_Check(p) || (PyTuple_Check(p) && may_be_another(p));
  if (by_value) guard_one_object(o);
  if (by_value || exists(o)) {
    std::vector<py::object>& met = identified_[Py_TYPE(p)];
    const bool again = std::ranges::any_of(met, [&](const auto& m) { return m.is(o); });
    if (!again && met.size() == kMost) throw Break(BreakId::builtin_call, "id() of many objects");
    for (const py::object& other : met)
      if (!again) guard_two_objects(o, other);
    if (!again) met.push_back(o);
  }
  return py::int_(reinterpret_cast<uintptr_t>(p));
}

// What CPython compares by identity first was not the same object: it must not be at a hit either.
// Of NaN it must be as it was.
void Heap::guard_apart(py::handle a, py::handle b, int depth) {
  constexpr int kMaxDepth = 4;
  if (is_nan(a.ptr()) && is_nan(b.ptr())) is_same(a, b);
  if (a.is(b) || depth > kMaxDepth) return;
  PyObject *p = a.ptr(), *q = b.ptr();
  if ((PyTuple_Check(p) && PyTuple_Check(q)) || (PyList_Check(p) && PyList_Check(q))) {
    const Py_ssize_t n = std::min(PySequence_Fast_GET_SIZE(p), PySequence_Fast_GET_SIZE(q));
    for (Py_ssize_t i = 0; i < n; i++)
      guard_apart(PySequence_Fast_GET_ITEM(p, i), PySequence_Fast_GET_ITEM(q, i), depth + 1);
  } else if (Py_TYPE(p) == Py_TYPE(q) && exists(a) && exists(b) && !is_constant(p)) {
    guard_pair(GuardKind::NotSameAs, source_of(a), source_of(b));
  }
}

}  // namespace oxy::python
