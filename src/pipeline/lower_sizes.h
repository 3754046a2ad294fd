// Symbolic sizes of a graph to slots of a plan's size program. The graph's symbols are read from
// its inputs: sizes first, then numbers, strides and offsets.
#pragma once

#include <functional>
#include <unordered_map>

#include "ir/graph.h"
#include "runtime/plan.h"

namespace oxy::pipeline {

class SizeLowering {
 public:
  // Appends to the plan's size program.
  SizeLowering(const ir::Graph& graph, runtime::SizeProgram& program);

  // InternalError where no input has a symbol of it.
  runtime::Slot slot(sym::Expr e);
  std::vector<runtime::Slot> slots(const std::vector<sym::Expr>& list);
  runtime::Slot constant(int64_t value) { return builder_.constant(value); }

  runtime::TensorSlots tensor(const ir::TensorType& t);
  // Bytes from the start of the storage to the end of the last element; 0 where there is none.
  runtime::Slot span_bytes(const runtime::TensorSlots& t);
  // An input of the graph: a tensor, or a number.
  runtime::TensorSlots input(ir::ValueId v);

  // What the caller gets for an output of the graph; `buffer` says where a value lies.
  runtime::PlanOutput output(const ir::OutputSpec& spec,
                             const std::function<uint32_t(ir::ValueId)>& buffer);
  // What the plan does for a mutation of the graph, whose value lies in `buffer`.
  runtime::PlanMutation mutation(const ir::Mutation& m, uint32_t buffer, bool in_place);
  // An argument of an extern call.
  runtime::PlanArg argument(const ir::Arg& a, const std::function<uint32_t(ir::ValueId)>& buffer);

 private:
  void bind(sym::Expr e, runtime::SizeOp op, uint32_t input, size_t dimension);
  void bind_symbols();
  runtime::Slot binary(runtime::SizeOp op, runtime::Slot a, runtime::Slot b) {
    return builder_.binary(op, a, b);
  }

  const ir::Graph& graph_;
  runtime::SizeBuilder builder_;
  std::unordered_map<sym::Expr, runtime::Slot> slots_;
};

}  // namespace oxy::pipeline
