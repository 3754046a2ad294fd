// Replays the graph on fakes, or takes the capture's own recording, and makes the plan.
#include "python/compile_graph.h"

#include <dlfcn.h>
#include <torch/csrc/autograd/python_variable.h>

#include <filesystem>

#include "ir/text.h"
#include "python/bytecode/code.h"
#include "python/cpython/boundary.h"
#include "python/cpython/compile_lock.h"
#include "python/user_passes.h"
#include "support/check.h"
#include "support/text.h"
#include "support/timing.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/host.h"

namespace oxy::python {
namespace {

std::shared_ptr<CompiledPlan> plan_of(Recording r, const TorchIr& torch_ir, const py::tuple& args,
                                      const Settings& settings, const py::list& registered,
                                      pipeline::Trace& trace) {
  const std::vector<bridge::Input> inputs = inputs_of(args);
  const std::vector<pipeline::UserPass> passes = user_passes(registered, r, args);
  const std::optional<Recording> original = passes.empty() ? std::nullopt : std::optional(r);
  const auto restart = [&] {
    if (original) r = *original;
  };
  bridge::ExecutableMaker::Made made;
  {
    const py::gil_scoped_release released;
    made =
        bridge::ExecutableMaker(settings, library_folder())
            .make({r.graph, r.attributes, inputs, torch_ir.module_state, passes, restart}, trace);
  }
  return std::make_shared<CompiledPlan>(std::move(made), r.result);
}

class RandomNumbersStay {
 public:
  RandomNumbersStay() = default;
  ~RandomNumbersStay() {
    const py::error_scope pending;  // the compilation may end in an error
    boundary([this] { bridge::torch_cpu().restore_generator(before_); });
  }
  RandomNumbersStay(const RandomNumbersStay&) = delete;
  RandomNumbersStay& operator=(const RandomNumbersStay&) = delete;

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

// Records and plans under one trace. What was reached before a failure stays in the folder, with
// the reason.
std::shared_ptr<CompiledPlan> record_and_plan(TorchIr& torch_ir, const py::tuple& args,
                                              const Settings& settings,
                                              const py::list& registered) {
  pipeline::Trace trace(settings, torch_ir.graph.name);
  try {
    std::optional<Recording> recording = take_captured(torch_ir, args);
    if (!recording) {
      Phase phase(trace.timeline(), "record");
      recording = record(torch_ir, args);
    }
    show_torch_graph(trace, torch_ir);  // behind the recording, which finds the types
    auto compiled = plan_of(std::move(*recording), torch_ir, args, settings, registered, trace);
    trace.finish();
    return compiled;
  } catch (const std::exception& e) {
    trace.write("error.txt", cat(e.what(), "\n"));
    trace.finish();
    throw;
  }
}

py::object no_plan(const char* kind, const std::string& why) { return py::make_tuple(kind, why); }

// Of an error that is no word of ours: torch may have said that it cannot do this without data.
py::object no_plan_for(const std::string& type, const std::string& message) {
  const std::string text = cat(type, ": ", message.substr(0, message.find('\n')));
  const char* limit = bridge::torch_limit(text);
  return limit ? no_plan("unsupported", cat(limit, " (", text, ")")) : no_plan("failed", text);
}

}  // namespace

std::string library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&compile_graph), &info) == 0 || !info.dli_fname) return ".";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

std::vector<bridge::Input> inputs_of(const py::tuple& args) {
  std::vector<bridge::Input> out;
  for (py::handle o : args) {
    if (THPVariable_Check(o.ptr())) {
      out.push_back({&THPVariable_Unpack(o.ptr()), 0});
    } else {
      out.push_back({nullptr, o.cast<int64_t>()});
    }
  }
  return out;
}

std::shared_ptr<CompiledPlan> plan_recording(Recording recording, const TorchIr& torch_ir,
                                             const py::tuple& args, const Settings& settings,
                                             const py::list& registered) {
  pipeline::Trace trace(settings, recording.graph.name);
  show_torch_graph(trace, torch_ir);
  auto compiled = plan_of(std::move(recording), torch_ir, args, settings, registered, trace);
  trace.finish();
  return compiled;
}

py::object compile_graph(const std::shared_ptr<TorchIr>& torch_ir, const py::tuple& args,
                         const Settings& settings, const py::list& registered, bool freezing) {
  const CompileLock one_at_a_time(CompileLock::Wait::Unbounded);
  const RandomNumbersStay stay;
  Settings used = settings;
  used.freezing = used.freezing && freezing;
  try {
    return py::cast(record_and_plan(*torch_ir, args, used, registered));
  } catch (const Unsupported& e) {
    return no_plan("unsupported", e.what());
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    const auto type = e.type().attr("__name__").cast<std::string>();
    const auto message = py::str(e.value()).cast<std::string>();
    return type == "Unsupported" ? no_plan("unsupported", message) : no_plan_for(type, message);
  } catch (const InternalError& e) {
    return no_plan_for("InternalError", e.what());
  } catch (const UserError& e) {
    return no_plan_for("UserError", e.what());
  } catch (const c10::Error& e) {
    return no_plan_for("RuntimeError", e.what_without_backtrace());
  } catch (const std::exception& e) {
    return no_plan_for("RuntimeError", e.what());
  }
}

std::string Thaws::count() {
  if (++times_ != kMost) return "";
  return cat("frozen parameters have changed ", kMost,
             " times: the graph is compiled without freezing");
}

}  // namespace oxy::python
