// The pass pipeline and the code generator.
#include "jit/clang/back_end.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/MCContext.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/raw_ostream.h>

namespace oxy::jit::clang_library {

namespace {

// Kernels are explicit vectors in small functions which are always inlined, and loops of which
// those with constant steps are to be unrolled. So unrolling comes first and everything else sees
// straight code once; the default pipeline at -O2 unrolls last and takes twice as long, for the
// same speed of the kernels (softmax, layer norm, GELU, gemms, transpositions). No vectorisers, and
// no unrolling at run time: the emitter has done both.
constexpr const char* kPipeline =
    "always-inline,cgscc(function-attrs),"
    "function<eager-inv>("
    "lower-expect,"  // keeps the rare branches of exp and sin out of the way of register allocation
    "sroa<modify-cfg>,early-cse<>,simplifycfg,"
    "loop(loop-rotate,loop-deletion,loop-unroll-full),"
    "sroa<modify-cfg>,early-cse<memssa>,"
    "instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(licm),"
    "loop(indvars,loop-deletion),"  // bounds and remainders that are constants after the first
                                    // round
    "instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg)";

}  // namespace

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, kPipeline))
    llvm::report_fatal_error(std::move(error));
  passes.run(module, modules);
}

bool emit_object(llvm::Module& module, llvm::TargetMachine& machine,
                 llvm::SmallVectorImpl<char>& object, std::string& error) {
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  llvm::MCContext* context = nullptr;
  if (machine.addPassesToEmitMC(passes, context, stream, /*DisableVerify=*/true)) {
    error = "the target cannot emit machine code";
    return false;
  }
  passes.run(module);
  return true;
}

}  // namespace oxy::jit::clang_library
