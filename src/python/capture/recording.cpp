// What captured code calls of torch: nodes of the Torch IR, the ops that are heard underneath, and
// the modes that it switches.
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <set>

#include "python/capture/plan_rebuild.h"
#include "python/guards/guard_walk.h"
#include "python/inner_frames.h"
#include "python/replay.h"
#include "python/sized_calls.h"
#include "python/transform_levels.h"
#include "support/text.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/recorder.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::python {
namespace {

// Whether ATen has an op of this name that takes its operands element by element.
bool is_pointwise(std::string_view name) {
  static const auto& names = *[] {
    auto* all = new std::set<std::string, std::less<>>();
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& op : dispatcher.getAllOpNames()) {
      const auto handle = dispatcher.findOp(op);
      if (op.name.starts_with("aten::") && handle && handle->hasTag(at::Tag::pointwise))
        all->insert(op.name.substr(6));
    }
    return all;
  }();
  return names.contains(name.substr(name.rfind('.') + 1));
}

// What is given as out=.
std::vector<at::Tensor> outs_in(py::handle out) {
  std::vector<at::Tensor> tensors;
  if (is_tensor_object(out.ptr())) return {THPVariable_Unpack(out.ptr())};
  if (PyTuple_Check(out.ptr()) || PyList_Check(out.ptr()))
    for (py::handle one : out)
      if (is_tensor_object(one.ptr())) tensors.push_back(THPVariable_Unpack(one.ptr()));
  return tensors;
}

// What of ours has ended a call of this function.
[[noreturn]] void break_of(const std::exception_ptr& failure, std::string_view function) {
  try {
    std::rethrow_exception(failure);
  } catch (const bridge::DataDependent& e) {
    if (e.needs_symbols) throw WithSymbols{.of_data = true};
    Break b(e.is_number ? BreakId::data_dependent : BreakId::data_dependent_size, e.what());
    b.of_sizes = !e.is_number || function != "operator.getitem";
    throw b;
  } catch (const sym::Undecided& e) {
    throw Break(BreakId::undecided, e.what());
  } catch (const Unsupported& e) {
    throw Break(BreakId::torch_call, e.what());
  }
}

// Whether index_fill takes the value, and may have a gradient by it.
bool fills_differentiably(const at::Tensor& t, const at::Tensor& value) {
  return value.requires_grad() && value.dim() == 0 && value.is_floating_point() &&
         t.is_floating_point();
}

bool autocast_differs(const TorchModes& a, const TorchModes& b) {
  auto of = [](const TorchModes& m) {
    return std::tuple(m.autocast, m.autocast_dtype, m.autocast_cache);
  };
  return of(a) != of(b);
}

// Of the attention's flags those that count on the CPU are switched in the graph, all behind it.
bool is_attention_flag(std::string_view name) { return name.starts_with("torch._C._set_sdp_use_"); }

}  // namespace

Graphs::Graphs(Capture& capture)
    : Part(capture),
      recorder_(std::make_unique<bridge::Recorder>(recorder_options(
          /*shape_rules=*/true, capture.sizes.symbolic(), capture.sizes.of_data()))) {
  if (const auto facts = recorder_->facts()) {
    facts->set_position([this] { return stack_text(frames().user_stack()); });
    ir->graph.pool = ir->recorded_pool = recorder_->pool();
  }
}
Graphs::~Graphs() = default;

// Operators of which one operand is a tensor: the other one may be one, too.
static bool is_arithmetic(std::string_view word) {
  return has_word(
      "add sub mul div truediv true_divide iadd isub imul itruediv gt lt ge le eq ne floordiv "
      "floor_divide ifloordiv mod remainder imod fmod",
      word);
}

