// Writing to what was there before the call. Nothing is done to it while its code is captured: what
// is written goes into `Writes`, reading looks there first, and once the graph has run it is done
// to the real objects (plan_rebuild.cpp).
#include <algorithm>
#include <functional>
#include <ranges>

#include "python/capture/natives.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

bool has_item(const py::object& dict, py::handle key) {
  const int found = PyDict_Contains(dict.ptr(), key.ptr());
  check(found);
  return found == 1;
}

// What a comparison of captured code has thrown through CPython's own sort.
struct Comparison {
  std::function<int(py::handle, py::handle)> compare;
  std::exception_ptr failure;
};

PyObject* compare_captured(PyObject* self, PyObject* args) {
  auto* c = static_cast<Comparison*>(PyCapsule_GetPointer(self, nullptr));
  return boundary(
      [&] {
        try {
          return PyLong_FromLong(c->compare(PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1)));
        } catch (...) {
          c->failure = std::current_exception();
          throw;
        }
      },
      nullptr);
}

}  // namespace

py::object missing() {
  static const py::object& o = *new py::object(py::module_::import("builtins").attr("object")());
  return o;
}

Writes& Effects::writes_of(py::handle o) {
  PyObject* p = o.ptr();
  calls().refuse_told_late(p);
  writes_++;
  if (PyList_Check(p) || PyAnySet_Check(p) || PyCell_Check(p) || is_deque(o))
    iterators().refuse_to_end(p);
  std::unique_ptr<Writes>& writes = PyType_Check(p) ? type_writes_[p] : heap().tracked(o)->writes;
  if (!writes) {
    writes = std::make_unique<Writes>();
    written_.push_back(borrow(o));
  }
  return *writes;
}

// A key for a dict that was there before. True where it can be in that dict at all.
bool Effects::check_key(py::handle key) {
  PyObject* p = key.ptr();
  if (is_plain_key(p) || heap().fakes().contains(p)) return true;
  const bool by_identity =
      Py_TYPE(p)->tp_hash == PyBaseObject_Type.tp_hash && !heap().is_tensor(key);
  if (by_identity && heap().exists(key)) {
    heap().guard(GuardKind::IdIs, heap().tracked(key)->source, key);
    return true;
  }
  if (!by_identity || heap().tracked(key) != nullptr)
    throw Break(BreakId::builtin_on_existing, "a dict or set with a key of type ",
                Py_TYPE(p)->tp_name);
  return false;
}

bool is_hashed_by_code(PyObject* key) {
  if (!PyTuple_CheckExact(key)) {
    static PyObject* const name = PyUnicode_InternFromString("__hash__");
    return !is_one_for_all(key) && !is_tensor_object(key) && python_method(key, name) != nullptr;
  }
  const auto items = py::reinterpret_borrow<py::tuple>(key);
  auto is_hashed = [](py::handle o) { return is_plain_key(o.ptr()) || is_hashed_by_code(o.ptr()); };
  return !is_plain_key(key) && std::all_of(items.begin(), items.end(), is_hashed);
}

// What a dict that was there before has under a key of that kind; null where it has no such key.
// What is asked for is hashed, and compared with the keys of its hash, by captured code.
py::object Effects::find_by_code(py::handle dict, py::handle asked) {
  const std::vector<DictEntry> entries = heap().entries_of_objects(dict);
  const SourceId source = heap().tracked(dict)->source;
  const Py_hash_t hash = PyObject_Hash(asked.ptr());
  check(hash == -1 ? -1 : 0);
  auto guard_key = [&](int64_t i) {
    const SourceId place = heap().sources.key(source, i);
    heap().guard(GuardKind::IdIs, place, entries[static_cast<size_t>(i)].key);
    return place;
  };
  const auto size = static_cast<int64_t>(entries.size());
  for (int64_t i = 0; i < size; i++) {
    const DictEntry& entry = entries[static_cast<size_t>(i)];
    if (entry.hash != hash) continue;
    const py::object held = heap().wrap(entry.key, guard_key(i));
    heap().guard_apart(held, asked);
    if (held.is(asked) || objects().truth(objects().compare(held, asked, Py_EQ)))
      return heap().wrap_item(entry.value, heap().sources.value_of_key(source, i));
  }
  heap().guard(GuardKind::Length, source, {}, size);
  for (int64_t i = 0; i < size; i++) guard_key(i);
  return {};
}

