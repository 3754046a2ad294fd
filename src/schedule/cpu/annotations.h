// The words that the CPU's passes leave on kernels for codegen/cpp.
#pragma once

#include "schedule/kernel.h"
#include "support/tuning.h"

namespace oxy::schedule {

// Size of a tiled Vector loop that has a Serial loop inside: rows that are scanned side by side.
inline constexpr int kRowLanes = tuning::row_lanes;

// On a Vector loop. Tile of a 2-D transposition: this loop and the For around it run as squares, so
// that loads contiguous in the other variable are transposed in registers. Where a Serial loop
// stands in it (a scan, whose rows are the lanes), what is contiguous in that loop's variable is,
// loads and stores.
inline constexpr std::string_view kTiled = "tiled";
inline bool is_tiled(const For& f) { return f.annotations.get(kTiled) != 0; }

// On a Store: large and not read again soon, so it goes past the cache.
inline constexpr std::string_view kStreaming = "streaming";
inline bool is_streaming(const Compute& c) { return c.annotations.get(kStreaming) != 0; }

// On a kernel that is an epilogue (epilogues.h): the outer so many of its Parallel loops run over
// panels of columns, the others over rows; and the matrix whose finished blocks it takes, as 1 +
// its number.
inline constexpr std::string_view kPanelLoops = "panel_loops", kEpilogueOf = "epilogue_of";
inline bool is_epilogue(const Kernel& k) { return k.annotations.get(kEpilogueOf) != 0; }
inline BufferId epilogue_of(const Kernel& k) {
  return is_epilogue(k) ? BufferId(k.annotations.get(kEpilogueOf) - 1) : BufferId();
}

// The word of a Hint: the element will be read, and its line may be asked for.
inline constexpr std::string_view kPrefetch = "prefetch";

// What is true of a CPU's kernels beyond `verify`: known words at their places, loops inside of
// vectors only in tiles.
void verify_annotations(const Kernel& k);

}  // namespace oxy::schedule
