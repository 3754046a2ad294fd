// Softmax and the normalisations: shapes, and their meaning in sums, differences and products. Half
// precision is widened once at the start and rounded once at the end, as ATen's kernels do.
#include "ops/normalization.h"

#include <limits>

#include "ops/families.h"

namespace oxy::ops {

using ir::TensorType;
using ir::ValueId;

bool is_real(const TensorType* t) {
  return t && ir::is_floating(t->dtype) && is_computable(t->dtype);
}

ValueId mean_over(Rewriter& r, ValueId v, const Dims& dims) {
  Expr count = 1;
  for (int64_t d : dims) count *= r.type(v).sizes[d];
  return r.div(r.sum(v, dims, true), count);
}

std::optional<TensorType> batch_norm_like(const TensorType& t) {
  TensorType y = fresh(t, t.sizes);
  if (t.is_contiguous() || (t.dim() != 4 && t.dim() != 5)) return y;
  const Sizes last = channels_last_strides(t.sizes);
  bool same = true;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    const auto one = sym::known_equal(t.sizes[d], 1);
    if (!one) return std::nullopt;
    same = same && (*one || t.strides[d] == last[d]);
  }
  const auto suggested = same ? std::optional(true) : suggests_channels_last(t);
  if (!suggested) return std::nullopt;
  if (*suggested) y.strides = last;
  return y;
}

std::optional<TensorType> suggested_like(const TensorType& t) {
  TensorType y = fresh(t, t.sizes);
  const auto last = t.is_row_major() ? std::optional(false) : suggests_channels_last(t);
  if (!last) return std::nullopt;
  if (*last) y.strides = channels_last_strides(t.sizes);
  return y;
}

std::optional<DType> statistics_dtype(const Args& a, const TensorType& t, size_t first,
                                      size_t last) {
  std::optional<DType> stats;
  for (size_t i = first; i < last; ++i) {
    if (a.missing(i)) continue;
    if (!a.tensor(i) || (stats && a.tensor(i)->dtype != *stats)) return std::nullopt;
    stats = a.tensor(i)->dtype;
  }
  if (!stats || *stats == t.dtype) return t.dtype;
  const bool mixed = *stats == DType::F32 && ir::is_reduced_float(t.dtype);
  return mixed ? stats : std::nullopt;
}

Dims all_but_channels(const TensorType& t) {
  Dims dims{0};
  for (int64_t d = 2; d < t.dim(); ++d) dims.push_back(d);
  return dims;
}

ValueId of_channels(Rewriter& r, ValueId v, const TensorType& t) {
  Sizes sizes(t.sizes.size(), Expr(1));
  sizes[1] = t.sizes[1];
  return r.view(v, sizes);
}

