// Operands of loop rules.
#include "ops/element.h"

#include "ops/rounding.h"
#include "support/check.h"

namespace oxy::ops {
namespace {

Scalar integer_constant(LoopBuilder& b, int64_t v, DType d) {
  if (ir::is_floating(d)) return b.constant(round_to(static_cast<double>(v), d), d);
  return b.constant_int(wrap_to(v, d), d);
}

Scalar constant_of(LoopBuilder& b, double v, DType d) {
  if (ir::is_floating(d)) return b.constant(round_to(v, d), d);
  if (d == DType::B8) return b.constant_int(v != 0, d);
  return b.constant_int(wrap_to(static_cast<int64_t>(v), d), d);
}

// The shape rules refuse what eager refuses, so a loop must not take it either.
bool shape_rule_accepts(const ir::Graph& g, const ir::Node& n) {
  const OpInfo* info = find(n);
  if (!info || !info->shape) return false;
  Types types;
  return info->shape(Args(g, n), types);
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

Scalar Element::c(double v, DType d) { return constant_of(b, v, d); }

Scalar Element::load(size_t i) {
  const ir::TensorType* t = args.tensor(i);
  OXY_CHECK(t, node.target, " has no tensor as argument ", i);
  return b.load(args[i].value(), broadcast_index(t->sizes, index));
}

Scalar Element::operand(size_t i, DType d) {
  if (args.tensor(i)) return b.cast(load(i), d);
  const ir::Arg& a = args[i];
  if (const auto* v = a.get_if<double>()) return constant_of(b, *v, d);
  if (const auto* v = a.get_if<bool>()) return integer_constant(b, *v, d);
  auto e = args.expr(i);
  OXY_CHECK(e, node.target, " has neither a tensor nor a number as argument ", i);
  return e->is_const() ? integer_constant(b, e->value(), d) : b.cast(b.index(*e), d);
}

Scalar Element::operand(size_t i, DType d, DType through) { return b.cast(operand(i, through), d); }

Scalar Element::number(size_t i, DType d, double missing) {
  return args.missing(i) ? c(missing, d) : operand(i, d);
}

bool has_computable_types(const ir::Graph& g, const ir::Node& n) {
  bool ok = true;
  auto check_value = [&](ir::ValueId v) {
    const ir::Type& t = g.value(v).type;
    ok = ok && (t.is_tensor() ? is_computable(t.tensor.dtype) : t.kind == ir::Type::Kind::Int);
  };
  for (const auto& a : n.args) {
    ir::for_each_value(a, check_value);
    ok = ok && !a.get_if<std::complex<double>>();
  }
  for (ir::ValueId v : n.outputs) check_value(v);
  return ok;
}

bool applies_computable(const ir::Graph& g, const ir::Node& n) {
  return has_computable_types(g, n) && shape_rule_accepts(g, n);
}

bool applies_floating(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

bool applies_not_bool(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && g.tensor_type(n.outputs[0]).dtype != DType::B8;
}

}  // namespace oxy::ops
