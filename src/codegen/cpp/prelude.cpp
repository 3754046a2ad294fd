// Choosing and writing pieces of the prelude.
#include "codegen/cpp/prelude.h"

#include <cctype>
#include <span>

#include "codegen/cpp/cpp_text.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

bool fits(const Piece& p, std::string_view piece, std::string_view element, int lanes,
          const Machine& target) {
  if (p.name != piece) return false;
  const int bytes = element_bytes(element);
  const bool floats = p.element == "f" && (element == "f32" || element == "f64");
  if (!p.element.empty() && p.element != element && p.element != cat(bytes) && !floats)
    return false;
  if (p.lanes == 1 && lanes != 1) return false;
  if (p.lanes == 2 && lanes == 1) return false;
  if (p.lanes > 2 && lanes != p.lanes) return false;
  return p.vector_bytes == 0 ||
         (p.vector_bytes == lanes * bytes && target.vector_bytes >= p.vector_bytes);
}

const Piece& find_piece(std::string_view piece, std::string_view element, int lanes,
                        const Machine& target) {
  for (auto table : {memory_pieces(), operator_pieces(), avx512_math_pieces(), math_pieces(),
                     f64_math_pieces(), iterated_pieces()}) {
    for (const Piece& p : table) {
      if (fits(p, piece, element, lanes, target)) return p;
    }
  }
  OXY_FAIL("no piece ", piece, " for ", element, " x", lanes);
}

template <class F>
std::string list(int lanes, F&& lane) {
  std::string s;
  for (int i = 0; i < lanes; ++i) cat_to(s, i ? ", " : "", lane(i));
  return s;
}

// Where every second element lies in two vectors, of which the second one ends with the last
// lane's.
std::string seconds(int lanes) {
  return list(lanes, [=](int l) { return 2 * l < lanes ? 2 * l : 2 * l + 1; });
}

// The lane that an element of the one or the other vector belongs to; `lanes` where it belongs to
// none.
std::string spread(int lanes, bool high) {
  return list(lanes, [=](int e) {
    const int at = high ? e + lanes - 1 : e;
    return at % 2 == 0 && (at < lanes) != high ? at / 2 : lanes;
  });
}

std::string list(std::span<const double> numbers) {
  std::string s;
  for (double v : numbers) {
    const std::string digits = cat(v);
    const bool whole = digits.find_first_of(".e") == std::string::npos;
    cat_to(s, s.empty() ? "" : ", ", digits, whole ? ".0" : "");
  }
  return s;
}

// Of a text that begins with it.
constexpr std::string_view kStatic = "static ";

// A function that is compiled with the library: for elements of four and two bytes, the only ones
// of which models transpose many.
bool is_prebuilt(std::string_view piece, std::string_view element, int lanes,
                 const Machine& target) {
  return piece == "transpose" && (element == "f32" || element == "u16") &&
         (lanes * 4 == 64 || lanes * 4 == 32) && target.vector_bytes >= lanes * 4;
}

std::string_view take_word(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
    ++end;
  return text.substr(at, end - at);
}

}  // namespace

std::string Prelude::type(std::string_view element, int lanes) {
  const std::string name = with_lanes(element, lanes);
  if (!types_.insert(name).second) return name;
  if (lanes == 1) return name;
  const int bytes = lanes * element_bytes(element);
  cat_to(type_text_, "typedef ", c_type(element), " ", name, " __attribute__((vector_size(", bytes,
         ")));\n");
  cat_to(type_text_, "typedef ", c_type(element), " ", name, "_u __attribute__((vector_size(",
         bytes, "), aligned(", element_bytes(element), "), may_alias));\n");
  return name;
}

std::string Prelude::fn(std::string_view piece, std::string_view element, int lanes) {
  const std::string name = cat(piece, '_', with_lanes(element, lanes));
  if (!functions_.insert(name).second) return name;
  const Piece& p = find_piece(piece, element, lanes, target_);
  const std::string text = is_prebuilt(piece, element, lanes, target_)
                               ? prebuilt_or_own(p, element, lanes)
                               : expand(p, p.text, element, lanes);
  function_text_ += text;
  return name;
}

