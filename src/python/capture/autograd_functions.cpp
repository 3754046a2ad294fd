// Custom autograd functions and checkpoints, which a recording takes as what they compute, and ops
// from outside torch with a backward in Python.
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <functional>

#include "python/capture/autograd_nodes.h"
#include "python/capture/capture.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"
#include "torch_bridge/view_replay.h"

namespace oxy::python {
namespace {

namespace engine = torch::autograd;
using engine::Node;

using bridge::is_of_python;

py::object autograd_member(const char* name) {
  return own_function("oxyfuel.autograd_function", name);
}

// Note which one a backward of the recording is in.
class Enters : public engine::FunctionPreHook {
 public:
  Enters(std::shared_ptr<const Node*> running, const Node* node)
      : running_(std::move(running)), node_(node) {}
  engine::variable_list operator()(const engine::variable_list& gradients) override {
    *running_ = node_;
    return gradients;
  }

 private:
  const std::shared_ptr<const Node*> running_;
  const Node* node_;
};

class Leaves : public engine::FunctionPostHook {
 public:
  explicit Leaves(std::shared_ptr<const Node*> running) : running_(std::move(running)) {}
  engine::variable_list operator()(const engine::variable_list& outputs,
                                   const engine::variable_list&) override {
    *running_ = nullptr;
    return outputs;
  }

