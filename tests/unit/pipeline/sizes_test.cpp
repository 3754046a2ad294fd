// Plans of graphs with symbolic sizes: which slots they have, and what those are at several sizes.
#include "pipeline/assemble.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "runtime/sized_plan.h"
#include "support/check.h"

namespace oxy::pipeline {
namespace {

constexpr const char* kGraph =
    "symbol s0 in [2, inf], hint 16\n"
    "symbol s1 in [0, inf], hint 4\n"
    "graph aten(%x: f32[s0, 2*s1 + 1], %n: int(s0)) {\n"
    "  %0: f32[2*s1 + 1, s0] strides=[1, 2*s1 + 1] = aten.permute.default(%x, [1, 0])\n"
    "  %1: f32[s0*(2*s1 + 1)] = aten.reshape.default(%0, [s0*(2*s1 + 1)])\n"
    "  %2: f32[s0 // 2, 2*s1 + 1] = aten.slice.Tensor(%x, 0, 0, s0 // 2, 1)\n"
    "  return %1, %2, view(0, f32[s1] offset=s0 % 3)\n"
    "}\n";

// The plan's slots for an input of `rows` rows and 2 * k + 1 columns.
runtime::SizedPlan at(const runtime::Plan& p, int64_t rows, int64_t k) {
  const int64_t sizes[] = {rows, 2 * k + 1}, strides[] = {2 * k + 1, 1};
  const runtime::SizeInput inputs[] = {{sizes, strides, 0}, {nullptr, nullptr, rows}};
  std::vector<int64_t> slots(p.sizes.instructions.size());
  runtime::evaluate(p.sizes, inputs, slots.data());
  return runtime::at_sizes(p, {}, slots);
}

TEST(Sizes, OfAPlanAtSeveralSizes) {
  const ir::Graph g = ir::parse(kGraph);
  const runtime::Plan p = runtime::parse_plan(runtime::print(make_extern_plan(g)));
  EXPECT_FALSE(p.sizes.is_static());
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{2, 0}, {16, 4}, {101, 7}}) {
    const runtime::SizedPlan sized = at(p, n, k);
    const int64_t m = 2 * k + 1;
    using List = std::vector<int64_t>;
    ASSERT_EQ(sized.buffers.size(), 4u);
    EXPECT_EQ(sized.buffers[1].meta.sizes, (List{m, n}));
    EXPECT_EQ(sized.buffers[1].meta.strides, (List{1, m}));
    EXPECT_EQ(sized.buffers[2].meta.sizes, (List{n * m}));
    EXPECT_EQ(sized.buffers[3].meta.sizes, (List{n / 2, m}));
    EXPECT_EQ(sized.buffers[2].bytes, 4 * n * m);
    EXPECT_EQ(sized.inputs[0].sizes, (List{n, m}));
    EXPECT_EQ(sized.inputs[1].offset, n);
    EXPECT_EQ(sized.outputs[2].sizes, (List{k}));
    EXPECT_EQ(sized.outputs[2].offset, n % 3);
    const auto& step = std::get<runtime::ExternStep>(p.steps[1]);
    const auto& list = std::get<runtime::PlanArg::List>(step.args[1].v);
    EXPECT_EQ(sized.slots[std::get<runtime::Slot>(list[0].v).index], n * m);
  }
}

TEST(Sizes, AStaticGraphHasConstantsAlone) {
  const ir::Graph g = ir::parse(
      "graph aten(%x: f32[3, 4]) {\n"
      "  %0: f32[12] = aten.reshape.default(%x, [12])\n"
      "  return %0\n}\n");
  EXPECT_EQ(runtime::print(make_extern_plan(g)),
            "plan arena=0 {\n"
            "  input f32[3, 4] strides=[4, 1]\n"
            "  buffer in0: input 0 f32[3, 4] strides=[4, 1] bytes=48\n"
            "  buffer buf1: extern f32[12] strides=[1] bytes=48\n"
            "  buf1 = extern aten.reshape.default(in0, [12]) origin=1\n"
            "  return buf1\n"
            "}\n");
}

TEST(Sizes, NothingSpansNoBytes) {
  const ir::Graph g = ir::parse(
      "symbol s0 in [0, inf], hint 16\n"
      "graph aten(%x: f32[s0, 4]) {\n  return input(0)\n}\n");
  const runtime::Plan p = make_extern_plan(g);
  for (int64_t n : {0, 1, 5}) {
    const int64_t sizes[] = {n, 4}, strides[] = {4, 1};
    const runtime::SizeInput input{sizes, strides, 0};
    std::vector<int64_t> slots(p.sizes.instructions.size());
    runtime::evaluate(p.sizes, {&input, 1}, slots.data());
    EXPECT_EQ(slots[p.buffers[0].bytes.index], 16 * n);
  }
}

TEST(Sizes, ASymbolThatNoInputGives) {
  const ir::Graph g = ir::parse(
      "symbol s0 in [0, inf], hint 16\n"
      "symbol s1 in [0, inf], hint 16\n"
      "graph aten(%x: f32[s0*s1]) {\n"
      "  %0: f32[s0, s1] = aten.view.default(%x, [s0, s1])\n"
      "  return %0\n}\n");
  EXPECT_THROW(make_extern_plan(g), InternalError);
}

// A region gets the sizes that it speaks of, whether its parameters have them or not.
TEST(Sizes, ARegionIsGivenItsSizes) {
  const ir::Graph g = ir::parse(
      "symbol s0 in [2, inf], hint 16\n"
      "graph aten(%p: b8[], %x: f32[s0]) {\n"
      "  %0: f32[2*s0] = cond(%p, %x) then(%a: f32[s0]) {\n"
      "    %0: f32[2*s0] = aten.cat.default([%a, %a], 0)\n"
      "    return %0\n"
      "  } else(%a: f32[s0]) {\n"
      "    %0: f32[2*s0] = aten.full.default([2*s0], 1.0, f32, None, cpu)\n"
      "    return %0\n"
      "  }\n"
      "  return %0\n}\n");
  const runtime::Plan p = runtime::parse_plan(runtime::print(make_extern_plan(g)));
  runtime::verify(p);
  const auto& step = std::get<runtime::RegionStep>(p.steps[0]);
  ASSERT_EQ(step.numbers.size(), 1u);
  ASSERT_EQ(p.regions.size(), 2u);
  for (const runtime::Plan& r : p.regions) {
    ASSERT_EQ(r.inputs.size(), 2u);
    EXPECT_EQ(r.inputs[1].dtype, DType::None);
  }
  EXPECT_NE(runtime::print(p).find("cond [0, 1](in0, in1) numbers=[%0]"), std::string::npos)
      << runtime::print(p);
}

}  // namespace
}  // namespace oxy::pipeline
