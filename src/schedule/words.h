// The words of enumerators in the text of a kernel, in their order.
#pragma once

#include <array>
#include <string_view>

namespace oxy::schedule {

inline constexpr std::array<std::string_view, 5> kForKinds = {"parallel", "serial", "vector",
                                                              "reduce", "vector_reduce"};
inline constexpr std::array<std::string_view, 4> kBufferKinds = {"read", "write", "read_write",
                                                                 "local"};

}  // namespace oxy::schedule
