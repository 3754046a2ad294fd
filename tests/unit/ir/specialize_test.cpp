// Filling in symbols: specialised graphs, and the values that inputs give.
#include "ir/specialize.h"

#include <gtest/gtest.h>

#include <map>

#include "ir/text.h"
#include "support/check.h"

namespace oxy::ir {
namespace {

constexpr const char* kText =
    R"(symbol s0 in [2, inf], hint 4
symbol s1 in [2, inf], hint 6
graph aten(%x: f32[s0, s1], %n: int(s1), %t: f32[s1, s0] strides=[1, s1]) {
  %0: f32[s0*s1] = aten.view.default(%x, [s0*s1])
  %1: f32[s0//2] offset=s1 = aten.slice.Tensor(%0, 0, s1, s1 + s0//2)
  %2: f32[2] = aten.full.default([2], s1)
  mutate %x <- %x
  return %1, %2, view(0, f32[s1] offset=s0)
}
)";

std::optional<SymbolValues> match(const Graph& g, std::vector<int64_t> x,
                                  std::vector<int64_t> x_strides, int64_t n, std::vector<int64_t> t,
                                  std::vector<int64_t> t_strides, int64_t offset = 0) {
  InputSizes inputs[3];
  inputs[0] = {x, x_strides, offset, 0};
  inputs[1].number = n;
  inputs[2] = {t, t_strides, 0, 0};
  return match_inputs(g, inputs);
}

Graph at_hints(const Graph& g) {
  return specialize(g, [](Expr symbol) { return std::optional(sym::hint(symbol)); });
}

TEST(Specialize, FillsInTypesArgumentsAndOutputs) {
  Graph g = parse(kText);
  Graph s = at_hints(g);
  verify(s);
  EXPECT_EQ(print(s), R"(graph aten(%x: f32[4, 6], %n: int(6), %t: f32[6, 4] strides=[1, 6]) {
  %0: f32[24] = aten.view.default(%x, [24])
  %1: f32[2] offset=6 = aten.slice.Tensor(%0, 0, 6, 8)
  %2: f32[2] = aten.full.default([2], 6)
  mutate %x <- %x
  return %1, %2, view(0, f32[6] offset=4)
}
)");
  EXPECT_EQ(print(g), kText) << "the original stays as it was";
}

TEST(Specialize, SliceArgumentsAndNesting) {
  Graph g = parse(R"(symbol s0 in [2, inf], hint 8
graph torch(%x: object) {
  %0: object = call _operator.getitem(%x, (slice(None, s0, 1), [s0 + 1]))
  return {"a": %0, "n": s0}
}
)");
  EXPECT_EQ(print(at_hints(g)), R"(graph torch(%x: object) {
  %0: object = call _operator.getitem(%x, (slice(None, 8, 1), [9]))
  return {"a": %0, "n": 8}
}
)");
}

TEST(Specialize, AMissingValueIsAnError) {
  Graph g = parse(kText);
  EXPECT_THROW(specialize(g, [](Expr) { return std::optional<int64_t>(); }), UserError);
}

TEST(MatchInputs, ValuesFromSizesAndNumbers) {
  Graph g = parse(kText);
  auto v = match(g, {3, 10}, {10, 1}, 10, {10, 3}, {1, 10});
  ASSERT_TRUE(v);
  EXPECT_EQ(v->find(*g.pool->find_symbol("s0")), 3);
  EXPECT_EQ(v->find(*g.pool->find_symbol("s1")), 10);
}

TEST(MatchInputs, EveryMentionOfASymbolMustAgree) {
  Graph g = parse(kText);
  EXPECT_FALSE(match(g, {3, 10}, {10, 1}, 11, {10, 3}, {1, 10}));
  EXPECT_FALSE(match(g, {3, 10}, {10, 1}, 10, {10, 4}, {1, 10}));
  EXPECT_FALSE(match(g, {3, 10}, {10, 1}, 10, {10, 3}, {3, 1}));
  EXPECT_FALSE(match(g, {3, 10}, {10, 1}, 10, {10}, {1}));
  EXPECT_FALSE(match(g, {3, 10}, {10, 1}, 10, {10, 3}, {1, 10}, 5));
}

TEST(MatchInputs, RangesAreKept) {
  Graph g = parse(kText);
  EXPECT_FALSE(match(g, {1, 10}, {10, 1}, 10, {10, 1}, {1, 10}));
}

TEST(MatchInputs, SizesThatAreExpressions) {
  Graph g = parse(R"(symbol s0 in [2, inf], hint 8
symbol s1 in [2, inf], hint 8
graph aten(%x: f32[2*s0 + 1], %y: f32[s0*s1], %z: f32[s1]) {
  return %x
}
)");
  auto match3 = [&](int64_t x, int64_t y, int64_t z) {
    const int64_t one = 1;
    InputSizes inputs[3];
    inputs[0] = {{&x, 1}, {&one, 1}};
    inputs[1] = {{&y, 1}, {&one, 1}};
    inputs[2] = {{&z, 1}, {&one, 1}};
    return match_inputs(g, inputs).has_value();
  };
  EXPECT_TRUE(match3(7, 15, 5));
  EXPECT_FALSE(match3(7, 14, 5));
  EXPECT_FALSE(match3(8, 15, 5));
}

}  // namespace
}  // namespace oxy::ir
