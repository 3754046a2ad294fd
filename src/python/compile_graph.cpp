// Replays the graph on fakes, or takes the capture's own recording, and makes the plan; registered
// patterns and functions run on the recording.
#include "python/compile_graph.h"

#include <ATen/ops/empty_strided.h>
#include <dlfcn.h>

#include <filesystem>

#include "ir/text.h"
#include "passes/rewrite.h"
#include "python/bytecode/code.h"
#include "python/cpython/boundary.h"
#include "python/cpython/compile_lock.h"
#include "support/check.h"
#include "support/text.h"
#include "support/timing.h"
#include "torch_bridge/host.h"

namespace oxy::python {
namespace {

// ---- passes of the user's

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
  for (const ir::Arg& n : numbers) {
    if (const auto* e = n.get_if<ir::Expr>(); e && !e->is_const()) return std::nullopt;
    plain.append(arg_to_python(n, {}, nullptr));
  }
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
    same = a.kind == b.kind && a.index == b.index && a.conj == b.conj && a.neg == b.neg &&
           a.piece == b.piece && a.detached == b.detached && a.itself == b.itself &&
           a.unseen == b.unseen && a.alias == b.alias && a.no_grad == b.no_grad &&
           a.derived == b.derived;
    if (same && a.kind == ir::OutputSpec::Kind::Value)
      same = ir::same_place(given->graph.value(a.value).type, made->graph.value(b.value).type);
  }
  if (!same) throw UserError(cat("pass ", name, " changes the number or the layout of results"));
  const std::string graph_name = graph.name;
  recording = *made;
  recording.graph.name = graph_name;
  graph = recording.graph;
}

