// torch.autograd.grad and backward() in captured code. Autograd's engine runs on the fakes, and the
// recording hears the ops of the backward as any others; what backward() adds to a leaf's `grad` is
// an effect on the real leaf.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <functional>

#include "python/capture/autograd_nodes.h"
#include "python/capture/capture.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {
namespace {

namespace engine = torch::autograd;
using engine::Node;

std::vector<const at::TensorImpl*> leaves_as_reached(const std::vector<at::Tensor>& roots) {
  engine::edge_list from;
  for (const at::Tensor& root : roots) from.push_back(engine::impl::gradient_edge(root));
  std::vector<const at::TensorImpl*> out;
  for (const Node* node : bridge::in_engine_order(from))
    if (const auto* leaf = dynamic_cast<const engine::AccumulateGrad*>(node))
      out.push_back(leaf->variable.unsafeGetTensorImpl());
  return out;
}

// What was given for a parameter, by position or name; null where nothing was.
py::object given(const Arguments& args, const Keywords& kwargs, size_t position,
                 std::string_view name) {
  if (position < args.size()) return args[position];
  for (const auto& [key, value] : kwargs)
    if (text(key) == name) return value;
  return {};
}

bool is_none(const py::object& o) { return !o || o.is_none(); }

// One, or those in a list or tuple; none of None.
Arguments items_in(const py::object& inside) {
  if (is_none(inside)) return {};
  if (!PyTuple_Check(inside.ptr()) && !PyList_Check(inside.ptr())) return {inside};
  Arguments out;
  for (py::handle item : inside) out.push_back(borrow(item));
  return out;
}

// What `hooks` make of a gradient. They may keep what they get and what they make.
py::object seen_by(std::unordered_set<const c10::StorageImpl*>& seen, const py::object& gradient,
                   const std::function<py::object()>& hooks) {
  auto add = [&](const py::object& t) {
    if (!t.is_none()) seen.insert(THPVariable_Unpack(t.ptr()).storage().unsafeGetStorageImpl());
  };
  add(gradient);
  py::object out = hooks();
  add(out);
  return out;
}

}  // namespace

std::vector<c10::intrusive_ptr<Node>> nodes_behind(const std::vector<at::Tensor>& roots) {
  std::vector<c10::intrusive_ptr<Node>> out;
  std::unordered_set<Node*> met;
  std::vector<std::pair<c10::intrusive_ptr<Node>, size_t>> path;
  auto enter = [&](const c10::intrusive_ptr<Node>& node) {
    if (node && met.insert(node.get()).second) path.emplace_back(node, 0);
  };
  for (const at::Tensor& root : roots) {
    enter(engine::impl::gradient_edge(root).function);
    while (!path.empty()) {
      const c10::intrusive_ptr<Node> node = path.back().first;
      const size_t next = path.back().second++;
      if (next < node->num_outputs()) {
        enter(node->next_edge(next).function);
      } else {
        out.push_back(node);
        path.pop_back();
      }
    }
  }
  return out;
}

size_t writes_to_memory(const c10::Storage& storage) {
  const auto* functional = dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(
      storage.unsafeGetStorageImpl());
  return functional ? functional->generation() : 0;
}

std::pair<uint32_t, size_t> writes_to(const at::Tensor& t) {
  return {t._version(), writes_to_memory(innermost(t).storage())};
}

// Whether a call of torch for real would see something else than at its place: the graph has drawn,
// or written to a tensor of before the call, or the code stands in inference mode.
bool Graphs::defers_what_torch_sees() {
  const bool draws = bridge::heard().draws != Attempt::current().before.draws;
  if (draws || this->draws().count() != 0 || inference().is_open()) return true;
  return std::ranges::any_of(heap().fakes(), [](const auto& found) {
    const at::Tensor& t = THPVariable_Unpack(found.second.ptr());
    if (!t.is_inference() && t._version() != 0) return true;
    const at::Tensor& inside = innermost(t);
    return inside.has_storage() && writes_to_memory(inside.storage()) != 0;
  });
}

// Of the arguments or results of a module: whether one of them, dense, has a gradient.
bool Graphs::has_one_differentiable(const py::object& tensors) {
  if (inner_ != nullptr || is_transformed() || !at::GradMode::is_enabled()) return false;
  size_t count = 0;
  for (py::handle o : heap().contents(tensors)) {
    if (!heap().is_tensor(o)) continue;
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    if (!t.requires_grad()) continue;
    if (++count > 1 || !bridge::type_of(t).is_dense()) return false;
  }
  return count == 1;
}

