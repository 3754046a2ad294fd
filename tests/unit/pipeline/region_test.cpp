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