 private:
  const std::shared_ptr<const Node*> running_;
};

// An input, or a leaf.
bool is_as_it_came(const at::Tensor& t) {
  const auto edge = engine::impl::gradient_edge(t);
  return edge.function && (is_accumulation(*edge.function) || is_entrance(*edge.function));
}

// Those that a subclass of Function has, or its bases that are not torch's.
Arguments functions_of(py::handle type) {
  Arguments out;
  for (py::handle base : borrow(as_type(type)->tp_mro)) {
    if (base.is(member_of<"torch.autograd", "Function">())) break;
    PyObject *name, *member;
    PyObject* members = type_dict(as_type(base));
    for (Py_ssize_t at = 0; PyDict_Next(members, &at, &name, &member);) {
      const bool wrapped =
          Py_TYPE(member) == &PyStaticMethod_Type || Py_TYPE(member) == &PyClassMethod_Type;
      const py::object f = wrapped ? borrow(member).attr("__func__") : borrow(member);
      if (PyFunction_Check(f.ptr())) out.push_back(f);
    }
  }
  return out;
}

// Whether the checkpoint of the torch at hand keeps what is given by this name for itself.
bool is_own_of_checkpoint(const py::object& name) {
  static const py::object& parameters = *new py::object([]() -> py::object {
    const RefusedFrames allowed(nullptr);
    return py::module_::import("inspect")
        .attr("signature")(member_of<"torch.utils.checkpoint", "checkpoint">())
        .attr("parameters");
  }());
  return PySequence_Contains(parameters.ptr(), name.ptr()) == 1;
}

}  // namespace

// `results`: of an autograd.Function. `materializes`: its backward gets zeros for undefined
// gradients.
void Graphs::note_custom_function(const py::object& results, bool materializes) {
  if (inner_ != nullptr) return;
  NodePtr node;
  size_t differentiable = 0;
  const bool one = heap().is_tensor(results);
  for (py::handle r : one ? py::object(py::make_tuple(results)) : heap().contents(results)) {
    if (!heap().is_tensor(r) || is_wrapped(THPVariable_Unpack(r.ptr())) ||
        !THPVariable_Unpack(r.ptr()).requires_grad())
      continue;
    node = engine::impl::gradient_edge(THPVariable_Unpack(r.ptr())).function;
    differentiable++;
  }
  if (node) watch(*node);
  custom_functions_.push_back({node, frames().here(), materializes, differentiable > 1});
}

// `results`: of an op from outside torch, which may have a backward in Python.
void Graphs::note_op(const py::object& results) {
  if (inner_ != nullptr || !at::GradMode::is_enabled()) return;
  for (const py::object& r : items(results)) {
    if (!heap().is_tensor(r)) continue;
    const at::Tensor& t = THPVariable_Unpack(r.ptr());
    if (is_wrapped(t) || !t.requires_grad() ||
        !is_of_python(*engine::impl::gradient_edge(t).function))
      continue;
    custom_ops_.push_back({engine::impl::gradient_edge(t).function, frames().here()});
    return watch(*custom_ops_.back().node);
  }
}

// A graph has no sparse tensor but for a gradient that it hands out.
void Graphs::refuse_sparse_calls(const std::string& why) const {
  if (sparse_call_) sparse_call_->refuse(BreakId::torch_call, why);
}

void Graphs::watch(Node& node) {
  node.add_pre_hook(std::make_unique<Enters>(running_, &node));
  node.add_post_hook(std::make_unique<Leaves>(running_));
}

// Where a backward that has raised was in one of them. Of hooks, and of what a transform has made,
// nobody knows which one it was.
void Graphs::refuse_raising_functions(const std::string& why) const {
  const auto refuse_running = [&](const auto& all, BreakId id) {
    for (const auto& one : all)
      if (*running_ != nullptr && one.node.get() == *running_) one.place.refuse(id, why);
  };
  refuse_running(custom_functions_, BreakId::autograd_function);
  refuse_running(custom_ops_, BreakId::torch_call);
  for (const CustomFunction& f : custom_functions_)
    if (!f.node) f.place.refuse(BreakId::autograd_function, why);
  if (!hooks_.empty()) hooks_[0].place.refuse(BreakId::autograd_function, why);
  if (!late_hooks_.empty()) late_hooks_[0].place.refuse(BreakId::autograd_function, why);
}

// The tensor that a graph hands gradients of an output to (torch_bridge/recording_end): itself, if
// its memory is of its own, else what autograd knows the memory by. Undefined: there is none.
at::Tensor Graphs::taker_of_gradients(const at::Tensor& output,
                                      const std::vector<at::Tensor>& outputs) {
  auto shares = [&](const at::Tensor& t) {
    return t.defined() &&
           t.storage().unsafeGetStorageImpl() == output.storage().unsafeGetStorageImpl();
  };
  auto base_of = [](const at::Tensor& t) { return t.is_view() ? at::Tensor(t._base()) : t; };
  if (output.requires_grad() && bridge::is_view_of_function(output)) return output;
  const at::Tensor base = base_of(output);
  bool is_of_input = false;
  for (const auto& [real, fake] : heap().fakes()) {
    const at::Tensor& input = THPVariable_Unpack(fake.ptr());
    if (output.is_same(input) || base.is_same(input)) return input;
    is_of_input |= shares(input);
  }
  if (is_of_input) return {};
  if (std::ranges::count_if(outputs, shares) == 1 && bridge::type_of(output).is_dense() &&
      !bridge::is_piece(output))
    return output;
  for (const at::Tensor& t : outputs)
    if (t.requires_grad() && shares(t) && !base_of(t).is_same(base)) return {};
  return base;
}

void Graphs::note_view(const at::Tensor& t) {
  if (inner_ == nullptr && !is_transformed() && t.is_view() && t.requires_grad() &&
      !has_old_history(t))
    views_.push_back({engine::impl::gradient_edge(t).function, frames().places_to_stop()});
}

// Somebody may ask for gradients by a view, or hook it. The graph has those of its memory: where
// others of its results are computed of the view, eager makes it, and it is an input.
void Graphs::refuse_views(const std::vector<at::Tensor>& outputs) {
  if (views_.empty()) return;
  std::vector<at::Tensor> living;
  auto lives = [&](const at::Tensor& t) {
    if (t.defined() && t.requires_grad() && !has_old_history(t) && !is_as_it_came(t))
      living.push_back(t);
  };
  for (const at::Tensor& t : outputs) lives(t);
  for (const auto& [real, fake] : heap().fakes()) lives(THPVariable_Unpack(fake.ptr()));
  for (const at::Tensor& view : outputs) {
    if (!view.defined() || !view.requires_grad() || !view.is_view() || has_old_history(view) ||
        taker_of_gradients(view, outputs).is_same(view))
      continue;
    const auto node = engine::impl::gradient_edge(view).function;
    const auto made = std::ranges::find(views_, node, &View::node);
    if (made == views_.end()) continue;
    for (const at::Tensor& t : living) {
      const engine::Edge edge = engine::impl::gradient_edge(t);
      if (edge.function == node || !bridge::leads_to({edge}, *node)) continue;
      Break b(BreakId::torch_call, "a view lives on beside what is computed of it");
      b.steps = made->steps;
      throw b;
    }
  }
}

// What no graph can give: a view of which autograd knows other gradients than of its memory; a
// tensor with hooks; and gradients that depend on which results have some.
void Graphs::refuse_custom_functions(const std::vector<at::Tensor>& outputs) {
  if (custom_functions_.empty() && hooks_.empty() && late_hooks_.empty()) return;
  // Also those that torch has made inside of a transform, of a function without a node of its own.
  std::unordered_set<const Node*> custom, unknown;
  for (const CustomFunction& f : custom_functions_)
    if (f.node) custom.insert(f.node.get());
  for (const Hook& h : hooks_) custom.insert(h.node.get());
  auto customs_behind = [&](const at::Tensor& t) {
    std::vector<const Node*> out;
    for (const auto& node : nodes_behind({t})) {
      const bool known = custom.contains(node.get());
      if (!known && is_of_python(*node)) unknown.insert(node.get());
      if (known || unknown.contains(node.get())) out.push_back(node.get());
    }
    return out;
  };
  std::vector<at::Tensor> given;
  for (const at::Tensor& t : outputs)
    if (t.defined()) given.push_back(t);
  std::vector<at::Tensor> outside = given;
  for (const auto& [real, fake] : heap().fakes()) outside.push_back(THPVariable_Unpack(fake.ptr()));
  for (const at::Tensor& t : outside) renew_history(t);
  size_t roots = 0;
  std::unordered_map<const Node*, size_t> reaching;  // roots
  for (const at::Tensor& t : outside) {
    if (!t.requires_grad() || is_as_it_came(t)) continue;
    roots++;
    for (const Node* node : customs_behind(t)) reaching[node]++;
  }
  std::unordered_set<const Node*> lost;  // by outputs, whose gradients go past them
  for (const at::Tensor& t : given) {
    if (!t.requires_grad()) continue;
    const at::Tensor taker = taker_of_gradients(t, given);
    if (taker.defined() && taker.is_same(t)) continue;
    std::vector<const Node*> kept;
    if (taker.defined() && taker.requires_grad()) kept = customs_behind(taker);
    for (const Node* node : customs_behind(t))
      if (std::ranges::find(kept, node) == kept.end()) lost.insert(node);
  }
  // A hook is called where something arrives; code that gets None in the place of what does not
  // arrive may do anything there. All else the graph has (bridge::add_backward).
  auto refuse = [&](const Node* node, const Place& place, bool vanishes, bool takes_undefined) {
    if (lost.contains(node))
      place.refuse(BreakId::autograd_function,
                   "what it gives shares memory with what has another gradient");
    const auto found = reaching.find(node);
    const size_t count = found == reaching.end() ? 0 : found->second;
    if ((!vanishes && count > 0 && count < roots) || (takes_undefined && count > 1))
      place.refuse(BreakId::autograd_function,
                   "its gradients depend on which of the results have some");
  };
  refuse_hooks_of_what_is_written();
  for (const Hook& h : hooks_) {
    for (const at::Tensor& t : given)
      if (t.is_same(THPVariable_Unpack(h.hooked.ptr()))) throw HooksLate();
    refuse(h.node.get(), h.place, h.vanishes, false);
  }
  for (const CustomFunction& f : custom_functions_) {
    if (f.node) {
      refuse(f.node.get(), f.place, true, f.has_several && !f.materializes);
      continue;
    }
    for (const Node* node : unknown)
      refuse(node, f.place, true, node->num_inputs() > 1 && !f.materializes);
  }
}

// The tensors that are there, and how often each was written to.
Calls::Written Calls::written_so_far(const Arguments& args) {
  Written out;
  auto add = [&](py::handle o) {
    if (!heap().is_tensor(o)) return;
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    out.emplace_back(t, writes_to(t));
  };
  for (const auto& [real, fake] : heap().fakes()) add(fake);
  for (const py::object& o : heap().held()) add(o);
  for (const py::object& a : args) add(a);
  return out;
}

// One of them, or one that was met since.
bool Calls::is_written_since(const Written& before) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& [t, writes] : before) {
    if (writes_to(t) != writes) return true;
    known.insert(t.unsafeGetTensorImpl());
  }
  return std::ranges::any_of(heap().fakes(), [&](const auto& met) {
    const at::Tensor& t = THPVariable_Unpack(met.second.ptr());
    return t._version() != 0 && !known.contains(t.unsafeGetTensorImpl());
  });
}

