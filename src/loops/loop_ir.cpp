// Small facts about loops and their buffers.
#include "loops/loop_ir.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::loops {

bool Loop::has_reduction() const {
  return std::any_of(body.begin(), body.end(),
                     [](const Inst& i) { return i.op == LoopOp::Reduce; });
}

Expr flat_offset(const Buffer& b, const Index& index) {
  OXY_CHECK(index.size() == b.type.sizes.size(), "index of ", b.name);
  Expr flat = b.kind == Buffer::Kind::View ? b.type.offset : Expr(0);
  for (size_t d = 0; d < index.size(); ++d) flat = flat + index[d] * b.type.strides[d];
  return flat;
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

Expr byte_extent(const ir::TensorType& type) {
  Expr last = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d].is_const(0)) return 0;
    last = last + (type.sizes[d] - 1) * type.strides[d];
  }
  return (last + 1) * ir::byte_size(type.dtype);
}

}  // namespace oxy::loops
