// Operators, items, truth and comparisons: whom CPython asks of Python's classes, in which order.
#include "python/capture/plan_rebuild.h"
#include "python/guards/evaluate.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// Torch makes tensors of the arrays that index one: those of one dimension as they are.
py::object with_index_arrays(const py::object& key) {
  const auto tensor_of = [](const py::object& index) -> py::object {
    if (!is_array(index)) return index;
    py::object inside = index.attr("tensor");
    const at::Tensor& t = THPVariable_Unpack(inside.ptr());
    const bool plain = t.scalar_type() == at::kLong || t.scalar_type() == at::kBool;
    return t.dim() == 1 && plain ? inside : index;
  };
  return PyTuple_CheckExact(key.ptr()) ? with_items(key, tensor_of) : tensor_of(key);
}

// What __len__ may give.
bool is_length(py::handle o) {
  const bool fits = PyLong_Check(o.ptr()) && PyLong_AsSsize_t(o.ptr()) >= 0;
  PyErr_Clear();
  return fits;
}

// The method that the other operand of a comparison is asked for; empty for all else.
std::string_view mirrored(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPairs{
      {{"eq", "eq"}, {"ne", "ne"}, {"lt", "gt"}, {"gt", "lt"}, {"le", "ge"}, {"ge", "le"}}};
  for (const auto& [a, b] : kPairs)
    if (a == name) return b;
  return {};
}

bool is_derived_of(PyTypeObject* type, PyTypeObject* of) {
  return type != of && PyType_IsSubtype(type, of);
}

// Of what the class has for the operator nothing is left to be asked: it is what the type written
// in C has, or a function that has been.
void refuse_own_operator(py::handle o, const std::string& name) {
  const py::str method(cat("__", name.starts_with("i") ? name.substr(1) : name, "__"));
  PyTypeObject* type = Py_TYPE(o.ptr());
  if (_PyType_Lookup(type, method.ptr()) != _PyType_Lookup(builtin_base(type), method.ptr()))
    throw Break(BreakId::attribute_protocol, type->tp_name, ".", text(method));
}

bool is_sequence_of_c(PyObject* p) {
  return PyList_CheckExact(p) || PyTuple_CheckExact(p) || PyUnicode_CheckExact(p) ||
         PyBytes_CheckExact(p) || PyRange_Check(p);
}

bool is_compared_by_identity(py::handle o) {
  return Py_TYPE(o.ptr())->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

// Of `a += b` where `a` is a number, which nothing changes; null for all other operators.
py::object without_place(const std::string& name, py::handle a) {
  PyObject* p = a.ptr();
  const bool number = PyLong_CheckExact(p) || PyBool_Check(p) || PyFloat_CheckExact(p) ||
                      PyComplex_CheckExact(p) || is_symbolic(a);
  if (!number || !name.starts_with("i") || !is_binary_operator(name)) return {};
  const std::string base = name.substr(1);
  const bool word = base == "and" || base == "or";
  return py::module_::import("operator").attr((word ? base + "_" : base).c_str());
}

bool is_of_object(PyTypeObject* type, const std::string& method) {
  const py::str name(method);
  return _PyType_Lookup(type, name.ptr()) == _PyType_Lookup(&PyBaseObject_Type, name.ptr());
}

}  // namespace

// Whether torch may ask the class of an operand what the operator gives.
bool Objects::asks_class(const Arguments& args) {
  return std::ranges::any_of(args, [this](const py::object& a) { return wrappers().is_asked(a); });
}

// What `operator.name` gives on objects that have methods in Python for it, and in-place changes of
// containers; nullopt where they have none, or all of them say NotImplemented.
std::optional<py::object> Objects::ask_operands(const std::string& name, const Arguments& args) {
  std::string base = name;
  while (base.ends_with("_")) base.pop_back();
  const bool binary = args.size() == 2, in_place = binary && name.starts_with("i");
  py::object out;
  auto gives = [&](PyObject* method, const Arguments& with) {
    if (method == nullptr) return false;
    out = calls().call(method, with);
    return out.ptr() != Py_NotImplemented;
  };
  const bool any_wraps = asks_class(args);
  auto method = [&](size_t i, const std::string& dunder) {
    if (any_wraps && is_tensor_object(args[i].ptr()))
      return wrappers().method(args[i], py::str(dunder));
    if (heap().is_tensor(args[i])) return user_method(args[i], dunder);
    return special_method(args[i], py::str(dunder));
  };
  if (!binary)
    return gives(method(0, cat("__", base, "__")), args) ? std::optional(out) : std::nullopt;
  const bool taken =
      binary && !any_wraps && heap().is_tensor(args[0]) && is_tensor_operand(args[1]);
  if (in_place) {
    PyObject* changes = method(0, cat("__", base, "__"));
    if (gives(changes, args)) return out;
    if (taken && changes == nullptr) return std::nullopt;
    if (!heap().is_tensor(args[0]))
      if (auto done = change_in_place(base, args)) return done;
    base = base.substr(1);
  }
  const std::string_view mirror = mirrored(base);
  const std::string own = cat("__", base, "__");
  const std::string reflected = mirror.empty() ? cat("__r", base, "__") : cat("__", mirror, "__");
  const auto type_at = [&](size_t i) {
    return any_wraps ? as_type(type_of(args[i])) : Py_TYPE(args[i].ptr());
  };
  PyTypeObject *type = type_at(0), *other = type_at(1);
  PyObject *mine = method(0, own), *theirs = method(1, reflected);
  if (theirs != nullptr && mirror.empty() && type == other) theirs = nullptr;
  const Arguments swapped{args[1], args[0]};
  const bool derived = is_derived_of(other, type);
  const bool first = theirs != nullptr && derived &&
                     (!mirror.empty() || effects().lookup(type, py::str(reflected)) != theirs);
  // Of != there is what == says.
  const auto differs = [&](size_t i, const Arguments& with) {
    return name == "ne" && (i == 0 ? mine : theirs) == nullptr &&
           is_of_object(Py_TYPE(args[i].ptr()), "__ne__") && gives(method(i, "__eq__"), with);
  };
  if (first && gives(theirs, swapped)) return out;
  if (derived && differs(1, swapped)) return py::bool_(!truth(out));
  if (taken && mine == nullptr) return std::nullopt;
  if (differs(0, args)) return py::bool_(!truth(out));
  if (gives(mine, args)) return out;
  if (!first && gives(theirs, swapped)) return out;
  if (!derived && differs(1, swapped)) return py::bool_(!truth(out));
  const bool asked_both = mine != nullptr && (theirs != nullptr || is_of_object(other, own));
  if (asked_both && (name == "eq" || name == "ne"))
    return py::bool_(args[0].is(args[1]) == (name == "eq"));
  return std::nullopt;
}

