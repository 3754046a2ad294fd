// Pooling: the taps of a window one after the other, in ATen's order, so that neighbouring results
// are computed at once. Large windows stay extern calls.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "ops/families.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

constexpr int64_t kMostTaps = 64;

// Of N spatial dimensions, the last ones of the operand.
struct Window {
  std::vector<int64_t> kernel, stride, padding, dilation;
  std::vector<int64_t> size;  // of the operand
  std::vector<int64_t> pooled;
  bool ceil = false;

  size_t dims() const { return kernel.size(); }
  int64_t taps() const {
    return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies());
  }
};

bool constant_sizes(const TensorType& t, size_t dims, std::vector<int64_t>& out) {
  for (size_t d = t.sizes.size() - dims; d < t.sizes.size(); ++d) {
    if (!t.sizes[d].is_const() || t.sizes[d].value() <= 0) return false;
    out.push_back(t.sizes[d].value());
  }
  return true;
}

// A list of one number for every dimension, or of `dims`; `missing` where it was left out or is
// empty.
bool spatial(const Args& a, size_t at, size_t dims, const std::vector<int64_t>& missing,
             std::vector<int64_t>& out) {
  const auto* items = a[at].items();
  out.clear();
  if (a.missing(at) || (items && items->empty())) {
    out = missing;
  } else if (!a.integers(at, out)) {
    return false;
  } else if (out.size() == 1) {
    out.resize(dims, out[0]);
  }
  return out.size() == dims;
}

// self, kernel_size, stride, padding, then dilation where there is one, ceil_mode; without the
// sizes.
std::optional<Window> window_arguments(const Args& a, size_t dims, bool dilated) {
  Window w;
  const std::vector<int64_t> zeros(dims, 0), ones(dims, 1);
  w.dilation = ones;
  auto ceil = a.boolean(dilated ? 5 : 4, false);
  if (!spatial(a, 1, dims, {}, w.kernel) || !spatial(a, 2, dims, w.kernel, w.stride) ||
      !spatial(a, 3, dims, zeros, w.padding) ||
      (dilated && !spatial(a, 4, dims, ones, w.dilation)) || !ceil)
    return std::nullopt;
  w.ceil = *ceil;
  return w;
}

std::optional<Window> window(const Args& a, const TensorType& result, size_t dims, bool dilated) {
  const TensorType* t = a.tensor(0);
  auto w = window_arguments(a, dims, dilated);
  if (!t || !w || t->sizes.size() < dims || !constant_sizes(*t, dims, w->size) ||
      !constant_sizes(result, dims, w->pooled))
    return std::nullopt;
  return w;
}

// ---- shapes, of images with or without a batch ----

bool is_positive(Expr e) { return sym::known_less(0, e).value_or(false); }

// Of N spatial dimensions.
bool is_image(const TensorType* t, size_t dims) {
  if (!t || !ir::is_floating(t->dtype)) return false;
  const size_t rank = t->sizes.size();
  // Eager takes an empty batch.
  return (rank == dims + 1 || rank == dims + 2) &&
         std::all_of(t->sizes.begin() + (rank == dims + 2), t->sizes.end(), is_positive);
}

// Batches of planes keep torch's idea of their format; other layouts of volumes than row-major are
// left to it.
std::optional<TensorType> pooled_type(const TensorType& t, size_t dims, Sizes sizes) {
  const size_t rank = sizes.size();
  const bool planes = dims == 2;
  if (!planes && !t.is_row_major()) return std::nullopt;
  const auto last = rank < 4 ? std::optional(false) : suggests_channels_last(t);
  if (!last || (*last && !planes)) return std::nullopt;
  TensorType r = fresh(t, std::move(sizes));
  if (*last) r.strides = channels_last_strides(r.sizes);
  return r;
}

// The values of a pooling, behind them the places of a maximum.
bool give_pooled(Types& out, std::optional<TensorType> values, bool places) {
  if (!give(out, values)) return false;
  if (places) {
    values->dtype = DType::I64;
    out.push_back(ir::Type::of(std::move(*values)));
  }
  return true;
}

// Nothing where eager refuses the window.
std::optional<Expr> pooled_size(Expr in, const Window& w, size_t d) {
  const int64_t stride = w.stride[d], padding = w.padding[d];
  const int64_t reach = w.dilation[d] * (w.kernel[d] - 1) + 1;
  if (stride <= 0 || w.kernel[d] <= 0 || w.dilation[d] <= 0) return std::nullopt;
  if (padding < 0 || padding > reach / 2) return std::nullopt;
  const Expr room = in + Expr(2 * padding - reach), slack = w.ceil ? stride - 1 : 0;
  // Eager takes a window larger than the image, but for averages of three dimensions.
  const Expr least = w.dims() < 3 ? room + slack : room;
  if (sym::known_less(least, 0).value_or(true)) return std::nullopt;
  const Expr n = sym::floordiv(room + slack, stride) + Expr(1);
  // The last window begins inside, or in the padding in front.
  return w.ceil ? sym::min(n, sym::ceildiv(in + Expr(padding), stride)) : n;
}

