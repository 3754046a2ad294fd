// The plans of a backward, and what a call leaves for them.
#include "torch_bridge/backward.h"

// In front of the older one, whose names it would find.
#include <ATen/functorch/BatchedTensorImpl.h>

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <limits>

#include "autograd/hand_on_views.h"
#include "passes/pass_list.h"
#include "torch_bridge/backward_call.h"

namespace oxy::bridge {

namespace torch_autograd = torch::autograd;
using torch_autograd::variable_list;
using Kind = autograd::Saved::Kind;

namespace {

// So many sets of gradients are compiled; others that are asked for are computed op by op.
constexpr ptrdiff_t kMostPlans = 16;

// So many combinations of layouts that gradients arrive in, beside those of the results.
constexpr ptrdiff_t kMostLayouts = 4;

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

// Places in `order`; those that are not in it come last.
std::vector<uint32_t> rank_of(const std::vector<uint32_t>& order, size_t primals) {
  std::vector<uint32_t> out(primals, static_cast<uint32_t>(order.size()));
  for (uint32_t i = 0; i < order.size(); i++) out[order[i]] = i;
  return out;
}

bool has_hooks(torch_autograd::Node& leaf) {
  return leaf.tensor_post_acc_grad_hooks() != nullptr || !leaf.tensor_pre_hooks().empty() ||
         !leaf.pre_hooks().empty() || !leaf.post_hooks().empty();
}

}  // namespace

at::Tensor within_batches(at::Tensor t) {
  while (auto b = batch_of(t)) t = std::move(b->value);
  return t;
}

// The new value of an input that is a view, as autograd's node for writes through views wants it:
// nothing goes to the old value here (it is a primal), all goes to where the new one came from.
// Which of its edges there are is compared with those of what stands for it at the base.
class Written : public torch_autograd::Node {
 public:
  Written(const at::Tensor& base, torch_autograd::Edge from)
      : torch_autograd::Node(
            torch_autograd::edge_list{torch_autograd::impl::gradient_edge(base), std::move(from)}) {
    add_input_metadata(undefined_input());
  }
  variable_list apply(variable_list&& gradients) override {
    // Undefined, nothing would go to the rest of the memory that the view is of.
    at::Tensor none = at::zeros_like(gradients[0]);
    return {std::move(none), std::move(gradients[0])};
  }
  std::string name() const override { return "OxyfuelBackward"; }
};

// Between a node and a leaf: those that have come to be ready at once take their turns as in eager,
// where each is ready as its gradient is computed, and in front of all other nodes.
class HandsOver : public torch_autograd::Node {
 public:
  HandsOver(uint32_t rank, torch_autograd::Edge to, const at::Tensor& leaf)
      : torch_autograd::Node(std::numeric_limits<uint64_t>::max() - 1 - rank,
                             torch_autograd::edge_list{std::move(to)}) {
    add_input_metadata(leaf);
  }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "OxyfuelHandsOver"; }
};

