// Shapes of element-wise ops, whose order of dimensions follows ATen/native/TensorIterator.cpp
// (reorder_dimensions), and of views.
#include "ops/shapes.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

std::optional<bool> is_one(Expr e) { return sym::layout_equal(e, 1); }

bool known(Expr a, Expr b) { return a == b || sym::known_equal(a, b).value_or(false); }

// How the pair of dimensions (a, b) of one operand should stand, a being the inner one so far: -1
// as they are, 1 swapped, 0 undecided; nothing where it depends on symbols.
std::optional<int> compare_dims(Expr stride_a, Expr stride_b, Expr size_a, Expr size_b) {
  auto zero_a = sym::layout_equal(stride_a, 0), zero_b = sym::layout_equal(stride_b, 0);
  if (!zero_a || !zero_b) return std::nullopt;
  if (*zero_a || *zero_b) return 0;
  auto less = sym::layout_less(stride_a, stride_b), greater = sym::layout_less(stride_b, stride_a);
  if (!less || !greater) return std::nullopt;
  if (*less) return -1;
  if (*greater) return 1;
  auto bigger = sym::layout_less(size_b, size_a);
  if (!bigger) return std::nullopt;
  return *bigger ? 1 : 0;
}

// Dimensions from innermost to outermost, ordered by insertion sort under the operands' strides in
// turn.
std::optional<std::vector<size_t>> order_dims(const Sizes& sizes,
                                              const std::vector<Sizes>& strides) {
  const size_t rank = sizes.size();
  std::vector<size_t> perm(rank);
  for (size_t i = 0; i < rank; ++i) perm[i] = rank - 1 - i;
  auto compare = [&](size_t a, size_t b) -> std::optional<int> {
    for (const Sizes& s : strides) {
      auto c = compare_dims(s[a], s[b], sizes[a], sizes[b]);
      if (!c || *c != 0) return c;
    }
    return 0;
  };
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      auto c = compare(perm[j], perm[at]);
      if (!c) return std::nullopt;
      if (*c > 0) {
        std::swap(perm[j], perm[at]);
        at = j;
      } else if (*c < 0) {
        break;
      }
    }
  }
  return perm;
}

Sizes strides_in_order(const Sizes& sizes, const std::vector<size_t>& perm) {
  Sizes strides(sizes.size());
  Expr next = 1;
  for (size_t d : perm) strides[d] = std::exchange(next, next * sizes[d]);
  return strides;
}

// Whether a step along a dimension certainly passes all that lies in the dimension inside of it.
bool encloses_inner(const TensorType& t) {
  for (size_t i = 1; i < t.sizes.size(); ++i)
    if (sym::certain_less(t.strides[i - 1], t.strides[i] * t.sizes[i]) != false) return false;
  return true;
}

// Strides of an operand seen in the common shape: 0 where it is broadcast.
std::optional<Sizes> broadcast_strides(const Sizes& sizes, const TensorType& t) {
  Sizes s(sizes.size(), Expr(0));
  const size_t lead = sizes.size() - t.sizes.size();
  for (size_t i = 0; i < t.sizes.size(); ++i) {
    if (t.sizes[i] == sizes[lead + i]) {
      s[lead + i] = t.strides[i];
      continue;
    }
    auto one = is_one(t.sizes[i]), out_one = is_one(sizes[lead + i]);
    if (!one || !out_one) return std::nullopt;
    s[lead + i] = *one && !*out_one ? Expr(0) : t.strides[i];
  }
  return s;
}

// The one device of the operands; a CPU tensor without dimensions goes with any.
std::optional<ir::Device> common_device(std::span<const TensorType* const> operands) {
  std::optional<ir::Device> device;
  for (const auto* t : operands) {
    if (device && *device == t->device) continue;
    if (!device || (device->is_cpu() && operands[0]->sizes.empty())) {
      device = t->device;
    } else if (!(t->sizes.empty() && t->device.is_cpu())) {
      return std::nullopt;
    }
  }
  return device;
}

Expr product(const Sizes& s) {
  Expr p = 1;
  for (Expr e : s) p *= e;
  return p;
}

