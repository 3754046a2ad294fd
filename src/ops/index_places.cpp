// Places that index tensors name.
#include "ops/index_places.h"

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

}  // namespace oxy::ops