namespace {

// ---- softmax ----

bool shape_softmax(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = a.integer(1);
  auto to_float = a.boolean(2, false);
  if (!is_real(t) || !dim || !wrap_dim(*dim, t->dim()) || !to_float || *to_float) return false;
  return give(out, fresh(*t, t->sizes));
}

bool shape_safe_softmax(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto dim = a.integer(1);
  if (!is_real(t) || !ir::is_floating(t->dtype) || !dim || !wrap_dim(*dim, t->dim())) return false;
  return a.missing(2) && give(out, fresh(*t, t->sizes));
}

// Softmax, and 0 in a row of nothing but -infinity.
bool decompose_safe_softmax(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const Args a(r.graph(), n);
  if (!is_real(&result) || result.dim() == 0 || result.numel().is_const(0) || !a.missing(2))
    return false;
  const auto dim = wrap_dim(*a.integer(1), result.dim());
  if (!dim) return false;  // ATen raises
  const Dims dims{*dim};
  const ValueId x = r.widen(n.arg(0).value());
  const ValueId most = r.amax(x, dims, true);
  const ValueId exp = r.unary("aten.exp.default", r.sub(x, most));
  const ValueId y = r.div(exp, r.sum(exp, dims, true));
  const ValueId none = r.call("aten.eq.Scalar", {most, -std::numeric_limits<double>::infinity()});
  return give(out, r.as(r.call("aten.masked_fill.Scalar", {y, none, 0.0}), result));
}

template <bool Log>
bool decompose_softmax(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const Args a(r.graph(), n);
  if (!is_real(&result) || result.dim() == 0 || result.numel().is_const(0)) return false;
  const auto dim = wrap_dim(*a.integer(1), result.dim());
  if (!dim) return false;  // ATen raises
  const Dims dims{*dim};
  const ValueId x = r.widen(n.arg(0).value());
  const ValueId shifted = r.sub(x, r.amax(x, dims, true));
  const ValueId exp = r.unary("aten.exp.default", shifted);
  const ValueId sum = r.sum(exp, dims, true);
  if (!Log) return give(out, r.as(r.div(exp, sum), result));
  // ATen's kernel of rows keeps sums and their logarithms in the rows' dtype.
  const bool kept = *dim + 1 == result.dim();
  const auto keep = [&](ValueId v) { return kept ? r.widen(r.cast(v, result.dtype)) : v; };
  const ValueId log = keep(r.unary("aten.log.default", keep(sum)));
  return give(out, r.as(r.sub(shifted, log), result));
}

// ---- layer norm ----

struct Moments {
  ValueId centered;  // x - mean
  ValueId mean, variance;
  ValueId rstd;  // 1 / sqrt(variance + eps)
};

// Over `dims` of `x`, which are kept with size 1.
Moments moments(Rewriter& r, ValueId x, const Dims& dims, double eps) {
  const ValueId mean = mean_over(r, x, dims);
  const ValueId centered = r.sub(x, mean);
  const ValueId variance = mean_over(r, r.mul(centered, centered), dims);
  return {centered, mean, variance, r.unary("aten.rsqrt.default", r.add(variance, eps))};
}

bool shape_layer_norm(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes normalized;
  if (!is_real(t) || !a.exprs(1, normalized) || normalized.empty()) return false;
  if (normalized.size() > t->sizes.size()) return false;
  const size_t lead = t->sizes.size() - normalized.size();
  if (!known_same(normalized, Sizes(t->sizes.begin() + lead, t->sizes.end()))) return false;
  // fp16 and bf16 with parameters in f32 keep their statistics in f32.
  DType stats = t->dtype;
  for (size_t i : {2, 3}) {
    if (!a.missing(i) && !is_real(a.tensor(i))) return false;
    if (const TensorType* p = a.tensor(i)) stats = p->dtype;
  }
  if (stats != t->dtype && !(stats == DType::F32 && ir::is_reduced_float(t->dtype))) return false;
  Sizes stat_sizes(t->sizes.begin(), t->sizes.begin() + lead);
  stat_sizes.resize(t->sizes.size(), Expr(1));
  const TensorType statistics = row_major(stats, t->device, stat_sizes);
  return give(out, fresh(*t, t->sizes)) && give(out, statistics) && give(out, statistics);
}

// The normalised tensor of x - mean and 1 / sqrt(variance + eps).
std::optional<ValueId> normalize_layer(Rewriter& r, const ir::Node& n, ValueId centered,
                                       ValueId rstd) {
  ValueId y = r.mul(centered, rstd);
  if (!n.arg(2).is_none()) y = r.mul(y, r.widen(n.arg(2).value()));
  if (!n.arg(3).is_none()) y = r.add(y, r.widen(n.arg(3).value()));
  return r.as(y, TensorType(r.type(n.outputs[0])));
}

bool decompose_layer_norm(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const TensorType stats = r.type(n.outputs[1]);
  const Args a(r.graph(), n);
  auto eps = a.number(4, 1e-5);
  const auto* normalized = a[1].items();
  if (!is_real(&result) || !eps || !normalized || result.numel().is_const(0)) return false;
  const auto first = result.dim() - static_cast<int64_t>(normalized->size());
  Dims dims;
  for (int64_t d = first; d < result.dim(); ++d) dims.push_back(d);
  const Moments m = moments(r, r.widen(n.arg(0).value()), dims, *eps);
  return give(out, normalize_layer(r, n, m.centered, m.rstd)) && give(out, r.as(m.mean, stats)) &&
         give(out, r.as(m.rstd, stats));
}

// ---- group norm ----

// input, weight, bias, N, C, HxW, group, eps
bool shape_group_norm(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto batch = a.expr(3), groups = a.expr(6);
  if (!is_real(t) || !batch || !groups) return false;
  const bool image = !t->is_row_major() && (t->dim() == 4 || t->dim() == 5);
  const auto last = image ? suggests_channels_last(*t) : std::optional(false);
  if (!last) return false;
  const auto stats = statistics_dtype(a, *t, 1, 3);
  if (!stats) return false;
  TensorType result = fresh(*t, t->sizes);
  if (*last) result.strides = channels_last_strides(result.sizes);
  const TensorType statistics = row_major(*stats, t->device, {*batch, *groups});
  return give(out, std::move(result)) && give(out, statistics) && give(out, statistics);
}

// As eager: one scale and one shift a channel, then scale * x + shift.
bool decompose_group_norm(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const TensorType result = r.type(n.outputs[0]), stats = r.type(n.outputs[1]);
  const Args a(r.graph(), n);
  auto batch = a.expr(3), channels = a.expr(4), spatial = a.expr(5), groups = a.expr(6);
  auto eps = a.number(7);
  if (!is_real(&t) || !batch || !channels || !spatial || !groups || !eps) return false;
  if (!result.is_row_major() || t.numel().is_const(0)) return false;
  const Expr per_group = sym::floordiv(*channels, *groups);
  const ValueId x = r.widen(r.row_major(n.arg(0).value()));
  const Moments m = moments(r, r.view(x, {*batch, *groups, per_group * *spatial}), {2}, *eps);
  const auto parameter = [&](size_t i) {
    return r.view(r.widen(n.arg(i).value()), {Expr(1), *groups, per_group});
  };
  ValueId scale = m.rstd;  // [N, G, 1]
  if (!a.missing(1)) scale = r.mul(scale, parameter(1));
  ValueId shift = r.unary("aten.neg.default", r.mul(scale, m.mean));
  if (!a.missing(2)) shift = r.add(shift, parameter(2));
  const Expr last = r.type(scale).sizes[2];
  const Expr shift_last = r.type(shift).sizes[2];
  const ValueId grouped = r.view(x, {*batch, *groups, per_group, *spatial});
  const ValueId scaled = r.mul(grouped, r.view(scale, {*batch, *groups, last, Expr(1)}));
  const ValueId y = r.add(scaled, r.view(shift, {*batch, *groups, shift_last, Expr(1)}));
  out.push_back(r.cast(r.view(y, t.sizes), result.dtype));
  for (ValueId v : {m.mean, m.rstd})
    out.push_back(r.cast(r.view(v, {*batch, *groups}), stats.dtype));
  return true;
}

// ---- batch norm ----

// The statistics are the running ones, or in training the batch's own where no running ones are
// kept (eager writes those, which is not ours to do).
bool uses_batch_statistics(const Args& a, size_t training) {
  return training && a.missing(3) && a.missing(4) && a.boolean(training).value_or(false);
}

bool uses_running_statistics(const Args& a, size_t training) {
  return !a.missing(3) && !a.missing(4) && !(training && a.boolean(training).value_or(true));
}

// `end`: behind the last of the parameters and statistics that eager reads where they lie.
bool parameters_are_contiguous(const Args& a, size_t end) {
  for (size_t i = 1; i < end; ++i) {
    if (const TensorType* t = a.tensor(i); t && !t->is_contiguous()) return false;
  }
  return true;
}

// The normalised tensor, and `kept` statistics twice.
bool shape_normalized(const Args& a, Expr kept, Types& out, size_t end = 5) {
  const TensorType& t = *a.tensor(0);
  auto y = parameters_are_contiguous(a, end) ? batch_norm_like(t) : suggested_like(t);
  auto stats = statistics_dtype(a, t, 1, 5);
  if (!y || !stats) return false;
  const TensorType statistics = row_major(*stats, t.device, {kept});
  return give(out, std::move(y)) && give(out, statistics) && give(out, statistics);
}

// input, weight, bias, running_mean, running_var, then (training,) momentum, eps
template <size_t Training>
bool shape_batch_norm(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!is_real(t) || t->dim() < 2) return false;
  const bool own = uses_batch_statistics(a, Training);
  if (!own && !uses_running_statistics(a, Training)) return false;
  if (own && t->numel().is_const(0)) return false;
  return shape_normalized(a, own ? t->sizes[1] : Expr(0), out);
}

