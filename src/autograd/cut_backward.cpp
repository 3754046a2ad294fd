// One copy of the graph a piece, each cut down to its calls.
#include "autograd/cut_backward.h"

#include <algorithm>

#include "autograd/recompute.h"
#include "autograd/unread_symbols.h"
#include "ops/op_table.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::OutputSpec;
using ir::ValueId;
using Kind = OutputSpec::Kind;

bool is_of_primal(const OutputSpec& o) { return o.kind != Kind::None; }

// What an output gives; no value for a view, which no backward has.
ValueId value_of(const Graph& g, const OutputSpec& o) {
  if (o.kind == Kind::Input) return g.inputs()[o.index];
  return o.kind == Kind::Value ? o.value : ValueId();
}

// What a view looks at.
ValueId root(const Graph& g, ValueId v) {
  while (passes::is_view(g.def(v)) && g.def(v).arg(0).is_value()) v = g.def(v).arg(0).value();
  return v;
}

ValueId copied(Graph& g, ValueId v) {
  ir::Type type = g.value(v).type;
  if (!type.tensor.is_dense()) type.tensor.strides = ir::contiguous_strides(type.tensor.sizes);
  type.tensor.offset = 0;
  return g.add_call(NodeKind::CallOp, "aten.clone.default", {v}, {type}).outputs[0];
}

bool shows_one(const ir::TensorType& t, const std::vector<ir::Expr>& symbols) {
  std::vector<ir::Expr> shown;
  for (const ir::Expr e : t.sizes) sym::collect_symbols(e, shown);
  return std::ranges::find_first_of(shown, symbols) != shown.end();
}

Piece whole(const Graph& backward, size_t tangents) {
  Piece out{backward, {}, {}, 0, 0, tangents};
  for (uint32_t i = 0; i + tangents < backward.inputs().size(); ++i) out.saved.push_back(i);
  for (uint32_t i = 0; i < backward.outputs.size(); ++i)
    if (is_of_primal(backward.outputs[i])) out.primals.push_back(i);
  return out;
}

// Sizes are computed in every piece that reads them.
bool is_computed(const Node& n) {
  return n.kind != NodeKind::Input && n.kind != NodeKind::Attribute && n.target != ops::kNumber;
}

}  // namespace

BackwardCut::BackwardCut(const Graph& backward, size_t tangents,
                         const std::optional<GradientBuckets>& buckets)
    : g_(backward),
      first_tangent_(backward.inputs().size() - tangents),
      by_results_(false),
      levels_(tangents) {
  if (buckets) {
    find_calls();
    place_gradients();
    choose_borders(*buckets);
    follow_values();
  }
  finish(can_cut_);
}

BackwardCut::BackwardCut(const Graph& backward, std::vector<uint32_t> levels)
    : g_(backward),
      first_tangent_(backward.inputs().size() - levels.size()),
      by_results_(true),
      levels_(std::move(levels)) {
  count_ = std::ranges::max(levels_) + 1;
  if (count_ > 1) {
    find_calls();
    follow_tangents();
    find_sums();
    follow_values();
  }
  finish(can_cut_ && std::ranges::any_of(sum_, &ValueId::valid));
}

// One piece where one of them cannot be made.
void BackwardCut::finish(bool can_cut) {
  tangents_.resize(count_);
  for (uint32_t t = 0; t < levels_.size(); ++t) tangents_[levels_[t]].push_back(t);
  for (uint32_t k = 0; can_cut && count_ > 1 && k < count_; ++k)
    can_cut = try_make(k, k).has_value();
  if (can_cut) return;
  count_ = 1;
  tangents_.assign(1, {});
  for (uint32_t t = 0; t < levels_.size(); ++t) tangents_[0].push_back(t);
}

void BackwardCut::find_calls() {
  for (NodeId id : g_.order())
    if (!g_.node(id).dead && is_computed(g_.node(id))) calls_.push_back(id);
}

