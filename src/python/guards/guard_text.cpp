// Guards for people. Values print by their repr only where that is C: exact builtins.
#include "python/guards/guard_walk.h"

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

std::string type_of(PyObject* value) {
  return short_name(reinterpret_cast<PyObject*>(Py_TYPE(value)));
}

std::string value_text(PyObject* value) {
  if (PyType_Check(value)) return type_name(value);
  bool torch_constant = std::string_view(Py_TYPE(value)->tp_name).starts_with("torch.") &&
                        !(Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE);
  if (!prints_natively(value) && !torch_constant) return cat("<", type_of(value), " object>");
  py::object repr = owned(PyObject_Repr(value));
  if (!repr) {
    PyErr_Clear();
    return "<?>";
  }
  std::string s = py::cast<std::string>(repr);
  return s.size() <= kLongest ? s : cat(s.substr(0, kLongest), "...");
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

constexpr const char* kGuardTexts[] = {
#define OXY_GUARD(kind, by_value, text, failure) text,
#include "python/guards/kinds.def"
};
constexpr const char* kFailures[] = {
#define OXY_GUARD(kind, by_value, text, failure) failure,
#include "python/guards/kinds.def"
};

// A template of kinds.def for this guard, of which `value` was found.
std::string filled(std::string_view form, const GuardWalk& walk, const Guard& guard,
                   PyObject* value = nullptr) {
  PyObject* expected = guard.expected.ptr();
  std::string out;
  for (const char c : form)
    if (c == '%')
      out += walk.sources().text(guard.source);
    else if (c == '&')
      out += walk.sources().text(guard.other);
    else if (c == '@')
      out += value_text(expected);
    else if (c == '*' && guard.kind == GuardKind::Apart)
      out +=
          join(guard.all, ", ", [&](std::string& o, SourceId id) { o += walk.sources().text(id); });
    else if (c == '*')
      out += items_text(expected);
    else if (c == '#')
      cat_to(out, guard.number);
    else if (c == '?')
      out += value_text(value);
    else if (c == '~')
      out += with_article(type_of(value));
    else if (c == '^')
      out += with_article(short_name(expected));
    else
      out += c;
  return out;
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
  const Guard& guard = walk.guards()[index];
  switch (guard.kind) {
    case GuardKind::Compares:
      return compares_text(walk.sources().text(guard.source), guard);
    case GuardKind::Tensor:
    case GuardKind::SizedTensor:
      return filled("% is ^, ", walk, guard) +
             walk.tensors().text(static_cast<size_t>(guard.number));
    case GuardKind::Missing:
      return missing_text(walk.sources(), guard);
    default:
      return filled(kGuardTexts[static_cast<size_t>(guard.kind)], walk, guard);
  }
}

std::string failure_text(const GuardWalk& walk, size_t index, const GuardWalk::Values& values) {
  const Guard& guard = walk.guards()[index];
  PyObject* value = values[guard.source.index];
  auto text = [&](const char* form) { return filled(form, walk, guard, value); };
  if (!value) return text("% is gone");
  switch (guard.kind) {
    case GuardKind::Equals:
      if (Py_TYPE(value) == Py_TYPE(guard.expected.ptr())) return text("% is ?, was @");
      return cat(text("% is ? ("), type_of(value), text("), was @ ("),
                 type_of(guard.expected.ptr()), ")");
    case GuardKind::Compares:
      return cat(text("% is ?, no longer: "),
                 compares_text(walk.sources().text(guard.source), guard));
    case GuardKind::Length: {
      const int64_t length = length_of(value);
      if (length < 0) return text("% is ~, which has no length");
      return cat(text("% has length "), length, text(", had #"));
    }
    case GuardKind::Keys:
      if (!PyDict_Check(value)) return text("% is ~, was a dict");
      return cat(text("% has the keys ["), items_text(value), text("], had [*]"));
    case GuardKind::Tensor:
    case GuardKind::SizedTensor:
      if (!holds(guard, value, nullptr)) return text("% is ~, was ^");
      if (PyObject* name = walk.newly_hidden(static_cast<size_t>(guard.number), value))
        return text("% has ") + value_text(name) + " of its own in front of its class's";
      return text("% ") + walk.tensors().difference(static_cast<size_t>(guard.number),
                                                    THPVariable_Unpack(value));
    default:
      return text(kFailures[static_cast<size_t>(guard.kind)]);
  }
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
