// What the losses and their gradients have in common.
#pragma once

#include "ops/args.h"

namespace oxy::ops {

// What becomes of the losses of the elements.
enum LossReduction : int64_t { EachLoss = 0, MeanLoss = 1, SumLoss = 2 };

// The one at an argument, where it is one of these.
inline std::optional<int64_t> reduction_of(const Args& a, size_t at) {
  const auto reduction = a.integer(at, MeanLoss);
  return reduction && *reduction >= EachLoss && *reduction <= SumLoss ? reduction : std::nullopt;
}

}  // namespace oxy::ops
