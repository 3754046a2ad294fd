// torch.autograd.grad and backward() in captured code. Autograd's engine runs on the fakes, and the
// recording hears the ops of the backward as any others; what backward() adds to a leaf's `grad` is
// an effect on the real leaf. Also custom autograd functions and checkpoints, which the recording
// takes as what they compute.
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <functional>

#include "python/capture/capture.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/engine_order.h"
#include "torch_bridge/recorder.h"

namespace oxy::python {
namespace {

namespace engine = torch::autograd;
using engine::Node;

// Behind a backward that has freed what autograd kept, as eager words it.
constexpr const char* kSecondTime =
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward.";

// The history of a result that a captured backward has used up on the way to some inputs, which its
// edges behind the first one lead to. The first one leads to the rest, if there is any.
class SpentHistory : public Node {
 public:
  explicit SpentHistory(engine::edge_list edges) : Node(std::move(edges)) {}
  engine::variable_list apply(engine::variable_list&& gradients) override {
    bool used_up = !next_edge(0).is_valid();
    for (size_t i = 1; i < num_outputs(); i++) used_up |= task_should_compute_output(i);
    TORCH_CHECK(!used_up, kSecondTime);
    gradients.resize(num_outputs());
    return std::move(gradients);
  }
  std::string name() const override { return "OxyfuelBackward"; }
};

// A result whose history, which led to the other arguments, a captured backward has used up; that
// which it has is what is left.
PyObject* with_spent_history(PyObject*, PyObject* args) {
  return boundary(
      [&] {
        at::Tensor t = THPVariable_Unpack(PyTuple_GET_ITEM(args, 0));
        engine::edge_list edges{t.requires_grad() ? engine::impl::gradient_edge(t)
                                                  : engine::Edge()};
        for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++)
          edges.push_back(
              engine::impl::gradient_edge(THPVariable_Unpack(PyTuple_GET_ITEM(args, i))));
        // A write to a view would make its history anew, out of that of its base.
        if (t.is_view()) t = t.detach();
        engine::create_gradient_edge(t, c10::make_intrusive<SpentHistory>(std::move(edges)));
        return THPVariable_Wrap(t);
      },
      nullptr);
}

std::vector<const at::TensorImpl*> leaves_as_reached(const std::vector<at::Tensor>& roots) {
  engine::edge_list from;
  for (const at::Tensor& root : roots) from.push_back(engine::impl::gradient_edge(root));
  std::vector<const at::TensorImpl*> out;
  for (const Node* node : bridge::in_engine_order(from))
    if (const auto* leaf = dynamic_cast<const engine::AccumulateGrad*>(node))
      out.push_back(leaf->variable.unsafeGetTensorImpl());
  return out;
}

bool is_accumulation(const Node& node) {
  return dynamic_cast<const engine::AccumulateGrad*>(&node) != nullptr;
}

// Of an autograd.Function. Torch does not export what a dynamic_cast needs.
bool is_of_python(const Node& node) {
  return std::string_view(typeid(node).name()) == "N5torch8autograd6PyNodeE";
}

// It stands for an input's history in front of the captured code (torch_bridge/joint_recording).
bool is_entrance(const Node& node) { return node.num_outputs() == 0 && !is_accumulation(node); }

// What was given for a parameter, by position or name; null where nothing was.
py::object given(const Arguments& args, const Keywords& kwargs, size_t position,
                 std::string_view name) {
  if (position < args.size()) return args[position];
  for (const auto& [key, value] : kwargs)
    if (text(key) == name) return value;
  return {};
}

bool is_none(const py::object& o) { return !o || o.is_none(); }

py::object autograd_member(const char* name) {
  return own_function("oxyfuel.autograd_function", name);
}

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

// The tensors in one, or in a list, tuple or dict of them.
std::vector<at::Tensor> Graphs::tensors_given(const py::object& o) {
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

// Notes what a backward from `roots` runs and frees; by `inputs` alone, where there are some.
void Graphs::spend(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& inputs) {
  std::unordered_set<Node*> needed;
  for (const at::Tensor& t : inputs)
    if (t.requires_grad()) needed.insert(engine::impl::gradient_edge(t).function.get());
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(roots)) {
    for (const engine::Edge& e : node->next_edges())
      if (needed.contains(e.function.get())) needed.insert(node.get());
    const bool runs = inputs.empty() || needed.contains(node.get());
    if (runs && !is_accumulation(*node) && !is_entrance(*node)) spent_.emplace(node.get(), node);
  }
}

// What is left of a tensor's history, if a recorded backward has freed some of what that reads.
// Nodes that keep nothing can run again: they are cut off from what was freed.
std::optional<SpentResult> Graphs::spent_result(const py::object& of) {
  const at::Tensor& t = THPVariable_Unpack(of.ptr());
  if (spent_.empty() || !t.requires_grad()) return std::nullopt;
  const engine::Edge history = engine::impl::gradient_edge(t);
  if (!history.function) return std::nullopt;  // of a view made under no_grad
  std::unordered_set<Node*> live, behind_spent, freed;
  std::vector<std::pair<Node*, bool>> open{{history.function.get(), false}};
  while (!open.empty()) {
    auto [node, is_behind] = open.back();
    open.pop_back();
    if (spent_.contains(node) && bridge::keeps_tensors(*node)) freed.insert(node);
    is_behind = is_behind || freed.contains(node);
    if (!(is_behind ? behind_spent : live).insert(node).second) continue;
    for (const engine::Edge& e : node->next_edges())
      if (e.function) open.emplace_back(e.function.get(), is_behind);
    if (auto it = cut_off_.find(node); it != cut_off_.end())
      for (const auto& next : it->second) open.emplace_back(next.get(), is_behind);
  }
  if (behind_spent.empty()) return std::nullopt;
  SpentResult out;
  std::vector<std::pair<SourceId, py::object>> inputs;
  for (const auto& [real, fake] : heap().fakes()) {
    const at::Tensor& input = THPVariable_Unpack(fake.ptr());
    if (!input.requires_grad()) continue;
    Node* node = engine::impl::gradient_edge(input).function.get();
    if (behind_spent.contains(node))
      inputs.emplace_back(heap().tracked(fake)->source, fake);
    else
      out.has_history |= live.contains(node);
  }
  std::ranges::sort(inputs, {}, [](const auto& input) { return input.first.index; });
  for (auto& [source, fake] : inputs) out.inputs.push_back(std::move(fake));
  if (!out.has_history) {
    out.left = calls().call_method(of, "detach", {}, {});
    return out;
  }
  for (Node* node : live)
    for (engine::Edge& e : node->next_edges())
      if (freed.contains(e.function.get()))
        cut_off_[node].push_back(std::exchange(e, engine::Edge()).function);
  const c10::AutoGradMode on(true);
  out.left = calls().call_method(of, "__getitem__", {py::ellipsis()}, {});
  return out;
}

const py::object& spent_function() {
  static PyMethodDef method = {"with_spent_history", with_spent_history, METH_VARARGS, nullptr};
  static const py::object& function = *new py::object(steal(PyCFunction_New(&method, nullptr)));
  return function;
}

// `made` is what a call has given. A leaf has a `grad` and an identity that a result of the graph
// cannot have, a parameter its class.
void Graphs::note_leaf(const py::object& made) {
  const at::Tensor& t = THPVariable_Unpack(made.ptr());
  if (t.requires_grad()) inference().refuse_inside("a leaf");
  const bool is_parameter = py::type::of(made).is(member_of<"torch.nn", "Parameter">());
  if (!(t.requires_grad() || is_parameter) || !t.is_leaf() || inner_ != nullptr || is_wrapped(t) ||
      heap().tracked(made)->source.valid())
    return;
  made_leaves_.try_emplace(
      made.ptr(), MadeLeaf{py::none(), frames().user_stack().frames(), frames().places_to_stop()});
}

void Graphs::refuse_made_leaf(py::handle tensor) const {
  auto it = made_leaves_.find(tensor.ptr());
  if (it == made_leaves_.end()) return;
  Break b(BreakId::made_leaf, "");
  b.stack = it->second.stack;
  b.steps = it->second.steps;
  throw b;
}

// What such a leaf has as its `grad`; null for all else.
py::object* Graphs::gradient_of_made_leaf(py::handle tensor) {
  auto it = made_leaves_.find(tensor.ptr());
  return it == made_leaves_.end() ? nullptr : &it->second.gradient;
}

// `results`: of an autograd.Function. `vanishes`: what its backward gives is undefined where all it
// gets is.
void Graphs::note_custom_function(const py::object& results, bool vanishes) {
  if (inner_ != nullptr) return;
  CustomFunction f;
  f.vanishes = vanishes;
  size_t differentiable = 0;
  const bool one = heap().is_tensor(results);
  for (py::handle r : one ? py::object(py::make_tuple(results)) : heap().contents(results)) {
    if (!heap().is_tensor(r) || is_wrapped(THPVariable_Unpack(r.ptr())) ||
        !THPVariable_Unpack(r.ptr()).requires_grad())
      continue;
    f.node = engine::impl::gradient_edge(THPVariable_Unpack(r.ptr())).function;
    differentiable++;
  }
  f.has_several = differentiable > 1;
  if (f.node) watch(*f.node);
  note_custom_function(std::move(f));
}

void Graphs::note_custom_function(CustomFunction f) {
  f.stack = frames().user_stack().frames();
  f.steps = frames().places_to_stop();
  custom_functions_.push_back(std::move(f));
}

void Graphs::refuse_function(const CustomFunction& f, BreakId id, const std::string& why) {
  Break b(id, why);
  b.stack = f.stack;
  b.steps = f.steps;
  throw b;
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
    CustomFunction& op = custom_ops_.emplace_back();
    op.node = engine::impl::gradient_edge(t).function;
    watch(*op.node);
    op.stack = frames().user_stack().frames();
    op.steps = frames().places_to_stop();
    return;
  }
}

