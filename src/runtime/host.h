// What compiled code needs of the program that it runs in: threads and vector maths, as plain
// pointers, so that the core runs without torch (serial, scalar) and with torch's own thread pool.
#pragma once

#include <cstdint>

namespace oxy::runtime {

// Compiled code as whoever runs it sees it: the iterations begin .. end-1 of a kernel's range, on
// the buffers in the kernel's order, with scratch memory for this call alone and the host's table
// of vector maths. Gives the status: 0, or what went wrong (codegen/cpp/emit.h).
using KernelFn = int (*)(void* const* buffers, long begin, long end, void* scratch,
                         void* const* math);

// One piece [begin, end) of a range; `thread` numbers the threads of one parallel region from 0.
using PieceFn = void (*)(void* context, int64_t begin, int64_t end, int thread);

struct Host {
  // Runs `fn` over pieces that cover [0, range), each of at least `grain` iterations but for the
  // last one, on at most thread_count() threads, and returns when all are done. `fn` does not
  // throw.
  void (*parallel)(int64_t range, int64_t grain, PieceFn fn, void* context);
  int (*thread_count)();
  void* const* math;  // the table that kernels get, see codegen/cpp/emit.h; may be null
};

// One thread, no maths table.
const Host& serial_host();

}  // namespace oxy::runtime
