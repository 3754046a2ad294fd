// Recognises the copies of a circular padding and reads the source at wrapped indices instead.
#include "ops/circular_pad.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

struct Border {
  int64_t before = 0, after = 0;
};

// A slice or slice_scatter of constant bounds and step 1; `at` is its argument `dim`.
struct Slab {
  int64_t dim = 0, begin = 0, end = 0;
  bool operator<(const Slab& o) const {
    return std::tie(dim, begin, end) < std::tie(o.dim, o.begin, o.end);
  }
};

std::optional<Slab> slab_of(const ir::Graph& g, const ir::Node& n, size_t at) {
  const Args a(g, n);
  const TensorType* t = a.tensor(0);
  auto dim = a.integer(at, 0), begin = a.integer(at + 1, 0), end = a.integer(at + 2);
  if (!t || !dim || !begin || !end || a.integer(at + 3, 1) != std::optional<int64_t>(1)) return {};
  if (!(dim = wrap_dim(*dim, t->dim())) || *begin < 0 || *end <= *begin) return {};
  const Expr size = t->sizes[static_cast<size_t>(*dim)];
  if (!size.is_const() || *begin >= size.value()) return {};
  return Slab{*dim, *begin, std::min(*end, size.value())};
}

const ir::Node* call_of(const ir::Graph& g, ValueId v, std::string_view target) {
  const ir::Node& n = g.def(v);
  return n.kind == ir::NodeKind::CallOp && n.target == target ? &n : nullptr;
}

// What a chain of slice_scatters does, from its last one back to the operand.
struct Chain {
  ValueId operand;
  std::map<int64_t, Slab> middle;  // by dimension: where the operand lies
  std::map<Slab, Slab> copies;     // to, from
};

// `v` copies a slab of `whole`: which.
std::optional<Slab> copied_slab(const ir::Graph& g, ValueId v, ValueId whole) {
  const ir::Node* copy = call_of(g, v, "aten.copy.default");
  if (!copy || !copy->arg(1).is_value()) return {};
  const ir::Node* slice = call_of(g, copy->arg(1).value(), "aten.slice.Tensor");
  if (!slice || !slice->arg(0).is_value() || slice->arg(0).value() != whole) return {};
  return slab_of(g, *slice, 1);
}

bool follow_middle(const ir::Graph& g, const ir::Node* n, Chain& chain) {
  for (;;) {
    auto to = slab_of(g, *n, 2);
    if (!to || !chain.middle.emplace(to->dim, *to).second) return false;
    const ValueId source = n->arg(1).value();
    if (const ir::Node* copy = call_of(g, source, "aten.copy.default")) {
      if (!copy->arg(1).is_value()) return false;
      chain.operand = copy->arg(1).value();
      return true;
    }
    n = call_of(g, source, "aten.slice_scatter.default");
    if (!n) return false;
  }
}

std::optional<Chain> follow(const ir::Graph& g, const ir::Node& last) {
  Chain chain;
  const ir::Node* n = &last;
  for (;;) {
    if (!n->arg(0).is_value() || !n->arg(1).is_value()) return {};
    const ValueId whole = n->arg(0).value();
    auto from = copied_slab(g, n->arg(1).value(), whole);
    if (!from) break;
    auto to = slab_of(g, *n, 2);
    if (!to || to->dim != from->dim || !chain.copies.emplace(*to, *from).second) return {};
    n = call_of(g, whole, "aten.slice_scatter.default");
    if (!n) return {};
  }
  if (chain.copies.empty() || !follow_middle(g, n, chain)) return {};
  return chain;
}

