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

Piece whole(const Graph& backward, size_t tangents) {
  Piece out{backward, {}, {}, 0, tangents};
  for (uint32_t i = 0; i + tangents < backward.inputs().size(); ++i) out.saved.push_back(i);
  for (uint32_t i = 0; i < backward.outputs.size(); ++i)
    if (is_of_primal(backward.outputs[i])) out.primals.push_back(i);
  return out;
}

class Cutter {
 public:
  Cutter(const Graph& backward, size_t tangents, const GradientBuckets& buckets)
      : g_(backward), first_tangent_(backward.inputs().size() - tangents) {
    for (NodeId id : g_.order())
      if (!g_.node(id).dead && is_computed(g_.node(id))) calls_.push_back(id);
    place_gradients();
    choose_borders(buckets);
    follow_values();
  }

  // Nothing where the graph stays whole.
  std::vector<Piece> run() const {
    std::vector<Piece> out;
    if (piece_count_ == 1 || !can_cut_) return out;
    for (uint32_t k = 0; k < piece_count_; ++k) {
      std::optional<Piece> piece = make(k);
      if (!piece) return {};
      out.push_back(std::move(*piece));
    }
    return out;
  }

 private:
  // Sizes are computed in every piece that reads them.
  bool is_number(const Node& n) const { return n.target == ops::kNumber; }
  bool is_computed(const Node& n) const {
    return n.kind != NodeKind::Input && n.kind != NodeKind::Attribute && !is_number(n);
  }

  // Behind which call each gradient is known: by its number, 0 for those known from the start.
  void place_gradients() {
    std::vector<size_t> number(g_.node_count());
    for (size_t i = 0; i < calls_.size(); ++i) number[calls_[i].index] = i;
    for (const OutputSpec& o : g_.outputs) {
      const ValueId v = value_of(g_, o);
      known_.push_back(v.valid() ? number[g_.value(v).def.index] : 0);
      can_cut_ &= v.valid() || !is_of_primal(o);
    }
  }

