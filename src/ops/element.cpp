// Operands of loop rules.
#include "ops/element.h"

#include <cmath>

#include "support/check.h"

namespace oxy::ops {
namespace {

Scalar integer_constant(LoopBuilder& b, int64_t v, DType d) {
  if (ir::is_floating(d)) return b.constant(round_to(static_cast<double>(v), d), d);
  return b.constant_int(wrap_to(v, d), d);
}

}  // namespace

Index broadcast_index(const std::vector<Expr>& sizes, const Index& index) {
  Index i(sizes.size());
  const size_t lead = index.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    i[d] = sym::known_equal(sizes[d], 1).value_or(false) ? Expr(0) : index[lead + d];
  }
  return i;
}

Scalar Element::c(double v, DType d) {
  if (ir::is_floating(d)) return b.constant(round_to(v, d), d);
  return b.constant_int(d == DType::B8 ? v != 0 : wrap_to(static_cast<int64_t>(v), d), d);
}

Scalar Element::within(Expr x, Expr begin, Expr end) {
  const Scalar i = b.index(x);
  const Scalar low = op(LoopOp::Ge, i, b.index(begin));
  const Scalar high = op(LoopOp::Lt, i, b.index(end));
  return op(LoopOp::And, low, high);
}

Scalar Element::load(size_t i) {
  const ir::TensorType* t = args.tensor(i);
  OXY_CHECK(t, node.target, " has no tensor as argument ", i);
  return load(i, broadcast_index(t->sizes, index));
}

Scalar Element::operand(size_t i, DType d) {
  if (args.tensor(i)) return b.cast(load(i), d);
  const ir::Arg& a = args[i];
  if (const auto* v = a.get_if<double>()) return c(*v, d);
  if (const auto* v = a.get_if<bool>()) return integer_constant(b, *v, d);
  auto e = args.expr(i);
  OXY_CHECK(e, node.target, " has neither a tensor nor a number as argument ", i);
  return e->is_const() ? integer_constant(b, number_of(e->value()), d) : b.cast(b.index(*e), d);
}

Scalar Element::operand(size_t i, DType d, DType through) { return b.cast(operand(i, through), d); }

Scalar Element::number(size_t i, DType d, double missing) {
  return args.missing(i) ? c(missing, d) : operand(i, d);
}

Scalar polynomial(Element& e, Scalar x, std::span<const double> coefficients) {
  Scalar p = e.c(coefficients[0], x.dtype);
  for (double c : coefficients.subspan(1)) p = e.fma(p, x, e.c(c, x.dtype));
  return p;
}

Scalar quotient(Element& e, Scalar x, std::span<const double> top, std::span<const double> bottom) {
  return e.div(polynomial(e, x, top), polynomial(e, x, bottom));
}

Scalar chebyshev(Element& e, Scalar y, std::span<const double> c) {
  const DType d = y.dtype;
  size_t terms = c.size();
  const double least = (d == DType::F32 ? 1e-10 : 0.0) * std::abs(c[0]);
  while (std::abs(c[terms - 1]) < least) --terms;
  OXY_CHECK(terms > 1, "a series of one term");
  Scalar last = e.c(0, d), sum = e.c(c[terms - 1], d);
  for (size_t k = terms - 2; k > 0; --k) {
    const Scalar next = e.fma(y, sum, e.sub(e.c(c[k], d), last));
    last = sum;
    sum = next;
  }
  return e.fma(e.mul(e.c(0.5, d), y), sum, e.sub(e.c(0.5 * c[0], d), last));
}

static bool has_types(const ir::Graph& g, const ir::Node& n, bool (*is_one)(DType)) {
  bool ok = true;
  auto check_value = [&](ir::ValueId v) {
    const ir::Type& t = g.value(v).type;
    ok = ok && (t.is_tensor() ? is_one(t.tensor.dtype) : t.kind == ir::Type::Kind::Int);
  };
  for (const auto& a : n.args) {
    ir::for_each_value(a, check_value);
    ok = ok && !a.get_if<std::complex<double>>();
  }
  for (ir::ValueId v : n.outputs) check_value(v);
  return ok;
}

bool has_computable_types(const ir::Graph& g, const ir::Node& n) {
  return has_types(g, n, is_computable);
}

// The shape rules refuse what eager refuses, so a loop must not take it either.
static bool has_shape(const ir::Graph& g, const ir::Node& n) {
  const OpInfo* info = find(n);
  Types types;
  return info && info->shape && info->shape(Args(g, n), types);
}

bool applies_computable(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) && has_shape(g, n);
}

bool applies_converted(const ir::Graph& g, const ir::Node& n) {
  return has_types(g, n, is_converted) && has_shape(g, n);
}

bool applies_floating(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

bool applies_not_bool(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.tensor_type(n.outputs[0]).dtype != DType::B8;
}

}  // namespace oxy::ops
