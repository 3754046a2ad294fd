// Hooks of tensors that captured code makes. One that does nothing but compute with gradients is
// recorded, and the engine calls it on the fakes. One with effects is registered with the real
// tensor, once the graph has run; where a backward of the code itself comes by, it is called there,
// as code like any other, between two pieces of that backward.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/backward_pieces.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {
namespace {

py::object of_gradients(const char* name) { return own_function("oxyfuel.gradients", name); }

const py::object& hook_handle() {
  static const py::object& handle = *new py::object(of_gradients("HookHandle"));
  return handle;
}

torch::autograd::edge_list edges_of(const Arguments& tensors) {
  torch::autograd::edge_list out;
  for (const py::object& t : tensors)
    out.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(t.ptr())));
  return out;
}

}  // namespace

void Graphs::note_hook(const py::object& tensor, bool vanishes, const py::object& handle) {
  CustomFunction f;
  f.handle = handle;
  f.node = torch::autograd::impl::gradient_edge(THPVariable_Unpack(tensor.ptr())).function;
  f.vanishes = vanishes;
  f.hooked = tensor;
  note_custom_function(std::move(f));
}

void Graphs::note_late_hook(const py::object& tensor, const py::object& hook,
                            const py::object& handle) {
  CustomFunction f;
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  f.node = torch::autograd::impl::gradient_edge(t).function;
  f.hooked = tensor;
  f.late = t._version();
  f.hook = hook;
  f.late_handle = handle;
  note_custom_function(std::move(f));
}

// Who has such a hook gets its gradients as a result of the graph, with a node of its own. That
// knows all of them where the memory is nobody else's.
void Graphs::refuse_late_hooks(const std::vector<at::Tensor>& outputs) {
  for (const CustomFunction& f : custom_functions_) {
    if (!f.late || f.done) continue;
    const at::Tensor& t = THPVariable_Unpack(f.hooked.ptr());
    const at::Tensor taker = taker_of_gradients(t, outputs);
    if (!taker.defined() || !taker.is_same(t))
      refuse_function(f, BreakId::torch_call, "a hook of what shares memory");
    if (t._version() != *f.late || torch::autograd::impl::gradient_edge(t).function != f.node)
      refuse_function(f, BreakId::torch_call, "a hook of what is written");
  }
}

// The tensors with hooks of this kind that a backward from `roots` comes by.
Arguments Graphs::late_hooked(const std::vector<at::Tensor>& roots) const {
  Arguments out;
  torch::autograd::edge_list from;
  for (const CustomFunction& f : custom_functions_) {
    if (!f.late || f.removed) continue;
    if (from.empty())
      for (const at::Tensor& root : roots)
        from.push_back(torch::autograd::impl::gradient_edge(root));
    if (!bridge::leads_to(from, *f.node)) continue;
    if (!f.hook)
      refuse_function(f, BreakId::torch_call, "retain_grad in front of a backward of the code");
    const at::Tensor& t = THPVariable_Unpack(f.hooked.ptr());
    if (t._version() != *f.late || torch::autograd::impl::gradient_edge(t).function != f.node)
      refuse_function(f, BreakId::torch_call, "a hook of what is written");
    if (std::ranges::none_of(out, [&](const py::object& o) { return o.is(f.hooked); }))
      out.push_back(f.hooked);
  }
  return out;
}

// Of one, what they make of a gradient.
py::object Graphs::call_late_hooks(const py::object& tensor, const py::object& gradient) {
  py::dict hooks;
  for (const CustomFunction& f : custom_functions_)
    if (f.late && !f.removed && f.hooked.is(tensor)) hooks[py::int_(hooks.size())] = f.hook;
  if (gradient.is_none())
    throw Break(BreakId::torch_call, "hooks of a tensor that no gradient comes to");
  return calls().call(of_gradients("call_in_backward"), {hooks, gradient}, {});
}

