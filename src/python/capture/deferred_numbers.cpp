// Numbers and other constants that captured code only carries about: an argument that it hands on,
// a counter that it adds to and writes back. An object of no class stands for one, and the call's
// own value takes its place when the graph has run; what is added to it is done then as well. Where
// an instruction looks at the value, it is read: guarded, and the constant that it is from there
// on. Deferred ones live on the stack, in plain locals, and in what was written to dicts and
// attributes; only the instructions listed here meet them. Floats that vary, or come of sizes, are
// symbolic floats (symbolic_float.h) instead and may lie anywhere.
#include <cmath>

#include "python/capture/capture.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

// The operators of BINARY_OP, also in place.
bool is_arithmetic(uint32_t arg) {  // +, -, *
  return arg == 0 || arg == 5 || arg == 10 || arg == 13 || arg == 18 || arg == 23;
}
bool is_division(uint32_t arg) { return arg == 11 || arg == 24; }
bool is_power(uint32_t arg) { return arg == 8 || arg == 21; }
bool is_floor_division_or_rest(uint32_t arg) {
  return arg == 2 || arg == 15 || arg == 6 || arg == 19;
}

// By opcode: it moves values about, or deals with deferred ones itself.
constexpr std::array<bool, 256> kLooksAtNothing = [] {
  std::array<bool, 256> table{};
  for (int op : {LOAD_FAST,    LOAD_FAST_CHECK, LOAD_CONST,  LOAD_GLOBAL,  LOAD_DEREF,
                 LOAD_CLOSURE, STORE_FAST,      DELETE_FAST, STORE_GLOBAL, STORE_DEREF,
                 POP_TOP,      PUSH_NULL,       COPY,        SWAP,         JUMP_FORWARD,
                 PRECALL,      KW_NAMES,        RESUME,      RETURN_CONST, NOP,
                 COMPARE_OP,   DUP_TOP,         DUP_TOP_TWO, ROT_TWO,      ROT_THREE,
                 ROT_FOUR,     ROT_N,           POP_BLOCK,   SETUP_FINALLY})
    table[static_cast<size_t>(op)] = true;
  return table;
}();

// A function whose frame is interpreted with its arguments as they are: no library's, which may
// have a meaning of its own, but the functions through which modules are called.
bool is_written_by_user(py::handle function) {
  auto* f = as_function(function);
  const int flags = code_of(f)->co_flags;
  if ((flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0 || is_disabled(f))
    return false;
  const std::string_view name = written_in(f);
  if (name.data() == nullptr) return false;  // no string
  const std::string_view package = name.substr(0, name.find('.'));
  if (package == "__main__" || name == "torch.nn.modules.module") return true;
  return package != "torch" && package != "oxyfuel" &&
         !member_of<"sys", "stdlib_module_names">().contains(package);
}

// The same of what is called: a function, a method, or an object with a `__call__`.
bool interprets(py::handle callable) {
  PyObject* p = callable.ptr();
  if (PyMethod_Check(p)) p = PyMethod_GET_FUNCTION(p);
  if (!PyFunction_Check(p) && !PyType_Check(p)) p = python_method(p, names().call_);
  return p != nullptr && PyFunction_Check(p) && is_written_by_user(p);
}

// Logger.debug and the like, which may have no use for their arguments.
bool asks_whether_to_log(py::handle callable) {
  PyObject* p =
      PyMethod_Check(callable.ptr()) ? PyMethod_GET_FUNCTION(callable.ptr()) : callable.ptr();
  if (!PyFunction_Check(p) || !is_text(as_function(p)->func_module, "logging")) return false;
  const std::string_view name = view_of(as_function(p)->func_qualname);
  return name.starts_with("Logger.") && name != "Logger._log";
}

// Those that special_calls.def has for numbers of sizes.
bool is_function_of_sizes(py::handle callable) {
  if (callable.is(type_object(&PyLong_Type)) || callable.is(type_object(&PyFloat_Type)))
    return true;
  static const auto& functions = *[] {
    auto* all = new std::vector<py::object>();
    for (const char* name : {"ceil", "floor", "trunc", "sqrt", "exp", "log", "log2", "log10"})
      all->push_back(py::module_::import("math").attr(name));
    all->push_back(py::module_::import("builtins").attr("round"));
    return all;
  }();
  return std::ranges::any_of(functions, [&](const py::object& f) { return callable.is(f); });
}

// Its arguments, a tuple, are its result.
PyObject* pack_items(PyObject*, PyObject* items) { return Py_NewRef(items); }

bool is_torch_function(py::handle function) {
  static const py::object& torch = *new py::object(py::module_::import("torch"));
  const char* name = reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml->ml_name;
  return py::getattr(torch, name, py::none()).is(function);
}

}  // namespace

