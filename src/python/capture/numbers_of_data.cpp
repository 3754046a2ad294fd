// Floats and truths that captured code reads of tensors (Tensor.item), where torch's settings let
// it: a call knows them behind its graph. They are deferred like numbers that nobody has looked at
// (deferred_numbers.cpp); where a float meets a tensor, the graph computes it, in f64 as Python
// does.
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
  if ((i.op != CALL && i.op != CALL_METHOD && i.op != CALL_FUNCTION) || f.kwnames) return false;
  const auto [callable, self] = next_callee(f, i.arg);
  if (callable.is(type_object(&PyFloat_Type)))
    return i.arg == 1 && (heap().is_tensor(f.stack.back()) || is_array(f.stack.back()));
  if (i.arg != 0 || self || !PyCFunction_Check(callable.ptr())) return false;
  const py::object of = borrow(PyCFunction_GET_SELF(callable.ptr()));
  const auto* method = reinterpret_cast<PyCFunctionObject*>(callable.ptr())->m_ml;
  return of && heap().is_tensor(of) && std::string_view(method->ml_name) == "item";
}

// A copy of the tensor, which nothing writes to, holds it.
py::object Numbers::number_of_data(const py::object& tensor, bool truths) {
  return item_asked ? number_of_graph(tensor, truths) : py::object();
}

py::object Numbers::number_of_graph(const py::object& tensor, bool truths) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const bool truth = t.scalar_type() == at::kBool;
  if (graphs().inner() != nullptr || bridge::is_symbolic(t) || t.numel() != 1 ||
      !(truth ? truths : at::isFloatingType(t.scalar_type())))
    return {};
  numbers_of_data_ = true;
  py::object copy = calls().call_method(tensor, "detach", {}, {});
  if (t.dim() != 0) copy = calls().call_method(copy, "reshape", {py::tuple()}, {});
  const py::object& dtype = truth ? member_of<"torch", "bool">() : member_of<"torch", "float64">();
  copy = calls().call_method(copy, "to", {dtype}, {{py::str("copy"), py::bool_(true)}});
  const py::object out = defer(truth ? py::object(py::bool_(true)) : py::object(py::float_(1.5)),
                               {}, member_of<"torch", "Tensor">().attr("item"), {copy});
  deferred_.at(out.ptr()).of_data = true;
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

constexpr const char* kSigns[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};  // by Py_LT ...

// As torch writes what it cannot decide: `2.0*zuf0 + 1.0`.
std::string Numbers::data_text(const py::object& o) const {
  const Deferred* found = find(o);
  if (!found) return text(py::repr(o));
  if (const auto it = names_of_data_.find(o.ptr()); it != names_of_data_.end()) return it->second;
  if (found->parts.size() == 1) return cat("-", data_text(found->parts[0]));
  if (found->parts.size() != 2) return text(py::repr(found->real));
  const std::string name = text(found->function.attr("__name__"));
  if (const auto it = std::ranges::find(kComparisons, name); it != kComparisons.end())
    return cat(data_text(found->parts[0]), kSigns[it - kComparisons.begin()],
               data_text(found->parts[1]));
  const bool sum = name.ends_with("add") || name.ends_with("sub");
  const char* sign = name.ends_with("add")   ? " + "
                     : name.ends_with("sub") ? " - "
                     : name.ends_with("mul") ? "*"
                                             : "/";
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

// Whether arithmetic of the graph gives such a float: in f64, as Python's.
bool Numbers::is_graph_number(const py::object& o) const {
  constexpr double kMostExact = 0x1p53;
  if (PyFloat_CheckExact(o.ptr())) return true;
  if (PyLong_CheckExact(o.ptr())) {
    const double value = PyLong_AsDouble(o.ptr());
    if (value == -1.0) PyErr_Clear();
    return std::abs(value) <= kMostExact;
  }
  const Deferred* found = find(o);
  if (!found || !found->of_data || !PyFloat_CheckExact(found->real.ptr())) return false;
  if (heap().is_tensor(found->parts[0])) return true;
  return std::ranges::all_of(found->parts,
                             [this](const py::object& part) { return is_graph_number(part); });
}

py::object Numbers::graph_number(const py::object& o) {
  if (!find(o)) return o;
  const Deferred deferred = *find(o);
  if (heap().is_tensor(deferred.parts[0])) return deferred.parts[0];
  auto name = text(deferred.function.attr("__name__"));
  if (name.starts_with("i")) name.erase(0, 1);  // in place
  Arguments parts;
  for (const py::object& part : deferred.parts) parts.push_back(graph_number(part));
  return objects().operate(py::module_::import("operator").attr(name.c_str()), parts);
}

// What the graph has computed.
py::object Numbers::tensor_of_data(const py::object& o, NumberDtype dtype) {
  py::object out = graph_number(o);
  if (dtype.same && dtype.fits != at::kDouble)
    out = calls().call_method(
        out, "to", {borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype.fits)))}, {});
  number_inputs_.emplace(std::pair(o.ptr(), dtype), out);
  return out;
}

}  // namespace oxy::python
