// The node of a compiled graph in autograd's graph, and the plans that it runs.
#include "torch_bridge/backward.h"

// In front of the older one, whose names it would find.
#include <ATen/functorch/BatchedTensorImpl.h>

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace oxy::bridge {

namespace torch_autograd = torch::autograd;
using torch_autograd::variable_list;
using Kind = autograd::Saved::Kind;

namespace {

// A gradient that vmap has batched last: torch.func's, or the older one of `is_grads_batched`.
struct Batch {
  bool func = false;
  int64_t level = 0;
  int64_t dim = 0;
  at::BatchDims others;  // of the older one, by the dimensions of a row
  at::Tensor value;

  bool operator>(const Batch& b) const { return func != b.func ? func : level > b.level; }
  bool is_with(const Batch& b) const { return func == b.func && level == b.level; }
  at::Tensor row(int64_t i) const { return with_others(value.select(dim, i)); }
  at::Tensor zeros() const { return with_others(at::zeros_like(value).sum(dim)); }

 private:
  at::Tensor with_others(at::Tensor t) const {
    return others.empty() ? t : at::makeBatched(std::move(t), others);
  }
};

std::optional<Batch> batch_of(const at::Tensor& t) {
  if (!t.defined()) return std::nullopt;
  if (at::functorch::isBatchedTensor(t)) {
    const auto* b = at::functorch::unsafeGetBatchedImpl(t);
    return Batch{true, b->level(), b->bdim(), {}, b->value()};
  }
  if (!at::isBatchedTensor(t)) return std::nullopt;
  const auto* b = at::unsafeGetBatchedImpl(t);
  const at::BatchDim last = b->bdims().back();  // they are sorted by level
  Batch out{false, last.level(), last.dim(), {}, b->value()};
  for (const at::BatchDim& d : b->bdims().slice(0, b->bdims().size() - 1))
    out.others.emplace_back(d.level(), d.dim() - (d.dim() > last.dim() ? 1 : 0));
  return out;
}

std::optional<Batch> last_batch(const std::vector<at::Tensor>& gradients) {
  std::optional<Batch> last;
  for (const at::Tensor& t : gradients)
    if (auto b = batch_of(t); b && (!last || *b > *last)) last = std::move(b);
  return last;
}

at::Tensor batched(const std::vector<at::Tensor>& rows, int64_t size, const Batch& as) {
  at::Tensor all = at::stack(rows).slice(0, 0, size);
  return as.func ? at::functorch::makeBatched(std::move(all), 0, as.level)
                 : at::addBatchDim(std::move(all), as.level, 0);
}

// A gradient as the plan expects it: in the layout of the result that it is by.
at::Tensor laid_out(const at::Tensor& t, c10::IntArrayRef strides) {
  const at::Tensor plain = t.layout() == c10::kStrided ? t : t.to_dense();
  if (plain.strides() == strides && !plain.is_conj() && !plain.is_neg()) return plain;
  return at::empty_strided(plain.sizes(), strides, plain.options()).copy_(plain);
}

// Gradients with create_graph: no graph of ours has a second derivative.
void refuse_second_order(variable_list& gradients, const std::vector<at::Tensor>& read) {
  torch_autograd::edge_list edges;
  for (const at::Tensor& t : read)
    if (t.defined() && t.requires_grad()) edges.push_back(torch_autograd::impl::gradient_edge(t));
  if (edges.empty()) return;
  auto error = c10::make_intrusive<torch_autograd::Error>(
      "torch.compile with aot_autograd does not currently support double backward",
      std::move(edges));
  for (at::Tensor& g : gradients)
    if (g.defined()) torch_autograd::create_gradient_edge(g, error);
}

}  // namespace

// The new value of an input that is a view, as autograd's node for writes through views wants it:
// nothing goes to the old value here (it is a primal), all goes to where the new one came from.
class Written : public torch_autograd::Node {
 public:
  explicit Written(torch_autograd::Edge from)
      : torch_autograd::Node(torch_autograd::edge_list{torch_autograd::Edge(), std::move(from)}) {
    add_input_metadata(undefined_input());
  }
  variable_list apply(variable_list&& gradients) override {
    // Undefined, nothing would go to the rest of the memory that the view is of.
    at::Tensor none = at::zeros_like(gradients[0]);
    return {std::move(none), std::move(gradients[0])};
  }
  std::string name() const override { return "OxyfuelBackward"; }
};

// What one call left for its backward, or for a piece of it.
class Backward::Node : public torch_autograd::Node {
 public:
  Node(std::shared_ptr<Backward> backward, size_t piece)
      : backward_(std::move(backward)), piece_(piece) {}

  variable_list apply(variable_list&& gradients) override;
  std::string name() const override { return "OxyfuelBackward"; }
  void release_variables() override {
    std::lock_guard lock(mutex_);
    forget();
  }

  void set_next(c10::intrusive_ptr<Node> next) {
    // What goes there is handed on beside the engine, which has no metadata of it.
    add_next_edge({next, next->add_input_metadata(undefined_input())});
    next_ = std::move(next);
  }
  void save(const at::Tensor& t, bool is_result) { tensors_.emplace_back(t, is_result); }
  void save_number(int64_t n) { numbers_.push_back(n); }
  void add_result(const at::Tensor& t) {
    torch_autograd::impl::set_gradient_edge(t, {getptr(), add_input_metadata(t)});
    strides_.emplace_back(t.strides());
  }
  void add_written(const at::Tensor& t) {
    add_input_metadata(t);
    strides_.emplace_back(t.strides());
  }

 private:
  // What the piece in front has computed.
  struct Handed {
    Tensors carried, read;  // read: with create_graph, all that it depends on
  };

  void forget() {
    for (torch_autograd::SavedVariable& t : tensors_) t.reset_data();
  }
  Handed take_handed();
  void hand_on(Tensors& found, const Tensors& read);

  const std::shared_ptr<Backward> backward_;
  const size_t piece_;
  c10::intrusive_ptr<Node> next_;  // of the piece behind
  std::map<int, Handed> handed_;   // by the engine's task
  std::vector<torch_autograd::SavedVariable> tensors_;
  std::vector<int64_t> numbers_;
  std::vector<Strides> strides_;  // by tangent
};

Backward::Node::Handed Backward::Node::take_handed() {
  auto found = handed_.extract(torch_autograd::get_current_graph_task_id());
  if (found.empty()) throw InternalError("a piece of a backward runs without the one in front");
  return std::move(found.mapped());
}

// Where the next piece runs: not where all that is asked for is in the pieces up to here.
void Backward::Node::hand_on(Tensors& found, const Tensors& read) {
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked != nullptr && !asked->empty()) {
    const auto next = asked->find(next_.get());
    if (next == asked->end() || !next->second.should_execute()) return;
  }
  const auto first = found.begin() + static_cast<ptrdiff_t>(backward_->backward_.outputs.size());
  std::lock_guard lock(next_->mutex_);
  next_->handed_[torch_autograd::get_current_graph_task_id()] = {
      {std::make_move_iterator(first), std::make_move_iterator(found.end())}, read};
}

