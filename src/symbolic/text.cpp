// Text of expressions, with Python's operators and precedence.
//   sum     = product (("+" | "-") product)*
//   product = unary (("*" | "//" | "%") unary)*
//   unary   = "-" unary | number | name | ("min" | "max") "(" sum ("," sum)* ")"
//           | "root" "(" sum "," number ")" | "scale" "(" sum "," ["1/"] float ")"
//           | "power" "(" number "," sum ")" | "digits" "(" sum "," number ")"
//           | "bitand" "(" sum "," sum ")" | "(" sum ")"
#include <cctype>
#include <charconv>

#include "symbolic/node.h"

namespace oxy::sym {
namespace {

// How an atom that is written as a call is called; empty for all else.
std::string_view function_name(Kind kind) {
  switch (kind) {
    case Kind::Min:
      return "min";
    case Kind::Max:
      return "max";
    case Kind::Root:
      return "root";
    case Kind::Scale:
      return "scale";
    case Kind::Power:
      return "power";
    case Kind::Digits:
      return "digits";
    case Kind::BitAnd:
      return "bitand";
    default:
      return "";
  }
}

void print_factor(std::string& out, Expr e) {
  const Kind kind = e.kind();
  const bool plain =
      e.is_const() ? e.value() >= 0 : kind == Kind::Symbol || !function_name(kind).empty();
  cat_to(out, plain ? "" : "(", e, plain ? "" : ")");
}

void print_product(std::string& out, Expr product) {
  const Kind kind = product.kind();
  if (kind == Kind::Symbol) return cat_to(out, product.name());
  std::span<const Expr> ops = product.operands();
  if (kind == Kind::Scale)
    return cat_to(out, "scale(", ops[0], ", ", ops[1].value() < 0 ? "1/" : "",
                  factor_of_bits(ops[1].value()), ')');
  if (const std::string_view name = function_name(kind); !name.empty())
    return cat_to(out, name, '(', ops[0], ", ", ops[1], ')');
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) cat_to(out, kind == Kind::Mul ? "*" : kind == Kind::Mod ? " % " : "//");
    print_factor(out, ops[i]);
  }
}

void print_term(std::string& out, Term t, bool first) {
  const bool negative = t.coefficient < 0;
  cat_to(out, first ? (negative ? "-" : "") : negative ? " - " : " + ");
  const int64_t magnitude = negative ? -t.coefficient : t.coefficient;
  if (magnitude != 1) cat_to(out, magnitude, '*');
  // -x//4 and 2*x//4 would read as something else.
  const bool bare = t.product.kind() == Kind::Mul || t.product.kind() == Kind::Symbol;
  if (!bare && (magnitude != 1 || (first && negative))) return print_factor(out, t.product);
  print_product(out, t.product);
}

class Parser {
 public:
  Parser(std::string_view text, ExprPool& pool) : text_(text), pool_(pool) {}

  Expr parse_all() {
    Expr e = parse_sum();
    if (skip_space() != '\0') fail("unexpected text");
    return e;
  }

 private:
  [[noreturn]] void fail(std::string_view what) {
    throw UserError(cat("symbolic expression \"", text_, "\": ", what, " at column ", at_ + 1));
  }

  char skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail(cat("expected \"", token, "\""));
  }

  Expr parse_sum() {
    Expr e = parse_product();
    for (;;)
      if (accept("+"))
        e += parse_product();
      else if (accept("-"))
        e -= parse_product();
      else
        return e;
  }

  Expr parse_product() {
    Expr e = parse_unary();
    for (;;)
      if (accept("*"))
        e *= parse_unary();
      else if (accept("//"))
        e = floordiv(e, parse_divisor());
      else if (accept("%"))
        e = mod(e, parse_divisor());
      else
        return e;
  }

  Expr parse_divisor() {
    Expr e = parse_unary();
    if (e.is_const(0)) fail("division by zero");
    return e;
  }

  Expr parse_unary() {
    char c = skip_space();
    if (accept("-")) return -parse_unary();
    if (accept("(")) {
      Expr e = parse_sum();
      expect(")");
      return e;
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return parse_number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return parse_name();
    fail(c == '\0' ? "unexpected end" : "unexpected character");
  }

  Expr parse_number() {
    int64_t v = 0;
    const char* end = text_.data() + text_.size();
    auto r = std::from_chars(text_.data() + at_, end, v);
    if (r.ec != std::errc() || v > Expr::kMaxConst) fail("number too large");
    at_ = static_cast<size_t>(r.ptr - text_.data());
    return v;
  }

  Expr parse_name() {
    size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "min" || name == "max") return parse_extremum(name == "min");
    if (name == "root") return parse_root();
    if (name == "scale") return parse_scale();
    if (name == "power" || name == "digits" || name == "bitand") return parse_pair(name);
    std::optional<Expr> symbol = pool_.find_symbol(name);
    if (!symbol) {
      at_ = begin;
      fail(cat("unknown symbol \"", name, "\""));
    }
    return *symbol;
  }

  Expr parse_extremum(bool is_min) {
    expect("(");
    Expr e = parse_sum();
    while (accept(",")) {
      Expr next = parse_sum();
      e = is_min ? min(e, next) : max(e, next);
    }
    expect(")");
    return e;
  }

  Expr parse_root() {
    expect("(");
    const Expr x = parse_sum();
    expect(",");
    if (!accept("2")) fail("a root other than the square root");
    expect(")");
    return square_root(x);
  }

  Expr parse_pair(std::string_view name) {
    expect("(");
    const Expr a = parse_sum();
    expect(",");
    const Expr b = parse_sum();
    expect(")");
    if (name == "bitand") return bit_and(a, b);
    const Expr base = name == "power" ? a : b;
    if (!base.is_const() || base.value() < 2) fail("a base that is no number from 2 on");
    return name == "power" ? power(a, b) : digits(a, b);
  }

  Expr parse_scale() {
    expect("(");
    const Expr x = parse_sum();
    expect(",");
    skip_space();
    const bool down = text_.substr(at_).starts_with("1/");
    if (down) at_ += 2;
    double factor = 0;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    const auto [behind, error] = std::from_chars(begin, end, factor);
    if (error != std::errc() || std::signbit(factor) || !(factor < 2))
      fail("a factor that is no float from 0 to 2");
    if (down && factor < 1) fail("a divisor that is no float from 1 to 2");
    at_ += static_cast<size_t>(behind - begin);
    expect(")");
    return down ? scale_down(x, factor) : scale(x, factor);
  }

  std::string_view text_;
  ExprPool& pool_;
  size_t at_ = 0;
};

}  // namespace

std::string print(Expr e) {
  if (e.is_const()) return cat(e.value());
  std::string out;
  Sum s = to_sum(e);
  for (size_t i = 0; i < s.terms.size(); ++i) print_term(out, s.terms[i], i == 0);
  if (s.constant > 0) cat_to(out, " + ", s.constant);
  if (s.constant < 0) cat_to(out, " - ", -s.constant);
  return out;
}

Expr parse(std::string_view text, ExprPool& pool) { return Parser(text, pool).parse_all(); }

}  // namespace oxy::sym
