// Places that index tensors name: what gather-like and scatter-like ops have in common.
#pragma once

#include "ops/element.h"
#include "ops/shapes.h"

namespace oxy::ops {

bool is_index(const ir::TensorType* t);
// Argument 1: a dimension of argument 0, which has some.
std::optional<size_t> indexed_dim(const Args& a);

// The element of an index tensor, as part of an index.
Expr indirect(LoopBuilder& b, ir::ValueId value, const Index& at, Expr size, bool wrap);

// `e.index` with a place that argument 2 holds in that dimension: as `rows` it has one for each
// place along the dimension, else one for each element.
Index place_along(Element& e, bool rows, bool wrap);

// Args: a tensor, then a list of index tensors. Where the dimensions of the tensor go: the indexed
// ones become the indices' common shape, standing where they stood if they are adjacent, else at
// the front.
struct Indexing {
  std::vector<int64_t> indexed;      // dimensions of the tensor with an index tensor
  std::vector<int64_t> kept;         // the others
  std::vector<ir::ValueId> indices;  // one for each of `indexed`
  std::vector<const ir::TensorType*> types;
  Sizes common;       // the index tensors' broadcast shape
  size_t before = 0;  // kept dimensions that stand before `common` in the indexed shape
};

// Nothing where an index is no tensor of integers.
std::optional<Indexing> indexing(const Args& a);
Sizes indexed_sizes(const ir::TensorType& t, const Indexing& x);
// Where in the tensor the element at `index` of the indexed shape lies.
Index indexed_place(LoopBuilder& b, const ir::TensorType& t, const Indexing& x, const Index& index);

// By how much an image's dimension grows where upsample_nearest repeats each element as often as
// the others; nothing where it does not, or sizes or the scale (may be None) are not known.
std::optional<int64_t> even_growth(Expr from, Expr to, const ir::Arg& scale, bool exact);
// The image's place for each of the result's, which ascend; nothing where they are not known.
std::optional<std::vector<int64_t>> nearest_places(Expr from, Expr to, const ir::Arg& scale,
                                                   bool exact);

}  // namespace oxy::ops
