// Rules run on numbers.
#include "reference/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/text.h"
#include "ops/promote.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

Elements reals(std::initializer_list<double> xs) {
  Elements e;
  for (double x : xs) e.push_back(Number{.real = x});
  return e;
}

Elements integers(std::initializer_list<int64_t> xs) {
  Elements e;
  for (int64_t x : xs) e.push_back(Number{.integer = x});
  return e;
}

std::vector<double> real_result(const std::string& graph, const std::vector<Elements>& inputs) {
  const ir::Graph g = ir::parse(graph);
  std::vector<double> out;
  const auto results = evaluate(g, inputs);
  for (const Number& n : results.at(0)) out.push_back(n.real);
  return out;
}

std::vector<int64_t> integer_result(const std::string& graph, const std::vector<Elements>& inputs) {
  const ir::Graph g = ir::parse(graph);
  std::vector<int64_t> out;
  const auto results = evaluate(g, inputs);
  for (const Number& n : results.at(0)) out.push_back(n.integer);
  return out;
}

TEST(Evaluate, Fp16AndBf16RoundOnce) {
  // bf16 has eight bits: 1 + 1/256 rounds to 1. The product with a number that bf16 lacks is taken
  // in f32.
  const std::string add =
      "graph aten(%x: bf16[1]) { %0: bf16[1] = aten.add.Tensor(%x, 0.00390625, 1) return %0 }";
  EXPECT_EQ(real_result(add, {reals({1.0})}), std::vector<double>{1.0});
  const std::string mul =
      "graph aten(%x: bf16[1]) { %0: bf16[1] = aten.mul.Tensor(%x, 1.001) return %0 }";
  EXPECT_EQ(real_result(mul, {reals({256.0})})[0], round_to(256.0 * 1.001f, DType::BF16));
}

TEST(Evaluate, AddWithAlphaIsFused) {
  const std::string text =
      "graph aten(%x: f32[1], %y: f32[1]) { %0: f32[1] = aten.add.Tensor(%x, %y, 3.0) return %0 }";
  const float x = -3.0000002f, y = 1.0000001f;
  EXPECT_EQ(real_result(text, {reals({x}), reals({y})})[0], std::fma(y, 3.0f, x));
}

TEST(Evaluate, Views) {
  const std::string text = R"(graph aten(%x: f32[2, 3]) {
    %0: f32[3, 2] strides=[1, 3] = aten.t.default(%x)
    %1: f32[2] strides=[3] offset=1 = aten.select.int(%0, 0, 1)
    return %1 })";
  EXPECT_EQ(real_result(text, {reals({0, 1, 2, 3, 4, 5})}), (std::vector<double>{1, 4}));
}

TEST(Evaluate, MaskedLoadsReadNothingOutside) {
  const std::string cat = R"(graph aten(%x: f32[2], %y: f32[1]) {
    %0: f32[3] = aten.cat.default([%x, %y])
    %1: f32[5] = aten.constant_pad_nd.default(%0, [1, 1], 9.0)
    return %1 })";
  EXPECT_EQ(real_result(cat, {reals({1, 2}), reals({3})}), (std::vector<double>{9, 1, 2, 3, 9}));
}

TEST(Evaluate, IndicesWrapOnlyWhereEagerDoes) {
  const std::string index =
      "graph aten(%x: f32[3], %i: i64[2]) { %0: f32[2] = aten.index.Tensor(%x, [%i]) return %0 }";
  EXPECT_EQ(real_result(index, {reals({1, 2, 3}), integers({-1, 0})}), (std::vector<double>{3, 1}));
  EXPECT_THROW(real_result(index, {reals({1, 2, 3}), integers({3, 0})}), UserError);
  const std::string table =
      "graph aten(%x: f32[3, 1], %i: i64[1]) { %0: f32[1, 1] = aten.embedding.default(%x, %i) "
      "return %0 }";
  EXPECT_THROW(real_result(table, {reals({1, 2, 3}), integers({-1})}), UserError);
}

TEST(Evaluate, PositionsTakeTheFirstOfEqualsAndNan) {
  const std::string text =
      "graph aten(%x: f32[2, 3]) { %0: i64[2] = aten.argmax.default(%x, 1, False) return %0 }";
  EXPECT_EQ(integer_result(text, {reals({1, 5, 5, 2, NAN, 9})}), (std::vector<int64_t>{1, 1}));
}

TEST(Evaluate, IntegersWrapAndDivideDown) {
  const std::string add =
      "graph aten(%x: i8[1]) { %0: i8[1] = aten.add.Tensor(%x, 100) return %0 }";
  EXPECT_EQ(integer_result(add, {integers({100})}), std::vector<int64_t>{-56});
  const std::string div =
      "graph aten(%x: i64[2]) { %0: i64[2] = aten.floor_divide.default(%x, 3) return %0 }";
  EXPECT_EQ(integer_result(div, {integers({-7, 7})}), (std::vector<int64_t>{-3, 2}));
}

TEST(Evaluate, IntegersDividedByZeroHaveNoValue) {
  const std::string text = R"(graph aten(%x: i64[1], %y: i64[1]) {
    %0: i64[1] = aten.floor_divide.default(%x, %y) return %0 })";
  EXPECT_THROW(integer_result(text, {integers({7}), integers({0})}), UserError);
  EXPECT_EQ(integer_result(text, {integers({-7}), integers({2})}), std::vector<int64_t>{-4});
}

TEST(Rounding, Fp16AndBf16) {
  EXPECT_EQ(round_to(65519.0, DType::F16), 65504.0);
  EXPECT_EQ(round_to(65520.0, DType::F16), HUGE_VAL);
  EXPECT_EQ(round_to(0x1p-24, DType::F16), 0x1p-24);
  EXPECT_EQ(round_to(1.00390625, DType::BF16), 1.0);       // a tie, to even
  EXPECT_EQ(round_to(1.01171875, DType::BF16), 1.015625);  // a tie, to even
  EXPECT_TRUE(std::isnan(round_to(NAN, DType::BF16)));
  EXPECT_EQ(wrap_to(300, DType::U8), 44);
  EXPECT_EQ(wrap_to(2, DType::B8), 1);
}

}  // namespace
}  // namespace oxy::ops
