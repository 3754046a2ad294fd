// The stack's depth by following every edge once: CPython's code has one depth per instruction.
#include "python/bytecode/flow.h"

#include <algorithm>

#include "python/cpython/opcodes.h"
#include "support/check.h"

namespace oxy::python {

namespace {

class DepthWalk {
 public:
  DepthWalk(const Bytecode& bytecode, int flags) : bytecode_(bytecode) {
    result_.before.assign(bytecode.instructions.size(), -1);
    const bool generator = flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
    reach(0, kEntersWithSent && generator ? 1 : 0);
  }

  StackDepths run() {
    std::vector<int> covering = covering_ranges(bytecode_);
    while (!open_.empty()) {
      int at = open_.back();
      open_.pop_back();
      if (int range = covering[at]; range >= 0) enter_handler(bytecode_.ranges[range]);
      leave(at);
    }
    return std::move(result_);
  }

 private:
  void reach(int at, int depth) {
    OXY_CHECK(depth >= 0 && at < static_cast<int>(result_.before.size()), "at instruction ", at);
    result_.most = std::max(result_.most, depth);
    if (result_.before[at] >= 0) return;
    result_.before[at] = depth;
    open_.push_back(at);
  }

  void enter_handler(const ExceptionRange& range) {
    reach(range.target, range.depth + kRaisedValues + (range.push_lasti ? 1 : 0));
  }

  void leave(int at) {
    const Instruction& in = bytecode_.instructions[at];
    int depth = result_.before[at];
    if (in.target >= 0) reach(in.target, depth + stack_effect(in.op, in.arg, true));
    if (falls_through(in.op)) reach(at + 1, depth + stack_effect(in.op, in.arg, false));
  }

  const Bytecode& bytecode_;
  StackDepths result_;
  std::vector<int> open_;
};

}  // namespace

std::vector<int> covering_ranges(const Bytecode& bytecode) {
  std::vector<int> covering(bytecode.instructions.size(), -1);
  for (size_t i = 0; i < bytecode.ranges.size(); ++i)
    for (int at = bytecode.ranges[i].start; at < bytecode.ranges[i].end; ++at)
      covering[at] = static_cast<int>(i);
  return covering;
}

std::vector<int> successors(const Bytecode& bytecode, int index) {
  const Instruction& in = bytecode.instructions[index];
  std::vector<int> result;
  if (falls_through(in.op) && index + 1 < static_cast<int>(bytecode.instructions.size()))
    result.push_back(index + 1);
  if (in.target >= 0) result.push_back(in.target);
  return result;
}

StackDepths stack_depths(const Bytecode& bytecode, int flags) {
  if (bytecode.instructions.empty()) return {};
  return DepthWalk(bytecode, flags).run();
}

}  // namespace oxy::python
