// Ops that read at computed places: embedding, index, gather; and the ones that lay tensors side by
// side: cat, stack, pad.
#include "ops/indexing.h"

#include <algorithm>
#include <cmath>

#include "ops/families.h"

namespace oxy::ops {

using ir::TensorType;

bool is_index(const TensorType* t) {
  return t && (t->dtype == DType::I64 || t->dtype == DType::I32);
}

std::optional<size_t> indexed_dim(const Args& a) {
  const TensorType* t = a.tensor(0);
  return t && t->dim() > 0 ? a.dim(1, t->dim()) : std::nullopt;
}

Expr indirect(LoopBuilder& b, ir::ValueId value, const Index& at, Expr size, bool wrap) {
  return b.indirect(b.cast(b.load(value, at), DType::I64), size, wrap);
}

Index place_along(Element& e, bool rows, bool wrap) {
  const size_t dim = *indexed_dim(e.args);
  const Index from = rows ? Index{e.index[dim]} : e.index;
  Index place = e.index;
  place[dim] = indirect(e.b, e.args[2].value(), from, e.args.tensor(0)->sizes[dim], wrap);
  return place;
}

std::optional<Indexing> indexing(const Args& a) {
  const TensorType* t = a.tensor(0);
  const auto* items = a[1].items();
  if (!t || !items || items->size() > t->sizes.size()) return std::nullopt;
  Indexing x;
  for (int64_t d = 0; d < t->dim(); ++d) {
    if (d >= static_cast<int64_t>(items->size()) || (*items)[d].is_none()) {
      x.kept.push_back(d);
      continue;
    }
    const TensorType* type = a.tensor((*items)[d]);
    if (!is_index(type)) return std::nullopt;
    auto common = broadcast(x.common, type->sizes);
    if (!common) return std::nullopt;
    x.common = std::move(*common);
    x.indexed.push_back(d);
    x.indices.push_back((*items)[d].value());
    x.types.push_back(type);
  }
  if (x.indexed.empty()) return std::nullopt;
  const bool adjacent =
      x.indexed.back() - x.indexed.front() == static_cast<int64_t>(x.indexed.size()) - 1;
  x.before = adjacent ? static_cast<size_t>(x.indexed.front()) : 0;
  return x;
}

Sizes indexed_sizes(const TensorType& t, const Indexing& x) {
  Sizes sizes;
  for (size_t k = 0; k < x.before; ++k) sizes.push_back(t.sizes[x.kept[k]]);
  sizes.insert(sizes.end(), x.common.begin(), x.common.end());
  for (size_t k = x.before; k < x.kept.size(); ++k) sizes.push_back(t.sizes[x.kept[k]]);
  return sizes;
}

Index indexed_place(LoopBuilder& b, const TensorType& t, const Indexing& x, const Index& index) {
  const auto first = index.begin() + static_cast<std::ptrdiff_t>(x.before);
  const Index place(first, first + static_cast<std::ptrdiff_t>(x.common.size()));
  Index at(t.sizes.size());
  for (size_t k = 0; k < x.kept.size(); ++k) {
    at[static_cast<size_t>(x.kept[k])] = index[k < x.before ? k : k + x.common.size()];
  }
  for (size_t k = 0; k < x.indexed.size(); ++k) {
    const auto d = static_cast<size_t>(x.indexed[k]);
    const Index from = broadcast_index(x.types[k]->sizes, place);
    at[d] = indirect(b, x.indices[k], from, t.sizes[d], true);
  }
  return at;
}

namespace {

// ---- embedding, gather, index_select ----

bool shape_embedding(const Args& a, Types& out) {
  const TensorType *weight = a.tensor(0), *indices = a.tensor(1);
  if (!weight || weight->dim() != 2 || !is_index(indices)) return false;
  Sizes sizes = indices->sizes;
  sizes.push_back(weight->sizes[1]);
  return give(out, fresh(*weight, std::move(sizes)));
}

Scalar embedding(Element& e) {
  const Expr rows = e.args.tensor(0)->sizes[0];
  const Index at(e.index.begin(), e.index.end() - 1);
  const Expr row = indirect(e.b, e.args[1].value(), at, rows, false);
  return e.load(0, {row, e.index.back()});
}

bool shape_gather(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *indices = a.tensor(2);
  return indexed_dim(a) && is_index(indices) && t->dim() == indices->dim() &&
         give(out, fresh(*t, indices->sizes));
}

template <bool Rows>
Scalar gather(Element& e) {
  return e.load(0, place_along(e, Rows, false));
}

bool shape_index_select(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *indices = a.tensor(2);
  auto dim = indexed_dim(a);
  if (!dim || !is_index(indices) || indices->dim() != 1) return false;
  Sizes sizes = t->sizes;
  sizes[*dim] = indices->sizes[0];
  return give(out, fresh(*t, std::move(sizes)));
}

// ---- index.Tensor ----

// The operand as the result sees it: strides of 0 where it is indexed.
TensorType restrided(const TensorType& t, const Indexing& x, const Sizes& sizes) {
  TensorType r = t;
  r.sizes = sizes;
  r.strides.clear();
  for (size_t k = 0; k < x.before; ++k) r.strides.push_back(t.strides[x.kept[k]]);
  r.strides.resize(x.before + x.common.size(), Expr(0));
  for (size_t k = x.before; k < x.kept.size(); ++k) r.strides.push_back(t.strides[x.kept[k]]);
  return r;
}

// An index tensor as the result sees it: expanded to the common shape, between dimensions of
// size 1.
std::optional<TensorType> indexer(const TensorType& t, const Indexing& x) {
  TensorType e = t;
  e.sizes = x.common;
  e.strides.assign(x.common.size(), Expr(0));
  const size_t lead = x.common.size() - t.sizes.size();
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    if (known_same({t.sizes[d]}, {x.common[lead + d]})) e.strides[lead + d] = t.strides[d];
  }
  Sizes padded(x.before, Expr(1));
  padded.insert(padded.end(), x.common.begin(), x.common.end());
  padded.resize(padded.size() + x.kept.size() - x.before, Expr(1));
  auto strides = view_strides(e, padded);
  if (!strides) return std::nullopt;
  e.sizes = std::move(padded);
  e.strides = std::move(*strides);
  return e;
}

// Nothing in it can be indexed; where the result is empty too, no kernel would find out.
bool indexes_nothing(const TensorType& t, const Indexing& x) {
  // Else the kernel finds out.
  const bool found = std::ranges::all_of(
      x.kept, [&](auto d) { return sym::certain_less(0, t.sizes[d]).value_or(false); });
  return std::ranges::any_of(x.indexed, [&](int64_t d) {
    const bool open = sym::origin_of(t.sizes[d]) != sym::Origin::Hinted && found;
    return open ? sym::certain_equal(t.sizes[d], 0) == true
                : sym::known_equal(t.sizes[d], 0).value_or(true);
  });
}

bool shape_index(const Args& a, Types& out) {
  auto x = indexing(a);
  if (!x || indexes_nothing(*a.tensor(0), *x)) return false;
  const TensorType& t = *a.tensor(0);
  Sizes sizes = indexed_sizes(t, *x);
  std::vector<TensorType> operands{restrided(t, *x, sizes)};
  for (const TensorType* type : x->types) {
    auto i = indexer(*type, *x);
    if (!i) return false;
    operands.push_back(std::move(*i));
  }
  std::vector<const TensorType*> pointers;
  for (const TensorType& o : operands) pointers.push_back(&o);
  auto strides = elementwise_strides(sizes, pointers, false);
  if (!strides) return false;
  TensorType r = fresh(t, std::move(sizes));
  r.strides = std::move(*strides);
  return give(out, std::move(r));
}

Scalar index_tensor(Element& e) {
  return e.load(0, indexed_place(e.b, *e.args.tensor(0), *indexing(e.args), e.index));
}

// ---- cat, stack ----

// A piece that cat ignores: one dimension of size 0, whatever the others are.
bool is_ignored(const TensorType& t) { return t.dim() == 1 && t.sizes[0].is_const(0); }

struct Piece {
  ir::ValueId value;
  const TensorType* type;
};

std::vector<Piece> pieces(const Args& a) {
  std::vector<Piece> result;
  const auto* items = a[0].items();
  if (!items) return result;
  for (const ir::Arg& item : *items) {
    const TensorType* t = a.tensor(item);
    if (!t) return {};
    if (!is_ignored(*t)) result.push_back({item.value(), t});
  }
  return result;
}

std::optional<DType> dtype_of_all(const Args& a) {
  ResultType r;
  std::vector<const TensorType*> types;
  if (!a.tensors(0, types)) return std::nullopt;
  for (const TensorType* t : types) r.add_tensor(*t);
  return r.result();
}

bool shape_cat(const Args& a, Types& out) {
  const auto parts = pieces(a);
  auto dtype = dtype_of_all(a);
  if (parts.empty() || !dtype || parts[0].type->dim() == 0) return false;
  const TensorType& first = *parts[0].type;
  auto dim = a.dim(1, first.dim(), 0);
  if (!dim) return false;
  Sizes sizes = first.sizes;
  sizes[*dim] = 0;
  bool all_channels_last = true;
  for (const Piece& p : parts) {
    const TensorType& t = *p.type;
    if (t.dim() != first.dim() || t.device != first.device) return false;
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (d != *dim && !known_same({t.sizes[d]}, {sizes[d]})) return false;
    }
    sizes[*dim] += t.sizes[*dim];
    // One piece that does not look like channels-last makes the result row-major.
    if (!all_channels_last || t.is_row_major()) {
      all_channels_last = false;
      continue;
    }
    const auto last = suggests_channels_last(t);
    if (!last) return false;
    all_channels_last = *last;
  }
  TensorType result = row_major(*dtype, first.device, std::move(sizes));
  if (all_channels_last) result.strides = channels_last_strides(result.sizes);
  return give(out, std::move(result));
}

