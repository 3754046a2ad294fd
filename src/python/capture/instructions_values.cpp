// The instructions of operators, items, containers, texts and patterns.
#include "python/capture/instructions.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {
namespace {

constexpr const char* kOperators[] = {
    "add",    "and_", "floordiv", "lshift", "matmul",  "mul",  "mod",       "or_",     "pow",
    "rshift", "sub",  "truediv",  "xor",    "iadd",    "iand", "ifloordiv", "ilshift", "imatmul",
    "imul",   "imod", "ior",      "ipow",   "irshift", "isub", "itruediv",  "ixor"};

const py::object& binary_operator(uint32_t arg) {
  static const auto& table = *[] {
    auto* all = new std::vector<py::object>();
    for (const char* name : kOperators) all->push_back(py::module_::import("operator").attr(name));
    return all;
  }();
  return table.at(arg);
}

// f(**dict, **more): a keyword is given once.
void require_new_keywords(py::handle callable, py::handle dict, py::handle more) {
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(more.ptr(), &at, &key, &value) != 0;) {
    const int there = PyDict_Contains(dict.ptr(), key);
    check(there);
    if (there == 0) continue;
    const py::object name = steal(_PyObject_FunctionStr(callable.ptr()));
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name.ptr(),
                 key);
    throw py::error_already_set();
  }
}

py::object slice_of(const py::object& start, const py::object& stop) {
  return steal(PySlice_New(start.ptr(), stop.ptr(), nullptr));
}

[[noreturn]] void refuse_pattern() {
  throw Break(BreakId::instruction, "a class pattern that is an error");
}

// Of the `count` attributes that a class pattern has by position; nothing for the subject itself.
std::optional<py::list> names_of_positions(Capture& c, py::handle type, size_t count) {
  py::list names;
  if (count == 0) return names;
  auto* cls = as_type(type);
  if (cls->tp_flags & _Py_TPFLAGS_MATCH_SELF) {
    if (count > 1) refuse_pattern();
    return std::nullopt;
  }
  if (c.effects.lookup(cls, py::str("__match_args__")) == nullptr) refuse_pattern();
  const py::object all = c.objects.load_attr(type, py::str("__match_args__"));
  if (!PyTuple_CheckExact(all.ptr()) || count > py::len(all)) refuse_pattern();
  py::set seen;
  for (size_t k = 0; k < count; k++) {
    const py::object name = py::tuple(all)[k];
    if (!PyUnicode_CheckExact(name.ptr()) || seen.contains(name)) refuse_pattern();
    seen.add(name);
    names.append(name);
  }
  return names;
}

}  // namespace

const char* binary_operator_name(uint32_t arg) { return kOperators[arg]; }

bool is_binary_operator(std::string_view name) {
  return std::ranges::find(kOperators, name) != std::end(kOperators);
}

