// Functionalisation of ops from outside torch that write to their arguments: torch's own covers its
// own ops only.
//
// The graph gets one functional node: its outputs are the op's returns, then the new value of each
// written argument, in the order of the schema. Whoever runs the node copies those arguments first
// (bound_call.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

namespace oxy::bridge {

// Positions of the tensor arguments that an op writes. Nothing where it writes none, or in a way
// that we do not model (a list, a result that aliases an argument, an op of torch itself).
std::vector<size_t> written_arguments(const c10::FunctionSchema& schema);

// While these live, the overloads of `name` ("mylib::foo") that write to arguments have a
// functionalisation.
std::vector<c10::RegistrationHandleRAII> make_functional(std::string_view name);

}  // namespace oxy::bridge
