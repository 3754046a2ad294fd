// Asks LLVM for the processor's name and features.
#include "jit/clang/host.h"

#include <algorithm>
#include <set>

#include <llvm/ADT/StringMap.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include "support/fork_mutex.h"

namespace oxy::jit::clang_library {

namespace {

// The features that the processor's name stands for already. Only differences are passed on: Clang
// copies the list at every call with a vector argument. Empty where they are not known.
std::set<llvm::StringRef> implied_features([[maybe_unused]] const std::string& cpu) {
  llvm::SmallVector<llvm::StringRef, 64> names;
#if defined(__x86_64__)
  llvm::X86::getFeaturesForCPU(cpu, names);
#endif
  return {names.begin(), names.end()};
}

bool is_new(llvm::StringRef feature, bool present, const std::set<llvm::StringRef>& implied) {
  return implied.empty() || present != implied.contains(feature);
}

Host detect() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  Host host;
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  std::set<llvm::StringRef> implied = implied_features(host.cpu);
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    if (is_new(feature.getKey(), feature.getValue(), implied))
      host.features.push_back((feature.getValue() ? "+" : "-") + feature.getKey().str());
    if (feature.getKey() == "avx512f") host.wide_vectors = feature.getValue();
  }
  // Clang's driver adds this where the processor has 512-bit registers; the front end alone refuses
  // their builtins.
  if (host.wide_vectors) host.features.push_back("+evex512");
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
  ForkMutex mutex;
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
