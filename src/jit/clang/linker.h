// An object file to code in this process, by ORC and JITLink.
#pragma once

#include <memory>
#include <string>

#include <llvm/Support/MemoryBuffer.h>

namespace oxy::jit::clang_library {

// Machine code in memory; release_code unmaps it.
struct LinkedCode;

// Null with `error` set: no such symbol in it, or it needs a function that process_symbols.def does
// not have.
LinkedCode* link_object(std::unique_ptr<llvm::MemoryBuffer> object, const char* symbol,
                        std::string& error);
void* entry_point(const LinkedCode& code);
void release_code(LinkedCode* code);

}  // namespace oxy::jit::clang_library
