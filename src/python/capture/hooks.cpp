// Hooks of tensors that captured code makes. One that does nothing but compute with gradients is
// recorded, and the engine calls it on the fakes. One with effects is registered with the real
// tensor, once the graph has run; where a backward of the code itself comes by, it is called there,
// as code like any other, between two pieces of that backward.
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/backward_pieces.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"
#include "torch_bridge/view_replay.h"

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

// Whether the function has other objects at hand than constants and tensors.
bool looks_at_objects(py::handle hook) {
  const auto* f = as_function(hook);
  const auto is_object = [](PyObject* o) {
    return o != nullptr && !is_one_for_all(o) && !is_tensor_object(o);
  };
  for (PyObject* defaults : {f->func_defaults, f->func_kwdefaults})
    if (defaults != nullptr && defaults != Py_None) return true;
  const Py_ssize_t cells = f->func_closure ? PyTuple_GET_SIZE(f->func_closure) : 0;
  for (Py_ssize_t i = 0; i < cells; i++)
    if (is_object(PyCell_GET(PyTuple_GET_ITEM(f->func_closure, i)))) return true;
  return std::ranges::any_of(
      borrow(reinterpret_cast<PyCodeObject*>(f->func_code)->co_names), [&](py::handle name) {
        return is_object(PyDict_GetItemWithError(f->func_globals, name.ptr()));
      });
}

torch::autograd::edge_list histories_of(const std::vector<at::Tensor>& tensors) {
  torch::autograd::edge_list out;
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) out.push_back(torch::autograd::impl::gradient_edge(t));
  return out;
}

}  // namespace

void Graphs::note_hook(const py::object& tensor, const py::object& hook, bool vanishes,
                       const py::object& handle) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  renew_history(t);
  hooks_.push_back({torch::autograd::impl::gradient_edge(t).function, tensor, handle,
                    frames().here(), vanishes, hook});
}

// A hook is called with what it looks at as that is at the end of the captured code: what the code
// writes to objects of before the call is not there yet where the engine calls it on the fakes.
void Graphs::refuse_hooks_of_what_is_written() const {
  if (effects().all_written().empty()) return;
  for (const Hook& h : hooks_)
    if (!h.removed && looks_at_objects(h.hook)) throw HooksLate();
}

// Not behind one that is recorded: what a backward of the code gets for it is in front of that.
void Graphs::note_late_hook(const py::object& tensor, const py::object& hook,
                            const py::object& handle, bool of_node) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  renew_history(t);
  const NodePtr node = torch::autograd::impl::gradient_edge(t).function;
  for (const Hook& other : hooks_)
    if (other.hooked.is(tensor) && other.node == node) throw HooksLate();
  late_hooks_.push_back(
      {node, tensor, hook, handle, frames().here(), static_cast<uint32_t>(t._version()), of_node});
}

bool Graphs::has_hooks_of_node(const py::object& tensor) const {
  return std::ranges::any_of(late_hooks_,
                             [&](const LateHook& h) { return h.of_node && h.hooked.is(tensor); });
}

void Graphs::refuse_changed(const LateHook& h) {
  const at::Tensor& t = THPVariable_Unpack(h.hooked.ptr());
  if (t._version() != h.version || torch::autograd::impl::gradient_edge(t).function != h.node)
    h.place.refuse(BreakId::torch_call, "a hook of what is written");
}

void Graphs::refuse_removed(const std::vector<at::Tensor>& roots) const {
  for (const Hook& h : hooks_)
    if (h.removed && bridge::leads_to(histories_of(roots), *h.node))
      h.place.refuse(BreakId::torch_call, "a backward behind a hook's removal");
}

// Who has such a hook gets its gradients as a result of the graph, with a node of its own. That
// knows all of them where the memory is nobody else's.
void Graphs::refuse_late_hooks(const std::vector<at::Tensor>& outputs) {
  refuse_removed(outputs);
  for (const LateHook& h : late_hooks_) {
    if (h.done || h.removed) continue;
    const at::Tensor& t = THPVariable_Unpack(h.hooked.ptr());
    renew_history(t);
    if (heap().tracked(h.hooked)->source.valid()) {  // it has its node already
      if (torch::autograd::impl::gradient_edge(t).function != h.node)
        h.place.refuse(BreakId::torch_call, "a hook of what is written");
      continue;
    }
    const at::Tensor taker = taker_of_gradients(t, outputs);
    // A view is made of real tensors, with a node of its own where others are computed of it.
    const bool is_plain_view = t.is_view() && !t.is_conj() && !t.is_neg() && !bridge::is_piece(t);
    if (!taker.defined() || !(taker.is_same(t) || is_plain_view))
      h.place.refuse(BreakId::torch_call, "a hook of what shares memory");
    refuse_changed(h);
  }
}

