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
    ReachedResults out;
    for (const Edge& result : results_) {
      out.levels.push_back(seen_.at(result.function.get()).level);
      out.to_results.push_back(others_behind(result));
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

  ResultSet others_behind(const Edge& result) const {
    ResultSet out = set_of(seen_.at(result.function.get()).from);
    std::erase_if(out, [&](uint32_t r) { return results_[r].function == result.function; });
    return out;
  }

  void add_kept(ReachedResults& out) const {
    for (Node* node : behind_) {
      const Seen& s = seen_.at(node);
      const size_t level = s.is_result ? s.level : s.level - 1;
      out.to_kept.resize(std::max(out.to_kept.size(), level + 1));
      out.straight_to_kept.resize(out.to_kept.size());
      out.straight_to_level.resize(out.to_kept.size());
      const ResultSet all = set_of(s.from), straight = set_of(s.straight);
      ResultSet& of_level = out.straight_to_level[level];
      of_level.insert(of_level.end(), straight.begin(), straight.end());
      const bool is_new_all = !is_in(out.to_kept[level], all);
      const bool is_new_straight = !is_in(out.straight_to_kept[level], straight);
      if (!(is_new_all || is_new_straight) || !keeps_tensors_(*node)) continue;
      if (is_new_all) out.to_kept[level].push_back(all);
      if (is_new_straight) out.straight_to_kept[level].push_back(straight);
    }
    for (ResultSet& of_level : out.straight_to_level) {
      std::ranges::sort(of_level);
      of_level.erase(std::ranges::unique(of_level).begin(), of_level.end());
    }
  }

  static bool is_in(const std::vector<ResultSet>& sets, const ResultSet& set) {
    return std::ranges::find(sets, set) != sets.end();
  }

  const std::vector<Edge>& results_;
  std::unordered_map<Node*, Seen> seen_;
  std::vector<Node*> behind_;  // each behind all that it hands gradients to
};

}  // namespace

void set_keeps_tensors(KeepsTensors keeps) { keeps_tensors_ = keeps; }

ReachedResults reached_results(const std::vector<Edge>& results, const std::vector<Edge>& inputs) {
  return ResultWalk(results).run(inputs);
}

}  // namespace oxy::bridge
