// Puts setters that count into CPython's own tables; reads and writes dicts by known hashes.
#define Py_BUILD_CORE 1
#include "python/cpython/changes.h"

#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_dict.h>
#endif

#include <utility>

#include "python/cpython/boundary.h"
#include "python/cpython/types.h"
#include "support/check.h"

namespace oxy::python {
namespace {

uint64_t changes = 0;
setter set_class = nullptr, set_dict = nullptr, set_code = nullptr;

template <setter& original>
int counted(PyObject* object, PyObject* value, void* closure) {
  ++changes;
  return boundary([=] { return original(object, value, closure); }, -1);
}

// The getter and setter that stand under `name` in the type's own dict; nullptr where something
// else does.
PyGetSetDef* own_getset(PyTypeObject* type, const char* name) {
  PyObject* dict = type_dict(type);
  PyObject* found = dict ? PyDict_GetItemString(dict, name) : nullptr;
  if (!found || !Py_IS_TYPE(found, &PyGetSetDescr_Type)) return nullptr;
  return reinterpret_cast<PyGetSetDescrObject*>(found)->d_getset;
}

PyTypeObject* plain_class() {
  PyObject* type =
      PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Plain");
  OXY_CHECK(type, "a class cannot be made");
  return reinterpret_cast<PyTypeObject*>(type);
}

// CPython has several tables with the same setter.
bool is_counted(PyGetSetDef* getset) {
  if (getset && getset->set == set_dict) getset->set = counted<set_dict>;
  return getset && getset->set == counted<set_dict>;
}

}  // namespace

void count_object_changes() {
  if (set_class) return;
  PyTypeObject* type = plain_class();
  PyGetSetDef* of_class = own_getset(&PyBaseObject_Type, "__class__");
  PyGetSetDef* of_dict = own_getset(type, "__dict__");
  PyGetSetDef* of_code = own_getset(&PyFunction_Type, "__code__");
  OXY_CHECK(of_class && of_class->set && of_dict && of_dict->set && of_code && of_code->set,
            "__class__, __dict__ and __code__");
  set_dict = std::exchange(of_dict->set, counted<set_dict>);
  set_class = std::exchange(of_class->set, counted<set_class>);
  set_code = std::exchange(of_code->set, counted<set_code>);
  Py_DECREF(type);
}

uint64_t object_changes() { return changes; }

bool counts_dict_changes(PyTypeObject* type) {
  count_object_changes();
  if (!has_managed_dict(type) || !type->tp_mro) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* dict = type_dict(base);
    bool has_one = dict && PyDict_GetItemString(dict, "__dict__");
    if (has_one && !is_counted(own_getset(base, "__dict__"))) return false;
  }
  return true;
}

bool next_entry(PyObject* dict, Py_ssize_t* at, PyObject** key, PyObject** value, Py_hash_t* hash) {
#if PY_VERSION_HEX >= 0x030D0000
  if (PyDict_Next(dict, at, key, value) == 0) return false;
  // Where all keys are texts, they hold their hashes themselves.
  PyDictKeysObject* keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  *hash = DK_IS_UNICODE(keys) ? PyObject_Hash(*key) : DK_ENTRIES(keys)[*at - 1].me_hash;
  return true;
#else
  return _PyDict_Next(dict, at, key, value, hash) != 0;
#endif
}

int set_entry(PyObject* dict, PyObject* key, PyObject* value, Py_hash_t hash) {
  return _PyDict_SetItem_KnownHash(dict, key, value, hash);
}

}  // namespace oxy::python