void Graphs::note_copies(const py::object& tensors, const py::object& copies) {
  const Arguments of = items(tensors), made = items(copies);
  for (size_t i = 0; i < of.size(); i++) {
    if (!heap().is_tensor(of[i])) continue;
    const at::Tensor &t = THPVariable_Unpack(of[i].ptr()), &c = THPVariable_Unpack(made[i].ptr());
    if (!t.requires_grad()) continue;
    copied_.push_back({t, c, writes_to_memory(innermost(t).storage()),
                       writes_to_memory(innermost(c).storage()), frames().here()});
  }
}

// Where one would see a write to another, or eager raises at it: by the code, or by who gets both.
// All that would be one memory are of the first copy.
void Graphs::refuse_copies(const std::vector<at::Tensor>& outputs) const {
  if (copied_.empty()) return;
  std::unordered_set<const c10::StorageImpl*> living;
  auto lives = [&](const at::Tensor& t) { living.insert(t.storage().unsafeGetStorageImpl()); };
  for (const at::Tensor& o : outputs)
    if (o.has_storage()) lives(o);
  for (const auto& [real, fake] : heap().fakes()) lives(THPVariable_Unpack(fake.ptr()));
  std::unordered_map<const c10::StorageImpl*, size_t> first;
  std::vector<size_t> count(copied_.size());  // of those that live, by first copy
  for (size_t i = 0; i < copied_.size(); i++) {
    const Copied& c = copied_[i];
    const auto* memory = c.tensor.storage().unsafeGetStorageImpl();
    const auto* copy = c.copy.storage().unsafeGetStorageImpl();
    const auto [known, is_new] = first.try_emplace(memory, i);
    const size_t of = known->second;
    first[copy] = of;
    count[of] += (is_new && living.contains(memory) ? 1 : 0) + (living.contains(copy) ? 1 : 0);
    if (count[of] < 2 && writes_to_memory(innermost(c.tensor).storage()) == c.writes &&
        writes_to_memory(innermost(c.copy).storage()) == c.writes_to_copy)
      continue;
    copied_[of].place.refuse(BreakId::torch_call,
                             "a write to what a module with backward hooks gets or gives");
  }
}

// The tensors with hooks of this kind that a backward from `roots` comes by: to those of `by`, or
// to all leaves.
Arguments Graphs::late_hooked(const std::vector<at::Tensor>& roots,
                              std::optional<std::vector<at::Tensor>> by) {
  refuse_removed(roots);
  const torch::autograd::edge_list ends = histories_of(by.value_or(std::vector<at::Tensor>()));
  const auto ends_there = [&](const NodePtr& node) {
    return std::ranges::any_of(ends, [&](const torch::autograd::Edge& end) {
      return end.function == node || bridge::leads_to({{node, 0}}, *end.function);
    });
  };
  Arguments out;
  torch::autograd::edge_list from;
  for (const LateHook& h : late_hooks_) {
    if (h.removed) continue;
    if (from.empty()) from = histories_of(roots);
    if (!bridge::leads_to(from, *h.node) || (by && !ends_there(h.node))) continue;
    if (heap().tracked(h.hooked)->source.valid())
      h.place.refuse(BreakId::torch_call, "a hook of an input");
    renew_history(THPVariable_Unpack(h.hooked.ptr()));
    refuse_changed(h);
    if (std::ranges::none_of(out, [&](const py::object& o) { return o.is(h.hooked); }))
      out.push_back(h.hooked);
  }
  return out;
}

// By a function of oxyfuel.gradients.
py::object Graphs::call_hooks(const char* function, const py::object& hooks,
                              const py::object& given) {
  const bool before = std::exchange(in_hook, true);
  const auto leave = c10::make_scope_exit([&] { in_hook = before; });
  return calls().call(of_gradients(function), {hooks, given}, {});
}

// Of one, what they make of a gradient; `runs`: its node does.
py::object Graphs::call_late_hooks(const py::object& tensor, const py::object& gradient,
                                   bool runs) {
  py::dict hooks, of_node;
  for (const LateHook& h : late_hooks_) {
    py::dict& to = h.of_node ? of_node : hooks;
    if (h.hook && !h.removed && h.hooked.is(tensor)) to[py::int_(to.size())] = h.hook;
  }
  if (gradient.is_none())
    throw Break(BreakId::torch_call, "hooks of a tensor that no gradient comes to");
  py::object out = call_hooks("call_in_backward", hooks, gradient);
  if (auto it = retained_.find(tensor.ptr()); it != retained_.end())
    it->second = calls().call(own_function("oxyfuel.gradients", "retained"), {it->second, out}, {});
  return runs && !of_node.empty() ? call_hooks("call_in_backward", of_node, out) : out;
}