void Graphs::watch(Node& node) {
  node.add_pre_hook(std::make_unique<Enters>(running_, &node));
  node.add_post_hook(std::make_unique<Leaves>(running_));
}

// Where a backward that has raised was in one of them. Of hooks, and of what a transform has made,
// nobody knows which one it was.
void Graphs::refuse_raising_functions(const std::string& why) const {
  const auto is_running = [this](const CustomFunction& f) {
    return *running_ != nullptr && f.node.get() == *running_;
  };
  if (const auto f = std::ranges::find_if(custom_functions_, is_running);
      f != custom_functions_.end())
    refuse_function(*f, BreakId::autograd_function, why);
  if (const auto f = std::ranges::find_if(custom_ops_, is_running); f != custom_ops_.end())
    refuse_function(*f, BreakId::torch_call, why);
  if (const auto f = std::ranges::find_if(
          custom_functions_, [](const CustomFunction& f) { return !f.node || f.hooked; });
      f != custom_functions_.end())
    refuse_function(*f, BreakId::autograd_function, why);
}

// The tensor that a graph hands gradients of an output to (torch_bridge/recording_end): itself, if
// its memory is of its own, else what autograd knows the memory by. Undefined: there is none.
at::Tensor Graphs::taker_of_gradients(const at::Tensor& output,
                                      const std::vector<at::Tensor>& outputs) {
  auto shares = [&](const at::Tensor& t) {
    return t.storage().unsafeGetStorageImpl() == output.storage().unsafeGetStorageImpl();
  };
  auto base_of = [](const at::Tensor& t) { return t.is_view() ? at::Tensor(t._base()) : t; };
  const at::Tensor base = base_of(output);
  bool is_of_input = false;
  for (const auto& [real, fake] : heap().fakes()) {
    const at::Tensor& input = THPVariable_Unpack(fake.ptr());
    if (output.is_same(input) || base.is_same(input)) return input;
    is_of_input |= shares(input);
  }
  if (is_of_input) return {};
  if (std::ranges::count_if(outputs, shares) == 1 && bridge::type_of(output).is_dense())
    return output;
  for (const at::Tensor& t : outputs)
    if (t.requires_grad() && shares(t) && !base_of(t).is_same(base)) return {};
  return base;
}

