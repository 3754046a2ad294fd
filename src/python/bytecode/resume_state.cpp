// What an instruction leaves on the stack of a frame: NULLs, exceptions that are being handled.
#include <algorithm>

#include "python/bytecode/resume.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

namespace {

void move_places(std::vector<int>& places, uint32_t rotated, int top) {
  const int first = top - static_cast<int>(rotated) + 1;
  for (int& place : places)
    if (place >= first) place = place == top ? first : place + 1;
}

}  // namespace

std::vector<bool> nulls_after(const Bytecode& bytecode, int index, const FrameState& state,
                              bool jumps) {
  std::vector<bool> before = state.null_on_stack;
  const auto [first, last] = group_of(bytecode, index);
  const Instruction& in = bytecode.instructions[last];
  size_t depth = before.size() + static_cast<size_t>(stack_effect(in.op, in.arg, jumps));
  for (int at = first; at < last; ++at)
    depth += static_cast<size_t>(
        stack_effect(bytecode.instructions[at].op, bytecode.instructions[at].arg, false));
  // The NULLs that it takes away.
  size_t taken = in.op == CALL || in.op == CALL_METHOD ? in.arg + 2
                 : in.op == CALL_KW                    ? in.arg + 3
                 : in.op == CALL_FUNCTION_EX && kCallsTakeNull
                     ? 3 + (kKeywordsOrNull || (in.arg & 1))
                     : 0;
  if (in.op == SWAP) {
    const bool top = before.back(), other = before[depth - in.arg];
    before.back() = other;
    before[depth - in.arg] = top;
  }
  if (const uint32_t moved = rotated_by(in.op, in.arg); moved > 0)
    std::rotate(before.end() - moved, before.end() - 1, before.end());
  const bool pushes_null = in.op == PUSH_NULL || (in.op == COPY && before[before.size() - in.arg]);
  before.resize(before.size() - taken);
  before.resize(depth, false);
  if (pushes_null) before.back() = true;
  if (in.op == LOAD_FAST_AND_CLEAR) before.back() = std::ranges::count(state.locals, in.arg) == 0;
  if (loads_method(in.op, in.arg) || (kGlobalsPushNull && in.op == LOAD_GLOBAL && (in.arg & 1)))
    before[depth - (kNullFollows ? 1 : 2)] = true;
  return before;
}

std::vector<int> handling_after(const Bytecode& bytecode, int index, std::vector<int> before,
                                size_t depth) {
  const Instruction& in = bytecode.instructions[group_of(bytecode, index).last];
  const int top = static_cast<int>(depth) - 1, other = top - static_cast<int>(in.arg) + 1;
  if (in.op == PUSH_EXC_INFO) before.push_back(top);
  if (before.empty()) return before;
  move_places(before, rotated_by(in.op, in.arg), top);
  int& last = before.back();
  if (in.op == POP_EXCEPT)
    before.pop_back();
  else if (in.op == COPY && last == other)
    last = top + 1;
  else if (in.op == SWAP)
    last = last == top ? other : last == other ? top : last;
  return before;
}

std::vector<int> tracebacks_after(const Bytecode& bytecode, int index, std::vector<int> before,
                                  size_t depth) {
  const Instruction& in = bytecode.instructions[group_of(bytecode, index).last];
  const auto after = static_cast<int>(depth) + stack_effect(in.op, in.arg, false);
  std::erase_if(before, [=](int place) { return place >= after; });
  move_places(before, rotated_by(in.op, in.arg), static_cast<int>(depth) - 1);
  return before;
}

}  // namespace oxy::python
