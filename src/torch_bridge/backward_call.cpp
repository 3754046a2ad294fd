// What the engine's visits to the nodes of a call add up to.
#include "torch_bridge/backward_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "torch_bridge/tensor_meta.h"

namespace oxy::bridge {

namespace torch_autograd = torch::autograd;
using torch_autograd::variable_list;

namespace {

void add_edge(torch_autograd::edge_list& edges, const at::Tensor& gradient) {
  const at::Tensor t = within_batches(gradient);
  if (t.defined() && t.requires_grad()) edges.push_back(torch_autograd::impl::gradient_edge(t));
}

// Gradients with create_graph that have no second derivative. `edges`: of what they were computed
// of.
void refuse_second_order(variable_list& gradients, torch_autograd::edge_list edges,
                         const std::string& why) {
  if (edges.empty()) return;
  auto error = c10::make_intrusive<torch_autograd::Error>(
      cat("torch.compile with aot_autograd does not currently support double backward (", why, ")"),
      std::move(edges));
  // What requires gradients is a gradient as it arrived, with a history of its own.
  for (const at::Tensor& g : gradients)
    if (at::Tensor t = within_batches(g); t.defined() && !t.requires_grad())
      torch_autograd::create_gradient_edge(t, error);
}

// Whether the engine is to visit the node.
bool is_to_run(const torch_autograd::Node* node) {
  auto* key = const_cast<torch_autograd::Node*>(node);
  const auto* nodes = torch_autograd::get_current_graph_task_nodes_in_graph();
  if (nodes != nullptr && !nodes->contains(key)) return false;
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return true;
  const auto it = asked->find(key);
  return it != asked->end() && it->second.needed_;
}

bool is_taken(
    torch_autograd::Node* node,
    const std::unordered_map<torch_autograd::Node*, torch_autograd::GraphTask::ExecInfo>& asked) {
  const auto it = asked.find(node);
  return it != asked.end() && it->second.should_execute();
}

// Whether somebody looks at what arrives at a node, or it is where a gradient ends.
bool is_watched(torch_autograd::Node& node) {
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked != nullptr && !asked->empty()) {
    const auto it = asked->find(&node);
    if (it != asked->end() && it->second.captures_ != nullptr) return true;
    if (it == asked->end() || !it->second.needed_) return false;
  }
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
         !node.pre_hooks().empty() || !node.post_hooks().empty();
}

void add_to(at::Tensor& sum, at::Tensor t) {
  if (!t.defined()) return;
  sum = sum.defined() ? sum.add(t) : std::move(t);
}

bool is_any_defined(const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor& t) { return t.defined(); });
}

constexpr size_t kSmall = 1 << 16;  // bytes that may as well be held

