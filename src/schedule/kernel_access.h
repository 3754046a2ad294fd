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

// The Parallel loops around an iteration, outermost first: nothing stands beside one.
std::vector<For*> parallel_loops(Kernel& k);

// Symbols that nothing in the kernel gives a value, in the order in which it meets them: its
// parameters.
std::vector<Expr> free_symbols(const Kernel& k);
bool has_check(const Kernel& k);  // may stop with a status
// The entry of a buffer, or -1.
int32_t entry_of(const Kernel& k, BufferId b);
// An entry for a buffer of the program.
KernelBuffer make_entry(const loops::Program& p, BufferId b, KernelBuffer::Kind kind);
// How many Store statements write the entry; StoreAdd counts as many.
int store_count(const Kernel& k, uint32_t entry);

// The places of an index that is linear in the loops around it, all of constant size: `first` and a
// multiple of each stride.
struct Places {
  int64_t first = 0;
  struct Term {
    int64_t stride = 0, count = 0;  // 0, stride ... (count - 1) * stride
  };
  std::vector<Term> terms;
};
std::optional<Places> places_of(Expr index, const Path& path);
// What a comparison comes to where the difference of its operands lies between these, included.
std::optional<bool> compared(LoopOp op, int64_t least, int64_t most);
// Of a loop over tiles and one inside of it, as long as a tile or what is left: the size of a tile,
// and of all of them.
std::optional<std::pair<int64_t, Expr>> tile_of(const For& outer, const For& inner);
// No place is in both.
bool never_meet(const std::optional<Places>& a, const std::optional<Places>& b);

// Whether the written entry may lie in the memory of the read one: each element of `read` is loaded
// before the element of `written` at its place is stored, by the same Parallel iteration, and no
// other iteration loads it. Also true where the kernel does not load `read`, as long as one Store
// alone writes `written`, or two that write the parts of complex numbers.
bool may_overwrite(const Kernel& k, int32_t read, uint32_t written);

// Makes `written` the same memory as `b`: of the entry `read` where the kernel has one (-1: it has
// none).
void merge_entries(Kernel& k, int32_t read, uint32_t written, BufferId b, const std::string& name);

// Entries that nothing touches any more go; the others say anew how they are used, and the kernel
// what it costs.
void tidy(Kernel& k);

// Kernels that write all of a buffer although they change only a part of it: a slice assignment,
// functionalised, is "the new slice inside, the old value elsewhere".
struct ChangedPart {
  // Store nothing but the changed elements of `written`, each its own: in this order, but for what
  // some read, which others have written by then.
  std::vector<Kernel> parts;
  std::vector<bool> reads_written;  // by part
  std::optional<Kernel> rest;       // what else the kernel stores; runs first
};

// Cuts the kernel, where what it stores to `written` is the element of `old` at the same place but
// for a few boxes of elements. Run after `rest`, and with `written` in the memory of `old`, the
// parts have the same effect.
std::optional<ChangedPart> changed_part(const Kernel& k, loops::Variables& variables, uint32_t old,
                                        uint32_t written);

// How many elements lie from the first to the last one that the kernel's only store to `written`
// writes; nothing where that is not known.
std::optional<int64_t> extent_of_store(const Kernel& k, uint32_t written);
// The kernel with that store to another buffer, of so many elements, and one that copies from
// there.
std::pair<Kernel, Kernel> stage(const Kernel& k, uint32_t written, const KernelBuffer& buffer);

// What a kernel checks and nothing else: run before it, the kernel needs no checks of its own.
// Nothing where it has none.
std::optional<Kernel> checks_of(const Kernel& k);
void drop_checks(Kernel& k);
// What it stores elsewhere; nothing where that is all.
std::optional<Kernel> without_stores(const Kernel& k, uint32_t written);

}  // namespace oxy::schedule
