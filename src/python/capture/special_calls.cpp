// Calls of functions that have a meaning of their own for the interpreter.
#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <functional>
#include <ranges>

#include "python/capture/capture.h"
#include "python/capture/instance_checks.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/code_object.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "support/tuning.h"

namespace oxy::python {
namespace {

using Meant = std::optional<py::object>;
constexpr std::nullopt_t nothing = std::nullopt;
constexpr size_t kAny = SIZE_MAX;

// A method that a class of the user's has in Python; null where it has none.
PyObject* own_method(Capture& c, const py::object& o, const std::string& name) {
  if (is_array(o) || c.heap.is_tensor(o) || is_symbolic_int(o) || c.numbers.is_graph_float(o))
    return nullptr;
  return c.objects.special_method(o, py::str(name));
}

// The int that an object stands for; itself where it is none, or a number.
py::object index_of(Capture& c, const py::object& o) {
  return PyTuple_Check(o.ptr()) || PySlice_Check(o.ptr()) ? o : c.objects.with_indices(o);
}

Meant process_dataclass(Capture& c, py::handle callable, const Arguments& args,
                        const Keywords& kwargs) {
  if (args.empty() || !c.classes.is_made_class(args[0]))
    throw Break(BreakId::side_effect, "a class becomes a dataclass");
  return c.classes.make_dataclass(callable, args, kwargs);
}

// torch.Tensor, torch.FloatTensor and the like, of sizes or of the items of a list.
Meant tensor_of_class(Capture& c, py::handle callable, const Arguments& args) {
  auto is_int = [](const py::object& o) {
    return PyLong_CheckExact(o.ptr()) || is_symbolic_int(o);
  };
  const bool of_items =
      args.size() == 1 && (PyList_CheckExact(args[0].ptr()) || PyTuple_Check(args[0].ptr()));
  if (!of_items && !std::ranges::all_of(args, is_int)) return nothing;
  Arguments all{callable.is(member_of<"torch", "Tensor">())
                    ? c.calls.call(member_of<"torch", "get_default_dtype">(), {})
                    : callable.attr("dtype")};
  all.insert(all.end(), args.begin(), args.end());
  return c.calls.call(polyfill("tensor_of_class"), std::move(all));
}

// A parameter of what the code has computed, or of an input. It does not leave the graph.
Meant made_parameter(Capture& c, const Arguments& args) {
  const bool wanted = args.size() > 2 && c.objects.truth(args[2]);
  const bool derived = Wrappers::is_derived(args[0]);
  if ((!args[0].is(member_of<"torch.nn", "Parameter">()) && !derived) ||
      !c.heap.is_tensor(args[1]) || c.graphs.inner() || is_transformed())
    return nothing;
  py::object made = c.calls.call_method(args[1], "detach", {}, {});
  if (wanted) made = c.calls.call_method(made, "requires_grad_", {}, {});
  if (derived)
    made = c.wrappers.of_class(std::move(made), args[0]);
  else
    py::setattr(made, "__class__", args[0]);
  if (!derived || wanted) c.graphs.note_leaf(made);
  return made;
}

Meant default_device(Capture& c, py::handle callable) {
  const RefusedFrames allowed(nullptr);  // it is written in Python
  py::object device = callable();
  const SourceId function = c.heap.sources.pinned(callable, "torch.get_default_device");
  c.heap.guard(GuardKind::Equals, c.heap.sources.answer(function, py::tuple()), device);
  return device;
}

Meant type_call(Capture& c, py::handle callable, const Arguments& args, const Keywords& kwargs) {
  if (args.size() == 3) return c.classes.make_class(callable, args, kwargs);
  if (args.size() != 1 || !kwargs.empty()) return nothing;
  c.iterators.refuse_stand_in(args[0]);
  c.heap.note_question(args[0]);
  return c.objects.type_of(args[0]);
}

Meant length(Capture& c, py::handle callable, const py::object& o) {
  if (is_symbolic(o)) return c.calls.call_real(callable, {with_numbers(o)}, {});
  if (c.heap.is_tensor(o)) {
    PyObject* own = _PyType_Lookup(as_type(c.objects.type_of(o)), names().len_);
    if (is_put_by_user(own) || c.wrappers.has_function(o)) return c.calls.call(borrow(own), {o});
    const c10::SymInt size = THPVariable_Unpack(o.ptr()).sym_size(0);
    return size.maybe_as_int() ? py::int_(*size.maybe_as_int()) : from_torch(py::cast(size));
  }
  if (PyObject* own = c.objects.special_method(o, names().len_)) {
    py::object length = c.calls.call(own, {o});
    if ((PyLong_CheckExact(length.ptr()) || is_symbolic_int(length)) &&
        c.objects.truth(c.objects.compare(length, py::int_(0), Py_GE)))
      return length;
    throw Break(BreakId::builtin_call, "a __len__ that is no length");
  }
  if (c.heap.exists(o) && PyDict_Check(o.ptr()) && !c.heap.tracked(o)->writes) {
    c.heap.guard(GuardKind::Length, c.heap.tracked(o)->source, {}, PyDict_Size(o.ptr()));
    return py::int_(PyDict_Size(o.ptr()));
  }
  return c.calls.call_real(callable, {c.heap.contents(o)}, {});
}

Meant attribute(Capture& c, const Arguments& args) {
  try {
    return c.objects.load_attr(args[0], args[1]);
  } catch (py::error_already_set& e) {
    if (args.size() < 3 || !e.matches(PyExc_AttributeError)) throw;
    return args[2];
  }
}

Meant has_attribute(Capture& c, const Arguments& args) {
  return py::bool_(static_cast<bool>(*attribute(c, {args[0], args[1], py::object()})));
}

// vars(o)
Meant attributes_of(Capture& c, const py::object& o) {
  if (!has_attribute(c, {o, py::str("__dict__")})->is(py::bool_(true))) return nothing;
  return c.objects.load_attr(o, py::str("__dict__"));
}

// ~flag, which the class keeps: members stay, and so does what they are.
Meant inverted(Capture& c, py::handle callable, const py::object& flag) {
  const py::object own = py::type::of(flag).attr("_missing_").attr("__func__");
  if (!own.is(member_of<"enum", "Flag">().attr("_missing_").attr("__func__"))) return nothing;
  const RefusedFrames allowed(nullptr);  // it is written in Python
  return c.calls.call_real(callable, {flag}, {});
}

Meant hash(Capture& c, const py::object& o) {
  if (is_hashed_by_code(o.ptr())) {
    c.heap.guard_key(o);
    return py::int_(py::hash(o));  // asks the captured code
  }
  const bool of_items = PyTuple_CheckExact(o.ptr()) || PyFrozenSet_CheckExact(o.ptr());
  if (of_items && c.heap.mentions_existing(o) && !mentions(o, is_symbolic, false)) {
    for (py::handle item : o) c.calls.require_key(borrow(item), member_of<"builtins", "hash">());
    return py::int_(py::hash(o));
  }
  PyObject* own = c.objects.special_method(o, py::str("__hash__"));
  if (own == nullptr) return nothing;
  const py::object number = c.calls.call(own, {o});
  const Py_ssize_t hash = PyLong_Check(number.ptr()) ? PyLong_AsSsize_t(number.ptr()) : -1;
  if (hash != -1) return py::int_(hash);
  PyErr_Clear();
  throw Break(BreakId::builtin_call, "a __hash__ that is no plain number");
}

// Of a function that depends on its arguments alone, and that no row of natives.def can name.
Meant of_plain_values(Capture& c, py::handle callable, const Arguments& args,
                      const Keywords& kwargs = {}) {
  Arguments plain;
  for (const py::object& a : args) plain.push_back(c.calls.plain_contents(a, callable));
  Keywords named;
  for (const auto& [name, a] : kwargs)
    named.emplace_back(name, c.calls.plain_contents(a, callable));
  return c.calls.call_real(callable, plain, named);
}

// What the caller gives beside the values may be called.
Meant json_text(Capture& c, py::handle callable, const Arguments& args, const Keywords& kwargs) {
  const auto calls = [](const auto& k) { return PyCallable_Check(k.second.ptr()) != 0; };
  if (std::ranges::any_of(kwargs, calls)) return nothing;
  return of_plain_values(c, callable, args, kwargs);
}

Meant sorted(Capture& c, const py::object& items, const Keywords& kwargs) {
  py::object list = c.iterators.list_of(items, true);
  c.effects.sort(list, kwargs);
  return list;
}

Meant reduce(Capture& c, const Arguments& args) {
  if (Py_TYPE(args[1].ptr())->tp_iter == nullptr && !PySequence_Check(args[1].ptr()))
    return nothing;
  py::object iterator = c.iterators.iterate(args[1]);
  py::object total = args.size() > 2 ? args[2] : c.iterators.iter_next(iterator);
  if (!total) type_error("reduce() of empty iterable with no initial value");
  while (py::object item = c.iterators.iter_next(iterator))
    total = c.calls.call(args[0], {total, item});
  return total;
}

Meant next(Capture& c, const Arguments& args) {
  if (py::object item = c.iterators.iter_next(args[0])) return item;
  if (args.size() > 1) return args[1];
  c.iterators.stop_iteration();
}

// math.prod of sizes, and torch.Size.numel.
Meant product(Capture& c, const py::object& given) {
  const bool reads = PyList_CheckExact(given.ptr()) || PyTuple_CheckExact(given.ptr());
  const py::object items = reads ? c.heap.contents(given) : given;
  if (!mentions_symbolic_int(items)) return nothing;
  py::object total = py::int_(1);
  for (py::handle item : items)
    total = c.objects.operate(member_of<"operator", "mul">(), {total, borrow(item)});
  return total;
}

// torch's own code for it imports modules, and asks for settings.
Meant broadcast_shapes(Capture& c, const Arguments& args) {
  return c.calls.call(own_function("oxyfuel.varying_sizes", "broadcast_shapes"), args);
}

Meant infer_size(Capture& c, const Arguments& args) {
  const bool sizes = std::ranges::all_of(args, [&](const py::object& a) {
    return py::isinstance(c.heap.contents(a), member_of<"torch", "Size">());
  });
  return sizes ? broadcast_shapes(c, args) : nothing;
}

bool some_is(Capture& c, const py::object& items, bool wanted) {
  py::object iterator = c.iterators.iterate(items);
  while (py::object item = c.iterators.iter_next(iterator))
    if (c.objects.truth(item) == wanted) return true;
  return false;
}

bool is_float(const py::object& o) { return PyFloat_CheckExact(o.ptr()) || is_symbolic_float(o); }

// sum() adds them as a long of C.
bool is_small_int(const py::object& o) {
  if (is_symbolic_int(o) || is_symbolic_bool(o)) return true;
  if (!PyLong_CheckExact(o.ptr()) && !PyBool_Check(o.ptr())) return false;
  int overflow = 0;
  PyLong_AsLongAndOverflow(o.ptr(), &overflow);
  return overflow == 0;
}

// Its arguments, the first of which is a float, as sum() adds them.
PyObject* add_up(PyObject*, PyObject* numbers) {
  const auto rest = owned(PyTuple_GetSlice(numbers, 1, PyTuple_GET_SIZE(numbers)));
  PyObject* function = member_of<"builtins", "sum">().ptr();
  return rest ? PyObject_CallFunctionObjArgs(function, rest.ptr(), PyTuple_GET_ITEM(numbers, 0),
                                             nullptr)
              : nullptr;
}

py::object sum_of_floats(Capture& c, Arguments numbers) {
  if (numbers.size() == 1) return numbers[0];
  const py::object& function = function_object<add_up>("sum");
  if (auto number = c.numbers.float_of_sizes("sum", function, numbers)) return *number;
  for (py::object& number : numbers)
    if (is_symbolic(number)) number = guarded_number(number);
  return steal(PyObject_CallObject(function.ptr(), tuple_of(numbers).ptr()));
}

Meant sum(Capture& c, const Arguments& args, const Keywords& kwargs) {
  if (args.size() + kwargs.size() > 2) return nothing;
  if (!kwargs.empty() && !kwargs[0].first.equal(py::str("start"))) return nothing;
  py::object total = args.size() > 1      ? args[1]
                     : kwargs.size() == 1 ? kwargs[0].second
                                          : py::int_(0);
  if (PyUnicode_Check(total.ptr()) || PyBytes_Check(total.ptr()) || PyByteArray_Check(total.ptr()))
    return nothing;
  py::object iterator = c.iterators.iterate(args[0]);
  // A start is one of the ints itself only where it is no bool.
  bool ints = is_small_int(total) && !PyBool_Check(total.ptr()) && !is_symbolic_bool(total);
  Arguments floats;  // with ints among them: what CPython adds up in one go
  if (kSumsCompensate && is_float(total)) floats = {total};
  while (py::object item = c.iterators.iter_next(iterator)) {
    if (!floats.empty() && (is_float(item) || PyLong_Check(item.ptr()) || is_symbolic(item))) {
      floats.push_back(item);
      continue;
    }
    if (!floats.empty()) total = sum_of_floats(c, std::exchange(floats, {}));
    total = c.objects.operate(member_of<"operator", "add">(), {total, item});
    const bool goes_on = ints && is_small_int(item) && is_small_int(total);
    if (kSumsCompensate && ints && !goes_on && is_float(total)) floats = {total};
    ints = goes_on;
  }
  return floats.empty() ? total : sum_of_floats(c, std::move(floats));
}

// bool(o)
py::object truth_of(Capture& c, const py::object& o) {
  if (c.heap.is_tensor(o) && THPVariable_Unpack(o.ptr()).scalar_type() == at::kBool) {
    if (const auto known = c.objects.known_truth(o)) return py::bool_(*known);
    if (py::object truth = c.numbers.number_of_data(o, true)) return truth;
  }
  return py::bool_(c.objects.truth(o));
}

Meant absolute(Capture& c, const Arguments& args) {
  if (Wrappers::wraps(args[0].ptr()))
    return c.calls.call(borrow(c.wrappers.method(args[0], py::str("__abs__"))), args);
  if (PyObject* own = own_method(c, args[0], "__abs__")) return c.calls.call(own, args);
  if (!c.heap.is_tensor(args[0]) && !is_array(args[0]) && !is_symbolic_int(args[0]) &&
      !is_symbolic_float(args[0]))
    return nothing;
  return c.objects.operate(member_of<"operator", "abs">(), args);
}

Meant is_callable(Capture& c, const py::object& o) {
  if (is_changeable_class(Py_TYPE(o.ptr()))) c.objects.type_member(Py_TYPE(o.ptr()), names().call_);
  return py::bool_(PyCallable_Check(o.ptr()) != 0);
}

// Of a function or method: of its code and defaults.
Meant signature(Capture& c, py::handle callable, const Arguments& args, const Keywords& kwargs) {
  const py::object function =
      PyMethod_Check(args[0].ptr()) ? borrow(PyMethod_GET_FUNCTION(args[0].ptr())) : args[0];
  if (!PyFunction_Check(function.ptr())) return nothing;
  for (const char* part : {"__code__", "__defaults__", "__kwdefaults__", "__annotations__"})
    if (py::object held = c.objects.load_attr(function, py::str(part)); c.heap.exists(held)) {
      if (c.heap.tracked(held)->writes) throw Break(BreakId::builtin_on_existing, "written ", part);
      with_numbers(c.heap.deep_contents(held));  // reads them
    }
  return c.calls.call_real(callable, args, kwargs);
}

// What the caller of the compiled function deals with may be another exception at each call.
py::object handled(Capture& c) {
  if (auto handled = owned(handled_exception())) return handled;
  if (c.frames.handled_outside)
    throw Break(BreakId::builtin_on_existing, "the exception that the caller deals with");
  c.heap.guard_nothing_handled();
  return py::none();
}

Meant exc_info(Capture& c) {
  const py::object exception = handled(c);
  if (exception.is_none()) return py::make_tuple(exception, exception, exception);
  return py::make_tuple(c.objects.type_of(exception), exception, c.frames.traceback_of(exception));
}

Meant converted(Capture& c, py::handle callable, const Arguments& args, const char* method);

// The arguments of a function of math with the floats that objects of Python's classes stand for;
// nothing where there is no such object. Of one that is a float itself its value is read, whatever
// it would answer; so are ints without an answer of their own, and all ints by logarithms.
std::optional<Arguments> with_floats(Capture& c, py::handle callable, const Arguments& args) {
  bool found = false;
  Arguments out = args;
  for (py::object& a : out) {
    const bool answers = own_method(c, a, "__float__") != nullptr;
    if (!answers && !own_method(c, a, "__index__")) continue;
    const std::string name = name_of(callable);
    const bool reads_int = !answers || name == "log" || name == "log2" || name == "log10";
    if (PyFloat_Check(a.ptr()) || (PyLong_Check(a.ptr()) && reads_int)) {
      a = plain_value(a.ptr());
    } else {
      const auto number = converted(c, type_object(&PyFloat_Type), {a}, "__float__");
      if (!number) return std::nullopt;
      a = *number;
    }
    found = true;
  }
  return found ? std::optional(std::move(out)) : std::nullopt;
}

// Of a number that comes from sizes; `callable` may have an answer for what it is then.
Meant float_of_size(Capture& c, py::handle callable, const Arguments& args) {
  if (module_of(callable) == "math")
    if (auto floats = with_floats(c, callable, args))
      return c.calls.call(callable, std::move(*floats));
  const auto is_made = [&](auto& a) { return c.numbers.is_of_sizes(a) || c.numbers.is_of_data(a); };
  if (std::ranges::none_of(args, is_made)) return nothing;
  const auto name = text(callable.attr("__name__"));
  if (auto number = c.numbers.float_of_sizes(name, borrow(callable), args)) return *number;
  Arguments plain;
  for (const py::object& a : args) plain.push_back(with_numbers(c.numbers.read(a)));
  return c.calls.call(callable, plain);
}

Meant rounded_size(Capture& c, py::handle callable, const py::object& o, Rounding how) {
  if (is_symbolic_int(o)) return o;
  if (auto number = c.numbers.whole_of_data(o, how)) return *number;
  if (!c.numbers.is_of_sizes(o)) return nothing;
  if (auto number = c.numbers.rounded(borrow(callable), o, how)) return *number;
  return c.calls.call(callable, {c.numbers.read(o)});
}

// Functions of which a class may have one of its own under their name: round, math.floor. Those of
// what has none math.floor and math.ceil take for a float.
Meant rounded(Capture& c, py::handle callable, const py::object& o, Rounding how) {
  const std::string method = cat("__", name_of(callable), "__");
  if (PyObject* own = own_method(c, o, method)) return c.calls.call(own, {o});
  const bool takes_floats = how == Rounding::Down || how == Rounding::Up;
  if (takes_floats && c.effects.lookup(Py_TYPE(o.ptr()), py::str(method)) == nullptr)
    if (auto floats = with_floats(c, callable, {o}))
      return c.calls.call(callable, std::move(*floats));
  return rounded_size(c, callable, o, how);
}

// round(o, digits)
Meant rounded_to(Capture& c, py::handle callable, const Arguments& args) {
  PyObject* own = own_method(c, args[0], "__round__");
  if (own == nullptr) return float_of_size(c, callable, args);
  return c.calls.call(own, args[1].is_none() ? Arguments{args[0]} : args);
}

// Functions that take nothing but ints.
Meant of_indices(Capture& c, py::handle callable, const Arguments& args) {
  Arguments ints;
  bool same = true;
  for (const py::object& a : args) same &= ints.emplace_back(index_of(c, a)).is(a);
  return same ? nothing : Meant(c.calls.call(callable, std::move(ints)));
}

// operator.index(o)
Meant index(Capture& c, py::handle callable, const py::object& o) {
  return is_symbolic_int(o) ? o : of_indices(c, callable, {o});
}

// complex(o), or of two numbers
Meant complex_of(Capture& c, py::handle callable, const Arguments& args) {
  Arguments numbers = args;
  bool same = true;
  for (py::object& a : numbers) {
    PyObject* own = &a == &numbers[0] ? own_method(c, a, "__complex__") : nullptr;
    const bool is_read = PyComplex_Check(a.ptr()) || PyUnicode_Check(a.ptr());
    if (own != nullptr) {
      a = c.calls.call(own, {a});
      if (!PyComplex_CheckExact(a.ptr()))
        throw Break(BreakId::builtin_call, "a __complex__ that is no plain number");
    } else if (!is_read && (own_method(c, a, "__float__") || own_method(c, a, "__index__"))) {
      const auto number = converted(c, type_object(&PyFloat_Type), {a}, "__float__");
      if (!number) continue;
      a = *number;
    } else {
      continue;
    }
    same = false;
  }
  return same ? nothing : Meant(c.calls.call(callable, std::move(numbers)));
}

// format(o, specification)
Meant formatted(Capture& c, const Arguments& args) {
  PyObject* own = own_method(c, args[0], "__format__");
  if (own == nullptr)
    return c.calls.formatted_value(args[0], args.size() > 1 ? args[1] : py::str(""));
  py::object made = c.calls.call(own, {args[0], args.size() > 1 ? args[1] : py::str("")});
  if (!PyUnicode_Check(made.ptr()))
    type_error("__format__ must return a str, not ", Py_TYPE(made.ptr())->tp_name);
  return made;
}

Meant integer_root(Capture& c, const py::object& o) {
  return c.sizes.square_root(o, Rounding::Down);
}

// Whether they are ints, and one is symbolic.
bool are_sizes(const Arguments& args) {
  auto is_int = [](const py::object& o) {
    return is_symbolic_int(o) || PyLong_CheckExact(o.ptr());
  };
  return std::ranges::all_of(args, is_int) && std::ranges::any_of(args, is_symbolic_int);
}

// Of numbers that come from sizes: the answer is guarded, not what they are.
Meant asked_of_sizes(Capture& c, py::handle callable, const Arguments& args) {
  if (std::ranges::none_of(args, [&](auto& a) { return c.numbers.is_of_sizes(a); })) return nothing;
  if (py::object answer = c.numbers.guarded_answer(borrow(callable), args)) return answer;
  return nothing;
}

Meant least_multiple(Capture& c, const Arguments& args) {
  if (!are_sizes(args)) return nothing;
  const auto divisor = asked_of_sizes(c, member_of<"math", "gcd">(), args);
  if (!divisor || !c.objects.truth(*divisor)) return nothing;
  const py::object parts =
      c.objects.compute(member_of<"operator", "floordiv">(), {args[0], *divisor});
  return absolute(c, {c.objects.compute(member_of<"operator", "mul">(), {parts, args[1]})});
}

Meant enter_inference(Capture& c, py::handle callable, const py::object& context) {
  c.objects.guard_code(callable);
  c.inference.enter(c.objects.truth(c.objects.load_attr(context, py::str("mode"))));
  return py::none();
}

Meant leave_inference(Capture& c, py::handle callable) {
  c.objects.guard_code(callable);
  c.inference.leave();
  return py::none();
}

// Of the captured code: a call in one runs in eager.
Meant in_transform() { return is_transformed() ? Meant(py::bool_(true)) : nothing; }

Meant power(Capture& c, const Arguments& args) {
  const auto is_tensor = [&](const py::object& a) { return c.heap.is_tensor(a); };
  if (std::ranges::any_of(args, is_tensor))
    return c.objects.operate(member_of<"operator", "pow">(), args);
  if (std::ranges::none_of(args, is_array))
    if (auto done = c.objects.ask_operands("pow", args)) return done;
  if (!are_sizes(args)) return nothing;
  return c.objects.compute(member_of<"operator", "pow">(), args);
}

Meant quotient_and_rest(Capture& c, const Arguments& args) {
  auto varies = [&](const py::object& a) { return c.numbers.is_of_sizes(a); };
  if (std::ranges::none_of(args, [&](auto& a) { return is_array(a) || c.heap.is_tensor(a); }))
    if (auto done = c.objects.ask_operands("divmod", args)) return done;
  if (!are_sizes(args) && std::ranges::none_of(args, varies)) return nothing;
  return py::make_tuple(c.objects.compute(member_of<"operator", "floordiv">(), args),
                        c.objects.compute(member_of<"operator", "mod">(), args));
}

// int(x), float(x)
Meant converted(Capture& c, py::handle callable, const Arguments& args, const char* method) {
  const py::object& o = args[0];
  if (c.heap.is_tensor(o)) return c.calls.call_method(o, method, {}, {});
  if (args.size() != 1) return nothing;
  const bool to_int = std::string_view(method) == "__int__";
  if (is_array(o)) {
    const py::object tensor = o.attr("memory");
    if (!to_int && o.attr("scalar").cast<bool>() &&
        THPVariable_Unpack(tensor.ptr()).is_floating_point())
      return c.calls.call_method(tensor, method, {}, {});
    return c.calls.call(c.objects.special_method(o, py::str(method)), {o});
  }
  if (PyObject* own = own_method(c, o, method)) {
    py::object made = c.calls.call(own, {o});
    if (to_int ? PyLong_CheckExact(made.ptr()) || is_symbolic_int(made)
               : PyFloat_CheckExact(made.ptr()) || is_symbolic_float(made))
      return made;
    if (!is_constant(made.ptr()) || PyBool_Check(made.ptr()))
      throw Break(BreakId::builtin_call, "a ", method, " that is no plain number");
    const char* made_by = Py_TYPE(made.ptr())->tp_name;
    if (to_int) type_error("__int__ returned non-int (type ", made_by, ")");
    type_error(Py_TYPE(o.ptr())->tp_name, ".__float__ returned non-float (type ", made_by, ")");
  }
  // Its value is guarded where it was found.
  if (to_int && PyLong_Check(o.ptr()) && !PyLong_CheckExact(o.ptr()) && !PyBool_Check(o.ptr()))
    return py::reinterpret_steal<py::object>(PyLong_Type.tp_as_number->nb_int(o.ptr()));
  if (const py::object index = index_of(c, o); !index.is(o)) return c.calls.call(callable, {index});
  return to_int ? rounded_size(c, callable, o, Rounding::ToZero) : float_of_size(c, callable, {o});
}

// torch._check and its kind, of a condition that depends on data.
Meant check_fact(Capture& c, const py::object& condition) {
  if (condition.ptr() == Py_True) return py::none();
  if (!is_symbolic_bool(condition)) return nothing;
  if (!c.sizes.assume(condition))
    throw Break(BreakId::undecided, "a check that contradicts what is known");
  return py::none();
}

py::object compared(Capture& c, const py::object& a, const py::object& b) {
  return c.objects.compare(a, b, Py_LE);
}

// torch._check_is_size(i, message, max=None).
Meant check_size(Capture& c, const Arguments& args, const Keywords& kwargs) {
  if (!is_symbolic_int(args[0])) return nothing;
  for (const auto& [name, value] : kwargs)
    if (is_text(name.ptr(), "max") && !value.is_none() &&
        !check_fact(c, compared(c, args[0], value)))
      return nothing;
  return check_fact(c, compared(c, py::int_(0), args[0]));
}

// Of the arguments, or of those in a tuple. What tensors are captured have none of their own.
Meant has_torch_function(Capture& c, const Arguments& args) {
  auto has = [&](py::handle o) { return c.objects.has_torch_function(o); };
  return py::bool_(std::ranges::any_of(args, [&](const py::object& a) {
    if (!PyTuple_Check(a.ptr()) && !PyList_Check(a.ptr())) return has(a);
    const py::list items = plain_list(c.heap.contents(a));
    return std::any_of(items.begin(), items.end(), has) || has(a);
  }));
}

Meant is_compiling() {
  Attempt::current().was_asked = true;
  return py::bool_(Attempt::current().is_compiling);
}

// Without arguments.
Meant super(Capture& c, py::handle callable) {
  if (c.frames.stack().empty()) return nothing;
  TracedFrame& f = *c.frames.stack().back();
  if (f.code->co_argcount == 0) raise(PyExc_RuntimeError, "super(): no arguments");
  py::object self = f.fast[0];
  if (const int cell = cell_of_parameter(f.code, 0); cell >= 0)
    if (const py::object& held = f.fast[static_cast<size_t>(cell)];
        held && PyCell_Check(held.ptr()))
      self = borrow(PyCell_GET(held.ptr()));
  if (!self) raise(PyExc_RuntimeError, "super(): arg[0] deleted");
  for (int i = 0; i < slot_count(f.code); i++) {
    PyObject* name = slot_name(f.code, i);
    const py::object& cell = f.fast[static_cast<size_t>(i)];
    if (!is_name(name, names().class_) || !cell || !PyCell_Check(cell.ptr())) continue;
    const py::object changed =
        c.heap.exists(cell) ? c.effects.written(cell, py::str("cell_contents")) : py::object();
    const py::object type = changed ? changed : borrow(PyCell_GET(cell.ptr()));
    if (!type || type.is(missing())) raise(PyExc_RuntimeError, "super(): empty __class__ cell");
    if (!PyType_Check(type.ptr()))
      raise(PyExc_RuntimeError, "super(): __class__ is not a type (", Py_TYPE(type.ptr())->tp_name,
            ")");
    if (c.heap.is_tensor(self)) throw Break(BreakId::attribute_protocol, "super() of a tensor");
    return c.calls.call_real(callable, {type, self}, {});
  }
  raise(PyExc_RuntimeError, "super(): __class__ cell not found");
}

// Of the functions around `__repr__` that see to it that no object is shown inside of itself, those
// of dataclasses among them.
bool is_around_repr(PyCodeObject* code) {
  static const py::set& codes = *[] {
    auto* out = new py::set();
    const std::function<void(const py::object&)> add = [&](const py::object& code) {
      if (view_of(py::object(code.attr("co_name")).ptr()) == "wrapper") out->add(code);
      for (py::handle constant : code.attr("co_consts"))
        if (PyCode_Check(constant.ptr())) add(borrow(constant));
    };
    add(py::module_::import("reprlib").attr("recursive_repr").attr("__code__"));
    const py::object own =
        py::getattr(py::module_::import("dataclasses"), "_recursive_repr", py::none());
    if (!own.is_none()) add(own.attr("__code__"));
    return out;
  }();
  return codes.contains(borrow(reinterpret_cast<PyObject*>(code)));
}

// The variable `memo` of a function of the module copy.
py::object table_of_copies(const TracedFrame& f) {
  for (size_t i = 0; i < f.fast.size(); i++) {
    PyObject* name = slot_name(f.code, static_cast<int>(i));
    if (!f.fast[i] || PyUnicode_CompareWithASCIIString(name, "memo") != 0) continue;
    return PyCell_Check(f.fast[i].ptr()) ? borrow(PyCell_GET(f.fast[i].ptr())) : f.fast[i];
  }
  return {};
}

// What these know an object by while it is shown nobody else sees.
Meant identity(Capture& c, const py::object& o) {
  const auto& stack = c.frames.stack();
  if (is_around_repr(stack.back()->code)) return py::int_(reinterpret_cast<uintptr_t>(o.ptr()));
  // Keys of the table that copy.deepcopy keeps of what it has seen.
  if (module_of(stack.back()->function) == "copy") {
    if (const py::object table = table_of_copies(*stack.back()); table && c.heap.exists(table))
      throw Break(BreakId::builtin_call, "id() for a table of before the call");
    return c.heap.id_of(o);
  }
  const Tracked* k = c.heap.tracked(o);
  if (k == nullptr || !k->source.valid()) return nothing;
  // An argument is another one at each call.
  if (c.heap.is_tensor(o) && !c.heap.is_module_state(k->source)) return nothing;
  const py::object& real = k->original ? k->original : o;
  c.heap.guard(GuardKind::IdIs, k->source, real);
  return py::int_(reinterpret_cast<uintptr_t>(real.ptr()));
}

// The same of a thread: a fact for the first thread that asks, under a guard; others break, or each
// had a capture.
Meant number_of_thread(Capture& c, py::handle callable) {
  const unsigned long number = PyThread_get_thread_ident();
  static const unsigned long first = number;
  py::int_ out(number);
  if (is_around_repr(c.frames.stack().back()->code)) return out;
  if (number != first) return nothing;
  const SourceId asked = c.heap.sources.pinned(callable, "get_ident");
  c.heap.guard(GuardKind::Equals, c.heap.sources.answer(asked, py::tuple()), out);
  return out;
}

// min and max of numbers of the graph.
const py::object& own_extreme() {
  static const py::object& function =
      *new py::object(own_function("oxyfuel.graph_number", "extreme"));
  return function;
}

// min or max, where what decides is called or taken from an iterator; `better`: Py_LT or Py_GT.
Meant extreme(Capture& c, py::handle callable, const Arguments& args, const Keywords& kwargs,
              int better) {
  py::object key = py::none(), otherwise;
  for (const auto& [name, value] : kwargs) {
    const auto text = name.cast<std::string>();
    if (text != "key" && text != "default") return nothing;
    (text == "key" ? key : otherwise) = value;
  }
  if (args.empty() || (args.size() > 1 && otherwise)) return nothing;
  const py::list items =
      args.size() == 1 ? py::list(c.iterators.list_of(args[0])) : py::list(tuple_of(args));
  if (items.empty() && otherwise) return otherwise;
  auto of_graph = [&](py::handle i) { return c.numbers.is_graph_float(i); };
  if (key.is_none() && std::any_of(items.begin(), items.end(), of_graph)) {
    Arguments given{py::bool_(better == Py_GT)};
    for (py::handle item : items) given.push_back(borrow(item));
    return c.calls.call(own_extreme(), std::move(given));
  }
  const bool plain =
      std::all_of(items.begin(), items.end(), [](py::handle i) { return is_constant(i.ptr()); });
  if (items.empty() || (key.is_none() && plain)) return c.calls.call_real(callable, {items}, {});
  if (key.is_none()) {
    if (py::object size = c.sizes.extreme(items, better == Py_LT)) return size;
    if (py::object tensor = c.graphs.extreme(items, better == Py_LT)) return tensor;
    Arguments all;
    for (py::handle item : items) all.push_back(borrow(item));
    const char* name = better == Py_LT ? "min" : "max";
    if (auto number = c.numbers.float_of_sizes(name, borrow(callable), all)) return *number;
  }
  py::object best, best_key;
  for (py::handle item : items) {
    py::object mine = key.is_none() ? borrow(item) : c.calls.call(key, {borrow(item)});
    if (best && !c.objects.truth(c.objects.compare(mine, best_key, better))) continue;
    best = borrow(item);
    best_key = mine;
  }
  return best;
}

// That the class has the method from a module of torch's.
bool is_of_torch(py::handle type, const char* method) {
  const py::object found = py::getattr(type, method, py::none());
  return PyFunction_Check(found.ptr()) && module_of(found).starts_with("torch.nn.modules.");
}

// LazyModuleMixin._infer_parameters(self, module, args, kwargs), of modules that take the sizes of
// their parameters from their first input (torch.nn.LazyLinear).
//
// The first call changes what capture looks at: parameters, hooks, the module's class. torch's own
// modules read nothing of their input but its sizes, so what eager would do now is done for real,
// and the capture starts again on a module like any other. Random numbers are drawn in eager's
// order: an op of the graph that draws in front of it is a break.
void infer_parameters(Capture& c, py::handle callable, const Arguments& args) {
  if (args.size() != 4 || c.graphs.inner() || !args[0].is(args[1]) || !c.heap.exists(args[0]))
    return;
  const py::type type = py::type::of(args[0]);
  if (!is_of_torch(type, "initialize_parameters") || !is_of_torch(type, "reset_parameters") ||
      c.heap.tracked(args[0])->writes)
    return;
  py::list given;
  for (py::handle a : c.heap.contents(args[2])) {
    if (!c.heap.is_tensor(a)) return;
    const at::Tensor& t = THPVariable_Unpack(a.ptr());
    const std::vector<int64_t> sizes = c10::fmap(t.sym_sizes(), bridge::hint_of);
    given.append(owned(THPVariable_Wrap(at::detail::empty_meta(sizes, t.scalar_type()))));
  }
  if (bridge::heard().draws != Attempt::current().before.draws)
    throw Break(BreakId::torch_call, "a lazy module is initialised behind an op that draws");
  if (c.heap.was_asked_lazily(args[0]))
    throw Break(BreakId::torch_call, "a lazy module is initialised that was asked what it is");
  const RefusedFrames allowed(nullptr);
  callable(args[0], args[1], py::tuple(given), c.heap.contents(args[3]));
  throw StartAgain{};
}

// Whether attention with so many scores goes by blocks. A number that varies may be any.
py::object go_by_blocks(const py::object& scores) {
  return py::bool_(is_symbolic_int(scores) ||
                   py::cast<int64_t>(scores) >=
                       tuning::blocks_of_scores * tuning::scores_at_once(host_machine()));
}

// What mark_static asks of a size inside of a function.
py::object make_static(Capture& c, Arguments& args) {
  Keywords none;
  c.sizes.make_plain(args, none);
  return py::none();
}

// torch.compiler's mark of whether a graph break is an error.
py::object whether_breaks_are_errors(Capture& c) {
  const std::optional<bool>& on = c.calls.error_on_break;
  return on ? py::object(py::bool_(*on)) : py::object(py::str("unset"));
}

[[noreturn]] Meant refuse(BreakId why, const std::string& what = "") { throw Break(why, what); }

Arguments behind_first(const Arguments& args) { return {args.begin() + 1, args.end()}; }

// Where a function was written and its qualified name there, also where a wrapper of torch's keeps
// TorchDynamo out of it. Both are empty for another wrapper, to which functools.wraps gives names
// that its code does not have.
std::pair<std::string_view, std::string_view> place_of(PyFunctionObject* f) {
  while (f->func_dict != nullptr &&
         (written_in(f) == "torch._compile" || written_in(f) == "torch._dynamo.eval_frame")) {
    PyObject* inside = PyDict_GetItemString(f->func_dict, "__wrapped__");
    if (inside == nullptr || !PyFunction_Check(inside)) break;
    f = as_function(inside);
  }
  const std::string_view name = view_of(f->func_qualname);
  if (name.substr(name.rfind('.') + 1) != view_of(code_of(f)->co_name)) return {};
  return {written_in(f), name};
}

}  // namespace

struct Calls::Special {
  bool by_name;
  const char *module, *names;
  size_t least, most;
  bool named;
  Meant (*meaning)(Capture& c, py::handle callable, Arguments& args, Keywords& kwargs, bool direct);

