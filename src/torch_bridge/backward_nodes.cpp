// From the inputs to the results.
#include "torch_bridge/backward_nodes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

namespace oxy::bridge {
namespace {

// So that the engine comes to leaves by rank. All that a node gives them are ready at once, and its
// heap, in which leaves are alike, has an order of its own.
std::vector<uint32_t> as_engine_takes(std::vector<uint32_t> primals,
                                      const std::vector<uint32_t>& rank) {
  std::ranges::stable_sort(primals, {}, [&](uint32_t p) { return rank[p]; });
  const auto alike = [](size_t, size_t) { return false; };
  std::priority_queue<size_t, std::vector<size_t>, decltype(alike)> ready(alike);
  for (size_t i = 0; i < primals.size(); ++i) ready.push(i);
  std::vector<uint32_t> out(primals.size());
  for (const uint32_t p : primals) {
    out[ready.top()] = p;
    ready.pop();
  }
  return out;
}

class Builder {
 public:
  Builder(const autograd::BackwardCut& cut, const ReachedResults& reached)
      : cut_(cut), reached_(reached), later_(reached.levels.size()), ahead_(reached.levels.size()) {
    out_.of_result.resize(count());
    out_.input.resize(count());
    out_.piece.resize(count());
    for (size_t k = 0; k < cut_.size(); ++k)
      for (const uint32_t t : cut_.tangents(k)) out_.piece[t] = k;
    before_.resize(count());
    for (uint32_t t = 0; t < count(); ++t)
      if (cut_.shows_arriving(t)) before_[first(t)] = firsts_of(reached.to_results[t]);
    for (uint32_t t = 0; t < count(); ++t)
      if (first(t) == t) node_count_++;
  }

  BackwardNodes run(const std::vector<std::vector<uint32_t>>& primals,
                    const std::vector<uint32_t>& rank) {
    if (cut_.is_by_results())
      add_gradients(primals.back(), rank);
    else
      add_buckets(primals, rank);
    for (size_t k = cut_.size(); k-- > 0;) {
      for (const uint32_t t : cut_.tangents(k))
        if (first(t) == t) add_results(t);
      add_arriving(cut_.tangents(k));
    }
    return std::move(out_);
  }

 private:
  size_t count() const { return later_.size(); }
  uint32_t first(uint32_t t) const { return reached_.first[t]; }
  // Those that stand for their nodes.
  ResultSet firsts_of(ResultSet set) const {
    std::erase_if(set, [&](uint32_t t) { return first(t) != t; });
    return set;
  }
  bool is_before(uint32_t a, uint32_t b) const { return std::ranges::binary_search(before_[b], a); }

  uint32_t add(BackwardNode node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(out_.nodes.size() - 1);
  }

  // Those that no other of the set comes behind. Of each node the first.
  ResultSet last_of(const ResultSet& all) const {
    const ResultSet set = firsts_of(all);
    ResultSet out = set;
    std::erase_if(out, [&](uint32_t t) {
      return std::ranges::any_of(set, [&](uint32_t other) { return is_before(t, other); });
    });
    return out;
  }

  void add_buckets(const std::vector<std::vector<uint32_t>>& primals,
                   const std::vector<uint32_t>& rank) {
    std::vector<uint32_t> next;
    for (size_t k = primals.size(); k-- > 0;) {
      BackwardNode node{
          .primals = as_engine_takes(primals[k], rank), .later = next, .last_piece = k};
      if (k == 0 && node_count_ == 1)
        own_ = std::move(node);
      else
        next = {add(std::move(node))};
    }
    if (own_) return;
    for (std::vector<uint32_t>& later : later_) later = next;
  }

  // A node for the inputs that are reached from the same results, the last to run first. What is
  // behind all other results gives gradients itself.
  void add_gradients(const std::vector<uint32_t>& primals, const std::vector<uint32_t>& rank) {
    std::map<ResultSet, std::vector<uint32_t>> classes;
    for (const uint32_t p : primals) classes[reached_.to_inputs[p]].push_back(p);
    std::multimap<uint32_t, const ResultSet*, std::greater<>> order;  // by the first of each
    for (const auto& [set, of] : classes)
      order.emplace(rank[std::ranges::min(of, {}, [&](uint32_t p) { return rank[p]; })], &set);
    for (const auto& [first, behind] : order) {
      const ResultSet& set = *behind;
      BackwardNode node{.primals = as_engine_takes(classes.at(set), rank),
                        .last_piece = cut_.size() - 1};
      const ResultSet last = last_of(set);
      if (last.size() == 1 && before_[last[0]].size() + 1 == node_count_) {
        own_ = std::move(node);
        final_ = last[0];
        continue;
      }
      const uint32_t added = add(std::move(node));
      for (const uint32_t t : last) later_[t].push_back(added);
    }
  }

  // The first of a node with the others.
  void add_results(uint32_t t) {
    BackwardNode node;
    if (own_ && t == final_) node = std::move(*own_);
    node.results = ahead_[t];
    node.later.insert(node.later.end(), later_[t].begin(), later_[t].end());
    const auto number = static_cast<uint32_t>(out_.nodes.size());
    for (uint32_t of = t; of < count(); ++of) {
      if (first(of) != t) continue;
      out_.of_result[of] = number;
      out_.input[of] = static_cast<uint32_t>(node.own.size());
      node.own.push_back(of);
    }
    add(std::move(node));
  }

  // What arrives at these results comes from the last ones in front of them.
  void add_arriving(const std::vector<uint32_t>& results) {
    std::map<ResultSet, std::vector<uint32_t>> between;
    for (const uint32_t t : results) {
      if (!cut_.shows_arriving(t)) continue;
      const ResultSet last = last_of(before_[first(t)]);
      if (last.size() == 1)
        ahead_[last[0]].push_back(t);
      else if (!last.empty())
        between[last].push_back(t);
    }
    for (auto& [last, of] : between) {
      const uint32_t added = add({.results = std::move(of)});
      for (const uint32_t t : last) later_[t].push_back(added);
    }
  }

  const autograd::BackwardCut& cut_;
  const ReachedResults& reached_;
  BackwardNodes out_;
  // By the first result of a node: those in front of it; nodes that wait for it; those at which it
  // gives what arrives.
  std::vector<ResultSet> before_, later_, ahead_;
  size_t node_count_ = 0;            // of results
  std::optional<BackwardNode> own_;  // of the node of result `final_`
  uint32_t final_ = 0;
};

}  // namespace

BackwardNodes backward_nodes(const autograd::BackwardCut& cut, const ReachedResults& reached,
                             const std::vector<std::vector<uint32_t>>& primals,
                             const std::vector<uint32_t>& rank) {
  return Builder(cut, reached).run(primals, rank);
}

}  // namespace oxy::bridge