// A max_pool has dilation and gives places too.
template <bool Max, size_t Dims>
bool shape_pool(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto w = window_arguments(a, Dims, Max);
  if (!is_image(t, Dims) || !w) return false;
  // ATen has no kernel for those on the CPU.
  if (!Max && Dims == 3 && is_reduced_float(t->dtype)) return false;
  std::vector<Expr> sizes = t->sizes;
  const size_t first = sizes.size() - Dims;
  for (size_t d = 0; d < Dims; ++d) {
    auto n = pooled_size(t->sizes[first + d], *w, d);
    if (!n) return false;
    sizes[first + d] = *n;
  }
  return give_pooled(out, pooled_type(*t, Dims, std::move(sizes)), Max);
}

template <bool Max, size_t Dims>
bool shape_adaptive_pool(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  std::vector<Expr> size;
  if (!is_image(t, Dims) || !a.exprs(1, size)) return false;
  if (size.size() == 1) size.resize(Dims, size[0]);
  if (size.size() != Dims || !std::ranges::all_of(size, is_positive)) return false;
  std::vector<Expr> sizes = t->sizes;
  std::ranges::copy(size, sizes.end() - Dims);
  return give_pooled(out, pooled_type(*t, Dims, std::move(sizes)), Max);
}

// Calls `f` with the tap's place in the window, row by row.
template <class F>
void for_each_tap(const Window& w, F&& f) {
  std::vector<int64_t> tap(w.dims(), 0);
  for (int64_t n = w.taps(); n > 0; --n) {
    f(tap);
    for (size_t d = w.dims(); d > 0; --d) {
      if (++tap[d - 1] < w.kernel[d - 1]) break;
      tap[d - 1] = 0;
    }
  }
}

struct WindowTap {
  Scalar value;
  Index at;
};

// The operand under a tap, `outside` where that is beyond its borders.
WindowTap tap_at(Element& e, const Window& w, const std::vector<int64_t>& tap, Scalar outside) {
  const size_t first = e.index.size() - w.dims();
  Index place = e.index;
  std::optional<Scalar> inside;  // nothing where it is inside for every result
  for (size_t d = 0; d < w.dims(); ++d) {
    const int64_t shift = tap[d] * w.dilation[d] - w.padding[d];
    const Expr at = place[first + d] = e.index[first + d] * Expr(w.stride[d]) + Expr(shift);
    if (shift < 0) inside = e.both(inside, e.op(LoopOp::Ge, e.b.index(at), e.b.index(0)));
    if ((w.pooled[d] - 1) * w.stride[d] + shift >= w.size[d])
      inside = e.both(inside, e.op(LoopOp::Lt, e.b.index(at), e.b.index(Expr(w.size[d]))));
  }
  return {e.load(0, place, inside, outside), place};
}

// ---- max_pool ----

double lowest(DType d) { return ir::is_floating(d) ? -std::numeric_limits<double>::infinity() : 0; }

// Whether a value takes the place of the best one so far: it is larger, or a NaN.
Scalar replaces(Element& e, Scalar value, Scalar best) {
  return e.op(LoopOp::Or, e.op(LoopOp::Gt, value, best), e.op(LoopOp::IsNan, value));
}

// Where the window of this result begins inside the operand: what a window of nothing but the
// lowest number gives.
Expr first_place(Element& e, const Window& w) {
  const size_t first = e.index.size() - w.dims();
  Expr place = 0;
  for (size_t d = 0; d < w.dims(); ++d) {
    const Expr begin = e.index[first + d] * Expr(w.stride[d]) - Expr(w.padding[d]);
    place = place * Expr(w.size[d]) + (w.padding[d] > 0 ? sym::max(begin, Expr(0)) : begin);
  }
  return place;
}

// A NaN, else the first of the largest; its place (of the last NaN) in the operand's plane is the
// second result.
template <size_t Dims>
Scalar max_pool(Element& e) {
  const DType d = e.args.tensor(0)->dtype;
  const Window w = *window(e.args, e.result_type(), Dims, true);
  const bool places = e.out == 1;
  Scalar best = e.c(lowest(d), opmath(d));
  Scalar place = places ? e.b.index(first_place(e, w)) : best;
  const size_t first = e.index.size() - Dims;
  for_each_tap(w, [&](const std::vector<int64_t>& tap) {
    const WindowTap t = tap_at(e, w, tap, e.c(lowest(d), d));
    const Scalar value = e.cast(t.value, opmath(d));
    if (places) {
      Expr at = 0;
      for (size_t k = 0; k < Dims; ++k) at = at * Expr(w.size[k]) + t.at[first + k];
      place = e.where(replaces(e, value, best), e.b.index(at), place);
    }
    best = e.op(LoopOp::Max, best, value);
  });
  return places ? place : e.finish(best);
}

