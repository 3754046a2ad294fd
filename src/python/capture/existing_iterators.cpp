// Iterators that were there before the call: a loop that goes on behind a graph break has one.
// Their items have sources of their own, counted from where the iterator stands, so that one
// capture serves every round of the loop; once the graph has run, the iterator is moved on. Where
// captured code lets go of a generator, or of what holds one, its end runs code of the user's there
// and then, so the capture breaks, and CPython executes the instruction.
#include "python/capture/capture.h"
#include "python/capture/natives.h"
#include "python/cpython/opcodes.h"
#include "python/guards/evaluate.h"

namespace oxy::python {
namespace {

constexpr size_t kMostReached = 10'000;

// What the last step of the source finds from `base`; null where there is nothing.
py::object evaluated(const SourceTable& sources, SourceId id, py::handle base) {
  Temporaries made;
  return borrow(evaluate(step_of(sources[id]), base.ptr(), nullptr, made));
}

[[noreturn]] void refuse(py::handle iterator) {
  throw Break(BreakId::side_effect, "a ", Py_TYPE(iterator.ptr())->tp_name,
              " that was there before");
}

// What it holds, apart from what lives on for other reasons.
Arguments own_parts(PyObject* o) {
  if (PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o) || is_tensor_object(o) ||
      PyObject_TypeCheck(o, as_type(member_of<"torch.nn", "Module">())))
    return {};
  if (!PyFunction_Check(o)) return PyObject_IS_GC(o) ? held_by(o) : Arguments();
  auto* f = as_function(o);
  return {borrow(f->func_closure), borrow(f->func_defaults), borrow(f->func_kwdefaults)};
}

}  // namespace

// The next item of an iterator over a list, tuple, range or dict; null at its end.
py::object Iterators::take_existing(py::handle iterator) {
  if (!is_plain_iterator(iterator.ptr())) refuse(iterator);
  Writes& w = effects().writes_of(iterator);
  if (w.at_end) return {};
  for (const py::object& over : held_by(iterator))
    if (Tracked* k = heap().tracked(over); k && k->writes) refuse(iterator);
  const SourceId item = heap().sources.next_item(heap().tracked(iterator)->source, w.advanced++);
  const py::object found = evaluated(heap().sources, item, iterator);
  if (found.ptr() == Py_NotImplemented) refuse(iterator);
  if (found) return heap().wrap(found, item);
  heap().guard(GuardKind::Missing, item);
  w.at_end = true;
  return {};
}

// An item of what an enumerate or zip takes from; nobody else takes from it.
py::object Iterators::driven_part(py::handle iterator, int64_t index, Py_ssize_t taken) {
  const SourceId source = heap().sources.iterator_part(heap().tracked(iterator)->source, index);
  const py::object part = evaluated(heap().sources, source, iterator);
  if (!part) refuse(iterator);
  const py::object inner = heap().wrap(part, source);
  if (!heap().exists(inner)) refuse(iterator);
  Writes& w = effects().writes_of(inner);
  if (w.advanced != taken || (taken > 0 && !w.driven)) refuse(iterator);
  w.driven = true;
  const bool drives = Py_TYPE(inner.ptr()) == &PyEnum_Type || Py_TYPE(inner.ptr()) == &PyZip_Type;
  return drives ? take_driving(inner, Takes::Read) : take_existing(inner);
}

py::object Iterators::next_of_existing(py::handle iterator) {
  PyTypeObject* type = Py_TYPE(iterator.ptr());
  const Takes takes = std::exchange(numbers().takes, Takes::Read);
  if (type != &PyEnum_Type && type != &PyZip_Type) {
    if (Tracked* k = heap().tracked(iterator); k->writes && k->writes->driven) refuse(iterator);
    numbers().takes = takes;
    return take_existing(iterator);
  }
  return take_driving(iterator, takes);
}

