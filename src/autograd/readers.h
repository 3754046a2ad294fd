// Who reads each value of a joint graph, views of it seen through.
#pragma once

#include "autograd/sides.h"

namespace oxy::autograd {

// Of one value.
struct ReadBy {
  const ir::Node* backward_call = nullptr;  // a call of the backward, which wants it in memory
  bool by_backward = false;                 // a node of the backward at all, or it is a gradient
  bool in_memory = false;                   // the forward has it in memory: a call made or reads it
  // How many calls lie one after the other in front of the first and the last reader in the
  // forward.
  int32_t first = INT32_MAX, last = -1;

  bool by_forward() const { return last >= first; }
  bool far_apart() const { return last > first; }
};

class Readers {
 public:
  Readers(const ir::Graph& joint, const Sides& sides);
  const ReadBy& of(ir::ValueId v) const { return read_by_[v.index]; }

 private:
  std::vector<ReadBy> read_by_;
};

}  // namespace oxy::autograd
