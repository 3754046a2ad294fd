// Which results of a recording autograd's graph leads where from. In eager that says which hooks a
// backward calls, and which one finds that another has let go of what it reads.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace oxy::bridge {

// Results by their numbers, ascending.
using ResultSet = std::vector<uint32_t>;

struct ReachedResults {
  // By result: by how many of the others, one behind the other, gradients come to it at most.
  std::vector<uint32_t> levels;
  std::vector<ResultSet> to_results;  // by result: the others that gradients come to it from
  std::vector<ResultSet> to_inputs;   // by input
  // By level: of each node that keeps tensors behind results of this level and in front of those of
  // the next; each set once. All that lead to it, or those that do without another one between.
  std::vector<std::vector<ResultSet>> to_kept, straight_to_kept;
  // By level: those that lead straight to any node there.
  std::vector<ResultSet> straight_to_level;
};

// Where gradients enter the graph by each result, and where they arrive by each input; not valid
// for one that requires none.
ReachedResults reached_results(const std::vector<torch::autograd::Edge>& results,
                               const std::vector<torch::autograd::Edge>& inputs);

// Says of a node whether it has saved tensors, which a backward lets go of.
using KeepsTensors = bool (*)(torch::autograd::Node& node);
void set_keeps_tensors(KeepsTensors keeps);

}  // namespace oxy::bridge
