// Copies that move elements and repeat some of them: flips, rolls, repetitions, padding by
// reflection and replication, shuffles of channels and pixels, diagonals, patches of images.
#include "ops/circular_pad.h"
#include "ops/element.h"
#include "ops/families.h"
#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"
#include "ops/shape_views.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

Scalar within(Element& e, Expr x, Expr size) {
  const Scalar i = e.b.index(x);
  return e.op(LoopOp::And, e.op(LoopOp::Ge, i, e.b.index(0)), e.op(LoopOp::Lt, i, e.b.index(size)));
}

Scalar zero(Element& e) { return e.c(0, e.result()); }

// ---- reflection_pad, replication_pad ----

// Elements before and after each of the last dimensions; the list names the last one first.
struct Borders {
  Expr before = 0, after = 0;
};

std::optional<std::vector<Borders>> borders(const Args& a, size_t dims) {
  Sizes list;
  if (!a.exprs(1, list) || list.size() != 2 * dims) return std::nullopt;
  std::vector<Borders> result(dims);
  for (size_t k = 0; k < dims; ++k) {
    for (Expr e : {list[2 * k], list[2 * k + 1]}) {
      if (sym::known_less(e, 0).value_or(true)) return std::nullopt;
    }
    result[dims - 1 - k] = {list[2 * k], list[2 * k + 1]};
  }
  return result;
}

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
  const ValueId x = e.args[0].value();
  const size_t d = at.size() - 1;
  const Expr size = e.args.tensor(0)->sizes[d], last = size - Expr(1), p = at[d] - before;
  Index left = at, middle = at, right = at;
  left[d] = Reflect ? Expr(0) - p : Expr(0);
  middle[d] = p;
  right[d] = Reflect ? last * Expr(2) - p : last;
  Scalar v = zero(e);
  if (!before.is_const(0)) {
    v = e.b.load_masked(x, left, e.op(LoopOp::Lt, e.b.index(p), e.b.index(0)), v);
  }
  if (!after.is_const(0)) {
    v = e.b.load_masked(x, right, e.op(LoopOp::Gt, e.b.index(p), e.b.index(last)), v);
  }
  return e.b.load_masked(x, middle, within(e, p, size), v);
}

template <bool Reflect, size_t Dims>
Scalar pad(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto edges = *borders(e.args, Dims);
  const size_t first = t.sizes.size() - Dims;
  Index at = e.index;
  for (size_t k = 0; k + 1 < Dims; ++k) {
    at[first + k] = inside<Reflect>(at[first + k] - edges[k].before, t.sizes[first + k]);
  }
  return padded_line<Reflect>(e, at, edges.back().before, edges.back().after);
}

template <size_t Dims>
Scalar reflect(Element& e) {
  return pad<true, Dims>(e);
}

template <size_t Dims>
Scalar replicate(Element& e) {
  return pad<false, Dims>(e);
}

// A fresh tensor in the memory format of `t`, an image where it has `rank` dimensions. ATen takes a
// volume without a batch for an image.
bool push_image(const TensorType& t, Sizes sizes, size_t rank, std::vector<ir::Type>& out) {
  TensorType r = fresh(t, std::move(sizes));
  const size_t size = r.sizes.size();
  if (size == rank || (rank == 5 && size == 4)) {
    auto last = suggests_channels_last(t);
    if (!last) return false;
    if (*last)
      r.strides = size == 4 ? channels_last_strides(r.sizes) : channels_last_3d_strides(r.sizes);
  }
  return give(out, std::move(r));
}

// With or without a batch. Eager refuses bool, and borders that are not shorter than what they
// reflect.
template <bool Reflect, size_t Dims>
bool shape_pad(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto edges = borders(a, Dims);
  if (!t || !edges || t->dtype == DType::B8) return false;
  if (t->sizes.size() != Dims + 1 && t->sizes.size() != Dims + 2) return false;
  Sizes sizes = t->sizes;
  for (Expr e : sizes) {
    if (!sym::known_less(0, e).value_or(false)) return false;
  }
  for (size_t k = 0; k < Dims; ++k) {
    Expr& size = sizes[sizes.size() - Dims + k];
    for (Expr edge : {(*edges)[k].before, (*edges)[k].after}) {
      if (Reflect && !sym::known_less(edge, size).value_or(false)) return false;
    }
    size = size + (*edges)[k].before + (*edges)[k].after;
  }
  return push_image(*t, std::move(sizes), Dims == 1 ? 0 : Dims + 2, out);
}

