// Histories of tensors that a captured backward has used up: what such a result of the graph still
// has, and what raises as in eager.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>

#include "python/capture/autograd_nodes.h"
#include "python/capture/capture.h"
#include "python/capture/plan_rebuild.h"
#include "python/cpython/boundary.h"
#include "torch_bridge/engine_order.h"

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

// That of a result whose gradients come to leaves alone which captured code has made: nobody sees
// them.
class HiddenHistory : public Node {
 public:
  // Of a call: the nodes that a backward has let go of what they keep, by number.
  struct Freed {
    std::mutex mutex;
    std::set<int64_t> nodes;
  };
  HiddenHistory(std::shared_ptr<Freed> freed, std::vector<int64_t> keeping)
      : freed_(std::move(freed)), keeping_(std::move(keeping)) {}
  engine::variable_list apply(engine::variable_list&&) override {
    const std::lock_guard lock(freed_->mutex);
    for (const int64_t n : keeping_) TORCH_CHECK(!freed_->nodes.contains(n), kSecondTime);
    if (!engine::get_current_graph_task_keep_graph())
      freed_->nodes.insert(keeping_.begin(), keeping_.end());
    return {};
  }
  std::string name() const override { return "OxyfuelBackward"; }

 private:
  const std::shared_ptr<Freed> freed_;
  const std::vector<int64_t> keeping_;
};

// What such results of a call share: a dict that each call makes, and this in it.
std::shared_ptr<HiddenHistory::Freed> freed_of_call(py::dict call) {
  using Held = std::shared_ptr<HiddenHistory::Freed>;
  if (!call.contains("freed"))
    call["freed"] = py::capsule(new Held(std::make_shared<HiddenHistory::Freed>()),
                                [](void* held) { delete static_cast<Held*>(held); });
  return *py::capsule(call["freed"]).get_pointer<Held>();
}

PyObject* with_hidden_history(PyObject*, PyObject* args) {
  return boundary(
      [&] {
        at::Tensor t = THPVariable_Unpack(PyTuple_GET_ITEM(args, 0));
        if (t.is_view()) t = t.detach();
        auto freed = freed_of_call(borrow(PyTuple_GET_ITEM(args, 1)));
        auto keeping = py::handle(PyTuple_GET_ITEM(args, 2)).cast<std::vector<int64_t>>();
        engine::create_gradient_edge(
            t, c10::make_intrusive<HiddenHistory>(std::move(freed), std::move(keeping)));
        return THPVariable_Wrap(t);
      },
      nullptr);
}

// Gives such a history to a tensor that was written in the graph.
PyObject* spend_history(PyObject*, PyObject* args) {
  return boundary(
      [&] {
        const at::Tensor& t = THPVariable_Unpack(PyTuple_GET_ITEM(args, 0));
        engine::edge_list edges{engine::Edge()};
        for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++)
          edges.push_back(
              engine::impl::gradient_edge(THPVariable_Unpack(PyTuple_GET_ITEM(args, i))));
        const auto node = c10::make_intrusive<SpentHistory>(std::move(edges));
        engine::impl::rebase_history(t, engine::Edge(node, node->add_input_metadata(t)));
        return Py_NewRef(Py_None);
      },
      nullptr);
}

}  // namespace

// Notes what a backward from `roots` runs and frees; by `inputs` alone, where there are some: what
// leads to them.
void Graphs::spend(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& inputs) {
  std::unordered_set<Node*> wanted, leading;
  for (const at::Tensor& t : inputs)
    if (t.requires_grad()) wanted.insert(engine::impl::gradient_edge(t).function.get());
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(roots)) {
    for (const engine::Edge& e : node->next_edges())
      if (wanted.contains(e.function.get()) || leading.contains(e.function.get()))
        leading.insert(node.get());
    const bool runs = inputs.empty() || leading.contains(node.get());
    if (runs && !is_accumulation(*node) && !is_entrance(*node)) spent_.emplace(node.get(), node);
  }
}

// What is left of a tensor's history, if a recorded backward has freed some of what that reads.
// Nodes that keep nothing can run again: they are cut off from what was freed.
std::optional<SpentResult> Graphs::spent_result(const py::object& of) {
  auto out = find_spent(THPVariable_Unpack(of.ptr()), true);
  if (!out) return out;
  if (!out->has_history) {
    out->left = calls().call_method(of, "detach", {}, {});
    return out;
  }
  const c10::AutoGradMode on(true);
  out->left = calls().call_method(of, "__getitem__", {py::ellipsis()}, {});
  return out;
}

