// Merging and ordering of loop axes.
#pragma once

#include "schedule/nest.h"

namespace oxy::schedule {

// Whether the axes `outer` and `inner` can be one: every index walks them as one axis of size outer
// * inner.
bool mergeable(const std::vector<Nest*>& nests, Expr outer, Expr inner, Expr inner_size);
// Puts `merged` in the place of both in all indices.
void merge_axes(const std::vector<Nest*>& nests, Expr outer, Expr inner, Expr merged);

// Order of axes by the strides of what the nests write (or read, for a reduction): the largest
// first.
void sort_by_stride(std::vector<Axis>& axes, const std::vector<Nest*>& nests);

}  // namespace oxy::schedule
