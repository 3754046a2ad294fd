// What an op without a shape rule gives for symbolic sizes: torch is asked at several sizes.
//
// Torch's meta kernel for the op runs at the hints and at other sizes that the facts allow; each
// size of a result is the simplest expression of the arguments' sizes that fits all answers. That
// is a guess, of ops that run as calls: a plan compares what a call gives with what was predicted,
// and where the guess is wrong, the call runs in eager. A size that may have no other value becomes
// a number, which is a fact. What no expression fits is left to whoever asks for all sizes as
// numbers.
#pragma once

#include <optional>
#include <span>

#include "symbolic/facts.h"
#include "torch_bridge/shape_fallback.h"

namespace oxy::bridge {

// An op with its arguments; `of_data`: symbols for the sizes of data that it asks for.
struct ProbedCall {
  const c10::OperatorHandle& op;
  c10::ArrayRef<c10::IValue> args;
  std::span<const sym::Expr> of_data;
};

// Nothing where the op refuses its arguments, too. `likely`: expressions to try first.
std::optional<std::vector<PredictedReturn>> predict_by_probes(const ProbedCall& call,
                                                              std::span<const sym::Expr> likely,
                                                              sym::ShapeFacts& facts);

}  // namespace oxy::bridge
