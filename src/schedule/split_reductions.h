// Cuts a reduction that has too few results to keep all threads busy into parts: one loop folds
// each part into a partial result, a second one folds the partial results. After inlining (what is
// folded is known) and before fusion (either loop may join others). The number of parts depends on
// the shape only, so results do not vary with threads.
#pragma once

#include "schedule/nest.h"

namespace oxy::schedule {

// The two loops, or nothing where the reduction stays whole. Adds the buffer of the partial results
// to the program.
std::optional<std::pair<Nest, Nest>> split_reduction(loops::Program& p, const Nest& n);

// The variable of the axis whose neighbours are neighbours in memory: of the store for an
// elementwise loop, of most loads for a reduction. An invalid result (0) where there is none.
Expr contiguous_axis(const Nest& n);
bool is_reduction_axis(const Nest& n, Expr var);
const Inst* find_reduce(const Nest& n);

}  // namespace oxy::schedule
