// Lexer: one token of lookahead over a text that outlives it.
#include "support/lexer.h"

#include <array>
#include <cmath>
#include <limits>

#include "support/check.h"

namespace oxy {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Longer ones first.
constexpr std::array<std::string_view, 9> kPuncts = {
    "...", "->", "<-", "//", "==", "<=", ">=", "!=", ".."};

// By TokenKind.
constexpr std::array<std::string_view, 8> kKinds = {
    "the end of the text", "an identifier",         "a %name",  "an @name",
    "an integer",          "a number with a point", "a string", "punctuation"};

std::string describe(const Token& t) {
  if (t.kind == TokenKind::End) return std::string(kKinds[0]);
  if (t.kind == TokenKind::String) return cat("the string ", quote(t.text));
  const bool percent = t.kind == TokenKind::Percent, at = t.kind == TokenKind::At;
  return cat("'", percent ? "%" : at ? "@" : "", t.text, "'");
}

// What stands behind a backslash, and what it means.
constexpr std::pair<char, char> kEscapes[] = {
    {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'"', '"'}, {'\\', '\\'}};

}  // namespace

Lexer::Lexer(std::string_view source) : source_(source) { advance(); }

Token Lexer::next() {
  Token t = std::move(token_);
  advance();
  return t;
}

bool Lexer::is(std::string_view text) const {
  return (token_.kind == TokenKind::Punct || token_.kind == TokenKind::Identifier) &&
         token_.text == text;
}

bool Lexer::accept(std::string_view text) {
  if (!is(text)) return false;
  advance();
  return true;
}

void Lexer::expect(std::string_view text) {
  if (!accept(text)) fail(cat("expected '", text, "', found ", describe(token_)));
}

Token Lexer::expect(TokenKind kind) {
  if (token_.kind != kind)
    fail(cat("expected ", kKinds[static_cast<size_t>(kind)], ", found ", describe(token_)));
  return next();
}

bool Lexer::accept_words(std::string_view text) {
  Lexer probe = *this;
  for (Lexer words(text); !words.at_end();)
    if (!probe.accept(words.next().text)) return false;
  *this = std::move(probe);
  return true;
}

void Lexer::expect_words(std::string_view text) {
  for (Lexer words(text); !words.at_end();) expect(words.next().text);
}

int64_t Lexer::integer() {
  size_t begin = token_.begin;
  std::string text = accept("-") ? "-" : "";
  text += expect(TokenKind::Int).text;
  const auto v = parse_number<int64_t>(text);
  if (!v) fail_at(begin, cat("the integer ", text, " is too large"));
  return *v;
}

double Lexer::number() {
  double sign = accept("-") ? -1.0 : 1.0;
  if (accept("inf")) return sign * std::numeric_limits<double>::infinity();
  if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (token_.kind != TokenKind::Int && token_.kind != TokenKind::Float)
    fail(cat("expected a number, found ", describe(token_)));
  double v = 0;
  const std::string& t = token_.text;
  auto r = std::from_chars(t.data(), t.data() + t.size(), v);
  if (r.ec != std::errc()) fail(cat("the number ", t, " is out of range"));
  advance();
  return sign * v;
}

std::string_view Lexer::balanced() {
  size_t begin = token_.begin, i = begin;
  for (int depth = 0; i < source_.size(); ++i) {
    char c = source_[i];
    if (c == '(' || c == '[') ++depth;
    if (depth == 0 && std::string_view(",)]}:={\n#").find(c) != std::string_view::npos) break;
    if (c == ')' || c == ']') --depth;
  }
  pos_ = i;
  while (i > begin && is_blank(source_[i - 1])) --i;
  advance();
  return source_.substr(begin, i - begin);
}

void Lexer::fail_at(size_t position, std::string_view message) const {
  const std::string_view before = source_.substr(0, position);
  const size_t line = before.rfind('\n') + 1;  // where it begins; 0 where none was found
  throw UserError(
      cat(1 + std::ranges::count(before, '\n'), ":", before.size() - line + 1, ": ", message));
}