Backward::Backward(autograd::Partition partition, Gradients gradients,
                   const std::optional<autograd::GradientBuckets>& buckets, bool strict, Make make,
                   std::unique_ptr<GradientFunction> with_history)
    : backward_(std::move(partition.backward)),
      saved_(std::move(partition.saved)),
      results_(partition.results),
      rank_(rank_of(gradients.order, backward_.outputs.size())),
      rooted_(std::move(gradients.outputs)),
      views_(std::move(gradients.views)),
      names_(std::move(gradients.names)),
      orders_(std::move(gradients.orders)),
      read_as_is_(std::move(gradients.read)),
      behind_(gradients.reached.to_results),
      strict_(strict),
      make_(std::move(make)),
      with_history_(std::move(with_history)) {
  for (const uint32_t m : gradients.mutations)
    written_.push_back(partition.forward.mutations[m].input);
  const ReachedResults& reached = gradients.reached;
  if (buckets && gradients.shown.empty())
    cut_.emplace(backward_, rooted_.size() + written_.size(), buckets);
  else
    cut_.emplace(backward_, reached.levels);
  std::vector<std::vector<uint32_t>> primals;
  std::vector<bool> read(saved_.size());
  for (size_t k = 0; k < cut_->size(); k++) {
    const autograd::Piece& of = piece({k, k});
    primals.push_back(of.primals);
    for (const uint32_t i : of.saved) read[i] = true;
  }
  std::vector<bool> is_saved(backward_.outputs.size());
  for (uint32_t i = 0; i < read.size(); i++) {
    if (!read[i]) continue;
    read_.push_back(i);
    if (saved_[i].kind == Kind::Primal) is_saved[saved_[i].index] = true;
  }
  for (uint32_t p = 0; p < is_saved.size(); p++)
    if (!is_saved[p]) unsaved_.push_back(p);
  writes_.resize(is_saved.size());
  for (const ir::Mutation& m : partition.forward.mutations) writes_[m.input] += m.unseen ? 0 : 1;
  for (uint32_t t = 0; t < rooted_.size(); t++)
    if (std::ranges::find(gradients.shown, rooted_[t]) != gradients.shown.end() &&
        !reached.to_results[t].empty() && !cut_->shows_arriving(t))
      throw Unsupported("a hook of a tensor whose gradient no cut of the backward shows");
  nodes_ = backward_nodes(*cut_, reached, primals, rank_);
  kept_.resize(cut_->size());
  // Where the engine goes from result to result, it has been at the last one in front of each node.
  bool goes_through = cut_->is_by_results() && cut_->size() > 1;
  for (uint32_t t = 0; t < reached.levels.size(); t++)
    goes_through &= reached.levels[t] == 0 || cut_->shows_arriving(t);
  if (goes_through) come_straight_ = reached.straight_to_level;
  const auto& kept = goes_through ? reached.kept_straight : reached.kept;
  for (size_t level = 0; level < kept.size(); level++)
    for (size_t k = 0; k < kept_.size(); k++)
      if (k == level || !cut_->is_by_results() || kept_.size() == 1)
        kept_[k].insert(kept_[k].end(), kept[level].begin(), kept[level].end());
}

void Backward::check_inputs(std::span<const Input> inputs) const {
  for (const uint32_t i : written_) {
    const at::Tensor& t = *inputs[i].tensor;
    torch_autograd::check_inplace(t, /*requires_grad=*/true);
    // Eager's gradients go to its base without coming by.
    if (t.is_view() && !t.is_leaf() && has_hooks(*t.grad_fn()))
      throw InternalError(cat(kReliedOn, "no hooks of a view that is written"));
  }
}

void Backward::rebase(const torch_autograd::edge_list& edges, std::span<const Input> inputs) const {
  for (size_t k = 0; k < written_.size(); k++) {
    const at::Tensor& input = *inputs[written_[k]].tensor;
    const torch_autograd::Edge& edge = edges[k];
    torch_autograd::impl::rebase_history(
        input,
        input.is_view()
            ? torch_autograd::Edge(c10::make_intrusive<Written>(at::Tensor(input._base()), edge), 0)
            : edge);
  }
}

void Backward::save(Call& call, std::span<const Input> inputs, const Outputs& outputs,
                    std::span<const c10::intrusive_ptr<Node>> nodes) const {
  for (const uint32_t i : read_) {
    const autograd::Saved& s = saved_[i];
    switch (s.kind) {
      case Kind::Primal:
        if (inputs[s.index].tensor)
          call.save_input(i, *inputs[s.index].tensor, read_as_is_.at(s.index) && !s.before);
        else
          call.save_number(i, inputs[s.index].number);
        break;
      case Kind::Result:
        save_result(call, i, outputs[s.index], nodes);
        break;
      case Kind::Value:
        call.save(i, outputs[s.index], false);
        if (s.written) hold_written(call, i, *inputs[*s.written].tensor, nodes);
        break;
      case Kind::Number:
        call.save_number(i, outputs[s.index].item<int64_t>());
        break;
    }
  }
  for (const uint32_t p : unsaved_) call.remember(p, inputs[p], writes_[p]);
}

// Where eager keeps the tensor itself, so do the nodes that gradients come to it from: what it
// holds when they come is what is read.
void Backward::save_result(Call& call, uint32_t input, const at::Tensor& t,
                           std::span<const c10::intrusive_ptr<Node>> nodes) const {
  const uint32_t index = saved_[input].index;
  const bool as_is = read_as_is_.at(backward_.outputs.size() + index);
  if (!t.requires_grad()) return call.save_input(input, t, as_is);
  call.save(input, t, true);
  const auto result = static_cast<size_t>(std::ranges::find(rooted_, index) - rooted_.begin());
  if (!as_is || result == rooted_.size()) return;
  const auto held = std::make_shared<at::Tensor>(t);
  for (const uint32_t behind : behind_[result]) nodes[nodes_.of_result[behind]]->hold(held);
  call.note_held(input, {held});
}

