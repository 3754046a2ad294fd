// The lexer: each kind of token, positions of errors, and what is written reads back.
#include "support/lexer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/check.h"

namespace oxy {
namespace {

std::string kinds(std::string_view source) {
  Lexer lex(source);
  std::string out;
  while (!lex.at_end()) {
    Token t = lex.next();
    out += "EI%@ifsp"[static_cast<int>(t.kind)];
    out += t.text;
    out += ' ';
  }
  return out;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Lexer, Tokens) {
  EXPECT_EQ(kinds("%x.1: f32[s0] = aten.add.Tensor(%0)"),
            "%x.1 p: If32 p[ Is0 p] p= Iaten.add.Tensor p( %0 p) ");
  EXPECT_EQ(kinds("1 2.5 3. 1e-5 7..9 1.e3"), "i1 f2.5 f3. f1e-5 i7 p.. i9 f1.e3 ");
  EXPECT_EQ(kinds("-> <- // ... .. == -1 a-b"), "p-> p<- p// p... p.. p== p- i1 Ia p- Ib ");
  EXPECT_EQ(kinds("p0 % 8 @12 @ # the rest\nx"), "Ip0 p% i8 @12 p@ Ix ");
  EXPECT_EQ(kinds(""), "");
}

TEST(Lexer, StringsReadBack) {
  for (std::string s : {std::string(), std::string("a\"b\\c\n\t\r"), std::string("\x01\x7f\0z", 4),
                        std::string("größe")}) {
    std::string text = quote(s);
    Lexer lex(text);
    EXPECT_EQ(lex.next().text, s);
    EXPECT_TRUE(lex.at_end());
  }
}

TEST(Lexer, FloatsReadBack) {
  const double inf = std::numeric_limits<double>::infinity();
  for (double v : {0.0, -0.0, 1.0, -1.5, 1e300, 5e-324, 1e-5, 0.1, 123456789.0, inf, -inf}) {
    std::string text = print_float(v);
    Lexer lex(text);
    EXPECT_EQ(std::bit_cast<uint64_t>(lex.number()), std::bit_cast<uint64_t>(v)) << text;
    EXPECT_TRUE(lex.at_end());
    Lexer kind(text);
    kind.accept("-");
    EXPECT_TRUE(kind.is(TokenKind::Float) || kind.is("inf")) << text;
  }
  EXPECT_TRUE(std::isnan(Lexer("nan").number()));
}

TEST(Lexer, Balanced) {
  Lexer lex("(s0 + 3)//4 * max(a, b), p0 % 8]");
  EXPECT_EQ(lex.balanced(), "(s0 + 3)//4 * max(a, b)");
  lex.expect(",");
  EXPECT_EQ(lex.balanced(), "p0 % 8");
  lex.expect("]");
  EXPECT_TRUE(lex.at_end());
}

TEST(Lexer, ErrorsSayWhere) {
  EXPECT_EQ(error_of([] {
              Lexer lex("a\n  b 3");
              lex.next();
              lex.next();
              lex.expect(TokenKind::Percent);
            }),
            "2:5: expected a %name, found '3'");
  EXPECT_EQ(error_of([] {
              Lexer lex("x \"abc");
              lex.next();
            }),
            "1:3: the string does not end");
  EXPECT_EQ(error_of([] { Lexer lex("\"a\\q\""); }), "1:3: unknown escape in a string");
  EXPECT_EQ(error_of([] {
              Lexer lex("99999999999999999999");
              lex.integer();
            }),
            "1:1: the integer 99999999999999999999 is too large");
  EXPECT_EQ(error_of([] {
              Lexer lex("f");
              lex.next();
              lex.expect("(");
            }),
            "1:2: expected '(', found the end of the text");
}

TEST(Lexer, Identifiers) {
  EXPECT_TRUE(is_identifier("aten.add.Tensor"));
  EXPECT_TRUE(is_identifier("a.0"));
  for (const char* s : {"", "1a", "a.", ".a", "a b", "a-b", "a..b"}) EXPECT_FALSE(is_identifier(s));
}

}  // namespace
}  // namespace oxy
