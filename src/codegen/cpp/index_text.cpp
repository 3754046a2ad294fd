// Index expressions as C++.
#include "codegen/cpp/index_text.h"

#include <algorithm>

#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

using sym::Expr;
using sym::Kind;
using Names = std::function<std::string(Expr)>;

std::string number(int64_t v) { return v < 0 ? cat('(', v, ')') : cat(v); }

// Operands in the order of their texts, a constant last.
std::string joined(Expr e, const char* sign, const Names& name) {
  std::vector<std::string> parts;
  std::string constant;
  for (Expr x : e.operands()) {
    if (x.is_const())
      constant = number(x.value());
    else
      parts.push_back(index_text(x, name));
  }
  std::sort(parts.begin(), parts.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  if (!constant.empty()) parts.push_back(constant);
  return cat('(', join(parts, sign, [](std::string& out, const std::string& s) { out += s; }), ')');
}

// Rounds toward minus infinity; C++'s operators do where neither side is negative.
std::string quotient(Expr e, const Names& name, const char* op, const char* general) {
  const Expr a = e.operands()[0], b = e.operands()[1];
  const std::string x = index_text(a, name), y = index_text(b, name);
  if (range_of(a).lo >= 0 && range_of(b).lo > 0)
    return cat("(i64)((u64)", x, ' ', op, " (u64)", y, ')');
  return cat(general, '(', x, ", ", y, ')');
}

std::string choice(Expr e, const Names& name, const char* op) {
  std::string text = index_text(e.operands()[0], name);
  for (size_t i = 1; i < e.operands().size(); ++i) {
    const std::string other = index_text(e.operands()[i], name);
    text = cat('(', text, ' ', op, ' ', other, " ? ", text, " : ", other, ')');
  }
  return text;
}

}  // namespace

std::string index_text(Expr e, const Names& name) {
  switch (e.kind()) {
    case Kind::Const:
      return number(e.value());
    case Kind::Symbol:
      return name(e);
    case Kind::Add:
      return joined(e, " + ", name);
    case Kind::Mul:
      return joined(e, " * ", name);
    case Kind::FloorDiv:
      return quotient(e, name, "/", "floor_quotient");
    case Kind::Mod:
      return quotient(e, name, "%", "floor_remainder");
    case Kind::Min:
      return choice(e, name, "<");
    case Kind::Max:
      return choice(e, name, ">");
  }
  OXY_FAIL("kind of an expression");
}

}  // namespace oxy::codegen::cpp
