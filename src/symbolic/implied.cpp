// The question as inequalities that are linear in products: what is asked turned round, the known
// ones that have to do with it, and laws of the atoms and products that occur. If these contradict
// each other, it follows.
#include "symbolic/implied.h"

#include "symbolic/elimination.h"
#include "symbolic/node.h"

namespace oxy::sym {
namespace {

constexpr size_t kSteps = 256;    // of the elimination
constexpr size_t kMostRows = 48;  // that it begins with
constexpr size_t kMostUnknowns = 32;
constexpr int kMostCases = 2;  // nested: of a min or max that is one operand or the other
constexpr int64_t kLargest = int64_t{1} << 40;  // numbers that the laws are applied to

bool is_small(const Sum& s) {
  auto small = [](int64_t v) { return v < kLargest && v > -kLargest; };
  return small(s.constant) &&
         std::ranges::all_of(s.terms, [&](const Term& t) { return small(t.coefficient); });
}

// Finite.
bool is_small(int64_t bound) { return bound < kLargest && bound > -kLargest; }

Sum one(Expr product) {
  Sum s;
  if (product.is_const())
    s.constant = product.value();
  else
    s.terms.push_back({1, product});
  return s;
}

class Question {
 public:
  Question(ExprPool::Impl& pool, std::span<const Expr> known) : pool_(pool), known_(known) {}

  bool contradicts(const Sum& asked) {
    row(asked);
    add_known();
    // What a law brings in has laws of its own.
    for (size_t begin = 0, round = 0; begin < unknowns_.size() && round < 3; ++round) {
      const size_t end = unknowns_.size();
      for (; begin < end && rows_.size() < kMostRows; ++begin) laws_of(unknowns_[begin]);
    }
    for (size_t i = 0; i < unknowns_.size(); ++i) bounds_of(unknowns_[i], i);
    return unknowns_.size() <= kMostUnknowns && contradict(rows_, unknowns_.size(), kSteps);
  }

 private:
  size_t unknown(Expr product) {
    auto at = std::ranges::find(unknowns_, product);
    if (at == unknowns_.end()) at = unknowns_.insert(at, product);
    return static_cast<size_t>(at - unknowns_.begin());
  }

  // s <= 0 is one of them.
  void row(const Sum& s) {
    if (!is_small(s) || rows_.size() >= 2 * kMostRows) return;
    Inequality r;
    r.constant = s.constant;
    for (const Term& t : s.terms) r.parts.push_back({unknown(t.product), t.coefficient});
    rows_.push_back(std::move(r));
  }
  void equation(const Sum& s) {
    row(s);
    row(add_scaled(Sum(), s, -1));
  }

  // Those with symbols of the question, and with symbols of those.
  void add_known() {
    uint64_t symbols = 0;
    for (Expr u : unknowns_) symbols |= u.node()->symbol_mask;
    std::vector<bool> taken(known_.size());
    for (bool found = true; found;) {
      found = false;
      for (size_t i = 0; i < known_.size(); ++i) {
        const Expr k = known_[i];
        if (taken[i] || k.is_const() || !(k.node()->symbol_mask & symbols)) continue;
        if (rows_.size() >= kMostRows / 2) return;
        taken[i] = found = true;
        symbols |= k.node()->symbol_mask;
        row(to_sum(k));
        used_.push_back(k);
      }
    }
  }

  void laws_of(Expr product) {
    std::span<const Expr> factors = factors_of(product);
    if (factors.size() == 1) return laws_of_atom(factors[0]);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (i > 0 && factors[i] == factors[i - 1]) continue;
      const Expr rest = without(pool_, product, i);
      laws_of_product(product, factors[i], rest);
      scaled_facts(factors[i], rest);
    }
  }

  // (a - lowest a) * (b - lowest b) is not negative, and so on for the other ends.
  void laws_of_product(Expr product, Expr a, Expr b) {
    const Range ra = bounds(a), rb = bounds(b);
    for (const bool high_a : {false, true}) {
      for (const bool high_b : {false, true}) {
        const int64_t x = high_a ? ra.hi : ra.lo, y = high_b ? rb.hi : rb.lo;
        if (!is_small(x) || !is_small(y) || !is_small(x * y)) continue;
        Sum s = add_scaled(one(product), one(a), -y);
        s = add_scaled(s, one(b), -x);
        s.constant += x * y;
        row(high_a == high_b ? add_scaled(Sum(), s, -1) : s);
      }
    }
  }

  Range bounds(Expr e) const {
    Range r = range_of(e);
    if (e.kind() == Kind::Symbol) r.lo = least_of(e, used_);
    return r;
  }

  // A known inequality with `rest` in it holds times a factor that is not negative.
  void scaled_facts(Expr factor, Expr rest) {
    if (range_of(factor).lo < 0) return;
    for (const Expr k : used_) {
      const Sum s = to_sum(k);
      if (!is_small(s) || s.terms.size() > 4 || coefficient_of(s, rest) == 0) continue;
      row(to_sum(k * factor));
    }
  }

