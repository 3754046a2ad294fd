// Loss functions: an element rule or a composition for each element, then a mean or a sum over
// them, as ATen does it: the losses of the elements are rounded before they are folded.
#include "ops/losses.h"

#include <algorithm>

#include "ops/families.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

bool finish(Rewriter& r, ValueId losses, std::optional<int64_t> reduction,
            std::vector<ValueId>& out) {
  if (reduction == EachLoss) return give(out, losses);
  if (reduction == MeanLoss) return give(out, r.call("aten.mean.default", {losses}));
  return reduction == SumLoss && give(out, r.call("aten.sum.default", {losses}));
}

bool same_floating(const TensorType& a, const TensorType& b) {
  return ir::is_floating(a.dtype) && is_computable(a.dtype) && a.dtype == b.dtype;
}

bool compares_floats(const Rewriter& r, const ir::Node& n) {
  return same_floating(r.type(n.arg(0).value()), r.type(n.arg(1).value()));
}

// Eager warns of float16.
bool decompose_mse(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  if (!compares_floats(r, n) || r.type(n.arg(0).value()).dtype == DType::F16) return false;
  const ValueId gap = r.sub(n.arg(0).value(), n.arg(1).value());
  return finish(r, r.mul(gap, gap), Args(r.graph(), n).integer(2, MeanLoss), out);
}

bool decompose_soft_margin(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType &input = r.type(n.arg(0).value()), &target = r.type(n.arg(1).value());
  if (!same_floating(input, target) || !known_same(input.sizes, target.sizes)) return false;
  const ValueId product = r.mul(r.unary("aten.neg.default", n.arg(1).value()), n.arg(0).value());
  const ValueId losses = r.unary("aten.log1p.default", r.unary("aten.exp.default", product));
  return finish(r, losses, Args(r.graph(), n).integer(2, MeanLoss), out);
}

// Of losses like `x`.
bool weighs(const TensorType* weight, const TensorType& x) {
  const auto common = weight ? broadcast(x.sizes, weight->sizes) : std::nullopt;
  return common && weight->dtype == x.dtype && known_same(*common, x.sizes);
}

// self, target, weight, pos_weight, reduction
bool decompose_bce_with_logits(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType input = *a.tensor(0);
  if (!compares_floats(r, n) || !known_same(input.sizes, a.tensor(1)->sizes)) return false;
  for (size_t i : {2, 3})
    if (!a.missing(i) && !weighs(a.tensor(i), input)) return false;
  const ValueId x = n.arg(0).value(), target = n.arg(1).value();
  ValueId likelihood = r.call_multi("aten.log_sigmoid_forward.default", {x})[0];
  if (!a.missing(3)) {
    const ValueId excess = r.call("aten.sub.Scalar", {n.arg(3), 1, 1});
    likelihood = r.mul(likelihood, r.add(r.mul(excess, target), 1.0));
  }
  const ValueId rest = r.call("aten.rsub.Scalar", {target, 1, 1});
  ValueId losses = r.sub(r.mul(rest, x), likelihood);
  if (!a.missing(2)) losses = r.mul(losses, n.arg(2).value());
  return finish(r, losses, a.integer(4, MeanLoss), out);
}

// ---- binary_cross_entropy: self, target, weight, reduction ----

bool shape_binary_cross_entropy(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *target = a.tensor(1);
  if (!x || !target || !same_floating(*x, *target) || !known_same(x->sizes, target->sizes))
    return false;
  if (!a.missing(2)) {
    const TensorType* weight = a.tensor(2);
    const auto common = weight ? broadcast(x->sizes, weight->sizes) : std::nullopt;
    if (!common || !ir::is_floating(weight->dtype) || !known_same(*common, x->sizes)) return false;
  }
  const auto reduction = reduction_of(a, 3);
  if (reduction && *reduction == EachLoss) return give(out, empty_like(*x));
  return reduction && give(out, fresh(*x, {}));
}