py::object Numbers::defer(py::handle real, SourceId source, py::object function, Arguments parts) {
  const bool of_data = std::ranges::any_of(parts, [this](const py::object& part) {
    return is_of_data(part) || (numbers_of_data_ && heap().is_tensor(part));
  });
  const bool varies = source.valid() ? is_varying(source) : of_data || is_computed_anew(parts);
  const bool is_float = PyFloat_CheckExact(real.ptr()) && varies;
  // It may lie anywhere, and answers for its class.
  if (is_float) heap().guard(GuardKind::TypeIs, source, py::type::of(real));
  py::object out = is_float ? symbolic_float(*this) : member_of<"builtins", "object">()();
  if (!is_float) heap().entry(out.ptr()).source = source;
  heap().hold(out);
  const size_t steps = steps_with(parts);
  deferred_[out.ptr()] = {borrow(real), source, std::move(function), std::move(parts), false,
                          of_data,      steps};
  return out;
}

size_t Numbers::steps_with(const Arguments& parts) const {
  size_t steps = 1;
  for (const py::object& part : parts)
    if (const Deferred* found = find(part)) steps += found->steps;
  return steps;
}

py::object Numbers::deferred_number(py::handle real, SourceId source) {
  if (auto it = varying_.find(source); it != varying_.end()) return it->second;
  heap().guard(GuardKind::TypeIs, source, py::type::of(real));
  loaded_.insert(source);
  py::object out = defer(real, source);
  if (is_varying(source)) varying_.emplace(source, out);
  return out;
}

// Null where `o` is none.
const Deferred* Numbers::find(const py::object& o) const {
  auto it = o ? deferred_.find(o.ptr()) : deferred_.end();
  return it == deferred_.end() ? nullptr : &it->second;
}

// What `o` stands for in this call, or itself: nothing is guarded.
py::object Numbers::real_of(const py::object& o) const {
  const Deferred* deferred = find(o);
  if (deferred) return deferred->real;
  return o && is_symbolic_int(o) ? number_of(o, false) : o;
}

// `o` where it may lie anywhere, else what `read` gives.
py::object Numbers::carried(const py::object& o) { return o && is_symbolic_float(o) ? o : read(o); }

// What captured code has written somewhere, for whoever asks for it next.
py::object Numbers::taken(const py::object& written) {
  if (py::object setting = written_setting(written)) return setting;
  const bool deferred =
      takes == Takes::Deferred || (takes == Takes::Varying && is_runtime_number(written));
  return deferred ? written : carried(written);
}

Arguments Numbers::read(const Arguments& all) {
  Arguments out;
  for (const py::object& o : all) out.push_back(read(o));
  return out;
}

