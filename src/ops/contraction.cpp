// Gemms, convolutions and attention: their rules (mostly shapes, they run as calls), which nodes
// are contractions, and who computes those.
#include "ops/contraction.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/families.h"
#include "ops/rewriter.h"
#include "support/tuning.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using Kind = Contraction::Kind;

constexpr std::array<std::string_view, 4> kProviders = {"own", "onednn", "aten", "loops"};

bool is_one(const Args& a, size_t i) { return a.missing(i) || a.number(i, 1.0) == 1.0; }

bool has_rank(const TensorType* t, int64_t rank) { return t && t->dim() == rank; }

// ---- which nodes ----

std::optional<ContractionNode> gemm_of(const ir::Node& n, const Args& a) {
  const size_t first = n.target == "aten.addmm.default" ? 1 : 0;
  const bool batched = n.target == "aten.bmm.default" || n.target == kBmmToF32;
  const int64_t rank = batched ? 3 : 2;
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
  // Of no channels eager gives none, whatever the weight's rows are.
  if (a.tensor(0)->sizes[1].is_const(0)) return std::nullopt;
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

bool have_hints(const std::vector<Expr>& list) { return std::ranges::all_of(list, has_hint); }

// Of this dtype on the CPU; known or varying sizes, none of which is 0 at all calls.
bool is_sized(const TensorType& t, DType dtype) {
  return t.dtype == dtype && t.device.is_cpu() && have_hints(t.sizes) && have_hints(t.strides) &&
         has_hint(t.offset) && std::ranges::count(t.sizes, Expr(0)) == 0;
}

// Whether there are elements at every call.
bool has_elements(const TensorType& t) {
  return std::ranges::all_of(t.sizes, [](Expr e) { return sym::range_of(e).lo > 0; });
}

bool has_contiguous_rows(const TensorType& t) {
  return t.sizes.back().is_const(1) || t.strides.back() == 1;
}

bool has_contiguous_dimension(const TensorType& t) {
  return t.strides.back() == 1 || t.strides[t.strides.size() - 2] == 1;
}

// Whether our kernels take a's columns as they lie: of many rows, that are no pairs, where that
// takes no longer than the library's call.
bool takes_columns(const ContractionTypes& t) {
  const size_t d = t.a->sizes.size() - 2;
  const int64_t few = std::max(tuning::dot_most_rows, tuning::row_most_rows);
  if (t.a->dtype == DType::BF16 || t.a->strides[d] != 1 || sym::range_of(t.a->sizes[d]).lo <= few)
    return false;
  const int64_t columns = sym::hint(t.b->sizes.back());
  if (t.a->dtype == DType::F16) return columns >= tuning::gemm_columns_for;
  if (sym::hint(t.a->strides[d + 1]) * 4 > tuning::gemm_columns_pitch)
    return columns >= tuning::gemm_copied_columns_for;
  return std::min(sym::hint(t.a->sizes[d]), columns) >= tuning::gemm_columns_for &&
         sym::hint(t.a->sizes[d + 1]) <= tuning::gemm_columns_depth;
}

bool is_gemm_of_ours(const ContractionTypes& t) {
  return (has_contiguous_rows(*t.a) || takes_columns(t)) && has_contiguous_rows(*t.c) &&
         has_contiguous_dimension(*t.b);
}

bool is_convolution_of_ours(const Contraction& what, const ContractionTypes& t) {
  return t.c->dtype == DType::F32 && are_constant(t.b->sizes) && t.a->sizes[1].is_const() &&
         are_constant(what.stride) && are_constant(what.padding) && are_constant(what.dilation) &&
         t.b->is_contiguous() && t.a->sizes[1].value() >= tuning::conv_fewest_channels &&
         t.a->strides == channels_last_strides(t.a->sizes) &&
         t.c->strides == channels_last_strides(t.c->sizes);
}

// Of gemms that our kernels take, who else has few rows.
std::optional<Provider> provider_of_few_rows(const ContractionLayout& l) {
  if (l.b_k == 1 || l.dtype == DType::F32) {
    if (l.dtype != DType::F32 || !l.m.is_const(1) ||
        sym::hint(l.k) * sym::hint(l.n) > tuning::gemm_tiny_matrix)
      return std::nullopt;
    return Provider::Loops;
  }
  return std::nullopt;
}

// Whether computing a gemm by tiles takes longer than the library's call, and than reading B.
bool are_many_products(const ContractionLayout& l) {
  const bool few_rows = l.b_k == 1 && sym::hint(l.m) <= tuning::gemm_few_rows;
  const double products =
      static_cast<double>(sym::hint(l.batch)) * sym::hint(l.m) * sym::hint(l.n) * sym::hint(l.k);
  return !few_rows && products > tuning::tiles_most_products;
}

// Tensors of this rank, one dtype and one device.
bool alike(const TensorType* a, const TensorType* b, int64_t rank_a, int64_t rank_b) {
  return a && b && a->dim() == rank_a && b->dim() == rank_b && a->dtype == b->dtype &&
         a->device == b->device;
}

bool same_size(Expr a, Expr b) { return known_same({a}, {b}); }

// ---- gemms ----

// Matrices, or batches of them; behind an addend where they stand at 1.
template <size_t At, size_t Rank>
bool shape_mm(const Args& a, Types& out) {
  const TensorType *x = a.tensor(At), *y = a.tensor(At + 1);
  if (!alike(x, y, Rank, Rank) || !same_size(x->sizes[Rank - 1], y->sizes[Rank - 2])) return false;
  if (Rank == 3 && !same_size(x->sizes[0], y->sizes[0])) return false;
  if (At == 1 && (!a.tensor(0) || a.tensor(0)->dtype != x->dtype)) return false;
  Sizes sizes = x->sizes;
  sizes.back() = y->sizes.back();
  return give(out, fresh(*x, std::move(sizes)));
}

bool shape_bmm_to_f32(const Args& a, Types& out) {
  const TensorType* x = a.tensor(0);
  if (!x || !ir::is_reduced_float(x->dtype) || !shape_mm<0, 3>(a, out)) return false;
  out.back().tensor.dtype = DType::F32;
  return true;
}

// A matrix or a vector, and a vector.
template <size_t Rank>
bool shape_mv(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *y = a.tensor(1);
  if (!alike(x, y, Rank, 1) || !same_size(x->sizes.back(), y->sizes[0])) return false;
  return give(out, fresh(*x, {x->sizes.begin(), x->sizes.end() - 1}));
}

// Over the matrices, column by column.
bool shape_geqrf(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  if (!t || t->dim() < 2 || (t->dtype != DType::F32 && t->dtype != DType::F64)) return false;
  const size_t rows = t->sizes.size() - 2;
  const Expr m = t->sizes[rows], n = t->sizes.back();
  if (std::ranges::any_of(t->sizes, [](Expr e) { return sym::known_less(0, e) != true; }))
    return false;
  Sizes turned = t->sizes, factors(t->sizes.begin(), t->sizes.end() - 2);
  std::swap(turned[rows], turned.back());
  TensorType matrices = fresh(*t, turned);
  std::swap(matrices.sizes[rows], matrices.sizes.back());
  std::swap(matrices.strides[rows], matrices.strides.back());
  factors.push_back(sym::min(m, n));
  return give(out, std::move(matrices)) && give(out, fresh(*t, factors));
}

// The solutions are written over the right sides, column by column. The drivers that find singular
// values leave out residuals where the values of a matrix say so.
bool shape_lstsq(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *y = a.tensor(1);
  const auto driver = a.string(3, "gelsy");
  if (!x || x->dim() < 2 || (x->dtype != DType::F32 && x->dtype != DType::F64) || !driver ||
      (*driver != "gelsy" && *driver != "gels"))
    return false;
  const bool vectors = y && y->dim() == x->dim() - 1;
  if (!y || !alike(x, y, x->dim(), vectors ? x->dim() - 1 : x->dim())) return false;
  const Sizes batch(x->sizes.begin(), x->sizes.end() - 2);
  const Expr m = x->sizes[batch.size()], n = x->sizes.back();
  const Expr k = vectors ? Expr(1) : y->sizes.back();
  Sizes rows = batch;
  rows.push_back(m);
  if (!known_same(rows, {y->sizes.begin(), y->sizes.begin() + x->dim() - 1})) return false;
  for (const Expr size : {m, n, k})
    if (sym::known_less(0, size) != true) return false;
  const auto tall = sym::known_less(n, m);
  if (!tall) return false;
  const Expr column = *tall ? m : n;
  Sizes sizes = batch;
  sizes.insert(sizes.end(), {k, column});
  TensorType solution = fresh(*x, sizes);
  solution.sizes[batch.size()] = n;
  solution.sizes.back() = k;
  std::swap(solution.strides[batch.size()], solution.strides.back());
  if (vectors) {
    solution.sizes.pop_back();
    solution.strides.pop_back();
  }
  const TensorType none = fresh(*x, {0});
  const bool ranked = *driver == "gelsy";
  Sizes sums = batch;
  sums.push_back(k);
  return give(out, std::move(solution)) &&
         give(out, !ranked && *tall ? fresh(*x, std::move(sums)) : none) &&
         give(out, row_major(DType::I64, x->device, ranked ? batch : Sizes{0})) && give(out, none);
}

bool shape_linear(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1);
  if (!x || x->dim() < 2 || !alike(x, w, x->dim(), 2) || !x->is_row_major()) return false;
  if (!same_size(x->sizes.back(), w->sizes[1])) return false;
  if (!a.missing(2) && (!a.tensor(2) || a.tensor(2)->dtype != x->dtype)) return false;
  Sizes sizes = x->sizes;
  sizes.back() = w->sizes[0];
  return give(out, fresh(*x, std::move(sizes)));
}

