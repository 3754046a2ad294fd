// What an expression is inside: hash-consed nodes in the arena of a pool; intervals; and sums taken
// apart, the form in which the rules work. Private to src/symbolic.
#pragma once

#include <bit>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "support/check.h"
#include "support/small_vector.h"
#include "symbolic/expr.h"

namespace oxy::sym {

class ShapeFacts;

// ---- intervals: bounds that may be unbounded, rounded outward. The exact result of any members
// lies in the result.

using Wide = __int128;
inline constexpr Wide kInfinity = static_cast<Wide>(1) << 120;

inline Wide widen(int64_t bound) {
  if (bound == INT64_MIN) return -kInfinity;
  if (bound == INT64_MAX) return kInfinity;
  return bound;
}

inline Range narrow(Wide lo, Wide hi) {
  Range r;
  r.lo = lo <= INT64_MIN ? INT64_MIN : static_cast<int64_t>(std::min<Wide>(lo, INT64_MAX - 1));
  r.hi = hi >= INT64_MAX ? INT64_MAX : static_cast<int64_t>(std::max<Wide>(hi, INT64_MIN + 1));
  return r;
}

inline Wide times(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  bool infinite = a == kInfinity || a == -kInfinity || b == kInfinity || b == -kInfinity;
  if (infinite) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return a * b;  // both fit 64 bits
}

template <class T>
T floor_divide(T a, T b) {
  T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

inline int64_t floor_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// a // b where b > 0 and either may be infinite.
inline Wide divide_bound(Wide a, Wide b) {
  if (a == kInfinity || a == -kInfinity) return a;
  if (b == kInfinity) return a < 0 ? -1 : 0;
  return floor_divide(a, b);
}

inline Range add_ranges(Range a, Range b) {
  return narrow(widen(a.lo) + widen(b.lo), widen(a.hi) + widen(b.hi));
}

inline Range multiply_ranges(Range a, Range b) {
  Wide c[4] = {times(widen(a.lo), widen(b.lo)), times(widen(a.lo), widen(b.hi)),
               times(widen(a.hi), widen(b.lo)), times(widen(a.hi), widen(b.hi))};
  return narrow(*std::min_element(c, c + 4), *std::max_element(c, c + 4));
}

inline Range floordiv_range(Range x, Range d) {
  if (d.lo <= 0) return {};
  Wide lo = widen(x.lo), hi = widen(x.hi);
  return narrow(divide_bound(lo, widen(lo < 0 ? d.lo : d.hi)),
                divide_bound(hi, widen(hi < 0 ? d.hi : d.lo)));
}

// The remainder lies between 0 and the divisor, on the divisor's side.
inline Range mod_range(Range x, Range d) {
  Wide lo = std::min<Wide>(0, widen(d.lo) + 1), hi = std::max<Wide>(0, widen(d.hi) - 1);
  if (d.lo > 0 && x.lo >= 0) hi = std::min(hi, widen(x.hi));
  return narrow(lo, hi);
}

// The square root, rounded down; of a negative number 0.
inline int64_t integer_root(int64_t x) {
  if (x <= 0) return 0;
  auto r = static_cast<int64_t>(std::sqrt(static_cast<double>(x)));
  while (static_cast<Wide>(r) * r > x) --r;
  while (static_cast<Wide>(r + 1) * (r + 1) <= x) ++r;
  return r;
}

inline Range root_range(Range x) {
  return {integer_root(x.lo), x.hi == INT64_MAX ? INT64_MAX : integer_root(x.hi)};
}

// math.floor(x * c) of doubles, of the bits of c, or math.floor(x / d), of those of d, negated.
inline double factor_of_bits(int64_t bits) { return std::bit_cast<double>(std::abs(bits)); }
inline int64_t scaled(int64_t x, int64_t bits) {
  const auto d = static_cast<double>(x);
  const double y = std::floor(bits < 0 ? d / factor_of_bits(bits) : d * factor_of_bits(bits));
  OXY_CHECK(std::abs(y) < static_cast<double>(Expr::kMaxConst), "a scaled number leaves 62 bits");
  return static_cast<int64_t>(y);
}

// It grows with x.
inline Range scaled_range(Range x, int64_t bits) {
  const auto inside = [](int64_t end) {
    return end > -Expr::kMaxConst / 2 && end < Expr::kMaxConst / 2;
  };
  return {inside(x.lo) ? scaled(x.lo, bits) : INT64_MIN,
          inside(x.hi) ? scaled(x.hi, bits) : INT64_MAX};
}

// b**x, rounded down; nothing where it leaves 62 bits.
inline std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return 0;
  int64_t out = 1;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(out, base, &out) || out > Expr::kMaxConst) return std::nullopt;
  return out;
}

