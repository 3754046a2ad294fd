// Floats and truths that captured code reads of tensors (Tensor.item), where torch's settings let
// it: a call knows them behind its graph. Truths are deferred like numbers that nobody has looked
// at (deferred_numbers.cpp), floats may lie anywhere (symbolic_float.h). What Python makes of a
// float is done by Python behind the graph; where one meets a tensor, the graph computes it, in
// f64.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <cmath>

#include "python/capture/capture.h"
#include "python/cpython/opcodes.h"
#include "python/transform_levels.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {

size_t parts_of_container(uint8_t op, uint32_t arg) {
  return op == BUILD_MAP ? 2 * arg : op == BUILD_CONST_KEY_MAP ? arg + 1 : arg;
}

bool Numbers::asks_for_item(const TracedFrame& f) const {
  const Instruction& i = f.bytecode->instructions[f.next];
  if (i.op != CALL && i.op != CALL_METHOD && i.op != CALL_FUNCTION) return false;
  const auto [callable, self] = next_callee(f, i.arg);
  if (callable.is(type_object(&PyFloat_Type)) || callable.is(type_object(&PyBool_Type)))
    return !f.kwnames && i.arg == 1 &&
           (heap().is_tensor(f.stack.back()) || is_array(f.stack.back()));
  if (!PyCFunction_Check(callable.ptr())) return false;
  const auto* method = reinterpret_cast<PyCFunctionObject*>(callable.ptr())->m_ml;
  if (has_word("equal allclose", method->ml_name)) return true;
  if (f.kwnames || i.arg != 0 || self) return false;
  const py::object of = borrow(PyCFunction_GET_SELF(callable.ptr()));
  return of && heap().is_tensor(of) && std::string_view(method->ml_name) == "item";
}

Done Numbers::comparison_of_data(std::string_view name, const Arguments& args,
                                 const Keywords& kwargs) {
  const bool equal = name == "torch.equal" && args.size() == 2 && kwargs.empty();
  if (!item_asked || !(equal || name == "torch.allclose") || args.size() < 2) return std::nullopt;
  for (const py::object& o : std::span(args).first(2))
    if (!heap().is_tensor(o) || bridge::is_symbolic(THPVariable_Unpack(o.ptr())))
      return std::nullopt;
  const auto sizes_of = [&](size_t i) { return THPVariable_Unpack(args[i].ptr()).sizes(); };
  if (equal && sizes_of(0) != sizes_of(1)) return py::bool_(false);
  const py::object same = equal ? objects().compare(args[0], args[1], Py_EQ)
                                : calls().call(member_of<"torch", "isclose">(), args, kwargs);
  if (!heap().is_tensor(same)) return std::nullopt;
  const py::object answer = number_of_graph(calls().call_method(same, "all", {}, {}), true);
  return answer ? Done(answer) : std::nullopt;
}

// A copy of the tensor, which nothing writes to, holds it.
py::object Numbers::number_of_data(const py::object& tensor, bool truths) {
  const bool truth = THPVariable_Unpack(tensor.ptr()).scalar_type() == at::kBool;
  const bool asked = truth ? item_asked : sizes().of_data().numbers;
  return asked ? number_of_graph(tensor, truths) : py::object();
}

py::object Numbers::number_of_graph(const py::object& tensor, bool truths) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const bool truth = t.scalar_type() == at::kBool;
  if (graphs().inner() != nullptr || bridge::is_symbolic(t) || t.numel() != 1 ||
      !(truth ? truths : at::isFloatingType(t.scalar_type())))
    return {};
  numbers_of_data_ = sizes().met_number = true;
  py::object copy = calls().call_method(tensor, "detach", {}, {});
  if (t.dim() != 0) copy = calls().call_method(copy, "reshape", {py::tuple()}, {});
  const py::object& dtype = truth ? member_of<"torch", "bool">() : member_of<"torch", "float64">();
  copy = calls().call_method(copy, "to", {dtype}, {{py::str("copy"), py::bool_(true)}});
  const py::object out = defer(truth ? py::object(py::bool_(true)) : py::object(py::float_(1.5)),
                               {}, member_of<"torch", "Tensor">().attr("item"), {copy});
  const auto same = [&](const auto& named) { return named.second.starts_with(truth ? "u" : "z"); };
  names_of_data_[out.ptr()] = cat(truth ? "u" : "zuf", std::ranges::count_if(names_of_data_, same));
  return out;
}

