// Questions about an expression, and walks over one: substitution and evaluation.
#include "symbolic/node.h"

namespace oxy::sym {
namespace {

struct Substitution {
  struct Entry {
    Expr from, to;
  };
  const std::function<Expr(Expr)>& f;
  SmallVector<Entry, 16> done;  // index expressions are small: a scan beats a table

  Expr operator()(Expr e) {
    if (e.is_const()) return e;
    for (const auto& [from, to] : done)
      if (from == e) return to;
    Expr r = compute(e);
    done.push_back({e, r});
    return r;
  }

  Expr compute(Expr e) {
    if (e.kind() == Kind::Symbol) return f(e);
    SmallVector<Expr, 8> ops;
    bool changed = false;
    for (Expr op : e.operands()) {
      ops.push_back((*this)(op));
      changed |= ops.back() != op;
    }
    if (!changed) return e;
    Expr r = ops[0];
    for (size_t i = 1; i < ops.size(); ++i) r = combine(e.kind(), r, ops[i]);
    return r;
  }
};

int64_t apply(Kind kind, int64_t a, int64_t b) {
  switch (kind) {
    case Kind::Add:
      return checked_add(a, b);
    case Kind::Mul:
      return checked_multiply(a, b);
    case Kind::FloorDiv:
      return floor_divide(a, b);
    case Kind::Mod:
      return floor_mod(a, b);
    case Kind::Min:
      return std::min(a, b);
    case Kind::Max:
      return std::max(a, b);
    case Kind::Root:
      return integer_root(a);
    case Kind::Scale:
      return scaled(a, b);
    case Kind::Power: {
      const auto power = integer_power(a, b);
      OXY_CHECK(power, a, "**", b, " leaves 62 bits");
      return *power;
    }
    case Kind::Digits:
      return digit_count(a, b);
    case Kind::BitAnd:
      return a & b;
    default:
      OXY_FAIL("an atom has no operands");
  }
}

// What has the sign of d: without positive factors that all of its terms share.
Expr of_same_sign(Expr d) {
  if (d.is_const()) return d;
  const Sum s = to_sum(d);
  if (s.constant != 0 || s.terms.size() < 2) return d;
  for (const Expr f : factors_of(s.terms[0].product)) {
    const bool shared = range_of(f).lo > 0 && std::ranges::all_of(s.terms, [&](const Term& t) {
                          const std::span<const Expr> factors = factors_of(t.product);
                          return std::ranges::find(factors, f) != factors.end();
                        });
    if (shared) return of_same_sign(floordiv(d, f));
  }
  return d;
}

}  // namespace

Expr combine(Kind kind, Expr a, Expr b) {
  using Operation = Expr (*)(Expr, Expr);
  static constexpr Operation kOperations[] = {nullptr, nullptr, operator+, operator*, floordiv,
                                              mod,     min,     max,       root,      scale_by_bits,
                                              power,   digits,  bit_and};  // by Kind
  return kOperations[static_cast<size_t>(kind)](a, b);
}

// By ranges and structure.
static std::optional<bool> plainly_equal(Expr a, Expr b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  Expr d = a - b;
  if (d.is_const()) return d.value() == 0;
  Range r = range_of(of_same_sign(d));
  if (r.lo > 0 || r.hi < 0) return false;
  Sum s = to_sum(d);
  int64_t constant = std::exchange(s.constant, 0);
  if (constant % build(*d.node()->pool, s).node()->factor != 0) return false;
  return std::nullopt;
}

static std::optional<bool> plainly_less(Expr a, Expr b) {
  Range r = range_of(of_same_sign(a - b));
  if (r.hi < 0) return true;
  if (r.lo >= 0) return false;
  return std::nullopt;
}

// What is plain, else what the decider says.
static std::optional<bool> ask(std::optional<bool> plain, Expr a, Expr b,
                               std::optional<bool> (Decider::*question)(Expr, Expr)) {
  if (plain) return plain;
  Decider* decider = pool_of(a, b).decider;
  return decider ? (decider->*question)(a, b) : std::nullopt;
}

std::optional<bool> known_equal(Expr a, Expr b) {
  return ask(plainly_equal(a, b), a, b, &Decider::equal);
}

std::optional<bool> known_less(Expr a, Expr b) {
  return ask(plainly_less(a, b), a, b, &Decider::less);
}

std::optional<int64_t> known_value(Expr e) {
  if (e.is_const()) return e.value();
  Decider* decider = pool_of(e, e).decider;
  return decider ? decider->value(e) : std::nullopt;
}

std::optional<bool> certain_equal(Expr a, Expr b) {
  return ask(plainly_equal(a, b), a, b, &Decider::certain_equal);
}

std::optional<bool> certain_less(Expr a, Expr b) {
  return ask(plainly_less(a, b), a, b, &Decider::certain_less);
}

// With sizes without a hint that are at least 2.
static Expr with_large_sizes(Expr e) {
  return substitute(e, [](Expr s) {
    const Range r = range_of(s);
    const bool size = r.lo >= 0 || certain_less(-1, s) == true;
    if (origin_of(s) == Origin::Hinted || !size || r.lo > 1 || r.hi < 2) return s;
    return s.node()->pool->make_symbol(cat(s.name(), ".large"), {2, std::max<int64_t>(r.hi, 2)},
                                       symbol_hint(s), Origin::Hinted);
  });
}

std::optional<bool> layout_equal(Expr a, Expr b) {
  if (origin_of(a - b) == Origin::Hinted) return known_equal(a, b);
  if (auto certain = certain_equal(a, b)) return certain;
  if (auto large = plainly_equal(with_large_sizes(a), with_large_sizes(b))) return large;
  auto small = [](Expr e) { return e.is_const(0) || e.is_const(1); };
  return small(a) || small(b) ? false : known_equal(a, b);
}

std::optional<bool> layout_less(Expr a, Expr b) {
  if (origin_of(a - b) == Origin::Hinted) return known_less(a, b);
  if (auto certain = certain_less(a, b)) return certain;
  if (auto large = plainly_less(with_large_sizes(a), with_large_sizes(b))) return large;
  if (a.is_const(0) || a.is_const(1)) return true;
  return b.is_const(0) || b.is_const(1) || b.is_const(2) ? false : known_less(a, b);
}

bool divisible(Expr e, int64_t k) {
  OXY_CHECK(k > 0, "divisor ", k);
  if (e.is_const()) return e.value() % k == 0;
  return e.node()->factor % k == 0;
}

bool contains(Expr e, Expr part) {
  if (e == part) return true;
  if (e.is_const() || e.kind() == Kind::Symbol) return false;
  const auto symbols = part.node()->symbol_mask;
  if ((e.node()->symbol_mask & symbols) != symbols) return false;
  return std::ranges::any_of(e.operands(), [&](Expr op) { return contains(op, part); });
}

void collect_symbols(Expr e, std::vector<Expr>& out) {
  if (e.is_const()) return;
  if (e.kind() == Kind::Symbol) {
    if (std::ranges::find(out, e) == out.end()) out.push_back(e);
    return;
  }
  for (Expr op : e.operands()) collect_symbols(op, out);
}

std::optional<std::pair<Expr, Expr>> linear_in(Expr e, Expr symbol) {
  if (!contains(e, symbol)) return std::pair{Expr(0), e};
  ExprPool::Impl& pool = *e.node()->pool;
  Sum s = to_sum(e), rest;
  rest.constant = s.constant;
  Expr coefficient = 0;
  for (const Term& t : s.terms) {
    if (!contains(t.product, symbol)) {
      rest.terms.push_back(t);
      continue;
    }
    std::span<const Expr> factors = factors_of(t.product);
    auto at = std::ranges::find(factors, symbol);
    if (at == factors.end()) return std::nullopt;
    Expr others = without(pool, t.product, static_cast<size_t>(at - factors.begin()));
    if (contains(others, symbol)) return std::nullopt;
    coefficient += Expr(t.coefficient) * others;
  }
  return std::pair{coefficient, build(pool, rest)};
}

Expr substitute(Expr e, const std::function<Expr(Expr symbol)>& f) {
  return Substitution{f, {}}(e);
}

int64_t evaluate(Expr e, const std::function<int64_t(Expr symbol)>& f) {
  if (e.is_const()) return e.value();
  if (e.kind() == Kind::Symbol) return f(e);
  std::span<const Expr> ops = e.operands();
  int64_t r = evaluate(ops[0], f);
  for (Expr op : ops.subspan(1)) {
    int64_t v = evaluate(op, f);
    bool divides = e.kind() == Kind::FloorDiv || e.kind() == Kind::Mod;
    OXY_CHECK(!divides || v != 0, "division by zero in ", print(e));
    r = apply(e.kind(), r, v);
  }
  return r;
}

std::optional<int64_t> symbol_hint(Expr symbol) {
  return symbol.node()->pool->symbols[symbol.symbol_index()].hint;
}

int64_t hint(Expr e) {
  return evaluate(e, [](Expr symbol) {
    const std::optional<int64_t> h = symbol_hint(symbol);
    OXY_CHECK(h, "symbol ", symbol.name(), " has no hint");
    return *h;
  });
}

}  // namespace oxy::sym