// A call is of the last piece that a tangent arrives at of those that it depends on.
void BackwardCut::follow_tangents() {
  std::vector<uint32_t> piece(g_.value_count(), kNever);
  for (size_t t = 0; t < levels_.size(); ++t)
    piece[g_.inputs()[first_tangent_ + t].index] = levels_[t];
  for (NodeId id : calls_) {
    const Node& n = g_.node(id);
    uint32_t last = kNever;
    for_each_value(n, [&](ValueId v) {
      const uint32_t p = piece[v.index];
      if (p != kNever && (last == kNever || p > last)) last = p;
    });
    can_cut_ &= passes::is_removable(n);  // else it is to happen once, in its order
    for (ValueId v : n.outputs) piece[v.index] = last;
    piece_of_call_.push_back(last);
  }
  known_.assign(g_.outputs.size(), 0);
}

// What the recording of the backward has put behind all that arrives.
void BackwardCut::find_sums() {
  arrived_.resize(levels_.size());
  sum_.resize(levels_.size());
  std::vector<uint32_t> reads(g_.value_count());
  std::vector<size_t> reader(g_.value_count());
  std::vector<uint32_t> piece(g_.value_count(), kNever);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Node& n = g_.node(calls_[i]);
    auto read = [&](ValueId v) {
      ++reads[v.index];
      reader[v.index] = i;
    };
    if (n.target == ops::kMaterialize)  // of tangents it wants to know whether they are there
      for_each_value(n.args[0], read);
    else
      for_each_value(n, read);
    for (ValueId v : g_.node(calls_[i]).outputs) piece[v.index] = piece_of_call_[i];
  }
  for (const OutputSpec& o : g_.outputs)
    if (const ValueId v = value_of(g_, o); v.valid()) ++reads[v.index];
  for (size_t t = 0; t < levels_.size(); ++t)
    piece[g_.inputs()[first_tangent_ + t].index] = levels_[t];
  for (size_t t = 0; t < levels_.size(); ++t) {
    const ValueId tangent = g_.inputs()[first_tangent_ + t];
    if (levels_[t] == 0 || reads[tangent.index] != 1) continue;
    const Node& n = g_.node(calls_[reader[tangent.index]]);
    if (n.target != "aten.add.Tensor" || n.arg(0) != ir::Arg(tangent) || !n.arg(1).is_value() ||
        (!n.arg(2).is_none() && n.arg(2) != ir::Arg(1)) ||
        !same_place(g_.value(n.outputs[0]).type, g_.value(tangent).type) ||
        piece[n.arg(1).value().index] >= levels_[t])
      continue;
    arrived_[t] = n.arg(1).value();
    sum_[t] = n.outputs[0];
  }
}

// Behind which call each gradient is known: by its number, 0 for those known from the start.
void BackwardCut::place_gradients() {
  std::vector<size_t> number(g_.node_count());
  for (size_t i = 0; i < calls_.size(); ++i) number[calls_[i].index] = i;
  for (const OutputSpec& o : g_.outputs) {
    const ValueId v = value_of(g_, o);
    known_.push_back(v.valid() ? number[g_.value(v).def.index] : 0);
    can_cut_ &= v.valid() || !is_of_primal(o);
  }
}

void BackwardCut::choose_borders(const GradientBuckets& buckets) {
  std::vector<int64_t> filled(calls_.size() + 1);
  std::vector<size_t> count(calls_.size() + 1);
  size_t left = 0;
  for (size_t i = 0; i < known_.size(); ++i) {
    const ValueId v = value_of(g_, g_.outputs[i]);
    if (!v.valid() || !g_.value(v).type.is_tensor()) continue;
    filled[known_[i]] += bytes(g_.tensor_type(v));
    ++count[known_[i]];
    ++left;
  }
  piece_of_call_.resize(calls_.size());
  int64_t sum = 0, limit = buckets.first;
  for (size_t i = 0; i < calls_.size(); ++i) {
    piece_of_call_[i] = count_ - 1;
    sum += filled[i];
    left -= count[i];
    if (sum < limit || left == 0) continue;
    ++count_;
    sum = 0;
    limit = buckets.rest;
  }
}

