// What CPython's types are and do that its API does not tell.
#pragma once

#include <Python.h>

#include <span>
#include <string_view>

namespace oxy::python {

// Classes that can be changed: those that Python code or an extension made, not CPython's own. The
// flag HEAPTYPE alone does not tell: 3.12 has also deque, defaultdict and the types of itertools on
// the heap.
inline bool is_changeable_class(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

// Whether isinstance looks for what a typing.Protocol has without running the object's code.
inline constexpr bool kProtocolsAskStatically = PY_VERSION_HEX >= 0x030C0000;

// An entry of the cache of a functools.lru_cache with a limit, which takes the place of the one
// that has not been asked for longest (Modules/_functoolsmodule.c).
struct LruEntry {
  PyObject_HEAD LruEntry *before, *next;
  Py_hash_t hash;
  PyObject *key, *result;
};

inline bool is_lru_entry(PyObject* o) {
  const PyTypeObject* type = Py_TYPE(o);
  return type->tp_basicsize == sizeof(LruEntry) &&
         std::string_view(type->tp_name) == "functools._lru_list_elem";
}

// threading.local.
inline PyTypeObject* thread_local_type() {
  static PyTypeObject* const type = [] {
    PyObject* module = PyImport_ImportModule("_thread");
    PyObject* found = module ? PyObject_GetAttrString(module, "_local") : nullptr;
    Py_XDECREF(module);
    return reinterpret_cast<PyTypeObject*>(found);
  }();
  return type;
}

inline bool is_thread_local(PyObject* o) { return PyObject_TypeCheck(o, thread_local_type()); }

// Whether this thread has something in a threading.local (Modules/_threadmodule.c).
inline bool has_thread_local(PyObject* o) {
#if PY_VERSION_HEX >= 0x030D0000
  struct Local {
    PyObject_HEAD PyObject *args, *kw, *weakrefs, *dicts, *watchdogs;
  };
  PyObject* dicts = reinterpret_cast<Local*>(o)->dicts;
  PyObject* key = PyThreadState_Get()->threading_local_key;
  return dicts != nullptr && key != nullptr && PyDict_Contains(dicts, key) == 1;
#else
  PyObject* key = PyUnicode_FromFormat("thread.local.%p", o);
  PyObject* all = PyThreadState_GetDict();
  const bool made = key != nullptr && all != nullptr && PyDict_Contains(all, key) == 1;
  Py_XDECREF(key);
  return made;
#endif
}

// What this thread has in a threading.local, a new reference. Null, and no exception, where it has
// nothing there yet and code of Python's would make it: the __init__ of a derived class.
inline PyObject* thread_local_dict(PyObject* o) {
  if (Py_TYPE(o)->tp_init != PyBaseObject_Type.tp_init && !has_thread_local(o)) return nullptr;
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  return thread_local_type()->tp_getattro(o, name);
}

// What an instance has in its memory by this one of its types, written in C, which holds no object:
// the state of a random.Random, by `_random.Random`.
inline std::span<char> plain_memory_of(PyObject* o, const PyTypeObject* type) {
  return {reinterpret_cast<char*>(o + 1),
          static_cast<size_t>(type->tp_basicsize) - sizeof(PyObject)};
}

// Its iterators warn where they are asked what they hold, or told.
inline constexpr bool kItertoolsWarn = PY_VERSION_HEX >= 0x030C0000;

// 3.12 keeps the dicts of its own types elsewhere than in tp_dict. Borrowed: the type holds it.
inline PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

// A slot of a type written in C, bound to an object: `().__len__`.
inline bool is_method_wrapper(PyObject* object) {
  static PyTypeObject* const type = [] {
    PyObject* bound = PyObject_GetAttrString(Py_None, "__str__");
    PyTypeObject* found = Py_TYPE(bound);
    Py_DECREF(bound);
    return found;
  }();
  return Py_TYPE(object) == type;
}

// Instances have a dict.
inline bool has_instance_dict(const PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030B0000
  return type->tp_dictoffset != 0 || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT);
#else
  return type->tp_dictoffset != 0;
#endif
}

// They have one that CPython itself manages. 3.10 does so for each class of Python's.
inline bool has_managed_dict(const PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030B0000
  return type->tp_flags & Py_TPFLAGS_MANAGED_DICT;
#else
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_dictoffset != 0;
#endif
}

// CPython 3.12 keeps what derives from its own types elsewhere than in them.
inline bool tells_subclasses([[maybe_unused]] const PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return !(type->tp_flags & _Py_TPFLAGS_STATIC_BUILTIN);
#else
  return true;
#endif
}

// Takes a class that nobody uses any more out of its bases' __subclasses__(), where it would stay
// until garbage is collected. No Python exception may be set.
inline void leave_bases(PyTypeObject* type) {
  PyObject* key = PyLong_FromVoidPtr(type);
  for (Py_ssize_t i = 0; key != nullptr && i < PyTuple_GET_SIZE(type->tp_bases); i++) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_bases, i));
    if (!tells_subclasses(base) || base->tp_subclasses == nullptr) continue;
    if (PyDict_DelItem(reinterpret_cast<PyObject*>(base->tp_subclasses), key) < 0) PyErr_Clear();
  }
  if (key == nullptr) PyErr_Clear();
  Py_XDECREF(key);
}

