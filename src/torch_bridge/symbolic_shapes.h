// The sizes of one recording that are symbols: which dimensions of the inputs have one, and fakes
// of symbolic sizes.
//
// Dimensions with the same hint share a symbol; sizes of 0 and 1 are always numbers. A fake of
// symbolic sizes answers code that asks for numbers with its hints, and every size read so becomes
// a fact: code that knows nothing of symbols gets right results, for these sizes only.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <memory>
#include <span>

#include "ir/types.h"
#include "symbolic/facts.h"

namespace oxy::bridge {

class SymbolicShapes {
 public:
  explicit SymbolicShapes(std::shared_ptr<sym::ExprPool> pool)
      : facts_(std::make_shared<sym::ShapeFacts>(std::move(pool))) {}

  const std::shared_ptr<sym::ShapeFacts>& facts() const { return facts_; }

  // The symbol for a size or a number with this hint, or the number itself.
  sym::Expr symbol_for(int64_t hint);
  // The type of an input of which these dimensions (negative ones count from the end) are symbolic.
  // UserError for one that it does not have.
  ir::TensorType input_type(const at::Tensor& real, std::span<const int64_t> dims);
  at::Tensor make_fake(const ir::TensorType& type, const c10::Storage* storage) const;

  void simplify(ir::TensorType& type) const;

 private:
  std::shared_ptr<sym::ShapeFacts> facts_;
  std::map<int64_t, sym::Expr> symbols_;  // by hint
};

bool is_symbolic(const ir::TensorType& type);
// The metadata of a tensor with symbolic sizes.
void read_symbolic_sizes(const at::Tensor& t, ir::TensorType& type);

// An op on meta tensors of symbolic sizes, run on tensors of their hints: for its errors. What it
// returns are its own arguments where the schema says so, else tensors of the hints' sizes.
bool has_symbolic_sizes(const torch::jit::Stack& stack, size_t arguments);
void run_on_hints(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Symbolic numbers among the arguments as plain ones; each becomes a fact.
c10::IValue with_numbers(const c10::IValue& v);

}  // namespace oxy::bridge
