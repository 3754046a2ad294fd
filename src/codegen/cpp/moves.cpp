// Kernels whose vectors fill registers with elements of one or two bytes, where those of other
// kernels have a lane for each four bytes: of elements that are only moved (bools are bytes then),
// and of bytes that are compared and combined.
#include "codegen/cpp/kernel_writer.h"

namespace oxy::codegen::cpp {

namespace {

class MoveFinder {
 public:
  explicit MoveFinder(const schedule::Kernel& kernel) : made_by_(kernel.value_count) {}

  // Bytes of the elements; 0 where lanes do anything else.
  int run(const Block& body) { return block(body, 0) ? bytes_ : 0; }

 private:
  bool block(const Block& body, Expr lane) {
    return std::ranges::all_of(body, [&](const Stmt& s) {
      if (const For* loop = std::get_if<For>(&s.v)) {
        if (is_tiled(*loop) || loop->kind == ForKind::VectorReduce) return false;
        return block(loop->body, loop->kind == ForKind::Vector ? loop->var : lane);
      }
      const Compute* c = std::get_if<Compute>(&s.v);
      return c ? compute(*c, lane) : std::holds_alternative<Hint>(s.v);
    });
  }

  bool compute(const Compute& c, Expr lane) {
    if (schedule::sets_value(c.op)) made_by_[c.value] = &c;
    // What else reads a bool is not meant to see a byte.
    if (!moves(c) && std::ranges::any_of(c.args, [&](uint32_t a) {
          return differs_.contains(a) || (is_moved(a) && made_by_[a]->dtype == DType::B8);
        }))
      return false;
    if (lane.is_const()) return true;
    const bool moves_along = sym::contains(c.index, lane);
    if (!moves(c)) return !moves_along;
    // A number, or another element, is what is stored, and what is loaded where a mask does not
    // hold; masks are those of all lanes.
    const bool masked = c.op == LoopOp::Load && !c.args.empty();
    if (masked && differs_.contains(c.args[0])) return false;
    if (!c.args.empty() && !is_moved(c.args.back())) return false;
    const auto along = sym::linear_in(c.index, lane);
    if (!along || !(along->first.is_const(0) || along->first.is_const(1))) return false;
    if (c.op == LoopOp::Load && (moves_along || masked)) differs_.insert(c.value);
    const int bytes = ir::byte_size(c.dtype);
    if (bytes_ == 0) bytes_ = bytes;
    return bytes_ == bytes && bytes <= 2;
  }

  static bool moves(const Compute& c) { return c.op == LoopOp::Load || c.op == LoopOp::Store; }
  bool is_moved(uint32_t value) const {
    const Compute* c = made_by_[value];
    return c && (c->op == LoopOp::Load || c->op == LoopOp::Const);
  }

  std::vector<const Compute*> made_by_;   // by value
  std::unordered_set<uint32_t> differs_;  // values that differ by lane
  int bytes_ = 0;
};

void bools_as_bytes(Block& body) {
  for (Stmt& s : body) {
    if (For* loop = std::get_if<For>(&s.v)) bools_as_bytes(loop->body);
    Compute* c = std::get_if<Compute>(&s.v);
    if (c && c->dtype == DType::B8 &&
        schedule::is_any(c->op, LoopOp::Load, LoopOp::Store, LoopOp::Const))
      c->dtype = DType::U8;
  }
}

bool keeps_bytes(const Compute& c, Expr lane) {
  if (ir::byte_size(c.dtype) != 1) return false;
  if (c.op == LoopOp::Load || c.op == LoopOp::Store) {
    const bool masked = c.op == LoopOp::Load && !c.args.empty();
    if (masked || lane.is_const()) return !masked;
    const auto along = sym::linear_in(c.index, lane);
    return along && (along->first.is_const(0) || along->first.is_const(1));
  }
  return schedule::is_any(c.op, LoopOp::Const, LoopOp::Eq, LoopOp::Ne, LoopOp::Lt, LoopOp::Le,
                          LoopOp::Gt, LoopOp::Ge, LoopOp::And, LoopOp::Or, LoopOp::Xor, LoopOp::Not,
                          LoopOp::Where, LoopOp::Max, LoopOp::Min, LoopOp::Add, LoopOp::Sub,
                          LoopOp::Neg, LoopOp::Cast, LoopOp::Bitcast);
}

bool keeps_bytes(const Block& body, Expr lane) {
  return std::ranges::all_of(body, [&](const Stmt& s) {
    if (const For* loop = std::get_if<For>(&s.v)) {
      if (is_tiled(*loop) || loop->kind == ForKind::VectorReduce) return false;
      return keeps_bytes(loop->body, loop->kind == ForKind::Vector ? loop->var : lane);
    }
    const Compute* c = std::get_if<Compute>(&s.v);
    return c ? keeps_bytes(*c, lane) : std::holds_alternative<Hint>(s.v);
  });
}

}  // namespace

bool combines_bytes(const schedule::Kernel& kernel) { return keeps_bytes(kernel.body, 0); }

std::optional<NarrowMoves> find_narrow_moves(const schedule::Kernel& kernel) {
  const int bytes = MoveFinder(kernel).run(kernel.body);
  if (bytes == 0) return std::nullopt;
  NarrowMoves moves{bytes, kernel};
  if (bytes == 1) bools_as_bytes(moves.kernel.body);
  return moves;
}

}  // namespace oxy::codegen::cpp