template <size_t Dims>
bool applies_max_pool(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  if (!has_computable_types(g, n) || !ir::is_floating(a.tensor(0)->dtype)) return false;
  auto w = window(a, g.tensor_type(n.outputs[0]), Dims, true);
  if (!w || w->taps() > kMostTaps) return false;
  // The first place of a dilated window is not the operand's border.
  for (size_t d = 0; d < Dims; ++d) {
    if (w->padding[d] > 0 && w->dilation[d] > 1) return false;
  }
  return true;
}

// ---- avg_pool ----

// How many elements a window counts: with the padding, or only what lies inside.
Scalar window_count(Element& e, const Window& w, bool with_padding, DType d) {
  const size_t first = e.index.size() - w.dims();
  Expr count = 1;
  for (size_t k = 0; k < w.dims(); ++k) {
    const Expr begin = e.index[first + k] * Expr(w.stride[k]) - Expr(w.padding[k]);
    const int64_t last = (w.pooled[k] - 1) * w.stride[k] - w.padding[k] + w.kernel[k];
    Expr from = begin, to = begin + Expr(w.kernel[k]);
    const int64_t limit = with_padding ? w.size[k] + w.padding[k] : w.size[k];
    if (last > limit) to = sym::min(to, Expr(limit));
    if (!with_padding && w.padding[k] > 0) from = sym::max(from, Expr(0));
    count = count * (to - from);
  }
  return e.cast(e.b.index(count), d);
}

Scalar window_sum(Element& e, const Window& w) {
  Scalar sum = e.c(0, e.compute());
  for_each_tap(w, [&](const std::vector<int64_t>& tap) {
    sum = e.add(sum, e.cast(tap_at(e, w, tap, e.c(0, e.result())).value, sum.dtype));
  });
  return sum;
}

// self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
template <size_t Dims>
Scalar avg_pool(Element& e) {
  const DType d = e.compute();
  const Window w = *window(e.args, e.result_type(), Dims, false);
  const Scalar sum = window_sum(e, w);
  auto divisor = e.args.integer(6);
  const Scalar count = divisor ? e.c(static_cast<double>(*divisor), d)
                               : window_count(e, w, *e.args.boolean(5, true), d);
  return e.finish(e.div(sum, count));
}

template <size_t Dims>
bool applies_avg_pool(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  if (!has_computable_types(g, n) || !ir::is_floating(a.tensor(0)->dtype)) return false;
  auto w = window(a, g.tensor_type(n.outputs[0]), Dims, false);
  if (!w || w->taps() > kMostTaps || !a.boolean(5, true)) return false;
  return a.missing(6) || a.integer(6).value_or(0) != 0;
}

// ---- adaptive_avg_pool: windows of one size ----

std::optional<Window> even_window(const ir::Graph& g, const ir::Node& n, size_t dims) {
  Window w;
  const TensorType *t = Args(g, n).tensor(0), *r = &g.tensor_type(n.outputs[0]);
  if (!constant_sizes(*t, dims, w.size) || !constant_sizes(*r, dims, w.pooled)) return std::nullopt;
  for (size_t d = 0; d < dims; ++d) {
    if (w.size[d] % w.pooled[d] != 0) return std::nullopt;
    w.kernel.push_back(w.size[d] / w.pooled[d]);
  }
  w.stride = w.kernel;
  w.padding.assign(dims, 0);
  w.dilation.assign(dims, 1);
  return w;
}

// ---- adaptive windows of several sizes ----
// Result i takes the elements from floor(i * in / out) to ceil((i + 1) * in / out).

struct Stretch {
  int64_t in = 0, out = 0;
  int64_t longest = 0, shortest = 0;

  int64_t from(int64_t i) const { return i * in / out; }
  int64_t to(int64_t i) const { return ((i + 1) * in + out - 1) / out; }
};

std::optional<std::vector<Stretch>> stretches(const ir::Graph& g, const ir::Node& n, size_t dims) {
  const TensorType *t = Args(g, n).tensor(0), *r = &g.tensor_type(n.outputs[0]);
  std::vector<int64_t> in, out;
  if (!constant_sizes(*t, dims, in) || !constant_sizes(*r, dims, out)) return std::nullopt;
  std::vector<Stretch> result;
  int64_t taps = 1;
  for (size_t d = 0; d < dims; ++d) {
    Stretch s{in[d], out[d], 0, in[d]};
    for (int64_t i = 0; i < s.out; ++i) {
      s.longest = std::max(s.longest, s.to(i) - s.from(i));
      s.shortest = std::min(s.shortest, s.to(i) - s.from(i));
    }
    taps *= s.longest;
    result.push_back(s);
  }
  return taps <= kMostTaps ? std::optional(std::move(result)) : std::nullopt;
}

