// Images read at computed places: upsampling by linear and cubic interpolation, and sampling at the
// points of a grid. Places are computed in ATen's order of operations; what lies beyond the image
// is read nowhere.
#include <algorithm>
#include <array>

#include "ops/families.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

// A place in one dimension, what it counts, and where it lies inside the image (nothing: always).
struct Tap {
  Expr at;
  Scalar weight;
  std::optional<Scalar> inside;
};
using Taps = std::vector<Tap>;

Scalar limited(Element& e, Scalar x, Scalar low, Scalar high) {
  return e.op(LoopOp::Min, e.op(LoopOp::Max, x, low), high);
}

Scalar integer(Element& e, int64_t v) { return e.b.constant_int(v, DType::I32); }

// A real number between 0 and size - 1 as an index. Lanes convert between numbers of four bytes at
// once.
Scalar to_integer(Element& e, Scalar x) { return e.cast(x, DType::I32); }

Expr place(Element& e, Scalar i, int64_t size) {
  return e.b.computed_index(limited(e, i, integer(e, 0), integer(e, size - 1)), Expr(size));
}

// The image at one tap a dimension, behind the leading indices, times their weights: the innermost
// dimension first, the outermost one last, as ATen sums.
Scalar weighted(Element& e, const std::vector<Taps>& taps, DType d, Index at, size_t k) {
  std::optional<Scalar> sum;
  for (const Tap& t : taps[k]) {
    at.push_back(t.at);
    const Scalar v =
        k + 1 == taps.size() ? e.cast(e.load(0, at), d) : weighted(e, taps, d, at, k + 1);
    at.pop_back();
    const Scalar part = e.mul(v, t.weight);
    sum = sum ? e.add(*sum, part) : part;
  }
  return *sum;
}

// ---- upsampling ----

// How far the source moves with one step of the result, in the precision that places are computed
// in.
double step_of(int64_t from, int64_t to, bool corners, const ir::Arg& given, DType d) {
  const auto rounded = [&](double v) { return d == DType::F32 ? static_cast<float>(v) : v; };
  if (corners)
    return to > 1 ? rounded(static_cast<double>(from - 1) / static_cast<double>(to - 1)) : 0;
  const auto* factor = given.get_if<double>();
  if (factor && *factor > 0) return rounded(1.0 / *factor);
  return rounded(static_cast<double>(from) / static_cast<double>(to));
}

// Where the result's element lies in the image.
struct Source {
  Scalar first;  // the last place not behind it, as I32
  Scalar share;  // how far behind it, between 0 and 1
};

Source source_of(Element& e, size_t k, DType d, bool cubic) {
  const size_t at = 2 + k;
  const int64_t from = e.args.tensor(0)->sizes[at].value(), to = e.result_type().sizes[at].value();
  const bool corners = *e.args.boolean(2);
  const Scalar step = e.c(step_of(from, to, corners, e.args[3 + k], d), d);
  const Scalar i = e.cast(e.cast(e.b.index(e.index[at]), DType::I32), d);
  Scalar real = e.mul(i, step);
  if (!corners) {
    real = e.fma(e.add(i, e.c(0.5, d)), step, e.c(-0.5, d));
    if (!cubic) real = e.op(LoopOp::Max, real, e.c(0, d));
  }
  const Scalar last = integer(e, from - 1);
  // ATen finds it in f32, also of a place in f64.
  const Scalar floor = e.op(LoopOp::Floor, e.cast(real, DType::F32));
  const Scalar first = e.op(LoopOp::Min, to_integer(e, floor), last);
  const Scalar share = limited(e, e.sub(real, e.cast(first, d)), e.c(0, d), e.c(1, d));
  return {first, share};
}

