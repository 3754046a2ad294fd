// Each law of src/symbolic/expr.h on examples, as it stands in the text of the result.
#include <gtest/gtest.h>

#include "support/check.h"
#include "symbolic/expr.h"

namespace oxy::sym {
namespace {

class SimplifyTest : public testing::Test {
 protected:
  SimplifyTest() {
    for (auto [name, extent] : {std::pair{"p0", 8}, {"p1", 4}, {"p2", 3}}) {
      pool.symbol(name, {0, extent - 1});
    }
    pool.symbol("i", {0, 95});
    pool.symbol("q", {0, INT64_MAX});
    pool.symbol("x", {});
    pool.symbol("y", {});
    pool.symbol("s0", {2, INT64_MAX}, 16);
    pool.symbol("s1", {2, INT64_MAX}, 5);
  }

  Expr operator()(std::string_view text) { return parse(text, pool); }
  void simplifies(std::string_view from, std::string_view to) {
    EXPECT_EQ(print((*this)(from)), to) << "from " << from;
  }

  ExprPool pool;
};

TEST_F(SimplifyTest, Sums) {
  simplifies("p0 + 2*p1 + p0 - p1 + 3 - 1", "2*p0 + p1 + 2");
  simplifies("p1 - p0 - p1 + p0", "0");
  simplifies("(x + 1)*(x - 1)", "x*x - 1");
  simplifies("(s0 + 1)*s1 - s1", "s0*s1");
  simplifies("-(x - y)", "-x + y");
}

TEST_F(SimplifyTest, RangesDecideDivisions) {
  simplifies("(4*p0 + p1)//4", "p0");
  simplifies("(4*p0 + p1) % 4", "p1");
  simplifies("(p0 + 8*q)//8", "q");
  simplifies("(p0 + 8*q) % 8", "p0");
  simplifies("p0//8", "0");
  simplifies("(p0 - 8)//8", "-1");
  simplifies("(p0 + 8) % 8", "p0");
  simplifies("(12*q + 3*p1 + p2)//3 % 4", "p1");
  simplifies("(4*x + p1) % 12", "p1 + 4*(x % 3)");
  simplifies("(4*x + p1 + 4)//12", "(x + 1)//3");
}

TEST_F(SimplifyTest, NestedDivisions) {
  simplifies("(x//3)//4", "x//12");
  simplifies("(x//3 + 5)//4", "(x + 3)//12 + 1");
  simplifies("x % 12 % 4", "x % 4");
  simplifies("(x % 12)//4", "(x//4) % 3");
  simplifies("(6*x)//(6*5)", "x//5");
  simplifies("(6*x + 2)//4", "x + (x + 1)//2");
  simplifies("(x + 4*(y % 6)) % 8", "(x + 4*y) % 8");
  simplifies("x//(-3)", "(-x)//3");
  simplifies("x % -3", "-((-x) % 3)");
}

TEST_F(SimplifyTest, QuotientAndRemainderJoin) {
  simplifies("x//5*5 + x % 5", "x");
  simplifies("x - 5*(x//5)", "x % 5");
  simplifies("x - x % 5", "5*(x//5)");
  simplifies("(x + 2*y)//5*5 + (x + 2*y) % 5", "x + 2*y");
  simplifies("i//12*12 + i//4 % 3 * 4 + i % 4", "i");
  simplifies("x//4 - 3*(x//12)", "(x//4) % 3");
  simplifies("s0*(x//5)*5 + s0*(x % 5)", "x*s0");
}

TEST_F(SimplifyTest, SymbolicDivisors) {
  simplifies("(s0*x + s0*s1)//s0", "x + s1");
  simplifies("(s0*x) % s0", "0");
  simplifies("(x*(s0 + 1) + y) % (s0 + 1)", "y % (s0 + 1)");
  simplifies("(s0*x)//(s0*s1)", "x//s1");
  simplifies("x//s0//s1", "x//(s0*s1)");
  simplifies("x//s0*s0 + x % s0", "x");
  simplifies("x % s0 % s0", "x % s0");
  simplifies("1//s0", "0");
  simplifies("(4*s0 - 1)//s0", "3");
  simplifies("(4*s0 - 2) % s0", "s0 - 2");
  simplifies("(-3)//s0", "(-3)//s0");
}

TEST_F(SimplifyTest, MinMax) {
  simplifies("min(p0, 7)", "p0");
  simplifies("max(p0, 7)", "7");
  simplifies("min(x, x + 1)", "x");
  simplifies("min(y, min(x, y))", "min(x, y)");
  simplifies("max(x, min(x, y))", "x");
  simplifies("min(x, y) - min(y, x)", "0");
  simplifies("min(p0, x) + 1", "min(p0, x) + 1");
}

}  // namespace
}  // namespace oxy::sym
