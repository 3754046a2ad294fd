// Declares the symbols that an expression names, and parses it.
#include "loops/read_expr.h"

#include <cctype>

namespace oxy::loops {

sym::Expr read_expr(Lexer& lexer, sym::ExprPool& pool) {
  std::string_view text = lexer.balanced();
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
      ++end;
    if (end == i) {
      ++i;
      continue;
    }
    std::string_view word = text.substr(i, end - i);
    bool name =
        !std::isdigit(static_cast<unsigned char>(word[0])) && word != "min" && word != "max";
    if (name && !pool.find_symbol(word)) pool.symbol(word, {0, INT64_MAX});
    i = end;
  }
  return sym::parse(text, pool);
}

}  // namespace oxy::loops
