// A table of which kernel converts which of its numbers to what; whether that holds it is asked of
// c10's own conversion.
#include "torch_bridge/eager_refusals.h"

#include <ATen/OpMathType.h>
#include <ATen/native/BinaryOps.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

using Args = c10::ArrayRef<c10::IValue>;

// The dtype that a number is converted to.
enum class To : uint8_t {
  Result,     // the result's
  Widened,    // the same, f32 for half precision
  NotHalf,    // the result's, without a check in half precision
  Real,       // the result's, and no complex one
  OfKind,     // the result's, and no complex one where that is real
  BelowMost,  // the result's, of which it is at most the largest number
};

struct CheckedNumber {
  std::string_view op;
  size_t position;
  To to;
};

constexpr CheckedNumber kCheckedNumbers[] = {
    {"aten.full.default", 1, To::Result},        {"aten.full_like.default", 1, To::Result},
    {"aten.new_full.default", 2, To::Result},    {"aten.scalar_tensor.default", 0, To::NotHalf},
    {"aten.pow.Tensor_Scalar", 1, To::Result},   {"aten.fill.Scalar", 1, To::Result},
    {"aten.masked_fill.Scalar", 2, To::Result},  {"aten.index_fill.int_Scalar", 3, To::OfKind},
    {"aten.scatter.value", 3, To::Result},       {"aten.scatter.value_reduce", 3, To::NotHalf},
    {"aten.index_add.default", 4, To::NotHalf},  {"aten.constant_pad_nd.default", 2, To::Result},
    {"aten.clamp.default", 1, To::Real},         {"aten.clamp.default", 2, To::Real},
    {"aten.clamp_min.default", 1, To::Real},     {"aten.clamp_max.default", 1, To::Real},
    {"aten.hardtanh.default", 1, To::Result},    {"aten.hardtanh.default", 2, To::Result},
    {"aten.hardshrink.default", 1, To::Result},  {"aten.softshrink.default", 1, To::BelowMost},
    {"aten.threshold.default", 1, To::Widened},  {"aten.threshold.default", 2, To::Result},
    {"aten.leaky_relu.default", 1, To::Widened}, {"aten.elu.default", 1, To::Widened},
    {"aten.elu.default", 2, To::Widened},        {"aten.elu.default", 3, To::Widened},
    {"aten.celu.default", 1, To::Widened},       {"aten.softplus.default", 1, To::Widened},
    {"aten.softplus.default", 2, To::Widened},   {"aten.logit.default", 1, To::Result},
    {"aten.add.Tensor", 2, To::Result},          {"aten.add.Scalar", 2, To::Result},
    {"aten.sub.Tensor", 2, To::Result},          {"aten.sub.Scalar", 2, To::Result},
    {"aten.rsub.Tensor", 2, To::Result},         {"aten.rsub.Scalar", 2, To::Result},
    {"aten.addcmul.default", 3, To::Widened},    {"aten.addcdiv.default", 3, To::Widened},
    {"aten.lerp.Scalar", 2, To::Widened},        {"aten.arange.default", 0, To::Widened},
    {"aten.arange.start", 0, To::Widened},       {"aten.arange.start", 1, To::Widened},
    {"aten.arange.start_step", 0, To::Widened},  {"aten.arange.start_step", 1, To::Widened},
    {"aten.arange.start_step", 2, To::Widened},
};

constexpr std::string_view kOfFloats[] = {"aten.std.correction", "aten.std_mean.correction",
                                          "aten.var.correction", "aten.var_mean.correction"};

// Kinds of dtypes, and the kernels that have none for them.
enum DtypeKind : uint8_t {
  kHalf = 1,
  kBFloat16 = 2,
  kBool = 4,
  kByte = 8,
  kIntegers = 16,  // but for bytes
  kComplex = 32,
  kUnsigned = 64,  // of more than a byte
};
constexpr uint8_t kHalves = kHalf | kBFloat16, kNoBytes = kBool | kIntegers | kUnsigned,
                  kNoFloats = kNoBytes | kByte;

