// Edits of a graph: insertion, replacement, removal, and what the verifier says about broken ones.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "support/check.h"

namespace oxy::ir {
namespace {

Type f32(std::vector<Expr> sizes) {
  TensorType t;
  t.strides = contiguous_strides(sizes);
  t.sizes = std::move(sizes);
  return Type::of(t);
}

ValueId op(Graph& g, const char* target, std::vector<Arg> args, Type type = f32({2, 3})) {
  return g.add_call(NodeKind::CallOp, target, std::move(args), {std::move(type)}).outputs[0];
}

OutputSpec returned(ValueId v) {
  OutputSpec o;
  o.value = v;
  return o;
}

// x; y = x + 1; z = sin(y); mutate x <- y; return z
struct Small {
  Graph g{Stage::Aten};
  ValueId x, y, z;
  Small() {
    x = g.add_input("x", f32({2, 3}));
    y = op(g, "aten.add.Tensor", {x, 1});
    z = op(g, "aten.sin.default", {y});
    g.outputs.push_back(returned(z));
    g.mutations.push_back({0, y, false});
  }
};

std::string failure(const Graph& g) {
  try {
    verify(g);
  } catch (const InternalError& e) {
    return e.what();
  }
  return "fine";
}

TEST(Graph, CountsUses) {
  Small s;
  std::vector<uint32_t> uses = s.g.use_counts();
  EXPECT_EQ(uses[s.x.index], 1u);
  EXPECT_EQ(uses[s.y.index], 2u);
  EXPECT_EQ(uses[s.z.index], 1u);
  EXPECT_EQ(failure(s.g), "fine");
}

TEST(Graph, ReferencesSurviveInsertion) {
  Small s;
  const Node& sin = s.g.def(s.z);
  const Value& value = s.g.value(s.z);
  for (int i = 0; i < 1000; ++i) {
    s.g.insert_call(sin.id, NodeKind::CallOp, "aten.cos.default", {s.y}, {f32({2, 3})});
  }
  EXPECT_EQ(&sin, &s.g.def(s.z));
  EXPECT_EQ(&value, &s.g.value(s.z));
  EXPECT_EQ(s.g.order().back(), sin.id);
  EXPECT_EQ(failure(s.g), "fine");
}

TEST(Graph, InputsStayInFront) {
  Small s;
  s.g.add_input("late", f32({1}));
  EXPECT_EQ(s.g.order()[1], s.g.value(s.g.inputs()[1]).def);
  EXPECT_EQ(failure(s.g), "fine");
}

TEST(Graph, ReplacesUsesEverywhere) {
  Small s;
  ValueId cos = s.g.insert_call(s.g.value(s.z).def, NodeKind::CallOp, "aten.cos.default",
                                {List{{s.x, s.x}}}, {f32({2, 3})})
                    .outputs[0];
  s.g.replace_uses(s.y, cos);
  s.g.replace_uses(s.x, s.y);
  EXPECT_EQ(s.g.mutations[0].value, cos);
  EXPECT_EQ(s.g.def(s.z).args[0].value(), cos);
  EXPECT_EQ(s.g.def(cos).args[0].items()->at(1).value(), s.y);
}

TEST(Graph, CompactDropsTheDead) {
  Small s;
  s.g.kill(s.g.value(s.z).def);
  s.g.outputs.clear();
  s.g.compact();
  EXPECT_EQ(s.g.order().size(), 2u);
  EXPECT_EQ(failure(s.g), "fine");
}

TEST(Graph, StacksAreShared) {
  Graph g(Stage::Torch);
  StackId a = g.add_stack({{"m.py", 3, "forward", "x + 1"}});
  EXPECT_EQ(a, g.add_stack({{"m.py", 3, "forward", "x + 1"}}));
  EXPECT_NE(a, g.add_stack({{"m.py", 4, "forward", "x + 1"}}));
}

TEST(Arg, EqualityIsOfData) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Arg(nan), Arg(nan));
  EXPECT_FALSE(Arg(0.0) == Arg(-0.0));
  EXPECT_FALSE(Arg(1) == Arg(1.0));
  EXPECT_FALSE(Arg(true) == Arg(1));
  Arg list = List{{1, "a", DType::F32}}, tuple = Tuple{{1, "a", DType::F32}};
  EXPECT_EQ(list, Arg(List{{1, "a", DType::F32}}));
  EXPECT_EQ(hash_of(list), hash_of(List{{1, "a", DType::F32}}));
  EXPECT_FALSE(list == tuple);
  Arg slice = std::make_shared<const Slice>(Slice{1, None{}, 2});
  EXPECT_EQ(slice, Arg(std::make_shared<const Slice>(Slice{1, None{}, 2})));
}

