// Numbers as inputs of graphs: how captured code comes to one, and what a call gives for it.
#include "python/capture/number_input.h"

#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <limits>
#include <unordered_set>

#include "python/capture/handles.h"
#include "python/capture/tracer.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// Operators and methods on a tensor and a number for which a tensor without dimensions does what the number does, as long
// as the result keeps its dtype. Powers have kernels of their own for some numbers.
bool takes_number(std::string_view name, size_t position) {
  static const std::unordered_set<std::string_view> either = {"add", "sub", "mul", "gt", "lt",
                                                              "ge",  "le",  "eq",  "ne"};
  static const std::unordered_set<std::string_view> second = {
      "iadd", "isub", "imul", "itruediv", "div", "true_divide", "add_", "sub_", "mul_", "div_"};
  if (name == "truediv") return true;  // n / x: see Tracer::operate
  return second.contains(name) ? position == 1 : either.contains(name);
}

// torch.mul, operator.mul, mul
std::string_view last_word(std::string_view target) {
  const size_t dot = target.rfind('.');
  return dot == std::string_view::npos ? target : target.substr(dot + 1);
}

bool divides(std::string_view word) { return word.find("div") != std::string_view::npos; }

bool is_within(double value, at::ScalarType dtype) {
  if (!std::isfinite(value)) return true;
  const double most = dtype == at::kHalf     ? 65504.0
                      : dtype == at::kDouble ? std::numeric_limits<double>::max()
                      : dtype == at::kFloat
                          ? std::numeric_limits<float>::max()
                          : static_cast<double>(std::numeric_limits<at::BFloat16>::max());
  return std::abs(value) <= most;
}

bool is_within(int64_t value, at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return is_within(static_cast<double>(value), dtype);
  bool within = false;
  AT_DISPATCH_INTEGRAL_TYPES(dtype, "number", [&] {
    within = value >= std::numeric_limits<scalar_t>::min() &&
             value <= std::numeric_limits<scalar_t>::max();
  });
  return within;
}

}  // namespace

py::object NumberTree::value(std::span<PyObject* const> objects) const {
  if (constant) return constant;
  if (!function) return py::reinterpret_borrow<py::object>(objects[fetched]);
  std::vector<py::object> values;
  std::vector<PyObject*> arguments;
  for (const NumberTree& part : parts) {
    values.push_back(part.value(objects));
    if (!values.back()) return {};
    arguments.push_back(values.back().ptr());
  }
  PyObject* made = PyObject_Vectorcall(function.ptr(), arguments.data(), arguments.size(), nullptr);
  if (made == nullptr) PyErr_Clear();
  return py::reinterpret_steal<py::object>(made);
}

void NumberTree::shift(uint32_t by) {
  fetched += by;
  for (NumberTree& part : parts) part.shift(by);
}

int NumberTree::traverse(visitproc visit, void* arg) const {
  Py_VISIT(constant.ptr());
  Py_VISIT(function.ptr());
  for (const NumberTree& part : parts)
    if (int stop = part.traverse(visit, arg)) return stop;
  return 0;
}

std::optional<at::Tensor> number_as_tensor(py::handle number, at::ScalarType fits) {
  if (PyFloat_CheckExact(number.ptr())) {
    const double value = PyFloat_AS_DOUBLE(number.ptr());
    if (!is_within(value, fits)) return std::nullopt;
    return at::detail::scalar_tensor_static(value, at::kDouble, at::kCPU);
  }
  if (!PyLong_CheckExact(number.ptr())) return std::nullopt;
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || !is_within(value, fits)) return std::nullopt;
  return at::detail::scalar_tensor_static(value, at::kLong, at::kCPU);
}

bool Tracer::is_varying(SourceId source) const {
  return !varying.empty() && varying.contains(sources.text(source));
}

// An unread number whose value may be another one at the next call, and that can be an input.
bool Tracer::is_runtime_number(const py::object& o) const {
  if (varying.empty() || !o) return false;
  auto it = unread_.find(o.ptr());
  if (it == unread_.end() || !is_number(it->second.real.ptr())) return false;
  if (it->second.source.valid()) return is_varying(it->second.source);
  return std::any_of(it->second.parts.begin(), it->second.parts.end(),
                     [this](const py::object& part) { return is_runtime_number(part); });
}

// Whether `target` on `args`, one of which is a tensor and one a runtime number, can have it as an input.
bool Tracer::takes_runtime_number(std::string_view target, std::span<const py::object> args) {
  if (varying.empty() || args.size() != 2) return false;
  const bool first = is_tensor(args[0]), second = is_tensor(args[1]);
  if (first == second || !is_runtime_number(args[first ? 1 : 0])) return false;
  const at::Tensor& met = THPVariable_Unpack(args[first ? 0 : 1].ptr());
  const PyObject* number = unread_.at(args[first ? 1 : 0].ptr()).real.ptr();
  const std::string_view word = last_word(target);
  const bool real = PyFloat_CheckExact(number);
  const at::ScalarType dtype = met.scalar_type();
  const bool computable =
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble;
  const bool integer = at::isIntegralType(dtype, false) && !real && !divides(word);
  return met.dim() > 0 && (computable || integer) && takes_number(word, first ? 1 : 0) &&
         number_as_tensor(unread_.at(args[first ? 1 : 0].ptr()).real, dtype).has_value();
}

NumberTree Tracer::number_tree(const py::object& o) {
  NumberTree tree;
  auto it = unread_.find(o.ptr());
  if (it == unread_.end()) {
    tree.constant = o;
    return tree;
  }
  const Unread unread = it->second;
  if (unread.source.valid()) {
    guard(GuardKind::TypeIs, unread.source,
          borrow(reinterpret_cast<PyObject*>(Py_TYPE(unread.real.ptr()))));
    tree.fetched = fetched(unread.source);
    return tree;
  }
  tree.function = unread.function;
  for (const py::object& part : unread.parts) tree.parts.push_back(number_tree(part));
  return tree;
}

// The input of the graph that stands for a runtime number beside a tensor of this dtype.
py::object Tracer::number_input(const py::object& o, at::ScalarType fits) {
  const auto key = std::pair(o.ptr(), fits);
  if (auto it = number_inputs_.find(key); it != number_inputs_.end()) return it->second;
  const Unread unread = unread_.at(o.ptr());
  const at::Tensor real = number_as_tensor(unread.real, fits).value();
  const std::string name = cat("number_", number_inputs.size());
  py::object fake = steal(THPVariable_Wrap(recorder_->add_input(real, name)));
  Known k;
  k.value = ir->graph.add_input(name, ir::Type::of(bridge::type_of(real)));
  known_[fake.ptr()] = std::move(k);
  held_.push_back(fake);
  number_inputs.push_back({static_cast<uint32_t>(example_inputs.size()), fits, number_tree(o)});
  fetch.push_back(first_source(o));
  example_inputs.push_back(steal(THPVariable_Wrap(real)));
  ir->module_state.push_back(false);
  number_inputs_.emplace(key, fake);
  return fake;
}

py::object Tracer::compare_runtime(const py::object& a, const py::object& b, int operation) {
  static constexpr const char* names[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  const py::object both[] = {a, b};
  if (takes_runtime_number(names[operation], both)) return compare(a, b, operation);
  return compare(read(a), read(b), operation);
}

SourceId Tracer::first_source(const py::object& o) const {
  auto it = unread_.find(o.ptr());
  if (it == unread_.end()) return {};
  if (it->second.source.valid()) return it->second.source;
  for (const py::object& part : it->second.parts)
    if (const SourceId source = first_source(part); source.valid()) return source;
  return {};
}

}  // namespace oxy::python
