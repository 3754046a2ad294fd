// Facts: what is known, what follows from it, and how expressions get simpler by it.
#include "symbolic/facts.h"

#include <numeric>

#include "symbolic/implied.h"
#include "symbolic/node.h"

namespace oxy::sym {
namespace {

using Form = Condition::Kind;

// Numbers near the end of the range stand for "no bound": every size is below them.
constexpr int64_t kHuge = Expr::kMaxConst / 2;
bool is_huge(Expr e) { return e.is_const() && e.value() >= kHuge; }

// The least common multiple of the constants that divide something with `symbol` in it.
void common_divisor(Expr e, Expr symbol, int64_t& multiple) {
  if (e.is_const() || e.kind() == Kind::Symbol) return;
  if ((e.kind() == Kind::FloorDiv || e.kind() == Kind::Mod) && e.operands()[1].is_const() &&
      contains(e.operands()[0], symbol)) {
    multiple = std::lcm(multiple, e.operands()[1].value());
  }
  for (Expr op : e.operands()) common_divisor(op, symbol, multiple);
}

uint64_t symbols_of(const Condition& c) {
  uint64_t mask = c.difference.is_const() ? 0 : c.difference.node()->symbol_mask;
  for (const Condition& part : c.parts) mask |= symbols_of(part);
  return mask;
}

size_t divisions_in(Expr e) {
  size_t n = e.kind() == Kind::FloorDiv || e.kind() == Kind::Mod;
  for (Expr op : e.operands()) n += divisions_in(op);
  return n;
}

Range intersect(Range a, Range b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

// Bounds that show how the parts of an expression hang together: a symbol s in a division by k is
// seen as k*q + r (so s//k is q), and every symbol as its least value and something on top (so s <
// s*s where s is at least 2).
Range closer_range(Expr d, ExprPool& pool, std::span<const Expr> at_most_zero) {
  constexpr int64_t kMostParts = 4096;
  Range plain = range_of(d);
  std::vector<Expr> symbols;
  collect_symbols(d, symbols);
  for (Expr s : symbols) {
    int64_t k = 1;
    common_divisor(d, s, k);
    if (k == 1 || k > kMostParts) continue;
    Range r = range_of(s);
    Range quotients = floordiv_range(r, {k, k});
    std::string name = cat(s.name(), ".", k);
    Expr q = pool.symbol(name + ".q", quotients), rest = pool.symbol(name + ".r", {0, k - 1});
    d = substitute(d, [&](Expr symbol) { return symbol == s ? Expr(k) * q + rest : symbol; });
  }
  Range bounds = intersect(plain, range_of(d));
  d = substitute(d, [&](Expr s) {
    const int64_t least = least_of(s, at_most_zero);
    if (least == INT64_MIN || least == 0) return s;
    const int64_t most = range_of(s).hi;
    const int64_t room = most == INT64_MAX ? INT64_MAX : std::max<int64_t>(most - least, 0);
    return pool.symbol(cat(s.name(), ".from.", least), {0, room}) + Expr(least);
  });
  return intersect(bounds, range_of(d));
}

}  // namespace

Origin origin_of(const Condition& c) {
  Origin out = origin_of(c.difference);
  for (const Condition& part : c.parts) out = std::max(out, origin_of(part));
  return out;
}

bool ShapeFacts::known_at_most(Expr d) const {
  if (d.is_const()) return d.value() <= 0;
  const auto& facts = origin_of(d) == Origin::Hinted ? at_most_zero_ : unbacked_at_most_zero_;
  auto [at, is_new] = followed_.try_emplace(d);
  if (is_new) at->second = closer_range(d, *pool_, facts).hi <= 0 || follows(d, facts);
  return at->second;
}

std::optional<bool> ShapeFacts::known_comparison(const Condition& c) const {
  if (std::ranges::find(facts_, c, &Fact::condition) != facts_.end()) return true;
  if (std::ranges::find(facts_, negate(c), &Fact::condition) != facts_.end()) return false;
  const Expr d = c.difference;
  if (c.kind == Form::AtMost) {
    if (known_at_most(d)) return true;
    if (known_at_most(Expr(1) - d)) return false;
    return std::nullopt;
  }
  if (known_at_most(d + Expr(1)) || known_at_most(Expr(1) - d)) return c.kind == Form::NotEqual;
  if (!facts_.empty() && known_at_most(d) && known_at_most(-d)) return c.kind == Form::Equal;
  return std::nullopt;
}

std::optional<bool> ShapeFacts::known(const Condition& condition) const {
  const Condition c = simplify(condition);
  if (c.is_constant()) return c.value;
  if (c.parts.empty()) {
    if (!congruences_.empty()) {
      const Condition closer = map_differences(c, [&](Expr d) { return with_congruences(d); });
      if (closer.is_constant()) return closer.value;
    }
    return known_comparison(c);
  }
  const bool absorbing = c.kind == Form::Or;
  bool all = true;
  for (const Condition& part : c.parts) {
    auto k = known(part);
    if (k == absorbing) return absorbing;
    all &= k.has_value();
  }
  return all ? std::optional(!absorbing) : std::nullopt;
}

bool ShapeFacts::decide(const Condition& condition, std::optional<bool> unbacked) {
  Condition c = simplify(condition);
  if (auto k = known(c)) return *k;
  const bool hinted = origin_of(c) == Origin::Hinted;
  if (hinted) {
    c = without_extrema(c);
    if (auto k = known(c)) return *k;
    if (!closed_ && decide_quotients(c)) return decide(condition, unbacked);
  }
  if (closed_) throw Unsupported(cat("a question about sizes after the recording: ", print(c)));
  const bool value = !hinted && unbacked ? *unbacked : evaluate(c, hint);
  add(value ? c : negate(c), {{}, where_ ? where_() : std::string(), op_});
  return value;
}

// Where a number of elements is to be a multiple of others, quotients of sizes that have no
// remainder in this call have none: of a picture cut into windows, which is put together again.
// Says whether there is a new fact.
bool ShapeFacts::decide_quotients(const Condition& c) {
  if (c.kind != Form::Equal || !evaluate(c, hint)) return false;
  std::vector<Expr> parts{c.difference};
  std::vector<Condition> whole;
  bool divides = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Expr e = parts[i];
    if (e.is_const() || e.kind() == Kind::Symbol) continue;
    for (const Expr part : e.operands()) parts.push_back(part);
    if (e.kind() != Kind::FloorDiv) continue;
    divides |= !e.operands()[1].is_const();
    if (e.operands()[1].is_const())
      whole.push_back(equal(mod(e.operands()[0], e.operands()[1]), 0));
  }
  bool added = false;
  for (const Condition& w : whole)
    if (divides && !known(w) && origin_of(w) == Origin::Hinted && evaluate(w, hint))
      added |= decide(w);
  return added;
}

bool ShapeFacts::decide_for_code(const Condition& condition, std::string_view text) {
  const Condition c = simplify(condition);
  if (auto k = known(c)) return *k;
  if (origin_of(c) == Origin::Hinted) return decide(c);
  throw Undecided(
      cat("Could not guard on data-dependent expression ", text, " (unhinted: ", text, ")"));
}

bool ShapeFacts::assume(const Condition& condition) {
  const Condition c = simplify(condition);
  if (auto k = known(c)) return *k;
  return decide(c, true);
}

// What it says of the operands of its min and max: `s0 == 10` of `min(64, s0) == 10`, `s0 <= 8` and
// `s1 <= 8` of `max(s0, s1) <= 8`. Where it says that either of two things holds it stays as it is,
// and so does `s2 == max(s0, s1)`, which gives s2.
Condition ShapeFacts::without_extrema(const Condition& c) {
  if (!c.parts.empty()) {
    Condition out = constant_condition(c.kind == Form::And);
    for (const Condition& part : c.parts) {
      const Condition plain = without_extrema(part);
      out = c.kind == Form::And ? both(out, plain) : either(out, plain);
    }
    return out;
  }
  const std::optional<Expr> m = c.is_constant() ? std::nullopt : extremum_in(c.difference);
  if (!m) return c;
  const Expr d = c.difference, a = m->operands()[0], b = m->operands()[1];
  const auto line = linear_in(d, *m);
  const bool is_min = m->kind() == Kind::Min;
  if (c.kind == Form::AtMost) {
    const Range slope = line ? range_of(line->first) : Range();
    if (slope.lo < 0 && slope.hi > 0) return c;
    const Condition of_a = at_most(replaced(d, *m, a), 0), of_b = at_most(replaced(d, *m, b), 0);
    const bool need_both = is_min == (slope.hi <= 0), holds = evaluate(c, hint);
    const Condition open =
        without_extrema(need_both ? negate(still_open(either(negate(of_a), negate(of_b))))
                                  : still_open(either(of_a, of_b)));
    const bool one_thing = open.parts.empty() || (open.kind == Form::And) == holds;
    return one_thing ? open : c;
  }
  if (known_at_most(d) || known_at_most(-d)) {  // of one sign: not equal is less
    const Condition unequal = known_at_most(d) ? at_most(d, -1) : at_most(1, d);
    const Condition plain = without_extrema(unequal);
    return c.kind == Form::Equal ? negate(plain) : plain;
  }
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    const Expr at_one = replaced(d, *m, one);
    if (!at_one.is_const() || !line || !line->first.is_const()) continue;
    // Of m - one, which of both m is; else it is not `one`, by so much.
    const bool below = (at_one.value() > 0) == (line->first.value() > 0);
    Condition same = constant_condition(false);
    if (at_one.is_const(0))
      same = is_min ? at_most(one, other) : at_most(other, one);
    else if (below == is_min)
      same = without_extrema(equal(replaced(d, *m, other), 0));
    return c.kind == Form::Equal ? same : negate(same);
  }
  if (!evaluate(equal(d, 0), hint) || given_symbol(d)) return c;
  const Condition same = equal(decided_extrema(d), 0);
  return c.kind == Form::Equal ? same : negate(same);
}

