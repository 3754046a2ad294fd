// Pointwise ops that choose between or mix several operands: where, masked_fill, clamp, addcmul,
// addcdiv, lerp.
#include <cmath>

#include "ops/element.h"
#include "ops/families.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

// ---- where, masked_fill ----

bool shape_where(const Args& a, Types& out) {
  constexpr size_t kAll[] = {0, 1, 2}, kValues[] = {1, 2};
  auto t = elementwise_type(a, kAll, ResultDType::Promoted);
  auto dtype = common_dtype(a, kValues, false);
  if (!t || !dtype) return false;
  t->dtype = *dtype;
  return give(out, std::move(t));
}

Scalar where(Element& e) {
  return e.where(e.load(0), e.operand(1, e.result()), e.operand(2, e.result()));
}

template <size_t Mask>
bool applies_mask(const ir::Graph& g, const ir::Node& n) {
  const TensorType* mask = Args(g, n).tensor(Mask);
  return mask && mask->dtype == DType::B8 && applies_computable(g, n);
}

// A row-major copy of self, expanded to the mask.
bool shape_masked_fill(const Args& a, Types& out) {
  const TensorType *self = a.tensor(0), *mask = a.tensor(1);
  if (!self || !mask || mask->dtype != DType::B8 || mask->device != self->device) return false;
  if (a.tensor(2) && !a.tensor(2)->sizes.empty()) return false;
  auto sizes = broadcast(self->sizes, mask->sizes);
  if (!sizes) return false;
  return give(out, fresh(*self, std::move(*sizes)));
}

Scalar masked_fill(Element& e) {
  const DType d = e.result();
  return e.where(e.load(1), e.operand(2, d), e.operand(0, d));
}

// ---- clamp ----

// Dtype from self and the bounds, layout from self alone.
bool shape_clamp(const Args& a, Types& out) {
  constexpr size_t kFirst[] = {0};
  auto t = elementwise_type(a, kFirst, ResultDType::Promoted);
  std::vector<size_t> operands;
  for (size_t i = 0; i < 3; ++i) {
    if (!a.missing(i)) operands.push_back(i);
  }
  auto dtype = common_dtype(a, operands, false);
  if (!t || !dtype || operands.size() < 2) return false;
  t->dtype = *dtype;
  return give(out, std::move(t));
}

bool shape_clamp_tensor(const Args& a, Types& out) {
  std::vector<size_t> operands;
  for (size_t i = 0; i < 3; ++i) {
    if (!a.missing(i)) operands.push_back(i);
  }
  if (operands.size() < 2) return false;
  auto t = elementwise_type(a, operands, ResultDType::Promoted);
  if (!t) return false;
  return give(out, std::move(t));
}

// NaN in any operand gives NaN; a lower bound above the upper one gives the upper one.
Scalar clamp(Element& e) {
  const DType d = e.result();
  Scalar x = e.operand(0, d);
  if (!e.args.missing(1)) x = e.op(LoopOp::Max, x, e.operand(1, d));
  if (!e.args.missing(2)) x = e.op(LoopOp::Min, x, e.operand(2, d));
  return x;
}

template <LoopOp O>
Scalar bound(Element& e) {
  const DType d = e.result();
  return e.op(O, e.operand(0, d), e.operand(1, d));
}

// ---- addcmul, addcdiv, lerp ----

Scalar addcmul(Element& e) {
  const DType d = e.compute();
  const Scalar self = e.operand(0, d), x = e.operand(1, d), y = e.operand(2, d);
  auto value = e.args.number(3, 1.0);
  const Scalar scaled = value && *value == 1.0 ? x : e.mul(e.number(3, d, 1.0), x);
  return e.finish(ir::is_floating(d) ? e.fma(scaled, y, self) : e.add(self, e.mul(scaled, y)));
}

Scalar addcdiv(Element& e) {
  const DType d = e.compute();
  const Scalar x = e.mul(e.number(3, d, 1.0), e.operand(1, d));
  return e.finish(e.add(e.operand(0, d), e.div(x, e.operand(2, d))));
}

// From the nearer end, so that weights 0 and 1 give the ends exactly.
Scalar lerp(Element& e) {
  const DType d = e.compute();
  const Scalar start = e.operand(0, d), end = e.operand(1, d), weight = e.operand(2, d);
  const Scalar gap = e.sub(end, start);
  auto from_start = [&] { return e.fma(weight, gap, start); };
  auto from_end = [&] { return e.fma(e.op(LoopOp::Neg, gap), e.sub(e.c(1, d), weight), end); };
  if (auto w = e.args.number(2)) {
    return e.finish(std::abs(static_cast<float>(*w)) < 0.5f ? from_start() : from_end());
  }
  // A weight that is a number is compared as one of f32.
  const DType compared = e.node.target == "aten.lerp.Scalar" ? DType::F32 : d;
  const Scalar size = e.op(LoopOp::Abs, e.operand(2, compared));
  const Scalar near_start = e.op(LoopOp::Lt, size, e.c(0.5, compared));
  return e.finish(e.where(near_start, from_start(), from_end()));
}

constexpr uint32_t kArith = Pointwise | Cheap;
constexpr ShapeRule addcmul_shape = shape_elementwise<ResultDType::Promoted, 3, Needs::NotBool>;
constexpr ShapeRule addcdiv_shape = shape_elementwise<ResultDType::Promoted, 3, Needs::AllFloating>;
constexpr ShapeRule lerp_ends = shape_elementwise<ResultDType::Promoted, 2, Needs::SameFloating>;
constexpr ShapeRule lerp_shape = shape_elementwise<ResultDType::Promoted, 3, Needs::SameFloating>;

constexpr OpInfo kRows[] = {
#include "ops/blends.def"
};

}  // namespace

std::span<const OpInfo> blend_ops() { return kRows; }

}  // namespace oxy::ops
