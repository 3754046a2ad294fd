// What the Clang library does with a text: C++ to an object file in memory, and that to code in
// this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/MemoryBuffer.h>

namespace oxy::jit::clang_library {

// Once, before the rest.
void initialize_target();

// What texts may ask for with `#ifdef`, and what they may call. Not while another thread compiles.
void define_macro(std::string name);
void define_function(const char* name, void* function);

// False with `error` set.
bool build_object(llvm::StringRef source, llvm::SmallVectorImpl<char>& object, std::string& error);

// Machine code in memory, linked by ORC and JITLink; release_code unmaps it.
struct LinkedCode;

// Null with `error` set: a symbol is not in it, or it needs a function that process_symbols.def
// does not have.
LinkedCode* link_object(std::unique_ptr<llvm::MemoryBuffer> object,
                        const std::vector<std::string>& symbols, std::string& error);
void* entry_point(const LinkedCode& code, size_t number);  // where a symbol is
void release_code(LinkedCode* code);

}  // namespace oxy::jit::clang_library
