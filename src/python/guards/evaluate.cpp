// Sources and guards on real objects.
#include "python/guards/evaluate.h"

#include <structmember.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "python/cpython/changes.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "support/check.h"
#include "torch_bridge/scalar_program.h"

namespace oxy::python {
namespace {

// How a deque, or one of a derived class, is asked for its own items; null for all else.
const PySequenceMethods* as_deque(PyObject* o) {
  static auto* const type = reinterpret_cast<PyTypeObject*>(
      py::object(py::module_::import("collections").attr("deque")).release().ptr());
  return PyObject_TypeCheck(o, type) ? type->tp_as_sequence : nullptr;
}

PyObject* item_of_tuple(PyObject* tuple, int64_t index) {
  return tuple && index < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, index) : nullptr;
}

PyObject* item_of(PyObject* base, int64_t index) {
  if (PyTuple_Check(base)) return item_of_tuple(base, index);
  if (const auto* deque = as_deque(base)) {  // the deque holds what it gives
    PyObject* item = index < deque->sq_length(base) ? deque->sq_item(base, index) : nullptr;
    Py_XDECREF(item);
    return item;
  }
  return PyList_Check(base) && index < PyList_GET_SIZE(base) ? PyList_GET_ITEM(base, index)
                                                             : nullptr;
}

// The object, which `made` holds; nullptr for none.
PyObject* kept(py::object o, Temporaries& made) {
  return o ? made.emplace_back(std::move(o)).ptr() : nullptr;
}

// What an iterator written in C tells of itself, or null. No Python code runs, and no collection.
py::object reduced(PyObject* iterator) {
  const Quiet quiet;
  auto out = owned(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  const bool told = out && PyTuple_Check(out.ptr()) && PyTuple_GET_SIZE(out.ptr()) > 1;
  return told ? out : py::object();
}

// An iterator that cannot go on (its dict has changed) gives what no guard takes for an item or for
// the end.
PyObject* next_item(PyObject* iterator, int64_t index, Temporaries& made) {
  if (!is_plain_iterator(iterator)) return Py_NotImplemented;
  const py::object state = reduced(iterator);
  if (!state) return Py_NotImplemented;
  PyObject* over = item_of_tuple(PyTuple_GET_ITEM(state.ptr(), 1), 0);
  PyObject* at = item_of_tuple(state.ptr(), 2);
  if (over == nullptr) return Py_NotImplemented;
  if (at != nullptr && PyLong_Check(at)) index += PyLong_AsLongLong(at);
  if (PyObject_Length(over) <= index) return nullptr;
  PyObject* item = PySequence_GetItem(over, index);
  if (item == nullptr) PyErr_Clear();
  return kept(owned(item), made);
}

PyObject* answer_of(PyObject* function, PyObject* args, Temporaries& made) {
  const Quiet quiet;
  return kept(owned(PyObject_CallObject(function, args)), made);
}

// A variable that holds itself counts as one without a value.
PyObject* context_value(PyObject* var, bool or_default, Temporaries& made) {
  PyObject* value = nullptr;
  if (!PyContextVar_CheckExact(var) ||
      PyContextVar_Get(var, or_default ? nullptr : var, &value) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  auto held = owned(value);
  return value == var ? nullptr : kept(std::move(held), made);
}

PyObject* iterator_part(PyObject* iterator, int64_t index, Temporaries& made) {
  if (!Py_IS_TYPE(iterator, &PyEnum_Type) && !Py_IS_TYPE(iterator, &PyZip_Type)) return nullptr;
  const py::object state = reduced(iterator);
  if (!state) return nullptr;
  return kept(borrow(item_of_tuple(PyTuple_GET_ITEM(state.ptr(), 1), index)), made);
}

// Where an instance holds what one of its __slots__ names, and a class its __mro__; null for other
// descriptors.
PyObject** slot_of(PyObject* base, PyObject* descriptor) {
  if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return nullptr;
  const PyMemberDef& member = *reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  const bool of_type = member.type == T_OBJECT && member.offset == offsetof(PyTypeObject, tp_mro) &&
                       PyDescr_TYPE(descriptor) == &PyType_Type;
  if (!(member.type == T_OBJECT_EX || of_type) ||
      !PyObject_TypeCheck(base, PyDescr_TYPE(descriptor)))
    return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(base) + member.offset);
}

// Only descriptors written in C are asked; others would run Python code.
PyObject* attribute_of(PyObject* base, PyObject* name, Temporaries& made) {
  PyTypeObject* type = Py_TYPE(base);
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (!descriptor) return nullptr;
  if (PyObject** slot = slot_of(base, descriptor)) return *slot;
  bool native =
      Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || Py_IS_TYPE(descriptor, &PyGetSetDescr_Type);
  if (!native) return nullptr;
  const Quiet quiet;
  PyObject* of = reinterpret_cast<PyObject*>(type);
  return kept(owned(Py_TYPE(descriptor)->tp_descr_get(descriptor, base, of)), made);
}

PyObject* of_function(const SourceStep& step, PyObject* base) {
  if (!PyFunction_Check(base)) return nullptr;
  auto* f = as_function(base);
  if (step.kind == SourceKind::Code) return f->func_code;
  if (step.kind == SourceKind::Closure) return item_of_tuple(f->func_closure, step.index);
  if (step.kind == SourceKind::Default) return item_of_tuple(f->func_defaults, step.index);
  return f->func_kwdefaults ? dict_lookup(f->func_kwdefaults, step.key, step.hash) : nullptr;
}

// Calls `see` with each key of a dict or item of a set, in its order, as long as that returns true;
// the holder keeps them.
template <class See>
void each_key(PyObject* o, See see) {
  Py_ssize_t pos = 0;
  PyObject *key = nullptr, *value = nullptr;
  Py_hash_t hash = 0;
  if (PyODict_Check(o)) {  // has an order of its own beside the dict's
    const Quiet quiet;
    const auto it = owned(PyODict_Type.tp_iter(o));
    while (it && (key = Py_TYPE(it.ptr())->tp_iternext(it.ptr()))) {
      Py_DECREF(key);
      if (!see(key)) return;
    }
  } else if (PyDict_Check(o)) {
    while (PyDict_Next(o, &pos, &key, &value) && see(key)) continue;
  } else if (PyAnySet_Check(o)) {
    while (next_of_set(o, pos, key, hash) && see(key)) continue;
  }
}

PyObject* key_at(PyObject* o, int64_t index) {
  PyObject* found = nullptr;
  each_key(o, [&](PyObject* key) {
    if (index == 0) found = key;
    return index-- > 0;
  });
  return found;
}

PyObject* value_at(PyObject* o, int64_t index) {
  PyObject *key = nullptr, *value = nullptr;
  if (!PyDict_Check(o) || PyODict_Check(o)) return nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value) != 0; index--)
    if (index == 0) return value;
  return nullptr;
}