TEST(TensorType, Layout) {
  TensorType t;
  t.sizes = {2, 1, 3};
  t.strides = {3, 77, 1};
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.is_dense());
  t.strides = {1, 77, 2};
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_TRUE(t.is_dense());
  t.strides = {6, 77, 2};
  EXPECT_FALSE(t.is_dense());
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (std::vector<Expr>{3, 3, 1}));
  sym::ExprPool pool;
  Expr n = pool.symbol("n", {2, INT64_MAX});
  EXPECT_EQ(contiguous_strides({n, n}), (std::vector<Expr>{n, 1}));
}

TEST(TensorType, OverlapsItself) {
  TensorType t;
  t.sizes = {3, 1, 4};
  auto overlaps = [&](std::vector<Expr> strides) {
    t.strides = std::move(strides);
    return t.may_overlap_itself();
  };
  EXPECT_FALSE(overlaps({4, 0, 1}));
  EXPECT_FALSE(overlaps({1, 77, 3}));
  EXPECT_FALSE(overlaps({9, 1, 2}));
  EXPECT_TRUE(overlaps({0, 4, 1}));
  EXPECT_TRUE(overlaps({3, 4, 1}));
  EXPECT_TRUE(overlaps({1, 4, 2}));
  EXPECT_TRUE(overlaps({1, 4, 1}));
  t.sizes[1] = 0;
  EXPECT_FALSE(overlaps({0, 4, 0}));
}

TEST(Verify, FindsWhatIsBroken) {
  {
    Small s;
    s.g.set_order({s.g.order()[0], s.g.order()[2], s.g.order()[1]});
    EXPECT_NE(failure(s.g).find("before its definition"), std::string::npos);
  }
  {
    Small s;
    s.g.kill(s.g.value(s.y).def);
    EXPECT_NE(failure(s.g).find("removed node: aten.add.Tensor"), std::string::npos);
  }
  {
    Small s;
    s.g.value(s.z).type.tensor.strides.pop_back();
    EXPECT_NE(failure(s.g).find("as many strides as sizes"), std::string::npos);
  }
  {
    Small s;
    s.g.def(s.z).returns = {2};
    EXPECT_NE(failure(s.g).find("the returns say 2 outputs, there are 1"), std::string::npos);
  }
  {
    Small s;
    s.g.def(s.z).target = "sin";
    EXPECT_NE(failure(s.g).find("namespace.op.overload"), std::string::npos);
  }
  {
    Small s;
    s.g.def(s.z).kwargs.emplace_back("out", s.x);
    EXPECT_NE(failure(s.g).find("no keyword arguments"), std::string::npos);
  }
  {
    Small s;
    s.g.mutations.push_back({0, s.z, false});
    EXPECT_NE(failure(s.g).find("mutates input 0 twice"), std::string::npos);
  }
  {
    Small s;
    OutputSpec view;
    view.kind = OutputSpec::Kind::ViewOfOutput;
    view.index = 1;
    s.g.outputs.push_back(view);
    EXPECT_NE(failure(s.g).find("which is not a value"), std::string::npos);
  }
  {
    Small s;
    s.g.value(s.z).def = s.g.value(s.y).def;
    EXPECT_NE(failure(s.g).find("does not point back"), std::string::npos);
  }
  {
    Small s;
    s.g.def(s.z).args.push_back(Object{0});
    EXPECT_NE(failure(s.g).find("object 0 does not exist"), std::string::npos);
  }
}

// x, p; y = cond(p, x) of x + 1 and x; return y
Graph with_cond() {
  return parse(R"(graph aten(%x: f32[2, 3], %p: b8[]) {
    %0: f32[2, 3] = cond(%p, %x) then(%a: f32[2, 3]) {
      %0: f32[2, 3] = aten.add.Scalar(%a, 1)
      return %0
    } else(%a: f32[2, 3]) {
      return input(0)
    }
    return %0
  })");
}

Node& cond_of(Graph& g) { return g.def(g.outputs[0].value); }

TEST(Regions, CopyWithTheirGraph) {
  Graph g = with_cond(), copy = g;
  cond_of(copy).regions[0].kill(cond_of(copy).regions[0].order()[1]);
  EXPECT_EQ(failure(g), "fine");
  EXPECT_NE(failure(copy), "fine");
}

