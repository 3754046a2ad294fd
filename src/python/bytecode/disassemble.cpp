// Bytes to instructions: EXTENDED_ARG and caches disappear, offsets become indices.
#include "python/bytecode/assemble.h"
#include "python/bytecode/flow.h"
#include "support/check.h"

namespace oxy::python {

Bytecode disassemble(PyCodeObject* code) {
  const Reference held = code_bytes(code);
  OXY_CHECK(held, "the code's bytes");
  const std::string_view bytes = bytes_view(held.get());
  const int units = static_cast<int>(bytes.size() / 2);
  Bytecode out;
  out.first_cell = first_cell_argument(code);
  std::vector<int> index_at(units + 1, -1);  // the instruction at a code unit, -1 within caches
  auto index_of = [&](int unit) {
    OXY_CHECK(unit >= 0 && unit <= units && index_at[unit] >= 0, "no instruction at ", 2 * unit);
    return index_at[unit];
  };
  const std::vector<Location> locations =
      read_locations(bytes_view(code->co_linetable), code->co_firstlineno, units);
  for (int unit = 0; unit < units; ++unit) {
    Instruction in;
    // A jump may go to the first EXTENDED_ARG.
    for (;; ++unit) {
      index_at[unit] = static_cast<int>(out.instructions.size());
      in.op = static_cast<uint8_t>(bytes[2 * unit]);
      in.arg = in.arg << 8 | static_cast<uint8_t>(bytes[2 * unit + 1]);
      if (in.op != EXTENDED_ARG || unit + 1 >= units) break;
    }
    in.offset = 2 * unit;
    in.location = locations[unit];
    if (opcode_info(in.op).argument == Argument::cell) in.arg += out.first_cell;
    out.instructions.push_back(in);
    unit += opcode_info(in.op).caches;
  }
  index_at[units] = static_cast<int>(out.instructions.size());
  // Jumps count from behind the instruction and its caches, absolute ones from the start.
  for (Instruction& in : out.instructions) {
    const Opcode& info = opcode_info(in.op);
    if (info.jump == Jump::none) continue;
    const int from = in.offset / 2 + 1 + info.caches, distance = static_cast<int>(in.arg);
    in.target = index_of(info.jump == Jump::forward    ? from + distance
                         : info.jump == Jump::backward ? from - distance
                                                       : distance);
    if (in.op == FOR_ITER) in.target += kForIterSkips;
  }
  if (kHasBlocks) {
    out.ranges = ranges_of_blocks(out, code->co_flags);
    return out;
  }
  out.ranges = read_ranges(range_table(code));
  for (ExceptionRange& range : out.ranges)
    for (int32_t* place : {&range.start, &range.end, &range.target}) *place = index_of(*place);
  return out;
}

Bytecode plain_bytecode(PyCodeObject* code) {
  Bytecode out = disassemble(code);
  std::vector<Instruction> plain;
  std::vector<int32_t> moved;  // where each instruction is now, and the end
  for (const Instruction& in : out.instructions) {
    moved.push_back(static_cast<int32_t>(plain.size()));
    const PlainSteps steps = plain_steps(in.op, in.arg);
    for (int i = 0; i < steps.count; ++i) {
      plain.push_back(in);
      plain.back().op = steps.op[i];
      plain.back().arg = steps.arg[i];
    }
  }
  moved.push_back(static_cast<int32_t>(plain.size()));
  for (Instruction& in : plain)
    if (in.target >= 0) in.target = moved[in.target];
  for (ExceptionRange& range : out.ranges)
    for (int32_t* place : {&range.start, &range.end, &range.target}) *place = moved[*place];
  out.instructions = std::move(plain);
  return out;
}

}  // namespace oxy::python
