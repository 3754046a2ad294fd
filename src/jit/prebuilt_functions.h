// Functions that kernels would define themselves, compiled with the library: what is the same in
// many texts takes the compiler as long in each of them.
#pragma once

#include <span>

namespace oxy::jit {

struct PrebuiltFunction {
  const char* name;  // a text declares it where the macro OXY_HAS_<name> is defined
  int vector_bytes;  // as that of Prebuilt
  void* entry;
};

// Whether this processor runs what was compiled with the library for such vectors.
bool has_vectors(int vector_bytes);

// From now on a Clang library that is loaded has those that run here. Once, before the first
// compilation.
void use_prebuilt_functions(std::span<const PrebuiltFunction> table);
std::span<const PrebuiltFunction> usable_functions();

// codegen::cpp::prebuilt_functions (tools/oxy_gemms.cpp).
std::span<const PrebuiltFunction> prebuilt_functions();

}  // namespace oxy::jit