// Gradients by `by`, as torch.autograd.grad gives them. In front of what hands on the gradient of
// one of `stops`, `at_stop` gets it, and gives what is handed on.
py::object Graphs::record_in_pieces(
    const Arguments& roots, Arguments gradients, const Arguments& by, bool frees,
    const Arguments& stops,
    const std::function<py::object(const py::object&, const py::object&, bool)>& at_stop) {
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
    const size_t stop = pieces.order()[k];
    gradients[0] = at_stop(stops[stop], gradients[0], pieces.runs(stop));
  }
}

// What was called in a backward that has used up the graph behind a tensor is not to be registered.
void Graphs::end_late_hooks(const Arguments& tensors) {
  for (LateHook& h : late_hooks_)
    h.done |= std::ranges::any_of(tensors, [&](auto& t) { return t.is(h.hooked); });
}

bool Graphs::is_removed_hook(const py::object& handle) const {
  return std::ranges::any_of(late_hooks_,
                             [&](const LateHook& h) { return h.removed && h.handle.is(handle); });
}

bool Graphs::is_done_hook(const py::object& handle) const {
  return std::ranges::any_of(late_hooks_,
                             [&](const LateHook& h) { return h.done && h.handle.is(handle); });
}

// Of a hook of the tensor; no handle: it is used for something else.
void Graphs::remove_hook(const py::object& handle, const py::object& tensor) {
  constexpr const char* kUsed = "a hook whose handle is used";
  for (LateHook& h : late_hooks_) {
    if (handle && h.handle.is(handle)) return void(h.removed = true);
    if (!handle && h.hooked.is(tensor)) h.place.refuse(BreakId::torch_call, kUsed);
  }
  for (Hook& h : hooks_) {
    if (!h.hooked.is(tensor) || (handle && !handle.is(h.handle))) continue;
    if (!handle) h.place.refuse(BreakId::torch_call, kUsed);
    // Behind a backward that has freed the graph nobody calls it.
    if (!spent_.contains(h.node.get())) throw HooksLate();  // it is not called from there on
    return void(h.removed = true);
  }
}

// A backward is cut in front of its hooks, and nothing is kept of a rehearsal.
void Graphs::refuse_hook_in_hook() const {
  if (in_hook) throw Break(BreakId::torch_call, "a hook that is registered by a hook");
}

// `tensor.register_hook(hook)` of what the code has made.
py::object Calls::register_hook(const py::object& tensor, const py::object& hook) {
  graphs().refuse_hook_in_hook();
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (t.is_leaf()) return register_leaf_hook(tensor, hook, "_backward_hooks");
  const Tracked& k = *heap().tracked(tensor);
  // A view has another node once its memory is written.
  const bool keeps_node =
      !k.source.valid() || (k.original && !THPVariable_Unpack(k.original.ptr()).is_view());
  if (!keeps_node || !t.requires_grad() || graphs().inner() != nullptr || is_transformed())
    throw Break(BreakId::torch_call, "Tensor.register_hook");
  if (k.source.valid()) return register_late_hook(tensor, hook, "register_with_handle");
  // What a tensor retains is behind all its hooks.
  const bool retains = graphs().gradient_kept(tensor) != nullptr;
  if (graphs().hooks_late || retains || graphs().has_hooks_of_node(tensor) ||
      !PyFunction_Check(hook.ptr()))
    return register_late_hook(tensor, hook, "register_with_handle");
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
  graphs().note_hook(tensor, hook, vanishes, handle);
  return handle;
}

// Of one that has effects, or is none of Python's functions: it is called as in eager, when
// gradients arrive at the tensor, which the graph hands out.
py::object Calls::register_late_hook(const py::object& tensor, const py::object& hook,
                                     const char* function) {
  graphs().refuse_hook_in_hook();
  const py::object handle = call(hook_handle(), {tensor}, {});
  graphs().note_late_hook(tensor, hook, handle);
  behind_.emplace_back(of_gradients(function), Arguments{tensor, hook, handle});
  return handle;
}

// Of its node: behind all hooks of the tensor, and what that retains.
py::object Calls::register_with_node(const py::object& tensor, const py::object& hook) {
  graphs().refuse_hook_in_hook();
  static const py::object& function = *new py::object(of_gradients("register_with_node"));
  const py::object handle = call(hook_handle(), {tensor}, {});
  graphs().note_late_hook(tensor, hook, handle, /*of_node=*/true);
  behind_.emplace_back(function, Arguments{tensor, hook, handle});
  return handle;
}

