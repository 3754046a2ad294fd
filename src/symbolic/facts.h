// What a recording relied on: conditions over sizes, each true at the hints, which together say for
// which other sizes the recording holds.
//
// Of symbols without a hint (Origin::Unbacked, Origin::Data) there are facts that each call checks
// while it runs: what code says of them, and what ops take for granted. They tell nothing about
// symbols that have a hint, since steps that run in front of the check would believe it.
//
// A Condition is kept in a normal form: comparisons are `d == 0`, `d != 0` or `d <= 0` of one
// expression without a common factor, negation is pushed down to them, and what ranges decide is
// folded. Text: `s0 == 16`, `s0 <= 2*s1`, `s0 < s1`, `(s0 == 8 or s1 <= 3)`; it parses back.
#pragma once

#include <unordered_map>

#include "support/check.h"
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

// Whether it is an equation with one of the symbols, or has one in it.
bool equates(const Condition& c, std::span<const Expr> symbols);
bool contains(const Condition& c, Expr part);

// The sides of a comparison, left - right, without negative terms.
std::pair<Expr, Expr> sides(Expr difference);

std::string print(const Condition& c);
// UserError where the text is none.
Condition parse_condition(std::string_view text, ExprPool& pool);
bool evaluate(const Condition& c, const std::function<int64_t(Expr symbol)>& f);
Condition substitute(const Condition& c, const std::function<Expr(Expr symbol)>& f);
// The condition with this done to the two sides of each comparison at once.
Condition map_differences(const Condition& c, const std::function<Expr(Expr difference)>& f);

// A question that code asks of a symbol without a hint, and that the facts do not answer.
class [[gnu::visibility("default")]] Undecided : public Unsupported {
  using Unsupported::Unsupported;
};

Origin origin_of(const Condition& c);

class ShapeFacts {
 public:
  struct Fact {
    Condition condition;
    std::string where;  // what the user's code did that asked, one frame a line, innermost last
    std::string op;     // what asked, as far as that is known
    // An equation that gives a symbol (simplify() applies it), or a product of others (reduce()).
    enum class Gives : uint8_t { Nothing, Symbol, Product } gives = Gives::Nothing;
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
  // Facts that a new one implies go, or say less.
  // Where it depends on a symbol without a hint, `unbacked` is taken to be the answer, or, without
  // it, what holds at guesses.
  bool decide(const Condition& c, std::optional<bool> unbacked = std::nullopt);
  // The same for code that goes another way for another answer; Undecided where that depends on a
  // symbol without a hint. `text`: the question as it was asked.
  bool decide_for_code(const Condition& c, std::string_view text);
  // It is a fact from now on; false where it is known not to hold.
  bool assume(const Condition& c);
  // The value at the hints; that it is this value becomes a fact. Undecided where there is none.
  int64_t pin(Expr e);
  // Certain from ranges and facts, or nothing. Adds no fact.
  std::optional<bool> known(const Condition& c) const;
  // An equal expression under the facts: symbols with a known value or twin replaced, min and max
  // that are decided. Products of sizes stay products of what the sizes become, as strides must.
  Expr simplify(Expr e) const;
  // One that may be shorter: remainders, and products with divisions in them, are replaced as well.
  Expr reduce(Expr e) const;
  Condition simplify(const Condition& c) const;
  // The symbols alone that equations give replaced.
  Expr replace_symbols(Expr e) const;

  const std::vector<Fact>& facts() const { return facts_; }
  // How often they have changed: what was simplified before may become simpler.
  size_t changes() const { return changes_; }
  // Those that calls check while they run, as far as they have what is in them.
  std::vector<Fact> checked_facts() const;
  // Whether the recording holds for these values of its symbols.
  bool holds(const std::function<int64_t(Expr symbol)>& value_of) const;
  std::vector<std::string> text() const;