// What no graph can give: a view of which autograd knows other gradients than of its memory; a
// tensor with hooks; and gradients that depend on which results have some.
void Graphs::refuse_custom_functions(const std::vector<at::Tensor>& outputs) {
  if (custom_functions_.empty()) return;
  // Also those that torch has made inside of a transform, of a function without a node of its own.
  std::unordered_set<const Node*> custom, unknown;
  for (const CustomFunction& f : custom_functions_)
    if (f.node && !f.late) custom.insert(f.node.get());
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
  // Where all of one result arrives, so does what eager's backward gets. Of several results it gets
  // some, and zeros or None in the place of the others.
  auto why_not = [&](const CustomFunction& f, const Node* node, bool several) -> const char* {
    if (lost.contains(node)) return "what it gives shares memory with what has another gradient";
    const auto found = reaching.find(node);
    const size_t count = found == reaching.end() ? 0 : found->second;
    if ((!f.vanishes && count > 0 && count < roots) || (several && count > 1))
      return "its gradients depend on which of the results have some";
    return nullptr;
  };
  for (const CustomFunction& f : custom_functions_) {
    if (f.late) continue;
    const char* why = nullptr;
    if (f.node) {
      why = why_not(f, f.node.get(), f.has_several);
    } else {
      for (const Node* node : unknown)
        if (why == nullptr) why = why_not(f, node, node->num_inputs() > 1);
    }
    if (f.hooked && std::ranges::any_of(given, [&](const at::Tensor& t) {
          return t.is_same(THPVariable_Unpack(f.hooked.ptr()));
        }))
      throw HooksLate();
    if (why != nullptr) refuse_function(f, BreakId::autograd_function, why);
  }
}

