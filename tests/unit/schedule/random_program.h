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
};

loops::Program random_program(uint32_t seed, const RandomOptions& options = {});

}  // namespace oxy::test
