// Common subexpression elimination: value numbering in one walk.
#include "passes/pass_list.h"

#include <unordered_map>

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

size_t hash_of_call(const ir::Node& n) {
  size_t h = std::hash<std::string>()(n.target);
  for (const ir::Arg& a : n.args) h = h * 31 + ir::hash_of(a);
  return h;
}

bool same_call(const ir::Node& a, const ir::Node& b) {
  return a.target == b.target && a.returns == b.returns && a.args == b.args &&
         a.outputs.size() == b.outputs.size();
}

class Merger {
 public:
  explicit Merger(ir::Graph& g) : g_(g), replacements_(g) {}

  bool run() {
    for (ir::NodeId id : g_.order()) {
      ir::Node& n = g_.node(id);
      if (n.dead) continue;
      for (ir::Arg& a : n.args) a = map_values(a, [&](auto v) { return replacements_.resolve(v); });
      if (is_mergeable(n)) merge(n);
    }
    return replacements_.apply();
  }

 private:
  void merge(ir::Node& n) {
    std::vector<ir::NodeId>& candidates = seen_[hash_of_call(n)];
    for (ir::NodeId id : candidates) {
      if (same_call(g_.node(id), n) && take(n, g_.node(id))) return;
    }
    candidates.push_back(n.id);
  }

  // Lets `earlier` stand for `n`: all outputs or none.
  bool take(ir::Node& n, const ir::Node& earlier) {
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      ir::ValueId from = n.outputs[i], to = earlier.outputs[i];
      if (!same_place(g_.value(from).type, g_.value(to).type)) return false;
      if (n.outputs.size() > 1 && replacements_.escapes(from)) return false;
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!replacements_.replace(n.outputs[i], earlier.outputs[i])) return false;
    }
    n.dead = true;
    return true;
  }

  ir::Graph& g_;
  Replacements replacements_;
  std::unordered_map<size_t, std::vector<ir::NodeId>> seen_;
};

}  // namespace

bool cse(ir::Graph& g) { return Merger(g).run(); }

}  // namespace oxy::passes
