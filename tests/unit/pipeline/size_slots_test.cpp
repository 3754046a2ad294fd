// Symbols that are solved for, conditions as slots, and the question whether a call fits.
#include "pipeline/size_slots.h"

#include <gtest/gtest.h>

#include <random>

#include "support/check.h"

namespace oxy::pipeline {
namespace {

using runtime::SizeOp;
using sym::Condition;
using sym::Expr;
using Kind = SizeCheck::Check::Kind;

class SizeSlotsTest : public testing::Test {
 protected:
  sym::ExprPool pool;
  Expr s0 = pool.symbol("s0", {2, INT64_MAX}, 16);
  Expr s1 = pool.symbol("s1", {2, INT64_MAX}, 6);

  // The reading of a number of the call, by its place in `values`.
  static Reading number(uint32_t input, Expr value) {
    return {value, SizeOp::InputNumber, input, 0};
  }

  std::optional<size_t> fails(const SizeCheck& check, const std::vector<int64_t>& values) {
    std::vector<runtime::SizeInput> inputs;
    for (int64_t v : values) inputs.push_back({nullptr, nullptr, v});
    slots.resize(check.program.instructions.size());
    return first_failure(check, inputs, slots.data());
  }

  std::vector<int64_t> slots;
};

TEST_F(SizeSlotsTest, WantedNumbers) {
  const Reading readings[] = {number(0, s0), number(1, s1)};
  const Expr wanted[] = {s0 * s1 + Expr(3), sym::max(s0, s1), s1};
  const SizeCheck check = make_size_check(readings, {}, wanted);
  EXPECT_EQ(fails(check, {16, 6}), std::nullopt);
  EXPECT_EQ(slots[check.wanted[0].index], 99);
  EXPECT_EQ(slots[check.wanted[1].index], 16);
  EXPECT_EQ(slots[check.wanted[2].index], 6);
}

TEST_F(SizeSlotsTest, SymbolsAreSolvedForInAnyOrder) {
  const Reading readings[] = {number(0, s0 * s1), number(1, Expr(2) * s1 + s0),
                              number(2, Expr(3) * s0 - Expr(1))};
  const Expr wanted[] = {s0, s1};
  const SizeCheck check = make_size_check(readings, {}, wanted);
  EXPECT_EQ(fails(check, {35, 19, 14}), std::nullopt);
  EXPECT_EQ(slots[check.wanted[0].index], 5);
  EXPECT_EQ(slots[check.wanted[1].index], 7);
  for (const auto& other : {std::vector<int64_t>{36, 19, 14}, {35, 20, 14}, {35, 19, 15}}) {
    const auto failed = fails(check, other);
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(check.checks[*failed].kind, Kind::Reading);
  }
}

TEST_F(SizeSlotsTest, RangesOfSymbolsAreChecked) {
  const Reading readings[] = {number(0, s0), number(1, s0)};
  const SizeCheck check = make_size_check(readings, {});
  EXPECT_EQ(fails(check, {2, 2}), std::nullopt);
  EXPECT_EQ(check.checks[fails(check, {1, 1}).value()].kind, Kind::Range);
  EXPECT_EQ(check.checks[fails(check, {3, 2}).value()].kind, Kind::Reading);
}

TEST_F(SizeSlotsTest, WhatNoReadingGivesIsAnError) {
  const Reading readings[] = {number(0, s0)};
  const Expr wanted[] = {s1};
  EXPECT_THROW(make_size_check(readings, {}, wanted), InternalError);
}

TEST_F(SizeSlotsTest, OfAllFactsOfARecording) {
  auto shared = std::make_shared<sym::ExprPool>();
  const Expr a = shared->symbol("a", {2, INT64_MAX}, 3),
             b = shared->symbol("b", {2, INT64_MAX}, 12);
  sym::ShapeFacts facts(shared);
  facts.decide(sym::equal(b, Expr(4) * a));
  facts.decide(sym::less(a, 10));
  const Expr wanted[] = {b * b};
  const Reading whole[] = {number(0, a), number(1, b)}, simple[] = {number(0, Expr(4) * a)};
  const SizeCheck check = make_size_check(whole, facts, wanted);
  EXPECT_EQ(fails(check, {5, 20}), std::nullopt);
  EXPECT_EQ(slots[check.wanted[0].index], 400);
  EXPECT_TRUE(fails(check, {5, 21}).has_value());
  EXPECT_TRUE(fails(check, {10, 40}).has_value());
  const SizeCheck one = make_size_check(simple, facts, wanted);
  EXPECT_EQ(fails(one, {20}), std::nullopt);
  EXPECT_TRUE(fails(one, {21}).has_value());
}

TEST_F(SizeSlotsTest, NumbersWithoutAValueDoNotFit) {
  const Reading readings[] = {number(0, s0), number(1, s1)};
  const Condition conditions[] = {sym::equal(s0 * s1, 12)};
  const SizeCheck check = make_size_check(readings, conditions);
  EXPECT_TRUE(fails(check, {INT64_MAX, INT64_MAX}).has_value());
  EXPECT_EQ(fails(check, {3, 4}), std::nullopt);
  const Expr wanted[] = {s0 * s1};
  const SizeCheck product = make_size_check(readings, {}, wanted);
  EXPECT_EQ(fails(product, {INT64_MAX, INT64_MAX}), product.checks.size());
}

TEST_F(SizeSlotsTest, ConditionsAsTheyEvaluate) {
  std::mt19937 random(3);
  auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  const Expr symbols[] = {s0, s1};
  auto side = [&] {
    return Expr(below(4) - 1) * symbols[below(2)] + sym::floordiv(symbols[below(2)], 1 + below(3)) +
           sym::mod(symbols[below(2)], 2 + below(3)) + Expr(below(9) - 4);
  };
  std::function<Condition(int)> make = [&](int depth) {
    switch (depth > 0 ? below(6) : below(3)) {
      case 0:
        return sym::equal(side(), side());
      case 1:
        return sym::less(side(), side());
      case 2:
        return sym::at_most(side(), side());
      case 3:
        return sym::both(make(depth - 1), make(depth - 1));
      case 4:
        return sym::either(make(depth - 1), make(depth - 1));
      default:
        return sym::negate(make(depth - 1));
    }
  };
  const Reading readings[] = {number(0, s0), number(1, s1)};
  for (int i = 0; i < 300; ++i) {
    const std::vector<Condition> conditions = {make(3), make(2)};
    const SizeCheck check = make_size_check(readings, conditions);
    for (int64_t a = 2; a < 9; ++a) {
      for (int64_t b = 2; b < 9; ++b) {
        const bool fits = std::ranges::all_of(conditions, [&](const Condition& c) {
          return sym::evaluate(c, [&](Expr s) { return s == s0 ? a : b; });
        });
        EXPECT_EQ(!fails(check, {a, b}), fits) << print(conditions[0]);
      }
    }
  }
}

}  // namespace
}  // namespace oxy::pipeline
