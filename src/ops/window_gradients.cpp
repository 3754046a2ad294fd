// Gradients of pooling, of upsampling by repetition and of im2col: each element sums the gradients
// of the windows that read it, in ATen's order, which is that of the windows, of col2im that of the
// kernel's elements. Sums are rounded at each step where ATen adds in the gradient's own precision.
#include <algorithm>

#include "ops/families.h"
#include "ops/indexing.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

constexpr int64_t kMostReading = 64;  // windows that read an element

// Of one dimension: the operand's size and the gradient's, and how the windows lie.
struct Sliding {
  Expr in, out;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // That may read one element.
  int64_t windows() const { return (reach() + stride - 1) / stride; }
};

// A window that may read an element, in one dimension.
struct Reading {
  Expr window;
  std::optional<Scalar> there;  // whether it does
};

// ---- shapes ----

// A result of the operand's sizes, that of an image in its memory format.
std::optional<TensorType> gradient_type(const TensorType& t, size_t dims) {
  const bool image = dims == 2 && t.dim() == 4;
  const auto last = image ? suggests_channels_last(t) : std::optional(false);
  if (!last) return std::nullopt;
  TensorType r = fresh(t, t.sizes);
  if (*last) r.strides = channels_last_strides(r.sizes);
  return r;
}

bool is_index_of(const TensorType* indices, const TensorType& grad) {
  return indices && indices->dtype == DType::I64 && known_same(indices->sizes, grad.sizes);
}

// gradient, operand, then the forward's arguments; of a maximum its places behind them.
template <bool Max, size_t Dims>
bool shape_window_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  if (!grad || !t || grad->dtype != t->dtype || a.size() < (Max ? 8 : 6)) return false;
  const std::string_view pooling =
      Max ? (Dims == 2 ? "aten.max_pool2d_with_indices.default"
                       : "aten.max_pool3d_with_indices.default")
          : (Dims == 2 ? "aten.avg_pool2d.default" : "aten.avg_pool3d.default");
  Types pooled;
  const size_t count = Max ? 6 : std::min<size_t>(a.size() - 1, 7);  // None may be left out
  if (!find(pooling)->shape(a.with(a.list().subspan(1, count)), pooled)) return false;
  if (!known_same(pooled[0].tensor.sizes, grad->sizes)) return false;
  if (Max && !is_index_of(a.tensor(7), *grad)) return false;
  return give(out, gradient_type(*t, Dims));
}

// gradient, operand, of a maximum its places.
template <bool Max, size_t Dims>
bool shape_adaptive_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  if (!grad || !t || grad->dtype != t->dtype || !ir::is_floating(t->dtype)) return false;
  const size_t rank = t->sizes.size(), first = rank - Dims;
  if ((rank != Dims + 1 && rank != Dims + 2) || grad->sizes.size() != rank) return false;
  for (size_t d = 0; d < rank; ++d) {
    if (d < first && !known_same({t->sizes[d]}, {grad->sizes[d]})) return false;
    for (const TensorType* x : {grad, t})
      if (!sym::known_less(0, x->sizes[d]).value_or(false)) return false;
  }
  if (Max && !is_index_of(a.tensor(2), *grad)) return false;
  return give(out, gradient_type(*t, Dims));
}

// ---- the windows that read an element ----

// Calls `f` with each combination of one window a dimension, row by row.
template <class F>
void for_each_reading(Element& e, const std::vector<std::vector<Reading>>& all, size_t k, Index at,
                      std::optional<Scalar> there, F&& f) {
  if (k == all.size()) {
    f(at, there);
    return;
  }
  const size_t dim = at.size() - all.size() + k;
  for (const Reading& r : all[k]) {
    at[dim] = r.window;
    for_each_reading(e, all, k + 1, at, r.there ? e.both(there, *r.there) : there, f);
  }
}