// Whether a tensor is a view whose memory was written since it got its history.
bool has_old_history(const at::Tensor& t) {
  const auto* view = engine::impl::get_view_autograd_meta(t);
  return view != nullptr && view->has_bw_view() && view->get_attr_version() != t._version();
}

// It gets a new one, by ops.
void Graphs::renew_history(const at::Tensor& t) {
  if (!has_old_history(t)) return;
  const bridge::Recorder::Entered entered(recorder_now());
  try {
    static_cast<void>(t.grad_fn());
  } catch (const c10::Error&) {
    throw Break(BreakId::torch_call, "the history of a view that was written");
  }
}

// The tensors in one, or in a list, tuple or dict of them.
std::vector<at::Tensor> Graphs::tensors_given(const py::object& o) {
  std::vector<at::Tensor> out = tensors_in(o);
  for (const at::Tensor& t : out) renew_history(t);
  return out;
}

std::vector<at::Tensor> Graphs::tensors_in(const py::object& o) {
  if (heap().is_tensor(o)) return {THPVariable_Unpack(o.ptr())};
  std::vector<at::Tensor> out;
  const py::object inside = heap().contents(o);
  const bool is_dict = PyDict_Check(inside.ptr());
  for (py::handle item : is_dict ? py::object(inside.attr("values")()) : inside) {
    if (!heap().is_tensor(item))
      throw Break(BreakId::torch_call, "a gradient by what is no tensor");
    out.push_back(THPVariable_Unpack(item.ptr()));
  }
  return out;
}

Arguments Graphs::items(const py::object& tensors) {
  return items_in(!tensors || tensors.is_none() || !heap().exists(tensors)
                      ? tensors
                      : heap().contents(tensors));
}

// What the hooks of tensors from before the call make of gradients by them.
py::object Graphs::behind_input_hooks(const Arguments& inputs, const py::object& gradients,
                                      bool creates_graph) {
  Arguments out = items(gradients);
  bool changed = false;
  const auto retains = [this](const Tracked& k) {
    if (!k.source.valid() || !k.original || THPVariable_Unpack(k.original.ptr()).is_leaf())
      return false;
    static const py::str& name = *new py::str("retains_grad");
    const py::object found = k.original.attr(name);
    heap().guard(GuardKind::Equals, heap().sources.attribute(k.source, name), found);
    return found.ptr() == Py_True;
  };
  const c10::AutoGradMode mode(creates_graph);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (out[i].is_none() || heap().tracked(inputs[i]) == nullptr) continue;
    const auto first = std::ranges::find_if(inputs, [&](auto& t) { return t.is(inputs[i]); });
    if (const auto at = static_cast<size_t>(first - inputs.begin()); at < i) {
      out[i] = out[at];
      continue;
    }
    if (retains(*heap().tracked(inputs[i])))
      throw Break(BreakId::torch_call, "a gradient by what was computed before, which retains it");
    const py::object hooks = hooks_of(inputs[i], "_backward_hooks");
    if (!hooks) continue;
    out[i] = call_hooks("after_hooks", hooks, out[i]);
    changed = true;
  }
  return changed ? py::object(tuple_of(out)) : gradients;
}