variable_list Backward::Node::apply(variable_list&& gradients) {
  std::lock_guard lock(mutex_);
  const bool create_graph = c10::GradMode::is_enabled();
  Tensors read;
  if (piece_ > 0) {
    Handed handed = take_handed();
    gradients = std::move(handed.carried);
    read = std::move(handed.read);
  }
  Tensors saved;
  for (const torch_autograd::SavedVariable& t : tensors_) saved.push_back(t.unpack(getptr()));
  if (create_graph) {
    read.insert(read.end(), saved.begin(), saved.end());
    read.insert(read.end(), gradients.begin(), gradients.end());
  }
  if (!torch_autograd::get_current_graph_task_keep_graph()) forget();
  variable_list out;
  {
    const c10::AutoGradMode off(false);
    Tensors found =
        backward_->run(piece_, std::move(saved), numbers_, std::move(gradients), strides_);
    for (const uint32_t i : backward_->pieces_[piece_].primals) out.push_back(std::move(found[i]));
    if (next_) hand_on(found, read);
  }
  if (create_graph) refuse_second_order(out, read);
  if (next_) out.emplace_back();
  return out;
}

Backward::Backward(autograd::Partition partition, Gradients gradients,
                   const std::optional<autograd::GradientBuckets>& buckets, bool strict, Make make)
    : backward_(std::move(partition.backward)),
      saved_(std::move(partition.saved)),
      results_(partition.results),
      rooted_(std::move(gradients.outputs)),
      strict_(strict),
      make_(std::move(make)) {
  for (const uint32_t m : gradients.mutations)
    written_.push_back(partition.forward.mutations[m].input);
  pieces_ = autograd::cut_backward(backward_, rooted_.size() + written_.size(), buckets);
}

