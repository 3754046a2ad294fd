// The evaluator of tests.
#include "evaluator.h"

#include <cmath>

#include "ops/op_table.h"
#include "passes/rewrite.h"
#include "support/check.h"

namespace oxy::passes {
namespace {

using Index = std::vector<int64_t>;

int64_t count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

Index index_of(int64_t linear, const std::vector<int64_t>& sizes) {
  Index out(sizes.size());
  for (size_t i = sizes.size(); i-- > 0; linear /= sizes[i]) out[i] = linear % sizes[i];
  return out;
}

int64_t linear_of(const Index& index, const std::vector<int64_t>& sizes) {
  int64_t n = 0;
  for (size_t i = 0; i < sizes.size(); ++i) n = n * sizes[i] + index[i];
  return n;
}

// The element that broadcasting reads at an index of the result.
double broadcast(const Tensor& t, const Index& index) {
  Index own;
  size_t skip = index.size() - t.sizes.size();
  for (size_t i = 0; i < t.sizes.size(); ++i) own.push_back(t.sizes[i] == 1 ? 0 : index[i + skip]);
  return t.elements[static_cast<size_t>(linear_of(own, t.sizes))];
}

double rounded(ir::DType d, double v) {
  return d == ir::DType::F32 ? static_cast<double>(static_cast<float>(v)) : std::trunc(v) + 0.0;
}

double number(const ir::Arg& a) {
  if (auto* d = a.get_if<double>()) return *d;
  auto v = integer(a);
  OXY_CHECK(v, "a number");
  return static_cast<double>(*v);
}

Tensor shaped(const ir::TensorType& type) {
  Tensor t{type.dtype, {}, {}};
  for (ir::Expr e : type.sizes) t.sizes.push_back(e.value());
  t.elements.resize(static_cast<size_t>(count(t.sizes)));
  return t;
}

}  // namespace

Evaluator::Evaluator(const ir::Graph& g, const std::vector<Tensor>& inputs) : g_(g) {
  for (size_t i = 0; i < inputs.size(); ++i) values_[g.inputs()[i].index] = inputs[i];
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    if (!n.dead && n.kind == ir::NodeKind::CallOp) run(n);
    if (!n.dead && n.kind == ir::NodeKind::Region) run_region(n);
  }
}

std::vector<Tensor> Evaluator::results() const {
  std::vector<Tensor> out;
  for (const ir::OutputSpec& o : g_.outputs)
    out.push_back((*this)[o.kind == ir::OutputSpec::Kind::Input ? g_.inputs()[o.index] : o.value]);
  return out;
}

void Evaluator::run_region(const ir::Node& n) {
  constexpr int kMostRounds = 4;
  const ir::RegionOp& op = ir::region_op(n);
  std::vector<Tensor> given, out;
  for (size_t i = op.arguments; i < n.args.size(); ++i) given.push_back(operand(n.args[i]));
  auto holds = [](const Tensor& t) { return t.elements[0] != 0; };
  auto results = [&](const ir::Graph& region) {
    std::vector<Tensor> all(op.parameters);  // the number of a trip is not computed with
    all.insert(all.end(), given.begin(), given.end());
    return Evaluator(region, all).results();
  };
  if (op.name == "checkpoint") out = results(n.regions[0]);
  if (op.name == "cond") out = results(n.regions[holds(operand(n.args[0])) ? 0 : 1]);
  if (op.carries) {
    bool goes_on = op.name == "while_loop" || holds(operand(n.args[1]));
    const int64_t trips = op.name == "loop" ? *integer(n.args[0]) : kMostRounds;
    for (int64_t round = 0; round < trips && goes_on; ++round) {
      if (op.name == "while_loop" && !holds(results(n.regions[0])[0])) break;
      std::vector<Tensor> next = results(n.regions.back());
      if (op.results > 0) goes_on = holds(next[0]);
      std::copy(next.begin() + static_cast<ptrdiff_t>(op.results), next.end(), given.begin());
    }
    out.assign(given.begin(), given.begin() + static_cast<ptrdiff_t>(n.outputs.size()));
  }
  for (size_t i = 0; i < n.outputs.size(); ++i) values_[n.outputs[i].index] = std::move(out[i]);
}

Tensor Evaluator::operand(const ir::Arg& a) const {
  if (a.is_value()) return (*this)[a.value()];
  return Tensor{ir::DType::F32, {}, {number(a)}};
}

