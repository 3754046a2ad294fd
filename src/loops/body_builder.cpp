// Each call of a rule as instructions, with half precision computed in f32 and checked indices.
#include "loops/body_builder.h"

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
  Inst c;
  c.op = LoopOp::Const;
  c.dtype = dtype;
  c.integer = dtype == DType::B8 ? v != 0 : v;
  return emit(std::move(c));
}

Scalar BodyBuilder::index(Expr e) {
  if (e.is_const()) return constant_int(e.value(), DType::I64);
  Inst i;
  i.op = LoopOp::Index;
  i.dtype = DType::I64;
  i.index = {e};
  return emit(std::move(i));
}

Scalar BodyBuilder::load(ir::ValueId value, const Index& index) {
  if (home_.is_virtual(value)) return load_view(value, index);
  const ir::TensorType& type = graph_.tensor_type(value);
  OXY_CHECK(index.size() == type.sizes.size(), "load of ", ir::print(type), " with ", index.size(),
            " indices");
  Inst i;
  i.op = LoopOp::Load;
  i.dtype = type.dtype;
  i.buffer = home_.buffer(value);
  i.index = index;
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
  Inst check;
  check.op = LoopOp::Check;
  check.dtype = DType::I64;
  check.args = {j.id};
  check.index = {size};
  writer_.emit(std::move(check));
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
  writer_.emit({.op = LoopOp::Symbol, .dtype = DType::I64, .args = {i.id}, .index = {name}});
  return name;
}

Scalar BodyBuilder::op(LoopOp op, std::initializer_list<Scalar> args) {
  OXY_CHECK(static_cast<int>(args.size()) == ops::arity(op), ops::name(op));
  std::vector<Scalar> in(args);
  DType dtype = in[0].dtype;
  bool half = op != LoopOp::Where && ir::is_reduced_float(dtype);
  if (half) {
    for (Scalar& s : in) s = cast(s, DType::F32);
  }
  Inst i;
  i.op = op;
  for (Scalar s : in) i.args.push_back(s.id);
  bool first_is_mask = op == LoopOp::Where;
  for (size_t k = first_is_mask + 1; k < in.size(); ++k) {
    OXY_CHECK(in[k].dtype == in[first_is_mask].dtype, ops::name(op), " of ",
              ir::name(in[first_is_mask].dtype), " and ", ir::name(in[k].dtype));
  }
  i.dtype = ops::class_of(op) == ops::LoopClass::Compare ? DType::B8 : in[first_is_mask].dtype;
  Scalar r = emit(std::move(i));
  return half && r.dtype == DType::F32 ? cast(r, dtype) : r;
}

Scalar BodyBuilder::cast(Scalar v, DType dtype) {
  if (v.dtype == dtype) return v;
  // f16 and bf16 convert from and to f32 only; the others go through it, as in c10.
  bool through =
      (ir::is_reduced_float(v.dtype) || ir::is_reduced_float(dtype)) && dtype != DType::F32;
  if (through && v.dtype != DType::F32) v = cast(v, DType::F32);
  Inst i;
  i.op = LoopOp::Cast;
  i.dtype = dtype;
  i.args = {v.id};
  return emit(std::move(i));
}

Scalar BodyBuilder::bitcast(Scalar v, DType dtype) {
  if (v.dtype == dtype) return v;
  Inst i;
  i.op = LoopOp::Bitcast;
  i.dtype = dtype;
  i.args = {v.id};
  return emit(std::move(i));
}

Scalar BodyBuilder::reduce(ops::ReduceKind kind, Scalar v) {
  Inst i;
  i.op = LoopOp::Reduce;
  i.dtype = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin ? DType::I64 : v.dtype;
  i.args = {v.id};
  i.reduce = kind;
  return emit(std::move(i));
}

Scalar BodyBuilder::scan(ops::ReduceKind kind, Scalar v, Expr along) {
  Inst i;
  i.op = LoopOp::Scan;
  i.dtype = v.dtype;
  i.args = {v.id};
  i.index = {along};
  i.reduce = kind;
  return emit(std::move(i));
}

void BodyBuilder::store(BufferId buffer, const Index& index, Scalar v) {
  Inst i;
  i.op = LoopOp::Store;
  i.dtype = v.dtype;
  i.args = {v.id};
  i.buffer = buffer;
  i.index = index;
  writer_.emit(std::move(i));
}

void BodyBuilder::fold_into(BufferId buffer, const Index& index, ops::Scalar v,
                            ops::ReduceKind kind) {
  writer_.emit({.op = LoopOp::StoreAdd,
                .dtype = v.dtype,
                .args = {v.id},
                .buffer = buffer,
                .index = index,
                .reduce = kind});
}

}  // namespace oxy::loops
