// Branches whose operands require gradients: torch.cond's own rule. The gradient of a choice is the
// same choice among the branches' gradients, each of which runs its branch again.
#pragma once

#include "torch_bridge/recorder.h"

namespace oxy::bridge {

// See Recorder::add_regions. `regions`: joint graphs, but for those whose results require no
// gradients. Every floating result requires gradients, as torch's do, and an operand that requires
// them has one from each branch, zeros where the branch does not read it.
std::vector<at::Tensor> add_differentiable_branches(Recording& r, OpRecorder& ops,
                                                    const std::vector<at::Tensor>& args,
                                                    std::vector<RecordedRegion> regions);

}  // namespace oxy::bridge
