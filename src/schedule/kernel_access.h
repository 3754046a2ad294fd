// How a kernel walks two of its buffers: what decides whether they may be one memory; and what it
// takes from outside.
#pragma once

#include <functional>

#include "schedule/kernel.h"

namespace oxy::schedule {

// Calls f on every statement of the kernel, in order; `path` holds the loops around it, outermost
// first.
using Path = std::vector<const For*>;
void for_each_compute(const Kernel& k, const std::function<void(const Compute&, const Path&)>& f);

// Symbols that nothing in the kernel gives a value, in the order in which it meets them: its
// parameters.
std::vector<Expr> free_symbols(const Kernel& k);
bool has_check(const Kernel& k);  // may stop with a status
// The entry of a buffer, or -1.
int32_t entry_of(const Kernel& k, loops::BufferId b);
// How many Store statements write the entry; StoreAdd counts as many.
int store_count(const Kernel& k, uint32_t entry);

// Whether the written entry may lie in the memory of the read one: each element of `read` is loaded
// before the element of `written` at its place is stored, by the same Parallel iteration, and no
// other iteration loads it. Also true where the kernel does not load `read`, as long as one Store
// alone writes `written`.
bool may_overwrite(const Kernel& k, int32_t read, uint32_t written);

// Makes `written` the same memory as `b`: of the entry `read` where the kernel has one (-1: it has
// none).
void merge_entries(Kernel& k, int32_t read, uint32_t written, loops::BufferId b,
                   const std::string& name);

}  // namespace oxy::schedule
