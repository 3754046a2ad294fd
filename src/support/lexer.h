// The lexer of every text form: graphs, loops, kernels, schedules.
//
// Tokens: identifiers (letters, digits, _, dots inside: `aten.add.Tensor`), %names, @names, numbers
// without a sign, strings in double quotes, and punctuation: `->` `<-` `//` `...` `==` `<=` `>=`
// `!=` `..` or one character. White space and comments (# to the end of the line) separate tokens.
// Errors are UserErrors that begin with line:column.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "support/text.h"

namespace oxy {

enum class TokenKind : uint8_t {
  End,
  Identifier,  // text: as written
  Percent,     // %name; text: the name without %
  At,          // @name; text: the name without @
  Int,
  Float,   // has a point or an exponent; inf and nan are identifiers
  String,  // text: the content, escapes resolved
  Punct,   // text: the characters
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;
  size_t begin = 0, end = 0;  // where in the source
};

class Lexer {
 public:
  explicit Lexer(std::string_view source);

  const Token& peek() const { return token_; }
  Token next();  // takes the token
  bool at_end() const { return token_.kind == TokenKind::End; }
  // Whether the token is this punctuation or identifier.
  bool is(std::string_view text) const;
  bool is(TokenKind kind) const { return token_.kind == kind; }
  // The first character after the token, not skipping anything; '\0' at the end.
  char after() const { return at(token_.end); }
  bool accept(std::string_view text);  // takes the token if it is this one
  void expect(std::string_view text);
  Token expect(TokenKind kind);
  std::string identifier() { return expect(TokenKind::Identifier).text; }
  std::string word() { return is(TokenKind::String) ? next().text : identifier(); }
  // Several words of punctuation and identifiers: all of them, or none is taken.
  bool accept_words(std::string_view text);
  void expect_words(std::string_view text);
  int64_t integer();  // with an optional minus sign
  template <std::integral T>
  T integer_as() {
    const int64_t n = integer();
    if (!std::in_range<T>(n)) fail("a number out of range");
    return static_cast<T>(n);
  }
  // Items with commas between them, and behind the last one if anybody likes.
  template <class F>
  void list(std::string_view open, std::string_view close, F&& item) {
    expect(open);
    while (!accept(close)) {
      item();
      if (!is(close)) expect(",");
    }
  }
  double number();  // any number with an optional minus sign; inf and nan too
  // The source from the token on up to, not including, the first of `,` `)` `]` `}` `:` `=` or `{`
  // that stands outside brackets, or the end of the line; goes on after it. For expressions that
  // another parser reads.
  std::string_view balanced();

  // Throws UserError "line:column: message" at the token, or at a place in the source.
  [[noreturn]] void fail(std::string_view message) const { fail_at(token_.begin, message); }
  [[noreturn]] void fail_at(size_t position, std::string_view message) const;

 private:
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  void advance();
  void lex_word(TokenKind kind);
  void lex_number();
  void lex_string();

  std::string_view source_;
  size_t pos_ = 0;
  Token token_;
};

// The text in double quotes, which the lexer reads back: \" \\ \n \t \r, and \xNN for other control
// characters.
std::string quote(std::string_view s);
// Whether the text is one identifier of the lexer.
bool is_identifier(std::string_view s);
// A double so that the lexer reads a Float or one of inf, -inf, nan.
std::string print_float(double v);

}  // namespace oxy
