// Geometry of views.
#include "ops/shape_views.h"

#include "support/check.h"

namespace oxy::ops {
namespace {

using Sizes = std::vector<Expr>;

Expr product(const Sizes& s, size_t begin, size_t end) {
  Expr p = 1;
  for (size_t i = begin; i < end; ++i) p = p * s[i];
  return p;
}

bool known(Expr a, Expr b) { return a == b || sym::known_equal(a, b).value_or(false); }

// Strides where `t` is not row-major: chunks of dimensions that lie densely in each other are split
// anew.
std::optional<Sizes> view_chunks(const ir::TensorType& t, const Sizes& to) {
  Sizes strides(to.size());
  auto next = static_cast<int64_t>(to.size()) - 1;
  Expr base = t.strides.back(), had = 1, made = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    had = had * t.sizes[d];
    if (d > 0) {
      auto one = sym::known_equal(t.sizes[d - 1], 1);
      auto joined = sym::known_equal(t.strides[d - 1], had * base);
      if (!one || !joined) return std::nullopt;
      if (*one || *joined) continue;
    }
    while (next >= 0) {
      auto less = sym::known_less(made, had);
      auto one = sym::known_equal(to[next], 1);
      if (!less || !one) return std::nullopt;
      if (!*less && !*one) break;
      strides[next] = made * base;
      made = made * to[next--];
    }
    if (!known(made, had)) return std::nullopt;
    if (d > 0) base = t.strides[d - 1];
    had = made = 1;
  }
  if (next >= 0) return std::nullopt;
  return strides;
}

}  // namespace

std::optional<Sizes> view_strides(const ir::TensorType& t, const Sizes& to) {
  if (!known(product(t.sizes, 0, t.sizes.size()), product(to, 0, to.size()))) return std::nullopt;
  if (t.is_row_major()) return ir::contiguous_strides(to);
  if (t.sizes == to) {
    if (t.numel().is_const(0)) return t.strides;
  } else if (t.numel().is_const(0)) {
    return ir::contiguous_strides(to);
  }
  return view_chunks(t, to);
}

std::optional<Sizes> infer_size(Sizes sizes, Expr numel) {
  std::optional<size_t> unknown;
  Expr rest = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].is_const(-1)) {
      rest = rest * sizes[i];
    } else if (unknown) {
      return std::nullopt;
    } else {
      unknown = i;
    }
  }
  if (unknown) {
    auto empty = sym::known_equal(rest, 0);
    if (!empty || *empty) return std::nullopt;
    sizes[*unknown] = sym::floordiv(numel, rest);
    rest = rest * sizes[*unknown];
  }
  if (!known(rest, numel)) return std::nullopt;
  return sizes;
}

std::optional<SliceBounds> slice_bounds(Expr size, std::optional<Expr> start,
                                        std::optional<Expr> end, Expr step) {
  if (!step.is_const() || step.value() <= 0) return std::nullopt;
  auto clamp = [&](Expr e) -> std::optional<Expr> {
    auto negative = sym::known_less(e, 0);
    if (!negative) return std::nullopt;
    if (*negative) e = sym::max(e + size, Expr(0));
    return sym::min(e, size);
  };
  auto first = clamp(start.value_or(Expr(0)));
  auto last = end ? clamp(*end) : std::optional(size);
  if (!first || !last) return std::nullopt;
  const Expr span = sym::max(*last - *first, Expr(0));
  return SliceBounds{*first, sym::floordiv(span + step - Expr(1), step), step};
}

std::optional<Expr> wrap_index(Expr index, Expr size) {
  auto negative = sym::known_less(index, 0);
  if (!negative) return std::nullopt;
  if (*negative) index = index + size;
  auto low = sym::known_less(index, 0), fits = sym::known_less(index, size);
  if (!low || *low || !fits || !*fits) return std::nullopt;
  return index;
}

Index reshape_index(const Sizes& from, const Sizes& to, const Index& index) {
  Index result(from.size(), Expr(0));
  if (product(from, 0, from.size()).is_const(0)) return result;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && from[i].is_const(1)) {
      ++i;
      continue;
    }
    if (j < to.size() && to[j].is_const(1)) {
      ++j;
      continue;
    }
    // The smallest runs [i, i_end) and [j, j_end) with equal products.
    size_t i_end = i, j_end = j;
    Expr have = 1, want = 1;
    if (i_end < from.size()) have = from[i_end++];
    if (j_end < to.size()) want = to[j_end++];
    while (!known(have, want)) {
      const bool grow_from = j_end == to.size() ||
                             (i_end < from.size() && sym::known_less(have, want).value_or(false));
      if (grow_from) {
        OXY_CHECK(i_end < from.size(), "shapes of a view have different numbers of elements");
        have = have * from[i_end++];
      } else {
        want = want * to[j_end++];
      }
    }
    Expr linear = 0;
    for (size_t d = j; d < j_end; ++d) linear = linear * to[d] + index[d];
    for (size_t d = i_end; d-- > i;) {
      result[d] = d == i ? linear : sym::mod(linear, from[d]);
      linear = sym::floordiv(linear, from[d]);
    }
    i = i_end;
    j = j_end;
  }
  return result;
}

}  // namespace oxy::ops
