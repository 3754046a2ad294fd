#include "ops/own_kernels.h"

#include "ops/args.h"
#include "ops/shape_elementwise.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

bool is_known(const TensorType* t, DType dtype) {
  if (!t || t->dtype != dtype || !t->device.is_cpu()) return false;
  for (const auto* list : {&t->sizes, &t->strides})
    for (Expr e : *list)
      if (!e.is_const()) return false;
  for (Expr size : t->sizes)
    if (size.value() == 0) return false;
  return t->offset.is_const();
}

bool is_known_f32(const TensorType* t) { return is_known(t, DType::F32); }

// Matrices or batches of them in one dtype that our kernels have, one dimension of each contiguous.
bool is_known_product(const TensorType* a, const TensorType* b, const TensorType& c) {
  if (c.dtype != DType::F32 && c.dtype != DType::BF16 && c.dtype != DType::F16) return false;
  if (!is_known(a, c.dtype) || !is_known(b, c.dtype) || !is_known(&c, c.dtype)) return false;
  const size_t d = a->sizes.size();
  if (d < 2 || d > 3 || b->sizes.size() != d) return false;
  auto stride = [](const TensorType& t, size_t i) {
    return t.sizes[i].is_const(1) ? 1 : t.strides[i].value();
  };
  if (stride(*a, d - 1) != 1 || stride(c, d - 1) != 1) return false;
  return b->strides[d - 1].is_const(1) || b->strides[d - 2].is_const(1);
}

bool is_one(const Args& a, size_t i) { return a.missing(i) || a.number(i, 1.0) == 1.0; }

// Of a product that kernels of ours compute: whether it has too few rows for them.
std::optional<bool> has_few_rows(const ir::Graph& g, const ir::Node& n) {
  if (n.outputs.size() != 1 || !g.value(n.outputs[0]).type.is_tensor()) return std::nullopt;
  const TensorType& out = g.tensor_type(n.outputs[0]);
  Args a(g, n);
  const TensorType* right = a.tensor(1);
  bool good = false;
  if (n.target == "aten.mm.default" || n.target == "aten.bmm.default") {
    good = is_known_product(a.tensor(0), right, out);
  } else if (n.target == "aten.addmm.default") {
    right = a.tensor(2);
    const TensorType* bias = a.tensor(0);
    good = is_known_product(a.tensor(1), right, out) && is_known(bias, out.dtype) &&
           bias->dim() == 1 && bias->is_contiguous() && bias->sizes[0] == out.sizes[1] &&
           is_one(a, 3) && is_one(a, 4);
  }
  if (!good) return std::nullopt;
  const int64_t rows = out.sizes[out.sizes.size() - 2].value();
  const bool transposed = right->strides[right->strides.size() - 2].is_const(1);
  if (transposed || out.dtype == DType::F32) {
    return rows == 1 && right->sizes[right->dim() - 2].value() * out.sizes.back().value() <=
                            tuning::gemm_tiny_matrix;
  }
  return rows < tuning::gemm_few_rows;
}

// The parameters of a 4-D convolution with one group.
bool is_conv2d(const Args& a) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1);
  if (!is_known_f32(x) || !is_known_f32(w) || x->dim() != 4 || w->dim() != 4 || !w->is_contiguous())
    return false;
  if (!a.missing(2) && (!is_known_f32(a.tensor(2)) || !a.tensor(2)->is_contiguous())) return false;
  std::vector<int64_t> numbers;
  for (size_t i : {3, 4, 5})
    if (!a.integers(i, numbers) || numbers.size() != 2)
      return false;
    else
      numbers.clear();
  return a.boolean(6, false) == false && a.integer(8, 1) == 1;
}

}  // namespace

bool is_plain_conv2d(const ir::Graph& g, const ir::Node& n) {
  if (n.target != "aten.convolution.default") return false;
  Args a(g, n);
  return is_conv2d(a) && a.tensor(0)->sizes[1].value() >= tuning::conv_fewest_channels &&
         is_known_f32(&g.tensor_type(n.outputs[0]));
}

bool is_thin_product(const ir::Graph& g, const ir::Node& n) {
  const std::optional<bool> few = has_few_rows(g, n);
  return few && *few && g.tensor_type(n.outputs[0]).dtype == DType::F32;
}

bool has_own_kernel(const ir::Graph& g, const ir::Node& n) {
  if (n.outputs.size() != 1 || !g.value(n.outputs[0]).type.is_tensor()) return false;
  if (const std::optional<bool> few = has_few_rows(g, n)) return !*few;
  const TensorType& out = g.tensor_type(n.outputs[0]);
  Args a(g, n);
  return is_plain_conv2d(g, n) &&
         a.tensor(0)->strides == channels_last_strides(a.tensor(0)->sizes) &&
         out.strides == channels_last_strides(out.sizes);
}

}  // namespace oxy::ops