struct Lacking {
  std::string_view op;
  uint8_t kinds;
};
constexpr Lacking kLackingOfFirst[] = {
    // of the first tensor
    {"aten._softmax.default", kNoFloats},
    {"aten._log_softmax.default", kNoFloats},
    {"aten._safe_softmax.default", kNoFloats},
    {"aten._softmax_backward_data.default", kNoFloats},
    {"aten._log_softmax_backward_data.default", kNoFloats},
    {"aten.native_batch_norm.default", kNoFloats},
    {"aten._native_batch_norm_legit.no_stats", kNoFloats},
    {"aten._native_batch_norm_legit_functional.default", kNoFloats},
    {"aten._native_batch_norm_legit_no_training.default", kNoFloats},
    {"aten.elu.default", kNoFloats},
    {"aten.celu.default", kNoFloats},
    {"aten.mse_loss.default", kNoFloats},
    {"aten.soft_margin_loss.default", kNoFloats},
    {"aten.binary_cross_entropy_with_logits.default", kNoFloats},
    {"aten.im2col.default", kIntegers | kUnsigned | kByte},
    {"aten.col2im.default", kIntegers | kUnsigned | kByte},
    {"aten.max.default", kComplex | kUnsigned},
    {"aten.min.default", kComplex | kUnsigned},
    {"aten.amax.default", kComplex | kUnsigned},
    {"aten.amin.default", kComplex | kUnsigned},
    {"aten.argmax.default", kBool | kComplex | kUnsigned},
    {"aten.argmin.default", kBool | kComplex | kUnsigned},
    {"aten.complex.default", kBFloat16},
    {"aten.polar.default", kHalves},
    {"aten.avg_pool3d.default", kHalves},
    {"aten.avg_pool3d_backward.default", kHalves},
    {"aten._cdist_forward.default", kHalves},
    {"aten.kthvalue.default", kBool},
    {"aten.median.dim", kBool},
    {"aten.searchsorted.Tensor", kBool | kComplex},
    {"aten.bucketize.Tensor", kBool | kComplex},
    {"aten._pdist_forward.default", kHalves},
    {"aten._fft_r2c.default", kHalves},
    {"aten._upsample_bilinear2d_aa.default", kHalves | kNoBytes},
    {"aten._upsample_bicubic2d_aa.default", kHalves | kNoBytes},
    {"aten.upsample_nearest1d.default", kNoBytes},
    {"aten.upsample_nearest2d.default", kNoBytes},
    {"aten.upsample_nearest3d.default", kNoBytes},
    {"aten._upsample_nearest_exact1d.default", kNoBytes},
    {"aten._upsample_nearest_exact2d.default", kNoBytes},
    {"aten._upsample_nearest_exact3d.default", kNoBytes},
    {"aten.cholesky.default", kHalves | kNoFloats},
    {"aten.cholesky_inverse.default", kHalves | kNoFloats},
    {"aten._cholesky_solve_helper.default", kHalves | kNoFloats},
    {"aten._linalg_det.default", kHalves | kNoFloats},
    {"aten._linalg_slogdet.default", kHalves | kNoFloats},
    {"aten._linalg_solve_ex.default", kHalves | kNoFloats},
    {"aten.linalg_cholesky_ex.default", kHalves | kNoFloats},
    {"aten.linalg_householder_product.default", kHalves | kNoFloats},
    {"aten.linalg_ldl_factor_ex.default", kHalves | kNoFloats},
    {"aten.linalg_ldl_solve.default", kHalves | kNoFloats},
    {"aten.linalg_lu.default", kHalves | kNoFloats},
    {"aten.linalg_lu_factor_ex.default", kHalves | kNoFloats},
    {"aten.linalg_lu_solve.default", kHalves | kNoFloats},
    {"aten.linalg_qr.default", kHalves | kNoFloats},
    {"aten.linalg_solve_triangular.default", kHalves | kNoFloats},
    {"aten.ormqr.default", kHalves | kNoFloats},
    {"aten.triangular_solve.default", kHalves | kNoFloats},
};
constexpr Lacking kLackingOfSecond[] = {
    {"aten.binary_cross_entropy_with_logits.default", kNoFloats},
    {"aten.bucketize.Tensor", kBool | kComplex},
    {"aten.dist.default", kBool},
    {"aten.masked_scatter.default", kByte | kIntegers | kUnsigned},
    {"aten.ldexp.Tensor", kBool | kUnsigned},
};
constexpr uint8_t kNoRealFloats = kNoFloats | kComplex;
constexpr Lacking kLackingOfResult[] = {
    {"aten.bartlett_window.default", kNoRealFloats},
    {"aten.bartlett_window.periodic", kNoRealFloats},
    {"aten.blackman_window.default", kNoRealFloats},
    {"aten.blackman_window.periodic", kNoRealFloats},
    {"aten.hamming_window.default", kNoRealFloats},
    {"aten.hamming_window.periodic", kNoRealFloats},
    {"aten.hann_window.default", kNoRealFloats},
    {"aten.hann_window.periodic", kNoRealFloats},
    {"aten.kaiser_window.default", kNoRealFloats},
    {"aten.kaiser_window.periodic", kNoRealFloats},
    {"aten.kaiser_window.beta", kNoRealFloats},
    {"aten.arange.default", kBool},
    {"aten.arange.start", kBool},
    {"aten.arange.start_step", kBool},
    {"aten.clamp.default", kBool},
    {"aten.clamp.Tensor", kBool},
    {"aten.clamp_min.default", kBool},
    {"aten.clamp_max.default", kBool},
    {"aten.cumsum.default", kBool},
    {"aten.cumprod.default", kBool},
    {"aten.div.Tensor_mode", kBool | kComplex | kUnsigned},
    {"aten.div.Scalar_mode", kBool | kComplex | kUnsigned},
    {"aten.fmod.Tensor", kBool | kComplex | kUnsigned},
    {"aten.fmod.Scalar", kBool | kComplex | kUnsigned},
    {"aten.remainder.Tensor", kBool | kComplex | kUnsigned},
    {"aten.remainder.Scalar", kBool | kComplex | kUnsigned},
    {"aten.remainder.Scalar_Tensor", kBool | kComplex | kUnsigned},
};