// `tensor.requires_grad_(wanted)`
py::object Graphs::require_gradient(const py::object& tensor, bool wanted) {
  if (THPVariable_Unpack(tensor.ptr()).requires_grad() == wanted) return tensor;
  inference().refuse_inside("a change of requires_grad");
  if (inner_ != nullptr || inference().is_inference(THPVariable_Unpack(tensor.ptr())))
    throw Break(BreakId::tensor_attribute, "a change of requires_grad");
  if (heap().tracked(tensor)->source.valid()) return change_leaf(tensor, wanted), tensor;
  py::object out =
      record(ir::NodeKind::CallMethod, "requires_grad_", {}, {tensor, py::bool_(wanted)}, {});
  if (wanted)
    note_leaf(out);
  else
    made_leaves_.erase(tensor.ptr());
  return out;
}

// Of one from before the call: the real one is changed once the graph has run.
void Graphs::change_leaf(const py::object& tensor, bool wanted) {
  const Tracked& k = *heap().tracked(tensor);
  auto refuse = [] { throw Break(BreakId::tensor_attribute, "a change of requires_grad"); };
  if (!k.original || is_transformed()) refuse();
  const at::Tensor& real = THPVariable_Unpack(k.original.ptr());
  if (!real.is_leaf() || real.is_view() || real.is_inference() ||
      !(real.is_floating_point() || real.is_complex()))
    refuse();
  const bool known = std::ranges::any_of(
      changed_leaves_, [&](const ChangedLeaf& leaf) { return leaf.tensor.is(tensor); });
  if (!known)
    changed_leaves_.push_back(
        {tensor, !wanted, frames().user_stack().frames(), frames().places_to_stop()});
  record(ir::NodeKind::CallMethod, "requires_grad_", {}, {tensor, py::bool_(wanted)}, {});
  calls().call_behind(member_of<"torch", "Tensor">().attr("requires_grad_"),
                      {tensor, py::bool_(wanted)});
}

// The graph knows an input as it came. Where it required no gradients, no result's can lead there,
// nor through what shares its memory.
void Graphs::restore_leaves(const std::vector<at::Tensor>& outputs) {
  if (changed_leaves_.empty()) return;
  const auto nodes = nodes_behind(outputs);
  for (const ChangedLeaf& leaf : changed_leaves_) {
    const at::Tensor& t = THPVariable_Unpack(leaf.tensor.ptr());
    const auto leads_there = [&](const auto& node) {
      const auto* end = dynamic_cast<const engine::AccumulateGrad*>(node.get());
      return end != nullptr && end->variable.is_same(t);
    };
    const auto shares = [&](const auto& fake) {
      return !fake.second.is(leaf.tensor) && THPVariable_Unpack(fake.second.ptr()).is_alias_of(t);
    };
    const auto is_view = [&](const at::Tensor& o) { return !o.is_same(t) && o.is_alias_of(t); };
    if ((!leaf.before && std::ranges::any_of(nodes, leads_there)) ||
        std::ranges::any_of(heap().fakes(), shares) || std::ranges::any_of(outputs, is_view)) {
      Break b(BreakId::tensor_attribute, "a change of requires_grad");
      b.stack = leaf.stack;
      b.steps = leaf.steps;
      throw b;
    }
    t.set_requires_grad(leaf.before);
  }
}

