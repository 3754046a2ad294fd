// From a group to its kernel: which axes are parallel, which each phase of an iteration walks by
// itself, in which order, and where axes are merged or cut; then the statements in these loops.
//
// Elementwise groups: contiguous axes merge; a long axis is cut into chunks, so that a kernel has
// few parallel iterations with substantial work; memory walked in two directions is walked in
// square tiles. Groups with rows: the parallel axes stay, each nest walks its own axes inside the
// iteration; short rows that are stored in columns, or whose results are dear, are taken several at
// a time. Groups with columns: the contiguous parallel axis is cut into tiles; a reduction keeps
// one accumulator a column in a local buffer and walks its rows around the loop over the tile, so
// that memory is read as it lies.
#pragma once

#include <algorithm>

#include "schedule/nest.h"
#include "schedule/schedule.h"

namespace oxy::schedule {

struct PhaseAxis {
  Expr var, size;
  ForKind kind = ForKind::Serial;
  bool tiled = false;
};

// Nests that share one loop nest inside a parallel iteration.
struct Phase {
  std::vector<PhaseAxis> axes;  // outermost first
  std::vector<Nest> nests;
};

struct Arrangement {
  std::vector<Axis> parallel;
  std::vector<Phase> phases;
  std::unordered_map<BufferId, Expr> locals;  // buffers of one iteration and their elements
};

// `needed` says which buffers must be in memory after the kernel. Adds local buffers to the
// program.
Arrangement arrange_loops(loops::Program& p, Group g, const std::vector<bool>& needed,
                          const ScheduleOptions& options);

// A matrix in row-major order that is finished block by block: some rows of one panel of columns.
struct Panels {
  BufferId matrix;
  Expr columns = 0;
  int64_t width = 0;
};

// The group, which is elementwise over the matrix: a parallel iteration is one row of one panel, so
// that the iterations of a block follow each other. First the parallel loops over panels,
// `panel_loops` of them, then those over rows. Nothing where the group does not walk the columns
// so.
struct PanelArrangement {
  Arrangement loops;
  uint32_t panel_loops = 0;
};
std::optional<PanelArrangement> arrange_panels(loops::Program& p, Group g,
                                               const std::vector<bool>& needed,
                                               const ScheduleOptions& options,
                                               const Panels& panels);

// Whether a nest stores outside of all loops inside the iteration, but for what it folds.
inline bool in_no_loop(const Nest& n, const std::vector<Axis>& parallel) {
  return std::ranges::all_of(
      n.axes, [&](const Axis& a) { return a.reduction || has_axis(parallel, a.var); });
}

// The order inside one parallel iteration: nests with the same private axes share a loop nest (a
// phase) where no value that one needs is complete only after the other's loop. Phases in order;
// their axes are not set yet.
std::vector<Phase> make_phases(std::vector<Nest> nests, const std::vector<Axis>& parallel);

// Buffers that only one kernel writes and reads need no place in memory: they become values, where
// each reader stands in the writer's loop (or the writer in none), or local to a parallel
// iteration, where what one iteration writes fits the cache. After the phases are known, before
// loops are merged.
//
// Fills Arrangement::locals and rewrites the indices of the local buffers. Values need no mark: the
// emitter forwards a stored value to a load at the same index, and drops stores that nobody loads.
void localise_buffers(const loops::Program& p, Arrangement& a, const std::vector<bool>& needed,
                      int64_t cache_bytes);

// Statements at the outermost loop that knows their operands, equal ones once, stored values handed
// to the loads of the same element.
Kernel emit_kernel(const loops::Program& p, const Arrangement& a, const std::vector<bool>& needed,
                   std::string name);

}  // namespace oxy::schedule
