// The questions, substitution, text errors and limits of src/symbolic.
#include <gtest/gtest.h>

#include "support/check.h"
#include "symbolic/expr.h"

namespace oxy::sym {
namespace {

class QueryTest : public testing::Test {
 protected:
  Expr operator()(std::string_view text) { return parse(text, pool); }
  std::string linear(std::string_view text, Expr symbol) {
    auto parts = linear_in((*this)(text), symbol);
    return parts ? print(parts->first) + " ; " + print(parts->second) : "no";
  }
  std::string parse_error(std::string_view text) {
    try {
      parse(text, pool);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }

  ExprPool pool;
  Expr p = pool.symbol("p", {0, 7});
  Expr q = pool.symbol("q", {0, 3});
  Expr x = pool.symbol("x", {});
  Expr s = pool.symbol("s", {2, INT64_MAX}, 16);
};

TEST_F(QueryTest, ConstantsNeedNoPool) {
  EXPECT_EQ(Expr(3) + Expr(4) * 2, Expr(11));
  EXPECT_EQ(floordiv(-7, 2).value(), -4);
  EXPECT_EQ(mod(-7, 2).value(), 1);
  EXPECT_EQ(mod(7, -2).value(), -1);
  EXPECT_EQ(ceildiv(7, 2).value(), 4);
  EXPECT_EQ(ceildiv(-7, 2).value(), -3);
  EXPECT_EQ(ceildiv(7, -2).value(), -3);
  EXPECT_EQ(min(3, 4).value() + max(3, 4).value(), 7);
  EXPECT_TRUE(Expr().is_const(0));
  EXPECT_EQ(Expr(-5).value(), -5);
  EXPECT_EQ(print(Expr(-5)), "-5");
}

TEST_F(QueryTest, EqualFormsHaveEqualHandles) {
  EXPECT_EQ((p + q) * 2, q + q + 2 * p);
  EXPECT_EQ(s * x + p, p + x * s);
  EXPECT_NE(p, q);
  EXPECT_EQ(pool.symbol("p", {0, 7}), p);
  EXPECT_EQ(pool.find_symbol("p"), p);
  EXPECT_EQ(pool.find_symbol("nobody"), std::nullopt);
  EXPECT_EQ(pool.symbol_count(), 4u);
  EXPECT_EQ(s.symbol_index(), 3u);
}

TEST_F(QueryTest, SymbolsKeepTheirRange) {
  EXPECT_THROW(pool.symbol("p", {0, 8}), InternalError);
  EXPECT_THROW(pool.symbol("empty", {1, 0}), InternalError);
}

TEST_F(QueryTest, OperandsStartWithTheConstant) {
  Expr e = 3 + 2 * p * s;
  ASSERT_EQ(e.kind(), Kind::Add);
  ASSERT_EQ(e.operands().size(), 2u);
  EXPECT_EQ(e.operands()[0], Expr(3));
  Expr product = e.operands()[1];
  ASSERT_EQ(product.kind(), Kind::Mul);
  EXPECT_EQ(product.operands()[0], Expr(2));
  EXPECT_EQ(product.operands()[1], p);
  EXPECT_EQ(product.operands()[2], s);
  EXPECT_TRUE(p.operands().empty());
  EXPECT_TRUE(Expr(3).operands().empty());
}

TEST_F(QueryTest, TheOrderDoesNotDependOnWhoCameFirst) {
  ExprPool a, b;
  for (ExprPool* pool : {&a, &b}) {
    pool->symbol("x", {});
    pool->symbol("y", {});
  }
  parse("y//7", b);  // made earlier here than x//3
  const char* text = "x//3 + y//7 + x % 5";
  EXPECT_EQ(print(parse(text, a)), print(parse(text, b)));
}

TEST_F(QueryTest, Ranges) {
  EXPECT_EQ(range_of((*this)("2*p - q + 1")), (Range{-2, 15}));
  EXPECT_EQ(range_of((*this)("p*q")), (Range{0, 21}));
  EXPECT_EQ(range_of((*this)("x*x")), (Range{0, INT64_MAX}));
  EXPECT_EQ(range_of((*this)("-x")), (Range{}));
  EXPECT_EQ(range_of((*this)("x % 5")), (Range{0, 4}));
  EXPECT_EQ(range_of((*this)("s - s//2 - 1")), (Range{0, INT64_MAX}));
  EXPECT_EQ(range_of((*this)("2*s - 3*(s//2)")).lo, 1);
  EXPECT_EQ(range_of((*this)("(x + 3)//4 - x")).hi, INT64_MAX);
  EXPECT_EQ(range_of((*this)("p % 5")), (Range{0, 4}));
  EXPECT_EQ(range_of((*this)("(x % 100)//7")), (Range{0, 14}));
  EXPECT_EQ(range_of((*this)("x % s")), (Range{0, INT64_MAX}));
  EXPECT_EQ(range_of((*this)("p//s")), (Range{0, 3}));
  EXPECT_EQ(range_of((*this)("(-p)//s")), (Range{-4, 0}));
  EXPECT_EQ(range_of((*this)("s//3")), (Range{0, INT64_MAX}));
  EXPECT_EQ(range_of((*this)("min(x, 4)")), (Range{INT64_MIN, 4}));
  EXPECT_EQ(range_of((*this)("max(p, 4)")), (Range{4, 7}));
}

TEST_F(QueryTest, Comparisons) {
  EXPECT_EQ(known_equal(p + q, q + p), true);
  EXPECT_EQ(known_equal(p, 8), false);
  EXPECT_EQ(known_equal(p, 7), std::nullopt);
  EXPECT_EQ(known_equal(2 * x, 4 * q + 1), false);
  EXPECT_EQ(known_equal(s, 1), false);
  EXPECT_EQ(known_less(p, 8), true);
  EXPECT_EQ(known_less(p, 7), std::nullopt);
  EXPECT_EQ(known_less(s, 2), false);
  EXPECT_EQ(known_less(x, x + 1), true);
}

TEST_F(QueryTest, ProductsWithFloatsAreRoundedTwice) {
  EXPECT_EQ(scale(100, 0.29).value(), 28);  // 28.999999999999996
  EXPECT_EQ(scale(10, 0.7).value(), 7);     // the float is less than 0.7
  EXPECT_EQ(scale(-10, 0.7).value(), -7);
  EXPECT_EQ(scale(-3, 0.5).value(), -2);
  EXPECT_EQ(range_of(scale(p, 0.7)), (Range{0, 4}));
  EXPECT_EQ(range_of(scale(s + 9, 1.5)), (Range{16, INT64_MAX}));
  EXPECT_EQ(scale(q, 0.1), Expr(0));
  EXPECT_EQ(print(scale(s - 1, 0.7) * 2 + 1), "2*scale(s - 1, 0.7) + 1");
  EXPECT_EQ((*this)("2*scale(s - 1, 0.7) + 1"), scale(s - 1, 0.7) * 2 + 1);
  EXPECT_EQ((*this)("scale(s, 1e-05)"), scale(s, 1e-5));
  EXPECT_EQ(hint(scale(s, 0.7)), 11);
  EXPECT_EQ(linear("scale(s, 0.7)*s", s), "no");
  EXPECT_EQ(scale_down(7, 1.4).value(), 5);  // the float is less than 1.4
  EXPECT_EQ(scale_down(-7, 1.4).value(), -5);
  EXPECT_EQ(scale_down(-8, 1.4).value(), -6);
  EXPECT_EQ(range_of(scale_down(p, 1.4)), (Range{0, 5}));
  EXPECT_EQ((*this)("scale(s - 1, 1/1.4) + 2"), scale_down(s - 1, 1.4) + 2);
  EXPECT_EQ(print(scale_down(s, 1.4)), "scale(s, 1/1.4)");
  EXPECT_EQ(hint(scale_down(s, 1.6)), 10);
  for (const char* bad : {"2.5", "-0.5", "x", "nan"})
    EXPECT_EQ(parse_error(cat("scale(s, ", bad, ")")),
              cat("symbolic expression \"scale(s, ", bad,
                  ")\": a factor that is no float from 0 to 2 at column 10"));
}

TEST_F(QueryTest, RootsAreRoundedDown) {
  for (const auto& [x, r] : {std::pair{15, 3}, {16, 4}, {17, 4}, {1, 1}, {0, 0}, {-9, 0}})
    EXPECT_EQ(square_root(x).value(), r);
  EXPECT_EQ(square_root(Expr::kMaxConst).value(), 2147483647);
  EXPECT_EQ(range_of(square_root(p)), (Range{0, 2}));
  EXPECT_EQ(range_of(square_root(s + 2)), (Range{2, INT64_MAX}));
  EXPECT_EQ(range_of(square_root(x)), (Range{0, INT64_MAX}));
  EXPECT_EQ(square_root(q + 4), Expr(2));
  EXPECT_EQ(print(square_root(s - 1) * 2 + 1), "2*root(s - 1, 2) + 1");
  EXPECT_EQ((*this)("2*root(s - 1, 2) + 1"), square_root(s - 1) * 2 + 1);
  EXPECT_EQ(hint(square_root(s)), 4);
  EXPECT_EQ(linear("root(s, 2)*s", s), "no");
  EXPECT_EQ(parse_error("root(s, 3)"),
            "symbolic expression \"root(s, 3)\": a root other than the square root at column 9");
}

TEST_F(QueryTest, PowersAndDigits) {
  EXPECT_EQ(power(2, 10).value(), 1024);
  EXPECT_EQ(power(3, -1).value(), 0);
  EXPECT_EQ(bit_length(0).value(), 0);
  EXPECT_EQ(bit_length(-8).value(), 4);
  EXPECT_EQ(digits(1000, 10).value(), 4);
  EXPECT_EQ(range_of(power(2, p)), (Range{1, 128}));
  EXPECT_EQ(range_of(bit_length(p)), (Range{0, 3}));
  EXPECT_EQ(power(2, p + 3), 8 * power(2, p));
  EXPECT_EQ(power(2, s + 1), 2 * power(2, s));
  EXPECT_EQ(print(power(2, x)), "power(2, x)");
  for (const char* text : {"power(2, x)", "digits(x, 2)", "bitand(x, s)", "bitand(21, x)"})
    EXPECT_EQ(print((*this)(text)), text);
  EXPECT_EQ(parse_error("power(s, 3)"),
            "symbolic expression \"power(s, 3)\": a base that is no number from 2 on at column 12");
}

TEST_F(QueryTest, Bits) {
  EXPECT_EQ(bit_and(x, 7), mod(x, 8));
  EXPECT_EQ(bit_and(x, -8), x - mod(x, 8));
  EXPECT_EQ(bit_and(x, 6), mod(x, 8) - mod(x, 2));
  EXPECT_EQ(bit_and(x, -1), x);
  EXPECT_EQ(bit_xor(x, x), Expr(0));
  EXPECT_EQ(bit_or(s, s), s);
  EXPECT_EQ(range_of(bit_and(x, p)), (Range{0, 7}));
  EXPECT_TRUE(divisible(bit_and(4 * x, s), 4));
  EXPECT_FALSE(divisible(bit_and(3 * x, 3 * s), 3));
}

TEST_F(QueryTest, Divisibility) {
  EXPECT_TRUE(divisible(4 * x + 8 * p, 4));
  EXPECT_TRUE(divisible(6 * s * (2 * p), 4));
  EXPECT_TRUE(divisible(12, 4));
  EXPECT_TRUE(divisible(0, 4));
  EXPECT_TRUE(divisible(min(4 * x, 8 * p), 4));
  EXPECT_FALSE(divisible(4 * x + 2, 4));
  EXPECT_FALSE(divisible(x, 2));
  EXPECT_THROW(divisible(x, 0), InternalError);
}

TEST_F(QueryTest, LinearIn) {
  EXPECT_EQ(linear("4*p + s*q + 3", p), "4 ; q*s + 3");
  EXPECT_EQ(linear("4*p + s*q + 3", q), "s ; 4*p + 3");
  EXPECT_EQ(linear("x//3", p), "0 ; x//3");
  EXPECT_EQ(linear("p*p + p", p), "no");
  EXPECT_EQ(linear("x//3 + x", x), "no");
  EXPECT_EQ(linear("p*(x//3)", x), "no");
  EXPECT_EQ(linear("p*(x//3)", p), "x//3 ; 0");
}

TEST_F(QueryTest, Symbols) {
  std::vector<Expr> found;
  collect_symbols((*this)("s*(x//3) + min(x, q)"), found);
  EXPECT_EQ(found.size(), 3u);
  EXPECT_TRUE(contains((*this)("(x//3) % 5"), x));
  EXPECT_FALSE(contains((*this)("(x//3) % 5"), p));
}

TEST_F(QueryTest, SubstitutionSimplifies) {
  Expr e = (*this)("x//4 + x % 4");
  EXPECT_EQ(print(substitute(e, [&](Expr a) { return a == x ? 4 * p + q : a; })), "p + q");
  EXPECT_EQ(substitute(e, [](Expr a) { return a; }), e);
  EXPECT_EQ(substitute(7, [](Expr a) { return a; }), Expr(7));
}

TEST_F(QueryTest, Hints) {
  EXPECT_EQ(hint(s * 2 + 1), 33);
  EXPECT_THROW(hint(s + x), InternalError);
}

TEST_F(QueryTest, DivisionByZeroIsAnError) {
  EXPECT_THROW(floordiv(x, 0), InternalError);
  EXPECT_THROW(mod(1, 0), InternalError);
  EXPECT_THROW(evaluate(floordiv(x, p), [](Expr) { return int64_t{0}; }), InternalError);
}

TEST_F(QueryTest, ConstantsThatLeaveTheRangeAreErrors) {
  constexpr int64_t kMax = Expr::kMaxConst;
  EXPECT_EQ(Expr(kMax).value(), kMax);
  EXPECT_EQ(Expr(-kMax - 1).value(), -kMax - 1);
  EXPECT_THROW(Expr(INT64_MAX), InternalError);
  EXPECT_THROW(Expr(UINT64_MAX), InternalError);
  EXPECT_THROW(Expr(kMax) + 1, InternalError);
  EXPECT_THROW(Expr(kMax) * kMax, InternalError);
  EXPECT_THROW(Expr(kMax) * x * 2, InternalError);
  EXPECT_EQ(print(floordiv(floordiv(x, kMax), 2)), "(x//" + std::to_string(kMax) + ")//2");
}

TEST_F(QueryTest, ExpressionsOfTwoPoolsDoNotMix) {
  ExprPool other;
  EXPECT_THROW(x + other.symbol("x", {}), InternalError);
}

TEST_F(QueryTest, APoolGrows) {
  std::vector<Expr> made;
  for (int i = 0; i < 5000; ++i) made.push_back(floordiv(x, i + 2) * s + i);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(floordiv(x, i + 2) * s + i, made[static_cast<size_t>(i)]);
  }
}

TEST_F(QueryTest, ParseErrorsSayWhere) {
  EXPECT_EQ(parse_error("p + nobody"),
            "symbolic expression \"p + nobody\": unknown symbol \"nobody\" at column 5");
  EXPECT_EQ(parse_error("(p"), "symbolic expression \"(p\": expected \")\" at column 3");
  EXPECT_EQ(parse_error("p q"), "symbolic expression \"p q\": unexpected text at column 3");
  for (const char* text : {"", "p +", "p // 0", "p / 2", "min(p", "9999999999999999999", "*p"}) {
    EXPECT_NE(parse_error(text), "no error") << text;
  }
}

TEST_F(QueryTest, ParsesPythonsPrecedence) {
  EXPECT_EQ((*this)("-x//3"), floordiv(-x, 3));
  EXPECT_EQ((*this)("2*x//3"), floordiv(2 * x, 3));
  EXPECT_EQ((*this)("x - p - q"), x - (p + q));
  EXPECT_EQ((*this)("max(p, q, 3)"), max(p, max(q, 3)));
  EXPECT_EQ((*this)(" x%4*2 "), 2 * mod(x, 4));
}

}  // namespace
}  // namespace oxy::sym
