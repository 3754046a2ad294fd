// Walks a pattern and the graph backwards in step, then puts the replacement in place.
#include "passes/match_pattern.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::passes {

namespace {

using ir::Arg;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool is_number(const Arg& a) {
  if (std::holds_alternative<ir::Expr>(a.v) || std::holds_alternative<double>(a.v)) return true;
  const std::vector<Arg>* items = a.items();
  return items && !items->empty() && std::ranges::all_of(*items, is_number);
}

class Matcher {
 public:
  Matcher(const Graph& g, const Pattern& pattern, Numbers compared)
      : g_(g), pattern_(pattern), compared_(compared), numbers_(pattern.numbers.size()) {}

  std::optional<Match> run(NodeId last) {
    const std::vector<ir::OutputSpec>& outputs = pattern_.graph.outputs;
    if (!match_node(pattern_.graph.def(outputs.back().value), g_.node(last))) return std::nullopt;
    for (size_t i = outputs.size(); i-- > 0;) {
      if (!bound_.contains(outputs[i].value) && !find(outputs[i].value)) return std::nullopt;
    }
    return finish();
  }

 private:
  bool match_value(ValueId p, ValueId v) {
    if (auto it = bound_.find(p); it != bound_.end()) return it->second == v;
    const Node& def = pattern_.graph.def(p);
    if (def.kind == ir::NodeKind::Input) {
      if (!g_.value(v).type.is_tensor()) return false;
      bound_[p] = v;
      return true;
    }
    return pattern_.graph.value(p).index == g_.value(v).index && match_node(def, g_.def(v)) &&
           bound_.at(p) == v;
  }

  bool match_node(const Node& p, const Node& n) {
    if (n.dead || n.kind != p.kind || n.target != p.target || n.outputs.size() != p.outputs.size())
      return false;
    if (!nodes_.insert(n.id).second) return false;  // one node of the graph for each of the pattern
    for (size_t i = 0; i < std::max(p.args.size(), n.args.size()); ++i) {
      if (!match_arg(p.arg(i), n.arg(i))) return false;
    }
    for (size_t i = 0; i < p.outputs.size(); ++i) bound_[p.outputs[i]] = n.outputs[i];
    return true;
  }

  bool match_arg(const Arg& p, const Arg& a) {
    if (p.is_value()) return a.is_value() && match_value(p.value(), a.value());
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (p == pattern_.numbers[i]) return match_number(i, a);
    }
    if (compared_ == Numbers::Any && is_number(p)) return is_number(a);
    const std::vector<Arg>*items = p.items(), *others = a.items();
    if (!items || !others) return p == a;
    if (p.v.index() != a.v.index() || items->size() != others->size()) return false;
    for (size_t i = 0; i < items->size(); ++i) {
      if (!match_arg((*items)[i], (*others)[i])) return false;
    }
    return true;
  }

  bool match_number(size_t i, const Arg& a) {
    if (a.items() || !is_number(a) || (numbers_[i] && !(*numbers_[i] == a))) return false;
    numbers_[i] = a;
    return true;
  }

  // A result of the pattern that nothing found so far is made of: any node of its op may make it.
  bool find(ValueId p) {
    const auto bound = bound_;
    const auto nodes = nodes_;
    const auto numbers = numbers_;
    for (NodeId id : g_.order()) {
      if (match_node(pattern_.graph.def(p), g_.node(id))) return true;
      bound_ = bound;
      nodes_ = nodes;
      numbers_ = numbers;
    }
    return false;
  }

  std::optional<Match> finish() {
    Match m;
    for (ValueId v : pattern_.graph.inputs()) {
      auto it = bound_.find(v);
      if (it == bound_.end()) return std::nullopt;
      m.inputs.push_back(it->second);
    }
    for (const std::optional<Arg>& n : numbers_) {
      if (!n) return std::nullopt;
      m.numbers.push_back(*n);
    }
    for (const ir::OutputSpec& o : pattern_.graph.outputs) m.outputs.push_back(bound_.at(o.value));
    m.nodes.assign(nodes_.begin(), nodes_.end());
    return is_closed(m) ? std::optional(std::move(m)) : std::nullopt;
  }

  // No reader outside sees more than the outputs, and none of theirs stands in front of the match's
  // end.
  bool is_closed(const Match& m) {
    std::vector<uint32_t> uses = g_.use_counts();
    for (NodeId id : m.nodes) for_each_value(g_.node(id), [&](ValueId v) { --uses[v.index]; });
    for (NodeId id : m.nodes) {
      for (ValueId v : g_.node(id).outputs) {
        if (uses[v.index] > 0 && std::ranges::count(m.outputs, v) == 0) return false;
      }
    }
    size_t left = m.nodes.size();
    for (NodeId id : g_.order()) {
      if (left == 0) break;
      const Node& n = g_.node(id);
      if (n.dead) continue;
      if (nodes_.contains(id)) {
        --left;
        continue;
      }
      bool reads = false;
      for_each_value(n, [&](ValueId v) { reads |= std::ranges::count(m.outputs, v) > 0; });
      if (reads) return false;
    }
    return true;
  }

  const Graph& g_;
  const Pattern& pattern_;
  const Numbers compared_;
  std::unordered_map<ValueId, ValueId> bound_;  // of the pattern -> of the graph
  std::set<NodeId> nodes_;
  std::vector<std::optional<Arg>> numbers_;
};

class Substitution {
 public:
  Substitution(Graph& g, const Match& m, const Graph& replacement)
      : g_(g), match_(m), replacement_(replacement), replacements_(g) {
    for (NodeId id : g.order()) {
      if (std::ranges::find(m.nodes, id) != m.nodes.end()) last_ = id;
    }
  }

