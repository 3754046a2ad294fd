// Copies that move elements and repeat some of them: flips, rolls, repetitions, padding by
// reflection and replication, shuffles of channels and pixels, diagonals, patches of images.
#include <algorithm>
#include <map>

#include "ops/families.h"
#include "ops/padding.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// A fresh tensor in the memory format of `t`, an image where it has `rank` dimensions. ATen takes a
// volume without a batch for an image.
bool push_image(const TensorType& t, Sizes sizes, size_t rank, std::vector<ir::Type>& out) {
  TensorType r = fresh(t, std::move(sizes));
  const size_t size = r.sizes.size();
  if (size == rank || (rank == 5 && size == 4)) {
    auto last = suggests_channels_last(t);
    if (!last) return false;
    if (*last) r.strides = channels_last_strides(r.sizes);
  }
  return give(out, std::move(r));
}

}  // namespace

std::optional<std::vector<Borders>> borders(const Args& a, size_t dims, bool cut) {
  Sizes list;
  if (!a.exprs(1, list) || list.size() != 2 * dims) return std::nullopt;
  std::vector<Borders> result(dims);
  for (Expr e : list) {
    if (!cut && sym::known_less(e, 0).value_or(true)) return std::nullopt;
  }
  for (size_t k = 0; k < dims; ++k) result[dims - 1 - k] = {list[2 * k], list[2 * k + 1]};
  return result;
}

// Eager refuses bool, and borders that are not shorter than what they reflect.
bool shape_of_padded(const Args& a, bool reflect, size_t dims, Types& out) {
  const TensorType* t = a.tensor(0);
  auto edges = borders(a, dims, !reflect);
  if (!t || !edges || t->dtype == DType::B8) return false;
  if (t->sizes.size() != dims + 1 && t->sizes.size() != dims + 2) return false;
  Sizes sizes = t->sizes;
  for (Expr e : sizes) {
    if (!sym::known_less(0, e).value_or(false)) return false;
  }
  for (size_t k = 0; k < dims; ++k) {
    Expr& size = sizes[sizes.size() - dims + k];
    for (Expr edge : {(*edges)[k].before, (*edges)[k].after}) {
      if (reflect && !sym::known_less(edge, size).value_or(false)) return false;
    }
    size = size + (*edges)[k].before + (*edges)[k].after;
    if (!reflect && !sym::known_less(0, size).value_or(false)) return false;
  }
  return push_image(*t, std::move(sizes), dims == 1 ? 0 : dims + 2, out);
}

