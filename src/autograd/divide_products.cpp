// One walk: where two scans are multiplied that are each other's rest.
#include "autograd/divide_products.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "passes/rewrite.h"

namespace oxy::autograd {
namespace {

using ir::Arg;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Factors in rows along a dimension.
struct Rows {
  ValueId factors;
  int64_t dim;
  auto operator<=>(const Rows&) const = default;
};

const Node* made_by(const Graph& g, const Arg& a, std::string_view op) {
  if (!a.is_value()) return nullptr;
  const Node& n = g.def(a.value());
  return n.target == op ? &n : nullptr;
}

bool is_flipped(const Node& n, int64_t dim) {
  const auto dims = passes::integers(n.arg(1));
  return dims && *dims == std::vector{dim};
}

// The scan of 1 and all factors but the last; reversed, of 1 and all but the first, from behind.
std::optional<Rows> scanned(const Graph& g, const Node* scan, bool reversed) {
  if (scan == nullptr || !scan->arg(2).is_none()) return std::nullopt;
  const auto dim = passes::integer(scan->arg(1));
  const Node* cat = made_by(g, scan->arg(0), "aten.cat.default");
  const auto* parts = cat == nullptr ? nullptr : cat->arg(0).get_if<ir::List>();
  if (!dim || parts == nullptr || parts->items.size() != 2 || cat->arg(1) != Arg(*dim))
    return std::nullopt;
  if (made_by(g, parts->items[0], "aten.ones.default") == nullptr) return std::nullopt;
  Arg part = parts->items[1];
  if (reversed) {
    const Node* flip = made_by(g, part, "aten.flip.default");
    if (flip == nullptr || !is_flipped(*flip, *dim)) return std::nullopt;
    part = flip->arg(0);
  }
  const Node* slice = made_by(g, part, "aten.slice.Tensor");
  const int64_t begin = reversed ? 1 : 0;
  if (slice == nullptr || slice->arg(1) != Arg(*dim) || passes::integer(slice->arg(2)) != begin ||
      (!slice->arg(4).is_none() && passes::integer(slice->arg(4)) != 1))
    return std::nullopt;
  const auto d = static_cast<size_t>(*dim);
  const ValueId all = slice->arg(0).value();
  const ir::Expr size = g.tensor_type(all).sizes[d];
  if (g.tensor_type(part.value()).sizes[d] != size - 1) return std::nullopt;
  return Rows{all, *dim};
}

// Of `n`, which multiplies for each factor those in front of it with those behind it.
std::optional<Rows> rows_of(const Graph& g, const Node& n) {
  const auto front = scanned(g, made_by(g, n.arg(0), "aten.cumprod.default"), false);
  const Node* flip = made_by(g, n.arg(1), "aten.flip.default");
  if (!front || flip == nullptr || !is_flipped(*flip, front->dim)) return std::nullopt;
  const auto behind = scanned(g, made_by(g, flip->arg(0), "aten.cumprod.default"), true);
  return front == behind && ir::is_floating(g.tensor_type(front->factors).dtype) ? front
                                                                                 : std::nullopt;
}

// What the forward has multiplied, with a dimension of 1 where the rows have theirs.
struct Product {
  ValueId value;
  bool of_all = false;
};

std::optional<Product> product_of(ops::Rewriter& r, const Rows& rows) {
  const Graph& g = r.graph();
  const ir::TensorType& t = g.tensor_type(rows.factors);
  std::vector<Arg> same{rows.factors};  // the factors, in another shape or dtype
  constexpr std::string_view kSame[] = {"aten.view.default", "aten._unsafe_view.default",
                                        "aten.clone.default", "aten._to_copy.default"};
  for (const Node* n = &g.def(rows.factors); std::ranges::find(kSame, n->target) != std::end(kSame);
       n = &g.def(same.back().value()))
    same.push_back(n->arg(0));
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    const bool all = n.target == "aten.prod.default";
    if (n.dead || (!all && n.target != "aten.prod.dim_int")) continue;
    const ValueId out = n.outputs[0];
    if (std::ranges::find(same, n.arg(0)) == same.end() || g.tensor_type(out).dtype != t.dtype)
      continue;
    if (all && t.dim() == 1) return Product{r.view(out, {1}), true};
    const auto dim = all ? std::nullopt : passes::integer(n.arg(1));
    const bool of_rows = dim && passes::tensor_of(g, n.arg(0))->dim() == t.dim() &&
                         (*dim < 0 ? *dim + t.dim() : *dim) == rows.dim;
    if (of_rows && n.arg(2) == Arg(true)) return Product{out};
    if (of_rows) return Product{r.call("aten.unsqueeze.default", {out, rows.dim})};
  }
  return std::nullopt;
}

std::optional<ValueId> others(ops::Rewriter& r, const Rows& rows, const ir::TensorType& like) {
  const ValueId x = rows.factors;
  const ir::TensorType t = r.type(x);
  const auto product = product_of(r, rows);
  if (!product) return std::nullopt;
  const DType wide = ops::opmath(t.dtype);
  const auto number = [&](double v, DType d) { return r.full({}, v, d, t.device); };
  const auto where = [&](ValueId mask, ValueId a, ValueId b) {
    return r.call("aten.where.self", {mask, a, b});
  };
  const auto is = [&](ValueId a, double b) { return r.call("aten.eq.Scalar", {a, b}); };
  const auto count = [&](ValueId mask) {
    return r.sum(where(mask, number(1, wide), number(0, wide)), {rows.dim}, true);
  };
  const ValueId zero = is(x, 0), finite = is(r.sub(x, x), 0), zeros = count(zero);
  const ValueId rest =
      r.call("aten.prod.dim_int", {r.widen(where(zero, number(1, t.dtype), x)), rows.dim, true});
  // 0 times what is no number is none, but for what eager sees at once.
  const ValueId endless = where(finite, number(0, wide), number(1, wide));
  const ValueId beside = r.sub(r.sum(endless, {rows.dim}, true), endless);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ValueId is_zero = is(beside, 0);
  if (product->of_all)
    is_zero = r.call("aten.logical_or.default", {is_zero, r.call("aten.gt.Scalar", {zeros, 1})});
  const ValueId none = where(is_zero, number(0, t.dtype), number(nan, t.dtype));
  const ValueId only = r.call("aten.logical_and.default", {zero, is(zeros, 1)});
  const ValueId at_zeros = where(only, r.cast(rest, t.dtype), none);
  ValueId quotients = r.div(product->value, x);
  if (!product->of_all && t.dim() > 1) {
    // With a zero in any row, eager multiplies in all rows, also what has no quotient.
    const ValueId is_nan = r.call("aten.ne.Tensor", {x, x});
    const ValueId sign = where(r.call("aten.lt.Scalar", {x, 0}), number(-1, wide), number(1, wide));
    const ValueId factors = where(finite, r.widen(x), sign);
    const ValueId product_of_factors = r.call("aten.prod.dim_int", {factors, rows.dim, true});
    const ValueId beyond = where(is(beside, 0), number(1, wide),
                                 number(std::numeric_limits<double>::infinity(), wide));
    const ValueId nans = where(is_nan, number(1, wide), number(0, wide));
    const ValueId no_nan = is(r.sub(r.sum(nans, {rows.dim}, true), nans), 0);
    const ValueId multiplied = r.cast(r.mul(r.mul(product_of_factors, sign), beyond), t.dtype);
    std::vector<int64_t> all(static_cast<size_t>(t.dim()));
    std::iota(all.begin(), all.end(), 0);
    const ValueId no_zero = is(r.sum(zeros, all, true), 0);
    quotients = where(r.call("aten.logical_or.default", {finite, no_zero}), quotients,
                      where(no_nan, multiplied, number(nan, t.dtype)));
  }
  return r.as(where(is(zeros, 0), quotients, at_zeros), like);
}

}  // namespace

void divide_products(Graph& g, std::vector<bool>& formulas) {
  const std::vector<NodeId> order = g.order();
  passes::Replacements replacements(g);
  for (NodeId id : order) {
    Node& n = g.node(id);
    if (id.index >= formulas.size() || !formulas[id.index] || n.target != "aten.mul.Tensor")
      continue;
    const auto rows = rows_of(g, n);
    if (!rows) continue;
    const size_t first = g.node_count();
    formulas.resize(first);
    const ValueId out = n.outputs[0];
    ops::Rewriter r(g, id);
    const auto made = passes::where_shapes_are_known(
        g, [&] { return others(r, *rows, ir::TensorType(g.tensor_type(out))); });
    if (made && same_place(g.value(*made).type, g.value(out).type))
      replacements.replace_unchecked(out, *made);
    else
      passes::kill_from(g, first);
    formulas.resize(g.node_count(), true);
  }
  replacements.apply();
}

}  // namespace oxy::autograd
