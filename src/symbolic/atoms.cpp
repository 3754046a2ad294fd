// The atoms of products: floordiv and mod, min and max, roots, powers, bits. The laws are listed in
// expr.h.
#include <numeric>

#include "symbolic/node.h"

namespace oxy::sym {
namespace {

// ---- by a constant

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
    for (const Term& t : x.terms)
      if (t.coefficient % g == 0)
        p.multiple.terms.push_back({t.coefficient / g, t.product});
      else
        p.rest.terms.push_back(t);
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
  if (std::optional<Part> p = find_part(s.rest, k))
    return with_quotient(floordiv(build(pool, p->multiple), k / p->g));
  if (std::optional<Expr> e = divide_division(s.rest, k)) return with_quotient(*e);
  if (recombine_all(pool, s.rest)) return with_quotient(floordiv(build(pool, s.rest), k));
  return with_quotient(pool.intern(Kind::FloorDiv, {{build(pool, s.rest), k}}));
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
  return pool.intern(Kind::Mod, {{build(pool, rest), k}});
}

// ---- by a divisor that is no constant. Every law holds whatever its sign, as long as it is not 0,
// unless a check of its range stands before it.

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
      if (smaller.terms.size() + (smaller.constant != 0) >= x.terms.size() + (x.constant != 0))
        continue;
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
  for (const Sum* s : {&x, &d})
    for (const Term& t : s->terms) r.coefficient = std::gcd(r.coefficient, t.coefficient);
  if (x.constant != 0 || d.constant != 0) return r;
  Factors common;
  std::span<const Expr> first = factors_of(d.terms[0].product);
  common.append(first);
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

// Whether x / d is at least -1 and below 0.
bool is_just_below_zero(const Sum& x, Expr d) {
  const int64_t least = range_of(d).lo;
  return least > 0 && range_of_sum(x).hi < 0 && range_of_sum(x).lo >= -least;
}

bool is_unit(Term t) { return t.coefficient == 1 && t.product.is_const(); }

Expr floordiv_by_expr(ExprPool::Impl& pool, Expr a, Expr b) {
  Sum x = to_sum(a), d = to_sum(b);
  Sum quotient = take_multiples(pool, x, d);
  auto with_quotient = [&](Expr e) {
    quotient = add_scaled(quotient, to_sum(e), 1);
    return build(pool, quotient);
  };
  if (x.terms.empty() && x.constant == 0) return with_quotient(0);
  if (in_divisor_range(x, b)) return with_quotient(0);
  if (is_just_below_zero(x, b)) return with_quotient(-1);
  Term common = common_factor(pool, x, d);
  if (!is_unit(common))
    return with_quotient(floordiv(divide_all(pool, x, common), divide_all(pool, d, common)));
  Expr rest = build(pool, x);
  if (!rest.is_const() && rest.kind() == Kind::FloorDiv && range_of(b).lo >= 1)
    return with_quotient(floordiv(rest.operands()[0], rest.operands()[1] * b));
  return with_quotient(pool.intern(Kind::FloorDiv, {{rest, b}}));
}

Expr mod_by_expr(ExprPool::Impl& pool, Expr a, Expr b) {
  Sum x = to_sum(a), d = to_sum(b);
  take_multiples(pool, x, d);
  if (x.terms.empty() && x.constant == 0) return 0;
  if (in_divisor_range(x, b)) return build(pool, x);
  if (is_just_below_zero(x, b)) return build(pool, x) + b;
  Term common = common_factor(pool, x, d);
  if (!is_unit(common)) {
    Expr factor = common.product.is_const() ? Expr(common.coefficient) : build_term(pool, common);
    return factor * mod(divide_all(pool, x, common), divide_all(pool, d, common));
  }
  Expr rest = build(pool, x);
  if (!rest.is_const() && rest.kind() == Kind::Mod && rest.operands()[1] == b) return rest;
  return pool.intern(Kind::Mod, {{rest, b}});
}

// ---- min and max: operands that ranges decide drop out, the others form a sorted chain

void flatten(Kind kind, Expr e, SmallVector<Expr, 8>& out) {
  if (e.kind() != kind) return out.push_back(e);
  for (Expr op : e.operands()) flatten(kind, op, out);
}

// Whether min(a, b) (or max) is a for certain.
bool decides(Kind kind, Expr a, Expr b) {
  if (a == b) return true;
  Range d = range_of(a - b);
  return kind == Kind::Min ? d.hi <= 0 : d.lo >= 0;
}

// max(a, min(a, b)) and min(a, max(a, b)) are a.
bool absorbs(Kind kind, Expr a, Expr b) {
  if (b.kind() != (kind == Kind::Min ? Kind::Max : Kind::Min)) return false;
  SmallVector<Expr, 8> inner;
  flatten(b.kind(), b, inner);
  return std::find(inner.begin(), inner.end(), a) != inner.end();
}

// Adds an operand to those that still count.
void add_operand(Kind kind, Expr e, SmallVector<Expr, 8>& kept) {
  size_t n = 0;
  for (Expr k : kept)
    if (decides(kind, k, e) || absorbs(kind, k, e)) return;
  for (Expr k : kept)
    if (!decides(kind, e, k) && !absorbs(kind, e, k)) kept[n++] = k;
  kept.truncate(n);
  kept.push_back(e);
}

Expr extremum(Kind kind, Expr a, Expr b) {
  if (a == b) return a;
  if (a.is_const() && b.is_const()) return (kind == Kind::Min) == (a.value() < b.value()) ? a : b;
  return remember(kind, a, b, [&](ExprPool::Impl& pool) {
    SmallVector<Expr, 8> all, kept;
    flatten(kind, a, all);
    flatten(kind, b, all);
    for (Expr e : all) add_operand(kind, e, kept);
    std::sort(kept.begin(), kept.end());
    Expr r = kept[0];
    for (size_t i = 1; i < kept.size(); ++i) r = pool.intern(kind, {{r, kept[i]}});
    return r;
  });
}

// x & mask, where the bits that are set lie in few runs: x % 2**end - x % 2**begin of each.
std::optional<Expr> kept_runs(Expr x, int64_t mask) {
  constexpr int kMostRuns = 2;
  constexpr int kBits = 62;
  Expr out = 0;
  int runs = 0;
  for (int begin = 0; begin < kBits;) {
    const auto rest = static_cast<uint64_t>(mask >> begin);
    if (rest == 0) break;
    begin += std::countr_zero(rest);
    const int end = begin + std::countr_one(static_cast<uint64_t>(mask >> begin));
    if (++runs > kMostRuns) return std::nullopt;
    if (end < kBits)
      out += mod(x, int64_t{1} << end);
    else if (mask < 0)
      out += x;
    else
      return std::nullopt;
    if (begin > 0) out -= mod(x, int64_t{1} << begin);
    begin = end;
  }
  return out;
}

}  // namespace

