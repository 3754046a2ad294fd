// Kernels of one nest whose order is fixed, so that it is no part of fusion with its neighbours:
// scans and scatters, written statement by statement. What they take may have been inlined.
#pragma once

#include <map>

#include "schedule/kernel.h"
#include "schedule/nest.h"

namespace oxy::schedule {

// Loops around a body, outermost first.
Block wrap(ForKind kind, const std::vector<Axis>& axes, Block body);

class NestWriter {
 protected:
  NestWriter(const loops::Program& p, const Nest& n, std::string name);

  // The kernel, whose body runs at each iteration of the parallel axes.
  Kernel finish(const std::vector<Axis>& parallel, Block body);
  uint32_t entry(BufferId b, KernelBuffer::Kind kind);
  uint32_t add(Block& out, Compute c);  // the value
  // An instruction of the nest whose operands have these values, under a substitution; loads have
  // their buffer.
  Compute compute_of(const Inst& i, const std::vector<uint32_t>& value, const Substitution& subst);

  const loops::Program& program_;
  const Nest& nest_;
  loops::VariableScope scope_;
  Kernel kernel_;

 private:
  std::map<BufferId, uint32_t> entries_;
};

// A scan: rows that lie along the scanned axis go four at a time, since each waits for its own last
// sum only; rows across it go a block of columns at a time, with the sums of the block in cache.
Kernel scan_kernel(const loops::Program& p, const Nest& n, std::string name);

// A scatter: a loop that folds values into places that it has loaded. Iterations that meet in one
// place must do so in order, so only axes along which no two iterations ever meet are parallel or
// lanes of a vector; the others are walked one after the other.
Kernel scatter_kernel(const loops::Program& p, const Nest& n, std::string name);

}  // namespace oxy::schedule
