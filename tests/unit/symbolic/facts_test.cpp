// Conditions (normal form, text, evaluation) and facts (what is recorded, what follows, what gets
// simpler).
#include "symbolic/facts.h"

#include <gtest/gtest.h>

#include <random>

#include "support/check.h"

namespace oxy::sym {
namespace {

class FactsTest : public ::testing::Test {
 protected:
  std::shared_ptr<ExprPool> pool = std::make_shared<ExprPool>();
  Expr s0 = pool->symbol("s0", {2, INT64_MAX}, 16);
  Expr s1 = pool->symbol("s1", {2, INT64_MAX}, 6);
  Expr s2 = pool->symbol("s2", {2, INT64_MAX}, 5);
  ShapeFacts facts{pool};

  static std::function<int64_t(Expr)> values(std::vector<int64_t> v) {
    return [v](Expr symbol) { return v.at(symbol.symbol_index()); };
  }
};

TEST_F(FactsTest, TextOfConditions) {
  EXPECT_EQ(print(equal(s0, 16)), "s0 == 16");
  EXPECT_EQ(print(equal(Expr(16), s0)), "s0 == 16");
  EXPECT_EQ(print(equal(Expr(4) * s0, 64)), "s0 == 16");
  EXPECT_EQ(print(not_equal(s0, s1)), "s0 != s1");
  EXPECT_EQ(print(at_most(s0, 7)), "s0 <= 7");
  EXPECT_EQ(print(less(s0, 8)), "s0 <= 7");
  EXPECT_EQ(print(less(s0, s1)), "s0 < s1");
  EXPECT_EQ(print(less(Expr(2) * s0, 7)), "s0 <= 3");
  EXPECT_EQ(print(negate(at_most(s0, 7))), "8 <= s0");
  EXPECT_EQ(print(either(equal(s0, 8), both(equal(s1, 9), at_most(s2, 3)))),
            "(s0 == 8 or (s1 == 9 and s2 <= 3))");
}

TEST_F(FactsTest, RangesDecide) {
  EXPECT_TRUE(equal(s0, 1).is_constant(false));
  EXPECT_TRUE(equal(s0, s0).is_constant(true));
  EXPECT_TRUE(less(Expr(1), s0).is_constant(true));
  EXPECT_TRUE(equal(Expr(2) * s0, 7).is_constant(false));
  EXPECT_TRUE(both(equal(s0, 3), equal(s1, 0)).is_constant(false));
  EXPECT_TRUE(either(equal(s0, 3), not_equal(s1, 0)).is_constant(true));
}

TEST_F(FactsTest, TextParsesBack) {
  std::mt19937 random(7);
  auto number = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  const Expr symbols[] = {s0, s1, s2};
  auto side = [&] {
    return Expr(number(3)) * symbols[number(3)] + floordiv(symbols[number(3)], 1 + number(3)) +
           Expr(number(9) - 4);
  };
  std::function<Condition(int)> make = [&](int depth) {
    switch (depth > 0 ? number(6) : number(3)) {
      case 0:
        return equal(side(), side());
      case 1:
        return less(side(), side());
      case 2:
        return at_most(side(), side());
      case 3:
        return both(make(depth - 1), make(depth - 1));
      case 4:
        return either(make(depth - 1), make(depth - 1));
      default:
        return negate(make(depth - 1));
    }
  };
  for (int i = 0; i < 500; ++i) {
    Condition c = make(3);
    EXPECT_EQ(parse_condition(print(c), *pool), c) << print(c);
    auto at = values({2 + number(9), 2 + number(9), 2 + number(9)});
    EXPECT_NE(evaluate(c, at), evaluate(negate(c), at)) << print(c);
  }
  EXPECT_THROW(parse_condition("s0 + 1", *pool), UserError);
  EXPECT_THROW(parse_condition("s0 == t", *pool), UserError);
}

TEST_F(FactsTest, ConditionsEvaluateAsTheirComparison) {
  for (int64_t a = 2; a < 9; ++a) {
    for (int64_t b = 2; b < 9; ++b) {
      auto at = values({a, b, 2});
      Expr left = Expr(3) * s0 - Expr(4), right = Expr(2) * s1 + Expr(1);
      EXPECT_EQ(evaluate(equal(left, right), at), 3 * a - 4 == 2 * b + 1);
      EXPECT_EQ(evaluate(less(left, right), at), 3 * a - 4 < 2 * b + 1);
      EXPECT_EQ(evaluate(at_most(left, right), at), 3 * a - 4 <= 2 * b + 1);
    }
  }
}

TEST_F(FactsTest, KnownOnesAreNotRecorded) {
  EXPECT_FALSE(facts.decide(equal(s0, 1)));
  EXPECT_TRUE(facts.decide(at_most(floordiv(s0, 2), s0)));
  EXPECT_FALSE(facts.decide(equal(floordiv(s0, 2), s0)));
  EXPECT_TRUE(facts.decide(less(s0, s0 * s0)));
  EXPECT_TRUE(facts.decide(at_most(s0 + s1, s0 * s1)));
  EXPECT_TRUE(facts.facts().empty());
  EXPECT_FALSE(facts.decide(less(s0, s1)));
  EXPECT_FALSE(facts.decide(less(s0, s1)));
  EXPECT_TRUE(facts.decide(at_most(s1, s0 + Expr(3))));
  EXPECT_EQ(facts.text(), std::vector<std::string>{"s1 <= s0"});
}

TEST_F(FactsTest, BothPartsOfATruthStandAlone) {
  EXPECT_TRUE(facts.decide(both(less(s1, s0), equal(s2, 5))));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s1 < s0", "s2 == 5"}));
}

TEST_F(FactsTest, AFalseOrIsTwoFacts) {
  EXPECT_FALSE(facts.decide(either(equal(s0, 4), equal(s1, 4))));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s0 != 4", "s1 != 4"}));
}

TEST_F(FactsTest, EquationsReplaceSymbols) {
  EXPECT_TRUE(facts.decide(equal(s1, s2 + Expr(1))));
  EXPECT_EQ(facts.simplify(s2), s1 - Expr(1));
  EXPECT_EQ(facts.pin(s0), 16);
  EXPECT_EQ(facts.simplify(s0 * s2 + s0), Expr(16) * s1);
  EXPECT_EQ(facts.pin(floordiv(s0, 2)), 8);
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s1 == s2 + 1", "3 <= s1", "s0 == 16"}));
  EXPECT_EQ(facts.pin(s1), 6);
  EXPECT_TRUE(facts.simplify(s2).is_const(5));
}

TEST_F(FactsTest, MinAndMaxAreDecided) {
  EXPECT_EQ(facts.simplify(min(floordiv(s0, 2), s0)), floordiv(s0, 2));
  EXPECT_EQ(facts.simplify(min(s0, Expr(Expr::kMaxConst))), s0);
  Expr undecided = min(s0, s1);
  EXPECT_EQ(facts.simplify(undecided), undecided);
  facts.decide(less(s0, s1));
  EXPECT_EQ(facts.simplify(undecided), s1);
  EXPECT_EQ(facts.simplify(max(s0, s1)), s0);
}

TEST_F(FactsTest, WhichOperandAMinIsIsAskedFirst) {
  EXPECT_TRUE(facts.decide(equal(min(s0, 64), s0)));
  EXPECT_FALSE(facts.decide(less(max(s1, s2), s2 + Expr(1))));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s0 <= 64", "s2 < s1"}));
}

TEST_F(FactsTest, ComparisonsOfAMinAreThoseOfItsOperands) {
  EXPECT_TRUE(facts.decide(at_most(max(s1, s2), 8)));
  EXPECT_FALSE(facts.decide(equal(min(s0, 64), 10)));
  EXPECT_FALSE(facts.decide(at_most(min(s0, s1), 3)));
  EXPECT_EQ(facts.text(),
            (std::vector<std::string>{"s1 <= 8", "s2 <= 8", "s0 != 10", "4 <= s0", "4 <= s1"}));
}

TEST_F(FactsTest, WhichOperandAMaxIsStaysOpen) {
  const Expr s3 = pool->symbol("s3", {2, INT64_MAX}, 6), longest = max(s1, s2);
  EXPECT_TRUE(facts.decide(less(4, longest)));
  EXPECT_FALSE(facts.decide(at_most(longest, 3)));
  EXPECT_TRUE(facts.decide(equal(longest * s0, s3 * s0)));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"5 <= max(s1, s2)", "s3 == max(s1, s2)"}));
  EXPECT_EQ(facts.simplify(s3), longest);
  EXPECT_TRUE(facts.holds(values({9, 5, 7, 7})));
  EXPECT_FALSE(facts.holds(values({9, 5, 7, 5})));
}

