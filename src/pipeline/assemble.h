// The last step of a compilation: Schedule and kernel texts to a Plan.
//
// Buffers keep their numbers. A contraction becomes what its provider is called by: a kernel whose
// parameters are its sizes, or an extern call.
#pragma once

#include <unordered_map>

#include "codegen/cpp/emit.h"
#include "runtime/plan.h"
#include "schedule/schedule.h"

namespace oxy::pipeline {

// A kernel of the plan as it is added.
struct KernelSource {
  std::string name;
  std::string text;
  sym::Expr range = 1, scratch_bytes = 0;
  int64_t grain = 1, moved_bytes = 0;
  std::vector<sym::Expr> parameters;
};

struct KernelText {
  std::string name, text;
};

struct Assembly {
  runtime::Plan plan;
  std::vector<KernelText> texts;  // one a plan kernel
};
// By node of the graph: the plans of its regions.
using RegionPlans = std::unordered_map<uint32_t, std::vector<runtime::Plan>>;
// `frozen`: by input, whether it counts as a constant; where there are any, attributes do too.
Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const Machine& machine, const std::vector<bool>& frozen = {},
                  RegionPlans regions = {});
// What runs the regions of a node: its plans go to `plan`. Unsupported for a node that no plan can
// run.
runtime::RegionStep region_step(const ir::Node& n, std::vector<runtime::Plan> regions,
                                runtime::Plan& plan);

}  // namespace oxy::pipeline