void Backward::check_inputs(std::span<const Input> inputs) const {
  for (const uint32_t i : written_)
    torch_autograd::check_inplace(*inputs[i].tensor, /*requires_grad=*/true);
}

void Backward::rebase(const c10::intrusive_ptr<torch_autograd::Node>& node,
                      std::span<const Input> inputs) const {
  for (size_t k = 0; k < written_.size(); k++) {
    const at::Tensor& input = *inputs[written_[k]].tensor;
    const torch_autograd::Edge edge(node, static_cast<uint32_t>(rooted_.size() + k));
    torch_autograd::impl::rebase_history(
        input,
        input.is_view() ? torch_autograd::Edge(c10::make_intrusive<Written>(edge), 0) : edge);
  }
}

// What piece `node` is for reads of the forward.
void Backward::save(Node& node, const std::vector<uint32_t>& read, std::span<const Input> inputs,
                    const Outputs& outputs) const {
  for (const uint32_t i : read) {
    const autograd::Saved& s = saved_[i];
    switch (s.kind) {
      case Kind::Primal:
        if (inputs[s.index].tensor)
          node.save(*inputs[s.index].tensor, false);
        else
          node.save_number(inputs[s.index].number);
        break;
      case Kind::Result:
        node.save(outputs[s.index], true);
        break;
      case Kind::Value:
        node.save(outputs[s.index], false);
        break;
      case Kind::Number:
        node.save_number(outputs[s.index].item<int64_t>());
        break;
    }
  }
}

c10::intrusive_ptr<torch_autograd::Node> Backward::attach(std::span<const Input> inputs,
                                                          Outputs& outputs) {
  std::vector<c10::intrusive_ptr<Node>> nodes;
  for (const autograd::Piece& piece : pieces_) {
    nodes.push_back(c10::make_intrusive<Node>(shared_from_this(), nodes.size()));
    for (const uint32_t i : piece.primals)
      nodes.back()->add_next_edge(torch_autograd::impl::gradient_edge(*inputs[i].tensor));
  }
  for (size_t k = nodes.size(); k-- > 1;) nodes[k - 1]->set_next(nodes[k]);
  // Results have their history before they are saved.
  for (const uint32_t i : rooted_) nodes[0]->add_result(outputs[i]);
  for (const uint32_t i : written_) nodes[0]->add_written(*inputs[i].tensor);
  try {
    for (size_t k = 0; k < nodes.size(); k++) save(*nodes[k], pieces_[k].saved, inputs, outputs);
  } catch (...) {
    // What a hook raises leaves the call: so the recomputation of a checkpoint ends.
    if (at::SavedTensorDefaultHooks::get_hooks()) throw Interrupted{std::current_exception()};
    throw;
  }
  for (size_t i = results_; i < outputs.size(); i++) outputs[i].reset();
  return nodes[0];
}

