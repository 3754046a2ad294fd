// From the arguments of a Python call to the stack of its op.
#include "python/sized_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>

#include "python/cpython/boundary.h"
#include "python/op_packets.h"

namespace oxy::python {
namespace {

constexpr std::string_view kFunctions[] = {"bartlett_window", "blackman_window", "hamming_window",
                                           "hann_window",     "linspace",        "logspace",
                                           "tril_indices",    "triu_indices",    "vander"};

// torch.linspace, torch.ops.aten.linspace, torch.ops.aten.linspace.default: the function's name
// alone; empty for others.
std::string_view sized_function(std::string_view name) {
  for (const std::string_view prefix : {"torch.ops.aten.", "torch."}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (name.ends_with(".default")) name.remove_suffix(8);
    return std::ranges::find(kFunctions, name) == std::end(kFunctions) ? "" : name;
  }
  return "";
}

// By type: isinstance would ask the object, whose class may answer with Python code.
bool is_symbol(py::handle o) {
  return PyObject_TypeCheck(o.ptr(), as_type(member_of<"torch", "SymInt">())) != 0;
}

bool is_index(py::handle o) {
  if (!THPVariable_Check(o.ptr())) return false;
  const at::Tensor& t = THPVariable_Unpack(o.ptr());
  return t.dim() == 0 && at::isIntegralType(t.scalar_type(), false);
}

bool takes_number(const c10::Argument& formal) {
  c10::TypePtr type = formal.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::NumberType;
}

// Nothing for what the argument does not take.
std::optional<c10::IValue> ivalue_of(py::handle given, const c10::Argument& formal) {
  if (is_symbol(given) && takes_number(formal)) return c10::IValue(given.cast<c10::SymInt>());
  if (is_index(given) && formal.real_type()->kind() == c10::TypeKind::IntType)
    return c10::IValue(THPVariable_Unpack(given.ptr()).item().toSymInt());
  try {
    return torch::jit::toIValue(given, formal.real_type(), formal.N());
  } catch (const std::exception&) {
    PyErr_Clear();
    return std::nullopt;
  }
}

// Nothing where the call has other arguments than the op, such as out=.
std::optional<torch::jit::Stack> stack_of(const c10::FunctionSchema& schema, const py::tuple& args,
                                          const py::dict& kwargs) {
  torch::jit::Stack stack;
  size_t named = 0;
  for (const c10::Argument& formal : schema.arguments()) {
    const size_t i = stack.size();
    py::object given;
    if (i < args.size() && !formal.kwarg_only()) {
      given = args[i];
    } else if (kwargs.contains(formal.name())) {
      given = kwargs[formal.name().c_str()];
      named++;
    }
    if (!given && !formal.default_value()) return std::nullopt;
    auto value = given ? ivalue_of(given, formal) : formal.default_value();
    if (!value) return std::nullopt;
    stack.push_back(std::move(*value));
  }
  const auto positional = std::ranges::count_if(
      schema.arguments(), [](const c10::Argument& formal) { return !formal.kwarg_only(); });
  if (named != kwargs.size() || args.size() > static_cast<size_t>(positional)) return std::nullopt;
  return stack;
}

// The overload that takes these arguments, and its stack.
struct SizedCall {
  c10::OperatorHandle op;
  torch::jit::Stack stack;
};
std::optional<SizedCall> sized_call(std::string_view function, bool any_overload,
                                    const py::tuple& args, const py::dict& kwargs) {
  for (const char* overload : {"", "periodic"}) {
    if (!any_overload && *overload != '\0') break;
    const auto op =
        c10::Dispatcher::singleton().findSchema({"aten::" + std::string(function), overload});
    if (!op) continue;
    if (auto stack = stack_of(op->schema(), args, kwargs)) return SizedCall{*op, std::move(*stack)};
  }
  return std::nullopt;
}

}  // namespace

PyObject* call_with_sizes(std::string_view name, py::handle function, const py::tuple& args,
                          py::handle kwargs) {
  auto body = [&]() -> PyObject* {
    const std::string_view sized = sized_function(name);
    const auto named = kwargs && !sized.empty() ? borrow(kwargs).cast<py::dict>() : py::dict();
    auto is_size = [](py::handle o) { return is_symbol(o) || is_index(o); };
    auto has_symbol = [&](const auto& item) { return is_size(item.second); };
    if (!sized.empty() && (std::any_of(args.begin(), args.end(), is_size) ||
                           std::any_of(named.begin(), named.end(), has_symbol)))
      if (auto call = sized_call(sized, !name.ends_with(".default"), args, named)) {
        call->op.callBoxed(call->stack);
        return THPVariable_Wrap(call->stack.back().toTensor());
      }
    return PyObject_Call(overload_of(function, args, kwargs).ptr(), args.ptr(), kwargs.ptr());
  };
  return boundary(body, nullptr);
}

}  // namespace oxy::python
