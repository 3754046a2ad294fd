// Runs one kernel of a plan over its range.
#pragma once

#include "runtime/host.h"
#include "runtime/plan.h"

namespace oxy::runtime {

// What the kernel of a product gets as its last buffer.
struct Epilogue {
  jit::KernelFn kernel;
  void* const* buffers;
};

// Bytes of scratch that launch() needs for this kernel: one aligned part a thread.
int64_t scratch_bytes(const PlanKernel& kernel, int threads);

// `buffers` in the kernel's order; `scratch` has scratch_bytes(kernel, host.thread_count()) bytes, aligned to 64. Gives
// the status: 0, or what the kernel reported (one of the threads' words where several did).
int launch(const PlanKernel& kernel, void* const* buffers, char* scratch, const Host& host);

}  // namespace oxy::runtime
