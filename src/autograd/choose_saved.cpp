// The network of the cut, what must not be recomputed in it, and the budget.
#include "autograd/choose_saved.h"

#include <algorithm>

#include "autograd/companions.h"
#include "autograd/holders.h"
#include "autograd/max_flow.h"
#include "autograd/readers.h"
#include "autograd/recompute.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::ValueId;
using Kind = ir::OutputSpec::Kind;

constexpr int64_t kInfinite = FlowNetwork::kInfinite;
constexpr int64_t kByte = 16;  // units of the network, so that the least costs count too
constexpr int64_t kMostUnits = kInfinite >> 12;

// What keeps a node of the forward from being computed again.
struct Ban {
  bool banned = false, for_ever = false;
  std::string reason;
  double density = 0;  // cost by byte of what it makes
};

class Chooser {
 public:
  Chooser(const Graph& g, const Sides& sides, const PartitionOptions& options)
      : g_(g),
        sides_(sides),
        options_(options),
        readers_(g, sides),
        holders_(g, sides, readers_, options.allows_writes),
        companions_(g, sides),
        rules_(g.node_count()),
        bans_(g.node_count()),
        savable_(g.value_count()) {}

  std::vector<Choice> run() {
    for (NodeId id : g_.order())
      if (in_network(id)) look_at(g_.node(id));
    if (options_.policy == Policy::Default) return choices(cut({.saves_all = true}));
    const std::vector<ValueId> saved = cut({});
    if (options_.memory_budget >= 1) return choices(saved);
    const double limit =
        std::max(options_.memory_budget, 0.0) * kept_bytes(cut({.saves_all = true}));
    return choices(kept_bytes(saved) <= limit ? saved : cut_within(limit));
  }

 private:
  // How one cut is made.
  struct Mode {
    bool saves_all = false;  // Policy::Default
    const std::vector<bool>* lifted =
        nullptr;  // by node: bans that do not count. Memory alone does
  };

  // Of the backward's needs, what does not depend on a tangent.
  bool in_network(NodeId id) const {
    return sides_.needed[id.index] && sides_.side[id.index] != Side::Backward &&
           g_.node(id).kind != NodeKind::Attribute;
  }
  // Numbers need not be saved as values: whoever reads one has its expression.
  bool in_network(ValueId v) const {
    return in_network(g_.value(v).def) && g_.value(v).type.kind != ir::Type::Kind::Int;
  }

  // ---- what may be recomputed ----

  void look_at(const Node& n) {
    for (ValueId v : n.outputs) savable_[v.index] = in_network(v) && holders_.can_be_saved(v);
    if (n.kind == NodeKind::Input) return;
    if (runs_again(n)) {
      for (ValueId v : n.outputs) savable_[v.index] = savable_[v.index] && goes_on(v);
      return;
    }
    const RecomputeRule& rule = rules_[n.id.index] = recompute_rule(g_, n);
    if (sides_.side[n.id.index] != Side::Forward) return;  // computed once, on whichever side
    Ban& ban = bans_[n.id.index];
    ban.reason = reason_to_save(n, rule);
    ban.banned = !ban.reason.empty();
    ban.for_ever = rule.may == Recompute::Never;
    double made = 1;
    for (ValueId v : n.outputs)
      if (g_.value(v).type.is_tensor()) made += static_cast<double>(bytes(g_.tensor_type(v)));
    ban.density = rule.cost / made;
  }

  // A checkpoint, by the wish of the user.
  static bool runs_again(const Node& n) {
    return n.kind == NodeKind::Region && n.target == "checkpoint" && passes::is_removable(n);
  }
  // Of its outputs, one that the forward goes on with.
  bool goes_on(ValueId v) const { return readers_.of(v).by_forward() || holders_.lives_anyway(v); }

  std::string reason_to_save(const Node& n, const RecomputeRule& rule) const {
    if (rule.may == Recompute::Free) return "";
    if (rule.may != Recompute::Fusible) return cat("not recomputed: ", rule.kind);
    if (reads_what_is_written_unseen(n)) return "its operand may be written unseen";
    // Beside a loop that is there anyway a store is all that it takes: no more than keeping it.
    for (ValueId v : n.outputs)
      if (const Node* call = readers_.of(v).backward_call; call && !companions_.has_one(n))
        return cat("read by ", call->target);
    for (ValueId v : n.outputs)
      if (readers_.of(v).far_apart()) return "read by distant parts of the forward";
    return "";
  }

  bool reads_what_is_written_unseen(const Node& n) const {
    const std::vector<bool>& unseen = options_.written_unseen;
    bool found = false;
    for_each_value(n, [&](ValueId v) {
      while (passes::is_view(g_.def(v))) v = g_.def(v).args[0].value();
      const auto at = std::ranges::find(g_.inputs(), v);
      const auto i = static_cast<size_t>(at - g_.inputs().begin());
      found = found || (i < unseen.size() && unseen[i]);
    });
    return found;
  }

  // ---- the network ----

  uint32_t in(ValueId v) const { return 2 * v.index; }
  uint32_t out(ValueId v) const { return 2 * v.index + 1; }
  uint32_t op(NodeId id) const { return static_cast<uint32_t>(2 * g_.value_count() + id.index); }
  uint32_t source() const { return static_cast<uint32_t>(2 * g_.value_count() + g_.node_count()); }
  uint32_t sink() const { return source() + 1; }

  static int64_t units(double bytes) {
    return static_cast<int64_t>(std::min(bytes * kByte, static_cast<double>(kMostUnits)));
  }

