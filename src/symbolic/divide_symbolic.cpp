// floordiv and mod by a divisor that is not a constant. Every law here holds whatever the divisor's
// sign, as long as it is not 0, unless a check of its range stands before it.
#include <numeric>

#include "symbolic/divide.h"
#include "symbolic/interval.h"

namespace oxy::sym {
namespace {

// t / by where that is a product again.
std::optional<Term> divide_term(ExprPool::Impl& pool, Term t, Term by) {
  if (t.coefficient % by.coefficient != 0) return std::nullopt;
  std::span<const Expr> have = factors_of(t.product), need = factors_of(by.product);
  Factors rest;
  size_t j = 0;
  for (Expr f : have) {
    if (j < need.size() && f == need[j]) {
      ++j;
    } else {
      rest.push_back(f);
    }
  }
  if (j < need.size()) return std::nullopt;
  Expr product = rest.empty()       ? Expr(1)
                 : rest.size() == 1 ? rest[0]
                                    : pool.intern(Kind::Mul, {rest.data(), rest.size()});
  return Term{t.coefficient / by.coefficient, product};
}

// Takes multiples of d out of x while that makes x shorter; returns what was taken, divided by d.
Sum take_multiples(ExprPool::Impl& pool, Sum& x, const Sum& d) {
  Sum quotient;
  const Term& lead = d.terms.back();
  for (bool found = true; found;) {
    found = false;
    for (const Term& t : x.terms) {
      std::optional<Term> q = divide_term(pool, t, lead);
      if (!q) continue;
      Expr q_expr = q->product.is_const() ? Expr(q->coefficient) : build_term(pool, *q);
      Sum smaller = x;
      for (const Term& part : d.terms) {
        Expr product = Expr(part.coefficient) * part.product * q_expr;
        smaller = add_scaled(smaller, to_sum(product), -1);
      }
      smaller = add_scaled(smaller, to_sum(Expr(d.constant) * q_expr), -1);
      if (smaller.terms.size() + (smaller.constant != 0) >= x.terms.size() + (x.constant != 0)) {
        continue;
      }
      x = smaller;
      quotient = add_scaled(quotient, to_sum(q_expr), 1);
      found = true;
      break;
    }
  }
  return quotient;
}

// The greatest product that divides every term of x and of d.
Term common_factor(ExprPool::Impl& pool, const Sum& x, const Sum& d) {
  Term r{std::gcd(x.constant, d.constant), 1};
  for (const Sum* s : {&x, &d}) {
    for (const Term& t : s->terms) r.coefficient = std::gcd(r.coefficient, t.coefficient);
  }
  if (x.constant != 0 || d.constant != 0) return r;
  Factors common;
  std::span<const Expr> first = factors_of(d.terms[0].product);
  common.append(first.data(), first.data() + first.size());
  for (const Sum* s : {&x, &d}) {
    for (const Term& t : s->terms) {
      std::span<const Expr> have = factors_of(t.product);
      size_t kept = 0, j = 0;
      for (Expr f : common) {
        while (j < have.size() && compare(have[j], f) < 0) ++j;
        if (j < have.size() && have[j] == f) {
          common[kept++] = f;
          ++j;
        }
      }
      common.truncate(kept);
    }
  }
  for (Expr f : common) r.product = multiply_products(pool, r.product, f);
  return r;
}

Expr divide_all(ExprPool::Impl& pool, const Sum& s, Term by) {
  Expr r = s.constant / by.coefficient;
  for (const Term& t : s.terms) {
    Term q = *divide_term(pool, t, by);
    r += q.product.is_const() ? Expr(q.coefficient) : build_term(pool, q);
  }
  return r;
}

bool in_divisor_range(const Sum& x, Expr d) {
  return range_of_sum(x).lo >= 0 && range_of_sum(x).hi < range_of(d).lo;
}

bool is_unit(Term t) { return t.coefficient == 1 && t.product.is_const(); }

}  // namespace

Expr floordiv_by_expr(ExprPool::Impl& pool, Expr a, Expr b) {
  Sum x = to_sum(a), d = to_sum(b);
  Sum quotient = take_multiples(pool, x, d);
  auto with_quotient = [&](Expr e) {
    quotient = add_scaled(quotient, to_sum(e), 1);
    return build(pool, quotient);
  };
  if (x.terms.empty() && x.constant == 0) return with_quotient(0);
  if (in_divisor_range(x, b)) return with_quotient(0);
  Term common = common_factor(pool, x, d);
  if (!is_unit(common)) {
    return with_quotient(floordiv(divide_all(pool, x, common), divide_all(pool, d, common)));
  }
  Expr rest = build(pool, x);
  if (!rest.is_const() && rest.kind() == Kind::FloorDiv && range_of(b).lo >= 1) {
    return with_quotient(floordiv(rest.operands()[0], rest.operands()[1] * b));
  }
  Expr ops[2] = {rest, b};
  return with_quotient(pool.intern(Kind::FloorDiv, ops));
}

Expr mod_by_expr(ExprPool::Impl& pool, Expr a, Expr b) {
  Sum x = to_sum(a), d = to_sum(b);
  take_multiples(pool, x, d);
  if (x.terms.empty() && x.constant == 0) return 0;
  if (in_divisor_range(x, b)) return build(pool, x);
  Term common = common_factor(pool, x, d);
  if (!is_unit(common)) {
    Expr factor = common.product.is_const() ? Expr(common.coefficient) : build_term(pool, common);
    return factor * mod(divide_all(pool, x, common), divide_all(pool, d, common));
  }
  Expr rest = build(pool, x);
  if (!rest.is_const() && rest.kind() == Kind::Mod && rest.operands()[1] == b) return rest;
  Expr ops[2] = {rest, b};
  return pool.intern(Kind::Mod, ops);
}

}  // namespace oxy::sym