py::object Graphs::record(ir::NodeKind kind, const std::string& target, py::handle callable,
                          const Arguments& args, const Keywords& kwargs) {
  // Eager has short cuts for some exponents, which are no tensors.
  const std::string_view word = std::string_view(target).substr(target.rfind('.') + 1);
  const bool takes_numbers = numbers().takes_runtime_numbers(target, args, kwargs);
  if (takes_numbers && word == "pow" && args.size() == 2 && numbers().is_deferred(args[1])) {
    const py::object exponent = numbers().number_input(args[1], *numbers().met_dtype(args), true);
    const bool differentiable =
        c10::GradMode::is_enabled() && THPVariable_Unpack(args[0].ptr()).requires_grad();
    if (!differentiable)
      return record(ir::NodeKind::CallFunction, "oxyfuel._C.power",
                    member_of<"oxyfuel._C", "power">(), {args[0], exponent}, kwargs);
    return record(ir::NodeKind::CallFunction, "oxyfuel.gradients.power",
                  own_function("oxyfuel.gradients", "power"), {args[0], exponent}, kwargs);
  }
  if ((word == "pow_" || word == "ipow") && args.size() == 2 && numbers().is_deferred(args[1]) &&
      numbers().takes_runtime_numbers("pow", args, kwargs)) {
    const py::object base = calls().call_method(args[0], "clone", {}, {});
    const py::object made = record(ir::NodeKind::CallMethod, "pow", {}, {base, args[1]}, kwargs);
    return calls().call_method(args[0], "copy_", {made}, {});
  }
  if (!target.starts_with("oxyfuel.") && (word == "index_fill" || word == "index_fill_") &&
      args.size() == 4 && kwargs.empty() && heap().is_tensor(args[0]) &&
      heap().is_tensor(args[3]) &&
      fills_differentiably(THPVariable_Unpack(args[0].ptr()), THPVariable_Unpack(args[3].ptr()))) {
    return record(ir::NodeKind::CallFunction, cat("oxyfuel.gradients.", word),
                  own_function("oxyfuel.gradients", std::string(word).c_str()), args, kwargs);
  }
  if (any_argument(args, kwargs, mentions_array)) {
    const Arguments numbers = arrays().with_numbers(word, args, true);
    Keywords named;
    for (const auto& [key, a] : kwargs)
      named.emplace_back(key, arrays().with_numbers(word, {a, py::none()}, true)[0]);
    if (any_argument(numbers, named, mentions_array))
      throw Break(BreakId::numpy, target, " of an array");
    return record(kind, target, callable, numbers, named);
  }
  std::vector<PlainFloat> plain;
  auto value = [&](py::handle o) -> std::optional<ir::ValueId> {
    for (const PlainFloat& f : plain)
      if (o.is(f.stand_in)) return f.value;
    Tracked* k = heap().tracked(o);
    return k ? k->value : std::nullopt;
  };
  inference().refuse_saved(target, args, kwargs);
  bring_graph_to(TorchModes());
  auto given = [&](const py::object& a, size_t position, std::string_view keyword) {
    if (takes_numbers && numbers().is_deferred(a))
      return lift(
          numbers().number_input(a, numbers().met_dtype(args).value(), !is_arithmetic(word)));
    if (const py::object number = numbers().plain_float(target, args, position, keyword, a)) {
      plain.push_back(as_plain_float(number));
      return plain.back().stand_in;
    }
    if (iterators().lazy(a)) throw Break(BreakId::torch_call, target, " of an iterator");
    const py::object inside = numbers().with_plain_floats(heap().deep_contents(a));
    return inner_ ? lifted(inside) : inside;
  };
  std::vector<ir::Arg> ir_args;
  Arguments seen;
  for (const auto& a : args) {
    seen.push_back(given(a, seen.size(), ""));
    ir_args.push_back(arg_from_python(ir_now(), seen.back(), value));
  }
  Arguments by_name;
  for (const auto& [key, a] : kwargs) by_name.push_back(given(a, SIZE_MAX, text(key)));
  std::string name = target;
  if (kind == ir::NodeKind::CallFunction && name.empty())
    name = cat("@obj", ir_now().add_object(borrow(callable)));
  ir::Node& node = ir_now().graph.add_call(kind, name, std::move(ir_args), {ir::Type::opaque()});
  py::dict named;
  for (const auto& [key, a] : kwargs) {
    py::object seen_value = by_name.at(node.kwargs.size());
    node.kwargs.emplace_back(text(key), arg_from_python(ir_now(), seen_value, value));
    named[key] = seen_value;
  }
  const StackIds stack = stack_ids(frames().user_stack());
  node.stack = stack.torch;
  if (kind == ir::NodeKind::CallFunction) ir_now().bound_of(node.id) = borrow(callable);
  const ir::NodeId id = node.id;
  recorder_now().set_position(stack.aten, id);
  const bool in_try = frames().is_in_try();
  ir->handles_errors |= in_try;
  recorder_now().set_in_try(in_try);
  recorder_now().expect_write(name, named.contains("out"));
  expect_op(recorder_now(), name);
  py::tuple positional = tuple_of(seen);
  py::object function = borrow(callable);
  if (kind == ir::NodeKind::CallMethod) {
    function = steal(PyObject_GetAttrString(seen[0].ptr(), target.c_str()));
    positional = py::tuple(positional[py::slice(1, static_cast<ssize_t>(seen.size()), 1)]);
  }
  const std::vector<at::Tensor> outs =
      named.contains("out") ? outs_in(named["out"]) : std::vector<at::Tensor>();
  // What is added to may be what is written, as in addmm_.
  const size_t first_apart =
      has_word("addmm addmv addr addbmm baddbmm", name.substr(name.rfind('.') + 1)) &&
              !outs.empty() && is_tensor_object(seen[0].ptr()) &&
              outs[0].is_same(THPVariable_Unpack(seen[0].ptr()))
          ? 1
          : 0;
  if (!outs.empty() && !is_pointwise(name))
    for (const py::object& a : std::span(seen).subspan(first_apart))
      if (is_tensor_object(a.ptr()) && std::ranges::any_of(outs, [&](const at::Tensor& out) {
            return out.is_alias_of(THPVariable_Unpack(a.ptr()));
          }))
        throw Break(BreakId::torch_call, target, " whose out= is an operand");
  std::vector<std::vector<c10::SymInt>> sizes_of_outs;
  for (const at::Tensor& out : outs) sizes_of_outs.push_back(out.sym_sizes().vec());
  const bridge::Heard before = bridge::heard();
  py::object result;
  std::vector<TorchWarning> warnings;
  std::optional<py::error_already_set> error;
  {
    const bridge::Recorder::Entered entered(recorder_now());
    const RefusedFrames allowed(nullptr);
    const AskedFunctions none(false, wrappers().follows());  // the capture has asked
    {
      const TorchWarnings kept(callable);
      result =
          owned(call_with_sizes(kind == ir::NodeKind::CallMethod ? "" : name, function, positional,
                                kwargs.empty() ? py::handle() : py::handle(named)));
      warnings = kept.given();
    }
    if (bridge::heard().draws != before.draws) draws_.insert(id);
    if (result)
      lay_out_as_eager(name, result);
    else
      error.emplace();
    recorder_now().end_autocasts();
  }
  if (error) {
    recorded_all_ = false;
    ir_now().graph.kill(id);
    if (recorder_now().failure()) break_of(recorder_now().failure(), target);
    if (is_undecided(*error)) throw Break(BreakId::undecided, question_of(*error));
    // Arguments that the call does not take, as in eager. An op may not be able to work without
    // data, and its rule for shapes has other words than its kernel: eager calls it.
    if (!error->matches(PyExc_Exception) ||
        (error->matches(PyExc_TypeError) && bridge::heard().ops == before.ops))
      throw *error;
    Break b(BreakId::torch_call, target, " raises ", one_line(*error));
    b.of_torch = true;
    throw b;
  }
  // What was computed of it elsewhere would be a constant.
  for (const PlainFloat& f : plain)
    if (!recorder_->is_placed(THPVariable_Unpack(f.number.ptr())))
      throw Break(BreakId::torch_call, target, " of a number that varies");
  // Eager warns, and the memory keeps its size.
  for (size_t i = 0; i < outs.size(); i++)
    if (outs[i].sym_sizes() != c10::SymIntArrayRef(sizes_of_outs[i]) &&
        c10::multiply_integers(sizes_of_outs[i]) != 0)
      throw Break(BreakId::torch_call, target, " whose out= has another shape");
  // It has told something of what guards keep fixed.
  if (sizes().symbolic()) result = from_torch(result);
  if (!result.is_none() && bridge::heard().ops == before.ops &&
      (is_constant(result.ptr()) || is_symbolic(result))) {
    ir_now().graph.kill(id);
    return result;
  }
  note_results(result, ir_now().graph.node(id).outputs[0]);
  if (bridge::heard().sparse != before.sparse && inner_ == nullptr && !sparse_call_)
    sparse_call_ = frames().here();
  if (inference().is_open()) inference().note_results(result, seen, named);
  if (named.contains("requires_grad") && is_tensor_object(result.ptr())) note_leaf(result);
  for (const TorchWarning& w : warnings) calls().warn_behind(w);
  return result;
}

