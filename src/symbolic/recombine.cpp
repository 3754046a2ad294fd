// The laws that join a quotient and a remainder of the same dividend inside a sum:
//   k*(x//k) + x % k = x      x - k*(x//k) = x % k      x - x % k = k*(x//k)
//   y//n - m*(y//(n*m)) = (y//n) % m
// each times a common product. Every rewrite leaves fewer atoms, so they end.
#include "symbolic/sum.h"

namespace oxy::sym {
namespace {

// One atom x//d or x%d of a term: term = coefficient * others * atom.
struct Division {
  int64_t coefficient;
  Expr others;  // the product of the other factors
  Expr atom, x, d;
};

// Takes all of `part` but its constant away from s, if every term is there with the very same
// coefficient. The atom's own term may not serve as one of them.
bool take(Sum& s, const Sum& part) {
  if (part.terms.empty()) return false;
  for (const Term& t : part.terms) {
    if (coefficient_of(s, t.product) != t.coefficient) return false;
  }
  for (const Term& t : part.terms) {
    for (size_t i = 0; i < s.terms.size(); ++i) {
      if (s.terms[i].product == t.product) {
        s.terms.erase(i);
        break;
      }
    }
  }
  s.constant = checked_add(s.constant, -part.constant);
  return true;
}

// Replaces `pattern` (which must be in s up to its constant) by `replacement`.
bool replace(Sum& s, const Sum& pattern, Expr replacement) {
  Sum rest = s;
  if (!take(rest, pattern)) return false;
  s = add_scaled(rest, to_sum(replacement), 1);
  return true;
}

// a + scale * b as it stands: operator+ would apply these very laws.
Sum raw_sum(Expr a, Expr b, int64_t scale) { return add_scaled(to_sum(a), to_sum(b), scale); }

// c*r*(x % d), with the quotient or with x itself beside it.
bool recombine_mod(Sum& s, const Division& m) {
  Expr scale = Expr(m.coefficient) * m.others;
  Expr quotient = scale * m.d * floordiv(m.x, m.d);
  Expr remainder = scale * m.atom;
  Expr dividend = scale * m.x;
  if (replace(s, raw_sum(quotient, remainder, 1), dividend)) return true;
  // Without a term of its own the dividend would be found in every sum.
  if (dividend.is_const()) return false;
  return replace(s, raw_sum(remainder, dividend, -1), -quotient);
}

// c*r*d*(x//d), with -c*r*x beside it or with a quotient y//n where x//d = (y//n)//(d/n).
bool recombine_floordiv(ExprPool::Impl& pool, Sum& s, const Division& q) {
  if (!q.d.is_const()) return false;
  int64_t d = q.d.value();
  Expr quotient = Expr(q.coefficient) * q.others * q.atom;
  if (q.coefficient % d == 0) {
    Expr scale = Expr(-(q.coefficient / d)) * q.others;
    if (replace(s, raw_sum(quotient, scale * q.x, 1), scale * mod(q.x, q.d))) return true;
  }
  for (const Term& t : s.terms) {
    std::span<const Expr> factors = factors_of(t.product);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (factors[i].kind() != Kind::FloorDiv) continue;
      Expr n = factors[i].operands()[1];
      if (!n.is_const() || n == q.d || d % n.value() != 0) continue;
      int64_t m = d / n.value();
      if (q.coefficient % m != 0 || t.coefficient != -(q.coefficient / m)) continue;
      if (without(pool, t.product, i) != q.others || floordiv(factors[i], m) != q.atom) continue;
      Expr scale = Expr(t.coefficient) * q.others;
      return replace(s, raw_sum(quotient, scale * factors[i], 1), scale * mod(factors[i], m));
    }
  }
  return false;
}

}  // namespace

bool recombine(ExprPool::Impl& pool, Sum& s) {
  for (const Term& t : s.terms) {
    std::span<const Expr> factors = factors_of(t.product);
    for (size_t i = 0; i < factors.size(); ++i) {
      Kind kind = factors[i].kind();
      if (kind != Kind::FloorDiv && kind != Kind::Mod) continue;
      std::span<const Expr> ops = factors[i].operands();
      Division division{t.coefficient, without(pool, t.product, i), factors[i], ops[0], ops[1]};
      bool done =
          kind == Kind::Mod ? recombine_mod(s, division) : recombine_floordiv(pool, s, division);
      if (done) return true;
    }
  }
  return false;
}

}  // namespace oxy::sym
