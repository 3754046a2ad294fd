// Recognises gemms and convolutions, and chooses who computes them.
#include "ops/contraction.h"

#include <algorithm>
#include <array>

#include "ops/args.h"
#include "ops/shape_elementwise.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using Kind = Contraction::Kind;

constexpr std::array<std::string_view, 4> kProviders = {"own", "onednn", "aten", "loops"};

bool is_one(const Args& a, size_t i) { return a.missing(i) || a.number(i, 1.0) == 1.0; }

bool has_rank(const TensorType* t, int64_t rank) { return t && t->dim() == rank; }

std::optional<ContractionNode> gemm_of(const ir::Node& n, const Args& a) {
  const size_t first = n.target == "aten.addmm.default" ? 1 : 0;
  const int64_t rank = n.target == "aten.bmm.default" ? 3 : 2;
  if (!has_rank(a.tensor(first), rank) || !has_rank(a.tensor(first + 1), rank)) return std::nullopt;
  ContractionNode out;
  out.a = n.args[first].value(), out.b = n.args[first + 1].value();
  if (first == 0) return out;
  const TensorType* bias = a.tensor(0);
  if (!has_rank(bias, 1) || !bias->is_contiguous() || !is_one(a, 3) || !is_one(a, 4) ||
      bias->sizes[0] != a.tensor(2)->sizes[1])
    return std::nullopt;
  out.bias = n.args[0].value();
  return out;
}

std::optional<ContractionNode> convolution_of(const ir::Node& n, const Args& a) {
  if (!has_rank(a.tensor(0), 4) || !has_rank(a.tensor(1), 4)) return std::nullopt;
  if (a.boolean(6, false) != false || a.integer(8, 1) != 1) return std::nullopt;
  ContractionNode out;
  out.what.kind = Kind::Convolution;
  std::vector<Expr>* lists[] = {&out.what.stride, &out.what.padding, &out.what.dilation};
  for (size_t i = 0; i < 3; ++i)
    if (!a.exprs(3 + i, *lists[i]) || lists[i]->size() != 2) return std::nullopt;
  out.a = n.args[0].value(), out.b = n.args[1].value();
  if (a.missing(2)) return out;
  if (!has_rank(a.tensor(2), 1) || !a.tensor(2)->is_contiguous()) return std::nullopt;
  out.bias = n.args[2].value();
  return out;
}

bool are_constant(const std::vector<Expr>& list) {
  return std::ranges::all_of(list, [](Expr e) { return e.is_const(); });
}

// Of this dtype on the CPU, with elements, all sizes known.
bool is_fixed(const TensorType& t, DType dtype) {
  return t.dtype == dtype && t.device.is_cpu() && are_constant(t.sizes) &&
         are_constant(t.strides) && t.offset.is_const() &&
         std::ranges::count(t.sizes, Expr(0)) == 0;
}

// One dimension of each matrix is contiguous.
bool is_gemm_of_ours(const ContractionTypes& t) {
  auto stride = [](const TensorType& x) {
    return x.sizes.back().is_const(1) ? 1 : x.strides.back();
  };
  return stride(*t.a) == 1 && stride(*t.c) == 1 &&
         (t.b->strides.back() == 1 || t.b->strides[t.b->strides.size() - 2] == 1);
}

bool is_convolution_of_ours(const Contraction& what, const ContractionTypes& t) {
  return t.c->dtype == DType::F32 && are_constant(what.stride) && are_constant(what.padding) &&
         are_constant(what.dilation) && t.b->is_contiguous() &&
         t.a->sizes[1].value() >= tuning::conv_fewest_channels &&
         t.a->strides == channels_last_strides(t.a->sizes) &&
         t.c->strides == channels_last_strides(t.c->sizes);
}

// Of gemms that our kernels take, who else has few rows.
std::optional<Provider> provider_of_few_rows(const ContractionLayout& l) {
  if (l.b_k == 1 || l.dtype == DType::F32) {
    if (l.m != 1 || l.k.value() * l.n.value() > tuning::gemm_tiny_matrix) return std::nullopt;
    return l.dtype == DType::F32 ? Provider::Loops : Provider::Aten;
  }
  if (l.m.value() < tuning::gemm_few_rows) return Provider::Aten;
  return std::nullopt;
}

}  // namespace

std::string_view name(Contraction::Kind k) { return k == Kind::Gemm ? "gemm" : "convolution"; }

std::string_view name(Provider p) { return kProviders[static_cast<size_t>(p)]; }