namespace {

Scalar zero(Element& e) { return e.c(0, e.result()); }

// ---- reflection_pad, replication_pad ----

// Where an index before the first or after the last element reads: itself mirrored, or the edge.
template <bool Reflect>
Expr inside(Expr at, Expr size) {
  const Expr last = size - Expr(1);
  if (!Reflect) return sym::max(sym::min(at, last), Expr(0));
  const Expr positive = sym::max(at, Expr(0) - at);
  return sym::min(positive, last * Expr(2) - positive);
}

// The last dimension in three parts, so that each is read along a line.
template <bool Reflect>
Scalar padded_line(Element& e, Index at, Expr before, Expr after) {
  const size_t d = at.size() - 1;
  const Expr size = e.args.tensor(0)->sizes[d], last = size - Expr(1), p = at[d] - before;
  Index left = at, middle = at, right = at;
  left[d] = Reflect ? Expr(0) - p : Expr(0);
  middle[d] = p;
  right[d] = Reflect ? last * Expr(2) - p : last;
  Scalar v = zero(e);
  if (!before.is_const(0)) v = e.load(0, left, e.op(LoopOp::Lt, e.b.index(p), e.b.index(0)), v);
  if (!after.is_const(0)) v = e.load(0, right, e.op(LoopOp::Gt, e.b.index(p), e.b.index(last)), v);
  return e.load(0, middle, e.within(p, 0, size), v);
}

template <bool Reflect, size_t Dims>
Scalar pad(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto edges = *borders(e.args, Dims, !Reflect);
  const size_t first = t.sizes.size() - Dims;
  Index at = e.index;
  for (size_t k = 0; k + 1 < Dims; ++k) {
    at[first + k] = inside<Reflect>(at[first + k] - edges[k].before, t.sizes[first + k]);
  }
  return padded_line<Reflect>(e, at, edges.back().before, edges.back().after);
}

template <bool Reflect, size_t Dims>
bool shape_pad(const Args& a, Types& out) {
  return shape_of_padded(a, Reflect, Dims, out);
}

// ---- circular padding ----
// It reaches us as ATen writes it: an empty tensor, the operand copied into its middle, then for
// each border a slice of the result copied into another slice of it. The copies become one op,
// which reads the operand at wrapped indices.

// A slice or slice_scatter of constant bounds and step 1; `at` is its argument `dim`.
struct Slab {
  int64_t dim = 0, begin = 0, end = 0;
  friend auto operator<=>(const Slab&, const Slab&) = default;
};

std::optional<Slab> slab_of(const ir::Graph& g, const ir::Node& n, size_t at) {
  const Args a(g, n);
  const TensorType* t = a.tensor(0);
  auto dim = t ? a.dim(at, t->dim(), 0) : std::nullopt;
  auto begin = a.integer(at + 1, 0), end = a.integer(at + 2);
  if (!dim || !begin || !end || a.integer(at + 3, 1) != 1 || *begin < 0 || *end <= *begin)
    return {};
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
std::optional<std::vector<Borders>> borders_of(const TensorType& whole, const TensorType& operand,
                                               const Chain& chain) {
  if (operand.sizes.size() != whole.sizes.size() || operand.dtype != whole.dtype) return {};
  std::vector<Borders> borders(whole.sizes.size());
  size_t used = 0;
  for (size_t d = 0; d < borders.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (!whole.sizes[d].is_const() || !operand.sizes[d].is_const()) return {};
    const int64_t size = whole.sizes[d].value(), n = operand.sizes[d].value();
    const auto middle = chain.middle.find(dim);
    const auto [_, begin, end] = middle == chain.middle.end() ? Slab{dim, 0, size} : middle->second;
    if (end - begin != n || begin > n || size - end > n) return {};
    borders[d] = {begin, size - end};
    const auto filled = [&](Slab to, Slab from) {
      const auto it = chain.copies.find(to);
      if (it == chain.copies.end() || it->second != from) return false;
      ++used;
      return true;
    };
    if (begin > 0 && !filled({dim, 0, begin}, {dim, n, n + begin})) return {};
    if (end < size && !filled({dim, end, size}, {dim, begin, begin + size - end})) return {};
  }
  return used == chain.copies.size() ? std::optional(std::move(borders)) : std::nullopt;
}

// Of a padding that is not longer than what it repeats, all of it constant.
std::optional<std::vector<Borders>> ring_borders(const Args& a) {
  const TensorType* t = a.tensor(0);
  Sizes list;
  if (!t || !a.exprs(1, list) || list.size() > 2 * t->sizes.size()) return {};
  auto out = borders(a, list.size() / 2);
  if (!out) return {};
  out->insert(out->begin(), t->sizes.size() - out->size(), Borders());
  for (size_t d = t->sizes.size() - list.size() / 2; d < out->size(); ++d) {
    for (Expr e : {(*out)[d].before, (*out)[d].after}) {
      if (!e.is_const() || !t->sizes[d].is_const() || e.value() > t->sizes[d].value()) return {};
    }
  }
  return out;
}

bool shape_circular_pad(const Args& a, Types& out) {
  auto b = ring_borders(a);
  if (!b) return false;
  const TensorType& t = *a.tensor(0);
  Sizes sizes = t.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = sizes[d] + (*b)[d].before + (*b)[d].after;
  return give(out, fresh(t, std::move(sizes)));
}

// The last dimension in three parts, so that each is read along a line.
Scalar circular_pad(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto b = *ring_borders(e.args);
  Index at = e.index;
  const size_t last = at.size() - 1;
  for (size_t d = 0; d < last; ++d) {
    if ((b[d].before + b[d].after).is_const(0)) continue;
    at[d] = sym::mod(at[d] - b[d].before + t.sizes[d], t.sizes[d]);
  }
  const Expr size = t.sizes[last], p = at[last] - b[last].before;
  const Scalar place = e.b.index(p);
  const Scalar in_front = e.op(LoopOp::Lt, place, e.b.index(0));
  const Scalar behind = e.op(LoopOp::Ge, place, e.b.index(size));
  const Scalar inside = e.op(LoopOp::And, e.op(LoopOp::Ge, place, e.b.index(0)),
                             e.op(LoopOp::Lt, place, e.b.index(size)));
  const auto read = [&](Expr i, Scalar mask, Scalar other) {
    at[last] = i;
    return e.load(0, at, mask, other);
  };
  Scalar v = e.c(0, e.result());
  if (!b[last].before.is_const(0)) v = read(p + size, in_front, v);
  if (!b[last].after.is_const(0)) v = read(p - size, behind, v);
  return read(p, inside, v);
}

// ---- pixels and channels ----

// [.., c*r*r, h, w] to [.., c, h*r, w*r]
Scalar pixel_shuffle(Element& e) {
  const Expr r = *e.args.expr(1);
  const size_t n = e.index.size();
  const Expr row = e.index[n - 2], column = e.index[n - 1];
  Index at = e.index;
  at[n - 3] = e.index[n - 3] * r * r + sym::mod(row, r) * r + sym::mod(column, r);
  at[n - 2] = sym::floordiv(row, r), at[n - 1] = sym::floordiv(column, r);
  return e.load(0, at);
}

Scalar pixel_unshuffle(Element& e) {
  const Expr r = *e.args.expr(1);
  const size_t n = e.index.size();
  Index at = e.index;
  const Expr channel = e.index[n - 3];
  at[n - 3] = sym::floordiv(channel, r * r);
  at[n - 2] = e.index[n - 2] * r + sym::mod(sym::floordiv(channel, r), r);
  at[n - 1] = e.index[n - 1] * r + sym::mod(channel, r);
  return e.load(0, at);
}

bool shape_pixel_shuffle(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto r = a.integer(1);
  if (!t || t->dim() < 3 || !r || *r <= 0 || t->numel().is_const(0)) return false;
  Sizes sizes = t->sizes;
  const size_t n = sizes.size();
  if (!sym::known_equal(sym::mod(sizes[n - 3], Expr(*r * *r)), 0).value_or(false)) return false;
  sizes[n - 3] = sym::floordiv(sizes[n - 3], Expr(*r * *r));
  sizes[n - 2] *= Expr(*r), sizes[n - 1] *= Expr(*r);
  return push_image(*t, std::move(sizes), 4, out);
}

bool shape_pixel_unshuffle(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto r = a.integer(1);
  if (!t || t->dim() < 3 || !r || *r <= 0) return false;
  Sizes sizes = t->sizes;
  const size_t n = sizes.size();
  for (Expr e : sizes) {
    if (!sym::known_less(0, e).value_or(false)) return false;
  }
  for (size_t d : {n - 2, n - 1}) {
    if (!sym::known_equal(sym::mod(sizes[d], *r), 0).value_or(false)) return false;
    sizes[d] = sym::floordiv(sizes[d], *r);
  }
  sizes[n - 3] *= Expr(*r * *r);
  return push_image(*t, std::move(sizes), 4, out);
}

bool shape_channel_shuffle(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto groups = a.integer(1);
  if (!t || t->dim() != 4 || !groups || *groups <= 0 || t->numel().is_const(0)) return false;
  if (!sym::known_equal(sym::mod(t->sizes[1], Expr(*groups)), 0).value_or(false)) return false;
  return push_image(*t, t->sizes, 4, out);
}

Scalar channel_shuffle(Element& e) {
  const Expr groups = *e.args.expr(1), channel = e.index[1];
  const Expr of_group = sym::floordiv(e.args.tensor(0)->sizes[1], groups);
  Index at = e.index;
  at[1] = sym::mod(channel, groups) * of_group + sym::floordiv(channel, groups);
  return e.load(0, at);
}

bool applies_known_factor(const ir::Graph& g, const ir::Node& n) {
  auto factor = Args(g, n).integer(1);
  return has_computable_types(g, n) && factor && *factor > 0 &&
         !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

// ---- diagonals ----

// Where an element of a result lies on the diagonal that its dimensions d1 and d2 have at `offset`,
// whose place stands last in the index; and whether it does.
std::pair<Index, Scalar> on_diagonal(Element& e, int64_t offset, int64_t d1, int64_t d2) {
  const Expr i = e.index[d1], j = e.index[d2];
  Index at;
  for (int64_t d = 0; d < static_cast<int64_t>(e.index.size()); ++d) {
    if (d != d1 && d != d2) at.push_back(e.index[d]);
  }
  at.push_back(offset >= 0 ? i : j);
  return {at, e.op(LoopOp::Eq, e.b.index(j), e.b.index(i + Expr(offset)))};
}

// self, src, offset, dim1, dim2. The source has the place on the diagonal last.
Scalar diagonal_scatter(Element& e) {
  const auto rank = static_cast<int64_t>(e.index.size());
  const auto [at, inside] =
      on_diagonal(e, *e.args.integer(2, 0), *e.args.dim(3, rank, 0), *e.args.dim(4, rank, 1));
  return e.load(1, at, inside, e.load(0));
}

bool applies_diagonal_scatter(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) &&
         g.tensor_type(n.arg(0).value()).dtype == g.tensor_type(n.arg(1).value()).dtype;
}

// self, offset, dim1, dim2 (of the result). The operand's last dimension is the diagonal.
bool shape_diag_embed(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto offset = a.integer(1, 0);
  if (!t || t->dim() == 0 || !offset) return false;
  const int64_t rank = t->dim() + 1;
  auto d1 = a.dim(2, rank, rank - 2), d2 = a.dim(3, rank, rank - 1);
  if (!d1 || !d2 || *d1 == *d2) return false;
  if (*d1 > *d2) std::swap(d1, d2);
  Sizes sizes(t->sizes.begin(), t->sizes.end() - 1);
  const Expr length = t->sizes.back() + Expr(std::abs(*offset));
  for (const int64_t d : {*d1, *d2}) sizes.insert(sizes.begin() + d, length);
  return give(out, fresh(*t, std::move(sizes)));
}

Scalar diag_embed(Element& e) {
  const auto rank = static_cast<int64_t>(e.index.size());
  const auto [at, inside] = on_diagonal(e, *e.args.integer(1, 0), *e.args.dim(2, rank, rank - 2),
                                        *e.args.dim(3, rank, rank - 1));
  return e.load(0, at, inside, e.c(0, e.result()));
}

// ---- narrow_copy, rot90 ----

// Of self, dim, start, length: where it begins.
std::optional<Expr> narrow_start(const Args& a) {
  const TensorType* t = a.tensor(0);
  const auto dim = t ? a.dim(1, t->dim()) : std::nullopt;
  const auto start = a.expr(2);
  const auto negative = start ? sym::known_less(*start, 0) : std::nullopt;
  if (!dim || !negative || t->dim() == 0) return std::nullopt;
  return *negative ? t->sizes[static_cast<size_t>(*dim)] + *start : *start;
}

bool shape_narrow_copy(const Args& a, Types& out) {
  const auto start = narrow_start(a), length = a.expr(3);
  if (!start || !length) return false;
  const TensorType& t = *a.tensor(0);
  Sizes sizes = t.sizes;
  Expr& size = sizes[static_cast<size_t>(*a.dim(1, t.dim()))];
  for (Expr gap : {*start, *length, size - *start - *length})
    if (sym::known_less(gap, 0) != false) return false;
  size = *length;
  return give(out, fresh(t, std::move(sizes)));
}

Scalar narrow_copy(Element& e) {
  Index at = e.index;
  at[*e.args.dim(1, e.args.tensor(0)->dim())] += *narrow_start(e.args);
  return e.load(0, at);
}

bool applies_narrow_copy(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) && narrow_start(Args(g, n));
}

// Of self, k, dims: quarter turns from the first dimension to the second.
struct Turns {
  int64_t turns = 0, from = 0, to = 1;
};
std::optional<Turns> turns_of(const Args& a) {
  const TensorType* t = a.tensor(0);
  const auto k = a.integer(1, 1);
  std::vector<int64_t> dims;
  if (!t || !k || (!a.missing(2) && !a.integers(2, dims))) return std::nullopt;
  if (a.missing(2)) dims = {0, 1};
  if (dims.size() != 2) return std::nullopt;
  const auto from = wrap_dim(dims[0], t->dim()), to = wrap_dim(dims[1], t->dim());
  if (t->dim() < 2 || !from || !to || *from == *to) return std::nullopt;
  return Turns{((*k % 4) + 4) % 4, *from, *to};
}

// ATen flips, and exchanges the dimensions of what that gives.
bool shape_rot90(const Args& a, Types& out) {
  const auto turns = turns_of(a);
  if (!turns) return false;
  const TensorType& t = *a.tensor(0);
  if (turns->turns == 0) return give(out, fresh(t, t.sizes));
  auto flipped = empty_like(t);
  if (flipped && turns->turns != 2) {
    const auto x = static_cast<size_t>(turns->from), y = static_cast<size_t>(turns->to);
    std::swap(flipped->sizes[x], flipped->sizes[y]);
    std::swap(flipped->strides[x], flipped->strides[y]);
  }
  return give(out, std::move(flipped));
}

Scalar rot90(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto [turns, x, y] = *turns_of(e.args);
  const Expr i = e.index[x], j = e.index[y];
  const Expr last_i = t.sizes[x] - Expr(1), last_j = t.sizes[y] - Expr(1);
  Index at = e.index;
  if (turns == 1) at[x] = j, at[y] = last_j - i;
  if (turns == 2) at[x] = last_i - i, at[y] = last_j - j;
  if (turns == 3) at[x] = last_i - j, at[y] = i;
  return e.load(0, at);
}

// ---- im2col: self, kernel_size, dilation, padding, stride ----

struct Patches {
  std::vector<int64_t> kernel, dilation, padding, stride;
};

std::optional<Patches> patches(const Args& a) {
  Patches p;
  size_t at = 0;
  for (auto* list : {&p.kernel, &p.dilation, &p.padding, &p.stride}) {
    if (!a.integers(++at, *list) || list->size() != 2) return std::nullopt;
  }
  return p;
}

bool shape_im2col(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto p = patches(a);
  if (!t || !p || !ir::is_floating(t->dtype) || (t->dim() != 3 && t->dim() != 4)) return false;
  const auto positive = [](Expr e) { return sym::known_less(0, e).value_or(false); };
  if (!std::all_of(t->sizes.end() - 3, t->sizes.end(), positive)) return false;
  Sizes sizes(t->sizes.begin(), t->sizes.end() - 2);
  Expr places = 1;
  for (size_t k = 0; k < 2; ++k) {
    const int64_t reach = p->dilation[k] * (p->kernel[k] - 1) + 1;
    if (p->kernel[k] <= 0 || p->dilation[k] <= 0 || p->stride[k] <= 0 || p->padding[k] < 0)
      return false;
    const Expr room = t->sizes[sizes.size() + k] + Expr(2 * p->padding[k] - reach);
    if (sym::known_less(room, 0).value_or(true)) return false;
    places *= sym::floordiv(room, p->stride[k]) + Expr(1);
  }
  sizes.back() *= Expr(p->kernel[0] * p->kernel[1]);
  sizes.push_back(places);
  return give(out, fresh(*t, std::move(sizes)));
}

// [.., c, h, w] to [.., c * kernel, positions]
Scalar im2col(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const Patches p = *patches(e.args);
  const size_t n = t.sizes.size(), in = e.index.size() - 2;
  const auto steps = [&](size_t k) {
    const Expr span =
        t.sizes[n - 2 + k] + Expr(2 * p.padding[k] - p.dilation[k] * (p.kernel[k] - 1) - 1);
    return sym::floordiv(span, Expr(p.stride[k])) + Expr(1);
  };
  const Expr columns = steps(1), patch = e.index[in], place = e.index[in + 1];
  const Expr kernel[] = {sym::mod(sym::floordiv(patch, Expr(p.kernel[1])), Expr(p.kernel[0])),
                         sym::mod(patch, Expr(p.kernel[1]))};
  const Expr step[] = {sym::floordiv(place, columns), sym::mod(place, columns)};
  Index at(e.index.begin(), e.index.begin() + in);
  at.push_back(sym::floordiv(patch, Expr(p.kernel[0] * p.kernel[1])));
  std::optional<Scalar> mask;
  for (size_t k = 0; k < 2; ++k) {
    at.push_back(step[k] * Expr(p.stride[k]) + kernel[k] * Expr(p.dilation[k]) -
                 Expr(p.padding[k]));
    if (p.padding[k] == 0) continue;
    mask = e.both(mask, e.within(at.back(), 0, t.sizes[n - 2 + k]));
  }
  return mask ? e.load(0, at, mask, zero(e)) : e.load(0, at);
}

bool applies_im2col(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) && patches(Args(g, n)) &&
         !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

// ---- flip, roll, repeat ----

Scalar flip(Element& e) {
  std::vector<int64_t> dims;
  const TensorType& t = *e.args.tensor(0);
  e.args.integers(1, dims);
  wrap_dims(dims, t.dim());
  Index i = e.index;
  for (int64_t d : dims) {
    if (d < t.dim()) i[d] = t.sizes[d] - Expr(1) - e.index[d];
  }
  return e.load(0, i);
}

bool shape_flip(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> dims;
  if (!t || !a.integers(1, dims) || !wrap_dims(dims, t->dim())) return false;
  return give(out, empty_like(*t));
}

bool is_never_empty(const TensorType& t) {
  return std::ranges::all_of(t.sizes, [](Expr e) { return sym::known_less(0, e) == true; });
}

// Shifts by dimension; an empty list of dimensions rolls the flattened tensor.
bool shape_roll(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes shifts;
  std::vector<int64_t> dims;
  if (!t || !a.exprs(1, shifts) || (!a.missing(2) && !a.integers(2, dims))) return false;
  // Of an empty tensor eager keeps the layout, of an image sometimes.
  const bool maybe_kept = !dims.empty() && (t->dim() == 4 || t->dim() == 5);
  if (!t->is_row_major() && (maybe_kept || !is_never_empty(*t))) return false;
  if (dims.empty() ? shifts.size() != 1 : shifts.size() != dims.size()) return false;
  for (int64_t d : dims) {
    if (t->dim() == 0 || !wrap_dim(d, t->dim())) return false;
  }
  return give(out, fresh(*t, t->sizes));
}

// Of vectors of three along a dimension, both operands of one shape and dtype.
bool shape_cross(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *y = a.tensor(1);
  const auto dim = a.integer(2, -1);
  if (!x || !y || !dim || x->dtype != y->dtype || x->dtype == ir::DType::B8 ||
      !is_computable(x->dtype) || x->dim() != y->dim())
    return false;
  const auto d = wrap_dim(*dim, x->dim());
  if (!d || x->dim() == 0 || !sym::known_equal(x->sizes[*d], 3).value_or(false)) return false;
  for (size_t k = 0; k < x->sizes.size(); ++k)
    if (!sym::known_equal(x->sizes[k], y->sizes[k]).value_or(false)) return false;
  return give(out, fresh(*x, x->sizes));
}

Scalar cross(Element& e) {
  const size_t d = *wrap_dim(*e.args.integer(2, -1), e.args.tensor(0)->dim());
  const auto at = [&](size_t operand, int64_t step) {
    Index i = e.index;
    i[d] = sym::mod(i[d] + Expr(step), Expr(3));
    return e.cast(e.load(operand, i), e.compute());
  };
  const auto product = [&](Scalar x, Scalar y) {
    return e.cast(e.finish(e.mul(x, y)), e.compute());
  };
  const Scalar x = at(0, 1), y = at(1, 2), less = product(at(0, 2), at(1, 1));
  // Eager rounds the first product with the difference, but of halves and integers each step.
  if (ir::is_floating(e.result()) && !ir::is_reduced_float(e.result()))
    return e.fma(x, y, e.op(LoopOp::Neg, less));
  return e.finish(e.sub(product(x, y), less));
}

Scalar roll(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  Sizes shifts;
  std::vector<int64_t> dims;
  e.args.exprs(1, shifts);
  if (!e.args.missing(2)) e.args.integers(2, dims);
  if (dims.empty()) {
    const Sizes flat{t.numel()};
    Index linear = reshape_index(flat, t.sizes, e.index);
    linear[0] = sym::mod(linear[0] - shifts[0], flat[0]);
    return e.load(0, reshape_index(t.sizes, flat, linear));
  }
  Index i = e.index;
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t d = *wrap_dim(dims[k], t.dim());
    i[d] = sym::mod(i[d] - shifts[k], t.sizes[d]);
  }
  return e.load(0, i);
}

