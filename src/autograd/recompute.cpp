// Rules by the traits of the op table.
#include "autograd/recompute.h"

#include <algorithm>
#include <cmath>

#include "ops/contraction.h"
#include "ops/op_table.h"
#include "passes/rewrite.h"
#include "support/tuning.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeKind;
using ir::TensorType;
using ir::ValueId;

constexpr int64_t kSizeWithoutHint = 32;
constexpr double kLargest = 1e15;  // elements and bytes: sums of them stay exact

// Elements of its tensors, the operands too or the results alone.
struct Moved {
  double operands = 0, results = 0;
};
Moved moved_by(const Graph& g, const Node& n) {
  Moved out;
  auto count = [&](ValueId v) {
    const ir::Type& t = g.value(v).type;
    return t.is_tensor() ? static_cast<double>(elements(t.tensor)) : 0;
  };
  for_each_value(n, [&](ValueId v) { out.operands += count(v); });
  for (ValueId v : n.outputs) out.results += count(v);
  return out;
}

// Multiplications of a product, from its shapes alone: of (m, k), (k, n) and (m, n) the root of the
// product of all sizes is m k n.
double multiplications(const Graph& g, const Node& n) {
  std::vector<double> sizes;
  for_each_value(n, [&](ValueId v) {
    if (const ir::Type& t = g.value(v).type; t.is_tensor())
      sizes.push_back(static_cast<double>(elements(t.tensor)));
  });
  std::ranges::sort(sizes, std::greater<>());
  double product = moved_by(g, n).results;
  for (size_t i = 0; i < std::min<size_t>(2, sizes.size()); ++i) product *= sizes[i];
  return std::sqrt(product);
}

std::string_view kind_of_call(const Graph& g, const Node& n) {
  if (auto c = ops::contraction_of(g, n)) return ops::name(c->what.kind);
  return "call";
}

RecomputeRule loop_rule(const Graph& g, const Node& n, const ops::OpInfo& info) {
  const Moved moved = moved_by(g, n);
  if (info.element && info.has(ops::Creation)) return {Recompute::Free, "constant", 0};
  const bool folds = info.reduction != nullptr;
  if (!folds && info.has(ops::Cheap))
    return {Recompute::Fusible, "cheap", moved.results * tuning::recompute_cheap};
  if (!folds && info.has(ops::Pointwise))
    return {Recompute::Fusible, "pointwise", moved.results * tuning::recompute_function};
  const double cost = (moved.operands + moved.results) * tuning::recompute_function;
  return {Recompute::Costly, folds ? "reduction" : "loops", cost};
}

}  // namespace

bool is_loop(const Graph& g, const Node& n) {
  if (n.kind == NodeKind::Input || n.kind == NodeKind::Attribute) return true;
  const ops::OpInfo* info = ops::find(n);
  if (!info || info->scatter || ops::contraction_of(g, n)) return false;
  if (info->has(ops::View)) return true;
  if (ops::has_unknown_number(g, n, *info)) return false;
  return (info->element && ops::rules_hold(g, n, *info)) || info->decomposition;
}

RecomputeRule recompute_rule(const Graph& g, const Node& n) {
  if (n.kind == NodeKind::Region) return {Recompute::Never, n.target, 0};
  if (n.target == ops::kNumber) return {Recompute::Free, "number", 0};
  // The number in a tensor. One that is a size is saved as a number.
  if (n.target == ops::kReadNumber && g.value(n.outputs[0]).type.kind != ir::Type::Kind::Int)
    return {Recompute::Free, "number", 0};
  const ops::OpInfo* info = ops::find(n);
  if (info && info->has(ops::Random)) return {Recompute::Never, "random", 0};
  if (info && info->has(ops::DataDependent)) return {Recompute::Never, "depends on data", 0};
  if (info && info->has(ops::Effect)) return {Recompute::Never, "has an effect", 0};
  // Its kernel leaves what the gradient wants in grad mode alone.
  if (n.target == "aten.mkldnn_rnn_layer.default") return {Recompute::Never, "recurrent layer", 0};
  if (!passes::is_mergeable(n)) return {Recompute::Never, "unknown", 0};
  if (info && info->has(ops::View)) return {Recompute::Free, "view", 0};
  if (is_loop(g, n)) return loop_rule(g, n, *info);
  const Moved moved = moved_by(g, n);
  return {Recompute::Costly, kind_of_call(g, n),
          multiplications(g, n) * tuning::recompute_product +
              (moved.operands + moved.results) * tuning::recompute_function};
}

int64_t elements(const TensorType& t) {
  double n = 1;
  for (ir::Expr e : t.sizes) {
    const int64_t size =
        sym::evaluate(e, [](ir::Expr s) { return sym::symbol_hint(s).value_or(kSizeWithoutHint); });
    n *= static_cast<double>(std::max<int64_t>(size, 0));
  }
  return static_cast<int64_t>(std::min(n, kLargest));
}

int64_t bytes(const TensorType& t) {
  return elements(t) * static_cast<int64_t>(ir::byte_size(t.dtype));
}

}  // namespace oxy::autograd