// Whether it is a weak reference to an object that is compared by its identity, as keys are that
// weakref.WeakKeyDictionary makes.
bool Effects::is_reference_key(py::handle key) const {
  if (!PyWeakref_CheckRefExact(key.ptr()) || heap().exists(key)) return false;
  PyObject* to = PyWeakref_GET_OBJECT(key.ptr());
  return to != Py_None && heap().exists(to) && !heap().is_tensor(to) &&
         Py_TYPE(to)->tp_hash == PyBaseObject_Type.tp_hash;
}

// As find_by_code, of the entry whose key refers to the same object.
py::object Effects::find_reference(py::handle dict, py::handle asked) {
  const py::object to = borrow(PyWeakref_GET_OBJECT(asked.ptr()));
  heap().guard(GuardKind::IdIs, heap().source_of(to), to);
  heap().guard_key(to);
  const std::vector<DictEntry> entries = heap().entries_of_objects(dict);
  const SourceId source = heap().tracked(dict)->source;
  const auto size = static_cast<int64_t>(entries.size());
  const auto guard_key = [&](int64_t i) {
    heap().guard(GuardKind::IdIs, heap().sources.key(source, i),
                 entries[static_cast<size_t>(i)].key);
  };
  for (int64_t i = 0; i < size; i++) {
    const DictEntry& entry = entries[static_cast<size_t>(i)];
    if (!PyWeakref_CheckRefExact(entry.key.ptr()) ||
        PyWeakref_GET_OBJECT(entry.key.ptr()) != to.ptr())
      continue;
    guard_key(i);
    return heap().wrap_item(entry.value, heap().sources.value_of_key(source, i));
  }
  heap().guard(GuardKind::Length, source, {}, size);
  for (int64_t i = 0; i < size; i++) guard_key(i);
  return {};
}

// What a dict that was there before knows the key by: of a fake the tensor that it stands for.
py::object Effects::key_in(py::handle dict, py::handle key) {
  if (!is_tensor_object(key.ptr()) || !heap().exists(dict)) return borrow(key);
  const Tracked* k = heap().tracked(key);
  if (k == nullptr || !k->source.valid() || !k->original) return borrow(key);
  heap().guard(GuardKind::IdIs, k->source, k->original);
  return k->original;
}

// The key of a dict or set that an int which is a symbol is; null where it is none of them.
py::object Effects::key_of_size(py::handle inside, const py::object& size) {
  constexpr Py_ssize_t kMost = 64;
  auto is_no_number = [](py::handle key) {
    PyObject* p = key.ptr();
    return PyUnicode_CheckExact(p) || PyBytes_CheckExact(p) || PyTuple_CheckExact(p) ||
           p == Py_None;
  };
  const py::list keys = steal(PySequence_List(inside.ptr()));
  if (PyList_GET_SIZE(keys.ptr()) > kMost || !std::ranges::all_of(keys, [&](py::handle key) {
        return is_no_number(key) || PyLong_Check(key.ptr()) || PyFloat_CheckExact(key.ptr());
      })) {
    const py::object number = with_numbers(size);
    const bool found = PySequence_Contains(inside.ptr(), number.ptr()) == 1;
    return found ? number : py::object();
  }
  for (py::handle key : keys)
    if (!is_no_number(key) && objects().truth(objects().compare(size, key, Py_EQ)))
      return borrow(key);
  return {};
}

// ------------------------------------------------------------------------------------------- dicts

// What was written under a key, `missing()` where it was deleted; null where nothing was.
py::object Effects::written(py::handle dict, py::handle key) {
  const Writes* w = heap().tracked(dict)->writes.get();
  if (w == nullptr) return {};
  if (const py::object found = item_in(w->items, key)) return numbers().taken(found);
  return w->cleared ? missing() : py::object();
}

py::object Effects::dict_get(py::handle dict, py::handle asked) {
  calls().refuse_told_late(dict.ptr());
  const py::object key = key_in(dict, asked);
  if (!heap().exists(dict) || (heap().tracked(dict)->shadow && !is_symbolic_int(key)))
    return item_in(heap().contents(dict), key);
  if (is_symbolic_int(key)) {
    const py::object found = key_of_size(heap().contents(dict), key);
    return found ? dict_get(dict, found) : py::object();
  }
  if (py::object o = written(dict, key)) return o.is(missing()) ? py::object() : o;
  const SourceId source = heap().tracked(dict)->source;
  if (is_hashed_by_code(key.ptr())) return find_by_code(dict, key);
  if (is_reference_key(key)) return find_reference(dict, key);
  if (!check_key(key)) return {};
  if (const py::object found = item_in(dict, key))
    return heap().wrap_item(found, heap().sources.dict_item(source, key));
  heap().guard(GuardKind::LacksKey, source, key);
  return {};
}