  bool takes(const Arguments& args, const Keywords& kwargs) const {
    return args.size() >= least && args.size() <= most && (kwargs.empty() || named);
  }
  static const Special table[];
};

#define OXY_SPECIAL_ROW(by_name, module, names, least, most, named, meaning) \
  {by_name,                                                                  \
   module,                                                                   \
   names,                                                                    \
   least,                                                                    \
   most,                                                                     \
   named,                                                                    \
   []([[maybe_unused]] Capture& c, [[maybe_unused]] py::handle callable,     \
      [[maybe_unused]] Arguments& args, [[maybe_unused]] Keywords& kwargs,   \
      [[maybe_unused]] bool direct) -> Meant { return meaning; }},
const Calls::Special Calls::Special::table[] = {
#define OXY_SPECIAL(...) OXY_SPECIAL_ROW(false, __VA_ARGS__)
#define OXY_SPECIAL_BY_NAME(...) OXY_SPECIAL_ROW(true, __VA_ARGS__)
#include "python/capture/special_calls.def"
#undef OXY_SPECIAL_BY_NAME
#undef OXY_SPECIAL
};
#undef OXY_SPECIAL_ROW

Done Calls::call_special(py::handle callable, Arguments& args, Keywords& kwargs) {
  static const auto& table = *[] {
    auto* m = new std::unordered_map<PyObject*, const Special*>();
    const py::object get = member_of<"operator", "attrgetter">();
    for (const Special& s : Special::table)
      for (py::handle name : s.by_name ? py::list() : py::str(s.names).attr("split")())
        m->emplace(get(name)(py::module_::import(s.module)).release().ptr(), &s);
    return m;
  }();
  if (callable.ptr() == raised_parts() && args.size() == 1)
    return py::make_tuple(py::type::of(args[0]), args[0], traceback_mark());
  const auto found = table.find(callable.ptr());
  if (found == table.end() || !found->second->takes(args, kwargs)) return std::nullopt;
  return found->second->meaning(capture_, callable, args, kwargs, false);
}

Done Calls::call_special_by_name(py::handle function, Arguments& args, Keywords& kwargs,
                                 bool direct) {
  static const auto& table = *[] {
    auto* m = new std::map<std::pair<std::string_view, std::string_view>, const Special*>();
    for (const Special& s : Special::table)
      for (auto name : std::views::split(std::string_view(s.by_name ? s.names : ""), ' '))
        m->emplace(std::pair(s.module, std::string_view(name.begin(), name.end())), &s);
    return m;
  }();
  const auto place = place_of(as_function(function));
  for (const std::string_view name : {place.second, std::string_view("*")})
    if (const auto found = table.find({place.first, name});
        found != table.end() && found->second->takes(args, kwargs))
      if (auto done = found->second->meaning(capture_, function, args, kwargs, direct)) return done;
  return std::nullopt;
}

bool is_found_in_text(py::handle o) {
  return py::type::handle_of(o).is(member_of<"re", "Match">()) ||
         py::type::handle_of(o).is(member_of<"re", "Pattern">());
}

// A function of the module re, or a method of a pattern, of texts and numbers: what it gives
// depends on nothing else.
Done Calls::call_of_texts(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  auto is_plain = [](py::handle o) {
    return PyUnicode_CheckExact(o.ptr()) || PyLong_CheckExact(o.ptr()) ||
           py::type::of(o).is(member_of<"re", "RegexFlag">());
  };
  const std::string name = name_of(callable);
  const size_t function = PyFunction_Check(callable.ptr()) ? 1 : 0;  // its place, among arguments
  if ((name == "sub" || name == "subn") && args.size() > function &&
      (PyFunction_Check(args[function].ptr()) || PyMethod_Check(args[function].ptr()))) {
    Arguments all = args;
    if (function == 0) all.insert(all.begin(), borrow(PyCFunction_GET_SELF(callable.ptr())));
    return call_function(
        own_function("oxyfuel.polyfills", cat(function == 0 ? "pattern_" : "", name).c_str()),
        std::move(all), kwargs);
  }
  Arguments read;
  for (const py::object& a : args)
    if (!is_plain(read.emplace_back(numbers().read(a)))) return std::nullopt;
  Keywords named;
  for (const auto& [key, a] : kwargs)
    if (!is_plain(named.emplace_back(key, numbers().read(a)).second)) return std::nullopt;
  const RefusedFrames allowed(nullptr);  // re is written in Python
  py::object found = call_real(callable, read, named);
  if (PyIter_Check(found.ptr())) return iterators().iterate(py::list(found));
  if (is_found_in_text(found) && named.empty())
    made_of_texts_.emplace(found.ptr(), std::pair(borrow(callable), read));
  return found;
}

// What a functools.singledispatch function chooses for a class, where it holds no abstract one.
Done Calls::call_dispatched(py::handle callable, const Arguments& args) {
  if (!PyType_Check(args[0].ptr())) return std::nullopt;
  auto* f = as_function(callable);
  py::object registry, token;
  auto* code = code_of(f);
  const py::object names = steal(free_names(code).release());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.ptr()); i++) {
    PyObject* cell = PyTuple_GET_ITEM(f->func_closure, i);
    Tracked& k = heap().entry(cell);
    if (!k.source.valid())
      k.source =
          heap().sources.closure(heap().source_of(callable, "dispatch"), static_cast<int64_t>(i));
    heap().hold(borrow(cell));
    const auto name_of = py::handle(PyTuple_GET_ITEM(names.ptr(), i)).cast<std::string>();
    if (name_of == "registry") registry = effects().read_cell(cell);
    if (name_of == "cache_token") token = effects().read_cell(cell);
  }
  if (!registry || !token || !token.is_none() || !heap().exists(registry)) return std::nullopt;
  const py::object functions = heap().contents(registry);
  if (PyObject* found = PyDict_GetItemWithError(functions.ptr(), args[0].ptr()))
    return borrow(found);
  return py::module_::import("functools").attr("_find_impl")(args[0], functions);
}

}  // namespace oxy::python
