// Shape rules on symbolic sizes (constant ones are compared with torch by
// tests/e2e/test_op_rules.py) and the geometry under them.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/op_table.h"
#include "ops/shapes.h"

namespace oxy::ops {
namespace {

// The types that the rule gives for the last call of a graph, or "unknown".
std::string shape_of_last(const std::string& text) {
  const ir::Graph g =
      ir::parse("symbol s0 in [2, 1024], hint 8 symbol s1 in [2, 1024], hint 9 " + text);
  const ir::Node& n = g.node(g.order().back());
  std::vector<ir::Type> out;
  if (!find(n)->shape(Args(g, n), out)) return "unknown";
  return join(out, "; ", [](std::string& s, const ir::Type& t) { s += ir::print(t); });
}

// The same for one call on inputs of these types.
std::string shape(const std::string& inputs, const std::string& call) {
  return shape_of_last("graph aten(" + inputs + ") { %r: f32[] = " + call + " return %r }");
}

TEST(Shapes, BroadcastSymbols) {
  EXPECT_EQ(shape("%x: f32[s0, 64], %y: f32[64]", "aten.add.Tensor(%x, %y)"), "f32[s0, 64]");
  EXPECT_EQ(shape("%x: f32[s0, 1], %y: f32[1, s1]", "aten.mul.Tensor(%x, %y)"), "f32[s0, s1]");
  EXPECT_EQ(shape("%x: f32[s0], %y: f32[s1]", "aten.mul.Tensor(%x, %y)"), "unknown");
}

TEST(Shapes, Views) {
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.view.default(%x, [-1, 3])"), "f32[2*s0, 3]");
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.view.default(%x, [s0, 2, 3])"), "f32[s0, 2, 3]");
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.transpose.int(%x, 0, 1)"), "f32[6, s0] strides=[1, 6]");
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.slice.Tensor(%x, 1, 2, None, 2)"),
            "f32[s0, 2] strides=[6, 2] offset=2");
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.select.int(%x, 0, -1)"), "f32[6] offset=6*s0 - 6");
  EXPECT_EQ(shape("%x: f32[s0, 6]", "aten.unsqueeze.default(%x, 1)"), "f32[s0, 1, 6]");
}

TEST(Shapes, ReductionsAndProducts) {
  EXPECT_EQ(shape("%x: bf16[s0, 6]", "aten.sum.dim_IntList(%x, [-1], True)"), "bf16[s0, 1]");
  EXPECT_EQ(shape("%x: f32[s0, 6], %y: f32[6, s1]", "aten.mm.default(%x, %y)"), "f32[s0, s1]");
  EXPECT_EQ(shape("%x: f32[s0, 6], %w: f32[6]",
                  "aten.native_layer_norm.default(%x, [6], %w, None, 1e-05)"),
            "f32[s0, 6]; f32[s0, 1]; f32[s0, 1]");
  EXPECT_EQ(shape("%x: f32[s0, 2], %y: f32[s1, 2]", "aten.cat.default([%x, %y])"),
            "f32[s0 + s1, 2]");
}

TEST(Shapes, DeclineOtherDTypes) {
  EXPECT_EQ(shape("%x: c64[4]", "aten.abs.default(%x)"), "unknown");
  EXPECT_EQ(shape("%x: b8[4]", "aten.neg.default(%x)"), "unknown");
}

TEST(Geometry, ReshapeIndexKeepsUntouchedDimensions) {
  sym::ExprPool pool;
  const Expr i = pool.symbol("i", {0, 3}), j = pool.symbol("j", {0, 5}),
             k = pool.symbol("k", {0, 9});
  // [4, 6, 10] seen as [4, 60]: the first dimension is as it was.
  const Index flat = reshape_index({4, 60}, {4, 6, 10}, {i, j, k});
  EXPECT_EQ(flat, (Index{i, j * Expr(10) + k}));
  const Index back = reshape_index({4, 6, 10}, {4, 60}, flat);
  EXPECT_EQ(back, (Index{i, j, k}));
  EXPECT_EQ(reshape_index({4, 1, 6}, {4, 6, 1}, {i, j, Expr(0)}), (Index{i, Expr(0), j}));
}

TEST(Geometry, StridesKeepTheOrderOfDimensions) {
  EXPECT_EQ(dense_strides_like({3, 5}, {1, 10}), (Sizes{1, 3}));
  EXPECT_EQ(dense_strides_like({3, 5}, {10, 2}), (Sizes{5, 1}));
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), (Sizes{60, 1, 15, 3}));
}

}  // namespace
}  // namespace oxy::ops
