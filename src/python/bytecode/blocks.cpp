// Every way to an instruction has the same open blocks there, so each edge is followed once.
#include "python/bytecode/blocks.h"

#include <optional>

#include "python/bytecode/flow.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

namespace {

using Blocks = std::vector<int>;  // their handlers, the innermost last

bool opens_block(uint8_t op) {
  return op == SETUP_FINALLY || op == SETUP_WITH || op == SETUP_ASYNC_WITH;
}

std::vector<std::optional<Blocks>> open_blocks(const Bytecode& bytecode) {
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
  return open;
}

}  // namespace

std::vector<ExceptionRange> ranges_of_blocks(const Bytecode& bytecode, int flags) {
  const auto open = open_blocks(bytecode);
  const StackDepths depths = stack_depths(bytecode, flags);
  std::vector<ExceptionRange> ranges;
  for (int at = 0; at < static_cast<int>(open.size()); ++at) {
    if (!open[at] || open[at]->empty()) continue;
    const int target = open[at]->back();
    if (!ranges.empty() && ranges.back().end == at && ranges.back().target == target) {
      ++ranges.back().end;
      continue;
    }
    ranges.push_back({at, at + 1, target, depths.before[target] - kRaisedValues, false});
  }
  return ranges;
}

}  // namespace oxy::python