// `piece` at `at` where `mask` holds, else `rest`, which has the result's dtype.
Scalar masked_piece(Element& e, const Piece& piece, const Index& at, Scalar mask, Scalar rest) {
  if (piece.type->dtype == e.result()) return e.b.load_masked(piece.value, at, mask, rest);
  const Scalar zero = e.c(0, piece.type->dtype);
  return e.where(mask, e.finish(e.b.load_masked(piece.value, at, mask, zero)), rest);
}

Scalar cat(Element& e) {
  const auto parts = pieces(e.args);
  const int64_t dim = *e.args.dim(1, parts[0].type->dim(), 0);
  if (parts.size() == 1) return e.finish(e.b.load(parts[0].value, e.index));
  Expr start = 0;
  Scalar result = e.c(0, e.result());
  for (const Piece& p : parts) {
    Index at = e.index;
    at[dim] = e.index[dim] - start;
    const Expr end = start + p.type->sizes[dim];
    const Scalar mask = e.within(e.index[dim], start, end);
    result = masked_piece(e, p, at, mask, result);
    start = end;
  }
  return result;
}

// More pieces than this are copied one by one by the extern call: a loop reads all masks at each
// element.
constexpr size_t kMostPieces = 8;

bool applies_few_pieces(const ir::Graph& g, const ir::Node& n) {
  const auto* items = n.arg(0).items();
  return items && items->size() <= kMostPieces && has_computable_types(g, n) &&
         !g.tensor_type(n.outputs[0]).numel().is_const(0);
}