TEST_F(FactsTest, Holds) {
  facts.decide(less(s1, s0));
  facts.decide(not_equal(s1, s2));
  EXPECT_TRUE(facts.holds(values({9, 3, 4})));
  EXPECT_FALSE(facts.holds(values({3, 3, 4})));
  EXPECT_FALSE(facts.holds(values({9, 4, 4})));
}

TEST_F(FactsTest, PositionOfTheFirstQuestion) {
  std::string place = "first";
  facts.set_position([&] { return place; });
  facts.decide(less(s1, s0));
  place = "second";
  facts.decide(less(s1, s0));
  ASSERT_EQ(facts.facts().size(), 1u);
  EXPECT_EQ(facts.facts()[0].where, "first");
}

TEST_F(FactsTest, NoNewFactsAfterTheEnd) {
  facts.decide(less(s1, s0));
  facts.close();
  EXPECT_TRUE(facts.decide(less(s1, s0)));
  EXPECT_THROW(facts.decide(equal(s1, s2)), Unsupported);
}

TEST_F(FactsTest, QuestionsOfTheRulesAreAnswered) {
  EXPECT_FALSE(known_equal(s0, s1).has_value());
  {
    DecideByHints deciding(facts);
    EXPECT_EQ(known_equal(s0, s1), false);
    EXPECT_EQ(known_less(s1, s0), true);
  }
  EXPECT_FALSE(known_less(s1, s0).has_value());
  EXPECT_EQ(facts.text(), std::vector<std::string>{"s1 < s0"});
}

