// Expressions and conditions over symbols as slots of a size program: the numbers of a plan, and
// the question whether a call's inputs have sizes that a recording holds for.
#pragma once

#include <optional>
#include <unordered_map>

#include "runtime/size_program.h"
#include "symbolic/facts.h"

namespace oxy::pipeline {

// A number that a call's inputs hold, and what it is in symbols. `op`: InputSize or InputStride,
// with a dimension; InputOffset; InputNumber. Or one that a step makes: BufferSize, BufferNumber;
// `input` is the buffer then.
struct Reading {
  sym::Expr value;
  runtime::SizeOp op{};
  uint32_t input = 0;
  size_t dimension = 0;
};

// Appends to a program; each distinct expression is made once.
class SizeSlots {
 public:
  explicit SizeSlots(runtime::SizeProgram& program) : builder_(program) {}

  // From now on each symbol is what the first reading says that is linear in it and has no other
  // symbol without a reading of its own. By reading: whether a symbol was taken from it, so that it
  // agrees whatever its value.
  std::vector<bool> bind(std::span<const Reading> readings);

  runtime::SizeBuilder& builder() { return builder_; }
  runtime::Slot constant(int64_t value) { return builder_.constant(value); }
  runtime::Slot binary(runtime::SizeOp op, runtime::Slot a, runtime::Slot b) {
    return builder_.binary(op, a, b);
  }
  // What is read, whatever it should be.
  runtime::Slot read(const Reading& r) { return builder_.input(r.op, r.input, r.dimension); }
  // InternalError where a symbol of it has no reading.
  runtime::Slot slot(sym::Expr e);
  // Whether each symbol of it has a reading.
  bool has(sym::Expr e) const;
  bool has(const sym::Condition& c) const;
  // 1 where it holds, else 0.
  runtime::Slot slot(const sym::Condition& c);

 private:
  // Solves for the only symbol of `r` that has no slot, if it can; says whether any value will do.
  std::optional<bool> bind_one(const Reading& r);

  runtime::SizeBuilder builder_;
  std::unordered_map<sym::Expr, runtime::Slot> slots_;
};

// A program that says whether a call fits.
struct SizeCheck {
  struct Check {
    // A reading that is not what the symbols say, a symbol out of its range, or a condition.
    enum class Kind : uint8_t { Reading, Range, Condition } kind{};
    size_t index = 0;  // of the reading or the condition; of a range the symbol_index()
    runtime::Slot slot;
  };

  runtime::SizeProgram program;
  std::vector<uint32_t> inputs;       // that the program reads, in order
  std::vector<Check> checks;          // by slot: a later one relies on those before it
  std::vector<runtime::Slot> wanted;  // known when all checks hold
};

// Checks that the readings agree, that each symbol lies in its range, and these conditions; gives
// the values of `wanted` beside that. InternalError where a symbol has no reading.
SizeCheck make_size_check(std::span<const Reading> readings,
                          std::span<const sym::Condition> conditions,
                          std::span<const sym::Expr> wanted = {});
// Of what a recording relied on. Symbols that its equations give are replaced by what they equal,
// so that each needs no reading of its own.
SizeCheck make_size_check(std::span<const Reading> readings, const sym::ShapeFacts& facts,
                          std::span<const sym::Expr> wanted = {});

// The number of the first check that fails; checks.size() where all hold and a wanted number has no
// value of 64 bits. `slots` has room for the program's.
std::optional<size_t> first_failure(const SizeCheck& check,
                                    std::span<const runtime::SizeInput> inputs,
                                    int64_t* slots) noexcept;

}  // namespace oxy::pipeline