// With the empty buffer that other devices use.
bool shape_batch_norm_no_update(const Args& a, Types& out) {
  if (!shape_batch_norm<0>(a, out)) return false;
  return give(out, row_major(DType::U8, a.tensor(0)->device, {Expr(0)}));
}

// input, weight, bias, running_mean, running_var, training, momentum, eps; the new running
// statistics are results.
bool shape_batch_norm_updates(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto training = a.boolean(5);
  if (!is_real(t) || t->dim() < 2 || !training || t->numel().is_const(0)) return false;
  // Of the running statistics eager makes copies.
  if (!shape_normalized(a, *training ? t->sizes[1] : Expr(0), out, 3)) return false;
  for (size_t i : {3, 4}) {
    const TensorType* running = a.tensor(i);
    if (!running) return false;
    TensorType copy = row_major(running->dtype, t->device, running->sizes);
    if (running->is_dense()) copy.strides = running->strides;
    give(out, std::move(copy));
  }
  return true;
}

// input, weight, bias, training, momentum, eps: without running statistics.
bool shape_batch_norm_no_stats(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto training = a.boolean(3);
  if (!is_real(t) || t->dim() < 2 || !training || t->numel().is_const(0)) return false;
  return shape_normalized(a.with(a.list().first(3)), *training ? t->sizes[1] : Expr(0), out);
}