// Which operand each is becomes a fact.
Expr ShapeFacts::decided_extrema(Expr e) {
  if (e.is_const()) return e;
  for (Expr op : e.operands()) decided_extrema(op);
  if (e.kind() == Kind::Min || e.kind() == Kind::Max) {
    Expr a = simplify(e.operands()[0]), b = simplify(e.operands()[1]);
    if (a.is_const()) std::swap(a, b);
    decide(at_most(a, b));
  }
  return simplify(e);
}

int64_t ShapeFacts::pin(Expr e) {
  e = reduce(e);
  if (origin_of(e) != Origin::Hinted)
    throw Undecided(cat("Could not extract specialized integer from data-dependent expression ", e,
                        " (unhinted: ", e, ")"));
  const int64_t value = hint(e);
  decide(equal(e, value));
  return value;
}

// ---- facts: a new one, and what it makes of the others

void ShapeFacts::add(const Condition& c, const Fact& origin) {
  if (c.is_constant()) return;
  if (c.kind == Form::And) {
    for (const Condition& part : c.parts)
      if (!known(part)) add(simplify(part), origin);
    return;
  }
  if (c.kind == Form::AtMost && known_at_most(-c.difference))
    return add(equal(c.difference, 0), origin);
  std::vector<Condition> bounds;
  Fact f{c, origin.where, origin.op};
  if (c.kind == Form::Equal) {
    const std::optional<Expr> symbol = add_replacement(c.difference);
    f.gives = symbol ? Fact::Gives::Symbol : Fact::Gives::Product;
    if (symbol && origin_of(*symbol) == Origin::Hinted) {  // what replaces it lies in its range
      const Range r = range_of(*symbol);
      const Expr value = replace_symbols(*symbol);
      if (r.lo != INT64_MIN) bounds.push_back(at_most(r.lo, value));
      if (r.hi != INT64_MAX) bounds.push_back(at_most(value, r.hi));
    }
  }
  raise_guesses(c);
  facts_.push_back(std::move(f));
  facts_changed();
  for (const Condition& bound : bounds)
    if (!known(bound)) add(bound, origin);
  settle(symbols_of(c));
}

