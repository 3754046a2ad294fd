// What tells of changes: the versions of dicts and types, of which every write gives them another
// one, and a count of what no version tells of. With what else guards know of the insides of dicts.
#pragma once

#include <Python.h>

#include <cstdint>

static_assert(PY_VERSION_HEX >= 0x030A0000 && PY_VERSION_HEX < 0x030E0000,
              "dict and type versions are looked up as in CPython 3.10 to 3.13");

#ifdef Py_GIL_DISABLED
#error "Oxyfuel needs the GIL: this is a free-threaded build of CPython"
#endif

namespace oxy::python {

// Changes with every write to the dict, and is never given out twice in a process. Of 3.13 that is
// so from the first tracked_version() on.
inline uint64_t dict_version(PyObject* dict) {
  constexpr int kWatcherBits =  // below the version
      PY_VERSION_HEX >= 0x030D0000   ? 12
      : PY_VERSION_HEX >= 0x030C0000 ? 8
                                     : 0;
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag >> kWatcherBits;
}

// Changes when an attribute of the type or of a base changes; 0 while nobody has looked anything up
// since.
inline uint32_t type_version(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030D0000
  return type->tp_version_tag;
#else
  bool valid = type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG;
  return valid ? type->tp_version_tag : 0;
#endif
}

inline uint64_t own_dict_writes = 0;

// How often dicts were written or made in this process, our own writes here not counted. All dicts
// draw their versions from one counter; writing a dict of ours shows where it stands.
inline uint64_t dict_writes() {
  static PyObject* probe = PyDict_New();
  static PyObject* key = PyUnicode_InternFromString("probe");
  // The value that is there already would not count.
  static PyObject* value = Py_False;
  value = value == Py_True ? Py_False : Py_True;
  ++own_dict_writes;
  if (PyDict_SetItem(probe, key, value) != 0) PyErr_Clear();
  return dict_version(probe) - own_dict_writes;
}

// A new dict that dict_writes() does not count. A new reference.
inline PyObject* uncounted_dict() {
  PyObject* dict = PyDict_New();
  if (dict) ++own_dict_writes;
  return dict;
}

// The dict's own lookup with a hash that is known; borrowed, nullptr without an exception where
// there is none.
inline PyObject* dict_lookup(PyObject* dict, PyObject* key, Py_hash_t hash) {
  PyObject* value = _PyDict_GetItem_KnownHash(dict, key, hash);
  if (!value && PyErr_Occurred()) PyErr_Clear();
  return value;
}

// As PyDict_Next, with the hash that the dict knows its key by.
bool next_entry(PyObject* dict, Py_ssize_t* at, PyObject** key, PyObject** value, Py_hash_t* hash);
// As PyDict_SetItem, of a key with that hash.
int set_entry(PyObject* dict, PyObject* key, PyObject* value, Py_hash_t hash);

// While it lives there is no collection, which may run Python code; and it leaves no exception
// behind.
class Quiet {
 public:
  Quiet() : collecting_(PyGC_Disable()) {}
  ~Quiet() {
    if (collecting_) PyGC_Enable();
    PyErr_Clear();
  }
  Quiet(const Quiet&) = delete;

 private:
  int collecting_;
};

// Instances of 3.13 hold their values themselves, and a dict that is made for one shows them: then
// no version, and no watcher, tells of assignments to attributes. Taking the last item out of the
// dict and putting it back makes the dict hold them all, as any that has been made does in 3.12.
inline uint64_t tracked_version(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr) {
    const Quiet quiet;
    static PyObject* const take = PyObject_GetAttrString((PyObject*)&PyDict_Type, "popitem");
    const bool empty = PyDict_GET_SIZE(dict) == 0;
    if (empty) PyDict_SetItemString(dict, "__dict__", Py_None);
    PyObject* item = PyObject_CallOneArg(take, dict);
    if (item && !empty) PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    Py_XDECREF(item);
  }
#endif
  return dict_version(dict);
}

// Where an object holds its __dict__; the dict is made if it was not there. nullptr for objects
// that have none.
inline PyObject** instance_dict_slot(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (!slot) return nullptr;
  if (!*slot) {
    const Quiet quiet;
    Py_XDECREF(PyObject_GenericGetDict(object, nullptr));
  }
  return *slot ? slot : nullptr;
}

// Counts from now on the assignments to an object's __class__ and __dict__, and to a function's
// __code__. All go through a setter that CPython shares among all classes; these setters are
// wrapped, once a process.
void count_object_changes();
uint64_t object_changes();

// Whether every assignment to the __dict__ of instances of the type is counted: they have one that
// CPython itself manages, and no other setter.
bool counts_dict_changes(PyTypeObject* type);

}  // namespace oxy::python