// As shape_batch_norm_updates in training, with an empty buffer that other devices use.
bool shape_batch_norm_with_update(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (a.size() < 5) return false;
  std::vector<ir::Arg> full(a.list().begin(), a.list().begin() + 5);
  full.emplace_back(true);
  if (!shape_batch_norm_updates(a.with(full), out)) return false;
  out.insert(out.begin() + 3, ir::Type::of(row_major(DType::U8, t->device, {Expr(0)})));
  return true;
}

// A channel's own mean and 1 / sqrt(variance + eps) over a batch.
struct ChannelMoments {
  ValueId mean, variance, rstd;
};

ChannelMoments channel_moments(Rewriter& r, ValueId x, double eps) {
  const TensorType t = r.type(x);
  const Dims dims = all_but_channels(t);
  const auto flat = [&](ValueId v) { return r.view(v, {t.sizes[1]}); };
  const Moments m = moments(r, x, dims, eps);
  return {flat(m.mean), flat(m.variance), flat(m.rstd)};
}

// As eager: alpha = weight / sqrt(var + eps) and beta = bias - mean * alpha a channel, then x *
// alpha + beta. Of input, weight, bias.
std::optional<ValueId> normalize_channels(Rewriter& r, const ir::Node& n, ValueId mean,
                                          ValueId rstd) {
  const TensorType t = r.type(n.arg(0).value());
  ValueId alpha = rstd;
  if (!n.arg(1).is_none()) alpha = r.mul(alpha, r.widen(n.arg(1).value()));
  const ValueId moved = r.mul(mean, alpha);
  const ValueId beta = n.arg(2).is_none() ? r.unary("aten.neg.default", moved)
                                          : r.sub(r.widen(n.arg(2).value()), moved);
  const ValueId x = r.widen(n.arg(0).value());
  const ValueId y = r.add(r.mul(x, of_channels(r, alpha, t)), of_channels(r, beta, t));
  return r.as(y, TensorType(r.type(n.outputs[0])));
}