uint8_t dtype_kind(at::ScalarType dtype) {
  if (dtype == at::kHalf) return kHalf;
  if (dtype == at::kBFloat16) return kBFloat16;
  if (dtype == at::kBool) return kBool;
  if (dtype == at::kByte) return kByte;
  if (c10::isBarebonesUnsignedType(dtype)) return kUnsigned;
  if (at::isIntegralType(dtype, false)) return kIntegers;
  return at::isComplexType(dtype) ? kComplex : 0;
}

bool lacks(c10::ArrayRef<Lacking> rows, std::string_view target, at::ScalarType dtype) {
  const auto row = std::ranges::find(rows, target, &Lacking::op);
  return row != rows.end() && (row->kinds & dtype_kind(dtype)) != 0;
}

bool is_lacking(std::string_view target, Args args, at::ScalarType result) {
  if (lacks(kLackingOfResult, target, result)) return true;
  // Whether there are elements is asked where it matters alone: sizes of data have no answer.
  const auto lacks_argument = [&](c10::ArrayRef<Lacking> rows, size_t i) {
    return i < args.size() && args[i].isTensor() && args[i].toTensor().defined() &&
           lacks(rows, target, args[i].toTensor().scalar_type()) &&
           args[i].toTensor().sym_numel() != 0;
  };
  return lacks_argument(kLackingOfFirst, 0) || lacks_argument(kLackingOfSecond, 1);
}

// Ops along a dimension whose meta kernels do not ask whether there is such a one, or whether the
// result has anything to be selected from.
struct Along {
  std::string_view op;
  size_t dim;
  bool selects;
};
constexpr Along kAlong[] = {
    {"aten.sort.default", 1, false},
    {"aten.sort.stable", 2, false},
    {"aten._softmax.default", 1, false},
    {"aten.cummax.default", 1, false},
    {"aten.cummin.default", 1, false},
    {"aten.max.dim", 1, true},
    {"aten.min.dim", 1, true},
    {"aten.median.dim", 1, true},
    {"aten.nanmedian.dim", 1, true},
    {"aten.mode.default", 1, true},
    {"aten.index_reduce.default", 1, false},
};

bool has_dimension(std::string_view target, Args args) {
  const auto row = std::ranges::find(kAlong, target, &Along::op);
  if (row == std::end(kAlong) || row->dim >= args.size() || !args[row->dim].isInt()) return true;
  const at::Tensor& t = args[0].toTensor();
  const int64_t dim = args[row->dim].toInt();
  // With an error of their own, these two.
  const bool scans = target == "aten.cummax.default" || target == "aten.cummin.default";
  if (scans && t.dim() == 0) return dim == 0 || dim == -1;
  c10::maybe_wrap_dim(dim, t.dim());  // raises as eager does
  return !row->selects || t.dim() == 0 || t.sym_size(dim).maybe_as_int() != 0;
}