// The same of an input, which holds at the commit point what is saved here.
void Backward::hold_written(Call& call, uint32_t input, const at::Tensor& t,
                            std::span<const c10::intrusive_ptr<Node>> nodes) const {
  const uint32_t primal = *saved_[input].written;
  const auto own = std::ranges::find(written_, primal);
  if (t.is_inference() || (t.is_view() && !written_.empty())) return;  // its history may be ours
  const auto held = std::make_shared<at::Tensor>(t);
  if (own == written_.end()) {
    for (const auto& node : nodes) node->hold(held);
  } else {
    const auto result = rooted_.size() + static_cast<size_t>(own - written_.begin());
    for (const uint32_t behind : behind_[result]) nodes[nodes_.of_result[behind]]->hold(held);
  }
  call.note_held(input, {held, t.storage().getWeakStorageImpl(),
                         static_cast<int64_t>(t._version() + writes_[primal])});
}

// To the primals. What has hooks sees what was accumulated in front of it.
void Backward::add_edges(Node& node, const std::vector<uint32_t>& primals,
                         std::span<const Input> inputs) const {
  const size_t first = node.num_outputs();
  bool hooks = false;
  for (const uint32_t p : primals) {
    node.add_next_edge(torch_autograd::impl::gradient_edge(*inputs[p].tensor));
    hooks |= inputs[p].tensor->is_leaf() && has_hooks(*node.next_edges().back().function);
  }
  for (size_t i = 0; hooks && i < primals.size(); i++) {
    const at::Tensor& t = *inputs[primals[i]].tensor;
    torch_autograd::Edge edge = node.next_edge(first + i);
    if (t.is_leaf())
      node.set_next_edge(
          first + i, {c10::make_intrusive<HandsOver>(rank_[primals[i]], std::move(edge), t), 0});
  }
}

// A view whose gradients are not those of its place may not be written, as in eager.
static void set_history(const at::Tensor& result, const torch_autograd::Edge& edge) {
  torch_autograd::impl::set_gradient_edge(result, edge);
  auto* view = torch_autograd::impl::get_view_autograd_meta(result);
  if (view != nullptr && view->has_bw_view())
    view->set_creation_meta(torch_autograd::CreationMeta::IN_CUSTOM_FUNCTION);
}

torch_autograd::edge_list Backward::attach(std::span<const Input> inputs, Outputs& outputs,
                                           runtime::DeviceApi::GeneratorState generator) {
  const auto call = std::make_shared<Call>(shared_from_this());
  call->set_generator(std::move(generator));
  c10::SmallVector<c10::intrusive_ptr<Node>, 4> nodes;
  torch_autograd::edge_list written(written_.size());
  for (uint32_t i = 0; i < nodes_.nodes.size(); i++) {
    const BackwardNode& like = nodes_.nodes[i];
    Node& node = *nodes.emplace_back(c10::make_intrusive<Node>(call, i));
    for (const uint32_t t : like.results)
      node.add_next_edge({nodes[nodes_.of_result[t]], nodes_.input[t]});
    add_edges(node, like.primals, inputs);
    for (const uint32_t later : like.later) node.add_next_edge({nodes[later], 0});
    if (like.own.empty()) node.add_input_metadata(torch_autograd::Node::undefined_input());
    // Results have their history before they are saved.
    for (const uint32_t t : like.own) {
      const bool is_result = t < rooted_.size();
      const at::Tensor& of =
          is_result ? outputs[rooted_[t]] : *inputs[written_[t - rooted_.size()]].tensor;
      if (of.is_non_overlapping_and_dense())
        call->set_strides(t, of.strides());
      else
        call->set_strides(t, c10::contiguous_strides(of.sizes()));
      const torch_autograd::Edge edge(nodes[i], node.add_input_metadata(of));
      if (is_result && is_plain_view(rooted_[t]))
        torch_autograd::impl::set_gradient_edge(of, edge);
      else if (is_result)
        set_history(of, edge);
      else
        written[t - rooted_.size()] = edge;
    }
  }
  try {
    save(*call, inputs, outputs, nodes);
  } catch (...) {
    // What a hook raises leaves the call: so the recomputation of a checkpoint ends.
    if (at::SavedTensorDefaultHooks::get_hooks()) throw Interrupted{std::current_exception()};
    throw;
  }
  for (size_t i = results_; i < outputs.size(); i++) outputs[i].reset();
  return written;
}