  bool run() {
    first_new_ = g_.node_count();
    copy_nodes();
    for (size_t i = 0; i < match_.outputs.size(); ++i) {
      ValueId to = fitting(made_.at(replacement_.outputs[i].value), match_.outputs[i]);
      if (!to.valid()) {
        kill_from(g_, first_new_);
        return false;
      }
      replacements_.replace_unchecked(match_.outputs[i], to);
    }
    for (NodeId id : match_.nodes) g_.kill(id);
    replacements_.apply();
    return true;
  }

 private:
  Node& insert(const std::string& target, std::vector<Arg> args, std::vector<ir::Type> types) {
    const Node& last = g_.node(last_);
    const ir::StackId stack = last.stack;
    const NodeId parent = last.parent;
    Node& n = g_.insert_call(last_, ir::NodeKind::CallOp, target, std::move(args), types);
    n.stack = stack;
    n.parent = parent;
    return n;
  }

  void copy_nodes() {
    for (size_t i = 0; i < match_.inputs.size(); ++i)
      made_[replacement_.inputs()[i]] = match_.inputs[i];
    for (NodeId id : replacement_.order()) {
      const Node& n = replacement_.node(id);
      if (n.dead || n.kind == ir::NodeKind::Input) continue;
      std::vector<Arg> args;
      for (const Arg& a : n.args)
        args.push_back(map_values(a, [&](ValueId v) { return made_.at(v); }));
      std::vector<ir::Type> types;
      for (ValueId v : n.outputs) types.push_back(replacement_.value(v).type);
      Node& copy = insert(n.target, std::move(args), std::move(types));
      copy.returns = n.returns;
      for (size_t i = 0; i < n.outputs.size(); ++i) made_[n.outputs[i]] = copy.outputs[i];
    }
  }

  // `v` in the layout and, where the caller sees it, with the memory of its own that `from` has;
  // else nothing.
  ValueId fitting(ValueId v, ValueId from) {
    const ir::TensorType want = g_.tensor_type(from), have = g_.tensor_type(v);
    if (want.dtype != have.dtype || want.sizes != have.sizes || !(want.device == have.device))
      return ValueId();
    const Node& def = g_.def(v);
    const bool own = def.id.index >= first_new_ && ops::find(def) && !is_view(def);
    if (same_place(want, have) && (own || !replacements_.escapes(from))) return v;
    return copy_in_layout(v, want);
  }

  // A copy with the strides of `want`, which must be dense.
  ValueId copy_in_layout(ValueId v, const ir::TensorType& want) {
    if (!want.is_dense() || !want.offset.is_const(0)) return ValueId();
    for (const ir::Expr& e : want.strides)
      if (!e.is_const()) return ValueId();
    ops::Rewriter r(g_, last_);
    if (want.is_contiguous()) return r.call("aten.clone.default", {v, Arg(ir::MemoryFormat{0})});
    return copy_laid_out(r, v, want).value_or(ValueId());
  }

  Graph& g_;
  const Match& match_;
  const Graph& replacement_;
  Replacements replacements_;
  NodeId last_;
  size_t first_new_ = 0;
  std::unordered_map<ValueId, ValueId> made_;  // of the replacement -> of the graph
};

}  // namespace

void make_pattern(Graph& g) {
  if (!g.mutations.empty()) throw UserError("a pattern does not write to its inputs");
  if (g.outputs.empty()) throw UserError("a pattern returns tensors");
  for (ir::OutputSpec& o : g.outputs) {
    OXY_CHECK(o.kind == ir::OutputSpec::Kind::Value, "a result of a pattern that is no clone");
    Node& clone = g.def(o.value);
    OXY_CHECK(clone.target == "aten.clone.default", "a result of a pattern that is no clone");
    o.value = clone.args[0].value();
    o.type = g.tensor_type(o.value);
    g.kill(clone.id);
    if (g.def(o.value).kind != ir::NodeKind::CallOp)
      throw UserError("a pattern computes what it returns");
  }
  g.compact();
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (n.kind == ir::NodeKind::Attribute)
      throw UserError("a pattern has no constant tensors: make them of numbers, by torch.full");
    if (n.kind == ir::NodeKind::Region) throw UserError("a pattern has no branches and no loops");
    if (n.kind != ir::NodeKind::Input && !is_removable(n))
      throw UserError(cat("a pattern has no effects and no random numbers: ", n.target));
  }
}

std::optional<Match> match_at(const Graph& g, NodeId last, const Pattern& pattern,
                              Numbers compared) {
  return Matcher(g, pattern, compared).run(last);
}

bool substitute(Graph& g, const Match& match, const Graph& replacement) {
  OXY_CHECK(replacement.outputs.size() == match.outputs.size() &&
                replacement.inputs().size() == match.inputs.size(),
            "a replacement with other inputs or results than its pattern");
  return Substitution(g, match, replacement).run();
}

size_t replace_all(Graph& g, const Pattern& pattern, const Specialise& specialise) {
  size_t count = 0;
  const std::vector<NodeId> order = g.order();
  for (NodeId id : order) {
    if (g.node(id).dead) continue;
    std::optional<Match> loose = match_at(g, id, pattern, Numbers::Any);
    if (!loose) continue;
    std::vector<ir::TensorType> types;
    for (ValueId v : loose->inputs) types.push_back(g.tensor_type(v));
    std::optional<Replacement> exact = specialise(types, loose->numbers);
    if (!exact) continue;
    std::optional<Match> match = match_at(g, id, exact->pattern, Numbers::Equal);
    if (match && match->inputs == loose->inputs && match->numbers == loose->numbers)
      count += substitute(g, *match, exact->graph);
  }
  return count;
}

}  // namespace oxy::passes