bool same_keys(PyObject* o, PyObject* expected) {
  if (!PyDict_Check(o) && !PyAnySet_Check(o)) return false;
  if (length_of(o) != PyTuple_GET_SIZE(expected)) return false;
  Py_ssize_t seen = 0;
  bool same = true;
  each_key(o, [&](PyObject* key) {
    same =
        seen < PyTuple_GET_SIZE(expected) && same_constant(key, PyTuple_GET_ITEM(expected, seen));
    ++seen;
    return same;
  });
  return same && seen == PyTuple_GET_SIZE(expected);
}

bool compares(const Guard& guard, PyObject* value) {
  if (!PyLong_CheckExact(value) && !PyFloat_CheckExact(value)) return false;
  const int operation = static_cast<int>(guard.number / 2);
  // PyObject_RichCompareBool would take a NaN for equal to itself.
  const auto answer = owned(PyObject_RichCompare(value, guard.expected.ptr(), operation));
  return answer.ptr() == (guard.number % 2 ? Py_True : Py_False);
}

bool has_key(const Guard& guard, PyObject* dict) {
  return dict_lookup(dict, guard.expected.ptr(), static_cast<Py_hash_t>(guard.number));
}

// Comparing constants: an own walk over exact types, since rich comparison may call what a user
// wrote.
bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_complex(PyObject* a, PyObject* b) {
  Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
  return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
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
  while (next_of_set(set, pos, other, other_hash))
    if (other_hash == hash && same_constant(key, other)) return true;
  return false;
}

bool same_set(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Py_ssize_t pos = 0;
  PyObject* key = nullptr;
  Py_hash_t hash = 0;
  while (next_of_set(a, pos, key, hash))
    if (!has_constant(b, key, hash)) return false;
  return true;
}

