// The stack's depth and the open blocks by following every edge once (CPython's code has one depth,
// and the same blocks, on every way to an instruction); live locals by a fixpoint.
#include "python/bytecode/flow.h"

#include <optional>

#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "support/check.h"

namespace oxy::python {

namespace {

// For each instruction the index of the range that covers it, -1 for none.
std::vector<int> covering_ranges(const Bytecode& bytecode) {
  std::vector<int> covering(bytecode.instructions.size(), -1);
  for (size_t i = 0; i < bytecode.ranges.size(); ++i)
    for (int at = bytecode.ranges[i].start; at < bytecode.ranges[i].end; ++at)
      covering[at] = static_cast<int>(i);
  return covering;
}

// Where an instruction may go instead of to the next one; -1 for none. END_ASYNC_FOR of 3.14 names
// the SEND of its loop, and does not go there.
int goes_to(const Instruction& in) { return in.op == END_ASYNC_FOR ? -1 : in.target; }

void unite(std::vector<bool>& into, const std::vector<bool>& from) {
  for (size_t i = 0; i < into.size(); ++i)
    if (from[i]) into[i] = true;
}

}  // namespace

StackDepths stack_depths(const Bytecode& bytecode, int flags) {
  StackDepths depths{std::vector<int>(bytecode.instructions.size(), -1)};
  if (depths.before.empty()) return depths;
  std::vector<int> waiting;
  auto reach = [&](int at, int depth) {
    OXY_CHECK(depth >= 0 && at < static_cast<int>(depths.before.size()), "at instruction ", at);
    depths.most = std::max(depths.most, depth);
    if (depths.before[at] >= 0) return;
    depths.before[at] = depth;
    waiting.push_back(at);
  };
  const bool generator = flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
  reach(0, kEntersWithSent && generator ? 1 : 0);
  const std::vector<int> covering = covering_ranges(bytecode);
  while (!waiting.empty()) {
    const int at = waiting.back();
    waiting.pop_back();
    if (covering[at] >= 0) {
      const ExceptionRange& range = bytecode.ranges[covering[at]];
      reach(range.target, range.depth + kRaisedValues + (range.push_lasti ? 1 : 0));
    }
    const Instruction& in = bytecode.instructions[at];
    const int depth = depths.before[at];
    if (const int to = goes_to(in); to >= 0) reach(to, depth + stack_effect(in.op, in.arg, true));
    if (falls_through(in.op)) reach(at + 1, depth + stack_effect(in.op, in.arg, false));
  }
  return depths;
}

std::vector<ExceptionRange> ranges_of_blocks(const Bytecode& bytecode, int flags) {
  using Blocks = std::vector<int>;  // their handlers, the innermost last
  std::vector<std::optional<Blocks>> open(bytecode.instructions.size());
  std::vector<int> waiting;
  auto reach = [&](int at, Blocks blocks) {
    if (open[at]) return;
    open[at] = std::move(blocks);
    waiting.push_back(at);
  };
  if (!open.empty()) reach(0, {});
  while (!waiting.empty()) {
    const int at = waiting.back();
    waiting.pop_back();
    const Instruction& in = bytecode.instructions[at];
    Blocks next = *open[at];
    // The handler is outside the block.
    if (in.target >= 0) reach(in.target, next);
    if (opens_block(in.op)) next.push_back(in.target);
    if (in.op == POP_BLOCK && !next.empty()) next.pop_back();
    if (falls_through(in.op)) reach(at + 1, std::move(next));
  }
  const StackDepths depths = stack_depths(bytecode, flags);
  std::vector<ExceptionRange> ranges;
  for (int at = 0; at < static_cast<int>(open.size()); ++at) {
    if (!open[at] || open[at]->empty()) continue;
    const int target = open[at]->back();
    if (!ranges.empty() && ranges.back().end == at && ranges.back().target == target)
      ++ranges.back().end;
    else
      ranges.push_back({at, at + 1, target, depths.before[target] - kRaisedValues, false});
  }
  return ranges;
}

// Backwards. An exception may come before an instruction's write, so what its handler reads is live
// in front of the instruction whatever it writes.
std::vector<std::vector<bool>> live_locals(const Bytecode& bytecode, PyCodeObject* code) {
  const int count = static_cast<int>(bytecode.instructions.size());
  std::vector<bool> always(slot_count(code));
  for (int slot = 0; slot < slot_count(code); ++slot) always[slot] = is_cell(code, slot);
  if (reads_first_argument(code)) always[0] = true;
  const std::vector<int> covering = covering_ranges(bytecode);
  std::vector<std::vector<bool>> live(count, always);
  auto before = [&](int at) {
    const Instruction& in = bytecode.instructions[at];
    std::vector<bool> result = always;
    if (falls_through(in.op) && at + 1 < count) unite(result, live[at + 1]);
    if (const int to = goes_to(in); to >= 0) unite(result, live[to]);
    const LocalUse use = local_use(in.op, in.arg);
    for (int slot : use.written)
      if (slot >= 0) result[slot] = always[slot];
    for (int slot : use.read)
      if (slot >= 0) result[slot] = true;
    if (covering[at] >= 0) unite(result, live[bytecode.ranges[covering[at]].target]);
    return result;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (int at = count - 1; at >= 0; --at) {
      std::vector<bool> now = before(at);
      if (now == live[at]) continue;
      live[at] = std::move(now);
      changed = true;
    }
  }
  return live;
}

}  // namespace oxy::python
