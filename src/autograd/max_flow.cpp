// Dinic's algorithm without recursion: graphs are as deep as programs are long.
#include "autograd/max_flow.h"

#include <algorithm>

namespace oxy::autograd {

void FlowNetwork::add_edge(uint32_t from, uint32_t to, int64_t capacity) {
  edges_of_[from].push_back(static_cast<uint32_t>(edges_.size()));
  edges_.push_back({to, std::min(capacity, kInfinite)});
  edges_of_[to].push_back(static_cast<uint32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(uint32_t source, uint32_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<uint32_t> queue = {source};
  for (size_t i = 0; i < queue.size() && level_[sink] < 0; ++i) {
    for (uint32_t e : edges_of_[queue[i]]) {
      const Edge& edge = edges_[e];
      if (edge.left == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[sink] >= 0;
}

// What goes along one more shortest path; 0 where there is none.
int64_t FlowNetwork::push_path(uint32_t source, uint32_t sink) {
  std::vector<uint32_t> path;
  uint32_t at = source;
  while (at != sink) {
    std::vector<uint32_t>& edges = edges_of_[at];
    auto leads_on = [&](uint32_t e) {
      return edges_[e].left > 0 && level_[edges_[e].to] == level_[at] + 1;
    };
    while (next_[at] < edges.size() && !leads_on(edges[next_[at]])) ++next_[at];
    if (next_[at] < edges.size()) {
      path.push_back(edges[next_[at]]);
      at = edges_[path.back()].to;
      continue;
    }
    if (path.empty()) return 0;
    at = edges_[path.back() ^ 1].to;
    path.pop_back();
    ++next_[at];
  }
  int64_t amount = kInfinite;
  for (uint32_t e : path) amount = std::min(amount, edges_[e].left);
  for (uint32_t e : path) {
    edges_[e].left -= amount;
    edges_[e ^ 1].left += amount;
  }
  return amount;
}

int64_t FlowNetwork::max_flow(uint32_t source, uint32_t sink) {
  int64_t flow = 0;
  while (flow < kInfinite && find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    for (int64_t more = push_path(source, sink); more > 0 && flow < kInfinite;
         more = push_path(source, sink))
      flow += more;
  }
  return flow;
}

std::vector<bool> FlowNetwork::sink_side(uint32_t sink) const {
  std::vector<bool> reaches(edges_of_.size());
  reaches[sink] = true;
  std::vector<uint32_t> queue = {sink};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (uint32_t e : edges_of_[queue[i]]) {
      const uint32_t from = edges_[e].to;  // by way of the edge e ^ 1
      if (edges_[e ^ 1].left == 0 || reaches[from]) continue;
      reaches[from] = true;
      queue.push_back(from);
    }
  }
  return reaches;
}

}  // namespace oxy::autograd