bool same_slice(PyObject* a, PyObject* b) {
  auto* x = reinterpret_cast<PySliceObject*>(a);
  auto* y = reinterpret_cast<PySliceObject*>(b);
  return same_constant(x->start, y->start) && same_constant(x->stop, y->stop) &&
         same_constant(x->step, y->step);
}

}  // namespace

bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyUnicode_Type)
    return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_Compare(a, b) == 0;
  if (type == &PyLong_Type || type == &PyBytes_Type)
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) return same_complex(a, b);
  if (type == &PyFrozenSet_Type) return same_set(a, b);
  if (type == &PySlice_Type) return same_slice(a, b);
  // Named tuples and torch.Size too: what has no dict of its own is its items.
  if (PyTuple_Check(a) && type->tp_dictoffset == 0) return same_items(a, b);
  return THPDevice_Check(a) &&
         reinterpret_cast<THPDevice*>(a)->device == reinterpret_cast<THPDevice*>(b)->device;
}

bool is_nan(PyObject* p) { return PyFloat_CheckExact(p) && std::isnan(PyFloat_AS_DOUBLE(p)); }

size_t constant_hash(PyObject* key) {
  // A slice cannot be hashed in 3.11, a device hashes like any equal device.
  if (PySlice_Check(key)) return 1;
  Py_hash_t hash = PyObject_Hash(key);
  if (hash == -1) throw py::error_already_set();
  return static_cast<size_t>(hash);
}

bool is_plain_iterator(PyObject* o) {
  static PyTypeObject* const types[] = {&PyListIter_Type,      &PyTupleIter_Type,
                                        &PyRangeIter_Type,     &PyDictIterKey_Type,
                                        &PyDictIterValue_Type, &PyDictIterItem_Type};
  return std::ranges::find(types, Py_TYPE(o)) != std::end(types);
}

py::object number_in(PyObject* o) {
  if (!THPVariable_Check(o)) return {};
  const at::Tensor& t = THPVariable_Unpack(o);
  if (!t.defined() || t.layout() != at::kStrided || !t.device().is_cpu() || t.numel() != 1 ||
      t.key_set().has_any(c10::DispatchKeySet(
          {c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::ZeroTensor,
           c10::DispatchKey::Negative, c10::DispatchKey::Conjugate})) ||
      !t.has_storage() || t.storage().data() == nullptr)
    return {};
  const char* data = static_cast<const char*>(t.storage().data()) +
                     static_cast<size_t>(t.storage_offset()) * t.element_size();
  switch (t.scalar_type()) {
    case at::kBool:
      return py::bool_(*data != 0);
    case at::kInt:
      return py::int_(*reinterpret_cast<const int32_t*>(data));
    case at::kLong:
      return py::int_(*reinterpret_cast<const int64_t*>(data));
    case at::kFloat:
      return py::float_(*reinterpret_cast<const float*>(data));
    case at::kDouble:
      return py::float_(*reinterpret_cast<const double*>(data));
    default:
      return {};
  }
}

py::object tensor_of_array(PyObject* o) {
  const bool is_array = std::string_view(Py_TYPE(o)->tp_name) == "numpy.ndarray";
  const Quiet quiet;
  auto array = owned(is_array ? Py_NewRef(o) : PyObject_CallMethod(o, "__array__", nullptr));
  // Whether it can be written is asked before torch warns of it.
  Py_buffer memory;
  py::object out;
  if (array && PyObject_GetBuffer(array.ptr(), &memory, PyBUF_STRIDES | PyBUF_WRITABLE) == 0) {
    PyBuffer_Release(&memory);
    try {
      out = owned(THPVariable_Wrap(torch::utils::tensor_from_numpy(array.ptr(), false)));
    } catch (const std::exception&) {  // a type or strides that tensors do not have
    }
  }
  return out;
}