bool Numbers::assume_truth(const py::object& tensor, bool truth) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (!sizes().takes_checks() || graphs().inner() != nullptr || is_wrapped(t) ||
      bridge::is_symbolic(t) || t.numel() != 1)
    return false;
  const py::object number =
      calls().call_method(calls().call_method(tensor, "ne", {py::int_(0)}, {}), "to",
                          {member_of<"torch", "int64">()}, {});
  graphs().recorder().allow_read(THPVariable_Unpack(number.ptr()));
  const py::object read = graphs().record(ir::NodeKind::CallMethod, "item", {}, {number}, {});
  const py::object holds = objects().compare(read, py::int_(truth ? 1 : 0), Py_EQ);
  return PyBool_Check(holds.ptr()) ? holds.is(py::bool_(true)) : sizes().assume(holds);
}

bool Numbers::assume_number(const py::object& o, bool truth) {
  const Deferred number = *find(o);
  const std::string name = text(number.function.attr("__name__"));
  const auto sign = std::ranges::find(kComparisons, name);
  const bool item = PyBool_Check(number.real.ptr()) && heap().is_tensor(number.parts[0]);
  py::object answer;
  if (item || is_graph_number(o))
    answer = graph_number(o);
  else if (sign != kComparisons.end() && std::ranges::all_of(number.parts, [&](const auto& part) {
             return is_graph_number(part);
           }))
    answer = objects().compare(graph_number(number.parts[0]), graph_number(number.parts[1]),
                               static_cast<int>(sign - kComparisons.begin()));
  return answer && heap().is_tensor(answer) && assume_truth(answer, truth);
}

constexpr const char* kSigns[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};  // by Py_LT ...

// As torch writes what it cannot decide: `2.0*zuf0 + 1.0`.
std::string Numbers::data_text(const py::object& o) const {
  const Deferred* found = find(o);
  if (!found) return text(py::repr(o));
  if (const auto it = names_of_data_.find(o.ptr()); it != names_of_data_.end()) return it->second;
  const std::string name = text(found->function.attr("__name__"));
  if (found->parts.size() == 1)
    return name == "neg" ? cat("-", data_text(found->parts[0]))
                         : cat(name, "(", data_text(found->parts[0]), ")");
  if (found->parts.size() != 2) return text(py::repr(found->real));
  if (const auto it = std::ranges::find(kComparisons, name); it != kComparisons.end())
    return cat(data_text(found->parts[0]), kSigns[it - kComparisons.begin()],
               data_text(found->parts[1]));
  const bool sum = name.ends_with("add") || name.ends_with("sub");
  const char* sign = name.ends_with("add")   ? " + "
                     : name.ends_with("sub") ? " - "
                     : name.ends_with("mul") ? "*"
                     : name.ends_with("div") ? "/"
                                             : nullptr;
  if (sign == nullptr)
    return cat(name, "(", data_text(found->parts[0]), ", ", data_text(found->parts[1]), ")");
  auto part = [&](const py::object& p) {
    const Deferred* inner = find(p);
    const bool apart = !sum && inner && inner->parts.size() == 2;
    return apart ? cat("(", data_text(p), ")") : data_text(p);
  };
  return cat(part(found->parts[0]), sign, part(found->parts[1]));
}

// Code that goes one way or another by what a tensor will hold.
void Numbers::refuse_branch(const std::string& question) {
  throw Break(BreakId::undecided, cat("Could not guard on data-dependent expression ", question,
                                      " (unhinted: ", question, ")"));
}

void Numbers::refuse_truth(const py::object& o) const {
  if (!is_of_data(o)) return;
  if (find(o)->parts.size() == 2 && PyBool_Check(find(o)->real.ptr())) refuse_branch(data_text(o));
  const bool truth = PyBool_Check(find(o)->real.ptr());
  refuse_branch(truth ? cat("Eq(", data_text(o), ", 1)") : cat("Ne(", data_text(o), ", 0.0)"));
}