// They work on the graph of `recording`, which must outlive them; a function's new recording takes
// its place.
std::vector<pipeline::UserPass> user_passes(const py::list& registered, Recording& recording,
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

// ---- plans

// What a graph's inputs must fulfil where no guards look at them. Layouts apart, which plans know.
std::optional<pipeline::SizeCheck> size_check_of(const Recording& r) {
  if (!r.facts) return std::nullopt;
  std::vector<pipeline::Reading> readings;
  for (uint32_t i = 0; i < r.graph.primals(); ++i) {  // tangents come later
    const ir::Type& type = r.graph.value(r.graph.inputs()[i]).type;
    if (type.kind == ir::Type::Kind::Int)
      readings.push_back({type.expr, runtime::SizeOp::InputNumber, i, 0});
    for (size_t d = 0; type.is_tensor() && d < type.tensor.sizes.size(); ++d)
      if (const sym::Expr size = type.tensor.sizes[d]; !size.is_const())
        readings.push_back({size, runtime::SizeOp::InputSize, i, d});
  }
  return pipeline::make_size_check(readings, *r.facts, r.numbers);
}

bool evaluate(const pipeline::SizeCheck& check, std::span<const bridge::Input> inputs,
              c10::SmallVectorImpl<int64_t>& slots) {
  c10::SmallVector<runtime::SizeInput, 16> read;
  if (!check.inputs.empty()) read.resize(check.inputs.back() + 1);
  for (const uint32_t i : check.inputs) read[i] = bridge::size_input(inputs[i]);
  slots.resize(check.program.instructions.size());
  return !pipeline::first_failure(check, {read.data(), read.size()}, slots.data());
}

// While the forward of a DistributedDataParallel runs: its buckets. torch keeps the module for
// TorchDynamo, which cuts its graphs by it. Gradients do not depend on them.
std::optional<autograd::GradientBuckets> active_buckets() {
  const py::dict modules = py::module_::import("sys").attr("modules");
  const py::str name("torch.nn.parallel.distributed");
  if (!modules.contains(name)) return std::nullopt;
  const py::object active =
      modules[name].attr("DistributedDataParallel").attr("_active_ddp_module");
  if (active.is_none()) return std::nullopt;
  const py::object first = member_of<"torch.distributed", "_DEFAULT_FIRST_BUCKET_BYTES">();
  const auto rest = active.attr("bucket_bytes_cap").cast<int64_t>();
  return autograd::GradientBuckets{std::min(first.cast<int64_t>(), rest), rest};
}

// `checked`: calls ask the plan whether it is for their sizes.
std::shared_ptr<CompiledPlan> plan_of(Recording r, bool checked, const TorchIr& torch_ir,
                                      const py::tuple& args, const Settings& settings,
                                      const py::list& registered, pipeline::Trace& trace) {
  const std::vector<bridge::Input> inputs = inputs_of(args);
  const std::vector<pipeline::UserPass> passes = user_passes(registered, r, args);
  const std::optional<Recording> original = passes.empty() ? std::nullopt : std::optional(r);
  auto sizes = checked ? size_check_of(r) : std::nullopt;
  const auto restart = [&] {
    if (original) r = *original;
  };
  const auto buckets = active_buckets();
  bridge::ExecutableMaker::Made made;
  {
    const py::gil_scoped_release released;
    made = bridge::ExecutableMaker(settings, library_folder())
               .make({r.graph, r.attributes, inputs, torch_ir.module_state, passes, restart,
                      r.facts, r.names_places, r.gradients, buckets},
                     trace);
  }
  auto out = std::make_shared<CompiledPlan>(std::move(made), r.result);
  out->sizes = std::move(sizes);
  return out;
}

class RandomNumbersStay {
 public:
  RandomNumbersStay() = default;
  ~RandomNumbersStay() {
    const py::error_scope pending;  // the compilation may end in an error
    boundary([this] { bridge::torch_cpu().restore_generator(before_); });
  }
  RandomNumbersStay(const RandomNumbersStay&) = delete;

 private:
  const runtime::DeviceApi::GeneratorState before_ = bridge::torch_cpu().generator_state();
};

void show_torch_graph(pipeline::Trace& trace, const TorchIr& torch_ir) {
  if (torch_ir.code) {
    auto* code = reinterpret_cast<PyCodeObject*>(torch_ir.code.ptr());
    trace.show(std::nullopt, "bytecode.txt", [&] { return to_text(disassemble(code), code); });
  }
  trace.show(std::nullopt, "torch_graph.txt", [&] { return ir::print(torch_ir.graph); });
}

bool is_unsupported(const py::error_already_set& e) {
  return e.matches(member_of<"oxyfuel._C", "Unsupported">());
}

// What torch raises while it runs on tensors without data may be the user's error or a limit of
// torch's: the graph is left to eager, which tells.
Recording record_or_leave(TorchIr& torch_ir, const py::tuple& args, const RecordOptions& options) {
  try {
    return record(torch_ir, args, options);
  } catch (const py::error_already_set& e) {
    if (!e.matches(PyExc_Exception) || is_unsupported(e)) throw;
    throw Unsupported(one_line(e));
  } catch (const c10::Error& e) {
    const std::string message = e.what_without_backtrace();
    throw Unsupported(cat("RuntimeError: ", message.substr(0, message.find('\n'))));
  }
}

// Records and plans under one trace. What was reached before a failure stays in the folder, with
// the reason.
std::shared_ptr<CompiledPlan> record_and_plan(TorchIr& torch_ir, const py::tuple& args,
                                              const Settings& settings, const py::list& registered,
                                              const RecordOptions& options) {
  pipeline::Trace trace(settings, torch_ir.graph.name);
  try {
    std::optional<Recording> recording = take_captured(torch_ir, args, settings.freezing);
    const bool guarded = recording.has_value();
    if (!recording && torch_ir.recorded_pool)
      throw Unsupported("sizes that vary, in another state of torch than captured");
    if (!recording) {
      Phase phase(trace.timeline(), "record");
      recording = record_or_leave(torch_ir, args, options);
    }
    show_torch_graph(trace, torch_ir);  // behind the recording, which finds the types
    auto compiled =
        plan_of(std::move(*recording), !guarded, torch_ir, args, settings, registered, trace);
    trace.finish();
    return compiled;
  } catch (const std::exception& e) {
    trace.write("error.txt", cat(e.what(), "\n"));
    trace.finish();
    throw;
  }
}

py::object no_plan(const char* kind, const std::string& why) { return py::make_tuple(kind, why); }

py::object no_plan(const char* type, const std::exception& e) {
  const std::string_view message = e.what();
  return no_plan("failed", cat(type, ": ", message.substr(0, message.find('\n'))));
}

}  // namespace

