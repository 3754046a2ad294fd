// A number that is another one at each call of a graph, as torch's C++ code sees it while the graph
// is recorded: a Scalar whose value nobody knows. Whoever asks for it gets Unsupported.
#pragma once

#include <c10/core/Scalar.h>

#include <optional>

#include "ir/graph.h"

namespace oxy::bridge {

// What `value`, a tensor without dimensions, holds.
c10::Scalar runtime_number(ir::ValueId value, bool integer);
// The tensor behind such a number; nothing for any other.
std::optional<ir::ValueId> tensor_behind(const c10::Scalar& s);

}  // namespace oxy::bridge
