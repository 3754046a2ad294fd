// What a program and a schedule compute, run straight from the data structures, in doubles. Kernels
// run their parallel and vector iterations backwards and see NaN in memory that nobody has written,
// so that a dependence which fusion overlooked shows.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "schedule/schedule.h"

namespace oxy::test {

using Memory = std::map<loops::BufferId, std::vector<double>>;

// The values of the program's symbols.
using Sizes = std::unordered_map<sym::Expr, int64_t>;

// Memory of every buffer that is no View: inputs with small numbers that depend on `seed` (0 and 1
// where they are integers), the rest NaN.
Memory initial_memory(const loops::Program& p, uint32_t seed, const Sizes& sizes = {});

void run(const loops::Program& p, Memory& m, const Sizes& sizes = {});
// With `arena`, Temp buffers lie where the memory plan puts them, over each other.
void run(const schedule::Schedule& s, Memory& m, bool arena, const Sizes& sizes = {});
// The same with kernels run by somebody else.
void run(const schedule::Schedule& s, Memory& m, bool arena, const Sizes& sizes,
         const std::function<void(const schedule::Kernel&)>& run_kernel);

}  // namespace oxy::test