// Kernels of these ask for operands of one dtype.
constexpr std::string_view kOfOneDtype[] = {"aten._softmax_backward_data.default",
                                            "aten._log_softmax_backward_data.default",
                                            "aten.mm.default",
                                            "aten.addmm.default",
                                            "aten.mv.default",
                                            "aten.addmv.default",
                                            "aten.linear.default",
                                            "aten.addbmm.default",
                                            "aten._cdist_forward.default",
                                            "aten.complex.default",
                                            "aten.polar.default",
                                            "aten.convolution.default"};

bool differ_in_dtype(Args args) {
  std::optional<at::ScalarType> first;
  return std::ranges::any_of(args, [&](const c10::IValue& a) {
    if (!a.isTensor() || !a.toTensor().defined()) return false;
    if (!first) first = a.toTensor().scalar_type();
    return a.toTensor().scalar_type() != *first;
  });
}

// Norms, and where their parameters begin.
struct Norm {
  std::string_view op;
  size_t first, end;
};
constexpr Norm kNorms[] = {
    {"aten.native_layer_norm.default", 2, 4},
    {"aten.native_group_norm.default", 1, 3},
    {"aten.native_batch_norm.default", 1, 5},
    {"aten._native_batch_norm_legit.no_stats", 1, 3},
    {"aten._native_batch_norm_legit_functional.default", 1, 5},
    {"aten._native_batch_norm_legit_no_training.default", 1, 5},
};

// Eager leaves the dimensions of 1 in a result that is to have none.
bool is_sum_of_all(std::string_view target, Args args) {
  return target == "aten.logsumexp.default" && args[1].toIntVector().empty() && !args[2].toBool() &&
         args[0].toTensor().dim() > 0 && args[0].toTensor().is_floating_point();
}

// Parameters have the input's dtype, or all f32 where that is a half.
bool takes_parameters(std::string_view target, Args args) {
  const auto norm = std::ranges::find(kNorms, target, &Norm::op);
  if (norm == std::end(kNorms)) return true;
  const at::ScalarType input = args[0].toTensor().scalar_type();
  const auto all = [&](at::ScalarType dtype) {
    return std::ranges::all_of(
        args.slice(norm->first, norm->end - norm->first), [&](const c10::IValue& a) {
          return !a.isTensor() || !a.toTensor().defined() || a.toTensor().scalar_type() == dtype;
        });
  };
  return all(input) || (at::isReducedFloatingType(input) && all(at::kFloat));
}

bool is_equal(const c10::SymInt& a, const c10::SymInt& b, sym::ShapeFacts* facts) {
  if (!a.is_symbolic() && !b.is_symbolic()) return a == b;
  return facts == nullptr || facts->decide(sym::equal(expr_of(a), expr_of(b)), true);
}

bool is_at_most(const c10::SymInt& a, const c10::SymInt& b, sym::ShapeFacts* facts) {
  if (!a.is_symbolic() && !b.is_symbolic()) return a <= b;
  return facts == nullptr || facts->decide(sym::at_most(expr_of(a), expr_of(b)), true);
}

bool expands(const at::Tensor& t, const ir::TensorType& to, sym::ShapeFacts* facts) {
  if (t.dim() > to.dim()) return false;
  for (int64_t i = 1; i <= t.dim(); ++i) {
    const c10::SymInt from = t.sym_size(-i);
    const sym::Expr size = to.sizes[static_cast<size_t>(to.dim() - i)];
    if (from.is_symbolic() || !size.is_const()) {
      const sym::Expr e = from.is_symbolic() ? expr_of(from) : sym::Expr(from.expect_int());
      if (e != sym::Expr(1) && facts != nullptr && !facts->decide(sym::equal(e, size), true))
        return false;
    } else if (from != 1 && from != size.value()) {
      return false;
    }
  }
  return true;
}

