// The pass pipeline and the code generator.
#include "jit/clang/back_end.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/MCContext.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>

namespace oxy::jit::clang_library {

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;  // our loops are written as vectors
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;
  // Unrolling at run time made softmax 15 % longer to compile and no faster; loops of few constant steps are unrolled
  // all the same.
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
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
