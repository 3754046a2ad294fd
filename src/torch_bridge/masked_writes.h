// x[mask] = value where `value` has a gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace oxy::bridge {

// What index_put gives for these arguments (self, indices, values, accumulate), written as a choice
// between two values: autograd's formula for the gradient of `values` picks elements by the mask,
// as many as the data say, where that of a choice has the size of `self`. Nothing where `values`
// needs no gradient, or has a value for each element that the mask picks.
std::optional<at::Tensor> chosen_by_mask(c10::ArrayRef<c10::IValue> args);

}  // namespace oxy::bridge
