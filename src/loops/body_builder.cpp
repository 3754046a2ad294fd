// Each call of a rule as instructions, with half precision computed in f32 and checked indices.
#include "loops/body_builder.h"

#include <cmath>

#include "support/check.h"

namespace oxy::loops {

using ops::Scalar;

Scalar BodyBuilder::emit(Inst inst) {
  uint32_t id = writer_.emit(std::move(inst));
  return {id, writer_.inst(id).dtype};
}

Scalar BodyBuilder::constant(double v, DType dtype) {
  return {writer_.emit_const(v, dtype), dtype};
}

Scalar BodyBuilder::constant_int(int64_t v, DType dtype) {
  if (ir::is_floating(dtype)) return constant(static_cast<double>(v), dtype);
  return emit({.op = LoopOp::Const, .dtype = dtype, .integer = dtype == DType::B8 ? v != 0 : v});
}

Scalar BodyBuilder::index(Expr e) {
  if (e.is_const()) return constant_int(e.value(), DType::I64);
  return emit({.op = LoopOp::Index, .dtype = DType::I64, .index = {e}});
}

Scalar BodyBuilder::load(ir::ValueId value, const Index& index) {
  if (home_.is_virtual(value)) return load_view(value, index);
  const ir::TensorType& type = graph_.tensor_type(value);
  OXY_CHECK(index.size() == type.sizes.size(), "load of ", ir::print(type), " with ", index.size(),
            " indices");
  Inst i{.op = LoopOp::Load, .dtype = type.dtype, .buffer = home_.buffer(value), .index = index};
  if (mask_) i.args = {mask_->id, constant(0, type.dtype).id};
  return emit(std::move(i));
}

Scalar BodyBuilder::load_view(ir::ValueId value, const Index& index) {
  const ir::Node& def = graph_.def(value);
  ops::Element e(*this, def, graph_.value(value).index, index);
  return ops::find(def)->element(e);
}

// v where the mask holds, else `otherwise`. A load that has just been made under this mask takes
// the other value itself.
Scalar BodyBuilder::masked(Scalar v, Scalar otherwise) {
  Inst last = writer_.inst(v.id);
  if (last.op == LoopOp::Load && last.args.size() == 2 && last.args[0] == mask_->id) {
    last.args[1] = otherwise.id;
    return emit(std::move(last));
  }
  return op(LoopOp::Where, {*mask_, v, otherwise});
}

Scalar BodyBuilder::load_masked(ir::ValueId value, const Index& index, Scalar mask, Scalar other) {
  std::optional<Scalar> outer = mask_;
  mask_ = outer ? op(LoopOp::And, {*outer, mask}) : mask;
  Scalar r = masked(load(value, index), other);
  mask_ = outer;
  return r;
}

Expr BodyBuilder::indirect(Scalar i, Expr size, bool wrap) {
  Scalar at = cast(i, DType::I64);
  uint32_t mask = mask_ ? mask_->id : UINT32_MAX;
  auto [known, fresh] = indirect_.try_emplace({at.id, size.bits(), wrap, mask});
  if (!fresh) return known->second;
  Scalar j = at;
  if (wrap) {
    Scalar from_end = op(LoopOp::Add, {at, index(size)});
    j = op(LoopOp::Where, {op(LoopOp::Lt, {at, constant_int(0, DType::I64)}), from_end, at});
  }
  if (mask_) j = op(LoopOp::Where, {*mask_, j, constant_int(0, DType::I64)});
  emit({.op = LoopOp::Check, .dtype = DType::I64, .args = {j.id}, .index = {size}});
  return known->second = symbol(j, size);
}

Expr BodyBuilder::computed_index(Scalar i, Expr size) {
  const Scalar at = cast(i, DType::I64);
  auto [known, fresh] = computed_.try_emplace({at.id, size.bits()});
  if (fresh) known->second = symbol(at, size);
  return known->second;
}

Expr BodyBuilder::symbol(Scalar i, Expr size) {
  const Expr name = variables_.get('i', size);
  emit({.op = LoopOp::Symbol, .dtype = DType::I64, .args = {i.id}, .index = {name}});
  return name;
}

Scalar BodyBuilder::op(LoopOp op, std::initializer_list<Scalar> args) {
  OXY_CHECK(static_cast<int>(args.size()) == ops::arity(op), ops::name(op));
  std::vector<Scalar> in(args);
  const bool first_is_mask = op == LoopOp::Where;
  const DType dtype = in[first_is_mask].dtype;
  const bool half = !first_is_mask && ir::is_reduced_float(dtype);
  Inst i{.op = op, .dtype = half ? DType::F32 : dtype};
  for (size_t k = 0; k < in.size(); ++k) {
    if (half) in[k] = cast(in[k], DType::F32);
    i.args.push_back(in[k].id);
    OXY_CHECK(k < first_is_mask || in[k].dtype == i.dtype, ops::name(op), " of ", ir::name(i.dtype),
              " and ", ir::name(in[k].dtype));
  }
  if (ops::class_of(op) == ops::LoopClass::Compare) i.dtype = DType::B8;
  Scalar r = emit(std::move(i));
  return half && r.dtype == DType::F32 ? cast(r, dtype) : r;
}

// By way of f16, of which e5m2 is the upper half; e4m3 has a bit of the exponent less, a bias less
// by 8, and no infinities: what would be its largest number is NaN.
Scalar BodyBuilder::f32_of_f8(Scalar v) {
  const bool narrow = v.dtype == DType::F8E4M3;
  const auto bits = [&](int64_t n) { return constant_int(n, DType::I16); };
  Scalar half = cast(bitcast(v, DType::I8), DType::I16);
  half = op(LoopOp::Shl, {half, bits(narrow ? 7 : 8)});
  if (narrow) half = op(LoopOp::And, {half, bits(~(1 << 14))});
  const Scalar wide = cast(bitcast(half, DType::F16), DType::F32);
  if (!narrow) return wide;
  const Scalar value = op(LoopOp::Mul, {wide, constant(256, DType::F32)});
  const Scalar is_nan = op(LoopOp::Eq, {op(LoopOp::Abs, {value}), constant(480, DType::F32)});
  return op(LoopOp::Where, {is_nan, constant(std::nan(""), DType::F32), value});
}

// As c10: to the nearest number, ties to even; beyond the largest one that, of e5m2 infinity.
Scalar BodyBuilder::f8_of_f32(Scalar v, DType dtype) {
  const bool narrow = dtype == DType::F8E4M3;
  const int mantissa = narrow ? 3 : 2, bias = narrow ? 7 : 15, dropped = 23 - mantissa;
  const auto n = [&](int64_t value) { return constant_int(value, DType::I32); };
  const auto shifted = [&](Scalar x, int by) { return op(LoopOp::Shr, {x, n(by)}); };
  const Scalar all = bitcast(v, DType::I32);
  const Scalar bits = op(LoopOp::And, {all, n(INT32_MAX)});
  // A normal number: what is dropped is rounded into what stays.
  const Scalar odd = op(LoopOp::And, {shifted(bits, dropped), n(1)});
  const int64_t rebias = int64_t{bias - 127} * (1 << 23) + (1 << (dropped - 1)) - 1;
  const Scalar normal =
      shifted(op(LoopOp::Add, {op(LoopOp::Add, {bits, n(rebias)}), odd}), dropped);
  // A subnormal one: f32 rounds where its last bit is worth the same.
  const int exponent = 127 - bias + 1 + dropped;
  const Scalar magic = constant(std::ldexp(1.0, exponent - 127), DType::F32);
  const Scalar sum = op(LoopOp::Add, {bitcast(bits, DType::F32), magic});
  const Scalar subnormal = op(LoopOp::Sub, {bitcast(sum, DType::I32), n(int64_t{exponent} << 23)});
  const Scalar is_subnormal = op(LoopOp::Lt, {bits, n(int64_t{128 - bias} << 23)});
  const Scalar is_nan = op(LoopOp::Gt, {bits, n(int64_t{255} << 23)});
  Scalar out = op(LoopOp::Where, {is_subnormal, subnormal, normal});
  out = op(LoopOp::Min, {out, n(narrow ? 0x7e : 0x7c)});
  out = op(LoopOp::Where, {is_nan, n(0x7f), out});
  const Scalar sign = op(LoopOp::And, {shifted(all, 24), n(0x80)});
  return bitcast(cast(op(LoopOp::Or, {out, sign}), DType::U8), dtype);
}

Scalar BodyBuilder::cast(Scalar v, DType dtype) {
  if (v.dtype == dtype) return v;
  // f16, bf16 and f8 convert from and to f32 only; the others go through it, as in c10.
  const auto is_small = [](DType d) { return ir::is_reduced_float(d) || is_f8(d); };
  const bool through = (is_small(v.dtype) || is_small(dtype)) && dtype != DType::F32;
  if (through && v.dtype != DType::F32) v = cast(v, DType::F32);
  if (is_f8(v.dtype)) return f32_of_f8(v);
  if (is_f8(dtype)) return f8_of_f32(v, dtype);
  return emit({.op = LoopOp::Cast, .dtype = dtype, .args = {v.id}});
}

Scalar BodyBuilder::bitcast(Scalar v, DType dtype) {
  if (v.dtype == dtype) return v;
  return emit({.op = LoopOp::Bitcast, .dtype = dtype, .args = {v.id}});
}

Scalar BodyBuilder::reduce(ops::ReduceKind kind, Scalar v) {
  const bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  return emit(
      {.op = LoopOp::Reduce, .dtype = arg ? DType::I64 : v.dtype, .args = {v.id}, .reduce = kind});
}

Scalar BodyBuilder::scan(ops::ReduceKind kind, Scalar v, Expr along) {
  return emit(
      {.op = LoopOp::Scan, .dtype = v.dtype, .args = {v.id}, .index = {along}, .reduce = kind});
}

void BodyBuilder::store(BufferId buffer, const Index& index, Scalar v) {
  emit({.op = LoopOp::Store, .dtype = v.dtype, .args = {v.id}, .buffer = buffer, .index = index});
}

void BodyBuilder::fold_into(BufferId buffer, const Index& index, ops::Scalar v,
                            ops::ReduceKind kind) {
  emit({.op = LoopOp::StoreAdd,
        .dtype = v.dtype,
        .args = {v.id},
        .buffer = buffer,
        .index = index,
        .reduce = kind});
}

}  // namespace oxy::loops