bool shape_int8_linear(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1), *scales = a.tensor(2);
  if (!has_rank(x, 2) || !has_rank(w, 2) || !has_rank(scales, 1) || w->dtype != DType::I8 ||
      opmath(x->dtype) != DType::F32 || !same_size(x->sizes[1], w->sizes[1]))
    return false;
  return give(out, fresh(*x, {x->sizes[0], w->sizes[0]}));
}

// A linear layer of int8 weights with a scale a column, as ATen's kernel rounds: sums of f32 times
// the scale. Weights are read as they lie where there are few rows, else widened in front of a gemm
// (int8 is exact in bf16). With few rows of bf16 ATen's kernel is as fast as memory.
bool decompose_int8_linear(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out) {
  using ir::ValueId;
  const Args a(r.graph(), n);
  const TensorType *x = a.tensor(0), *scales = a.tensor(2);
  if (!x || !scales || !x->device.is_cpu() || scales->dtype != x->dtype || !has_hint(x->sizes[0]))
    return false;
  const DType dtype = x->dtype;
  const ValueId rows = n.arg(0).value(), weights = n.arg(1).value();
  auto transposed = [&](ValueId v) {
    return r.call("aten.permute.default", {v, list_of(std::vector<int64_t>{1, 0})});
  };
  const bool few = sym::hint(x->sizes[0]) < tuning::int8_few_rows;
  ValueId sums;
  if (dtype == DType::BF16 && few) return false;
  if (few && x->sizes[0].is_const()) {
    const ValueId wide = r.call("aten.unsqueeze.default", {r.widen(rows), 1});
    sums = r.sum(r.mul(wide, r.cast(weights, DType::F32)), {2}, false);
  } else if (dtype == DType::F32) {
    sums = r.call("aten.mm.default", {rows, transposed(r.cast(weights, dtype))});
  } else {
    auto batch = [&](ValueId v) { return r.call("aten.unsqueeze.default", {v, 0}); };
    sums = r.call(kBmmToF32, {batch(rows), batch(transposed(r.cast(weights, dtype)))});
    sums = r.call("aten.squeeze.dim", {sums, 0});
  }
  out = {r.cast(r.mul(sums, r.widen(n.arg(2).value())), dtype)};
  return true;
}

