// The machine that we compile for: this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/Target/TargetMachine.h>

namespace oxy::jit::clang_library {

struct Host {
  std::string triple;
  std::string cpu;
  // "+name" or "-name" where this processor differs from what `cpu` stands for: a hypervisor may
  // have switched parts of it off.
  std::vector<std::string> features;
  bool wide_vectors = false;  // AVX-512: use all of its 512 bits
};

// Read once per process; initialises LLVM's target.
const Host& host();

// A code generator for one compilation at a time, taken from those that earlier compilations gave
// back: reading the features costs a millisecond.
class TargetMachineLease {
 public:
  explicit TargetMachineLease(std::string& error);
  ~TargetMachineLease();
  TargetMachineLease(const TargetMachineLease&) = delete;
  TargetMachineLease& operator=(const TargetMachineLease&) = delete;

  llvm::TargetMachine* get() const { return machine_.get(); }  // null with the reason in `error`

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
};

}  // namespace oxy::jit::clang_library
