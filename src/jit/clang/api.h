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
  // Compiles `size` bytes of C++20 without headers. Returns a handle, or null with `*error` a text
  // which the caller gives back to free_error. `symbol` names the extern "C" function that entry()
  // returns.
  void* (*compile)(const char* source, size_t size, const char* symbol, char** error);
  void* (*entry)(void* handle);
  void (*release)(void* handle);  // unmaps the code
  void (*free_error)(char* error);
};

// Null where the library does not speak `version`.
using OxyfuelClangEntry = const OxyfuelClangApi* (*)(int version);

}  // extern "C"