void Lexer::advance() {
  for (; pos_ < source_.size() && (is_blank(source_[pos_]) || source_[pos_] == '#'); ++pos_)
    if (source_[pos_] == '#') pos_ = std::min(source_.find('\n', pos_), source_.size()) - 1;
  token_.text.clear();
  token_.begin = pos_;
  const char c = at(pos_);
  if (pos_ == source_.size()) {
    token_.kind = TokenKind::End;
  } else if (is_letter(c)) {
    lex_word(TokenKind::Identifier);
  } else if ((c == '%' || c == '@') && is_word(at(pos_ + 1))) {
    ++pos_;
    lex_word(c == '%' ? TokenKind::Percent : TokenKind::At);
  } else if (is_digit(c)) {
    lex_number();
  } else if (c == '"') {
    lex_string();
  } else {
    token_.kind = TokenKind::Punct;
    const auto* longer = std::ranges::find_if(
        kPuncts, [&](std::string_view p) { return source_.substr(pos_).starts_with(p); });
    token_.text = longer == kPuncts.end() ? source_.substr(pos_, 1) : *longer;
    pos_ += token_.text.size();
  }
  token_.end = pos_;
}

void Lexer::lex_word(TokenKind kind) {
  size_t begin = pos_;
  // A dot belongs to the word when more of the word follows it.
  while (is_word(at(pos_)) || (at(pos_) == '.' && is_word(at(pos_ + 1)))) ++pos_;
  token_.kind = kind;
  token_.text = source_.substr(begin, pos_ - begin);
}

void Lexer::lex_number() {
  size_t begin = pos_;
  auto digits = [&] {
    while (is_digit(at(pos_))) ++pos_;
  };
  token_.kind = TokenKind::Int;
  digits();
  if (at(pos_) == '.' && at(pos_ + 1) != '.') {
    token_.kind = TokenKind::Float;
    ++pos_;
    digits();
  }
  if (at(pos_) == 'e' || at(pos_) == 'E') {
    size_t sign = at(pos_ + 1) == '-' || at(pos_ + 1) == '+';
    if (is_digit(at(pos_ + 1 + sign))) {
      token_.kind = TokenKind::Float;
      pos_ += 1 + sign;
      digits();
    }
  }
  token_.text = source_.substr(begin, pos_ - begin);
}

void Lexer::lex_string() {
  size_t begin = pos_++;
  token_.kind = TokenKind::String;
  for (; pos_ < source_.size() && source_[pos_] != '"'; ++pos_) {
    char c = source_[pos_];
    if (c != '\\') {
      token_.text += c;
      continue;
    }
    const char e = at(++pos_);
    const std::string_view hex = e == 'x' ? source_.substr(pos_ + 1, 2) : "";
    if (auto* known = std::ranges::find(kEscapes, e, &std::pair<char, char>::first);
        known != std::end(kEscapes)) {
      token_.text += known->second;
    } else if (const auto byte = parse_number<uint8_t>(hex, 16); byte && hex.size() == 2) {
      token_.text += static_cast<char>(*byte);
      pos_ += 2;
    } else {
      fail_at(pos_ - 1, "unknown escape in a string");
    }
  }
  if (pos_ >= source_.size()) fail_at(begin, "the string does not end");
  ++pos_;
}

std::string quote(std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : s) {
    auto u = static_cast<unsigned char>(c);
    if (auto* known = std::ranges::find(kEscapes, c, &std::pair<char, char>::second);
        known != std::end(kEscapes))
      cat_to(out, '\\', known->first);
    else if (u < 32 || u == 127)
      cat_to(out, "\\x", kHex[u >> 4], kHex[u & 15]);
    else
      out += c;
  }
  return out + '"';
}

bool is_identifier(std::string_view s) {
  if (s.empty() || !is_letter(s[0])) return false;
  for (size_t i = 0; i < s.size(); ++i) {
    bool inner_dot = s[i] == '.' && i + 1 < s.size() && is_word(s[i + 1]);
    if (!is_word(s[i]) && !inner_dot) return false;
  }
  return true;
}

std::string print_float(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string s = cat(v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

}  // namespace oxy