// A symbol that is at least so large has no smaller guess.
void ShapeFacts::raise_guesses(const Condition& c) {
  if (c.kind != Form::AtMost || origin_of(c) == Origin::Hinted) return;
  std::vector<Expr> symbols;
  collect_symbols(c.difference, symbols);
  if (symbols.size() != 1) return;
  const int64_t least = least_of(symbols[0], {&c.difference, 1});
  if (least > hint(symbols[0]))
    pool_->symbol(symbols[0].name(), range_of(symbols[0]), least, origin_of(symbols[0]));
}

// The symbol that an equation gives, and its value: the youngest one goes. Of those without a hint
// it is the one that is known last, which comes from what is known before.
std::optional<std::pair<Expr, Expr>> ShapeFacts::given_symbol(Expr difference) const {
  std::vector<Expr> symbols;
  collect_symbols(difference, symbols);
  std::ranges::sort(symbols, std::greater(),
                    [](Expr s) { return std::pair(origin_of(s), s.symbol_index()); });
  if (origin_of(difference) != Origin::Hinted) symbols.resize(1);
  for (Expr s : symbols) {
    auto linear = linear_in(difference, s);
    if (linear && (linear->first.is_const(1) || linear->first.is_const(-1)))
      return std::pair(s, linear->first.is_const(1) ? -linear->second : linear->second);
  }
  return std::nullopt;
}