// Raises where an input or a target lies outside of 0 to 1: that is no place in a range of one. Of
// fp16 and bf16 every step is rounded.
Scalar binary_cross_entropy(Element& e) {
  const DType d = e.compute();
  const auto rounded = [&](Scalar v) { return e.cast(e.cast(v, e.result()), d); };
  const Scalar x = e.operand(0, d), y = e.operand(1, d), one = e.c(1, d), least = e.c(-100, d);
  const auto is_within = [&](Scalar v) {
    return e.op(LoopOp::And, e.op(LoopOp::Ge, v, e.c(0, d)), e.op(LoopOp::Le, v, one));
  };
  const Scalar inside = e.op(LoopOp::And, is_within(x), is_within(y));
  e.b.indirect(e.where(inside, e.b.constant_int(0, DType::I64), e.b.constant_int(1, DType::I64)), 1,
               false);
  // NaN comes no further.
  const auto log = [&](LoopOp of, Scalar v) {
    return e.op(LoopOp::Max, rounded(e.op(of, v)), least);
  };
  const Scalar unlikely = log(LoopOp::Log1p, e.op(LoopOp::Neg, x)), likely = log(LoopOp::Log, x);
  const Scalar loss =
      rounded(e.sub(rounded(e.mul(rounded(e.sub(y, one)), unlikely)), rounded(e.mul(y, likely))));
  return e.finish(e.args.missing(2) ? loss : e.mul(loss, e.operand(2, d)));
}

// A loop whose result nobody reads is removed, with its check.
bool is_checked_by_loop(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  Types types;
  return is_computable(a.tensor(0)->dtype) && shape_binary_cross_entropy(a, types) &&
         (a.missing(2) || a.tensor(2)->dtype == a.tensor(0)->dtype) &&
         g.use_counts()[n.outputs[0].index] > 0;
}

bool applies_binary_cross_entropy(const ir::Graph& g, const ir::Node& n) {
  return reduction_of(Args(g, n), 3) == EachLoss && is_checked_by_loop(g, n);
}

bool reduce_binary_cross_entropy(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const auto reduction = reduction_of(Args(r.graph(), n), 3);
  if (!reduction || reduction == EachLoss || !is_checked_by_loop(r.graph(), n)) return false;
  const ValueId losses =
      r.call(n.target, {n.arg(0), n.arg(1), n.arg(2), static_cast<int64_t>(EachLoss)});
  return finish(r, losses, reduction, out);
}

// ---- with a loop of their own: smooth_l1, huber ----

// Two tensors of one dtype, and the reduction at argument `ReductionAt`.
template <size_t ReductionAt>
bool shape_of_losses(const Args& a, Types& out) {
  auto reduction = a.integer(ReductionAt, MeanLoss);
  if (!reduction || *reduction < EachLoss || *reduction > SumLoss) return false;
  Types each;
  if (!shape_elementwise<Promoted, 2, Needs::SameFloating>(a, each)) return false;
  const TensorType& t = each[0].tensor;
  return give(out, *reduction == EachLoss ? t : fresh(t, {}));
}

// torch refuses a negative scale.
bool shape_smooth_l1(const Args& a, Types& out) {
  auto beta = a.number(3, 1.0);
  return beta && *beta >= 0 && shape_of_losses<2>(a, out);
}

// It refuses 0 too, and makes its result by empty_like.
bool shape_huber(const Args& a, Types& out) {
  auto delta = a.number(3, 1.0);
  if (!delta || !(*delta > 0) || !shape_of_losses<2>(a, out)) return false;
  return a.integer(2, MeanLoss) != EachLoss || lay_out_like(a.tensor(0), out[0].tensor);
}

// In eager the losses are computed in place of 1 - target.
bool shape_bce(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *target = a.tensor(1);
  if (!x || !target || !known_same(x->sizes, target->sizes)) return false;
  for (size_t i : {2, 3})
    if (!a.missing(i) && !weighs(a.tensor(i), *x)) return false;
  if (!shape_of_losses<4>(a, out)) return false;
  return a.integer(4, MeanLoss) != EachLoss || lay_out_like(a.tensor(1), out[0].tensor);
}

