// The transforms of torch.func in captured code. Their Python code is interpreted like any other;
// the levels that it enters are torch's own, on this thread, and wrap the fakes: what comes down to
// the recording are plain ops. A level is entered and left between the calls that are recorded.
//
// What a level has wrapped is no value of the graph to anyone outside. So no frame is left inside
// of a transform: a break leaves the whole of it to eager.
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

enum class Means : uint8_t {
  Enter,      // a level begins
  Switch,     // it ends, or something else of the thread changes
  DualLevel,  // of forward AD, which a level of torch.func enters
  Node,       // wraps a tensor, or takes it out
  Answer,     // about a wrapper: always the same
  Forward,    // whether forward AD is on
  Hooks,      // whether saved tensors may have hooks
  Prepare,    // makes torch ready, once a process
  Refuse,     // what no graph has
};

struct TransformCall {
  const char *module, *name;
  Means means;
  // Where the function in C lies that this one in Python is around.
  const char* native = nullptr;
};

constexpr const char *kC = "torch._C._functorch", *kAround = "torch._functorch.predispatch",
                     *kTransforms = "torch._functorch.eager_transforms",
                     *kForward = "torch.autograd.forward_ad", *kAutograd = "torch._C._autograd";

constexpr TransformCall kTransformCalls[] = {
    {kC, "_grad_increment_nesting", Means::Enter},
    {kC, "_grad_decrement_nesting", Means::Switch},
    {kC, "set_inplace_requires_grad_allowed", Means::Switch},
    {kC, "_wrap_for_grad", Means::Node},
    {kC, "_unwrap_batched", Means::Node},
    {kC, "get_inplace_requires_grad_allowed", Means::Answer},
    {kC, "is_batchedtensor", Means::Answer},
    {kC, "is_gradtrackingtensor", Means::Answer},
    {kC, "is_functorch_wrapped_tensor", Means::Answer},
    {kC, "maybe_get_level", Means::Answer},
    {kC, "maybe_get_bdim", Means::Answer},
    {kAround, "_vmap_increment_nesting", Means::Enter, kC},
    {kAround, "_vmap_decrement_nesting", Means::Switch, kC},
    {kAround, "_jvp_increment_nesting", Means::Enter, kC},
    {kAround, "_jvp_decrement_nesting", Means::Switch, kC},
    {kAround, "_add_batch_dim", Means::Node, kC},
    {kAround, "_remove_batch_dim", Means::Node, kC},
    {kAround, "_unwrap_for_grad", Means::Node, kC},
    {kAround, "_enter_dual_level", Means::DualLevel, "torch._C"},
    {kAround, "_exit_dual_level", Means::DualLevel, "torch._C"},
    {kAround, "_make_dual", Means::Node, "torch"},
    {kAround, "_unpack_dual", Means::Node, "torch"},
    {kAround, "lazy_load_decompositions", Means::Prepare},
    {"torch._C", "_set_fwd_grad_enabled", Means::Forward},
    {kForward, "_maybe_load_decompositions", Means::Prepare},
    {kAutograd, "_saved_tensors_hooks_get_disabled_error_message", Means::Hooks},
    {kAutograd, "_saved_tensors_hooks_disable", Means::Hooks},
    {kAutograd, "_saved_tensors_hooks_enable", Means::Hooks},
    {kTransforms, "linearize", Means::Refuse},
    {kTransforms, "functionalize", Means::Refuse},
};

// The module that it was written in; torch, and functools.wraps, give it another name.
std::string_view home_of(PyFunctionObject* f) {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  return view_of(PyDict_GetItemWithError(f->func_globals, key));
}

// By name: the functions in C are objects of their own, those in Python are guarded.
const TransformCall* transform_call(PyObject* p) {
  std::string_view module, name;
  if (PyFunction_Check(p)) {
    module = home_of(as_function(p));
    name = view_of(as_function(p)->func_name);
  } else if (PyCFunction_Check(p)) {
    auto* f = reinterpret_cast<PyCFunctionObject*>(p);
    if (f->m_module == nullptr || !PyUnicode_Check(f->m_module)) return nullptr;
    module = view_of(f->m_module);
    name = f->m_ml->ml_name;
  }
  if (!module.starts_with("torch.")) return nullptr;
  const auto* found = std::ranges::find_if(kTransformCalls, [&](const TransformCall& f) {
    return name == f.name && module == f.module;
  });
  return found == std::end(kTransformCalls) ? nullptr : found;
}

}  // namespace

