// Names and properties of dtypes and devices, and the texts of literals.
#include "support/dtype.h"

#include <array>

#include "support/check.h"
#include "support/lexer.h"

namespace oxy {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::string_view torch_name;
  int bytes;
};

constexpr std::array kDTypes = {
#define DTYPE(e, num, text, torch, bytes) DTypeRow{DType::e, text, torch, bytes},
#include "support/dtype.def"
#undef DTYPE
};

const DTypeRow& row(DType d) {
  for (const DTypeRow& r : kDTypes)
    if (r.dtype == d) return r;
  OXY_FAIL("no such dtype: ", static_cast<int>(d));
}

constexpr std::pair<DeviceKind, std::string_view> kDevices[] = {
    {DeviceKind::CPU, "cpu"}, {DeviceKind::CUDA, "cuda"}, {DeviceKind::Meta, "meta"}};

// By number; others print as numbers.
constexpr std::array<std::string_view, 8> kLayouts = {"strided",    "sparse",     "sparse_csr",
                                                      "mkldnn",     "sparse_csc", "sparse_bsr",
                                                      "sparse_bsc", "jagged"};
constexpr std::array<std::string_view, 4> kMemoryFormats = {"contiguous", "preserve",
                                                            "channels_last", "channels_last_3d"};

template <size_t N>
std::string numbered_word(const std::array<std::string_view, N>& words, int8_t value) {
  const size_t i = static_cast<unsigned char>(value);
  return i < N ? std::string(words[i]) : cat(static_cast<int>(value));
}

template <size_t N>
int8_t read_numbered_word(Lexer& lex, const std::array<std::string_view, N>& words) {
  lex.expect("(");
  const auto word = std::ranges::find_if(words, [&](std::string_view w) { return lex.accept(w); });
  if (word == words.end() && lex.is(TokenKind::Identifier)) lex.fail("no such word");
  const auto value =
      word == words.end() ? lex.integer_as<int8_t>() : static_cast<int8_t>(word - words.begin());
  lex.expect(")");
  return value;
}

struct PrintLiteral {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool b) const { return cat(b); }
  std::string operator()(double d) const { return print_float(d); }
  std::string operator()(const std::complex<double>& c) const {
    return cat("complex(", print_float(c.real()), ", ", print_float(c.imag()), ")");
  }
  std::string operator()(const std::string& s) const { return quote(s); }
  std::string operator()(DType d) const { return std::string(name(d)); }
  std::string operator()(Device d) const { return print(d); }
  std::string operator()(Layout l) const {
    return cat("layout(", numbered_word(kLayouts, l.value), ")");
  }
  std::string operator()(MemoryFormat m) const {
    return cat("memory_format(", numbered_word(kMemoryFormats, m.value), ")");
  }
};

bool is_float(const Lexer& lex) {
  if (lex.is(TokenKind::Float) || lex.is("inf") || lex.is("nan")) return true;
  Lexer probe = lex;
  return probe.accept("-") && (probe.is(TokenKind::Float) || probe.is("inf"));
}

}  // namespace

std::string_view name(DType d) { return row(d).name; }
std::string_view torch_name(DType d) { return row(d).torch_name; }
int byte_size(DType d) { return row(d).bytes; }

std::optional<DType> dtype_from_name(std::string_view s) {
  for (const DTypeRow& r : kDTypes)
    if (r.name == s || r.torch_name == s) return r.dtype;
  return std::nullopt;
}

bool is_dtype(int8_t number) {
  return std::ranges::find(kDTypes, static_cast<DType>(number), &DTypeRow::dtype) != kDTypes.end();
}

bool is_floating(DType d) {
  using enum DType;
  return d == F16 || d == BF16 || d == F32 || d == F64 || d == F8E5M2 || d == F8E4M3;
}

bool is_complex(DType d) { return d == DType::C32 || d == DType::C64 || d == DType::C128; }

DType part_of(DType d) {
  using enum DType;
  return d == C128 ? F64 : d == C64 ? F32 : d == C32 ? F16 : d;
}

bool is_integral(DType d, bool include_bool) {
  using enum DType;
  const bool is_unsigned = d == U8 || d == U16 || d == U32 || d == U64;
  return is_unsigned || d == I8 || d == I16 || d == I32 || d == I64 || (d == B8 && include_bool);
}

std::string print(Device d) {
  std::string s = cat("device", static_cast<int>(d.kind));
  for (const auto& [kind, word] : kDevices)
    if (static_cast<int8_t>(kind) == d.kind) s = word;
  if (d.index >= 0) cat_to(s, ':', static_cast<int>(d.index));
  return s;
}

std::optional<int8_t> device_kind_from_word(std::string_view s) {
  for (const auto& [kind, word] : kDevices)
    if (word == s) return static_cast<int8_t>(kind);
  return s.starts_with("device") ? parse_number<int8_t>(s.substr(6)) : std::nullopt;
}

std::string print_literal(const Literal& l) { return std::visit(PrintLiteral(), l); }

std::optional<Literal> read_literal(Lexer& lex) {
  if (lex.is(TokenKind::String)) return lex.next().text;
  if (is_float(lex)) return lex.number();
  if (lex.accept("None")) return std::monostate();
  if (lex.accept("True")) return true;
  if (lex.accept("False")) return false;
  if (lex.accept("complex")) {
    lex.expect("(");
    const double real = lex.number();
    lex.expect(",");
    const double imaginary = lex.number();
    lex.expect(")");
    return std::complex(real, imaginary);
  }
  if (lex.accept("layout")) return Layout{read_numbered_word(lex, kLayouts)};
  if (lex.accept("memory_format")) return MemoryFormat{read_numbered_word(lex, kMemoryFormats)};
  if (const auto dtype = read_dtype(lex)) return *dtype;
  if (const auto device = read_device(lex)) return *device;
  return std::nullopt;
}

std::optional<DType> read_dtype(Lexer& lex) {
  const auto dtype = dtype_from_name(lex.is(TokenKind::Identifier) ? lex.peek().text : "");
  if (dtype) lex.next();
  return dtype;
}

std::optional<Device> read_device(Lexer& lex) {
  const auto kind = device_kind_from_word(lex.is(TokenKind::Identifier) ? lex.peek().text : "");
  if (!kind) return std::nullopt;
  lex.next();
  return Device{*kind, lex.accept(":") ? lex.integer_as<int8_t>() : int8_t{-1}};
}

}  // namespace oxy
