// Padding by reflection and replication: what it and its gradient have in common.
#pragma once

#include "ops/args.h"

namespace oxy::ops {

// Elements before and after each of the last dimensions; the list names the last one first.
struct Borders {
  Expr before = 0, after = 0;
};

// Of self, padding. `cut`: they may be negative.
std::optional<std::vector<Borders>> borders(const Args& a, size_t dims, bool cut = false);

// The type of `dims` padded dimensions; with or without a batch. What eager refuses is unknown.
bool shape_of_padded(const Args& a, bool reflect, size_t dims, Types& out);

}  // namespace oxy::ops
