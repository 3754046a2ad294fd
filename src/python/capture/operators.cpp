// Operators of objects whose classes are written in Python: whom CPython asks, in which order.
#include <array>

#include "python/capture/names.h"
#include "python/capture/tracer.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// The method that the other operand of a comparison is asked for; empty for all else.
std::string_view mirrored(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPairs{
      {{"eq", "eq"}, {"ne", "ne"}, {"lt", "gt"}, {"gt", "lt"}, {"le", "ge"}, {"ge", "le"}}};
  for (const auto& [a, b] : kPairs)
    if (a == name) return b;
  return {};
}

bool is_derived_of(PyTypeObject* type, PyTypeObject* of) {
  return type != of && PyType_IsSubtype(type, of);
}

bool is_of_object(PyTypeObject* type, const std::string& method) {
  const py::str name(method);
  return _PyType_Lookup(type, name.ptr()) == _PyType_Lookup(&PyBaseObject_Type, name.ptr());
}

}  // namespace

// What `operator.name` gives on objects that have methods in Python for it, and in-place changes of containers; nullopt
// where they have none, or all of them say NotImplemented.
std::optional<py::object> Tracer::ask_operands(const std::string& name, const Arguments& args) {
  std::string base = name;
  while (base.ends_with("_")) base.pop_back();
  const bool binary = args.size() == 2, in_place = binary && name.starts_with("i");
  py::object out;
  auto gives = [&](PyObject* method, const Arguments& with) {
    if (method == nullptr) return false;
    out = call(method, with);
    return out.ptr() != Py_NotImplemented;
  };
  auto method = [&](size_t i, const std::string& dunder) {
    return special_method(args[i], py::str(dunder));
  };
  if (!binary)
    return gives(method(0, cat("__", base, "__")), args) ? std::optional(out) : std::nullopt;
  if (in_place) {
    if (gives(method(0, cat("__", base, "__")), args)) return out;
    if (auto done = change_in_place(base, args)) return done;
    base = base.substr(1);
  }
  const std::string_view mirror = mirrored(base);
  const std::string own = cat("__", base, "__");
  const std::string reflected = mirror.empty() ? cat("__r", base, "__") : cat("__", mirror, "__");
  PyTypeObject *type = Py_TYPE(args[0].ptr()), *other = Py_TYPE(args[1].ptr());
  PyObject *mine = method(0, own), *theirs = method(1, reflected);
  if (theirs != nullptr && mirror.empty() && type == other) theirs = nullptr;
  const Arguments swapped{args[1], args[0]};
  const bool first = theirs != nullptr && is_derived_of(other, type) &&
                     (!mirror.empty() || lookup(type, py::str(reflected)) != theirs);
  if (first && gives(theirs, swapped)) return out;
  // Of != there is what == says.
  if (name == "ne" && mine == nullptr && is_of_object(type, "__ne__"))
    if (gives(method(0, "__eq__"), args)) return py::bool_(!truth(out));
  if (gives(mine, args)) return out;
  if (!first && gives(theirs, swapped)) return out;
  const bool asked_both = mine != nullptr && (theirs != nullptr || is_of_object(other, own));
  if (asked_both && (name == "eq" || name == "ne"))
    return py::bool_(args[0].is(args[1]) == (name == "eq"));
  return std::nullopt;
}

// `a += b` and its kind of lists, dicts, sets and deques.
std::optional<py::object> Tracer::change_in_place(const std::string& name, const Arguments& args) {
  Arguments rest{args[1]};
  Keywords none;
  if (exists(args[0]))
    if (auto done = change_existing(args[0], cat("__", name, "__"), rest, none);
        done && done->ptr() != Py_NotImplemented)
      return done;
  if (!PyList_CheckExact(args[0].ptr()) || exists(args[0]) || name != "iadd") return std::nullopt;
  args[0].attr("extend")(items_to_add(args[1]));
  return args[0];
}

// A function of the module operator, as the instruction that does the same; nullopt for all others.
std::optional<py::object> Tracer::call_operator(py::handle function, const std::string& name,
                                                const Arguments& args) {
  constexpr std::array<std::string_view, 6> kComparisons{"lt", "le", "eq", "ne", "gt", "ge"};
  const size_t n = args.size();
  if (n == 1 && name == "neg")
    if (auto computed = negate_unread(args[0])) return computed;
  if (n == 1 && (name == "neg" || name == "pos" || name == "invert" || name == "inv"))
    return operate(function, args);
  if (n == 1 && name == "truth") return py::bool_(truth(args[0]));
  if (n == 1 && name == "not_") return py::bool_(!truth(args[0]));
  if (n == 3 && name == "setitem") return store_subscript(args[0], args[1], args[2]), py::none();
  if (n != 2) return std::nullopt;
  if (name == "getitem") return subscript(args[0], args[1]);
  if (name == "delitem") return delete_subscript(args[0], args[1]), py::none();
  if (name == "contains") return contains(args[0], args[1]);
  if (name == "iconcat" && PyList_Check(args[0].ptr()))
    return operate(py::module_::import("operator").attr("iadd"), args);
  if (is_binary_operator(name)) {
    auto computed = compute_unread(borrow(function.ptr()), args[0], args[1]);
    return computed ? *computed : operate(function, args);
  }
  const auto* found = std::ranges::find(kComparisons, name);
  if (found == kComparisons.end()) return std::nullopt;
  const auto comparison = static_cast<int>(found - kComparisons.begin());  // Py_LT ...
  auto answer = compare_unread(args[0], args[1], comparison);
  return answer ? *answer : compare_runtime(args[0], args[1], comparison);
}

}  // namespace oxy::python
