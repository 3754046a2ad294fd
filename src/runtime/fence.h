// For tests: runs a kernel on copies of its buffers that lie between pages which nobody may touch,
// so that an access outside of a buffer ends the process at once (or, on the heap, in the address
// sanitizer's report). In several pieces, as threads would run it, each with scratch memory of its
// own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/launch.h"

namespace oxy::runtime {

enum class Fence : uint8_t { Off, Start, End, Heap };  // where a buffer touches its fence

// A value of the setting `fence`.
Fence fence_of(std::string_view setting);

// `bytes` from `address` on; equal addresses are one buffer.
struct FencedBuffer {
  void* address = nullptr;
  int64_t bytes = 0;
};

// As launch() does, one thread after the other. Buffers that the kernel changed are copied back.
// With an epilogue `buffers` are the kernel's, then the epilogue's.
int launch_fenced(const SizedKernel& kernel, std::span<const FencedBuffer> buffers, Fence fence,
                  const Host& host, const SizedKernel* epilogue = nullptr, size_t of_kernel = 0);

}  // namespace oxy::runtime
