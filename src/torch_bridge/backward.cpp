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
  // What requires gradients is a gradient as it arrived, with a history of its own.
  for (at::Tensor& g : gradients)
    if (g.defined() && !g.requires_grad()) torch_autograd::create_gradient_edge(g, error);
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

// Whether somebody looks at what arrives at a node, or it is where a gradient ends.
bool is_watched(torch_autograd::Node& node) {
  if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
      !node.pre_hooks().empty() || !node.post_hooks().empty())
    return true;
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return false;
  const auto it = asked->find(&node);
  return it == asked->end() || !it->second.needed_ || it->second.captures_ != nullptr;
}

// Not where all that is asked for is in the pieces in front.
bool is_to_run(torch_autograd::Node& node) {
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return true;
  const auto it = asked->find(&node);
  return it != asked->end() && it->second.needed_;
}

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
    if (backward_->cut_->is_by_results()) {
      for (uint32_t i = 0; i < next->num_inputs(); ++i) add_next_edge({next, i});
    } else {
      // What goes there is handed on beside the engine, which has no metadata of it.
      add_next_edge({next, next->add_input_metadata(undefined_input())});
    }
    next_ = std::move(next);
  }
  void save(uint32_t input, const at::Tensor& t, bool is_result) {
    tensors_.emplace_back(input, torch_autograd::SavedVariable(t, is_result));
  }
  void save_number(uint32_t input, int64_t n) { numbers_.emplace_back(input, n); }
  uint32_t add_result(const at::Tensor& t) {
    strides_.emplace_back(t.strides());
    return add_input_metadata(t);
  }

 private:
  // What has come so far, for the pieces from `first` on.
  struct Handed {
    size_t first = 0;
    Given given;
    Tensors read;  // with create_graph, all that it depends on
  };

  void forget() {
    for (auto& [input, t] : tensors_) t.reset_data();
  }
  Handed take_handed();
  void add_own(Handed& handed, variable_list&& gradients);
  void hand_on(Handed handed);
  Tensors run(Handed handed);

  const std::shared_ptr<Backward> backward_;
  const size_t piece_;
  c10::intrusive_ptr<Node> next_;  // of the piece behind
  std::map<int, Handed> handed_;   // by the engine's task
  std::vector<std::pair<uint32_t, torch_autograd::SavedVariable>> tensors_;
  std::vector<std::pair<uint32_t, int64_t>> numbers_;
  std::vector<Strides> strides_;  // by result
};

Backward::Node::Handed Backward::Node::take_handed() {
  auto found = handed_.extract(torch_autograd::get_current_graph_task_id());
  if (!found.empty()) return std::move(found.mapped());
  if (piece_ > 0 && !backward_->cut_->is_by_results())
    throw InternalError("a piece of a backward runs without the one in front");
  Handed out;
  out.first = piece_;
  // Nothing has come from the pieces in front.
  if (piece_ > 0) out.given.tangents.resize(backward_->piece({piece_, piece_}).carried);
  return out;
}

void Backward::Node::add_own(Handed& handed, variable_list&& gradients) {
  Given& given = handed.given;
  const size_t all = backward_->saved_.size();
  given.saved.resize(all);
  given.numbers.resize(all);
  for (const auto& [input, t] : tensors_) given.saved[input] = t.unpack(getptr());
  for (const auto& [input, n] : numbers_) given.numbers[input] = n;
  gradients.resize(strides_.size());  // the others came beside the engine
  given.strides.insert(given.strides.end(), strides_.begin(), strides_.end());
  if (c10::GradMode::is_enabled())
    for (const auto* read : {&given.saved, &gradients})
      for (const at::Tensor& t : *read)
        if (t.defined()) handed.read.push_back(t);
  given.tangents.insert(given.tangents.end(), std::make_move_iterator(gradients.begin()),
                        std::make_move_iterator(gradients.end()));
}