std::optional<Provider> provider_from_name(std::string_view name) {
  const auto it = std::ranges::find(kProviders, name);
  if (it == kProviders.end()) return std::nullopt;
  return static_cast<Provider>(it - kProviders.begin());
}

// (AVX512_FP16 sums in f16, which ATen does not.)
Providers providers_on(const Machine& m, std::string_view setting) {
  const bool any = setting == "auto";
  return {.own = (any || setting == "own") && m.vector_bytes > 0,
          .onednn = setting == "onednn" && m.onednn,
          .fast_bf16 = any && m.onednn && (m.avx512_bf16 || m.amx_bf16),
          .fast_f16 = any && m.onednn && m.amx_fp16};
}

ContractionTypes ContractionNode::types(const ir::Graph& g, const ir::Node& n) const {
  return {&g.tensor_type(a), &g.tensor_type(b), bias.valid() ? &g.tensor_type(bias) : nullptr,
          &g.tensor_type(n.outputs[0])};
}

std::optional<ContractionNode> contraction_of(const ir::Graph& g, const ir::Node& n) {
  if (n.outputs.size() != 1 || !g.value(n.outputs[0]).type.is_tensor()) return std::nullopt;
  const Args a(g, n);
  if (n.target == "aten.convolution.default") return convolution_of(n, a);
  if (n.target == "aten.mm.default" || n.target == "aten.bmm.default" ||
      n.target == "aten.addmm.default")
    return gemm_of(n, a);
  return std::nullopt;
}

Provider provider_of(const Contraction& what, const ContractionTypes& t,
                     const Providers& available) {
  const DType dtype = t.c->dtype;
  if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16) return Provider::Aten;
  for (const TensorType* x : {t.a, t.b, t.bias, t.c})
    if (x && !is_fixed(*x, dtype)) return Provider::Aten;
  if (what.kind == Kind::Convolution)
    return available.own && is_convolution_of_ours(what, t) ? Provider::Own : Provider::Aten;
  if (!is_gemm_of_ours(t)) return Provider::Aten;
  if (const auto few = provider_of_few_rows(layout_of(what, t))) return *few;
  const bool fast =
      (dtype == DType::BF16 && available.fast_bf16) || (dtype == DType::F16 && available.fast_f16);
  if (available.own && !fast) return Provider::Own;
  const bool linear = dtype == DType::F32 && t.c->dim() == 2 && t.c->is_contiguous();
  return available.onednn && linear ? Provider::OneDnn : Provider::Aten;
}

Provider provider_of(const ir::Graph& g, const ir::Node& n, const Providers& available) {
  const auto node = contraction_of(g, n);
  return node ? provider_of(node->what, node->types(g, n), available) : Provider::Aten;
}

bool wants_channels_last(const ir::Graph& g, const ir::Node& n) {
  const auto node = contraction_of(g, n);
  if (!node || node->what.kind != Kind::Convolution) return false;
  ContractionTypes types = node->types(g, n);
  TensorType a = *types.a, c = *types.c;
  a.strides = channels_last_strides(a.sizes), c.strides = channels_last_strides(c.sizes);
  types.a = &a, types.c = &c;
  return provider_of(node->what, types, {.own = true}) == Provider::Own;
}

ContractionLayout layout_of(const Contraction& what, const ContractionTypes& t) {
  ContractionLayout l;
  l.dtype = t.c->dtype;
  const std::vector<Expr>&as = t.a->sizes, &bs = t.b->sizes, &cs = t.c->sizes;
  if (what.kind == Kind::Convolution) {
    l.batch = as[0], l.k = as[1], l.in_h = as[2], l.in_w = as[3];
    l.n = cs[1], l.m = cs[2] * cs[3], l.out_w = cs[3];
    l.kernel_h = bs[2], l.kernel_w = bs[3];
    l.a_row = l.k, l.a_batch = l.in_h * l.in_w * l.k;
    l.b_k = 1, l.b_n = l.k * l.kernel_h * l.kernel_w;
    l.c_row = l.n, l.c_batch = l.m * l.n;
    return l;
  }
  const size_t d =
      as.size() - 2;  // the last two dimensions are the matrix, one before them the batch
  l.m = as[d], l.n = bs[d + 1], l.k = as[d + 1];
  l.a_row = t.a->strides[d], l.b_k = t.b->strides[d], l.b_n = t.b->strides[d + 1];
  l.c_row = t.c->strides[d];
  if (d == 0) return l;
  l.batch = as[0];
  l.a_batch = t.a->strides[0], l.b_batch = t.b->strides[0], l.c_batch = t.c->strides[0];
  return l;
}

}  // namespace oxy::ops
