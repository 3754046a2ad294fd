// Linear layers of f32 through oneDNN with plain weights (mkldnn::_linear_pointwise), which beats the BLAS that ATen
// calls on machines with AVX-512. For the setting `products`, as a candidate of max-autotune; stands last, when it is
// settled which products there are.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool use_onednn(ir::Graph& g);
}
