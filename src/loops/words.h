// The words of enumerators in the text of a program, in their order.
#pragma once

#include <array>
#include <string_view>

namespace oxy::loops {

inline constexpr std::array<std::string_view, 6> kBufferKinds = {"input",  "attribute", "temp",
                                                                 "extern", "output",    "view"};

}  // namespace oxy::loops
