// Compiles emitted texts with the compiler on the machine, many in one translation unit, and calls
// them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/cpp/emit.h"

namespace oxy::codegen::cpp::testing {

using KernelFn = int (*)(void* const*, long, long, void*, void* const*);

class CompiledKernels {
 public:
  ~CompiledKernels();
  // The kernel's number.
  size_t add(const schedule::Kernel& kernel, const Machine& target);
  size_t add(std::string text, const Machine& target, int64_t scratch_bytes);
  void compile(const std::string& options = "-O2");
  // Runs iterations begin .. end with a table of the C library's functions for the kernel's target.
  // `sizes`: of its parameters.
  int run(size_t kernel, std::vector<void*> buffers, long begin, long end,
          const std::vector<int64_t>& sizes = {});
  const std::string& text(size_t kernel) const { return texts_[kernel]; }

 private:
  void* const* math_table(const Machine& target);

  std::vector<std::string> texts_;
  std::vector<Machine> targets_;
  std::vector<sym::Expr> scratch_;
  std::vector<std::vector<sym::Expr>> parameters_;
  std::vector<KernelFn> functions_;
  std::map<int, std::vector<void*>> tables_;  // by vector_bytes
  void* library_ = nullptr;
};

// Widths that this machine runs: plain, AVX2 and AVX-512 where it has them.
std::vector<Machine> runnable_targets();

}  // namespace oxy::codegen::cpp::testing
