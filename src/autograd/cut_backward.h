// Cuts a backward graph where gradients fill buckets, so that whoever sends gradients around (as
// torch's DistributedDataParallel does) can send those that are there while the rest is computed.
//
// The pieces stand in the graph's order; each has the gradients that become known in it, and gives
// the next one what later pieces read of it: `carried`. What is linear in the tangents plays the
// part of tangents there, so that it may be undefined like them.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

struct GradientBuckets {
  int64_t first = 0, rest = 0;  // bytes that fill the first bucket, and each later one
};

struct Piece {
  ir::Graph graph;  // inputs: `saved` in order, `values`, then tangents. Outputs: a gradient by
                    // primal, None where another piece has it, then what the next piece gets
  std::vector<uint32_t> saved;    // inputs of the whole backward
  std::vector<uint32_t> primals;  // whose gradients it has
  size_t values = 0;              // inputs that the piece before gives and that are no gradients
  size_t tangents = 0;            // of the first piece the whole backward's, else carried gradients

  size_t carried() const { return values + tangents; }  // of a piece that is not the first
};

// `tangents`: so many of its last inputs. The graph as one piece where it has one bucket, or where
// no cut can be made: a number of the data crosses it, or a size that no input of a piece shows.
std::vector<Piece> cut_backward(const ir::Graph& backward, size_t tangents,
                                const std::optional<GradientBuckets>& buckets);

}  // namespace oxy::autograd
