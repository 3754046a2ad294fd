// The list: an ATen graph to a Plan. The one file that knows every stage, in order, timed and shown.
#pragma once

#include <functional>
#include <span>

#include "jit/compiler.h"
#include "pipeline/trace.h"
#include "runtime/plan.h"
#include "support/settings.h"

namespace oxy::pipeline {

// What a compilation came to.
struct Report {
  int kernels = 0;       // distinct ones compiled
  int kernel_calls = 0;  // kernel steps of the plan
  int extern_calls = 0;
};

// A pass from outside: in front of all others, or behind them.
struct UserPass {
  std::string name;
  bool in_front = true;
  std::function<void(ir::Graph&)> run;
};

// What the setting `freezing` needs of whoever runs the plan. The plan's attributes are then the graph's, and behind them
// what `evaluate` was called for: the outputs of a graph on the same inputs and attributes.
struct Freezing {
  std::vector<bool> inputs;  // that count as constants
  std::function<void(ir::Graph constants)> evaluate;
};

// `compiler` may be null: then every op is an extern call. Throws InternalError or Unsupported.
runtime::Plan compile(ir::Graph aten, const Settings& settings, jit::Compiler* compiler,
                      Trace& trace, Report& report, std::span<const UserPass> user_passes = {},
                      const Freezing* freezing = nullptr);

}  // namespace oxy::pipeline
