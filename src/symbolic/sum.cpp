// Sums and products: +, -, * on the canonical form, and the laws that hold inside a sum.
#include "symbolic/node.h"

namespace oxy::sym {
namespace {

Term to_term(Expr e) { return {e.node()->coefficient, Expr(e.node()->base)}; }

bool has_division(const Sum& s) {
  return std::ranges::any_of(s.terms, [](Term t) { return t.product.node()->has_division; });
}

// Sorts by product and adds the coefficients of equal ones.
void collect_terms(Sum& s) {
  std::sort(s.terms.begin(), s.terms.end(),
            [](const Term& a, const Term& b) { return a.product < b.product; });
  size_t n = 0;
  for (const Term& t : s.terms) {
    if (n > 0 && s.terms[n - 1].product == t.product) {
      s.terms[n - 1].coefficient = checked_add(s.terms[n - 1].coefficient, t.coefficient);
    } else {
      if (n > 0 && s.terms[n - 1].coefficient == 0) --n;
      s.terms[n++] = t;
    }
  }
  if (n > 0 && s.terms[n - 1].coefficient == 0) --n;
  s.terms.truncate(n);
}

Expr multiply_sums(ExprPool::Impl& pool, const Sum& a, const Sum& b) {
  Sum r;
  r.constant = checked_multiply(a.constant, b.constant);
  for (const Term& x : a.terms) {
    for (const Term& y : b.terms) {
      r.terms.push_back({checked_multiply(x.coefficient, y.coefficient),
                         multiply_products(pool, x.product, y.product)});
    }
    if (b.constant) r.terms.push_back({checked_multiply(x.coefficient, b.constant), x.product});
  }
  if (a.constant)
    for (const Term& y : b.terms)
      r.terms.push_back({checked_multiply(y.coefficient, a.constant), y.product});
  collect_terms(r);
  return build(pool, r);
}

Expr multiply_by_constant(ExprPool::Impl& pool, Expr e, int64_t by) {
  if (by == 0) return 0;
  if (by == 1) return e;
  Sum s = to_sum(e);
  s.constant = checked_multiply(s.constant, by);
  for (Term& t : s.terms) t.coefficient = checked_multiply(t.coefficient, by);
  return build(pool, s);
}

}  // namespace

Sum sum_of(std::span<const Expr> addends) {
  Sum s;
  for (Expr op : addends)
    if (op.is_const())
      s.constant = op.value();
    else
      s.terms.push_back(to_term(op));
  return s;
}

Sum to_sum(Expr e) {
  return sum_of(e.kind() == Kind::Add ? e.operands() : std::span<const Expr>(&e, 1));
}

Expr build_term(ExprPool::Impl& pool, Term t) {
  if (t.coefficient == 0) return 0;
  if (t.coefficient == 1) return t.product;
  Factors ops;
  ops.push_back(t.coefficient);
  ops.append(factors_of(t.product));
  return pool.intern(Kind::Mul, ops);
}

namespace {

// The laws that join a quotient and a remainder of the same dividend inside a sum:
//   k*(x//k) + x % k = x      x - k*(x//k) = x % k      x - x % k = k*(x//k)
//   y//n - m*(y//(n*m)) = (y//n) % m
// each times a common product. Every rewrite leaves fewer atoms, so they end.

// One atom x//d or x%d of a term: term = coefficient * others * atom.
struct Division {
  int64_t coefficient;
  Expr others;  // the product of the other factors
  Expr atom, x, d;
};

// Replaces `pattern` by `replacement` where every term of it is there with the very same
// coefficient; its constant need not be. The atom's own term may not serve as one of them.
bool replace(Sum& s, const Sum& pattern, Expr replacement) {
  auto there = [&](const Term& t) { return coefficient_of(s, t.product) == t.coefficient; };
  if (pattern.terms.empty() || !std::ranges::all_of(pattern.terms, there)) return false;
  s = add_scaled(add_scaled(s, pattern, -1), to_sum(replacement), 1);
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

// One of them, on one pair of terms; false where none applies.
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

}  // namespace

bool recombine_all(ExprPool::Impl& pool, Sum& s) {
  if (!has_division(s)) return false;
  bool changed = false;
  while (s.terms.size() > 1 && recombine(pool, s)) changed = true;
  return changed;
}

Expr build(ExprPool::Impl& pool, Sum& s) {
  recombine_all(pool, s);
  if (s.terms.empty()) return s.constant;
  if (s.terms.size() == 1 && s.constant == 0) return build_term(pool, s.terms[0]);
  SmallVector<Expr, 9> ops;
  if (s.constant) ops.push_back(s.constant);
  for (const Term& t : s.terms) ops.push_back(build_term(pool, t));
  return pool.intern(Kind::Add, ops);
}

Sum add_scaled(const Sum& a, const Sum& b, int64_t scale) {
  Sum r;
  r.constant = checked_add(a.constant, checked_multiply(b.constant, scale));
  size_t i = 0, j = 0;
  while (i < a.terms.size() && j < b.terms.size()) {
    const Term &x = a.terms[i], &y = b.terms[j];
    int order = compare(x.product, y.product);
    if (order < 0) {
      r.terms.push_back(x);
      ++i;
    } else if (order > 0) {
      r.terms.push_back({checked_multiply(y.coefficient, scale), y.product});
      ++j;
    } else {
      int64_t c = checked_add(x.coefficient, checked_multiply(y.coefficient, scale));
      if (c) r.terms.push_back({c, x.product});
      ++i, ++j;
    }
  }
  r.terms.append(std::span<const Term>(a.terms).subspan(i));
  for (; j < b.terms.size(); ++j)
    r.terms.push_back({checked_multiply(b.terms[j].coefficient, scale), b.terms[j].product});
  return r;
}

namespace {

Range range_of_terms(const Sum& s) {
  Range r{s.constant, s.constant};
  for (const Term& t : s.terms) {
    Range c{t.coefficient, t.coefficient};
    r = add_ranges(r, multiply_ranges(c, t.product.node()->range));
  }
  return r;
}

bool is_small(int64_t v) { return std::abs(v) < int64_t{1} << 20; }

// Beside terms of its dividend a quotient goes with them, as x - x//2 does: k times the sum is one
// of x and x % k in the place of x//k.
std::optional<Range> range_with_dividend(const Sum& s, const Term& quotient) {
  if (quotient.product.kind() != Kind::FloorDiv) return std::nullopt;
  const Expr x = quotient.product.operands()[0], d = quotient.product.operands()[1];
  if (!d.is_const() || d.value() < 2 || !is_small(d.value())) return std::nullopt;
  const Sum dividend = to_sum(x);
  const auto is_beside = [&](const Term& t) { return coefficient_of(s, t.product) != 0; };
  const auto are_small = [](const Sum& sum) {
    return is_small(sum.constant) &&
           std::ranges::all_of(sum.terms, [](const Term& t) { return is_small(t.coefficient); });
  };
  if (std::ranges::none_of(dividend.terms, is_beside) || !are_small(s) || !are_small(dividend))
    return std::nullopt;
  const int64_t k = d.value(), c = quotient.coefficient;
  Sum whole = add_scaled(Sum(), s, k);
  whole = add_scaled(whole, to_sum(quotient.product), -k * c);
  whole = add_scaled(whole, dividend, c);
  const Range rest = multiply_ranges({-c, -c}, {0, k - 1});
  const Range r = add_ranges(range_of_terms(whole), rest);
  return Range{floordiv_range(add_ranges(r, {k - 1, k - 1}), {k, k}).lo,
               floordiv_range(r, {k, k}).hi};
}

}  // namespace

Range range_of_sum(const Sum& s) {
  Range out = range_of_terms(s);
  if (s.terms.size() < 2) return out;
  for (const Term& t : s.terms) {
    const auto r = range_with_dividend(s, t);
    if (r) out = {std::max(out.lo, r->lo), std::min(out.hi, r->hi)};
  }
  return out;
}

int64_t coefficient_of(const Sum& s, Expr product) {
  for (const Term& t : s.terms)
    if (t.product == product) return t.coefficient;
  return 0;
}

std::span<const Expr> factors_of(Expr product) {
  if (product.is_const()) return {};
  if (product.kind() == Kind::Mul) return product.operands();
  return product.node()->self();
}

Expr multiply_products(ExprPool::Impl& pool, Expr a, Expr b) {
  if (a.is_const()) return b;
  if (b.is_const()) return a;
  std::span<const Expr> x = factors_of(a), y = factors_of(b);
  Factors ops;
  ops.reserve(x.size() + y.size());
  size_t i = 0, j = 0;
  while (i < x.size() && j < y.size()) ops.push_back(compare(x[i], y[j]) <= 0 ? x[i++] : y[j++]);
  ops.append(x.subspan(i));
  ops.append(y.subspan(j));
  return pool.intern(Kind::Mul, ops);
}

Expr build_product(ExprPool::Impl& pool, const Factors& factors) {
  if (factors.size() < 2) return factors.empty() ? Expr(1) : factors[0];
  return pool.intern(Kind::Mul, factors);
}

Expr without(ExprPool::Impl& pool, Expr product, size_t skip) {
  Factors rest;
  for (size_t i = 0; Expr factor : factors_of(product))
    if (i++ != skip) rest.push_back(factor);
  return build_product(pool, rest);
}

Expr operator+(Expr a, Expr b) {
  if (a.is_const()) {
    if (b.is_const()) return checked_add(a.value(), b.value());
    std::swap(a, b);
  }
  if (b.is_const(0)) return a;
  return remember(Kind::Add, a, b, [&](ExprPool::Impl& pool) {
    Sum s = add_scaled(to_sum(a), to_sum(b), 1);
    return build(pool, s);
  });
}

Expr operator-(Expr a) { return a * Expr(-1); }

Expr operator-(Expr a, Expr b) {
  if (a == b) return 0;
  if (b.is_const()) return a + -b;
  // Kind::Const stands for the difference in the memo.
  return remember(Kind::Const, a, b, [&](ExprPool::Impl& pool) {
    Sum s = add_scaled(to_sum(a), to_sum(b), -1);
    return build(pool, s);
  });
}

Expr operator*(Expr a, Expr b) {
  if (a.is_const()) {
    if (b.is_const()) return checked_multiply(a.value(), b.value());
    std::swap(a, b);
  }
  if (b.is_const(0)) return 0;
  if (b.is_const(1)) return a;
  return remember(Kind::Mul, a, b, [&](ExprPool::Impl& pool) {
    if (b.is_const()) return multiply_by_constant(pool, a, b.value());
    return multiply_sums(pool, to_sum(a), to_sum(b));
  });
}

}  // namespace oxy::sym
