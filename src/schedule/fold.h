// Reductions as operations: how two partial results combine, and the result of folding nothing.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::schedule {

ops::LoopOp fold_of(ops::ReduceKind kind, ops::DType dtype);
loops::Inst identity_of(ops::ReduceKind kind, ops::DType dtype);

}  // namespace oxy::schedule