// ---- convolution ----

// Of one spatial dimension.
struct Slide {
  Expr stride, padding, dilation, added;  // added: output_padding
};

Expr convolved(Expr in, Expr kernel, const Slide& s, bool transposed) {
  const Expr reach = s.dilation * (kernel - Expr(1)) + Expr(1);
  const Expr padded = s.padding * Expr(2);
  if (transposed) return (in - Expr(1)) * s.stride - padded + reach + s.added;
  return sym::floordiv(in + padded - reach, s.stride) + Expr(1);
}

// One number a spatial dimension; a single one counts for all.
bool spatial(const Args& a, size_t at, size_t dims, std::vector<Expr>& out) {
  if (!a.exprs(at, out)) return false;
  if (out.size() == 1) out.resize(dims, out[0]);
  return out.size() == dims;
}

std::optional<std::vector<Slide>> slides(const Args& a, size_t dims) {
  std::vector<Expr> stride, padding, dilation, added;
  if (!spatial(a, 3, dims, stride) || !spatial(a, 4, dims, padding) ||
      !spatial(a, 5, dims, dilation) || !spatial(a, 7, dims, added))
    return std::nullopt;
  std::vector<Slide> out;
  for (size_t d = 0; d < dims; ++d) {
    const Slide s{stride[d], padding[d], dilation[d], added[d]};
    auto is_below = [](Expr a, Expr b) { return sym::known_less(a, b) != false; };
    if (is_below(s.stride, 1) || is_below(s.padding, 0) || is_below(s.dilation, 1) ||
        is_below(s.added, 0))
      return std::nullopt;
    if (sym::known_less(s.added, sym::max(s.stride, s.dilation)) != true) return std::nullopt;
    out.push_back(s);
  }
  return out;
}