// What gather_shape_check asks for, and no meta kernel.
bool gathers(Args args, const ir::TensorType&, sym::ShapeFacts* facts) {
  const at::Tensor &from = args[0].toTensor(), &index = args[2].toTensor();
  const c10::SymIntArrayRef sizes = index.sym_sizes();
  if (index.dim() == 0 || from.dim() == 0 ||
      std::ranges::any_of(sizes, [](auto& s) { return !s.is_symbolic() && s == 0; }))
    return true;
  const int64_t along = c10::maybe_wrap_dim(args[1].toInt(), from.dim());
  for (int64_t d = 0; d < index.dim(); ++d)
    if (d != along && !is_at_most(index.sym_size(d), from.sym_size(d), facts)) return false;
  return true;
}

// What check_shape_forward of ATen's Convolution.cpp asks for.
bool convolves(Args args, const ir::TensorType&, sym::ShapeFacts* facts) {
  const at::Tensor &input = args[0].toTensor(), &weight = args[1].toTensor();
  const bool transposed = args[6].toBool();
  const size_t spatial = static_cast<size_t>(weight.dim()) - 2;
  std::array<std::vector<c10::SymInt>, 4> slides;  // stride, padding, dilation, output padding
  for (size_t i = 0; i < slides.size(); ++i) {
    slides[i] = args[i == 3 ? 7 : 3 + i].toSymIntVector();
    std::vector<c10::SymInt>& s = slides[i];
    if (s.size() != 1 && s.size() != spatial) return false;
    const int64_t least = i % 2 == 0 ? 1 : 0;
    if (std::ranges::any_of(s, [&](const c10::SymInt& n) { return !n.is_symbolic() && n < least; }))
      return false;
    s.resize(spatial, s[0]);
  }
  for (size_t d = 0; transposed && d < spatial; ++d) {
    const c10::SymInt &added = slides[3][d], &stride = slides[0][d], &dilation = slides[2][d];
    if (!added.is_symbolic() && !stride.is_symbolic() && !dilation.is_symbolic() &&
        added >= stride && added >= dilation)
      return false;
  }
  const c10::SymInt groups = args[8].toSymInt(), rows = weight.sym_size(0);
  if (!groups.is_symbolic() && (groups < 1 || (!rows.is_symbolic() && rows % groups != 0)))
    return false;
  if (transposed && !is_equal(input.sym_size(1), rows, facts)) return false;
  if (!args[2].isTensor() || !args[2].toTensor().defined()) return true;
  const at::Tensor& bias = args[2].toTensor();
  return bias.dim() == 1 &&
         is_equal(bias.sym_size(0), transposed ? weight.sym_size(1) * groups : rows, facts);
}

// What linalg_vector_norm_checks and the norms of nothing ask for.
bool has_norm(Args args, const ir::TensorType&, sym::ShapeFacts*) {
  const at::Tensor& t = args[0].toTensor();
  if (!t.is_floating_point() && !t.is_complex()) return false;
  if (!args[4].isNone()) {
    const at::ScalarType wanted = args[4].toScalarType();
    if (at::promote_types(t.scalar_type(), wanted) != wanted) return false;
  }
  const double order = args[1].toScalar().toDouble();
  if ((order >= 0 && !std::isinf(order)) || t.sym_numel() != 0) return true;
  if (args[2].isNone() || args[2].toIntVector().empty()) return false;
  return std::ranges::all_of(args[2].toIntVector(),
                             [&](int64_t dim) { return t.dim() == 0 || t.sym_size(dim) != 0; });
}

// addmv's meta kernel takes the sum's shape for the result's.
bool adds_vector(Args args, const ir::TensorType&, sym::ShapeFacts* facts) {
  const at::Tensor& t = args[0].toTensor();
  return t.dim() == 0 ||
         (t.dim() == 1 && (t.sym_size(0).maybe_as_int() == 1 ||
                           is_equal(t.sym_size(0), args[1].toTensor().sym_size(0), facts)));
}

bool adds_expanded(Args args, const ir::TensorType& result, sym::ShapeFacts* facts) {
  return expands(args[0].toTensor(), result, facts);
}

bool has_elements(Args args, const ir::TensorType&, sym::ShapeFacts*) {
  return args[0].toTensor().sym_numel() != 0;
}

// An image without a batch is taken for one of two dimensions with one.
bool has_format_of_three_dimensions(Args args, const ir::TensorType&, sym::ShapeFacts*) {
  const at::Tensor& t = args[0].toTensor();
  return t.dim() != 4 || !t.unsafeGetTensorImpl()->is_strides_like_channels_last();
}