// The class of exception groups; nullptr where there are none.
inline PyObject* exception_group_class() {
#if PY_VERSION_HEX >= 0x030B0000
  return PyExc_BaseExceptionGroup;
#else
  return nullptr;
#endif
}

inline bool is_exception_group_class(PyTypeObject* type) {
  auto* groups = reinterpret_cast<PyTypeObject*>(exception_group_class());
  return groups != nullptr && PyType_IsSubtype(type, groups);
}

// What the errors for variables without a value say of the name.
#if PY_VERSION_HEX >= 0x030B0000
inline constexpr const char* kUnboundLocal =
    "cannot access local variable '%U' where it is not associated with a value";
inline constexpr const char* kUnboundFree =
    "cannot access free variable '%U' where it is not associated with a value in enclosing scope";
#else
inline constexpr const char* kUnboundLocal = "local variable '%U' referenced before assignment";
inline constexpr const char* kUnboundFree =
    "free variable '%U' referenced before assignment in enclosing scope";
#endif

// What the error for an attribute that cannot be set says of an object without a dict.
inline constexpr const char* kNoDictToSet =
    PY_VERSION_HEX >= 0x030D0000 ? " and no __dict__ for setting new attributes" : "";

// The error for an attribute that is to be deleted and is not there says its name, nothing more.
inline constexpr bool kDeletionsTellNames = PY_VERSION_HEX < 0x030B0000;

// A with statement names what an object lacks to be a context manager.
inline constexpr bool kNamesContextProtocol = PY_VERSION_HEX >= 0x030B0000;

// pop() and popitem() of a class derived from OrderedDict call its methods for items.
inline constexpr bool kOrderedDictsPopByItems = PY_VERSION_HEX < 0x030B0000;

// A generator's close() gives what the generator returns.
inline constexpr bool kCloseReturns = PY_VERSION_HEX >= 0x030D0000;

// sum() of floats adds, in the end, what rounding has lost.
inline constexpr bool kSumsCompensate = PY_VERSION_HEX >= 0x030C0000;

// issubset() asks an iterable for no more once it has seen all of the set.
constexpr bool kIssubsetStopsEarly = PY_VERSION_HEX >= 0x030C0000;

// As PyDict_Next, of a set's items with their hashes; borrowed.
inline bool next_of_set(PyObject* set, Py_ssize_t& at, PyObject*& item, Py_hash_t& hash) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  while (at <= s->mask) {
    const setentry& entry = s->table[at++];
    // A deleted entry has a key of its own, and this hash.
    if (entry.key == nullptr || entry.hash == -1) continue;
    item = entry.key;
    hash = entry.hash;
    return true;
  }
  return false;
}

// The item that a set's pop() takes after `before` others, nothing else being done to the set
// between; borrowed, null where there is none.
inline PyObject* next_popped(PyObject* set, Py_ssize_t before) {
  auto* s = reinterpret_cast<PySetObject*>(set);
  for (Py_ssize_t i = 0, seen = 0; i <= s->mask && seen < s->used; i++) {
    const setentry& entry = s->table[(s->finger + i) & s->mask];
    if (entry.key == nullptr || entry.hash == -1) continue;
    if (seen++ == before) return entry.key;
  }
  return nullptr;
}

}  // namespace oxy::python
