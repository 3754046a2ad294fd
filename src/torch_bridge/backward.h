// The backward of a compiled graph. A call leaves a node in autograd's graph that has what the
// backward reads of the forward; autograd's engine runs it, on any thread, without Python.
//
// What a call leaves is torch's own saved variables: versions are checked, and saved tensor hooks
// see them, as those of any op. A plan of the backward is made when the first gradients arrive, one
// for each combination of results that gradients arrive by: for the rest autograd has none, so that
// a gradient is None where it is in eager.
//
// A backward that was cut (autograd/cut_backward.h) is a node a piece. Each has its gradients
// as edges, and one to the next node, so that the engine accumulates them, and calls their
// hooks, before it runs the next one.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <map>

#include "autograd/cut_backward.h"
#include "autograd/partition.h"
#include "torch_bridge/execute.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {

class Backward : public std::enable_shared_from_this<Backward> {
 public:
  // A plan of the graph for inputs like these, or, `by_ops`, one that calls op by op.
  using Make = std::function<std::unique_ptr<Executable>(
      const ir::Graph& graph, std::span<const Input> example, bool by_ops)>;
  Backward(autograd::Partition partition, Gradients gradients,
           const std::optional<autograd::GradientBuckets>& buckets, bool strict, Make make);

  // Before the forward: raises what eager raises where an input is written that must not be.
  void check_inputs(std::span<const Input> inputs) const;
  // Between the steps of the forward and its commit point: the node of a call, as the history of
  // the outputs that require gradients. Lets go of the outputs that were only for the backward.
  c10::intrusive_ptr<torch::autograd::Node> attach(std::span<const Input> inputs, Outputs& outputs);
  // Behind the commit point: the same of inputs whose new values require gradients.
  void rebase(const c10::intrusive_ptr<torch::autograd::Node>& node,
              std::span<const Input> inputs) const;

  const ir::Graph& graph() const { return backward_; }
  const std::vector<autograd::Saved>& saved() const { return saved_; }

 private:
  class Node;
  using Tensors = std::vector<at::Tensor>;
  using Strides = c10::SmallVector<int64_t, 5>;

  struct Plan {
    std::shared_ptr<Executable> executable;
    bool has_run = false;  // and not failed
  };

  struct Which {
    size_t piece = 0;
    std::vector<bool> defined;  // by tangent
    bool by_ops = false;
    auto operator<=>(const Which&) const = default;
  };

  void save(Node& node, const std::vector<uint32_t>& read, std::span<const Input> inputs,
            const Outputs& outputs) const;
  // Gradients by primal, and what the next piece gets. Called by the engine. What is saved dies
  // behind its last reader, where nobody else holds it. `tangents`: what was carried, too.
  // `strides`: of the first tangents, as the plan reads them.
  Tensors run(size_t piece, Tensors saved, std::span<const int64_t> numbers, Tensors tangents,
              std::span<const Strides> strides);
  // The same of gradients that a vmap has batched, one by one.
  Tensors run_batch(size_t piece, const Tensors& saved, std::span<const int64_t> numbers,
                    const Tensors& tangents, std::span<const Strides> strides);
  Plan plan_for(const Which& which, std::span<const Input> inputs);
  void note_run(const Which& which);

  const ir::Graph backward_;
  const std::vector<autograd::Saved> saved_;
  const size_t results_;                // outputs of the forward that the caller gets
  const std::vector<uint32_t> rooted_;  // outputs that the first tangents are gradients by
  std::vector<uint32_t> written_;       // inputs that the others are
  std::vector<autograd::Piece> pieces_;
  const bool strict_;
  const Make make_;
  ForkMutex mutex_;
  std::map<Which, Plan> plans_;
};

}  // namespace oxy::bridge
