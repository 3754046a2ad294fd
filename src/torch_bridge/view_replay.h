// Views that a call returns, made of real tensors.
//
// What a graph keeps of a view is its place: sizes, strides and an offset. `as_strided` makes that,
// and its gradient allocates, zeroes and adds up memory in an order that it has to find out first.
// Where slices, a view and a permutation of the base give the same place, these are used: their
// gradients are as cheap as eager's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace oxy::bridge {

// A view by place; offset counts from the start of the storage.
struct ViewPlace {
  c10::IntArrayRef sizes, strides;
  int64_t offset = 0;
};

// Whether it is a view that an autograd.Function has given, or one of that: its gradient is not
// that of its place.
bool is_view_of_function(const at::Tensor& t);

// Whether it is one of several views that an op gave, or a view of that, for autograd to know it as
// such a one.
bool is_piece(const at::Tensor& t);

// `base` seen so.
at::Tensor view_at(const at::Tensor& base, const ViewPlace& place);

// Pieces that ops have cut `base` into (split, chunk, unbind), as results of such ops: writes to
// them raise as in eager. Those that follow each other are results of one. Undefined where a place
// is no piece.
std::vector<at::Tensor> pieces_at(const at::Tensor& base, const std::vector<ViewPlace>& places);

}  // namespace oxy::bridge