// In eager these are computed in place of -self.
bool shape_soft_margin(const Args& a, Types& out) {
  constexpr size_t kSelf[] = {0};
  if (!shape_of_losses<2>(a, out) || out[0].tensor.dtype != a.tensor(0)->dtype) return false;
  if (a.integer(2, MeanLoss) != EachLoss) return true;
  auto t = elementwise_type(a, kSelf, Promoted);
  if (!t || !known_same(t->sizes, out[0].tensor.sizes)) return false;
  out[0].tensor = std::move(*t);
  return true;
}

// A row of classes, or one for each target.
bool is_margin_loss(const TensorType* x, const TensorType* target, const Sizes& targets) {
  return x && target && x->dim() <= 2 && ir::is_floating(x->dtype) && target->dtype == DType::I64 &&
         (target->dim() == 0 ? x->dim() < 2 || known_same(targets, {Expr(1)})
                             : known_same(target->sizes, targets));
}

// self, target, p, margin, weight, reduction
bool shape_multi_margin(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *target = a.tensor(1), *weight = a.tensor(4);
  const auto reduction = a.integer(5, MeanLoss);
  if (!x || !reduction || (!weight && !a.missing(4))) return false;
  const Sizes classes{x->dim() == 0 ? Expr(1) : x->sizes.back()};
  if (weight && (weight->dtype != x->dtype || !known_same(weight->sizes, classes))) return false;
  if (!is_margin_loss(x, target, {x->dim() == 2 ? x->sizes[0] : Expr(1)})) return false;
  return give(out, fresh(*x, reduction == EachLoss ? target->sizes : Sizes()));
}

// self, target, reduction
bool shape_multilabel_margin(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *target = a.tensor(1);
  const auto reduction = a.integer(2);
  if (!x || !reduction || !is_margin_loss(x, target, x->sizes)) return false;
  const bool each = reduction == EachLoss && target->dim() == 2;
  return give(out, fresh(*x, each ? Sizes{x->sizes[0]} : Sizes())) &&
         give(out, fresh(*x, target->sizes));
}

bool applies_to_elements(const ir::Graph& g, const ir::Node& n) {
  return Args(g, n).integer(2, MeanLoss) == EachLoss && applies_floating(g, n);
}

bool reduce_losses(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto reduction = Args(r.graph(), n).integer(2, MeanLoss);
  if (!compares_floats(r, n) || reduction == EachLoss) return false;
  auto args = n.args;
  args.resize(std::max<size_t>(args.size(), 3));
  args[2] = static_cast<int64_t>(EachLoss);
  return finish(r, r.call(n.target, std::move(args)), reduction, out);
}

Scalar distance(Element& e) {
  const DType d = e.compute();
  return e.op(LoopOp::Abs, e.sub(e.operand(0, d), e.operand(1, d)));
}

Scalar smooth_l1(Element& e) {
  const DType d = e.compute();
  const Scalar z = distance(e);
  if (e.args.number(3, 1.0) == 0.0) return e.finish(z);
  const Scalar beta = e.number(3, d, 1.0), half = e.c(0.5, d);
  const Scalar square = e.div(e.mul(e.mul(half, z), z), beta);
  const Scalar line = e.sub(z, e.mul(beta, half));
  return e.finish(e.where(e.op(LoopOp::Ge, z, beta), line, square));
}

Scalar huber(Element& e) {
  const DType d = e.compute();
  const Scalar z = distance(e), delta = e.number(3, d, 1.0), half = e.c(0.5, d);
  const Scalar square = e.mul(e.mul(half, z), z);
  const Scalar line = e.mul(delta, e.sub(z, e.mul(half, delta)));
  return e.finish(e.where(e.op(LoopOp::Ge, z, delta), line, square));
}

// ---- nll_loss: self, target, weight, reduction, ignore_index ----

bool is_class_index(const TensorType* t) {
  return t && (t->dtype == DType::I64 || t->dtype == DType::U8);
}