  // Asked for Fact::where when a fact is added.
  void set_position(std::function<std::string()> where) { where_ = std::move(where); }
  // Facts that are added from now on are this op's; "" for nobody's.
  void set_op(std::string_view op) { op_ = op; }
  // From now on a question that would add a fact is Unsupported: the recording is over.
  void close();

 private:
  // coefficient * product equals `to`.
  struct ProductRule {
    int64_t coefficient;
    Expr product, to;
  };

  // symbol = value, which is modulus * quotient and a constant.
  struct Congruence {
    Expr symbol, quotient, value;
    int64_t modulus;
  };

  // The origin is a fact's with the same.
  void add(const Condition& c, const Fact& origin);
  void raise_guesses(const Condition& c);
  std::optional<std::pair<Expr, Expr>> given_symbol(Expr difference) const;
  std::optional<Expr> add_replacement(Expr difference);
  void add_product_rules(Expr difference);
  void add_congruence(Expr difference);
  void settle(uint64_t symbols);
  bool reconsider(size_t fact);
  Condition still_open(const Condition& c) const;
  void facts_changed();

  Expr rebuild(Expr e, bool with_products) const;
  Expr apply_products(Expr e) const;
  Expr with_congruences(Expr e) const;
  Expr apply_congruences(Expr e) const;
  Condition without_extrema(const Condition& c);
  bool decide_quotients(const Condition& c);
  Expr decided_extrema(Expr e);
  std::optional<bool> known_comparison(const Condition& c) const;
  bool known_at_most(Expr difference) const;

  std::shared_ptr<ExprPool> pool_;
  std::vector<Fact> facts_;
  std::vector<std::pair<Expr, Expr>> replacements_;  // symbol, expression without replaced symbols
  std::vector<ProductRule> products_;
  std::vector<Congruence> congruences_;
  std::vector<Expr> at_most_zero_;                   // what the facts say in inequalities
  std::vector<Expr> unbacked_at_most_zero_;          // the same with those of unbacked symbols
  mutable std::unordered_map<Expr, bool> followed_;  // answers under these facts
  std::function<std::string()> where_;
  std::string op_;
  size_t changes_ = 0;
  bool closed_ = false;
};

// While it lives, known_equal and known_less of the pool decide by the hints what they do not know,
// and that becomes a fact; so do guesses of symbols without a hint.
class DecideByHints final : public Decider {
 public:
  // What of symbols without a hint is not known: guessed, or left open.
  enum class Unbacked : uint8_t { Guessed, Unknown };
  explicit DecideByHints(ShapeFacts& facts, Unbacked unbacked = Unbacked::Guessed);
  ~DecideByHints();
  DecideByHints(const DecideByHints&) = delete;
  DecideByHints& operator=(const DecideByHints&) = delete;

  std::optional<bool> equal(Expr a, Expr b) override;
  std::optional<bool> less(Expr a, Expr b) override;
  std::optional<int64_t> value(Expr e) override;
  std::optional<bool> certain_equal(Expr a, Expr b) override {
    return facts_.known(sym::equal(a, b));
  }
  std::optional<bool> certain_less(Expr a, Expr b) override {
    return facts_.known(sym::less(a, b));
  }

 private:
  // What is known, where the rest is left open.
  bool leaves_open(const Condition& c) const;

  ShapeFacts& facts_;
  const Unbacked unbacked_;
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

  // What calls check of the facts that a pool knows now.
  static std::vector<ShapeFacts::Fact> checked_now(ExprPool& pool);

  std::optional<bool> equal(Expr a, Expr b) override { return facts_.known(sym::equal(a, b)); }
  std::optional<bool> less(Expr a, Expr b) override { return facts_.known(sym::less(a, b)); }
  std::optional<int64_t> value(Expr e) override;
  std::optional<bool> certain_equal(Expr a, Expr b) override { return equal(a, b); }
  std::optional<bool> certain_less(Expr a, Expr b) override { return less(a, b); }

 private:
  const ShapeFacts& facts_;
  Decider* before_;
};

}  // namespace oxy::sym