// What a user has put in place of a tensor's own method; borrowed or null.
PyObject* Objects::user_method(py::handle tensor, const std::string& name) {
  PyObject* found = _PyType_Lookup(as_type(type_of(tensor)), py::str(name).ptr());
  return found != nullptr && PyFunction_Check(found) && is_put_by_user(found) ? found : nullptr;
}

// What a tensor's own operator takes beside it; of all else it says NotImplemented.
bool Objects::is_tensor_operand(py::handle o) {
  PyObject* p = o.ptr();
  return heap().is_tensor(o) || PyLong_Check(p) || PyFloat_Check(p) || PyComplex_Check(p) ||
         numbers().is_graph_float(o) || has_torch_function(o);
}

// Whether torch asks the class for its __torch_function__.
bool Objects::has_torch_function(py::handle o) {
  if (is_tensor_object(o.ptr())) return wrappers().has_function(o);
  if (!is_of_python_class(o.ptr())) return false;
  PyObject* found = type_member(Py_TYPE(o.ptr()), py::str("__torch_function__"));
  return found != nullptr &&
         found != member_of<"torch._C", "_disabled_torch_function_impl">().ptr();
}

// An operator on a tensor and an object of a class written in Python, in CPython's order of asking:
// the object's method, where the tensor is not first or does not take the object.
Done Objects::ask_beside_tensor(const std::string& name, py::handle function,
                                const Arguments& args) {
  if (args.size() != 2) return std::nullopt;
  const bool second = heap().is_tensor(args[0]);
  const py::object& o = args[second ? 1 : 0];
  if (is_tensor_object(o.ptr()) || !is_of_python_class(o.ptr()) || is_array(o) ||
      numbers().is_graph_float(o))
    return std::nullopt;
  // NumPy makes an array of objects of it.
  if (arrays().in_array_code() && !is_derived_value(o.ptr()))
    throw Break(BreakId::numpy, "an operator on an array and a ", Py_TYPE(o.ptr())->tp_name);
  const bool taken = is_tensor_operand(o);
  if (!second || !taken)
    if (auto done = ask_operands(name, args)) return done;
  if ((name == "eq" || name == "ne") && !taken && is_compared_by_identity(o))
    return py::bool_(name == "ne");
  if (!is_derived_value(o.ptr())) return std::nullopt;
  if (!second) refuse_own_operator(o, name);
  Arguments plain = args;
  plain[second ? 1 : 0] = plain_value(o.ptr());
  return operate(function, plain);
}

// `a += b` and its kind of lists, dicts, sets and deques.
std::optional<py::object> Objects::change_in_place(const std::string& name, const Arguments& args) {
  Arguments rest{args[1]};
  Keywords none;
  if (heap().exists(args[0]))
    if (auto done = effects().change_existing(args[0], cat("__", name, "__"), rest, none);
        done && done->ptr() != Py_NotImplemented)
      return done;
  if (!PyList_CheckExact(args[0].ptr()) || heap().exists(args[0]) || name != "iadd")
    return std::nullopt;
  args[0].attr("extend")(iterators().items_to_add(args[1], true));
  return args[0];
}

