// Which axes of two groups are the same: found by how both walk the memory that they share.
#pragma once

#include <string>

#include "schedule/fuse_nests.h"

namespace oxy::schedule {

// Renames the axes of `b` so that equal variables in both groups mean the same axis, and splits
// axes of either where a reshape lies between them. The match follows shared buffers: an axis of b
// is the axis of a that has the same stride and size there; axes that nothing matches take any axis
// of equal size that is free, else a name of their own.
void align_groups(loops::Program& p, Group& a, Group& b);

// The parallel axes that a merged group would have: axes of every nest of both that are no
// reduction and that every element passed between the groups has in common. `why` says what stands
// against it where some read reaches other iterations' elements.
std::optional<std::vector<Axis>> common_parallel_axes(const Group& a, const Group& b,
                                                      std::string& why);

// The same memory read at one index by both.
bool share_reads(const Group& a, const Group& b);

}  // namespace oxy::schedule
