// Random facts over small ranges: where they hold, what is known is so, what is simplified has its
// value, and the answers are those; where all answers are those, the facts hold, unless a min or
// max was decided.
#include <gtest/gtest.h>

#include <random>

#include "symbolic/facts.h"

namespace oxy::sym {
namespace {

constexpr int64_t kHighest = 9;

class FactsPropertyTest : public testing::TestWithParam<int> {
 protected:
  FactsPropertyTest() : random(static_cast<unsigned>(GetParam())) {
    for (const char* name : {"s0", "s1", "s2"})
      symbols.push_back(pool->symbol(name, {number(0, 2), kHighest}, number(2, kHighest)));
    for (int64_t a = 0; a <= kHighest; ++a)
      for (int64_t b = 0; b <= kHighest; ++b)
        for (int64_t c = 0; c <= kHighest; ++c) points.push_back({a, b, c});
    std::erase_if(points, [&](const Point& p) {
      return std::ranges::any_of(symbols, [&](Expr s) { return at(p)(s) < range_of(s).lo; });
    });
  }

  using Point = std::vector<int64_t>;
  static std::function<int64_t(Expr)> at(const Point& p) {
    return [&p](Expr s) { return p[s.symbol_index()]; };
  }

  int64_t number(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  }
  Expr symbol() { return symbols[static_cast<size_t>(number(0, 2))]; }

  Expr expression(int depth) {
    if (depth == 0) return number(0, 3) ? symbol() : Expr(number(-4, 9));
    const Expr a = expression(depth - 1);
    switch (number(0, 7)) {
      case 0:
        return floordiv(a, number(2, 4));
      case 1:
        return mod(a, number(2, 4));
      case 2:
        return a * expression(depth - 1);
      case 3:
        return min(a, expression(depth - 1));
      case 4:
        return max(a, expression(depth - 1));
      case 5:
        return a - expression(depth - 1);
      case 6:
        return Expr(number(-3, 4)) * a;
      default:
        return a + expression(depth - 1);
    }
  }

  Condition condition(int depth) {
    switch (number(0, depth > 0 ? 6 : 3)) {
      case 0:
        return equal(expression(1), expression(1));
      case 1:
        return equal(mod(symbol(), number(2, 4)), number(0, 1));
      case 2:
        return less(expression(2), expression(1));
      case 3:
        return at_most(expression(1), expression(1));
      case 4:
        return both(condition(depth - 1), condition(depth - 1));
      case 5:
        return either(condition(depth - 1), condition(depth - 1));
      default:
        return negate(condition(depth - 1));
    }
  }

  std::string said(const ShapeFacts& facts) {
    return testing::PrintToString(facts.text()) + " of " + testing::PrintToString(asked);
  }

  std::mt19937 random;
  std::shared_ptr<ExprPool> pool = std::make_shared<ExprPool>();
  std::vector<Expr> symbols;
  std::vector<Point> points;
  std::vector<std::string> asked;
};

TEST_P(FactsPropertyTest, FactsAreWhatWasAnswered) {
  for (int round = 0; round < 60; ++round) {
    ShapeFacts facts(pool);
    asked.clear();
    bool decides_more = false;
    std::vector<Point> left = points;
    for (int i = 0; i < 5; ++i) {
      const Condition c = condition(2);
      const bool value = facts.decide(c);
      asked.push_back(print(c) + (value ? " yes" : " no"));
      std::erase_if(left, [&](const Point& p) { return evaluate(c, at(p)) != value; });
      decides_more |= asked.back().find("m") != std::string::npos;  // min, max
      for (const Point& p : points) {
        const bool answered = std::ranges::binary_search(left, p), holds = facts.holds(at(p));
        ASSERT_TRUE(holds == answered || (answered && decides_more))
            << testing::PrintToString(p) << ' ' << said(facts);
      }
      for (int j = 0; j < 6; ++j) {
        const Condition q = condition(1);
        const std::optional<bool> k = facts.known(q);
        const Expr e = expression(3), simple = j % 2 ? facts.simplify(e) : facts.reduce(e);
        for (const Point& p : left) {
          if (!facts.holds(at(p))) continue;
          if (k) ASSERT_EQ(evaluate(q, at(p)), *k) << print(q) << ' ' << said(facts);
          ASSERT_EQ(evaluate(e, at(p)), evaluate(simple, at(p)))
              << print(e) << " as " << print(simple) << ' ' << said(facts);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FactsPropertyTest, testing::Range(1, 9));

}  // namespace
}  // namespace oxy::sym