bool is_of_transforms(PyFunctionObject* f) { return home_of(f).starts_with("torch._functorch."); }

void Graphs::refuse_in_transform(const char* what) {
  if (is_transformed() || in_jvp()) throw Break(BreakId::functional_transform, what, " in one");
}

// A tensor that a transform has wrapped lives on where it has ended.
void Graphs::refuse_wrapped(const at::Tensor& t) const {
  if (!is_wrapped(t)) return;
  Break b(BreakId::functional_transform, "a tensor of its own lives on behind it");
  b.stack = transform_stack_;
  b.steps = transform_steps_;
  throw b;
}

// A level begins. Inside of the outermost one no frame is left.
void Graphs::enter_transform() {
  if (inference().is_open() || c10::InferenceMode::is_enabled())
    throw Break(BreakId::functional_transform, "in inference mode");
  if (is_transformed()) return;
  refuse_in_transform("a level of forward AD");
  const std::vector<size_t> steps = frames().places_to_stop();
  transform_steps_.insert(transform_steps_.begin(), steps.begin(), steps.end());
  transform_stack_ = frames().user_stack().frames();
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

// By torch.func alone: no frame is left until they are allowed again.
py::object Calls::switch_saved_hooks(py::handle callable, const Arguments& args,
                                     const Keywords& kwargs) {
  const auto& stack = frames().stack();
  if (std::ranges::none_of(stack,
                           [](auto* f) { return is_of_transforms(as_function(f->function)); }))
    throw Break(BreakId::torch_call, "hooks of saved tensors are allowed or not");
  refuse_saved_hooks(BreakId::functional_transform, "one");
  require_saved_hooks(BreakId::functional_transform);
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

// What torch.func's Python code calls of torch; nullopt for all else.
Done Calls::call_of_transforms(py::handle callable, const Arguments& args, const Keywords& kwargs) {
  PyObject* p = callable.ptr();
  if (PyFunction_Check(p) && is_text(as_function(p)->func_name, "_autograd_grad") &&
      home_of(as_function(p)) == kTransforms) {
    static const py::object& ours =
        *new py::object(own_function("oxyfuel.transforms", "vector_jacobian_product"));
    return call_function(ours, args, kwargs);
  }
  const TransformCall* f = transform_call(p);
  if (f == nullptr) return std::nullopt;
  if (PyFunction_Check(p)) objects().guard_code(callable);
  const std::string target = cat(f->native ? f->native : f->module, ".", f->name);
  const py::object function =
      f->native ? py::object(py::module_::import(f->native).attr(f->name)) : borrow(callable);
  switch (f->means) {
    case Means::Enter:
      graphs().enter_transform();
      break;
    case Means::Switch:
      break;
    case Means::DualLevel:
      if (!is_transformed())
        leave_no_frame_in_level(std::string_view(f->name).starts_with("_enter"));
      break;
    case Means::Node: {
      // A result of the graph would be without its tangent.
      if (std::string_view(f->name) == "_make_dual" && !is_transformed() && !in_jvp())
        throw Break(BreakId::functional_transform, "a tangent of a level entered before");
      Arguments given;
      for (const py::object& a : args) given.push_back(numbers().read(a));
      return graphs().record(ir::NodeKind::CallFunction, target, function, given, kwargs);
    }
    case Means::Answer:
      return call_real(function, args, kwargs);
    case Means::Forward:
      if (args.size() != 1 ||
          objects().truth(args[0]) != c10::AutogradState::get_tls_state().get_fw_grad_mode())
        throw Break(BreakId::torch_call, target);
      return py::none();
    case Means::Hooks:
      return switch_saved_hooks(function, args, kwargs);
    case Means::Prepare:
      return call_for_good(callable, args, kwargs);
    case Means::Refuse:
      throw Break(BreakId::functional_transform, f->name);
  }
  Arguments given;
  for (const py::object& a : args) given.push_back(numbers().read(a));
  py::object out = graphs().switch_transform(target, function, given, kwargs);
  if (f->means == Means::DualLevel)
    note_forward_ad(std::string_view(f->name).starts_with("_enter"));
  return out;
}

}  // namespace oxy::python