// An element's place in its plane.
Expr place_in_plane(const Element& e, size_t dims) {
  const std::vector<Expr>& sizes = e.result_type().sizes;
  Expr place = 0;
  for (size_t d = sizes.size() - dims; d < sizes.size(); ++d) place = place * sizes[d] + e.index[d];
  return place;
}

// The sum of the gradients whose place is this element's.
Scalar sum_of_places(Element& e, const std::vector<std::vector<Reading>>& all, size_t indices) {
  const Scalar zero = e.c(0, e.result()), own = e.b.index(place_in_plane(e, all.size()));
  const Scalar nowhere = e.b.constant_int(-1, DType::I64);
  Scalar sum = zero;
  for_each_reading(e, all, 0, e.index, std::nullopt,
                   [&](const Index& at, std::optional<Scalar> there) {
                     const Scalar place = e.load(indices, at, there, nowhere);
                     const Scalar value = e.load(0, at, there, zero);
                     sum = e.add(sum, e.where(e.op(LoopOp::Eq, place, own), value, zero));
                   });
  return sum;
}

// ---- windows of one size ----

// A list of one number for every dimension, or of `dims`; `missing` where it is empty.
bool list_of_dims(const Args& a, size_t at, size_t dims, const std::vector<int64_t>& missing,
                  std::vector<int64_t>& out) {
  out.clear();
  if (!a.integers(at, out)) return false;
  if (out.empty()) out = missing;
  if (out.size() == 1) out.resize(dims, out[0]);
  return out.size() == dims;
}

std::optional<std::vector<Sliding>> slidings(const Args& a, size_t dims, bool dilated) {
  const TensorType &grad = *a.tensor(0), &t = *a.tensor(1);
  std::vector<int64_t> kernel, stride, padding, dilation(dims, 1);
  if (!list_of_dims(a, 2, dims, {}, kernel) || !list_of_dims(a, 3, dims, kernel, stride) ||
      !list_of_dims(a, 4, dims, {}, padding) ||
      (dilated && !list_of_dims(a, 5, dims, {}, dilation)))
    return std::nullopt;
  const size_t first = t.sizes.size() - dims;
  std::vector<Sliding> out;
  for (size_t k = 0; k < dims; ++k)
    out.push_back(
        {t.sizes[first + k], grad.sizes[first + k], kernel[k], stride[k], padding[k], dilation[k]});
  return out;
}

bool are_few(const std::vector<Sliding>& all) {
  int64_t windows = 1;
  for (const Sliding& s : all) windows *= std::min(s.windows(), kMostReading + 1);
  return windows <= kMostReading;
}

// `covered`: only those in whose kernel the element lies; places tell that of a maximum.
std::vector<Reading> readings(Element& e, Expr i, const Sliding& s, bool covered) {
  std::vector<Reading> out;
  // Of the element's place among as many as the stride, so that loops take the division apart.
  const Expr step = s.stride, phase = sym::mod(i, step);
  const Expr last = sym::floordiv(i, step) + sym::floordiv(phase + Expr(s.padding), step);
  for (int64_t k = s.windows() - 1; k >= 0; --k) {
    const Expr window = last - Expr(k);
    Scalar there = e.within(window, 0, s.out);
    const Expr inside = i + Expr(s.padding) - window * step;
    const bool always = s.reach() % s.stride == 0;
    if (covered && !always) there = e.op(LoopOp::And, there, e.within(inside, 0, s.reach()));
    out.push_back({window, there});
  }
  return out;
}

std::vector<std::vector<Reading>> all_readings(Element& e, const std::vector<Sliding>& all,
                                               bool covered) {
  std::vector<std::vector<Reading>> out;
  const size_t first = e.index.size() - all.size();
  for (size_t k = 0; k < all.size(); ++k)
    out.push_back(readings(e, e.index[first + k], all[k], covered));
  return out;
}