// Classes are dimension 1, or 0 where there is no batch; the target has the other dimensions.
bool shape_nll(const Args& a, Types& out) {
  const TensorType *x = a.tensor(0), *target = a.tensor(1), *weight = a.tensor(2);
  if (!x || x->dim() == 0 || !ir::is_floating(x->dtype) || !is_class_index(target)) return false;
  if (!a.integer(3) || !a.expr(4) || (!weight && !a.missing(2))) return false;
  const size_t classes = x->dim() == 1 ? 0 : 1;
  Sizes others = x->sizes;
  others.erase(others.begin() + classes);
  if (!known_same(target->sizes, others)) return false;
  const Sizes all_classes{x->sizes[classes]};
  if (weight && (weight->dtype != x->dtype || !known_same(weight->sizes, all_classes)))
    return false;
  if (a.integer(3) != EachLoss) others.clear();
  return give(out, fresh(*x, others)) && give(out, fresh(*x, {}));
}

// The second result is the weight of a single target; of a batch, it is 0 without a reduction.
Scalar nll(Element& e) {
  const DType d = e.result();
  const TensorType& x = *e.args.tensor(0);
  if (e.out == 1 && x.dim() > 1) return e.c(0, d);
  const size_t classes = x.dim() == 1 ? 0 : 1;
  const Scalar target = e.cast(e.load(1), DType::I64);
  const Scalar ignored = e.op(LoopOp::Eq, target, e.b.index(*e.args.expr(4)));
  const Scalar known = e.where(ignored, e.b.constant_int(0, DType::I64), target);
  const Expr at = e.b.indirect(known, x.sizes[classes], false);
  const Scalar weight = e.args.missing(2) ? e.c(1, d) : e.load(2, {at});
  if (e.out == 1) return e.where(ignored, e.c(0, d), weight);
  Index index = e.index;
  index.insert(index.begin() + classes, at);
  const Scalar loss = e.op(LoopOp::Neg, e.load(0, index));
  return e.where(ignored, e.c(0, d), e.mul(loss, weight));
}

// The weights of the targets that are not ignored, summed.
ValueId total_weight(Rewriter& r, const ir::Node& n, const TensorType& result) {
  const ir::Arg target = n.arg(1), ignore = n.arg(4);
  const ValueId counted = r.call("aten.ne.Scalar", {target, ignore});
  if (n.arg(2).is_none()) return r.call("aten.sum.default", {r.cast(counted, result.dtype)});
  const TensorType t = r.type(target.value());
  const auto zero = [&](DType d) { return r.full({}, 0.0, d, t.device); };
  const ValueId known = r.call("aten.where.self", {counted, target, zero(t.dtype)});
  const ValueId flat = r.view(r.cast(known, DType::I64), {t.numel()});
  const ValueId weights = r.call("aten.index_select.default", {n.arg(2), 0, flat});
  const ValueId used =
      r.call("aten.where.self", {r.view(counted, {t.numel()}), weights, zero(result.dtype)});
  return r.call("aten.sum.default", {used});
}

// ATen sums fp16 and bf16 in their own precision, in an order of its own.
bool reduce_nll(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  const TensorType result = r.type(n.outputs[0]), target = *a.tensor(1);
  auto reduction = a.integer(3);
  if (!ir::is_floating(result.dtype) || ir::is_reduced_float(result.dtype)) return false;
  if (!reduction || *reduction == EachLoss || !is_class_index(&target)) return false;
  if (!target.is_row_major() || target.numel().is_const(0)) return false;
  const auto losses = r.call_multi(
      n.target, {n.arg(0), n.arg(1), n.arg(2), static_cast<int64_t>(EachLoss), n.arg(4)});
  const ValueId sum = r.call("aten.sum.default", {losses[0]});
  const ValueId weight = total_weight(r, n, result);
  out.push_back(*reduction == MeanLoss ? r.div(sum, weight) : sum);
  return give(out, weight);
}

bool applies_nll(const ir::Graph& g, const ir::Node& n) {
  return Args(g, n).integer(3) == EachLoss && applies_computable(g, n) &&
         !g.tensor_type(n.arg(0).value()).numel().is_const(0);
}

constexpr OpInfo kLossOps[] = {
#include "ops/losses.def"
};

}  // namespace

std::span<const OpInfo> loss_ops() { return kLossOps; }

}  // namespace oxy::ops