bool is_numpy_int(PyObject* o) {
  const std::string_view name = Py_TYPE(o)->tp_name;
  return (name.starts_with("numpy.int") || name.starts_with("numpy.uint")) &&
         !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

py::object plain_value(PyObject* o) {
  const Quiet quiet;
  if (PyLong_Check(o)) return owned(_PyLong_Copy(reinterpret_cast<PyLongObject*>(o)));
  if (PyFloat_Check(o)) return owned(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o)));
  if (PyComplex_Check(o)) return owned(PyComplex_FromCComplex(((PyComplexObject*)o)->cval));
  if (PyUnicode_Check(o)) return owned(PyUnicode_FromObject(o));
  if (PyBytes_Check(o))
    return owned(PyBytes_FromStringAndSize(PyBytes_AS_STRING(o), PyBytes_GET_SIZE(o)));
  if (is_numpy_int(o)) return owned(PyNumber_Index(o));
  return {};
}

PyObject* cached_result(PyObject* entry) {
  return is_lru_entry(entry) ? reinterpret_cast<LruEntry*>(entry)->result : nullptr;
}

SourceStep step_of(const Source& source) {
  SourceStep step{source.kind, source.base, source.key.ptr(), 0, source.index};
  if (source.kind == SourceKind::DictItem || source.kind == SourceKind::KwDefault)
    step.hash = static_cast<Py_hash_t>(constant_hash(step.key));
  return step;
}

PyObject* const* word_of(const SourceStep& step, PyObject* base) {
  switch (step.kind) {
    case SourceKind::Attribute: {
      if (PyFunction_Check(base)) {
        auto* f = as_function(base);
        const bool named = PyUnicode_CompareWithASCIIString(step.key, "__kwdefaults__") == 0;
        if (named) return &f->func_kwdefaults;
        if (PyUnicode_CompareWithASCIIString(step.key, "__defaults__") == 0)
          return &f->func_defaults;
      }
      PyObject* descriptor = _PyType_Lookup(Py_TYPE(base), step.key);
      return descriptor ? slot_of(base, descriptor) : nullptr;
    }
    case SourceKind::CellContents:
      return PyCell_Check(base) ? &reinterpret_cast<PyCellObject*>(base)->ob_ref : nullptr;
    case SourceKind::Default:
      return PyFunction_Check(base) ? &as_function(base)->func_defaults : nullptr;
    default:
      return nullptr;
  }
}

bool is_plain(PyObject* o) {
  return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
         PyComplex_CheckExact(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o) ||
         (PyFunction_Check(o) && as_function(o)->func_closure == nullptr);
}

Guard prepared(Guard guard) {
  PyObject* expected = guard.expected.ptr();
  if (guard.kind == GuardKind::HasKey || guard.kind == GuardKind::LacksKey)
    guard.number = static_cast<int64_t>(constant_hash(expected));
  else if (guard.kind == GuardKind::Keys)
    OXY_CHECK(PyTuple_Check(expected), "a Keys guard without a tuple");
  return guard;
}

PyObject* evaluate(const SourceStep& step, PyObject* base, PyObject* const* locals,
                   Temporaries& made) {
  switch (step.kind) {
    case SourceKind::Local:
      return locals[step.index];
    case SourceKind::Pinned:
      return step.key;
    case SourceKind::InstanceDict: {
      PyObject** slot = instance_dict_slot(base);
      return slot ? *slot : nullptr;
    }
    case SourceKind::ThreadDict:
      return is_thread_local(base) ? kept(owned(thread_local_dict(base)), made) : nullptr;
    case SourceKind::TypeAttribute:
      if (!PyType_Check(base)) return nullptr;
      return _PyType_Lookup(as_type(base), step.key);
    case SourceKind::Attribute:
      return attribute_of(base, step.key, made);
    case SourceKind::DictItem:
      return PyDict_Check(base) ? dict_lookup(base, step.key, step.hash) : nullptr;
    case SourceKind::Item:
      return item_of(base, step.index);
    case SourceKind::CellContents:
      return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
    case SourceKind::Closure:
    case SourceKind::Default:
    case SourceKind::KwDefault:
    case SourceKind::Code:
      return of_function(step, base);
    case SourceKind::NextPopped:
      return PySet_Check(base) ? next_popped(base, 0) : nullptr;
    case SourceKind::NextItem:
      return next_item(base, step.index, made);
    case SourceKind::Referent:
      if (!PyWeakref_CheckRefExact(base)) return nullptr;
      return kept(borrow(PyWeakref_GET_OBJECT(base)), made);
    case SourceKind::ContextValue:
      return context_value(base, step.index == 1, made);
    case SourceKind::Handled: {
      PyObject* handled = handled_exception();
      return handled ? kept(owned(handled), made) : Py_None;
    }
    case SourceKind::Key:
      return key_at(base, step.index);
    case SourceKind::ValueOfKey:
      return value_at(base, step.index);
    case SourceKind::IteratorPart:
      return iterator_part(base, step.index, made);
    case SourceKind::Answer:
      return answer_of(base, step.key, made);
    case SourceKind::ArrayTensor:
      return kept(tensor_of_array(base), made);
    case SourceKind::PlainValue:
      return kept(plain_value(base), made);
    case SourceKind::NumberIn:
      return kept(number_in(base), made);
    case SourceKind::CachedResult:
      return cached_result(base);
  }
  OXY_FAIL("source kind");
}