template <size_t Dims>
Scalar upsample_linear(Element& e) {
  const DType d = e.compute();
  std::vector<Taps> taps;
  bool kept = false;  // is the size of a dimension
  for (size_t k = 0; k < Dims; ++k) {
    const int64_t from = e.args.tensor(0)->sizes[2 + k].value();
    if (from == e.result_type().sizes[2 + k].value()) {
      taps.push_back({{e.index[2 + k], e.c(1, d), {}}});
      kept = true;
      continue;
    }
    const Source s = source_of(e, k, d, false);
    const Scalar next = e.add(s.first, integer(e, 1));
    taps.push_back({{place(e, s.first, from), e.sub(e.c(1, d), s.share), {}},
                    {place(e, next, from), s.share, {}}});
  }
  const Scalar sum = weighted(e, taps, d, {e.index[0], e.index[1]}, 0);
  // ATen adds 0 times the element again, which is no number where that is infinite.
  return e.finish(kept ? e.fma(sum, e.c(0, d), sum) : sum);
}

// Keys' cubic convolution with a = -3/4 ("Cubic convolution interpolation for digital image
// processing", 1981): the weights of the four elements around a place, `t` behind the second one.
constexpr double kA = -0.75;

Scalar near_weight(Element& e, Scalar x) {
  const DType d = x.dtype;
  const Scalar inner = e.sub(e.mul(x, e.c(kA + 2, d)), e.c(kA + 3, d));
  return e.add(e.mul(e.mul(inner, x), x), e.c(1, d));
}

Scalar far_weight(Element& e, Scalar x) {
  const DType d = x.dtype;
  const Scalar square = e.mul(e.sub(e.mul(x, e.c(kA, d)), e.c(5 * kA, d)), x);
  return e.sub(e.mul(e.add(square, e.c(8 * kA, d)), x), e.c(4 * kA, d));
}

std::array<Scalar, 4> cubic_weights(Element& e, Scalar t) {
  const DType d = t.dtype;
  const Scalar rest = e.sub(e.c(1, d), t);
  return {far_weight(e, e.add(t, e.c(1, d))), near_weight(e, t), near_weight(e, rest),
          far_weight(e, e.add(rest, e.c(1, d)))};
}

Scalar upsample_bicubic(Element& e) {
  const DType d = e.compute();
  std::vector<Taps> taps;
  for (size_t k = 0; k < 2; ++k) {
    const int64_t from = e.args.tensor(0)->sizes[2 + k].value();
    const Source s = source_of(e, k, d, true);
    const auto weights = cubic_weights(e, s.share);
    Taps line;
    for (int64_t j = 0; j < 4; ++j) {
      const Scalar i = e.add(s.first, integer(e, j - 1));
      line.push_back({place(e, i, from), weights[static_cast<size_t>(j)], {}});
    }
    taps.push_back(std::move(line));
  }
  return e.finish(weighted(e, taps, d, {e.index[0], e.index[1]}, 0));
}

// `first`: of the dimensions that count; those in front of it may vary.
bool has_constant_sizes(const TensorType& t, size_t first = 0) {
  return std::all_of(t.sizes.begin() + static_cast<ptrdiff_t>(first), t.sizes.end(), [](Expr s) {
    return s.is_const() && s.value() > 0 && s.value() < (int64_t{1} << 24);
  });
}

template <size_t Dims>
bool applies_upsample(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  const TensorType &t = *a.tensor(0), &r = g.tensor_type(n.outputs[0]);
  bool known = a.boolean(2).has_value();
  for (size_t k = 0; k < Dims; ++k)
    known &= a.missing(3 + k) || a[3 + k].get_if<double>() != nullptr;
  return known && has_computable_types(g, n) && ir::is_floating(t.dtype) &&
         t.sizes.size() == Dims + 2 && has_constant_sizes(t, 2) && has_constant_sizes(r, 2);
}

// ---- grid_sampler ----

enum class Interpolation : uint8_t { Linear, Nearest, Cubic };
enum class Outside : uint8_t { Zeros, Border, Reflection };

// One dimension of the image, and how a coordinate of the grid, -1 to 1, becomes a place.
struct Line {
  int64_t size = 0;
  bool corners = false;
  Outside outside = Outside::Zeros;
  bool of_volume = false;  // ATen rounds otherwise than for a plane
};