namespace instructions {

// ----------------------------------------------------------------------------- operators and items

void binary_subscr(Capture& c, TracedFrame& f, const Instruction&) {
  py::object k = pop(f), o = pop(f);
  c.numbers.takes = c.numbers.taken_by_next(f);
  const py::object packed = c.numbers.packed_item(o, k);
  push(f, packed ? c.numbers.taken(packed) : c.objects.subscript(o, k));
}

void store_subscr(Capture& c, TracedFrame& f, const Instruction&) {
  py::object k = pop(f), o = pop(f), v = pop(f);
  c.objects.store_subscript(o, k, v);
}

void delete_subscr(Capture& c, TracedFrame& f, const Instruction&) {
  py::object k = pop(f), o = pop(f);
  c.objects.delete_subscript(o, k);
}

void binary_slice(Capture& c, TracedFrame& f, const Instruction&) {
  py::object stop = pop(f), start = pop(f), o = pop(f);
  push(f, c.objects.subscript(o, slice_of(start, stop)));
}

void store_slice(Capture& c, TracedFrame& f, const Instruction&) {
  py::object stop = pop(f), start = pop(f), o = pop(f), v = pop(f);
  c.objects.store_subscript(o, slice_of(start, stop), v);
}

void binary_op(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object b = pop(f), a = pop(f);
  const int operation = binary_operator_of(i.op, i.arg);
  const py::object& function = binary_operator(static_cast<uint32_t>(operation));
  if (py::object text = c.numbers.text_of_operator(static_cast<uint32_t>(operation), a, b))
    return push(f, std::move(text));
  if (auto number = c.numbers.float_of_sizes(kOperators[operation], function, {a, b}))
    return push(f, *number);
  push(f, c.objects.compute(function, {a, b}));
}

void compare_op(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object b = pop(f), a = pop(f);
  push(f, c.numbers.compare(a, b, static_cast<int>(compared_as(i.arg))));
}

void is_op(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object b = pop(f), a = pop(f);
  push(f, py::bool_(c.heap.is_same(a, b) != (i.arg == 1)));
}

void contains_op(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object b = pop(f), a = pop(f);
  push(f, py::bool_((c.objects.contains(b, a).ptr() == Py_True) != (i.arg == 1)));
}

// ---------------------------------------------------------------------------- containers and texts

void build_set(Capture& c, TracedFrame& f, const Instruction& i) {
  Arguments items = pop_many(f, i.arg);
  for (py::object& item : items) item = c.arrays.as_key(item);
  push(f, py::set(tuple_of(items)));
}

void build_map(Capture& c, TracedFrame& f, const Instruction& i) {
  const Arguments items = pop_many(f, 2 * i.arg);
  py::dict d;
  for (size_t k = 0; k < items.size(); k += 2) d[c.arrays.as_key(items[k])] = items[k + 1];
  push(f, d);
}

void build_const_key_map(Capture&, TracedFrame& f, const Instruction& i) {
  const py::object keys = pop(f);
  const Arguments items = pop_many(f, i.arg);
  py::dict d;
  for (size_t k = 0; k < items.size(); k++)
    d[py::handle(PyTuple_GET_ITEM(keys.ptr(), k))] = items[k];
  push(f, d);
}

void build_slice(Capture&, TracedFrame& f, const Instruction& i) {
  const Arguments items = pop_many(f, i.arg);
  push(f,
       steal(PySlice_New(items[0].ptr(), items[1].ptr(), i.arg == 3 ? items[2].ptr() : nullptr)));
}

constexpr std::string_view kConversions("\0sra", 4);

py::object converted(Capture& c, py::object o, uint32_t conversion) {
  constexpr uint32_t kRepr = 2, kAscii = 3;
  if (py::object text = c.numbers.formatted(o, kConversions[conversion], py::str(""))) return text;
  o = with_numbers(c.numbers.carried(o));
  if (conversion != kAscii)
    if (auto text = c.calls.text_of(o, conversion == kRepr)) return *text;
  o = c.calls.plain_contents(o, member_of<"builtins", "format">());
  if (conversion == kAscii) return steal(PyObject_ASCII(o.ptr()));
  return conversion == kRepr ? py::repr(o) : py::str(o);
}

py::object formatted(Capture& c, py::object o, const py::object& spec) {
  o = c.arrays.with_scalars(o);
  if (py::object text = c.numbers.formatted(o, '\0', spec)) return text;
  o = with_numbers(c.numbers.carried(o));
  if (PyObject* own = c.objects.special_method(o, py::str("__format__")))
    return c.calls.call(own, {o, spec});
  if (auto text = c.calls.formatted_value(o, spec)) return *text;
  const bool plain_format = Py_TYPE(o.ptr())->tp_str != PyUnicode_Type.tp_str &&
                            c.effects.lookup(Py_TYPE(o.ptr()), py::str("__format__")) ==
                                c.effects.lookup(&PyBaseObject_Type, py::str("__format__"));
  if (plain_format && py::len(spec) == 0)
    if (auto text = c.calls.text_of(o, false)) return *text;
  o = c.calls.plain_contents(o, member_of<"builtins", "format">());
  return steal(PyObject_Format(o.ptr(), spec.ptr()));
}

void format_value(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object spec = i.arg & 4 ? pop(f) : py::str("");
  py::object o = c.arrays.with_scalars(pop(f));
  const uint32_t conversion = i.arg & 3;
  if (py::object text = c.numbers.formatted(o, kConversions[conversion], spec))
    return push(f, std::move(text));
  if (conversion == 0) return push(f, formatted(c, std::move(o), spec));
  push(f, steal(PyObject_Format(converted(c, std::move(o), conversion).ptr(), spec.ptr())));
}

void build_string(Capture& c, TracedFrame& f, const Instruction& i) {
  Arguments parts = pop_many(f, i.arg);
  if (py::object text = c.numbers.joined(parts)) return push(f, std::move(text));
  for (py::object& part : parts) part = c.numbers.carried(part);
  push(f, py::str("").attr("join")(tuple_of(parts)));
}

void format_with_spec(Capture& c, TracedFrame& f, const Instruction&) {
  const py::object spec = pop(f);
  push(f, formatted(c, pop(f), spec));
}

void list_append(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f), list = peek(f, i.arg);
  if (c.heap.exists(list)) list = c.effects.sequence_to_write(list);  // begun in front of a break
  check(PyList_Append(list.ptr(), o.ptr()));
}

void set_add(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object o = c.arrays.as_key(pop(f)), set = peek(f, i.arg);
  if (c.heap.exists(set)) return c.effects.set_put(set, o, true);
  check(PySet_Add(set.ptr(), o.ptr()));
}

void map_add(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object v = pop(f), k = c.arrays.as_key(pop(f)), dict = peek(f, i.arg);
  if (c.heap.exists(dict)) return c.effects.dict_write(dict, k, v);
  check(PyDict_SetItem(dict.ptr(), k.ptr(), v.ptr()));
}

void list_extend(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object given = pop(f);
  py::object o, list = peek(f, i.arg);
  try {
    o = c.iterators.list_of(given, true);
  } catch (py::error_already_set& e) {
    const PyTypeObject* type = Py_TYPE(given.ptr());
    if (!e.matches(PyExc_TypeError) || type->tp_iter != nullptr || PySequence_Check(given.ptr()))
      throw;
    raise(PyExc_TypeError, "Value after * must be an iterable, not ", type->tp_name);
  }
  if (c.heap.exists(list)) list = c.effects.sequence_to_write(list);
  list.attr("extend")(o);
}

