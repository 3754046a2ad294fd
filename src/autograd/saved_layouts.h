// How the forward lays out what it saves: as its convolutions like it, where those of the backward
// like the same.
#pragma once

#include <map>

#include "autograd/partition.h"

namespace oxy::autograd {

// Marks the images among the saved values as outputs of any layout, where a convolution of the
// backward that wants channels-last reads or writes images of that size.
void open_layouts(Partition& parts, const Machine& machine);

// The forward has laid out these outputs so. What reads them in the backward reads a copy in the
// layout that it had, which fuses as any copy does, or is not made where channels-last is wanted.
void close_layouts(Partition& parts, const std::map<size_t, std::vector<ir::Expr>>& strides);

}  // namespace oxy::autograd
