// Records registered patterns and functions, and runs them on a recording.
#include "python/user_passes.h"

#include <ATen/ops/empty_strided.h>

#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::python {

namespace {

ir::Arg number_arg(py::handle number) {
  if (PyFloat_Check(number.ptr())) return ir::Arg(number.cast<double>());
  return ir::Arg(number.cast<int64_t>());
}

py::object python_number(const ir::Arg& a) {
  if (const double* d = a.get_if<double>()) return py::float_(*d);
  return py::int_(a.get<ir::Expr>().value());
}

passes::Pattern pattern_of(const Recording& recording, std::vector<ir::Arg> numbers) {
  passes::Pattern out{recording.graph, std::move(numbers)};
  passes::make_pattern(out.graph);
  return out;
}

// A tensor of this type over memory that nobody reads or writes.
py::object example_of(const ir::TensorType& type) {
  const auto values = [](const std::vector<ir::Expr>& exprs) {
    std::vector<int64_t> out;
    for (const ir::Expr& e : exprs) out.push_back(e.value());
    return out;
  };
  const c10::Device device(static_cast<c10::DeviceType>(type.device.kind), type.device.index);
  at::Tensor t =
      at::empty_strided(values(type.sizes), values(type.strides),
                        at::TensorOptions(static_cast<c10::ScalarType>(type.dtype)).device(device));
  return owned(THPVariable_Wrap(t));
}

bool is_constant(const ir::TensorType& type) {
  const auto constant = [](const ir::Expr& e) { return e.is_const(); };
  return std::ranges::all_of(type.sizes, constant) && std::ranges::all_of(type.strides, constant);
}

std::optional<passes::Replacement> specialise(const UserPattern& pattern,
                                              const std::vector<ir::TensorType>& types,
                                              const std::vector<ir::Arg>& numbers) {
  if (!std::ranges::all_of(types, is_constant)) return std::nullopt;
  py::list tensors, plain;
  for (const ir::TensorType& t : types) tensors.append(example_of(t));
  for (const ir::Arg& n : numbers) plain.append(python_number(n));
  py::object made = pattern.record(py::tuple(tensors), py::tuple(plain));
  if (made.is_none()) return std::nullopt;
  auto [search, replacement] =
      made.cast<std::pair<std::shared_ptr<Recording>, std::shared_ptr<Recording>>>();
  return passes::Replacement{pattern_of(*search, numbers), pattern_of(*replacement, {}).graph};
}

// The recording that the function makes of this one. What the caller sees must be laid out as
// before.
void run_function(const py::object& function, const std::string& name, Recording& recording,
                  const py::tuple& args, ir::Graph& graph) {
  auto given = std::make_shared<Recording>(recording);
  given->graph = graph;
  auto made = function(given, args).cast<std::shared_ptr<Recording>>();
  const auto& before = given->graph.outputs;
  bool same = before.size() == made->graph.outputs.size() &&
              given->graph.mutations.size() == made->graph.mutations.size();
  for (size_t i = 0; same && i < before.size(); ++i) {
    const ir::OutputSpec &a = before[i], &b = made->graph.outputs[i];
    same = a.kind == b.kind && a.index == b.index && a.conj == b.conj && a.neg == b.neg;
    if (same && a.kind == ir::OutputSpec::Kind::Value)
      same = ir::same_place(given->graph.value(a.value).type, made->graph.value(b.value).type);
  }
  if (!same) throw UserError(cat("pass ", name, " changes the number or the layout of results"));
  const std::string graph_name = graph.name;
  recording = *made;
  recording.graph.name = graph_name;
  graph = recording.graph;
}

}  // namespace

std::shared_ptr<UserPattern> make_user_pattern(const Recording& search, const py::tuple& numbers,
                                               py::object record) {
  std::vector<ir::Arg> args;
  for (py::handle n : numbers) args.push_back(number_arg(n));
  auto out = std::make_shared<UserPattern>();
  out->pattern = pattern_of(search, std::move(args));
  out->record = std::move(record);
  return out;
}

std::vector<pipeline::UserPass> user_passes(const py::handle& registered, Recording& recording,
                                            const py::tuple& args) {
  std::vector<pipeline::UserPass> out;
  for (py::handle row : registered) {
    auto [name, in_front, what] = row.cast<std::tuple<std::string, bool, py::object>>();
    pipeline::UserPass pass{name, in_front, nullptr};
    if (py::isinstance<UserPattern>(what)) {
      pass.run = [pattern = what.cast<std::shared_ptr<UserPattern>>()](ir::Graph& graph) {
        passes::replace_all(graph, pattern->pattern, [&](const auto& types, const auto& numbers) {
          py::gil_scoped_acquire gil;
          return specialise(*pattern, types, numbers);
        });
      };
    } else {
      // The list that holds the function outlives the compilation.
      pass.run = [function = what.ptr(), name = name, &recording, &args](ir::Graph& graph) {
        py::gil_scoped_acquire gil;
        run_function(borrow(function), name, recording, args, graph);
      };
    }
    out.push_back(std::move(pass));
  }
  return out;
}

}  // namespace oxy::python