bool is_positive(Expr e) { return sym::known_less(0, e).value_or(false); }

// Row-major, also in the strides of dimensions of one element, by which torch tells layouts.
bool is_plain(const TensorType& t) { return t.strides == ir::contiguous_strides(t.sizes); }

// One channel of one pixel looks like channels-last, too.
bool is_ambiguous(const TensorType& image) {
  if (!same_size(image.sizes[1], 1)) return false;
  return std::ranges::all_of(image.sizes.begin() + 2, image.sizes.end(),
                             [](Expr e) { return same_size(e, 1); });
}

}  // namespace

// Layouts other than row-major depend on the library that runs it: torch is asked.
bool shape_convolution(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *w = a.tensor(1);
  const int64_t rank = x ? x->dim() : 0;
  if (rank < 3 || rank > 5 || !alike(x, w, rank, rank) || !is_plain(*x) || !is_plain(*w))
    return false;
  const auto slide = slides(a, static_cast<size_t>(rank) - 2);
  auto transposed = a.boolean(6, false);
  const auto groups = a.expr(8, Expr(1));
  if (!transposed || !groups || !is_positive(*groups) || !slide) return false;
  if (!std::ranges::all_of(x->sizes, is_positive) || !std::ranges::all_of(w->sizes, is_positive))
    return false;
  const Expr channels = *transposed ? w->sizes[0] : w->sizes[1] * *groups;
  if (!same_size(x->sizes[1], channels)) return false;
  if (!same_size(sym::mod(w->sizes[0], *groups), 0)) return false;
  // Of one dimension it runs as one of two: a row of one element may have any stride.
  const bool any_stride = rank == 3 && same_size(x->sizes[2], 1);
  if (!a.are_for_sizes() && (any_stride || is_ambiguous(*x) || is_ambiguous(*w))) return false;
  Sizes sizes{x->sizes[0], *transposed ? w->sizes[1] * *groups : w->sizes[0]};
  for (size_t d = 2; d < x->sizes.size(); ++d) {
    sizes.push_back(convolved(x->sizes[d], w->sizes[d], (*slide)[d - 2], *transposed));
    if (!is_positive(sizes.back())) return false;
  }
  return give(out, fresh(*x, std::move(sizes)));
}

