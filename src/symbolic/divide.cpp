// floordiv and mod by a constant, and the entry points of both. The laws are listed in expr.h.
#include "symbolic/divide.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "symbolic/interval.h"

namespace oxy::sym {
namespace {

// x = k * quotient + rest.
struct Split {
  Sum quotient, rest;
};

// Moves the multiples of k out of every coefficient (truncating) and of the constant (flooring).
Split split_multiples(const Sum& x, int64_t k) {
  Split r;
  r.quotient.constant = floor_divide(x.constant, k);
  r.rest.constant = floor_mod(x.constant, k);
  for (const Term& t : x.terms) {
    if (int64_t q = t.coefficient / k) r.quotient.terms.push_back({q, t.product});
    if (int64_t c = t.coefficient % k) r.rest.terms.push_back({c, t.product});
  }
  return r;
}

// The t with range(x) inside [k*t, k*t + k), which is then x//k.
std::optional<int64_t> single_quotient(const Sum& x, int64_t k) {
  Range r = range_of_sum(x);
  if (r.lo == INT64_MIN || r.hi == INT64_MAX) return std::nullopt;
  int64_t t = floor_divide(r.lo, k);
  if (floor_divide(r.hi, k) != t) return std::nullopt;
  return t;
}

// Common divisors of k and of some coefficients, greatest first, all in (1, k).
SmallVector<int64_t, 8> partial_divisors(const Sum& x, int64_t k) {
  SmallVector<int64_t, 8> r;
  int64_t all = k;
  for (const Term& t : x.terms) {
    int64_t g = std::gcd(t.coefficient, k);
    all = std::gcd(all, g);
    r.push_back(g);
  }
  r.push_back(all);
  std::sort(r.begin(), r.end(), std::greater<>());
  r.truncate(static_cast<size_t>(std::unique(r.begin(), r.end()) - r.begin()));
  while (!r.empty() && r.back() == 1) r.truncate(r.size() - 1);
  return r;
}

// x = g * multiple + rest with 0 <= rest < g.
struct Part {
  int64_t g;
  Sum multiple, rest;
};

// Looks for a g that divides k and some terms, such that the other terms stay below g.
std::optional<Part> find_part(const Sum& x, int64_t k) {
  for (int64_t g : partial_divisors(x, k)) {
    Part p{g, {}, {}};
    p.rest.constant = x.constant;
    for (const Term& t : x.terms) {
      if (t.coefficient % g == 0) {
        p.multiple.terms.push_back({t.coefficient / g, t.product});
      } else {
        p.rest.terms.push_back(t);
      }
    }
    if (std::optional<int64_t> t = single_quotient(p.rest, g)) {
      p.multiple.constant = *t;
      p.rest.constant -= g * *t;
      return p;
    }
  }
  return std::nullopt;
}

// In a dividend modulo k, c * (x % m) may be c * x where k divides c * m.
bool drop_inner_mods(ExprPool::Impl& pool, Sum& x, int64_t k) {
  for (const Term& t : x.terms) {
    std::span<const Expr> factors = factors_of(t.product);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (factors[i].kind() != Kind::Mod) continue;
      std::span<const Expr> ops = factors[i].operands();
      if (!ops[1].is_const()) continue;
      int64_t g = std::gcd(t.coefficient, k);
      if (ops[1].value() % (k / g) != 0) continue;
      Expr others = without(pool, t.product, i);
      Sum inner = to_sum(Expr(t.coefficient) * others * ops[0]);
      Sum old;
      old.terms.push_back(t);
      x = add_scaled(add_scaled(x, old, -1), inner, 1);
      return true;
    }
  }
  return false;
}

// (x//a + c)//k and (x % (k*m))//k, where the dividend is one such atom.
std::optional<Expr> divide_division(const Sum& x, int64_t k) {
  if (x.terms.size() != 1 || x.terms[0].coefficient != 1) return std::nullopt;
  Expr atom = x.terms[0].product;
  if (atom.kind() != Kind::FloorDiv && atom.kind() != Kind::Mod) return std::nullopt;
  Expr inner = atom.operands()[0], d = atom.operands()[1];
  if (atom.kind() == Kind::Mod) {
    if (x.constant != 0 || !d.is_const() || d.value() % k != 0) return std::nullopt;
    return mod(floordiv(inner, k), d.value() / k);
  }
  if (!d.is_const()) return x.constant == 0 ? std::optional(floordiv(inner, d * k)) : std::nullopt;
  int64_t product;
  if (__builtin_mul_overflow(d.value(), k, &product) || product > Expr::kMaxConst) return {};
  return floordiv(inner + d * x.constant, product);
}

Expr floordiv_by_constant(ExprPool::Impl& pool, Expr a, int64_t k) {
  Sum x = to_sum(a);
  if (std::optional<int64_t> t = single_quotient(x, k)) return *t;
  Split s = split_multiples(x, k);
  auto with_quotient = [&](Expr e) {
    s.quotient = add_scaled(s.quotient, to_sum(e), 1);
    return build(pool, s.quotient);
  };
  if (std::optional<int64_t> t = single_quotient(s.rest, k)) return with_quotient(*t);
  if (std::optional<Part> p = find_part(s.rest, k)) {
    return with_quotient(floordiv(build(pool, p->multiple), k / p->g));
  }
  if (std::optional<Expr> e = divide_division(s.rest, k)) return with_quotient(*e);
  if (recombine_all(pool, s.rest)) return with_quotient(floordiv(build(pool, s.rest), k));
  Expr ops[2] = {build(pool, s.rest), k};
  return with_quotient(pool.intern(Kind::FloorDiv, ops));
}

Expr mod_by_constant(ExprPool::Impl& pool, Expr a, int64_t k) {
  Sum x = to_sum(a);
  auto minus = [&](Sum& from, int64_t multiple) {
    from.constant = checked_add(from.constant, -checked_multiply(multiple, k));
    return build(pool, from);
  };
  if (std::optional<int64_t> t = single_quotient(x, k)) return minus(x, *t);
  Sum rest = split_multiples(x, k).rest;
  if (std::optional<int64_t> t = single_quotient(rest, k)) return minus(rest, *t);
  if (drop_inner_mods(pool, rest, k)) return mod(build(pool, rest), k);
  if (std::optional<Part> p = find_part(rest, k)) {
    Expr high = mod(build(pool, p->multiple), k / p->g);
    Sum sum = add_scaled(p->rest, to_sum(high), p->g);
    return build(pool, sum);
  }
  if (recombine_all(pool, rest)) return mod(build(pool, rest), k);
  Expr ops[2] = {build(pool, rest), k};
  return pool.intern(Kind::Mod, ops);
}

}  // namespace