bool CompiledPlan::accepts(std::span<const bridge::Input> inputs) const {
  c10::SmallVector<int64_t, 64> slots;
  return executable.accepts(inputs) && (!sizes || evaluate(*sizes, inputs, slots));
}

std::vector<int64_t> CompiledPlan::numbers(std::span<const bridge::Input> inputs) const {
  if (!sizes || sizes->wanted.empty()) return {};
  c10::SmallVector<int64_t, 64> slots;
  OXY_CHECK(evaluate(*sizes, inputs, slots), "sizes that the plan is not for");
  std::vector<int64_t> out;
  for (const runtime::Slot s : sizes->wanted) out.push_back(slots[s.index]);
  return out;
}

std::shared_ptr<UserPattern> make_user_pattern(const Recording& search, const py::tuple& numbers,
                                               py::object record) {
  std::vector<ir::Arg> args;
  for (py::handle n : numbers)
    args.push_back(PyFloat_Check(n.ptr()) ? ir::Arg(n.cast<double>()) : n.cast<int64_t>());
  auto out = std::make_shared<UserPattern>();
  out->pattern = pattern_of(search, std::move(args));
  out->record = std::move(record);
  return out;
}

std::string library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&compile_graph), &info) == 0 || !info.dli_fname) return ".";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

std::vector<bridge::Input> inputs_of(const py::tuple& args) {
  std::vector<bridge::Input> out;
  for (py::handle o : args)
    if (THPVariable_Check(o.ptr()))
      out.push_back({&THPVariable_Unpack(o.ptr()), 0});
    else
      out.push_back({nullptr, o.cast<int64_t>()});
  return out;
}

std::shared_ptr<CompiledPlan> plan_recording(Recording recording, const TorchIr& torch_ir,
                                             const py::tuple& args, const Settings& settings,
                                             const py::list& registered) {
  pipeline::Trace trace(settings, recording.graph.name);
  show_torch_graph(trace, torch_ir);
  auto compiled = plan_of(std::move(recording), true, torch_ir, args, settings, registered, trace);
  trace.finish();
  return compiled;
}

py::object compile_graph(const std::shared_ptr<TorchIr>& torch_ir, const py::tuple& args,
                         const Settings& settings, const py::list& registered, bool freezing,
                         const RecordOptions& options) {
  const CompileLock one_at_a_time(CompileLock::Wait::Unbounded);
  const RandomNumbersStay stay;
  Settings used = settings;
  used.freezing = used.freezing && freezing;
  try {
    return py::cast(record_and_plan(*torch_ir, args, used, registered, options));
  } catch (const Unsupported& e) {
    return no_plan("unsupported", e.what());
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    return is_unsupported(e) ? no_plan("unsupported", py::str(e.value()).cast<std::string>())
                             : no_plan("failed", one_line(e));
  } catch (const InternalError& e) {
    return no_plan("InternalError", e);
  } catch (const UserError& e) {
    return no_plan("UserError", e);
  } catch (const std::exception& e) {
    return no_plan("RuntimeError", e);
  }
}

std::string Thaws::count() {
  if (++times_ != kMost) return "";
  return cat("frozen parameters have changed ", kMost,
             " times: the graph is compiled without freezing");
}

}  // namespace oxy::python