// A function of the module operator, as the instruction that does the same; nullopt for all others.
std::optional<py::object> Objects::call_operator(py::handle function, const std::string& name,
                                                 const Arguments& args) {
  const size_t n = args.size();
  if (n == 1 && name == "neg") return compute(borrow(function), args);
  if (n == 1 && (name == "pos" || name == "invert" || name == "inv"))
    return operate(function, args);
  if (n == 1 && name == "truth") return py::bool_(truth(args[0]));
  if (n == 1 && name == "not_") return py::bool_(!truth(args[0]));
  if (n == 3 && name == "setitem") return store_subscript(args[0], args[1], args[2]), py::none();
  if (n != 2) return std::nullopt;
  if (name == "getitem") return subscript(args[0], args[1]);
  if (name == "delitem") return delete_subscript(args[0], args[1]), py::none();
  if (name == "contains") return contains(args[0], args[1]);
  if (name == "iconcat" && PyList_Check(args[0].ptr()))
    return operate(member_of<"operator", "iadd">(), args);
  if (is_binary_operator(name)) return compute(borrow(function), args);
  const auto* found = std::ranges::find(kComparisons, name);
  if (found == kComparisons.end()) return std::nullopt;
  return numbers().compare(args[0], args[1], static_cast<int>(found - kComparisons.begin()));
}

py::object Objects::compute(const py::object& function, const Arguments& args) {
  if (const auto plain = numbers().settings_in_schedule(args)) return compute(function, *plain);
  const bool tensors = std::ranges::any_of(args, [this](auto& a) { return heap().is_tensor(a); });
  if (!tensors && std::ranges::any_of(args, is_symbolic_float))
    if (py::object made = numbers().combined(function, args)) return made;
  if (std::ranges::any_of(args, is_symbolic)) {
    Arguments seen;
    for (const py::object& a : args) seen.push_back(numbers().carried(a));
    return operate(function, seen);
  }
  auto computed = args.size() == 1 ? numbers().negate_deferred(args[0])
                                   : numbers().compute_deferred(function, args[0], args[1]);
  if (computed) return *computed;
  if (tensors) return operate(function, args);
  return operate(function, numbers().read(args));  // one of too many steps is not carried on
}

py::object Objects::type_of(py::handle o) {
  if (is_symbolic_int(o)) return type_object(&PyLong_Type);
  if (is_symbolic_bool(o)) return type_object(&PyBool_Type);
  if (is_symbolic_float(o)) {
    if (numbers().may_be_int(borrow(o))) numbers().read(borrow(o));  // which breaks
    return type_object(&PyFloat_Type);
  }
  if (numbers().is_graph_float(o)) return type_object(&PyFloat_Type);
  if (is_array(o)) return type_of_array(o);
  Tracked* k = heap().tracked(o);
  return py::type::of(k && k->original && k->value ? k->original : py::handle(o));
}

std::optional<bool> Objects::known_truth(py::handle o) {
  if (PyBool_Check(o.ptr())) return o.ptr() == Py_True;
  if (const auto yes = numbers().truth_of_state(o)) return yes;
  const py::object number = numbers().use_number(o);
  return number ? std::optional(PyObject_IsTrue(number.ptr()) == 1) : std::nullopt;
}

bool Objects::truth(py::handle o) {
  PyObject* p = o.ptr();
  auto of_c = [p] {
    const int yes = PyObject_IsTrue(p);
    check(yes);
    return yes == 1;
  };
  if (heap().is_tensor(o)) {
    if (const auto yes = known_truth(o)) return *yes;
    if (const py::object given = sizes().number_in_argument(borrow(o))) return truth(given);
    throw Break(BreakId::data_dependent, "the truth of a tensor");
  }
  if (numbers().is_of_data(borrow(o))) {
    numbers().refuse_truth(borrow(o));
    numbers().read(borrow(o));  // which breaks
  }
  if (is_constant(p) || is_symbolic(o)) return of_c();
  const bool says_so = special_method(o, names().bool_) || special_method(o, names().len_);
  if (!says_so && (is_callable_constant(p) || PyTuple_Check(p))) return of_c();
  if (!says_so && heap().exists(o) && PyDict_Check(p))
    return PyDict_Size(heap().contents(o).ptr()) > 0;
  if (!says_so && heap().exists(o) && (PyList_Check(p) || PySet_Check(p) || is_deque(o)))
    return PyObject_Length(heap().contents(o).ptr()) > 0;
  for (PyObject* method : {names().bool_, names().len_}) {
    PyObject* found = type_member(Py_TYPE(p), method);
    if (found == nullptr) continue;
    if (PyFunction_Check(found)) {
      py::object answer = numbers().read(calls().call(found, {borrow(p)}));
      const bool of_bool = method == names().bool_;
      const bool fits =
          is_symbolic_int(answer) ? truth(compare(answer, py::int_(0), Py_GE)) : is_length(answer);
      if (of_bool ? !PyBool_Check(answer.ptr()) : !fits)
        throw Break(BreakId::builtin_call, "an error of __bool__ or __len__");
      return truth(answer);
    }
    if (found == Py_None) throw Break(BreakId::builtin_call, "a __bool__ that is None");
    if (heap().exists(o))
      throw Break(BreakId::builtin_on_existing, "the truth of a ", Py_TYPE(p)->tp_name);
    return of_c();
  }
  return true;
}