Backward::Plan Backward::plan_for(const Which& which, std::span<const Input> inputs) {
  const std::lock_guard lock(mutex_);
  Plan& plan = plans_[which];
  if (plan.executable) return plan;
  const autograd::Piece& piece = pieces_[which.piece];
  const bool all = std::ranges::count(which.defined, false) == 0;
  const auto made =
      all ? std::nullopt
          : std::optional(autograd::without_tangents(piece.graph, piece.tangents, which.defined,
                                                     backward_.outputs.size()));
  plan.executable = make_(all ? piece.graph : *made, inputs, which.by_ops);
  return plan;
}

void Backward::note_run(const Which& which) {
  const std::lock_guard lock(mutex_);
  plans_[which].has_run = true;
}

Backward::Tensors Backward::run_batch(size_t piece, const Tensors& saved,
                                      std::span<const int64_t> numbers, const Tensors& tangents,
                                      std::span<const Strides> strides) {
  const Batch last = last_batch(tangents).value();
  const int64_t size = last.value.size(last.dim);
  std::vector<Tensors> rows;  // by result
  for (int64_t i = 0; i < std::max<int64_t>(size, 1); i++) {
    Tensors row = tangents;
    for (at::Tensor& t : row)
      if (const auto b = batch_of(t); b && b->is_with(last)) t = size > 0 ? b->row(i) : b->zeros();
    Tensors found = run(piece, saved, numbers, std::move(row), strides);
    rows.resize(found.size());
    for (size_t k = 0; k < found.size(); k++)
      if (found[k].defined()) rows[k].push_back(std::move(found[k]));
  }
  Tensors out;
  for (const Tensors& of : rows) out.push_back(of.empty() ? at::Tensor() : batched(of, size, last));
  return out;
}

Backward::Tensors Backward::run(size_t piece, Tensors saved, std::span<const int64_t> numbers,
                                Tensors tangents, std::span<const Strides> strides) {
  if (last_batch(tangents)) return run_batch(piece, saved, numbers, tangents, strides);
  for (size_t i = 0; i < strides.size(); i++)
    if (tangents[i].defined()) tangents[i] = laid_out(tangents[i], strides[i]);
  const ir::Graph& graph = pieces_[piece].graph;
  std::vector<Input> inputs;
  std::vector<at::Tensor*> given_up;
  auto add = [&](at::Tensor& t) {
    inputs.push_back({&t, 0});
    given_up.push_back(&t);
  };
  size_t next_tensor = 0, next_number = 0;
  while (inputs.size() < pieces_[piece].saved.size()) {
    const bool is_number =
        graph.value(graph.inputs()[inputs.size()]).type.kind == ir::Type::Kind::Int;
    if (is_number) {
      inputs.push_back({nullptr, numbers[next_number++]});
      given_up.push_back(nullptr);
    } else {
      add(saved[next_tensor++]);
    }
  }
  Which which{piece, {}, false};
  for (size_t i = 0; i < tangents.size(); i++) {
    const bool defined = tangents[i].defined();
    if (i >= pieces_[piece].values) which.defined.push_back(defined);
    if (defined) add(tangents[i]);
  }
  // What a plan that has never run needs is kept, for the other one.
  const Plan plan = plan_for(which, inputs);
  if (!plan.has_run) given_up.clear();
  Outputs out;
  std::string reason;
  if (plan.executable->run(inputs, out, reason, nullptr, given_up)) {
    if (!plan.has_run) note_run(which);
  } else {
    if (strict_ || plan.has_run) throw InternalError(cat("a backward: ", reason));
    TORCH_WARN_ONCE("oxyfuel: a backward runs op by op after an internal failure: ", reason,
                    ". OXYFUEL_STRICT=1 raises the error");
    out.clear();
    which.by_ops = true;
    if (!plan_for(which, inputs).executable->run(inputs, out, reason))
      throw InternalError(cat("a backward: ", reason));
  }
  return {std::make_move_iterator(out.begin()), std::make_move_iterator(out.end())};
}

}  // namespace oxy::bridge
