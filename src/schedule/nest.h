// A loop as fusion and loop order see it: memory is flat.
//
// Each load and store has one index, the offset in elements into a buffer that is no View. Axes of
// size 1 are gone, and an axis is split where that makes every index linear in the axes (a reshape
// between producer and consumer leaves p0//64 and p0%64 behind; as two axes both are variables).
// Split before fusion, so that loops whose memory is walked alike have axes alike.
#pragma once

#include <optional>

#include "loops/loop_ir.h"

namespace oxy::schedule {

using loops::Axis;
using loops::Body;
using loops::BufferId;
using loops::Inst;
using loops::LoopOp;
using sym::Expr;

struct Nest {
  std::string name;
  std::vector<Axis> axes;
  // index[0] is the flat offset of Load, Store, StoreAdd; the position of a Reduce to a position.
  Body body;
  std::vector<ir::NodeId> origins;
  // Written by the first loop of a reduction in two, read by the second one: never one kernel.
  BufferId partial;
};

inline bool touches_memory(LoopOp op) {
  return op == LoopOp::Load || op == LoopOp::Store || op == LoopOp::StoreAdd;
}

// Whether one of the axes has the variable: for a group's parallel axes, whether that axis is
// parallel.
bool has_axis(const std::vector<Axis>& axes, Expr var);

Nest flatten(const loops::Program& p, const loops::Loop& l);

// e with the variables replaced.
using Substitution = std::vector<std::pair<Expr, Expr>>;
Expr replace(Expr e, const Substitution& subst);
void replace(Nest& n, const Substitution& subst);  // in indices; axes stay

// Makes axis `at` two: outer of size / inner, inner. Only where inner divides the size.
void split_axis(Nest& n, size_t at, Expr outer_var, Expr inner_var, int64_t inner);

// The coefficient of a variable; 0 where it does not occur; nothing where the index is not linear
// in it.
std::optional<Expr> coefficient(Expr index, Expr var);
// The variables of an index and what remains without them; nothing where one of them is not linear.
struct Linear {
  std::vector<std::pair<Expr, Expr>> terms;  // variable, coefficient (not 0)
  Expr rest = 0;
};
std::optional<Linear> linear(Expr index, const std::vector<Axis>& axes);

}  // namespace oxy::schedule