void Backward::Node::hand_on(Handed handed) {
  if (!is_to_run(*next_)) return;
  std::lock_guard lock(next_->mutex_);
  next_->handed_[torch_autograd::get_current_graph_task_id()] = std::move(handed);
}

// Gradients by primal, and behind them what has arrived at the results of the next piece.
Backward::Tensors Backward::Node::run(Handed handed) {
  const c10::AutoGradMode off(false);
  Tensors found = backward_->run({handed.first, piece_}, std::move(handed.given));
  if (!next_) return found;
  const auto first = found.begin() + static_cast<ptrdiff_t>(backward_->backward_.outputs.size());
  const auto last = found.end() - static_cast<ptrdiff_t>(next_->strides_.size());
  Handed next;
  next.first = piece_ + 1;
  next.given.tangents.assign(std::make_move_iterator(first), std::make_move_iterator(last));
  next.read = std::move(handed.read);
  hand_on(std::move(next));
  found.erase(first, last);
  return found;
}

variable_list Backward::Node::apply(variable_list&& gradients) {
  std::lock_guard lock(mutex_);
  const bool create_graph = c10::GradMode::is_enabled();
  Handed handed = take_handed();
  add_own(handed, std::move(gradients));
  if (!torch_autograd::get_current_graph_task_keep_graph()) forget();
  if (next_ && backward_->cut_->is_by_results() && !is_watched(*next_)) {
    hand_on(std::move(handed));
    return variable_list(num_outputs());
  }
  const Tensors read = handed.read;
  Tensors found = run(std::move(handed));
  variable_list out;
  const size_t primals = backward_->backward_.outputs.size();
  for (const uint32_t i : backward_->piece({piece_, piece_}).primals)
    out.push_back(std::move(found[i]));
  if (next_)
    out.insert(out.end(), std::make_move_iterator(found.begin() + static_cast<ptrdiff_t>(primals)),
               std::make_move_iterator(found.end()));
  if (create_graph) refuse_second_order(out, read);
  out.resize(num_outputs());  // where the next piece has no results
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
  if (buckets)
    cut_.emplace(backward_, rooted_.size() + written_.size(), buckets);
  else
    cut_.emplace(backward_, std::move(gradients.levels));
}

void Backward::check_inputs(std::span<const Input> inputs) const {
  for (const uint32_t i : written_)
    torch_autograd::check_inplace(*inputs[i].tensor, /*requires_grad=*/true);
}

void Backward::rebase(const torch_autograd::edge_list& edges, std::span<const Input> inputs) const {
  for (size_t k = 0; k < written_.size(); k++) {
    const at::Tensor& input = *inputs[written_[k]].tensor;
    const torch_autograd::Edge& edge = edges[k];
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
          node.save(i, *inputs[s.index].tensor, false);
        else
          node.save_number(i, inputs[s.index].number);
        break;
      case Kind::Result:
        node.save(i, outputs[s.index], true);
        break;
      case Kind::Value:
        node.save(i, outputs[s.index], false);
        break;
      case Kind::Number:
        node.save_number(i, outputs[s.index].item<int64_t>());
        break;
    }
  }
}

