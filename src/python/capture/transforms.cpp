// The transforms of torch.func in captured code. Their Python code is interpreted like any other;
// the levels that it enters are torch's own, on this thread, and wrap the fakes: what comes down to
// the recording are plain ops. A level is entered and left between the calls that are recorded.
//
// What a level has wrapped is no value of the graph to anyone outside. So no frame is left inside
// of a transform: a break leaves the whole of it to eager.
#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/capture/plan_rebuild.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"

namespace oxy::python {
namespace {

constexpr const char* kAutograd = "torch._C._autograd";

// A function of torch in C and its name in the graph: itself, or the one in `home` that a function
// in Python of the same name is around.
std::pair<std::string, py::object> in_c(py::handle callable, const char* home) {
  const std::string name = name_of(callable);
  return {cat(home, ".", name), PyCFunction_Check(callable.ptr())
                                    ? borrow(callable)
                                    : py::module_::import(home).attr(name.c_str())};
}

}  // namespace

bool is_of_transforms(PyFunctionObject* f) {
  return written_in(f).starts_with("torch._functorch.");
}

void Graphs::refuse_in_transform(const char* what) {
  if (is_transformed() || in_jvp()) throw Break(BreakId::functional_transform, what, " in one");
}

// A tensor that a transform has wrapped lives on where it has ended.
void Graphs::refuse_wrapped(const at::Tensor& t) const {
  if (is_wrapped(t))
    transforms_.refuse(BreakId::functional_transform, "a tensor of its own lives on behind it");
}

// A level begins. Inside of the outermost one no frame is left.
void Graphs::enter_transform() {
  if (inference().is_open() || c10::InferenceMode::is_enabled())
    throw Break(BreakId::functional_transform, "in inference mode");
  if (is_transformed()) return;
  refuse_in_transform("a level of forward AD");
  Place place = frames().here();
  place.steps.insert(place.steps.end(), transforms_.steps.begin(), transforms_.steps.end());
  transforms_ = std::move(place);
}

// Called for real: what comes next runs under it. The graph gets the same.
py::object Graphs::switch_transform(const std::string& target, const py::object& function,
                                    const Arguments& args, const Keywords& kwargs) {
  bring_graph_to(TorchModes());
  py::object out = calls().call_real(function, args, kwargs);
  auto no_value = [](py::handle) { return std::optional<ir::ValueId>(); };
  ir::Node& node =
      ir_now().graph.add_call(ir::NodeKind::CallFunction, target, {}, {ir::Type::opaque()});
  for (const py::object& a : args) node.args.push_back(arg_from_python(ir_now(), a, no_value));
  for (const auto& [key, a] : kwargs)
    node.kwargs.emplace_back(text(key), arg_from_python(ir_now(), a, no_value));
  node.stack = stack_ids(frames().user_stack()).torch;
  ir_now().bound_of(node.id) = function;
  return out;
}

// requires_grad_() of what a level has wrapped. Whether torch lets it pass is known to the level
// alone, not to a recording that is entered.
py::object Graphs::differentiate_by(const py::object& wrapped) {
  py::object out = calls().call_real(wrapped.attr("requires_grad_"), {}, {});
  ir::Node& node = ir_now().graph.add_call(ir::NodeKind::CallMethod, "requires_grad_",
                                           {*heap().tracked(wrapped)->value}, {ir::Type::opaque()});
  node.stack = stack_ids(frames().user_stack()).torch;
  return out;
}

// Whether torch's answer to a question about hooks of saved tensors is None, also in later calls.
bool Calls::is_none_of_hooks(const char* question, const py::tuple& given) {
  const py::object ask = py::module_::import(kAutograd).attr(question);
  const py::object answer = ask(*given);
  if (!answer.is_none()) return false;
  const SourceId asking = heap().sources.pinned(ask, cat(kAutograd, ".", question));
  heap().guard(GuardKind::Equals, heap().sources.answer(asking, given), answer);
  return true;
}

// Such hooks of the caller's see what each op of eager's saves, and may give something else.
void Calls::refuse_saved_hooks(BreakId reason, const char* what) {
  if (!std::exchange(asked_for_hooks_, true) &&
      !is_none_of_hooks("_top_saved_tensors_default_hooks", py::make_tuple(true)))
    throw Break(reason, what, " under hooks of saved tensors");
}

// Saved tensors may have hooks.
void Calls::require_saved_hooks(BreakId reason) {
  if (!std::exchange(asked_why_no_hooks_, true) &&
      !is_none_of_hooks("_saved_tensors_hooks_get_disabled_error_message", py::tuple()))
    throw Break(reason, "hooks of saved tensors are not allowed");
}

// By torch.func, or in a block of the user's that allows them again: no frame is left until then.
py::object Calls::switch_saved_hooks(py::handle callable, const Arguments& args,
                                     const Keywords& kwargs) {
  const auto& stack = frames().stack();
  refuse_saved_hooks(BreakId::functional_transform, "one");
  require_saved_hooks(BreakId::functional_transform);
  if (std::ranges::none_of(stack,
                           [](auto* f) { return is_of_transforms(as_function(f->function)); })) {
    const std::string name = name_of(callable);
    const bool allowed = at::SavedTensorDefaultHooks::is_enabled();
    if (name == "_saved_tensors_hooks_disable") {
      if (!allowed)
        throw Break(BreakId::torch_call, "hooks of saved tensors are forbidden once more");
      frames().close();
    } else if (name == "_saved_tensors_hooks_enable") {
      if (allowed) throw Break(BreakId::torch_call, "hooks of saved tensors are allowed");
      frames().open();
    }
  }
  return call_real(callable, args, kwargs);
}

// A level of forward AD that no transform has entered: outside, its tensors are other values.
void Calls::leave_no_frame_in_level(bool enters) {
  if (enters == in_jvp() || graphs().inner() != nullptr || inference().is_open() ||
      c10::InferenceMode::is_enabled())
    throw Break(BreakId::functional_transform, "a level of forward AD");
  if (enters)
    frames().close();
  else
    frames().open();
}

// A level begins or ends, or something else of the thread changes.
py::object Calls::switch_level(py::handle callable, const char* home, const Arguments& args,
                               const Keywords& kwargs, bool begins) {
  if (PyFunction_Check(callable.ptr())) objects().guard_code(callable);
  if (begins) graphs().enter_transform();
  const auto [target, function] = in_c(callable, home);
  return graphs().switch_transform(target, function, numbers().read(args), kwargs);
}

// The same of a level of forward AD, which one of torch.func enters.
py::object Calls::switch_dual_level(py::handle callable, const Arguments& args,
                                    const Keywords& kwargs, bool begins) {
  if (!is_transformed()) leave_no_frame_in_level(begins);
  py::object out = switch_level(callable, "torch._C", args, kwargs);
  note_forward_ad(begins);
  return out;
}

// Wraps a tensor, or takes it out.
py::object Calls::wrap_by_level(py::handle callable, const char* home, const Arguments& args,
                                const Keywords& kwargs) {
  if (PyFunction_Check(callable.ptr())) objects().guard_code(callable);
  const auto [target, function] = in_c(callable, home);
  return graphs().record(ir::NodeKind::CallFunction, target, function, numbers().read(args),
                         kwargs);
}

// A result of the graph would be without its tangent.
void Calls::refuse_outer_tangent() {
  if (!is_transformed() && !in_jvp())
    throw Break(BreakId::functional_transform, "a tangent of a level entered before");
}

void Calls::require_forward_mode(const Arguments& args) {
  if (args.size() != 1 ||
      objects().truth(args[0]) != c10::AutogradState::get_tls_state().get_fw_grad_mode())
    throw Break(BreakId::torch_call, "torch._C._set_fwd_grad_enabled");
}

}  // namespace oxy::python