// `o`, or the constant that it stands for, guarded.
py::object Numbers::read(const py::object& o) {
  if (deferred_.empty() || !find(o)) return o;
  const Deferred deferred = *find(o);
  takes = Takes::Read;
  if (deferred.of_data) throw Break(BreakId::data_dependent, "Tensor.item");
  const bool packed = is_packed(o);
  deferred_.at(o.ptr()).taken_apart = true;
  if (deferred.source.valid()) {
    py::object out = heap().wrap(deferred.real, deferred.source);
    if (!is_graph_float(out)) return out;
    heap().guard(GuardKind::Equals, deferred.source, deferred.real);  // an optimizer read it before
    return deferred.real;
  }
  Arguments values;
  for (const py::object& part : deferred.parts)
    values.push_back(packed ? carried(part) : read(part));
  if (PyUnicode_CheckExact(deferred.real.ptr())) {
    for (const py::object& value : values) with_numbers(value);
    return deferred.real;
  }
  if (std::ranges::none_of(values, mentions_symbolic_int) &&
      std::ranges::none_of(values, is_symbolic_float))
    return deferred.real;
  py::object made = steal(PyObject_Call(deferred.function.ptr(), tuple_of(values).ptr(), nullptr));
  if (PyDict_CheckExact(made.ptr())) {  // one, however often it is read: it may be changed
    deferred_.at(o.ptr()).real = made;
    deferred_.at(o.ptr()).parts.clear();
  }
  return made;
}

// `o`, or the constant that it stands for, of which only the type is guarded.
py::object Numbers::typed(const py::object& o) {
  const Deferred* found = find(o);
  if (found && found->source.valid())
    heap().guard(GuardKind::TypeIs, found->source, py::type::of(found->real));
  return real_of(o);
}

// Any number that the current instruction loads stays deferred if it is added to next, or is the
// result.
Takes Numbers::taken_by_next(const TracedFrame& f) const {
  const auto& code = f.bytecode->instructions;
  const Instruction& next = code[f.next];
  if (next.op == RETURN_VALUE)
    return frames().stack().size() == 1 ? Takes::Deferred : Takes::Varying;
  if (f.next + 1 >= code.size()) return Takes::Varying;
  const Instruction& then = code[f.next + 1];
  const int operation = binary_operator_of(then.op, then.arg);
  const bool added = next.op == LOAD_CONST && operation >= 0 && is_arithmetic(operation) &&
                     is_number(PyTuple_GET_ITEM(f.code->co_consts, next.arg));
  return added ? Takes::Deferred : Takes::Varying;
}

// Arithmetic on what is deferred.
std::optional<py::object> Numbers::compute_deferred(const py::object& function, const py::object& a,
                                                    const py::object& b) {
  if ((!find(a) && !find(b)) || heap().is_tensor(a) || heap().is_tensor(b)) return std::nullopt;
  if (steps_with({a, b}) > kMostSteps) return std::nullopt;
  return defer(function(typed(a), typed(b)), {}, function, {a, b});
}

std::optional<py::object> Numbers::negate_deferred(const py::object& a) {
  if (!find(a)) return std::nullopt;
  const py::object& negate = member_of<"operator", "neg">();
  return defer(negate(typed(a)), {}, negate, {a});
}

// A number that nobody has looked at yet against a constant: only the answer is guarded, so that a
// value that is another one at each call does not make a capture for each.
std::optional<py::object> Numbers::compare_deferred(const py::object& a, const py::object& b,
                                                    int operation) {
  auto of_source = [&](const py::object& o) {
    const Deferred* found = find(o);
    return found && found->source.valid() && is_number(found->real.ptr());
  };
  const bool left = of_source(a) && is_number(b.ptr()), right = of_source(b) && is_number(a.ptr());
  if (!left && !right) return std::nullopt;
  static constexpr int swapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  const int seen = left ? operation : swapped[operation];
  const Deferred& deferred = deferred_.at(left ? a.ptr() : b.ptr());
  const py::object& number = left ? b : a;
  const py::object compared = steal(PyObject_RichCompare(deferred.real.ptr(), number.ptr(), seen));
  const bool answer = compared.ptr() == Py_True;
  heap().guard(GuardKind::TypeIs, deferred.source, py::type::of(deferred.real));
  heap().guard(GuardKind::Compares, deferred.source, number, 2 * seen + (answer ? 1 : 0));
  return compared;
}

