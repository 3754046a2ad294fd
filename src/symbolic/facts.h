// What a recording relied on: conditions over sizes, each true at the hints, which together say for
// which other sizes the recording holds.
//
// A Condition is kept in a normal form: comparisons are `d == 0`, `d != 0` or `d <= 0` of one
// expression without a common factor, negation is pushed down to them, and what ranges decide is
// folded. Text: `s0 == 16`, `s0 <= 2*s1`, `s0 < s1`, `(s0 == 8 or s1 <= 3)`.
#pragma once

#include "symbolic/expr.h"

namespace oxy::sym {

struct Condition {
  enum class Kind : uint8_t { Constant, Equal, NotEqual, AtMost, And, Or };
  Kind kind = Kind::Constant;
  bool value = true;             // Constant
  Expr difference = 0;           // of the comparisons: compared with 0
  std::vector<Condition> parts;  // And, Or: two or more, none of them constant or of the same kind

  bool is_constant() const { return kind == Kind::Constant; }
  bool is_constant(bool v) const { return is_constant() && value == v; }
  friend bool operator==(const Condition&, const Condition&) = default;
};

Condition constant_condition(bool value);
Condition equal(Expr a, Expr b);
Condition less(Expr a, Expr b);
Condition at_most(Expr a, Expr b);
Condition both(const Condition& a, const Condition& b);
Condition either(const Condition& a, const Condition& b);
Condition negate(const Condition& c);
inline Condition not_equal(Expr a, Expr b) { return negate(equal(a, b)); }

// The sides of a comparison, left - right, without negative terms.
std::pair<Expr, Expr> sides(Expr difference);

std::string print(const Condition& c);
bool evaluate(const Condition& c, const std::function<int64_t(Expr symbol)>& f);
Condition substitute(const Condition& c, const std::function<Expr(Expr symbol)>& f);
// The condition with this done to the two sides of each comparison at once.
Condition map_differences(const Condition& c, const std::function<Expr(Expr difference)>& f);

class ShapeFacts {
 public:
  struct Fact {
    Condition condition;
    std::string where;  // what the user's code did that asked, one frame a line, innermost last
  };

  // `pool` must give a hint for every symbol that occurs.
  explicit ShapeFacts(std::shared_ptr<ExprPool> pool);
  ~ShapeFacts() { close(); }
  ShapeFacts(const ShapeFacts&) = delete;
  ShapeFacts& operator=(const ShapeFacts&) = delete;

  // Those of the pool that may still be added to; null where there are none.
  static ShapeFacts* open_in(ExprPool& pool);

  ExprPool& pool() const { return *pool_; }

  // Whether it holds at the hints; becomes a fact unless the ranges and the facts so far say it.
  bool decide(const Condition& c);
  // The value at the hints; that it is this value becomes a fact.
  int64_t pin(Expr e);
  // Certain from ranges and facts, or nothing. Adds no fact.
  std::optional<bool> known(const Condition& c) const;
  // An equal expression under the facts: symbols with a known value or twin replaced, min and max
  // that are decided.
  Expr simplify(Expr e) const;
  Condition simplify(const Condition& c) const;

  const std::vector<Fact>& facts() const { return facts_; }
  // Whether the recording holds for these values of its symbols.
  bool holds(const std::function<int64_t(Expr symbol)>& value_of) const;
  std::vector<std::string> text() const;

  // Asked for Fact::where when a fact is added.
  void set_position(std::function<std::string()> where) { where_ = std::move(where); }
  // From now on a question that would add a fact is Unsupported: the recording is over.
  void close();

 private:
  void add(const Condition& c);
  Expr without_extrema(Expr e);
  void add_replacement(Expr difference);
  std::optional<bool> known_comparison(const Condition& c) const;
  bool known_at_most(Expr difference) const;

  std::shared_ptr<ExprPool> pool_;
  std::vector<Fact> facts_;
  std::vector<std::pair<Expr, Expr>> replacements_;  // symbol, expression without replaced symbols
  std::function<std::string()> where_;
  bool closed_ = false;
};

// While it lives, known_equal and known_less of the pool decide by the hints what they do not know,
// and that becomes a fact.
class DecideByHints final : public Decider {
 public:
  explicit DecideByHints(ShapeFacts& facts);
  ~DecideByHints();
  DecideByHints(const DecideByHints&) = delete;
  DecideByHints& operator=(const DecideByHints&) = delete;

  std::optional<bool> equal(Expr a, Expr b) override;
  std::optional<bool> less(Expr a, Expr b) override;

 private:
  ShapeFacts& facts_;
  Decider* before_;
};

// While it lives, known_equal and known_less of the pool know what the facts say, which no answer
// adds to: what is made of a recording holds wherever the recording does.
class KnowFacts final : public Decider {
 public:
  explicit KnowFacts(const ShapeFacts& facts);
  ~KnowFacts();
  KnowFacts(const KnowFacts&) = delete;
  KnowFacts& operator=(const KnowFacts&) = delete;

  std::optional<bool> equal(Expr a, Expr b) override { return facts_.known(sym::equal(a, b)); }
  std::optional<bool> less(Expr a, Expr b) override { return facts_.known(sym::less(a, b)); }

 private:
  const ShapeFacts& facts_;
  Decider* before_;
};

}  // namespace oxy::sym