// In the place of a tensor that nobody reads but for its sizes.
at::Tensor without_memory(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          int64_t offset) {
  static std::byte nowhere[1];
  c10::Storage none(c10::Storage::use_byte_size_t(), 0,
                    c10::DataPtr(nowhere, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(none), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

bool has_known_layout(const ir::TensorType& t) {
  const auto is_const = [](const ir::Expr& e) { return e.is_const(); };
  return std::ranges::all_of(t.sizes, is_const) && std::ranges::all_of(t.strides, is_const) &&
         t.offset.is_const();
}

// The two of a known layout, or of sizes, as numbers.
c10::SmallVector<int64_t, 5> values_of(const std::vector<ir::Expr>& exprs) {
  c10::SmallVector<int64_t, 5> out;
  for (const ir::Expr& e : exprs) out.push_back(e.value());
  return out;
}

std::optional<at::Tensor> without_memory(const ir::TensorType& t) {
  if (!has_known_layout(t)) return std::nullopt;
  return without_memory(static_cast<c10::ScalarType>(t.dtype), values_of(t.sizes),
                        values_of(t.strides), t.offset.value());
}

// What a tensor holds that was given other data, as a plan reads what it held.
at::Tensor laid_out(const at::Tensor& t, c10::ScalarType dtype, c10::IntArrayRef sizes,
                    c10::IntArrayRef strides) {
  if (t.scalar_type() == dtype && is_laid_out(t, sizes, strides)) return t;
  TORCH_CHECK(t.scalar_type() == dtype && t.sizes() == sizes,
              "a tensor that a backward reads was given data of another size or dtype");
  c10::SmallVector<int64_t, 5> rows(sizes.begin(), sizes.end());  // as far as memory is its own
  at::Tensor from = t.tensor_data();
  for (size_t d = 0; d < sizes.size(); d++)
    if (strides[d] == 0 && sizes[d] > 1) {
      from = from.narrow(static_cast<int64_t>(d), 0, 1);
      rows[d] = 1;
    }
  at::Tensor out = at::empty_strided(rows, strides, t.options()).copy_(from).expand(sizes);
  return out.set_requires_grad(t.requires_grad());
}

}  // namespace

bool is_laid_out(const at::Tensor& t, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (t.sizes() != sizes) return false;
  for (size_t d = 0; d < sizes.size(); d++)
    if (sizes[d] > 1 && t.strides()[d] != strides[d]) return false;
  return true;
}

Backward::Call::Call(std::shared_ptr<Backward> backward)
    : backward_(std::move(backward)),
      saved_(backward_->saved_.size()),
      strides_(backward_->nodes_.of_result.size()) {
  const size_t count = backward_->nodes_.nodes.size();
  if (count > 1 || results() > 1)
    alive_ = std::make_unique<std::atomic<const torch_autograd::Node*>[]>(count);
}

void Backward::Call::save(uint32_t input, const at::Tensor& t, bool is_result) {
  saved_[input] = torch_autograd::SavedVariable(t, is_result);
}

void Backward::Call::save_input(uint32_t input, const at::Tensor& t, bool as_is) {
  save(input, t, false);
  if (saved_[input].has_hooks() || !t.has_storage()) return;
  if (as_is) {
    if (has_known_layout(backward_->saved_[input].type.tensor)) return;
    layouts_.resize(saved_.size());
    layouts_[input] = {Strides(t.sizes()), Strides(t.strides())};
    return;
  }
  memory_.resize(saved_.size());
  memory_[input] = t.tensor_data();
}

std::string Backward::Call::name_of(uint32_t node) const {
  const BackwardNode& is = backward_->nodes_.nodes[node];
  return is.own.empty() ? "OxyfuelBackward" : backward_->names_.at(is.own.front());
}

// ---- visits ----

variable_list Backward::Call::visit(Node& node, variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  if (!alive_) return visit_alone(node, std::move(gradients[0]));
  const auto [at, is_new] = tasks_.try_emplace(torch_autograd::get_current_graph_task_id());
  if (is_new) {
    at->second.left = count_to_visit(node);
    at->second.asked = asked_primals(node);
    at->second.targets = targets(at->second.asked);
  }
  variable_list out;
  try {
    out = visit(at->second, node, std::move(gradients));
  } catch (...) {
    tasks_.erase(at);
    throw;
  }
  if (--at->second.left == 0) tasks_.erase(at);
  return out;
}

// The one that a backward begins at is not among the nodes that the engine has in its graph.
size_t Backward::Call::count_to_visit(const Node& first) const {
  if (torch_autograd::get_current_graph_task_nodes_in_graph() == nullptr) return 1;
  const auto nodes = std::span(alive_.get(), backward_->nodes_.nodes.size());
  return static_cast<size_t>(std::ranges::count_if(nodes, [&](const auto& node) {
    return node == &first || (node != nullptr && is_to_run(node));
  }));
}

// By primal, as the engine is to take its gradient; empty where that is to take all.
std::vector<bool> Backward::Call::asked_primals(const Node& first) const {
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return {};
  std::vector<bool> out(backward_->backward_.outputs.size());
  bool all = true;
  for (uint32_t i = 0; i < backward_->nodes_.nodes.size(); i++) {
    const torch_autograd::Node* node = alive_ ? alive_[i].load() : &first;
    const bool runs = node == &first || (node != nullptr && is_to_run(node));
    const BackwardNode& is = backward_->nodes_.nodes[i];
    for (size_t k = 0; k < is.primals.size(); k++) {
      const size_t edge = is.results.size() + k;
      const bool taken = runs && is_taken(node->next_edge(edge).function.get(), *asked);
      out[is.primals[k]] = taken;
      all &= taken;
    }
  }
  return all ? std::vector<bool>() : out;
}

// What a leaf accumulates is laid out as the leaf; what is asked for (autograd.grad) as it is
// computed.
at::Tensor Backward::Call::handed(const Node& node, size_t edge, uint32_t primal,
                                  at::Tensor gradient) const {
  const std::vector<Gradients::Dim>& order = backward_->orders_[primal];
  if (order.empty() || !gradient.defined() || gradient.requires_grad() ||
      gradient.layout() != at::kStrided || !within_batches(gradient).is_same(gradient))
    return gradient;
  const auto* asked = torch_autograd::get_current_graph_task_exec_info();
  if (asked == nullptr) return gradient;
  const auto it = asked->find(node.next_edge(edge).function.get());
  if (it == asked->end() || it->second.captures_ == nullptr) return gradient;
  Strides own(order.size());
  int64_t next = 1;
  for (const auto& [d, gap] : order) {
    own[d] = next * gap;
    if (gap > 0) next = own[d] * std::max<int64_t>(gradient.size(static_cast<int64_t>(d)), 1);
  }
  return laid_out(gradient, gradient.scalar_type(), gradient.sizes(), own);
}

std::optional<GradientTargets> Backward::Call::targets(const std::vector<bool>& asked) const {
  if (asked.empty()) return std::nullopt;
  GradientTargets out(asked.size(), results());
  for (uint32_t p = 0; p < asked.size(); p++)
    if (asked[p]) out.add_input(p);
  const auto* executed = torch_autograd::get_current_graph_task_exec_info();
  if (!alive_) return out;
  for (uint32_t t = 0; t < results(); t++) {
    const torch_autograd::Node* node = alive_[backward_->nodes_.of_result[t]];
    if (node != nullptr && is_taken(const_cast<torch_autograd::Node*>(node), *executed))
      out.add_result(t);
  }
  return out;
}

// The only result of a backward that is not cut.
variable_list Backward::Call::visit_alone(Node& node, at::Tensor gradient) {
  const std::vector<bool> asked = asked_primals(node);
  const auto by = targets(asked);
  const Range all{0, 0};
  const std::vector<bool> begun{true};
  check_unused(by, all, begun);
  const bool create_graph = c10::GradMode::is_enabled();
  torch_autograd::edge_list read;
  std::string why_not;
  variable_list out;
  const auto take = [&](Tensors found) {
    out.reserve(node.num_outputs());
    for (const uint32_t p : backward_->nodes_.nodes[0].primals)
      out.push_back(handed(node, out.size(), p, std::move(found[p])));
  };
  if (create_graph) {
    if (auto found = with_history(node, asked, {gradient}, why_not)) {
      if (!torch_autograd::get_current_graph_task_keep_graph()) release(by, node, all, begun);
      take(*std::move(found));
      return out;
    }
  }
  look_for_nan(node, asked, {gradient});
  {
    const c10::AutoGradMode off(false);
    if (create_graph) add_edge(read, gradient);
    const Which which{all, {gradient.defined()}, asked};
    Given given = gather(node, which, {std::move(gradient)});
    given.strides = strides_;
    if (create_graph) add_edges_of_saved(read, node, given);
    if (!torch_autograd::get_current_graph_task_keep_graph()) release(by, node, all, begun);
    take(backward_->run(which, std::move(given)));
  }
  if (create_graph) refuse_second_order(out, std::move(read), why_not);
  return out;
}

variable_list Backward::Call::visit(Task& task, Node& node, variable_list&& gradients) {
  const BackwardNode& is = backward_->nodes_.nodes[node.number()];
  task.creates_graph = c10::GradMode::is_enabled();
  variable_list out;
  out.reserve(node.num_outputs());
  {
    const c10::AutoGradMode off(false);
    for (size_t i = 0; i < is.own.size(); i++) {
      if (task.creates_graph) add_edge(task.read, gradients[i]);
      add_tangent(task, is.own[i], std::move(gradients[i]));
    }
    for (size_t i = 0; i < is.results.size(); i++)
      out.push_back(is_watched(*node.next_edge(i).function)
                        ? take_arrived(task, node, is.results[i])
                        : at::Tensor());
    if (is.last_piece) {
      for (Stream& s : task.streams) advance(task, s, node, *is.last_piece + 1);
      for (const uint32_t p : is.primals)
        out.push_back(task.gradients.empty()
                          ? at::Tensor()
                          : handed(node, out.size(), p, std::move(task.gradients[p])));
    }
  }
  if (task.lacks_history) refuse_second_order(out, task.read, task.why_not);
  out.resize(node.num_outputs());
  return out;
}

void Backward::Call::add_tangent(Task& task, uint32_t result, at::Tensor gradient) {
  const size_t piece = backward_->nodes_.piece[result];
  auto s = std::ranges::find_if(task.streams, [&](const Stream& s) { return s.next <= piece; });
  if (s == task.streams.end()) {
    Stream& made = task.streams.emplace_back();
    made.arrived.resize(results());
    made.tangents.resize(results());
    made.begun.resize(results());
    s = task.streams.end() - 1;
  }
  s->tangents[result] = std::move(gradient);
  s->begun[result] = true;
}

at::Tensor Backward::Call::take_arrived(Task& task, Node& node, uint32_t result) {
  at::Tensor sum;
  for (Stream& s : task.streams) {
    advance(task, s, node, backward_->nodes_.piece[result]);
    add_to(sum, std::move(s.arrived[result]));
    s.arrived[result].reset();
  }
  return sum;
}

// ---- runs ----

bool Backward::Call::has_some(const Stream& s) const {
  return is_any_defined(s.carried) || std::ranges::any_of(cut().tangents(s.next), [&](uint32_t t) {
           return s.tangents[t].defined() || s.arrived[t].defined();
         });
}

at::Tensor Backward::Call::tangent_of(Stream& s, uint32_t result) const {
  at::Tensor t = std::move(s.tangents[result]);
  add_to(t, std::move(s.arrived[result]));
  return t;
}

// Runs the pieces in front of `end` that it has not run, as one.
void Backward::Call::advance(Task& task, Stream& s, Node& node, size_t end) {
  if (s.next >= end) return;
  const Range all{s.next, end - 1};
  check_unused(task.targets, all, s.begun);
  const bool lets_go = !torch_autograd::get_current_graph_task_keep_graph();
  const size_t count = cut().size();
  task.gradients.resize(backward_->backward_.outputs.size());
  if (task.creates_graph) {
    task.why_not = "a hook or a gradient by what lies between its results";
    std::optional<Tensors> found;
    if (s.next == 0 && end == count)
      found = with_history(node, task.asked, s.tangents, task.why_not);
    if (found) {
      const c10::AutoGradMode on(true);
      for (size_t p = 0; p < found->size(); p++) add_to(task.gradients[p], std::move((*found)[p]));
      if (lets_go) release(task.targets, node, all, s.begun);
      s.next = end;
      return;
    }
    task.lacks_history = true;
  } else if (s.next == 0 && end == count) {
    look_for_nan(node, task.asked, s.tangents);
  }
  while (s.next < end && !has_some(s))
    if (++s.next < count) s.carried.assign(backward_->piece({s.next, s.next}).carried, {});
  if (s.next == end) {
    if (lets_go) release(task.targets, node, all, s.begun);
    return;
  }
  const Range pieces{s.next, end - 1};
  Tensors tangents = std::move(s.carried);
  const size_t carried = tangents.size();
  std::vector<Strides> strides;
  for (size_t k = s.next; k < end; k++)
    for (const uint32_t t : cut().tangents(k)) {
      tangents.push_back(tangent_of(s, t));
      strides.push_back(strides_[t]);
    }
  OXY_CHECK(tangents.size() - carried == strides.size(), "tangents: ", tangents.size());
  const Which which = backward_->which(pieces, tangents, task.asked);
  Given given = gather(node, which, std::move(tangents));
  if (task.creates_graph) add_edges_of_saved(task.read, node, given);
  given.strides = std::move(strides);
  if (lets_go) release(task.targets, node, all, s.begun);
  Tensors found = backward_->run(which, std::move(given));
  s.next = end;
  auto next = found.begin();
  for (at::Tensor& sum : task.gradients) add_to(sum, std::move(*next++));
  if (end == count) return;
  const auto& of_next = cut().tangents(end);
  const size_t arriving = cut().is_by_results() ? of_next.size() : 0;
  s.carried.assign(std::make_move_iterator(next),
                   std::make_move_iterator(found.end() - static_cast<ptrdiff_t>(arriving)));
  next = found.end() - static_cast<ptrdiff_t>(arriving);
  for (size_t i = 0; i < arriving; i++) s.arrived[of_next[i]] = std::move(*next++);
}

// What was made as an inference tensor does not, also where `data` has made it a plain one.
static bool counts_writes(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->version_counter().enabled();
}

void Backward::Call::remember(uint32_t primal, const Input& input, uint32_t writes) {
  Remembered& r = remembered_.emplace_back(Remembered{.primal = primal, .number = input.number});
  if (input.tensor == nullptr || !input.tensor->defined()) return;
  r.tensor.emplace(input.tensor->getIntrusivePtr());
  // What is written may get this call as its history.
  const bool is_small = input.tensor->has_storage() && input.tensor->storage().nbytes() <= kSmall;
  if (is_small && writes == 0) r.small = *input.tensor;
  if (counts_writes(*input.tensor)) r.version = input.tensor->_version() + writes;
}

Backward::Tensors Backward::Call::primals_for(Node& node, const std::vector<bool>& reads) {
  Tensors out(reads.size());
  for (const uint32_t i : backward_->read_) {
    const autograd::Saved& s = backward_->saved_[i];
    if (s.kind == autograd::Saved::Kind::Primal && reads[s.index] && s.type.is_tensor())
      out[s.index] = unpacked(node, i);
  }
  for (const Remembered& r : remembered_) {
    if (!reads[r.primal] || !r.tensor) continue;
    const at::Tensor t(r.tensor->lock());
    if (!t.defined()) throw Unsupported("an input that nobody holds any more");
    // No error in eager, which does not save it.
    if (counts_writes(t) && t._version() != r.version)
      throw Unsupported("an input that was written since");
    out[r.primal] = t;
  }
  return out;
}

// As the pieces take them.
Backward::Tensors Backward::Call::tangents_in_order(const Tensors& by_result) const {
  Tensors out;
  for (size_t k = 0; k < cut().size(); k++)
    for (const uint32_t t : cut().tangents(k)) out.push_back(by_result[t]);
  return out;
}

std::optional<Backward::Tensors> Backward::Call::with_history(Node& node,
                                                              const std::vector<bool>& asked,
                                                              const Tensors& tangents,
                                                              std::string& why_not) {
  try {
    const std::vector<bool>& reads = backward_->with_history_->reads();
    // A result that was written in place is an error, as without create_graph.
    const Which all = backward_->which({0, cut().size() - 1}, tangents_in_order(tangents), asked);
    const std::vector<bool>& by_plan = backward_->reads_of(all);
    for (const uint32_t i : backward_->read_)
      if (by_plan[i] && backward_->saved_[i].kind == autograd::Saved::Kind::Result)
        unpacked(node, i);
    Tensors primals = primals_for(node, reads);
    std::vector<Input> inputs(primals.size());
    for (size_t p = 0; p < primals.size(); p++)
      if (primals[p].defined()) inputs[p].tensor = &primals[p];
    for (const Remembered& r : remembered_) inputs[r.primal].number = r.number;
    for (const uint32_t i : backward_->read_) {
      const autograd::Saved& s = backward_->saved_[i];
      if (s.kind == autograd::Saved::Kind::Primal && !s.type.is_tensor())
        inputs[s.index].number = numbers_[i];
    }
    return (*backward_->with_history_)(inputs, tangents, asked, generator_);
  } catch (const Unsupported& e) {
    why_not = e.what();
    return std::nullopt;
  }
}

void Backward::Call::look_for_nan(Node& node, const std::vector<bool>& asked,
                                  const Tensors& tangents) {
  if (!torch_autograd::AnomalyMode::is_enabled() ||
      !torch_autograd::AnomalyMode::should_check_nan())
    return;
  std::string why_not;
  with_history(node, asked, tangents, why_not);
}

Backward::Given Backward::Call::gather(Node& node, const Which& which, Tensors tangents) {
  Given out{.saved = Tensors(saved_.size()), .numbers = numbers_, .tangents = std::move(tangents)};
  const std::vector<bool>& reads = backward_->reads_of(which);
  for (const uint32_t i : backward_->piece(which.pieces).saved)
    if (backward_->saved_[i].type.is_tensor()) {
      out.saved[i] = saved(node, i, reads[i]);
      if (is_to_be_emptied(i)) empty(i, out.saved[i]);
    }
  return out;
}

// What the forward has computed on the way has no history; it depends on what the gradients are by.
void Backward::Call::add_edges_of_saved(torch_autograd::edge_list& edges, const Node& node,
                                        const Given& given) const {
  bool is_computed = false;
  for (size_t i = 0; i < given.saved.size(); i++) {
    const at::Tensor& t = given.saved[i];
    add_edge(edges, t);
    is_computed |= t.defined() && backward_->saved_[i].kind == autograd::Saved::Kind::Value &&
                   (t.is_floating_point() || t.is_complex());
  }
  for (const torch_autograd::Edge& e : node.next_edges())
    if (is_computed && e.is_valid()) edges.push_back(e);
}

// A gradient that reads nothing of it has its sizes, whoever has let go of it.
bool Backward::Call::is_to_be_emptied(uint32_t input) const {
  return !has_known_layout(backward_->saved_[input].type.tensor) &&
         (emptied_.empty() || !emptied_[input].defined());
}

void Backward::Call::empty(uint32_t input, const at::Tensor& t) {
  emptied_.resize(saved_.size());
  emptied_[input] = without_memory(t.scalar_type(), t.sizes(), t.strides(), t.storage_offset());
}

// A result is its own node's.
at::Tensor Backward::Call::unpacked(Node& node, uint32_t input) {
  const autograd::Saved& s = backward_->saved_[input];
  const auto& rooted = backward_->rooted_;
  const auto of = s.kind == autograd::Saved::Kind::Result && alive_
                      ? std::ranges::find(rooted, s.index)
                      : rooted.end();
  if (of != rooted.end()) {
    const auto result = static_cast<size_t>(of - rooted.begin());
    const torch_autograd::Node* own = alive_[backward_->nodes_.of_result[result]];
    if (own != nullptr && own != &node && is_to_run(own))
      return saved_[input].unpack(
          static_cast<Node*>(const_cast<torch_autograd::Node*>(own))->itself());
  }
  return saved_[input].unpack(node.itself());
}

at::Tensor Backward::Call::saved(Node& node, uint32_t input, bool is_read) {
  if (is_read) return in_kept_memory(input, unpacked(node, input));
  if (auto t = without_memory(backward_->saved_[input].type.tensor)) return *std::move(t);
  if (!emptied_.empty() && emptied_[input].defined()) return emptied_[input];
  const auto raw = saved_[input].get_raw_data();
  // Where it was let go of, autograd says so.
  const at::Tensor t = raw && raw->defined() ? *raw : unpacked(node, input);
  return without_memory(t.scalar_type(), t.sizes(), t.strides(), t.storage_offset());
}

std::shared_ptr<at::Tensor> Backward::Call::held(uint32_t input) const {
  return held_.empty() ? nullptr : held_[input].tensor.lock();
}

at::Tensor Backward::Call::in_kept_memory(uint32_t input, at::Tensor t) {
  if (const auto itself = held(input)) {
    if (backward_->saved_[input].written) {
      const Held& as = held_[input];
      if (as.memory._unsafe_get_target() == itself->storage().unsafeGetStorageImpl()) return t;
      TORCH_CHECK(itself->_version() == as.version,
                  "one of the variables needed for gradient computation has been modified by an "
                  "inplace operation");
    } else if (itself->is_alias_of(t) && itself->storage_offset() == t.storage_offset() &&
               is_laid_out(*itself, t.sizes(), t.strides()))
      return t;
    return laid_out(itself->tensor_data(), t.scalar_type(), t.sizes(), t.strides())
        .set_requires_grad(t.requires_grad());
  }
  if (!memory_.empty() && memory_[input].defined())
    return memory_[input].is_alias_of(t) ? t : memory_[input].set_requires_grad(t.requires_grad());
  const autograd::Saved& as = backward_->saved_[input];
  if (as.kind == autograd::Saved::Kind::Value || saved_[input].has_hooks()) return t;
  if (!layouts_.empty() && !layouts_[input].strides.empty())
    return laid_out(t, t.scalar_type(), layouts_[input].sizes, layouts_[input].strides);
  if (!has_known_layout(as.type.tensor)) return t;
  return laid_out(t, static_cast<c10::ScalarType>(as.type.tensor.dtype),
                  values_of(as.type.tensor.sizes), values_of(as.type.tensor.strides));
}

void Backward::Call::reset(uint32_t input) {
  saved_[input].reset_data();
  if (const auto itself = held(input)) itself->reset();
  if (!memory_.empty()) memory_[input].reset();
}

// ---- what was used up ----

bool Backward::Call::is_run(const std::optional<GradientTargets>& targets, const KeptBehind& kept,
                            const std::vector<bool>& begun) {
  return (!targets || kept.to.meets(*targets)) &&
         std::ranges::any_of(kept.results, [&](uint32_t t) { return begun[t]; });
}

// Whether whatever a gradient by the result is by, what it reads in this piece was let go of.
bool Backward::Call::is_used_up(size_t piece, uint32_t result) const {
  if (used_.empty()) return false;
  std::optional<GradientTargets> used;
  std::vector<const GradientTargets*> left;
  const auto& kept = backward_->kept_[piece];
  for (size_t i = 0; i < kept.size(); i++) {
    if (!std::ranges::binary_search(kept[i].results, result)) continue;
    if (!used_[piece][i])
      left.push_back(&kept[i].to);
    else if (used)
      used->add(kept[i].to);
    else
      used = kept[i].to;
  }
  return used && std::ranges::all_of(left, [&](const auto* to) { return used->has(*to); });
}

void Backward::Call::check_unused(const std::optional<GradientTargets>& targets, Range pieces,
                                  const std::vector<bool>& begun) const {
  if (used_.empty()) return;
  for (size_t k = pieces.first; k <= pieces.second; k++)
    for (size_t i = 0; i < used_[k].size(); i++)
      TORCH_CHECK(!used_[k][i] || !is_run(targets, backward_->kept_[k][i], begun),
                  torch_autograd::ERR_BACKWARD_TWICE);
}

void Backward::Call::use_up(const std::optional<GradientTargets>& targets, Range pieces,
                            const std::vector<bool>& begun) {
  if (used_.empty())
    for (const auto& kept : backward_->kept_) used_.emplace_back(kept.size());
  for (size_t k = pieces.first; k <= pieces.second; k++)
    for (size_t i = 0; i < used_[k].size(); i++)
      if (is_run(targets, backward_->kept_[k][i], begun)) used_[k][i] = true;
}

// By input: whether a result that is not used up reads it.
std::vector<bool> Backward::Call::still_read() const {
  std::vector<bool> out(saved_.size());
  for (size_t k = 0; k < cut().size(); k++) {
    const autograd::Piece& piece = backward_->piece({k, k});
    for (uint32_t t = 0; t < results(); t++) {
      const auto& straight = backward_->come_straight_;
      const bool comes_here =
          straight.empty() ? !cut().is_by_results() || backward_->nodes_.piece[t] <= k
                           : k < straight.size() && std::ranges::binary_search(straight[k], t);
      if (!comes_here || is_used_up(k, t)) continue;
      const std::vector<bool>& reads = backward_->reads_by_result()[t];
      for (const uint32_t i : piece.saved) out[i] = out[i] || reads[i];
    }
  }
  return out;
}

void Backward::Call::release(const std::optional<GradientTargets>& targets, Node& node,
                             Range pieces, const std::vector<bool>& begun) {
  use_up(targets, pieces, begun);
  const std::vector<bool> kept = still_read();
  for (const uint32_t i : backward_->read_) {
    if (kept[i] || !backward_->saved_[i].type.is_tensor()) continue;
    if (is_to_be_emptied(i)) empty(i, saved(node, i, false));
    reset(i);
  }
}

}  // namespace oxy::bridge