TEST(Regions, AreWalkedInnermostFirst) {
  const Graph g = parse(R"(graph aten() {
    checkpoint() body() {
      checkpoint() body() {
        %0: f32[1] = aten.a.default()
        return
      }
      %0: f32[1] = aten.b.default()
      return
    }
    return
  })");
  std::vector<std::string> last;
  for_each_region(g, [&](const Graph& r) { last.push_back(r.node(r.order().back()).target); });
  EXPECT_EQ(last, (std::vector<std::string>{"aten.a.default", "aten.b.default"}));
  EXPECT_EQ(failure(g), "fine");
}

TEST(Regions, UsesInsideAreOperands) {
  Graph g = with_cond();
  EXPECT_EQ(g.use_counts()[g.inputs()[0].index], 1u);
  const ValueId sin = g.insert_call(cond_of(g).id, NodeKind::CallOp, "aten.sin.default",
                                    {g.inputs()[0]}, {g.value(g.inputs()[0]).type})
                          .outputs[0];
  cond_of(g).args[1] = sin;
  EXPECT_EQ(failure(g), "fine");
}

TEST(Regions, DroppedInputsRenumberResults) {
  Graph g = parse("graph aten(%x: f32[2], %y: f32[3]) { return input(1), view(1, f32[1]) }");
  g.drop_input(0);
  EXPECT_EQ(print(g), "graph aten(%y: f32[3]) {\n  return input(0), view(0, f32[1])\n}\n");
}

TEST(Verify, FindsBrokenRegions) {
  auto broken = [](auto change) {
    Graph g = with_cond();
    change(g, cond_of(g));
    return failure(g);
  };
  auto says = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  says(broken([](Graph&, Node& n) { n.target = "choose"; }), "no op with regions");
  says(broken([](Graph&, Node& n) { n.kind = NodeKind::CallOp; }), "may not have regions");
  says(broken([](Graph&, Node& n) { n.regions.pop_back(); }), "there are 1 regions");
  says(broken([](Graph&, Node& n) { n.args.pop_back(); }), "a region with 1 parameters");
  says(broken([](Graph& g, Node& n) { n.args[1] = g.inputs()[1]; }), "of its parameter's type");
  says(broken([](Graph& g, Node& n) { n.args[0] = g.inputs()[0]; }), "no boolean");
  says(broken([](Graph&, Node& n) { n.args[1] = 3; }), "is no value");
  says(broken([](Graph&, Node& n) { n.regions[0].outputs.clear(); }), "unequal many");
  says(broken([](Graph&, Node& n) {
         n.regions[0].outputs.push_back(n.regions[0].outputs[0]);
         n.regions[1].outputs.push_back(n.regions[1].outputs[0]);
       }),
       "gives a value twice");
  says(broken([](Graph&, Node& n) { n.regions[0].add_attribute("w", f32({1})); }),
       "with an attribute");
  says(broken([](Graph&, Node& n) {
         n.regions[0].mutations.push_back({0, n.regions[0].outputs[0].value, false});
       }),
       "a region that mutates");
  says(broken([](Graph&, Node& n) {
         n.regions[1].outputs[0].kind = OutputSpec::Kind::ViewOfInput;
         n.regions[1].outputs[0].type = f32({2, 3}).tensor;
       }),
       "no plain value");
  says(broken([](Graph& g, Node&) { g.value(g.outputs[0].value).type = f32({3, 2}); }),
       "not of its output's type");
  says(broken([](Graph&, Node& n) {
         Graph other(Stage::Aten);
         other.add_input("a", f32({2, 3}));
         other.outputs = n.regions[1].outputs;
         n.regions[1] = other;
       }),
       "symbols of its own");
}

TEST(Verify, FindsBrokenJointGraphs) {
  auto of = [](const char* text) { return failure(parse(text)); };
  EXPECT_EQ(of("graph joint(%x: f32[3], tangent %t: f32[3]) { return %x, gradient %t }"), "fine");
  EXPECT_NE(of("graph joint(%x: f32[3], tangent %t: f32[3]) { return gradient %t }"), "fine");
  EXPECT_NE(of("graph joint(%x: f32[3], tangent %t: f32[2]) { return %x, gradient %t }"), "fine");
  EXPECT_NE(of("graph joint(%x: f32[3], tangent %t: float) { return %x, gradient None }"), "fine");
  EXPECT_NE(of("graph joint(%x: f32[3], tangent %t: f32[3]) { mutate %t <- %x "
               "return %x, gradient %t }"),
            "fine");
}

}  // namespace
}  // namespace oxy::ir
