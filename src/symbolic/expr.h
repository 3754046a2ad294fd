// Symbolic 64-bit integers: sizes, strides and index expressions of every IR.
//
// Semantics: mathematical integers (no wrap-around; a constant beyond 62 bits is an InternalError).
// floordiv and mod round toward minus infinity, as Python's // and %. A division by zero is
// undefined: evaluate() raises, and a rule may remove it. Expressions are immutable and hash-consed
// in the ExprPool of one compilation: equal canonical forms have equal handles. A constant carries
// its value and belongs to no pool. A pool is used by one thread at a time.
//
// Canonical form. Every expression is a sum of products:
//   sum     = constant + coefficient * product + ... products distinct, in operator< order,
//           coefficients not 0
//   product = atom * atom * ...                        sorted; a sum is never a factor (products
//                                                      distribute)
//   atom    = symbol | sum // sum | sum % sum | min(a, b) | max(a, b) | root(sum, 2)
//           | scale(sum, factor) | power(b, sum) | digits(sum, b) | bitand(a, b)
// root(x, 2) is the square root rounded down, 0 of a negative number. scale(x, c) is Python's
// math.floor(x * c) for a float c of less than 2 and not below 0: both factors and the product are
// doubles. Its second operand is the constant that has c's bits. scale(x, 1/d) is math.floor(x / d)
// for a float d from 1 on, of less than 2: its second operand has d's bits, negated.
// power(b, x) is b**x for a constant b from 2 on, rounded down: 0 of a negative x. digits(x, b) is
// how many digits |x| has in base b, 0 of 0: with 2 Python's bit_length. bitand is Python's & (of
// two's complements without an end); what | and ^ give is a sum with it.
// Constants fold. A constant divisor is positive; no coefficient of its dividend reaches it in
// magnitude, and the dividend's constant lies in [0, divisor). min and max are left-nested over
// sorted operands, none of which another one is known to decide. The exponent of a power is 0 at
// least, where its range says how far that is. bitand has sorted operands; with a constant of few
// runs of set bits it is a sum of remainders.
//
// Laws (each holds for all integers that the ranges allow; k, m, g positive constants):
//   (k*q + r)//k = q + r//k                  (k*q + r) % k = r % k
//   r//k = t, r % k = r - k*t                where range(r) lies in [k*t, k*t + k)
//   (g*y + r)//(g*m) = (y + t)//m            (g*y + r) % (g*m) = g*((y + t) % m) + r - g*t where
//                                            range(r)//g = t
//   (x//k + c)//m = (x + k*c)//(k*m)         (x % (k*m))//k = (x//k) % m
//   (y + c*(x % m)) % k = (y + c*x) % k      where k divides c*m
//   k*(x//k) + x % k = x                     x - k*(x//k) = x % k          x - x % k = k*(x//k)
//   a divisor that is a symbolic product or sum divides out of the terms that contain it; common
//   factors cancel
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

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

// What is known of a symbol's value. Hinted: what it is in the call that a graph was recorded with,
// by which questions are answered. Unbacked: nothing may be decided by it; its hint is a guess that
// speed alone may depend on. Data: the same, and a call knows it only when one of its steps has
// run. Of an expression: the last of these that one of its symbols has.
enum class Origin : uint8_t { Hinted, Unbacked, Data };

enum class Kind : uint8_t {
  Const,
  Symbol,
  Add,
  Mul,
  FloorDiv,
  Mod,
  Min,
  Max,
  Root,
  Scale,
  Power,
  Digits,
  BitAnd
};

// Eight bytes: a tagged constant or a pointer to a node of a pool. Cheap to copy, compare and hash.
class Expr {
 public:
  // Constants reach from -kMaxConst - 1 to kMaxConst.
  static constexpr int64_t kMaxConst = INT64_MAX / 2;

  constexpr Expr() : bits_(1) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  constexpr Expr(T v)
      : bits_((static_cast<uint64_t>(v) << 1) | 1) {  // NOLINT: a number is an expression
    if (!fits(v)) [[unlikely]]
      constant_overflow();
  }
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
  // Operands: Add and Mul are n-ary (an Add starts with its constant, where that is not 0; a Mul
  // with its constant coefficient, where that is not 1), the others binary; a Const or Symbol has
  // none.
  std::span<const Expr> operands() const;

  friend bool operator==(Expr a, Expr b) { return a.bits_ == b.bits_; }
  // A fixed order for sorting, by structure: constants, symbols in the order of their creation,
  // then the rest. It does not depend on the order in which expressions were made, so texts are
  // stable.
  friend bool operator<(Expr a, Expr b);
  uint64_t bits() const { return bits_; }