std::string Prelude::prebuilt_or_own(const Piece& piece, std::string_view element, int lanes) {
  Prelude own(target_);
  std::swap(own.types_, types_);  // they stand in front of all functions
  std::swap(own.type_text_, type_text_);
  own.function_text_ += own.expand(piece, piece.text, element, lanes);
  std::swap(own.types_, types_);
  std::swap(own.type_text_, type_text_);
  const std::string name = cat(piece.name, '_', with_lanes(element, lanes));
  const std::string_view head =
      piece.text.substr(kStatic.size(), piece.text.find(" {\n") - kStatic.size());
  return cat("#ifdef OXY_HAS_", name, "\nextern \"C\" ", expand(piece, head, element, lanes),
             ";\n#else\nnamespace own_", name, " {\n", own.function_text_, "}\nusing own_", name,
             "::", name, ";\n#endif\n");
}

std::string Prelude::definition(std::string_view piece, std::string_view element, int lanes) {
  const Piece& p = find_piece(piece, element, lanes, target_);
  const std::string function =
      expand(p, cat("extern \"C\" ", p.text.substr(kStatic.size())), element, lanes);
  return text() + function;
}

std::vector<PrebuiltText> prebuilt_functions(const Machine& target) {
  std::vector<PrebuiltText> out;
  for (const char* element : {"f32", "u16"}) {
    const int lanes = target.vector_bytes / 4;
    out.push_back({cat("transpose_", with_lanes(element, lanes)),
                   Prelude(target).definition("transpose", element, lanes)});
  }
  return out;
}

std::string Prelude::expand(const Piece& piece, std::string_view text, std::string_view element,
                            int lanes) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '$' && text.substr(i + 1).starts_with('[')) {
      const std::string_view word = take_word(text, i + 2);
      out += list(piece_numbers(word));
      i += word.size() + 2;
    } else if (c == '$') {
      const std::string_view word = take_word(text, i + 1);
      i += word.size();
      if (word == "T")
        out += type(element, lanes);
      else if (word == "T_u")
        out += type(element, lanes) + "_u";
      else if (word == "T8")
        out += type(element, 8);
      else if (word == "t")
        out += type(element, 1);
      else if (word == "S")
        out += type(cat('i', 8 * element_bytes(element)), lanes);
      else if (word == "f")
        out += element == "f32" ? "f" : "";
      else if (word == "NAME")
        out += piece.name;
      else if (word == "OP")
        out += expand(piece, piece.op, element, lanes);
      else if (word == "N")
        append(out, lanes);
      else if (word == "R")
        append(out, lanes - 1);
      else if (word == "B")
        append(out, lanes * element_bytes(element));
      else if (word == "host")
        out += type(element, std::max(1, target_.vector_bytes / element_bytes(element)));
      else if (word == "IOTA")
        out += list(lanes, [](int l) { return l; });
      else if (word == "REV")
        out += list(lanes, [=](int l) { return lanes - 1 - l; });
      else if (word == "SECOND")
        out += seconds(lanes);
      else if (word == "LOWSPREAD" || word == "HIGHSPREAD")
        out += spread(lanes, word[0] == 'H');
      else if (word == "LOADS")
        out += list(lanes, [](int l) { return cat("p[s * ", l, ']'); });
      else if (word == "STORES")
        out += list(lanes, [](int l) { return cat("p[s * ", l, "] = v[", l, ']'); });
      else if (word == "u")
        out += type(cat('u', 8 * element_bytes(element)), lanes);
      else
        out += type(word, lanes);
    } else if (c == '@' && i + 1 < text.size() && text[i + 1] == '@') {
      cat_to(out, piece.name, '_', with_lanes(element, lanes));
      ++i;
    } else if (c == '@') {
      std::string_view word = take_word(text, i + 1);
      i += word.size();
      std::string_view other = element;
      int count = lanes;
      if (i + 1 < text.size() && text[i + 1] == '.') {
        other = take_word(text, i + 2);
        i += 1 + other.size();
        if (std::isdigit(static_cast<unsigned char>(other[0]))) {
          count = std::stoi(std::string(other));
          other = element;
        }
      }
      out += fn(word, other, count);
    } else {
      out += c;
    }
  }
  return out;
}

std::string Prelude::text() const {
  return cat("#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n",
             "#define OXY_UNROLL _Pragma(\"clang loop unroll(full)\")\n#else\n",
             "#define OXY_UNROLL _Pragma(\"GCC unroll 16\")\n#endif\n",
             "#define OXY_INLINE static inline __attribute__((always_inline))\n", scalar_typedefs(),
             type_text_, function_text_);
}

}  // namespace oxy::codegen::cpp