bool shape_repeat(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes repeats;
  if (!t || !a.exprs(1, repeats) || repeats.size() < t->sizes.size()) return false;
  const size_t lead = repeats.size() - t->sizes.size();
  for (size_t d = 0; d < t->sizes.size(); ++d) repeats[lead + d] *= t->sizes[d];
  return give(out, fresh(*t, std::move(repeats)));
}

Scalar repeat(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  Index i(t.sizes.size());
  const size_t lead = e.index.size() - i.size();
  for (size_t d = 0; d < i.size(); ++d) i[d] = sym::mod(e.index[lead + d], t.sizes[d]);
  return e.load(0, i);
}

bool applies_not_empty(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

constexpr OpInfo kRearrangeOps[] = {
#include "ops/rearrange.def"
};

}  // namespace

bool decompose_circular_pad(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto chain = follow(r.graph(), n);
  if (!chain) return false;
  const TensorType whole = r.type(n.outputs[0]), operand = r.type(chain->operand);
  auto found = borders_of(whole, operand, *chain);
  if (!found || found->size() < 2 || !is_computable(operand.dtype)) return false;
  const auto is_padded = [&](size_t d) {
    return !((*found)[d].before + (*found)[d].after).is_const(0);
  };
  // ATen pads all dimensions but the batch and the channels, or but the channels.
  const size_t first = found->size() > 2 && !is_padded(1) ? 2 : 1;
  if (is_padded(0) || (first == 2 && is_padded(1))) return false;
  Sizes list;
  for (size_t d = found->size(); d-- > first;)
    list.insert(list.end(), {(*found)[d].before, (*found)[d].after});
  return give(out, r.call("aten._pad_circular.default", {chain->operand, list_of(list)}));
}

std::span<const OpInfo> rearrange_ops() { return kRearrangeOps; }

}  // namespace oxy::ops
