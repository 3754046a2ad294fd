// Where torch's shape rules, which speak of no device, differ from what its CPU kernels give.
#pragma once

#include <string>

#include "torch_bridge/shape_fallback.h"

namespace oxy::bridge {

// Corrects the predicted strides of an op's results for the CPU. `args`: the fakes that it was
// called with.
void correct_cpu_layouts(const std::string& target, c10::ArrayRef<c10::IValue> args,
                         std::vector<PredictedReturn>& returns);

}  // namespace oxy::bridge
