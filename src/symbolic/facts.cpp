// Facts: what is known, what follows from it, and how expressions get simpler by it.
#include "symbolic/facts.h"

#include <numeric>

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

Range intersect(Range a, Range b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

// Bounds that show how the parts of an expression hang together: a symbol s in a division by k is
// seen as k*q + r (so s//k is q), and every symbol as its least value and something on top (so s <
// s*s where s is at least 2).
Range closer_range(Expr d, ExprPool& pool) {
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
    const Range r = range_of(s);
    if (r.lo == INT64_MIN || r.lo == 0) return s;
    const int64_t room = r.hi == INT64_MAX ? INT64_MAX : r.hi - r.lo;
    return pool.symbol(s.name() + ".more", {0, room}) + Expr(r.lo);
  });
  return intersect(bounds, range_of(d));
}

}  // namespace

bool ShapeFacts::known_at_most(Expr d) const {
  if (closer_range(d, *pool_).hi <= 0) return true;
  auto below = [d](Expr bound) { return (d - bound).is_const() && (d - bound).value() <= 0; };
  return std::ranges::any_of(facts_, [&](const Fact& f) {
    const auto& [kind, value, bound, parts] = f.condition;
    return (kind == Form::AtMost && below(bound)) ||
           (kind == Form::Equal && (below(bound) || below(-bound)));
  });
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
  return std::nullopt;
}

std::optional<bool> ShapeFacts::known(const Condition& condition) const {
  const Condition c = simplify(condition);
  if (c.is_constant()) return c.value;
  if (c.parts.empty()) return known_comparison(c);
  const bool absorbing = c.kind == Form::Or;
  bool all = true;
  for (const Condition& part : c.parts) {
    auto k = known(part);
    if (k == absorbing) return absorbing;
    all &= k.has_value();
  }
  return all ? std::optional(!absorbing) : std::nullopt;
}

bool ShapeFacts::decide(const Condition& condition) {
  Condition c = simplify(condition);
  if (auto k = known(c)) return *k;
  c = map_differences(c, [this](Expr d) { return without_extrema(d); });
  if (auto k = known(c)) return *k;
  if (closed_) throw Unsupported(cat("a question about sizes after the recording: ", print(c)));
  const bool value = evaluate(c, [](Expr symbol) { return hint(symbol); });
  add(value ? c : negate(c));
  return value;
}

// Which operand a min or max is, is asked first: `s0 <= 64` says more than `s0 == min(64, s0)`.
Expr ShapeFacts::without_extrema(Expr e) {
  if (e.is_const()) return e;
  for (Expr op : e.operands()) without_extrema(op);
  if (e.kind() == Kind::Min || e.kind() == Kind::Max) {
    Expr a = simplify(e.operands()[0]), b = simplify(e.operands()[1]);
    if (a.is_const()) std::swap(a, b);
    decide(at_most(a, b));
  }
  return simplify(e);
}

int64_t ShapeFacts::pin(Expr e) {
  e = simplify(e);
  const int64_t value = hint(e);
  decide(equal(e, value));
  return value;
}

void ShapeFacts::add(const Condition& c) {
  if (c.kind == Form::And) {
    for (const Condition& part : c.parts)
      if (!known(part)) add(simplify(part));
    return;
  }
  facts_.push_back({c, where_ ? where_() : std::string()});
  if (c.kind == Form::Equal) add_replacement(c.difference);
}

// An equation that gives a symbol: the youngest one goes.
void ShapeFacts::add_replacement(Expr difference) {
  std::vector<Expr> symbols;
  collect_symbols(difference, symbols);
  std::ranges::sort(symbols, std::greater(), &Expr::symbol_index);
  for (Expr s : symbols) {
    auto linear = linear_in(difference, s);
    if (!linear || !(linear->first.is_const(1) || linear->first.is_const(-1))) continue;
    const Expr value = linear->first.is_const(1) ? -linear->second : linear->second;
    auto once = [&](Expr symbol) { return symbol == s ? value : symbol; };
    for (auto& [from, to] : replacements_) to = substitute(to, once);
    replacements_.emplace_back(s, value);
    return;
  }
}

Expr ShapeFacts::simplify(Expr e) const {
  if (e.is_const()) return e;
  if (e.kind() == Kind::Symbol) {
    for (const auto& [from, to] : replacements_)
      if (from == e) return to;
    return e;
  }
  const bool is_min = e.kind() == Kind::Min;
  std::vector<Expr> ops;
  for (Expr op : e.operands()) ops.push_back(simplify(op));
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
  return r;
}

Condition ShapeFacts::simplify(const Condition& c) const {
  return map_differences(c, [&](Expr d) { return simplify(d); });
}

bool ShapeFacts::holds(const std::function<int64_t(Expr)>& value_of) const {
  return std::ranges::all_of(facts_,
                             [&](const Fact& f) { return evaluate(f.condition, value_of); });
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

DecideByHints::DecideByHints(ShapeFacts& facts)
    : facts_(facts), before_(std::exchange(facts.pool().impl().decider, this)) {}
DecideByHints::~DecideByHints() { facts_.pool().impl().decider = before_; }

std::optional<bool> DecideByHints::equal(Expr a, Expr b) { return facts_.decide(sym::equal(a, b)); }
std::optional<bool> DecideByHints::less(Expr a, Expr b) { return facts_.decide(sym::less(a, b)); }

KnowFacts::KnowFacts(const ShapeFacts& facts)
    : facts_(facts), before_(std::exchange(facts.pool().impl().decider, this)) {}
KnowFacts::~KnowFacts() { facts_.pool().impl().decider = before_; }

}  // namespace oxy::sym
