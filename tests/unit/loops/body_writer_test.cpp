// The simplifications of loop bodies keep every bit of the value.
#include "loops/body_writer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/promote.h"

namespace oxy::loops {

namespace {

class Writing : public testing::Test {
 protected:
  uint32_t load(DType d, uint32_t buffer = 0) {
    return w.emit(Inst{.op = LoopOp::Load, .dtype = d, .buffer = BufferId(buffer), .index = {0}});
  }
  uint32_t op(LoopOp o, DType d, std::vector<uint32_t> args) {
    return w.emit(Inst{.op = o, .dtype = d, .args = std::move(args)});
  }
  uint32_t cast(uint32_t v, DType d) { return op(LoopOp::Cast, d, {v}); }

  Body body;
  BodyWriter w{body};
};

}  // namespace

TEST_F(Writing, EqualInstructionsAreOne) {
  EXPECT_EQ(load(DType::F32), load(DType::F32));
  EXPECT_NE(load(DType::F32, 0), load(DType::F32, 1));
}

TEST_F(Writing, AddingZeroStays) {
  uint32_t x = load(DType::F32), zero = w.emit_const(0, DType::F32);
  EXPECT_NE(op(LoopOp::Add, DType::F32, {x, zero}), x) << "-0 + 0 is 0";
  EXPECT_EQ(op(LoopOp::Sub, DType::F32, {x, zero}), x);
  EXPECT_NE(op(LoopOp::Sub, DType::F32, {x, w.emit_const(-0.0, DType::F32)}), x) << "-0 - -0 is 0";
  EXPECT_EQ(op(LoopOp::Mul, DType::F32, {x, w.emit_const(1, DType::F32)}), x);
}

TEST_F(Writing, RoundingToHalfStays) {
  uint32_t x = load(DType::F32);
  uint32_t rounded = cast(cast(x, DType::BF16), DType::F32);
  EXPECT_NE(rounded, x);
}

TEST_F(Writing, RoundingOfWhatIsRepresentableGoes) {
  uint32_t a = cast(load(DType::BF16, 0), DType::F32), b = cast(load(DType::BF16, 1), DType::F32);
  uint32_t larger = op(LoopOp::Max, DType::F32, {a, b});
  EXPECT_EQ(cast(cast(larger, DType::BF16), DType::F32), larger);
  uint32_t sum = op(LoopOp::Add, DType::F32, {a, b});
  EXPECT_NE(cast(cast(sum, DType::BF16), DType::F32), sum);
}

TEST_F(Writing, ConstantsFoldInTheirDtype) {
  uint32_t third =
      op(LoopOp::Div, DType::F32, {w.emit_const(1, DType::F32), w.emit_const(3, DType::F32)});
  EXPECT_EQ(w.inst(third).number, static_cast<double>(1.0f / 3.0f));
}

TEST_F(Writing, ComparisonsThatRangesDecide) {
  sym::ExprPool pool;
  Expr p = pool.symbol("p0", {0, 31});
  uint32_t i = w.emit(Inst{.op = LoopOp::Index, .dtype = DType::I64, .index = {p}});
  auto constant = [&](int64_t v) {
    return w.emit(Inst{.op = LoopOp::Const, .dtype = DType::I64, .integer = v});
  };
  auto known = [&](LoopOp o, int64_t v) { return w.inst(op(o, DType::B8, {i, constant(v)})); };
  EXPECT_EQ(known(LoopOp::Ge, 0).op, LoopOp::Const);
  EXPECT_EQ(known(LoopOp::Ge, 0).integer, 1);
  EXPECT_EQ(known(LoopOp::Lt, 32).integer, 1);
  EXPECT_EQ(known(LoopOp::Gt, 31).integer, 0);
  EXPECT_EQ(known(LoopOp::Gt, 31).op, LoopOp::Const);
  EXPECT_EQ(known(LoopOp::Le, 31).integer, 1);
  EXPECT_EQ(known(LoopOp::Lt, 31).op, LoopOp::Lt);
}

TEST(RoundTo, HalfTypes) {
  EXPECT_EQ(ops::round_to(1.00390625, DType::BF16), 1.0) << "ties to even";
  EXPECT_EQ(ops::round_to(1.01171875, DType::BF16), 1.015625);
  EXPECT_EQ(ops::round_to(65519, DType::F16), 65504);
  EXPECT_EQ(ops::round_to(65520, DType::F16), INFINITY);
  EXPECT_EQ(ops::round_to(5.960464477539063e-08, DType::F16), 5.960464477539063e-08)
      << "the smallest";
  EXPECT_EQ(ops::round_to(2e-8, DType::F16), 0);
}

TEST_F(Writing, DeadInstructionsGo) {
  uint32_t x = load(DType::F32);
  op(LoopOp::Neg, DType::F32, {x});
  uint32_t y = op(LoopOp::Abs, DType::F32, {x});
  w.emit(Inst{
      .op = LoopOp::Store, .dtype = DType::F32, .args = {y}, .buffer = BufferId(1), .index = {0}});
  remove_dead(body);
  ASSERT_EQ(body.size(), 3u);
  EXPECT_EQ(body[2].args[0], 1u);
}

TEST_F(Writing, FunctionsOfAMaskAreComputedOfItsTwoValues) {
  const uint32_t mask = load(DType::B8), x = load(DType::F32, 1);
  const uint32_t number = cast(cast(mask, DType::BF16), DType::F32);
  const uint32_t log = op(LoopOp::Log, DType::F32, {number});
  const Inst chosen = w.inst(log);
  ASSERT_EQ(chosen.op, LoopOp::Where);
  EXPECT_EQ(chosen.args[0], mask);
  EXPECT_EQ(chosen.args[1], op(LoopOp::Log, DType::F32, {w.emit_const(1, DType::F32)}));
  EXPECT_EQ(chosen.args[2], op(LoopOp::Log, DType::F32, {w.emit_const(0, DType::F32)}));
  // Of functions of one mask as well, and of selections by it.
  const uint32_t sum = op(LoopOp::Add, DType::F32, {log, number});
  EXPECT_EQ(w.inst(sum).op, LoopOp::Where);
  EXPECT_EQ(w.inst(op(LoopOp::Where, DType::F32, {mask, sum, number})).args[1],
            w.inst(sum).args[1]);
  // What another value decides stays.
  EXPECT_EQ(w.inst(op(LoopOp::Add, DType::F32, {number, x})).op, LoopOp::Add);
  const uint32_t other = cast(load(DType::B8, 2), DType::F32);
  EXPECT_EQ(w.inst(op(LoopOp::Mul, DType::F32, {number, other})).op, LoopOp::Mul);
}

TEST_F(Writing, IntegersThatNoCallHasAreNotDividedBy) {
  const uint32_t mask = cast(load(DType::B8), DType::I64);
  EXPECT_EQ(w.inst(op(LoopOp::FloorDiv, DType::I64, {w.emit_const(7, DType::I64), mask})).op,
            LoopOp::FloorDiv);
}

TEST_F(Writing, ComparedConstantsFold) {
  const uint32_t nan = w.emit_const(NAN, DType::F32), one = w.emit_const(1, DType::F32);
  EXPECT_EQ(w.inst(op(LoopOp::Le, DType::B8, {one, one})).integer, 1);
  EXPECT_EQ(w.inst(op(LoopOp::Ge, DType::B8, {nan, one})).integer, 0);
  EXPECT_EQ(w.inst(op(LoopOp::Ge, DType::B8, {nan, one})).op, LoopOp::Const);
}

}  // namespace oxy::loops