  void choose_borders(const GradientBuckets& buckets) {
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
      piece_of_call_[i] = piece_count_ - 1;
      sum += filled[i];
      left -= count[i];
      if (sum < limit || left == 0) continue;
      ++piece_count_;
      sum = 0;
      limit = buckets.rest;
    }
  }

  // Where each value is made and last read, and whether it depends on a tangent.
  void follow_values() {
    made_.resize(g_.value_count(), kNever);
    last_read_.resize(g_.value_count());
    linear_.resize(g_.value_count());
    for (size_t i = first_tangent_; i < g_.inputs().size(); ++i) {
      made_[g_.inputs()[i].index] = 0;
      linear_[g_.inputs()[i].index] = true;
    }
    for (size_t i = 0; i < calls_.size(); ++i) {
      const Node& n = g_.node(calls_[i]);
      bool linear = false;
      for_each_value(n, [&](ValueId v) {
        linear |= linear_[v.index];
        read(v, piece_of_call_[i]);
      });
      for (ValueId v : n.outputs) {
        made_[v.index] = piece_of_call_[i];
        last_read_[v.index] = piece_of_call_[i];
        linear_[v.index] = linear;
      }
    }
  }

  void read(ValueId v, uint32_t piece) {
    last_read_[v.index] = std::max(last_read_[v.index], piece);
    // A number of the data: no tensor hands it over.
    if (made_[v.index] < piece) can_cut_ &= g_.value(v).type.is_tensor();
  }

  // What piece `k` gets of those before: values, then gradients.
  std::vector<ValueId> carried_to(uint32_t k) const {
    std::vector<ValueId> out;
    for (const bool linear : {false, true})
      for (uint32_t i = 0; i < made_.size(); ++i)
        if (made_[i] < k && last_read_[i] >= k && linear_[i] == linear) out.emplace_back(i);
    return out;
  }

  // What a view looks at.
  ValueId root(const Graph& g, ValueId v) const {
    while (passes::is_view(g.def(v)) && g.def(v).arg(0).is_value()) v = g.def(v).arg(0).value();
    return v;
  }

  std::optional<Piece> make(uint32_t k) const {
    Piece out{g_, {}, {}, 0, g_.inputs().size() - first_tangent_};
    Graph& g = out.graph;
    g.name = cat(g_.name, "_", k);
    g.outputs.clear();
    std::vector<ValueId> to(g_.value_count()), tangents;
    for (size_t i = first_tangent_; i < g_.inputs().size(); ++i) tangents.push_back(g_.inputs()[i]);
    if (k > 0) {
      const std::vector<ValueId> carried = carried_to(k);
      out.values = static_cast<size_t>(
          std::ranges::count_if(carried, [&](ValueId v) { return !linear_[v.index]; }));
      out.tangents = carried.size() - out.values;
      tangents.clear();
      for (ValueId v : carried)
        tangents.push_back(to[v.index] =
                               g.add_input(cat("carried_", tangents.size()), g_.value(v).type));
    }
    auto here = [&](ValueId v) {
      return v.index < to.size() && to[v.index].valid() ? to[v.index] : v;
    };
    g.replace_uses(here);
    for (size_t i = 0; i < calls_.size(); ++i)
      if (piece_of_call_[i] != k) g.kill(calls_[i]);
    g.compact();
    for (uint32_t i = 0; i < g_.outputs.size(); ++i) {
      OutputSpec o{.kind = Kind::None};
      if (is_of_primal(g_.outputs[i]) && piece_of_call_[known_[i]] == k) {
        o = {.kind = Kind::Value, .value = here(value_of(g_, g_.outputs[i]))};
        out.primals.push_back(i);
      }
      g.outputs.push_back(o);
    }
    if (k + 1 < piece_count_ && !add_carried(out, carried_to(k + 1), here)) return std::nullopt;
    passes::dce(g);
    arrange(out, tangents);
    const std::span given(g.inputs());
    if (!unread_symbols(g, given.last(out.tangents)).empty()) return std::nullopt;
    return out;
  }

  // Whoever gets a gradient may write to it while the next piece runs, so what that one reads of
  // the same memory is a copy.
  bool add_carried(Piece& piece, const std::vector<ValueId>& carried, const auto& here) const {
    Graph& g = piece.graph;
    for (ValueId original : carried) {
      ValueId v = here(original);
      const bool shared = std::ranges::any_of(
          piece.primals, [&](uint32_t i) { return root(g, g.outputs[i].value) == root(g, v); });
      if (shared && g.def(v).kind != NodeKind::Input) {
        if (!g.tensor_type(v).is_dense()) return false;
        v = g.add_call(NodeKind::CallOp, "aten.clone.default", {v}, {g.value(v).type}).outputs[0];
      }
      g.outputs.push_back({.kind = Kind::Value, .value = v});
    }
    return true;
  }

  // The inputs that are read, and all numbers.
  void arrange(Piece& piece, const std::vector<ValueId>& tangents) const {
    Graph& g = piece.graph;
    const std::vector<uint32_t> uses = g.use_counts();
    std::vector<ValueId> order;
    for (uint32_t i = 0; i < first_tangent_; ++i) {
      const ValueId v = g_.inputs()[i];
      if (uses[v.index] == 0 && g.value(v).type.is_tensor()) continue;
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

  static constexpr uint32_t kNever = UINT32_MAX;

  const Graph& g_;
  const size_t first_tangent_;
  std::vector<NodeId> calls_;
  std::vector<size_t> known_;            // by output
  std::vector<uint32_t> piece_of_call_;  // by call
  uint32_t piece_count_ = 1;
  bool can_cut_ = true;
  // By value.
  std::vector<uint32_t> made_, last_read_;
  std::vector<bool> linear_;
};

}  // namespace

std::vector<Piece> cut_backward(const Graph& backward, size_t tangents,
                                const std::optional<GradientBuckets>& buckets) {
  std::vector<Piece> out;
  if (buckets) out = Cutter(backward, tangents, *buckets).run();
  if (out.empty()) out.push_back(whole(backward, tangents));
  return out;
}

}  // namespace oxy::autograd