// Of a leaf of before the call, in the dict that it has for hooks of this kind; with `hooks_late`
// once the graph has run.
py::object Calls::register_leaf_hook(const py::object& leaf, const py::object& hook,
                                     const char* kind) {
  graphs().refuse_hook_in_hook();
  const at::Tensor& t = THPVariable_Unpack(leaf.ptr());
  const Tracked& k = *heap().tracked(leaf);
  if (!k.source.valid() || !k.original || !t.requires_grad() || !t.is_leaf() ||
      graphs().inner() != nullptr || is_transformed())
    throw Break(BreakId::torch_call, "a hook of a leaf");
  if (graphs().hooks_late)
    return register_late_hook(leaf, hook,
                              std::string_view(kind) == "_backward_hooks"
                                  ? "register_with_handle"
                                  : "register_behind_accumulation");
  py::object hooks = graphs().hooks_of(leaf, kind);
  if (!hooks) {
    hooks = call(member_of<"collections", "OrderedDict">(), {});
    effects().write_attribute(leaf, py::str(kind), hooks);
  }
  return call(of_gradients("add_hook"), {hooks, hook}, {});
}

// `RemovableHandle.__init__`, of a module's hook: the number that the handle has is another one in
// each call. As long as nothing of it outlives the captured code, an object stands for it.
Done Calls::init_handle(const Arguments& args, const Keywords& kwargs) {
  if (graphs().hooks_late || graphs().inner() != nullptr || args.size() != 2) return std::nullopt;
  const py::object id = call(of_gradients("HookId"), {});
  const auto extra = std::ranges::find(kwargs, "extra_dict", [](auto& k) { return text(k.first); });
  graphs().note_hook_id(id, {args[1], extra == kwargs.end() ? py::object() : extra->second});
  return call(of_gradients("init_handle"), {args[0], id, args[1]}, kwargs);
}

void Graphs::note_hook_id(const py::object& id, const std::array<py::object, 2>& dicts) {
  hook_ids_.push_back(id);
  for (const py::object& some : dicts)
    for (const py::object& dict : items(some)) hook_dicts_.push_back(dict);
}

// Code that is not torch's has come to what stands for the number of a handle, or for one of its
// references to dicts, or to a dict with such a key: it would see that it is no number.
void Graphs::refuse_hook_ids(const TracedFrame& f) {
  if (f.stack.empty() || !f.stack.back()) return;
  static const py::object& number = *new py::object(of_gradients("HookId"));
  static const py::object& reference = *new py::object(of_gradients("HooksOf"));
  const auto stands_for = [](py::handle o) {
    return py::type::handle_of(o).is(number) || py::type::handle_of(o).is(reference);
  };
  const py::object& top = f.stack.back();
  bool found = stands_for(top);
  if (PyTuple_CheckExact(top.ptr())) found = std::ranges::any_of(borrow(top.ptr()), stands_for);
  const auto is_top = [&](const py::object& o) { return o.is(top); };
  if (!found && (!PyDict_Check(top.ptr()) || std::ranges::none_of(hook_dicts_, is_top))) return;
  const std::string_view module = written_in(as_function(f.function));
  if (module.starts_with("torch.") || module.starts_with("oxyfuel.")) return;
  if (found || std::ranges::any_of(heap().contents(top), stands_for)) throw HooksLate();
}

// `tensor.retain_grad()`, in the same way.
py::object Calls::retain_gradient(const py::object& tensor) {
  graphs().refuse_hook_in_hook();
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (heap().tracked(tensor)->source.valid() || !t.requires_grad() || t.is_leaf() ||
      graphs().inner() != nullptr || is_transformed())
    throw Break(BreakId::torch_call, "Tensor.retain_grad");
  if (!graphs().retain_gradient(tensor)) return py::none();
  static const py::object& function = *new py::object(of_gradients("retain_gradient"));
  const py::object handle = call(hook_handle(), {tensor}, {});
  graphs().note_late_hook(tensor, {}, handle);
  behind_.emplace_back(function, Arguments{tensor, py::none(), handle});
  return py::none();
}

// Whether it does so from now on alone.
bool Graphs::retain_gradient(const py::object& tensor) {
  return retained_.try_emplace(tensor.ptr(), py::none()).second;
}

// What backwards of the code have left, for tensors that live on.
void Graphs::keep_retained() {
  for (const LateHook& h : late_hooks_) {
    if (h.hook) continue;
    const py::object& gradient = retained_.at(h.hooked.ptr());
    if (!gradient.is_none())
      calls().call_behind(of_gradients("keep_gradient"), {h.hooked, gradient, h.handle});
  }
}

}  // namespace oxy::python
