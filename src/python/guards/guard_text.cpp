// Guards for people. Values print by their repr only where that is C: exact builtins.
#include "python/guards/guard_text.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr size_t kLongest = 120;  // characters of a value that are shown

std::string type_name(PyObject* type) { return as_type(type)->tp_name; }

// tp_name of a builtin has its module, that of a class has not.
std::string short_name(PyObject* type) {
  std::string name = type_name(type);
  size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

std::string with_article(const std::string& noun) {
  bool vowel =
      std::string_view("aeiouAEIOU").find(noun.empty() ? 'x' : noun[0]) != std::string::npos;
  return cat(vowel ? "an " : "a ", noun);
}

bool prints_natively(PyObject* value) {
  if (PyTuple_CheckExact(value)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
      if (!prints_natively(PyTuple_GET_ITEM(value, i))) return false;
    return true;
  }
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyComplex_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyBytes_CheckExact(value);
}

std::string value_text(PyObject* value) {
  if (PyType_Check(value)) return type_name(value);
  bool torch_constant = std::string_view(Py_TYPE(value)->tp_name).starts_with("torch.") &&
                        !(Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE);
  if (!prints_natively(value) && !torch_constant)
    return cat("<", short_name(reinterpret_cast<PyObject*>(Py_TYPE(value))), " object>");
  py::object repr = owned(PyObject_Repr(value));
  if (!repr) {
    PyErr_Clear();
    return "<?>";
  }
  std::string s = py::cast<std::string>(repr);
  return s.size() <= kLongest ? s : cat(s.substr(0, kLongest), "...");
}

std::string type_of(PyObject* value) {
  return short_name(reinterpret_cast<PyObject*>(Py_TYPE(value)));
}

// Of the keys of a dict, or the items of a tuple.
std::string items_text(PyObject* values) {
  auto list = owned(PySequence_List(values));
  if (!list) {
    PyErr_Clear();
    return "...";
  }
  return join(list, ", ", [](std::string& out, py::handle k) { out += value_text(k.ptr()); });
}

std::string tensor_failure(const std::string& name, const Guard& guard, PyObject* value,
                           const bridge::InputSignature& tensors) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != guard.expected.ptr()) {
    return cat(name, " is ", with_article(type_of(value)), ", was ",
               with_article(short_name(guard.expected.ptr())));
  }
  return cat(name, " ",
             tensors.difference(static_cast<size_t>(guard.number), THPVariable_Unpack(value)));
}

std::string keys_failure(const std::string& name, const Guard& guard, PyObject* value) {
  if (!PyDict_Check(value)) return cat(name, " is ", with_article(type_of(value)), ", was a dict");
  return cat(name, " has the keys [", items_text(value), "], had [",
             items_text(guard.expected.ptr()), "]");
}

std::string equals_failure(const std::string& name, const Guard& guard, PyObject* value) {
  PyObject* expected = guard.expected.ptr();
  std::string now = value_text(value), was = value_text(expected);
  if (Py_TYPE(value) != Py_TYPE(expected)) {
    return cat(name, " is ", now, " (", type_of(value), "), was ", was, " (", type_of(expected),
               ")");
  }
  return cat(name, " is ", now, ", was ", was);
}

std::string length_failure(const std::string& name, const Guard& guard, PyObject* value) {
  int64_t length = length_of(value);
  if (length < 0) return cat(name, " is ", with_article(type_of(value)), ", which has no length");
  return cat(name, " has length ", length, ", had ", guard.number);
}

std::string compares_text(const std::string& name, const Guard& guard) {
  static const char* const operators[] = {"<", "<=", "==", "!=", ">", ">="};
  return cat(guard.number % 2 ? "" : "not ", name, " ", operators[guard.number / 2], " ",
             value_text(guard.expected.ptr()));
}

std::string missing_text(const SourceTable& sources, const Guard& guard) {
  const Source& s = sources[guard.source];
  if (s.kind == SourceKind::NextItem || s.kind == SourceKind::IteratorPart)
    return cat("no ", sources.text(guard.source));
  return cat(sources.text(s.base), " has no attribute ", py::cast<std::string>(py::str(s.key)));
}

}  // namespace

