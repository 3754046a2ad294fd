// What a recording has computed of the number in one of its inputs, as a short program that guards
// run: a truth that code branches on (the step count of an optimizer against a bound) is guarded by
// it, and not by the number.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace oxy::bridge {

enum class ScalarOp : uint8_t {
  Input,
  Constant,
  Copy,
  Add,
  Sub,
  Mul,
  Div,
  Pow,
  Neg,
  Not,
  Reciprocal,
  Sqrt,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  Equal,
  NotEqual,
};

// Bytes that compare: equal programs are one guard.
struct ScalarStep {
  ScalarOp op{};
  uint8_t rounds = 0;            // to f32
  uint16_t left = 0, right = 0;  // earlier steps
  uint16_t unused = 0;
  double number = 0;  // of a constant
};
static_assert(sizeof(ScalarStep) == 16);

struct ScalarProgram {
  std::vector<ScalarStep> steps;
  std::optional<uint32_t> input;  // of the graph; none where all is constant
};

// The value as a program of at most one input; nothing where it depends on more, or on an op that
// no step does. `constants`: the number in an attribute, if it is one.
std::optional<ScalarProgram> scalar_program(
    const ir::Graph& g, ir::ValueId v,
    const std::function<std::optional<double>(ir::ValueId)>& constants);

// What the last step gives.
double evaluate(std::span<const ScalarStep> steps, double input);

}  // namespace oxy::bridge