Scalar unnormalised(Element& e, Scalar x, const Line& l) {
  const DType d = x.dtype;
  const Scalar from_zero = e.add(x, e.c(1, d));
  const Scalar half = e.c(0.5, d);
  if (l.of_volume && l.corners)
    return e.mul(e.mul(from_zero, half), e.c(static_cast<double>(l.size - 1), d));
  if (l.of_volume)
    return e.mul(e.sub(e.mul(from_zero, e.c(static_cast<double>(l.size), d)), e.c(1, d)), half);
  if (l.corners) return e.mul(from_zero, e.c(static_cast<double>(l.size - 1) / 2, d));
  return e.fma(from_zero, e.c(static_cast<double>(l.size) / 2, d), e.c(-0.5, d));
}

// NaN becomes 0, of a volume the last place.
Scalar clipped(Element& e, Scalar x, const Line& l) {
  const DType d = x.dtype;
  const Scalar zero = e.c(0, d), last = e.c(static_cast<double>(l.size - 1), d);
  const Scalar positive = l.of_volume ? e.where(e.op(LoopOp::Lt, x, zero), zero, x)
                                      : e.where(e.op(LoopOp::Gt, x, zero), x, zero);
  return e.where(e.op(LoopOp::Lt, positive, last), positive, last);
}

Scalar reflected(Element& e, Scalar x, const Line& l) {
  const DType d = x.dtype;
  const double low = l.corners ? 0 : -0.5;
  const double span = static_cast<double>(l.corners ? l.size - 1 : l.size);
  if (span == 0) return e.c(0, d);
  const Scalar twice = e.c(2 * span, d);
  const Scalar far = e.op(LoopOp::Abs, e.sub(x, e.c(low, d)));
  if (l.of_volume) {
    // ATen counts turns in an int, in which those that it cannot hold are even.
    const Scalar rest = e.op(LoopOp::Fmod, far, e.c(span, d));
    const Scalar turns = e.op(LoopOp::Floor, e.div(far, e.c(span, d)));
    const Scalar half = e.mul(turns, e.c(0.5, d));
    const Scalar odd = e.op(LoopOp::And, e.op(LoopOp::Lt, e.op(LoopOp::Floor, half), half),
                            e.op(LoopOp::Lt, turns, e.c(2147483648.0, d)));
    return e.add(e.where(odd, e.sub(e.c(span, d), rest), rest), e.c(low, d));
  }
  const Scalar turns = e.op(LoopOp::Trunc, e.div(far, twice));
  const Scalar rest = e.sub(far, e.mul(turns, twice));
  return e.add(e.op(LoopOp::Min, rest, e.sub(twice, rest)), e.c(low, d));
}

Scalar source_place(Element& e, Scalar x, const Line& l) {
  if (l.outside == Outside::Zeros) return x;
  return clipped(e, l.outside == Outside::Reflection ? reflected(e, x, l) : x, l);
}

// A whole number beside a place of one dimension, and whether the image has it.
struct Neighbour {
  Scalar whole, weight, inside;
};
using Neighbours = std::vector<Neighbour>;

Neighbour neighbour_of(Element& e, Scalar whole, Scalar weight, const Line& l) {
  const DType d = whole.dtype;
  const Scalar last = e.c(static_cast<double>(l.size - 1), d), zero = e.c(0, d);
  return {whole, weight,
          e.op(LoopOp::And, e.op(LoopOp::Ge, whole, zero), e.op(LoopOp::Le, whole, last))};
}

