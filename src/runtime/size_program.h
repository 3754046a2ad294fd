// The numbers of a Plan: every size, stride, offset, range and extent of it is a slot of this flat
// program. One instruction a slot; operands are earlier slots. It is evaluated once a call, into an
// array of int64; where all slots are constants there is nothing to evaluate. What is read of
// buffers, which steps of the call make, and what is computed from that are late slots: the plan's
// size steps say when they are known.
//
// Integers do not wrap: an overflow, like a division by zero, is an error of the evaluation.
// floordiv and mod round toward minus infinity; comparisons give 0 or 1.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "support/ids.h"

namespace oxy::runtime {

struct SlotTag;
using Slot = Id<SlotTag>;

enum class SizeOp : uint8_t {
#define SIZE_OP(e, text, operands) e,
#include "runtime/size_ops.def"
#undef SIZE_OP
};
std::string_view name(SizeOp op);
std::optional<SizeOp> size_op_from_name(std::string_view name);

// Constant: its value in `a`. A size or a stride of an input: its number and the dimension. An
// offset of an input or a number that is one: its number. A size of a buffer, or the number in one:
// as of an input. Else two slots.
struct SizeInstruction {
  SizeOp op{};
  int64_t a = 0, b = 0;
  friend auto operator<=>(const SizeInstruction&, const SizeInstruction&) = default;
};
bool reads_slots(SizeOp op);
bool reads_input(SizeOp op);
bool reads_buffer(SizeOp op);

struct SizeProgram {
  std::vector<SizeInstruction> instructions;  // by slot

  bool is_static() const;
  bool is_constant(Slot s) const;
  int64_t constant(Slot s) const;  // its value; InternalError where it is none
  // In order, each once: a few, where a model has hundreds.
  std::vector<uint32_t> inputs_read() const;
};

// An input of a call, as the program reads it.
struct SizeInput {
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int64_t offset = 0;  // of a number: the number
};

// By slot: 0 where it is known when a call begins; of a late one, `step_of` the last read of a
// buffer that it depends on.
std::vector<uint32_t> steps_of_slots(const SizeProgram& p,
                                     const std::function<uint32_t(Slot)>& step_of);
// These slots, in order; what they are computed from is there. Throws InternalError.
void evaluate(const SizeProgram& p, std::span<const uint32_t> which, int64_t* slots);

// `slots` has room for one a slot. Throws InternalError, also where a slot is late.
void evaluate(const SizeProgram& p, std::span<const SizeInput> inputs, int64_t* slots);
// The slots from `begin` to `end`, those in front of them evaluated before; false where one has no
// value (an overflow, a division by zero).
bool try_evaluate(const SizeProgram& p, std::span<const SizeInput> inputs, int64_t* slots,
                  size_t begin, size_t end) noexcept;
// Of a program of constants.
std::vector<int64_t> evaluate(const SizeProgram& p);

// A program that is evaluated again and again into the same slots: what is constant is there from
// the first time on, and where the inputs are what they were, there is nothing to do. Late slots
// are left alone.
class SizeEvaluator {
 public:
  explicit SizeEvaluator(const SizeProgram& p);
  // Of these slots alone; others are not set.
  SizeEvaluator(const SizeProgram& p, std::span<const Slot> wanted);

  // Slots with the constants alone.
  const std::vector<int64_t>& initial() const { return initial_; }
  // Whether `slots` changed. `fresh`: whether they have the constants alone.
  bool update(std::span<const SizeInput> inputs, int64_t* slots, bool fresh) const;

 private:
  SizeEvaluator(const SizeProgram& p, const std::vector<bool>& wanted);

  const SizeProgram& program_;
  std::vector<int64_t> initial_;
  std::vector<uint32_t> read_, computed_;  // slots
};

// The arithmetic of sizes elsewhere. InternalError where a result has more than 64 bits.
int64_t apply(SizeOp op, int64_t a, int64_t b);  // of two slots
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);

// Appends to a program: equal instructions are one slot, those of constants fold, and adding 0,
// multiplying by 0 or 1 and dividing by 1 make none.
class SizeBuilder {
 public:
  explicit SizeBuilder(SizeProgram& program);

  Slot constant(int64_t value) { return add({SizeOp::Constant, value, 0}); }
  Slot input(SizeOp op, uint32_t input, size_t dimension = 0);  // or a buffer
  Slot binary(SizeOp op, Slot a, Slot b);
  const SizeProgram& program() const { return program_; }

 private:
  Slot add(const SizeInstruction& i);

  SizeProgram& program_;
  std::map<SizeInstruction, Slot> slots_;
};

}  // namespace oxy::runtime
