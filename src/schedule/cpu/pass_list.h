// The whole way from a program to a schedule for the CPU: the passes of every device
// (schedule/pass_list.h) with the CPU's own between them.
#pragma once

#include "schedule/pass_list.h"

namespace oxy::schedule {

// All in order.
std::span<const Pass> cpu_passes();

Schedule make_schedule(loops::Program program, const ScheduleOptions& options,
                       const RunOptions& run = {});

// Groups to kernels: the order of their loops, and statements in them.
void make_kernels(Draft& d);

// A short Serial loop around a Vector loop that steps over what lies along the short one (pieces of
// a stack, pixels that are repeated): its iterations become statements side by side in the Vector
// loop, so that what is stored to neighbours is stored together. So do those of a Vector loop that
// divides its variable by a small constant (even and odd places).
void interleave_rows(Kernel& k, loops::Variables& variables);

// Index set splitting: a Vector loop in which the loop's variable is compared with constants (the
// pieces of a concatenation, the edges of a padding, a slice that is written), or in which an index
// wraps around once (a roll), becomes one loop for each range between them. In a range the
// comparisons are known: masked loads become plain ones or go, and with them what they alone were
// for. So are those of constants.
void split_ranges(Kernel& k, loops::Variables& variables);

// Strip-mines a loop of vectors whose variable is divided by a size: the strips are the runs of
// iterations with one quotient, so that no lane divides and what lies together in memory is loaded
// together.
void strip_mine(Kernel& k, loops::Variables& variables);

// Unroll and jam of a loop around vectors whose iterations compute most alike: the channels of an
// image that is sampled at computed places find the places and weights once for a few of them.
void share_invariants(Kernel& k, loops::Variables& variables, const ScheduleOptions& options);

// Rows that are only reduced, several at a time: a kernel that reads one row after the other is one
// stream of memory, which a core alone does not fill the bus with; four rows are four streams.
// After emission, since the statements of neighbouring iterations are what is interleaved. Buffers
// of at least options.large_bytes() are worth it.
void unroll_and_jam(Kernel& k, loops::Variables& variables, const ScheduleOptions& options);

// What differs by lane only is computed once for all rows: a Vector loop inside of Serial loops
// that computes the same for each row (where upsampling reads a row, with which weights) finds it
// in a local buffer, which a loop in front of the rows fills.
void make_lane_tables(Kernel& k, const ScheduleOptions& options);

// Marks the stores of a kernel to large buffers that it only writes: they go past the cache.
void stream_stores(Kernel& k, const ScheduleOptions& options);
// Buffers that a later kernel adds to do not stream, unless they are much larger than the cache: it
// reads them again. When kernels are final.
void keep_what_is_changed(std::vector<Kernel>& kernels, const ScheduleOptions& options);

// Prefetches memory before it is needed, where a kernel streams through large buffers: of at least
// options.large_bytes(). After all that moves or merges statements.
//
// An iteration of one loop prefetches a little ahead of its loads: the machine's own prefetchers
// stop at the end of a page. An iteration of several loops (softmax: the row is loaded, then worked
// on in the cache) prefetches in those behind the first one what the first loop of the next
// iteration will load, so that memory has no pause. Rows at loaded indices are prefetched by the
// iteration before, which loads the next index, and their ends touched by the one before that (the
// last iterations: their own again). Loops that only read prefetch where the machine gains by it
// (tuning::prefetches_reads).
void prefetch(Kernel& k, loops::Variables& variables, const ScheduleOptions& options);

}  // namespace oxy::schedule