// Strides where `t` is not row-major: chunks of dimensions that lie densely in each other are split
// anew.
std::optional<Sizes> view_chunks(const TensorType& t, const Sizes& to) {
  Sizes strides(to.size());
  auto next = static_cast<int64_t>(to.size()) - 1;
  Expr base = t.strides.back(), had = 1, made = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    had = had * t.sizes[d];
    if (d > 0) {
      auto one = sym::layout_equal(t.sizes[d - 1], 1);
      auto joined = sym::layout_equal(t.strides[d - 1], had * base);
      if (!one || !joined) return std::nullopt;
      if (*one || *joined) continue;
    }
    while (next >= 0) {
      auto less = sym::layout_less(made, had);
      auto one = sym::layout_equal(to[next], 1);
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

std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes out = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Expr x = shorter[i], y = out[lead + i];
    if (x == y || x.is_const(1)) continue;
    if (y.is_const(1)) {
      out[lead + i] = x;
      continue;
    }
    auto one_x = is_one(x), one_y = is_one(y);
    if (one_x && *one_x) continue;
    if (one_y && *one_y) {
      out[lead + i] = x;
    } else if (auto same = sym::known_equal(x, y); !same || !*same) {
      return std::nullopt;
    }
  }
  return out;
}

bool known_same(const Sizes& a, const Sizes& b) { return std::ranges::equal(a, b, known); }

Sizes channels_last_strides(const Sizes& s) {
  if (s.size() == 4) return {s[1] * s[2] * s[3], Expr(1), s[1] * s[3], s[1]};
  return {s[1] * s[2] * s[3] * s[4], Expr(1), s[1] * s[3] * s[4], s[1] * s[4], s[1]};
}

bool is_channels_last(const TensorType& t) {
  if (t.sizes.size() != 4) return false;
  Expr expected = 1;
  for (size_t d : {1, 3, 2, 0}) {
    if (t.sizes[d].is_const(1)) continue;
    if (t.strides[d] != expected) return false;
    expected = expected * t.sizes[d];
  }
  return true;
}

std::optional<bool> suggests_channels_last(const TensorType& t) {
  const size_t rank = t.sizes.size();
  if (rank != 4 && rank != 5) return false;
  // Nothing where one of the questions has no answer.
  const auto is = [](std::optional<bool> known, bool& yes) {
    yes = known.value_or(false);
    return known.has_value();
  };
  bool yes = false;
  if (!is(sym::layout_equal(t.strides[1], 0), yes)) return std::nullopt;
  if (yes) return false;
  std::vector<size_t> order{1};  // from the fastest dimension, if it is channels-last
  for (size_t d = rank; d-- > 2;) order.push_back(d);
  order.push_back(0);
  Expr least = 0;
  for (size_t d : order) {
    const Expr size = t.sizes[d], stride = t.strides[d];
    if (!is(sym::layout_equal(size, 0), yes)) return std::nullopt;
    if (yes) return false;
    if (!is(sym::layout_less(stride, least), yes)) return std::nullopt;
    if (yes) return false;
    if (d == 0) {  // either format: the usual one
      if (!is(sym::layout_equal(least, t.strides[1]), yes)) return std::nullopt;
      if (yes) return false;
    }
    least = stride * sym::max(size, 1);
  }
  return true;
}

std::optional<Sizes> dense_strides_like(const Sizes& sizes, const Sizes& strides) {
  auto perm = order_dims(sizes, {strides});
  return perm ? std::optional(strides_in_order(sizes, *perm)) : std::nullopt;
}

std::optional<Sizes> preserved_strides(const TensorType& t) {
  return t.is_dense() ? t.strides : dense_strides_like(t.sizes, t.strides);
}

std::optional<TensorType> empty_like(const TensorType& t) {
  auto strides = preserved_strides(t);
  if (!strides) return std::nullopt;
  TensorType r = row_major(t.dtype, t.device, t.sizes);
  r.strides = std::move(*strides);
  return r;
}

std::optional<Sizes> elementwise_strides(const Sizes& sizes,
                                         std::span<const TensorType* const> operands,
                                         bool has_number) {
  const auto all = [&](auto&& holds) {
    return std::ranges::all_of(operands, [&](const TensorType* t) { return holds(*t); });
  };
  // Broadcast or not, then no inner dimension of an operand has a larger stride than an outer one,
  // nor, where the strides are equal, a larger size: the order stays, whichever sizes are 1.
  const auto constant = [](Expr e) { return e.is_const(); };
  const auto positive = [](Expr e) {  // where a size without a hint is 0, nobody steps
    return sym::origin_of(e) != sym::Origin::Hinted || sym::known_less(0, e).value_or(false);
  };
  if (!std::ranges::all_of(sizes, constant) && !operands.empty() && all(encloses_inner) &&
      std::ranges::all_of(sizes, positive))
    return ir::contiguous_strides(sizes);
  const bool same_shape = !(has_number && !sizes.empty()) && !operands.empty() &&
                          all([&](auto& t) { return known_same(t.sizes, sizes); });
  if (same_shape) {
    if (all([](auto& t) { return t.is_contiguous(); })) return ir::contiguous_strides(sizes);
    if (all(is_channels_last)) return channels_last_strides(sizes);
    const Sizes& first = operands[0]->strides;
    if (all([&](auto& t) { return t.is_dense() && t.strides == first; })) return first;
  }
  std::vector<Sizes> strides;
  for (const TensorType* t : operands) {
    auto s = broadcast_strides(sizes, *t);
    if (!s) return std::nullopt;
    strides.push_back(std::move(*s));
  }
  auto perm = order_dims(sizes, strides);
  if (!perm) return std::nullopt;
  // A size of 0 counts as 1 in row-major strides.
  return std::ranges::is_sorted(*perm, std::greater()) ? ir::contiguous_strides(sizes)
                                                       : strides_in_order(sizes, *perm);
}