Neighbours neighbours_of(Element& e, Scalar coordinate, const Line& l, Interpolation mode) {
  const DType d = coordinate.dtype;
  const Scalar x = unnormalised(e, coordinate, l);
  if (mode == Interpolation::Cubic) {
    const Scalar floor = e.op(LoopOp::Floor, x);
    const auto weights = cubic_weights(e, e.sub(x, floor));
    Neighbours out;
    for (int j = 0; j < 4; ++j) {
      const Scalar whole = source_place(e, e.add(floor, e.c(j - 1, d)), l);
      out.push_back(neighbour_of(e, whole, weights[static_cast<size_t>(j)], l));
    }
    return out;
  }
  const Scalar at = source_place(e, x, l);
  if (mode == Interpolation::Nearest) {
    return {neighbour_of(e, e.op(LoopOp::Round, at), e.c(1, d), l)};
  }
  const Scalar floor = e.op(LoopOp::Floor, at), share = e.sub(at, floor), one = e.c(1, d);
  return {neighbour_of(e, floor, e.sub(one, share), l),
          neighbour_of(e, e.add(floor, one), share, l)};
}

// Whether the image has one of a point's neighbours.
Scalar reaches_image(Element& e, const std::vector<Neighbours>& lines) {
  std::optional<Scalar> all;
  for (const Neighbours& line : lines) {
    Scalar any = line[0].inside;
    for (size_t j = 1; j < line.size(); ++j) any = e.op(LoopOp::Or, any, line[j].inside);
    all = e.both(all, any);
  }
  return *all;
}

// Neighbours inside of the image or not are read inside of it; where `reached` does not hold, all
// at one place.
std::vector<Taps> taps_of(Element& e, const std::vector<Neighbours>& lines,
                          std::optional<Scalar> reached, std::span<const Expr> sizes) {
  std::vector<Taps> taps(lines.size());
  for (size_t k = 0; k < lines.size(); ++k) {
    for (const Neighbour& n : lines[k]) {
      const Scalar whole = e.where(e.both(reached, n.inside), n.whole, e.c(0, n.whole.dtype));
      taps[k].push_back({e.b.computed_index(to_integer(e, whole), sizes[k]), n.weight, n.inside});
    }
  }
  return taps;
}

// What lies outside counts as 0; the place is inside in any case.
Scalar masked_tap(Element& e, const Index& at, Scalar inside) {
  return e.where(inside, e.load(0, at), e.c(0, e.result()));
}

// Products of weights first, as ATen does for linear interpolation.
Scalar sum_of_corners(Element& e, const std::vector<Taps>& taps) {
  std::optional<Scalar> sum;
  const size_t dims = taps.size();
  std::vector<size_t> corner(dims, 0);
  for (;;) {
    Index at{e.index[0], e.index[1]};
    std::optional<Scalar> weight, inside;
    for (size_t k = 0; k < dims; ++k) at.push_back(taps[k][corner[k]].at);
    for (size_t k = dims; k-- > 0;) {
      const Tap& t = taps[k][corner[k]];
      weight = weight ? e.mul(*weight, t.weight) : t.weight;
      inside = e.both(inside, *t.inside);
    }
    const Scalar v = masked_tap(e, at, *inside);
    const Scalar part = taps[0].size() == 1 ? v : e.mul(v, *weight);
    sum = sum ? e.add(*sum, part) : part;
    size_t k = dims;
    while (k > 0 && ++corner[k - 1] == taps[k - 1].size()) corner[--k] = 0;
    if (k == 0) return *sum;
  }
}

// Along each line first.
Scalar sum_of_lines(Element& e, const std::vector<Taps>& taps) {
  std::optional<Scalar> sum;
  for (const Tap& y : taps[0]) {
    std::optional<Scalar> line;
    for (const Tap& x : taps[1]) {
      const Scalar inside = e.op(LoopOp::And, *x.inside, *y.inside);
      const Scalar part =
          e.mul(masked_tap(e, {e.index[0], e.index[1], y.at, x.at}, inside), x.weight);
      line = line ? e.add(*line, part) : part;
    }
    const Scalar part = e.mul(*line, y.weight);
    sum = sum ? e.add(*sum, part) : part;
  }
  return *sum;
}

