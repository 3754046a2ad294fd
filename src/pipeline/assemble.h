// The last step of a compilation: Schedule and compiled kernels to a Plan, with every size known.
//
// Buffers keep their numbers. A contraction becomes what its provider is called by: a kernel whose parameters are
// its sizes, or an extern call.
#pragma once

#include "codegen/cpp/emit.h"
#include "jit/compiler.h"
#include "runtime/plan.h"
#include "schedule/schedule.h"

namespace oxy::pipeline {

// A kernel of the plan before it is compiled.
struct KernelSource {
  std::string name;
  std::string text;
  int64_t range = 1, grain = 1, scratch_bytes = 0, moved_bytes = 0;
  std::vector<int64_t> parameters;
};

struct Assembly {
  runtime::Plan plan;                 // its kernels lack their code
  std::vector<KernelSource> sources;  // one a plan kernel
};
// `frozen`: by input, whether it counts as a constant; where there are any, attributes do too.
Assembly assemble(const ir::Graph& graph, const schedule::Schedule& schedule,
                  const codegen::cpp::Target& target, const std::vector<bool>& frozen = {});

}  // namespace oxy::pipeline
