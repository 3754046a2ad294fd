// A joint graph against its forward and then its backward, for every policy and budget, on random
// graphs.
#include "autograd/partition.h"

#include <gtest/gtest.h>

#include <numeric>

#include "autograd/cut_backward.h"
#include "ir/text.h"
#include "random_joint.h"
#include "reference/evaluate.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::OutputSpec;
using ops::Elements;
using Kind = OutputSpec::Kind;
using Answers = std::vector<std::optional<Elements>>;  // nothing for None

std::vector<PartitionOptions> all_options() {
  std::vector<PartitionOptions> out = {{.policy = Policy::Default}};
  for (double budget : {1.0, 0.75, 0.5, 0.25, 0.0}) out.push_back({.memory_budget = budget});
  for (double budget : {1.0, 0.5, 0.0})
    out.push_back({.memory_budget = budget, .allows_writes = true});
  return out;
}

// What each output holds, then each mutation.
Answers run(Graph g, const std::vector<Elements>& inputs) {
  g.stage = ir::Stage::Aten;
  g.tangents = 0;
  std::vector<OutputSpec> outputs;
  for (OutputSpec o : g.outputs) {
    while (o.kind == Kind::ViewOfOutput) o = OutputSpec(g.outputs[o.index]);
    if (o.kind == Kind::Input) o = {.kind = Kind::Value, .value = g.inputs()[o.index]};
    outputs.push_back(o);
  }
  for (const ir::Mutation& m : g.mutations)
    outputs.push_back({.kind = Kind::Value, .value = m.value});
  g.mutations.clear();
  g.outputs.clear();
  for (const OutputSpec& o : outputs)
    if (o.kind == Kind::Value) g.outputs.push_back(o);
  std::vector<Elements> values = ops::evaluate(g, inputs);
  Answers out;
  auto next = values.begin();
  for (const OutputSpec& o : outputs)
    out.push_back(o.kind == Kind::Value ? std::optional(std::move(*next++)) : std::nullopt);
  return out;
}

std::vector<Elements> random_inputs(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> number(-0.5, 0.5);
  std::vector<Elements> out(count, Elements(16));
  for (Elements& e : out)
    for (ops::Number& n : e) n.real = number(random);
  return out;
}

bool equal(const std::optional<Elements>& a, const std::optional<Elements>& b) {
  if (!a || !b) return !a && !b;
  return std::ranges::equal(*a, *b, {}, &ops::Number::real, &ops::Number::real);
}
bool is_zero(const Elements& e) {
  return std::ranges::all_of(e, [](const ops::Number& n) { return n.real == 0; });
}

bool writes_to(const Graph& g, uint32_t input) {
  return std::ranges::any_of(g.mutations, [&](const auto& m) { return m.input == input; });
}

// The backward's inputs: what is saved, then the tangents.
std::vector<Elements> inputs_of_backward(const Partition& p, const std::vector<Elements>& inputs,
                                         const Answers& forward) {
  std::vector<Elements> out;
  for (const Saved& s : p.saved) {
    const bool primal = s.kind == Saved::Kind::Primal;
    EXPECT_FALSE(primal && writes_to(p.forward, s.index)) << s.name;
    EXPECT_EQ(s.kind == Saved::Kind::Value, !primal && s.index >= p.results);
    out.push_back(primal ? inputs[s.index] : *forward[s.index]);
  }
  out.insert(out.end(), inputs.begin() + static_cast<ptrdiff_t>(p.forward.inputs().size()),
             inputs.end());
  return out;
}

int64_t kept_bytes(const Partition& p) {
  return std::accumulate(p.saved.begin(), p.saved.end(), int64_t{0}, [](int64_t n, const Saved& s) {
    return n + (s.kind == Saved::Kind::Value ? s.bytes : 0);
  });
}

class OnRandomGraphs : public testing::TestWithParam<uint32_t> {
 protected:
  const Graph joint_ = random_joint(GetParam());
  const std::vector<Elements> inputs_ = random_inputs(joint_.inputs().size(), GetParam());
};