// The operands of a BINARY_OP that can be computed behind the graph, or in front of it.
bool Numbers::goes_on_counting(const TracedFrame& f) {
  auto number = [&](const py::object& o) { return o && is_number(real_of(o).ptr()); };
  const Instruction& next = f.bytecode->instructions[f.next];
  const auto operation = static_cast<uint32_t>(binary_operator_of(next.op, next.arg));
  const Arguments given{f.stack[f.stack.size() - 2], f.stack[f.stack.size() - 1]};
  const Arguments operands = settings_in_schedule(given).value_or(given);
  const py::object &left = operands[0], &right = operands[1];
  auto is_data_float = [this](const py::object& o) {
    return o && is_of_data(o) && is_symbolic_float(o);
  };
  auto symbolic_number = [&](const py::object& o) {
    return (o && is_symbolic_int(o)) || number(o);
  };
  if ((is_data_float(left) && symbolic_number(right)) ||
      (is_data_float(right) && symbolic_number(left)))
    return true;
  if (!number(left) || !number(right) || is_of_data(left) || is_of_data(right)) return false;
  if (is_arithmetic(operation)) return true;
  if (!is_runtime_number(left) && !is_runtime_number(right)) return false;
  // Of a number of sizes, where the float's operation raises, the call runs in eager.
  const bool of_sizes = is_of_sizes(left) || is_of_sizes(right);
  if (is_division(operation)) return of_sizes || is_nonzero(right);
  auto is_float = [this](const py::object& o) { return PyFloat_CheckExact(real_of(o).ptr()); };
  const bool floats = is_float(left) || is_float(right);
  return of_sizes && (is_power(operation) || (floats && is_floor_division_or_rest(operation)));
}

// Of a varying float this answer is guarded.
bool Numbers::is_nonzero(const py::object& number) {
  const Deferred* found = find(number);
  if (!found) return PyObject_IsTrue(number.ptr()) == 1;
  PyObject* real = found->real.ptr();
  if (!PyFloat_CheckExact(real) || !found->source.valid() || PyFloat_AS_DOUBLE(real) == 0)
    return false;
  return compare_deferred(number, py::float_(0.0), Py_NE).has_value();
}

// A call of isinstance, of object.__setattr__, or of what makes a number of a size's.
bool Numbers::is_called_deferred(const TracedFrame& f, size_t count) const {
  const py::object callable = next_callee(f, count).callable;
  if (f.kwnames) return false;
  if (callable.is(member_of<"builtins", "isinstance">())) return true;
  if (count == 1 && is_deferred_text(f.stack.back()) && callable.is(type_object(&PyUnicode_Type)))
    return true;
  if (count == 1 && is_of_sizes(f.stack.back()) && is_function_of_sizes(callable)) return true;
  return is_method_wrapper(callable.ptr()) && is_name(callable.attr("__name__"), names().setattr_);
}

// A call whose runtime numbers stay what they are: of a method of a tensor or a function of torch
// that has them as inputs of the graph, or of a function of the user's, where all else that is
// deferred is read here.
bool Numbers::hands_on_numbers(TracedFrame& f, size_t count) {
  const std::span<py::object> args = std::span(f.stack).last(count);
  auto runtime = [this](const py::object& o) {
    return is_runtime_number(o) || is_deferred_text(o);
  };
  if (std::ranges::none_of(args, runtime)) return false;
  const auto [callable, method_self] = next_callee(f, count);
  const bool prints = callable.is(member_of<"builtins", "print">());
  if ((prints && PyCFunction_Check(callable.ptr())) || calls().is_reordered(callable))
    return true;  // behind the graph
  if (method_self && !PyFunction_Check(callable.ptr())) return false;
  if (PyCFunction_Check(callable.ptr())) {
    const py::object self = borrow(PyCFunction_GET_SELF(callable.ptr()));
    const bool is_method = self && heap().is_tensor(self);
    const size_t named = f.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(f.kwnames.ptr())) : 0;
    Arguments positional(args.begin(), args.end() - static_cast<ptrdiff_t>(named));
    if (is_method) positional.insert(positional.begin(), self);
    Keywords keywords;
    for (size_t i = 0; i < named; i++)
      keywords.emplace_back(borrow(PyTuple_GET_ITEM(f.kwnames.ptr(), i)), args[count - named + i]);
    const char* name = reinterpret_cast<PyCFunctionObject*>(callable.ptr())->m_ml->ml_name;
    return (is_method || is_torch_function(callable)) &&
           takes_runtime_numbers(name, positional, keywords);
  }
  if (std::string_view(Py_TYPE(callable.ptr())->tp_name) == "OpOverloadPacket" && !f.kwnames) {
    // Of clamp and clip a packet takes the overload for numbers, also for a tensor without
    // dimensions.
    const auto name = py::str(callable).cast<std::string>();
    return name.starts_with("aten.") && !name.starts_with("aten.cl") && args.size() == 2 &&
           takes_runtime_numbers(name, args, {});
  }
  if (!interprets(callable) && !asks_whether_to_log(callable)) return false;
  for (py::object& o : args)
    if (!runtime(o)) o = read(o);
  return true;
}