bool shape_stack(const Args& a, Types& out) {
  std::vector<const TensorType*> types;
  auto dtype = dtype_of_all(a);
  if (!a.tensors(0, types) || types.empty() || !dtype) return false;
  const TensorType& first = *types[0];
  auto dim = a.dim(1, first.dim() + 1, 0);
  if (!dim) return false;
  bool row_by_row = false;
  for (const TensorType* t : types) {
    if (!known_same(t->sizes, first.sizes) || t->device != first.device) return false;
    row_by_row |= t->is_row_major();
  }
  // ATen concatenates, behind a new last dimension if that is asked for: what looks like
  // channels-last then stays so if all do.
  for (size_t i = 0; i < types.size() && !row_by_row; ++i) {
    TensorType piece = *types[i];
    if (*dim == first.dim()) {
      piece.sizes.emplace_back(1);
      piece.strides.emplace_back(1);
    }
    const auto last = suggests_channels_last(piece);
    if (!last) return false;
    row_by_row = !*last;
  }
  if (!row_by_row) return false;
  Sizes sizes = first.sizes;
  sizes.insert(sizes.begin() + *dim, Expr(static_cast<int64_t>(types.size())));
  return give(out, row_major(*dtype, first.device, std::move(sizes)));
}

Scalar stack(Element& e) {
  const auto& items = *e.args[0].items();
  const int64_t dim = *e.args.dim(1, e.result_type().dim(), 0);
  Index at = e.index;
  at.erase(at.begin() + dim);
  Scalar result = e.c(0, e.result());
  for (size_t k = 0; k < items.size(); ++k) {
    const Scalar place = e.b.index(e.index[dim]);
    const Scalar mask = e.op(LoopOp::Eq, place, e.c(static_cast<double>(k), DType::I64));
    result = masked_piece(e, {items[k].value(), e.args.tensor(items[k])}, at, mask, result);
  }
  return result;
}

