// Ops of lists of tensors (`_foreach_add`), which optimizers call: a call for each tensor.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace oxy::bridge {

// Calls what the op does for each tensor of its lists, through the dispatcher: whoever listens
// hears these calls. False, and nothing done, for all other ops.
bool run_for_each(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace oxy::bridge
