// Size programs: what they compute, what folds, what they refuse.
#include "runtime/size_program.h"

#include <gtest/gtest.h>

#include "support/check.h"

namespace oxy::runtime {
namespace {

std::vector<int64_t> run(const SizeProgram& p, std::span<const SizeInput> inputs) {
  std::vector<int64_t> slots(p.instructions.size());
  evaluate(p, inputs, slots.data());
  return slots;
}

TEST(SizeProgram, EqualInstructionsAreOneSlot) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot n = b.input(SizeOp::InputSize, 0, 1);
  EXPECT_EQ(b.constant(4), b.constant(4));
  EXPECT_EQ(b.binary(SizeOp::Mul, n, b.constant(4)), b.binary(SizeOp::Mul, n, b.constant(4)));
  EXPECT_EQ(p.instructions.size(), 3u);
  EXPECT_FALSE(p.is_static());
}

TEST(SizeProgram, ConstantsFold) {
  SizeProgram p;
  SizeBuilder b(p);
  auto of = [&](SizeOp op, int64_t x, int64_t y) {
    return p.constant(b.binary(op, b.constant(x), b.constant(y)));
  };
  EXPECT_EQ(of(SizeOp::FloorDiv, -7, 2), -4);
  EXPECT_EQ(of(SizeOp::Mod, -7, 2), 1);
  EXPECT_EQ(of(SizeOp::Mod, 7, -2), -1);
  EXPECT_EQ(of(SizeOp::Min, 3, -1), -1);
  EXPECT_EQ(of(SizeOp::Max, 3, -1), 3);
  EXPECT_EQ(of(SizeOp::Less, 3, 3), 0);
  EXPECT_EQ(of(SizeOp::LessEqual, 3, 3), 1);
  EXPECT_EQ(of(SizeOp::Equal, 3, 3), 1);
  EXPECT_EQ(of(SizeOp::NotEqual, 3, 3), 0);
  EXPECT_TRUE(p.is_static());
}

TEST(SizeProgram, ReadsInputs) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot n = b.input(SizeOp::InputSize, 0, 1), s = b.input(SizeOp::InputStride, 0, 0),
             at = b.input(SizeOp::InputOffset, 0), k = b.input(SizeOp::InputNumber, 1);
  const Slot all =
      b.binary(SizeOp::Add, b.binary(SizeOp::Mul, n, s), b.binary(SizeOp::FloorDiv, at, k));
  for (int64_t i : {1, 2, 5}) {
    const int64_t sizes[] = {2, 10 * i}, strides[] = {10 * i, 1};
    const SizeInput inputs[] = {{sizes, strides, 7}, {nullptr, nullptr, i}};
    EXPECT_EQ(run(p, inputs)[all.index], 100 * i * i + 7 / i);
  }
}

TEST(SizeProgram, RefusesWhatHasNoValue) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot zero = b.constant(0), low = b.constant(INT64_MIN), one = b.constant(-1);
  EXPECT_THROW(b.binary(SizeOp::FloorDiv, one, zero), InternalError);
  EXPECT_THROW(b.binary(SizeOp::Mod, one, zero), InternalError);
  EXPECT_THROW(b.binary(SizeOp::FloorDiv, low, one), InternalError);
  EXPECT_THROW(b.binary(SizeOp::Mul, low, one), InternalError);
  EXPECT_THROW(b.binary(SizeOp::Add, low, one), InternalError);
}

TEST(SizeProgram, TryingSaysWhetherThereIsAValue) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot n = b.input(SizeOp::InputNumber, 0);
  b.binary(SizeOp::FloorDiv, b.constant(12), n);
  b.binary(SizeOp::Mul, n, n);
  const auto all = [&](int64_t number) {
    const SizeInput inputs[] = {{nullptr, nullptr, number}};
    std::vector<int64_t> slots(p.instructions.size());
    return try_evaluate(p, inputs, slots.data(), 0, slots.size());
  };
  EXPECT_TRUE(all(5));
  EXPECT_FALSE(all(0));
  EXPECT_FALSE(all(INT64_MAX));
}

TEST(SizeProgram, NamesReadBack) {
  for (auto op = SizeOp::Constant; op <= SizeOp::NotEqual;
       op = static_cast<SizeOp>(static_cast<int>(op) + 1))
    EXPECT_EQ(size_op_from_name(name(op)), op);
  EXPECT_FALSE(size_op_from_name("power"));
}

}  // namespace
}  // namespace oxy::runtime
