// Kernels that write all of a buffer although they change only a part of it: a slice assignment, functionalised, is
// "the new slice inside, the old value elsewhere".
#pragma once

#include <optional>

#include "schedule/kernel.h"

namespace oxy::schedule {

struct ChangedPart {
  Kernel part;                 // stores nothing but the changed elements of `written`
  std::optional<Kernel> rest;  // what else the kernel stores; runs first
};

// Cuts the kernel in two, where what it stores to `written` is the element of `old` at the same place but for a box of
// elements. Run after `rest`, and with `written` in the memory of `old`, the part has the same effect.
std::optional<ChangedPart> changed_part(const Kernel& k, uint32_t old, uint32_t written);

}  // namespace oxy::schedule