// ---- constant_pad_nd ----

struct Padding {
  Sizes before, after;  // one a dimension
};

// The list names the last dimension first: before, after. Negative ones cut off.
std::optional<Padding> padding(const Args& a, const TensorType& t) {
  Sizes list;
  if (!a.exprs(1, list) || list.size() % 2 != 0 || list.size() > 2 * t.sizes.size())
    return std::nullopt;
  Padding p{Sizes(t.sizes.size(), Expr(0)), Sizes(t.sizes.size(), Expr(0))};
  for (size_t k = 0; k < list.size(); ++k) {
    (k % 2 ? p.after : p.before)[t.sizes.size() - 1 - k / 2] = list[k];
  }
  return p;
}

// A tensor that does not grow is cloned.
bool shape_pad(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto p = t ? padding(a, *t) : std::nullopt;
  if (!p) return false;
  TensorType result = *t;
  bool grows = false;
  for (size_t d = 0; d < result.sizes.size(); ++d) {
    Expr left = t->sizes[d];  // what is cut off must be there
    for (Expr e : {p->before[d], p->after[d]}) {
      left += sym::min(e, 0);
      if (sym::known_less(left, 0).value_or(true)) return false;
      result.sizes[d] += e;
      if (grows) continue;
      // Where it is not known whether a row major tensor grows, the result is row major.
      const bool rows = t->is_row_major();
      const auto some = rows ? sym::certain_less(0, e) : sym::known_less(0, e);
      if (!some && !rows) return false;
      grows = some.value_or(true);
    }
  }
  if (!grows) {
    auto same = empty_like(result);
    if (same || !t->is_row_major()) return give(out, std::move(same));
  }
  const auto last = t->is_row_major() ? std::optional(false) : suggests_channels_last(*t);
  if (!last) return false;
  result = fresh(*t, std::move(result.sizes));
  if (*last) result.strides = channels_last_strides(result.sizes);
  return give(out, std::move(result));
}

Scalar pad(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  auto p = padding(e.args, t);
  Index at = e.index;
  std::optional<Scalar> inside;
  for (size_t d = 0; d < at.size(); ++d) {
    if (p->before[d].is_const(0) && p->after[d].is_const(0)) continue;
    at[d] = e.index[d] - p->before[d];
    inside = e.both(inside, e.within(at[d], 0, t.sizes[d]));
  }
  return e.load(0, at, inside, e.number(2, e.result(), 0));
}

// ---- upsample_nearest ----

// One dimension of an image and of the result.
struct Growth {
  int64_t from = 0, to = 0;
  float scale = 1;      // from the result's place to the image's
  bool by_size = true;  // one and two times the size are that growth, whatever the scale
};

