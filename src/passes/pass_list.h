// The passes on ATen graphs: each by name, and the list in which a compilation runs them.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/machine.h"
#include "support/timing.h"

namespace oxy::passes {

struct Pass {
  std::string_view name;
  bool (*run)(ir::Graph&, const Machine&);  // says whether it changed the graph
  std::string_view comment;
};

// Every pass once, sorted by name.
std::span<const Pass> all_passes();
// UserError that lists the known names.
const Pass& find_pass(std::string_view name);

// What a compilation runs, in this order.
std::span<const Pass> standard_passes();

struct RunOptions {
  Machine machine;
  bool verify = true;                       // after each pass; an InternalError names the pass
  Timeline* timeline = nullptr;             // gets a phase a pass
  std::function<bool(const Pass&)> wanted;  // which passes of the list run; empty: all
  // Called after each pass, for timing and dumps.
  std::function<void(const Pass&, const ir::Graph&, bool changed, double seconds)> after;
};
// Runs the passes in order, each on every region inside of the graph and then on the graph; says
// whether one of them changed the graph.
bool run_passes(ir::Graph& g, std::span<const Pass> passes, const RunOptions& options = {});

}  // namespace oxy::passes
