// Values that a copy without gaps may stand for in the backward: a view that is much smaller than
// its base (one position of a sequence), an input that the forward writes to. Types say how memory
// is laid out, so whoever reads the copy must be content with another layout: views become views of
// the copy, and every other op must give what it gave, by its shape rule.
#pragma once

#include <vector>

#include "autograd/sides.h"

namespace oxy::autograd {

// Of a copy: the strides where they leave no gaps, else row-major.
ir::TensorType compact(const ir::TensorType& t);

class CompactCopies {
 public:
  CompactCopies(const ir::Graph& joint, const Sides& sides);

  // Of a view: it has at most half of the bytes of its base, and its readers do not mind. Of views
  // of equal size the first.
  bool is_small_view(ir::ValueId v) const;
  // No reader in the backward minds.
  bool possible(ir::ValueId v) const;

 private:
  const ir::Graph& g_;
  std::vector<std::vector<ir::NodeId>> readers_;  // by value: those that the backward may run
  std::vector<bool> is_gradient_;                 // by value
};

// Gives the views of inputs, whose types have changed, the types that follow.
void update_view_types(ir::Graph& backward, const std::vector<ir::ValueId>& changed);

}  // namespace oxy::autograd