// `hooks`: those of `inputs` are called as well.
py::object Graphs::record_gradients(const Arguments& args, const Keywords& kwargs, bool hooks) {
  inference().refuse_inside("torch.autograd.grad");
  if (!is_transformed()) {
    refuse_in_transform("torch.autograd.grad");
    calls().refuse_saved_hooks(BreakId::torch_call, "torch.autograd.grad");
  }
  const py::object& function = member_of<"torch.autograd", "grad">();
  auto flag = [&](size_t position, const char* name) {
    const py::object o = given(args, kwargs, position, name);
    return !is_none(o) && objects().truth(o);
  };
  if (flag(7, "is_grads_batched")) {
    Arguments all{given(args, kwargs, 0, "outputs"), given(args, kwargs, 1, "inputs"),
                  given(args, kwargs, 2, "grad_outputs")};
    // Eager makes zeros of the input's own size for an unused one, and refuses an empty batch.
    if (!all[0] || !all[1] || is_none(all[2]) || flag(8, "materialize_grads"))
      throw Break(BreakId::torch_call, "gradients of a batch");
    for (const at::Tensor& t : tensors_given(all[2]))
      if (t.dim() == 0 || (!t.sym_sizes()[0].is_heap_allocated() && t.sym_sizes()[0] == 0))
        throw Break(BreakId::torch_call, "gradients of an empty batch");
    for (const auto& [position, name] :
         {std::pair(3, "retain_graph"), {4, "create_graph"}, {6, "allow_unused"}})
      all.push_back(py::bool_(flag(static_cast<size_t>(position), name)));
    if (is_none(given(args, kwargs, 3, "retain_graph"))) all[3] = all[4];
    return calls().call(own_function("oxyfuel.gradients", "batched_gradients"), std::move(all), {});
  }
  const py::object outputs = given(args, kwargs, 0, "outputs"),
                   inputs = given(args, kwargs, 1, "inputs");
  if (!outputs || !inputs || inner_ != nullptr)
    throw Break(BreakId::torch_call, "torch.autograd.grad");
  const std::vector<at::Tensor> roots = tensors_given(outputs), by = tensors_given(inputs);
  std::vector<c10::intrusive_ptr<Node>> kept_nodes;  // a leaf's that nothing leads to dies else
  const auto node_of = [&](const at::Tensor& t) {
    return kept_nodes.emplace_back(engine::impl::gradient_edge(t).function).get();
  };
  std::unordered_set<Node*> wanted;
  for (const at::Tensor& t : by)  // torch refuses the others
    if (t.requires_grad()) wanted.insert(node_of(t));
  // One may be behind the other in front of the call.
  const auto is_input = [](const Node* n) { return is_entrance(*n) || is_accumulation(*n); };
  if (std::ranges::count_if(wanted, is_input) > 1 &&
      std::ranges::any_of(wanted, [](const Node* n) { return is_entrance(*n); }))
    throw Break(BreakId::torch_call, "gradients by an input that was computed, and by another one");
  std::unordered_set<const Node*> made;
  for (const auto& [leaf, how] : made_leaves_) made.insert(node_of(THPVariable_Unpack(leaf)));
  // What the code has made is not behind what was computed before.
  const bool goes_on =
      std::ranges::any_of(wanted, [&](const Node* n) { return is_input(n) && !made.contains(n); });
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(roots)) {
    if (goes_on && is_entrance(*node) && !wanted.contains(node.get()))
      throw Break(BreakId::torch_call, "a gradient through what was computed before the call");
    if (bridge::gives_complex_vectors(*node))
      throw Break(BreakId::torch_call, "a gradient of complex vectors");
    if (bridge::is_of_vectors(*node))
      throw Break(BreakId::torch_call, "a gradient of singular vectors of singular vectors");
  }
  const py::object retain = given(args, kwargs, 3, "retain_graph");
  const bool kept = is_none(retain) ? flag(4, "create_graph") : objects().truth(retain);
  py::object out;
  if (const Arguments stops = late_hooked(roots, by); stops.empty()) {
    *running_ = nullptr;
    try {
      out = record(ir::NodeKind::CallFunction, "torch.autograd.grad", function, args, kwargs);
    } catch (const Break& b) {
      for (const CustomOp& op : custom_ops_)
        if (op.node.get() == *running_)
          op.place.refuse(BreakId::torch_call, "a gradient of an op that raises here");
      throw;
    }
  } else {
    if (flag(4, "create_graph") || flag(8, "materialize_grads"))
      throw Break(BreakId::torch_call, "torch.autograd.grad where a hook has effects");
    out = record_in_pieces(items(outputs), items(given(args, kwargs, 2, "grad_outputs")),
                           items(inputs), !kept, stops,
                           [this](const py::object& t, const py::object& g, bool runs) {
                             return call_late_hooks(t, g, runs);
                           });
    if (!flag(6, "allow_unused") &&
        std::ranges::any_of(items(out), [](const py::object& g) { return g.is_none(); }))
      throw Break(BreakId::torch_call, "torch.autograd.grad by what is not used");
    if (!kept) end_late_hooks(stops);
  }
  if (!kept) spend(roots, by);
  return hooks ? behind_input_hooks(items(inputs), out, flag(4, "create_graph")) : out;
}

// Leaves that a backward from `roots` comes to, by their fakes.
std::vector<py::object> Graphs::leaves_behind(const std::vector<at::Tensor>& roots) {
  std::unordered_map<const at::TensorImpl*, py::object> fakes;
  for (const auto& [real, fake] : heap().fakes())
    fakes.emplace(THPVariable_Unpack(fake.ptr()).unsafeGetTensorImpl(), fake);
  for (const auto& [made, leaf] : made_leaves_)
    fakes.emplace(THPVariable_Unpack(made).unsafeGetTensorImpl(), borrow(made));
  std::vector<py::object> out;
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(roots)) {
    if (is_entrance(*node))
      throw Break(BreakId::torch_call, "backward through what was computed before the call");
    const auto* leaf = dynamic_cast<const engine::AccumulateGrad*>(node.get());
    if (leaf == nullptr || !leaf->variable.requires_grad()) continue;  // no more
    auto it = fakes.find(leaf->variable.unsafeGetTensorImpl());
    if (it == fakes.end())
      throw Break(BreakId::torch_call, "backward to a leaf that is no tensor of the code's");
    out.push_back(it->second);
  }
  return out;
}

