// Decomposition: rounds over the graph, each taking apart what the round before made.
#include "passes/pass_list.h"

#include <algorithm>

#include "ops/rewriter.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

constexpr int kMaxRounds = 64;  // deeper means that two decompositions make each other's ops

class Round {
 public:
  explicit Round(Graph& g) : g_(g), replacements_(g), uses_(g.use_counts()) {}

  bool run() {
    bool changed = false;
    const std::vector<NodeId> order = g_.order();
    for (NodeId id : order) {
      if (!g_.node(id).dead) changed |= take_apart(id);
    }
    replacements_.apply();
    g_.compact();  // what refused decompositions left
    return changed;
  }

 private:
  bool take_apart(NodeId id) {
    const ops::OpInfo* info = ops::find(g_.node(id));
    if (!info || !info->decomposition || ops::has_unknown_number(g_, g_.node(id), *info))
      return false;
    size_t first_new = g_.node_count();
    ops::Rewriter rewriter(g_, id);
    std::vector<ValueId> out;
    const Node node = g_.node(id);  // a copy: inserting nodes can move the graph's own
    const bool done = where_shapes_are_known(g_, [&] {
      return info->decomposition(rewriter, node, out) && accept(node, out, first_new);
    });
    if (!done) {
      kill_from(g_, first_new);
      return false;
    }
    g_.kill(id);
    return true;
  }

  // Puts `out` in the place of the node's outputs, all or none.
  bool accept(const Node& n, const std::vector<ValueId>& out, size_t first_new) {
    OXY_CHECK(out.size() == n.outputs.size(), "decomposition of ", n.target, " gives ", out.size(),
              " values for ", n.outputs.size());
    for (size_t i = 0; i < out.size(); ++i) {
      bool twice = out[i].valid() && std::ranges::count(out, out[i]) > 1;
      if (twice || !fits(n, n.outputs[i], out[i], first_new)) return false;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (!out[i].valid()) continue;
      ir::Type& made = g_.value(out[i]).type;
      const ir::Type& recorded = g_.value(n.outputs[i]).type;
      if (is_new(out[i], first_new) && !same_place(made, recorded)) made = recorded;
      replacements_.replace_unchecked(n.outputs[i], out[i]);
    }
    return true;
  }

  bool is_new(ValueId v, size_t first_new) const { return g_.value(v).def.index >= first_new; }

  // Made here, not only as a view of something that was there before.
  bool owns_memory(ValueId v, size_t first_new) const {
    for (;;) {
      const Node& def = g_.def(v);
      const ops::OpInfo* info = ops::find(def);
      if (!is_new(v, first_new)) return false;
      if (!info || !info->has(ops::View) || !def.arg(0).is_value()) return true;
      v = def.args[0].value();
    }
  }

  bool is_used(ValueId v) const { return v.index >= uses_.size() || uses_[v.index] > 0; }

  bool fits(const Node& n, ValueId from, ValueId to, size_t first_new) {
    if (!to.valid()) return !is_used(from);
    const ir::Type &recorded = g_.value(from).type, &made = g_.value(to).type;
    OXY_CHECK(recorded.kind == made.kind, "decomposition of ", n.target,
              " changes the kind of a result");
    if (replacements_.escapes(from) && !owns_memory(to, first_new)) return false;
    if (same_place(made, recorded)) return true;
    if (!is_new(to, first_new)) return false;
    if (!made.is_tensor()) return false;
    const ir::TensorType &want = recorded.tensor, &have = made.tensor;
    const bool same = want.sizes == have.sizes && want.dtype == have.dtype;
    // Sizes that vary may be equal in a way that nobody sees.
    OXY_CHECK(same || g_.pool->symbol_count() > 0, "decomposition of ", n.target, " changes ",
              print(want), " to ", print(have));
    if (!same) return false;
    const ops::OpInfo* last = ops::find(g_.def(to));
    bool writes_by_loop = last && !last->has(ops::View) && (last->element || last->reduction);
    return writes_by_loop && want.offset.is_const(0) && want.device == have.device;
  }

  Graph& g_;
  Replacements replacements_;
  std::vector<uint32_t> uses_;
};

}  // namespace

bool decompose(Graph& g) {
  bool changed = false;
  for (int round = 0; Round(g).run(); ++round) {
    OXY_CHECK(round < kMaxRounds, "decompositions do not come to an end");
    changed = true;
  }
  return changed;
}

}  // namespace oxy::passes
