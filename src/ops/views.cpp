// Views, their copying twins, and the ops that write into a copy of their operand: a loop rule here
// is a change of index.
#include "ops/families.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

// The type of a view of `t`.
TensorType view_of(const TensorType& t, Sizes sizes, Sizes strides, Expr offset) {
  TensorType v = t;
  v.sizes = std::move(sizes);
  v.strides = std::move(strides);
  v.offset = offset;
  v.requires_grad = false;
  return v;
}

const TensorType& input(const Element& e) { return *e.args.tensor(0); }

int64_t dim_of(const Element& e, size_t at) { return *e.args.dim(at, input(e).dim(), 0); }

// The type of a copy of a view: the same shape, row-major.
template <ShapeRule F>
bool shape_copy_of(const Args& a, Types& out) {
  if (!F(a, out)) return false;
  for (ir::Type& t : out)
    t = ir::Type::of(row_major(t.tensor.dtype, t.tensor.device, t.tensor.sizes));
  return true;
}

// ---- the same elements in other shapes ----

bool shape_view(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes sizes;
  if (!t || !a.exprs(1, sizes)) return false;
  auto to = infer_size(std::move(sizes), t->numel());
  auto strides = to ? view_strides(*t, *to) : std::nullopt;
  if (!strides) return false;
  return give(out, view_of(*t, std::move(*to), std::move(*strides), t->offset));
}

// Sizes, strides, and perhaps the offset.
bool shape_as_strided(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes sizes, strides;
  auto offset = t ? a.expr(3, t->offset) : std::nullopt;
  if (!offset || !a.exprs(1, sizes) || !a.exprs(2, strides)) return false;
  return give(out, view_of(*t, std::move(sizes), std::move(strides), *offset));
}

Scalar element_view(Element& e) {
  return e.load(0, reshape_index(input(e).sizes, e.result_type().sizes, e.index));
}

// View as another dtype of the same width.
bool shape_view_dtype(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dtype = a.dtype(1);
  if (!t || !dtype || ir::byte_size(*dtype) != ir::byte_size(t->dtype)) return false;
  give(out, view_of(*t, t->sizes, t->strides, t->offset));
  out.back().tensor.dtype = *dtype;
  return true;
}

Scalar element_view_dtype(Element& e) {
  return e.b.bitcast(e.load(0, e.index), e.result_type().dtype);
}

// A b8 in a kernel is true or false, one in memory any byte.
bool applies_bitcast(const ir::Graph& g, const ir::Node& n) {
  const TensorType* from = Args(g, n).tensor(0);
  return applies_converted(g, n) && from && from->dtype != DType::B8 &&
         g.tensor_type(n.outputs[0]).dtype != DType::B8;
}

bool shape_same(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return t && give(out, view_of(*t, t->sizes, t->strides, t->offset));
}

// lift_fresh_copy: a clone.
bool shape_fresh(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return give(out, t ? empty_like(*t) : std::nullopt);
}

Scalar element_same(Element& e) { return e.load(0, e.index); }

// ---- expand, permute, squeeze ----