namespace {

// ---- attention ----

// query, key, value: [batch, heads, length, size]. The result has the layout of the query, the
// logarithms of the sums lie as [batch, length, heads].
bool shape_attention(const Args& a, Types& out) {
  const TensorType *q = a.tensor(0), *k = a.tensor(1), *v = a.tensor(2);
  if (!alike(q, k, 4, 4) || !alike(q, v, 4, 4)) return false;
  if (!same_size(q->sizes[3], v->sizes[3]) || !same_size(q->sizes[3], k->sizes[3])) return false;
  auto y = empty_like(*q);
  if (!y || q->numel().is_const(0)) return false;
  const Expr batch = q->sizes[0], heads = q->sizes[1], length = q->sizes[2];
  const DType wide = q->dtype == DType::F64 ? DType::F64 : DType::F32;
  TensorType sums = row_major(wide, q->device, {batch, heads, length});
  sums.strides = {heads * length, Expr(1), heads};
  return give(out, std::move(y)) && give(out, std::move(sums));
}

// Attention of few queries (decoding): reading keys and values is all, and as loops that takes in
// what makes them. ATen's kernel gives 0 where every key is masked.
bool decompose_attention(Rewriter& r, const ir::Node& n, std::vector<ir::ValueId>& out) {
  using ir::ValueId;
  const Args a(r.graph(), n);
  const TensorType *q = a.tensor(0), *mask = a.tensor(5);
  const auto scale = a.number(6, 0.0);
  const bool given = !a.missing(6);
  if (!q || opmath(q->dtype) != DType::F32 || !q->device.is_cpu() || a.number(3, 0.0) != 0.0 ||
      !scale || a.boolean(4, false) != false ||
      (!a.missing(5) && (!mask || mask->dtype != q->dtype)))
    return false;
  const Expr length = q->sizes[2], size = q->sizes[3];
  if (sym::known_equal(a.tensor(1)->sizes[2], a.tensor(2)->sizes[2]) == false) return false;
  if (!length.is_const() || length.value() >= tuning::gemm_few_rows || !size.is_const() ||
      q->numel().is_const(0) || a.tensor(1)->numel().is_const(0))
    return false;
  const double factor = given ? *scale : 1.0 / std::sqrt(static_cast<double>(size.value()));
  auto unsqueezed = [&](ValueId v, int64_t dim) {
    return r.call("aten.unsqueeze.default", {v, dim});
  };
  auto filled = [&](ValueId v, ValueId where, double value) {
    return r.call("aten.masked_fill.Scalar", {v, where, value});
  };
  // Keys may have fewer heads, each for as many of the queries' that follow each other.
  const Sizes whole = q->sizes;
  const Expr heads = q->sizes[1], shared = a.tensor(1)->sizes[1], keys = a.tensor(1)->sizes[2];
  const bool grouped = !same_size(heads, shared);
  const Expr group = sym::floordiv(heads, shared);
  const int64_t d = grouped ? 1 : 0;  // dimensions more
  auto split = [&](ValueId v, Expr columns) {
    return grouped ? r.view(v, {whole[0], shared, group, length, columns}) : v;
  };
  auto joined = [&](ValueId v, Expr columns) {
    return grouped ? r.view(v, {whole[0], heads, length, columns}) : v;
  };
  auto of_keys = [&](size_t i) {
    const ValueId v = unsqueezed(r.widen(n.arg(i).value()), 2);
    return grouped ? unsqueezed(v, 2) : v;
  };
  const ValueId query = unsqueezed(split(r.widen(n.arg(0).value()), size), 3 + d);
  ValueId scores = joined(r.sum(r.mul(query, of_keys(1)), {4 + d}, false), keys);
  scores = r.call("aten.mul.Scalar", {scores, factor});
  if (mask) scores = r.add(scores, r.widen(n.arg(5).value()));
  const ValueId masked = r.call("aten.eq.Scalar", {scores, -INFINITY});
  const ValueId shifted = r.sub(scores, r.amax(scores, {3}, true));
  const ValueId weights = filled(r.unary("aten.exp.default", shifted), masked, 0.0);
  ValueId sum = r.sum(weights, {3}, true);
  sum = filled(sum, r.call("aten.eq.Scalar", {sum, 0.0}), 1.0);
  const ValueId shares = unsqueezed(split(r.div(weights, sum), keys), 4 + d);
  const ValueId mixed = r.cast(r.sum(r.mul(shares, of_keys(2)), {3 + d}, false), q->dtype);
  out = {joined(mixed, a.tensor(2)->sizes[3]), ValueId()};
  return true;
}

constexpr OpInfo kContractionOps[] = {
#include "ops/contraction.def"
};

}  // namespace

