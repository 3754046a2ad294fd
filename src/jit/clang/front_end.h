// C++ text to LLVM IR that has not been optimised.
#pragma once

#include <memory>
#include <string>

#include <llvm/ADT/StringRef.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

namespace oxy::jit::clang_library {

// Null with Clang's diagnostics in `error`.
std::unique_ptr<llvm::Module> parse_source(llvm::StringRef source, llvm::LLVMContext& context,
                                           std::string& error);

}  // namespace oxy::jit::clang_library
