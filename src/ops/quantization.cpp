// The library quantized_decomposed, whose kernels are Python (torch/ao/quantization/fx): one kernel
// of ours in the place of each of their ops, rounded as these are.
#include <algorithm>

#include "ops/families.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

constexpr size_t kPerTensor = 3, kPerChannel = 4;  // where the range of the integers stands

// Bytes, whose range the limits keep; others torch is asked for.
bool are_bytes(const Args& a, size_t range) {
  const auto least = a.integer(range), most = a.integer(range + 1);
  const auto dtype = a.dtype(range + 2);
  if (!least || !most || !dtype) return false;
  return (*dtype == DType::U8 && *least >= 0 && *most <= 255) ||
         (*dtype == DType::I8 && *least >= -128 && *most <= 127);
}

bool is_quantizable(DType d) { return d == DType::F32 || ir::is_reduced_float(d); }

// Of the layout that an op on the input alone has.
bool give_like(const Args& a, Types& out, DType dtype) {
  if (!shape_elementwise<ResultDType::Promoted, 1>(a, out)) return false;
  out.back().tensor.dtype = dtype;
  return true;
}

bool shape_quantize(const Args& a, Types& out) {
  const TensorType* x = a.tensor(0);
  return x && is_quantizable(x->dtype) && a.number(1) && a.integer(2) && are_bytes(a, kPerTensor) &&
         give_like(a, out, *a.dtype(kPerTensor + 2));
}

bool shape_dequantize(const Args& a, Types& out) {
  const TensorType* x = a.tensor(0);
  const auto dtype = a.dtype(6, DType::F32);
  return x && a.number(1) && a.integer(2) && are_bytes(a, kPerTensor) &&
         x->dtype == *a.dtype(kPerTensor + 2) && dtype && is_quantizable(*dtype) &&
         give_like(a, out, *dtype);
}

// A scale and a zero point for each place along the axis. The kernel permutes another axis than the
// first to the front and back, which moves strides where sizes of 0 and 1 leave them open.
bool has_channels(const Args& a) {
  const TensorType *x = a.tensor(0), *scales = a.tensor(1), *zeros = a.tensor(2);
  const auto axis = a.integer(3);
  const auto is_of_channels = [&](const TensorType* t) {
    return t && t->dim() == 1 &&
           sym::certain_equal(t->sizes[0], x->sizes[static_cast<size_t>(*axis)]) == true;
  };
  const auto is_open = [](Expr size) { return sym::certain_less(1, size) != true; };
  return x && axis && *axis >= 0 && *axis < x->dim() &&
         (*axis == 0 || std::ranges::none_of(x->sizes, is_open)) && is_of_channels(scales) &&
         scales->dtype == DType::F32 &&
         (a.missing(2) || (is_of_channels(zeros) && ir::is_integral(zeros->dtype, false)));
}

bool shape_quantize_channels(const Args& a, Types& out) {
  return has_channels(a) && !a.missing(2) && is_quantizable(a.tensor(0)->dtype) &&
         are_bytes(a, kPerChannel) && give_like(a, out, *a.dtype(kPerChannel + 2));
}

bool shape_dequantize_channels(const Args& a, Types& out) {
  const auto dtype = a.dtype(7, DType::F32);
  return has_channels(a) && are_bytes(a, kPerChannel) &&
         a.tensor(0)->dtype == *a.dtype(kPerChannel + 2) && dtype && is_quantizable(*dtype) &&
         give_like(a, out, *dtype);
}

Scalar rounded(Element& e, Scalar scaled, Scalar zero, size_t range) {
  const auto limit = [&](size_t i) {
    return e.c(static_cast<double>(*e.args.integer(i)), DType::F32);
  };
  const Scalar x = e.add(e.op(LoopOp::Round, scaled), zero);
  return e.finish(e.op(LoopOp::Min, e.op(LoopOp::Max, x, limit(range)), limit(range + 1)));
}

Scalar quantize(Element& e) {
  const Scalar inverse = e.c(1.0 / *e.args.number(1), DType::F32);
  const Scalar zero = e.c(static_cast<double>(*e.args.integer(2)), DType::F32);
  return rounded(e, e.mul(e.operand(0, DType::F32), inverse), zero, kPerTensor);
}

// Each op rounds to the dtype of the result.
Scalar dequantize(Element& e) {
  const auto rounded = [&](Scalar v) { return e.cast(e.finish(v), DType::F32); };
  const Scalar zero = e.c(static_cast<double>(*e.args.integer(2)), DType::F32);
  const Scalar x = rounded(e.sub(rounded(e.operand(0, DType::F32)), zero));
  return e.finish(e.mul(x, e.c(*e.args.number(1), DType::F32)));
}

Scalar of_channel(Element& e, size_t i) {
  return e.load(i, {e.index[static_cast<size_t>(*e.args.integer(3))]});
}

Scalar quantize_channels(Element& e) {
  const Scalar inverse = e.div(e.c(1, DType::F32), of_channel(e, 1));
  const Scalar zero = e.cast(of_channel(e, 2), DType::F32);
  return rounded(e, e.mul(e.operand(0, DType::F32), inverse), zero, kPerChannel);
}

// The difference is one of integers.
Scalar dequantize_channels(Element& e) {
  Scalar x = e.load(0);
  if (!e.args.missing(2)) {
    const Scalar zero = of_channel(e, 2);
    const DType wide = promote(x.dtype, zero.dtype).value();
    x = e.sub(e.cast(x, wide), e.cast(zero, wide));
  }
  return e.finish(e.mul(e.cast(x, DType::F32), of_channel(e, 1)));
}

constexpr OpInfo kQuantizationOps[] = {
#include "ops/quantization.def"
};

}  // namespace

std::span<const OpInfo> quantization_ops() { return kQuantizationOps; }

}  // namespace oxy::ops