std::optional<Expr> ShapeFacts::add_replacement(Expr difference) {
  const auto given = given_symbol(difference);
  if (!given) return std::nullopt;
  auto once = [&](Expr symbol) { return symbol == given->first ? given->second : symbol; };
  for (auto& [from, to] : replacements_) to = substitute(to, once);
  replacements_.push_back(*given);
  return given->first;
}

// Looks at the facts with one of these symbols, and at those with a symbol of these, again until
// none changes.
void ShapeFacts::settle(uint64_t symbols) {
  constexpr int kMostChanges = 32;
  for (uint64_t before = 0; before != symbols;) {
    before = symbols;
    for (const Fact& f : facts_)
      if (const uint64_t its = symbols_of(f.condition); its & symbols) symbols |= its;
  }
  for (int changes = 0; changes < kMostChanges; ++changes) {
    size_t i = 0;
    while (i < facts_.size() && !((symbols_of(facts_[i].condition) & symbols) && reconsider(i)))
      ++i;
    if (i >= facts_.size()) return;
  }
}

// Looks at a fact in the light of the others: true where it has changed or gone.
bool ShapeFacts::reconsider(size_t i) {
  if (facts_[i].gives == Fact::Gives::Symbol) return false;
  const auto place = facts_.begin() + static_cast<std::ptrdiff_t>(i);
  Fact f = std::move(*place);
  facts_.erase(place);
  facts_changed();
  const Condition c = still_open(simplify(f.condition));
  if (c.is_constant(true)) return true;
  if (c == f.condition || c.is_constant()) {
    facts_.insert(facts_.begin() + static_cast<std::ptrdiff_t>(i), std::move(f));
    facts_changed();
    return false;
  }
  add(c, f);
  return true;
}

// What it says beyond the facts.
Condition ShapeFacts::still_open(const Condition& c) const {
  if (known(c) == true) return constant_condition(true);
  if (c.kind == Form::Or) {
    Condition open = constant_condition(false);
    for (const Condition& part : c.parts)
      if (known(part) != false) open = either(open, part);
    return open;
  }
  if (c.kind == Form::NotEqual) {
    const Expr d = c.difference;
    if (known_at_most(d)) return at_most(d, -1);
    if (known_at_most(-d)) return at_most(1, d);
  }
  return c;
}

void ShapeFacts::facts_changed() {
  ++changes_;
  followed_.clear();
  products_.clear();
  congruences_.clear();
  at_most_zero_.clear();
  unbacked_at_most_zero_.clear();
  for (const Fact& f : facts_) {
    if (f.gives == Fact::Gives::Symbol) continue;  // nothing is left of it where it is applied
    const Condition& c = f.condition;
    if (f.gives == Fact::Gives::Product) {
      add_product_rules(c.difference);
      add_congruence(c.difference);
    }
    std::vector<Expr> said;
    if (c.kind == Form::Equal || c.kind == Form::AtMost) said.push_back(c.difference);
    if (c.kind == Form::Equal) said.push_back(-c.difference);
    unbacked_at_most_zero_.insert(unbacked_at_most_zero_.end(), said.begin(), said.end());
    if (origin_of(c) == Origin::Hinted)
      at_most_zero_.insert(at_most_zero_.end(), said.begin(), said.end());
  }
}

