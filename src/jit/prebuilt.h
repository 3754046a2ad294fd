// Code that was compiled with the library: texts that are the same for every model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "jit/compiler.h"

namespace oxy::jit {

struct Prebuilt {
  uint64_t hash;     // text_hash of the text
  size_t size;       // its length
  int vector_bytes;  // 64: compiled for x86-64-v4, 32: for x86-64-v3
  KernelFn entry;
};

uint64_t text_hash(std::string_view text);

// From now on every compiler takes these where they fit this machine. Once, before the first
// compilation.
void use_prebuilt(std::span<const Prebuilt> table);

// Gemms of all shapes (tools/oxy_gemms.cpp).
std::span<const Prebuilt> prebuilt_gemms();

}  // namespace oxy::jit
