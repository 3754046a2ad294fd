// Words of the plan text that printer and parser share. Not for other folders.
#pragma once

#include <array>
#include <string_view>

namespace oxy::runtime {

// By PlanBuffer::Kind and RegionStep::Kind.
inline constexpr std::array<std::string_view, 6> kBufferKinds = {"input",  "attribute", "arena",
                                                                 "extern", "output",    "view"};
inline constexpr std::array<std::string_view, 2> kRegionKinds = {"cond", "loop"};

}  // namespace oxy::runtime
