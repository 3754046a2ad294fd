// What kind of object something is, names, and errors of Python that captured code raises: nothing
// here knows of a capture.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "python/bytecode/code.h"
#include "python/capture/part.h"
#include "python/cpython/types.h"
#include "support/text.h"

namespace oxy::python {

// One object for all calls: numbers, strings, dtypes; functions, classes, modules; enums, ops.
bool is_constant(PyObject* p);
bool is_found_in_text(py::handle o);  // a match or pattern of the module re
bool is_number(PyObject* p);
bool is_derived_value(PyObject* p);  // of a class derived from int, float, complex, str or bytes
bool is_of_python_class(PyObject* p);
bool is_callable_constant(PyObject* p);
bool is_singleton(py::handle o);
bool is_enum_member(py::handle o);
inline bool is_one_for_all(py::handle o) {
  return is_constant(o.ptr()) || is_callable_constant(o.ptr()) || is_singleton(o);
}
// Hashed and compared by what it is, without Python code, and the same for every call.
// A method of a function, class or descriptor (`torch.Tensor.shape.__get__`): made anew each time,
// hashed and compared by what it is of.
inline bool is_bound_for_good(PyObject* p) {
  return is_method_wrapper(p) &&
         is_callable_constant(py::object(py::handle(p).attr("__self__")).ptr());
}
inline bool is_plain_key(PyObject* p) {
  if (!PyTuple_CheckExact(p)) return is_one_for_all(p) || is_bound_for_good(p);
  PyObject** items = PySequence_Fast_ITEMS(p);
  return std::all_of(items, items + PyTuple_GET_SIZE(p), is_plain_key);
}
// Hashed and compared by Python code, itself or what is in it.
bool is_hashed_by_code(PyObject* key);
bool may_be_another(PyObject* p);  // elsewhere an equal one may be another object

[[noreturn]] void name_error(py::handle name, const char* format = "name '%U' is not defined");
// Of the module `operator`: by Py_LT ..., by the argument of BINARY_OP.
inline constexpr std::array<std::string_view, 6> kComparisons{"lt", "le", "eq", "ne", "gt", "ge"};
const char* binary_operator_name(uint32_t arg);
bool is_binary_operator(std::string_view name);

// Breaks at a class with __del__, which an object that capture makes and drops would run, and at
// those of the module decimal, which read the thread's context and set flags there.
void refuse_to_make(PyTypeObject* type);
template <class... Parts>
[[noreturn]] void raise(PyObject* type, const Parts&... text) {
  PyErr_SetString(type, cat(text...).c_str());
  throw py::error_already_set();
}
template <class... Parts>
[[noreturn]] void type_error(const Parts&... text) {
  raise(PyExc_TypeError, text...);
}
[[noreturn]] void raise_with(PyObject* type, py::handle value);  // what the exception holds
// What a callable says of itself; of what says nothing, the name of its type, and no module.
std::string name_of(py::handle callable);
std::string module_of(py::handle callable);
// Whether what the function written in C is given may be found in what it returns.
bool keeps_arguments(const std::string& name);
void require_name(py::handle name);  // of an attribute
bool mentions(py::handle o, bool (*is_one)(py::handle), bool beyond, int depth = 0);
bool makes_weak_reference(py::handle callable);
bool mentions_tensor(py::handle o);  // or an array
bool mentions_wrapper(py::handle o);
Arguments held_by(py::handle o);  // what the collector finds in it
bool mentions_array(py::handle o);
bool any_argument(const Arguments& args, const Keywords& kwargs, bool (*is_one)(py::handle));

// What the interpreter follows instead of a function written in C; null for most (natives.cpp).
py::object polyfill_of(py::handle callable);
// Of oxyfuel.polyfills.
py::object polyfill(const char* name);
bool is_polyfill(py::handle function);

// The items of a set in an order in which they make one that lies as it does, as far as they are
// one for all calls: where hashes collide, that depends on what came first. Nothing where none is
// found.
std::optional<py::list> order_of_adding(py::handle set);

// Stands for what was deleted.
py::object missing();

// What the body of a class has bound to the name; null where there is nothing.
py::object name_in(py::handle names, py::handle name);

bool is_exception_group(py::handle o);
// A context variable, a context, or the token of a change.
bool is_of_context(py::handle o);

// What stands for a numpy.ndarray or a NumPy scalar: oxyfuel.arrays.Array.
bool is_array(py::handle o);
bool is_real_scalar(PyObject* p);            // of NumPy's own
bool is_numpy_limits(PyTypeObject* type);    // numpy.finfo, numpy.iinfo
py::object type_of_array(py::handle array);  // the one of NumPy
py::object method_of_array(py::handle array, py::handle name);
// Raises AttributeError, or breaks at what only NumPy's own array has.
void check_array_attr(py::handle array, py::handle name);
// A function of oxyfuel.arrays or oxyfuel.array_functions.
bool is_array_code(PyFunctionObject* function);
// Python code of torch.func's transforms.
bool is_of_transforms(PyFunctionObject* function);

// A method of a type written in C, without an object: list.append, int.__add__.
bool is_unbound_native(PyObject* o);
// A method with the object that it was found on; of those written in C, one that its type has.
bool is_bound_method(PyObject* o);
// What it was made from, which a class further down may hide; nullptr for what no type has.
PyObject* method_descriptor(PyObject* bound);
py::object bind(PyObject* descriptor, py::handle self);

// The bytecode of a code object, kept with it.
std::shared_ptr<const Bytecode> bytecode_of(PyCodeObject* code);

// Names that the interpreter looks up on types and in dicts again and again, as interned strings:
// __x__ is the member x_.
struct Names {
  static PyObject* of(const char* name) { return PyUnicode_InternFromString(name); }
  PyObject *bool_ = of("__bool__"), *call_ = of("__call__"), *class_ = of("__class__"),
           *contains_ = of("__contains__"), *dict_ = of("__dict__"), *enter_ = of("__enter__"),
           *exit_ = of("__exit__"), *get_ = of("__get__"), *getattr_ = of("__getattr__"),
           *getattribute_ = of("__getattribute__"), *getitem_ = of("__getitem__"),
           *init_ = of("__init__"), *iter_ = of("__iter__"), *len_ = of("__len__"),
           *new_ = of("__new__"), *next_ = of("__next__"), *self_ = of("__self__"),
           *setattr_ = of("__setattr__"), *setitem_ = of("__setitem__");
};

inline const Names& names() {
  static const auto& all = *new Names();
  return all;
}

// `name` is this interned string, or equal to it.
inline bool is_name(py::handle name, PyObject* interned) {
  return name.ptr() == interned ||
         (PyUnicode_Check(name.ptr()) && PyUnicode_Compare(name.ptr(), interned) == 0);
}

// str(o), of a string without calling anything: PyObject_Str would run the handlers of signals.
inline std::string text(py::handle o) {
  return PyUnicode_Check(o.ptr()) ? o.cast<std::string>() : py::str(o).cast<std::string>();
}

// What the class of `o` has under this name, where that is a Python function; borrowed, else null.
inline PyObject* python_method(PyObject* o, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(o), name);
  return found != nullptr && PyFunction_Check(found) ? found : nullptr;
}

}  // namespace oxy::python