// The double that stands for the number in a tensor, and the node that gives it.
Graphs::PlainFloat Graphs::as_plain_float(const py::object& number) {
  ir::Node& node =
      ir->graph.add_call(ir::NodeKind::CallFunction, "oxyfuel._C.plain_float",
                         {heap().tracked(number)->value.value()}, {ir::Type::opaque()});
  ir->bound_of(node.id) = member_of<"oxyfuel._C", "plain_float">();
  const ir::ValueId out = node.outputs[0];
  const bridge::Recorder::Entered entered(*recorder_);
  const double value = bridge::stand_in_of(THPVariable_Unpack(number.ptr()).item());
  return {number, py::float_(value), out};
}

// The stack's numbers in the graphs.
Graphs::StackIds Graphs::stack_ids(const UserStack& stack) {
  if (stack.empty()) return {};
  auto it = stack_ids_.find(stack.id());
  if (it != stack_ids_.end()) return it->second;
  const StackIds caller = stack_ids(stack.caller());
  ir::Frame frame = stack.innermost();
  StackIds ids{stack, ir_now().graph.add_frame(caller.torch, frame), {}};
  ids.aten = recorder_now().add_frame(caller.aten, std::move(frame));
  return stack_ids_.emplace(stack.id(), ids).first->second;
}

