// Autograd's engine, one piece at a time: hooks that captured code has registered are called
// between two pieces, as code like any other, where the engine would call them.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>
#include <unordered_map>
#include <vector>

namespace oxy::bridge {

// A backward on fakes, on this thread. It begins at `roots`, and stops in front of the node of each
// edge of `stops`, as it comes to them.
class BackwardPieces {
 public:
  using Edges = torch::autograd::edge_list;
  using Tensors = torch::autograd::variable_list;

  // `by`: what gradients are by; what none of them is behind does not run.
  BackwardPieces(const Edges& roots, const Edges& stops, const Edges& by);

  // By position in `stops`, as the engine comes to them; those that it does not come to are left
  // out.
  const std::vector<size_t>& order() const { return order_; }
  // Whether the node of a stop of `order` runs: else it is only what a gradient is by.
  bool runs(size_t stop) const { return runs_[slot_of(stops_[stop]).first]; }

  // Runs piece `k` of order().size() + 1. `given`: of the first, gradients by the roots; of
  // another, what the one in front has handed on. What that is: the gradient at the stop, then all
  // else that is known so far; of the last piece, the gradients by `by`. `frees`: what the nodes
  // that it runs have saved.
  Tensors run(size_t k, Tensors given, bool frees);

 private:
  using Node = torch::autograd::Node;
  using Slot = std::pair<size_t, uint32_t>;  // a node, by its place, and one of its inputs

  Slot slot_of(const torch::autograd::Edge& edge) const;
  void run_node(size_t place, bool frees);
  void add(const torch::autograd::Edge& edge, at::Tensor gradient);
  std::vector<Slot> slots_from(size_t end) const;
  std::vector<size_t> found_before(size_t end) const;
  at::Tensor arrived_at(const torch::autograd::Edge& edge) const;

  const Edges roots_, stops_, by_;
  std::vector<Node*> nodes_;  // as the engine comes to them
  std::unordered_map<const Node*, size_t> place_of_;
  std::vector<bool> runs_;            // by node
  std::vector<size_t> order_, ends_;  // by piece: the stop behind it, and the node
  std::vector<Tensors> arrived_;      // by node and input
};

}  // namespace oxy::bridge
