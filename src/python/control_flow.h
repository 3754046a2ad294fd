// torch.cond and torch.while_loop of tensors as calls of a graph: two ops, whose graphs stand in a table.
//
//   oxyfuel::choose(Tensor pred, Tensor[] operands, int number) -> Tensor[]     the first graph where `pred` holds, else the
//                                                                               second
//   oxyfuel::repeat(Tensor[] carried, Tensor[] others, int number) -> Tensor[]  while the first graph gives true: what the
//                                                                               second gives is carried on
//
// Both give new tensors, never what they were given. `number` is an entry of the table; a graph that calls one of the ops
// holds the entry (TorchIr::control_flow), which goes with it. Types of results are those that the capture has found.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <vector>

#include "ir/types.h"

namespace oxy::python {

struct TorchIr;

struct ControlFlow {
  struct Inner {
    std::shared_ptr<TorchIr> ir;  // its result: a tuple of tensors
    pybind11::object callable;    // what the backend has made of it
    std::vector<uint32_t> takes;  // of all tensors that the op is given, its inputs
    std::vector<bool>
        shares;  // by result: whether it may share memory with an input or another result
    std::vector<ir::TensorType> results;
  };
  Inner inner[2];
  std::vector<ir::TensorType> operands;  // of repeat: carried ones, then others
  std::vector<ir::TensorType> results;
};

// The number of a new entry, which is there as long as somebody holds it.
int64_t add_control_flow(const std::shared_ptr<ControlFlow>& entry);

// Makes callables of the inner graphs of `ir`, and of theirs: compile(TorchGraph, example inputs).
void compile_inner_graphs(const TorchIr& ir, pybind11::handle compile);

// The type of a new tensor with what a tensor of this type holds, as clone() lays it out.
ir::TensorType type_of_copy(const ir::TensorType& type);

}  // namespace oxy::python
