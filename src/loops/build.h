// An ATen graph to a Program: first step of the lowering, after all graph passes and before any
// scheduling.
//
// A node with an element or reduction rule becomes a loop, a gemm or convolution a contraction; any
// other is an extern step. A view has no step: loops read its source at changed indices; where an
// extern op, the caller or a mutation needs it in memory it is a strided alias of its source's
// buffer, or, where strides cannot express it, a copying loop. A loop's buffer has the strides of
// the value's type, made dense where the type has holes and nobody outside sees it.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::loops {

struct BuildOptions {
  bool kernels = true;            // false: every node is an extern step
  ops::Providers providers = {};  // who may compute gemms and convolutions
};

Program build_program(const ir::Graph& graph, const BuildOptions& options);

}  // namespace oxy::loops