// A key of a tensor or a sequence with the ints that objects in it stand for. A tensor takes a
// sequence for its items.
py::object Objects::with_indices(const py::object& key, bool of_tensor) {
  PyObject* p = key.ptr();
  if (PyTuple_CheckExact(p) || PySlice_Check(p))
    return with_items(key, [&](const py::object& part) { return with_indices(part, of_tensor); });
  const bool number =  // a scalar of NumPy that came with the call
      is_array(key) && arrays().source_of_array(key).valid() && key.attr("scalar").cast<bool>();
  if (!number &&
      (is_constant(p) || is_derived_value(p) || !is_of_python_class(p) || is_tensor_object(p) ||
       is_array(key) || (of_tensor && (PySequence_Check(p) || PySet_Check(p))) ||
       has_torch_function(key)))
    return key;
  PyObject* own = special_method(key, py::str("__index__"));
  if (own == nullptr) return key;
  const py::object index = numbers().read(calls().call(own, {key}));
  if (!PyLong_CheckExact(index.ptr()) && !is_symbolic_int(index))
    throw Break(BreakId::builtin_call, "an __index__ that is no plain int");
  return index;
}

// What torch indexes a tensor with: of a short list with tensors in it a tuple.
py::object Objects::as_index(const py::object& key) {
  constexpr size_t kFewest = 32;  // items of a list that is always one tensor
  if (!PyList_CheckExact(key.ptr())) return with_numbers_of_tensors(key);
  const py::tuple items(heap().contents(key));
  const bool several =
      items.size() < kFewest &&
      std::ranges::any_of(items, [this](py::handle o) { return heap().is_tensor(o); });
  return with_numbers_of_tensors(several ? items : key);
}

// Of what a tensor is indexed with: a tensor of one integer is that number, where it is a constant
// or may be a symbol. It selects, as in eager; one of a byte is a mask, but as the end of a slice.
py::object Objects::with_numbers_of_tensors(const py::object& key, bool selects) {
  PyObject* p = key.ptr();
  const bool slice = PySlice_Check(p);
  if (slice || PyTuple_CheckExact(p) || (PyList_CheckExact(p) && !heap().exists(key)))
    return with_items(
        key, [&](const py::object& o) { return with_numbers_of_tensors(o, selects && !slice); });
  if (!heap().is_tensor(key)) return key;
  const at::Tensor& t = THPVariable_Unpack(p);
  if (t.dim() != 0 || !at::isIntegralType(t.scalar_type(), false) || is_wrapped(t) ||
      (selects && t.scalar_type() == at::kByte))
    return key;
  py::object number = numbers().use_number(key);
  if (!number) number = sizes().number_in(key);
  return number ? number : key;
}

// What a defaultdict puts under a key that it does not have; null where it has no factory.
py::object Objects::made_by_factory(py::handle o) {
  static PyTypeObject* const type = as_type(member_of<"collections", "defaultdict">());
  if (!PyType_IsSubtype(Py_TYPE(o.ptr()), type)) return {};
  static const py::str& name = *new py::str("default_factory");
  static PyObject* const field = _PyType_Lookup(type, name.ptr());
  py::object factory;
  if (_PyType_Lookup(Py_TYPE(o.ptr()), name.ptr()) == field)
    factory = load_instance_attr(o, name, true);
  else if (heap().exists(o))
    throw Break(BreakId::builtin_on_existing, "a defaultdict with another ", text(name));
  else  // the attribute of the class is none that defaultdict asks
    factory = steal(Py_TYPE(field)->tp_descr_get(field, o.ptr(), nullptr));
  return factory.is_none() ? py::object() : calls().call(factory, {});
}

py::object Objects::subscript(py::handle o, py::handle key_asked, bool generic) {
  PyObject* p = o.ptr();
  const py::object key_given =
      PyDict_Check(p) ? arrays().as_key(borrow(key_asked)) : borrow(key_asked);
  const bool by_place = heap().is_tensor(o) || is_sequence_of_c(p);
  py::object key =
      by_place ? with_indices(borrow(key_given), heap().is_tensor(o)) : borrow(key_given);
  if (heap().is_tensor(o) && !asks_class({borrow(o), borrow(key)})) {
    key = sizes().with_index_tensors(with_index_arrays(as_index(key)));
    if (const auto selected = sizes().select(borrow(o), borrow(key)))
      return selected->key ? subscript(selected->view, selected->key) : selected->view;
    return operate(member_of<"operator", "getitem">(), {borrow(p), borrow(key)});
  }
  if (is_tensor_object(p) || (Wrappers::wraps(key.ptr()) && !PyDict_Check(p)))
    return operate(member_of<"operator", "getitem">(), {borrow(p), borrow(key)});
  // A dict finds tensors by their identity.
  if (heap().is_tensor(key) && !PyDict_Check(p)) {
    const py::object number = by_place ? numbers().use_number(key) : py::object();
    if (!number || !PyLong_CheckExact(number.ptr()))
      throw Break(BreakId::data_dependent, "a tensor as an index");
    key = number;
  }
  if (PyObject* own = special_method(o, names().getitem_); own != nullptr && !generic)
    return calls().call(own, {borrow(p), borrow(key)});
  if (heap().exists(o) && PyDict_Check(p)) {
    if (py::object found = effects().dict_get(o, key)) return found;
    if (PyObject* other = type_member(Py_TYPE(p), py::str("__missing__"))) {
      if (PyFunction_Check(other)) return calls().call(other, {borrow(p), borrow(key)});
      if (py::object value = made_by_factory(o)) return effects().dict_write(o, key, value), value;
    }
    raise_with(PyExc_KeyError, key);
  }
  if (const py::object dict = class_dict(o)) return subscript(dict, key);
  if (PyDict_Check(p) && !PyDict_CheckExact(p) && !effects().dict_has(o, key)) {
    if (PyObject* other = special_method(o, py::str("__missing__")))
      return calls().call(other, {borrow(p), borrow(key)});
    if (py::object value = made_by_factory(o)) return store_subscript(o, key, value), value;
  }
  static const py::str& of_class = *new py::str("__class_getitem__");
  if (PyType_Check(p) && p != reinterpret_cast<PyObject*>(&PyType_Type))
    if (PyObject* own = type_member(as_type(o), of_class);
        own != nullptr && Py_TYPE(own) == &PyClassMethod_Type)
      return calls().call(load_attr(o, of_class), {borrow(key)});
  if (heap().exists(key) && PyDict_Check(p) && !is_constant(key.ptr()))
    for (auto [held, value] : py::reinterpret_borrow<py::dict>(o)) heap().guard_key(held);
  return steal(PyObject_GetItem(heap().contents(o).ptr(), key.ptr()));
}

