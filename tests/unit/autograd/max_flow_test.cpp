// Flows against all cuts of small networks.
#include "autograd/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace oxy::autograd {
namespace {

struct Edge {
  uint32_t from, to;
  int64_t capacity;
};

int64_t capacity_of(const std::vector<Edge>& edges, const std::vector<bool>& sink_side) {
  int64_t sum = 0;
  for (const Edge& e : edges)
    if (!sink_side[e.from] && sink_side[e.to]) sum += e.capacity;
  return sum;
}

TEST(MaxFlow, EqualsTheSmallestCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const uint32_t vertices = 2 + random() % 7;
    std::vector<Edge> edges;
    FlowNetwork network(vertices);
    for (uint32_t i = random() % 20; i > 0; --i) {
      const Edge e{static_cast<uint32_t>(random() % vertices),
                   static_cast<uint32_t>(random() % vertices), static_cast<int64_t>(random() % 10)};
      edges.push_back(e);
      network.add_edge(e.from, e.to, e.capacity);
    }
    // The source is 0, the sink 1.
    int64_t smallest = INT64_MAX;
    size_t fewest = vertices;  // on the sink's side of a smallest cut
    for (uint32_t set = 0; set < 1u << vertices; ++set) {
      if ((set & 1) || !(set & 2)) continue;
      std::vector<bool> sink_side(vertices);
      for (uint32_t v = 0; v < vertices; ++v) sink_side[v] = set >> v & 1;
      const int64_t c = capacity_of(edges, sink_side);
      const auto size = static_cast<size_t>(std::ranges::count(sink_side, true));
      if (c < smallest) fewest = size;
      if (c == smallest) fewest = std::min(fewest, size);
      smallest = std::min(smallest, c);
    }
    ASSERT_EQ(network.max_flow(0, 1), smallest) << "round " << round;
    const std::vector<bool> sink_side = network.sink_side(1);
    EXPECT_EQ(capacity_of(edges, sink_side), smallest);
    EXPECT_EQ(static_cast<size_t>(std::ranges::count(sink_side, true)), fewest);
  }
}

TEST(MaxFlow, WithoutEndWhereEdgesAre) {
  FlowNetwork network(3);
  network.add_edge(0, 2, FlowNetwork::kInfinite);
  network.add_edge(2, 1, FlowNetwork::kInfinite);
  EXPECT_GE(network.max_flow(0, 1), FlowNetwork::kInfinite);
}

TEST(MaxFlow, LongPathsNeedNoStack) {
  constexpr uint32_t kLength = 200'000;
  FlowNetwork network(kLength);
  for (uint32_t v = 2; v + 1 < kLength; ++v) network.add_edge(v, v + 1, 7);
  network.add_edge(0, 2, 9);
  network.add_edge(kLength - 1, 1, 5);
  EXPECT_EQ(network.max_flow(0, 1), 5);
}

}  // namespace
}  // namespace oxy::autograd
