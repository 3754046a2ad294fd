// The texts of objects, as str and repr give them.
#include <algorithm>
#include <ranges>

#include "python/capture/capture.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

bool is_plain_container(py::handle o) {
  return PyList_CheckExact(o.ptr()) || PyTuple_CheckExact(o.ptr()) || PyDict_CheckExact(o.ptr());
}

// The items of a list or tuple, the keys and values of a dict by turns.
Arguments items_of(Capture& c, py::handle container) {
  const py::object inside = c.heap.contents(container);
  Arguments out;
  if (PyDict_Check(inside.ptr()))
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(inside)) {
      out.push_back(borrow(key));
      out.push_back(borrow(value));
    }
  else
    for (py::handle item : plain_list(inside)) out.push_back(borrow(item));
  return out;
}

constexpr int kMostNested = 8;

// Whether an item of it has a __repr__ of the user's.
bool holds_own_text(Capture& c, py::handle o, int depth = 0) {
  if (depth > kMostNested || !is_plain_container(o)) return false;
  return std::ranges::any_of(items_of(c, o), [&](const py::object& item) {
    if (is_plain_container(item)) return holds_own_text(c, item, depth + 1);
    return !c.heap.is_tensor(item) &&
           c.objects.special_method(item, py::str("__repr__")) != nullptr;
  });
}

// The repr of a container of such, from those of its items.
py::object text_of_items(Capture& c, py::handle container, int depth = 0) {
  const bool dict = PyDict_CheckExact(container.ptr()), tuple = PyTuple_CheckExact(container.ptr());
  const auto refuse = [] { throw Break(BreakId::builtin_call, "the text of a container"); };
  if (depth > kMostNested) refuse();
  const Arguments items = items_of(c, container);
  std::string out;
  for (size_t i = 0; i < items.size(); i++) {
    const py::object part = is_plain_container(items[i])
                                ? text_of_items(c, items[i], depth + 1)
                                : c.calls.call(member_of<"builtins", "repr">(), {items[i]});
    if (!PyUnicode_Check(part.ptr())) refuse();
    cat_to(out, i == 0 ? "" : dict && i % 2 == 1 ? ": " : ", ", text(part));
  }
  if (tuple && items.size() == 1) out += ",";
  return py::str(dict ? cat("{", out, "}") : tuple ? cat("(", out, ")") : cat("[", out, "]"));
}

}  // namespace

// str(o) or repr(o), where Python code or an exception made here says it; nullopt for all else.
std::optional<py::object> Calls::text_of(py::handle o, bool repr) {
  if (heap().is_tensor(o)) return std::nullopt;
  if (const py::object scalar = arrays().with_scalars(borrow(o)); !scalar.is(o))
    return repr ? py::object(py::repr(scalar)) : py::object(py::str(scalar));
  PyObject* own = repr ? nullptr : objects().special_method(o, py::str("__str__"));
  if (own == nullptr && (repr || Py_TYPE(o.ptr())->tp_str == PyBaseObject_Type.tp_str))
    own = objects().special_method(o, py::str("__repr__"));
  if (own != nullptr) {
    py::object text = call(own, {borrow(o)});
    if (!PyUnicode_Check(text.ptr())) type_error("a text that is no string");
    return text;
  }
  if (!repr)
    if (auto text = text_of_value(o, "__str__")) return text;
  if (repr || Py_TYPE(o.ptr())->tp_str == PyBaseObject_Type.tp_str)
    if (auto text = text_of_value(o, "__repr__")) return text;
  if (holds_own_text(capture_, o)) return text_of_items(capture_, o);
  refuse_lost_class(o);
  if (!PyExceptionInstance_Check(o.ptr()) || heap().exists(o)) return std::nullopt;
  if (!repr && is_exception_group(o)) return py::str(o);           // its message and how many
  if (PyErr_GivenExceptionMatches(o.ptr(), PyExc_AttributeError))  // it may name the class
    if (const py::object of = borrow(o).attr("obj");
        is_changeable_class(Py_TYPE(of.ptr())) && !classes().is_made_class(objects().type_of(of)))
      objects().load_attr(objects().type_of(of), py::str("__name__"));
  const py::object given = borrow(o).attr("args");  // the text reads what is symbolic
  require_plain(with_numbers(given), member_of<"builtins", "str">());
  return repr ? py::object(py::repr(o)) : py::object(py::str(o));
}

// What stands for a container that was there before is of the builtin class, and its text may name
// another one.
void Calls::refuse_lost_class(py::handle o, int depth) {
  constexpr int kMaxNesting = 20;
  PyObject* p = o.ptr();
  const bool dict = PyDict_Check(p) && !PyDict_CheckExact(p) && !PyODict_CheckExact(p);
  const bool set = PyAnySet_Check(p) && !PyAnySet_CheckExact(p);
  if (heap().exists(o) && (dict || set))
    throw Break(BreakId::builtin_on_existing, "the text of a ", Py_TYPE(p)->tp_name);
  if (depth > kMaxNesting || !(PyTuple_Check(p) || PyList_Check(p) || PyDict_Check(p))) return;
  const py::object inside = heap().contents(o);
  const py::list items =
      PyDict_Check(p) ? py::list(steal(PyDict_Values(inside.ptr()))) : plain_list(inside);
  for (py::handle item : items) refuse_lost_class(item, depth + 1);
}

}  // namespace oxy::python