namespace {

// Of all elements of a tensor of floats.
bool is_mask_of(py::handle tensor, py::handle key) {
  if (!is_tensor_object(key.ptr())) return false;
  const at::Tensor &t = THPVariable_Unpack(tensor.ptr()), &mask = THPVariable_Unpack(key.ptr());
  return at::isFloatingType(t.scalar_type()) && mask.scalar_type() == at::kBool &&
         mask.dim() == t.dim() && mask.sym_sizes() == t.sym_sizes();
}

// Indexing by tensors, or by what becomes one.
bool is_index_list(py::handle key) {
  return is_tensor_object(key.ptr()) || PyList_Check(key.ptr());
}

}  // namespace

void Objects::store_subscript(py::handle o, py::handle key_given, py::handle value) {
  const bool by_place = heap().is_tensor(o) || PyList_CheckExact(o.ptr());
  py::object key =
      by_place ? with_indices(borrow(key_given), heap().is_tensor(o)) : borrow(key_given);
  if (PyDict_Check(o.ptr())) key = arrays().as_key(key);
  if (is_tensor_object(o.ptr()) && asks_class({borrow(o), borrow(key), borrow(value)})) {
    static const py::str& name = *new py::str("__setitem__");
    calls().call(borrow(wrappers().method(o, name)), {borrow(o), key, borrow(value)});
    return;
  }
  if (heap().is_tensor(o)) {
    key = sizes().with_index_tensors(with_index_arrays(as_index(key)));
    py::object stored = borrow(value);
    if (is_symbolic_float(value)) {
      // Of what a mask of the same shape selects nobody has to know how much it is.
      if (is_mask_of(o, key)) {
        calls().call_method(o, "masked_fill_", {borrow(key), stored}, {});
        return;
      }
      if (mentions(heap().deep_contents(key), is_index_list, false))
        stored = numbers().read(stored);  // index_put takes tensors of one dtype
    }
    py::object target = borrow(o);
    if (const auto selected = sizes().select(target, key)) {
      target = selected->view;
      key = selected->key ? selected->key : py::ellipsis();
    }
    operate(member_of<"operator", "setitem">(), {target, key, stored});
    return;
  }
  if (PyObject* own = special_method(o, names().setitem_)) {
    calls().call(own, {borrow(o), borrow(key), borrow(value)});
    return;
  }
  if (heap().exists(o)) {
    Arguments args{borrow(key), borrow(value)};
    Keywords none;
    if (effects().change_existing(o, "__setitem__", args, none)) return;
    throw Break(BreakId::side_effect, "assignment to an item of a ", Py_TYPE(o.ptr())->tp_name);
  }
  py::object items = borrow(value);
  if (PySlice_Check(key.ptr()) && PyList_Check(o.ptr())) items = iterators().list_of(value);
  check(PyObject_SetItem(o.ptr(), key.ptr(), items.ptr()));
}

void Objects::delete_subscript(py::handle o, py::handle key_given) {
  const py::object key =
      PyDict_Check(o.ptr()) ? arrays().as_key(borrow(key_given)) : borrow(key_given);
  if (PyObject* own = special_method(o, py::str("__delitem__"))) {
    calls().call(own, {borrow(o), borrow(key)});
  } else if (heap().exists(o)) {
    Arguments args{borrow(key)};
    Keywords none;
    if (!effects().change_existing(o, "__delitem__", args, none))
      throw Break(BreakId::side_effect, "del of an item of a ", Py_TYPE(o.ptr())->tp_name);
  } else {
    check(PyObject_DelItem(o.ptr(), key.ptr()));
  }
}

