// Ops that write at loaded places: scatter, index_add, index_put and their kind. Where several
// values go to one place, they do so in ATen's order.
#include <algorithm>

#include "ops/families.h"
#include "ops/indexing.h"
#include "ops/rewriter.h"

namespace oxy::ops {
namespace {

using ir::TensorType;
using ir::ValueId;

using enum ReduceKind;

Scalar old(Element& e) { return e.load(0, e.index); }

Scalar nothing(Element& e) { return e.c(0, e.result()); }

// Argument i at a point of the space; a number is the same everywhere, also one that stands in a
// tensor.
bool is_number(const Args& a, size_t i) {
  const TensorType* t = a.tensor(i);
  return t ? t->sizes.empty() : a.number(i) || a.expr(i);
}

Scalar value_at(Element& e, size_t i) {
  return is_number(e.args, i) ? e.operand(i, e.result()) : e.b.cast(e.load(i, e.index), e.result());
}

bool not_larger(Expr a, Expr b) { return sym::known_less(b, a) == false; }

// How values are folded: always so, or as argument 4 says. `mean` is made of others.
template <ReduceKind K>
std::optional<ReduceKind> always(const Args&) {
  return K;
}

std::optional<ReduceKind> named(const Args& a) {
  const auto name = a.string(4, "");
  if (name == "add" || name == "sum") return Sum;
  if (name == "multiply" || name == "prod") return Prod;
  if (name == "amax") return Max;
  if (name == "amin") return Min;
  return std::nullopt;
}

template <auto Space, auto Kind>
bool over(const ir::Graph& g, const ir::Node& n, ScatterSpec& spec) {
  const Args a(g, n);
  const std::optional<ReduceKind> kind = Kind(a);
  if (kind) spec = {Space(a), *kind};
  return kind.has_value();
}

// ---- self, dim, index of any shape, values or a number ----

template <bool OfNumber>
bool shape_scatter(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *index = a.tensor(2), *source = a.tensor(3);
  if (!t || !index || index->dtype != DType::I64 || index->dim() != t->dim()) return false;
  if (OfNumber ? !is_number(a, 3)
               : !source || source->dtype != t->dtype || source->dim() != t->dim())
    return false;
  const auto dim = indexed_dim(a);
  if (!dim) return false;
  for (size_t d = 0; d < t->sizes.size(); ++d) {
    if (d != *dim && !not_larger(index->sizes[d], t->sizes[d])) return false;
    if (!OfNumber && !not_larger(index->sizes[d], source->sizes[d])) return false;
  }
  return give(out, fresh(*t, t->sizes));
}

Sizes index_space(const Args& a) { return a.tensor(2)->sizes; }

ScatterUpdate scatter_at(Element& e) {
  const Scalar v = value_at(e, 3);
  return {place_along(e, false, false), v};
}

// ATen folds fp16 and bf16 in f32 and rounds at the end.
bool applies_wide(const ir::Graph& g, const ir::Node& n) {
  return applies_computable(g, n) && !ir::is_reduced_float(g.tensor_type(n.outputs[0]).dtype);
}

// An extreme needs no rounding; without the old values it is a decomposition.
bool applies_by_name(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  const auto kind = named(a);
  if (!kind || !a.boolean(5, true).value_or(false) || !applies_computable(g, n)) return false;
  const DType d = g.tensor_type(n.outputs[0]).dtype;
  const bool extreme = *kind == Max || *kind == Min;
  return d != DType::B8 &&
         (!ir::is_reduced_float(d) || extreme || n.target == "aten.index_reduce.default");
}

// ---- self, dim, a list of rows, values ----

bool shape_rows(const Args& a, bool values) {
  const TensorType *t = a.tensor(0), *index = a.tensor(2), *source = a.tensor(3);
  const auto dim = indexed_dim(a);
  if (!dim || !is_index(index) || index->dim() != 1) return false;
  if (!values) return true;
  if (!source || source->dtype != t->dtype || source->dim() != t->dim()) return false;
  Sizes wanted = t->sizes;
  wanted[*dim] = index->sizes[0];
  return known_same(source->sizes, wanted);
}

bool shape_index_add(const Args& a, Types& out) {
  return shape_rows(a, true) && give(out, fresh(*a.tensor(0), a.tensor(0)->sizes));
}

bool shape_index_copy(const Args& a, Types& out) {
  const TensorType* index = a.tensor(2);
  return index && index->dtype == DType::I64 && shape_index_add(a, out);
}

bool shape_index_fill(const Args& a, Types& out) {
  if (!shape_rows(a, false) || a.tensor(2)->dtype != DType::I64) return false;
  return is_number(a, 3) && give(out, empty_like(*a.tensor(0)));
}

Sizes row_space(const Args& a) {
  const TensorType& t = *a.tensor(0);
  Sizes sizes = t.sizes;
  sizes[*indexed_dim(a)] = a.tensor(2)->sizes[0];
  return sizes;
}

bool scales(const Args& a) { return a.number_kind(4) && a.number(4, 1.0) != 1.0; }

ScatterUpdate index_add_at(Element& e) {
  Scalar v = value_at(e, 3);
  if (scales(e.args)) v = e.mul(v, e.operand(4, e.result()));
  return {place_along(e, true, false), v};
}

// A scaled f16 or bf16 would be rounded twice. Of nothing eager looks at no place.
bool applies_index_add(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  const DType d = g.tensor_type(n.outputs[0]).dtype;
  const bool plain = !ir::is_reduced_float(d) && d != DType::B8;
  return applies_computable(g, n) && !g.tensor_type(n.outputs[0]).numel().is_const(0) &&
         a.number(4, 1.0) && (plain || !scales(a));
}

ScatterUpdate index_fill_at(Element& e) {
  return {place_along(e, true, true), e.operand(3, e.result())};
}

// ---- index_put ----

// The only index, a mask.
struct Mask {
  ValueId value;
  Sizes sizes;  // seen from the operand's end
};

std::optional<Mask> only_mask(const Args& a) {
  const TensorType* t = a.tensor(0);
  const auto* items = a[1].items();
  if (!t || !items) return std::nullopt;
  const auto is_given = [](const ir::Arg& x) { return !x.is_none(); };
  const auto item = std::ranges::find_if(*items, is_given);
  if (item == items->end() || std::any_of(item + 1, items->end(), is_given)) return std::nullopt;
  const TensorType* mask = a.tensor(*item);
  if (!mask || mask->dtype != DType::B8) return std::nullopt;
  const auto at = static_cast<size_t>(item - items->begin()), end = at + mask->sizes.size();
  if (mask->dim() == 0 || end > t->sizes.size() ||
      !known_same(mask->sizes, {t->sizes.begin() + at, t->sizes.begin() + end}))
    return std::nullopt;
  Mask out{item->value(), mask->sizes};
  out.sizes.resize(mask->sizes.size() + t->sizes.size() - end, Expr(1));
  return out;
}

bool puts_one_value(const Args& a) {
  const TensorType* values = a.tensor(2);
  return a.boolean(3, false) == false && values && values->numel().is_const(1) &&
         only_mask(a).has_value();
}

// Of a tensor without elements no place is good, also for no value: eager says so.
bool has_places(const ir::Graph& g, const ir::Node& n) {
  const Args a(g, n);
  return applies_computable(g, n) && !a.tensor(0)->numel().is_const(0) &&
         (puts_one_value(a) || indexing(a));
}

bool shape_index_put(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *values = a.tensor(2);
  if (!t || !values || values->dtype != t->dtype || !a.boolean(3, false)) return false;
  if (only_mask(a)) return give(out, empty_like(*t));
  auto x = indexing(a);
  if (!x) return false;
  const Sizes sizes = indexed_sizes(*t, *x);
  auto common = broadcast(values->sizes, sizes);
  if (!common || !known_same(*common, sizes)) return false;
  return give(out, empty_like(*t));
}

Sizes indexed_space(const Args& a) { return indexed_sizes(*a.tensor(0), *indexing(a)); }

std::optional<ReduceKind> put_kind(const Args& a) { return *a.boolean(3, false) ? Sum : Last; }

ScatterUpdate index_put_at(Element& e) {
  const Scalar v = e.load(2);
  return {indexed_place(e.b, *e.args.tensor(0), *indexing(e.args), e.index), v};
}

// A single value where a mask holds.
bool decompose_masked_put(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const Args a(r.graph(), n);
  if (!puts_one_value(a) || !is_computable(a.tensor(0)->dtype)) return false;
  // Eager converts the value, and refuses one that does not fit integers.
  const DType given = a.tensor(2)->dtype, dtype = a.tensor(0)->dtype;
  if (given != dtype && !(ir::is_floating(given) && ir::is_floating(dtype))) return false;
  const Mask mask = *only_mask(a);
  const ValueId one = r.cast(r.view(n.arg(2).value(), {}), dtype);
  const ValueId holds = r.view(mask.value, mask.sizes);
  return give(out, r.call("aten.where.self", {holds, one, n.arg(0)}));
}

// ---- embedding_dense_backward ----

bool shape_embedding_gradient(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *indices = a.tensor(1);
  auto rows = a.expr(2), padding = a.expr(3);
  if (!t || !is_index(indices) || !rows || !padding || !padding->is_const()) return false;
  if (a.boolean(4) != false || t->dim() != indices->dim() + 1) return false;
  if (!known_same({t->sizes.begin(), t->sizes.end() - 1}, indices->sizes)) return false;
  return give(out, fresh(*t, {*rows, t->sizes.back()}));
}

Sizes gradient_space(const Args& a) { return a.tensor(0)->sizes; }

ScatterUpdate embedding_gradient_at(Element& e) {
  Scalar v = e.load(0, e.index);
  const Index at(e.index.begin(), e.index.end() - 1);
  Scalar row = e.b.cast(e.load(1, at), DType::I64);
  const int64_t padding = *e.args.integer(3);
  if (padding >= 0) {
    const Scalar none = e.c(0, DType::I64);
    const Scalar padded = e.op(LoopOp::Eq, row, e.b.constant_int(padding, DType::I64));
    v = e.where(padded, e.c(0, v.dtype), v);
    row = e.where(padded, none, row);
  }
  return {{e.b.indirect(row, *e.args.expr(2), false), e.index.back()}, v};
}

// ---- written with other ops ----

// An index that is not known here to fit is left to the extern call.
bool fits(Rewriter& r, const ir::Node& n, ShapeRule shape) {
  Types types;
  return shape(Args(r.graph(), n), types) && has_computable_types(r.graph(), n) &&
         r.type(n.arg(0).value()).dtype != DType::B8;
}

bool decompose_half_scatter_add(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const DType d = r.type(n.arg(0).value()).dtype;
  if (!ir::is_reduced_float(d) || !fits(r, n, shape_scatter<false>)) return false;
  const ValueId self = r.widen(n.arg(0).value()), source = r.widen(n.arg(3).value());
  return give(out, r.cast(r.call(n.target, {self, n.arg(1), n.arg(2), source}), d));
}

// What a sum or product without the old value begins with.
ir::Arg identity(std::string_view reduce, DType d) {
  const int64_t v = reduce == "prod";
  return ir::is_floating(d) ? ir::Arg(static_cast<double>(v)) : ir::Arg(Expr(v));
}

// Sum divided by how many there are; where there are none, by 1.
ValueId mean_of(Rewriter& r, ValueId sum, ValueId count, DType d) {
  count = r.call("aten.clamp_min.default", {count, 1});
  if (ir::is_floating(d)) return r.div(sum, count);
  return r.call("aten.div.Tensor_mode", {sum, count, "floor"});
}

struct NamedFold {
  std::string_view name;
  bool include_self = true;
  bool is_mean() const { return name == "mean"; }
  bool is_extreme() const { return name == "amax" || name == "amin"; }
};

std::optional<NamedFold> fold_arguments(Rewriter& r, const ir::Node& n) {
  const Args a(r.graph(), n);
  auto name = a.string(4, "");
  auto include = a.boolean(5, true);
  if (!name || !include || (*name != "mean" && !named(a))) return std::nullopt;
  return NamedFold{*name, *include};
}

bool decompose_scatter_reduce(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto fold = fold_arguments(r, n);
  if (!fold || !fits(r, n, shape_scatter<false>)) return false;
  const DType d = r.type(n.arg(0).value()).dtype;
  const bool mean = fold->is_mean(), rounds = fold->name == "sum" || fold->name == "prod";
  if (fold->include_self && !mean && !(rounds && ir::is_reduced_float(d))) return false;
  ValueId self = n.arg(0).value(), source = n.arg(3).value();
  if (!fold->include_self && fold->is_extreme()) {
    self = r.call("aten.scatter.src", {self, n.arg(1), n.arg(2), source});
  } else if (!fold->include_self) {
    self = r.call("aten.scatter.value", {self, n.arg(1), n.arg(2), identity(fold->name, d)});
  }
  if (!mean) {
    if (rounds) self = r.widen(self), source = r.widen(source);
    return give(out,
                r.cast(r.call(n.target, {self, n.arg(1), n.arg(2), source, n.arg(4), true}), d));
  }
  const ValueId sum = r.call("aten.scatter_add.default", {self, n.arg(1), n.arg(2), source});
  const char* start = fold->include_self ? "aten.ones_like.default" : "aten.zeros_like.default";
  const ValueId ones = r.unary("aten.ones_like.default", source);
  const ValueId count =
      r.call("aten.scatter_add.default", {r.unary(start, self), n.arg(1), n.arg(2), ones});
  return give(out, mean_of(r, sum, count, d));
}

bool decompose_index_reduce(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  auto fold = fold_arguments(r, n);
  if (!fold || fold->name == "sum" || !fits(r, n, shape_index_add)) return false;
  const DType d = r.type(n.arg(0).value()).dtype;
  const bool mean = fold->is_mean();
  if (fold->include_self && !mean) return false;
  ValueId self = n.arg(0).value();
  const ValueId rows = r.cast(n.arg(2).value(), DType::I64);
  if (!fold->include_self && fold->is_extreme()) {
    self = r.call("aten.index_copy.default", {self, n.arg(1), rows, n.arg(3)});
  } else if (!fold->include_self) {
    const ir::Arg start = identity(fold->name, d);
    self = r.call("aten.index_fill.int_Scalar", {self, n.arg(1), rows, start});
  }
  if (!mean) {
    return give(out, r.call(n.target, {self, n.arg(1), n.arg(2), n.arg(3), n.arg(4), true}));
  }
  const auto add = [&](ValueId to, ir::Arg v) {
    return r.call("aten.index_add.default", {to, n.arg(1), n.arg(2), std::move(v)});
  };
  const char* start = fold->include_self ? "aten.ones_like.default" : "aten.zeros_like.default";
  const ValueId ones = r.unary("aten.ones_like.default", n.arg(3).value());
  const ValueId count = add(r.unary(start, self), ones);
  return give(out, mean_of(r, add(self, n.arg(3)), count, d));
}

ValueId in_a_line(Rewriter& r, ValueId v, Expr count) { return r.view(r.row_major(v), {count}); }

bool shape_put(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *index = a.tensor(1), *source = a.tensor(2);
  if (!t || !index || !source || index->dtype != DType::I64 || t->dtype != source->dtype)
    return false;
  return give(out, empty_like(*t));
}

// Of a row-major tensor: as elements of a line.
bool decompose_put(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const ValueId self = n.arg(0).value(), index = n.arg(1).value(), source = n.arg(2).value();
  const TensorType t = r.type(self);
  const auto adds = Args(r.graph(), n).boolean(3, false);
  const Expr count = r.type(index).numel();
  const bool alike = sym::known_equal(count, r.type(source).numel()).value_or(false);
  if (!adds || !alike || !t.is_row_major() || t.numel().is_const(0) || !is_computable(t.dtype))
    return false;
  const ValueId put = r.call("aten.index_put.default",
                             {in_a_line(r, self, t.numel()), ir::List{{in_a_line(r, index, count)}},
                              in_a_line(r, source, count), *adds});
  return give(out, r.view(put, t.sizes));
}

// Where the mask holds, the source's elements one after the other.
// ATen expands self and mask to each other, and copies row by row.
bool shape_masked_scatter(const Args& a, Types& out) {
  const TensorType *t = a.tensor(0), *mask = a.tensor(1), *source = a.tensor(2);
  if (!t || !mask || !source || mask->dtype != DType::B8 || t->dtype != source->dtype) return false;
  auto sizes = broadcast(t->sizes, mask->sizes);
  return sizes && give(out, fresh(*t, std::move(*sizes)));
}

bool decompose_masked_scatter(Rewriter& r, const ir::Node& n, std::vector<ValueId>& out) {
  const TensorType self = r.type(n.arg(0).value()), mask = r.type(n.arg(1).value()),
                   source = r.type(n.arg(2).value());
  if (mask.dtype != DType::B8 || source.dtype != self.dtype || !is_computable(self.dtype))
    return false;
  auto sizes = broadcast(self.sizes, mask.sizes);
  if (!sizes || sizes->empty() || !source.numel().is_const() || source.numel().is_const(0))
    return false;
  const Expr all = fresh(self, *sizes).numel();
  const ValueId holds = r.call("aten.expand.default", {n.arg(1), list_of(*sizes)});
  const ValueId flat = in_a_line(r, holds, all);
  const ValueId count = r.call("aten.sub.Scalar", {r.call("aten.cumsum.default", {flat, 0}), 1, 1});
  const ValueId zero = r.unary("aten.zeros_like.default", count);
  const ValueId place = r.call("aten.where.self", {flat, count, zero});
  const ValueId line = in_a_line(r, n.arg(2).value(), source.numel());
  const ValueId taken = r.call("aten.index_select.default", {line, 0, place});
  const ValueId shaped = r.view(taken, *sizes);
  return give(out, r.call("aten.where.self", {holds, shaped, n.arg(0)}));
}

constexpr OpInfo kScatterOps[] = {
#include "ops/scatter.def"
};

}  // namespace

std::span<const OpInfo> scatter_ops() { return kScatterOps; }

}  // namespace oxy::ops
