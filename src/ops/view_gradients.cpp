// Gradients of views, of patches and of padding: zeros with the gradient written into a part of
// them, or for each element the sum of the places that read it, in ATen's order.
#include <algorithm>

#include "ops/families.h"
#include "ops/padding.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

// ---- select, slice, diagonal, unfold: gradient, sizes of the operand, the view's arguments ----

// The operand's type, where `view` of it, with `count` of our arguments, has the gradient's sizes.
bool shape_view_backward(const Args& a, std::string_view view, size_t count, Types& out) {
  const TensorType* grad = a.tensor(0);
  Sizes sizes;
  if (!grad || !a.exprs(1, sizes)) return false;
  const TensorType whole = fresh(*grad, std::move(sizes));
  ir::Graph plain(a.graph().stage, a.graph().pool);
  std::vector<ir::Arg> args{plain.add_input("", ir::Type::of(whole))};
  for (size_t i = 2; i < 2 + count; ++i) {
    const auto number = a.expr(i);
    if (!number) return false;
    args.emplace_back(*number);
  }
  Types part;
  return find(view)->shape(Args(plain, args), part) &&
         known_same(part[0].tensor.sizes, grad->sizes) && give(out, whole);
}

bool shape_select_backward(const Args& a, Types& out) {
  return shape_view_backward(a, "aten.select.int", 2, out);
}

bool shape_slice_backward(const Args& a, Types& out) {
  return shape_view_backward(a, "aten.slice.Tensor", 4, out);
}

bool shape_diagonal_backward(const Args& a, Types& out) {
  return shape_view_backward(a, "aten.diagonal.default", 3, out);
}

bool shape_unfold_backward(const Args& a, Types& out) {
  return shape_view_backward(a, "aten.unfold.default", 3, out);
}

// Zeros with the gradient in a part of them, which `op` puts there: select_scatter and its like.
bool scatter_into_zeros(Rewriter& r, const ir::Node& n, std::string_view op,
                        std::vector<ValueId>& out) {
  const TensorType result = r.type(n.outputs[0]);
  if (!is_computable(result.dtype) || result.numel().is_const(0)) return false;
  const bool real = ir::is_floating(result.dtype);
  const ir::Arg zero = real ? ir::Arg(0.0) : ir::Arg(0);
  std::vector<ir::Arg> args{r.full(result.sizes, zero, result.dtype, result.device), n.arg(0)};
  args.insert(args.end(), n.args.begin() + 2, n.args.end());
  return give(out, r.call(op, std::move(args)));
}

bool decompose_select_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  return scatter_into_zeros(r, n, "aten.select_scatter.default", out);
}

bool decompose_slice_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  return scatter_into_zeros(r, n, "aten.slice_scatter.default", out);
}

bool decompose_diagonal_backward(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  return scatter_into_zeros(r, n, "aten.diagonal_scatter.default", out);
}

// ---- unfold ----

constexpr int64_t kMostWindows = 64;  // that an element may lie in

int64_t most_windows(const Args& a) {
  const int64_t size = *a.integer(3), step = *a.integer(4);
  return (size + step - 1) / step;
}

bool applies_unfold_backward(const ir::Graph& g, const ir::Node& n) {
  return applies_floating(g, n) && most_windows(Args(g, n)) <= kMostWindows;
}

// The windows that hold an element, from the first one on.
Scalar unfold_backward(Element& e) {
  const auto dim = static_cast<size_t>(*e.args.dim(2, e.result_type().dim()));
  const int64_t size = *e.args.integer(3), step = *e.args.integer(4), most = most_windows(e.args);
  const Expr i = e.index[dim], windows = e.args.tensor(0)->sizes[dim];
  const Scalar zero = e.c(0, e.result());
  Scalar sum = zero;
  for (int64_t k = most - 1; k >= 0; --k) {
    const Expr window = sym::floordiv(i, Expr(step)) - Expr(k);
    const Expr place = i - window * Expr(step);
    Index at = e.index;
    at[dim] = window;
    at.push_back(place);
    const Scalar there = e.op(LoopOp::And, e.within(window, 0, windows), e.within(place, 0, size));
    sum = e.add(sum, e.load(0, at, there, zero));
  }
  return sum;
}

// ---- padding: gradient, operand, padding ----