Expr floordiv(Expr a, Expr b) {
  OXY_CHECK(!b.is_const(0), "division by zero");
  if (b.is_const(1)) return a;
  if (b.is_const() && b.value() < 0) return floordiv(-a, -b);
  if (a.is_const() && b.is_const()) return floor_divide(a.value(), b.value());
  if (a.is_const(0)) return 0;
  return remember(Kind::FloorDiv, a, b, [&](ExprPool::Impl& pool) {
    return b.is_const() ? floordiv_by_constant(pool, a, b.value()) : floordiv_by_expr(pool, a, b);
  });
}

Expr mod(Expr a, Expr b) {
  OXY_CHECK(!b.is_const(0), "division by zero");
  if (b.is_const(1)) return 0;
  if (b.is_const() && b.value() < 0) return -mod(-a, -b);
  if (a.is_const() && b.is_const()) return floor_mod(a.value(), b.value());
  if (a.is_const(0)) return 0;
  return remember(Kind::Mod, a, b, [&](ExprPool::Impl& pool) {
    return b.is_const() ? mod_by_constant(pool, a, b.value()) : mod_by_expr(pool, a, b);
  });
}

Expr ceildiv(Expr a, Expr b) {
  if (range_of(b).lo >= 1) return floordiv(a + b - 1, b);
  return -floordiv(-a, b);
}

}  // namespace oxy::sym