// What the hooks of tensors from before the call make of gradients by them.
py::object Graphs::behind_input_hooks(const Arguments& inputs, const py::object& gradients,
                                      bool creates_graph) {
  Arguments out = items(gradients);
  bool changed = false;
  const c10::AutoGradMode mode(creates_graph);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (out[i].is_none() || heap().tracked(inputs[i]) == nullptr) continue;
    const auto first = std::ranges::find_if(inputs, [&](auto& t) { return t.is(inputs[i]); });
    if (const auto at = static_cast<size_t>(first - inputs.begin()); at < i) {
      out[i] = out[at];
      continue;
    }
    const py::object hooks = hooks_of(inputs[i], "_backward_hooks");
    if (!hooks) continue;
    out[i] = calls().call(own_function("oxyfuel.gradients", "after_hooks"), {hooks, out[i]}, {});
    changed = true;
  }
  return changed ? py::object(tuple_of(out)) : gradients;
}

// `hooks`: those of `inputs` are called as well.
py::object Graphs::record_gradients(const Arguments& args, const Keywords& kwargs, bool hooks) {
  inference().refuse_inside("torch.autograd.grad");
  if (!is_transformed()) refuse_in_transform("torch.autograd.grad");
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
  refuse_backward_of_data(roots);
  std::unordered_set<Node*> wanted;
  for (const at::Tensor& t : by)  // torch refuses the others
    if (t.requires_grad()) wanted.insert(engine::impl::gradient_edge(t).function.get());
  // One may be behind the other in front of the call.
  const auto is_input = [](const Node* n) { return is_entrance(*n) || is_accumulation(*n); };
  if (std::ranges::count_if(wanted, is_input) > 1 &&
      std::ranges::any_of(wanted, [](const Node* n) { return is_entrance(*n); }))
    throw Break(BreakId::torch_call, "gradients by an input that was computed, and by another one");
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(roots)) {
    if (is_entrance(*node) && !wanted.contains(node.get()))
      throw Break(BreakId::torch_call, "a gradient through what was computed before the call");
    if (bridge::gives_complex_vectors(*node))
      throw Break(BreakId::torch_call, "a gradient of complex vectors");
  }
  const py::object retain = given(args, kwargs, 3, "retain_graph");
  const bool kept = is_none(retain) ? flag(4, "create_graph") : objects().truth(retain);
  py::object out;
  if (const Arguments stops = late_hooked(roots); stops.empty()) {
    *running_ = nullptr;
    try {
      out = record(ir::NodeKind::CallFunction, "torch.autograd.grad", function, args, kwargs);
    } catch (const Break& b) {
      for (const CustomFunction& op : custom_ops_)
        if (op.node.get() == *running_)
          refuse_function(op, BreakId::torch_call, "a gradient of an op that raises here");
      throw;
    }
  } else {
    if (flag(4, "create_graph") || flag(8, "materialize_grads"))
      throw Break(BreakId::torch_call, "torch.autograd.grad where a hook has effects");
    out = record_in_pieces(
        items(outputs), items(given(args, kwargs, 2, "grad_outputs")), items(inputs), !kept, stops,
        [this](const py::object& t, const py::object& g) { return call_late_hooks(t, g); });
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
      seen.insert(THPVariable_Unpack(held.ptr()).storage().unsafeGetStorageImpl());
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
      gradient = seen_by(seen, gradient, [&] {
        return calls().call(own_function("oxyfuel.gradients", "after_hooks"),
                            {on_arrival, gradient}, {});
      });
    const py::object before = calls().tensor_attr(leaf, py::str("grad"));
    if (before.is_none())
      calls().set_gradient(leaf, as_gradient_of(leaf, gradient, seen));
    else
      calls().call_method(before, "add_", {gradient}, {});
    if (behind) calls().call(own_function("oxyfuel.gradients", "call_behind"), {behind, leaf}, {});
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
    found = record_in_pieces(items(tensors), items(gradients), leaves, frees, stops,
                             [&](const py::object& t, const py::object& g) {
                               if (!THPVariable_Unpack(t.ptr()).is_leaf())
                                 return seen_by(seen, g, [&] { return call_late_hooks(t, g); });
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
  bool respects_hooks = false;
  for (const auto& [key, value] : kwargs) {
    const std::string name = text(key);
    if (name == "use_reentrant" && !value.is_none())
      reentrant = objects().truth(value);
    else if (name == "context_fn")
      contexts = value;
    else if (name == "respect_saved_tensors_hooks" && is_own_of_checkpoint(key))
      respects_hooks = !value.is_none();  // only with context_fn
    else if (name == "preserve_rng_state" || name == "determinism_check" || name == "early_stop" ||
             (name == "debug" && !objects().truth(value)))
      continue;
    else if (is_own_of_checkpoint(key))
      throw Break(BreakId::checkpoint, name);
    else
      rest.emplace_back(key, value);
  }
  if (!reentrant) throw Break(BreakId::checkpoint, "use_reentrant is not given");
  if (contexts) follow_contexts(contexts, *reentrant);
  auto needs_gradient = [this](const py::object& a) {
    return heap().is_tensor(a) && THPVariable_Unpack(a.ptr()).requires_grad();
  };
  if (*reentrant && (!rest.empty() || respects_hooks ||
                     (at::GradMode::is_enabled() && std::ranges::none_of(args, needs_gradient))))
    throw Break(BreakId::checkpoint, "use_reentrant, of what requires no gradients");
  const size_t drawn = draws().count();
  py::object out = call(args[0], {args.begin() + 1, args.end()}, std::move(rest));
  if (draws().count() != drawn) throw Break(BreakId::checkpoint, "random numbers of Python's");
  return out;
}

// torch.autograd.grad and torch.autograd.backward, and checkpoints.
Done Calls::call_of_autograd(PyFunctionObject* f, const Arguments& args, const Keywords& kwargs) {
  const std::string_view module = view_of(f->func_module), name = view_of(f->func_name);
  if (module == "torch.utils.checkpoint" && name == "checkpoint" && !args.empty())
    return call_checkpoint(args, kwargs);
  if (in_context_function_ && module == "torch.utils.checkpoint" &&
      (name == "create_selective_checkpoint_contexts" || name == "noop_context_fn"))
    return call(own_function("oxyfuel.checkpoints", std::string(name).c_str()), args, kwargs);
  if (module == "oxyfuel.gradients" && (name == "remove" || name == "real_handle"))
    graphs().remove_hook(name == "remove" ? args[0] : py::object(),
                         objects().load_attr(args[0], py::str("tensor")));
  if (module == "oxyfuel.gradients" && name == "register_late")
    return register_late_hook(args[0], args[1]);
  if (module == "torch.utils.hooks" && name == "_apply_on_tensors" && args.size() == 3 &&
      graphs().has_one_differentiable(args[2])) {
    objects().guard_code(borrow(reinterpret_cast<PyObject*>(f)));
    return call(own_function("oxyfuel.gradients", "apply_on_tensors"), args, kwargs);
  }
  if (module != "torch.autograd") return std::nullopt;
  if (name == "grad") return graphs().record_gradients(args, kwargs);
  if (name != "backward" || args.empty() || args.size() > 4) return std::nullopt;
  return graphs().record_backward(
      args[0], given(args, kwargs, 1, "grad_tensors"), given(args, kwargs, 2, "retain_graph"),
      given(args, kwargs, 3, "create_graph"), given(args, kwargs, 5, "inputs"));
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
  const auto end = c10::make_scope_exit([&] { heap().end_rehearsal(std::move(around)); });
  const size_t writes = effects().count(), met = heap().met_written();
  const size_t numbers_met = graphs().number_inputs.size(), tensors_met = heap().met_tensors();
  const auto begin = graphs().position();
  const size_t drawn_by_python = this->draws().count();
  size_t draws = bridge::heard().draws;
  std::vector<std::pair<at::Tensor, std::pair<uint32_t, size_t>>> tensors;
  auto add = [&](py::handle o) {
    if (!heap().is_tensor(o)) return;
    const at::Tensor& t = THPVariable_Unpack(o.ptr());
    tensors.emplace_back(t, writes_to(t));
  };
  for (const auto& [real, fake] : heap().fakes()) add(fake);
  for (const py::object& o : heap().held()) add(o);
  for (const py::object& a : args) add(a);
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
  const bool writes_tensors = std::ranges::any_of(
      tensors, [](const auto& known) { return writes_to(known.first) != known.second; });
  const char* why = nullptr;
  if (effects().count() != writes || writes_tensors ||
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
  const bool vanishes =
      rehearse(as_type(type)->tp_name, args, functions_of(type), [&](size_t& draws) {
        const py::object made = call(forward, with_type, kwargs);
        if (is_transformed()) rehearse_vmap(type, args);
        draws = bridge::heard().draws;
        const py::object found = call(backward, {borrow(type), made}, {});
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
    out = graphs().record(ir::NodeKind::CallFunction, "", with_numbers, given, kwargs);
  }
  graphs().recorder().note_grad_mode();  // its ops ran without it
  graphs().note_custom_function(out, vanishes);
  return out;
}

}  // namespace oxy::python
