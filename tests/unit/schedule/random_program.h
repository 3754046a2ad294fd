// Small random programs: elementwise loops, reductions, reshapes, transposes, broadcasts, shifts,
// layouts, extern steps, gemms.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::test {

struct RandomOptions {
  int steps = 6;
  std::vector<int64_t> sizes = {1, 2, 3, 4, 6, 8};
  int max_dims = 3;
  int64_t max_elements = 512;
  bool gemms = false;
  bool positions = true;  // ArgMax, whose result jumps where two elements are nearly equal
  // Sizes that are not known before a call, and values for a call of each.
  struct Symbol {
    std::string name;
    sym::Range range;
    int64_t hint;
  };
  std::vector<Symbol> symbols;
  std::vector<std::vector<int64_t>> calls = {{}};
};

// Few large sizes, and symbols of the kind.
RandomOptions large_symbolic();

loops::Program random_program(uint32_t seed, const RandomOptions& options = {});

}  // namespace oxy::test