// Along the channels of a channels-last image windows are the same for neighbours. Else they are
// known line by line where the stride divides everything; other windows would be looked up one by
// one.
bool are_in_lines(const ir::Graph& g, const ir::Node& n, const std::vector<Sliding>& all) {
  if (!g.tensor_type(n.outputs[0]).is_row_major()) return true;
  return std::ranges::all_of(all, [](const Sliding& s) {
    if (s.stride == 1) return s.windows() <= 3;
    return s.stride == 2 && s.padding % 2 == 0 && sym::divisible(s.in, 2);
  });
}

template <size_t Dims>
bool applies_max_backward(const ir::Graph& g, const ir::Node& n) {
  if (!applies_computable(g, n)) return false;
  const auto all = slidings(Args(g, n), Dims, true);
  return all && are_few(*all) && are_in_lines(g, n, *all);
}

// Planes that are no loop of the kind above: every gradient is added at its place. In f32 and f64,
// where that rounds as ATen does.
template <size_t Dims>
bool decompose_max_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = r.type(n.outputs[0]), grad = *a.tensor(0);
  const auto all = slidings(a, Dims, true);
  const bool wide = t.dtype == DType::F32 || t.dtype == DType::F64;
  if (!all || !wide || !t.is_row_major() || t.numel().is_const(0)) return false;
  const bool slow = !are_in_lines(r.graph(), n, *all) ||
                    std::ranges::any_of(*all, [](const Sliding& s) { return s.windows() > 2; });
  if (!slow && are_few(*all)) return false;
  Expr planes = 1, pixels = 1, windows = 1;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    const bool inside = d >= t.sizes.size() - Dims;
    (inside ? pixels : planes) *= t.sizes[d];
    if (inside) windows *= grad.sizes[d];
  }
  const auto flat = [&](size_t i) {
    return r.view(r.row_major(n.arg(i).value()), {planes, windows});
  };
  const ValueId zeros = r.full({planes, pixels}, 0.0, t.dtype, t.device);
  const ValueId sums = r.call("aten.scatter_add.default", {zeros, 1, flat(7), flat(0)});
  return give(out, r.view(sums, t.sizes));
}

template <size_t Dims>
Scalar max_pool_backward(Element& e) {
  return sum_of_places(e, all_readings(e, *slidings(e.args, Dims, true), false), 7);
}

// kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
template <size_t Dims>
bool applies_avg_backward(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  if (!applies_computable(g, n) || !a.boolean(6)) return false;
  const auto all = slidings(a, Dims, false);
  return all && are_few(*all) && are_in_lines(g, n, *all) &&
         (a.missing(7) || a.integer(7).value_or(0) != 0);
}

// How many elements a window counts: with the padding, or only what lies inside.
Expr elements_of(const std::vector<Sliding>& all, const Index& at, bool with_padding) {
  Expr count = 1;
  for (size_t k = 0; k < all.size(); ++k) {
    const Sliding& s = all[k];
    const Expr begin = at[at.size() - all.size() + k] * Expr(s.stride) - Expr(s.padding);
    const Expr end = sym::min(begin + Expr(s.kernel), s.in + Expr(s.padding));
    count = count * (with_padding ? end - begin : sym::min(end, s.in) - sym::max(begin, Expr(0)));
  }
  return count;
}

template <size_t Dims>
Scalar avg_pool_backward(Element& e) {
  const auto all = *slidings(e.args, Dims, false);
  const bool with_padding = *e.args.boolean(6);
  const auto divisor = e.args.integer(7);
  const Scalar zero = e.c(0, e.result());
  Scalar sum = zero;
  const auto add = [&](const Index& at, std::optional<Scalar> there) {
    const Expr count = divisor ? Expr(*divisor) : elements_of(all, at, with_padding);
    const Scalar part = e.div(e.load(0, at, there, zero), e.cast(e.b.index(count), e.result()));
    sum = e.add(sum, e.where(*there, part, zero));
  };
  for_each_reading(e, all_readings(e, all, true), 0, e.index, std::nullopt, add);
  return sum;
}

