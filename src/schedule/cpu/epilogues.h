// Epilogues of gemms: an elementwise kernel that reads what a gemm or convolution of our own
// (codegen/cpp/gemm.h) has written, each element once and in the matrix's order, is run by the
// gemm's kernel on each block that it has finished, while the block lies in the cache.
#pragma once

#include "schedule/nest.h"
#include "schedule/schedule.h"

namespace oxy::schedule {

// The kernel of a group that may be an epilogue of one of the steps that are there, arranged as
// that needs; nothing where it may not. `needed` as in arrange_loops.
std::optional<Kernel> epilogue_kernel(Schedule& s, const Group& g, const std::vector<bool>& needed,
                                      const ScheduleOptions& options, const std::string& name);

// The buffers that an epilogue reads where it reads its matrix, and that lie alike: positions among
// those that are not Local.
std::vector<int64_t> read_with_matrix(const Schedule& s, const Kernel& k);

// Gives such kernels to their gemms, where nothing that runs between has to stay there. A matrix
// that nobody else reads lies where the result of its epilogue will lie, if elements take the same
// places. Kernels have been written in place.
void attach_epilogues(Schedule& s);

}  // namespace oxy::schedule