  // x < b**x, and b**(digits(y) - 1) <= y < b**digits(y).
  void laws_of_power(Expr atom, Expr base, Expr exponent) {
    Sum below = add_scaled(to_sum(exponent), one(atom), -1);
    below.constant += 1;
    row(below);
    const Sum parts = to_sum(exponent);
    if (parts.terms.size() != 1 || parts.terms[0].coefficient != 1) return;
    const Expr digits = parts.terms[0].product;
    if (digits.kind() != Kind::Digits || digits.operands()[1] != base) return;
    const Expr y = digits.operands()[0];
    if (range_of(y).lo < 1 || parts.constant > 0 || parts.constant < -1) return;
    const Expr most = parts.constant == 0 ? atom : atom * base, least = atom;
    Sum over = add_scaled(to_sum(y), to_sum(most), -1);
    over.constant += 1;
    row(over);
    if (parts.constant == -1) row(add_scaled(one(least), to_sum(y), -1));
  }

  void laws_of_atom(Expr atom) {
    const Kind kind = atom.kind();
    if (kind == Kind::Symbol || kind == Kind::Root) return;
    const Expr a = atom.operands()[0], b = atom.operands()[1];
    if (kind == Kind::Power) return laws_of_power(atom, a, b);
    if (kind == Kind::Digits) {  // no more than what is not negative
      if (range_of(a).lo >= 0) row(add_scaled(one(atom), to_sum(a), -1));
      return;
    }
    if (kind == Kind::BitAnd) {
      for (const Expr operand : {a, b})
        if (range_of(operand).lo >= 0) row(add_scaled(one(atom), to_sum(operand), -1));
      return;
    }
    if (kind == Kind::Scale) {  // by less than 1: no more than what is not negative
      const bool less = b.value() < 0 || factor_of_bits(b.value()) <= 0.999;
      if (less && range_of(a).lo >= 0) row(add_scaled(to_sum(atom), to_sum(a), -1));
      return;
    }
    if (kind == Kind::Min || kind == Kind::Max) {
      const int64_t sign = kind == Kind::Min ? 1 : -1;
      for (Expr operand : {a, b})
        row(add_scaled(add_scaled(Sum(), one(atom), sign), to_sum(operand), -sign));
      return;
    }
    if (range_of(b).lo < 1 || !is_small(to_sum(a)) || !is_small(to_sum(b))) return;
    // a = b * (a // b) + a % b, 0 <= a % b < b.
    const Expr quotient = kind == Kind::FloorDiv ? atom : floordiv(a, b);
    const Expr remainder = kind == Kind::Mod ? atom : mod(a, b);
    Sum whole = add_scaled(to_sum(a), to_sum(b * quotient), -1);
    equation(add_scaled(whole, to_sum(remainder), -1));
    row(add_scaled(Sum(), to_sum(remainder), -1));
    Sum below = add_scaled(to_sum(remainder), to_sum(b), -1);
    below.constant += 1;
    row(below);
  }

  void bounds_of(Expr product, size_t u) {
    const Range r = product.node()->range;
    if (is_small(r.lo)) rows_.push_back({{{u, -1}}, r.lo});
    if (is_small(r.hi)) rows_.push_back({{{u, 1}}, -r.hi});
  }

  ExprPool::Impl& pool_;
  std::span<const Expr> known_;
  std::vector<Expr> unknowns_, used_;
  std::vector<Inequality> rows_;
};

bool follows(Expr d, std::span<const Expr> known, int cases) {
  const Range r = range_of(d);
  if (r.hi <= 0) return true;
  if (r.lo > 0 && known.empty()) return false;
  Sum asked = add_scaled(Sum(), to_sum(d), -1);
  asked.constant += 1;
  if (!is_small(asked)) return false;
  if (d.is_const()) {
    // Holds only where the facts contradict each other: not asked for.
    return false;
  }
  if (Question(*d.node()->pool, known).contradicts(asked)) return true;
  const std::optional<Expr> m = cases > 0 ? extremum_in(d) : std::nullopt;
  if (!m) return false;
  const Expr a = m->operands()[0], b = m->operands()[1];
  std::vector<Expr> more(known.begin(), known.end());
  more.push_back(m->kind() == Kind::Min ? a - b : b - a);
  if (!follows(replaced(d, *m, a), more, cases - 1)) return false;
  more.back() = -more.back();
  return follows(replaced(d, *m, b), more, cases - 1);
}

}  // namespace

std::optional<Expr> extremum_in(Expr e) {
  if (e.is_const()) return std::nullopt;
  for (Expr op : e.operands())
    if (auto found = extremum_in(op)) return found;
  if (e.kind() == Kind::Min || e.kind() == Kind::Max) return e;
  return std::nullopt;
}

Expr replaced(Expr e, Expr from, Expr to) {
  if (e == from) return to;
  if (e.is_const() || e.kind() == Kind::Symbol) return e;
  Expr r = replaced(e.operands()[0], from, to);
  for (Expr op : e.operands().subspan(1)) r = combine(e.kind(), r, replaced(op, from, to));
  return r;
}

bool follows(Expr d, std::span<const Expr> known) { return follows(d, known, kMostCases); }

int64_t least_of(Expr symbol, std::span<const Expr> known) {
  int64_t least = range_of(symbol).lo;
  for (Expr k : known) {
    if (k.is_const()) continue;
    const Sum s = to_sum(k);
    // c - symbol <= 0
    if (s.terms.size() == 1 && s.terms[0].product == symbol && s.terms[0].coefficient == -1)
      least = std::max(least, s.constant);
  }
  return least;
}

}  // namespace oxy::sym