// ---- col2im: self, output_size, kernel_size, dilation, padding, stride ----

// The rows and columns of the image and its blocks.
std::optional<std::vector<Sliding>> blocks(const Args& a) {
  Sizes image;
  std::vector<int64_t> kernel, dilation, padding, stride;
  if (!a.exprs(1, image) || image.size() != 2 || !list_of_dims(a, 2, 2, {}, kernel) ||
      !list_of_dims(a, 3, 2, {}, dilation) || !list_of_dims(a, 4, 2, {}, padding) ||
      !list_of_dims(a, 5, 2, {}, stride))
    return std::nullopt;
  std::vector<Sliding> out;
  for (size_t k = 0; k < 2; ++k) {
    Sliding s{image[k], 1, kernel[k], stride[k], padding[k], dilation[k]};
    if (s.kernel <= 0 || s.dilation <= 0 || s.stride <= 0 || s.padding < 0) return std::nullopt;
    const Expr room = s.in + Expr(2 * s.padding - s.reach());
    if (sym::known_less(room, 0).value_or(true)) return std::nullopt;
    s.out = sym::floordiv(room, s.stride) + Expr(1);
    out.push_back(s);
  }
  return out;
}

bool shape_col2im(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto all = blocks(a);
  if (!t || !all || !ir::is_floating(t->dtype) || (t->dim() != 2 && t->dim() != 3)) return false;
  const int64_t taps = (*all)[0].kernel * (*all)[1].kernel;
  const Expr columns = t->sizes[t->sizes.size() - 2];
  if (!sym::divisible(columns, taps) ||
      !known_same({t->sizes.back()}, {(*all)[0].out * (*all)[1].out}))
    return false;
  Sizes sizes(t->sizes.begin(), t->sizes.end() - 2);
  sizes.insert(sizes.end(), {sym::floordiv(columns, taps), (*all)[0].in, (*all)[1].in});
  return give(out, fresh(*t, std::move(sizes)));
}

bool applies_col2im(const ir::Graph& g, const ir::Node& n) {
  const auto all = blocks(Args(g, n));
  return applies_computable(g, n) && all && are_few(*all);
}

Scalar col2im(Element& e) {
  const auto all = *blocks(e.args);
  const size_t first = e.index.size() - 2;
  auto readings = all_readings(e, all, true);
  for (auto& dim : readings) std::ranges::reverse(dim);
  const Scalar zero = e.c(0, e.result());
  Scalar sum = zero;
  const auto add = [&](const Index& windows, std::optional<Scalar> there) {
    Expr column = e.index[first - 1], place = 0;
    for (size_t k = 0; k < 2; ++k) {
      const Sliding& s = all[k];
      const Expr window = windows[first + k];
      const Expr inside = e.index[first + k] + Expr(s.padding) - window * Expr(s.stride);
      column = column * Expr(s.kernel) + sym::floordiv(inside, s.dilation);
      place = place * s.out + window;
      if (s.dilation == 1) continue;
      const Scalar rest = e.b.index(sym::mod(inside, s.dilation));
      there = e.both(there, e.op(LoopOp::Eq, rest, e.b.index(0)));
    }
    Index at(e.index.begin(), e.index.begin() + first - 1);
    at.insert(at.end(), {column, place});
    sum = e.add(sum, e.load(0, at, there, zero));
  };
  for_each_reading(e, readings, 0, e.index, std::nullopt, add);
  return sum;
}

// ---- adaptive windows: window w reads from floor(w * in / out) to ceil((w + 1) * in / out) ----

Expr begin_of(const Sliding& s, Expr w) { return sym::floordiv(w * s.in, s.out); }
Expr end_of(const Sliding& s, Expr w) { return sym::ceildiv((w + Expr(1)) * s.in, s.out); }