// Hooks of a leaf in Python, a dict, which run as its gradient arrives; null: there are none.
py::object Graphs::hooks_of(const py::object& leaf, const char* kind) {
  const Tracked& k = *heap().tracked(leaf);
  if (!k.source.valid()) return {};
  if (removes_real_hooks && !THPVariable_Unpack(leaf.ptr()).is_leaf())
    throw Break(BreakId::torch_call, "hooks of a tensor that may have been removed");
  if (const py::object now = effects().written(leaf, py::str(kind))) return now;
  const py::object found = k.original.attr(kind);
  const SourceId source = heap().sources.attribute(k.source, py::str(kind));
  if (!found.is_none()) return heap().wrap(found, source);
  heap().guard(GuardKind::IdIs, source, found);
  return {};
}

void Graphs::refuse_native_hooks(const py::object& leaf) {
  const Tracked& k = *heap().tracked(leaf);
  if (!k.source.valid()) return;
  const at::Tensor& real = THPVariable_Unpack(k.original.ptr());
  const auto accumulator = engine::impl::try_get_grad_accumulator(real);
  if (!accumulator) return;
  // Those in Python are one.
  const size_t in_python = k.original.attr("_backward_hooks").is_none() ? 0 : 1;
  if (!accumulator->post_hooks().empty() || !accumulator->pre_hooks().empty() ||
      accumulator->tensor_pre_hooks().size() > in_python)
    throw Break(BreakId::torch_call, "backward to a leaf with hooks in C++");
}

// As AccumulateGrad: a gradient that nobody else has becomes the leaf's own, in the leaf's layout.
py::object Graphs::as_gradient_of(const py::object& leaf, const py::object& gradient,
                                  std::unordered_set<const c10::StorageImpl*>& seen) {
  const at::Tensor &g = THPVariable_Unpack(gradient.ptr()), &of = THPVariable_Unpack(leaf.ptr());
  const bool own = seen.insert(g.storage().unsafeGetStorageImpl()).second;
  const bool dense = of.is_non_overlapping_and_dense();
  if (own && (dense ? g.strides() == of.strides() : g.is_contiguous())) return gradient;
  if (!dense)
    return calls().call_method(
        gradient, "clone", {},
        {{py::str("memory_format"), member_of<"torch", "contiguous_format">()}});
  const py::object made = calls().call_method(
      gradient, "new_empty_strided",
      {py::tuple(py::cast(of.sizes().vec())), py::tuple(py::cast(of.strides().vec()))}, {});
  return calls().call_method(made, "copy_", {gradient}, {});
}

