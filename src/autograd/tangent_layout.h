// How a gradient lies in memory that arrives in another layout than that of its result, as a
// function of its sizes: so one plan of a backward serves gradients of every length.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace oxy::autograd {

class TangentLayout {
 public:
  TangentLayout() = default;  // that of the result
  // Of a tensor with at least one element.
  TangentLayout(std::span<const int64_t> sizes, std::span<const int64_t> strides);

  // Whether a gradient of this type may have any: no symbol is known by its strides alone.
  static bool is_free(const ir::TensorType& type);
  // An input of a backward has this layout. What reads it reads a copy in the layout that it had,
  // which fuses as any copy does, and so do other graphs, by outputs behind the `gradients`. A
  // gradient that is the input itself is as it has arrived.
  void give_to(ir::Graph& graph, size_t input, size_t gradients) const;

  auto operator<=>(const TangentLayout&) const = default;

 private:
  struct Dim {
    int64_t dim;
    int64_t gap;  // the stride; 0: what is inside of it fills it
    auto operator<=>(const Dim&) const = default;
  };
  std::vector<ir::Expr> strides(const std::vector<ir::Expr>& sizes) const;

  bool is_other_ = false;
  std::vector<Dim> dims_;  // innermost first, without those of one element and those of stride 0
};

}  // namespace oxy::autograd