py::object Objects::contains(py::handle container, py::handle item_given, bool generic) {
  // What is in it decides as well.
  const py::object item = arrays().as_key(heap().deep_contents(item_given));
  if (PyObject* own = special_method(container, names().contains_); own != nullptr && !generic)
    return py::bool_(truth(calls().call(own, {borrow(container), borrow(item)})));
  if (heap().is_tensor(container)) throw Break(BreakId::data_dependent, "a test of membership");
  if (heap().exists(container) && PyDict_Check(container.ptr()))
    return py::bool_(effects().dict_has(container, item));
  if (const py::object dict = class_dict(container)) return contains(dict, item);
  if (heap().exists(container) && Py_TYPE(container.ptr()) == &PyDictProxy_Type)
    throw Break(BreakId::builtin_on_existing, "a mappingproxy");
  const bool takes_items =
      iterators().lazy(container) || PyIter_Check(container.ptr()) != 0 ||
      ((special_method(container, names().iter_) || iterators().goes_by_items(container)) &&
       !generic && effects().lookup(Py_TYPE(container.ptr()), names().contains_) == nullptr);
  if (takes_items) {
    py::object iterator = iterators().iterate(container);
    while (py::object found = iterators().iter_next(iterator))
      if (heap().guard_apart(found, item), found.is(item) || truth(compare(found, item, Py_EQ)))
        return py::bool_(true);
    return py::bool_(false);
  }
  py::object inside = heap().deep_contents(container);
  if (heap().exists(container) && inside.is(container) && !is_derived_value(container.ptr()))
    throw Break(BreakId::builtin_on_existing, "a ", Py_TYPE(container.ptr())->tp_name);
  // Tensors are hashed and found by their identity.
  const bool hashes = PyDict_Check(inside.ptr()) || PyAnySet_Check(inside.ptr());
  const bool by_identity =
      hashes && is_tensor_object(item.ptr()) && (heap().is_tensor(item) || heap().exists(item));
  if (!by_identity && (mentions_tensor(item) || (!hashes && mentions_tensor(inside)))) {
    if (PyTuple_Check(inside.ptr()) || PyList_Check(inside.ptr()) || is_deque(inside) ||
        PyDictValues_Check(inside.ptr()))
      if (const auto place = place_in(py::list(inside), item)) return py::bool_(*place >= 0);
    throw Break(BreakId::data_dependent, "a test of membership among tensors");
  }
  if (PyIter_Check(inside.ptr()) == 0 && numbers().may_share_nan(inside, item))
    return contains(numbers().with_plain_floats(inside), numbers().with_plain_floats(item),
                    generic);
  PyObject* p = inside.ptr();
  const bool by_itself = (heap().exists(item) && !is_constant(item.ptr())) || is_nan(item.ptr());
  const bool compares = PyTuple_Check(p) || PyList_Check(p) || is_deque(inside) ||
                        PyDictValues_Check(p) || PyDictItems_Check(p);
  if ((by_itself || compares) && PyIter_Check(inside.ptr()) == 0)
    for (py::handle held : py::list(inside))
      hashes && !is_nan(item.ptr()) ? heap().guard_key(held) : heap().guard_apart(held, item);
  if (hashes && is_symbolic_int(item))
    return py::bool_(static_cast<bool>(effects().key_of_size(inside, item)));
  if (PyRange_Check(p) && is_symbolic_int(item)) {
    if (const auto within = sizes().is_in_range(
            item, {inside.attr("start"), inside.attr("stop"), inside.attr("step")}))
      return py::bool_(*within);
    return contains(inside, guarded_number(item),
                    generic);  // what is no int is looked for one by one
  }
  const int found = PySequence_Contains(inside.ptr(), item.ptr());
  check(found);
  return py::bool_(found == 1);
}

py::object Objects::compare(py::handle a, py::handle b, int op) {
  static const auto& functions = *new std::array{
      member_of<"operator", "lt">(), member_of<"operator", "le">(), member_of<"operator", "eq">(),
      member_of<"operator", "ne">(), member_of<"operator", "gt">(), member_of<"operator", "ge">()};
  return operate(functions.at(static_cast<size_t>(op)), {borrow(a), borrow(b)});
}

namespace {

bool is_plain_number(py::handle o) {
  PyObject* p = o.ptr();
  return PyLong_CheckExact(p) || PyBool_Check(p) || PyFloat_CheckExact(p) ||
         PyComplex_CheckExact(p);
}

// Whether it equals nothing but what is of its own kind.
bool has_own_kind(py::handle o) {
  PyObject* p = o.ptr();
  return p == Py_None || PyUnicode_CheckExact(p) || PyBytes_CheckExact(p) || PyList_CheckExact(p) ||
         PyTuple_CheckExact(p) || PyDict_CheckExact(p) || PyAnySet_CheckExact(p) ||
         (is_enum_member(o) && Py_TYPE(p)->tp_richcompare == PyBaseObject_Type.tp_richcompare);
}

}  // namespace

// A tensor beside what torch compares with none, or things of two kinds.
bool Objects::differ_in_kind(py::handle a, py::handle b) {
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)})
    if (heap().is_tensor(one)) return has_own_kind(other) && user_method(one, "__eq__") == nullptr;
  if (PyAnySet_Check(a.ptr()) && PyAnySet_Check(b.ptr())) return false;
  const bool one_number = is_plain_number(a) != is_plain_number(b);
  const auto known = [](py::handle o) { return has_own_kind(o) || is_plain_number(o); };
  return known(a) && known(b) && (one_number || !py::type::of(a).is(py::type::of(b))) &&
         (has_own_kind(a) || has_own_kind(b));
}

// Whether two items of containers are one object, or equal; null where a tensor's content tells.
std::optional<bool> Objects::are_equal_items(const py::object& a, const py::object& b) {
  if (heap().is_same(a, b)) return true;
  if (!mentions_tensor(a) && !mentions_tensor(b)) return truth(compare(a, b, Py_EQ));
  const auto equal = compare_items("eq", member_of<"operator", "eq">(), {a, b});
  return equal ? std::optional(truth(*equal)) : std::nullopt;
}