// ---- pixels and channels ----

// [.., c*r*r, h, w] to [.., c, h*r, w*r]
Scalar pixel_shuffle(Element& e) {
  const Expr r = *e.args.expr(1);
  const size_t n = e.index.size();
  Index at = e.index;
  const Expr row = e.index[n - 2], column = e.index[n - 1];
  at[n - 3] = e.index[n - 3] * r * r + sym::mod(row, r) * r + sym::mod(column, r);
  at[n - 2] = sym::floordiv(row, r);
  at[n - 1] = sym::floordiv(column, r);
  return e.b.load(e.args[0].value(), at);
}

Scalar pixel_unshuffle(Element& e) {
  const Expr r = *e.args.expr(1);
  const size_t n = e.index.size();
  Index at = e.index;
  const Expr channel = e.index[n - 3];
  at[n - 3] = sym::floordiv(channel, r * r);
  at[n - 2] = e.index[n - 2] * r + sym::mod(sym::floordiv(channel, r), r);
  at[n - 1] = e.index[n - 1] * r + sym::mod(channel, r);
  return e.b.load(e.args[0].value(), at);
}

bool shape_pixel_shuffle(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto r = a.integer(1);
  if (!t || t->dim() < 3 || !r || *r <= 0 || t->numel().is_const(0)) return false;
  Sizes sizes = t->sizes;
  const size_t n = sizes.size();
  if (!sym::known_equal(sym::mod(sizes[n - 3], Expr(*r * *r)), 0).value_or(false)) return false;
  sizes[n - 3] = sym::floordiv(sizes[n - 3], Expr(*r * *r));
  sizes[n - 2] = sizes[n - 2] * Expr(*r);
  sizes[n - 1] = sizes[n - 1] * Expr(*r);
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
  return e.b.load(e.args[0].value(), at);
}

bool applies_known_factor(const ir::Graph& g, const ir::Node& n) {
  auto factor = Args(g, n).integer(1);
  return has_computable_types(g, n) && factor && *factor > 0 &&
         !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

// ---- diagonals ----

// Of an index with the dimensions d1 and d2: whether it is on the diagonal, and the index without
// them, with the place on the diagonal last.
struct OnDiagonal {
  Scalar mask;
  Index index;
};

OnDiagonal on_diagonal(Element& e, int64_t offset, int64_t d1, int64_t d2) {
  const Expr i = e.index[d1], j = e.index[d2];
  Index rest;
  for (int64_t d = 0; d < static_cast<int64_t>(e.index.size()); ++d) {
    if (d != d1 && d != d2) rest.push_back(e.index[d]);
  }
  rest.push_back(offset >= 0 ? i : j);
  return {e.op(LoopOp::Eq, e.b.index(j), e.b.index(i + Expr(offset))), std::move(rest)};
}

// self, src, offset, dim1, dim2
Scalar diagonal_scatter(Element& e) {
  const auto rank = static_cast<int64_t>(e.index.size());
  const OnDiagonal at =
      on_diagonal(e, *e.args.integer(2, 0), *wrap_dim(*e.args.integer(3, 0), rank),
                  *wrap_dim(*e.args.integer(4, 1), rank));
  return e.b.load_masked(e.args[1].value(), at.index, at.mask, e.load(0));
}

bool applies_diagonal_scatter(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) &&
         g.tensor_type(n.arg(0).value()).dtype == g.tensor_type(n.arg(1).value()).dtype;
}

// ---- narrow_copy, rot90 ----

// self, dim, start, length
Scalar narrow_copy(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const int64_t dim = *wrap_dim(*e.args.integer(1), t.dim());
  const int64_t start = *e.args.integer(2);
  Index at = e.index;
  at[dim] = at[dim] + (start < 0 ? t.sizes[dim] + Expr(start) : Expr(start));
  return e.b.load(e.args[0].value(), at);
}

bool applies_narrow_copy(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  return has_computable_types(g, n) && a.integer(1) && a.integer(2);
}