// The most windows that read an element of this dimension; nothing where that is not known.
std::optional<int64_t> most_reading(const Sliding& s) {
  if (sym::known_equal(sym::mod(s.in, s.out), 0).value_or(false)) return 1;
  if (!s.in.is_const() || !s.out.is_const()) return std::nullopt;
  const int64_t in = s.in.value(), out = s.out.value();
  int64_t most = 0;
  for (int64_t i = 0; i < in; ++i)
    most = std::max(most, ((i + 1) * out + in - 1) / in - i * out / in);
  return most;
}

std::vector<Sliding> adaptive(const Args& a, size_t dims) {
  const TensorType &grad = *a.tensor(0), &t = *a.tensor(1);
  std::vector<Sliding> out;
  for (size_t d = t.sizes.size() - dims; d < t.sizes.size(); ++d)
    out.push_back({t.sizes[d], grad.sizes[d]});
  return out;
}

template <size_t Dims>
bool applies_adaptive_backward(const ir::Graph& g, const ir::Node& n) {
  if (!applies_computable(g, n)) return false;
  int64_t windows = 1;
  const bool in_lines = g.tensor_type(n.outputs[0]).is_row_major();
  for (const Sliding& s : adaptive(Args(g, n), Dims)) {
    const auto most = most_reading(s);
    if (!most || (in_lines && *most > 1)) return false;
    windows *= std::min(*most, kMostReading + 1);
  }
  return windows <= kMostReading;
}

std::vector<std::vector<Reading>> adaptive_readings(Element& e, const std::vector<Sliding>& all) {
  std::vector<std::vector<Reading>> out;
  for (size_t k = 0; k < all.size(); ++k) {
    const Sliding& s = all[k];
    const Expr i = e.index[e.index.size() - all.size() + k];
    const Expr from = sym::floordiv(i * s.out, s.in),
               to = sym::ceildiv((i + Expr(1)) * s.out, s.in);
    std::vector<Reading>& dim = out.emplace_back();
    for (int64_t w = 0; w < *most_reading(s); ++w)
      dim.push_back({from + Expr(w), e.within(from + Expr(w), 0, to)});
  }
  return out;
}

template <size_t Dims>
Scalar adaptive_avg_backward(Element& e) {
  const auto all = adaptive(e.args, Dims);
  const Scalar zero = e.c(0, e.result());
  Scalar sum = zero;
  const auto add = [&](const Index& at, std::optional<Scalar> there) {
    Scalar part = e.load(0, at, there, zero);
    for (size_t k = 0; k < Dims; ++k) {
      const Expr w = at[at.size() - Dims + k], length = end_of(all[k], w) - begin_of(all[k], w);
      part = e.div(part, e.cast(e.b.index(length), e.result()));
    }
    sum = e.add(sum, e.where(*there, part, zero));
  };
  for_each_reading(e, adaptive_readings(e, all), 0, e.index, std::nullopt, add);
  return sum;
}

template <size_t Dims>
Scalar adaptive_max_backward(Element& e) {
  return sum_of_places(e, adaptive_readings(e, adaptive(e.args, Dims)), 2);
}

// ---- upsampling: gradient, output_size, input_size, one scale a dimension ----

// In the gradient's memory format.
bool shape_upsample_backward(const Args& a, Types& out) {
  const TensorType* grad = a.tensor(0);
  Sizes to, from;
  if (!grad || !ir::is_floating(grad->dtype) || !a.exprs(1, to) || !a.exprs(2, from)) return false;
  const size_t rank = grad->sizes.size();
  if (rank < 3 || from.size() != rank || to.size() != rank - 2) return false;
  to.insert(to.begin(), from.begin(), from.begin() + 2);
  if (!known_same(to, grad->sizes)) return false;
  for (const Sizes* sizes : {&to, &from}) {
    for (Expr e : *sizes)
      if (!sym::known_less(0, e).value_or(false)) return false;
  }
  // ATen's kernel for volumes gives row-major ones.
  const auto last = rank == 4 ? suggests_channels_last(*grad) : std::optional(false);
  if (!last) return false;
  TensorType r = fresh(*grad, std::move(from));
  if (*last) r.strides = channels_last_strides(r.sizes);
  return give(out, std::move(r));
}

