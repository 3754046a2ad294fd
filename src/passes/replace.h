// Replacing values by others, under the rules that keep what the caller sees.
//
// A value that is returned must stay a tensor of its own: it may take the place of another only
// where that one is made by a call in this graph, is no view, and is not returned or written to an
// input itself. Layouts are part of a value: dtype, device, sizes, strides and offset must be
// equal.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace oxy::passes {

// Collects replacements and applies them in one walk over the graph.
class Replacements {
 public:
  explicit Replacements(ir::Graph& g);

  // Replaces every use of `from` by `to` if that is allowed; says whether it did.
  bool replace(ir::ValueId from, ir::ValueId to);
  // The same for a node's only output, and removes the node.
  bool replace_node(ir::Node& n, ir::ValueId to);
  // Replaces by a value that was made for this, without asking about layouts.
  void replace_unchecked(ir::ValueId from, ir::ValueId to);
  // The value that stands for `v` now.
  ir::ValueId resolve(ir::ValueId v) const;
  // Returned or written to an input, or the base of a view that is.
  bool escapes(ir::ValueId v) const { return v.index < escapes_.size() && escapes_[v.index]; }
  bool empty() const { return count_ == 0; }

  // Rewrites the graph. Until then arguments may name replaced values: use resolve().
  void apply();

 private:
  void mark_escaping();
  void set(ir::ValueId from, ir::ValueId to);

  ir::Graph& graph_;
  std::vector<ir::ValueId> to_;
  std::vector<bool> escapes_;
  size_t count_ = 0;
};

}  // namespace oxy::passes