void set_update(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object o = c.iterators.list_of(pop(f)), set = peek(f, i.arg);
  if (!c.heap.exists(set)) {
    c.arrays.guard_keys_in(o);
    set.attr("update")(o);
    return;
  }
  for (py::handle item : o) c.effects.set_put(set, item, true);
}

void dict_merge(Capture& c, TracedFrame& f, const Instruction& i) {
  if (c.numbers.is_packed(f.stack.back())) {  // into an empty dict
    py::object packed = pop(f);
    peek(f, i.arg) = std::move(packed);
    return;
  }
  py::object o = pop(f);
  o = c.calls.is_read_by_key(o) ? c.calls.dict_of_mapping(o) : c.heap.contents(o);
  if (!PyDict_Check(o.ptr())) throw Break(BreakId::instruction, "** of a mapping that is no dict");
  py::object dict = peek(f, i.arg);
  const size_t arguments = f.stack.size() - i.arg - 1;
  if (i.op == DICT_MERGE)
    require_new_keywords(callee_below(f, arguments).callable, c.heap.contents(dict), o);
  if (c.heap.exists(dict)) return c.effects.dict_update(dict, {o}, {});
  check(PyDict_Merge(dict.ptr(), o.ptr(), 1));
}

// ---------------------------------------------------------------------------------------- patterns

void unpack(Capture& c, TracedFrame& f, uint32_t before, bool rest, uint32_t after) {
  py::list list;
  const py::object packed = pop(f);
  PyTypeObject* type = Py_TYPE(packed.ptr());
  if (type->tp_iter == nullptr && !PySequence_Check(packed.ptr()) && !c.heap.is_tensor(packed)) {
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", type->tp_name);
    throw py::error_already_set();
  }
  py::object iterator = c.iterators.iterate(packed);
  while (py::object item = c.iterators.iter_next(iterator)) {
    list.append(item);
    if (!rest && list.size() > before) break;
  }
  const size_t n = list.size();
  if (n < before + after)
    raise(PyExc_ValueError, "not enough values to unpack (expected ", rest ? "at least " : "",
          before + after, ", got ", n, ")");
  if (!rest && n > before)
    raise(PyExc_ValueError, "too many values to unpack (expected ", before, ")");
  auto item = [&](size_t i) { return borrow(PyList_GET_ITEM(list.ptr(), i)); };
  for (size_t i = 0; i < after; i++) push(f, item(n - 1 - i));
  if (rest) push(f, list[py::slice(before, static_cast<ssize_t>(n - after), 1)]);
  for (size_t i = before; i-- > 0;) push(f, item(i));
}

void match_keys(Capture& c, TracedFrame& f, const Instruction&) {
  py::list values;
  const auto keys = py::reinterpret_borrow<py::tuple>(peek(f, 1));
  if (!PyDict_CheckExact(peek(f, 2).ptr()) || py::len(py::set(keys)) != keys.size())
    throw Break(BreakId::instruction, "a pattern of a mapping that is no dict, or an error");
  for (py::handle key : keys) {
    if (c.objects.contains(peek(f, 2), key).ptr() != Py_True) {
      push(f, py::none());
      if (kMatchesPushBool) push(f, py::bool_(false));
      return;
    }
    values.append(c.objects.subscript(peek(f, 2), key));
  }
  push(f, py::tuple(values));
  if (kMatchesPushBool) push(f, py::bool_(true));
}

// What `**rest` of a mapping pattern takes; the keys stay.
void copy_dict_without_keys(Capture& c, TracedFrame& f, const Instruction&) {
  py::dict rest;
  check(PyDict_Update(rest.ptr(), c.heap.contents(peek(f, 2)).ptr()));
  for (py::handle key : peek(f, 1)) check(PyDict_DelItem(rest.ptr(), key.ptr()));
  peek(f, 1) = rest;
}

void match_class(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object names = pop(f), type = pop(f), subject = pop(f);
  auto matched = [&](const py::object& values) {
    push(f, kMatchesPushBool && values.is_none() ? subject : values);
    if (kMatchesPushBool) push(f, py::bool_(!values.is_none()));
  };
  if (!PyType_Check(type.ptr())) refuse_pattern();
  if (c.calls.call(member_of<"builtins", "isinstance">(), {subject, type}).ptr() != Py_True)
    return matched(py::none());
  const auto positions = names_of_positions(c, type, i.arg);
  for (py::handle name : names)
    if (positions && positions->contains(name)) refuse_pattern();
  py::list parts;
  try {
    if (!positions) parts.append(subject);
    if (positions)
      for (py::handle name : *positions) parts.append(c.objects.load_attr(subject, name));
    for (py::handle name : names) parts.append(c.objects.load_attr(subject, name));
    matched(py::tuple(parts));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_AttributeError)) throw;
    matched(py::none());
  }
}

}  // namespace instructions
}  // namespace oxy::python
