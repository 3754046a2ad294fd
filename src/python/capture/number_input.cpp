// Numbers as inputs of graphs: how captured code comes to one, and what a call gives for it.
#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "python/capture/capture.h"

namespace oxy::python {
namespace {

constexpr size_t kByName = SIZE_MAX;

// Arguments for which a tensor without dimensions does what the number does, as long as the result
// keeps its dtype: of operators, methods and functions of torch, beside this many tensors.
struct NumberArgument {
  std::string_view functions;
  size_t position;
  std::string_view keyword;
  size_t tensors;
};

// n / x: see Objects::operate; x ** n: see Graphs::record.
constexpr NumberArgument kNumberArguments[] = {
    {"add sub mul truediv floordiv mod pow gt lt ge le eq ne", 0, "", 1},
    {"add sub mul div true_divide floor_divide remainder fmod gt lt ge le eq ne", 1, "other", 1},
    {"truediv floordiv mod pow iadd isub imul itruediv ifloordiv imod ipow", 1, "", 1},
    {"clamp clip clamp_min", 1, "min", 1},
    {"clamp clip", 2, "max", 1},
    {"clamp_max", 1, "max", 1},
    {"lerp", 2, "weight", 2},
    {"masked_fill", 2, "value", 2},
    {"where", 1, "input", 1},
    {"where", 1, "input", 2},
    {"where", 2, "other", 1},
    {"where", 2, "other", 2},
    {"fill", 1, "value", 1},
    {"setitem", 2, "", 1},
};

// What a tensor without dimensions and a number of its dtype do as with the number.
constexpr std::string_view kOfScalars[] = {"add",     "sub",         "mul", "div",
                                           "truediv", "true_divide", "fill"};

// The same beside integers, where a float gives floats.
constexpr std::string_view kOfIntegers[] = {
    "add", "sub", "mul", "div",   "truediv", "true_divide", "gt",        "lt",   "ge",
    "le",  "eq",  "ne",  "clamp", "clip",    "clamp_min",   "clamp_max", "where"};

// In place torch asks Python for the shape of the result, and a number that torch's C++ code takes
// as a Scalar cannot get there: only what is a tensor can.
bool takes_in_place(std::string_view word, size_t arguments) {
  static constexpr std::string_view kScalars[] = {"pow", "lerp", "addcmul", "addcdiv"};
  return std::ranges::find(kScalars, word) == std::end(kScalars) && arguments == 2;
}

bool takes_number(std::string_view word, size_t position, std::string_view keyword,
                  size_t tensors) {
  return std::ranges::any_of(kNumberArguments, [&](const NumberArgument& a) {
    const bool here =
        position == kByName ? !keyword.empty() && a.keyword == keyword : a.position == position;
    return here && a.tensors == tensors && has_word(a.functions, word);
  });
}

// What has other results, or other errors, beside a tensor of this dtype than beside a number:
// integers that are not divided into floats, and fp16 and bf16 that are weighed by a number which
// is not rounded to their dtype.
bool tells_tensors_apart(std::string_view word, at::ScalarType dtype, size_t arguments) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return word == "lerp";
  const bool gives_floats =
      word == "truediv" || word == "true_divide" || (word == "div" && arguments == 2);
  const bool integer = at::isIntegralType(dtype, false);
  return integer && !gives_floats &&
         (word.find("div") != std::string_view::npos || word.ends_with("pow"));
}

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

std::optional<at::Tensor> number_as_tensor(py::handle number, NumberDtype dtype) {
  const at::ScalarType fits = dtype.fits;
  if (PyFloat_CheckExact(number.ptr())) {
    const double value = PyFloat_AS_DOUBLE(number.ptr());
    if (!is_within(value, fits)) return std::nullopt;
    return at::detail::scalar_tensor_static(value, dtype.same ? fits : at::kDouble, at::kCPU);
  }
  if (!PyLong_CheckExact(number.ptr())) return std::nullopt;
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || !is_within(value, fits)) return std::nullopt;
  return at::detail::scalar_tensor_static(value, dtype.same ? fits : at::kLong, at::kCPU);
}

bool Numbers::is_varying(SourceId source) const {
  return !varying.empty() && varying.contains(heap().sources.text(source)) &&
         !sizes().is_static_int(source);
}