TEST_F(FactsTest, WhatReplacesASymbolLiesInItsRange) {
  facts.decide(equal(s1, s2 + Expr(1)));
  EXPECT_TRUE(facts.holds(values({9, 3, 2})));
  EXPECT_FALSE(facts.holds(values({9, 2, 1})));
}

// ---- what follows

class FollowsTest : public FactsTest {
 protected:
  void hold(const Condition& c) {
    facts.decide(c);
    EXPECT_TRUE(evaluate(c, [](Expr s) { return hint(s); })) << print(c);
  }
  std::optional<bool> known(const Condition& c) { return facts.known(c); }
};

TEST_F(FollowsTest, Chains) {
  hold(less(s1, s0));
  hold(less(s2, s1));
  EXPECT_EQ(known(less(s2, s0)), true);
  EXPECT_EQ(known(at_most(s2 + Expr(2), s0)), true);
  EXPECT_EQ(known(at_most(s2 + Expr(3), s0)), std::nullopt);
  EXPECT_EQ(known(equal(s0, s2)), false);
  EXPECT_EQ(known(at_most(s0, s2)), false);
}

TEST_F(FollowsTest, SumsOfFacts) {
  hold(at_most(s0 + s1, 30));
  hold(at_most(10, s0 - s1));
  EXPECT_EQ(known(at_most(s1, 10)), true);
  EXPECT_EQ(known(at_most(s1, 9)), std::nullopt);
  EXPECT_EQ(known(at_most(12, s0)), true);
}

TEST_F(FollowsTest, QuotientsAndRemainders) {
  hold(less(s1, floordiv(s0, 2)));
  EXPECT_EQ(known(less(Expr(2) * s1, s0)), true);
  EXPECT_EQ(known(less(mod(s2, s1), s0)), true);
  EXPECT_EQ(known(at_most(floordiv(s1, 3), floordiv(s0, 3))), true);
  EXPECT_EQ(known(at_most(s1 * floordiv(s0, s1), s0)), true);
  EXPECT_EQ(known(less(s0, s1 * floordiv(s0, s1) + s1)), true);
}

TEST_F(FollowsTest, Products) {
  hold(less(s1, s0));
  EXPECT_EQ(known(less(s1 * s2, s0 * s2)), true);
  EXPECT_EQ(known(at_most(s1 * s2 + s2, s0 * s2)), true);
  EXPECT_EQ(known(less(s1, s0 * s2)), true);
}

TEST_F(FollowsTest, ProductsOfWhatFactsBound) {
  hold(at_most(3, s0));
  hold(at_most(4, s1));
  EXPECT_EQ(known(at_most(Expr(2) * s0 + Expr(2) * s1, s0 * s1 + Expr(2))), true);
  EXPECT_EQ(known(at_most(Expr(2) * s0 + Expr(2) * s1, s0 * s1 + Expr(1))), std::nullopt);
}

TEST_F(FollowsTest, StridesStayProductsOfSizes) {
  hold(equal(mod(s0, 2), 0));
  const Expr half = floordiv(s0, 2);
  EXPECT_EQ(facts.simplify(Expr(2) * half), Expr(2) * facts.simplify(half));
  EXPECT_EQ(facts.reduce(Expr(2) * half), s0);
}

TEST_F(FollowsTest, MinAndMax) {
  hold(less(s1, s0));
  EXPECT_EQ(known(at_most(min(s2, s1), s0)), true);
  EXPECT_EQ(known(at_most(s1, max(s2, s0))), true);
  EXPECT_EQ(known(equal(min(s2, s1) + max(s2, s1), s1 + s2)), true);
}

TEST_F(FollowsTest, Divisibility) {
  hold(equal(mod(s0, 4), 0));
  EXPECT_EQ(facts.reduce(Expr(4) * floordiv(s0, 4)), s0);
  EXPECT_EQ(facts.reduce(s1 * floordiv(s0, 4) * Expr(4)), s0 * s1);
  EXPECT_EQ(known(equal(mod(s0, 4), 1)), false);
  EXPECT_EQ(known(equal(Expr(2) * floordiv(s0, 2), s0)), true);
  EXPECT_EQ(known(equal(mod(s0, 2), 0)), true);
  EXPECT_EQ(known(equal(s0, Expr(4) * s1 + Expr(2))), false);
  hold(equal(mod(s0, s0 - Expr(8)), 0));
}