// f(*args, **kwargs) of such a function, where args is a tuple or kwargs a dict that numbers came
// in.
bool Numbers::hands_on_packed(TracedFrame& f, bool keywords) {
  const size_t at = f.stack.size() - (keywords ? 2 : 1);
  const bool positional = is_packed(f.stack[at]), named = keywords && is_packed(f.stack.back());
  if ((!positional && !named) || !interprets(callee_below(f, at).callable)) return false;
  if (!positional) f.stack[at] = read(f.stack[at]);
  return true;
}

// A dict may change once somebody has it.
bool Numbers::is_packed(const py::object& o) const {
  const Deferred* found = have_runtime_numbers() ? find(o) : nullptr;
  if (!found) return false;
  PyObject* real = found->real.ptr();
  return PyTuple_CheckExact(real) || (PyDict_CheckExact(real) && !found->taken_apart);
}

// A tuple for the numbers among `items`: deferred itself.
py::object Numbers::pack(const Arguments& items) {
  py::tuple real(items.size());
  for (size_t i = 0; i < items.size(); i++) real[i] = real_of(items[i]);
  return defer(real, {}, function_object<pack_items>("pack"), items);
}

// The dict of a function's ** arguments: deferred itself where deferred numbers are among them. The
// symbol of a size is an item like any other.
py::object Numbers::pack_named(const Keywords& items) {
  static PyMethodDef method = {
      "pack_named",
      +[](PyObject* keys, PyObject* given) {
        PyObject* out = PyDict_New();
        for (Py_ssize_t i = 0; out != nullptr && i < PyTuple_GET_SIZE(given); i++)
          if (PyDict_SetItem(out, PyTuple_GET_ITEM(keys, i), PyTuple_GET_ITEM(given, i)) != 0)
            Py_CLEAR(out);
        return out;
      },
      METH_VARARGS, nullptr};
  const bool deferred = std::ranges::any_of(
      items, [this](const py::object& value) { return must_be_packed(value); },
      &Keywords::value_type::second);
  py::dict real;
  py::tuple keys(items.size());
  Arguments parts;
  for (const auto& [key, value] : items) {
    real[key] = deferred ? real_of(value) : value;
    keys[parts.size()] = key;
    parts.push_back(value);
  }
  if (!deferred) return std::move(real);
  return defer(real, {}, steal(PyCFunction_New(&method, keys.ptr())), std::move(parts));
}

Keywords Numbers::unpack_named(const py::object& packed) {
  const Arguments values = unpack_numbers(packed);
  Keywords out;
  for (auto [key, value] : py::reinterpret_borrow<py::dict>(deferred_.at(packed.ptr()).real))
    out.emplace_back(borrow(key), values[out.size()]);
  return out;
}