std::optional<Term> divide_term(ExprPool::Impl& pool, Term t, Term by) {
  if (t.coefficient % by.coefficient != 0) return std::nullopt;
  std::span<const Expr> have = factors_of(t.product), need = factors_of(by.product);
  Factors rest;
  size_t j = 0;
  for (Expr f : have)
    if (j < need.size() && f == need[j])
      ++j;
    else
      rest.push_back(f);
  if (j < need.size()) return std::nullopt;
  return Term{t.coefficient / by.coefficient, build_product(pool, rest)};
}

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

Expr root(Expr x, Expr k) {
  OXY_CHECK(k.is_const(2), "a root other than the square root");
  if (x.is_const()) return integer_root(x.value());
  return remember(Kind::Root, x, k, [&](ExprPool::Impl& pool) {
    const Range r = root_range(range_of(x));
    return r.lo == r.hi ? Expr(r.lo) : pool.intern(Kind::Root, {{x, k}});
  });
}

Expr scale_by_bits(Expr x, Expr bits) {
  OXY_CHECK(bits.is_const() && (bits.value() >= 0 || factor_of_bits(bits.value()) >= 1),
            "a factor below 0, or from 2 on");
  if (x.is_const()) return scaled(x.value(), bits.value());
  return remember(Kind::Scale, x, bits, [&](ExprPool::Impl& pool) {
    const Range r = scaled_range(range_of(x), bits.value());
    return r.lo == r.hi ? Expr(r.lo) : pool.intern(Kind::Scale, {{x, bits}});
  });
}

Expr scale(Expr x, double factor) {
  OXY_CHECK(factor >= 0 && factor < 2 && !std::signbit(factor), "a factor below 0, or from 2 on");
  return scale_by_bits(x, std::bit_cast<int64_t>(factor));
}

Expr scale_down(Expr x, double divisor) {
  OXY_CHECK(divisor >= 1 && divisor < 2, "a divisor below 1, or from 2 on");
  return scale_by_bits(x, -std::bit_cast<int64_t>(divisor));
}

Expr power(Expr base, Expr exponent) {
  OXY_CHECK(base.is_const() && base.value() >= 2, "a power of a base that is no constant from 2");
  const int64_t b = base.value();
  if (exponent.is_const()) {
    const auto p = integer_power(b, exponent.value());
    OXY_CHECK(p, b, "**", exponent.value(), " leaves 62 bits");
    return *p;
  }
  return remember(Kind::Power, base, exponent, [&](ExprPool::Impl& pool) -> Expr {
    constexpr int64_t kMostOutside = 16;
    const int64_t least = range_of(exponent).lo;
    if (range_of(exponent).hi < 0) return 0;
    if (least <= 0 || least > kMostOutside) return pool.intern(Kind::Power, {{base, exponent}});
    const auto outside = integer_power(b, least);
    if (!outside) return pool.intern(Kind::Power, {{base, exponent}});
    return *outside * pool.intern(Kind::Power, {{base, exponent - least}});
  });
}

Expr digits(Expr x, Expr base) {
  OXY_CHECK(base.is_const() && base.value() >= 2, "digits of a base that is no constant from 2");
  if (x.is_const()) return digit_count(x.value(), base.value());
  return remember(Kind::Digits, x, base, [&](ExprPool::Impl& pool) {
    const Range r = digits_range(range_of(x), base.value());
    return r.lo == r.hi ? Expr(r.lo) : pool.intern(Kind::Digits, {{x, base}});
  });
}

Expr bit_and(Expr a, Expr b) {
  if (a == b) return a;
  if (a.is_const() && b.is_const()) return a.value() & b.value();
  if (b < a) std::swap(a, b);
  if (a.is_const(0)) return 0;
  if (a.is_const(-1)) return b;
  return remember(Kind::BitAnd, a, b, [&](ExprPool::Impl& pool) {
    if (a.is_const())
      if (const auto kept = kept_runs(b, a.value())) return *kept;
    const Range r = bit_and_range(range_of(a), range_of(b));
    return r.lo == r.hi ? Expr(r.lo) : pool.intern(Kind::BitAnd, {{a, b}});
  });
}

Expr bit_or(Expr a, Expr b) { return a + b - bit_and(a, b); }
Expr bit_xor(Expr a, Expr b) { return a + b - 2 * bit_and(a, b); }

Expr min(Expr a, Expr b) { return extremum(Kind::Min, a, b); }
Expr max(Expr a, Expr b) { return extremum(Kind::Max, a, b); }

}  // namespace oxy::sym