// Of two dicts whose keys are constants.
std::optional<bool> Objects::are_equal_dicts(const py::dict& a, const py::dict& b) {
  if (a.size() != b.size()) return false;
  for (auto [key, value] : a) {
    if (!is_constant(key.ptr())) return std::nullopt;
    const py::object other = item_in(b, key);
    if (!other) return false;
    const auto equal = are_equal_items(borrow(value), other);
    if (!equal || !*equal) return equal;
  }
  return true;
}

// Where the first one is that equals the item, or -1; null where a tensor's content tells.
std::optional<Py_ssize_t> Objects::place_in(py::handle sequence, const py::object& item) {
  Py_ssize_t place = 0;
  for (py::handle found : sequence) {
    const auto equal = are_equal_items(borrow(found), item);
    if (!equal) return std::nullopt;
    if (*equal) return place;
    place++;
  }
  return -1;
}

// With tensors in them. Of two tuples, or two lists, the first items that differ decide, and those
// in front of them may be no tensors, or the same ones.
std::optional<py::object> Objects::compare_items(const std::string& name, py::handle function,
                                                 const Arguments& args) {
  auto are_all = [&](auto is_one) {
    return std::ranges::all_of(args, [=](const py::object& a) { return is_one(a.ptr()) != 0; });
  };
  const bool equality = name == "eq" || name == "ne";
  if (equality && differ_in_kind(args[0], args[1])) return py::bool_(name == "ne");
  if (equality && are_all([](PyObject* o) { return PyDict_CheckExact(o); })) {
    const auto equal =
        are_equal_dicts(py::dict(heap().contents(args[0])), py::dict(heap().contents(args[1])));
    return equal ? std::optional(py::object(py::bool_(*equal == (name == "eq")))) : std::nullopt;
  }
  const auto is_tuple = [](PyObject* o) {  // a named one has the comparisons of tuples
    return PyTuple_Check(o) && Py_TYPE(o)->tp_richcompare == PyTuple_Type.tp_richcompare;
  };
  if (!are_all(is_tuple) && !are_all([](PyObject* o) { return PyList_CheckExact(o); }))
    return std::nullopt;
  const py::list a = plain_list(heap().contents(args[0])), b = plain_list(heap().contents(args[1]));
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
    const py::object x = a[i], y = b[i];
    const auto equal = are_equal_items(x, y);
    if (!equal) return std::nullopt;
    if (!*equal) return equality ? py::bool_(name == "ne") : operate(function, {x, y});
  }
  return operate(function, {py::int_(a.size()), py::int_(b.size())});
}

// What NumPy makes of its scalars; null where it would warn.
static py::object of_scalars(py::handle function, const Arguments& args) {
  const RefusedFrames allowed(nullptr);  // errstate is written in Python
  try {
    return own_function("oxyfuel.arrays", "of_scalars")(function, *tuple_of(args));
  } catch (const py::error_already_set& e) {
    if (e.matches(PyExc_FloatingPointError)) return {};
    throw;
  }
}

// Of NumPy scalars and what Python has: a comparison, whose answer the code wants to know, or
// arithmetic of integers, which are mostly sizes. What is computed of floats mostly meets tensors.
bool Objects::is_of_numpy_scalars(const std::string& name, const Arguments& args) const {
  if (arrays().in_array_code() || std::ranges::none_of(args, is_array)) return false;
  const bool comparison = std::ranges::find(kComparisons, name) != kComparisons.end();
  return std::ranges::all_of(args, [&](const py::object& a) {
    if (!is_array(a))
      return is_number(a.ptr()) || ((PyList_CheckExact(a.ptr()) || PyTuple_CheckExact(a.ptr()) ||
                                     PyUnicode_CheckExact(a.ptr())) &&
                                    name == "mul" && !heap().exists(a));
    const at::Tensor& t = THPVariable_Unpack(py::object(a.attr("memory")).ptr());
    return comparison || at::isIntegralType(t.scalar_type(), true);
  });
}

