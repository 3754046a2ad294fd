// Type names of kernel texts.
#include "codegen/cpp/types_text.h"

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
  if (dtype == DType::B8) return "u8";
  return std::string(scalar(ir::name(dtype)).name);
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

}  // namespace oxy::codegen::cpp
