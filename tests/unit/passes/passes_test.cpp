// Every pass, and the whole list, on random programs: what the caller gets stays the same to the
// last bit, with the same layouts, and results that were tensors of their own stay so.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

#include "evaluator.h"
#include "ir/text.h"
#include "ops/op_table.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::Graph;
using ir::ValueId;

// Programs over four inputs, of ops that the evaluator knows and regions of such ops; types come
// from the shape rules.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : rng_(seed), g_(ir::Stage::Aten) {}

  Graph make() {
    for (auto [name, dtype] :
         {std::pair{"x", ir::DType::F32}, {"y", ir::DType::F32}, {"n", ir::DType::I64}}) {
      ir::TensorType t;
      t.dtype = dtype;
      t.sizes = {2, 3};
      t.strides = below(3) ? ir::contiguous_strides(t.sizes) : std::vector<ir::Expr>{1, 2};
      values_.push_back(g_.add_input(name, ir::Type::of(t)));
    }
    ir::TensorType number;
    number.dtype = ir::DType::I64;
    values_.push_back(predicate_ = g_.add_input("p", ir::Type::of(number)));
    for (int tries = 0; tries < 60 && values_.size() < 18; ++tries) step();
    finish();
    return std::move(g_);
  }

  // A region with these operands: [0] is what it gives another value of, [1] a condition; a loop's
  // body gives that too.
  Graph make_region(const Graph& around, const std::vector<ValueId>& operands, bool trips,
                    int depth) {
    g_ = Graph(ir::Stage::Aten, around.pool);
    depth_ = depth;
    if (trips) g_.add_input("i", ir::Type::integer(around.pool->symbol("i", {0, INT64_MAX})));
    for (ValueId v : operands) values_.push_back(g_.add_input("p", around.value(v).type));
    predicate_ = values_[1];
    for (int tries = 0; tries < 12; ++tries) step();
    if (trips) g_.outputs.push_back(parameter(2));
    ValueId result = values_[0];
    for (size_t i = 2; i < values_.size(); ++i) {
      const bool fits = same_layout(g_.tensor_type(values_[i]), g_.tensor_type(values_[0]));
      if (fits && below(3)) result = values_[i];
    }
    if (g_.def(result).kind == ir::NodeKind::Input)
      g_.outputs.push_back(parameter(g_.value(result).def.index));
    else
      output(result);
    return std::move(g_);
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(rng_); }
  double pick_float() {
    constexpr double kValues[] = {0.0, -0.0, 1.0, -1.5, 0.25, 3.0, 1e30, -7.0};
    return kValues[below(8)];
  }
  ValueId pick() {
    return values_[static_cast<size_t>(below(static_cast<int64_t>(values_.size())))];
  }
  Arg number() { return below(2) ? Arg(below(3)) : Arg(pick_float()); }

  void step() {
    ValueId v = pick();
    const ir::TensorType t = g_.tensor_type(v);
    int64_t rank = t.dim(), dim = rank ? below(2 * rank) - rank : 0;
    if (depth_ < 2 && below(12) == 0) return region();
    switch (below(18)) {
      case 0:
        return call("aten.add.Tensor", {v, below(2) ? Arg(pick()) : number(), below(3) - 1});
      case 1:
        return call("aten.sub.Tensor", {v, below(2) ? Arg(pick()) : number(), below(3) - 1});
      case 2:
        return call("aten.mul.Tensor", {v, below(2) ? Arg(pick()) : number()});
      case 3:
        return call("aten.mul.Tensor", {number(), v});
      case 4:
        return call("aten.rsub.Scalar", {v, number(), 1});
      case 5:
        return call("aten.add.Scalar", {v, number(), 1});
      case 6:
        return call("aten.neg.default", {v});
      case 7:
        return call("aten.clone.default", {v});
      case 8:
        return call("aten.view.default",
                    {v, below(2) ? Arg(list_of(t.sizes)) : Arg(ir::List{{-1}})});
      case 9:
        return rank ? call("aten.transpose.int", {v, dim, 0}) : void();
      case 10:
        return call("aten.t.default", {v});
      case 11:
        return permute(v, rank);
      case 12:
        return call("aten.unsqueeze.default", {v, below(rank + 1)});
      case 13:
        return call("aten.squeeze.default", {v});
      case 14:
        return rank ? call("aten.slice.Tensor", {v, dim, below(2), Arg(3 - below(5)), 1}) : void();
      case 15:
        return rank ? call("aten.select.int", {v, dim, Arg(-1)}) : void();
      case 16:
        return expand(v, t);
      default:
        return call("aten.full.default",
                    {ir::List{{2, 3}}, pick_float(), ir::DType::F32, ir::None{}, ir::Device{}});
    }
  }

  static ir::OutputSpec parameter(uint32_t index) {
    ir::OutputSpec o;
    o.kind = ir::OutputSpec::Kind::Input;
    o.index = index;
    return o;
  }

  void region() {
    std::vector<ValueId> operands = {pick(), predicate_};
    while (below(3)) operands.push_back(pick());
    ir::TensorType type = g_.tensor_type(operands[0]);
    if (!type.is_dense()) return;
    type.offset = 0;
    const std::string op = std::vector{"checkpoint", "cond", "while_loop", "loop"}[below(4)];
    std::vector<Arg> args(operands.begin(), operands.end());
    if (op == "cond") args.insert(args.begin(), Arg(predicate_));
    if (op == "loop") args.insert(args.begin(), {Arg(below(3)), Arg(predicate_)});
    ir::Node& n = g_.add_call(ir::NodeKind::Region, op, std::move(args), {ir::Type::of(type)});
    const size_t regions = ir::region_op(n).region_count();
    for (size_t i = 0; i < regions; ++i)
      n.regions.push_back(
          RandomProgram(rng_()).make_region(g_, operands, op == "loop", depth_ + 1));
    if (op == "while_loop") n.regions[0].outputs = {parameter(1)};
    values_.push_back(n.outputs[0]);
  }

  void permute(ValueId v, int64_t rank) {
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
    std::shuffle(dims.begin(), dims.end(), rng_);
    if (rank) call("aten.permute.default", {v, list_of(dims)});
  }

  void expand(ValueId v, const ir::TensorType& t) {
    std::vector<ir::Expr> sizes = t.sizes;
    for (ir::Expr& s : sizes) {
      if (s.is_const(1)) s = 2;
    }
    if (t.dim() < 3) call("aten.expand.default", {v, list_of(sizes)});
  }

  // Appends the call if its shape rule takes the arguments and the result is small.
  void call(std::string_view op, std::vector<Arg> args) {
    const ops::OpInfo* info = ops::find(op);
    ASSERT_TRUE(info && info->shape) << op;
    std::vector<ir::Type> types;
    if (!info->shape(ops::Args(g_, args), types)) return;
    const ir::TensorType& t = types[0].tensor;
    bool known = t.dtype == ir::DType::F32 || t.dtype == ir::DType::I64;
    if (!known || t.dim() > 4 || t.numel().value() == 0) return;
    values_.push_back(
        g_.add_call(ir::NodeKind::CallOp, std::string(op), std::move(args), std::move(types))
            .outputs[0]);
  }

  void finish() {
    std::set<ValueId> memory;
    for (size_t i = 4; i < values_.size(); ++i) {
      // As the recorder does: a result has memory that neither an input nor another result has.
      ValueId base = memory_of(g_, values_[i]);
      bool input = g_.def(base).kind == ir::NodeKind::Input;
      if (below(3) && i + 2 < values_.size()) continue;
      if (!input && memory.insert(base).second) output(values_[i]);
    }
    if (!g_.outputs.empty() && below(2)) g_.outputs.push_back(g_.outputs[0]);
    for (ValueId v : values_) {
      bool fits = g_.mutations.empty() && v != g_.inputs()[0] &&
                  same_place(g_.value(v).type, g_.value(g_.inputs()[0]).type);
      if (fits && !below(4)) g_.mutations.push_back({0, v, false});
    }
  }

  void output(ValueId v) {
    ir::OutputSpec o;
    o.value = v;
    g_.outputs.push_back(o);
  }

  std::mt19937 rng_;
  Graph g_;
  std::vector<ValueId> values_;
  ValueId predicate_;
  int depth_ = 0;
};

