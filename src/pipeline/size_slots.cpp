// Symbols are solved for, one reading each; expressions and conditions then go in bottom up.
#include "pipeline/size_slots.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::pipeline {

using runtime::SizeOp;
using runtime::Slot;
using sym::Condition;
using sym::Expr;
using sym::Range;

namespace {

constexpr std::pair<sym::Kind, SizeOp> kOperations[] = {
    {sym::Kind::Add, SizeOp::Add},           {sym::Kind::Mul, SizeOp::Mul},
    {sym::Kind::FloorDiv, SizeOp::FloorDiv}, {sym::Kind::Mod, SizeOp::Mod},
    {sym::Kind::Min, SizeOp::Min},           {sym::Kind::Max, SizeOp::Max},
    {sym::Kind::Root, SizeOp::Root},         {sym::Kind::Scale, SizeOp::Scale},
    {sym::Kind::Power, SizeOp::Power},       {sym::Kind::Digits, SizeOp::Digits},
    {sym::Kind::BitAnd, SizeOp::BitAnd},
};

SizeOp op_of(sym::Kind wanted) {
  for (const auto& [kind, op] : kOperations)
    if (kind == wanted) return op;
  OXY_FAIL("not an operation on sizes");
}

SizeOp op_of(Condition::Kind kind) {
  switch (kind) {
    case Condition::Kind::Equal:
      return SizeOp::Equal;
    case Condition::Kind::NotEqual:
      return SizeOp::NotEqual;
    case Condition::Kind::AtMost:
      return SizeOp::LessEqual;
    case Condition::Kind::And:  // of 0 and 1
      return SizeOp::Min;
    case Condition::Kind::Or:
      return SizeOp::Max;
    default:
      OXY_FAIL("a truth has no operation");
  }
}

bool is_zero_possible(Expr e) {
  const Range r = sym::range_of(e);
  return r.lo <= 0 && r.hi >= 0;
}

}  // namespace

std::optional<bool> SizeSlots::bind_one(const Reading& r) {
  std::vector<Expr> symbols;
  sym::collect_symbols(r.value, symbols);
  std::erase_if(symbols, [&](Expr s) { return slots_.contains(s); });
  if (symbols.size() != 1) return std::nullopt;
  const auto line = sym::linear_in(r.value, symbols[0]);
  if (!line || is_zero_possible(line->first)) return std::nullopt;
  const auto [factor, rest] = *line;
  Slot s = read(r);
  if (!rest.is_const(0)) s = binary(SizeOp::Add, s, slot(-rest));
  if (!factor.is_const(1)) s = binary(SizeOp::FloorDiv, s, slot(factor));
  slots_.emplace(symbols[0], s);
  return factor.is_const(1);
}

std::vector<bool> SizeSlots::bind(std::span<const Reading> readings) {
  std::vector<bool> gives(readings.size());
  for (bool found = true; found;) {
    found = false;
    for (size_t i = 0; i < readings.size(); ++i) {
      const std::optional<bool> exact = bind_one(readings[i]);
      if (!exact) continue;
      gives[i] = *exact;
      found = true;
    }
  }
  return gives;
}

Slot SizeSlots::slot(Expr e) {
  if (e.is_const()) return constant(e.value());
  if (auto it = slots_.find(e); it != slots_.end()) return it->second;
  OXY_CHECK(e.kind() != sym::Kind::Symbol, "no input has the size ", e);
  const std::span<const Expr> operands = e.operands();
  Slot s = slot(operands[0]);
  for (const Expr x : operands.subspan(1)) s = binary(op_of(e.kind()), s, slot(x));
  slots_.emplace(e, s);
  return s;
}

bool SizeSlots::has(Expr e) const {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return std::ranges::all_of(symbols, [&](Expr s) { return slots_.contains(s); });
}

bool SizeSlots::has(const Condition& c) const {
  return has(c.difference) &&
         std::ranges::all_of(c.parts, [&](const Condition& part) { return has(part); });
}

Slot SizeSlots::slot(const Condition& c) {
  if (c.is_constant()) return constant(c.value);
  const SizeOp op = op_of(c.kind);
  if (c.parts.empty()) {
    const auto [left, right] = sym::sides(c.difference);
    const Slot a = slot(left);
    return binary(op, a, slot(right));
  }
  Slot s = slot(c.parts[0]);
  for (const Condition& part : std::span(c.parts).subspan(1)) s = binary(op, s, slot(part));
  return s;
}

SizeCheck make_size_check(std::span<const Reading> readings, std::span<const Condition> conditions,
                          std::span<const Expr> wanted) {
  SizeCheck out;
  SizeSlots slots(out.program);
  using Kind = SizeCheck::Check::Kind;
  auto check = [&](Kind kind, size_t index, Slot s) {
    const bool holds = out.program.is_constant(s) && out.program.constant(s) == 1;
    if (!holds) out.checks.push_back({kind, index, s});
  };
  const std::vector<bool> gives = slots.bind(readings);
  std::vector<Expr> symbols;
  for (const Reading& r : readings) sym::collect_symbols(r.value, symbols);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const Range range = sym::range_of(symbols[i]);
    const Slot s = slots.slot(symbols[i]);
    if (range.lo != INT64_MIN)
      check(Kind::Range, symbols[i].symbol_index(),
            slots.binary(SizeOp::LessEqual, slots.constant(range.lo), s));
    if (range.hi != INT64_MAX)
      check(Kind::Range, symbols[i].symbol_index(),
            slots.binary(SizeOp::LessEqual, s, slots.constant(range.hi)));
  }
  for (size_t i = 0; i < readings.size(); ++i) {
    if (gives[i]) continue;
    const Slot is = slots.read(readings[i]);
    check(Kind::Reading, i, slots.binary(SizeOp::Equal, is, slots.slot(readings[i].value)));
  }
  for (size_t i = 0; i < conditions.size(); ++i)
    check(Kind::Condition, i, slots.slot(conditions[i]));
  std::ranges::sort(out.checks, {}, [](const auto& c) { return std::pair(c.slot.index, c.kind); });
  for (const Expr e : wanted) out.wanted.push_back(slots.slot(e));
  out.inputs = out.program.inputs_read();
  return out;
}

SizeCheck make_size_check(std::span<const Reading> readings, const sym::ShapeFacts& facts,
                          std::span<const Expr> wanted) {
  std::vector<Reading> read(readings.begin(), readings.end());
  for (Reading& r : read) r.value = facts.replace_symbols(r.value);
  std::vector<Condition> conditions;
  for (const auto& f : facts.facts()) {
    conditions.push_back(
        sym::map_differences(f.condition, [&](Expr d) { return facts.replace_symbols(d); }));
  }
  std::vector<Expr> simple;
  for (const Expr e : wanted) simple.push_back(facts.reduce(e));
  return make_size_check(read, conditions, simple);
}

std::optional<size_t> first_failure(const SizeCheck& check,
                                    std::span<const runtime::SizeInput> inputs,
                                    int64_t* slots) noexcept {
  size_t done = 0;
  auto up_to = [&](size_t end) {
    const size_t begin = std::exchange(done, std::max(done, end));
    return runtime::try_evaluate(check.program, inputs, slots, begin, end);
  };
  for (size_t i = 0; i < check.checks.size(); ++i) {
    const size_t s = check.checks[i].slot.index;
    if (!up_to(s + 1) || slots[s] == 0) return i;
  }
  if (up_to(check.program.instructions.size())) return std::nullopt;
  return check.checks.size();
}

}  // namespace oxy::pipeline
