// Asks LLVM for the processor's name and features.
#include "jit/clang/host.h"

#include <algorithm>

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

}  // namespace

const Host& host() {
  static const Host* detected = new Host(detect());
  return *detected;
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(std::string& error) {
  const Host& machine = host();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(machine.triple, error);
  if (!target) return nullptr;
  std::string features;
  for (const std::string& feature : machine.features) features += (features.empty() ? "" : ",") + feature;
  // Default and not Aggressive: the same code for our loops, in less time.
  std::unique_ptr<llvm::TargetMachine> result(
      target->createTargetMachine(machine.triple, machine.cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!result) error = "no code generator for " + machine.triple;
  return result;
}

}  // namespace oxy::jit::clang_library