TEST_F(FollowsTest, EquationsOfProducts) {
  hold(equal(s1 * s2, 30));
  EXPECT_EQ(facts.reduce(s1 * s2 * s0), Expr(30) * s0);
  EXPECT_EQ(known(less(s1 * s2, 31)), true);
  EXPECT_EQ(known(at_most(s1, 15)), true);
}

TEST_F(FollowsTest, ImpliedFactsGo) {
  hold(less(s1, s0));
  hold(at_most(s2, 40));
  hold(at_most(s2, 20));
  hold(not_equal(s2, 7));
  hold(at_most(s2, s1));
  hold(at_most(s1, 6));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s1 < s0", "s2 <= s1", "s1 <= 6"}));
  facts.pin(s1);
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"s1 == 6", "7 <= s0", "s2 <= 6"}));
}

TEST_F(FollowsTest, NotEqualAtTheEndOfARange) {
  hold(not_equal(s0, 20));
  hold(at_most(s0, 20));
  EXPECT_EQ(facts.text(), std::vector<std::string>{"s0 <= 19"});
}

TEST_F(FollowsTest, AnOrWithOnePartLeft) {
  EXPECT_TRUE(facts.decide(either(equal(s0, 3), at_most(s1, s2 + Expr(1)))));
  hold(less(Expr(10), s0));
  EXPECT_EQ(facts.text(), (std::vector<std::string>{"11 <= s0", "s1 <= s2 + 1"}));
}

class UnbackedTest : public FactsTest {
 protected:
  Expr u0 = pool->symbol("u0", {0, INT64_MAX}, 2, Origin::Data);
  Expr u1 = pool->symbol("u1", {}, 2, Origin::Data);
};

TEST_F(UnbackedTest, WhereSymbolsComeFrom) {
  EXPECT_EQ(origin_of(s0 * s1), Origin::Hinted);
  EXPECT_EQ(origin_of(s0 + floordiv(u0, 2)), Origin::Data);
  const Expr size = pool->symbol("u9", {0, INT64_MAX}, 2, Origin::Unbacked);
  EXPECT_EQ(origin_of(size * s0), Origin::Unbacked);
  EXPECT_EQ(origin_of(size * u0), Origin::Data);
}

TEST_F(UnbackedTest, CodeIsToldWhatFactsSayAlone) {
  EXPECT_TRUE(facts.decide_for_code(at_most(0, u0), "u0 >= 0"));
  EXPECT_THROW(facts.decide_for_code(less(3, u0), "u0 > 3"), Undecided);
  EXPECT_THROW(facts.pin(u0), Undecided);
  EXPECT_TRUE(facts.assume(less(3, u0)));
  EXPECT_TRUE(facts.decide_for_code(less(2, u0), "u0 > 2"));
  EXPECT_FALSE(facts.assume(equal(u0, 1)));
  EXPECT_GE(hint(u0), 4);  // what is guessed fits
}

TEST_F(UnbackedTest, FactsOfDataTellNothingAboutOtherSizes) {
  EXPECT_TRUE(facts.assume(at_most(u0, s1)));
  EXPECT_TRUE(facts.assume(at_most(4, u0)));
  EXPECT_FALSE(facts.known(at_most(4, s1)).has_value());
  EXPECT_EQ(facts.known(at_most(3, u0)), true);
  ASSERT_EQ(facts.checked_facts().size(), 2u);
}

TEST_F(UnbackedTest, TheSymbolThatIsKnownLastIsReplaced) {
  const Expr s3 = pool->symbol("s3", {2, INT64_MAX}, 9);
  EXPECT_TRUE(facts.assume(equal(u0, s3)));
  EXPECT_EQ(facts.simplify(u0), s3);
  EXPECT_TRUE(facts.assume(equal(u1, u0 + Expr(1))));
  EXPECT_EQ(facts.simplify(u1), s3 + Expr(1));
  EXPECT_EQ(facts.simplify(s3), s3);
}

TEST_F(UnbackedTest, LayoutsAreThoseOfLargeSizes) {
  const DecideByHints deciding(facts);
  EXPECT_EQ(layout_equal(u0, 1), false);
  EXPECT_EQ(layout_less(1, Expr(8) * u0), true);
  EXPECT_TRUE(facts.facts().empty());
  EXPECT_EQ(known_equal(u0, 0), false);
  EXPECT_EQ(facts.text(), std::vector<std::string>{"0 < u0"});
}

}  // namespace
}  // namespace oxy::sym