// kwargs["name"]; null where that is not what it is.
py::object Numbers::packed_item(const py::object& packed, const py::object& key) {
  if (!is_packed(packed) || !PyUnicode_CheckExact(key.ptr())) return {};
  const Deferred& deferred = deferred_.at(packed.ptr());
  if (deferred.source.valid() || !PyDict_CheckExact(deferred.real.ptr())) return {};
  const py::object keys = borrow(PyCFunction_GET_SELF(deferred.function.ptr()));
  for (size_t i = 0; i < deferred.parts.size(); i++)
    if (PyUnicode_Compare(PyTuple_GET_ITEM(keys.ptr(), i), key.ptr()) == 0)
      return deferred.parts[i];
  return {};
}

// What is in a packed tuple or dict, varying numbers deferred.
Arguments Numbers::unpack_numbers(const py::object& packed) {
  const Deferred deferred = deferred_.at(packed.ptr());
  if (!deferred.source.valid()) return deferred.parts;
  Arguments out;
  auto add = [&](py::handle item, SourceId from) {
    takes = Takes::Varying;
    out.push_back(heap().wrap(item, from));
  };
  heap().guard(GuardKind::TypeIs, deferred.source, py::type::of(deferred.real));
  if (PyTuple_CheckExact(deferred.real.ptr())) {
    heap().guard(GuardKind::Length, deferred.source, {}, PyTuple_GET_SIZE(deferred.real.ptr()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(deferred.real.ptr()); i++)
      add(PyTuple_GET_ITEM(deferred.real.ptr(), i), heap().sources.item(deferred.source, i));
  } else {
    heap().guard(GuardKind::Keys, deferred.source, py::tuple(py::list(deferred.real)));
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(deferred.real))
      add(value, heap().sources.dict_item(deferred.source, key));
  }
  takes = Takes::Read;
  return out;
}

// Whether a tuple or a dict of arguments has numbers that vary.
bool Numbers::holds_varying(py::handle arguments, SourceId source) {
  PyObject* p = arguments.ptr();
  if (varying.empty()) return false;
  if (PyDict_CheckExact(p))
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(p))
      if (is_number(value.ptr()) && PyUnicode_CheckExact(key.ptr()) &&
          is_varying(heap().sources.dict_item(source, key)))
        return true;
  for (Py_ssize_t i = 0; PyTuple_CheckExact(p) && i < PyTuple_GET_SIZE(p); i++)
    if (is_number(PyTuple_GET_ITEM(p, i)) && is_varying(heap().sources.item(source, i)))
      return true;
  return false;
}

