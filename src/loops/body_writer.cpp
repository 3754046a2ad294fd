// Value numbering, constant folding and identities on the way into a loop body.
#include "loops/body_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "ops/promote.h"

namespace oxy::loops {

namespace {

bool has_effect(LoopOp op) {
  return op == LoopOp::Store || op == LoopOp::StoreAdd || op == LoopOp::Check;
}

// What its operands alone decide, and may be computed of operands that no call has.
bool is_function(const Inst& i) {
  if (ops::class_of(i.op) == ops::LoopClass::Special)
    return i.op == LoopOp::Where || i.op == LoopOp::Cast;
  return ir::is_floating(i.dtype) || i.dtype == DType::B8;
}

bool is_number_op(LoopOp op) {
  return op == LoopOp::Add || op == LoopOp::Sub || op == LoopOp::Mul || op == LoopOp::Div;
}

}  // namespace

bool operator==(const Inst& a, const Inst& b) {
  return a.op == b.op && a.dtype == b.dtype && a.args == b.args && a.buffer == b.buffer &&
         a.index == b.index &&
         std::bit_cast<uint64_t>(a.number) == std::bit_cast<uint64_t>(b.number) &&
         a.integer == b.integer && a.reduce == b.reduce;
}

uint64_t hash_of(const Inst& i) {
  uint64_t h = static_cast<uint64_t>(i.op) * 131 + static_cast<uint64_t>(i.dtype);
  auto mix = [&](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); };
  for (uint32_t a : i.args) mix(a);
  mix(i.buffer.index);
  for (Expr e : i.index) mix(e.bits());
  mix(std::bit_cast<uint64_t>(i.number));
  mix(static_cast<uint64_t>(i.integer) * 16 + static_cast<uint64_t>(i.reduce));
  return h;
}

uint32_t BodyWriter::emit(Inst inst) {
  if (auto known = simplify(inst)) return *known;
  uint64_t h = hash_of(inst);
  auto [first, last] = known_.equal_range(h);
  for (auto it = first; it != last; ++it) {
    if (body_[it->second] == inst) return it->second;
  }
  body_.push_back(std::move(inst));
  known_.emplace(h, body_.size() - 1);
  return body_.size() - 1;
}

uint32_t BodyWriter::emit_const(double number, DType dtype) {
  Inst c{.op = LoopOp::Const, .dtype = dtype};
  if (ir::is_floating(dtype))
    c.number = ops::round_to(number, dtype);
  else
    c.integer = dtype == DType::B8 ? number != 0 : static_cast<int64_t>(number);
  return emit(std::move(c));
}

bool BodyWriter::is_const(uint32_t id, double value) const {
  const Inst& i = body_[id];
  if (i.op != LoopOp::Const) return false;
  return ir::is_floating(i.dtype) ? i.number == value && !(value == 0 && std::signbit(i.number))
                                  : static_cast<double>(i.integer) == value;
}

// The largest magnitude of a value that is known to be an integer: of one byte, or an f32 value
// that is computed of such and small enough to be exact.
std::optional<int64_t> BodyWriter::largest_integer(uint32_t id, int depth) const {
  constexpr int kMaxDepth = 8;
  constexpr int64_t kExact = int64_t{1} << 24;
  const Inst& i = body_[id];
  if (i.dtype == DType::B8) return 1;
  if (i.dtype == DType::I8) return 128;
  if (i.dtype == DType::U8) return 255;
  if (i.dtype != DType::F32 || depth > kMaxDepth) return std::nullopt;
  if (i.op == LoopOp::Const) {
    const bool whole = std::trunc(i.number) == i.number && std::abs(i.number) <= kExact;
    return whole ? std::optional(static_cast<int64_t>(std::abs(i.number))) : std::nullopt;
  }
  const auto both = [&](auto join) -> std::optional<int64_t> {
    const auto a = largest_integer(i.args[0], depth + 1),
               b = a ? largest_integer(i.args[1], depth + 1) : std::nullopt;
    if (!b) return std::nullopt;
    const int64_t most = join(*a, *b);
    return most <= kExact ? std::optional(most) : std::nullopt;
  };
  switch (i.op) {
    case LoopOp::Cast:
    case LoopOp::Neg:
    case LoopOp::Abs:
      return largest_integer(i.args[0], depth + 1);
    case LoopOp::Add:
    case LoopOp::Sub:
      return both(std::plus<int64_t>());
    case LoopOp::Mul:
      return both(std::multiplies<int64_t>());
    case LoopOp::Max:
    case LoopOp::Min:
      return both([](int64_t a, int64_t b) { return std::max(a, b); });
    default:
      return std::nullopt;
  }
}