// The next item of an enumerate or zip.
py::object Iterators::take_driving(py::handle iterator, Takes takes) {
  Writes& w = effects().writes_of(iterator);
  if (w.at_end) return {};
  const Py_ssize_t taken = w.advanced++;
  if (Py_TYPE(iterator.ptr()) == &PyEnum_Type) {
    py::object item = driven_part(iterator, 0, taken);
    if (!item) return w.at_end = true, item;
    const SourceId count = heap().sources.iterator_part(heap().tracked(iterator)->source, 1);
    const py::object first = evaluated(heap().sources, count, iterator);
    if (!first || !PyLong_CheckExact(first.ptr())) refuse(iterator);
    py::object number = takes == Takes::Deferred ? numbers().deferred_number(first, count)
                                                 : heap().wrap(first, count);
    const py::object offset = py::int_(taken);
    if (taken > 0) {
      auto sum = numbers().compute_deferred(member_of<"operator", "add">(), number, offset);
      number = sum ? *sum : number + offset;
    }
    return py::make_tuple(number, item);
  }
  const py::tuple reduced = iterator.attr("__reduce__")(), parts = reduced[1];
  if (reduced.size() > 2) refuse(iterator);  // strict
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

bool ends_late(PyObject* p) { return (type_traits(Py_TYPE(p)) & native::EndsLate) != 0; }

// Whether `root` is or holds an unfinished generator, however far inside: a real one, or one that
// is interpreted. What was there before does not change while its code is captured, so that nothing
// of it is looked at twice.
bool Iterators::reaches_unfinished(PyObject* root) {
  std::vector<PyObject*> open;
  auto look_at = [&](PyObject* o) {
    if (o != nullptr && PyObject_IS_GC(o) && without_unfinished_.size() < kMostReached &&
        without_unfinished_.insert(o).second)
      open.push_back(o);
  };
  for (look_at(root); !open.empty();) {
    PyObject* o = open.back();
    open.pop_back();
    const LazyIterator* l = lazies_.empty() ? nullptr : lazy(o);
    // One that has not begun may be suspended behind the next instruction.
    const bool unfinished =
        l ? l->frame && !l->done : PyGen_CheckExact(o) && !py::getattr(o, "gi_frame").is_none();
    if (unfinished) return without_unfinished_.clear(), true;
    for (const py::object& inner : own_parts(o)) look_at(inner.ptr());
    if (l == nullptr) continue;
    look_at(l->function.ptr());
    for (const py::object& inner : l->iterators) look_at(inner.ptr());
    if (l->frame)
      for (const py::object& inner : l->frame->fast) look_at(inner.ptr());
  }
  return false;
}

// An enumerate or zip over iterators that hold items alone, or over such ones.
bool Iterators::has_plain_parts(py::handle iterator) {
  PyTypeObject* type = Py_TYPE(iterator.ptr());
  if (type != &PyEnum_Type && type != &PyZip_Type) return false;
  auto source = [&](size_t i) {
    return heap().sources.iterator_part(heap().tracked(iterator)->source, static_cast<int64_t>(i));
  };
  const py::tuple parts = iterator.attr("__reduce__")()[py::int_(1)];
  const size_t count = type == &PyEnum_Type ? 1 : parts.size();
  for (size_t i = 0; i < count; i++) {
    const py::object part = parts[i];
    const py::object wrapped = heap().wrap(part, source(i));
    if (!is_plain_iterator(part.ptr()) && !has_plain_parts(wrapped)) return false;
  }
  if (type == &PyZip_Type) heap().guard(GuardKind::Missing, source(count));
  return true;
}

// How often it stands in a variable or on a stack of the frames that are interpreted, suspended
// generators' as well.
size_t Iterators::places_in_frames(py::handle o) const {
  size_t found = 0;
  auto count = [&](const std::vector<py::object>& objects) {
    for (const py::object& other : objects) found += other.is(o);
  };
  for (const TracedFrame* f : frames().stack()) {
    count(f->fast), count(f->stack);
    for (const TracedFrame::Handled& h : f->handled) found += h.exception.is(o);
  }
  for (const auto& l : lazies_) {
    count(l->iterators);
    if (l->frame && !l->running) count(l->frame->fast), count(l->frame->stack);
  }
  return found;
}

// Whether something would end if `o` were gone from these places. What another object holds lives
// as long as that one.
bool Iterators::is_last_place(py::handle o, size_t places) {
  if (!o || !PyObject_IS_GC(o.ptr())) return false;
  const Tracked* k = heap().tracked(o);
  if (k == nullptr || k->value || !k->source.valid() ||
      heap().sources[k->source].kind != SourceKind::Local)
    return false;
  if (!ends_late(o.ptr())) return reaches_unfinished(o.ptr()) && places_in_frames(o) <= places;
  return places_in_frames(o) <= places && !has_plain_parts(o);
}

// Whether the instruction that comes next lets something end.
bool Iterators::ends_iterator(const TracedFrame& f) {
  const Instruction& i = f.bytecode->instructions[f.next];
  switch (i.op) {
    case POP_TOP:
      return is_last_place(f.stack.back());
    case POP_EXCEPT:
      return is_last_place(f.handled.back().exception);
    case STORE_FAST:
    case DELETE_FAST:
      return is_last_place(f.fast[i.arg]);
    case STORE_DEREF:
    case DELETE_DEREF: {
      PyObject* held = PyCell_GET(f.fast[i.arg].ptr());
      return held != nullptr && is_last_place(held, 0);
    }
    case RETURN_VALUE:
    case RETURN_CONST:
      break;
    default:
      return false;
  }
  if (frames().stack().size() == 1) return false;  // nothing comes behind it
  for (const py::object& o : f.fast) {
    const auto here = static_cast<size_t>(
        std::ranges::count_if(f.fast, [&](const py::object& other) { return other.is(o); }));
    const bool returned = i.op == RETURN_VALUE && f.stack.back().is(o);
    if (!returned && is_last_place(o, here)) return true;
  }
  return false;
}

// The same of an exception that cuts the stack to `depth`.
bool Iterators::unwinding_ends_iterator(const TracedFrame& f, size_t depth) {
  for (size_t at = depth; at < f.stack.size(); at++)
    if (is_last_place(f.stack[at])) return true;
  return false;
}

void Iterators::break_at_end_of_iterator() {
  Break b(BreakId::side_effect, "a generator that was there before is let go of");
  if (!frames().stack().empty()) frames().place(b);
  throw b;
}

// What a container from before the call holds is replaced or taken out.
void Iterators::refuse_to_end(PyObject* held) {
  if (held != nullptr && reaches_unfinished(held)) break_at_end_of_iterator();
}

}  // namespace oxy::python