bool lay_out_like(const TensorType* t, TensorType& result) {
  if (!t || !known_same(t->sizes, result.sizes)) return false;
  auto strides = preserved_strides(*t);
  if (strides) result.strides = std::move(*strides);
  return strides.has_value();
}

bool give(Types& out, std::optional<TensorType> result) {
  if (result) out.push_back(ir::Type::of(std::move(*result)));
  return result.has_value();
}

TensorType row_major(DType dtype, ir::Device device, Sizes sizes) {
  Sizes strides = ir::contiguous_strides(sizes);
  return {dtype, device, std::move(sizes), std::move(strides)};
}

std::optional<DType> common_dtype(const Args& args, std::span<const size_t> operands,
                                  bool to_float) {
  ResultType r;
  for (size_t i : operands) {
    if (!r.add(args, i)) return std::nullopt;
  }
  auto d = r.result();
  return d && to_float && !ir::is_floating(*d) ? DType::F32 : d;
}

bool meets(Needs needs, const Args& args, std::span<const size_t> operands, DType common) {
  auto every_tensor = [&](auto&& holds) {
    return std::ranges::all_of(operands, [&](size_t i) {
      const TensorType* t = args.tensor(i);
      return !t || holds(t->dtype);
    });
  };
  auto floating = [](DType d) { return ir::is_floating(d); };
  const TensorType* first = args.tensor(operands[0]);
  auto like_first = [&](DType d) { return first && d == first->dtype; };
  if (needs == Needs::NotBool) return common != DType::B8;
  if (needs == Needs::Floating) return floating(common);
  if (needs == Needs::Integers) return ir::is_integral(common, true);
  if (needs == Needs::NumberIntegers) return ir::is_integral(common, false);
  if (needs == Needs::NoBool)
    return every_tensor([](DType d) { return d != DType::B8; }) &&
           std::ranges::none_of(operands,
                                [&](size_t i) { return args.number_kind(i) == NumberKind::Bool; });
  if (needs == Needs::AllFloating) return every_tensor(floating);
  if (needs == Needs::NoHalf) return !ir::is_reduced_float(common);
  if (needs == Needs::SameDType) return every_tensor(like_first);
  return needs == Needs::Anything || (floating(common) && every_tensor(like_first));
}

std::optional<TensorType> elementwise_type(const Args& args, std::span<const size_t> operands,
                                           ResultDType rule, std::span<const size_t> layout_of) {
  if (layout_of.empty()) layout_of = operands;
  auto dtype = common_dtype(args, operands, rule == ResultDType::Float);
  if (!dtype) return std::nullopt;
  std::vector<const TensorType*> tensors;
  std::vector<TensorType> converted;
  converted.reserve(layout_of.size());
  for (size_t i : layout_of) {
    const TensorType* t = args.tensor(i);
    if (!t) continue;
    if (t->dtype != *dtype && std::ranges::find(operands, i) != operands.end()) {
      auto like = empty_like(*t);
      if (!like) return std::nullopt;
      t = &converted.emplace_back(std::move(*like));
    }
    tensors.push_back(t);
  }
  if (tensors.empty()) return std::nullopt;
  std::optional<Sizes> sizes = Sizes{};
  for (const TensorType* t : tensors) {
    sizes = broadcast(*sizes, t->sizes);
    if (!sizes) return std::nullopt;
  }
  auto strides = elementwise_strides(*sizes, tensors, tensors.size() < layout_of.size());
  auto device = common_device(tensors);
  if (!strides || !device) return std::nullopt;
  if (rule == ResultDType::Bool) dtype = DType::B8;
  return TensorType{*dtype, *device, std::move(*sizes), std::move(*strides)};
}

