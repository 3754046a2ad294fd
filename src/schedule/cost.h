// What things cost, in the units of one simple vector operation per element. Rough on purpose: it
// only ranks choices.
#pragma once

#include "schedule/kernel.h"

namespace oxy::schedule {

int cost_of(LoopOp op);
int cost_of(const loops::Body& body);
// A size at the hints; nothing where it has none, or differs from iteration to iteration. What
// decides by it must be right at all sizes, and good at those that the hints stand for.
std::optional<int64_t> hinted(Expr e);
// The number of iterations where it is constant, else the number at the hints (variables of loops
// at their first value), else a guess.
int64_t count_of(Expr e);
// Of a symbolic size: whether there are calls at which it is 0. What a loop of it loads must not be
// loaded outside of it then.
bool may_be_empty(Expr size);
// Whether a tensor's size is known only once a step of the call has run.
bool is_late(const ir::TensorType& type);
// At least as many as a loop of this size has whatever the variables around it are; 0 where that is
// not known.
Expr most_iterations(Expr size);
int64_t iterations(const std::vector<loops::Axis>& axes);

int64_t iteration_cost(const Kernel& k);  // Kernel::cost of its loops as they are
// The same as an expression of the sizes that vary.
Expr varying_cost(const Kernel& k);
// Bytes of the elements that it loads and of those that it stores, each once however often it comes
// back to them: what must be moved if the cache holds the rest, and what its time is compared with
// where the machine's bandwidth is the limit. Local buffers do not count. At the hints where sizes
// are symbols.
int64_t moved_bytes(const Kernel& k);

}  // namespace oxy::schedule
