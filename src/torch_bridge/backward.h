// The backward of a compiled graph. A call leaves nodes in autograd's graph (backward_nodes.h) that
// share what the backward reads of the forward (backward_call.h); autograd's engine runs them, on
// any thread, without Python.
//
// What a call leaves is torch's own saved variables: versions are checked, and saved tensor hooks
// see them, as those of any op. A plan of the backward is made when the first gradients arrive, one
// for each combination of results that gradients arrive by: for the rest autograd has none, so that
// a gradient is None where it is in eager. The same of inputs, where some of their gradients are
// asked for.
//
// Of a backward that was cut (autograd/cut_backward.h) the pieces are run one by one where somebody
// looks at what lies between: by buckets, the engine accumulates the gradients of each, and calls
// their hooks, before it runs the next one; by results, where one has a hook, or is what a gradient
// is by. Else they are run as one.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <map>

#include "autograd/cut_backward.h"
#include "autograd/partition.h"
#include "autograd/tangent_layout.h"
#include "torch_bridge/backward_nodes.h"
#include "torch_bridge/execute.h"
#include "torch_bridge/gradient_function.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {

class Backward : public std::enable_shared_from_this<Backward> {
 public:
  // A plan of the graph for inputs like these, or, `by_ops`, one that calls op by op.
  using Make = std::function<std::unique_ptr<Executable>(
      const ir::Graph& graph, std::span<const Input> example, bool by_ops)>;
  Backward(autograd::Partition partition, Gradients gradients,
           const std::optional<autograd::GradientBuckets>& buckets, bool strict, Make make,
           std::unique_ptr<GradientFunction> with_history);

  // Before the forward: raises what eager raises where an input is written that must not be.
  void check_inputs(std::span<const Input> inputs) const;
  // Between the steps of the forward and its commit point: the nodes of a call, as the history of
  // the outputs that require gradients. Lets go of the outputs that were only for the backward.
  // What `rebase` makes the history of inputs whose new values require gradients.
  // `generator`: as it was in front of a forward that draws random numbers.
  torch::autograd::edge_list attach(std::span<const Input> inputs, Outputs& outputs,
                                    runtime::DeviceApi::GeneratorState generator);
  // Behind the commit point.
  void rebase(const torch::autograd::edge_list& edges, std::span<const Input> inputs) const;

  // Whether the new value of an input requires gradients.
  bool gives_history(uint32_t input) const {
    return std::ranges::find(written_, input) != written_.end();
  }

  const ir::Graph& graph() const { return backward_; }
  const std::vector<autograd::Saved>& saved() const { return saved_; }
  // Outputs that the backward has gradients by.
  const std::vector<uint32_t>& rooted() const { return rooted_; }
  // Whether such an output is a view whose gradients are those of its place.
  bool is_plain_view(uint32_t output) const { return std::ranges::binary_search(views_, output); }

 private:
  class Call;
  class Node;
  using Tensors = std::vector<at::Tensor>;
  using Strides = c10::SmallVector<int64_t, 5>;

  struct Plan {
    std::optional<std::vector<bool>> reads;  // by input of the backward
    std::unique_ptr<Executable> executable;
    bool has_run = false;  // and not failed
    bool fails = false;    // cannot be made, or failed before it had run
  };
  struct Runnable {
    Executable* executable;
    bool has_run;
  };

  using Range = std::pair<size_t, size_t>;  // the first and the last piece

  struct Which {
    Range pieces;
    std::vector<bool> defined;     // by tangent
    std::vector<bool> asked = {};  // by primal: whether its gradient is; empty: all are
    // By tangent that is defined; empty: all lie as their results do.
    std::vector<autograd::TangentLayout> layouts = {};
    bool by_ops = false;
    auto operator<=>(const Which&) const = default;
  };

