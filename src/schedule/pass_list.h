// The passes from loops to a schedule, each by name, and how lists of them are run.
//
// What is true for every device is here, in three parts; a device's own passes stand between them
// (cpu/pass_list.h).
#pragma once

#include <span>

#include "schedule/nest.h"
#include "schedule/schedule.h"
#include "support/timing.h"

namespace oxy::schedule {

// What fusion works on: one group of nests or one call, in program order.
struct ScheduledUnit {
  std::vector<Group> group;         // one, or none for a call
  std::vector<ScheduledStep> call;  // the other way round
};

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

// Extern copies that are loops after all: aten.copy of a value into the layout of a slice is
// refused by the op's loop rule, since its result would be a strided view of memory that nobody
// else has; ATen clones all of the memory around the slice for it. Where only loops read the
// result, no layout is seen, and it is a loop over the elements.
void copies_to_loops(loops::Program& p);

// Puts elementwise producers into the loops that read them, with the index substituted: fusion then
// sees fewer and larger loops, and whatever joined here needs no memory.
//
// A producer goes in where that repeats little work: all its readers end up in one loop, or it is
// cheap. It stays where somebody needs it in memory, or where a costly value would be computed
// again for every element of a broadcast (a value for each row is fine: it is hoisted out of the
// loop over the row).
void inline_loops(loops::Program& p);

// Drops loops whose results nobody reads.
void remove_dead_loops(loops::Program& p);

// The steps of the program one by one: loops flat, extern steps as they are. Loops that write
// nothing are left out; a reduction of nothing is a constant.
void make_units(Draft& d);

// Cuts reductions that have too few results to keep all threads busy into parts: one loop folds
// each part into a partial result, a second one folds the partial results. After inlining (what is
// folded is known) and before fusion (either loop may join others). The number of parts depends on
// the shape only, so results do not vary with threads. Reductions of a few elements with many
// results become loops without one.
void split_reductions(Draft& d);

// Which loops become one kernel.
//
// Nests of a group run together at each iteration of its parallel axes; what is not common (the
// columns of a row that one nest folds and the next one rescales) each nest walks by itself inside
// the iteration. Two groups merge where that is right (no step between them must run in the middle;
// at a parallel iteration each reads only what the other wrote at the same iteration) and pays
// (they share memory traffic, enough parallel iterations remain, and they walk memory in the same
// direction). Only neighbours are tried: producer and consumer, and readers of one buffer. Axes of
// merged groups get common names among the program's variables.
void fuse_nests(Draft& d);

// Pieces that an extern call of aten.cat or aten.stack lays side by side (a loop reads few of them,
// see ops/indexing.cpp), where one group writes all of them and nobody else reads one: the group
// writes them where they end up. The memory of the result becomes ours, and the call is gone.
void place_pieces(Draft& d);

// Writes mutated inputs where they lie, instead of into a temporary that is copied at the commit
// point. Fills Schedule::in_place; steps may be reordered and kernels divided.
//
// Right where the old value is dead (nobody but the writing kernel reads it from there on, and that
// one reads each element before it writes it), and where nothing after the write can raise: extern
// calls and kernels that check indices can, so the writing kernel moves behind them where
// dependences allow. Other inputs in the same memory do not occur: recording refuses them and a
// plan's signature guards that. Where only a part of the input changes, the kernel writes no more
// than that part. What kernels behind it check that read the new value is checked in front of it.
void write_in_place(Schedule& s);

// Where the Temp buffers lie in the arena. Best fit by lifetime: a buffer takes the smallest gap
// among the buffers alive with it. One whose kernel reads another of its size for the last time,
// each element before it writes it, takes that one's place, and where only a part of it differs the
// kernel writes no more than that part. Temps that no step touches get no place.
void plan_memory(Schedule& s);
// Puts a Free after the last use of each Extern buffer that does not escape.
void insert_frees(Schedule& s);

}  // namespace oxy::schedule
