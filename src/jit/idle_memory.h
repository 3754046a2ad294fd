// Memory that a compiler holds while it has nothing to do.
#pragma once

namespace oxy::jit {

// Gives the pages back that hold the code and constants of the shared library around `address`
// (they are read from its file again when they are needed) and what the allocator keeps free.
// Running code in the library is not disturbed.
void release_idle_memory(const void* address);

}  // namespace oxy::jit
