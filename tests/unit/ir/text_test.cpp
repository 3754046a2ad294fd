// The graph text: what is printed parses to an equal graph, for graphs made at random.
#include "ir/text.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "support/check.h"

namespace oxy::ir {
namespace {

// Random graphs that use every kind of argument, type, output and name.
class RandomGraph {
 public:
  RandomGraph(uint32_t seed, Stage stage) : rng_(seed), g_(stage) {}

  Graph make() {
    symbols_ = {g_.pool->symbol("s0", {2, INT64_MAX}, 17), g_.pool->symbol("u8", {}),
                g_.pool->symbol("inf", {0, 100}, 3)};
    g_.objects = {"<function f>", "say \"hi\""};
    if (below(2)) g_.name = "a \"name\"";
    for (uint32_t i = below(4); i > 0; --i) see(g_.add_input(name(), type()));
    for (uint32_t i = below(12); i > 0; --i) node();
    g_.stage == Stage::Torch ? torch_end() : aten_end();
    return std::move(g_);
  }

 private:
  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(rng_); }
  template <class T>
  T pick(const std::vector<T>& xs) {
    return xs[below(static_cast<uint32_t>(xs.size()))];
  }

  std::string name() {
    return pick<std::string>({"x", "w", "a.b.c", "L['self'].w", "0", "", "x_1", "größe"});
  }

  Expr expr() {
    Expr a = pick(symbols_), b = static_cast<int64_t>(below(9)) - 3;
    switch (below(6)) {
      case 0:
        return a;
      case 1:
        return a * b + pick(symbols_);
      case 2:
        return sym::floordiv(a + 3, Expr(4));
      case 3:
        return sym::mod(a, Expr(8)) + b;
      case 4:
        return sym::min(a, pick(symbols_) + 1);
      default:
        return b;
    }
  }

  Type type() {
    switch (below(8)) {
      case 0:
        return Type::integer(expr());
      case 1:
        return Type{Type::Kind::Float, {}, 0};
      case 2:
        return Type{Type::Kind::Bool, {}, 0};
      case 3:
        return Type::opaque();
      case 4:
        return Type::none();
      default:
        return Type::of(tensor());
    }
  }

  TensorType tensor() {
    TensorType t;
    t.dtype = pick<DType>({DType::F32, DType::U8, DType::BF16, DType::C64, DType::F8E4M3});
    for (uint32_t i = below(4); i > 0; --i) t.sizes.push_back(expr());
    t.strides = contiguous_strides(t.sizes);
    if (below(3) == 0) {
      for (Expr& s : t.strides) s = expr();
    }
    if (below(3) == 0) t.offset = expr();
    if (below(3) == 0) t.device = pick<Device>({{1, 0}, {1, -1}, {14, -1}, {12, 3}});
    t.requires_grad = below(4) == 0;
    return t;
  }

  Arg arg(int depth = 0) {
    const double inf = std::numeric_limits<double>::infinity();
    switch (below(depth < 3 ? 16 : 12)) {
      case 0:
        return None{};
      case 1:
        return below(2) == 1;
      case 2:
      case 3:
        return expr();
      case 4:
        return pick<double>({0.0, -0.0, 1.0, 1e-7, -2.5, inf, -inf, inf - inf, 1e22});
      case 5:
        return std::complex<double>(pick<double>({1.5, -inf}), pick<double>({-0.0, 1e9}));
      case 6:
        return Str{pick<std::string>({"", "none", "a\"b\n", "\x01"})};
      case 7:
        return pick<DType>({DType::F32, DType::U8, DType::B8});
      case 8:
        return pick<Device>({{0, -1}, {1, 2}, {14, -1}, {9, -1}});
      case 9:
        return Layout{pick<int8_t>({0, 2, 40})};
      case 10:
        return MemoryFormat{pick<int8_t>({0, 1, 2, 3, 9})};
      case 11:
        return values_.empty() ? Arg(Ellipsis{}) : Arg(pick(values_));
      case 12:
        return List{args(depth)};
      case 13:
        return Tuple{args(depth)};
      case 14: {
        Dict d;
        for (Arg& a : args(depth)) d.items.emplace_back(name(), std::move(a));
        return d;
      }
      default:
        return below(2) ? Arg(Object{below(2)})
                        : Arg(std::make_shared<const Slice>(
                              Slice{arg(depth + 1), arg(depth + 1), arg(depth + 1)}));
    }
  }

  std::vector<Arg> args(int depth = 0) {
    std::vector<Arg> out;
    for (uint32_t i = below(4); i > 0; --i) out.push_back(arg(depth + 1));
    return out;
  }