// The borders, where the copies fill all of them and nothing else. Each reads from the middle of
// its dimension, all along the other ones, so their order does not matter.
std::optional<std::vector<Border>> borders_of(const TensorType& whole, const TensorType& operand,
                                              const Chain& chain) {
  if (operand.sizes.size() != whole.sizes.size() || operand.dtype != whole.dtype) return {};
  std::vector<Border> borders(whole.sizes.size());
  size_t used = 0;
  for (size_t d = 0; d < borders.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (!whole.sizes[d].is_const() || !operand.sizes[d].is_const()) return {};
    const int64_t size = whole.sizes[d].value(), n = operand.sizes[d].value();
    auto middle = chain.middle.find(dim);
    const int64_t begin = middle == chain.middle.end() ? 0 : middle->second.begin;
    const int64_t end = middle == chain.middle.end() ? size : middle->second.end;
    if (end - begin != n || begin > n || size - end > n) return {};
    borders[d] = {begin, size - end};
    const auto filled = [&](Slab to, Slab from) {
      auto it = chain.copies.find(to);
      const bool right =
          it != chain.copies.end() && it->second.begin == from.begin && it->second.end == from.end;
      used += right;
      return right;
    };
    if (begin > 0 && !filled({dim, 0, begin}, {dim, n, n + begin})) return {};
    if (end < size && !filled({dim, end, size}, {dim, begin, begin + size - end})) return {};
  }
  return used == chain.copies.size() ? std::optional(std::move(borders)) : std::nullopt;
}

// The list names the last dimension first.
std::optional<std::vector<Border>> borders(const Args& a) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> list;
  if (!t || !a.integers(1, list) || list.size() % 2 != 0 || list.size() > 2 * t->sizes.size())
    return {};
  std::vector<Border> out(t->sizes.size());
  for (size_t k = 0; k < list.size() / 2; ++k) {
    const size_t d = out.size() - 1 - k;
    out[d] = {list[2 * k], list[2 * k + 1]};
    if (!t->sizes[d].is_const() || list[2 * k] < 0 || list[2 * k + 1] < 0) return {};
    if (std::max(out[d].before, out[d].after) > t->sizes[d].value()) return {};
  }
  return out;
}

}  // namespace

bool decompose_circular_pad(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto chain = follow(r.graph(), n);
  if (!chain) return false;
  const TensorType whole = r.type(n.outputs[0]), operand = r.type(chain->operand);
  auto found = borders_of(whole, operand, *chain);
  if (!found || found->size() < 2 || !is_computable(operand.dtype)) return false;
  const auto is_padded = [&](size_t d) { return (*found)[d].before + (*found)[d].after > 0; };
  // ATen pads all dimensions but the batch and the channels, or but the channels.
  const size_t first = found->size() > 2 && !is_padded(1) ? 2 : 1;
  if (is_padded(0) || (first == 2 && is_padded(1))) return false;
  std::vector<int64_t> list;
  for (size_t d = found->size(); d-- > first;) {
    list.push_back((*found)[d].before);
    list.push_back((*found)[d].after);
  }
  return give(out, r.call("aten._pad_circular.default", {chain->operand, list_of(list)}));
}

bool shape_circular_pad(const Args& a, Types& out) {
  auto b = borders(a);
  if (!b) return false;
  const TensorType& t = *a.tensor(0);
  Sizes sizes = t.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = sizes[d] + (*b)[d].before + (*b)[d].after;
  return give(out, fresh(t, std::move(sizes)));
}

// The last dimension in three parts, so that each is read along a line.
Scalar circular_pad(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto b = *borders(e.args);
  const ValueId x = e.args[0].value();
  Index at = e.index;
  const size_t last = at.size() - 1;
  for (size_t d = 0; d < last; ++d) {
    if (b[d].before + b[d].after == 0) continue;
    at[d] = sym::mod(at[d] - Expr(b[d].before) + t.sizes[d], t.sizes[d]);
  }
  const Expr size = t.sizes[last], p = at[last] - Expr(b[last].before);
  const Scalar place = e.b.index(p);
  const Scalar in_front = e.op(LoopOp::Lt, place, e.b.index(0));
  const Scalar behind = e.op(LoopOp::Ge, place, e.b.index(size));
  const Scalar inside = e.op(LoopOp::And, e.op(LoopOp::Ge, place, e.b.index(0)),
                             e.op(LoopOp::Lt, place, e.b.index(size)));
  const auto read = [&](Expr i, Scalar mask, Scalar other) {
    at[last] = i;
    return e.b.load_masked(x, at, mask, other);
  };
  Scalar v = e.c(0, e.result());
  if (b[last].before > 0) v = read(p + size, in_front, v);
  if (b[last].after > 0) v = read(p - size, behind, v);
  return read(p, inside, v);
}

}  // namespace oxy::ops
