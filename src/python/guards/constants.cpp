// Comparing constants: an own walk over exact types, since rich comparison may call what a user
// wrote.
#include "python/guards/constants.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace oxy::python {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_complex(PyObject* a, PyObject* b) {
  Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
  return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
}

bool same_bytes(PyObject* a, PyObject* b) {
  Py_ssize_t n = PyBytes_GET_SIZE(a);
  return n == PyBytes_GET_SIZE(b) &&
         std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), n) == 0;
}

bool same_str(PyObject* a, PyObject* b) {
  return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_Compare(a, b) == 0;
}

bool same_items(PyObject* a, PyObject* b) {
  Py_ssize_t n = PyTuple_GET_SIZE(a);
  if (n != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

bool has_constant(PyObject* set, PyObject* key, Py_hash_t hash) {
  Py_ssize_t pos = 0;
  PyObject* other = nullptr;
  Py_hash_t other_hash = 0;
  while (_PySet_NextEntry(set, &pos, &other, &other_hash))
    if (other_hash == hash && same_constant(key, other)) return true;
  return false;
}

bool same_members(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Py_ssize_t pos = 0;
  PyObject* key = nullptr;
  Py_hash_t hash = 0;
  while (_PySet_NextEntry(a, &pos, &key, &hash))
    if (!has_constant(b, key, hash)) return false;
  return true;
}

bool same_slice(PyObject* a, PyObject* b) {
  auto* x = reinterpret_cast<PySliceObject*>(a);
  auto* y = reinterpret_cast<PySliceObject*>(b);
  return same_constant(x->start, y->start) && same_constant(x->stop, y->stop) &&
         same_constant(x->step, y->step);
}

bool same_device(PyObject* a, PyObject* b) {
  return reinterpret_cast<THPDevice*>(a)->device == reinterpret_cast<THPDevice*>(b)->device;
}

}  // namespace

bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyUnicode_Type) return same_str(a, b);
  if (type == &PyLong_Type) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) return same_complex(a, b);
  if (type == &PyBytes_Type) return same_bytes(a, b);
  if (type == &PyFrozenSet_Type) return same_members(a, b);
  if (type == &PySlice_Type) return same_slice(a, b);
  // Named tuples and torch.Size too: what has no dict of its own is its items.
  if (PyTuple_Check(a) && type->tp_dictoffset == 0) return same_items(a, b);
  return THPDevice_Check(a) && same_device(a, b);
}

bool is_nan(PyObject* p) { return PyFloat_CheckExact(p) && std::isnan(PyFloat_AS_DOUBLE(p)); }

size_t constant_hash(PyObject* key) {
  // A slice cannot be hashed in 3.11, a device hashes like any equal device.
  if (PySlice_Check(key)) return 1;
  Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) throw pybind11::error_already_set();
  return static_cast<size_t>(hash);
}

}  // namespace oxy::python
