// Symbolic 64-bit integers: sizes, strides and index expressions of every IR.
//
// Semantics: mathematical integers (no wrap-around; a constant that leaves 62 bits is an InternalError). floordiv and
// mod round toward minus infinity, as Python's // and %. Expressions are immutable and hash-consed in the ExprPool of
// one compilation: equal canonical forms have equal handles. A constant carries its value and belongs to no pool.
// Construction simplifies: a sum is a sorted list of coefficient * product; constants fold; floordiv and mod use the
// ranges of the symbols. A pool is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace oxy::sym {

class ExprPool;
struct ExprNode;

// Inclusive bounds; INT64_MIN / INT64_MAX mean unbounded.
struct Range {
  int64_t lo = INT64_MIN;
  int64_t hi = INT64_MAX;
  friend bool operator==(const Range&, const Range&) = default;
};

enum class Kind : uint8_t { Const, Symbol, Add, Mul, FloorDiv, Mod, Min, Max };

// Eight bytes: a tagged constant or a pointer to a node of a pool. Cheap to copy, compare and hash.
class Expr {
 public:
  constexpr Expr() : Expr(int64_t{0}) {}
  constexpr Expr(int64_t v) : bits_((static_cast<uint64_t>(v) << 1) | 1) {}  // NOLINT: a number is an expression
  constexpr Expr(int v) : Expr(static_cast<int64_t>(v)) {}                   // NOLINT
  explicit Expr(const ExprNode* n) : bits_(reinterpret_cast<uint64_t>(n)) {}

  bool is_const() const { return bits_ & 1; }
  bool is_const(int64_t v) const { return *this == Expr(v); }
  // The value of a constant; undefined otherwise.
  int64_t value() const { return static_cast<int64_t>(bits_) >> 1; }
  const ExprNode* node() const { return reinterpret_cast<const ExprNode*>(bits_); }
  Kind kind() const;
  // Of a Symbol: its name and position in the pool.
  const std::string& name() const;
  uint32_t symbol_index() const;
  // Operands: Add and Mul are n-ary (a Mul starts with its constant coefficient, where that is not 1), the rest binary.
  const std::vector<Expr>& operands() const;

  friend bool operator==(Expr a, Expr b) { return a.bits_ == b.bits_; }
  // A fixed order for sorting (creation order, constants first): deterministic within a compilation.
  friend bool operator<(Expr a, Expr b);
  uint64_t bits() const { return bits_; }

 private:
  uint64_t bits_;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr floordiv(Expr a, Expr b);
Expr ceildiv(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);

// What the ranges of the symbols say about an expression.
Range range_of(Expr e);
// True or false where it is certain from ranges and structure, nothing where it depends.
std::optional<bool> known_equal(Expr a, Expr b);
std::optional<bool> known_less(Expr a, Expr b);
// e is a multiple of k for every value of its symbols (k > 0). False means "not known".
bool divisible(Expr e, int64_t k);
bool contains(Expr e, Expr symbol);
void collect_symbols(Expr e, std::vector<Expr>& out);  // appends each symbol once, in order of first appearance

// Coefficient of `symbol` where e = coefficient * symbol + rest and neither depends on the symbol; else nothing.
std::optional<std::pair<Expr, Expr>> linear_in(Expr e, Expr symbol);

// Replaces symbols: `f` gives the replacement, or the symbol itself.
Expr substitute(Expr e, const std::function<Expr(Expr symbol)>& f);
// The value for given values of the symbols.
int64_t evaluate(Expr e, const std::function<int64_t(Expr symbol)>& f);
// The value at the symbols' hints (InternalError for a symbol without a hint).
int64_t hint(Expr e);

// Text: `2*s0 + p1`, `(p0 + 3)//4`, `p0 % 8`, `min(a, b)`, `max(a, b)`. parse(print(e)) == e in the same pool.
std::string print(Expr e);
Expr parse(std::string_view text, ExprPool& pool);  // unknown names are an UserError

class ExprPool {
 public:
  ExprPool();
  ~ExprPool();
  ExprPool(const ExprPool&) = delete;
  ExprPool& operator=(const ExprPool&) = delete;

  // The symbol of this name, made on first use. A second call with another range is an InternalError.
  Expr symbol(std::string_view name, Range range, std::optional<int64_t> hint = std::nullopt);
  std::optional<Expr> find_symbol(std::string_view name) const;
  size_t symbol_count() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

inline void append(std::string& out, Expr e) { out.append(print(e)); }

}  // namespace oxy::sym

template <>
struct std::hash<oxy::sym::Expr> {
  size_t operator()(oxy::sym::Expr e) const { return std::hash<uint64_t>()(e.bits() * 0x9E3779B97F4A7C15ull); }
};
