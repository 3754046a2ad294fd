// Scans beyond sums and products: running extremes with their places, logcumsumexp; and reductions
// that are made of others: nansum, aminmax, count_nonzero.
#include "ops/compose.h"
#include "ops/element.h"
#include "ops/families.h"
#include "ops/shape_elementwise.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;
using Types = std::vector<ir::Type>;
using ArgSpan = std::span<const ir::Arg>;

// ---- scans ----

std::optional<size_t> dimension(const Args& a) {
  const TensorType* t = a.tensor(0);
  auto given = a.integer(1);
  if (!t || !given || t->dim() == 0) return std::nullopt;
  auto dim = wrap_dim(*given, t->dim());
  return dim ? std::optional(static_cast<size_t>(*dim)) : std::nullopt;
}

bool shape_extreme(const ShapeContext& context, ArgSpan args, Types& out) {
  const Args a(context, args);
  if (!dimension(a)) return false;
  const TensorType& t = *a.tensor(0);
  out.push_back(ir::Type::of(row_major(t.dtype, t.device, t.sizes)));
  out.push_back(ir::Type::of(row_major(DType::I64, t.device, t.sizes)));
  return true;
}

bool shape_logcumsumexp(const ShapeContext& context, ArgSpan args, Types& out) {
  const Args a(context, args);
  if (!dimension(a) || !ir::is_floating(a.tensor(0)->dtype)) return false;
  const TensorType& t = *a.tensor(0);
  out.push_back(ir::Type::of(row_major(t.dtype, t.device, t.sizes)));
  return true;
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
  Compose c(r);
  const Args a(r.graph(), n);
  auto dim = dimension(a);
  if (!dim || r.graph().use_counts()[n.outputs[1].index] == 0) return false;
  const TensorType t = r.type(n.arg(0).value());
  if (!is_computable(t.dtype) || t.numel().is_const(0)) return false;
  const ValueId values = c.call_multi(n.target, {n.arg(0), n.arg(1)})[0];
  ValueId extreme = c.call("aten.eq.Tensor", {n.arg(0), values});
  if (ir::is_floating(t.dtype)) {
    const ValueId nan = c.unary("aten.isnan.default", n.arg(0).value());
    extreme = c.call("aten.logical_or.default", {extreme, nan});
  }
  Sizes line(t.sizes.size(), Expr(1));
  line[*dim] = t.sizes[*dim];
  const ValueId count = c.call("aten.arange.default", {t.sizes[*dim], DType::I64});
  const ValueId zero =
      c.call("aten.full.default", {ir::List{}, 0, DType::I64, ir::Arg(), t.device});
  const ValueId places = c.call("aten.where.self", {extreme, c.view(count, line), zero});
  out.push_back(values);
  out.push_back(c.call_multi("aten.cummax.default", {places, static_cast<int64_t>(*dim)})[0]);
  return true;
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
  Compose c(r);
  const Args a(r.graph(), n);
  const TensorType t = *a.tensor(0);
  auto dims = dims_at(a, 1);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype)) return false;
  const bool real = ir::is_floating(t.dtype);
  if (!a.missing(3) && (!real || !a.dtype(3) || !ir::is_floating(*a.dtype(3)))) return false;
  ValueId x = n.arg(0).value();
  if (real) {
    const ir::Arg zero = c.call("aten.full.default", {ir::List{}, 0, t.dtype, ir::Arg(), t.device});
    x = c.call("aten.where.self", {c.unary("aten.isnan.default", x), zero, x});
  }
  out.push_back(c.call("aten.sum.dim_IntList", {x, list_of(*dims), *keepdim, n.arg(3)}));
  return true;
}

bool decompose_aminmax(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  Compose c(r);
  const Args a(r.graph(), n);
  const TensorType& t = *a.tensor(0);
  auto dims = dims_at(a, 1);
  auto keepdim = a.boolean(2, false);
  if (!dims || !keepdim || !is_computable(t.dtype) || t.dim() == 0) return false;
  for (Expr s : t.sizes) {
    if (!s.is_const() || s.is_const(0)) return false;
  }
  for (const char* op : {"aten.amin.default", "aten.amax.default"}) {
    out.push_back(c.call(op, {n.arg(0), list_of(*dims), *keepdim}));
  }
  return true;
}

bool decompose_count_nonzero(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  Compose c(r);
  const Args a(r.graph(), n);
  auto dims = dims_at(a, 1);
  if (!dims || !is_computable(a.tensor(0)->dtype)) return false;
  out.push_back(c.sum(c.call("aten.ne.Scalar", {n.arg(0), 0}), *dims, false));
  return true;
}

#define E(f) element_rule<f>
#define D(f) decompose<f>
#define none nullptr
constexpr Applies real = applies_computable;

constexpr OpInfo kRows[] = {
#define OP OXY_OP_ROW
#define REDUCE OXY_REDUCE_ROW
#include "ops/scans.def"
#undef OP
#undef REDUCE
};

}  // namespace

std::span<const OpInfo> scan_ops() { return kRows; }

}  // namespace oxy::ops