bool has_hint(Expr e) {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return std::ranges::all_of(symbols, [](Expr s) { return sym::symbol_hint(s).has_value(); });
}

std::span<const OpInfo> contraction_ops() { return kContractionOps; }

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
          .fast_bf16 = any && m.onednn && m.vector_bytes < 64 && (m.amx_bf16 || m.avx512_bf16),
          .fast_f16 = any && m.onednn && m.amx_fp16,
          .tiles_bf16 = any && m.onednn && m.vector_bytes == 64 && m.amx_bf16 && m.avx512_bf16,
          .lanes = any && m.onednn ? m.vector_bytes / 4 : 0};
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
      n.target == "aten.addmm.default" || n.target == kBmmToF32)
    return gemm_of(n, a);
  return std::nullopt;
}

Provider provider_of(const Contraction& what, const ContractionTypes& t,
                     const Providers& available) {
  const DType dtype = t.a->dtype;
  if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16) return Provider::Aten;
  for (const TensorType* x : {t.a, t.b, t.bias})
    if (x && !is_sized(*x, dtype)) return Provider::Aten;
  if (!is_sized(*t.c, t.c->dtype) || (t.c->dtype != dtype && t.c->dtype != DType::F32))
    return Provider::Aten;
  if (what.kind == Kind::Convolution) {
    const bool narrow = sym::range_of(t.c->sizes[1]).hi <= available.lanes;
    const bool own = available.own && !narrow && is_convolution_of_ours(what, t);
    return own ? Provider::Own : Provider::Aten;
  }
  // Where nothing is summed, ours write nothing.
  if (!is_gemm_of_ours(t) || sym::range_of(t.a->sizes.back()).lo < 1) return Provider::Aten;
  if (const auto few = provider_of_few_rows(layout_of(what, t))) return *few;
  if (dtype == DType::BF16 && t.c->dtype == dtype && available.tiles_bf16 &&
      are_many_products(layout_of(what, t)))
    return Provider::Aten;
  const bool fast = t.c->dtype == dtype && ((dtype == DType::BF16 && available.fast_bf16) ||
                                            (dtype == DType::F16 && available.fast_f16));
  if (available.own && !fast) return Provider::Own;
  const bool linear = dtype == DType::F32 && t.c->dim() == 2 && t.c->is_contiguous() &&
                      has_elements(*t.a) && has_elements(*t.c);
  return available.onednn && linear ? Provider::OneDnn : Provider::Aten;
}

Provider provider_of(const ir::Graph& g, const ir::Node& n, const Providers& available) {
  const auto node = contraction_of(g, n);
  return node ? provider_of(node->what, node->types(g, n), available) : Provider::Aten;
}