// Gradients by `by`, as torch.autograd.grad gives them. In front of what hands on the gradient of
// one of `stops`, `at_stop` gets it, and gives what is handed on.
py::object Graphs::record_in_pieces(
    const Arguments& roots, Arguments gradients, const Arguments& by, bool frees,
    const Arguments& stops,
    const std::function<py::object(const py::object&, const py::object&)>& at_stop) {
  gradients.resize(roots.size(), py::none());
  for (size_t i = 0; i < roots.size(); i++) {
    if (!gradients[i].is_none()) continue;
    if (THPVariable_Unpack(roots[i].ptr()).sym_numel() != 1)
      throw Break(BreakId::torch_call, "a gradient of what is no scalar");
    gradients[i] = calls().call(member_of<"torch", "ones_like">(), {roots[i]});
  }
  const bridge::BackwardPieces pieces(edges_of(roots), edges_of(stops), edges_of(by));
  const py::object& function = member_of<"oxyfuel._C", "backward_piece">();
  const size_t count = pieces.order().size();
  const c10::AutoGradMode off(false);
  for (size_t k = 0;; k++) {
    py::object out = record(ir::NodeKind::CallFunction, "oxyfuel._C.backward_piece", function,
                            {tuple_of(roots), tuple_of(stops), tuple_of(by), py::int_(k),
                             py::bool_(frees), tuple_of(gradients)},
                            {});
    if (k == count) return out;
    gradients.clear();
    for (py::handle g : out) gradients.push_back(borrow(g));
    gradients[0] = at_stop(stops[pieces.order()[k]], gradients[0]);
  }
}

// What was called in a backward that has used up the graph behind a tensor is not to be registered.
void Graphs::end_late_hooks(const Arguments& tensors) {
  for (CustomFunction& f : custom_functions_)
    if (f.late && std::ranges::any_of(tensors, [&](auto& t) { return t.is(f.hooked); }))
      f.done = true;
}

bool Graphs::is_done_hook(const py::object& handle) const {
  return std::ranges::any_of(custom_functions_, [&](const CustomFunction& f) {
    return f.done && f.late_handle.is(handle);
  });
}

// The handle of a hook that was recorded.
void Graphs::remove_hook(const py::object& handle, const py::object& tensor) {
  for (CustomFunction& f : custom_functions_)
    if (f.done && handle && f.late_handle.is(handle)) return void(f.removed = true);
  for (const CustomFunction& f : custom_functions_)
    if (f.hooked.is(tensor))
      refuse_function(f, BreakId::torch_call, "a hook that is removed, or whose handle is used");
}

// `tensor.register_hook(hook)` of what the code has made.
py::object Calls::register_hook(const py::object& tensor, const py::object& hook) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (heap().tracked(tensor)->source.valid() || !t.requires_grad() || t.is_leaf() ||
      graphs().inner() != nullptr || is_transformed())
    throw Break(BreakId::torch_call, "Tensor.register_hook");
  if (graphs().hooks_late || !PyFunction_Check(hook.ptr())) return register_late_hook(tensor, hook);
  static const py::object& follow = *new py::object(of_gradients("hook_results"));
  const py::object gradient = call(member_of<"torch", "zeros_like">(), {tensor},
                                   {{py::str("requires_grad"), py::bool_(false)}});
  bool vanishes = false;
  try {
    vanishes = rehearse("a hook", {tensor, gradient}, {hook}, [&](size_t& draws) {
      const py::object found = call(follow, {hook, gradient}, {});
      draws = bridge::heard().draws;
      return std::pair(py::object(py::make_tuple(gradient)), found);
    });
  } catch (const Break& b) {
    if (b.id == BreakId::autograd_function) throw HooksLate();
    throw;
  }
  static const py::object& function = *new py::object(of_gradients("register_hook"));
  graphs().record(ir::NodeKind::CallFunction, "", function, {tensor, hook}, {});
  const py::object handle = call(hook_handle(), {tensor}, {});
  graphs().note_hook(tensor, vanishes, handle);
  return handle;
}

// Of one that has effects, or is none of Python's functions: it is called as in eager, when
// gradients arrive at the tensor, which the graph hands out.
py::object Calls::register_late_hook(const py::object& tensor, const py::object& hook) {
  static const py::object& function = *new py::object(of_gradients("register_with_handle"));
  const py::object handle = call(hook_handle(), {tensor}, {});
  graphs().note_late_hook(tensor, hook, handle);
  behind_.emplace_back(function, Arguments{tensor, hook, handle});
  return handle;
}

// `tensor.retain_grad()`, in the same way.
py::object Calls::retain_gradient(const py::object& tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (heap().tracked(tensor)->source.valid() || !t.requires_grad() || t.is_leaf() ||
      graphs().inner() != nullptr || is_transformed())
    throw Break(BreakId::torch_call, "Tensor.retain_grad");
  static const py::object& function = *new py::object(of_gradients("retain_gradient"));
  graphs().note_late_hook(tensor, {}, {});
  behind_.emplace_back(function, Arguments{tensor});
  return py::none();
}

}  // namespace oxy::python