// self, k, dims: quarter turns from the first dimension to the second.
Scalar rot90(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  std::vector<int64_t> dims;
  if (e.args.missing(2))
    dims = {0, 1};
  else
    e.args.integers(2, dims);
  for (int64_t& d : dims) d = *wrap_dim(d, t.dim());
  const int64_t turns = ((*e.args.integer(1, 1) % 4) + 4) % 4;
  const Expr i = e.index[dims[0]], j = e.index[dims[1]];
  const Expr last_i = t.sizes[dims[0]] - Expr(1), last_j = t.sizes[dims[1]] - Expr(1);
  Index at = e.index;
  if (turns % 2 == 1) {
    at[dims[0]] = turns == 1 ? j : last_i - j;
    at[dims[1]] = turns == 1 ? last_j - i : i;
  } else if (turns == 2) {
    at[dims[0]] = last_i - i;
    at[dims[1]] = last_j - j;
  }
  return e.b.load(e.args[0].value(), at);
}

// ---- im2col: self, kernel_size, dilation, padding, stride ----

struct Patches {
  std::vector<int64_t> kernel, dilation, padding, stride;
};

std::optional<Patches> patches(const Args& a) {
  Patches p;
  const bool known = a.integers(1, p.kernel) && a.integers(2, p.dilation) &&
                     a.integers(3, p.padding) && a.integers(4, p.stride);
  for (const auto* list : {&p.kernel, &p.dilation, &p.padding, &p.stride}) {
    if (list->size() != 2) return std::nullopt;
  }
  return known ? std::optional(std::move(p)) : std::nullopt;
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
    const Scalar here = within(e, at.back(), t.sizes[n - 2 + k]);
    mask = mask ? e.op(LoopOp::And, *mask, here) : here;
  }
  return mask ? e.b.load_masked(e.args[0].value(), at, *mask, zero(e))
              : e.b.load(e.args[0].value(), at);
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
  return e.b.load(e.args[0].value(), i);
}

bool shape_flip(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> dims;
  if (!t || !a.integers(1, dims) || !wrap_dims(dims, t->dim())) return false;
  return give(out, empty_like(*t));
}

// Shifts by dimension; an empty list of dimensions rolls the flattened tensor.
bool shape_roll(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<int64_t> shifts, dims;
  if (!t || !a.integers(1, shifts) || (!a.missing(2) && !a.integers(2, dims))) return false;
  if (!t->is_row_major()) return false;
  if (dims.empty() ? shifts.size() != 1 : shifts.size() != dims.size()) return false;
  for (int64_t d : dims) {
    if (t->dim() == 0 || !wrap_dim(d, t->dim())) return false;
  }
  return give(out, fresh(*t, t->sizes));
}

Scalar roll(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  std::vector<int64_t> shifts, dims;
  e.args.integers(1, shifts);
  if (!e.args.missing(2)) e.args.integers(2, dims);
  if (dims.empty()) {
    const Sizes flat{t.numel()};
    Index linear = reshape_index(flat, t.sizes, e.index);
    linear[0] = sym::mod(linear[0] - Expr(shifts[0]), flat[0]);
    return e.b.load(e.args[0].value(), reshape_index(t.sizes, flat, linear));
  }
  Index i = e.index;
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t d = *wrap_dim(dims[k], t.dim());
    i[d] = sym::mod(i[d] - Expr(shifts[k]), t.sizes[d]);
  }
  return e.b.load(e.args[0].value(), i);
}

bool shape_repeat(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes repeats;
  if (!t || !a.exprs(1, repeats) || repeats.size() < t->sizes.size()) return false;
  const size_t lead = repeats.size() - t->sizes.size();
  for (size_t d = 0; d < t->sizes.size(); ++d) repeats[lead + d] = repeats[lead + d] * t->sizes[d];
  return give(out, fresh(*t, std::move(repeats)));
}

Scalar repeat(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  Index i(t.sizes.size());
  const size_t lead = e.index.size() - i.size();
  for (size_t d = 0; d < i.size(); ++d) i[d] = sym::mod(e.index[lead + d], t.sizes[d]);
  return e.b.load(e.args[0].value(), i);
}

bool applies_not_empty(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

constexpr Applies computable = has_computable_types;

template <size_t Dims>
constexpr ShapeRule reflected = shape_pad<true, Dims>;
template <size_t Dims>
constexpr ShapeRule replicated = shape_pad<false, Dims>;

constexpr OpInfo kRows[] = {
#include "ops/rearrange.def"
};

}  // namespace

std::span<const OpInfo> rearrange_ops() { return kRows; }

}  // namespace oxy::ops
