// The Plan in which every node of an ATen graph is an extern call: no kernel, no arena. What runs
// when kernels are switched off, and the yardstick that tells an error of the recording from an
// error of a kernel.
#pragma once

#include "ir/graph.h"
#include "runtime/plan.h"

namespace oxy::pipeline {

runtime::Plan make_extern_plan(const ir::Graph& aten);

}  // namespace oxy::pipeline
