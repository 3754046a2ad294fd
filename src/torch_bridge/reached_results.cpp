// One walk through autograd's graph, from the results to the inputs.
#include "torch_bridge/reached_results.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_map>

namespace oxy::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

KeepsTensors keeps_tensors_ = [](Node&) { return true; };

struct Seen {
  uint32_t level = 0;
  bool is_result = false;
  // By result: whether it leads here, and without another one between.
  std::vector<bool> from, straight;
  GradientTargets to;
};

ResultSet set_of(const std::vector<bool>& from) {
  ResultSet out;
  for (uint32_t i = 0; i < from.size(); ++i)
    if (from[i]) out.push_back(i);
  return out;
}

class ResultWalk {
 public:
  explicit ResultWalk(const std::vector<Edge>& results) : results_(results) {
    std::vector<std::pair<Node*, size_t>> path;
    auto enter = [&](Node* n) {
      if (n != nullptr && seen_.try_emplace(n).second) path.emplace_back(n, 0);
    };
    for (const Edge& result : results) {
      enter(result.function.get());
      while (!path.empty()) {
        auto& [node, next] = path.back();
        if (next < node->num_outputs()) {
          enter(node->next_edge(next++).function.get());
        } else {
          behind_.push_back(node);
          path.pop_back();
        }
      }
    }
  }

  ReachedResults run(const std::vector<Edge>& inputs) {
    for (auto& [node, s] : seen_) {
      s.from.resize(results_.size());
      s.straight.resize(results_.size());
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      Seen& s = seen_.at(results_[r].function.get());
      s.is_result = s.from[r] = true;
    }
    for (size_t i = behind_.size(); i-- > 0;) {
      begin(*behind_[i]);
      hand_on(*behind_[i]);
    }
    find_targets(inputs);
    ReachedResults out;
    for (const Edge& result : results_) {
      out.levels.push_back(seen_.at(result.function.get()).level);
      out.to_results.push_back(others_behind(result));
      const auto same = [&](const Edge& e) { return e.function == result.function; };
      out.first.push_back(
          static_cast<uint32_t>(std::ranges::find_if(results_, same) - results_.begin()));
    }
    for (const Edge& input : inputs) {
      const auto it = seen_.find(input.function.get());
      out.to_inputs.push_back(it == seen_.end() ? ResultSet() : set_of(it->second.from));
      std::erase(behind_, input.function.get());
    }
    add_kept(out);
    return out;
  }

 private:
  // What comes to a result goes on as its own.
  void begin(Node& node) {
    Seen& s = seen_.at(&node);
    if (!s.is_result) return;
    for (size_t r = 0; r < results_.size(); ++r)
      s.straight[r] = results_[r].function.get() == &node;
  }

  void hand_on(Node& node) {
    const Seen& s = seen_.at(&node);
    for (const Edge& e : node.next_edges()) {
      if (!e.function) continue;
      Seen& next = seen_.at(e.function.get());
      next.level = std::max(next.level, s.level + (s.is_result ? 1 : 0));
      for (size_t r = 0; r < s.from.size(); ++r) {
        if (s.from[r]) next.from[r] = true;
        if (s.straight[r]) next.straight[r] = true;
      }
    }
  }

  void find_targets(const std::vector<Edge>& inputs) {
    GradientTargets none(inputs.size(), results_.size());
    std::unordered_map<const Node*, GradientTargets> ends;
    auto of = [&](const Edge& e) -> GradientTargets& {
      return ends.try_emplace(e.function.get(), none).first->second;
    };
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].function) of(inputs[i]).add_input(i);
    for (size_t r = 0; r < results_.size(); ++r) of(results_[r]).add_result(r);
    for (Node* node : behind_) {
      GradientTargets& to = seen_.at(node).to = none;
      for (const Edge& e : node->next_edges()) {
        if (!e.function) continue;
        to.add(seen_.at(e.function.get()).to);
        if (const auto it = ends.find(e.function.get()); it != ends.end()) to.add(it->second);
      }
    }
  }

  ResultSet others_behind(const Edge& result) const {
    ResultSet out = set_of(seen_.at(result.function.get()).from);
    std::erase_if(out, [&](uint32_t r) { return results_[r].function == result.function; });
    return out;
  }

  void add_kept(ReachedResults& out) const {
    // The first ones lead to most: few nodes are asked.
    for (size_t i = behind_.size(); i-- > 0;) {
      Node& node = *behind_[i];
      const Seen& s = seen_.at(&node);
      const size_t level = s.is_result ? s.level : s.level - 1;
      out.kept.resize(std::max(out.kept.size(), level + 1));
      out.kept_straight.resize(out.kept.size());
      out.straight_to_level.resize(out.kept.size());
      const ResultSet all = set_of(s.from), straight = set_of(s.straight);
      ResultSet& of_level = out.straight_to_level[level];
      of_level.insert(of_level.end(), straight.begin(), straight.end());
      if (has(out.kept[level], all, s.to) && has(out.kept_straight[level], straight, s.to))
        continue;
      if (!keeps_tensors_(node)) continue;
      add_to(out.kept[level], all, s.to);
      add_to(out.kept_straight[level], straight, s.to);
    }
    for (ResultSet& of_level : out.straight_to_level) {
      std::ranges::sort(of_level);
      of_level.erase(std::ranges::unique(of_level).begin(), of_level.end());
    }
  }

  // A node that leads to more is run by whatever runs this one.
  static bool has(const std::vector<KeptBehind>& kept, const ResultSet& results,
                  const GradientTargets& to) {
    return std::ranges::any_of(
        kept, [&](const KeptBehind& k) { return k.results == results && k.to.has(to); });
  }

  static void add_to(std::vector<KeptBehind>& kept, const ResultSet& results,
                     const GradientTargets& to) {
    if (!has(kept, results, to)) kept.push_back({results, to});
  }

  const std::vector<Edge>& results_;
  std::unordered_map<Node*, Seen> seen_;
  std::vector<Node*> behind_;  // each behind all that it hands gradients to
};

}  // namespace

void set_keeps_tensors(KeepsTensors keeps) { keeps_tensors_ = keeps; }
bool keeps_tensors(torch::autograd::Node& node) { return keeps_tensors_(node); }

ReachedResults reached_results(const std::vector<Edge>& results, const std::vector<Edge>& inputs) {
  return ResultWalk(results).run(inputs);
}

}  // namespace oxy::bridge