std::shared_ptr<std::recursive_mutex> Backward::graphs() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(forks_, ForkMutex::forks()) != ForkMutex::forks())
    graphs_ = std::make_shared<std::recursive_mutex>();
  return graphs_;
}

const autograd::Piece& Backward::piece(Range pieces) {
  const auto known = [&]() -> const autograd::Piece* {
    const std::lock_guard lock(mutex_);
    const auto it = pieces_.find(pieces);
    return it == pieces_.end() ? nullptr : &it->second;
  };
  if (const autograd::Piece* found = known()) return *found;
  const auto held = graphs();
  const std::lock_guard one(*held);
  if (const autograd::Piece* found = known()) return *found;
  autograd::Piece made = cut_->make(pieces.first, pieces.second);
  const std::lock_guard lock(mutex_);
  return pieces_.emplace(pieces, std::move(made)).first->second;
}

Backward::Which Backward::which(Range pieces, const Tensors& tangents,
                                const std::vector<bool>& asked) {
  Which out{pieces, {}, asked};
  for (size_t i = piece(pieces).values; i < tangents.size(); i++)
    out.defined.push_back(tangents[i].defined());
  return out;
}

ir::Graph Backward::graph_for(const Which& which, const autograd::Piece& of) const {
  const size_t gradients = backward_.outputs.size();
  ir::Graph out = autograd::without_tangents(of.graph, of.tangents, which.defined, gradients);
  for (size_t i = 0; i < which.layouts.size(); i++)
    which.layouts[i].give_to(out, out.inputs().size() - which.layouts.size() + i, gradients);
  for (size_t p = 0; p < gradients && !which.asked.empty(); p++)
    if (!which.asked[p]) out.outputs[p] = {.kind = ir::OutputSpec::Kind::None};
  if (!which.asked.empty()) passes::dce(out);
  if (!which.by_ops) autograd::hand_on_views(out, of.saved.size(), gradients);
  return out;
}

const std::vector<bool>& Backward::reads_of(const Which& which) {
  const auto known = [&](std::optional<std::vector<bool>> made) -> const std::vector<bool>* {
    const std::lock_guard lock(mutex_);
    auto& reads = plans_[which].reads;
    if (!reads) reads = std::move(made);
    return reads ? &*reads : nullptr;
  };
  if (const auto* found = known({})) return *found;
  const auto held = graphs();
  const std::lock_guard one(*held);
  const autograd::Piece& of = piece(which.pieces);
  std::vector<bool> reads(saved_.size());
  const ir::Graph graph = graph_for(which, of);
  const std::vector<uint32_t> uses = graph.use_counts();
  for (size_t i = 0; i < of.saved.size(); i++)
    reads[of.saved[i]] = uses[graph.inputs()[i].index] > 0;
  for (const ir::OutputSpec& o : graph.outputs)  // a formula of the user's may give what it kept
    if (o.kind == ir::OutputSpec::Kind::Input && o.index < of.saved.size())
      reads[of.saved[o.index]] = true;
  return *known(std::move(reads));
}

const std::vector<std::vector<bool>>& Backward::reads_by_result() {
  // Made once, `mutex_` not held meanwhile: it never changes then.
  const auto known = [&](std::vector<std::vector<bool>> made) -> const auto* {
    const std::lock_guard lock(mutex_);
    if (reads_by_result_.empty()) reads_by_result_ = std::move(made);
    return reads_by_result_.empty() ? nullptr : &reads_by_result_;
  };
  if (const auto* reads = known({})) return *reads;
  const Range all{0, cut_->size() - 1};
  std::vector<std::vector<bool>> found(nodes_.of_result.size());
  // Pieces by buckets are not to be looked at as one.
  if (!cut_->is_by_results() && cut_->size() > 1)
    return *known({found.size(), std::vector<bool>(saved_.size(), true)});
  std::vector<uint32_t> order;  // of the tangents
  for (size_t k = 0; k < cut_->size(); k++)
    order.insert(order.end(), cut_->tangents(k).begin(), cut_->tangents(k).end());
  for (size_t i = 0; i < order.size(); i++) {
    Which one{all, std::vector<bool>(order.size())};
    one.defined[i] = true;
    found[order[i]] = reads_of(one);
  }
  return *known(std::move(found));
}