// Of an equation that gives no symbol: the last product that has the coefficient 1 and is in no
// other term, nor in what another term divides.
void ShapeFacts::add_product_rules(Expr difference) {
  const Sum s = to_sum(difference);
  for (size_t i = s.terms.size(); i-- > 0;) {
    const auto [coefficient, product] = s.terms[i];
    if (coefficient != 1 && coefficient != -1) continue;
    const Expr rest = difference - Expr(coefficient) * product;
    auto holds = [&](const Term& t) {
      return &t != &s.terms[i] && divide_term(pool_->impl(), t, {1, product}).has_value();
    };
    if (contains(rest, product) || std::ranges::any_of(s.terms, holds)) continue;
    if (origin_of(product) < origin_of(difference)) continue;
    const Expr to = coefficient == 1 ? -rest : rest;
    products_.push_back({1, product, to});
    if (product.kind() != Kind::Mod) return;
    // x % k = r says that k * (x//k) = x - r.
    const Expr x = product.operands()[0], k = product.operands()[1];
    const Sum quotient = to_sum(k * floordiv(x, k));
    if (quotient.terms.size() == 1 && quotient.constant == 0 && quotient.terms[0].coefficient > 0)
      products_.push_back({quotient.terms[0].coefficient, quotient.terms[0].product, x - to});
    return;
  }
}

// (s + c) % k = r, k a constant: s is k times some number, and (r - c) % k.
void ShapeFacts::add_congruence(Expr difference) {
  const Sum d = to_sum(difference);
  if (d.terms.size() != 1 || d.terms[0].product.kind() != Kind::Mod) return;
  const int64_t r = d.terms[0].coefficient > 0 ? -d.constant : d.constant;
  const Expr x = d.terms[0].product.operands()[0], k = d.terms[0].product.operands()[1];
  const Sum dividend = to_sum(x);
  if (!k.is_const() || dividend.terms.size() != 1 || dividend.terms[0].coefficient != 1) return;
  const Expr s = dividend.terms[0].product;
  if (s.kind() != Kind::Symbol) return;
  const auto known = std::ranges::find(congruences_, s, &Congruence::symbol);
  if (known != congruences_.end() && known->modulus >= k.value()) return;
  const Range quotients = floordiv_range(range_of(s), {k.value(), k.value()});
  const Expr q = pool_->symbol(cat(s.name(), ".", k.value(), ".q"), quotients);
  const Expr value = k * q + Expr(floor_mod(r - dividend.constant, k.value()));
  const Congruence c{s, q, value, k.value()};
  if (known != congruences_.end())
    *known = c;
  else
    congruences_.push_back(c);
}

Expr ShapeFacts::with_congruences(Expr e) const {
  return substitute(e, [&](Expr s) {
    for (const Congruence& c : congruences_)
      if (c.symbol == s) return c.value;
    return s;
  });
}

// In quotients that the congruences give, and back, where fewer divisions are left of it.
Expr ShapeFacts::apply_congruences(Expr e) const {
  const size_t before = congruences_.empty() ? 0 : divisions_in(e);
  if (before == 0) return e;
  const Expr through = substitute(with_congruences(e), [&](Expr s) {
    for (const Congruence& c : congruences_)
      if (c.quotient == s) return floordiv(c.symbol, c.modulus);
    return s;
  });
  const Expr after = apply_products(through);
  return divisions_in(after) < before ? after : e;
}

Expr ShapeFacts::replace_symbols(Expr e) const {
  return substitute(e, [&](Expr s) {
    for (const auto& [from, to] : replacements_)
      if (from == s) return to;
    return s;
  });
}

Expr ShapeFacts::apply_products(Expr e) const {
  constexpr int kRounds = 8;  // a rule may bring in what another one is about
  for (int round = 0; round < kRounds && !e.is_const(); ++round) {
    const Expr before = e;
    for (const Term& t : to_sum(e).terms) {
      auto applied = [&](const ProductRule& rule) {
        auto rest = divide_term(pool_->impl(), t, {rule.coefficient, rule.product});
        if (!rest) return false;
        e = e - Expr(t.coefficient) * t.product + Expr(rest->coefficient) * rest->product * rule.to;
        return true;
      };
      if (std::ranges::any_of(products_, applied)) break;
    }
    if (e == before) break;
  }
  return e;
}

Expr ShapeFacts::simplify(Expr e) const { return rebuild(e, false); }

Expr ShapeFacts::reduce(Expr e) const {
  return rebuild(e, !products_.empty() || !congruences_.empty());
}

