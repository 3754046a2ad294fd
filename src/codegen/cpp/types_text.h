// Names of C++ types in kernel texts: f32, i64, b8 for scalars, f32x8 for a vector of 8 lanes.
#pragma once

#include <string>

#include "ir/types.h"

namespace oxy::codegen::cpp {

// The type that a value of `dtype` has in registers. bf16 is u16 (its bits); b8 in vectors is an
// i32 of 0 or -1 a lane.
std::string value_type(ir::DType dtype, int lanes);
// The type in memory, of one element.
std::string memory_type(ir::DType dtype);
// `name` with lanes: "f32", 8 -> "f32x8"; the name itself for one lane.
std::string with_lanes(std::string_view name, int lanes);
// "float" for "f32"; and so on.
std::string_view c_type(std::string_view name);
int element_bytes(std::string_view name);
// typedefs of all scalar types
std::string scalar_typedefs();

}  // namespace oxy::codegen::cpp
