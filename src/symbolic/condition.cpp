// Conditions: normal form, text, evaluation.
#include <numeric>

#include "symbolic/facts.h"
#include "symbolic/node.h"

namespace oxy::sym {
namespace {

using Form = Condition::Kind;

Condition comparison(Form kind, Expr difference) { return {kind, true, difference, {}}; }

int64_t common_factor(const Sum& s) {
  int64_t g = 0;
  for (const Term& t : s.terms) g = std::gcd(g, t.coefficient);
  return g;
}

// The sum's terms divided by `by`, with this constant.
Expr rescale(ExprPool::Impl& pool, Sum s, int64_t by, int64_t constant) {
  for (Term& t : s.terms) t.coefficient /= by;
  s.constant = constant;
  return build(pool, s);
}

bool may_be_zero(Expr e) {
  const Range r = range_of(e);
  return r.lo <= 0 && r.hi >= 0;
}

// What is 0 where `d` is, without a factor that never is: s2 - 8 of s0*s2 - 8*s0.
Expr without_factor(Expr d) {
  if (d.is_const()) return d;
  if (const Sum sum = to_sum(d); sum.constant == 0 && sum.terms.size() == 1) {
    Expr rest = 1;
    for (Expr factor : factors_of(sum.terms[0].product))
      if (may_be_zero(factor)) rest *= factor;
    return rest;
  }
  std::vector<Expr> symbols;
  collect_symbols(d, symbols);
  for (Expr s : symbols) {
    const auto line = linear_in(d, s);
    if (!line || line->first.is_const()) continue;
    const auto [factor, rest] = *line;
    if (may_be_zero(factor)) continue;
    const Expr quotient = floordiv(rest, factor);
    if (quotient * factor == rest) return s + quotient;
  }
  return d;
}

Condition equal_to_zero(Expr d) {
  d = without_factor(d);
  if (d.is_const()) return constant_condition(d.value() == 0);
  Range r = range_of(d);
  if (r.lo > 0 || r.hi < 0) return constant_condition(false);
  Sum s = to_sum(d);
  int64_t g = common_factor(s);
  if (s.constant % g != 0) return constant_condition(false);
  if (s.terms[0].coefficient < 0) g = -g;
  return comparison(Form::Equal, rescale(*d.node()->pool, s, g, s.constant / g));
}

Condition at_most_zero(Expr d) {
  if (d.is_const()) return constant_condition(d.value() <= 0);
  Range r = range_of(d);
  if (r.hi <= 0) return constant_condition(true);
  if (r.lo > 0) return constant_condition(false);
  Sum s = to_sum(d);
  int64_t g = common_factor(s);
  // g*y + c <= 0 is y + ceil(c/g) <= 0.
  return comparison(Form::AtMost, rescale(*d.node()->pool, s, g, -floor_divide(-s.constant, g)));
}

// And, Or: `unit` is the constant that changes nothing.
Condition combine(Form kind, const Condition& a, const Condition& b) {
  const bool unit = kind == Form::And;
  if (a.is_constant()) return a.value == unit ? b : a;
  if (b.is_constant()) return b.value == unit ? a : b;
  Condition out{kind, true, 0, {}};
  for (const Condition* c : {&a, &b}) {
    for (const Condition& part : c->kind == kind ? c->parts : std::vector<Condition>{*c})
      if (std::ranges::find(out.parts, part) == out.parts.end()) out.parts.push_back(part);
  }
  return out.parts.size() == 1 ? Condition(out.parts[0]) : out;
}

std::string print_comparison(const Condition& c) {
  auto [left, right] = sides(c.difference);
  if (c.kind == Form::AtMost) {
    // l + 1 <= r is l < r where r is not a number.
    if (to_sum(c.difference).constant == 1 && !right.is_const())
      return cat(left - Expr(1), " < ", right);
    return cat(left, " <= ", right);
  }
  if (left.is_const()) std::swap(left, right);
  // The number stands alone: s0 == s1 - 1 rather than s0 + 1 == s1 is as good; s0 == 16 must be.
  return cat(left, c.kind == Form::Equal ? " == " : " != ", right);
}

}  // namespace

bool equates(const Condition& c, std::span<const Expr> symbols) {
  auto in = [&](Expr s) { return contains(c.difference, s); };
  if (c.kind == Condition::Kind::Equal) return std::ranges::any_of(symbols, in);
  return std::ranges::any_of(c.parts, [&](const auto& part) { return equates(part, symbols); });
}

std::pair<Expr, Expr> sides(Expr difference) {
  if (difference.is_const()) return {std::max(difference, Expr(0)), std::max(-difference, Expr(0))};
  Expr left = 0, right = 0;
  Sum s = to_sum(difference);
  ExprPool::Impl& pool = *difference.node()->pool;
  for (const Term& t : s.terms) {
    if (t.coefficient > 0) left += build_term(pool, t);
    if (t.coefficient < 0) right += build_term(pool, {-t.coefficient, t.product});
  }
  if (s.constant > 0) left += Expr(s.constant);
  if (s.constant < 0) right += Expr(-s.constant);
  return {left, right};
}

Condition constant_condition(bool value) { return {Form::Constant, value, 0, {}}; }

Condition equal(Expr a, Expr b) { return equal_to_zero(a - b); }
Condition at_most(Expr a, Expr b) { return at_most_zero(a - b); }
Condition less(Expr a, Expr b) { return at_most_zero(a - b + Expr(1)); }

Condition both(const Condition& a, const Condition& b) { return combine(Form::And, a, b); }
Condition either(const Condition& a, const Condition& b) { return combine(Form::Or, a, b); }

Condition negate(const Condition& c) {
  using enum Form;
  if (c.kind == Constant) return constant_condition(!c.value);
  if (c.kind == AtMost) return at_most_zero(Expr(1) - c.difference);
  if (c.parts.empty()) return comparison(c.kind == Equal ? NotEqual : Equal, c.difference);
  Condition out = constant_condition(c.kind != Form::And);
  for (const Condition& part : c.parts)
    out = combine(c.kind == Form::And ? Form::Or : Form::And, out, negate(part));
  return out;
}

std::string print(const Condition& c) {
  if (c.is_constant()) return c.value ? "True" : "False";
  if (c.parts.empty()) return print_comparison(c);
  return cat('(',
             join(c.parts, c.kind == Form::And ? " and " : " or ",
                  [](std::string& out, const Condition& part) { cat_to(out, print(part)); }),
             ')');
}

bool evaluate(const Condition& c, const std::function<int64_t(Expr)>& f) {
  if (c.is_constant()) return c.value;
  auto holds = [&](const Condition& part) { return evaluate(part, f); };
  if (c.kind == Form::And) return std::ranges::all_of(c.parts, holds);
  if (c.kind == Form::Or) return std::ranges::any_of(c.parts, holds);
  const int64_t d = evaluate(c.difference, f);
  return c.kind == Form::AtMost ? d <= 0 : (d == 0) == (c.kind == Form::Equal);
}

Condition map_differences(const Condition& c, const std::function<Expr(Expr)>& f) {
  if (c.is_constant()) return c;
  if (c.kind == Form::AtMost) return at_most_zero(f(c.difference));
  if (c.kind == Form::Equal) return equal_to_zero(f(c.difference));
  if (c.kind == Form::NotEqual) return negate(equal_to_zero(f(c.difference)));
  Condition out = constant_condition(c.kind == Form::And);
  for (const Condition& part : c.parts) out = combine(c.kind, out, map_differences(part, f));
  return out;
}

bool contains(const Condition& c, Expr part) {
  return contains(c.difference, part) ||
         std::ranges::any_of(c.parts, [&](const Condition& p) { return contains(p, part); });
}

Condition substitute(const Condition& c, const std::function<Expr(Expr)>& f) {
  return map_differences(c, [&](Expr d) { return substitute(d, f); });
}

}  // namespace oxy::sym
