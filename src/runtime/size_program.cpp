// The operations on slots, their evaluation, and the builder that makes each slot once.
#include "runtime/size_program.h"

#include <array>
#include <bit>
#include <cmath>

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

// The square root, rounded down; of a negative number 0.
int64_t square_root(int64_t x) {
  auto r = x <= 0 ? int64_t{0} : static_cast<int64_t>(std::sqrt(static_cast<double>(x)));
  auto square = [](int64_t v) { return static_cast<__int128>(v) * v; };
  while (r > 0 && square(r) > x) --r;
  while (square(r + 1) <= x) ++r;
  return r;
}

// Of doubles a * c, rounded down, of the bits of c, or a / d, of those of d, negated.
bool scale(int64_t a, int64_t bits, int64_t& out) {
  const auto x = static_cast<double>(a);
  const double y = std::floor(bits < 0 ? x / std::bit_cast<double>(-static_cast<uint64_t>(bits))
                                       : x * std::bit_cast<double>(bits));
  if (!(std::abs(y) < 0x1p62)) return false;
  out = static_cast<int64_t>(y);
  return true;
}

// a**b, rounded down, of a from 2 on.
bool power(int64_t a, int64_t b, int64_t& out) {
  out = b < 0 ? 0 : 1;
  if (a < 2 || b > 62) return false;
  while (b-- > 0)
    if (__builtin_mul_overflow(out, a, &out)) return false;
  return true;
}

// How many digits |a| has in base b.
bool digits(int64_t a, int64_t b, int64_t& out) {
  out = 0;
  if (b < 2) return false;
  for (uint64_t rest = a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a); rest != 0;
       rest /= static_cast<uint64_t>(b))
    ++out;
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
    case SizeOp::Root:
      out = square_root(a);
      return b == 2;
    case SizeOp::Scale:
      return scale(a, b, out);
    case SizeOp::Power:
      return power(a, b, out);
    case SizeOp::Digits:
      return digits(a, b, out);
    case SizeOp::BitAnd:
      out = a & b;
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
    case SizeOp::BufferSize:
    case SizeOp::BufferNumber:
      return false;
    default:
      return apply(i.op, slots[i.a], slots[i.b], out);
  }
}

[[noreturn]] void no_value(SizeOp op, int64_t a, int64_t b) {
  OXY_FAIL("a size has no value of 64 bits: ", name(op), '(', a, ", ", b, ')');
}

// What these slots are computed from, and they.
std::vector<bool> reached(const SizeProgram& p, std::span<const Slot> from) {
  std::vector<bool> out(p.instructions.size());
  for (const Slot s : from) out[s.index] = true;
  for (size_t i = out.size(); i-- > 0;) {
    const SizeInstruction& in = p.instructions[i];
    if (!out[i] || !reads_slots(in.op)) continue;
    out[static_cast<size_t>(in.a)] = out[static_cast<size_t>(in.b)] = true;
  }
  return out;
}

}  // namespace

int64_t apply(SizeOp op, int64_t a, int64_t b) {
  int64_t value = 0;
  if (!apply(op, a, b, value)) no_value(op, a, b);
  return value;
}

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

static bool has_operands(SizeOp op, std::string_view kinds) {
  return kinds.find(kSizeOps[static_cast<size_t>(op)].operands) != std::string_view::npos;
}
bool reads_slots(SizeOp op) { return has_operands(op, "S"); }
bool reads_input(SizeOp op) { return has_operands(op, "DI"); }
bool reads_buffer(SizeOp op) { return has_operands(op, "BV"); }

std::vector<uint32_t> SizeProgram::inputs_read() const {
  std::vector<uint32_t> out;
  for (const SizeInstruction& i : instructions)
    if (reads_input(i.op)) out.push_back(static_cast<uint32_t>(i.a));
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

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

std::vector<uint32_t> steps_of_slots(const SizeProgram& p,
                                     const std::function<uint32_t(Slot)>& step_of) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < p.instructions.size(); i++) {
    const SizeInstruction& at = p.instructions[i];
    uint32_t step = reads_buffer(at.op) ? step_of(Slot(i)) : 0;
    if (reads_slots(at.op))
      step = std::max(out[static_cast<size_t>(at.a)], out[static_cast<size_t>(at.b)]);
    out.push_back(step);
  }
  return out;
}

void evaluate(const SizeProgram& p, std::span<const uint32_t> which, int64_t* slots) {
  for (const uint32_t i : which) {
    const SizeInstruction& at = p.instructions[i];
    if (!apply(at.op, slots[at.a], slots[at.b], slots[i]))
      no_value(at.op, slots[at.a], slots[at.b]);
  }
}

void evaluate(const SizeProgram& p, std::span<const SizeInput> inputs, int64_t* slots) {
  for (size_t i = 0; i < p.instructions.size(); i++) {
    const SizeInstruction& at = p.instructions[i];
    OXY_CHECK(!reads_buffer(at.op), "a size that a step of the call makes");
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

SizeEvaluator::SizeEvaluator(const SizeProgram& p)
    : SizeEvaluator(p, std::vector<bool>(p.instructions.size(), true)) {}

SizeEvaluator::SizeEvaluator(const SizeProgram& p, std::span<const Slot> wanted)
    : SizeEvaluator(p, reached(p, wanted)) {}

SizeEvaluator::SizeEvaluator(const SizeProgram& p, const std::vector<bool>& wanted)
    : program_(p), initial_(p.instructions.size()) {
  const std::vector<uint32_t> late = steps_of_slots(p, [](Slot) { return 1; });
  for (uint32_t i = 0; i < p.instructions.size(); i++) {
    const SizeInstruction& in = p.instructions[i];
    if (in.op == SizeOp::Constant)
      initial_[i] = in.a;
    else if (wanted[i] && late[i] == 0)
      (reads_slots(in.op) ? computed_ : read_).push_back(i);
  }
}

bool SizeEvaluator::update(std::span<const SizeInput> inputs, int64_t* slots, bool fresh) const {
  bool changed = fresh;
  for (const uint32_t i : read_) {
    int64_t value = 0;
    value_of(program_.instructions[i], inputs, slots, value);  // what is read is there
    changed |= value != slots[i];
    slots[i] = value;
  }
  if (!changed) return false;
  evaluate(program_, computed_, slots);
  return true;
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
  if (program_.is_constant(a) && program_.is_constant(b))
    return constant(apply(op, program_.constant(a), program_.constant(b)));
  auto is = [&](Slot s, int64_t value) {
    return program_.is_constant(s) && program_.constant(s) == value;
  };
  if (op == SizeOp::Add && is(a, 0)) return b;
  if (op == SizeOp::Add && is(b, 0)) return a;
  if (op == SizeOp::Mul && (is(a, 1) || is(b, 0))) return b;
  if (op == SizeOp::Mul && (is(b, 1) || is(a, 0))) return a;
  if (op == SizeOp::FloorDiv && is(b, 1)) return a;
  return add({op, a.index, b.index});
}

}  // namespace oxy::runtime
