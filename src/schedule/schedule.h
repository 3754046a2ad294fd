// The Schedule: pure data that says what runs, in which order, and where its memory lies.
#pragma once

#include <optional>

#include "schedule/kernel.h"
#include "support/tuning.h"

namespace oxy::schedule {

struct KernelCall {
  uint32_t kernel = 0;
};  // entry of Schedule::kernels
struct ExternCall {
  loops::ExternStep step;
};
struct ContractionCall {
  loops::ContractionStep step;
  std::optional<uint32_t> epilogue;  // entry of Schedule::kernels, see epilogues.h
};
struct Free {
  BufferId buffer;
};  // an Extern buffer's last use is over
using ScheduledStep = std::variant<KernelCall, ExternCall, ContractionCall, Free>;
// The step as a call of what is no kernel of loops; null where it is something else.
const loops::Call* call_of(const ScheduledStep& s);
loops::Call* call_of(ScheduledStep& s);

// Where a Temp buffer lies in the arena (bytes), and the arena's size. Offsets are multiples of 64.
struct MemoryPlan {
  std::unordered_map<BufferId, Expr> offset;
  Expr arena_bytes = 0;
};

// Why two steps are not one kernel: for the `fusion` log.
struct FusionNote {
  std::string first, second, reason;
};

struct Schedule {
  loops::Program
      program;  // buffers; its steps are what was not fused into kernels yet (pre-fusion text kept)
  std::vector<Kernel> kernels;
  std::vector<ScheduledStep> steps;
  MemoryPlan memory;
  std::vector<FusionNote> notes;
  // Writes of a mutated input that a kernel may make in place, since the old value is dead and
  // nothing after it raises.
  std::vector<std::pair<uint32_t, BufferId>>
      in_place;  // input, the buffer that holds its new value
};

struct ScheduleOptions {
  Machine machine;
  bool epilogues = false;  // of gemms of our own (codegen/cpp/gemm.h)
  bool streaming = true;   // past the cache

  // Buffers of at least so many bytes go through memory.
  int64_t large_bytes() const { return streaming ? tuning::last_level_bytes(machine) : INT64_MAX; }
};

// Text of the whole (the `schedule` log artefact).
std::string print(const Schedule& s);

}  // namespace oxy::schedule
