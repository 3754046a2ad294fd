// Identities and combining operations of each kind of reduction.
#include "schedule/fold.h"

#include <limits>

#include "support/check.h"

namespace oxy::schedule {

using ops::DType;
using ops::LoopOp;
using ops::ReduceKind;

LoopOp fold_of(ReduceKind kind, DType dtype) {
  bool b8 = dtype == DType::B8;
  switch (kind) {
    case ReduceKind::Sum:
      return b8 ? LoopOp::Or : LoopOp::Add;
    case ReduceKind::Prod:
      return b8 ? LoopOp::And : LoopOp::Mul;
    case ReduceKind::Max:
      return b8 ? LoopOp::Or : LoopOp::Max;
    case ReduceKind::Min:
      return b8 ? LoopOp::And : LoopOp::Min;
    case ReduceKind::Any:
      return LoopOp::Or;
    case ReduceKind::LogSumExp:
      return LoopOp::LogAddExp;
    case ReduceKind::All:
      return LoopOp::And;
    default:
      OXY_FAIL("no fold of two values for ", ops::name(kind));
  }
}

loops::Inst identity_of(ReduceKind kind, DType dtype) {
  loops::Inst c{.op = LoopOp::Const, .dtype = dtype};
  bool one = kind == ReduceKind::Prod || kind == ReduceKind::All;
  bool low = kind == ReduceKind::Max || kind == ReduceKind::LogSumExp;
  bool extreme = low || kind == ReduceKind::Min;
  if (ir::is_floating(dtype)) {
    double inf = std::numeric_limits<double>::infinity();
    c.number = extreme ? (low ? -inf : inf) : one;
  } else if (!extreme || dtype == DType::B8) {
    c.integer = one || kind == ReduceKind::Min;
  } else {
    bool is_unsigned = dtype == DType::U8;
    int64_t top = is_unsigned
                      ? 255
                      : static_cast<int64_t>((uint64_t{1} << (ir::byte_size(dtype) * 8 - 1)) - 1);
    c.integer = low ? (is_unsigned ? 0 : -top - 1) : top;
  }
  return c;
}

}  // namespace oxy::schedule