// Reads what the next instruction looks at.
void Numbers::read_arguments(TracedFrame& f) {
  auto read_top = [&](size_t n) {
    for (py::object& o : std::span(f.stack).last(n)) o = carried(o);
  };
  const auto& code = f.bytecode->instructions;
  const Instruction& i = code[f.next];
  if (kLooksAtNothing[i.op]) return;
  const int operation = binary_operator_of(i.op, i.arg);
  if (operation >= 0) {
    const char* name = binary_operator_name(static_cast<uint32_t>(operation));
    const auto operands = std::span(f.stack).last(2);
    if (makes_text(static_cast<uint32_t>(operation), operands[0], operands[1])) return;
    if (!goes_on_counting(f) && !takes_runtime_numbers(name, std::span(f.stack).last(2), {}))
      for (py::object& o : std::span(f.stack).last(2)) o = read(o);
    return;
  }
  switch (i.op) {
    case MAKE_CELL:
      if (!is_packed(f.fast[i.arg])) f.fast[i.arg] = carried(f.fast[i.arg]);
      return;
    case CALL_FUNCTION_EX:
      return hands_on_packed(f, (i.arg & 1) != 0) ? void() : read_top(f.stack.size());
    case LOAD_ATTR:
    case LOAD_METHOD:
    case STORE_ATTR:
      if (const auto plain = settings_in_schedule({f.stack.back()})) f.stack.back() = (*plain)[0];
      return read_top(1);
    case BINARY_SUBSCR:
      f.stack.back() = read(f.stack.back());
      return packed_item(f.stack[f.stack.size() - 2], f.stack.back()) ? void() : read_top(2);
    case BUILD_TUPLE:  // a result is rebuilt from its items
      if (code[f.next + 1].op == RETURN_VALUE && frames().stack().size() == 1) return;
      [[fallthrough]];
    case BUILD_LIST:
    case BUILD_MAP:
    case BUILD_CONST_KEY_MAP: {
      const bool result = builds_result(f);
      const size_t n = parts_of_container(i.op, i.arg);
      for (size_t at = 0; at < n; at++) {
        py::object& o = f.stack[f.stack.size() - n + at];
        const bool key = i.op == BUILD_MAP && at % 2 == 0;
        if (key)
          o = read(settings_in_schedule({o}).value_or(Arguments{o})[0]);
        else if (!result || !is_of_data(o))
          o = carried(o);
      }
      return;
    }
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_TRUE:
      if (!is_of_data(f.stack.back())) return read_top(f.stack.size());
      for (py::object& o : std::span(f.stack).first(f.stack.size() - 1)) o = carried(o);
      return;  // which may be taken for granted
    case JUMP_IF_FALSE_OR_POP:
    case JUMP_IF_TRUE_OR_POP:
    case UNARY_NOT:
    case TO_BOOL:
      if (i.op == TO_BOOL && takes_bool(code[f.next + 1].op)) return;
      refuse_truth(f.stack.back());
      return read_top(f.stack.size());
    case DICT_MERGE: {  // {**kwargs} for a call
      const py::object& into = f.stack[f.stack.size() - 1 - i.arg];
      const bool merges = is_packed(f.stack.back()) && code[f.next + 1].op == CALL_FUNCTION_EX &&
                          into && PyDict_CheckExact(into.ptr()) &&
                          PyDict_GET_SIZE(into.ptr()) == 0 && heap().tracked(into) == nullptr;
      return merges ? void() : read_top(1 + i.arg);
    }
    case STORE_SUBSCR: {  // of a dict that was there before it stays
      read_top(2);
      const py::object& dict = f.stack[f.stack.size() - 2];
      const bool stays = heap().exists(dict) && PyDict_Check(dict.ptr()) &&
                         !objects().special_method(dict, names().setitem_);
      return stays ? void() : read_top(3);
    }
    case FORMAT_VALUE:
    case FORMAT_WITH_SPEC:
    case FORMAT_SIMPLE:
    case CONVERT_VALUE: {
      const size_t below = i.op == FORMAT_WITH_SPEC || (i.op == FORMAT_VALUE && i.arg & 4) ? 1 : 0;
      read_top(below);
      return is_deferred_text(f.stack[f.stack.size() - 1 - below]) ? void() : read_top(1 + below);
    }
    case BUILD_STRING:
      return;
    case BUILD_SLICE:
      return read_top(i.arg);
    case UNARY_NEGATIVE:
      return is_runtime_number(f.stack.back()) || is_symbolic_float(f.stack.back()) ? void()
                                                                                    : read_top(1);
    case CALL:
    case CALL_METHOD:
    case CALL_FUNCTION:
      if (is_called_deferred(f, i.arg) || hands_on_numbers(f, i.arg)) return;
      return read_top(i.arg + (i.op == CALL_FUNCTION ? 1 : 2));
    case CALL_FUNCTION_KW:
    case CALL_KW: {  // the names are on the stack
      f.kwnames = std::move(f.stack.back());
      f.stack.pop_back();
      const bool stay = hands_on_numbers(f, i.arg);
      f.stack.push_back(std::exchange(f.kwnames, {}));
      return stay ? void() : read_top(i.arg + (i.op == CALL_KW ? 3 : 2));
    }
    case RETURN_VALUE:
      if (frames().stack().size() == 1 ||
          (f.direct && (is_runtime_number(f.stack.back()) || is_deferred_text(f.stack.back()))))
        return;
      return read_top(1);
    default:
      return read_top(f.stack.size());
  }
}

}  // namespace oxy::python
