// What an expression is inside: hash-consed nodes in the arena of a pool. Private to src/symbolic.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/check.h"
#include "symbolic/decider.h"
#include "symbolic/expr.h"

namespace oxy::sym {

struct SymbolInfo {
  std::string name;
  std::optional<int64_t> hint;
};

struct ExprNode {
  Kind kind;
  bool has_division = false;  // a FloorDiv or Mod is among the factors of its terms
  uint32_t arity = 0;
  uint32_t symbol = 0;  // of a Symbol: its position in the pool
  uint64_t hash = 0;
  uint64_t symbol_mask = 0;  // bit i % 64 for each symbol i in it
  int64_t factor = 1;        // a constant that divides every value
  Range range;
  ExprPool::Impl* pool = nullptr;
  const ExprNode* base =
      nullptr;  // the product without its constant coefficient (itself where there is none)
  int64_t coefficient = 1;

  Expr handle;  // this node, so that a single factor can be seen as a list

  std::span<const Expr> self() const { return {&handle, 1}; }
  Expr* operand_data() { return reinterpret_cast<Expr*>(this + 1); }
  const Expr* operand_data() const { return reinterpret_cast<const Expr*>(this + 1); }
  std::span<const Expr> operands() const { return {operand_data(), arity}; }
};

struct ExprPool::Impl {
  Impl();

  // The node of this kind and these operands, which must be in canonical form.
  Expr intern(Kind kind, std::span<const Expr> operands);
  Expr make_symbol(std::string_view name, Range range, std::optional<int64_t> hint);

  // Results of recent operations; a slot is simply overwritten.
  struct Memo {
    uint64_t a = 0, b = 0;
    Kind kind = Kind::Const;
    Expr result;
  };
  Memo& memo(Kind kind, Expr a, Expr b) {
    uint64_t h = (a.bits() * 0x9E3779B97F4A7C15ull) ^ (b.bits() * 0xC2B2AE3D27D4EB4Full);
    return memo_[((h >> 32) + static_cast<uint64_t>(kind)) % kMemoSize];
  }

  std::deque<SymbolInfo> symbols;
  std::vector<Expr> symbol_exprs;
  std::unordered_map<std::string_view, uint32_t> by_name;
  Decider* decider = nullptr;

 private:
  static constexpr size_t kMemoSize = 2048;

  ExprNode* allocate(size_t operand_count);
  void grow();

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* next_ = nullptr;
  std::byte* chunk_end_ = nullptr;
  std::vector<ExprNode*> table_;  // open addressing, a power of two
  size_t count_ = 0;
  std::unique_ptr<Memo[]> memo_;
};

// The pool of two operands of which at least one is not a constant.
inline ExprPool::Impl& pool_of(Expr a, Expr b) {
  if (a.is_const()) return *b.node()->pool;
  OXY_CHECK(b.is_const() || a.node()->pool == b.node()->pool, "expressions of two pools");
  return *a.node()->pool;
}

// Looks `compute(pool)` up among the recent results first.
template <class F>
Expr remember(Kind kind, Expr a, Expr b, F&& compute) {
  ExprPool::Impl& pool = pool_of(a, b);
  ExprPool::Impl::Memo& slot = pool.memo(kind, a, b);
  if (slot.kind == kind && slot.a == a.bits() && slot.b == b.bits()) return slot.result;
  Expr result = compute(pool);
  pool.memo(kind, a, b) = {a.bits(), b.bits(), kind, result};
  return result;
}

// Order by structure: negative, zero or positive.
int compare(Expr a, Expr b);

inline Range range_of_operand(Expr e) {
  return e.is_const() ? Range{e.value(), e.value()} : e.node()->range;
}

// |a| and |b| at most 62 bits, as those of every constant are.
inline int64_t checked_add(int64_t a, int64_t b) { return Expr(a + b).value(); }
inline int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t r;
  OXY_CHECK(!__builtin_mul_overflow(a, b, &r), "constant overflow in ", a, " * ", b);
  return Expr(r).value();
}

}  // namespace oxy::sym