// What a checkpoint asks for the contexts of its call and of the one that computes it again: those
// that say what is kept have no effect here, and others break.
void Calls::follow_contexts(const py::object& function, bool reentrant) {
  if (reentrant) throw Break(BreakId::checkpoint, "context_fn and use_reentrant");
  py::object contexts;
  {
    const bool before = std::exchange(in_context_function_, true);
    const auto leave = c10::make_scope_exit([&] { in_context_function_ = before; });
    contexts = call(function, {}, {});
  }
  const py::object plain =
      call(own_function("oxyfuel.checkpoints", "compute_nothing"), {contexts}, {});
  if (!plain.is(py::bool_(true))) throw Break(BreakId::checkpoint, "context_fn");
}

// torch.utils.checkpoint.checkpoint as the call that it makes: what a compiled backward keeps, it
// decides itself.
py::object Calls::call_checkpoint(const Arguments& args, const Keywords& kwargs) {
  Graphs::refuse_in_transform("a checkpoint");
  Keywords rest;
  py::object contexts;
  std::optional<bool> reentrant;
  bool respects_hooks = false, keeps_generator = true;
  for (const auto& [key, value] : kwargs) {
    const std::string name = text(key);
    if (name == "use_reentrant" && !value.is_none())
      reentrant = objects().truth(value);
    else if (name == "context_fn")
      contexts = value;
    else if (name == "respect_saved_tensors_hooks" && is_own_of_checkpoint(key))
      respects_hooks = !value.is_none();  // only with context_fn
    else if (name == "preserve_rng_state")
      keeps_generator = objects().truth(value);
    else if (name == "determinism_check" || name == "early_stop" ||
             (name == "debug" && !objects().truth(value)))
      continue;
    else if (is_own_of_checkpoint(key))
      throw Break(BreakId::checkpoint, name);
    else
      rest.emplace_back(key, value);
  }
  if (!reentrant) throw Break(BreakId::checkpoint, "use_reentrant is not given");
  if (!*reentrant && at::GradMode::is_enabled())  // it has some
    require_saved_hooks(BreakId::checkpoint);
  if (contexts) follow_contexts(contexts, *reentrant);
  auto needs_gradient = [this](const py::object& a) {
    return heap().is_tensor(a) && THPVariable_Unpack(a.ptr()).requires_grad();
  };
  if (*reentrant && (!rest.empty() || respects_hooks ||
                     (at::GradMode::is_enabled() && std::ranges::none_of(args, needs_gradient))))
    throw Break(BreakId::checkpoint, "use_reentrant, of what requires no gradients");
  const size_t drawn = draws().count(), heard = bridge::heard().draws;
  const size_t effects_before = effects().count();
  const auto tensors = written_so_far(args);
  py::object out = call(args[0], {args.begin() + 1, args.end()}, std::move(rest));
  if (draws().count() != drawn) throw Break(BreakId::checkpoint, "random numbers of Python's");
  // What is computed again in eager's backward is done again.
  if (at::GradMode::is_enabled()) {
    if (!keeps_generator && bridge::heard().draws != heard)
      throw Break(BreakId::checkpoint, "preserve_rng_state=False, of what draws random numbers");
    if (effects().count() != effects_before || is_written_since(tensors))
      throw Break(BreakId::checkpoint, "what it calls writes to what was there before");
  }
  // An autograd.Function, whose results require gradients; it does not look into containers.
  const auto lacks_history = [this](py::handle o) {
    if (!heap().is_tensor(o)) return mentions_tensor(o);
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    return !t.requires_grad() && torch::autograd::isDifferentiableType(t.scalar_type());
  };
  const py::tuple all = PyTuple_CheckExact(out.ptr()) ? py::tuple(out) : py::make_tuple(out);
  if (*reentrant && at::GradMode::is_enabled() &&
      std::any_of(all.begin(), all.end(), lacks_history))
    throw Break(BreakId::checkpoint, "use_reentrant, of what gives results without gradients");
  return out;
}