Backward::Runnable Backward::plan_for(const Which& which, std::span<const Input> inputs) {
  const auto known = [&](std::unique_ptr<Executable> made) {
    const std::lock_guard lock(mutex_);
    Plan& plan = plans_[which];
    if (!plan.executable) plan.executable = std::move(made);
    return Runnable{plan.executable.get(), plan.has_run};
  };
  if (const Runnable found = known(nullptr); found.executable) return found;
  const auto held = graphs();
  const std::lock_guard one(*held);
  if (const Runnable found = known(nullptr); found.executable) return found;
  return known(make_(graph_for(which, piece(which.pieces)), inputs, which.by_ops));
}

// Whether callers have asked these pieces for so many sets of gradients that this one is not
// compiled.
bool Backward::is_one_of_many(const Which& which) {
  if (which.asked.empty()) return false;
  const std::lock_guard lock(mutex_);
  const auto known = plans_.find(which);
  if (known != plans_.end() && known->second.executable) return false;
  return std::ranges::count_if(plans_, [&](const auto& p) {
           const auto& [other, plan] = p;
           return plan.executable && !other.by_ops && !other.asked.empty() &&
                  other.pieces == which.pieces;
         }) >= kMostPlans;
}

std::vector<autograd::TangentLayout> Backward::layouts_of(const Which& which, Tensors& tangents,
                                                          std::span<const Strides> strides) {
  const size_t carried = tangents.size() - strides.size();
  const autograd::Piece& of = piece(which.pieces);
  const auto is_handed_on = [&](size_t i) {
    return std::ranges::any_of(of.graph.outputs, [&](const ir::OutputSpec& o) {
      return o.kind == ir::OutputSpec::Kind::Input && o.index == of.saved.size() + i;
    });
  };
  std::vector<size_t> others;  // which lie otherwise
  for (size_t i = carried; i < tangents.size(); i++) {
    at::Tensor& t = tangents[i];
    if (!t.defined()) continue;
    if (t.layout() != c10::kStrided) t = t.to_dense();
    t = t.resolve_conj().resolve_neg();
    const Strides& expected = strides[i - carried];
    if (t.numel() == 0 || t.strides() == expected) continue;
    if (!is_laid_out(t, t.sizes(), expected))
      others.push_back(i);
    else if (!is_handed_on(i))
      t = t.as_strided(t.sizes(), expected);  // kernels look at strides of one element too
  }
  if (others.empty()) return {};
  const auto lay_out = [&](size_t i) {
    at::Tensor& t = tangents[i];
    t = at::empty_strided(t.sizes(), strides[i - carried], t.options()).copy_(t);
  };
  const auto is_free = [&](size_t i) {
    const ir::ValueId input = of.graph.inputs()[of.saved.size() + i];
    return autograd::TangentLayout::is_free(of.graph.tensor_type(input));
  };
  const auto bound = std::ranges::partition(others, is_free);
  std::ranges::for_each(bound, lay_out);
  others.erase(bound.begin(), bound.end());
  if (others.empty()) return {};
  std::vector<autograd::TangentLayout> by_tangent(tangents.size());
  for (const size_t i : others) by_tangent[i] = {tangents[i].sizes(), tangents[i].strides()};
  Which as = which;
  for (size_t i = 0; i < tangents.size(); i++)
    if (tangents[i].defined()) as.layouts.push_back(std::move(by_tangent[i]));
  const auto is_like = [&](const auto& p) {
    const auto& [other, plan] = p;
    return plan.executable && !other.layouts.empty() && other.pieces == which.pieces &&
           other.defined == which.defined && other.asked == which.asked;
  };
  const auto has_plan = [&] {
    const std::lock_guard lock(mutex_);
    return plans_.contains(as) || std::ranges::count_if(plans_, is_like) < kMostLayouts;
  };
  if (has_plan()) return std::move(as.layouts);
  for (const size_t i : others) lay_out(i);
  return {};
}

