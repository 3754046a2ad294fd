// Names and arities of the scalar operations of loop bodies.
#include <algorithm>

#include "ops/loop_builder.h"

namespace oxy::ops {
namespace {

struct LoopOpRow {
  std::string_view text;
  int arity;
  LoopClass cls;
};

constexpr LoopOpRow kLoopOps[] = {
#define LOOP_OP(e, text, arity, cls) {text, arity, LoopClass::cls},
#include "ops/loop_ops.def"
#undef LOOP_OP
};
static_assert(std::size(kLoopOps) == static_cast<size_t>(LoopOp::Count));

constexpr std::string_view kReduceKinds[] = {"sum", "prod",   "max",    "min",       "any",
                                             "all", "argmax", "argmin", "logsumexp", "last"};

}  // namespace

std::string_view name(LoopOp op) { return kLoopOps[static_cast<size_t>(op)].text; }

int arity(LoopOp op) { return kLoopOps[static_cast<size_t>(op)].arity; }

LoopClass class_of(LoopOp op) { return kLoopOps[static_cast<size_t>(op)].cls; }

std::optional<LoopOp> loop_op_from_name(std::string_view s) {
  const auto* row = std::ranges::find(kLoopOps, s, &LoopOpRow::text);
  if (row == std::end(kLoopOps)) return std::nullopt;
  return static_cast<LoopOp>(row - kLoopOps);
}

std::string_view name(ReduceKind k) { return kReduceKinds[static_cast<size_t>(k)]; }

std::optional<ReduceKind> reduce_from_name(std::string_view s) {
  const auto* row = std::ranges::find(kReduceKinds, s);
  if (row == std::end(kReduceKinds)) return std::nullopt;
  return static_cast<ReduceKind>(row - kReduceKinds);
}

}  // namespace oxy::ops