// All that the caller can see: elements by their bits, and layouts.
std::string visible(const Graph& g, const std::vector<Tensor>& inputs) {
  Evaluator run(g, inputs);
  std::string s;
  auto show = [&](ValueId v) {
    ir::TensorType t = g.tensor_type(v);
    t.requires_grad = false;
    append(s, print(t));
    for (double e : run[v].elements)
      cat_to(s, ' ', std::isnan(e) ? 0x7FF8000000000000ull : std::bit_cast<uint64_t>(e));
    append(s, '\n');
  };
  for (const ir::OutputSpec& o : g.outputs) show(o.value);
  for (const ir::Mutation& m : g.mutations) {
    cat_to(s, m.input, " <- ");
    show(m.value);
  }
  return s;
}

// Which positions of the result share memory, with each other or an input.
std::string sharing(const Graph& g) {
  std::vector<ValueId> seen;
  std::string s;
  for (const ir::OutputSpec& o : g.outputs) {
    ValueId base = memory_of(g, o.value);
    auto at = std::find(seen.begin(), seen.end(), base) - seen.begin();
    if (at == static_cast<ptrdiff_t>(seen.size())) seen.push_back(base);
    cat_to(s, g.def(base).kind == ir::NodeKind::Input ? "input" : cat(at), ' ');
  }
  return s;
}

