// The last step of a compilation: Schedule and kernel texts to a Plan.
//
// Buffers keep their numbers. A contraction becomes what its provider is called by: a kernel whose
// parameters are its sizes, or an extern call.
#pragma once

#include "codegen/cpp/emit.h"
#include "runtime/plan.h"
#include "schedule/schedule.h"
#include "symbolic/facts.h"

namespace oxy::pipeline {

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
// `numbers`, `checks`: as of PlanWriter.
Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const Machine& machine, const std::vector<bool>& frozen = {},
                  RegionPlans regions = {}, std::span<const sym::Expr> numbers = {},
                  std::span<const sym::ShapeFacts::Fact> checks = {});

// The Plan in which every node of an ATen graph is an extern call: no kernel, no arena. What runs
// when kernels are switched off, and the yardstick that tells an error of the recording from an
// error of a kernel.
runtime::Plan make_extern_plan(const ir::Graph& aten, std::span<const sym::Expr> numbers = {},
                               std::span<const sym::ShapeFacts::Fact> checks = {});

}  // namespace oxy::pipeline
