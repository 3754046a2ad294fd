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

// What depends on data is known behind the step that reads it, and checked there.
TEST(Sizes, OfDataAreReadByASizeStep) {
  const ir::Graph g = ir::parse(
      "symbol s0 in [2, inf], hint 16\n"
      "symbol u0 in [0, inf], hint 4, data\n"
      "symbol u1 in [-inf, inf], hint 2, data\n"
      "graph aten(%x: f32[s0], %t: i64[]) {\n"
      "  %0: i64[u0, 1] strides=[1, u0] = aten.nonzero.default(%x)\n"
      "  %1: int(u1) = aten._local_scalar_dense.default(%t)\n"
      "  %2: f32[u0 + u1] = aten.full.default([u0 + u1], 1.0, f32, None, cpu)\n"
      "  %3: int(2*u0) = oxyfuel.number.default(2*u0)\n"
      "  return %2, %3\n}\n");
  EXPECT_EQ(ir::print(ir::parse(ir::print(g))), ir::print(g));
  const sym::Expr s0 = *g.pool->find_symbol("s0"), u0 = *g.pool->find_symbol("u0");
  const std::vector<sym::ShapeFacts::Fact> facts = {{sym::at_most(u0, s0), "", ""}};
  const runtime::Plan p = runtime::parse_plan(runtime::print(make_extern_plan(g, {}, facts)));
  runtime::verify(p);
  const auto* first = std::get_if<runtime::SizeStep>(&p.steps[1]);
  ASSERT_NE(first, nullptr) << runtime::print(p);
  EXPECT_EQ(first->checks.back().what, "u0 <= s0");
  const std::vector<uint32_t> known = runtime::known_from(p);
  EXPECT_EQ(known[p.outputs[1].number->index], 1u);
  const auto result = static_cast<uint32_t>(p.outputs[0].buffer);
  EXPECT_EQ(runtime::known_from(p, known, result), 2u);

  // As a call does it: 5 elements that are not 0, then the number 3.
  const int64_t sizes[] = {16}, strides[] = {1};
  const runtime::SizeInput inputs[] = {{sizes, strides, 0}, {nullptr, nullptr, 0}};
  const runtime::SizeEvaluator evaluator(p.sizes);
  std::vector<int64_t> slots = evaluator.initial();
  evaluator.update(inputs, slots.data(), true);
  runtime::SizedPlan sized = runtime::at_sizes(p, {}, slots);
  auto step = [&](uint32_t number, const runtime::SizeStep& s, int64_t value) {
    for (const runtime::Slot r : s.reads)
      sized.slots[r.index] = p.sizes.instructions[r.index].b == 1 ? 1 : value;
    std::vector<uint32_t> computed;
    for (uint32_t i = 0; i < known.size(); i++)
      if (known[i] == number && runtime::reads_slots(p.sizes.instructions[i].op))
        computed.push_back(i);
    runtime::evaluate(p.sizes, computed, sized.slots.data());
    runtime::SizeChanges(p, number).apply(sized);
  };
  step(1, *first, 5);
  for (const runtime::PlanCheck& c : first->checks) EXPECT_EQ(sized.slots[c.holds.index], 1);
  EXPECT_EQ(sized.slots[p.outputs[1].number->index], 10);
  for (const runtime::PlanStep& s : p.steps)
    if (const auto* read = std::get_if<runtime::SizeStep>(&s); read && read != first)
      step(2, *read, 3);
  EXPECT_EQ(sized.buffers[result].meta.sizes, std::vector<int64_t>{8});
  EXPECT_EQ(sized.buffers[result].bytes, 32);
}

// A size that no step has read yet is no argument.
TEST(Sizes, OfDataAreNotUsedBeforeTheyAreKnown) {
  EXPECT_THROW(runtime::parse_plan("plan arena=0 {\n"
                                   "  size %0 = buffer_size(1, 0)\n"
                                   "  input f32[4] strides=[1]\n"
                                   "  buffer in0: input 0 f32[4] strides=[1] bytes=16\n"
                                   "  buffer buf0: extern i64[%0] strides=[1] bytes=%0\n"
                                   "  buf0 = extern aten.foo.default(in0) origin=0\n"
                                   "  return buf0\n"
                                   "}\n"),
               UserError);
}

}  // namespace
}  // namespace oxy::pipeline
