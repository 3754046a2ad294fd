// A parallel loop for compilation. Its threads are joined before it returns: none is alive at exit
// or at a fork.
#pragma once

#include <cstddef>
#include <functional>

namespace oxy::jit {

// Calls body(0) .. body(count - 1), each once, on up to `threads` threads, the caller's among them.
// After the first exception no further index is started; that exception is thrown again here.
void parallel_for(size_t count, int threads, const std::function<void(size_t)>& body);

}  // namespace oxy::jit