Expr ShapeFacts::rebuild(Expr e, bool with_products) const {
  if (e.is_const()) return e;
  if (e.kind() == Kind::Symbol) return replace_symbols(e);
  const bool is_min = e.kind() == Kind::Min;
  std::vector<Expr> ops;
  for (Expr op : e.operands()) ops.push_back(rebuild(op, with_products));
  Expr r = ops[0];
  for (Expr op : std::span(ops).subspan(1))
    if (!is_min && e.kind() != Kind::Max)
      r = combine(e.kind(), r, op);
    else if (is_huge(r) || is_huge(op))
      r = is_huge(r) == is_min ? op : r;
    else if (auto first = known(at_most(r, op)))
      r = *first == is_min ? r : op;
    else if (auto second = known(at_most(op, r)))
      r = *second == is_min ? op : r;
    else
      r = combine(e.kind(), r, op);
  return with_products ? apply_congruences(apply_products(r)) : r;
}

Condition ShapeFacts::simplify(const Condition& c) const {
  return map_differences(c, [&](Expr d) { return reduce(d); });
}

bool ShapeFacts::holds(const std::function<int64_t(Expr)>& value_of) const {
  return std::ranges::all_of(facts_,
                             [&](const Fact& f) { return evaluate(f.condition, value_of); });
}

std::vector<ShapeFacts::Fact> ShapeFacts::checked_facts() const {
  std::vector<Fact> out;
  for (Fact f : facts_) {
    if (origin_of(f.condition) == Origin::Hinted) continue;
    // Whoever still has the symbol relies on the equation.
    if (f.gives == Fact::Gives::Symbol) out.push_back(f);
    f.condition = map_differences(f.condition, [this](Expr d) { return replace_symbols(d); });
    if (!f.condition.is_constant(true)) out.push_back(std::move(f));
  }
  return out;
}

std::vector<std::string> ShapeFacts::text() const {
  std::vector<std::string> out;
  for (const Fact& f : facts_) out.push_back(print(f.condition));
  return out;
}

ShapeFacts::ShapeFacts(std::shared_ptr<ExprPool> pool) : pool_(std::move(pool)) {
  pool_->impl().open_facts = this;
}

ShapeFacts* ShapeFacts::open_in(ExprPool& pool) { return pool.impl().open_facts; }

void ShapeFacts::close() {
  if (pool_->impl().open_facts == this) pool_->impl().open_facts = nullptr;
  closed_ = true;
  where_ = nullptr;
}

DecideByHints::DecideByHints(ShapeFacts& facts, Unbacked unbacked)
    : facts_(facts),
      unbacked_(unbacked),
      before_(std::exchange(facts.pool().impl().decider, this)) {}
DecideByHints::~DecideByHints() { facts_.pool().impl().decider = before_; }

// Without a hint sizes are taken to be neither 0 nor 1, and what is compared otherwise, or divided,
// to be as most ops want it.
std::optional<bool> DecideByHints::equal(Expr a, Expr b) {
  auto is_size = [](Expr x, Expr y) {
    return (x.is_const(0) || x.is_const(1)) && y.kind() != Kind::Mod;
  };
  const Condition c = sym::equal(a, b);
  if (leaves_open(c)) return facts_.known(c);
  return facts_.decide(c, !is_size(a, b) && !is_size(b, a));
}
std::optional<bool> DecideByHints::less(Expr a, Expr b) {
  const Condition c = sym::less(a, b);
  return leaves_open(c) ? facts_.known(c) : facts_.decide(c);
}

// The value that the facts so far say.
static std::optional<int64_t> said_value(const ShapeFacts& facts, Expr e) {
  const Expr known = facts.simplify(e);
  return known.is_const() ? std::optional(known.value()) : std::nullopt;
}

std::optional<int64_t> DecideByHints::value(Expr e) {
  return origin_of(e) == Origin::Hinted ? facts_.pin(e) : said_value(facts_, e);
}

bool DecideByHints::leaves_open(const Condition& c) const {
  return unbacked_ == Unbacked::Unknown && origin_of(c) != Origin::Hinted;
}

KnowFacts::KnowFacts(const ShapeFacts& facts)
    : facts_(facts), before_(std::exchange(facts.pool().impl().decider, this)) {}
KnowFacts::~KnowFacts() { facts_.pool().impl().decider = before_; }

std::vector<ShapeFacts::Fact> KnowFacts::checked_now(ExprPool& pool) {
  const auto* now = dynamic_cast<const KnowFacts*>(pool.impl().decider);
  return now ? now->facts_.checked_facts() : std::vector<ShapeFacts::Fact>();
}

std::optional<int64_t> KnowFacts::value(Expr e) { return said_value(facts_, e); }

}  // namespace oxy::sym
