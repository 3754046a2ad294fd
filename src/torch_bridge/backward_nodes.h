// Which nodes a call leaves in autograd's graph for its backward.
//
// Each result has a node of its own, but that those which one node of eager's graph gave share one,
// with an input each: so the hooks of one that nothing arrives at are called as well. The engine
// runs a node, and calls its hooks, if an edge leads to it from where a backward begins: so there
// are edges between results where eager's graph has paths, and to an input only from results that
// it is reached from. Where what comes next depends on several results none of which is the last, a
// node between waits for these.
//
// Nodes compute nothing of their own: the first one that is to give something has the pieces run
// (autograd/cut_backward.h) that it takes, for all that has arrived.
#pragma once

#include "autograd/cut_backward.h"
#include "torch_bridge/reached_results.h"

namespace oxy::bridge {

struct BackwardNode {
  std::vector<uint32_t> own;         // results whose node it is, numbered as the tangents
  std::vector<uint32_t> results;     // at which what arrives by others comes from here
  std::vector<uint32_t> primals;     // whose gradients come from here
  std::vector<uint32_t> later;       // nodes that wait for this one
  std::optional<size_t> last_piece;  // of those to run for the gradients, if it has any
};

// In the order in which they are to be made: each behind those that its edges lead to. By the order
// autograd's engine chooses, of those that are ready, the one made last: nodes that give gradients
// of inputs come first here, so that they run at the end.
struct BackwardNodes {
  std::vector<BackwardNode> nodes;
  std::vector<uint32_t> of_result;  // by result: its node
  std::vector<uint32_t> input;      // by result: where its gradients come to that
  std::vector<size_t> piece;        // by result: where gradients by it arrive
};

// `primals`, by piece: whose gradients it has. `rank`, by primal: in which order the engine of
// eager's graph comes to them.
BackwardNodes backward_nodes(const autograd::BackwardCut& cut, const ReachedResults& reached,
                             const std::vector<std::vector<uint32_t>>& primals,
                             const std::vector<uint32_t>& rank);

}  // namespace oxy::bridge