std::pair<size_t, size_t> Graphs::position() {
  return {ir_now().graph.order().size(), recorder_now().node_count()};
}

void Graphs::forget_draws(std::pair<size_t, size_t> since) {
  ir_now().graph.kill_with_readers(since.first,
                                   [this](const ir::Node& n) { return draws_.contains(n.id); });
  recorder_now().forget_draws(since.second);
}

// Follows code that torch will call on the fakes, for what it relies on; nothing is kept of it.
// Whether what it has made of gradients is undefined where they are. `follow` gives both. `code`:
// functions that it may call.
bool Calls::rehearse(
    const std::string& name, const Arguments& args, const Arguments& code,
    const std::function<std::pair<py::object, py::object>(size_t& draws)>& follow) {
  auto around = heap().begin_rehearsal(args);
  const bool inside = std::exchange(graphs().in_hook, true);
  const auto end = c10::make_scope_exit([&] {
    heap().end_rehearsal(std::move(around));
    graphs().in_hook = inside;
  });
  const size_t writes = effects().count(), met = heap().met_written();
  const size_t numbers_met = graphs().number_inputs.size(), tensors_met = heap().met_tensors();
  const auto begin = graphs().position();
  const size_t drawn_by_python = this->draws().count();
  size_t draws = bridge::heard().draws;
  const auto tensors = written_so_far(args);
  Arguments reached = args;
  reached.insert(reached.end(), code.begin(), code.end());
  const Graphs::Snapshot before = graphs().snapshot(reached, false);
  std::pair<py::object, py::object> made;
  try {
    made = follow(draws);
  } catch (const Break& b) {  // inside of it nothing can be left
    throw Break(BreakId::autograd_function, name, ": ", b.what());
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    throw Break(BreakId::autograd_function, name, " raises");
  }
  const char* why = nullptr;
  if (effects().count() != writes || is_written_since(tensors) ||
      !graphs().is_unchanged(before, graphs().snapshot(reached, false)))
    why = ": it writes to what it has not made";
  else if (heap().met_written() != met || !effects().no_type_is_written())
    why = ": it reads what was written, which is not done yet";  // torch's calls would not see it
  else if (this->draws().count() != drawn_by_python)
    why = ": it draws random numbers of Python's";
  else if (bridge::heard().draws != draws)
    why = ": it draws random numbers in its backward";
  else if (heap().met_tensors() != tensors_met)  // torch's calls would get the real one
    why = ": it reads a tensor that is no argument";
  else if (!numbers().computes_with(args, numbers_met))
    why = ": it reads a number that varies and is no argument";
  if (why != nullptr) throw Break(BreakId::autograd_function, name, why);
  const bool vanishes = graphs().vanish_with(begin, made.first, made.second);
  graphs().forget_draws(begin);
  return vanishes;
}