bool shape_expand(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes sizes;
  if (!t || !a.exprs(1, sizes) || sizes.size() < t->sizes.size()) return false;
  Sizes strides(sizes.size(), Expr(0));
  const size_t lead = sizes.size() - t->sizes.size();
  for (size_t i = sizes.size(); i-- > 0;) {
    if (i < lead) {
      if (sizes[i].is_const(-1)) return false;
      // torch gives a new dimension of size 1 the stride of a row-major one.
      auto one = sym::layout_equal(sizes[i], 1);
      if (!one) return false;
      if (*one && !t->sizes.empty()) strides[i] = sizes[i + 1] * strides[i + 1];
      continue;
    }
    const Expr have = t->sizes[i - lead];
    if (sizes[i].is_const(-1)) sizes[i] = have;
    auto same = sym::layout_equal(sizes[i], have), one = sym::layout_equal(have, 1);
    // Of one element that may stay one, any stride will do.
    if (one == true && !same) same = false;
    if (!same || !one || (!*same && !*one)) return false;
    strides[i] = *same ? t->strides[i - lead] : Expr(0);
  }
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

Scalar element_expand(Element& e) { return e.load(0, broadcast_index(input(e).sizes, e.index)); }

// The dimensions of the operand in the order of the result's.
std::optional<std::vector<int64_t>> permutation(const Args& a, int64_t rank, bool swap) {
  std::vector<int64_t> dims;
  if (!swap) {
    if (!a.integers(1, dims) || static_cast<int64_t>(dims.size()) != rank) return std::nullopt;
    auto sorted = dims;
    if (!wrap_dims(sorted, rank)) return std::nullopt;
    for (int64_t& d : dims) d = *wrap_dim(d, rank);
    return dims;
  }
  auto x = a.dim(1, rank), y = a.dim(2, rank);
  if (!x || !y) return std::nullopt;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  if (rank > 0) std::swap(dims[*x], dims[*y]);
  return dims;
}

template <bool Swap>
bool shape_permute(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dims = t ? permutation(a, t->dim(), Swap) : std::nullopt;
  if (!dims) return false;
  Sizes sizes, strides;
  for (int64_t d : *dims) {
    sizes.push_back(t->sizes[d]);
    strides.push_back(t->strides[d]);
  }
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

template <bool Swap>
Scalar element_permute(Element& e) {
  auto dims = permutation(e.args, input(e).dim(), Swap);
  Index i(e.index.size());
  for (size_t d = 0; d < e.index.size(); ++d) i[(*dims)[d]] = e.index[d];
  return e.load(0, i);
}

bool shape_t(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() > 2) return false;
  Sizes sizes(t->sizes.rbegin(), t->sizes.rend()), strides(t->strides.rbegin(), t->strides.rend());
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

Scalar element_t(Element& e) { return e.load(0, Index(e.index.rbegin(), e.index.rend())); }

bool shape_unsqueeze(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = t ? a.dim(1, t->dim() + 1) : std::nullopt;
  if (!dim) return false;
  Sizes sizes = t->sizes, strides = t->strides;
  const Expr stride = *dim < t->dim() ? sizes[*dim] * strides[*dim] : Expr(1);
  sizes.insert(sizes.begin() + *dim, Expr(1));
  strides.insert(strides.begin() + *dim, stride);
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

Scalar element_unsqueeze(Element& e) {
  Index i = e.index;
  i.erase(i.begin() + *e.args.dim(1, input(e).dim() + 1));
  return e.load(0, i);
}

// Which dimensions squeeze drops; nothing where a size is not known to be 1 or not.
std::optional<std::vector<bool>> squeezed(const Args& a, const TensorType& t) {
  std::vector<bool> drop(t.sizes.size(), a.missing(1));
  std::vector<int64_t> dims;
  if (!a.missing(1) && (!a.integers(1, dims) || !wrap_dims(dims, t.dim()))) return std::nullopt;
  for (int64_t d : dims) {
    if (d < t.dim()) drop[d] = true;
  }
  for (size_t d = 0; d < drop.size(); ++d) {
    if (!drop[d]) continue;
    auto one = sym::known_equal(t.sizes[d], 1);
    if (!one) return std::nullopt;
    drop[d] = *one;
  }
  return drop;
}

bool shape_squeeze(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto drop = t ? squeezed(a, *t) : std::nullopt;
  if (!drop) return false;
  Sizes sizes, strides;
  for (size_t d = 0; d < drop->size(); ++d) {
    if ((*drop)[d]) continue;
    sizes.push_back(t->sizes[d]);
    strides.push_back(t->strides[d]);
  }
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

Scalar element_squeeze(Element& e) {
  auto drop = squeezed(e.args, input(e));
  Index i(drop->size(), Expr(0));
  size_t next = 0;
  for (size_t d = 0; d < i.size(); ++d) {
    if (!(*drop)[d]) i[d] = e.index[next++];
  }
  return e.load(0, i);
}

// ---- parts of a dimension ----

struct Slicing {
  int64_t dim = 0;
  SliceBounds bounds;
};

// Reads dim, start, end, step from argument `at` on.
std::optional<Slicing> slicing(const Args& a, const TensorType& t, size_t at) {
  auto dim = a.dim(at, t.dim(), 0);
  auto step = a.expr(at + 3, Expr(1));
  if (!dim || !step || t.dim() == 0) return std::nullopt;
  std::optional<Expr> start, end;
  if (!a.missing(at + 1) && !(start = a.expr(at + 1))) return std::nullopt;
  if (!a.missing(at + 2) && !(end = a.expr(at + 2))) return std::nullopt;
  auto bounds = slice_bounds(t.sizes[*dim], start, end, *step);
  return bounds ? std::optional(Slicing{*dim, *bounds}) : std::nullopt;
}

bool shape_slice(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto s = t ? slicing(a, *t, 1) : std::nullopt;
  if (!s) return false;
  Sizes sizes = t->sizes, strides = t->strides;
  const Expr offset = t->offset + s->bounds.start * strides[s->dim];
  sizes[s->dim] = s->bounds.length;
  strides[s->dim] *= s->bounds.step;
  return give(out, view_of(*t, std::move(sizes), std::move(strides), offset));
}

Scalar element_slice(Element& e) {
  auto s = slicing(e.args, input(e), 1);
  Index i = e.index;
  i[s->dim] = s->bounds.start + e.index[s->dim] * s->bounds.step;
  return e.load(0, i);
}

// The dimension that argument `at` names, 0 where it was left out; of a tensor with dimensions.
std::optional<int64_t> dim_at(const Args& a, size_t at) {
  const TensorType* t = a.tensor(0);
  return t && t->dim() > 0 ? a.dim(at, t->dim(), 0) : std::nullopt;
}

TensorType selected(const TensorType& t, int64_t dim, Expr at) {
  TensorType v = view_of(t, t.sizes, t.strides, t.offset + at * t.strides[dim]);
  v.sizes.erase(v.sizes.begin() + dim);
  v.strides.erase(v.strides.begin() + dim);
  return v;
}

bool shape_select(const Args& a, Types& out) {
  auto dim = dim_at(a, 1);
  auto at = a.expr(2);
  if (!dim || !at) return false;
  const Expr size = a.tensor(0)->sizes[*dim], asked = *at;
  if (!(at = wrap_index(asked, size))) {
    // torch's own rule for select_scatter does not look.
    if (sym::known_less(asked, -size).value_or(false) ||
        !sym::known_less(asked, size).value_or(true))
      throw Unsupported("an index out of range");
    return false;
  }
  return give(out, selected(*a.tensor(0), *dim, *at));
}

Scalar element_select(Element& e) {
  const int64_t dim = dim_of(e, 1);
  Index i = e.index;
  const Expr at = *e.args.expr(2);
  i.insert(i.begin() + dim, *wrap_index(at, input(e).sizes[dim]));
  return e.load(0, i);
}

// Pieces of `lengths` along `dim`.
void push_pieces(const TensorType& t, int64_t dim, const Sizes& lengths, Types& out) {
  Expr start = 0;
  for (Expr length : lengths) {
    Sizes sizes = t.sizes;
    sizes[dim] = length;
    give(out, view_of(t, std::move(sizes), t.strides, t.offset + start * t.strides[dim]));
    start += length;
  }
}

bool shape_split(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto length = a.expr(1);
  const auto dim = dim_at(a, 2);
  if (!length || !dim || !sym::known_less(0, *length).value_or(false)) return false;
  Sizes lengths;
  for (Expr rest = t->sizes[*dim];; rest -= *length) {
    const auto more = sym::known_less(*length, rest);
    if (!more) return false;
    lengths.push_back(*more ? *length : rest);
    if (!*more) break;
  }
  push_pieces(*t, *dim, lengths, out);
  return true;
}

bool shape_split_with_sizes(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = dim_at(a, 2);
  Sizes lengths;
  if (!dim || !a.exprs(1, lengths)) return false;
  Expr total = 0;
  for (Expr e : lengths) total += e;
  if (!sym::known_equal(total, t->sizes[*dim]).value_or(false)) return false;
  push_pieces(*t, *dim, lengths, out);
  return true;
}

Scalar element_split(Element& e) {
  const int64_t dim = dim_of(e, 2);
  Index i = e.index;
  for (uint32_t k = 0; k < e.out; ++k)
    i[dim] += e.b.graph().tensor_type(e.node.outputs[k]).sizes[dim];
  return e.load(0, i);
}

bool shape_unbind(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = dim_at(a, 1);
  const auto count = dim ? sym::known_value(t->sizes[*dim]) : std::nullopt;
  if (!count) return false;
  for (int64_t i = 0; i < *count; ++i) give(out, selected(*t, *dim, i));
  return true;
}

Scalar element_unbind(Element& e) {
  Index i = e.index;
  i.insert(i.begin() + dim_of(e, 1), Expr(int64_t{e.out}));
  return e.load(0, i);
}

// ---- diagonal, unfold, as_strided ----

struct Diagonal {
  int64_t offset = 0, dim1 = 0, dim2 = 1;
};

// Reads offset, dim1, dim2 from argument `at` on.
std::optional<Diagonal> diagonal(const Args& a, int64_t rank, size_t at) {
  auto offset = a.integer(at, 0), dim1 = a.dim(at + 1, rank, 0), dim2 = a.dim(at + 2, rank, 1);
  if (!offset || !dim1 || !dim2 || rank < 2 || *dim1 == *dim2) return std::nullopt;
  return Diagonal{*offset, *dim1, *dim2};
}

bool shape_diagonal(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto d = t ? diagonal(a, t->dim(), 1) : std::nullopt;
  if (!d) return false;
  const Expr rows = t->sizes[d->dim1] + Expr(std::min<int64_t>(d->offset, 0));
  const Expr columns = t->sizes[d->dim2] - Expr(std::max<int64_t>(d->offset, 0));
  const Expr length = sym::max(sym::min(rows, columns), Expr(0));
  const std::optional<bool> some = sym::known_less(0, length);
  if (!some) return false;
  Expr offset = t->offset;
  if (*some) {
    offset = d->offset >= 0 ? offset + Expr(d->offset) * t->strides[d->dim2]
                            : offset - Expr(d->offset) * t->strides[d->dim1];
  }
  Sizes sizes, strides;
  for (int64_t i = 0; i < t->dim(); ++i) {
    if (i == d->dim1 || i == d->dim2) continue;
    sizes.push_back(t->sizes[i]);
    strides.push_back(t->strides[i]);
  }
  sizes.push_back(length);
  strides.push_back(t->strides[d->dim1] + t->strides[d->dim2]);
  return give(out, view_of(*t, std::move(sizes), std::move(strides), offset));
}

Scalar element_diagonal(Element& e) {
  const int64_t rank = input(e).dim();
  auto d = diagonal(e.args, rank, 1);
  Index i(rank);
  size_t next = 0;
  for (int64_t k = 0; k < rank; ++k) {
    if (k != d->dim1 && k != d->dim2) i[k] = e.index[next++];
  }
  i[d->dim1] = e.index.back() - Expr(std::min<int64_t>(d->offset, 0));
  i[d->dim2] = e.index.back() + Expr(std::max<int64_t>(d->offset, 0));
  return e.load(0, i);
}

bool shape_unfold(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = dim_at(a, 1);
  auto size = a.integer(2), step = a.integer(3);
  if (!dim || !size || !step || *step <= 0 || *size < 0) return false;
  if (sym::known_less(t->sizes[*dim], *size).value_or(true)) return false;
  Sizes sizes = t->sizes, strides = t->strides;
  sizes[*dim] = sym::floordiv(sizes[*dim] - Expr(*size), Expr(*step)) + Expr(1);
  sizes.push_back(*size);
  strides.push_back(strides[*dim]);
  strides[*dim] *= Expr(*step);
  return give(out, view_of(*t, std::move(sizes), std::move(strides), t->offset));
}

Scalar element_unfold(Element& e) {
  const int64_t dim = dim_of(e, 1);
  Index i(e.index.begin(), e.index.end() - 1);
  i[dim] = i[dim] * Expr(*e.args.integer(3)) + e.index.back();
  return e.load(0, i);
}

// ---- the operand with a part, or all of it, replaced ----

// The copy has the layout of the operand, offset included.
bool shape_scattered_view(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *source = a.tensor(1);
  if (!t || !source || source->dtype != t->dtype || t->may_overlap_itself()) return false;
  return shape_same(a, out);
}

bool applies_scatter(const ir::Graph& g, const ir::Node& n) {
  const TensorType& t = g.tensor_type(n.outputs[0]);
  return applies_computable(g, n) && t.offset.is_const(0) && !t.numel().is_const(0);
}

// copy: `self` after self.copy_(src), which keeps the layout of `self`.
bool shape_copy(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *source = a.tensor(1);
  if (!t || !source || source->device != t->device || t->may_overlap_itself()) return false;
  auto sizes = broadcast(t->sizes, source->sizes);
  return sizes && known_same(*sizes, t->sizes) && shape_same(a, out);
}

Scalar copied(Element& e) { return e.operand(1, e.result()); }

Scalar element_slice_scatter(Element& e) {
  auto s = slicing(e.args, input(e), 2);
  const SliceBounds& bounds = s->bounds;
  const Expr at = e.index[s->dim] - bounds.start;
  Scalar inside = e.within(at, 0, bounds.length * bounds.step);
  Index i = e.index;
  i[s->dim] = sym::floordiv(at, bounds.step);
  if (!bounds.step.is_const(1)) {
    const Scalar rest = e.b.index(sym::mod(at, bounds.step));
    inside = e.op(LoopOp::And, inside, e.op(LoopOp::Eq, rest, e.c(0, DType::I64)));
  }
  return e.load(1, i, inside, e.load(0, e.index));
}

Scalar element_select_scatter(Element& e) {
  const TensorType& t = input(e);
  const int64_t dim = dim_of(e, 2);
  const Expr at = *wrap_index(*e.args.expr(3), t.sizes[dim]);
  Index i = e.index;
  i.erase(i.begin() + dim);
  if (t.sizes[dim].is_const(1)) return e.load(1, i);
  const Scalar here = e.b.index(e.index[dim]), there = e.b.index(at);
  const Scalar inside = e.op(LoopOp::Eq, here, there);
  return e.load(1, i, inside, e.load(0, e.index));
}

// A source of another size than the slice is an error of the user's, which eager raises.
template <ShapeRule View>
bool shape_scatter_of(const Args& a, Types& out) {
  const TensorType* source = a.tensor(1);
  std::vector<ir::Arg> slice(a.list().begin(), a.list().end());
  slice.erase(slice.begin() + 1);
  Types view;
  if (!source || !View(a.with(slice), view)) return false;
  const Sizes &have = source->sizes, &want = view[0].tensor.sizes;
  auto differ = [](Expr a, Expr b) { return sym::known_equal(a, b) == false; };
  if (have.size() != want.size() || !std::ranges::equal(have, want, std::not_fn(differ)))
    throw Unsupported("a source that has not the size of the slice");
  return shape_scattered_view(a, out);
}

constexpr uint32_t kView = View | Cheap;

// A view, or several, and its twin that copies.
#define VIEW(name, overload, parameters, shape, element)                                     \
  OP("aten." name "." overload, "(Tensor(a) self" parameters ") -> Tensor(a)", kView, shape, \
     element)                                                                                \
  OP("aten." name "_copy." overload, "(Tensor self" parameters ") -> Tensor", Cheap,         \
     shape_copy_of<shape>, element)
#define VIEWS(name, overload, parameters, shape, element)                                    \
  OP("aten." name "." overload, "(Tensor(a -> *) self" parameters ") -> Tensor(a)[]", kView, \
     shape, element)                                                                         \
  OP("aten." name "_copy." overload, "(Tensor self" parameters ") -> Tensor[]", Cheap,       \
     shape_copy_of<shape>, element)

constexpr OpInfo kViewOps[] = {
#include "ops/views.def"
};

}  // namespace

bool shape_diagonal_scatter(const Args& a, Types& out) {
  return shape_scatter_of<shape_diagonal>(a, out);
}

std::span<const OpInfo> view_ops() { return kViewOps; }

}  // namespace oxy::ops
