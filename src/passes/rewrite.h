// Changing a call in place: another op or other arguments for the same result.
#pragma once

#include <string_view>
#include <vector>

#include "ops/rewriter.h"

namespace oxy::passes {

// Makes `n` a call of `op` with `args`, if the op's shape rule says that its outputs keep their
// layouts (and its row applies to the node where it applied before). Otherwise leaves `n` as it is
// and returns false.
bool rewrite(ir::Graph& g, ir::Node& n, std::string_view op, std::vector<ir::Arg> args);

// An argument as a constant integer.
std::optional<int64_t> integer(const ir::Arg& a);
// An argument as a list of constant integers; a single one counts as a list of one.
std::optional<std::vector<int64_t>> integers(const ir::Arg& a);
using ops::list_of;

// The type of an argument that is a tensor, or nullptr.
const ir::TensorType* tensor_of(const ir::Graph& g, const ir::Arg& a);

}  // namespace oxy::passes