// Where each value is made and last read, and whether it depends on a tangent.
void BackwardCut::follow_values() {
  made_.resize(g_.value_count(), kNever);
  last_read_.resize(g_.value_count());
  arrives_at_.resize(g_.value_count());
  linear_.resize(g_.value_count());
  for (size_t t = 0; t < levels_.size(); ++t) {
    const ValueId v = g_.inputs()[first_tangent_ + t];
    made_[v.index] = levels_[t];
    linear_[v.index] = true;
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Node& n = g_.node(calls_[i]);
    const uint32_t piece = piece_of_call_[i];
    const auto sum =
        std::ranges::find_if(sum_, [&](ValueId s) { return s.valid() && s == n.outputs[0]; });
    bool linear = false;
    for_each_value(n, [&](ValueId v) {
      linear |= linear_[v.index];
      if (sum != sum_.end() && v == arrived_[static_cast<size_t>(sum - sum_.begin())])
        arrives_at_[v.index] = std::max(arrives_at_[v.index], piece);
      else if (piece != kNever)
        read(v, piece);
    });
    for (ValueId v : n.outputs) {
      made_[v.index] = piece;
      if (piece != kNever) last_read_[v.index] = piece;
      linear_[v.index] = linear;
    }
  }
  if (!by_results_) return;
  for (const OutputSpec& o : g_.outputs)
    if (const ValueId v = value_of(g_, o); v.valid()) read(v, count_ - 1);
}

void BackwardCut::read(ValueId v, uint32_t piece) {
  last_read_[v.index] = std::max(last_read_[v.index], piece);
  // A number of the data: no tensor hands it over.
  if (made_[v.index] < piece) can_cut_ &= g_.value(v).type.is_tensor();
}

// What piece `k` gets of those before: values, then gradients.
std::vector<ValueId> BackwardCut::carried_to(size_t k) const {
  std::vector<ValueId> out;
  for (const bool linear : {false, true})
    for (uint32_t i = 0; i < made_.size(); ++i)
      if (made_[i] < k && (last_read_[i] >= k || arrives_at_[i] > k) && linear_[i] == linear)
        out.emplace_back(i);
  return out;
}

std::optional<Piece> BackwardCut::try_make(size_t first, size_t last) const {
  if (count_ == 1) return whole(g_, levels_.size());
  Piece out{g_, {}, {}};
  Graph& g = out.graph;
  if (first > 0 || last + 1 < count_) g.name = cat(g_.name, "_", first);
  if (first < last && last + 1 < count_) g.name = cat(g.name, "_to_", last);
  g.outputs.clear();
  std::vector<ValueId> to(g_.value_count()), given;
  if (first > 0) {
    for (ValueId v : carried_to(first)) {
      if (!linear_[v.index]) ++out.values;
      given.push_back(to[v.index] = g.add_input(cat("carried_", given.size()), g_.value(v).type));
    }
    out.carried = given.size();
  }
  for (size_t k = first; k <= last; ++k)
    for (const uint32_t t : tangents_[k]) {
      given.push_back(g_.inputs()[first_tangent_ + t]);
      // Whoever calls has added what arrived.
      if (k == first && !sum_.empty() && sum_[t].valid()) to[sum_[t].index] = given.back();
    }
  out.tangents = given.size() - out.values;
  auto here = [&](ValueId v) {
    return v.index < to.size() && to[v.index].valid() ? to[v.index] : v;
  };
  g.replace_uses(here);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const uint32_t piece = piece_of_call_[i];
    const std::vector<ValueId>& made = g_.node(calls_[i]).outputs;
    if ((piece != kNever && (piece < first || piece > last)) ||
        (!made.empty() && here(made[0]) != made[0]))
      g.kill(calls_[i]);
  }
  g.compact();
  for (uint32_t i = 0; i < g_.outputs.size(); ++i) {
    OutputSpec o{.kind = Kind::None};
    const bool is_here = by_results_
                             ? last + 1 == count_
                             : is_of_primal(g_.outputs[i]) && piece_of_call_[known_[i]] == first;
    if (is_of_primal(g_.outputs[i]) && is_here) {
      o = {.kind = Kind::Value, .value = here(value_of(g_, g_.outputs[i]))};
      out.primals.push_back(i);
    }
    g.outputs.push_back(o);
  }
  if (last + 1 < count_ && !add_carried(out, last + 1, here)) return std::nullopt;
  passes::dce(g);
  const Graph all_inputs = g;
  arrange(out, given, {});
  auto unread = [&] { return unread_symbols(g, std::span(g.inputs()).last(out.tangents)); };
  if (const std::vector<ir::Expr> symbols = unread(); !symbols.empty()) {
    g = all_inputs;
    arrange(out, given, symbols);
    if (!unread().empty()) return std::nullopt;
  }
  return out;
}