bool Effects::dict_has(py::handle dict, py::handle asked) {
  calls().refuse_told_late(dict.ptr());
  const py::object key = key_in(dict, asked);
  if (!heap().exists(dict) || (heap().tracked(dict)->shadow && !is_symbolic_int(key)))
    return has_item(heap().contents(dict), key);
  if (is_symbolic_int(key)) return static_cast<bool>(key_of_size(heap().contents(dict), key));
  if (py::object o = written(dict, key)) return !o.is(missing());
  if (is_hashed_by_code(key.ptr())) return static_cast<bool>(find_by_code(dict, key));
  if (is_reference_key(key)) return static_cast<bool>(find_reference(dict, key));
  if (!check_key(key)) return false;
  const bool found = has_item(borrow(dict), key);
  heap().guard(found ? GuardKind::HasKey : GuardKind::LacksKey, heap().tracked(dict)->source, key);
  return found;
}

void Effects::dict_write(py::handle dict, py::handle asked, py::handle value) {
  const py::object key = with_numbers(key_in(dict, asked));
  check_key(key);
  const Tracked& k = *heap().tracked(dict);
  const py::object held = k.shadow ? numbers().carried(borrow(value)) : borrow(value);
  if (PyDict_Check(dict.ptr()))
    iterators().refuse_to_end(PyDict_GetItemWithError(dict.ptr(), key.ptr()));
  Writes& w = writes_of(dict);
  if (PyDict_GetItemWithError(w.items.ptr(), key.ptr()) == missing().ptr()) {
    // Deleted: it comes last now.
    check(PyDict_DelItem(w.items.ptr(), key.ptr()));
    w.moved.add(key);
  }
  check(PyDict_SetItem(w.items.ptr(), key.ptr(), held.ptr()));
  if (k.shadow) check(PyObject_SetItem(k.shadow.ptr(), key.ptr(), held.ptr()));
}

// Of a key that is there.
void Effects::dict_delete(py::handle dict, py::handle asked) {
  const py::object key = with_numbers(key_in(dict, asked));
  const Tracked& k = *heap().tracked(dict);
  if (PyDict_Check(dict.ptr()))
    iterators().refuse_to_end(PyDict_GetItemWithError(dict.ptr(), key.ptr()));
  Writes& w = writes_of(dict);
  if (has_item(w.items, key)) check(PyDict_DelItem(w.items.ptr(), key.ptr()));
  if (!w.cleared && check_key(key)) {
    const bool before = has_item(borrow(dict), key);
    heap().guard(before ? GuardKind::HasKey : GuardKind::LacksKey, k.source, key);
    if (before) check(PyDict_SetItem(w.items.ptr(), key.ptr(), missing().ptr()));
  }
  if (k.shadow) check(PyObject_DelItem(k.shadow.ptr(), key.ptr()));
}

void Effects::dict_update(py::handle dict, const Arguments& args, const Keywords& kwargs) {
  if (!args.empty() && PyDict_Check(args[0].ptr())) {
    const py::object items = calls().is_read_by_key(args[0]) ? calls().dict_of_mapping(args[0])
                                                             : heap().contents(args[0]);
    for (auto [key, value] : py::dict(items)) dict_write(dict, key, value);
  } else if (!args.empty()) {
    PyTypeObject* type = Py_TYPE(args[0].ptr());
    if (_PyType_Lookup(type, py::str("keys").ptr()) != nullptr)
      throw Break(BreakId::side_effect, "an update with a ", type->tp_name);
    for (py::handle pair : iterators().items_to_add(args[0])) {
      py::list both = iterators().items_to_add(pair);
      if (both.size() != 2) throw Break(BreakId::side_effect, "an update with what is no pair");
      dict_write(dict, both[0], both[1]);
    }
  }
  for (const auto& [key, value] : kwargs) dict_write(dict, key, value);
}

