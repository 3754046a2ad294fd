// Modes of torch that captured code switches. They are switched for real while the code is
// captured; what the graph gets is the change that its next op needs, so a mode that no op runs in
// leaves no trace.
#include "python/global_state.h"

#include "python/capture/capture.h"
#include "support/text.h"

namespace oxy::python {
namespace {

// torch.set_autocast_enabled and its kind, for other devices than the CPU.
bool is_for_another_device(const Arguments& args) {
  return args.empty() || !is_text(args[0].ptr(), "cpu");
}

bool autocast_differs(const TorchModes& a, TorchModes b) {
  b.grad = a.grad;
  return !(a == b);
}

}  // namespace

// A function of torch that sets a mode.
std::optional<py::object> Graphs::set_mode(const std::string& name, py::handle callable,
                                           const Arguments& args, const Keywords& kwargs) {
  if (name == "torch.clear_autocast_cache") {
    guard_autocast_nesting();
    casts_end_ = true;
    return py::none();
  }
  if (name == "torch.autocast_increment_nesting" || name == "torch.autocast_decrement_nesting") {
    guard_autocast_nesting();
    autocast_nesting_ += name == "torch.autocast_increment_nesting" ? 1 : -1;
    return calls().call_real(callable, args, kwargs);
  }
  const bool of_device = name == "torch.set_autocast_enabled" || name == "torch.set_autocast_dtype";
  if (of_device && (args.size() != 2 || is_for_another_device(args)))
    throw Break(BreakId::torch_call, name, " of another device than the CPU");
  if (!of_device && name != "torch.set_autocast_cache_enabled" &&
      name != "torch._C._set_grad_enabled")
    return std::nullopt;
  for (const py::object& a : args) objects().truth(a);
  return calls().call_real(callable, args, kwargs);
}

// Which context of autocast is the outermost one, whose end empties the cache of casts.
void Graphs::guard_autocast_nesting() {
  if (std::exchange(nesting_guarded_, true)) return;
  const py::object& ask = member_of<"oxyfuel._C", "autocast_nesting">();
  heap().guard(
      GuardKind::Equals,
      heap().sources.answer(heap().sources.pinned(ask, "oxyfuel._C.autocast_nesting"), py::tuple()),
      py::int_(autocast_nesting() - autocast_nesting_));
}

ir::ValueId Graphs::add_mode_call(const std::string& name, py::handle callable,
                                  std::vector<ir::Arg> args) {
  ir::Node& node = ir_now().graph.add_call(ir::NodeKind::CallFunction, name, std::move(args),
                                           {ir::Type::opaque()});
  node.stack = stack_ids(frames().user_stack()).torch;
  ir_now().bound_of(node.id) = borrow(callable);
  return node.outputs[0];
}

// The graph comes to these modes: it leaves the contexts of autocast that it has entered, where one
// of them was entered in these modes, and else enters one more.
void Graphs::bring_graph_to(const TorchModes& modes) {
  if (std::exchange(casts_end_, false) && recorder_now().has_casts()) {
    add_mode_call("torch.clear_autocast_cache", member_of<"torch", "clear_autocast_cache">(), {});
    recorder_now().clear_casts();
  }
  const bool other_autocast = autocast_differs(graph_modes_, modes);
  size_t left = other_autocast ? autocasts_.size() : 0;
  while (left > 0 && autocast_differs(autocasts_[left - 1].before, modes)) left--;
  while (left > 0 && autocasts_.size() >= left) {
    add_mode_call("torch.amp.autocast_mode._exit_autocast",
                  member_of<"torch.amp.autocast_mode", "_exit_autocast">(),
                  {autocasts_.back().value});
    autocasts_.pop_back();
  }
  if (modes.grad != graph_modes_.grad)
    add_mode_call("torch._C._set_grad_enabled", member_of<"torch._C", "_set_grad_enabled">(),
                  {modes.grad});
  if (other_autocast && left == 0) {
    ir::Arg cache;
    if (modes.autocast_cache != graph_modes_.autocast_cache) cache = modes.autocast_cache;
    const ir::ValueId value =
        add_mode_call("torch.amp.autocast_mode._enter_autocast",
                      member_of<"torch.amp.autocast_mode", "_enter_autocast">(),
                      {"cpu", static_cast<ir::DType>(modes.autocast_dtype), modes.autocast, cache});
    autocasts_.push_back({value, graph_modes_});
  }
  graph_modes_ = modes;
}

// At the end of a capture: it is the caller that gets the other modes, not the graph.
void Graphs::end_modes() {
  const bool clear = casts_end_ && recorder_->casts_in_regions() == bridge::KeptCasts::All;
  if (std::exchange(casts_end_, false) && !clear) recorder_->clear_casts();
  if (!(TorchModes() == state_.modes) || autocast_nesting_ != 0 || clear)
    modes_after = ModesAfter{TorchModes(), autocast_nesting_, clear};
  bring_graph_to(state_.modes);
}

}  // namespace oxy::python