  // What a run reads.
  struct Given {
    Tensors saved;                 // by input of the backward
    std::vector<int64_t> numbers;  // the same, if there are any
    Tensors tangents;              // what was carried, then those that have arrived
    std::vector<Strides> strides;  // of the latter, as the plan reads them
  };

  void save(Call& call, std::span<const Input> inputs, const Outputs& outputs,
            std::span<const c10::intrusive_ptr<Node>> nodes) const;
  void save_result(Call& call, uint32_t input, const at::Tensor& t,
                   std::span<const c10::intrusive_ptr<Node>> nodes) const;
  void hold_written(Call& call, uint32_t input, const at::Tensor& t,
                    std::span<const c10::intrusive_ptr<Node>> nodes) const;
  void add_edges(Node& node, const std::vector<uint32_t>& primals,
                 std::span<const Input> inputs) const;
  // Gradients by primal, and what the next piece gets. What is saved dies behind its last reader,
  // where nobody else holds it.
  Tensors run(const Which& which, Given given);
  // The same of gradients that a vmap has batched, one by one.
  Tensors run_batch(const Which& which, const Given& given);
  const autograd::Piece& piece(Range pieces);
  Which which(Range pieces, const Tensors& tangents, const std::vector<bool>& asked);
  ir::Graph graph_for(const Which& which, const autograd::Piece& of) const;
  const std::vector<bool>& reads_of(const Which& which);
  // By result: what a backward from it reads of what is saved.
  const std::vector<std::vector<bool>>& reads_by_result();
  Runnable plan_for(const Which& which, std::span<const Input> inputs);
  bool is_one_of_many(const Which& which);
  // Which::layouts of these; those that no plan is made for are laid out as their results.
  std::vector<autograd::TangentLayout> layouts_of(const Which& which, Tensors& tangents,
                                                  std::span<const Strides> strides);
  void note_run(const Which& which);
  Runnable plan_or_ops(Which& which, std::span<const Input> inputs);
  void go_by_ops(Which& which, const std::string& why);
  std::shared_ptr<std::recursive_mutex> graphs();

  const ir::Graph backward_;
  const std::vector<autograd::Saved> saved_;
  const size_t results_;                  // outputs of the forward that the caller gets
  const std::vector<uint32_t> rank_;      // by primal: in which order eager's engine comes to it
  const std::vector<uint32_t> rooted_;    // outputs that the first tangents are gradients by
  const std::vector<uint32_t> views_;     // Gradients::views
  const std::vector<std::string> names_;  // Gradients::names
  const std::vector<std::vector<Gradients::Dim>> orders_;  // by primal: Gradients::orders
  const std::vector<bool> read_as_is_;  // by primal, and behind them by result: Gradients::read
  // By result: those that gradients come to it from.
  const std::vector<ResultSet> behind_;
  std::vector<uint32_t> written_;  // inputs that the others are
  std::optional<autograd::BackwardCut> cut_;
  BackwardNodes nodes_;
  std::vector<std::vector<KeptBehind>> kept_;  // by piece; see ReachedResults
  // By piece: the results that come to it, unless others stand for them. Empty: all do.
  std::vector<ResultSet> come_straight_;
  std::vector<uint32_t> read_;  // inputs of the backward that some piece reads
  const bool strict_;
  const Make make_;
  const std::unique_ptr<GradientFunction> with_history_;  // for create_graph
  std::vector<uint32_t> unsaved_;                         // primals that only it may read
  std::vector<uint32_t> writes_;  // by primal: how often the forward writes to it
  ForkMutex mutex_;
  // Held while graphs are cut or compiled, which share one pool of symbols: for so long that no
  // fork waits for it. Another one in a forked process.
  std::shared_ptr<std::recursive_mutex> graphs_ = std::make_shared<std::recursive_mutex>();
  int forks_ = ForkMutex::forks();
  std::map<Range, autograd::Piece> pieces_;
  std::map<Which, Plan> plans_;
  std::vector<std::vector<bool>> reads_by_result_;
};

}  // namespace oxy::bridge