OperandCopies wants_row_major(const ir::Graph& g, const ir::Node& n, const Providers& available) {
  const auto node = contraction_of(g, n);
  if (!node || node->what.kind != Kind::Gemm) return {};
  ContractionTypes types = node->types(g, n);
  const OperandCopies out{.a = !has_contiguous_rows(*types.a) && !takes_columns(types),
                          .b = !has_contiguous_dimension(*types.b)};
  // Of f32 in columns that ours do not take, the library's call takes less than a copy.
  const bool by_library =
      out.a && types.a->dtype == DType::F32 && types.a->strides[types.a->sizes.size() - 2] == 1;
  TensorType a = *types.a, b = *types.b;
  if (out.a) a.strides = ir::contiguous_strides(a.sizes), types.a = &a;
  if (out.b) b.strides = ir::contiguous_strides(b.sizes), types.b = &b;
  if (provider_of(node->what, types, available) != Provider::Own) return {};
  auto is_less = [](Expr e, int64_t least) { return sym::hint(e) < least; };
  const bool few = sym::hint(a.numel()) <= tuning::gemm_copied_least;
  const bool slower =
      (out.a && !few && (by_library || is_less(b.sizes.back(), tuning::gemm_columns_for))) ||
      (out.b && is_less(*(a.sizes.end() - 2), tuning::gemm_copied_for));
  return slower ? OperandCopies() : out;
}

Provider provider_of_transposes(const ir::Graph& g, const ir::Node& n, const Providers& available) {
  const auto node = contraction_of(g, n);
  if (!node || node->what.kind != Kind::Gemm) return Provider::Aten;
  const ContractionTypes types = node->types(g, n);
  const TensorType &a = *types.a, &b = *types.b;
  const Expr m = *(a.sizes.end() - 2), columns = b.sizes.back();
  const bool tiles = a.dtype == DType::BF16 && available.tiles_bf16;
  const bool is_batch_of_vectors = a.dim() == 3 && columns.is_const(1) && a.dtype == DType::F32;
  const bool lies = has_contiguous_rows(a) || (is_batch_of_vectors && has_contiguous_dimension(a));
  if (!lies || !columns.is_const() || !has_hint(m) || !has_hint(a.sizes.back()))
    return Provider::Aten;
  // Of few rows, halves gain that lie in columns: they would be widened a part of a vector at a
  // time.
  const bool few_rows = sym::hint(m) <= tuning::dot_most_rows;
  if (few_rows && (tiles || a.dtype == DType::F32 || *(b.strides.end() - 2) == 1))
    return Provider::Aten;
  const int64_t most = tiles ? 1 : tuning::dot_most_columns;  // tiles gain from the second on
  const int64_t few =
      std::min(most, tuning::dot_rows(a.dtype != DType::F32 && !tiles, sym::hint(a.sizes.back())));
  if (columns.value() > few) return Provider::Aten;
  auto swapped = [](TensorType t, bool row_major) {
    std::swap(t.sizes.back(), *(t.sizes.end() - 2));
    std::swap(t.strides.back(), *(t.strides.end() - 2));
    if (row_major) t.strides = ir::contiguous_strides(t.sizes);
    return t;
  };
  const TensorType rows = swapped(b, true), matrix = swapped(a, false),
                   result = swapped(*types.c, true);
  const Provider who = provider_of(node->what, {.a = &rows, .b = &matrix, .c = &result}, available);
  return who == Provider::Own || who == Provider::Loops ? who : Provider::Aten;
}

// ATen convolves one small image by itself (ConvParams::use_mkldnn), by patches as they lie.
static bool is_native_convolution(const ContractionTypes& types) {
  const std::vector<Expr>&x = types.a->sizes, &weight = types.b->sizes;
  const bool large = sym::range_of(weight[2]).lo > 3 && sym::range_of(weight[3]).lo > 3;
  return x[0].is_const(1) && !large && has_hint(types.a->numel()) &&
         sym::hint(types.a->numel()) <= tuning::conv_native_elements;
}