// Where eager's float arithmetic reads for place `at`.
int64_t nearest(int64_t at, const Growth& g, bool exact) {
  if (!exact && g.by_size && g.to == g.from) return at;
  if (!exact && g.by_size && g.to == 2 * g.from) return at / 2;
  const auto i = static_cast<float>(at);
  const float place = exact ? (i + 0.5f) * g.scale : i * g.scale;
  return std::min(static_cast<int64_t>(std::floor(place)), g.from - 1);
}

std::optional<Growth> growth(Expr from, Expr to, const ir::Arg& given) {
  if (!from.is_const() || !to.is_const() || from.value() <= 0 || to.value() <= 0)
    return std::nullopt;
  const auto* factor = given.get_if<double>();
  if (!given.is_none() && !factor) return std::nullopt;
  const float scale = factor && *factor > 0
                          ? static_cast<float>(1.0 / *factor)
                          : static_cast<float>(from.value()) / static_cast<float>(to.value());
  return Growth{from.value(), to.value(), scale};
}

// By how much a dimension grows; nothing unless each element is repeated as often as the others.
std::optional<int64_t> even_growth(const Growth& g, bool exact) {
  const int64_t k = g.to / g.from;
  if (k * g.from != g.to) return std::nullopt;
  for (int64_t i = 0; i < g.to; ++i) {
    if (nearest(i, g, exact) != i / k) return std::nullopt;
  }
  return k;
}

// self, output_size, one scale a dimension
bool applies_growth(const ir::Graph& g, const ir::Node& n) {
  const TensorType &t = g.tensor_type(n.arg(0).value()), &r = g.tensor_type(n.outputs[0]);
  if (!has_computable_types(g, n) || t.numel().is_const(0)) return false;
  for (size_t d = 2; d < t.sizes.size(); ++d) {
    auto x = growth(t.sizes[d], r.sizes[d], n.arg(d));
    if (!x || x->to >= (int64_t{1} << 24)) return false;
  }
  return true;
}

// As `nearest`, at a place that the loop knows, where growth is not even.
Expr nearest_place(Element& e, Expr at, const Growth& g, bool exact) {
  const DType d = DType::F32;
  Scalar i = e.cast(e.cast(e.b.index(at), DType::I32), d);
  if (exact) i = e.add(i, e.c(0.5, d));
  const Scalar floor = e.op(LoopOp::Floor, e.mul(i, e.c(g.scale, d)));
  const Scalar last = e.b.constant_int(g.from - 1, DType::I32);
  return e.b.computed_index(e.op(LoopOp::Min, e.cast(floor, DType::I32), last), Expr(g.from));
}

template <bool Exact>
Scalar upsample(Element& e) {
  const TensorType &t = *e.args.tensor(0), &r = e.result_type();
  Index at = e.index;
  for (size_t d = 2; d < at.size(); ++d) {
    Growth g = *growth(t.sizes[d], r.sizes[d], e.args[d]);
    g.by_size = at.size() == 4;
    auto k = even_growth(g, Exact);
    at[d] = k ? sym::floordiv(at[d], Expr(*k)) : nearest_place(e, at[d], g, Exact);
  }
  return e.load(0, at);
}

constexpr OpInfo kIndexingOps[] = {
#include "ops/indexing.def"
};

}  // namespace

std::optional<int64_t> even_growth(Expr from, Expr to, const ir::Arg& scale, bool exact) {
  const auto g = growth(from, to, scale);
  return g ? even_growth(*g, exact) : std::nullopt;
}

std::optional<std::vector<int64_t>> nearest_places(Expr from, Expr to, const ir::Arg& scale,
                                                   bool exact) {
  const auto g = growth(from, to, scale);
  if (!g) return std::nullopt;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < g->to; ++i) out.push_back(nearest(i, *g, exact));
  return out;
}

std::span<const OpInfo> indexing_ops() { return kIndexingOps; }

}  // namespace oxy::ops
