// The Plan in which every node of an ATen graph is an extern call: no kernel, no arena. What runs when kernels are
// switched off, and the yardstick that tells an error of the recording from an error of a kernel.
#pragma once

#include <functional>

#include "runtime/plan.h"

namespace oxy::runtime {

// The metadata of a type whose sizes are all constants (InternalError otherwise).
TensorMeta meta_of(const ir::TensorType& t);
// Bytes between the first and the last element, both included, and the storage offset before them.
int64_t span_bytes(const TensorMeta& m);
// What the caller gets for an output of the graph; `buffer` says where a value lies.
PlanOutput output_of(const ir::Graph& g, const ir::OutputSpec& spec,
                     const std::function<uint32_t(ir::ValueId)>& buffer);
// What the plan does for a mutation of the graph, whose value lies in `buffer`.
PlanMutation mutation_of(const ir::Graph& g, const ir::Mutation& m, uint32_t buffer, bool in_place);

Plan make_extern_plan(const ir::Graph& aten);

}  // namespace oxy::runtime
