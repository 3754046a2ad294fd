// The math table: rows of math.def for f32 and f64, named for a target.
#include "codegen/cpp/math_table.h"

#include "support/check.h"

namespace oxy::codegen::cpp {

namespace {

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