py::object Objects::operate(py::handle function, const Arguments& args) {
  const std::string name = text(function.attr("__name__"));
  if (is_of_numpy_scalars(name, args)) {
    const auto* compares = std::ranges::find(kComparisons, name);
    if (compares != kComparisons.end())
      if (const auto a = arrays().as_python_number(args[0]), b = arrays().as_python_number(args[1]);
          a && b) {
        const py::object answer =
            numbers().compare(a, b, static_cast<int>(compares - kComparisons.begin()));
        py::object out = member_of<"numpy", "bool_">()(py::bool_(truth(answer)));
        return heap().hold(out), out;
      }
    Arguments plain;
    for (const py::object& a : args) plain.push_back(arrays().with_scalars(a, false));
    if (std::ranges::none_of(plain, is_array))
      if (py::object made = of_scalars(function, plain)) return heap().hold(made), made;
  }
  if (asks_class(args)) {
    if (auto done = ask_operands(name, args)) return *done;
    throw Break(BreakId::torch_call, "operator.", name, " of a tensor that wraps others");
  }
  if (args.size() == 2 && is_tensor_object(args[1].ptr()))
    if (const py::object plain = without_place(name, args[0])) return operate(plain, args);
  // As torch.Tensor.__rmul__ and __rtruediv__ compute it.
  if (name == "mul" && numbers().is_deferred(args[0]) && heap().is_tensor(args[1]))
    return operate(function, {args[1], args[0]});
  if (name == "truediv" && numbers().is_deferred(args[0]) && heap().is_tensor(args[1])) {
    return operate(member_of<"operator", "mul">(),
                   {calls().call_method(args[1], "reciprocal", {}, {}), args[0]});
  }
  for (const auto& a : args) {
    if (is_tensor_object(a.ptr())) {
      if (is_torch_patched())
        if (auto done = ask_operands(name, args)) return *done;
      if (auto done = ask_beside_tensor(name, function, args)) return *done;
      calls().refuse_objects(args, {}, cat("operator.", name));
      return numbers().record_with_numbers(ir::NodeKind::CallFunction, cat("operator.", name),
                                           function, args, {});
    }
  }
  if (std::ranges::any_of(args, is_symbolic)) {
    const bool all_numbers = std::ranges::all_of(args, [](const py::object& a) {
      return is_symbolic(a) || (is_constant(a.ptr()) && PyNumber_Check(a.ptr()) == 1);
    });
    if (all_numbers) {
      const auto made = numbers().float_of_sizes(name, borrow(function), args);
      return made ? *made : calls().call_real(function, args, {});
    }
    // A list is repeated so often, a text has the number in it.
    Arguments plain;
    for (const py::object& a : args) plain.push_back(with_numbers(a));
    return operate(function, plain);
  }
  if (auto done = ask_operands(name, args)) return *done;
  const bool comparison = std::ranges::find(kComparisons, name) != kComparisons.end();
  if (comparison && args.size() == 2 && numbers().any_deferred()) {
    const py::object a = heap().deep_contents(args[0]), b = heap().deep_contents(args[1]);
    if (numbers().may_share_nan(a, b))
      return operate(function, {numbers().with_plain_floats(a), numbers().with_plain_floats(b)});
  }
  if (comparison && std::ranges::any_of(args, mentions_tensor))
    if (auto done = compare_items(name, function, args)) return *done;
  // The result has the items themselves.
  const bool joins = name == "add" || name == "iadd" || name == "mul" || name == "imul" ||
                     name == "or_" || name == "ior" || name == "concat" || name == "iconcat";
  const bool of_text = PyUnicode_Check(args[0].ptr()) || PyBytes_Check(args[0].ptr()) ||
                       PyByteArray_Check(args[0].ptr());
  const bool formats = of_text && (name == "mod" || name == "imod");
  const auto has_own_text = [this](const py::object& o) {
    return objects().special_method(o, py::str("__str__")) != nullptr ||
           objects().special_method(o, py::str("__repr__")) != nullptr;
  };
  Arguments plain;
  for (const auto& a : args) {
    if (heap().exists(a) && is_derived_value(a.ptr())) {
      if (formats && has_own_text(a))
        throw Break(BreakId::builtin_on_existing, "% with a ", Py_TYPE(a.ptr())->tp_name);
      plain.push_back(plain_value(a.ptr()));
      continue;
    }
    // The copy of a defaultdict is a dict.
    if (name == "or_" && heap().exists(a) && PyDict_Check(a.ptr()) && !PyODict_Check(a.ptr()) &&
        Py_TYPE(a.ptr())->tp_as_number->nb_or != PyDict_Type.tp_as_number->nb_or)
      throw Break(BreakId::builtin_on_existing, "| of a ", Py_TYPE(a.ptr())->tp_name);
    const bool container = PyList_Check(a.ptr()) || PyDict_Check(a.ptr());
    const bool as_they_are = joins && (container || PyTuple_Check(a.ptr()));
    const bool shallow = as_they_are || PyAnySet_Check(a.ptr()) || is_deque(a);
    plain.push_back(shallow ? heap().contents(a) : heap().deep_contents(a));
    if (heap().exists(a) && !container && !PyAnySet_Check(a.ptr()) && !is_deque(a) &&
        Py_TYPE(a.ptr())->tp_richcompare != PyBaseObject_Type.tp_richcompare)
      throw Break(BreakId::builtin_on_existing, "operator.", name);
    if (comparison && mentions_tensor(a))
      throw Break(BreakId::data_dependent, "a comparison of containers of tensors");
  }
  if (comparison) heap().guard_apart(plain[0], plain[1]);
  if (PyUnicode_Check(args[0].ptr()) || PyBytes_Check(args[0].ptr()))  // widths are ints themselves
    for (py::object& a : plain) a = with_numbers(a);
  if (formats) {
    const auto require = [&](const py::object& o) {
      if (heap().exists(o) || !is_one_for_all(o)) calls().require_plain(o, function);
    };
    if (PyTuple_Check(plain[1].ptr()))
      for (py::handle item : plain_list(plain[1])) require(borrow(item));
    else
      require(plain[1]);
  }
  try {
    return calls().call_real(function, plain, {});
  } catch (py::error_already_set&) {  // its text may name the classes
    for (size_t i = 0; i < args.size(); i++)
      if (Py_TYPE(args[i].ptr()) != Py_TYPE(plain[i].ptr()))
        throw Break(BreakId::builtin_on_existing, "operator.", name, " raises");
    throw;
  }
}

}  // namespace oxy::python
