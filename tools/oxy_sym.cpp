// oxy-sym: asks the engine of symbolic sizes, a question a line of standard input.
//
//   new                      forgets symbols and facts
//   symbol s0 2 100 16       a symbol: its name, its range and its hint
//   ask s0 <= 2*s1           True or False, what the condition is at the hints: a fact from here on
//   facts                    the facts that are kept, one a line, then an empty line
//   simplify 4*(s0//4)       the expression under the facts
//   known s0 < 3*s1          True, False, or None where it depends
#include <iostream>
#include <sstream>

#include "support/check.h"
#include "symbolic/facts.h"

namespace {

using namespace oxy;

class Session {
 public:
  void answer(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view verb = std::string_view(line).substr(0, space);
    const std::string_view rest = std::string_view(line).substr(std::min(space + 1, line.size()));
    if (verb == "new") {
      pool_ = std::make_shared<sym::ExprPool>();
      facts_ = std::make_unique<sym::ShapeFacts>(pool_);
    } else if (verb == "symbol") {
      std::istringstream words{std::string(rest)};
      std::string name;
      sym::Range range;
      int64_t hint = 0;
      if (!(words >> name >> range.lo >> range.hi >> hint))
        throw UserError("symbol NAME LO HI HINT");
      pool_->symbol(name, range, hint);
    } else if (verb == "ask") {
      const bool value = facts_->decide(sym::parse_condition(rest, *pool_));
      std::cout << (value ? "True" : "False") << '\n';
    } else if (verb == "facts") {
      for (const std::string& f : facts_->text()) std::cout << f << '\n';
      std::cout << '\n';
    } else if (verb == "simplify") {
      std::cout << print(facts_->reduce(sym::parse(rest, *pool_))) << '\n';
    } else if (verb == "known") {
      const auto k = facts_->known(sym::parse_condition(rest, *pool_));
      std::cout << (!k ? "None" : *k ? "True" : "False") << '\n';
    } else {
      throw UserError(cat("no such question: ", line));
    }
  }

 private:
  std::shared_ptr<sym::ExprPool> pool_ = std::make_shared<sym::ExprPool>();
  std::unique_ptr<sym::ShapeFacts> facts_ = std::make_unique<sym::ShapeFacts>(pool_);
};

}  // namespace

int main() {
  try {
    Session session;
    for (std::string line; std::getline(std::cin, line);) session.answer(line);
  } catch (const std::exception& e) {
    std::cout.flush();
    std::cerr << "oxy-sym: " << e.what() << '\n';
    return 1;
  }
}
