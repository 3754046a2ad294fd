// Kernels that write all of a buffer although they change only a part of it: a slice assignment,
// functionalised, is "the new slice inside, the old value elsewhere".
#pragma once

#include <optional>

#include "schedule/kernel.h"

namespace oxy::schedule {

struct ChangedPart {
  Kernel part;                 // stores nothing but the changed elements of `written`
  std::optional<Kernel> rest;  // what else the kernel stores; runs first
};

// Cuts the kernel in two, where what it stores to `written` is the element of `old` at the same
// place but for a box of elements. Run after `rest`, and with `written` in the memory of `old`, the
// part has the same effect.
std::optional<ChangedPart> changed_part(const Kernel& k, uint32_t old, uint32_t written);

// What a kernel checks and nothing else: run before it, the kernel needs no checks of its own.
// Nothing where it has none.
std::optional<Kernel> checks_of(const Kernel& k);
void drop_checks(Kernel& k);
// What it stores elsewhere; nothing where that is all.
std::optional<Kernel> without_stores(const Kernel& k, uint32_t written);

}  // namespace oxy::schedule