bool Graphs::vanish_with(std::pair<size_t, size_t> since, const py::object& gradients,
                         const py::object& results) {
  auto tensors = [this](const py::object& o) {
    std::vector<at::Tensor> out;
    for (py::handle item : heap().contents(o))
      if (heap().is_tensor(item)) out.push_back(innermost(THPVariable_Unpack(item.ptr())));
    return out;
  };
  return recorder_now().vanish_with(since.second, tensors(gradients), tensors(results));
}

// The rule of a custom function for the innermost vmap that has batched its arguments.
void Calls::rehearse_vmap(py::handle type, const Arguments& args) {
  const py::object& is_batched = member_of<"torch._C._functorch", "is_batchedtensor">();
  const py::object& inside = member_of<"torch._C._functorch", "get_unwrapped">();
  int64_t level = 0, size = 0;
  Arguments all;
  std::vector<std::pair<int64_t, int64_t>> places;  // level and dimension, by argument
  for (const py::object& a : args) {
    auto& [at, dim] = places.emplace_back();
    if (!heap().is_tensor(a)) continue;
    py::object t = a;
    while (is_wrapped(THPVariable_Unpack(t.ptr())) && !objects().truth(is_batched(t)))
      t = inside(t);
    if (!is_wrapped(THPVariable_Unpack(t.ptr()))) continue;
    at = member_of<"torch._C._functorch", "maybe_get_level">()(t).cast<int64_t>();
    dim = member_of<"torch._C._functorch", "maybe_get_bdim">()(t).cast<int64_t>();
    t = inside(t);
    const auto length = THPVariable_Unpack(t.ptr()).sym_sizes()[static_cast<size_t>(dim)];
    bool several = level != 0 && at != level;
    for (; is_wrapped(THPVariable_Unpack(t.ptr())); t = inside(t))
      several |= objects().truth(is_batched(t));
    if (several || length.is_heap_allocated())
      throw Break(BreakId::functional_transform, "an autograd.Function in several, or of a symbol");
    level = at;
    size = length.expect_int();
  }
  if (level == 0) return;
  const py::object interpreters = member_of<"torch._C._functorch", "get_interpreter_stack">()();
  py::object randomness = py::str("error");
  for (py::handle i : interpreters)
    if (i.attr("level")().cast<int64_t>() == level)
      randomness =
          member_of<"torch._C._functorch", "CVmapInterpreterPtr">()(i).attr("randomness")();
  py::tuple dims(args.size());
  for (size_t i = 0; i < args.size(); i++)
    dims[i] = places[i].first == 0 ? py::object(py::none()) : py::int_(places[i].second);
  Arguments given{borrow(type), py::int_(size), py::str(randomness.attr("name").attr("lower")()),
                  dims};
  given.insert(given.end(), args.begin(), args.end());
  static const py::object& follow = *new py::object(autograd_member("rehearse_vmap"));
  call(follow, std::move(given), {});
}

