// From a recorded graph to what runs it: what is frozen, the passes of the user's, code, the choice
// among several ways.
#pragma once

#include "pipeline/pipeline.h"
#include "torch_bridge/backward.h"

namespace oxy::bridge {

// A recording as it is compiled. What it refers to lives as long as it does.
struct Recorded {
  const ir::Graph& graph;
  const std::vector<at::Tensor>& attributes;  // behind the graph's attributes
  std::span<const Input> example;             // of the call that was recorded
  const std::vector<bool>&
      module_state;  // by input: a parameter or buffer of a module; may be shorter
  std::span<const pipeline::UserPass> passes;
  std::function<void()> restart;  // puts back what the passes of the user's have changed
  // Of a recording with symbolic sizes: what they are known to fulfil.
  std::shared_ptr<const sym::ShapeFacts> facts = nullptr;
  bool names_places = false;                              // Recorder::names_places
  Gradients gradients = {};                               // of a joint graph
  std::optional<autograd::GradientBuckets> buckets = {};  // that the backward is cut for
};

class ExecutableMaker {
 public:
  // `folder`: where the Clang library lies.
  ExecutableMaker(const Settings& settings, std::string folder)
      : settings_(settings), folder_(std::move(folder)) {}

  struct Made {
    std::unique_ptr<Executable> executable;
    pipeline::Report report;
    std::string choices;  // of mode max-autotune: a row for each way that was tried
  };
  // Throws InternalError or Unsupported.
  Made make(const Recorded& recorded, pipeline::Trace& trace) const;
  // From what pipeline::save_plan wrote; UserError where it is no plan for this machine.
  pipeline::Compiled load(std::string_view saved) const;
  // `own_attributes`: how many of the attributes are the graph's, where the rest was made from
  // constants.
  Made bind(pipeline::Compiled compiled, std::vector<at::Tensor> attributes,
            std::span<const Input> example, std::optional<size_t> own_attributes) const;

 private:
  Made make_with(const Recorded& recorded, const Settings& settings, pipeline::Trace& trace) const;
  Made by_ops(const Recorded& recorded, const Settings& settings) const;
  Made make_differentiable(const Recorded& recorded, const Settings& settings,
                           pipeline::Trace& trace) const;
  Backward::Make backward_maker(const Recorded& recorded, const Settings& settings) const;
  Made fastest(const Recorded& recorded, pipeline::Trace& trace) const;

  const Settings& settings_;
  const std::string folder_;
};

// A row a kernel step: the memory that it moves, its best time in a few runs, and what part of the
// speed of a copy that is.
std::string bandwidth_text(Executable& executable, std::span<const Input> inputs);

}  // namespace oxy::bridge