TEST_P(OnRandomGraphs, ForwardThenBackwardIsTheJointGraph) {
  verify(joint_);
  const Answers expected = run(joint_, inputs_);
  const std::vector<Elements> primals(inputs_.begin(),
                                      inputs_.begin() + static_cast<ptrdiff_t>(joint_.primals()));
  for (const PartitionOptions& options : all_options()) {
    const Partition p = partition(joint_, options);
    SCOPED_TRACE(cat(ir::print(joint_), ir::print(p.forward), ir::print(p.backward)));
    verify(p.forward);
    verify(p.backward);
    ASSERT_EQ(p.backward.outputs.size(), joint_.primals());
    ASSERT_EQ(p.backward.inputs().size(), p.saved.size() + joint_.tangents);
    for (const Saved& s : p.saved)
      EXPECT_TRUE(s.direct || s.kind == Saved::Kind::Value || !options.allows_writes) << s.name;
    const Answers forward = run(p.forward, primals);
    const Answers backward = run(p.backward, inputs_of_backward(p, inputs_, forward));
    for (size_t i = 0; i < p.results; ++i) EXPECT_TRUE(equal(forward[i], expected[i])) << i;
    for (size_t i = 0; i < backward.size(); ++i)
      EXPECT_TRUE(equal(backward[i], expected[p.results + i])) << i;
    for (size_t i = 0; i < joint_.mutations.size(); ++i)
      EXPECT_TRUE(
          equal(forward[p.forward.outputs.size() + i], expected[joint_.outputs.size() + i]));
  }
}

TEST_P(OnRandomGraphs, UndefinedTangentsAreZeros) {
  const Partition p = partition(joint_);
  const std::vector<Elements> primals(inputs_.begin(),
                                      inputs_.begin() + static_cast<ptrdiff_t>(joint_.primals()));
  const Answers forward = run(p.forward, primals);
  for (uint32_t set = 0; set < 1u << joint_.tangents; ++set) {
    std::vector<bool> defined(joint_.tangents);
    std::vector<Elements> with_zeros = inputs_of_backward(p, inputs_, forward), without;
    for (size_t i = 0; i < with_zeros.size(); ++i) {
      const bool given = i < p.saved.size() || (set >> (i - p.saved.size()) & 1);
      if (i >= p.saved.size()) defined[i - p.saved.size()] = given;
      if (given)
        without.push_back(with_zeros[i]);
      else
        with_zeros[i].assign(16, {});
    }
    const Graph g =
        without_tangents(p.backward, joint_.tangents, defined, p.backward.outputs.size());
    SCOPED_TRACE(cat(ir::print(p.backward), ir::print(g)));
    verify(g);
    ASSERT_EQ(g.inputs().size(), without.size());
    const Answers expected = run(p.backward, with_zeros), answers = run(g, without);
    ASSERT_EQ(answers.size(), expected.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i])
        EXPECT_TRUE(equal(answers[i], expected[i])) << i;
      else
        EXPECT_TRUE(!expected[i] || is_zero(*expected[i])) << i;
      EXPECT_TRUE(set != 0 || !answers[i]) << "a gradient without a tangent: " << i;
    }
  }
}

// The gradients that the pieces give one after the other, with these tangents.
Answers run_pieces(const std::vector<Piece>& pieces, const std::vector<Elements>& saved,
                   Answers given) {
  Answers out(pieces[0].graph.outputs.size() - (pieces.size() > 1 ? pieces[1].carried : 0));
  for (const Piece& piece : pieces) {
    std::vector<Elements> inputs;
    for (const uint32_t i : piece.saved) inputs.push_back(saved[i]);
    std::vector<bool> defined;
    for (size_t i = 0; i < given.size(); ++i) {
      if (i >= piece.values) defined.push_back(given[i].has_value());
      if (given[i]) inputs.push_back(*given[i]);
    }
    const Graph g = without_tangents(piece.graph, piece.tangents, defined, out.size());
    verify(piece.graph);
    verify(g);
    EXPECT_EQ(g.inputs().size(), inputs.size());
    Answers found = run(g, inputs);
    for (const uint32_t i : piece.primals) out[i] = found[i];
    given.assign(found.begin() + static_cast<ptrdiff_t>(out.size()), found.end());
  }
  return out;
}

