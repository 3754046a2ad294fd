// One step of a source, and one guard, on real objects. No Python code runs, no exception is left
// behind.
#pragma once

#include "python/guards/guard.h"

namespace oxy::python {

// A source as checks want it.
struct SourceStep {
  SourceKind kind;
  SourceId base;
  PyObject* key = nullptr;  // borrowed from the table or its copy
  Py_hash_t hash = 0;       // of the key of a DictItem or KwDefault
  int64_t index = 0;
};

// Objects that descriptors made for a walk.
using Temporaries = c10::SmallVector<py::object, 4>;

// What a plain tensor of one element in the CPU's memory holds, as a bool, int or float; null for
// all else. No code of torch runs.
py::object number_in(PyObject* tensor);
// What a scalar program, in bytes, says of that number; nothing where it is no float.
std::optional<bool> number_truth(PyObject* tensor, py::handle program);

// A tensor over the memory of a numpy.ndarray, or with the value of a NumPy scalar; null for an
// array that cannot be written, or of a kind that tensors do not have.
py::object tensor_of_array(PyObject* o);

// Same type and equal: None, bool, int, float and complex by their bits, str, bytes, torch
// constants, and tuples, frozensets and slices of such. Everything else is compared by identity.
// Sets no exception.
bool same_constant(PyObject* a, PyObject* b);

// The value of an instance of a class derived from int, float, complex, str or bytes, as one of
// that type, whatever its class has for it: what code written in C reads; of an integer of NumPy's
// as an int. Null for all else.
py::object plain_value(PyObject* o);
bool is_numpy_int(PyObject* o);

// What an entry of the cache of a functools.lru_cache holds where the cache has a limit; null for
// all else. Borrowed.
PyObject* cached_result(PyObject* entry);

// A float that is not equal to itself: containers find it by its identity.
bool is_nan(PyObject* p);

// Equal for constants that are the same. Throws py::error_already_set where the key cannot be
// hashed.
size_t constant_hash(PyObject* key);

SourceStep step_of(const Source& source);

// The object that `step` finds from `base`, borrowed (`made` holds what nobody else does); nullptr
// if there is none.
PyObject* evaluate(const SourceStep& step, PyObject* base, PyObject* const* locals,
                   Temporaries& made);

// The word of memory that alone says what `step` finds from `base`, as long as the type of `base`
// is what it is: a slot of an instance, the contents of a cell, the defaults of a function. nullptr
// for all other steps and objects.
PyObject* const* word_of(const SourceStep& step, PyObject* base);

// None, a number, a text, or a function without a closure: no great thing to keep alive.
bool is_plain(PyObject* o);

// The names by which the __dict__ of a tensor hides members of its class: x.sin = f. A property is
// in front of it.
py::tuple hidden_members(PyObject* tensor);
// The first of them that is not among `names`, a tuple; null where there is none.
PyObject* hidden_by(PyObject* tensor, PyObject* names);
// Whether it has a `__dict__` by now; makes none.
bool has_dict(PyObject* o);

// A guard as checks want it: `number` of HasKey and LacksKey becomes the hash of the key.
Guard prepared(Guard guard);

// Whether a prepared guard on `value` (nullptr: nothing was found) holds; `other` for SameAs,
// NotSameAs and Apart, of which these two alone are looked at. Of a Tensor guard, whose `expected`
// is the type by then, only the type is.
bool holds(const Guard& guard, PyObject* value, PyObject* other);

// An iterator over a list, tuple, range or dict, written in C: it tells of its place, and taking
// items runs no code.
bool is_plain_iterator(PyObject* o);

// The length of a list, tuple, dict or set; -1 for other objects.
int64_t length_of(PyObject* value);

}  // namespace oxy::python