// Function.apply where a gradient is needed, or in a transform. Its forward and its backward are
// followed once for what they rely on, with nothing kept of it; then torch itself calls them on the
// fakes, the backward when gradients arrive, and the recording hears both.
py::object Calls::call_differentiable(py::handle type, const Arguments& args,
                                      const Keywords& kwargs) {
  static const py::object& forward = *new py::object(autograd_member("rehearse_forward"));
  static const py::object& backward = *new py::object(autograd_member("rehearse_backward"));
  Arguments with_type{borrow(type)};
  with_type.insert(with_type.end(), args.begin(), args.end());
  bool materializes = true;
  rehearse(as_type(type)->tp_name, args, functions_of(type), [&](size_t& draws) {
    const py::object made = call(forward, with_type, kwargs);
    if (is_transformed()) rehearse_vmap(type, args);
    draws = bridge::heard().draws;
    const py::object found = call(backward, {borrow(type), made}, {});
    materializes = objects().truth(borrow(PyTuple_GET_ITEM(made.ptr(), 2)));
    return std::pair(borrow(PyTuple_GET_ITEM(made.ptr(), 1)), found);
  });
  const py::object apply = steal(PyObject_GetAttrString(type.ptr(), "apply"));
  py::list places;
  Arguments given = args;
  for (size_t i = 0; i < args.size() && !is_transformed(); i++) {
    const py::object number = numbers().float_argument(args[i]);
    if (!number) continue;
    places.append(i);
    given[i] = number;
  }
  py::object out;
  if (places.empty()) {
    out = graphs().record(ir::NodeKind::CallFunction, "", apply, args, kwargs);
  } else {
    static const py::object& with_numbers = *new py::object(autograd_member("apply_with_numbers"));
    given.insert(given.begin(), {apply, py::tuple(places)});
    try {
      out = graphs().record(ir::NodeKind::CallFunction, "", with_numbers, given, kwargs);
    } catch (const py::error_already_set& e) {  // what operators do not compute
      if (!e.matches(PyExc_TypeError)) throw;
      throw Break(BreakId::autograd_function, as_type(type)->tp_name, " of a number that varies");
    }
  }
  graphs().recorder().note_grad_mode();  // its ops ran without it
  graphs().note_custom_function(out, materializes);
  return out;
}

}  // namespace oxy::python
