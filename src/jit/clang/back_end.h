// LLVM IR to an object file in memory.
#pragma once

#include <memory>
#include <string>

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace oxy::jit::clang_library {

void optimize(llvm::Module& module, llvm::TargetMachine& machine);

// False with `error` set. The module is used up.
bool emit_object(llvm::Module& module, llvm::TargetMachine& machine,
                 llvm::SmallVectorImpl<char>& object, std::string& error);

}  // namespace oxy::jit::clang_library
