// The operations on slots, their evaluation, and the builder that makes each slot once.
#include "runtime/size_program.h"

#include <array>

#include "support/check.h"

namespace oxy::runtime {
namespace {

struct Row {
  std::string_view name;
  char operands;
};
constexpr std::array kSizeOps = {
#define SIZE_OP(e, text, operands) Row{text, operands},
#include "runtime/size_ops.def"
#undef SIZE_OP
};

// False where there is no such number.
bool divide(int64_t a, int64_t b, int64_t& quotient) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return true;
}

bool apply(SizeOp op, int64_t a, int64_t b, int64_t& out) {
  switch (op) {
    case SizeOp::Add:
      return !__builtin_add_overflow(a, b, &out);
    case SizeOp::Mul:
      return !__builtin_mul_overflow(a, b, &out);
    case SizeOp::FloorDiv:
      return divide(a, b, out);
    case SizeOp::Mod:
      if (!divide(a, b, out)) return false;
      out = a - out * b;
      return true;
    case SizeOp::Min:
      out = std::min(a, b);
      return true;
    case SizeOp::Max:
      out = std::max(a, b);
      return true;
    case SizeOp::Equal:
      out = a == b;
      return true;
    case SizeOp::NotEqual:
      out = a != b;
      return true;
    case SizeOp::Less:
      out = a < b;
      return true;
    case SizeOp::LessEqual:
      out = a <= b;
      return true;
    default:
      return false;
  }
}

bool value_of(const SizeInstruction& i, std::span<const SizeInput> inputs, const int64_t* slots,
              int64_t& out) {
  switch (i.op) {
    case SizeOp::Constant:
      out = i.a;
      return true;
    case SizeOp::InputSize:
      out = inputs[static_cast<size_t>(i.a)].sizes[i.b];
      return true;
    case SizeOp::InputStride:
      out = inputs[static_cast<size_t>(i.a)].strides[i.b];
      return true;
    case SizeOp::InputOffset:
    case SizeOp::InputNumber:
      out = inputs[static_cast<size_t>(i.a)].offset;
      return true;
    default:
      return apply(i.op, slots[i.a], slots[i.b], out);
  }
}

[[noreturn]] void no_value(SizeOp op, int64_t a, int64_t b) {
  OXY_FAIL("a size has no value of 64 bits: ", name(op), '(', a, ", ", b, ')');
}

}  // namespace

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  OXY_CHECK(!__builtin_add_overflow(a, b, &r), "a size has more than 64 bits");
  return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  OXY_CHECK(!__builtin_mul_overflow(a, b, &r), "a size has more than 64 bits");
  return r;
}

std::string_view name(SizeOp op) { return kSizeOps[static_cast<size_t>(op)].name; }

std::optional<SizeOp> size_op_from_name(std::string_view name) {
  const auto it = std::ranges::find(kSizeOps, name, &Row::name);
  if (it == kSizeOps.end()) return std::nullopt;
  return static_cast<SizeOp>(it - kSizeOps.begin());
}

bool reads_slots(SizeOp op) { return kSizeOps[static_cast<size_t>(op)].operands == 'S'; }

bool SizeProgram::is_static() const {
  return std::ranges::all_of(instructions, [](const auto& i) { return i.op == SizeOp::Constant; });
}

bool SizeProgram::is_constant(Slot s) const {
  return instructions.at(s.index).op == SizeOp::Constant;
}

int64_t SizeProgram::constant(Slot s) const {
  OXY_CHECK(is_constant(s), "the size in slot ", s.index, " is no constant");
  return instructions[s.index].a;
}

void evaluate(const SizeProgram& p, std::span<const SizeInput> inputs, int64_t* slots) {
  for (size_t i = 0; i < p.instructions.size(); i++) {
    const SizeInstruction& at = p.instructions[i];
    if (!value_of(at, inputs, slots, slots[i])) no_value(at.op, slots[at.a], slots[at.b]);
  }
}

bool try_evaluate(const SizeProgram& p, std::span<const SizeInput> inputs, int64_t* slots,
                  size_t begin, size_t end) noexcept {
  for (size_t i = begin; i < end; i++)
    if (!value_of(p.instructions[i], inputs, slots, slots[i])) return false;
  return true;
}

std::vector<int64_t> evaluate(const SizeProgram& p) {
  std::vector<int64_t> slots;
  for (size_t i = 0; i < p.instructions.size(); i++) slots.push_back(p.constant(Slot(i)));
  return slots;
}

SizeBuilder::SizeBuilder(SizeProgram& program) : program_(program) {
  for (size_t i = 0; i < program.instructions.size(); i++)
    slots_.emplace(program.instructions[i], Slot(i));
}

Slot SizeBuilder::add(const SizeInstruction& i) {
  const auto [it, added] = slots_.emplace(i, Slot(program_.instructions.size()));
  if (added) program_.instructions.push_back(i);
  return it->second;
}

Slot SizeBuilder::input(SizeOp op, uint32_t input, size_t dimension) {
  return add({op, input, static_cast<int64_t>(dimension)});
}

Slot SizeBuilder::binary(SizeOp op, Slot a, Slot b) {
  if (!program_.is_constant(a) || !program_.is_constant(b)) return add({op, a.index, b.index});
  const int64_t x = program_.constant(a), y = program_.constant(b);
  int64_t value = 0;
  if (!apply(op, x, y, value)) no_value(op, x, y);
  return constant(value);
}

}  // namespace oxy::runtime