// Every tensor that comes back must be the recording's own.
void Graphs::note_results(py::handle result, ir::ValueId value) {
  PyObject* p = result.ptr();
  heap().hold(borrow(p));
  if (is_tensor_object(p)) {
    const at::Tensor& t = THPVariable_Unpack(p);
    const at::Tensor inside = innermost(t);
    if (!recorder_now().owns(inside))
      throw Break(BreakId::torch_call, "it returns a tensor that the recording did not make");
    recorder_now().seal(inside);
    ir_now().graph.value(value).type = ir::Type::of(bridge::type_of(t));
    Tracked& k = heap().entry(p);
    if (!k.value) k.value = value, k.graph = inner_ ? inner_->number : 0;
    note_view(t);
  } else if (PyTuple_Check(p) || PyList_Check(p)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++) {
      ir::Node& item =
          ir_now().graph.add_call(ir::NodeKind::CallFunction, "operator.getitem",
                                  {value, static_cast<int64_t>(i)}, {ir::Type::opaque()});
      item.stack = ir_now().graph.def(value).stack;
      ir_now().bound_of(item.id) = member_of<"operator", "getitem">();
      note_results(PySequence_Fast_GET_ITEM(p, i), item.outputs[0]);
    }
  } else if (is_symbolic_int(p)) {
    ir_now().graph.value(value).type = ir::Type::integer(expr_of(p));
  } else if (p != Py_None && !(PyLong_CheckExact(p) && sizes().symbolic())) {
    throw Break(BreakId::torch_call, "it returns a ", Py_TYPE(p)->tp_name);
  }
}

