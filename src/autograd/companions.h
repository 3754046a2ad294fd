// Loops of the backward that a value can be computed again beside: gelu's gradient reads what gelu
// read, so one loop gives the gradient and gelu's result once more.
#pragma once

#include "autograd/sides.h"

namespace oxy::autograd {

class Companions {
 public:
  Companions(const ir::Graph& joint, const Sides& sides);

  // Of an elementwise node of the forward, whose only result calls of the backward read: a loop of
  // the backward reads something that the node is made of, has as many elements, and needs none of
  // these calls.
  bool has_one(const ir::Node& n) const;

 private:
  // Nodes that read the value, or a view of it, views left out.
  std::vector<ir::NodeId> readers(ir::ValueId v) const;
  std::vector<bool> behind(const std::vector<ir::NodeId>& nodes) const;
  bool is_loop_of_backward(ir::NodeId id, ir::Expr elements) const;

  const ir::Graph& g_;
  const Sides& sides_;
  std::vector<std::vector<ir::NodeId>> users_;  // by value
};

}  // namespace oxy::autograd