  void node() {
    if (depth_ < 2 && below(6) == 0) return region();
    if (depth_ == 0 && below(5) == 0) return see(g_.add_attribute(name(), Type::of(tensor())));
    std::vector<Type> types;
    bool torch = g_.stage == Stage::Torch;
    for (uint32_t i = torch ? 1 : below(4); i > 0; --i) types.push_back(type());
    NodeKind kind = !torch     ? NodeKind::CallOp
                    : below(2) ? NodeKind::CallMethod
                               : NodeKind::CallFunction;
    std::string target = kind == NodeKind::CallOp ? pick<std::string>({"aten.f.default", "a.b.c"})
                         : kind == NodeKind::CallMethod
                             ? "view"
                             : pick<std::string>({"torch.add", "@obj1", "f<locals>"});
    auto count = static_cast<int32_t>(types.size());
    Node& n = g_.add_call(kind, target, args(), std::move(types));
    if (torch && below(2)) n.name = name();
    if (torch && below(2)) n.kwargs.emplace_back(pick<std::string>({"bias", "f32", "a b"}), arg());
    if (!torch && below(3) == 0 && count > 0) n.returns = {-1, count - 1};
    for (ValueId v : n.outputs) see(v);
  }

  // `checkpoint` of some values: its region has a parameter for each, and its results are the
  // node's outputs.
  void region() {
    std::vector<Arg> operands;
    std::vector<Type> given, made;
    for (uint32_t i = values_.empty() ? 0 : below(4); i > 0; --i) {
      operands.emplace_back(pick(values_));
      given.push_back(g_.value(operands.back().value()).type);
    }
    RandomGraph inner(rng_(), g_.stage);
    Graph body = inner.make_region(g_, given, symbols_, depth_ + 1);
    for (const OutputSpec& o : body.outputs)
      made.push_back(
          body.value(o.kind == OutputSpec::Kind::Value ? o.value : body.inputs()[o.index]).type);
    if (g_.stage == Stage::Torch) made = {Type::opaque()};
    Node& n = g_.add_call(NodeKind::Region, "checkpoint", std::move(operands), std::move(made));
    n.regions.push_back(std::move(body));
    for (ValueId v : n.outputs) see(v);
  }

  Graph make_region(const Graph& around, const std::vector<Type>& parameters,
                    std::vector<Expr> symbols, int depth) {
    g_ = Graph(around.stage, around.pool);
    g_.objects = {"<function g>", "h"};
    depth_ = depth;
    symbols_ = std::move(symbols);
    for (const Type& t : parameters) see(g_.add_input(name(), t));
    for (uint32_t i = below(6); i > 0; --i) node();
    if (g_.stage == Stage::Torch) {
      g_.result = Tuple{args()};
      return std::move(g_);
    }
    for (ValueId v : values_) {
      const bool input = g_.def(v).kind == NodeKind::Input;
      if (below(3) == 0) output(input ? OutputSpec::Kind::Input : OutputSpec::Kind::Value, v);
      if (input && !g_.outputs.empty()) g_.outputs.back().index = 0;
    }
    return std::move(g_);
  }

  void see(ValueId v) { values_.push_back(v); }

  void torch_end() { g_.result = arg(); }

  void aten_end() {
    for (ValueId v : values_) {
      if (below(3) == 0) output(OutputSpec::Kind::Value, v);
    }
    if (!g_.inputs().empty()) {
      output(OutputSpec::Kind::Input);
      output(OutputSpec::Kind::ViewOfInput);
      if (tensor_input(0)) {
        g_.mutations.push_back({0, g_.inputs()[0], below(2) == 1});
        if (g_.mutations[0].metadata) g_.mutations[0].type = g_.tensor_type(g_.inputs()[0]);
      }
    }
    output(OutputSpec::Kind::None);
    if (g_.outputs[0].kind == OutputSpec::Kind::Value) output(OutputSpec::Kind::ViewOfOutput);
  }

  bool tensor_input(size_t i) { return g_.value(g_.inputs()[i]).type.is_tensor(); }

  void output(OutputSpec::Kind kind, ValueId value = {}) {
    OutputSpec o;
    o.kind = kind;
    o.value = value;
    o.type = tensor();
    g_.outputs.push_back(o);
  }

  std::mt19937 rng_;
  Graph g_;
  std::vector<Expr> symbols_;
  std::vector<ValueId> values_;
  int depth_ = 0;
};

// What is in a graph, regions and all, in order.
void expect_same(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.order().size(), b.order().size());
  for (size_t i = 0; i < a.order().size(); ++i) {
    const Node &x = a.node(a.order()[i]), &y = b.node(b.order()[i]);
    EXPECT_EQ(x.regions.size(), y.regions.size());
    for (size_t r = 0; r < x.regions.size(); ++r) expect_same(x.regions[r], y.regions[r]);
  }
}

