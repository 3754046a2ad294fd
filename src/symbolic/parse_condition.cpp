// Reads the text of a condition: what print gives, and its like.
#include "support/check.h"
#include "symbolic/facts.h"

namespace oxy::sym {
namespace {

class ConditionParser {
 public:
  ConditionParser(std::string_view text, ExprPool& pool) : text_(text), pool_(pool) {}

  Condition parse() const { return any_of(text_); }

 private:
  // The pieces between `word`s that stand outside parentheses, without blanks around them.
  static std::vector<std::string_view> pieces(std::string_view s, std::string_view word) {
    std::vector<std::string_view> out;
    size_t depth = 0, begin = 0;
    for (size_t i = 0; i < s.size(); ++i) {
      depth += s[i] == '(';
      depth -= s[i] == ')' && depth > 0;
      if (depth > 0 || s.substr(i, word.size()) != word) continue;
      out.push_back(trim(s.substr(begin, i - begin)));
      begin = i + word.size();
      i = begin - 1;
    }
    out.push_back(trim(s.substr(begin)));
    return out;
  }

  Condition any_of(std::string_view s) const {
    Condition out = constant_condition(false);
    for (std::string_view part : pieces(s, " or ")) out = either(out, all_of(part));
    return out;
  }

  Condition all_of(std::string_view s) const {
    Condition out = constant_condition(true);
    for (std::string_view part : pieces(s, " and ")) out = both(out, one(part));
    return out;
  }

  Condition one(std::string_view s) const {
    if (s == "True" || s == "False") return constant_condition(s == "True");
    for (std::string_view op : {"==", "!=", "<=", "<"}) {
      const auto parts = pieces(s, op);
      if (parts.size() != 2) continue;
      Expr a = sym::parse(parts[0], pool_), b = sym::parse(parts[1], pool_);
      if (op == "==") return equal(a, b);
      if (op == "!=") return not_equal(a, b);
      return op == "<" ? less(a, b) : at_most(a, b);
    }
    if (s.size() >= 2 && s.front() == '(' && s.back() == ')')
      return any_of(s.substr(1, s.size() - 2));
    throw UserError(cat("condition \"", text_, "\": no comparison in \"", s, "\""));
  }

  std::string_view text_;
  ExprPool& pool_;
};

}  // namespace

Condition parse_condition(std::string_view text, ExprPool& pool) {
  return ConditionParser(text, pool).parse();
}

}  // namespace oxy::sym
