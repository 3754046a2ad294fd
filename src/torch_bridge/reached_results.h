// Which results of a recording autograd's graph leads where from. In eager that says which hooks a
// backward calls, and which one finds that another has let go of what it reads.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "support/check.h"

namespace oxy::bridge {

// Results by their numbers, ascending.
using ResultSet = std::vector<uint32_t>;

// What gradients are taken by: inputs, and results behind them, by their numbers; a bit each.
class GradientTargets {
 public:
  GradientTargets() = default;
  GradientTargets(size_t inputs, size_t results)
      : inputs_(inputs), words_((inputs + results + 63) / 64) {}
  void add_input(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void add_result(size_t i) { add_input(inputs_ + i); }
  void add(const GradientTargets& o) {
    check_alike(o);
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= o.words_[i];
  }
  bool has(const GradientTargets& o) const {
    check_alike(o);
    for (size_t i = 0; i < words_.size(); ++i)
      if ((o.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }
  bool meets(const GradientTargets& o) const {
    check_alike(o);
    for (size_t i = 0; i < words_.size(); ++i)
      if ((words_[i] & o.words_[i]) != 0) return true;
    return false;
  }

 private:
  void check_alike(const GradientTargets& o) const {
    OXY_CHECK(inputs_ == o.inputs_ && words_.size() == o.words_.size(), "other targets");
  }

  size_t inputs_ = 0;
  std::vector<uint64_t> words_;
};

// Nodes that keep tensors, by where they stand.
struct KeptBehind {
  ResultSet results;   // that lead to them
  GradientTargets to;  // what they lead to
};

struct ReachedResults {
  // By result: by how many of the others, one behind the other, gradients come to it at most.
  std::vector<uint32_t> levels;
  std::vector<ResultSet> to_results;  // by result: the others that gradients come to it from
  std::vector<uint32_t> first;        // by result: the first one that is of the same node
  std::vector<ResultSet> to_inputs;   // by input
  // By level: the nodes that keep tensors behind results of this level and in front of those of the
  // next; of each set of results those of which none leads to all that another one does. All that
  // lead to them, or those that do without another one between.
  std::vector<std::vector<KeptBehind>> kept, kept_straight;
  // By level: those that lead straight to any node there.
  std::vector<ResultSet> straight_to_level;
};

// Where gradients enter the graph by each result, and where they arrive by each input; not valid
// for one that requires none.
ReachedResults reached_results(const std::vector<torch::autograd::Edge>& results,
                               const std::vector<torch::autograd::Edge>& inputs);

// Says of a node whether it has saved tensors, which a backward lets go of, or has let go of.
using KeepsTensors = bool (*)(torch::autograd::Node& node);
void set_keeps_tensors(KeepsTensors keeps);
bool keeps_tensors(torch::autograd::Node& node);

}  // namespace oxy::bridge