// A deferred number whose value may be another one at the next call, and that can be an input.
bool Numbers::is_runtime_number(const py::object& o) const {
  if (!have_runtime_numbers() || !o) return false;
  auto it = deferred_.find(o.ptr());
  if (it == deferred_.end() || !is_number(it->second.real.ptr())) return false;
  if (it->second.of_data) return graphs().inner() == nullptr && is_graph_number(o);
  if (it->second.source.valid()) return is_varying(it->second.source);
  return is_computed_anew(it->second.parts);
}

bool Numbers::is_computed_anew(const Arguments& parts) const {
  return std::ranges::any_of(parts, [this](const py::object& part) {
    return is_symbolic_int(part) ? has_hint(part) : is_runtime_number(part);
  });
}

// Of the tensor whose dtype the result has, whatever numbers are beside it; nothing for none.
std::optional<NumberDtype> Numbers::met_dtype(std::span<const py::object> args) {
  std::optional<NumberDtype> scalar;
  size_t scalars = 0, truths = 0;
  for (const py::object& a : args) {
    if (!heap().is_tensor(a)) continue;
    const at::Tensor& t = THPVariable_Unpack(a.ptr());
    if (t.dim() > 0 && t.scalar_type() != at::kBool) return NumberDtype{t.scalar_type(), false};
    scalars++;
    truths += t.scalar_type() == at::kBool;
    if (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble)
      scalar = {t.scalar_type(), true};
  }
  if (truths == 1 && scalars == 1) return NumberDtype{at::kBool, false};
  return scalars == 1 ? scalar : std::nullopt;
}

bool Numbers::takes_runtime_numbers(std::string_view target, std::span<const py::object> args,
                                    std::span<const std::pair<py::object, py::object>> kwargs) {
  if (!have_runtime_numbers()) return false;
  const auto met = met_dtype(args);
  if (!met) return false;
  const at::ScalarType dtype = met->fits;
  std::string_view word = target.substr(target.rfind('.') + 1);  // torch.mul, operator.mul, mul
  if (word.ends_with('_') && !word.ends_with("__")) {            // in place
    word.remove_suffix(1);
    if (!takes_in_place(word, args.size() + kwargs.size()) && word != "masked_fill") return false;
  }
  if (met->same && std::ranges::find(kOfScalars, word) == std::end(kOfScalars)) return false;
  const bool computable =
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble;
  const bool integer = at::isIntegralType(dtype, word == "where");
  if (tells_tensors_apart(word, dtype, args.size() + kwargs.size())) return false;
  size_t tensors = 0, numbers = 0;
  for (const py::object& a : args) tensors += heap().is_tensor(a);
  for (const auto& [key, a] : kwargs) tensors += heap().is_tensor(a);
  auto takes = [&](const py::object& o, size_t position, std::string_view keyword) {
    if (!o || !deferred_.contains(o.ptr())) return true;
    numbers++;
    if (!is_runtime_number(o) || !takes_number(word, position, keyword, tensors)) return false;
    if (integer && may_be_int(o)) return false;
    const py::object& real = deferred_.at(o.ptr()).real;
    const bool is_float = PyFloat_CheckExact(real.ptr());
    // Eager refuses a float as their alpha.
    const bool float_too =
        keyword != "alpha" && std::ranges::find(kOfIntegers, word) != std::end(kOfIntegers);
    const bool among_integers = integer && (!is_float || float_too);
    return (computable || among_integers) &&
           number_as_tensor(real, input_dtype(o, *met)).has_value();
  };
  for (size_t i = 0; i < args.size(); i++)
    if (!takes(args[i], i, "")) return false;
  for (const auto& [key, a] : kwargs)
    if (!takes(a, kByName, key.cast<std::string>())) return false;
  return numbers > 0;
}

NumberTree Numbers::number_tree(const py::object& o, std::vector<sym::Expr>* of_sizes) {
  if (is_symbolic_int(o)) {
    const sym::Expr e = expr_of(o);
    if (e.is_const()) return {.constant = py::int_(e.value())};
    return {.fetched = of_sizes ? add_once(*of_sizes, e) : sizes().wanted(o), .size = true};
  }
  auto it = deferred_.find(o.ptr());
  if (it == deferred_.end()) return {.constant = o};
  const Deferred deferred = it->second;
  if (deferred.source.valid()) {
    heap().guard(GuardKind::TypeIs, deferred.source, py::type::of(deferred.real));
    return {.fetched = graphs().fetched(deferred.source)};
  }
  NumberTree tree{.function = deferred.function};
  for (const py::object& part : deferred.parts) tree.parts.push_back(number_tree(part, of_sizes));
  return tree;
}

