// The list: an ATen graph to a Plan. The one file that knows every stage, in order, timed and
// shown.
#pragma once

#include <functional>
#include <span>

#include "ir/graph.h"
#include "jit/compiler.h"
#include "pipeline/trace.h"
#include "runtime/code_table.h"
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

// What the setting `freezing` needs of whoever runs the plan. The plan's attributes are then the
// graph's, and behind them what `evaluate` was called for: the outputs of a graph on the same
// inputs and attributes.
struct Freezing {
  std::vector<bool> inputs;  // that count as constants
  std::function<void(ir::Graph constants)> evaluate;
};

// A plan and the code that it names.
struct Compiled {
  runtime::Plan plan;
  runtime::CodeTable code;
};

// The code of each text. Equal texts are compiled once.
runtime::CodeTable compile_texts(const std::vector<std::string>& texts, const Settings& settings,
                                 jit::Compiler& compiler);

// `compiler` may be null: then every op is an extern call. Throws InternalError or Unsupported.
Compiled compile(ir::Graph aten, const Settings& settings, jit::Compiler* compiler, Trace& trace,
                 Report& report, std::span<const UserPass> user_passes = {},
                 const Freezing* freezing = nullptr);
// What the steps of a plan are.
void count_steps(const runtime::Plan& plan, Report& report);

}  // namespace oxy::pipeline
