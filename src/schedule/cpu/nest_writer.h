// What the kernels of scans and of scatters are written with: one nest, whose order is fixed,
// statement by statement.
#pragma once

#include <map>
#include <string>

#include "schedule/kernel.h"
#include "schedule/nest.h"

namespace oxy::schedule {

class NestWriter {
 protected:
  NestWriter(const loops::Program& p, const Nest& n, std::string name);

  // A loop around a body.
  static Block wrap(ForKind kind, Expr var, Expr size, Block body);
  static Block wrap(ForKind kind, const std::vector<Axis>& axes, Block body);
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

}  // namespace oxy::schedule
