// Scans beyond sums and products: running extremes with their places, logcumsumexp; and reductions
// that are made of others: nansum, aminmax, count_nonzero.
#include "ops/element.h"
#include "ops/families.h"
#include "ops/rewriter.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// ---- scans ----

std::optional<size_t> dimension(const Args& a) {
  const TensorType* t = a.tensor(0);
  auto given = a.integer(1);
  if (!t || !given || t->dim() == 0) return std::nullopt;
  auto dim = wrap_dim(*given, t->dim());
  return dim ? std::optional(static_cast<size_t>(*dim)) : std::nullopt;
}

bool shape_extreme(const Args& a, Types& out) {
  if (!dimension(a)) return false;
  const TensorType& t = *a.tensor(0);
  return give(out, fresh(t, t.sizes)) && give(out, row_major(DType::I64, t.device, t.sizes));
}

template <size_t Dim>
bool shape_sort(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto dim = a.integer(Dim, -1);
  const auto strides = t ? preserved_strides(*t) : std::nullopt;
  if (!strides || !dim || !wrap_dim(*dim, t->dim()) || ir::is_complex(t->dtype)) return false;
  TensorType values = fresh(*t, t->sizes), places = row_major(DType::I64, t->device, t->sizes);
  values.strides = places.strides = *strides;
  return give(out, std::move(values)) && give(out, std::move(places));
}

bool shape_logcumsumexp(const Args& a, Types& out) {
  if (!dimension(a) || !ir::is_floating(a.tensor(0)->dtype)) return false;
  const TensorType& t = *a.tensor(0);
  return give(out, fresh(t, t.sizes));
}

Scalar scanned(Element& e) { return e.b.load(e.args[0].value(), e.index); }

// ATen adds up f32 in f64, fp16 and bf16 in f32.
template <ReduceKind K>
bool scan(const ir::Graph& g, const ir::Node& n, ReductionSpec& spec) {
  auto dim = dimension(Args(g, n));
  if (!dim) return false;
  spec.kind = K;
  spec.dims = {static_cast<int64_t>(*dim)};
  spec.keepdim = true;
  spec.result = g.tensor_type(n.outputs[0]).dtype;
  const bool sums = K == ReduceKind::LogSumExp && spec.result == DType::F32;
  spec.accumulate = sums ? DType::F64 : opmath(spec.result);
  return true;
}

// The places have been taken from the values by then.
bool applies_extreme(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.use_counts()[n.outputs[1].index] == 0;
}

// An element that equals the extreme up to itself is the newest one that does; NaN is extreme. The
// place of the newest one so far is the largest of their places so far.
bool decompose_places(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  auto dim = dimension(a);
  if (!dim || r.graph().use_counts()[n.outputs[1].index] == 0) return false;
  const TensorType t = r.type(n.arg(0).value());
  if (!is_computable(t.dtype) || t.numel().is_const(0)) return false;
  const ValueId values = r.call_multi(n.target, {n.arg(0), n.arg(1)})[0];
  ValueId extreme = r.call("aten.eq.Tensor", {n.arg(0), values});
  if (ir::is_floating(t.dtype)) {
    const ValueId nan = r.unary("aten.isnan.default", n.arg(0).value());
    extreme = r.call("aten.logical_or.default", {extreme, nan});
  }
  Sizes line(t.sizes.size(), Expr(1));
  line[*dim] = t.sizes[*dim];
  const ValueId count = r.call("aten.arange.default", {t.sizes[*dim], DType::I64});
  const ValueId zero =
      r.call("aten.full.default", {ir::List{}, 0, DType::I64, ir::Arg(), t.device});
  const ValueId places = r.call("aten.where.self", {extreme, r.view(count, line), zero});
  out.push_back(values);
  return give(out, r.call_multi("aten.cummax.default", {places, static_cast<int64_t>(*dim)})[0]);
}

// ---- reductions made of others ----

// Argument `at` as a list of dimensions; all of them where it is missing or empty.
std::optional<std::vector<int64_t>> dims_at(const Args& a, size_t at) {
  const int64_t rank = a.tensor(0)->dim();
  std::vector<int64_t> dims;
  const auto* items = a[at].items();
  if (a.missing(at) || (items && items->empty())) {
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
    return dims;
  }
  if (!a.integers(at, dims) || rank == 0 || !wrap_dims(dims, rank)) return std::nullopt;
  return dims;
}

bool decompose_nansum(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = dims_at(a, 1);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype)) return false;
  const bool real = ir::is_floating(t.dtype);
  if (!a.missing(3) && (!real || !a.dtype(3) || !ir::is_floating(*a.dtype(3)))) return false;
  ValueId x = n.arg(0).value();
  if (real) {
    const ir::Arg zero = r.call("aten.full.default", {ir::List{}, 0, t.dtype, ir::Arg(), t.device});
    x = r.call("aten.where.self", {r.unary("aten.isnan.default", x), zero, x});
  }
  return give(out, r.call("aten.sum.dim_IntList", {x, list_of(*dims), *keepdim, n.arg(3)}));
}

bool decompose_aminmax(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType& t = *a.tensor(0);
  auto dims = dims_at(a, 1);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype) || t.dim() == 0) return false;
  for (Expr s : t.sizes) {
    if (!s.is_const() || s.is_const(0)) return false;
  }
  for (const char* op : {"aten.amin.default", "aten.amax.default"}) {
    out.push_back(r.call(op, {n.arg(0), list_of(*dims), *keepdim}));
  }
  return true;
}

bool decompose_count_nonzero(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  auto dims = dims_at(a, 1);
  if (!dims || !is_computable(a.tensor(0)->dtype)) return false;
  return give(out, r.sum(r.call("aten.ne.Scalar", {n.arg(0), 0}), *dims, false));
}

constexpr OpInfo kRows[] = {
#include "ops/scans.def"
};

}  // namespace

std::span<const OpInfo> scan_ops() { return kRows; }

}  // namespace oxy::ops
