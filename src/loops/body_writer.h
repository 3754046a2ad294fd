// Appends instructions to a loop body: equal instructions are one, constants fold, identities
// vanish.
//
// Every rule keeps the value bit for bit: x*1, x/1 and x-0 are x, but x+0 stays (it turns -0 into
// 0), and a rounding f32 -> bf16 -> f32 stays unless the value is known to be representable.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::loops {

class BodyWriter {
 public:
  explicit BodyWriter(Body& body) : body_(body) {}

  // The instruction that holds the result: a new one, or an earlier one that equals it.
  uint32_t emit(Inst inst);
  uint32_t emit_const(double number, DType dtype);  // any dtype; integers take the integral part
  const Inst& inst(uint32_t id) const { return body_[id]; }
  Body& body() { return body_; }

 private:
  std::optional<uint32_t> simplify(const Inst& inst);
  std::optional<uint32_t> fold_constants(const Inst& inst);
  std::optional<uint32_t> fold_cast(const Inst& inst);
  std::optional<uint32_t> fold_comparison(const Inst& inst);
  std::optional<uint32_t> apply_identity(const Inst& inst);
  std::optional<uint32_t> fold_function(const Inst& inst);
  struct TwoValued {
    uint32_t mask, held, other;
  };
  // A value that is one of two invariants.
  std::optional<TwoValued> two_valued(uint32_t id);
  bool is_invariant(uint32_t id);  // a constant, or computed of constants alone
  bool is_const(uint32_t id, double value) const;
  bool exact_in(uint32_t id, DType half) const;
  std::optional<int64_t> largest_integer(uint32_t id, int depth = 0) const;

  Body& body_;
  std::unordered_multimap<uint64_t, uint32_t> known_;  // by hash of the instruction
  std::vector<bool> invariant_;  // of the first instructions, as far as it was asked
};

bool operator==(const Inst& a, const Inst& b);
uint64_t hash_of(const Inst& i);
// Removes the checks before instruction `end`, for a copy of a body whose original has made them.
void remove_checks(Body& body, size_t end);
// Removes instructions that no store, check or reduction of the body needs.
void remove_dead(Body& body);

}  // namespace oxy::loops