Done Effects::dict_method(py::handle dict, const std::string& name, Arguments& args,
                          Keywords& kwargs) {
  auto arg = [&](size_t i) { return i < args.size() ? args[i] : py::none(); };
  const size_t n = args.size();
  if (name == "get") {
    py::object found = dict_get(dict, args[0]);
    return found ? found : arg(1);
  }
  if (name == "__setitem__") return dict_write(dict, args[0], args[1]), py::none();
  // OrderedDict's own assign item by item as their class says.
  const bool assigns = name == "update" || name == "__ior__" || name == "setdefault";
  if (assigns && PyODict_Check(dict.ptr()) &&
      objects().special_method(dict, py::str("__setitem__")))
    throw Break(BreakId::side_effect, Py_TYPE(dict.ptr())->tp_name, ".", name);
  if (kOrderedDictsPopByItems && (name == "pop" || name == "popitem") && PyODict_Check(dict.ptr()))
    for (const char* method : {"__contains__", "__getitem__", "__delitem__"})
      if (objects().special_method(dict, py::str(method)))
        throw Break(BreakId::side_effect, Py_TYPE(dict.ptr())->tp_name, ".", name);
  if (name == "clear") {
    iterators().refuse_to_end(dict.ptr());
    Writes& w = writes_of(dict);
    w.items = py::dict();
    w.moved = py::set();
    w.cleared = true;
    if (const py::object& shadow = heap().tracked(dict)->shadow) shadow.attr("clear")();
    return py::none();
  }
  if (name == "update" || name == "__ior__") {
    dict_update(dict, args, kwargs);
    return name == "update" ? py::none() : borrow(dict);
  }
  if (name == "setdefault") {
    if (!dict_has(dict, args[0])) dict_write(dict, args[0], arg(1));
    return dict_get(dict, args[0]);
  }
  if (name == "pop" || name == "__delitem__") {
    py::object found;
    if (name == "pop")
      found = dict_get(dict, args[0]);
    else if (dict_has(dict, args[0]))
      found = py::none();
    if (!found && n == 1) raise_with(PyExc_KeyError, args[0]);
    if (found) dict_delete(dict, args[0]);
    return found ? found : args[1];
  }
  if (name == "popitem") {
    const bool last = n == 0 || objects().truth(args[0]);
    py::list keys(heap().contents(dict));
    if (keys.empty()) {
      const char* where = PyODict_Check(dict.ptr()) ? "" : "popitem(): ";
      raise_with(PyExc_KeyError, py::str(cat(where, "dictionary is empty")));
    }
    py::object key = keys[last ? keys.size() - 1 : 0], value = dict_get(dict, key);
    dict_delete(dict, key);
    return py::make_tuple(key, value);
  }
  if (name == "move_to_end") {
    if (!dict_has(dict, args[0])) raise_with(PyExc_KeyError, args[0]);
    const bool last = n == 1 || objects().truth(args[1]);
    Arguments moved{args[0]};
    if (!last) {  // the others
      moved.clear();
      for (py::handle key : py::list(heap().contents(dict)))
        if (!objects().truth(objects().compare(key, args[0], Py_EQ))) moved.push_back(borrow(key));
    }
    for (const py::object& key : moved) {
      const py::object value = dict_get(dict, key);
      dict_delete(dict, key);
      dict_write(dict, key, value);
    }
    return py::none();
  }
  return std::nullopt;
}

// -------------------------------------------------------------------------------- lists and deques

// A copy with its items wrapped, to be changed.
py::object Effects::sequence_to_write(py::handle o) {
  py::object shadow = heap().contents(o);
  Writes& w = writes_of(o);
  if (!w.before) w.before = py::tuple(py::list(shadow));
  return shadow;
}

namespace {

void refuse_to_compare_tensors(py::handle items, const Arguments& args) {
  if (mentions_tensor(items) || std::ranges::any_of(args, mentions_tensor))
    throw Break(BreakId::data_dependent, "remove compares tensors");
}

}  // namespace

Done Effects::list_method(py::handle list, const std::string& name, Arguments& args,
                          Keywords& kwargs) {
  Tracked& k = *heap().tracked(list);
  if (name == "append" || name == "extend" || name == "__iadd__") {
    py::list items;
    if (name == "append")
      items.append(args[0]);
    else
      items = iterators().items_to_add(args[0], true);
    py::object& to = k.shadow ? k.shadow : writes_of(list).added;
    if (k.shadow) sequence_to_write(list);
    if (!to) to = py::list();
    to.attr("extend")(items);
    return name == "__iadd__" ? borrow(list) : py::none();
  }
  if (name == "clear") {
    Writes& w = writes_of(list);
    if (!k.shadow) {
      w.cleared = true;
      w.added = py::object();
      k.shadow = py::list();
      heap().shadow(k.shadow.ptr(), list.ptr());
    }
    if (!w.before) w.before = py::tuple(k.shadow);
    k.shadow.attr("clear")();
    return py::none();
  }
  if (name == "sort") return sort(sequence_to_write(list), kwargs), py::none();
  if (name == "__setitem__") {
    py::object value = PySlice_Check(args[0].ptr()) ? iterators().list_of(args[1]) : args[1];
    check(PyObject_SetItem(sequence_to_write(list).ptr(), args[0].ptr(), value.ptr()));
    return py::none();
  }
  if (!(native_traits("builtins", "list", name) & native::Changes)) return std::nullopt;
  if (name == "remove") refuse_to_compare_tensors(heap().contents(list), args);
  py::object out = calls().call_real(sequence_to_write(list).attr(name.c_str()), args, kwargs);
  return name == "__imul__" ? borrow(list) : out;
}

