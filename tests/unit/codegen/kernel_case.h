// A kernel with its buffers filled, run by the interpreter and by each emitted text; the results
// are compared.
#pragma once

#include <functional>
#include <memory>

#include "compiled_kernels.h"
#include "kernel_maker.h"

namespace oxy::codegen::cpp::testing {

class CaseList {
 public:
  // `make` writes the kernel; `sizes` gives the elements of each buffer but the Local ones; `fill`
  // an element's value. Where no `fill` is given: small numbers of both signs. `tolerance`:
  // relative, in units of the dtype's epsilon.
  using Fill = std::function<double(size_t buffer, int64_t at)>;
  void add(std::string name, const std::function<void(KernelMaker&)>& make,
           std::vector<int64_t> sizes, double tolerance = 4, Fill fill = {}, long iterations = 1);
  // The same where `make` sets `sizes` and `iterations`; results must be equal to the bit.
  void add_made(std::string name, const std::function<void(KernelMaker&)>& make,
                const std::vector<int64_t>& sizes, const long& iterations);
  // Compiles all cases for all targets that run here and checks them.
  void check();

 private:
  struct Case {
    std::string name;
    std::unique_ptr<KernelMaker> maker;
    std::vector<int64_t> sizes;
    double tolerance = 4;
    Fill fill;
    long iterations = 1;
  };
  void check_one(CompiledKernels& kernels, size_t id, const Case& c, const Machine& target);

  std::vector<Case> cases_;
};

}  // namespace oxy::codegen::cpp::testing
