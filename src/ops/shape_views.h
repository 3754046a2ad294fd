// Geometry of views: sizes, strides and offset of what a view op gives, from those of its base.
#pragma once

#include <optional>

#include "ops/args.h"

namespace oxy::ops {

// `view` of a tensor of these sizes and strides as `to`; nothing where it would need a copy, or is
// not known.
std::optional<std::vector<Expr>> view_strides(const ir::TensorType& t, const std::vector<Expr>& to);
// `sizes` with a -1 replaced by what makes the number of elements `numel`.
std::optional<std::vector<Expr>> infer_size(std::vector<Expr> sizes, Expr numel);

// A slice's first element and length, after the rules of Python.
struct SliceBounds {
  Expr start, length, step;
};
std::optional<SliceBounds> slice_bounds(Expr size, std::optional<Expr> start,
                                        std::optional<Expr> end, Expr step);
// An index that counts from the end where it is negative; nothing where it is not known to be in
// range.
std::optional<Expr> wrap_index(Expr index, Expr size);

bool shape_diagonal_scatter(const Args& a, Types& out);

// The index of a tensor of sizes `from` that holds the element at `index` of the same elements, row
// by row, of sizes `to`. Runs of dimensions with equal products map to each other, so that
// untouched dimensions keep their index.
Index reshape_index(const std::vector<Expr>& from, const std::vector<Expr>& to, const Index& index);

}  // namespace oxy::ops