std::optional<SpentResult> Graphs::find_spent(const at::Tensor& t, bool cuts) {
  if (spent_.empty() || !t.requires_grad()) return std::nullopt;
  renew_history(t);
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
    const auto node = engine::impl::gradient_edge(input).function;
    if (!is_accumulation(*node) && !is_entrance(*node)) continue;  // it was written
    if (behind_spent.contains(node.get()))
      inputs.emplace_back(heap().tracked(fake)->source, fake);
    else
      out.has_history |= live.contains(node.get());
  }
  std::ranges::sort(inputs, {}, [](const auto& input) { return input.first.index; });
  for (auto& [source, fake] : inputs) out.inputs.push_back(std::move(fake));
  if (!out.has_history || !cuts) return out;
  for (Node* node : live)
    for (engine::Edge& e : node->next_edges())
      if (freed.contains(e.function.get()))
        cut_off_[node].push_back(std::exchange(e, engine::Edge()).function);
  return out;
}

// A result whose gradients come to no input, without them; a dict for all of them; and which nodes
// of its history keep tensors.
std::optional<Arguments> Graphs::hidden_result(const py::object& of) {
  const at::Tensor& t = THPVariable_Unpack(of.ptr());
  if (made_leaves_.empty() || !hooks_.empty() || !late_hooks_.empty() || t.is_leaf() ||
      !t.requires_grad())
    return std::nullopt;
  renew_history(t);
  const auto behind = nodes_behind({t});
  const auto is_input = [&](const auto& both) {
    const at::Tensor& input = THPVariable_Unpack(both.second.ptr());
    const auto node = engine::impl::gradient_edge(input).function;
    return std::ranges::find(behind, node) != behind.end();
  };
  bool ends = false;
  py::list keeping;
  for (const auto& node : behind) {
    ends |= is_accumulation(*node);
    if (bridge::keeps_tensors(*node)) keeping.append(node->sequence_nr());
    if (is_entrance(*node) || bridge::is_of_python(*node)) return std::nullopt;
  }
  if (!ends || std::ranges::any_of(heap().fakes(), is_input)) return std::nullopt;
  hidden_.push_back(t);
  return Arguments{calls().call_method(of, "detach", {}, {}), hidden_results_, py::tuple(keeping)};
}

// Another result has gradients by one whose history is hidden: the leaf of that is to be made in
// front of the graph.
void Graphs::refuse_led_to(const std::vector<at::Tensor>& outputs) const {
  if (hidden_.empty()) return;
  std::vector<at::Tensor> roots = outputs;
  roots.insert(roots.end(), hidden_.begin(), hidden_.end());
  for (const auto& [real, fake] : heap().fakes()) roots.push_back(THPVariable_Unpack(fake.ptr()));
  std::unordered_set<const Node*> led_to;
  for (const auto& node : nodes_behind(roots))
    for (const engine::Edge& e : node->next_edges()) led_to.insert(e.function.get());
  std::vector<at::Tensor> reached;
  for (const at::Tensor& t : hidden_)
    if (led_to.contains(engine::impl::gradient_edge(t).function.get())) reached.push_back(t);
  const auto behind = nodes_behind(reached);
  const Place* first = nullptr;
  for (const auto& [made, leaf] : made_leaves_) {
    const auto node = engine::impl::gradient_edge(THPVariable_Unpack(made)).function;
    if (std::ranges::find(behind, node) != behind.end() &&
        (first == nullptr || leaf.place.steps < first->steps))
      first = &leaf.place;
  }
  if (first != nullptr) first->refuse(BreakId::made_leaf, "");
}

// Inputs that got all of their history in this graph.
void Graphs::spend_written_inputs() {
  std::map<uint32_t, std::pair<py::object, SpentResult>> found;  // by source
  for (const auto& [real, fake] : heap().fakes()) {
    const at::Tensor &t = THPVariable_Unpack(fake.ptr()), &came = THPVariable_Unpack(real);
    const uint32_t source = heap().tracked(fake)->source.index;
    const bool is_all = !came.requires_grad() || detached_.contains(source);
    if (!is_all || !t.requires_grad() || t.is_leaf()) continue;
    const auto* view = engine::impl::get_view_autograd_meta(came);
    if (view != nullptr && view->get_creation_meta() != engine::CreationMeta::DEFAULT) continue;
    auto spent = find_spent(t, false);
    if (spent && !spent->has_history) found.try_emplace(source, fake, *std::move(spent));
  }
  for (auto& [source, input] : found) {
    Arguments args{input.first};
    args.insert(args.end(), input.second.inputs.begin(), input.second.inputs.end());
    calls().call_behind(function_object<spend_history>("spend_history"), args);
    spent_inputs_.push_back(THPVariable_Unpack(input.first.ptr()));
  }
}

const py::object& hidden_function() {
  return function_object<with_hidden_history>("with_hidden_history");
}

const py::object& spent_function() {
  return function_object<with_spent_history>("with_spent_history");
}

}  // namespace oxy::python
