// Random joint graphs with known meaning: a forward of 4 x 4 matrices, and its backward by a small
// reverse mode.
#pragma once

#include <random>

#include "ir/graph.h"

namespace oxy::autograd {

// Views, products, reductions, masks, results that are views, inputs that are written to, gradients
// that are None. The same seed gives the same graph.
ir::Graph random_joint(uint32_t seed);

}  // namespace oxy::autograd
