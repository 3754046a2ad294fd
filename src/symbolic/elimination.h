// Linear inequalities over integers: whether none of them can hold beside the others.
//
// Fourier and Motzkin's elimination: an unknown goes by adding each inequality that bounds it from
// above to each that bounds it from below. Divided by common factors the inequalities are rounded
// inward, so that what only fractions fulfil is often seen as well. It stops after a number of
// steps: then the answer is that nothing is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace oxy::sym {

// constant + the sum of coefficient * unknown is at most 0.
struct Inequality {
  struct Part {
    size_t unknown = 0;
    int64_t coefficient = 0;
  };
  std::vector<Part> parts;  // each unknown once
  int64_t constant = 0;
};

// True where no integers fulfil all of them; false where some do, or it takes more steps than these
// (a step makes one inequality of two).
bool contradict(std::span<const Inequality> all, size_t unknowns, size_t steps);

}  // namespace oxy::sym