bool wants_channels_last(const ir::Graph& g, const ir::Node& n, const Providers& available) {
  const auto node = contraction_of(g, n);
  if (!node || node->what.kind != Kind::Convolution) return false;
  ContractionTypes types = node->types(g, n);
  // The library's, of one vector of channels: of single pixels it takes rows.
  const std::vector<Expr>& weight = types.b->sizes;
  const bool narrow = sym::range_of(weight[0]).hi <= available.lanes;
  const bool pixels = weight[2].is_const(1) && weight[3].is_const(1);
  if (narrow && types.a->is_row_major() && (pixels || is_native_convolution(types))) return false;
  TensorType a = *types.a, c = *types.c;
  a.strides = channels_last_strides(a.sizes), c.strides = channels_last_strides(c.sizes);
  types.a = &a, types.c = &c;
  return provider_of(node->what, types, {.own = true}) == Provider::Own;
}

bool library_convolves(DType half, const Machine& m) {
  return half == DType::BF16 ? m.avx512 : m.amx_fp16;
}

bool library_wants_channels_last(const ir::Graph& g, const ir::Node& n, const Machine& m) {
  const bool backward = n.target == "aten.convolution_backward.default";
  if ((!backward && n.target != "aten.convolution.default") || !m.onednn) return false;
  const Args a(g, n);
  const TensorType *x = a.tensor(backward ? 1 : 0), *w = a.tensor(backward ? 2 : 1);
  const TensorType* y = backward ? a.tensor(0) : &g.tensor_type(n.outputs[0]);
  if (!x || !w || !y || x->dim() != 4 || w->dim() != 4 || !x->device.is_cpu() ||
      x->sizes[1].is_const(1))
    return false;
  const Expr taps = w->sizes[2] * w->sizes[3], pixels = y->sizes[0] * y->sizes[2] * y->sizes[3];
  const auto are_many = [&](int64_t fewest) {
    return !has_hint(pixels) || sym::hint(pixels) >= fewest;
  };
  const bool transposed = a.boolean(backward ? 7 : 6, true).value_or(true);
  const auto is_wide = [&](size_t d) {
    return sym::known_less(tuning::conv_widest_laid_out, w->sizes[d]) != false;
  };
  if (backward && (is_wide(2) || is_wide(3))) return false;
  if (x->dtype == DType::F32) {
    if (transposed) return !backward && m.avx512 && are_many(tuning::conv_laid_out_pixels);
    const bool each_channel = w->sizes[1].is_const(1) && same_size(w->sizes[0], x->sizes[1]) &&
                              !sym::known_less(x->sizes[1], m.vector_bytes / 4).value_or(true);
    if (each_channel)
      return m.avx512 || !sym::known_less(tuning::conv_few_taps, taps).value_or(true);
    return backward && m.avx512 && !taps.is_const(1) &&
           are_many(tuning::conv_laid_out_pixels_backward);
  }
  return ir::is_reduced_float(x->dtype) && library_convolves(x->dtype, m) &&
         ((taps.is_const(1) && !transposed) ||
          are_many(backward ? tuning::conv_laid_out_pixels_backward
                            : tuning::conv_laid_out_pixels));
}

bool is_narrow(DType dtype, std::optional<int64_t> n, std::optional<int64_t> k,
               const Machine& machine) {
  if (!n || *n > tuning::narrow_most_columns(machine)) return false;
  return dtype == DType::F32 ||
         (k && *k > 0 && *k <= tuning::narrow_most_depth(machine, dtype == DType::BF16));
}

ContractionLayout layout_of(const Contraction& what, const ContractionTypes& t) {
  ContractionLayout l;
  l.dtype = t.a->dtype, l.result = t.c->dtype;
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
  // The last two dimensions are the matrix, one before them the batch.
  const size_t d = as.size() - 2;
  l.m = as[d], l.n = bs[d + 1], l.k = as[d + 1];
  l.a_row = t.a->strides[d], l.a_k = has_contiguous_rows(*t.a) ? Expr(1) : t.a->strides[d + 1];
  l.b_k = t.b->strides[d], l.b_n = t.b->strides[d + 1];
  l.c_row = t.c->strides[d];
  if (d == 0) return l;
  l.batch = as[0];
  l.a_batch = t.a->strides[0], l.b_batch = t.b->strides[0], l.c_batch = t.c->strides[0];
  return l;
}

}  // namespace oxy::ops