bool shape_upsample(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes size;
  if (!t || !a.exprs(1, size) || size.empty() || t->sizes.size() != size.size() + 2) return false;
  // Of no images there are no results; images of nothing eager's kernels refuse, torch's own rules
  // do not.
  const auto empty = [](Expr e) { return sym::known_equal(e, 0).value_or(false); };
  if (std::any_of(t->sizes.begin() + 1, t->sizes.end(), empty) || std::ranges::any_of(size, empty))
    throw Unsupported("an image without elements");
  const auto good = [](Expr e) { return sym::known_less(0, e).value_or(false); };
  if (!empty(t->sizes[0]) && !good(t->sizes[0])) return false;
  if (!std::all_of(t->sizes.begin() + 1, t->sizes.end(), good) || !std::ranges::all_of(size, good))
    return false;
  // With one channel rows of one element may be channels-last as well.
  const bool plain = t->is_row_major() && !t->sizes[1].is_const(1);
  const auto last = plain ? std::optional(false) : suggests_channels_last(*t);
  if (!last) return false;
  size.insert(size.begin(), t->sizes.begin(), t->sizes.begin() + 2);
  TensorType r = fresh(*t, std::move(size));
  if (*last) r.strides = channels_last_strides(r.sizes);
  return give(out, std::move(r));
}

// ---- views ----

std::optional<Sizes> view_strides(const TensorType& t, const Sizes& to) {
  if (!known(product(t.sizes), product(to))) return std::nullopt;
  if (t.is_row_major()) return ir::contiguous_strides(to);
  if (!t.numel().is_const(0)) return view_chunks(t, to);
  return t.sizes == to ? t.strides : ir::contiguous_strides(to);
}

std::optional<Sizes> infer_size(Sizes sizes, Expr numel) {
  std::optional<size_t> unknown;
  Expr rest = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].is_const(-1)) {
      rest *= sizes[i];
    } else if (unknown) {
      return std::nullopt;
    } else {
      unknown = i;
    }
  }
  if (unknown) {
    if (sym::known_equal(rest, 0).value_or(true)) return std::nullopt;
    sizes[*unknown] = sym::floordiv(numel, rest);
    rest *= sizes[*unknown];
  }
  if (!known(rest, numel)) return std::nullopt;
  return sizes;
}

// An index that counts from the end where it is negative. Of a number without a hint that is an
// expression.
static std::optional<Expr> counted_from_front(Expr index, Expr size) {
  auto negative = sym::certain_less(index, 0);
  if (!negative && sym::origin_of(index) != sym::Origin::Hinted)
    return index - size * sym::max(sym::min(index, 0), -1);
  if (!negative) negative = sym::known_less(index, 0);
  if (!negative) return std::nullopt;
  return *negative ? index + size : index;
}

std::optional<SliceBounds> slice_bounds(Expr size, std::optional<Expr> start,
                                        std::optional<Expr> end, Expr step) {
  if (!sym::known_less(0, step).value_or(false)) return std::nullopt;
  // Bounds such as the end of x[1:] are the largest int64: beyond every size.
  constexpr int64_t kNoBound = Expr::kMaxConst / 2;
  auto clamp = [&](Expr e) -> std::optional<Expr> {
    if (e.is_const() && e.value() >= kNoBound) return size;
    if (e.is_const() && e.value() <= -kNoBound) return Expr(0);
    const auto from_front = counted_from_front(e, size);
    if (!from_front) return std::nullopt;
    e = *from_front;
    if (sym::certain_less(e, 0) != false) e = sym::max(e, Expr(0));
    return sym::min(e, size);
  };
  auto first = clamp(start.value_or(Expr(0)));
  auto last = end ? clamp(*end) : std::optional(size);
  if (!first || !last) return std::nullopt;
  const Expr span = sym::max(*last - *first, Expr(0));
  return SliceBounds{*first, sym::floordiv(span + step - Expr(1), step), step};
}

std::optional<Expr> wrap_index(Expr index, Expr size) {
  const auto at = counted_from_front(index, size);
  const bool fits =
      at && !sym::known_less(*at, 0).value_or(true) && sym::known_less(*at, size).value_or(false);
  return fits ? at : std::nullopt;
}

Index reshape_index(const Sizes& from, const Sizes& to, const Index& index) {
  Index result(from.size(), Expr(0));
  if (product(from).is_const(0)) return result;
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
    // The runs that are left are equal, also where nobody can tell: so are all those before them.
    while (!known(have, want) && (i_end < from.size() || j_end < to.size())) {
      const bool grow_from = j_end == to.size() ||
                             (i_end < from.size() && sym::layout_less(have, want).value_or(false));
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