// Whether an f32 value is known to be representable in f16 or bf16.
bool BodyWriter::exact_in(uint32_t id, DType half) const {
  const Inst& i = body_[id];
  const auto is_small_integer = [&] {
    const auto most = largest_integer(id);
    return most && *most <= (half == DType::BF16 ? 1 << 8 : 1 << 11);
  };
  switch (i.op) {
    case LoopOp::Cast:
      return body_[i.args[0]].dtype == half || is_small_integer();
    case LoopOp::Const:
      return ops::round_to(i.number, half) == i.number;
    case LoopOp::Neg:
    case LoopOp::Abs:
      return exact_in(i.args[0], half);
    case LoopOp::Max:
    case LoopOp::Min:
      return exact_in(i.args[0], half) && exact_in(i.args[1], half);
    case LoopOp::Where:
      return exact_in(i.args[1], half) && exact_in(i.args[2], half);
    default:
      return is_small_integer();
  }
}

std::optional<uint32_t> BodyWriter::fold_cast(const Inst& inst) {
  const Inst from = body_[inst.args[0]];
  if (from.dtype == inst.dtype) return inst.args[0];
  // All numbers hold 0 and 1.
  if (from.op == LoopOp::Cast && body_[from.args[0]].dtype == DType::B8) {
    Inst direct = inst;
    direct.args = from.args;
    return emit(std::move(direct));
  }
  if (from.op == LoopOp::Const && ir::is_floating(inst.dtype)) {
    if (ir::is_floating(from.dtype)) return emit_const(from.number, inst.dtype);
    if (std::abs(from.integer) < (int64_t{1} << 24))
      return emit_const(static_cast<double>(from.integer), inst.dtype);
  }
  if (from.op == LoopOp::Cast && inst.dtype == DType::F32 && ir::is_reduced_float(from.dtype) &&
      body_[from.args[0]].dtype == DType::F32 && exact_in(from.args[0], from.dtype)) {
    return from.args[0];
  }
  return std::nullopt;
}

std::optional<uint32_t> BodyWriter::fold_constants(const Inst& inst) {
  const Inst &a = body_[inst.args[0]], &b = body_[inst.args[1]];
  if (a.op != LoopOp::Const || b.op != LoopOp::Const) return std::nullopt;
  if (inst.dtype != DType::F32 && inst.dtype != DType::F64) return std::nullopt;
  // Doubles round f32 results correctly: 53 >= 2 * 24 + 2.
  const double x = a.number, y = b.number;
  const double r = inst.op == LoopOp::Add   ? x + y
                   : inst.op == LoopOp::Sub ? x - y
                   : inst.op == LoopOp::Mul ? x * y
                                            : x / y;
  return emit_const(r, inst.dtype);
}

bool BodyWriter::is_invariant(uint32_t id) {
  for (size_t k = invariant_.size(); k <= id; ++k) {
    const Inst& i = body_[k];
    const auto known = [&](uint32_t a) { return invariant_[a]; };
    invariant_.push_back(i.op == LoopOp::Const ||
                         (is_function(i) && std::ranges::all_of(i.args, known)));
  }
  return invariant_[id];
}

std::optional<BodyWriter::TwoValued> BodyWriter::two_valued(uint32_t id) {
  const Inst i = body_[id];
  if (i.op == LoopOp::Cast && body_[i.args[0]].dtype == DType::B8)
    return TwoValued{i.args[0], emit_const(1, i.dtype), emit_const(0, i.dtype)};
  if (i.op == LoopOp::Where && is_invariant(i.args[1]) && is_invariant(i.args[2]))
    return TwoValued{i.args[0], i.args[1], i.args[2]};
  return std::nullopt;
}

// A function of what one mask decides is computed for both of its values, in front of the loop.
std::optional<uint32_t> BodyWriter::fold_function(const Inst& inst) {
  std::optional<uint32_t> mask;
  for (uint32_t a : inst.args)
    if (auto two = is_invariant(a) ? std::nullopt : two_valued(a)) mask = two->mask;
  if (!mask) return std::nullopt;
  Inst held = inst, other = inst;
  for (size_t k = 0; k < inst.args.size(); ++k) {
    const uint32_t a = inst.args[k];
    if (a == *mask) {
      held.args[k] = emit_const(1, DType::B8);
      other.args[k] = emit_const(0, DType::B8);
    } else if (!is_invariant(a)) {
      const auto two = two_valued(a);
      if (!two || two->mask != *mask) return std::nullopt;
      held.args[k] = two->held;
      other.args[k] = two->other;
    }
  }
  const uint32_t yes = emit(std::move(held)), no = emit(std::move(other));
  return emit({.op = LoopOp::Where, .dtype = inst.dtype, .args = {*mask, yes, no}});
}

