// The list: an ATen graph to a Plan. The one file that knows every pass, in order, timed and logged.
#pragma once

#include "runtime/plan.h"
#include "support/settings.h"

namespace oxy::pipeline {

// What a compilation did, for stats() and the logs.
struct Report {
  int kernels = 0;
  int extern_calls = 0;
};

// `compiler` may be null: then every op is an extern call.
runtime::Plan compile(ir::Graph aten, const Settings& settings, jit::Compiler* compiler, Report& report);

}  // namespace oxy::pipeline
