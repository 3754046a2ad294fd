// Calls on which eager's kernels raise, where its meta kernels and our shape rules do not.
#pragma once

#include "torch_bridge/op_recorder.h"

namespace oxy::bridge {

// Unsupported for a number that the kernel converts to a dtype which does not hold it, or that it
// does not take, for a dtype that it does not have, and for shapes that it refuses; c10::IndexError
// for a dimension that there is not. `args` and `result` are those of the call of `target`; what is
// asked of sizes that vary becomes a fact.
void refuse_as_eager(std::string_view target, c10::ArrayRef<c10::IValue> args,
                     const ir::TensorType& result, sym::ShapeFacts* facts);

}  // namespace oxy::bridge