// The grid names the last dimension first.
template <size_t Dims>
Scalar grid_sampler(Element& e) {
  const TensorType& t = *e.args.tensor(0);
  const auto mode = static_cast<Interpolation>(*e.args.integer(2));
  Line line;
  line.outside = static_cast<Outside>(*e.args.integer(3));
  line.corners = *e.args.boolean(4);
  line.of_volume = Dims == 3;
  std::vector<Neighbours> lines;
  for (size_t k = 0; k < Dims; ++k) {
    line.size = t.sizes[2 + k].value();
    Index at{e.index[0]};
    at.insert(at.end(), e.index.begin() + 2, e.index.end());
    at.push_back(Expr(static_cast<int64_t>(Dims - 1 - k)));
    lines.push_back(neighbours_of(e, e.load(1, at), line, mode));
  }
  // Points outside may be many, and far apart: a volume is not read for them. ATen does not look at
  // the weights of a point that is NaN there either.
  std::optional<Scalar> reached;
  if (line.of_volume) reached = reaches_image(e, lines);
  const std::vector<Taps> taps = taps_of(e, lines, reached, std::span(t.sizes).subspan(2));
  if (mode == Interpolation::Cubic) return sum_of_lines(e, taps);
  const Scalar sum = sum_of_corners(e, taps);
  return reached ? e.where(*reached, sum, e.c(0, e.result())) : sum;
}

// Images of the points of the grid, row by row.
template <size_t Dims>
bool shape_grid(const Args& a, Types& out) {
  const TensorType *image = a.tensor(0), *grid = a.tensor(1);
  if (!image || !grid || image->sizes.size() != Dims + 2 || grid->sizes.size() != Dims + 2 ||
      image->dtype != grid->dtype || !ir::is_floating(image->dtype))
    return false;
  auto same = [](Expr x, Expr y) { return sym::known_equal(x, y).value_or(false); };
  auto filled = [](Expr size) { return sym::known_less(0, size).value_or(false); };
  if (!same(image->sizes[0], grid->sizes[0]) || !same(grid->sizes.back(), Expr(Dims)) ||
      !std::all_of(image->sizes.begin() + 2, image->sizes.end(), filled))
    return false;
  Sizes sizes{image->sizes[0], image->sizes[1]};
  sizes.insert(sizes.end(), grid->sizes.begin() + 1, grid->sizes.end() - 1);
  return give(out, fresh(*image, std::move(sizes)));
}

// theta, the size of the images that the points are for.
bool shape_affine_grid(const Args& a, Types& out) {
  const TensorType* theta = a.tensor(0);
  Sizes size;
  if (!theta || !a.exprs(1, size) || size.size() < 4 || size.size() > 5) return false;
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  if (!known_same(theta->sizes, {size[0], Expr(dims), Expr(dims + 1)})) return false;
  size.erase(size.begin() + 1);
  size.emplace_back(dims);
  return give(out, fresh(*theta, std::move(size)));
}

template <size_t Dims>
bool applies_grid(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  const TensorType &t = *a.tensor(0), *grid = a.tensor(1);
  auto mode = a.integer(2), outside = a.integer(3);
  if (!mode || !outside || !a.boolean(4) || *mode > (Dims == 2 ? 2 : 1) || *outside > 2)
    return false;
  // The library finds a point's place once for all channels, but computes volumes' corners without
  // vectors; cubic weights of f64 take longer than what lies along the channels.
  const bool nearest = *mode == static_cast<int64_t>(Interpolation::Nearest);
  const bool cubic = *mode == static_cast<int64_t>(Interpolation::Cubic);
  const bool by_weights = cubic && t.dtype == DType::F64 && !t.strides[1].is_const(1);
  const bool shares_places = nearest || (Dims == 2 && !by_weights);
  return (t.dtype == DType::F32 || t.dtype == DType::F64) && grid && grid->dtype == t.dtype &&
         has_constant_sizes(t) && has_constant_sizes(*grid) &&
         !(shares_places && t.sizes[1].value() >= tuning::grid_shared_channels);
}

constexpr OpInfo kSamplingOps[] = {
#include "ops/sampling.def"
};

}  // namespace

std::span<const OpInfo> sampling_ops() { return kSamplingOps; }

}  // namespace oxy::ops
