// How fast this machine copies memory: what the time of kernels is compared with.
#pragma once

#include "runtime/host.h"
#include "runtime/plan.h"

namespace oxy::runtime {

// Bytes read and written a second by a copy of 128 MB on all threads; measured once in a process,
// the best of several.
double copy_bandwidth(const Host& host);
// Of a single copy, now: for benchmarks, which take the median as they do of the calls that they
// time. Keeps its memory.
double copy_once(const Host& host);

// A table of the kernel steps of a plan: memory moved, time, and the part of the bandwidth `copy`
// that this is. `seconds`: by kernel step, 0 of those that had nothing to do.
std::string bandwidth_text(const Plan& plan, std::span<const double> seconds, double copy);

}  // namespace oxy::runtime
