// The C interface of liboxyfuel_clang.so: one exported function returns this table. The library
// holds Clang and LLVM with all symbols hidden, so that it can share a process with any other LLVM
// (triton's, llvmlite's); it is loaded at run time, so that nothing else of the program needs LLVM
// to build. Every function may be called from several threads at once.
#pragma once

#include <cstddef>

extern "C" {

inline constexpr int kOxyfuelClangVersion = 3;

struct OxyfuelClangApi {
  const char* description;  // "clang 19.1.7"
  // From now on texts may call the function: the macro OXY_HAS_<name> is defined for them. Not
  // while another thread compiles.
  void (*define)(const char* name, void* function);
  // Compiles texts of C++20 without headers as one, each of which defines an extern "C" function
  // `kernel` and no other symbol. Returns a handle, or null with `*error` a text which the caller
  // gives back to free_error.
  void* (*compile)(const char* const* sources, const size_t* sizes, size_t count, char** error);
  void* (*entry)(void* handle, size_t number);  // `kernel` of a text
  void (*release)(void* handle);                // unmaps the code
  void (*free_error)(char* error);
};

// Null where the library does not speak `version`.
using OxyfuelClangEntry = const OxyfuelClangApi* (*)(int version);

}  // extern "C"
