// Regions of a graph become sub-plans of its plan.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "pipeline/assemble.h"
#include "support/check.h"

namespace oxy::pipeline {
namespace {

TEST(Regions, BecomeSubPlans) {
  const runtime::Plan plan = make_extern_plan(ir::parse(R"(
    graph aten(%p: b8[], %x: f32[4], %n: i64[]) {
      %0: f32[4] = aten.sin.default(%x)
      %1: f32[4] = cond(%p, %0) then(%a: f32[4]) {
        %0: f32[4] = aten.neg.default(%a)
        return %0
      } else(%a: f32[4]) {
        return input(0)
      }
      %2: i64[], %3: f32[4] = while_loop(%n, %1, %x) while(%i: i64[], %t: f32[4], %u: f32[4]) {
        %0: b8[] = aten.lt.Scalar(%i, 10)
        return %0
      } do(%i: i64[], %t: f32[4], %u: f32[4]) {
        %0: i64[] = aten.add.Scalar(%i, 1)
        %1: f32[4] = aten.add.Tensor(%t, %u)
        return %0, %1
      }
      return %3
    })"));
  runtime::verify(plan);
  EXPECT_EQ(plan.regions.size(), 4u);
  const std::string text = runtime::print(plan);
  EXPECT_NE(text.find(" = cond [0, 1]("), std::string::npos) << text;
  EXPECT_NE(text.find(" = loop [2, 3]("), std::string::npos) << text;
  EXPECT_EQ(runtime::print(runtime::parse_plan(text)), text);
}

TEST(Regions, OfBlocksAreTwoPlans) {
  const runtime::Plan plan = make_extern_plan(ir::parse(R"(
    graph aten(%n: i32[1, 1, 1], %i: i32[1, 1, 1, 1], %x: f32[2, 4, 8, 2], %t: f32[1, 4, 8, 2],
               %p: i32[5], %s: f32[1, 4, 8, 1]) {
      %0: f32[2, 4, 8, 1], %1: f32[2, 4, 8, 1], %2: f32[2, 4, 8, 2] = block_sparse(%n, %i, %n, %i,
        %x, %x, %x, %t, %t, %t, %p, %s, %s, %t) partial(%q: f32[1, 4, 8, 2],
        %k: f32[1, 4, 8, 2], %v: f32[1, 4, 8, 2], %p: i32[5], %a: f32[1, 4, 8, 1],
        %b: f32[1, 4, 8, 1], %c: f32[1, 4, 8, 2]) {
        %0: f32[1, 4, 8, 2] = aten.add.Tensor(%c, %v)
        return input(4), input(5), %0
      } full(%q: f32[1, 4, 8, 2], %k: f32[1, 4, 8, 2], %v: f32[1, 4, 8, 2], %p: i32[5],
        %a: f32[1, 4, 8, 1], %b: f32[1, 4, 8, 1], %c: f32[1, 4, 8, 2]) {
        return input(4), input(5), input(6)
      }
      return %2
    })"));
  runtime::verify(plan);
  const std::string text = runtime::print(plan);
  EXPECT_NE(text.find(" = blocks [0, 1]("), std::string::npos) << text;
  EXPECT_EQ(runtime::print(runtime::parse_plan(text)), text);
}

TEST(Regions, OfOtherOpsHaveNoPlan) {
  const ir::Graph g = ir::parse(R"(
    graph aten(%x: f32[4]) {
      %0: f32[4] = checkpoint(%x) body(%a: f32[4]) {
        return input(0)
      }
      return %0
    })");
  EXPECT_THROW(make_extern_plan(g), Unsupported);
}

}  // namespace
}  // namespace oxy::pipeline
