// Gradients of softmax and the normalisations, in sums and products. Half precision is widened once
// at the start and rounded once at the end.
//
// ATen writes the gradient of a normalisation as rstd * dy + b * x + c, which cancels where the
// mean is large; here x is centred first, as in its forward. Sums over fp16 and bf16 are in f32.
#include "ops/families.h"
#include "ops/gradients.h"
#include "ops/normalization.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// ---- softmax: grad_output, output, dim, input_dtype ----

bool shape_softmax_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *y = a.tensor(1);
  const auto dim = a.integer(2);
  if (!is_real(grad) || !y || !dim || !wrap_dim(*dim, grad->dim())) return false;
  if (y->dtype != grad->dtype || !known_same(grad->sizes, y->sizes)) return false;
  // The operand's dtype asks for nothing but one that eager refuses here.
  const auto dtype = a.dtype(3);
  if (!dtype || (*dtype == DType::F16 && grad->dtype == DType::F32)) return false;
  return give(out, fresh(*grad, grad->sizes));
}

template <bool Log>
bool decompose_softmax_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  const auto dim = Args(r.graph(), n).dim(2, result.dim());
  if (!is_real(&result) || result.dim() == 0 || !dim || result.numel().is_const(0)) return false;
  if (r.type(n.arg(0).value()).dtype != result.dtype) return false;
  const ValueId grad = r.widen(n.arg(0).value()), y = r.widen(n.arg(1).value());
  if (Log) {
    const ValueId sum = r.sum(grad, {*dim}, true);
    return give(out, r.as(r.sub(grad, r.mul(r.unary("aten.exp.default", y), sum)), result));
  }
  const ValueId sum = r.sum(r.mul(grad, y), {*dim}, true);
  return give(out, r.as(r.mul(r.sub(grad, sum), y), result));
}

// ---- what all normalisations over `dims` have in common ----

// The operand's gradient, from that of the normalised one: what is orthogonal to 1 and to the
// normalised operand, scaled.
ValueId unnormalized(Rewriter& r, ValueId grad, ValueId normal, ValueId rstd, const Dims& dims) {
  const ValueId along = mean_over(r, r.mul(grad, normal), dims);
  const ValueId rest = r.sub(r.sub(grad, mean_over(r, grad, dims)), r.mul(normal, along));
  return r.mul(rest, rstd);
}

// What sums over rows or channels fold: the gradient times the centred operand. Written with -mean,
// so that it is no value that the operand's gradient uses too: that would be kept in memory between
// two kernels which walk it in different ways.
ValueId times_centered(Rewriter& r, ValueId grad, ValueId x, ValueId mean) {
  return r.mul(grad, r.add(x, r.unary("aten.neg.default", mean)));
}

bool same_kind(const TensorType* a, const TensorType& b) {
  return a && a->dtype == b.dtype && known_same(a->sizes, b.sizes);
}

// ---- layer norm: grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask ----

bool shape_layer_norm_backward(const Args& a, Types& out) {
  const TensorType *t = a.tensor(1), *weight = a.tensor(5), *bias = a.tensor(6);
  const auto mask = output_mask(a, 7, 3);
  if (!is_real(t) || !same_kind(a.tensor(0), *t) || !mask) return false;
  // The statistics and a bias have the dtype of the weight, if there is one.
  const auto stats = statistics_dtype(a, *t, 5, 6);
  for (size_t i : {3, 4, 6}) {
    if (i == 6 && a.missing(i)) continue;
    if (!stats || !a.tensor(i) || a.tensor(i)->dtype != *stats) return false;
  }
  if (((*mask)[1] && !weight) || ((*mask)[2] && !bias)) return false;
  const auto like = [](const TensorType* p) {
    return p ? std::optional(fresh(*p, p->sizes)) : std::nullopt;
  };
  return give_wanted(out, (*mask)[0], fresh(*t, t->sizes)) &&
         give_wanted(out, (*mask)[1], like(weight)) && give_wanted(out, (*mask)[2], like(bias));
}