// Whether what the next instruction makes becomes a part of the call's result, and nothing looks
// into it on the way there: the code up to the return is followed, with where it may be.
bool Numbers::builds_result(const TracedFrame& f) const {
  if (!numbers_of_data_ || frames().stack().size() != 1) return false;
  const auto& code = f.bytecode->instructions;
  std::vector<bool> stack{true};  // those above what was there before, which it is not among
  std::vector<bool> locals(f.fast.size());
  auto pop = [&](size_t n) {
    bool has = false;
    for (; n > 0 && !stack.empty(); n--, stack.pop_back()) has = has || stack.back();
    return has;
  };
  for (size_t at = f.next + 1; at < code.size(); at++) {
    const auto [op, arg] = std::pair(code[at].op, code[at].arg);
    const int operation = binary_operator_of(op, arg);
    if (op == RETURN_VALUE) return true;
    if (op == BUILD_TUPLE || op == BUILD_LIST || op == BUILD_MAP || op == BUILD_CONST_KEY_MAP) {
      stack.push_back(pop(parts_of_container(op, arg)));
    } else if (op == STORE_FAST) {
      locals[arg] = pop(1);
    } else if (op == LOAD_FAST) {
      stack.push_back(locals[arg]);
    } else if (op == LOAD_CONST || op == LOAD_GLOBAL || op == LOAD_DEREF || op == PUSH_NULL) {
      stack.insert(stack.end(), static_cast<size_t>(stack_effect(op, arg, false)), false);
    } else if (op == LOAD_ATTR || op == LOAD_METHOD) {
      if (pop(1)) return false;
      stack.insert(stack.end(), static_cast<size_t>(1 + stack_effect(op, arg, false)), false);
    } else if (op == CALL || op == CALL_METHOD || op == CALL_FUNCTION || operation >= 0) {
      if (pop(operation >= 0 ? 2 : op == CALL_FUNCTION ? arg + 1 : arg + 2)) return false;
      stack.push_back(false);
    } else if (op != PRECALL && op != NOP) {
      return false;
    }
  }
  return false;
}

bool Numbers::is_of_data(const py::object& o) const {
  const Deferred* found = numbers_of_data_ ? find(o) : nullptr;
  return found && found->of_data;
}

namespace {

// What Python makes of one float and torch of a tensor in f64, under one name.
constexpr std::string_view kOfOne =
    "neg abs sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc";
constexpr std::string_view kOfTwo = "add sub mul truediv floordiv mod pow";
// Those that raise for no floats, also functions that the graph has not.
constexpr std::string_view kTotal =
    "add sub mul neg abs float fabs min max copysign atan atan2 tanh erf erfc degrees radians "
    "asinh sum round";

// Of a function of the modules `operator`, `math` or `builtins`.
std::string name_in_graph(py::handle function) {
  auto name = text(function.attr("__name__"));
  if (name.starts_with("i") && has_word(kOfTwo, std::string_view(name).substr(1)))
    name.erase(0, 1);  // in place
  return name == "fabs" ? "abs" : name;
}

bool is_extreme(std::string_view name) { return name == "min" || name == "max"; }

bool is_constant_nonzero(py::handle o) {
  return is_number(o.ptr()) && PyObject_IsTrue(o.ptr()) == 1;
}

}  // namespace

std::optional<py::object> Numbers::float_of_data(const py::object& function,
                                                 const Arguments& args) {
  if (steps_with(args) > kMostSteps) return std::nullopt;
  const std::string name = name_in_graph(function);
  for (const py::object& a : args)
    if (!a || !(is_symbolic_float(a) || is_symbolic_int(a) || PyFloat_CheckExact(a.ptr()) ||
                PyLong_CheckExact(a.ptr())))
      return std::nullopt;
  if (name == "round" && (args.size() != 2 || !PyLong_CheckExact(args[1].ptr()) ||
                          PyObject_RichCompareBool(args[1].ptr(), py::int_(0).ptr(), Py_GE) != 1))
    return std::nullopt;
  const bool total = has_word(kTotal, name) || (name == "truediv" && is_constant_nonzero(args[1]));
  if (!total && !has_word(kOfOne, name) && !has_word(kOfTwo, name)) return std::nullopt;
  py::object made = defer(py::float_(1.5), {}, function, args);
  // Where Python raises, torch gives what is not finite: such calls run in eager.
  if (!total && (!is_graph_number(made) ||
                 !assume_truth(calls().call_method(graph_number(made), "isfinite", {}, {}), true)))
    return std::nullopt;
  return made;
}

// What the extreme of a float and an int gives, and sums and the like of such.
bool Numbers::may_be_int(const py::object& o) const {
  if (is_symbolic_int(o) || PyLong_CheckExact(o.ptr())) return true;
  const Deferred* found = is_of_data(o) ? find(o) : nullptr;
  if (!found || heap().is_tensor(found->parts[0])) return false;
  auto part_may = [this](const py::object& part) { return may_be_int(part); };
  const std::string name = name_in_graph(found->function);
  if (is_extreme(name)) return std::ranges::any_of(found->parts, part_may);
  return has_word("add sub mul neg abs floordiv mod pow sum round", name) &&
         std::ranges::all_of(found->parts, part_may);
}