void Graphs::write_storage_of(py::handle input) {
  if (!THPVariable_Check(input.ptr())) return;
  written_storages.push_back(
      bridge::storage_of(*THPVariable_Unpack(input.ptr()).unsafeGetTensorImpl()));
}

// The ops heard underneath become the ATen graph of `ir`; where they cannot, replay will say why.
void Graphs::finish_recording(const std::vector<at::Tensor>& outputs,
                              const std::map<size_t, sym::Expr>& numbers) {
  // Who replays the graph knows of no symbols.
  if (sizes().symbolic() && !recorded_all_) throw WithoutSymbols{"a call that torch refused"};
  const bool asked = std::exchange(offsets_matter, true);
  for (const py::object& input : example_inputs) write_storage_of(input);
  if (!recorded_all_) return refuse_data();
  auto captured = std::make_shared<CapturedRecording>();
  Recording& r = captured->recording;
  *running_ = nullptr;
  try {
    const RefusedFrames allowed(nullptr);  // the backward of functions that were followed
    r.graph = recorder_->finish(outputs, numbers, &r.gradients);
  } catch (const bridge::BackwardRaises& e) {
    refuse_raising_functions(e.what());
    refuse_sparse_calls(e.what());
    if (sizes().symbolic()) throw WithoutSymbols{e.what()};
    return;
  } catch (const std::exception& e) {
    PyErr_Clear();  // autograd's engine leaves set what a backward in Python has raised
    refuse_sparse_calls(e.what());
    if (sizes().symbolic()) throw WithoutSymbols{e.what()};
    return refuse_data();
  }
  for (const LateHook& h : late_hooks_)
    for (uint32_t i = 0; i < outputs.size(); i++)
      if (outputs[i].is_same(THPVariable_Unpack(h.hooked.ptr()))) r.gradients.shown.push_back(i);
  // Arrays that share memory do not look so: their tensors have storages of their own.
  if (arrays().are_inputs() && !r.graph.mutations.empty() && example_inputs.size() > 1)
    throw Break(BreakId::numpy, "memory that arrays may share is written");
  r.graph.name = ir->graph.name;
  r.attributes = recorder_->attributes();
  r.facts = recorder_->facts();
  r.names_places = recorder_->names_places();
  offsets_matter = asked || r.names_places;
  written_storages.clear();
  for (const ir::Mutation& m : r.graph.mutations) write_storage_of(example_inputs.at(m.input));
  if (sizes().share_written_storage())
    throw WithoutSymbols{"memory that arguments share is written"};
  r.visible_outputs = static_cast<uint32_t>(outputs.size());
  r.result.kind = ResultTree::Kind::Tuple;
  for (uint32_t i = 0; i < r.visible_outputs; i++)
    r.result.items.push_back({.kind = ResultTree::Kind::Output, .output = i});
  captured->inputs = example_inputs;
  captured->state = state_;
  captured->state.modes.grad |= turns_grad_on;
  ir->captured = std::move(captured);
}

// ------------------------------------------------------------------------------------------- modes

// Modes that captured code switches are switched for real while it is captured; what the graph gets
// is the change that its next op needs, so a mode that no op runs in leaves no trace.

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
  if (of_device && (args.size() != 2 || !is_text(args[0].ptr(), "cpu"))) {
    if (args.size() != 2 || !keeps_autocast_of(name, args[0], args[1]))
      throw Break(BreakId::torch_call, name, " of another device than the CPU");
    return py::none();
  }
  if (!of_device && name != "torch.set_autocast_cache_enabled" &&
      name != "torch._C._set_grad_enabled" && !is_attention_flag(name))
    return std::nullopt;
  for (const py::object& a : args)
    if (objects().truth(a) && name == "torch._C._set_grad_enabled")
      inference().refuse_inside("grad mode");
  return calls().call_real(callable, args, kwargs);
}

