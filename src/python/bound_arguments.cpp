// Positional and keyword arguments to locals, with defaults, *args and **kwargs.
#include "python/bound_arguments.h"

#include <algorithm>

#include "python/cpython/changes.h"
#include "python/cpython/code_object.h"

namespace oxy::python {

BoundArguments::BoundArguments(PyFunctionObject* f, PyObject* const* args, size_t n,
                               PyObject* kwnames)
    : code(f->func_code) {
  auto* c = reinterpret_cast<PyCodeObject*>(code);
  const auto positional = static_cast<size_t>(c->co_argcount);
  const size_t named = positional + static_cast<size_t>(c->co_kwonlyargcount);
  const bool rest = c->co_flags & CO_VARARGS, extra = c->co_flags & CO_VARKEYWORDS;
  if (n > positional && !rest) return;
  locals.assign(named + rest + extra, nullptr);
  std::copy_n(args, std::min(n, positional), locals.begin());
  if (rest) {
    py::tuple t(n > positional ? n - positional : 0);
    for (size_t i = positional; i < n; i++) t[i - positional] = py::handle(args[i]);
    locals[named] = held.emplace_back(std::move(t)).ptr();
  }
  py::object others = extra ? steal(uncounted_dict()) : py::object();
  if (kwnames != nullptr && !bind_keywords(c, args + n, kwnames, named, extra, others)) return;
  if (extra) locals[named + rest] = held.emplace_back(std::move(others)).ptr();
  const size_t defaults =
      f->func_defaults ? static_cast<size_t>(PyTuple_GET_SIZE(f->func_defaults)) : 0;
  for (size_t i = 0; i < named; i++) {
    if (locals[i] != nullptr) continue;
    if (i >= positional && f->func_kwdefaults)
      locals[i] = PyDict_GetItemWithError(f->func_kwdefaults, slot_name(c, static_cast<int>(i)));
    else if (i < positional && i + defaults >= positional)
      locals[i] =
          PyTuple_GET_ITEM(f->func_defaults, static_cast<Py_ssize_t>(i + defaults - positional));
    if (locals[i] == nullptr) return;
  }
  valid = true;
}

bool BoundArguments::bind_keywords(PyCodeObject* code, PyObject* const* values, PyObject* kwnames,
                                   size_t named, bool extra, py::object& others) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    size_t at = static_cast<size_t>(code->co_posonlyargcount);
    while (at < named && PyUnicode_Compare(slot_name(code, static_cast<int>(at)), name) != 0) at++;
    if (at < named) {
      if (locals[at] != nullptr) return false;
      locals[at] = values[k];
    } else {
      if (!extra) return false;
      others[py::handle(name)] = py::handle(values[k]);
    }
  }
  return true;
}

PyObject* call_bound(PyObject* callable, PyCodeObject* code, PyObject* const* parameters,
                     const Vectorcall& call) {
  std::vector<PyObject*> arguments(parameters, parameters + code->co_argcount);
  PyObject* const* next = parameters + code->co_argcount;
  PyObject* const* named = next;
  next += code->co_kwonlyargcount;
  if (code->co_flags & CO_VARARGS) {
    PyObject* rest = *next++;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rest); i++)
      arguments.push_back(PyTuple_GET_ITEM(rest, i));
  }
  const size_t positional = arguments.size();
  py::list names;
  for (int i = 0; i < code->co_kwonlyargcount; i++) {
    names.append(py::handle(slot_name(code, code->co_argcount + i)));
    arguments.push_back(named[i]);
  }
  if (code->co_flags & CO_VARKEYWORDS) {
    for (auto [name, value] : py::reinterpret_borrow<py::dict>(*next)) {
      names.append(name);
      arguments.push_back(value.ptr());
    }
  }
  py::tuple keywords(names);
  return call(callable, arguments.data(), positional, names.empty() ? nullptr : keywords.ptr());
}

}  // namespace oxy::python