void Backward::note_run(const Which& which) {
  const std::lock_guard lock(mutex_);
  plans_[which].has_run = true;
}

namespace {

// Whether a run failed by something of ours, and not by what an op has raised.
bool is_internal(const std::exception_ptr& thrown) {
  if (!thrown) return true;
  try {
    std::rethrow_exception(thrown);
  } catch (const InternalError&) {
    return true;
  } catch (const Unsupported&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

// After a failure of ours, from now on.
void Backward::go_by_ops(Which& which, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    plans_[which].fails = true;
  }
  which.by_ops = true;
  TORCH_WARN_ONCE("oxyfuel: a backward runs op by op after an internal failure: ", why,
                  ". OXYFUEL_STRICT=1 raises the error");
}

Backward::Runnable Backward::plan_or_ops(Which& which, std::span<const Input> inputs) {
  {
    const std::lock_guard lock(mutex_);
    which.by_ops |= plans_[which].fails;
  }
  try {
    return plan_for(which, inputs);
  } catch (const std::exception& e) {
    if (strict_ || which.by_ops || !is_internal(std::current_exception())) throw;
    go_by_ops(which, e.what());
  }
  return plan_for(which, inputs);
}

Backward::Tensors Backward::run_batch(const Which& which, const Given& given) {
  const Batch last = last_batch(given.tangents).value();
  const int64_t size = last.value.size(last.dim);
  std::vector<Tensors> rows;  // by result
  for (int64_t i = 0; i < std::max<int64_t>(size, 1); i++) {
    Given row = given;
    for (at::Tensor& t : row.tangents)
      if (const auto b = batch_of(t); b && b->is_with(last)) t = size > 0 ? b->row(i) : b->zeros();
    Tensors found = run(which, std::move(row));
    rows.resize(found.size());
    for (size_t k = 0; k < found.size(); k++)
      if (found[k].defined()) rows[k].push_back(std::move(found[k]));
  }
  Tensors out;
  for (const Tensors& of : rows) out.push_back(of.empty() ? at::Tensor() : batched(of, size, last));
  return out;
}

namespace {

// Through autograd's engine goes what is an exception.
bool run_plan(Executable& plan, std::span<const Input> inputs, Outputs& out, std::string& reason,
              std::span<at::Tensor* const> given_up, std::exception_ptr& thrown) try {
  return plan.run(inputs, out, reason, nullptr, given_up, &thrown);
} catch (const Interrupted& i) {
  std::rethrow_exception(i.why);
}

}  // namespace

Backward::Tensors Backward::run(const Which& which, Given given) {
  auto& [saved, numbers, tangents, strides] = given;
  if (last_batch(tangents)) return run_batch(which, given);
  Which chosen = which;
  chosen.layouts = layouts_of(which, tangents, strides);
  const autograd::Piece& of = piece(which.pieces);
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
  for (at::Tensor& t : tangents)
    if (t.defined()) add(t);
  chosen.by_ops = is_one_of_many(chosen);
  // What a plan that has never run needs is kept, for the other one.
  const Runnable plan = plan_or_ops(chosen, inputs);
  if (!plan.has_run) given_up.clear();
  Outputs out;
  std::string reason;
  std::exception_ptr thrown;
  bool ok = run_plan(*plan.executable, inputs, out, reason, given_up, thrown);
  if (ok) {
    if (!plan.has_run) note_run(chosen);
  } else {
    // What an op raises eager's does.
    const auto fail = [&] {
      if (!is_internal(thrown)) std::rethrow_exception(thrown);
      throw InternalError(cat("a backward: ", reason));
    };
    // Of what was given up there is nothing to begin again with.
    if (strict_ || plan.has_run) fail();
    out.clear();
    go_by_ops(chosen, std::string(reason));
    if (!run_plan(*plan_for(chosen, inputs).executable, inputs, out, reason, {}, thrown)) fail();
  }
  return {std::make_move_iterator(out.begin()), std::make_move_iterator(out.end())};
}

}  // namespace oxy::bridge
