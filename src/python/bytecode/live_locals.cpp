// Backward dataflow to a fixpoint. An exception may come before an instruction's write, so what its
// handler reads is live in front of the instruction whatever it writes.
#include "python/bytecode/code.h"
#include "python/bytecode/flow.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

namespace {

void unite(std::vector<bool>& into, const std::vector<bool>& from) {
  for (size_t i = 0; i < into.size(); ++i)
    if (from[i]) into[i] = true;
}

std::vector<bool> always_live(PyCodeObject* code) {
  std::vector<bool> live(slot_count(code));
  for (int slot = 0; slot < slot_count(code); ++slot) live[slot] = is_cell(code, slot);
  if (reads_first_argument(code)) live[0] = true;
  return live;
}

}  // namespace

std::vector<std::vector<bool>> live_locals(const Bytecode& bytecode, PyCodeObject* code) {
  int count = static_cast<int>(bytecode.instructions.size());
  const std::vector<bool> always = always_live(code);
  const std::vector<int> covering = covering_ranges(bytecode);
  std::vector<std::vector<bool>> live(count, always);
  auto before = [&](int at) {
    const Instruction& in = bytecode.instructions[at];
    std::vector<bool> result = always;
    for (int next : successors(bytecode, at)) unite(result, live[next]);
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