// Such a float as an int: the graph rounds it.
std::optional<py::object> Numbers::whole_of_data(const py::object& o, Rounding how) {
  constexpr double kMostExact = 0x1p53;
  if (!is_of_data(o) || !is_graph_number(o) || !sizes().of_data().numbers) return std::nullopt;
  const char* method = how == Rounding::Down     ? "floor"
                       : how == Rounding::Up     ? "ceil"
                       : how == Rounding::ToZero ? "trunc"
                                                 : "round";
  const py::object whole = calls().call_method(graph_number(o), method, {}, {});
  const py::object fits =
      objects().compare(calls().call_method(whole, "abs", {}, {}), py::float_(kMostExact), Py_LT);
  if (!assume_truth(fits, true)) return std::nullopt;
  const py::object number =
      sizes().number_in(calls().call_method(whole, "to", {member_of<"torch", "int64">()}, {}));
  return number ? std::optional(number) : std::nullopt;
}

// Whether arithmetic of the graph gives such a float: in f64, as Python's.
bool Numbers::is_graph_number(const py::object& o) const {
  constexpr double kMostExact = 0x1p53;
  if (PyFloat_CheckExact(o.ptr()) || is_symbolic_int(o)) return true;
  if (PyLong_CheckExact(o.ptr())) {
    const double value = PyLong_AsDouble(o.ptr());
    if (value == -1.0) PyErr_Clear();
    return std::abs(value) <= kMostExact;
  }
  const Deferred* found = find(o);
  if (!found || !PyFloat_CheckExact(found->real.ptr())) return false;
  if (!found->of_data) return is_symbolic_float(o) && is_runtime_number(o);
  if (heap().is_tensor(found->parts[0])) return true;
  const std::string name = name_in_graph(found->function);
  const bool known = has_word(kOfOne, name) || has_word(kOfTwo, name) || is_extreme(name) ||
                     name == "float" || (name == "sum" && !kSumsCompensate);
  return known && std::ranges::all_of(found->parts, [this](const py::object& part) {
           return is_graph_number(part);
         });
}

py::object Numbers::graph_number(const py::object& o) {
  if (!find(o)) return o;
  const Deferred deferred = *find(o);
  if (!deferred.of_data) return number_input(o, {at::kDouble, false});
  if (heap().is_tensor(deferred.parts[0])) return deferred.parts[0];
  const std::string name = name_in_graph(deferred.function);
  Arguments parts;
  for (const py::object& part : deferred.parts) parts.push_back(graph_number(part));
  if (name == "float") return parts[0];
  if (has_word(kOfOne, name)) return calls().call_method(parts[0], name, {}, {});
  auto function = [](const char* of) { return py::module_::import("operator").attr(of); };
  if (has_word(kOfTwo, name)) return objects().operate(function(name.c_str()), parts);
  py::object out = parts[0];
  for (const py::object& part : std::span(parts).subspan(1)) {
    if (!is_extreme(name)) {
      out = objects().operate(function("add"), {out, part});
      continue;
    }
    // The first of equal ones, and of those beside a NaN, as Python goes through them.
    const py::object better = objects().compare(part, out, name == "min" ? Py_LT : Py_GT);
    out = heap().is_tensor(better)
              ? calls().call(member_of<"torch", "where">(), {better, part, out})
              : (objects().truth(better) ? part : out);
  }
  return out;
}

// What the graph has computed. `plain`: where torch takes a number, and may refuse to convert it.
py::object Numbers::tensor_of_data(const py::object& o, NumberDtype dtype, bool plain) {
  py::object out = graph_number(o);
  const auto most = dtype.fits == at::kFloat      ? std::optional(0x1.fffffep127)
                    : dtype.fits == at::kHalf     ? std::optional(65504.0)
                    : dtype.fits == at::kBFloat16 ? std::optional(0x1.fep127)
                                                  : std::nullopt;
  if (plain && most) {
    const py::object fits =
        objects().compare(calls().call_method(out, "abs", {}, {}), py::float_(*most), Py_LE);
    if (!assume_truth(fits, true)) throw Break(BreakId::data_dependent, "Tensor.item");
  }
  if (dtype.same && dtype.fits != at::kDouble)
    out = calls().call_method(
        out, "to", {borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype.fits)))}, {});
  if (plain) graphs().recorder().allow_number(THPVariable_Unpack(out.ptr()), 1.5);
  return out;
}

}  // namespace oxy::python