// But for a batch of nothing.
bool has_samples(Args args, const ir::TensorType&, sym::ShapeFacts*) {
  const c10::SymIntArrayRef sizes = args[0].toTensor().sym_sizes();
  return std::ranges::none_of(sizes.slice(1), [](const c10::SymInt& s) { return s == 0; });
}

bool has_normalized_shape(Args args, const ir::TensorType&, sym::ShapeFacts* facts) {
  const std::vector<c10::SymInt> sizes = args[1].toSymIntVector();
  const auto fits = [&](const c10::IValue& a) {
    return !a.isTensor() || !a.toTensor().defined() ||
           std::ranges::equal(a.toTensor().sym_sizes(), sizes,
                              [&](auto& x, auto& y) { return is_equal(x, y, facts); });
  };
  return fits(args[2]) && fits(args[3]);
}

// What kernels ask of shapes, and no meta kernel.
struct ShapeCheck {
  std::string_view op;
  bool (*takes)(Args args, const ir::TensorType& result, sym::ShapeFacts* facts);
};
constexpr ShapeCheck kShapeChecks[] = {
    {"aten.convolution.default", convolves},
    {"aten.gather.default", gathers},
    {"aten.linalg_vector_norm.default", has_norm},
    {"aten._fft_r2c.default", has_elements},
    {"aten._fft_c2r.default", has_elements},
    {"aten._fft_c2c.default", has_elements},
    {"aten.addmv.default", adds_vector},
    {"aten.addmm.default", adds_expanded},
    {"aten.addr.default", adds_expanded},
    {"aten.addbmm.default", adds_expanded},
    {"aten.baddbmm.default", adds_expanded},
    {"aten._adaptive_avg_pool3d.default", has_samples},
    {"aten.max_pool3d_with_indices.default", has_format_of_three_dimensions},
    {"aten.native_layer_norm.default", has_normalized_shape},
};

bool takes_shapes(std::string_view target, Args args, const ir::TensorType& result,
                  sym::ShapeFacts* facts) {
  const auto row = std::ranges::find(kShapeChecks, target, &ShapeCheck::op);
  return row == std::end(kShapeChecks) || row->takes(args, result, facts);
}

// Eager looks at the weight for the shape of the bias's gradient, and for the statistics' dtype.
bool misses_weight(std::string_view target, Args args) {
  const auto none = [&](size_t i) { return !args[i].isTensor() || !args[i].toTensor().defined(); };
  if (target == "aten.native_group_norm_backward.default")
    return none(4) && args[9].toBoolList()[2];
  return target == "aten.native_layer_norm_backward.default" && none(5) &&
         args[3].toTensor().scalar_type() != args[1].toTensor().scalar_type();
}