Done Effects::deque_method(py::handle deque, const std::string& name, Arguments& args,
                           Keywords& kwargs) {
  const uint32_t traits = native_traits("collections", "deque", name);
  if (traits & native::Extends) {
    py::object shadow = sequence_to_write(deque);
    shadow.attr(name == "__iadd__" ? "extend" : name.c_str())(iterators().items_to_add(args[0]));
    return name == "__iadd__" ? borrow(deque) : py::none();
  }
  if (!(traits & native::Changes)) return std::nullopt;
  if (name == "remove") refuse_to_compare_tensors(heap().contents(deque), args);
  return calls().call_real(sequence_to_write(deque).attr(name.c_str()), args, kwargs);
}

// As list.sort, on a list that the capture may change. The keys decide, and must not hang on
// tensors. Keys that are not plain compare themselves by captured code: CPython's sort asks for
// each pair.
void Effects::sort(py::object list, const Keywords& kwargs) {
  py::object key = py::none(), reverse = py::bool_(false);
  for (const auto& [name, value] : kwargs) {
    const auto text = name.cast<std::string>();
    if (text == "key")
      key = value;
    else if (text == "reverse")
      reverse = py::bool_(objects().truth(value));
    else
      throw Break(BreakId::builtin_call, "sort with ", text);
  }
  const py::object& sorted = member_of<"builtins", "sorted">();
  py::list items(list), keys;
  py::object function;  // of a key that cmp_to_key has made: what it holds
  if (!heap().exists(key) &&
      std::string_view(Py_TYPE(key.ptr())->tp_name) == "functools.KeyWrapper") {
    for (py::handle held : py::module_::import("gc").attr("get_referents")(key))
      if (PyCallable_Check(held.ptr()) && !PyType_Check(held.ptr())) function = borrow(held);
    if (!function) throw Break(BreakId::builtin_call, "a key of cmp_to_key");
    key = py::none();
  }
  bool compares = static_cast<bool>(function);
  for (py::handle item : items) {
    py::object made = key.is_none() ? borrow(item) : calls().call(key, {borrow(item)});
    const bool sequence = PyTuple_CheckExact(made.ptr()) || PyList_CheckExact(made.ptr());
    const bool own = is_symbolic(made) ||
                     (sequence && !calls().is_plain(heap().contents(made), sorted)) ||
                     objects().special_method(made, py::str("__lt__")) != nullptr;
    if (!own) made = with_numbers(made);
    keys.append(made);
    const bool fixed = PyLong_Check(made.ptr()) && is_enum_member(made);  // compares as its int
    if (!own && !function && !fixed) calls().require_plain(made, sorted);
    compares |= own;
  }
  Comparison comparison;
  comparison.compare = [&](py::handle i, py::handle j) {
    const py::object a = keys[i.cast<size_t>()], b = keys[j.cast<size_t>()];
    const py::object less =
        function ? objects().compare(calls().call(function, {a, b}), py::int_(0), Py_LT)
                 : objects().compare(a, b, Py_LT);
    return objects().truth(less) ? -1 : 0;
  };
  static PyMethodDef method = {"compare_captured", compare_captured, METH_VARARGS, nullptr};
  py::object by = keys.attr("__getitem__");
  if (compares) {
    const py::object capsule = steal(PyCapsule_New(&comparison, nullptr, nullptr));
    by = member_of<"functools", "cmp_to_key">()(steal(PyCFunction_New(&method, capsule.ptr())));
  }
  py::object order;
  try {
    order = sorted(member_of<"builtins", "range">()(items.size()), py::arg("key") = by,
                   py::arg("reverse") = reverse);
  } catch (py::error_already_set&) {
    if (comparison.failure) std::rethrow_exception(comparison.failure);
    throw;
  }
  py::list out;
  for (py::handle i : order) out.append(items[i.cast<size_t>()]);
  check(PyList_SetSlice(list.ptr(), 0, PY_SSIZE_T_MAX, out.ptr()));
}

// -------------------------------------------------------------------------------------------- sets

void Effects::set_put(py::handle set, py::handle item, bool in) {
  if (!is_plain_key(item.ptr()))
    throw Break(BreakId::side_effect, "a set with an item of type ", Py_TYPE(item.ptr())->tp_name);
  writes_of(set).done.append(py::make_tuple(static_cast<int>(in ? kPut : kDiscarded), item));
  const py::object& shadow = heap().tracked(set)->shadow;
  if (shadow)
    check(in ? PySet_Add(shadow.ptr(), item.ptr()) : PySet_Discard(shadow.ptr(), item.ptr()));
}

