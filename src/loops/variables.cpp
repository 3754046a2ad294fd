// Makes each variable once, by its prefix, size and number.
#include "loops/variables.h"

#include <algorithm>

#include "support/text.h"

namespace oxy::loops {

bool is_variable(Expr symbol) {
  const std::string& name = symbol.name();
  return !name.empty() && (name[0] == 'p' || name[0] == 'r' || name[0] == 'i');
}

bool is_size(Expr e) {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return std::ranges::none_of(symbols, is_variable);
}

Expr Variables::get(char prefix, Expr size, uint32_t ordinal) {
  auto [it, fresh] = known_.try_emplace({prefix, size.bits(), ordinal});
  if (!fresh) return it->second;
  int64_t last = sym::range_of(size).hi;
  if (last != INT64_MAX) last = last > 0 ? last - 1 : 0;
  std::string name;
  do {
    name = cat(prefix, next_[prefix]++);
  } while (pool_->find_symbol(name));
  it->second = pool_->symbol(name, {0, last});
  return it->second;
}

Expr VariableScope::get(char prefix, Expr size) {
  uint32_t& ordinal = next_[{prefix, size.bits()}];
  while (true) {
    Expr v = all_.get(prefix, size, ordinal++);
    if (take(v)) return v;
  }
}

}  // namespace oxy::loops
