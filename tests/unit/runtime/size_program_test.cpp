// Size programs: what they compute, what folds, what they refuse.
#include "runtime/size_program.h"

#include <gtest/gtest.h>

#include <bit>

#include "runtime/size.h"
#include "runtime/sized_plan.h"
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
  EXPECT_EQ(of(SizeOp::Scale, 100, std::bit_cast<int64_t>(0.29)), 28);
  EXPECT_EQ(of(SizeOp::Scale, -10, std::bit_cast<int64_t>(0.7)), -7);
  EXPECT_EQ(of(SizeOp::Root, 24, 2), 4);
  EXPECT_EQ(of(SizeOp::Root, 25, 2), 5);
  EXPECT_EQ(of(SizeOp::Root, -25, 2), 0);
  EXPECT_EQ(of(SizeOp::Root, INT64_MAX, 2), 3037000499);
  EXPECT_EQ(of(SizeOp::Power, 2, 61), int64_t{1} << 61);
  EXPECT_EQ(of(SizeOp::Power, 3, 0), 1);
  EXPECT_EQ(of(SizeOp::Power, 3, -2), 0);
  EXPECT_EQ(of(SizeOp::Digits, -8, 2), 4);
  EXPECT_EQ(of(SizeOp::Digits, INT64_MIN, 2), 64);
  EXPECT_EQ(of(SizeOp::Digits, 999, 10), 3);
  EXPECT_EQ(of(SizeOp::BitAnd, -8, 13), 8);
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
  EXPECT_FALSE(size_op_from_name("shift"));
}

TEST(SizeProgram, WhatChangesNothingIsNoInstruction) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot n = b.input(SizeOp::InputSize, 0, 0), zero = b.constant(0), one = b.constant(1);
  EXPECT_EQ(b.binary(SizeOp::Add, n, zero), n);
  EXPECT_EQ(b.binary(SizeOp::Mul, one, n), n);
  EXPECT_EQ(b.binary(SizeOp::Mul, n, zero), zero);
  EXPECT_EQ(b.binary(SizeOp::FloorDiv, n, one), n);
}

TEST(SizeProgram, EvaluatedAgainAndAgain) {
  SizeProgram p;
  SizeBuilder b(p);
  const Slot n = b.input(SizeOp::InputSize, 0, 0), m = b.input(SizeOp::InputSize, 0, 1);
  const Slot twice = b.binary(SizeOp::Mul, n, b.constant(2));
  const Slot other = b.binary(SizeOp::Add, m, b.constant(5));
  const SizeEvaluator all(p), some(p, std::vector<Slot>{twice});
  std::vector<int64_t> slots = all.initial(), part = some.initial();
  auto update = [&](int64_t x, int64_t y, bool fresh) {
    const int64_t sizes[] = {x, y};
    const SizeInput input{sizes, nullptr, 0};
    some.update({&input, 1}, part.data(), fresh);
    return all.update({&input, 1}, slots.data(), fresh);
  };
  EXPECT_TRUE(update(0, 0, true));
  EXPECT_EQ(slots[other.index], 5);
  EXPECT_TRUE(update(3, 4, false));
  EXPECT_EQ(slots[twice.index], 6);
  EXPECT_EQ(slots[other.index], 9);
  EXPECT_FALSE(update(3, 4, false));
  EXPECT_EQ(part[twice.index], 6);
  EXPECT_EQ(part[other.index], 0);
  EXPECT_THROW(update(INT64_MAX, 4, false), InternalError);
}

TEST(Size, KnowsItsValueAtTheHints) {
  SizeProgram p;
  SizeBuilder b(p);
  const Size n(b, b.input(SizeOp::InputSize, 0, 0), 10);
  EXPECT_TRUE((Size(3) * 4 - 2).is_constant(10));
  EXPECT_TRUE((n * 0).is_constant(0));
  EXPECT_FALSE(n.is_constant());
  const Size list[] = {ceil_div(n, 4), clamp(n, 2, 7), select(is_less(n, 11), n, 3), n % 3, -1 * n};
  const int64_t hints[] = {3, 7, 10, 1, -10}, at_30[] = {8, 7, 3, 0, -30};
  const int64_t sizes[] = {30};
  const SizeInput input{sizes, nullptr, 0};
  const std::vector<int64_t> slots = run(p, {&input, 1});
  for (size_t i = 0; i < std::size(list); i++) {
    EXPECT_EQ(list[i].hint(), hints[i]) << i;
    EXPECT_EQ(slots[list[i].slot(b).index], at_30[i]) << i;
  }
  EXPECT_THROW(n.constant(), InternalError);
}

constexpr const char* kVarying =
    "plan arena=%2 {\n"
    "  size %0 = size(0, 0)\n"
    "  size %1 = mul(%0, 16)\n"
    "  size %2 = mul(%1, 2)\n"
    "  input f32[%0, 4] strides=[4, 1]\n"
    "  buffer in0: input 0 f32[%0, 4] strides=[4, 1] bytes=%1\n"
    "  buffer buf0: arena at %1 f32[%0, 4] strides=[4, 1] bytes=%1\n"
    "  buffer buf1: output f32[%0, 4] strides=[4, 1] bytes=%1\n"
    "  kernel k: @00000000000000000000000000000000 range=%0 grain=64 scratch=0 moves=128 "
    "parameters=[%0, 4]\n"
    "  launch k(in0, buf0)\n"
    "  launch k(buf0, buf1)\n"
    "  return buf1\n"
    "}\n";

// Laid out in place, a plan is what it would be if it had been laid out anew.
TEST(SizedPlan, LaidOutAgain) {
  const Plan p = parse_plan(kVarying);
  const KernelFn entries[] = {nullptr};
  auto slots_at = [&](int64_t n) {
    const int64_t sizes[] = {n, 4}, strides[] = {4, 1};
    const SizeInput input{sizes, strides, 0};
    return run(p.sizes, {&input, 1});
  };
  const SizeChanges changes(p);
  SizedPlan sized = at_sizes(p, entries, slots_at(3));
  for (const int64_t n : {5, 0, 1000, 3}) {
    sized.slots = slots_at(n);
    changes.apply(sized);
    const SizedPlan wanted = at_sizes(p, entries, slots_at(n));
    EXPECT_EQ(sized.arena_bytes, wanted.arena_bytes);
    EXPECT_EQ(sized.inputs, wanted.inputs);
    for (size_t i = 0; i < p.buffers.size(); i++) {
      EXPECT_EQ(sized.buffers[i].meta, wanted.buffers[i].meta);
      EXPECT_EQ(sized.buffers[i].arena_offset, wanted.buffers[i].arena_offset);
      EXPECT_EQ(sized.buffers[i].bytes, wanted.buffers[i].bytes);
    }
    EXPECT_EQ(sized.kernels[0].range, n);
    EXPECT_EQ(sized.kernels[0].parameters, wanted.kernels[0].parameters);
  }
}

}  // namespace
}  // namespace oxy::runtime
