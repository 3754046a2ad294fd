// Compiled code as whoever runs it sees it: the iterations begin .. end-1 of a kernel's range, on
// the buffers in the kernel's order, with scratch memory for this call alone and the host's table
// of vector maths. Gives the status: 0, or what went wrong (codegen/cpp/emit.h).
#pragma once

namespace oxy::runtime {

using KernelFn = int (*)(void* const* buffers, long begin, long end, void* scratch,
                         void* const* math);

}  // namespace oxy::runtime
