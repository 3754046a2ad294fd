// A plan with what Python needs around it: the form of the result that the caller expects.
#pragma once

#include <memory>

#include "pipeline/pipeline.h"
#include "python/result_tree.h"
#include "torch_bridge/execute.h"

namespace oxy::python {

struct CompiledPlan {
  CompiledPlan(pipeline::Compiled made, std::vector<at::Tensor> attributes,
               std::span<const bridge::Input> example, bridge::Executable::Options options,
               ResultTree result)
      : executable(std::move(made.plan), std::move(made.code), std::move(attributes), example,
                   options),
        result(std::move(result)) {
    const ResultTree& r = this->result;
    flat = r.kind == ResultTree::Kind::Tuple || r.kind == ResultTree::Kind::List;
    for (size_t i = 0; flat && i < r.items.size(); i++) {
      flat = r.items[i].kind == ResultTree::Kind::Output;
    }
  }

  bridge::Executable executable;
  ResultTree result;
  pipeline::Report report;
  bool flat = false;  // a tuple or list of outputs: the usual case, built without the tree's help
};

}  // namespace oxy::python
