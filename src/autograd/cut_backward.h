// Cuts a backward graph into pieces, each of which a node of autograd's runs.
//
// By buckets: where gradients fill them, so that whoever sends gradients around (as torch's
// DistributedDataParallel does) can send those that are there while the rest is computed. The
// pieces stand in the graph's order.
//
// By results: in front of each result that others are computed from, so that what arrives at it by
// those can be seen there (its hooks, a gradient by it). A tangent arrives at the piece of its
// level; all gradients are of the last piece. Pieces that lie side by side can be one, where nobody
// looks at what lies between them: what depends on no tangent is computed in each that reads it.
//
// Each piece gives the next one what later pieces read of it: `carried`. What is linear in the
// tangents plays the part of tangents there, so that it may be undefined like them.
#pragma once

#include "ir/graph.h"

namespace oxy::autograd {

struct GradientBuckets {
  int64_t first = 0, rest = 0;  // bytes that fill the first bucket, and each later one
};

struct Piece {
  ir::Graph graph;  // inputs: `saved` in order, `values`, then tangents. Outputs: a gradient by
                    // primal, None where another piece has it, then what the next piece gets: what
                    // is carried, and what has arrived at each of its results
  std::vector<uint32_t> saved;    // inputs of the whole backward
  std::vector<uint32_t> primals;  // whose gradients it has
  size_t values = 0;              // inputs that the piece before gives and that are no gradients
  size_t carried = 0;             // inputs that it gives
  size_t tangents = 0;            // carried gradients, then the backward's own
};

class BackwardCut {
 public:
  // `tangents`: so many of its last inputs. One piece where there is one bucket, or where no cut
  // can be made: a number of the data crosses it, or a size that no input of a piece shows.
  BackwardCut(const ir::Graph& backward, size_t tangents,
              const std::optional<GradientBuckets>& buckets);
  // `levels`, by tangent: by how many others, one behind the other, gradients come to its result
  // at most. What comes is added to the tangent by its only reader, else the result is not seen.
  BackwardCut(const ir::Graph& backward, std::vector<uint32_t> levels);

  size_t size() const { return count_; }
  // Whether pieces that lie side by side can be one.
  bool is_by_results() const { return by_results_; }
  // Whether what arrives at a result by others can be seen there.
  bool shows_arriving(uint32_t t) const { return count_ > 1 && !sum_.empty() && sum_[t].valid(); }
  // What arrives at a piece from outside.
  const std::vector<uint32_t>& tangents(size_t k) const { return tangents_[k]; }
  // The pieces from `first` to `last` as one: its tangents are in the order of the pieces.
  Piece make(size_t first, size_t last) const { return *try_make(first, last); }

 private:
  static constexpr uint32_t kNever = UINT32_MAX;

  void find_calls();
  void follow_tangents();
  void find_sums();
  void place_gradients();
  void choose_borders(const GradientBuckets& buckets);
  void follow_values();
  void read(ir::ValueId v, uint32_t piece);
  void finish(bool can_cut);
  std::vector<ir::ValueId> carried_to(size_t k) const;
  std::optional<Piece> try_make(size_t first, size_t last) const;
  bool add_carried(Piece& piece, size_t next, const auto& here) const;
  void arrange(Piece& piece, const std::vector<ir::ValueId>& tangents,
               const std::vector<ir::Expr>& symbols) const;

  const ir::Graph& g_;
  const size_t first_tangent_;
  const bool by_results_;
  std::vector<uint32_t> levels_;  // by tangent
  uint32_t count_ = 1;
  bool can_cut_ = true;
  std::vector<std::vector<uint32_t>> tangents_;  // by piece
  std::vector<ir::NodeId> calls_;
  std::vector<size_t> known_;            // by output
  std::vector<uint32_t> piece_of_call_;  // by call; kNever: each that reads it
  // By tangent, where its result is seen: what has arrived, and that and the tangent.
  std::vector<ir::ValueId> arrived_, sum_;
  // By value: the piece that it is made in, the last one that reads it, and the last that reads it
  // as what has arrived.
  std::vector<uint32_t> made_, last_read_, arrives_at_;
  std::vector<bool> linear_;
};

}  // namespace oxy::autograd
