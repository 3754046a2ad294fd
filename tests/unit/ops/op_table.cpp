// The table itself, and the Rewriter.
#include "ops/element.h"
#include "ops/rewriter.h"

#include <gtest/gtest.h>

#include <set>

#include "ir/text.h"

namespace oxy::ops {
namespace {

TEST(OpTable, FindsEveryRowByItsName) {
  ASSERT_GT(all_ops().size(), 300u);
  for (const OpInfo& op : all_ops()) EXPECT_EQ(find(op.name), &op) << op.name;
}

TEST(OpTable, DoesNotFindOthers) {
  for (std::string_view name :
       {"", "aten", "aten.add", "aten.add.Tensor ", "aten.no_such.default"}) {
    EXPECT_EQ(find(name), nullptr) << name;
  }
}

TEST(OpTable, IsSorted) {
  for (size_t i = 1; i < all_ops().size(); ++i) EXPECT_LT(all_ops()[i - 1].name, all_ops()[i].name);
}

TEST(OpTable, RowsAreConsistent) {
  for (const OpInfo& op : all_ops()) {
    EXPECT_EQ(op.schema.front(), '(') << op.name;
    EXPECT_EQ(op.has(Reduction), op.reduction != nullptr) << op.name;
    // Without a shape rule torch says what the result is; applies_computable asks the shape rule.
    if (!op.shape) EXPECT_NE(op.applies, &applies_computable) << op.name;
    if (op.reduction) EXPECT_TRUE(op.element) << op.name;
    if (op.element) EXPECT_TRUE(op.applies) << op.name;
    if (op.has(Random)) EXPECT_FALSE(op.element) << op.name;
    // A loop that nobody reads is removed: this one has its rule only where somebody does.
    if (op.has(Effect) && op.name != "aten.binary_cross_entropy.default")
      EXPECT_FALSE(op.element) << op.name;
  }
}

TEST(LoopOps, NamesReadBack) {
  std::set<std::string_view> seen;
  for (int i = 0; i < static_cast<int>(LoopOp::Count); ++i) {
    const auto op = static_cast<LoopOp>(i);
    EXPECT_EQ(loop_op_from_name(name(op)), op);
    EXPECT_TRUE(seen.insert(name(op)).second) << name(op);
  }
  EXPECT_EQ(arity(LoopOp::Where), 3);
  EXPECT_EQ(reduce_from_name(name(ReduceKind::ArgMin)), ReduceKind::ArgMin);
  EXPECT_EQ(reduce_from_name("median"), std::nullopt);
}

TEST(Rewriter, GivesTypesStackAndParent) {
  ir::Graph g = ir::parse(R"(graph aten(%x: f32[4, 6]) {
    %0: f32[4, 6] = aten.relu.default(%x)
    return %0
  })");
  const ir::ValueId x = g.inputs()[0];
  const ir::NodeId relu = g.order().back();
  g.node(relu).stack = g.add_stack({{"model.py", 3, "forward", "y = x.relu()"}});
  Rewriter r(g, relu);
  const auto parts = r.call_multi("aten.split.Tensor", {x, 4, 1});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(ir::print(r.type(parts[1])), "f32[4, 2] strides=[6, 1] offset=4");
  EXPECT_EQ(g.def(parts[0]).returns, std::vector<int32_t>{2});
  EXPECT_EQ(g.def(parts[0]).stack, g.node(relu).stack);
  const ir::ValueId sum = r.call("aten.sum.dim_IntList", {parts[0], ir::List{{ir::Arg(1)}}, false});
  EXPECT_EQ(ir::print(r.type(sum)), "f32[4]");
  ir::verify(g);
}

}  // namespace
}  // namespace oxy::ops
