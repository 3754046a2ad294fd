// Text that is printed and read back by one description: a function template over a form `t`, a
// TextWriter or a TextReader, that names pieces of text and fields in turn.
//
//   template <class Form>
//   void describe(Form& t, Is<PlanKernel> auto& k) {
//     t(k.name, ": ", k.code, " range=", k.range);
//     t.optional(" parameters=", k.parameters);
//   }
//
// The writer appends the pieces as they stand; the reader expects their words, wherever blanks are.
// A form of a language derives from one of the two and adds `field(x)` for types of its own.
#pragma once

#include <array>

#include "support/dtype.h"
#include "support/lexer.h"

namespace oxy {

template <class T, class X>
concept Is = std::same_as<std::remove_const_t<T>, X>;
template <class T>
concept IsPiece = std::convertible_to<T, std::string_view> && !Is<T, std::string>;

// A field that is written in quotes where it is no identifier.
template <class S>
struct Word {
  S& text;
};

template <class Form>
class TextWriter {
 public:
  template <class... T>
  void operator()(const T&... parts) {
    (part(parts), ...);
  }
  // The text where `holds`; gives whether it is there.
  bool choice(std::string_view text, bool holds) {
    if (holds) out_ += text;
    return holds;
  }
  bool flag(std::string_view text, bool value) { return choice(text, value); }
  // The text and the content of an optional or a list that has one.
  template <class T>
  void optional(std::string_view text, const std::optional<T>& x) {
    if (choice(text, x.has_value())) part(*x);
  }
  template <class T>
  void optional(std::string_view text, const std::vector<T>& x) {
    if (choice(text, !x.empty())) part(x);
  }
  // The text of an enumerator, by its number. An empty one is of what begins with no
  // other; without one the reader says `otherwise`.
  template <class E, size_t N>
  void word(E x, const std::array<std::string_view, N>& words, std::string_view) {
    out_ += words[static_cast<size_t>(x)];
  }
  void device(const Device& d) {
    if (d != Device()) cat_to(out_, ' ', print(d));
  }
  // What readers alone do.
  template <class T>
  void set(const T&, const T&) {}

  template <class List, class F>
  void list(std::string_view open, const List& items, std::string_view close, F&& item) {
    out_ += open;
    for (bool first = true; const auto& x : items) {
      if (!std::exchange(first, false)) out_ += ", ";
      item(x);
    }
    out_ += close;
  }
  template <class T>
  void field(const std::vector<T>& items) {
    list("[", items, "]", [this](const T& x) { part(x); });
  }
  void field(const std::integral auto& n) { append(out_, n); }
  void field(const std::string& s) { out_ += s; }
  void field(Word<const std::string> w) { out_ += is_identifier(w.text) ? w.text : quote(w.text); }
  void field(DType d) { out_ += name(d); }

 protected:
  template <class T>
  void part(const T& x) {
    if constexpr (IsPiece<T>)
      out_ += x;
    else
      static_cast<Form*>(this)->field(x);
  }

  std::string out_;

 private:
  friend Form;
  TextWriter() = default;
};

template <class Form>
class TextReader {
 public:
  template <class... T>
  void operator()(T&&... parts) {
    (part(parts), ...);
  }
  bool choice(std::string_view text, bool = false) { return lex_.accept_words(text); }
  bool flag(std::string_view text, bool& value) { return value = choice(text); }
  template <class T>
  void optional(std::string_view text, std::optional<T>& x) {
    if (choice(text)) part(x.emplace());
  }
  template <class T>
  void optional(std::string_view text, std::vector<T>& x) {
    if (choice(text)) part(x);
  }
  template <class E, size_t N>
  void word(E& x, const std::array<std::string_view, N>& words, std::string_view otherwise) {
    auto it =
        std::ranges::find_if(words, [this](std::string_view w) { return !w.empty() && choice(w); });
    if (it == words.end()) it = std::ranges::find(words, "");
    if (it == words.end()) lex_.fail(otherwise);
    x = static_cast<E>(it - words.begin());
  }
  void device(Device& d) {
    if (auto read = read_device(lex_)) d = *read;
  }
  template <class T>
  void set(T& x, const T& value) {
    x = value;
  }

  template <class T>
  void field(std::vector<T>& items) {
    lex_.list("[", "]", [&] { part(items.emplace_back()); });
  }
  template <std::integral T>
  void field(T& n) {
    n = lex_.integer_as<T>();
  }
  void field(std::string& s) { s = lex_.identifier(); }
  void field(Word<std::string> w) { w.text = lex_.word(); }
  void field(DType& d) {
    const auto read = read_dtype(lex_);
    if (!read) lex_.fail("expected a type");
    d = *read;
  }

 protected:
  template <class T>
  void part(T& x) {
    if constexpr (IsPiece<T>)
      lex_.expect_words(x);
    else
      static_cast<Form*>(this)->field(x);
  }

  Lexer& lex_;

 private:
  friend Form;
  explicit TextReader(Lexer& lexer) : lex_(lexer) {}
};

}  // namespace oxy