std::string guard_text(const GuardWalk& walk, size_t index) {
  const SourceTable& sources = walk.sources();
  const Guard& guard = walk.guards()[index];
  std::string name = sources.text(guard.source);
  PyObject* expected = guard.expected.ptr();
  switch (guard.kind) {
    case GuardKind::TypeIs:
      return cat("type(", name, ") is ", type_name(expected));
    case GuardKind::IdIs:
      return cat(name, " is ", value_text(expected));
    case GuardKind::Equals:
      return cat(name, " == ", value_text(expected));
    case GuardKind::Compares:
      return compares_text(name, guard);
    case GuardKind::Length:
      return cat("len(", name, ") == ", guard.number);
    case GuardKind::HasKey:
      return cat(value_text(expected), " in ", name);
    case GuardKind::LacksKey:
      return cat(value_text(expected), " not in ", name);
    case GuardKind::Keys:
      return cat("list(", name, ") == [", items_text(guard.expected.ptr()), "]");
    case GuardKind::Tensor:
      return cat(name, " is ", with_article(short_name(expected)), ", ",
                 walk.tensors().text(static_cast<size_t>(guard.number)));
    case GuardKind::Number:
      return cat(name, " holds ", value_text(expected));
    case GuardKind::Missing:
      return missing_text(sources, guard);
    case GuardKind::SameAs:
      return cat(name, " is ", sources.text(guard.other));
    case GuardKind::NotSameAs:
      return cat(name, " is not ", sources.text(guard.other));
  }
  OXY_FAIL("guard kind");
}

std::string failure_text(const GuardWalk& walk, size_t index, const GuardWalk::Values& values) {
  const SourceTable& sources = walk.sources();
  const Guard& guard = walk.guards()[index];
  PyObject* value = values[guard.source.index];
  std::string name = sources.text(guard.source);
  PyObject* expected = guard.expected.ptr();
  if (!value) return cat(name, " is gone");
  switch (guard.kind) {
    case GuardKind::TypeIs:
      return cat(name, " is ", with_article(type_of(value)), ", was ",
                 with_article(short_name(expected)));
    case GuardKind::IdIs:
      return cat(name, " is another object: ", value_text(value), ", was ", value_text(expected));
    case GuardKind::Equals:
      return equals_failure(name, guard, value);
    case GuardKind::Compares:
      return cat(name, " is ", value_text(value), ", no longer: ", compares_text(name, guard));
    case GuardKind::Length:
      return length_failure(name, guard, value);
    case GuardKind::HasKey:
      return cat(name, " has no key ", value_text(expected), ", had one");
    case GuardKind::LacksKey:
      return cat(name, " has the key ", value_text(expected), ", had not");
    case GuardKind::Keys:
      return keys_failure(name, guard, value);
    case GuardKind::Tensor:
      return tensor_failure(name, guard, value, walk.tensors());
    case GuardKind::Number:
      return cat(name, " no longer holds ", value_text(expected));
    case GuardKind::Missing:
      return cat(name, " is there, was not");
    case GuardKind::SameAs:
      return cat(name, " is no longer ", sources.text(guard.other));
    case GuardKind::NotSameAs:
      return cat(name, " is now ", sources.text(guard.other));
  }
  OXY_FAIL("guard kind");
}

std::string stack_text(const UserStack& stack) {
  std::string out;
  for (const ir::Frame& f : stack.frames()) {
    cat_to(out, "  File \"", f.file, "\", line ", f.line, ", in ", f.function, "\n");
    if (!f.code.empty()) cat_to(out, "    ", f.code, "\n");
  }
  return out;
}

std::string guard_log(const GuardWalk& walk) {
  constexpr size_t kWidth = 10;
  std::string out, last;
  for (size_t i = 0; i < walk.guards().size(); ++i) {
    const Guard& guard = walk.guards()[i];
    std::string kind = kGuardKinds[static_cast<size_t>(guard.kind)];
    std::string stack = guard.stack.empty() ? "  for the arguments\n" : stack_text(guard.stack);
    if (stack != last) out += stack;
    kind.resize(std::max(kind.size(), kWidth), ' ');
    cat_to(out, "      ", kind, guard_text(walk, i), "\n");
    last = std::move(stack);
  }
  return out;
}

}  // namespace oxy::python
