// The passes from loops to a schedule, each by name, and how lists of them are run.
//
// What is true for every device is here, in three parts; a device's own passes stand between them
// (cpu/pass_list.h).
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "schedule/fuse_nests.h"
#include "support/timing.h"

namespace oxy::schedule {

// How a kernel came about: what a device's passes on kernels choose by.
enum class KernelForm : uint8_t { Loops = 1, Scan = 2, Scatter = 4, Epilogue = 8 };

// What the passes work on: a program, from make_units on its units, from the device's kernels on
// these and the steps.
struct Draft {
  Schedule schedule;
  ScheduleOptions options;
  std::vector<ScheduledUnit> units;
  std::vector<KernelForm> forms;  // by kernel, until steps are reordered
};

struct Pass {
  std::string_view name;
  void (*run)(Draft&);
  std::string_view reason;  // for its place
  bool required = false;    // cannot be left out
};

std::span<const Pass> program_passes();  // Program to units
std::span<const Pass> step_passes();     // kernels and steps, when both are there
std::span<const Pass> memory_passes();   // when they are final

struct RunOptions {
  bool verify = false;           // after each pass; an InternalError names it
  Timeline* timeline = nullptr;  // gets a phase a pass
  std::function<bool(std::string_view name)> disabled;  // passes to leave out; empty: none
  std::function<void(const Pass&, const Draft&)> after;
};
void run_passes(Draft& d, std::span<const Pass> passes, const RunOptions& options);

// The draft as it is: a program, nests and extern steps, or a schedule.
std::string print(const Draft& d);
void verify(const Draft& d);

}  // namespace oxy::schedule
