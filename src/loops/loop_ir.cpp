// Names of variables, and small facts about loops and their buffers.
#include "loops/loop_ir.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::loops {

bool is_variable(Expr symbol) {
  const std::string& name = symbol.name();
  return !name.empty() && (name[0] == 'p' || name[0] == 'r' || name[0] == 'i');
}

bool is_size(Expr e) {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return std::ranges::none_of(symbols, is_variable);
}

Expr Variables::get(char prefix, Expr size, uint32_t ordinal) {
  auto [it, fresh] = known_.try_emplace({prefix, size.bits(), ordinal});
  if (!fresh) return it->second;
  int64_t last = sym::range_of(size).hi;
  if (last != INT64_MAX) last = last > 0 ? last - 1 : 0;
  std::string name;
  do {
    name = cat(prefix, next_[prefix]++);
  } while (pool_->find_symbol(name));
  it->second = pool_->symbol(name, {0, last});
  return it->second;
}

Expr VariableScope::get(char prefix, Expr size) {
  uint32_t& ordinal = next_[{prefix, size.bits()}];
  while (true) {
    Expr v = all_.get(prefix, size, ordinal++);
    if (take(v)) return v;
  }
}

bool Loop::has_reduction() const {
  return std::ranges::find(body, LoopOp::Reduce, &Inst::op) != body.end();
}

Expr flat_offset(const Buffer& b, const Index& index) {
  OXY_CHECK(index.size() == b.type.sizes.size(), "index of ", b.name);
  Expr flat = b.kind == Buffer::Kind::View ? b.type.offset : Expr(0);
  for (size_t d = 0; d < index.size(); ++d) flat = flat + index[d] * b.type.strides[d];
  return flat;
}

static bool is_exact(const Inst& inst) {
  if (!ir::is_floating(inst.dtype)) return true;
  switch (inst.op) {
    case LoopOp::Max:
    case LoopOp::Min:
    case LoopOp::Neg:
    case LoopOp::Abs:
    case LoopOp::CopySign:
    case LoopOp::Where:
    case LoopOp::Cast:
    case LoopOp::Bitcast:
    case LoopOp::Const:
    case LoopOp::Load:
    case LoopOp::Store:
      return true;
    case LoopOp::StoreAdd:
    case LoopOp::Scan:
    case LoopOp::Reduce:
      return inst.reduce == ReduceKind::Max || inst.reduce == ReduceKind::Min ||
             inst.reduce == ReduceKind::Last;
    default:
      return false;
  }
}

bool is_exact(const Program& p) {
  return std::ranges::all_of(p.steps, [](const Step& s) {
    if (std::holds_alternative<ContractionStep>(s)) return false;
    const auto* loop = std::get_if<Loop>(&s);
    return loop == nullptr ||
           std::ranges::all_of(loop->body, [](const Inst& inst) { return is_exact(inst); });
  });
}

bool has_iterated(const Program& p) {
  return std::ranges::any_of(p.steps, [](const Step& s) {
    const auto* loop = std::get_if<Loop>(&s);
    return loop && std::ranges::any_of(loop->body, [](const Inst& inst) {
             return ops::class_of(inst.op) == ops::LoopClass::Iterated;
           });
  });
}

const Call* call_of(const Step& s) {
  if (const auto* e = std::get_if<ExternStep>(&s)) return e;
  return std::get_if<ContractionStep>(&s);
}

ops::ContractionLayout layout_of(const Program& p, const ContractionStep& s) {
  auto type = [&](BufferId b) { return b.valid() ? &p.buffers[b].type : nullptr; };
  return ops::layout_of(s.what, {type(s.a()), type(s.b()), type(s.bias()), type(s.c())});
}

BufferId memory_of(const Program& p, BufferId b) {
  return p.buffers[b].kind == Buffer::Kind::View ? p.buffers[b].base : b;
}

const BufferId* result_of(const Program& p, ir::ValueId v) {
  if (auto it = p.copy_of.find(v); it != p.copy_of.end()) return &it->second;
  auto it = p.buffer_of.find(v);
  return it == p.buffer_of.end() ? nullptr : &it->second;
}

Expr byte_extent(const ir::TensorType& type) {
  Expr last = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d].is_const(0)) return 0;
    last = last + (type.sizes[d] - 1) * type.strides[d];
  }
  return (last + 1) * ir::byte_size(type.dtype);
}

}  // namespace oxy::loops
