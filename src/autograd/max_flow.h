// The largest flow through a network, and the smallest cut that it shows (Dinic's algorithm:
// blocking flows along shortest paths; Y. Dinitz, 1970).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oxy::autograd {

class FlowNetwork {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit FlowNetwork(size_t vertices) : edges_of_(vertices) {}

  void add_edge(uint32_t from, uint32_t to, int64_t capacity);

  // At least kInfinite where a path of infinite edges joins the two. Once.
  int64_t max_flow(uint32_t source, uint32_t sink);
  // By vertex, after max_flow: on the sink's side of the minimal cut that lies nearest to the sink.
  std::vector<bool> sink_side(uint32_t sink) const;

 private:
  struct Edge {
    uint32_t to;
    int64_t left;  // capacity that is not used; edge e ^ 1 is the way back
  };

  bool find_levels(uint32_t source, uint32_t sink);
  int64_t push_path(uint32_t source, uint32_t sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<uint32_t>> edges_of_;
  std::vector<int32_t> level_;
  std::vector<size_t> next_;  // by vertex: the first edge that may still lead on
};

}  // namespace oxy::autograd