// In the operand's memory format.
template <bool Reflect, size_t Dims>
bool shape_pad_backward(const Args& a, Types& out) {
  const TensorType *grad = a.tensor(0), *t = a.tensor(1);
  Types padded;
  if (!grad || !t || grad->dtype != t->dtype || !ir::is_floating(t->dtype)) return false;
  if (!shape_of_padded(a.with(a.list().subspan(1)), Reflect, Dims, padded)) return false;
  if (!known_same(padded[0].tensor.sizes, grad->sizes)) return false;
  TensorType result = fresh(*t, t->sizes);
  const bool image = t->dim() == 4 || t->dim() == 5;
  const auto last = Dims > 1 && image ? suggests_channels_last(*t) : std::optional(false);
  if (!last) return false;
  if (*last) result.strides = channels_last_strides(result.sizes);
  return give(out, std::move(result));
}

// A place of the gradient in one dimension that reads an element, where there is one.
struct Reader {
  Expr at;
  std::optional<Scalar> there;  // nothing: always
};

// In front of the border as a mirror image, in the middle, and behind.
std::vector<Reader> mirrored(Element& e, Expr i, Expr size, const Borders& edge) {
  std::vector<Reader> out;
  const Expr last = size - Expr(1), middle = edge.before + i;
  if (!edge.before.is_const(0))
    out.push_back({edge.before - i, e.within(i, Expr(1), edge.before + Expr(1))});
  out.push_back({middle, std::nullopt});
  if (!edge.after.is_const(0))
    out.push_back({edge.before + last * Expr(2) - i, e.within(i, last - edge.after, last)});
  return out;
}

// What lies in front of the first element and behind the last one, and the middle.
std::vector<Reader> repeated(Element& e, Expr i, Expr size, const Borders& edge) {
  std::vector<Reader> out;
  const Expr last = size - Expr(1);
  for (int64_t k = 0; k < edge.before.value(); ++k) out.push_back({Expr(k), e.within(i, 0, 1)});
  out.push_back({edge.before + i, std::nullopt});
  for (int64_t k = 0; k < edge.after.value(); ++k)
    out.push_back({edge.before + size + Expr(k), e.within(i, last, size)});
  return out;
}

// Adds all combinations, the last dimension's first.
void add_readers(Element& e, const std::vector<std::vector<Reader>>& all, size_t k, Index at,
                 std::optional<Scalar> there, Scalar& sum) {
  if (k == all.size()) {
    sum = e.add(sum, e.load(0, at, there, e.c(0, sum.dtype)));
    return;
  }
  const size_t dim = at.size() - all.size() + k;
  for (const Reader& reader : all[k]) {
    at[dim] = reader.at;
    add_readers(e, all, k + 1, at, reader.there ? e.both(there, *reader.there) : there, sum);
  }
}

template <bool Reflect, size_t Dims>
Scalar pad_backward(Element& e) {
  const TensorType& t = *e.args.tensor(1);
  const auto edges = *borders(e.args.with(e.args.list().subspan(1)), Dims);
  const size_t first = t.sizes.size() - Dims;
  std::vector<std::vector<Reader>> all;
  for (size_t k = 0; k < Dims; ++k) {
    const Expr i = e.index[first + k], size = t.sizes[first + k];
    all.push_back(Reflect ? mirrored(e, i, size, edges[k]) : repeated(e, i, size, edges[k]));
  }
  Scalar sum = e.c(0, e.result());
  add_readers(e, all, 0, e.index, std::nullopt, sum);
  return sum;
}

constexpr int64_t kMostReaders = 64;

// Of replicated borders those that are known and small.
template <size_t Dims>
bool applies_replication(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  const auto edges = borders(a.with(a.list().subspan(1)), Dims);
  int64_t readers = 1;
  for (size_t k = 0; edges && k < Dims; ++k) {
    const auto& [before, after] = (*edges)[k];
    if (!before.is_const() || !after.is_const()) return false;
    readers *= std::min(before.value() + after.value() + 1, kMostReaders + 1);
  }
  return edges && readers <= kMostReaders && applies_floating(g, n);
}

constexpr OpInfo kViewGradientOps[] = {
#include "ops/view_gradients.def"
};

}  // namespace

std::span<const OpInfo> view_gradient_ops() { return kViewGradientOps; }

}  // namespace oxy::ops