// A weight or bias of as many elements may have other dimensions.
bool are_flat(const Args& a) {
  const auto is_flat = [](const TensorType* t) { return t == nullptr || t->dim() == 1; };
  return is_flat(a.tensor(1)) && is_flat(a.tensor(2));
}

template <size_t Training, size_t EpsAt>
bool decompose_batch_norm(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const Args a(r.graph(), n);
  auto eps = a.number(EpsAt);
  const bool own = uses_batch_statistics(a, Training);
  if (!is_real(&t) || !eps || (!own && !uses_running_statistics(a, Training)) || !are_flat(a))
    return false;
  if (own) {
    if (t.numel().is_const(0) || ir::is_reduced_float(t.dtype)) return false;
    const ChannelMoments m = channel_moments(r, n.arg(0).value(), *eps);
    return give(out, normalize_channels(r, n, m.mean, m.rstd)) && give(out, m.mean) &&
           give(out, m.rstd);
  }
  const ValueId mean = r.widen(n.arg(3).value());
  const ValueId rstd = r.unary("aten.rsqrt.default", r.add(r.widen(n.arg(4).value()), *eps));
  if (!give(out, normalize_channels(r, n, mean, rstd))) return false;
  for (size_t i = 1; i < n.outputs.size(); ++i) {
    const TensorType stats = r.type(n.outputs[i]);
    if (!stats.numel().is_const(0)) return false;
    out.push_back(r.full(stats.sizes, 0, stats.dtype, stats.device));
  }
  return true;
}

// momentum * fresh + (1 - momentum) * old
ValueId moved_towards(Rewriter& r, ir::Arg old, ValueId fresh, double momentum) {
  const ValueId part = r.call("aten.mul.Scalar", {fresh, momentum});
  return r.add(part, r.call("aten.mul.Scalar", {std::move(old), 1 - momentum}));
}

// In training: the running variance moves towards that without bias. Statistics in fp16 and bf16
// are left to ATen, which rounds them in between.
bool decompose_batch_norm_updates(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType t = r.type(n.arg(0).value());
  const Args a(r.graph(), n);
  auto momentum = a.number(6), eps = a.number(7);
  const bool counts = a.boolean(5).value_or(false) && !t.numel().is_const(0);
  if (!is_real(&t) || !momentum || !eps || !counts || !are_flat(a)) return false;
  if (ir::is_reduced_float(r.type(n.outputs[1]).dtype)) return false;
  const ChannelMoments m = channel_moments(r, r.widen(n.arg(0).value()), *eps);
  Expr count = 1;
  for (int64_t d : all_but_channels(t)) count *= t.sizes[d];
  const ValueId sum = r.call("aten.mul.Scalar", {m.variance, count});
  const ValueId variance = r.div(sum, count - Expr(1));
  return give(out, normalize_channels(r, n, m.mean, m.rstd)) && give(out, m.mean) &&
         give(out, m.rstd) && give(out, moved_towards(r, n.arg(3), m.mean, *momentum)) &&
         give(out, moved_towards(r, n.arg(4), variance, *momentum));
}

constexpr OpInfo kNormalizationOps[] = {
#include "ops/normalization.def"
};

}  // namespace

std::optional<ValueId> layer_normalized(Rewriter& r, const ir::Node& n) {
  const DType computed = opmath(r.type(n.outputs[0]).dtype);
  if (r.type(n.outputs[1]).dtype != computed || !is_real(&r.type(n.outputs[0])))
    return std::nullopt;
  const ValueId x = r.widen(n.arg(0).value());
  return normalize_layer(r, n, r.sub(x, n.outputs[1]), n.outputs[2]);
}

std::span<const OpInfo> normalization_ops() { return kNormalizationOps; }

}  // namespace oxy::ops