class RoundTrip : public testing::TestWithParam<Stage> {};

TEST_P(RoundTrip, RandomGraphs) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Graph g = RandomGraph(seed, GetParam()).make();
    std::string text = print(g);
    Graph back(Stage::Aten);
    ASSERT_NO_THROW(back = parse(text)) << seed << "\n" << text;
    ASSERT_EQ(print(back), text) << seed;
    ASSERT_NO_THROW(verify(back)) << seed << "\n" << text;
    expect_same(g, back);
    for (size_t i = 0; i < g.order().size(); ++i) {
      const Node &a = g.node(g.order()[i]), &b = back.node(back.order()[i]);
      ASSERT_EQ(a.kind, b.kind) << text;
      if (a.kind != NodeKind::Input) ASSERT_EQ(a.target, b.target) << text;
      ASSERT_EQ(a.returns, b.returns) << text;
      ASSERT_EQ(a.args.size(), b.args.size()) << text;
      ASSERT_EQ(a.outputs.size(), b.outputs.size()) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, RoundTrip, testing::Values(Stage::Torch, Stage::Aten));

TEST(Text, PrintsStacksWhereTheyChange) {
  Graph g(Stage::Torch);
  Type t = Type::opaque();
  ValueId x = g.add_input("x", t);
  StackId stack = g.add_stack({{"a.py", 1, "main", ""}, {"m.py", 12, "forward", "h = x @ w"}});
  for (int i = 0; i < 2; ++i) {
    g.add_call(NodeKind::CallMethod, "abs", {x}, {t}).stack = stack;
  }
  EXPECT_EQ(print(g),
            "graph torch(%x: object) {\n"
            "  %0: object = method abs(%x)   # m.py:12 in forward: h = x @ w\n"
            "  %1: object = method abs(%x)\n"
            "  return None\n"
            "}\n");
  EXPECT_EQ(print(parse(print(g))), print(g, {.stacks = false}));
}

TEST(Text, FloatsAndIntegersStayApart) {
  Graph g = parse("graph torch() { return [1, 1.0, -1, -1.0, -inf, nan, (2,), (2), ()] }");
  const std::vector<Arg>& items = *g.result.items();
  EXPECT_EQ(items[0], Arg(1));
  EXPECT_EQ(items[1], Arg(1.0));
  EXPECT_EQ(items[2], Arg(-1));
  EXPECT_EQ(items[3], Arg(-1.0));
  EXPECT_EQ(items[4], Arg(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(items[5], Arg(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(items[6], Arg(Tuple{{2}}));
  EXPECT_EQ(items[7], Arg(2));
  EXPECT_EQ(items[8], Arg(Tuple{}));
}

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Text, ErrorsSayWhere) {
  EXPECT_EQ(error_of("graph aten(%x: f32[2]) {\n  return %y\n}"), "2:10: %y is not defined");
  EXPECT_EQ(error_of("graph lazy() {}"), "1:7: expected the stage, torch, aten or joint");
  EXPECT_EQ(error_of("graph aten(%x: f31[2]) { return }"), "1:16: expected a type");
  EXPECT_EQ(error_of("graph aten(%x: f32[2], %x: f32[2]) { return }"), "1:24: %x is defined twice");
  EXPECT_EQ(error_of("graph aten() {\n  %0: f32[] = attr w\n  mutate %0 <- %0\n  return }"),
            "3:10: only inputs can be mutated");
  EXPECT_EQ(error_of("graph aten() { return 3 }"),
            "1:23: expected a value, input(), view(), view_of_output() or None");
  EXPECT_EQ(error_of("graph aten() { return } x"), "1:25: expected nothing after the graph");
  EXPECT_EQ(error_of("graph aten(%x: f32[2]) { %0: f32[2] = cond(%x) then() { return } return }"),
            "1:66: expected 'else', found 'return'");
  EXPECT_EQ(error_of("graph aten(%x: f32[2]) { %0: f32[2] = checkpoint() body() { return %x } }"),
            "1:68: %x is not defined");
  EXPECT_EQ(error_of("graph joint(tangent %x: f32[2], %y: f32[2]) { return }"),
            "1:33: expected 'tangent', found '%y'");
  EXPECT_EQ(error_of("graph joint(%x: f32[2]) { return %x }"),
            "1:37: expected a gradient for each of 1 primals");
  EXPECT_NE(error_of("graph aten(%x: f32[s0]) { return }").find("1:20: "), std::string::npos);
}

}  // namespace
}  // namespace oxy::ir
