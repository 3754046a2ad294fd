// The list: an ATen graph to a Plan. The one file that knows every stage, in order, timed and
// shown.
#pragma once

#include <map>
#include <span>

#include "ir/graph.h"
#include "jit/compiler.h"
#include "pipeline/trace.h"
#include "runtime/code_table.h"
#include "runtime/plan.h"
#include "support/machine.h"
#include "support/settings.h"
#include "symbolic/facts.h"

namespace oxy::pipeline {

// What a compilation came to.
struct Report {
  int kernels = 0;       // distinct ones compiled
  int kernel_calls = 0;  // kernel steps of the plan
  int extern_calls = 0;
  bool exact = false;     // loops::is_exact
  bool iterated = false;  // loops::has_iterated
  // The strides of the outputs that may have any (ir::OutputSpec::any_layout).
  std::map<size_t, std::vector<sym::Expr>> layouts = {};
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

// The host, as far as the settings want it used.
Machine machine_of(const Settings& settings);

// `compiler` may be null: then every op is an extern call. `facts`: what the graph's symbols are
// known to fulfil, over its pool. Throws InternalError or Unsupported.
Compiled compile(ir::Graph aten, const Settings& settings, jit::Compiler* compiler, Trace& trace,
                 Report& report, std::span<const UserPass> user_passes = {},
                 const Freezing* freezing = nullptr, const sym::ShapeFacts* facts = nullptr);
// What the steps of a plan are.
void count_steps(const runtime::Plan& plan, Report& report);

// The compiler that the settings ask for (`compiler`, `cxx`), the same one for equal settings; null
// where there is none, then `why` says so. `folder`: where the Clang library lies. Any thread may
// call it.
std::shared_ptr<jit::Compiler> compiler_for(const Settings& settings, const std::string& folder,
                                            std::string& why);

// Plans as files of one machine: saved with its name, and compiled from their texts where they are
// loaded. What kernels' texts depend on: the width of vectors, the instruction sets that vectors
// of this width are made of and those whose instructions the texts have by name, as print(Machine)
// calls them: "vectors 64, avx2, avx512".
std::string machine_name(const runtime::CodeTable& code = {});
std::string save_plan(const runtime::Plan& plan, const runtime::CodeTable& code);
// `compiler`: gives the compiler where there are kernels, or throws. UserError where the bytes are
// no plan, or one of another machine.
Compiled load_plan(std::string_view bytes, const Settings& settings,
                   const std::function<std::shared_ptr<jit::Compiler>()>& compiler);

}  // namespace oxy::pipeline