Expr first_of(const Stretch& s, Expr i) { return sym::floordiv(i * Expr(s.in), Expr(s.out)); }

Expr length_of(const Stretch& s, Expr i) {
  return sym::floordiv((i + Expr(1)) * Expr(s.in) + Expr(s.out - 1), Expr(s.out)) - first_of(s, i);
}

// Calls `f` with the operand under each tap of the longest window, `outside` behind the end of a
// shorter one.
template <class F>
void for_each_stretched_tap(Element& e, const std::vector<Stretch>& stretch, Scalar outside,
                            F&& f) {
  const size_t first = e.index.size() - stretch.size();
  Window all;
  for (const Stretch& s : stretch) all.kernel.push_back(s.longest);
  for_each_tap(all, [&](const std::vector<int64_t>& tap) {
    Index at = e.index;
    std::optional<Scalar> inside;
    for (size_t d = 0; d < stretch.size(); ++d) {
      const Expr i = e.index[first + d];
      at[first + d] = first_of(stretch[d], i) + Expr(tap[d]);
      if (tap[d] < stretch[d].shortest) continue;
      const Scalar place = e.b.index(Expr(tap[d]));
      inside = e.both(inside, e.op(LoopOp::Lt, place, e.b.index(length_of(stretch[d], i))));
    }
    f(WindowTap{e.load(0, at, inside, outside), at});
  });
}

Scalar uneven_average(Element& e, const std::vector<Stretch>& stretch) {
  const DType d = e.compute();
  const size_t first = e.index.size() - stretch.size();
  Scalar sum = e.c(0, d);
  for_each_stretched_tap(e, stretch, e.c(0, e.result()),
                         [&](const WindowTap& t) { sum = e.add(sum, e.cast(t.value, d)); });
  for (size_t k = 0; k < stretch.size(); ++k) {
    const Expr length = length_of(stretch[k], e.index[first + k]);
    sum = e.div(sum, e.cast(e.b.index(length), d));
  }
  return e.finish(sum);
}

// The last NaN, else the first of the largest; its place in the operand's plane is the second
// result.
template <size_t Dims>
Scalar adaptive_max_pool(Element& e) {
  const DType d = e.args.tensor(0)->dtype;
  const auto stretch = *stretches(e.b.graph(), e.node, Dims);
  const size_t first = e.index.size() - Dims;
  const bool places = e.out == 1;
  const auto place_of = [&](const auto& coordinate) {
    Expr at = 0;
    for (size_t k = 0; k < Dims; ++k) at = at * Expr(stretch[k].in) + coordinate(k);
    return e.b.index(at);
  };
  Scalar best = e.c(lowest(d), opmath(d)), place = best;
  if (places) place = place_of([&](size_t k) { return first_of(stretch[k], e.index[first + k]); });
  for_each_stretched_tap(e, stretch, e.c(lowest(d), d), [&](const WindowTap& t) {
    const Scalar value = e.cast(t.value, opmath(d));
    if (places)
      place = e.where(replaces(e, value, best), place_of([&](size_t k) { return t.at[first + k]; }),
                      place);
    best = e.op(LoopOp::Max, best, value);
  });
  return places ? place : e.finish(best);
}

template <size_t Dims>
bool applies_adaptive_max(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) && ir::is_floating(Args(g, n).tensor(0)->dtype) &&
         stretches(g, n, Dims);
}

template <size_t Dims>
Scalar adaptive_avg_pool(Element& e) {
  const auto w = even_window(e.b.graph(), e.node, Dims);
  if (!w) return uneven_average(e, *stretches(e.b.graph(), e.node, Dims));
  Scalar sum = window_sum(e, *w);
  for (int64_t k : w->kernel) sum = e.div(sum, e.c(static_cast<double>(k), sum.dtype));
  return e.finish(sum);
}

template <size_t Dims>
bool applies_adaptive(const ir::Graph& g, const ir::Node& n) {
  if (!has_computable_types(g, n) || !ir::is_floating(g.tensor_type(n.outputs[0]).dtype))
    return false;
  auto w = even_window(g, n, Dims);
  return w ? w->taps() <= kMostTaps : stretches(g, n, Dims).has_value();
}

bool shape_fractional_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  if (!grad || !t || grad->dtype != t->dtype || grad->dim() != t->dim()) return false;
  return give(out, fresh(*t, t->sizes));
}

constexpr OpInfo kWindowOps[] = {
#include "ops/windows.def"
};

}  // namespace

std::span<const OpInfo> window_ops() { return kWindowOps; }

}  // namespace oxy::ops