 private:
  template <std::integral T>
  static constexpr bool fits(T v) {
    return std::cmp_less_equal(v, kMaxConst) && std::cmp_greater_equal(v, -kMaxConst - 1);
  }
  [[noreturn]] static void constant_overflow();

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
// The k-th root of x, rounded down: of k = 2 alone.
Expr root(Expr x, Expr k);
inline Expr square_root(Expr x) { return root(x, 2); }
Expr scale(Expr x, double factor);
Expr scale_down(Expr x, double divisor);
Expr scale_by_bits(Expr x, Expr bits);
Expr power(Expr base, Expr exponent);
Expr digits(Expr x, Expr base);
inline Expr bit_length(Expr x) { return digits(x, 2); }
Expr bit_and(Expr a, Expr b);
Expr bit_or(Expr a, Expr b);
Expr bit_xor(Expr a, Expr b);

// Of a kind with operands.
Expr combine(Kind kind, Expr a, Expr b);

inline Expr& operator+=(Expr& a, Expr b) { return a = a + b; }
inline Expr& operator-=(Expr& a, Expr b) { return a = a - b; }
inline Expr& operator*=(Expr& a, Expr b) { return a = a * b; }

// What the ranges of the symbols say about an expression.
Range range_of(Expr e);
Origin origin_of(Expr e);
// True or false where it is certain from ranges and structure, nothing where it depends.
std::optional<bool> known_equal(Expr a, Expr b);
std::optional<bool> known_less(Expr a, Expr b);
// The same without asking anybody to decide: nothing becomes a fact.
std::optional<bool> certain_equal(Expr a, Expr b);
std::optional<bool> certain_less(Expr a, Expr b);
// The value of e, where there must be one to go on (how many results there are): deciding it is
// deciding that e has the value.
std::optional<int64_t> known_value(Expr e);
// As known_equal and known_less, for questions whose answer is of no matter where a size without a
// hint is 0 or 1 (how memory is laid out, in which order runs are compared): then they are answered
// for larger ones.
std::optional<bool> layout_equal(Expr a, Expr b);
std::optional<bool> layout_less(Expr a, Expr b);
// e is a multiple of k for every value of its symbols (k > 0). False means "not known".
bool divisible(Expr e, int64_t k);
// `part`, a symbol or an expression of some, is e or stands in it as an operand of whatever depth.
bool contains(Expr e, Expr part);
// Appends each symbol once, in order of first appearance.
void collect_symbols(Expr e, std::vector<Expr>& out);

// Coefficient of `symbol` where e = coefficient * symbol + rest and neither depends on the symbol;
// else nothing.
std::optional<std::pair<Expr, Expr>> linear_in(Expr e, Expr symbol);

// Replaces symbols: `f` gives the replacement, or the symbol itself.
Expr substitute(Expr e, const std::function<Expr(Expr symbol)>& f);
// The value for given values of the symbols.
int64_t evaluate(Expr e, const std::function<int64_t(Expr symbol)>& f);
// What a symbol stands for in the call that a graph was recorded with: choices are made for it.
std::optional<int64_t> symbol_hint(Expr symbol);
// The value at the symbols' hints (InternalError for a symbol without a hint).
int64_t hint(Expr e);

// Text: `2*s0 + p1`, `(p0 + 3)//4`, `p0 % 8`, `min(a, b)`, `power(2, s0)`. parse(print(e)) == e in
// the same pool.
std::string print(Expr e);
Expr parse(std::string_view text, ExprPool& pool);  // unknown names are an UserError

// Who answers where known_equal, known_less and known_value of a pool's expressions are uncertain,
// while one is set; nothing where it does not know either.
class Decider {
 public:
  virtual ~Decider() = default;
  virtual std::optional<bool> equal(Expr a, Expr b) = 0;
  virtual std::optional<bool> less(Expr a, Expr b) = 0;
  virtual std::optional<int64_t> value(Expr e) = 0;
  // What is certain; asking does not make it so.
  virtual std::optional<bool> certain_equal(Expr a, Expr b) = 0;
  virtual std::optional<bool> certain_less(Expr a, Expr b) = 0;
};

class ExprPool {
 public:
  ExprPool();
  ~ExprPool();
  ExprPool(const ExprPool&) = delete;
  ExprPool& operator=(const ExprPool&) = delete;

  // The symbol of this name, made on first use. A second call with another range is an
  // InternalError; its hint is the new one from then on.
  Expr symbol(std::string_view name, Range range, std::optional<int64_t> hint = std::nullopt,
              Origin origin = Origin::Hinted);
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
  size_t operator()(oxy::sym::Expr e) const {
    return std::hash<uint64_t>()(e.bits() * 0x9E3779B97F4A7C15ull);
  }
};
