// A loop as fusion and loop order see it: memory is flat. And groups of them.
//
// Each load and store has one index, the offset in elements into a buffer that is no View. Axes of
// size 1 are gone, and an axis is split where that makes every index linear in the axes (a reshape
// between producer and consumer leaves p0//64 and p0%64 behind; as two axes both are variables).
// Split before fusion, so that loops whose memory is walked alike have axes alike.
#pragma once

#include <optional>
#include <ranges>

#include "schedule/kernel.h"

namespace oxy::schedule {

using loops::Axis;
using loops::Body;
using loops::Inst;

struct Nest {
  std::string name;
  std::vector<Axis> axes;
  // index[0] is the flat offset of Load, Store, StoreAdd; the position of a Reduce to a position.
  Body body;
  std::vector<ir::NodeId> origins;
  // Written by the first loop of a reduction in two, read by the second one: never one kernel.
  BufferId partial;
};

// Nests that run together at each iteration of common parallel axes.
struct Group {
  std::vector<Nest> nests;     // in an order that respects their dependences
  std::vector<Axis> parallel;  // axes that every nest has; equal variables are the same axis
                               // throughout the group
};
// All axes that are not reductions: the parallel axes of a nest alone.
Group group_of(Nest n);

// The instructions of all nests of a list, in order.
template <class Nests>
auto instructions(Nests& nests) {
  return nests | std::views::transform(&Nest::body) | std::views::join;
}
// The nest's first one with the operation, or null.
const Inst* find_inst(const Nest& n, LoopOp op);

// The place of the axis with the variable; the number of axes where there is none.
size_t place_of(const std::vector<Axis>& axes, Expr var);
// For a group's parallel axes: whether that axis is parallel.
bool has_axis(const std::vector<Axis>& axes, Expr var);
bool is_reduction_axis(const Nest& n, Expr var);
// The variable of the axis whose neighbours are neighbours in memory: of the store for an
// elementwise loop; of most loads for a reduction, where those a few elements apart count as part
// of a neighbour. An invalid result (0) where there is none.
Expr contiguous_axis(const Nest& n);

Nest flatten(const loops::Program& p, const loops::Loop& l);

// e with the variables replaced.
using Substitution = std::vector<std::pair<Expr, Expr>>;
Expr replace(Expr e, const Substitution& subst);
void replace(Nest& n, const Substitution& subst);  // in indices; axes stay

// Divisions that the sizes of the axes decide: (p0 + s1*p1) // s1 is p1 where p0 goes to s1. Where
// a size is constant the variable's range says so, and the expression has its simplest form by
// itself.
void simplify_divisions(Nest& n);
// Makes the axis of a variable, where it is there, two: outer of size / inner, inner. Only where
// inner divides the size.
void split_axis(std::vector<Axis>& axes, Expr var, Expr outer_var, Expr inner_var, Expr inner);
// Whether that is so at all sizes.
inline bool divides(Expr inner, Expr size) {
  if (inner.is_const()) return inner.value() > 0 && sym::divisible(size, inner.value());
  return sym::certain_less(0, inner) == true && sym::floordiv(size, inner) * inner == size;
}

// Whether an index depends on inner_size * outer + inner alone.
bool walks_as_one(Expr e, Expr outer, Expr inner, Expr inner_size);
// Whether the axes `outer` and `inner` can be one: every index walks them as one axis of size outer
// * inner.
bool mergeable(const std::vector<Nest>& nests, Expr outer, Expr inner, Expr inner_size);
// Puts `merged` in the place of both in all indices.
void merge_axes(std::vector<Nest>& nests, Expr outer, Expr inner, Expr merged);
// Order of axes by the strides of what the nests write (or read, for a reduction): the largest
// first.
void sort_by_stride(std::vector<Axis>& axes, const std::vector<Nest>& nests);

// Renames the axes of `b` so that equal variables in both groups mean the same axis, and splits
// axes of either where a reshape lies between them. The match follows shared buffers: an axis of b
// is the axis of a that has the same stride and size there; axes that nothing matches take any axis
// of equal size that is free, else a name of their own.
void align_groups(loops::Program& p, Group& a, Group& b);
// The parallel axes that a merged group would have: axes of every nest of both that are no
// reduction and that every element passed between the groups has in common. Nothing where some read
// reaches other iterations' elements.
std::optional<std::vector<Axis>> common_parallel_axes(const Group& a, const Group& b);
// The same memory read at one index by both.
bool share_reads(const Group& a, const Group& b);

// The coefficient of a variable; 0 where it does not occur; nothing where the index is not linear
// in it.
std::optional<Expr> coefficient(Expr index, Expr var);

// A variable of an index: by how much it moves the place, and the axis' size.
struct Digit {
  Expr var, stride, size;
};
// What an access does besides its parallel axes.
struct PrivateIndex {
  bool linear = true;         // in all axes
  std::vector<Digit> digits;  // none where it is not linear
  Expr rest = 0;              // all but the parallel axes' terms, digits included
  Expr constant = 0;          // what remains without the digits
};
PrivateIndex private_index(const Nest& n, const Inst& i, const std::vector<Axis>& parallel);

// An axis in pieces: `outer` counts them, `inner` walks one, of which the last may be shorter;
// `place` is where that is in the whole axis.
struct Pieces {
  Axis outer, inner;
  Expr place;
};
Pieces cut_axis(loops::VariableScope& scope, Expr size, int64_t piece);

// A symbol for a loaded index that has the range of another one.
Expr another_index(loops::VariableScope& scope, Expr old);

inline bool gives_position(ReduceKind k) {
  return k == ReduceKind::ArgMax || k == ReduceKind::ArgMin;
}
// Reductions as operations: how two partial results combine, and the result of folding nothing.
LoopOp fold_of(ReduceKind kind, DType dtype);
Inst identity_of(ReduceKind kind, DType dtype);

}  // namespace oxy::schedule