int64_t length_of(PyObject* value) {
  if (PyList_Check(value)) return PyList_GET_SIZE(value);
  if (PyTuple_Check(value)) return PyTuple_GET_SIZE(value);
  if (PyDict_Check(value)) return PyDict_GET_SIZE(value);
  if (PyAnySet_Check(value)) return PySet_GET_SIZE(value);
  if (const auto* deque = as_deque(value)) return deque->sq_length(value);
  return -1;
}

std::optional<bool> number_truth(PyObject* tensor, py::handle program) {
  constexpr double kMostExact = 0x1p52;
  const py::object number = number_in(tensor);
  if (!number) return std::nullopt;
  const double value = PyFloat_AsDouble(number.ptr());
  if (!PyFloat_Check(number.ptr()) && std::abs(value) > kMostExact) return std::nullopt;
  const auto* first = reinterpret_cast<const bridge::ScalarStep*>(PyBytes_AS_STRING(program.ptr()));
  const auto count = static_cast<size_t>(PyBytes_GET_SIZE(program.ptr())) / sizeof(*first);
  return bridge::evaluate({first, count}, value) != 0;
}

PyObject* hidden_by(PyObject* tensor, PyObject* names) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);  // makes none
  if (dict == nullptr || *dict == nullptr) return nullptr;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(*dict, &at, &name, &value);) {
    if (!PyUnicode_CheckExact(name)) continue;
    PyObject* member = _PyType_Lookup(Py_TYPE(tensor), name);
    if (member == nullptr || Py_TYPE(member)->tp_descr_set != nullptr) continue;
    if (!std::ranges::any_of(py::reinterpret_borrow<py::tuple>(names), [&](py::handle known) {
          return PyUnicode_Compare(known.ptr(), name) == 0;
        }))
      return name;
  }
  return nullptr;
}

py::tuple hidden_members(PyObject* tensor) {
  py::tuple out;
  while (PyObject* name = hidden_by(tensor, out.ptr())) out = out + py::make_tuple(borrow(name));
  return out;
}

bool has_dict(PyObject* o) {
  PyObject** slot = _PyObject_GetDictPtr(o);
  return slot != nullptr && *slot != nullptr;
}

bool holds(const Guard& guard, PyObject* value, PyObject* other) {
  if (guard.kind == GuardKind::Missing) return !value;
  if (!value) return false;
  switch (guard.kind) {
    case GuardKind::TypeIs:
    case GuardKind::Tensor:
    case GuardKind::SizedTensor:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == guard.expected.ptr();
    case GuardKind::IdIs:
      return value == guard.expected.ptr();
    case GuardKind::Equals:
      return same_constant(value, guard.expected.ptr());
    case GuardKind::Number: {
      const py::object number = number_in(value);
      return number && same_constant(number.ptr(), guard.expected.ptr());
    }
    case GuardKind::NumberTruth:
      return number_truth(value, guard.expected) == (guard.number != 0);
    case GuardKind::Compares:
      return compares(guard, value);
    case GuardKind::Length:
      return length_of(value) == guard.number;
    case GuardKind::HasKey:
      return PyDict_Check(value) && has_key(guard, value);
    case GuardKind::LacksKey:
      return PyDict_Check(value) && !has_key(guard, value);
    case GuardKind::Keys:
      return same_keys(value, guard.expected.ptr());
    case GuardKind::HasDict:
      return has_dict(value) == (guard.number != 0);
    case GuardKind::SameAs:
      return value == other;
    case GuardKind::NotSameAs:
    case GuardKind::Apart:
      return value != other;
    case GuardKind::Missing:
      break;
  }
  OXY_FAIL("guard kind");
}

}  // namespace oxy::python
