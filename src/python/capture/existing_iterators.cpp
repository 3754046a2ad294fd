// Iterators that were there before the call: a loop that goes on behind a graph break has one.
// Their items have sources of their own, counted from where the iterator stands, so that one
// capture serves every round of the loop; once the graph has run, the iterator is moved on.
#include "python/capture/capture.h"
#include "python/guards/evaluate.h"

namespace oxy::python {
namespace {

PyObject* evaluated(const SourceTable& sources, SourceId id, py::handle base, Temporaries& made) {
  return evaluate(step_of(sources[id]), base.ptr(), nullptr, made);
}

[[noreturn]] void refuse(py::handle iterator) {
  throw Break(BreakId::side_effect, "a ", Py_TYPE(iterator.ptr())->tp_name,
              " that was there before");
}

}  // namespace

// The next item of an iterator over a list, tuple, range or dict; null at its end.
py::object Iterators::take_existing(py::handle iterator) {
  if (!is_plain_iterator(iterator.ptr())) refuse(iterator);
  Writes& w = effects().writes_of(iterator);
  if (w.at_end) return {};
  PyObject* over = nullptr;
  const py::object state = borrow(iterator).attr("__reduce__")();
  if (py::len(state) > 1) over = PyTuple_GET_ITEM(py::object(state[py::int_(1)]).ptr(), 0);
  if (Tracked* k = over ? heap().tracked(over) : nullptr; k && k->writes) refuse(iterator);
  const SourceId item = heap().sources.next_item(heap().tracked(iterator)->source, w.advanced++);
  Temporaries made;
  PyObject* found = evaluated(heap().sources, item, iterator, made);
  if (found == Py_NotImplemented) refuse(iterator);
  if (found != nullptr) return heap().wrap(found, item);
  heap().guard(GuardKind::Missing, item);
  w.at_end = true;
  return {};
}

// An item of what an enumerate or zip takes from; nobody else takes from it.
py::object Iterators::driven_part(py::handle iterator, int64_t index, Py_ssize_t taken) {
  const SourceId source = heap().sources.iterator_part(heap().tracked(iterator)->source, index);
  Temporaries made;
  PyObject* part = evaluated(heap().sources, source, iterator, made);
  if (part == nullptr) refuse(iterator);
  const py::object inner = heap().wrap(part, source);
  if (!heap().exists(inner)) refuse(iterator);
  Writes& w = effects().writes_of(inner);
  if (w.advanced != taken || (taken > 0 && !w.driven)) refuse(iterator);
  w.driven = true;
  return take_existing(inner);
}

py::object Iterators::next_of_existing(py::handle iterator) {
  PyTypeObject* type = Py_TYPE(iterator.ptr());
  const Takes takes = std::exchange(numbers().takes, Takes::Read);
  if (type != &PyEnum_Type && type != &PyZip_Type) {
    if (Tracked* k = heap().tracked(iterator); k->writes && k->writes->driven) refuse(iterator);
    numbers().takes = takes;
    return take_existing(iterator);
  }
  Writes& w = effects().writes_of(iterator);
  if (w.at_end) return {};
  const Py_ssize_t taken = w.advanced++;
  if (type == &PyEnum_Type) {
    py::object item = driven_part(iterator, 0, taken);
    if (!item) return w.at_end = true, item;
    const SourceId count = heap().sources.iterator_part(heap().tracked(iterator)->source, 1);
    Temporaries made;
    PyObject* first = evaluated(heap().sources, count, iterator, made);
    if (first == nullptr || !PyLong_CheckExact(first)) refuse(iterator);
    py::object number = takes == Takes::Deferred ? numbers().deferred_number(first, count)
                                                 : heap().wrap(first, count);
    const py::object offset = py::int_(taken);
    if (taken > 0) {
      auto sum = numbers().compute_deferred(member_of<"operator", "add">(), number, offset);
      number = sum ? *sum : number + offset;
    }
    return py::make_tuple(number, item);
  }
  Temporaries made;
  const auto parts = py::reinterpret_borrow<py::tuple>(iterator.attr("__reduce__")()[py::int_(1)]);
  if (py::len(iterator.attr("__reduce__")()) > 2) refuse(iterator);  // strict
  heap().guard(GuardKind::Missing,
               heap().sources.iterator_part(heap().tracked(iterator)->source,
                                            static_cast<int64_t>(parts.size())));
  py::tuple out(parts.size());
  for (size_t i = 0; i < parts.size(); i++) {
    py::object item = driven_part(iterator, static_cast<int64_t>(i), taken);
    if (!item) return w.at_end = true, item;
    out[i] = std::move(item);
  }
  if (parts.empty()) return w.at_end = true, py::object();
  return std::move(out);
}

}  // namespace oxy::python