Done Effects::set_method(py::handle set, const std::string& name, Arguments& args) {
  const uint32_t traits = native_traits("builtins", "set", name);
  if (name == "add" || name == "discard") return set_put(set, args[0], name == "add"), py::none();
  if (name == "pop") {
    // The order in which items come is guarded, and so is the first one.
    py::object shadow = heap().contents(set);
    Writes& w = writes_of(set);
    for (py::handle change : w.done)
      if (change.cast<std::pair<int, py::object>>().first != kPopped)
        throw Break(BreakId::side_effect, "set.pop behind another change of the set");
    py::object item = borrow(next_popped(set.ptr(), static_cast<Py_ssize_t>(w.done.size())));
    if (!item) raise_with(PyExc_KeyError, py::str("pop from an empty set"));
    if (w.done.empty())
      heap().guard(GuardKind::Equals, heap().sources.next_popped(heap().source_of(set)), item);
    w.done.append(py::make_tuple(static_cast<int>(kPopped), item));
    check(PySet_Discard(shadow.ptr(), item.ptr()));
    return item;
  }
  if ((traits & native::InPlace) && !PyAnySet_Check(args[0].ptr()))
    return borrow(Py_NotImplemented);
  if (name == "update" || name == "__ior__") {
    for (const auto& a : args)
      for (py::handle item : iterators().items_to_add(a)) set_put(set, item, true);
    return name == "update" ? py::none() : borrow(set);
  }
  if (name == "remove") {
    const int there = PySet_Contains(heap().contents(set).ptr(), args[0].ptr());
    check(there);
    if (there == 0) raise_with(PyExc_KeyError, args[0]);
    return set_put(set, args[0], false), py::none();
  }
  if (!(traits & native::Changes)) return std::nullopt;
  py::set after{py::list(heap().contents(set))};
  Arguments given;
  for (const auto& a : args) {
    // An iterator may not be taken whole.
    const bool real = PyIter_Check(a.ptr()) && !heap().exists(a) && !iterators().lazy(a);
    given.push_back(PyAnySet_Check(a.ptr()) ? heap().contents(a)
                    : real                  ? a
                                            : iterators().items_to_add(a));
  }
  calls().call_real(after.attr(name.c_str()), given, {});
  for (py::handle item : py::list(heap().contents(set)))
    if (!after.contains(item)) set_put(set, item, false);
  for (py::handle item : after)
    if (PySet_Contains(heap().contents(set).ptr(), item.ptr()) != 1) set_put(set, item, true);
  return name.starts_with("__") ? borrow(set) : py::none();
}

