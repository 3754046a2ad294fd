// Random expressions over small ranges: what simplification makes of them has the same value
// everywhere, lies in its range, prints to text that parses to the same handle, and is a fixed
// point of construction.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "support/check.h"
#include "symbolic/expr.h"

namespace oxy::sym {
namespace {

int64_t floor_quotient(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t square_root_of(int64_t x) {
  int64_t r = 0;
  while ((r + 1) * (r + 1) <= x) ++r;
  return r;
}

int64_t power_of(int64_t base, int64_t n) {
  int64_t r = n >= 0;
  for (; n > 0; --n) r *= base;
  return r;
}

int64_t digits_of(int64_t x, int64_t base) {
  int64_t n = 0;
  for (; x != 0; x /= base) ++n;
  return n;
}

// An expression as it was written, never simplified: the reference.
struct Tree {
  Kind kind = Kind::Const;
  int64_t value = 0;  // of a Const; of a Symbol its index
  std::vector<Tree> operands;

  int64_t evaluate(const std::vector<int64_t>& point) const {
    if (kind == Kind::Const) return value;
    if (kind == Kind::Symbol) return point[static_cast<size_t>(value)];
    int64_t a = operands[0].evaluate(point), b = operands[1].evaluate(point);
    switch (kind) {
      case Kind::Add:
        return a + b;
      case Kind::Mul:
        return a * b;
      case Kind::FloorDiv:
        return floor_quotient(a, b);
      case Kind::Mod:
        return a - b * floor_quotient(a, b);
      case Kind::Min:
        return std::min(a, b);
      case Kind::Root:
        return square_root_of(a);
      case Kind::Power:
        return power_of(a, b);
      case Kind::Digits:
        return digits_of(a, b);
      case Kind::BitAnd:
        return a & b;
      case Kind::Scale:
        return static_cast<int64_t>(std::floor(static_cast<double>(a) * std::bit_cast<double>(b)));
      default:
        return std::max(a, b);
    }
  }
};

class PropertyTest : public testing::TestWithParam<int> {
 protected:
  PropertyTest() : random(static_cast<unsigned>(GetParam())) {
    // Three indices, a signed number, and a size that may be a divisor.
    for (auto [name, lo, hi] :
         {std::tuple{"p0", 0, 7}, {"p1", 0, 3}, {"p2", 0, 2}, {"x", -9, 9}, {"s0", 1, 5}}) {
      ranges.push_back({lo, hi});
      symbols.push_back(pool.symbol(name, ranges.back()));
    }
  }

  int64_t number(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  }

  Tree leaf() {
    if (number(0, 4) == 0) return {Kind::Const, number(-12, 12), {}};
    return {Kind::Symbol, number(0, static_cast<int64_t>(symbols.size()) - 1), {}};
  }

  Tree divisor() {
    if (number(0, 5) == 0) return {Kind::Symbol, 4, {}};  // s0 is never 0
    static constexpr std::array<int64_t, 9> kNumbers = {2, 3, 4, 6, 8, 12, 24, -2, -3};
    return {Kind::Const, kNumbers[static_cast<size_t>(number(0, kNumbers.size() - 1))], {}};
  }

  int64_t factor() {
    static constexpr std::array<double, 6> kFactors = {0.7, 0.29, 1.1, 1.0 / 3, 1e-9, 1.999};
    return std::bit_cast<int64_t>(kFactors[static_cast<size_t>(number(0, kFactors.size() - 1))]);
  }

  Tree base() { return {Kind::Const, number(2, 3), {}}; }
  Tree small(int depth) { return {Kind::Mod, 0, {tree(depth), {Kind::Const, 8, {}}}}; }

  Tree tree(int depth) {
    if (depth == 0) return leaf();
    auto kind = static_cast<Kind>(number(1, 12));
    switch (kind) {
      case Kind::Symbol:
        return leaf();
      case Kind::FloorDiv:
      case Kind::Mod:
        return {kind, 0, {tree(depth - 1), divisor()}};
      case Kind::Root:
        return {kind, 0, {tree(depth - 1), {Kind::Const, 2, {}}}};
      case Kind::Scale:
        return {kind, 0, {tree(depth - 1), {Kind::Const, factor(), {}}}};
      case Kind::Power:  // of less than 2**10
        return {kind, 0, {base(), {Kind::Add, 0, {small(depth - 1), {Kind::Const, -2, {}}}}}};
      case Kind::Digits:
        return {kind, 0, {tree(depth - 1), base()}};
      case Kind::BitAnd:
        if (number(0, 1) > 0)
          return {kind, 0, {tree(depth - 1), {Kind::Const, number(-40, 40), {}}}};
        return {kind, 0, {tree(depth - 1), tree(depth - 1)}};
      case Kind::Mul:
        if (number(0, 2) > 0) return {kind, 0, {divisor(), tree(depth - 1)}};
        return {kind, 0, {tree(depth - 1), tree(depth / 2)}};
      default:
        return {kind, 0, {tree(depth - 1), tree(depth - 1)}};
    }
  }

  Expr simplified(const Tree& t) {
    if (t.kind == Kind::Const) return t.value;
    if (t.kind == Kind::Symbol) return symbols[static_cast<size_t>(t.value)];
    return combine(t.kind, simplified(t.operands[0]), simplified(t.operands[1]));
  }

  // Builds an expression again from its operands, bottom up.
  Expr rebuilt(Expr e) {
    if (e.is_const() || e.kind() == Kind::Symbol) return e;
    Expr r = rebuilt(e.operands()[0]);
    for (Expr op : e.operands().subspan(1)) r = combine(e.kind(), r, rebuilt(op));
    return r;
  }

  std::vector<int64_t> point() {
    std::vector<int64_t> p;
    for (Range r : ranges) p.push_back(number(r.lo, r.hi));
    return p;
  }

  int64_t value(Expr e, const std::vector<int64_t>& p) {
    return evaluate(e, [&](Expr symbol) { return p[symbol.symbol_index()]; });
  }

  std::mt19937 random;
  ExprPool pool;
  std::vector<Expr> symbols;
  std::vector<Range> ranges;
};

constexpr int kTrees = 300;
constexpr int kPoints = 60;

TEST_P(PropertyTest, SimplificationKeepsTheValueAndTheRangeIsSound) {
  for (int i = 0; i < kTrees; ++i) {
    Tree t = tree(static_cast<int>(number(1, 5)));
    Expr e = simplified(t);
    Range range = range_of(e);
    for (int j = 0; j < kPoints; ++j) {
      std::vector<int64_t> p = point();
      int64_t v = value(e, p);
      ASSERT_EQ(v, t.evaluate(p)) << print(e) << " at " << testing::PrintToString(p);
      ASSERT_LE(range.lo, v) << print(e);
      ASSERT_GE(range.hi, v) << print(e);
      for (int64_t k : {2, 3, 4, 8}) {
        if (divisible(e, k)) ASSERT_EQ(v % k, 0) << print(e) << " by " << k;
      }
    }
  }
}

TEST_P(PropertyTest, CanonicalFormsAreFixedPoints) {
  for (int i = 0; i < kTrees; ++i) {
    Expr e = simplified(tree(static_cast<int>(number(1, 5))));
    ASSERT_EQ(print(rebuilt(e)), print(e));
    ASSERT_EQ(parse(print(e), pool), e) << print(e);
  }
}

TEST_P(PropertyTest, KnownComparisonsHold) {
  for (int i = 0; i < kTrees; ++i) {
    Expr a = simplified(tree(3)), b = simplified(tree(3));
    std::optional<bool> equal = known_equal(a, b), less = known_less(a, b);
    for (int j = 0; j < kPoints; ++j) {
      std::vector<int64_t> p = point();
      if (equal) ASSERT_EQ(value(a, p) == value(b, p), *equal) << print(a) << " = " << print(b);
      if (less) ASSERT_EQ(value(a, p) < value(b, p), *less) << print(a) << " < " << print(b);
    }
  }
}

TEST_P(PropertyTest, SubstitutionIsEvaluationOfTheReplacement) {
  for (int i = 0; i < kTrees; ++i) {
    Expr e = simplified(tree(4));
    Expr replacement = symbols[0] + 8 * symbols[1] - symbols[2];
    Expr r = substitute(e, [&](Expr s) { return s == symbols[3] ? replacement : s; });
    ASSERT_FALSE(contains(r, symbols[3]));
    for (int j = 0; j < kPoints; ++j) {
      std::vector<int64_t> p = point(), q = p;
      q[3] = value(replacement, p);
      // Only where the replaced symbol stays within the range that e was simplified under.
      if (q[3] < ranges[3].lo || q[3] > ranges[3].hi) continue;
      ASSERT_EQ(value(r, p), value(e, q)) << print(e) << " -> " << print(r);
    }
  }
}

TEST_P(PropertyTest, LinearInGivesTheParts) {
  for (int i = 0; i < kTrees; ++i) {
    Expr e = simplified(tree(3));
    for (Expr s : symbols) {
      auto parts = linear_in(e, s);
      if (!parts) continue;
      auto [coefficient, rest] = *parts;
      EXPECT_FALSE(contains(coefficient, s));
      EXPECT_FALSE(contains(rest, s));
      EXPECT_EQ(print(coefficient * s + rest), print(e));
    }
  }
}

// A reshape writes a linear index of one shape as indices of another; back again must give the
// indices themselves.
TEST_P(PropertyTest, ReshapesRoundTrip) {
  static constexpr std::array<int64_t, 7> kFactors = {2, 3, 4, 5, 7, 8, 16};
  ExprPool pool;
  for (int i = 0; i < 50; ++i) {
    std::vector<int64_t> sizes;
    int64_t n = number(1, 4);
    for (int64_t d = 0; d < n; ++d) sizes.push_back(kFactors[static_cast<size_t>(number(0, 6))]);
    int64_t total = 1;
    for (int64_t s : sizes) total *= s;
    // Linear to indices to linear.
    Expr flat = pool.symbol("flat" + std::to_string(total), {0, total - 1});
    Expr back = 0, rest = total;
    for (int64_t s : sizes) {
      rest = floordiv(rest, s);
      back += mod(floordiv(flat, rest), s) * rest;
    }
    EXPECT_EQ(print(back), print(flat));
    // Indices to linear to indices.
    Expr linear = 0;
    std::vector<Expr> indices;
    for (size_t d = 0; d < sizes.size(); ++d) {
      std::string name = "p" + std::to_string(d) + "_" + std::to_string(sizes[d]);
      indices.push_back(pool.symbol(name, {0, sizes[d] - 1}));
      linear = linear * sizes[d] + indices.back();
    }
    Expr stride = total;
    for (size_t d = 0; d < sizes.size(); ++d) {
      stride = floordiv(stride, sizes[d]);
      EXPECT_EQ(print(mod(floordiv(linear, stride), sizes[d])), print(indices[d]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PropertyTest, testing::Range(1, 9));

}  // namespace
}  // namespace oxy::sym
