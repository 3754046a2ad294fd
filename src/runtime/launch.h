// Runs the kernels of a plan over their ranges.
#pragma once

#include "runtime/sized_plan.h"

namespace oxy::runtime {

// What the kernel of a gemm gets as its last buffer.
struct Epilogue {
  KernelFn kernel;
  void* const* buffers;
};

// A launch or gemm step of a plan, with the buffers whose memory it gets.
struct BoundLaunch {
  uint32_t kernel = 0;
  std::optional<uint32_t> epilogue;  // another kernel
  std::vector<uint32_t> memory;      // of the kernel, then of its epilogue
  uint32_t own = 0;                  // how many are the kernel's
};
// Nothing where the step is another one.
std::optional<BoundLaunch> bind_launch(const Plan& p, const PlanStep& step);

// What a kernel is called with. Points into itself: it stays where it is made.
class Arguments {
 public:
  // `addresses` by buffer.
  void fill(const BoundLaunch& l, const SizedPlan& p, void* const* addresses);
  void* const* data() const { return list_.data(); }

 private:
  std::vector<void*> list_;
  Epilogue epilogue_{};
};

// Bytes of scratch that launch() needs for this kernel: one aligned part a thread.
int64_t scratch_bytes(const SizedKernel& kernel, int threads);

// `buffers` in the kernel's order; `scratch` has scratch_bytes(kernel, host.thread_count()) bytes,
// aligned to 64. Gives the status: 0, or what the kernel reported (one of the threads' words where
// several did).
int launch(const SizedKernel& kernel, void* const* buffers, char* scratch, const Host& host);

// ---- for tests: a kernel on copies of its buffers that lie between pages which nobody may touch,
// so that an access outside of a buffer ends the process at once (or, on the heap, in the address
// sanitizer's report). In several pieces, as threads would run it, each with scratch memory of its
// own.

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