namespace {

constexpr size_t kNoLimit = SIZE_MAX;

// What such a method takes; `keywords`: the names of its arguments, where they have some, or "*"
// where it takes any or looks at them itself.
struct ContainerMethod {
  std::string_view type, names;
  size_t least, most;
  std::string_view keywords = "";
};

constexpr ContainerMethod kContainerMethods[] = {
    {"collections.OrderedDict", "setdefault", 1, 2, "key default"},
    {"collections.OrderedDict", "pop", 1, 2, "key default"},
    {"collections.OrderedDict", "popitem", 0, 1, "last"},
    {"collections.OrderedDict", "move_to_end", 1, 2, "key last"},
    {"dict", "clear popitem", 0, 0},
    {"dict", "__delitem__ __ior__", 1, 1},
    {"dict", "get pop setdefault", 1, 2},
    {"dict", "__setitem__", 2, 2},
    {"dict", "update", 0, 1, "*"},
    {"list", "clear reverse", 0, 0},
    {"list", "sort", 0, 0, "*"},
    {"list", "pop", 0, 1},
    {"list", "append extend remove __iadd__ __imul__ __delitem__", 1, 1},
    {"list", "insert __setitem__", 2, 2},
    {"set", "clear pop", 0, 0},
    {"set", "add discard remove symmetric_difference_update", 1, 1},
    {"set", "__iand__ __ior__ __isub__ __ixor__", 1, 1},
    {"set", "update difference_update intersection_update", 0, kNoLimit},
    {"collections.deque", "clear pop popleft reverse", 0, 0},
    {"collections.deque", "rotate", 0, 1},
    {"collections.deque", "append appendleft extend extendleft remove", 1, 1},
    {"collections.deque", "__iadd__ __imul__ __delitem__", 1, 1},
    {"collections.deque", "insert __setitem__", 2, 2}};

bool is_among(std::string_view words, std::string_view word) {
  for (auto w : std::views::split(words, ' '))
    if (std::string_view(w.begin(), w.end()) == word) return true;
  return false;
}

const ContainerMethod* find_method(const PyTypeObject* type, std::string_view name) {
  for (; type != nullptr; type = type->tp_base)
    for (const ContainerMethod& m : kContainerMethods)
      if (m.type == type->tp_name && is_among(m.names, name)) return &m;
  return nullptr;
}

// Puts arguments that are given by their names where they belong; whether it takes them all.
bool place_arguments(const ContainerMethod& method, Arguments& args, Keywords& kwargs) {
  if (method.keywords != "*" && !kwargs.empty()) {
    std::vector<std::string_view> names;
    for (auto w : std::views::split(method.keywords, ' ')) names.emplace_back(w.begin(), w.end());
    std::vector<py::object> placed(args.begin(), args.end());
    for (const auto& [key, value] : kwargs) {
      const auto at =
          static_cast<size_t>(std::ranges::find(names, view_of(key.ptr())) - names.begin());
      if (at == names.size() || at < args.size()) return false;
      if (placed.size() <= at) placed.resize(at + 1);
      placed[at] = value;
    }
    if (std::ranges::any_of(placed, [](const py::object& o) { return !o; })) return false;
    args.assign(placed.begin(), placed.end());
    kwargs.clear();
  }
  return args.size() >= method.least && args.size() <= method.most;
}

// Methods take their arguments apart before they look at the container: an empty one refuses those
// that do not fit as well.
void take_arguments(Calls& calls, py::handle self, const std::string& name, Arguments& args,
                    Keywords& kwargs) {
  PyTypeObject* type = builtin_base(Py_TYPE(self.ptr()));
  const ContainerMethod* method = find_method(type, name);
  if (method == nullptr || place_arguments(*method, args, kwargs)) return;
  const py::object base = borrow(reinterpret_cast<PyObject*>(type));
  Arguments given{base()};
  given.insert(given.end(), args.begin(), args.end());
  calls.call_real(base.attr(name.c_str()), given, kwargs);
  throw Break(BreakId::builtin_call, type->tp_name, ".", name, " with other arguments");
}

}  // namespace

// A method that changes a list, dict, set or deque that was there before (or dict.get, which need
// not read it all).
Done Effects::change_existing(py::handle self, const std::string& name, Arguments& args,
                              Keywords& kwargs) {
  PyObject* p = self.ptr();
  take_arguments(calls(), self, name, args, kwargs);
  if (PyDict_Check(p)) return dict_method(self, name, args, kwargs);
  if (PyList_Check(p)) return list_method(self, name, args, kwargs);
  if (PySet_Check(p)) return set_method(self, name, args);
  if (is_deque(self)) return deque_method(self, name, args, kwargs);
  return std::nullopt;
}

// ---------------------------------------------------------------------------- cells and attributes

// Null where the cell is empty.
py::object Effects::read_cell(py::handle cell) {
  PyObject* value = PyCell_GET(cell.ptr());
  if (!heap().exists(cell)) return borrow(value);
  calls().refuse_told_late(cell.ptr());
  if (py::object o = written(cell, py::str("cell_contents")))
    return o.is(missing()) ? py::object() : o;
  if (value == nullptr)
    throw Break(BreakId::side_effect, "a variable of an outer function without a value");
  return heap().wrap(value, heap().sources.cell_contents(heap().source_of(cell)));
}

void Effects::write_cell(py::handle cell, py::handle value) {
  if (!heap().exists(cell))
    check(PyCell_Set(cell.ptr(), numbers().carried(borrow(value)).ptr()));
  else
    write_attribute(cell, py::str("cell_contents"), value);
}

// `value` is null where the attribute is deleted. Of slots, and of classes.
void Effects::write_attribute(py::handle o, py::handle name, py::handle value) {
  Writes& w = writes_of(o);
  check(PyDict_SetItem(w.items.ptr(), name.ptr(), value ? value.ptr() : missing().ptr()));
}

// As _PyType_Lookup, but sees what was written to classes. Borrowed; null where there is none.
PyObject* Effects::lookup(PyTypeObject* type, py::handle name) {
  if (type_writes_.empty()) return _PyType_Lookup(type, name.ptr());
  for (py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
    auto it = type_writes_.find(base.ptr());
    if (it != type_writes_.end()) {
      PyObject* found = PyDict_GetItemWithError(it->second->items.ptr(), name.ptr());
      if (found == missing().ptr()) continue;
      if (found != nullptr) return found;
    }
    if (PyObject* found = PyDict_GetItemWithError(type_dict(as_type(base)), name.ptr()))
      return found;
  }
  return nullptr;
}

