// Bytes to instructions: EXTENDED_ARG and caches disappear, offsets become indices.
#include <string_view>

#include "python/bytecode/blocks.h"
#include "python/bytecode/code.h"
#include "python/bytecode/tables.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "support/check.h"

namespace oxy::python {

namespace {

class Disassembler {
 public:
  Disassembler(PyCodeObject* code, std::string_view bytes)
      : code_(code), bytes_(bytes), units_(static_cast<int>(bytes.size() / 2)) {}

  Bytecode run() {
    index_at_.assign(units_ + 1, -1);
    for (int unit = 0; unit < units_;) unit = read_instruction(unit);
    index_at_[units_] = static_cast<int>(result_.instructions.size());
    set_targets();
    set_locations();
    set_ranges();
    return std::move(result_);
  }

 private:
  uint8_t byte(int at) const { return static_cast<uint8_t>(bytes_[at]); }

  // Reads one instruction with its EXTENDED_ARGs; answers the unit behind its caches. A jump may go
  // to the first EXTENDED_ARG.
  int read_instruction(int unit) {
    Instruction instruction;
    int index = static_cast<int>(result_.instructions.size());
    for (;; ++unit) {
      index_at_[unit] = index;
      instruction.op = byte(2 * unit);
      instruction.arg = instruction.arg << 8 | byte(2 * unit + 1);
      if (instruction.op != EXTENDED_ARG || unit + 1 >= units_) break;
    }
    instruction.offset = 2 * unit;
    result_.instructions.push_back(instruction);
    return unit + 1 + opcode_info(instruction.op).caches;
  }

  int index_of(int unit) const {
    OXY_CHECK(unit >= 0 && unit <= units_ && index_at_[unit] >= 0, "no instruction at ", 2 * unit);
    return index_at_[unit];
  }

  // Jumps count from behind the instruction and its caches, absolute ones from the first
  // instruction.
  void set_targets() {
    for (Instruction& instruction : result_.instructions) {
      const Opcode& info = opcode_info(instruction.op);
      if (info.jump == Jump::none) continue;
      int from = instruction.offset / 2 + 1 + info.caches;
      int distance = static_cast<int>(instruction.arg);
      instruction.target = index_of(info.jump == Jump::forward    ? from + distance
                                    : info.jump == Jump::backward ? from - distance
                                                                  : distance);
      if (instruction.op == FOR_ITER) instruction.target += kForIterSkips;
    }
  }

  void set_locations() {
    std::vector<Location> locations =
        read_locations(bytes_view(code_->co_linetable), code_->co_firstlineno, units_);
    for (Instruction& instruction : result_.instructions)
      instruction.location = locations[instruction.offset / 2];
  }

  void set_ranges() {
    if (kHasBlocks) {
      result_.ranges = ranges_of_blocks(result_, code_->co_flags);
      return;
    }
    result_.ranges = read_ranges(range_table(code_));
    for (ExceptionRange& range : result_.ranges) {
      range.start = index_of(range.start);
      range.end = index_of(range.end);
      range.target = index_of(range.target);
    }
  }

  PyCodeObject* code_;
  std::string_view bytes_;
  int units_;
  std::vector<int> index_at_;  // the instruction at a code unit, -1 within caches
  Bytecode result_;
};

}  // namespace

Bytecode disassemble(PyCodeObject* code) {
  const Reference bytes = code_bytes(code);
  OXY_CHECK(bytes, "the code's bytes");
  return Disassembler(code, bytes_view(bytes.get())).run();
}

}  // namespace oxy::python
