// Names of types, index expressions, and the math table: rows of math.def for f32 and f64, named
// for a target.
#include "codegen/cpp/cpp_text.h"

#include <algorithm>

#include "codegen/cpp/emit.h"
#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

using ir::DType;

struct Scalar {
  std::string_view name, c;
  int bytes;
};
constexpr Scalar kScalars[] = {
    {"f32", "float", 4},          {"f64", "double", 8},        {"f16", "_Float16", 2},
    {"i8", "signed char", 1},     {"u8", "unsigned char", 1},  {"i16", "short", 2},
    {"u16", "unsigned short", 2}, {"i32", "int", 4},           {"u32", "unsigned", 4},
    {"i64", "long", 8},           {"u64", "unsigned long", 8}, {"b8", "bool", 1},
};

const Scalar& scalar(std::string_view name) {
  for (const Scalar& s : kScalars) {
    if (s.name == name) return s;
  }
  OXY_FAIL("no C++ type for ", name);
}

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

std::string of_both(std::string_view function, Expr e, const Names& name) {
  return cat(function, '(', index_text(e.operands()[0], name), ", ",
             index_text(e.operands()[1], name), ')');
}

std::string choice(Expr e, const Names& name, const char* op) {
  std::string text = index_text(e.operands()[0], name);
  for (size_t i = 1; i < e.operands().size(); ++i) {
    const std::string other = index_text(e.operands()[i], name);
    text = cat('(', text, ' ', op, ' ', other, " ? ", text, " : ", other, ')');
  }
  return text;
}

struct Row {
  ops::LoopOp op;
  std::string_view stem, accuracy;
};

constexpr Row kRows[] = {
#define MATH_FN(op, operands, stem, accuracy) {ops::LoopOp::op, stem, accuracy},
#include "codegen/cpp/math.def"
#undef MATH_FN
};

std::string symbol(const Row& row, bool f64, const Machine& target) {
  if (target.vector_bytes == 0) return cat(row.stem, f64 ? "" : "f");
  const int lanes = target.vector_bytes / (f64 ? 8 : 4);
  const char* isa = target.vector_bytes == 64 ? "avx512f" : "avx2";
  return cat("Sleef_", row.stem, f64 ? "d" : "f", lanes, "_", row.accuracy, isa);
}

}  // namespace

std::string with_lanes(std::string_view name, int lanes) {
  return lanes == 1 ? std::string(name) : cat(name, 'x', lanes);
}

std::string value_type(DType dtype, int lanes) {
  if (dtype == DType::B8) return lanes == 1 ? "b8" : with_lanes("i32", lanes);
  return with_lanes(memory_type(dtype), lanes);
}

std::string memory_type(DType dtype) {
  if (dtype == DType::BF16 || dtype == DType::F16) return "u16";
  if (dtype == DType::B8 || is_f8(dtype)) return "u8";
  return std::string(scalar(ir::name(dtype)).name);
}

std::string numbered(char letter, size_t number) {
  const std::string name = cat(letter, number);
  const bool is_type =
      std::ranges::any_of(kScalars, [&](const Scalar& s) { return s.name == name; });
  return is_type ? cat(name, '_') : name;
}

std::string_view c_type(std::string_view name) { return scalar(name).c; }
int element_bytes(std::string_view name) { return scalar(name).bytes; }

std::string scalar_typedefs() {
  std::string s;
  for (const Scalar& t : kScalars) {
    if (t.name != "f16") cat_to(s, "typedef ", t.c, ' ', t.name, ";\n");
  }
  return s;
}

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
    case Kind::Mod: {
      if (std::string known = name(e); !known.empty()) return known;
      const bool divides = e.kind() == Kind::FloorDiv;
      return quotient(e, name, divides ? "/" : "%", divides ? "floor_quotient" : "floor_remainder");
    }
    case Kind::Min:
      return choice(e, name, "<");
    case Kind::Max:
      return choice(e, name, ">");
    case Kind::Root:
      return cat("square_root(", index_text(e.operands()[0], name), ')');
    case Kind::Scale:
      return cat("scaled(", index_text(e.operands()[0], name), ", ",
                 number(e.operands()[1].value()), ')');
    case Kind::Power:
      return of_both("integer_power", e, name);
    case Kind::Digits:
      return of_both("digit_count", e, name);
    case Kind::BitAnd:
      return of_both("bits_of_both", e, name);
  }
  OXY_FAIL("kind of an expression");
}

std::optional<int> math_row(ops::LoopOp op, ir::DType dtype) {
  OXY_CHECK(dtype == ir::DType::F32 || dtype == ir::DType::F64, ir::name(dtype));
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].op == op) return static_cast<int>(2 * i + (dtype == ir::DType::F64));
  }
  return std::nullopt;
}

std::vector<std::string> math_symbols(const Machine& target) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.push_back(symbol(row, false, target));
    names.push_back(symbol(row, true, target));
  }
  return names;
}

}  // namespace oxy::codegen::cpp