// `tensors.backward(...)`, the arguments as torch.autograd.backward names them.
py::object Graphs::record_backward(const py::object& tensors, const py::object& gradients,
                                   const py::object& retain, const py::object& create,
                                   const py::object& inputs) {
  if (!is_none(create) && objects().truth(create))
    throw Break(BreakId::torch_call, "backward with create_graph");
  if (inner_ != nullptr) throw Break(BreakId::torch_call, "backward in a branch or loop");
  refuse_in_transform("backward");
  calls().refuse_saved_hooks(BreakId::torch_call, "backward");
  const std::vector<at::Tensor> roots = tensors_given(tensors);
  std::vector<py::object> leaves = leaves_behind(roots);
  if (!is_none(inputs)) {
    const std::vector<at::Tensor> wanted = tensors_given(inputs);
    std::erase_if(leaves, [&](const py::object& leaf) {
      return std::ranges::none_of(
          wanted, [&](const at::Tensor& t) { return t.is_same(THPVariable_Unpack(leaf.ptr())); });
    });
    // One that it does not come to keeps its `grad`.
    if (std::ranges::any_of(wanted,
                            [](const at::Tensor& t) { return !t.is_leaf() || !t.requires_grad(); }))
      throw Break(BreakId::torch_call, "backward with inputs that are no leaves of it");
  }
  if (leaves.empty()) throw Break(BreakId::torch_call, "backward of what has no leaves");
  std::unordered_map<const at::TensorImpl*, std::array<py::object, 2>> hooks;
  for (const py::object& leaf : leaves) {
    refuse_native_hooks(leaf);
    const std::array found{hooks_of(leaf, "_backward_hooks"),
                           hooks_of(leaf, "_post_accumulate_grad_hooks")};
    if (found[0] || found[1]) hooks[THPVariable_Unpack(leaf.ptr()).unsafeGetTensorImpl()] = found;
  }
  if (!hooks.empty()) {
    const auto order = leaves_as_reached(roots);
    std::ranges::stable_sort(leaves, {}, [&](const py::object& leaf) {
      return std::ranges::find(order, THPVariable_Unpack(leaf.ptr()).unsafeGetTensorImpl());
    });
  }
  const bool grad_mode = c10::GradMode::is_enabled();
  std::unordered_set<const c10::StorageImpl*> seen;
  for (const py::object& held : heap().held())
    if (heap().is_tensor(held))
      seen.insert(innermost(THPVariable_Unpack(held.ptr())).storage().unsafeGetStorageImpl());
  const c10::AutoGradMode off(false);
  std::unordered_set<PyObject*> reached;
  // Behind its hooks, a gradient is the leaf's, or is added to what that has.
  auto accumulate = [&](const py::object& leaf, py::object gradient) {
    reached.insert(leaf.ptr());
    const auto its = hooks.find(THPVariable_Unpack(leaf.ptr()).unsafeGetTensorImpl());
    const auto [on_arrival, behind] =
        its == hooks.end() ? std::array<py::object, 2>() : its->second;
    if (gradient.is_none() && (on_arrival || behind))
      throw Break(BreakId::torch_call, "hooks of a leaf that no gradient comes to");
    if (gradient.is_none()) return;
    if (on_arrival)
      gradient =
          seen_by(seen, gradient, [&] { return call_hooks("after_hooks", on_arrival, gradient); });
    const py::object before = calls().tensor_attr(leaf, py::str("grad"));
    if (before.is_none())
      calls().set_gradient(leaf, as_gradient_of(leaf, gradient, seen));
    else
      calls().call_method(before, "add_", {gradient}, {});
    if (behind) call_hooks("call_behind", behind, leaf);
  };
  Arguments stops = late_hooked(roots);
  py::object found;
  if (stops.empty()) {
    Keywords named{{py::str("allow_unused"), py::bool_(true)}};
    if (!is_none(gradients)) named.emplace_back(py::str("grad_outputs"), gradients);
    if (!is_none(retain)) named.emplace_back(py::str("retain_graph"), retain);
    const c10::AutoGradMode as_before(grad_mode);
    found = record_gradients({tensors, tuple_of(leaves)}, named, /*hooks=*/false);
  } else {
    for (const py::object& leaf : leaves)
      if (hooks.contains(THPVariable_Unpack(leaf.ptr()).unsafeGetTensorImpl()))
        stops.push_back(leaf);
    const bool frees = is_none(retain) || !objects().truth(retain);
    found =
        record_in_pieces(items(tensors), items(gradients), leaves, frees, stops,
                         [&](const py::object& t, const py::object& g, bool runs) {
                           if (!THPVariable_Unpack(t.ptr()).is_leaf())
                             return seen_by(seen, g, [&] { return call_late_hooks(t, g, runs); });
                           accumulate(t, g);
                           return g;
                         });
    if (frees) end_late_hooks(stops), spend(roots, {});
  }
  for (size_t i = 0; i < leaves.size(); i++)
    if (!reached.contains(leaves[i].ptr()))
      accumulate(leaves[i], borrow(PySequence_Fast_GET_ITEM(found.ptr(), i)));
  return py::none();
}

py::object Calls::call_backward(const Arguments& args, const Keywords& kwargs) {
  return graphs().record_backward(
      args[0], given(args, kwargs, 1, "grad_tensors"), given(args, kwargs, 2, "retain_graph"),
      given(args, kwargs, 3, "create_graph"), given(args, kwargs, 5, "inputs"));
}

// BackwardHook._apply_on_tensors(self, fn, args): what it calls an autograd.Function for.
Done Calls::apply_on_tensors(py::handle function, const Arguments& args, const Keywords& kwargs) {
  if (!graphs().has_one_differentiable(args[2])) return std::nullopt;
  objects().guard_code(function);
  py::object out = call_own("oxyfuel.gradients", "apply_on_tensors", args, kwargs);
  graphs().note_copies(args[2], heap().contents(out)[py::int_(0)]);
  return out;
}

}  // namespace oxy::python