template <class T>
bool converts(const c10::Scalar& number) {
  try {
    number.to<T>();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool converts(const c10::Scalar& number, at::ScalarType to) {
#define OXY_CONVERTS(Type, Name) \
  case at::ScalarType::Name:     \
    return converts<Type>(number);
  switch (to) {
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(OXY_CONVERTS)
    OXY_CONVERTS(uint16_t, UInt16)
    OXY_CONVERTS(uint32_t, UInt32)
    OXY_CONVERTS(uint64_t, UInt64)
    default:
      return true;
  }
#undef OXY_CONVERTS
}

double largest(at::ScalarType dtype) {
  if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::max();
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::max();
  return dtype == at::kFloat ? std::numeric_limits<float>::max()
                             : std::numeric_limits<double>::max();
}

bool takes_alpha(const c10::Scalar& alpha, at::ScalarType dtype) {
  try {
    at::native::alpha_check(dtype, alpha);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

// What eager asks of a number, whatever dtype holds it.
bool takes_number(std::string_view target, Args args, at::ScalarType dtype) {
  const auto constant = [&](size_t i) {
    return i < args.size() && args[i].isScalar() && !args[i].toScalar().isSymbolic();
  };
  if (target == "aten.smooth_l1_loss.default" && constant(3)) return args[3].toDouble() >= 0;
  if (target == "aten.tril_indices.default" || target == "aten.triu_indices.default")
    return dtype == at::kInt || dtype == at::kLong;
  if (target == "aten.linalg_lu.default" || target == "aten.linalg_lu_factor_ex.default")
    return args[1].toBool();  // with pivots
  if (target == "aten.celu.default" && constant(1)) return args[1].toScalar().toDouble() != 0;
  if (target == "aten.im2col.default")
    return std::ranges::all_of(args[3].toIntVector(), [](int64_t pad) { return pad >= 0; });
  if (target == "aten._scaled_dot_product_flash_attention_for_cpu.default")
    return args[3].toDouble() == 0;
  if (target == "aten.pow.Tensor_Scalar" && at::isIntegralType(dtype, true) && constant(1))
    return !args[1].isInt() || args[1].toInt() >= 0;
  constexpr std::string_view kWithAlpha[] = {"aten.add.Tensor",  "aten.add.Scalar",
                                             "aten.sub.Tensor",  "aten.sub.Scalar",
                                             "aten.rsub.Tensor", "aten.rsub.Scalar"};
  if (std::ranges::find(kWithAlpha, target) != std::end(kWithAlpha) && constant(2))
    return takes_alpha(args[2].toScalar(), dtype);
  return true;
}

// An integer made of sizes.
bool converts(sym::Expr e, at::ScalarType to, sym::ShapeFacts& facts) {
  int64_t least = 0, most = 0;
  if (to == at::kHalf) {
    most = static_cast<int64_t>(largest(to));
    least = -most;
  } else if (at::isIntegralType(to, false) && c10::elementSize(to) < sizeof(int64_t)) {
    const auto bits = static_cast<int64_t>(8 * c10::elementSize(to));
    const bool sign = at::isSignedType(to);
    most = (int64_t{1} << (sign ? bits - 1 : bits)) - 1;
    least = sign ? -most - 1 : -most;  // c10 takes -1 for the largest unsigned number
  } else {
    return true;
  }
  return facts.decide(sym::at_most(e, most), true) && facts.decide(sym::at_most(least, e), true);
}

}  // namespace

void refuse_as_eager(std::string_view target, c10::ArrayRef<c10::IValue> args,
                     const ir::TensorType& result, sym::ShapeFacts* facts) {
  const auto dtype = static_cast<at::ScalarType>(result.dtype);
  if (is_lacking(target, args, dtype)) throw Unsupported(cat(target, " of ", c10::toString(dtype)));
  if (ir::is_integral(result.dtype, true) &&
      std::ranges::find(kOfFloats, target) != std::end(kOfFloats))
    throw Unsupported(cat(target, " of integers"));
  if (std::ranges::find(kOfOneDtype, target) != std::end(kOfOneDtype) && differ_in_dtype(args))
    throw Unsupported(cat(target, " of two dtypes"));
  if (!has_dimension(target, args)) throw Unsupported(cat(target, " of such a dimension"));
  if (is_sum_of_all(target, args)) throw Unsupported(cat(target, " over no dimension"));
  if (!takes_shapes(target, args, result, facts)) throw Unsupported(cat(target, " of such shapes"));
  if (!takes_parameters(target, args))
    throw Unsupported(cat(target, " with parameters of another dtype"));
  if (misses_weight(target, args)) throw Unsupported(cat(target, " without a weight"));
  if (!takes_number(target, args, dtype)) throw Unsupported(cat(target, " of this number"));
  const bool half = at::isReducedFloatingType(dtype);
  for (const CheckedNumber& c : kCheckedNumbers) {
    if (c.op != target || !args[c.position].isScalar() || (half && c.to == To::NotHalf)) continue;
    const at::ScalarType to = c.to == To::Widened ? at::toOpMathType(dtype) : dtype;
    const c10::Scalar number = args[c.position].toScalar();
    bool held = true;
    if (number.isSymbolic()) {
      // Each call looks at a number that varies before it is put into a tensor.
      if (number.isSymInt() && !tensor_behind(number) && facts)
        held = converts(expr_of(number.toSymInt()), to, *facts);
    } else if (c.to == To::BelowMost) {
      held = !number.isComplex() && std::abs(number.toDouble()) <= largest(to);
    } else {
      const bool real = c.to == To::Real || (c.to == To::OfKind && !at::isComplexType(dtype));
      held = !(real && number.isComplex()) && converts(number, to);
    }
    if (!held)
      throw Unsupported(cat(target, " of a number that ", c10::toString(to), " does not hold"));
  }
}

}  // namespace oxy::bridge