bool decompose_layer_norm_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(1);
  const auto mask = output_mask(a, 7, 3);
  const auto* normalized = a[2].items();
  if (!is_real(&t) || !mask || !normalized || t.numel().is_const(0)) return false;
  const auto first = t.dim() - static_cast<int64_t>(normalized->size());
  Dims rows, dims;
  for (int64_t d = 0; d < t.dim(); ++d) (d < first ? rows : dims).push_back(d);
  const ValueId grad = r.widen(n.arg(0).value()), x = r.widen(n.arg(1).value());
  const ValueId mean = r.widen(n.arg(3).value()), rstd = r.widen(n.arg(4).value());
  const auto over_rows = [&](ValueId v, size_t i) {
    const TensorType result = r.type(n.outputs[i]);
    if (rows.empty()) return r.as(r.call("aten.clone.default", {v, ir::Arg()}), result);
    return r.as(r.sum(v, rows, false), result);
  };
  return give_wanted(out, (*mask)[0],
                     [&] {
                       const ValueId scaled =
                           a.missing(5) ? grad : r.mul(grad, r.widen(n.arg(5).value()));
                       const ValueId normal = r.mul(r.sub(x, mean), rstd);
                       return r.as(unnormalized(r, scaled, normal, rstd, dims),
                                   TensorType(r.type(n.outputs[0])));
                     }) &&
         give_wanted(out, (*mask)[1],
                     [&] { return over_rows(r.mul(times_centered(r, grad, x, mean), rstd), 1); }) &&
         give_wanted(out, (*mask)[2], [&] { return over_rows(grad, 2); });
}

// ---- group norm: grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask ----

bool shape_group_norm_backward(const Args& a, Types& out) {
  const TensorType *t = a.tensor(1), *weight = a.tensor(4);
  const auto mask = output_mask(a, 9, 3);
  const auto channels = a.expr(6);
  if (!is_real(t) || !same_kind(a.tensor(0), *t) || !mask || !channels) return false;
  if (((*mask)[1] || (*mask)[2]) && !is_real(weight)) return false;
  const auto last = suggests_channels_last(*t);
  if (!last) return false;
  TensorType result = fresh(*t, t->sizes);
  if (*last) result.strides = channels_last_strides(result.sizes);
  const auto like = weight ? std::optional(fresh(*weight, weight->sizes)) : std::nullopt;
  return give_wanted(out, (*mask)[0], std::move(result)) && give_wanted(out, (*mask)[1], like) &&
         give_wanted(out, (*mask)[2], like);
}

// ATen's kernel reads the gradient in the operand's format, and both as if they had no gaps.
bool same_format(const TensorType& t, const TensorType& grad) {
  if (t.is_row_major()) return grad.is_row_major();
  const bool image = t.dim() == 4 || t.dim() == 5;
  return image && t.strides == channels_last_strides(t.sizes) && grad.strides == t.strides;
}

bool decompose_group_norm_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(1);
  const auto mask = output_mask(a, 9, 3);
  const auto batch = a.expr(5), channels = a.expr(6), spatial = a.expr(7), groups = a.expr(8);
  if (!is_real(&t) || !mask || !batch || !channels || !spatial || !groups) return false;
  if (t.numel().is_const(0) || !same_format(t, *a.tensor(0))) return false;
  const Expr per_group = sym::floordiv(*channels, *groups);
  const Sizes split{*batch, *groups, per_group, *spatial};
  const auto grouped = [&](size_t i) {
    return r.view(r.widen(r.row_major(n.arg(i).value())), split);
  };
  const auto statistic = [&](size_t i) {
    return r.view(r.widen(r.row_major(n.arg(i).value())), {*batch, *groups, Expr(1), Expr(1)});
  };
  const ValueId grad = grouped(0), x = grouped(1), mean = statistic(2), rstd = statistic(3);
  // As ATen: one walk for the sums of each channel, from which the group's and the parameters'
  // gradients follow, and a second one for the operand's.
  const ValueId moved = r.sum(times_centered(r, grad, x, mean), {3}, true);
  const ValueId plain = r.sum(grad, {3}, true);
  const auto over_batch = [&](ValueId v, size_t i) {
    const TensorType result = r.type(n.outputs[i]);
    return r.as(r.view(r.sum(v, {0}, false), {*channels}), result);
  };
  const auto operand = [&] {
    const auto weighted = [&](ValueId v) {
      if (a.missing(4)) return v;
      const ValueId weight = r.widen(r.row_major(n.arg(4).value()));
      return r.mul(v, r.view(weight, {Expr(1), *groups, per_group, Expr(1)}));
    };
    const Expr count = per_group * *spatial;
    const auto mean_of = [&](ValueId v) { return r.div(r.sum(weighted(v), {2}, true), count); };
    const ValueId slope = r.mul(mean_of(moved), rstd);
    const ValueId normal = r.mul(r.sub(x, mean), rstd);
    const ValueId centered = r.sub(weighted(grad), mean_of(plain));
    const ValueId flat = r.mul(r.sub(centered, r.mul(normal, slope)), rstd);
    return r.as(r.view(flat, t.sizes), TensorType(r.type(n.outputs[0])));
  };
  return give_wanted(out, (*mask)[0], operand) &&
         give_wanted(out, (*mask)[1], [&] { return over_batch(r.mul(moved, rstd), 1); }) &&
         give_wanted(out, (*mask)[2], [&] { return over_batch(plain, 2); });
}

