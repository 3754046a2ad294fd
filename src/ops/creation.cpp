// Ops that fill a new tensor: full and its kin, arange, linspace, logspace, eye, triangles, random
// numbers.
#include <cmath>
#include <limits>

#include "ops/families.h"

namespace oxy::ops {
namespace {

using ir::TensorType;

// The argument positions of dtype, layout, device and pin_memory, which follow each other.
struct Options {
  DType dtype;
  ir::Device device;
};

// Options at position `at`, with these defaults; nothing for another layout than strided, or pinned
// memory.
std::optional<Options> options(const Args& a, size_t at, DType dtype, ir::Device device) {
  auto d = a.dtype(at, dtype);
  auto pinned = a.boolean(at + 3, false);
  if (!d || !pinned || *pinned) return std::nullopt;
  if (!a.missing(at + 1)) {
    const auto* layout = a[at + 1].get_if<ir::Layout>();
    if (!layout || layout->value != 0) return std::nullopt;
  }
  if (!a.missing(at + 2)) {
    const auto* named = a[at + 2].get_if<ir::Device>();
    if (!named) return std::nullopt;
    device = *named;
  }
  return Options{*d, device};
}

bool give_new(Types& out, const std::optional<Options>& o, Sizes sizes) {
  return o && give(out, row_major(o->dtype, o->device, std::move(sizes)));
}

std::optional<DType> dtype_of_number(const Args& a, size_t i) {
  auto kind = a.number_kind(i);
  if (!kind || *kind == NumberKind::Complex) return std::nullopt;
  constexpr DType kDTypes[] = {DType::B8, DType::I64, DType::F32};
  return kDTypes[static_cast<size_t>(*kind)];
}

// full: size, fill value, options. The dtype is the value's where none is asked for.
bool shape_full(const Args& a, Types& out) {
  Sizes sizes;
  auto natural = dtype_of_number(a, 1);
  if (!natural || !a.exprs(0, sizes)) return false;
  return give_new(out, options(a, 2, *natural, {}), std::move(sizes));
}

// zeros, ones, empty: size, options.
bool shape_sized(const Args& a, Types& out) {
  Sizes sizes;
  if (!a.missing(5) || !a.exprs(0, sizes)) return false;
  return give_new(out, options(a, 1, DType::F32, {}), std::move(sizes));
}

// new_*: self, size, (fill value,) options.
template <size_t OptionsAt>
bool shape_new(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  Sizes sizes;
  if (!t || !a.exprs(1, sizes)) return false;
  return give_new(out, options(a, OptionsAt, t->dtype, t->device), std::move(sizes));
}

// *_like: self, (fill value,) options, memory format. Keeps the layout of a dense tensor.
template <size_t OptionsAt>
bool shape_like(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto o = t ? options(a, OptionsAt, t->dtype, t->device) : std::nullopt;
  auto strides = t ? preserved_strides(*t) : std::nullopt;
  if (!o || !strides) return false;
  const ir::Arg& given = a[OptionsAt + 4];
  const auto* format = given.get_if<ir::MemoryFormat>();
  const bool preserve = given.is_none() || (format && format->value == 1);
  if (!preserve && !(format && format->value == 0)) return false;
  TensorType r = row_major(o->dtype, o->device, t->sizes);
  if (preserve) r.strides = std::move(*strides);
  return give(out, std::move(r));
}

// Random numbers: size (a number: of one dimension), (generator,) options.
template <size_t SizeAt, size_t OptionsAt, DType kind>
bool shape_random(const Args& a, Types& out) {
  Sizes sizes;
  return a.exprs(SizeAt, sizes) && give_new(out, options(a, OptionsAt, kind, {}), std::move(sizes));
}

// All of a tensor drawn anew.
bool shape_refilled(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return give(out, t ? empty_like(*t) : std::nullopt);
}

// As many numbers, row by row.
template <size_t At>
bool shape_drawn(const Args& a, Types& out) {
  const TensorType* t = a.tensor(At);
  return t && give(out, row_major(t->dtype, t->device, t->sizes));
}

bool shape_multinomial(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  const auto count = a.expr(1);
  if (!t || !count || t->sizes.empty() || t->sizes.size() > 2) return false;
  Sizes sizes = t->sizes;
  sizes.back() = *count;
  return give(out, row_major(DType::I64, t->device, std::move(sizes)));
}

bool shape_scalar_tensor(const Args& a, Types& out) {
  return give_new(out, options(a, 1, DType::F32, {}), {});
}

bool shape_fill(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  auto r = t ? empty_like(*t) : std::nullopt;
  if (!r || (a.tensor(1) && !a.tensor(1)->sizes.empty())) return false;
  return give(out, std::move(r));
}

bool shape_zero(const Args& a, Types& out) { return shape_fill(a.with(a.list().first(1)), out); }

template <size_t ValueAt>
Scalar filled(Element& e) {
  return e.operand(ValueAt, e.result());
}

template <int Value>
Scalar constant(Element& e) {
  return e.c(Value, e.result());
}

// ---- arange ----

struct Range {
  ir::Arg start, end, step;
};

// The three forms differ in how many bounds come first.
template <size_t Bounds>
Range range_of_args(const Args& a) {
  if (Bounds == 1) return {0, a[0], 1};
  return {a[0], a[1], Bounds == 3 && !a.missing(2) ? a[2] : ir::Arg(1)};
}

std::optional<double> as_double(const ir::Arg& x) {
  if (const auto* d = x.get_if<double>()) return *d;
  const auto* e = x.get_if<Expr>();
  return e && e->is_const() ? std::optional(static_cast<double>(number_of(e->value())))
                            : std::nullopt;
}

// A number in units of 1 / `parts`, where it is a whole number of them.
std::optional<Expr> whole(const Args& a, const ir::Arg& x, int64_t parts = 1) {
  constexpr double kMost = 1 << 30;
  const double* d = x.get_if<double>();
  if (!d) {
    const auto e = a.expr(x);
    return e ? std::optional(*e * Expr(parts)) : e;
  }
  const double units = *d * static_cast<double>(parts);
  if (!(std::abs(units) <= kMost) || units != std::floor(units)) return std::nullopt;
  return Expr(static_cast<int64_t>(units));
}

// Whether a bound is an integer that a double rounds: eager counts and computes floats in doubles.
bool has_rounded_bound(const Args& a, const Range& r, DType d) {
  const auto is_rounded = [&](const ir::Arg& bound) {
    const auto e = a.expr(bound);
    return e && e->is_const() && std::abs(static_cast<double>(e->value())) >= 0x1p53;
  };
  return ir::is_floating(d) && (is_rounded(r.start) || is_rounded(r.end));
}

// Numbers of few binary digits divide as whole numbers do.
std::optional<Expr> range_length(const Args& a, const Range& r, DType d) {
  constexpr int64_t kMostParts = 1024;
  for (int64_t parts = 1; parts <= kMostParts && !has_rounded_bound(a, r, d); parts *= 2) {
    auto start = whole(a, r.start, parts), end = whole(a, r.end, parts);
    auto step = whole(a, r.step, parts);
    if (!start || !end || !step) continue;
    // The elements are counted in whole numbers where the step varies.
    if (parts > 1 && !step->is_const()) return std::nullopt;
    const bool up = sym::known_less(0, *step) == true;
    if (!up && sym::known_less(*step, 0) != true) return std::nullopt;
    const Expr span = up ? *end - *start : *start - *end;
    if (sym::known_less(span, 0).value_or(true)) return std::nullopt;
    return sym::ceildiv(span, up ? *step : -*step);
  }
  auto s = as_double(r.start), e = as_double(r.end), by = as_double(r.step);
  if (!s || !e || !by || *by == 0 || !((*e - *s) / *by >= 0)) return std::nullopt;
  return Expr(static_cast<int64_t>(std::ceil((*e - *s) / *by)));
}

template <size_t Bounds>
bool shape_arange(const Args& a, Types& out) {
  const Range r = range_of_args<Bounds>(a);
  const bool integers = a.expr(r.start) && a.expr(r.end) && a.expr(r.step);
  const bool all_whole = whole(a, r.start) && whole(a, r.end) && whole(a, r.step);
  auto o = options(a, Bounds, integers ? DType::I64 : DType::F32, {});
  auto length = o ? range_length(a, r, o->dtype) : std::nullopt;
  if (!length || !o || (!all_whole && !ir::is_floating(o->dtype))) return false;
  return give_new(out, o, {*length});
}

template <size_t Bounds>
Scalar arange(Element& e) {
  const Range r = range_of_args<Bounds>(e.args);
  auto start = whole(e.args, r.start), step = whole(e.args, r.step);
  if (start && step && !has_rounded_bound(e.args, r, e.result()))
    return e.finish(e.b.index(*start + e.index[0] * *step));
  const Scalar i = e.cast(e.b.index(e.index[0]), DType::F64);
  const Scalar offset = e.mul(i, e.c(*as_double(r.step), DType::F64));
  const auto from = as_double(r.start);
  return e.finish(
      e.add(from ? e.c(*from, DType::F64) : e.cast(e.b.index(*start), DType::F64), offset));
}

// ---- linspace, logspace ----

double largest(DType d) {
  if (d == DType::F64) return std::numeric_limits<double>::max();
  if (d == DType::F32 || d == DType::BF16) return 3.38e38;
  if (d == DType::F16) return 65504;
  return d == DType::I64 ? 0x1.fffffffffffffp62 : std::ldexp(1.0, 8 * ir::byte_size(d) - 1) - 1;
}

// Whether eager converts this bound to the dtype without an overflow. A symbol may be any integer.
bool is_bound(const Args& a, size_t i, DType d) {
  if (a.tensor(i)) return ir::is_floating(d);
  auto kind = a.number_kind(i);
  if (!kind || *kind == NumberKind::Complex) return false;
  if (a[i].get_if<bool>()) return true;
  if (auto v = as_double(a[i])) {
    if (ir::is_floating(d)) return !std::isfinite(*v) || std::abs(*v) <= largest(d);
    return d == DType::U8 ? *v >= 0 && *v <= 255 : std::abs(*v) <= largest(d);
  }
  return d == DType::F64 || d == DType::F32 || d == DType::BF16 || d == DType::I64;
}

// start, end, steps, (base,) options. The dtype is never deduced from the bounds.
template <size_t OptionsAt>
bool shape_linspace(const Args& a, Types& out) {
  auto steps = a.expr(2);
  auto o = options(a, OptionsAt, DType::F32, {});
  if (!steps || sym::known_less(*steps, 0).value_or(true) || !o || !is_computable(o->dtype) ||
      o->dtype == DType::B8 || !is_bound(a, 0, o->dtype) || !is_bound(a, 1, o->dtype))
    return false;
  return give_new(out, o, {*steps});
}

// The point of this index of at least two points, in `d`: counted from the nearer end, so that both
// ends are exact.
Scalar point_between(Element& e, Scalar start, Scalar end, Scalar span, bool fused) {
  const DType d = span.dtype;
  const Expr steps = *e.args.expr(2);
  const Scalar i = e.b.index(e.index[0]), last = e.b.index(steps - Expr(1));
  const Scalar low = e.op(LoopOp::Lt, i, e.b.index(sym::floordiv(steps, Expr(2))));
  const Scalar count = e.cast(e.where(low, i, e.sub(last, i)), d);
  const Scalar step = e.div(span, e.cast(last, d));
  const Scalar towards = e.where(low, step, e.op(LoopOp::Neg, step));
  const Scalar from = e.where(low, start, end);
  return fused ? e.fma(towards, count, from) : e.add(from, e.mul(towards, count));
}

// Integers in f64.
Scalar linspace(Element& e) {
  const DType r = e.result(), d = ir::is_floating(r) ? r : DType::F64;
  if (sym::known_equal(*e.args.expr(2), 1).value_or(false)) return e.operand(0, r);
  const Scalar start = e.operand(0, d, r), end = e.operand(1, d, r);
  return e.finish(point_between(e, start, end, e.sub(end, start), true));
}

// base ** point in f64; the bounds and their distance have the result's precision.
Scalar logspace(Element& e) {
  constexpr DType d = DType::F64;
  const Scalar base = e.number(3, d, 10);
  if (sym::known_equal(*e.args.expr(2), 1).value_or(false))
    return e.finish(e.op(LoopOp::Pow, base, e.operand(0, d)));
  const Scalar start = e.operand(0, e.result()), end = e.operand(1, e.result());
  const Scalar span = e.cast(e.sub(end, start), d);
  return e.finish(
      e.op(LoopOp::Pow, base, point_between(e, e.cast(start, d), e.cast(end, d), span, false)));
}

// ---- eye, triangles ----

template <size_t Sides>
bool shape_eye(const Args& a, Types& out) {
  auto rows = a.expr(0), columns = a.expr(Sides - 1);
  return rows && columns && give_new(out, options(a, Sides, DType::F32, {}), {*rows, *columns});
}

Scalar eye(Element& e) {
  const Scalar on = e.op(LoopOp::Eq, e.b.index(e.index[0]), e.b.index(e.index[1]));
  return e.where(on, e.c(1, e.result()), e.c(0, e.result()));
}

bool shape_triangle(const Args& a, Types& out) {
  const TensorType* t = a.tensor(0);
  return t && t->dim() >= 2 && a.expr(1, Expr(0)) && give(out, fresh(*t, t->sizes));
}

// The elements on one side of diagonal k (column - row = k), which included; 0 elsewhere, where
// nothing is read.
template <bool Lower>
Scalar triangle(Element& e) {
  const size_t rank = e.index.size();
  const Scalar column = e.b.index(e.index[rank - 1]);
  const Scalar diagonal = e.b.index(e.index[rank - 2] + *e.args.expr(1, Expr(0)));
  const Scalar inside = e.op(Lower ? LoopOp::Le : LoopOp::Ge, column, diagonal);
  return e.load(0, e.index, inside, e.c(0, e.result()));
}

// A window of so many points; length, (periodic,) options.
template <size_t OptionsAt>
bool shape_window(const Args& a, Types& out) {
  const auto length = a.expr(0);
  const auto o = options(a, OptionsAt, DType::F32, {});
  if (!length || sym::known_less(*length, 0).value_or(true) || !o || !ir::is_floating(o->dtype))
    return false;
  return give_new(out, o, {*length});
}

// How many places of a matrix lie on the diagonal `offset` and below it. Nothing where it is not
// known which of its rows these reach.
std::optional<Expr> places_below(Expr rows, Expr columns, Expr offset) {
  const auto empty = sym::known_less(rows + offset, 1);
  const auto above = sym::known_less(0, offset);
  if (!empty || !above) return std::nullopt;
  if (*empty) return Expr(0);
  // Row by row: as many as the first has, one more in each, then all.
  const Expr first = *above ? sym::min(columns, Expr(1) + offset) : Expr(1);
  const Expr last = sym::max(Expr(0), sym::min(columns, rows + offset));
  const Expr reached = sym::max(Expr(0), sym::min(rows, rows + offset));
  const Expr growing = last - first + Expr(1);
  return sym::floordiv((first + last) * growing, Expr(2)) +
         sym::max(Expr(0), reached - growing) * columns;
}

// triu_indices, tril_indices: rows, columns, offset, options. A line of rows, a line of columns.
template <bool Lower>
bool shape_triangle_indices(const Args& a, Types& out) {
  const auto rows = a.expr(0), columns = a.expr(1), offset = a.expr(2, Expr(0));
  if (!rows || !columns || !offset) return false;
  for (const Expr size : {*rows, *columns})
    if (sym::known_less(size, 1).value_or(true)) return false;
  auto count = places_below(*rows, *columns, Lower ? *offset : *offset - Expr(1));
  if (!count) return false;
  if (!Lower) count = *rows * *columns - *count;
  return give_new(out, options(a, 3, DType::I64, {}), {2, *count});
}

// On the device of the operand.
bool placed(const ir::Graph& g, const ir::Node& n) {
  const TensorType* t = Args(g, n).tensor(0);
  const TensorType& r = g.tensor_type(n.outputs[0]);
  return applies_computable(g, n) && (!t || t->device == r.device);
}

// One point is its start, which a count that is not known may ask for.
bool has_known_count(const ir::Graph& g, const ir::Node& n) {
  return placed(g, n) && sym::known_equal(*Args(g, n).expr(2), 1).has_value();
}

// Of fp16 and bf16 torch rounds each step until 2.14, and the result alone from 2.15 on.
bool applies_linspace(const ir::Graph& g, const ir::Node& n) {
  return has_known_count(g, n) && !ir::is_reduced_float(g.tensor_type(n.outputs[0]).dtype);
}

// Integers are cut, so that an error of the power's last bit would be seen.
bool applies_logspace(const ir::Graph& g, const ir::Node& n) {
  return has_known_count(g, n) && ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

constexpr uint32_t kCreation = Creation | Pointwise | Cheap;

constexpr OpInfo kCreationOps[] = {
#include "ops/creation.def"
};

}  // namespace

std::span<const OpInfo> creation_ops() { return kCreationOps; }

}  // namespace oxy::ops