// Whoever gets a gradient may write to it while the next piece runs, so what that one reads of
// the same memory is a copy, or the gradient is.
bool BackwardCut::add_carried(Piece& piece, size_t next, const auto& here) const {
  Graph& g = piece.graph;
  std::vector<ValueId> carried;
  for (ValueId original : carried_to(next)) {
    ValueId v = here(original);
    const bool shared = std::ranges::any_of(
        piece.primals, [&](uint32_t i) { return root(g, g.outputs[i].value) == root(g, v); });
    if (shared && g.def(v).kind != NodeKind::Input) {
      if (!g.tensor_type(v).is_dense()) return false;
      v = copied(g, v);
    }
    carried.push_back(v);
    g.outputs.push_back({.kind = Kind::Value, .value = v});
  }
  if (!by_results_) return true;
  for (const uint32_t t : tangents_[next]) {
    OutputSpec o{.kind = Kind::None};
    if (sum_[t].valid()) {
      o = {.kind = Kind::Value, .value = here(arrived_[t])};
      const bool shared =
          std::ranges::any_of(carried, [&](ValueId v) { return root(g, v) == root(g, o.value); });
      if (shared && g.def(root(g, o.value)).kind != NodeKind::Input) o.value = copied(g, o.value);
    }
    g.outputs.push_back(o);
  }
  return true;
}

// The inputs that are read, those that show one of `symbols`, and all numbers.
void BackwardCut::arrange(Piece& piece, const std::vector<ValueId>& tangents,
                          const std::vector<ir::Expr>& symbols) const {
  Graph& g = piece.graph;
  const std::vector<uint32_t> uses = g.use_counts();
  std::vector<ValueId> order;
  piece.saved.clear();
  for (uint32_t i = 0; i < first_tangent_; ++i) {
    const ValueId v = g_.inputs()[i];
    const ir::Type& type = g.value(v).type;
    if (uses[v.index] == 0 && type.is_tensor() && !shows_one(type.tensor, symbols)) continue;
    piece.saved.push_back(i);
    order.push_back(v);
  }
  order.insert(order.end(), tangents.begin(), tangents.end());
  for (size_t i = g.inputs().size(); i-- > 0;)
    if (std::ranges::find(order, g.inputs()[i]) == order.end()) g.drop_input(i);
  g.arrange_inputs(order);
  for (OutputSpec& o : g.outputs) {
    if (o.kind != Kind::Value) continue;
    const auto input = std::ranges::find(g.inputs(), o.value);
    if (input != g.inputs().end())
      o = {.kind = Kind::Input, .index = static_cast<uint32_t>(input - g.inputs().begin())};
  }
}

}  // namespace oxy::autograd