// Whether a function sets, for a device that no captured op is on, what is set there: the question
// is guarded.
bool Graphs::keeps_autocast_of(std::string_view name, const py::object& device,
                               const py::object& value) {
  const py::object& ask = name == "torch.set_autocast_enabled"
                              ? member_of<"torch", "is_autocast_enabled">()
                              : member_of<"torch", "get_autocast_dtype">();
  return is_constant(device.ptr()) && calls().call(ask, {device}).is(value);
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

template <Literal module, Literal name>
ir::ValueId Graphs::add_mode_call(std::vector<ir::Arg> args) {
  ir::Node& node =
      ir_now().graph.add_call(ir::NodeKind::CallFunction, cat(module.text, ".", name.text),
                              std::move(args), {ir::Type::opaque()});
  node.stack = stack_ids(frames().user_stack()).torch;
  ir_now().bound_of(node.id) = member_of<module, name>();
  return node.outputs[0];
}

// The graph comes to these modes: it leaves the contexts of autocast that it has entered, where one
// of them was entered in these modes, and else enters one more.
void Graphs::bring_graph_to(const TorchModes& modes) {
  if (std::exchange(casts_end_, false) && recorder_now().has_casts()) {
    add_mode_call<"torch", "clear_autocast_cache">({});
    recorder_now().clear_casts();
  }
  const bool other_autocast = autocast_differs(graph_modes_, modes);
  size_t left = other_autocast ? autocasts_.size() : 0;
  while (left > 0 && autocast_differs(autocasts_[left - 1].before, modes)) left--;
  while (left > 0 && autocasts_.size() >= left) {
    add_mode_call<"torch.amp.autocast_mode", "_exit_autocast">({autocasts_.back().value});
    autocasts_.pop_back();
  }
  if (modes.grad != graph_modes_.grad) {
    add_mode_call<"torch._C", "_set_grad_enabled">({modes.grad});
    turns_grad_on |= !state_.modes.grad && !c10::InferenceMode::is_enabled();
  }
  if (modes.flash != graph_modes_.flash)
    add_mode_call<"torch._C", "_set_sdp_use_flash">({modes.flash});
  if (modes.math != graph_modes_.math) add_mode_call<"torch._C", "_set_sdp_use_math">({modes.math});
  if (other_autocast && left == 0) {
    ir::Arg cache;
    if (modes.autocast_cache != graph_modes_.autocast_cache) cache = modes.autocast_cache;
    const ir::ValueId value = add_mode_call<"torch.amp.autocast_mode", "_enter_autocast">(
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
  TorchModes modes = state_.modes;
  if (turns_grad_on) begin_in_grad_mode(), modes.grad = true;
  bring_graph_to(modes);
}

// What is recorded up to the first switch is without it.
void Graphs::begin_in_grad_mode() {
  constexpr std::string_view kSwitch = "torch._C._set_grad_enabled";
  const auto& order = ir->graph.order();
  const auto first = std::ranges::find_if(order, [&](ir::NodeId n) {
    const ir::Node& node = ir->graph.node(n);
    return node.kind != ir::NodeKind::Input && !node.dead;
  });
  if (ir->graph.node(*first).target == kSwitch) return ir->graph.kill(*first);
  ir::Node& node = ir->graph.insert_call(*first, ir::NodeKind::CallFunction, std::string(kSwitch),
                                         {false}, {ir::Type::opaque()});
  ir->bound_of(node.id) = member_of<"torch._C", "_set_grad_enabled">();
}

}  // namespace oxy::python