torch_autograd::edge_list Backward::attach(std::span<const Input> inputs, Outputs& outputs) {
  std::vector<c10::intrusive_ptr<Node>> nodes;
  std::vector<const autograd::Piece*> pieces;
  torch_autograd::edge_list written(written_.size());
  for (size_t k = 0; k < cut_->size(); k++) {
    pieces.push_back(&piece({k, k}));
    nodes.push_back(c10::make_intrusive<Node>(shared_from_this(), k));
    for (const uint32_t i : pieces[k]->primals)
      nodes[k]->add_next_edge(torch_autograd::impl::gradient_edge(*inputs[i].tensor));
    // Results have their history before they are saved.
    for (const uint32_t t : cut_->tangents(k)) {
      const bool is_result = t < rooted_.size();
      const at::Tensor& of =
          is_result ? outputs[rooted_[t]] : *inputs[written_[t - rooted_.size()]].tensor;
      const torch_autograd::Edge edge(nodes[k], nodes[k]->add_result(of));
      if (is_result)
        torch_autograd::impl::set_gradient_edge(of, edge);
      else
        written[t - rooted_.size()] = edge;
    }
  }
  for (size_t k = nodes.size(); k-- > 1;) nodes[k - 1]->set_next(nodes[k]);
  try {
    for (size_t k = 0; k < nodes.size(); k++) save(*nodes[k], pieces[k]->saved, inputs, outputs);
  } catch (...) {
    // What a hook raises leaves the call: so the recomputation of a checkpoint ends.
    if (at::SavedTensorDefaultHooks::get_hooks()) throw Interrupted{std::current_exception()};
    throw;
  }
  for (size_t i = results_; i < outputs.size(); i++) outputs[i].reset();
  return written;
}

const autograd::Piece& Backward::piece(Range pieces) {
  const std::lock_guard lock(mutex_);
  auto it = pieces_.find(pieces);
  if (it == pieces_.end())
    it = pieces_.emplace(pieces, cut_->make(pieces.first, pieces.second)).first;
  return it->second;
}

Backward::Plan Backward::plan_for(const Which& which, std::span<const Input> inputs) {
  const autograd::Piece& of = piece(which.pieces);
  const std::lock_guard lock(mutex_);
  Plan& plan = plans_[which];
  if (plan.executable) return plan;
  const bool all = std::ranges::count(which.defined, false) == 0;
  const auto made = all ? std::nullopt
                        : std::optional(autograd::without_tangents(
                              of.graph, of.tangents, which.defined, backward_.outputs.size()));
  plan.executable = make_(all ? of.graph : *made, inputs, which.by_ops);
  return plan;
}

void Backward::note_run(const Which& which) {
  const std::lock_guard lock(mutex_);
  plans_[which].has_run = true;
}

Backward::Tensors Backward::run_batch(Range pieces, const Given& given) {
  const Batch last = last_batch(given.tangents).value();
  const int64_t size = last.value.size(last.dim);
  std::vector<Tensors> rows;  // by result
  for (int64_t i = 0; i < std::max<int64_t>(size, 1); i++) {
    Given row = given;
    for (at::Tensor& t : row.tangents)
      if (const auto b = batch_of(t); b && b->is_with(last)) t = size > 0 ? b->row(i) : b->zeros();
    Tensors found = run(pieces, std::move(row));
    rows.resize(found.size());
    for (size_t k = 0; k < found.size(); k++)
      if (found[k].defined()) rows[k].push_back(std::move(found[k]));
  }
  Tensors out;
  for (const Tensors& of : rows) out.push_back(of.empty() ? at::Tensor() : batched(of, size, last));
  return out;
}

Backward::Tensors Backward::run(Range pieces, Given given) {
  auto& [saved, numbers, tangents, strides] = given;
  if (last_batch(tangents)) return run_batch(pieces, given);
  const size_t carried = tangents.size() - strides.size();
  for (size_t i = 0; i < strides.size(); i++)
    if (at::Tensor& t = tangents[carried + i]; t.defined()) t = laid_out(t, strides[i]);
  const autograd::Piece& of = piece(pieces);
  std::vector<Input> inputs;
  std::vector<at::Tensor*> given_up;
  auto add = [&](at::Tensor& t) {
    inputs.push_back({&t, 0});
    given_up.push_back(&t);
  };
  for (const uint32_t i : of.saved) {
    if (saved_[i].type.kind == ir::Type::Kind::Int) {
      inputs.push_back({nullptr, numbers[i]});
      given_up.push_back(nullptr);
    } else {
      add(saved[i]);
    }
  }
  Which which{pieces, {}, false};
  for (size_t i = 0; i < tangents.size(); i++) {
    const bool defined = tangents[i].defined();
    if (i >= of.values) which.defined.push_back(defined);
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