std::vector<Tensor> sample_inputs(const Graph& g, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Tensor> out;
  for (ValueId v : g.inputs()) {
    const ir::TensorType& type = g.tensor_type(v);
    Tensor t{type.dtype, {}, {}};
    for (ir::Expr e : type.sizes) t.sizes.push_back(e.value());
    bool floating = t.dtype == ir::DType::F32;
    for (int64_t i = 0; i < type.numel().value(); ++i) {
      double e = static_cast<double>(rng() % 9) - 4;
      t.elements.push_back(floating ? e * 0.375 : e);
    }
    if (floating) t.elements[0] = -0.0;
    out.push_back(std::move(t));
  }
  return out;
}

void check_passes(std::span<const Pass> passes, uint32_t seed) {
  Graph g = RandomProgram(seed).make();
  std::vector<Tensor> inputs = sample_inputs(g, seed);
  std::string text = ir::print(g), before = visible(g, inputs), shared = sharing(g);
  ASSERT_NO_THROW(run_passes(g, passes)) << text;
  EXPECT_EQ(visible(g, inputs), before) << seed << '\n' << text << ir::print(g);
  EXPECT_EQ(sharing(g), shared) << seed << '\n' << text << ir::print(g);
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Pass& p : all_passes()) out.emplace_back(p.name);
  return out;
}

class EachPass : public testing::TestWithParam<std::string> {};

TEST_P(EachPass, KeepsWhatTheCallerSees) {
  const Pass& pass = find_pass(GetParam());
  for (uint32_t seed = 0; seed < 1500 && !HasFailure(); ++seed) check_passes({&pass, 1}, seed);
}

INSTANTIATE_TEST_SUITE_P(Passes, EachPass, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(StandardPasses, KeepWhatTheCallerSees) {
  for (uint32_t seed = 0; seed < 4000 && !HasFailure(); ++seed)
    check_passes(standard_passes(), seed);
}

TEST(StandardPasses, ComeToRest) {
  // A second and third run of the list find ever less; the third nothing.
  for (uint32_t seed = 0; seed < 500; ++seed) {
    Graph g = RandomProgram(seed).make();
    run_passes(g, standard_passes());
    run_passes(g, standard_passes());
    std::string text = ir::print(g);
    run_passes(g, standard_passes());
    ASSERT_EQ(ir::print(g), text) << seed;
  }
}

TEST(PassList, UnknownNamesListTheKnown) {
  try {
    find_pass("unroll");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("canonicalize, "), std::string::npos);
  }
}

TEST(PassList, VerifiesAfterEachPassAndNamesIt) {
  Graph g = ir::parse("graph aten(%x: f32[2]) { %0: f32[2] = aten.sin.default(%x) return %0 }");
  Pass broken{"broken",
              [](Graph& graph, const Machine&) {
                graph.def(graph.outputs[0].value).target = "sin";
                return true;
              },
              ""};
  int calls = 0;
  RunOptions options;
  options.after = [&](const Pass&, const Graph&, bool changed, double seconds) {
    ++calls;
    EXPECT_TRUE(changed);
    EXPECT_GE(seconds, 0);
  };
  options.verify = false;
  EXPECT_TRUE(run_passes(g, {&broken, 1}, options));
  EXPECT_EQ(calls, 1);
  try {
    run_passes(g, {&broken, 1});
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("after pass broken"), std::string::npos);
  }
}

TEST(Uniform, RoundsAsTheDtypeDoes) {
  using ir::DType;
  EXPECT_EQ(round_to(DType::F32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(round_to(DType::BF16, 1.00390625), 1.0);       // a tie: to the even mantissa
  EXPECT_EQ(round_to(DType::BF16, 1.01171875), 1.015625);  // a tie: up to the even one
  EXPECT_EQ(round_to(DType::I64, -2.9), -2.0);
  EXPECT_EQ(round_to(DType::B8, 0.5), 1.0);
  EXPECT_EQ(round_to(DType::U8, 256), std::nullopt);
  EXPECT_EQ(round_to(DType::I64, std::numeric_limits<double>::quiet_NaN()), std::nullopt);
  EXPECT_EQ(round_to(DType::F16, 1.0), std::nullopt);
}

}  // namespace
}  // namespace oxy::passes