// ---- batch norm ----
// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask

// The parameters and the statistics that are read have one dtype.
std::optional<DType> parameters_of(const Args& a, const TensorType& t, bool train) {
  const std::vector<ir::Arg> read{a[2], train ? a[5] : a[3], train ? a[6] : a[4]};
  return statistics_dtype(a.with(read), t, 0, 3);
}

bool shape_batch_norm_backward(const Args& a, Types& out) {
  const TensorType *t = a.tensor(1), *weight = a.tensor(2);
  const auto mask = output_mask(a, 9, 3);
  const auto train = a.boolean(7);
  if (!is_real(t) || t->dim() < 2 || !same_kind(a.tensor(0), *t) || !mask || !train) return false;
  const size_t mean = *train ? 5 : 3;
  const auto stats = parameters_of(a, *t, *train);
  if (!a.tensor(mean) || !a.tensor(mean + 1) || !stats) return false;
  if (((*mask)[1] && !weight) || t->numel().is_const(0)) return false;
  const TensorType &grad = *a.tensor(0), *saved[] = {a.tensor(5), a.tensor(6)};
  bool contiguous = grad.is_contiguous() || is_channels_last(grad);
  for (const TensorType* s : saved) contiguous = contiguous && (!s || s->is_contiguous());
  auto of_input = suggested_like(*t);
  if (contiguous && of_input && of_input->is_row_major()) of_input = batch_norm_like(*t);
  const auto of_weight = weight ? std::optional(fresh(*weight, weight->sizes)) : std::nullopt;
  return give_wanted(out, (*mask)[0], of_input) && give_wanted(out, (*mask)[1], of_weight) &&
         give_wanted(out, (*mask)[2], row_major(*stats, t->device, {t->sizes[1]}));
}

bool decompose_batch_norm_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(1);
  const auto mask = output_mask(a, 9, 3);
  const auto train = a.boolean(7);
  const auto eps = a.number(8);
  if (!is_real(&t) || !mask || !train || !eps || t.numel().is_const(0)) return false;
  if (const TensorType* weight = a.tensor(2); weight && weight->dim() != 1) return false;
  const ValueId mean = r.widen(n.arg(*train ? 5 : 3).value());
  ValueId rstd = r.widen(n.arg(*train ? 6 : 4).value());
  if (!*train) rstd = r.unary("aten.rsqrt.default", r.add(rstd, *eps));
  const ValueId grad = r.widen(n.arg(0).value()), x = r.widen(n.arg(1).value());
  const Dims dims = all_but_channels(t);
  const auto spread = [&](ValueId v) { return of_channels(r, v, t); };
  const ValueId sum = r.sum(grad, dims, false);
  const ValueId product = r.sum(times_centered(r, grad, x, spread(mean)), dims, false);
  const auto operand = [&] {
    ValueId v = grad;
    if (*train) {
      Expr count = 1;
      for (int64_t d : dims) count *= t.sizes[d];
      const ValueId slope = r.div(r.mul(r.mul(product, rstd), rstd), count);
      const ValueId along = r.mul(r.sub(x, spread(mean)), spread(slope));
      v = r.sub(r.sub(v, spread(r.div(sum, count))), along);
    }
    ValueId scale = rstd;
    if (!a.missing(2)) scale = r.mul(scale, r.widen(n.arg(2).value()));
    return r.as(r.mul(v, spread(scale)), TensorType(r.type(n.outputs[0])));
  };
  const auto result = [&](ValueId v, size_t i) {
    return r.as(v, TensorType(r.type(n.outputs[i])));
  };
  return give_wanted(out, (*mask)[0], operand) &&
         give_wanted(out, (*mask)[1], [&] { return result(r.mul(product, rstd), 1); }) &&
         give_wanted(out, (*mask)[2], [&] { return result(sum, 2); });
}

constexpr OpInfo kNormalizationGradientOps[] = {
#include "ops/normalization_gradients.def"
};

}  // namespace

std::span<const OpInfo> normalization_gradient_ops() { return kNormalizationGradientOps; }

}  // namespace oxy::ops
