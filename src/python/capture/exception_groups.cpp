// except*: what a clause takes of an exception group, and what is raised again behind the last one.
//
// Groups are split by CPython's own methods. Where CPython tells by an exception's traceback
// whether a clause has raised it anew, the places count that it has passed (`raised_`): captured
// code has no tracebacks.
#include <pybind11/eval.h>

#include "python/capture/instructions.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

void check_types(const py::object& type) {
  const py::tuple types = PyTuple_Check(type.ptr()) ? py::tuple(type) : py::make_tuple(type);
  for (py::handle t : types)
    if (!PyExceptionClass_Check(t.ptr()) || is_exception_group_class(as_type(t)))
      throw Break(BreakId::exception_group, "except* of what it cannot take");
}

bool has_same_history(py::handle a, py::handle b) {
  auto same = [&](const char* part) {
    return py::getattr(a, part, py::none()).is(py::getattr(b, part, py::none()));
  };
  return same("__cause__") && same("__context__") && same("__notes__");
}

// The ids of the exceptions in a group that are no groups.
void collect_leaves(py::handle e, py::set& ids) {
  if (is_exception_group(e))
    for (py::handle part : py::tuple(e.attr("exceptions"))) collect_leaves(part, ids);
  else
    ids.add(py::int_(reinterpret_cast<uintptr_t>(e.ptr())));
}

py::object make_group(const py::object& exceptions) {
  return py::handle(exception_group_class())(py::str(""), exceptions);
}

// The part of `group` that has these leaves, or None.
py::object subgroup_of(py::handle group, const py::set& leaves) {
  static const py::object& maker =
      *new py::object(py::eval("lambda ids: lambda e: id(e) in ids", py::dict()));
  return group.attr("subgroup")(maker(leaves));
}

// What a clause asks of each of them depends on the bases of their classes.
void guard_bases(Classes& classes, py::handle e) {
  classes.guard_bases(Py_TYPE(e.ptr()));
  if (!is_exception_group(e)) return;
  for (py::handle part : py::tuple(e.attr("exceptions"))) guard_bases(classes, part);
}

}  // namespace

bool is_exception_group(py::handle o) { return is_exception_group_class(Py_TYPE(o.ptr())); }

// Of one that was there before nothing is known, and CPython would look into a group.
void Frames::refuse_existing(py::handle e) {
  if (heap().exists(e)) throw Break(BreakId::exception_group, "one that was there before");
  if (!is_exception_group(e)) return;
  for (py::handle part : py::tuple(e.attr("exceptions")))
    if (is_exception_group(part)) refuse_existing(part);
}

// The part that the clause takes, which is what is being handled from now on, above what is left.
void Frames::match_group(TracedFrame& f) {
  const py::object type = pop(f), e = pop(f);
  check_types(type);
  refuse_existing(e);
  if (!e.is_none()) guard_bases(classes(), e);
  py::object match = py::none(), rest = e;
  if (!e.is_none() && PyErr_GivenExceptionMatches(e.ptr(), type.ptr())) {
    match = is_exception_group(e) ? e : make_group(py::make_tuple(e));
    rest = py::none();
  } else if (is_exception_group(e)) {
    const py::tuple parts = e.attr("split")(type);
    match = parts[0];
    rest = parts[1];
  }
  for (const py::object& part : {match, rest}) {
    if (part.is_none() || part.is(e)) continue;
    heap().hold(part);
    if (is_exception_group(e)) raised_[part.ptr()] = raised_[e.ptr()];
  }
  push(f, rest);
  push(f, match);
  if (match.is_none()) return;
  f.handled.back().exception = match;
  set_handled_exception(match.ptr());
}

// What is raised behind the clauses: those parts of the group that they have left or raised again,
// as they stood in it, with what they have raised besides. None where there is nothing.
py::object Frames::left_of_group(const py::object& group, const py::list& raised) {
  auto places = [this](py::handle e) {
    auto it = raised_.find(e.ptr());
    return it == raised_.end() ? size_t{0} : it->second.size();
  };
  refuse_existing(group);
  py::list fresh;
  py::set again;
  for (py::handle e : raised) {
    if (e.is_none()) continue;
    refuse_existing(e);
    if (!is_exception_group(group)) return borrow(e);  // one clause took it
    if (is_exception_group(e) && places(e) == places(group) && has_same_history(e, group))
      collect_leaves(e, again);
    else
      fresh.append(e);
  }
  if (!again.empty()) {
    const py::object kept = subgroup_of(group, again);
    heap().hold(kept);
    raised_[kept.ptr()] = raised_[group.ptr()];
    if (fresh.empty()) return kept;
    fresh.append(kept);
  }
  if (fresh.empty()) return py::none();
  if (fresh.size() == 1) return fresh[0];
  py::object out = make_group(fresh);
  heap().hold(out);
  return out;
}

}  // namespace oxy::python
