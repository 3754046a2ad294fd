// Asks LLVM for the processor's name and features.
#include "jit/clang/host.h"

#include <algorithm>
#include <mutex>

#include <llvm/ADT/StringMap.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

namespace oxy::jit::clang_library {

namespace {

Host detect() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  Host host;
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    host.features.push_back((feature.getValue() ? "+" : "-") + feature.getKey().str());
    if (feature.getKey() == "avx512f") host.wide_vectors = feature.getValue();
  }
  std::sort(host.features.begin(), host.features.end());
  return host;
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(std::string& error) {
  const Host& machine = host();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(machine.triple, error);
  if (!target) return nullptr;
  std::string features;
  for (const std::string& feature : machine.features)
    features += (features.empty() ? "" : ",") + feature;
  // Default and not Aggressive: the same code for our loops, in less time.
  std::unique_ptr<llvm::TargetMachine> result(target->createTargetMachine(
      machine.triple, machine.cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_,
      llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!result) error = "no code generator for " + machine.triple;
  return result;
}

// Given back and not in use.
struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines;
};

Idle& idle() {
  static auto* instance = new Idle();
  return *instance;
}

}  // namespace

const Host& host() {
  static const Host* detected = new Host(detect());
  return *detected;
}

TargetMachineLease::TargetMachineLease(std::string& error) {
  {
    std::lock_guard lock(idle().mutex);
    if (!idle().machines.empty()) {
      machine_ = std::move(idle().machines.back());
      idle().machines.pop_back();
    }
  }
  if (!machine_) machine_ = make_target_machine(error);
}

TargetMachineLease::~TargetMachineLease() {
  if (!machine_) return;
  std::lock_guard lock(idle().mutex);
  idle().machines.push_back(std::move(machine_));
}

}  // namespace oxy::jit::clang_library