// A comparison of index expressions that the ranges of the variables decide.
std::optional<uint32_t> BodyWriter::fold_comparison(const Inst& inst) {
  const Inst &x = body_[inst.args[0]], &y = body_[inst.args[1]];
  const bool equates = inst.op == LoopOp::Eq || inst.op == LoopOp::Ne;
  if (x.op == LoopOp::Const && y.op == LoopOp::Const && ir::is_floating(x.dtype) && !equates) {
    const double p = x.number, q = y.number;
    return emit_const(inst.op == LoopOp::Lt   ? p < q
                      : inst.op == LoopOp::Le ? p <= q
                      : inst.op == LoopOp::Gt ? p > q
                                              : p >= q,
                      DType::B8);
  }
  constexpr int64_t kMost = Expr::kMaxConst / 2;  // so that differences are expressions too
  auto expr = [&](uint32_t id) -> std::optional<Expr> {
    const Inst& i = body_[id];
    if (i.op == LoopOp::Index) return i.index[0];
    if (i.op != LoopOp::Const || i.dtype != DType::I64) return std::nullopt;
    return -kMost < i.integer && i.integer < kMost ? std::optional<Expr>(i.integer) : std::nullopt;
  };
  auto a = expr(inst.args[0]), b = expr(inst.args[1]);
  if (!a || !b) return std::nullopt;
  if (equates) {
    const std::optional<bool> equal = sym::known_equal(*a, *b);
    if (!equal) return std::nullopt;
    return emit_const(*equal == (inst.op == LoopOp::Eq), DType::B8);
  }
  bool swap =
      inst.op == LoopOp::Ge || inst.op == LoopOp::Lt;  // a >= b is not (a < b); a > b is b < a
  std::optional<bool> less = swap ? sym::known_less(*a, *b) : sym::known_less(*b, *a);
  if (!less) return std::nullopt;
  bool negated = inst.op == LoopOp::Ge || inst.op == LoopOp::Le;
  return emit_const(*less != negated, DType::B8);
}

std::optional<uint32_t> BodyWriter::simplify(const Inst& inst) {
  if (auto known = apply_identity(inst)) return known;
  return is_function(inst) ? fold_function(inst) : std::nullopt;
}

std::optional<uint32_t> BodyWriter::apply_identity(const Inst& inst) {
  if (inst.op >= LoopOp::Eq && inst.op <= LoopOp::Ge) return fold_comparison(inst);
  if (inst.op == LoopOp::Cast) return fold_cast(inst);
  if (inst.op == LoopOp::Where) {
    if (inst.args[1] == inst.args[2] || is_const(inst.args[0], 1)) return inst.args[1];
    if (is_const(inst.args[0], 0)) return inst.args[2];
    return std::nullopt;
  }
  if (inst.op == LoopOp::And && inst.dtype == DType::B8) {
    if (is_const(inst.args[0], 1) || inst.args[0] == inst.args[1]) return inst.args[1];
    if (is_const(inst.args[1], 1)) return inst.args[0];
    if (is_const(inst.args[0], 0) || is_const(inst.args[1], 0)) return emit_const(0, DType::B8);
    return std::nullopt;
  }
  if (inst.op == LoopOp::Load && inst.args.size() == 2) {
    if (is_const(inst.args[0], 0)) return inst.args[1];
    if (!is_const(inst.args[0], 1)) return std::nullopt;
    Inst plain = inst;
    plain.args.clear();
    return emit(std::move(plain));
  }
  if (!is_number_op(inst.op)) return std::nullopt;
  if (auto folded = fold_constants(inst)) return folded;
  bool unit = inst.op == LoopOp::Mul || inst.op == LoopOp::Div;
  if (unit && is_const(inst.args[1], 1)) return inst.args[0];
  if (inst.op == LoopOp::Mul && is_const(inst.args[0], 1)) return inst.args[1];
  if (inst.op == LoopOp::Sub && is_const(inst.args[1], 0)) return inst.args[0];
  return std::nullopt;
}

void remove_checks(Body& body, size_t end) {
  for (size_t k = 0; k < end; ++k) {
    if (body[k].op == LoopOp::Check) body[k] = Inst{.op = LoopOp::Const, .dtype = DType::I64};
  }
}

void remove_dead(Body& body) {
  std::vector<bool> live(body.size(), false);
  std::vector<Expr> symbols;
  std::unordered_map<Expr, uint32_t> symbol_def;
  for (uint32_t i = 0; i < body.size(); ++i) {
    if (body[i].op == LoopOp::Symbol) symbol_def[body[i].index[0]] = i;
  }
  for (uint32_t i = body.size(); i-- > 0;) {
    Inst& inst = body[i];
    if (has_effect(inst.op)) live[i] = true;
    if (!live[i]) continue;
    for (uint32_t a : inst.args) live[a] = true;
    if (inst.op == LoopOp::Symbol || symbol_def.empty()) continue;
    symbols.clear();
    for (Expr e : inst.index) sym::collect_symbols(e, symbols);
    for (Expr s : symbols) {
      if (auto it = symbol_def.find(s); it != symbol_def.end()) live[it->second] = true;
    }
  }
  std::vector<uint32_t> moved(body.size());
  uint32_t kept = 0;
  for (uint32_t i = 0; i < body.size(); ++i) {
    if (!live[i]) continue;
    for (uint32_t& a : body[i].args) a = moved[a];
    moved[i] = kept;
    if (kept != i) body[kept] = std::move(body[i]);
    ++kept;
  }
  body.resize(kept);
}

}  // namespace oxy::loops
