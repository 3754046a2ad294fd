// Who writes and reads each buffer of a program, and which buffers somebody besides its loops needs
// in memory.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::schedule {

using loops::BufferId;

struct BufferUses {
  std::vector<int32_t> writer;  // by buffer: the step, or -1
  std::vector<std::vector<uint32_t>>
      readers;                // by buffer: loop steps that load it, in order, each once
  std::vector<bool> updated;  // by buffer: folded into after it was written
  std::vector<bool>
      pinned;  // read by an extern step, the caller, or a mutation; not made by a loop
};

BufferUses buffer_uses(const loops::Program& p);

// Steps that the program needs: drops loops whose results nobody reads.
void remove_dead_loops(loops::Program& p);

}  // namespace oxy::schedule