TEST_P(OnRandomGraphs, PiecesAreTheBackward) {
  const Partition p = partition(joint_);
  const std::vector<Elements> primals(inputs_.begin(),
                                      inputs_.begin() + static_cast<ptrdiff_t>(joint_.primals()));
  const std::vector<Elements> all = inputs_of_backward(p, inputs_, run(p.forward, primals));
  const std::vector<Elements> saved(all.begin(), all.end() - joint_.tangents);
  for (const int64_t bytes : {1, 64, 200, 1 << 20}) {
    const BackwardCut cut(p.backward, joint_.tangents, GradientBuckets{bytes, bytes});
    std::vector<Piece> pieces;
    for (size_t k = 0; k < cut.size(); ++k) pieces.push_back(cut.make(k, k));
    for (uint32_t set = 0; set < 1u << joint_.tangents; ++set) {
      Answers given;
      std::vector<bool> defined;
      std::vector<Elements> inputs = saved;
      for (uint32_t i = 0; i < joint_.tangents; ++i) {
        defined.push_back(set >> i & 1);
        if (defined[i]) inputs.push_back(all[saved.size() + i]);
        given.push_back(defined[i] ? std::optional(inputs.back()) : std::nullopt);
      }
      std::string texts = ir::print(p.backward);
      for (const Piece& piece : pieces) texts += ir::print(piece.graph);
      SCOPED_TRACE(texts);
      const Answers expected =
          run(without_tangents(p.backward, joint_.tangents, defined, p.backward.outputs.size()),
              inputs);
      const Answers found = run_pieces(pieces, saved, given);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(equal(found[i], expected[i])) << i;
    }
  }
}

TEST_P(OnRandomGraphs, BudgetsAreKept) {
  const auto most = static_cast<double>(kept_bytes(partition(joint_, {.policy = Policy::Default})));
  const int64_t least = kept_bytes(partition(joint_, {.memory_budget = 0}));
  // All can be computed again but the old content of an input.
  EXPECT_LE(least, joint_.mutations.empty() ? 0 : 128);
  for (double budget : {0.25, 0.5, 0.75}) {
    const int64_t kept = kept_bytes(partition(joint_, {.memory_budget = budget}));
    EXPECT_GE(kept, least);
    EXPECT_LE(static_cast<double>(kept), std::max(budget * most, static_cast<double>(least)));
  }
}

TEST_P(OnRandomGraphs, EqualGraphsGiveEqualTexts) {
  const Graph again = ir::parse(ir::print(joint_));
  for (const PartitionOptions& options : all_options()) {
    const Partition a = partition(joint_, options), b = partition(again, options);
    EXPECT_EQ(ir::print(a.forward), ir::print(b.forward));
    EXPECT_EQ(ir::print(a.backward), ir::print(b.backward));
    EXPECT_EQ(print(a.saved), print(b.saved));
  }
}

INSTANTIATE_TEST_SUITE_P(Partition, OnRandomGraphs, testing::Range(0u, 300u));

TEST(Partition, BackwardKeepsTheStacksOfItsNodes) {
  Graph joint = ir::parse(R"(graph joint "f"(%x: f32[3], tangent %t: f32[3]) {
  %0: f32[3] = aten.sin.default(%x)
  %1: f32[3] = aten.cos.default(%x)
  %2: f32[3] = aten.mul.Tensor(%t, %1)
  return %0, gradient %2
})");
  const ir::StackId stack = joint.add_stack({{"model.py", 3, "forward", "y = x.sin()"}});
  for (ir::NodeId id : joint.order()) joint.node(id).stack = stack;
  const Partition p = partition(joint);
  EXPECT_EQ(p.forward.name, "f_forward");
  EXPECT_EQ(p.backward.name, "f_backward");
  for (const Graph* g : {&p.forward, &p.backward}) {
    EXPECT_EQ(g->pool, joint.pool);
    for (ir::NodeId id : g->order()) {
      if (g->node(id).kind != ir::NodeKind::CallOp) continue;
      ASSERT_EQ(g->stack(g->node(id).stack).size(), 1u);
      EXPECT_EQ(g->innermost(g->node(id).stack).line, 3);
    }
  }
}

}  // namespace
}  // namespace oxy::autograd