  int64_t cost_of_saving(ValueId v, const Mode& mode) const {
    if (holders_.lives_anyway(v)) return 1;
    if (!savable_[v.index]) return kInfinite;
    const bool view = passes::is_view(g_.def(v));
    if (mode.saves_all && (view || sides_.of(g_, v) == Side::Either)) return kInfinite;
    const ReadBy& read_by = readers_.of(v);
    const bool in_memory = !view && (read_by.in_memory || read_by.far_apart());
    const double times = mode.saves_all || mode.lifted || in_memory ? 1 : 2;
    return units(times * static_cast<double>(bytes(g_.tensor_type(v)))) + 1;
  }

  int64_t cost_of_computing(const Node& n, const Mode& mode) const {
    if (sides_.side[n.id.index] != Side::Forward || runs_again(n)) return 0;
    const Ban& ban = bans_[n.id.index];
    const RecomputeRule& rule = rules_[n.id.index];
    if (mode.saves_all) return rule.may == Recompute::Free ? 0 : kInfinite;
    const bool lifted = mode.lifted && (*mode.lifted)[n.id.index];
    if (ban.banned && !lifted) return kInfinite;
    return mode.lifted ? 0 : units(rule.cost);
  }

  void add_node(FlowNetwork& network, const Node& n, const Mode& mode) const {
    if (n.kind == NodeKind::Input) {
      network.add_edge(source(), in(n.outputs[0]), kInfinite);
    } else {
      if (const int64_t cost = cost_of_computing(n, mode))
        network.add_edge(source(), op(n.id), cost);
      for_each_value(n, [&](ValueId v) {
        if (in_network(v)) network.add_edge(out(v), op(n.id), kInfinite);
      });
    }
    for (ValueId v : n.outputs) {
      if (!in_network(v)) continue;
      if (runs_again(n) && goes_on(v)) network.add_edge(source(), in(v), kInfinite);
      if (n.kind != NodeKind::Input) network.add_edge(op(n.id), in(v), kInfinite);
      network.add_edge(in(v), out(v), cost_of_saving(v, mode));
    }
  }

  // The values to save, in the order of their definition.
  std::vector<ValueId> cut(const Mode& mode) const {
    FlowNetwork network(sink() + 1);
    auto wanted = [&](ValueId v) {
      if (in_network(v)) network.add_edge(out(v), sink(), kInfinite);
    };
    for (NodeId id : g_.order()) {
      if (in_network(id)) add_node(network, g_.node(id), mode);
      if (sides_.side[id.index] == Side::Backward && sides_.needed[id.index])
        for_each_value(g_.node(id), wanted);
    }
    for (size_t i = forward_results(g_); i < g_.outputs.size(); ++i)
      if (g_.outputs[i].kind == Kind::Value) wanted(g_.outputs[i].value);
    OXY_CHECK(network.max_flow(source(), sink()) < kInfinite,
              "the backward reads what can neither be saved nor recomputed");
    const std::vector<bool> behind = network.sink_side(sink());
    std::vector<ValueId> saved;
    for (NodeId id : g_.order())
      for (ValueId v : g_.node(id).outputs)
        if (in_network(v) && !behind[in(v)] && behind[out(v)]) saved.push_back(v);
    return saved;
  }

  // ---- the budget ----

  double kept_bytes(const std::vector<ValueId>& saved) const {
    double sum = 0;
    for (ValueId v : saved)
      if (!holders_.lives_anyway(v)) sum += static_cast<double>(bytes(g_.tensor_type(v)));
    return sum;
  }

  // Lifts as few bans as it takes, those first that cost least by byte. More lifted bans never save
  // more bytes, so their number is found by halving.
  std::vector<ValueId> cut_within(double limit) const {
    std::vector<NodeId> order;
    for (NodeId id : g_.order())
      if (bans_[id.index].banned && !bans_[id.index].for_ever) order.push_back(id);
    std::ranges::stable_sort(order, {}, [&](NodeId id) { return bans_[id.index].density; });
    auto cut_with = [&](size_t count) {
      std::vector<bool> lifted(g_.node_count());
      for (size_t i = 0; i < count; ++i) lifted[order[i].index] = true;
      return cut({.lifted = &lifted});
    };
    size_t low = 0, high = order.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (kept_bytes(cut_with(middle)) <= limit)
        high = middle;
      else
        low = middle + 1;
    }
    return cut_with(high);
  }

  // ---- the result ----

  std::string reason(ValueId v) const {
    if (holders_.lives_anyway(v)) return "lives anyway";
    if (g_.def(v).kind == NodeKind::Input) return "somebody may write to it";
    if (passes::is_view(g_.def(v))) return "a small part of its base";
    if (runs_again(g_.def(v))) return "the forward goes on with it";
    const Ban& ban = bans_[g_.value(v).def.index];
    return ban.banned ? ban.reason : "recomputing begins here";
  }

  std::vector<Choice> choices(const std::vector<ValueId>& saved) const {
    std::vector<Choice> out;
    for (ValueId v : saved) {
      Choice& c = out.emplace_back();
      c.value = v;
      c.saved = holders_.saved_as(v);
      c.saved.direct = readers_.of(v).by_backward;
      c.saved.reason = reason(v);
      c.copied = holders_.must_be_copied(v);
    }
    return out;
  }

  const Graph& g_;
  const Sides& sides_;
  const PartitionOptions& options_;
  const Readers readers_;
  const Holders holders_;
  const Companions companions_;
  std::vector<RecomputeRule> rules_;  // by node
  std::vector<Ban> bans_;             // by node
  std::vector<bool> savable_;         // by value
};

}  // namespace

std::vector<Choice> choose_saved(const Graph& joint, const Sides& sides,
                                 const PartitionOptions& options) {
  return Chooser(joint, sides, options).run();
}

}  // namespace oxy::autograd