// Whether what `lookup` finds was written by the captured code.
bool Effects::is_written_on(PyTypeObject* type, py::handle name) {
  return !type_writes_.empty() && lookup(type, name) != _PyType_Lookup(type, name.ptr());
}

void Effects::write_type(py::handle type, py::handle name, py::handle value) {
  auto* t = as_type(type);
  const std::string text = name.cast<std::string>();
  if (classes().is_made_class(type))
    return check(PyObject_SetAttr(type.ptr(), name.ptr(), numbers().carried(borrow(value)).ptr()));
  PyObject* setter =
      _PyType_Lookup(Py_TYPE(type.ptr()), py::str(value ? "__setattr__" : "__delattr__").ptr());
  PyObject* descriptor = objects().type_member(Py_TYPE(type.ptr()), name);
  objects().guard_kind_of(descriptor);
  if (text.starts_with("__") || PyFunction_Check(setter) || !is_changeable_class(t) ||
      (descriptor != nullptr && Py_TYPE(descriptor)->tp_descr_set != nullptr))
    throw Break(BreakId::side_effect, "assignment to ", t->tp_name, ".", text);
  if (!value) {
    PyObject* own = nullptr;
    if (auto it = type_writes_.find(type.ptr()); it != type_writes_.end())
      own = PyDict_GetItemWithError(it->second->items.ptr(), name.ptr());
    if (own == nullptr) {
      own = PyDict_GetItemWithError(type_dict(t), name.ptr());
      const SourceId members =
          heap().sources.instance_dict(heap().sources.pinned(type, t->tp_name));
      heap().guard(own == nullptr ? GuardKind::LacksKey : GuardKind::HasKey, members, name);
    }
    if (own == nullptr || own == missing().ptr()) {
      if (kDeletionsTellNames) raise_with(PyExc_AttributeError, name);
      PyErr_Format(PyExc_AttributeError, "type object '%.50s' has no attribute '%U'", t->tp_name,
                   name.ptr());
      throw py::error_already_set();
    }
  }
  if (PyDict_GetItemWithError(type_dict(t), name.ptr()) != nullptr) objects().type_member(t, name);
  write_attribute(type, name, value);
}

// -------------------------------------------------------------------------------------- identities

// What was written through one source must not be what was read or written through another. Of
// dicts only those count that were asked for a key which was written.
void Effects::guard_distinct() {
  std::unordered_map<SourceId, std::vector<py::object>> asked;  // keys; null: all of them
  for (const Guard& g : heap().guards.guards()) {
    if (g.kind == GuardKind::HasKey || g.kind == GuardKind::LacksKey)
      asked[g.source].push_back(g.expected);
    else if (g.kind == GuardKind::Keys || g.kind == GuardKind::Length)
      asked[g.source].emplace_back();
  }
  for (const py::object& o : written_) {
    if (!PyDict_Check(o.ptr())) continue;
    const Tracked& k = *heap().tracked(o);
    if (k.writes->cleared) asked[k.source].emplace_back();
    for (auto [key, value] : k.writes->items) asked[k.source].push_back(borrow(key));
  }
  auto touched = [&](SourceId dict, const Writes& w) {
    for (const py::object& key : asked[dict])
      if (!key || w.cleared || has_item(w.items, key)) return true;
    for (auto [key, value] : w.items)
      if (const SourceId item = heap().sources.dict_item(dict, key);
          heap().by_source().contains(item) || numbers().is_loaded(item))
        return true;
    return false;
  };
  for (const py::object& w : written_) {
    if (PyType_Check(w.ptr()) || PyCell_Check(w.ptr())) continue;
    if (!heap().tracked(w)->source.valid()) continue;  // a tensor that is made here
    const Source place = heap().sources[heap().tracked(w)->source];
    auto owner = heap().by_source().end();
    if (place.kind == SourceKind::InstanceDict) owner = heap().by_source().find(place.base);
    const bool attributes = owner != heap().by_source().end();
    const py::object mine = attributes ? owner->second : w;
    if (!heap().exists(mine) ||
        heap().sources[heap().tracked(mine)->source].kind == SourceKind::Pinned)
      continue;
    for (const py::object& other : heap().existing()) {
      if (other.is(mine) || Py_TYPE(other.ptr()) != Py_TYPE(mine.ptr())) continue;
      const SourceId there = heap().tracked(other)->source;
      const SourceId dict = attributes ? heap().sources.instance_dict(there) : there;
      if (PyDict_Check(w.ptr()) && !touched(dict, *heap().tracked(w)->writes)) continue;
      heap().guard_pair(GuardKind::NotSameAs, there, heap().tracked(mine)->source);
    }
  }
}

}  // namespace oxy::python