Tensor Evaluator::arithmetic(const ir::Node& n, char op) const {
  Tensor out = shaped(g_.tensor_type(n.outputs[0]));
  Tensor a = operand(n.args[0]), b = operand(n.args[1]);
  double alpha = n.args.size() > 2 ? number(n.args[2]) : 1;
  for (size_t i = 0; i < out.elements.size(); ++i) {
    Index index = index_of(static_cast<int64_t>(i), out.sizes);
    double x = rounded(out.dtype, broadcast(a, index));
    double y = rounded(out.dtype, broadcast(b, index));
    double v = op == '+'   ? x + rounded(out.dtype, alpha * y)
               : op == '-' ? x - rounded(out.dtype, alpha * y)
               : op == 'r' ? y - rounded(out.dtype, alpha * x)
                           : x * y;
    out.elements[i] = rounded(out.dtype, v);
  }
  return out;
}

// Ops that move elements: where the element at an index comes from.
Tensor Evaluator::moved(const ir::Node& n) const {
  Tensor out = shaped(g_.tensor_type(n.outputs[0]));
  Tensor in = operand(n.args[0]);
  auto rank = static_cast<int64_t>(in.sizes.size());
  auto dim = [&](size_t arg) {
    int64_t d = *integer(n.arg(arg));
    return static_cast<size_t>(d < 0 ? d + rank : d);
  };
  for (size_t i = 0; i < out.elements.size(); ++i) {
    Index to = index_of(static_cast<int64_t>(i), out.sizes), from = to;
    if (n.target == "aten.permute.default") {
      std::vector<int64_t> dims = *integers(n.args[1]);
      for (size_t k = 0; k < to.size(); ++k) {
        from[static_cast<size_t>(dims[k] < 0 ? dims[k] + rank : dims[k])] = to[k];
      }
    } else if (n.target == "aten.transpose.int") {
      std::swap(from[dim(1)], from[dim(2)]);
    } else if (n.target == "aten.t.default") {
      if (rank == 2) std::swap(from[0], from[1]);
    } else if (n.target == "aten.slice.Tensor") {
      int64_t start = n.arg(2).is_none() ? 0 : *integer(n.args[2]);
      size_t d = dim(1);
      start = std::min(start < 0 ? start + in.sizes[d] : start, in.sizes[d]);
      from[d] = start + to[d] * (n.args.size() > 4 ? *integer(n.args[4]) : 1);
    } else if (n.target == "aten.select.int") {
      size_t d = dim(1);
      int64_t at = *integer(n.args[2]);
      from.insert(from.begin() + static_cast<ptrdiff_t>(d), at < 0 ? at + in.sizes[d] : at);
    } else if (n.target == "aten.expand.default") {
      out.elements[i] = broadcast(in, to);
      continue;
    } else {
      out.elements[i] = rounded(out.dtype, in.elements[i]);  // the same elements in row-major order
      continue;
    }
    out.elements[i] = in.elements[static_cast<size_t>(linear_of(from, in.sizes))];
  }
  return out;
}

void Evaluator::run(const ir::Node& n) {
  const std::string& op = n.target;
  Tensor out;
  if (op.starts_with("aten.add.")) {
    out = arithmetic(n, '+');
  } else if (op.starts_with("aten.sub.")) {
    out = arithmetic(n, '-');
  } else if (op.starts_with("aten.rsub.")) {
    out = arithmetic(n, 'r');
  } else if (op.starts_with("aten.mul.")) {
    out = arithmetic(n, '*');
  } else if (op == "aten.neg.default") {
    out = operand(n.args[0]);
    for (double& v : out.elements) v = out.dtype == ir::DType::F32 ? -v : 0 - v;
  } else if (op == "aten.full.default") {
    out = shaped(g_.tensor_type(n.outputs[0]));
    for (double& v : out.elements) v = rounded(out.dtype, number(n.args[1]));
  } else {
    out = moved(n);
  }
  values_[n.outputs[0].index] = std::move(out);
}

ir::ValueId memory_of(const ir::Graph& g, ir::ValueId v) {
  for (;;) {
    const ir::Node& def = g.def(v);
    const ops::OpInfo* info = ops::find(def);
    if (!info || !info->has(ops::View)) return v;
    v = def.args[0].value();
  }
}

}  // namespace oxy::passes