// One dimension of an image and of the result. Its place i is read by the result's from `begin(i)`
// to `begin(i + 1)`.
struct Repeated {
  int64_t from, to;
  bool exact;
  int64_t least = 0, most = 0;  // how often a place is read

  Expr begin(Expr i) const {
    if (to % from == 0) return i * Expr(to / from);
    if (exact) return sym::ceildiv(i * Expr(2 * to) - Expr(from), Expr(2 * from));
    return sym::ceildiv(i * Expr(to), Expr(from));
  }
};

// Nothing where the float arithmetic of eager's kernel reads elsewhere.
std::optional<Repeated> repeated(Expr from, Expr to, const ir::Arg& scale, bool exact) {
  const auto places = nearest_places(from, to, scale, exact);
  if (!places) return std::nullopt;
  Repeated r{from.value(), to.value(), exact, to.value(), 0};
  auto at = places->begin();
  for (int64_t i = 0; i < r.from; ++i) {
    const auto end = std::upper_bound(at, places->end(), i);
    if (r.begin(Expr(i)).value() != at - places->begin()) return std::nullopt;
    r.least = std::min(r.least, end - at);
    r.most = std::max(r.most, end - at);
    at = end;
  }
  return at == places->end() ? std::optional(r) : std::nullopt;
}

std::optional<std::vector<Repeated>> repetitions(const ir::Graph& g, const ir::Node& n,
                                                 bool exact) {
  const TensorType &grad = g.tensor_type(n.arg(0).value()), &t = g.tensor_type(n.outputs[0]);
  std::vector<Repeated> out;
  int64_t all = 1;
  for (size_t d = 2; d < t.sizes.size(); ++d) {
    const auto r = repeated(t.sizes[d], grad.sizes[d], n.arg(d + 1), exact);
    if (!r) return std::nullopt;
    all *= std::min(r->most, kMostReading + 1);
    out.push_back(*r);
  }
  return all <= kMostReading ? std::optional(std::move(out)) : std::nullopt;
}

// Along a line, places that are read by some of the result's, or by none, are looked up one by one.
template <bool Exact>
bool applies_nearest_backward(const ir::Graph& g, const ir::Node& n) {
  if (!applies_computable(g, n)) return false;
  const auto all = repetitions(g, n, Exact);
  const auto often = [](const Repeated& r) { return r.least == r.most || r.least > 1; };
  return all &&
         (!g.tensor_type(n.arg(0).value()).is_row_major() || std::ranges::all_of(*all, often));
}

template <bool Exact>
Scalar nearest_backward(Element& e) {
  const Scalar zero = e.c(0, e.result());
  Scalar sum = e.c(0, e.compute());
  std::vector<std::vector<Reading>> all;
  const std::vector<Repeated> dims = *repetitions(e.b.graph(), e.node, Exact);
  for (size_t k = 0; k < dims.size(); ++k) {
    const Repeated& r = dims[k];
    const Expr i = e.index[2 + k], begin = r.begin(i);
    std::vector<Reading>& readings = all.emplace_back();
    for (int64_t w = 0; w < r.most; ++w) {
      std::optional<Scalar> there;
      if (w >= r.least) there = e.within(begin + Expr(w), begin, r.begin(i + Expr(1)));
      readings.push_back({begin + Expr(w), there});
    }
  }
  for_each_reading(e, all, 0, e.index, std::nullopt,
                   [&](const Index& at, std::optional<Scalar> there) {
                     sum = e.add(sum, e.cast(e.load(0, at, there, zero), sum.dtype));
                   });
  return e.finish(sum);
}

constexpr OpInfo kWindowGradientOps[] = {
#include "ops/window_gradients.def"
};

}  // namespace

std::span<const OpInfo> window_gradient_ops() { return kWindowGradientOps; }

}  // namespace oxy::ops