inline Range power_range(int64_t base, Range x) {
  return {integer_power(base, x.lo).value_or(Expr::kMaxConst),
          integer_power(base, x.hi).value_or(INT64_MAX)};
}

inline int64_t digit_count(int64_t x, int64_t base) {
  const auto b = static_cast<uint64_t>(base);
  int64_t n = 0;
  for (uint64_t rest = x < 0 ? -static_cast<uint64_t>(x) : static_cast<uint64_t>(x); rest != 0;
       rest /= b)
    ++n;
  return n;
}

// Unbounded numbers have 64 bits here, as those that are evaluated.
inline Range digits_range(Range x, int64_t base) {
  const int64_t lo = digit_count(x.lo, base), hi = digit_count(x.hi, base);
  return {x.lo <= 0 && x.hi >= 0 ? 0 : std::min(lo, hi), std::max(lo, hi)};
}

inline Range bit_and_range(Range x, Range y) {
  if (x.lo >= 0 && y.lo >= 0) return {0, std::min(x.hi, y.hi)};
  if (x.lo >= 0) return {0, x.hi};
  if (y.lo >= 0) return {0, y.hi};
  const int64_t hi = std::max(x.hi, y.hi), lo = std::min(x.lo, y.lo);
  const auto least = integer_power(2, digit_count(lo, 2));
  return {lo == INT64_MIN || !least ? INT64_MIN : -*least, std::max<int64_t>(hi, -1)};
}

// ---- nodes

struct SymbolInfo {
  std::string name;
  std::optional<int64_t> hint;
};

struct ExprNode {
  Kind kind;
  bool has_division = false;  // a FloorDiv or Mod is among the factors of its terms
  Origin origin = Origin::Hinted;
  uint32_t arity = 0;
  uint32_t symbol = 0;  // of a Symbol: its position in the pool
  uint64_t hash = 0;
  uint64_t symbol_mask = 0;  // bit i % 64 for each symbol i in it
  int64_t factor = 1;        // a constant that divides every value
  Range range;
  ExprPool::Impl* pool = nullptr;
  // The product without its constant coefficient (itself where there is none).
  const ExprNode* base = nullptr;
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
  Expr make_symbol(std::string_view name, Range range, std::optional<int64_t> hint, Origin origin);

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
  ShapeFacts* open_facts = nullptr;

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
  slot = {a.bits(), b.bits(), kind, result};
  return result;
}

// Order by structure: negative, zero or positive.
int compare(Expr a, Expr b);

// |a| and |b| at most 62 bits, as those of every constant are.
inline int64_t checked_add(int64_t a, int64_t b) { return Expr(a + b).value(); }
inline int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t r;
  OXY_CHECK(!__builtin_mul_overflow(a, b, &r), "constant overflow in ", a, " * ", b);
  return Expr(r).value();
}

// ---- sums: constant + sorted terms

struct Term {
  int64_t coefficient;
  Expr product;  // without a constant factor
};

struct Sum {
  int64_t constant = 0;
  SmallVector<Term, 8> terms;  // by product, no coefficient 0
};

using Factors = SmallVector<Expr, 8>;

Sum sum_of(std::span<const Expr> addends);
Sum to_sum(Expr e);
// The canonical expression of a sum; brings x//k and x%k that belong together back to x.
Expr build(ExprPool::Impl& pool, Sum& s);
Expr build_term(ExprPool::Impl& pool, Term t);

Sum add_scaled(const Sum& a, const Sum& b, int64_t scale);  // a + scale * b
Range range_of_sum(const Sum& s);
// The coefficient of a product in the sum, 0 where it is absent.
int64_t coefficient_of(const Sum& s, Expr product);

// The atoms of a product; empty for the product 1.
std::span<const Expr> factors_of(Expr product);
Expr build_product(ExprPool::Impl& pool, const Factors& factors);
Expr multiply_products(ExprPool::Impl& pool, Expr a, Expr b);
// The product without its factor at `skip`.
Expr without(ExprPool::Impl& pool, Expr product, size_t skip);

// The term divided by another one, where that is a term again.
std::optional<Term> divide_term(ExprPool::Impl& pool, Term t, Term by);

// Replaces terms by the laws on x//k and x%k; false where the sum stays as it is.
bool recombine_all(ExprPool::Impl& pool, Sum& s);

}  // namespace oxy::sym