// A float beside integers has the default dtype, as the result.
NumberDtype Numbers::input_dtype(const py::object& o, NumberDtype met) const {
  const bool is_float = PyFloat_CheckExact(deferred_.at(o.ptr()).real.ptr());
  if (!is_float || !at::isIntegralType(met.fits, true)) return met;
  return {at::get_default_dtype_as_scalartype(), true};
}

// The input of the graph that stands for a runtime number beside a tensor of this dtype.
py::object Numbers::number_input(const py::object& o, NumberDtype met, bool plain) {
  const NumberDtype dtype = input_dtype(o, met);
  if (is_of_data(o)) return tensor_of_data(o, dtype, plain);
  const auto key = std::pair(o.ptr(), dtype);
  if (auto it = number_inputs_.find(key); it != number_inputs_.end()) return it->second;
  const Deferred deferred = deferred_.at(o.ptr());
  const at::Tensor real = number_as_tensor(deferred.real, dtype).value();
  const std::string name = cat("number_", graphs().number_inputs.size());
  py::object fake = steal(THPVariable_Wrap(graphs().recorder().add_runtime_number(real, name)));
  Tracked k;
  k.value = graphs().ir->graph.add_input(name, ir::Type::of(bridge::type_of(real)));
  heap().entry(fake.ptr()) = std::move(k);
  heap().hold(fake);
  graphs().number_inputs.push_back(
      {static_cast<uint32_t>(graphs().example_inputs.size()), dtype, number_tree(o)});
  const SourceId source = first_source(o);  // none of a number of sizes alone: any one will do
  graphs().fetch.push_back(source.valid() ? source : graphs().fetch.front());
  graphs().example_inputs.push_back(steal(THPVariable_Wrap(real)));
  graphs().ir->module_state.push_back(false);
  graphs().ir->runtime_numbers.resize(graphs().ir->module_state.size());
  graphs().ir->runtime_numbers.back() = true;
  number_inputs_.emplace(key, fake);
  return fake;
}

py::object Numbers::float_argument(const py::object& o) {
  constexpr NumberDtype kF64{at::kDouble, false};
  if (graphs().inner() != nullptr || !o || !is_symbolic_float(o) || !is_runtime_number(o) ||
      !number_as_tensor(real_of(o), kF64))
    return {};
  return number_input(o, kF64);
}

bool Numbers::computes_with(std::span<const py::object> args, size_t met) {
  std::unordered_set<uint32_t> known;
  const std::function<bool(const NumberTree&, bool)> visit = [&](const NumberTree& t, bool add) {
    if (!t.constant && !t.function) {
      if (add && !t.size) known.insert(t.fetched);
      return !t.size && known.contains(t.fetched);
    }
    return std::ranges::all_of(t.parts, [&](const NumberTree& part) { return visit(part, add); });
  };
  const auto& inputs = graphs().number_inputs;
  if (inputs.size() == met) return true;
  for (const py::object& a : args)
    if (is_symbolic_float(a) && is_runtime_number(a) && !is_of_data(a)) visit(number_tree(a), true);
  return std::all_of(inputs.begin() + static_cast<ptrdiff_t>(met), inputs.end(),
                     [&](const NumberInput& i) { return visit(i.number, false); });
}

// `operation`: Py_LT ...
py::object Numbers::compare(const py::object& a, const py::object& b, int operation) {
  if (auto answer = compare_deferred(a, b, operation)) return *answer;
  if (auto answer = compare_sizes(a, b, operation)) return *answer;
  if (auto answer = compare_state(a, b, operation)) return *answer;
  const py::object both[] = {a, b};
  if (takes_runtime_numbers(kComparisons.at(operation), both, {}))
    return objects().compare(a, b, operation);
  auto is_number_now = [this](const py::object& o) { return is_of_data(o) || is_number(o.ptr()); };
  if ((is_of_data(a) || is_of_data(b)) && is_number_now(a) && is_number_now(b)) {
    const std::string name(kComparisons.at(static_cast<size_t>(operation)));
    return defer(py::bool_(true), {}, py::module_::import("operator").attr(name.c_str()), {a, b});
  }
  return objects().compare(read(a), read(b), operation);
}

SourceId Numbers::first_source(const py::object& o) const {
  auto it = deferred_.find(o.ptr());
  if (it == deferred_.end()) return {};
  if (it->second.source.valid()) return it->second.source;
  for (const py::object& part : it->second.parts)
    if (const SourceId source = first_source(part); source.valid()) return source;
  return {};
}

}  // namespace oxy::python
