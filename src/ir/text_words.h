// Words of the graph text that printer and parser share. Not for other folders.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "ir/types.h"

namespace oxy::ir {

// Words that begin an argument which is no expression.
inline bool is_reserved_word(std::string_view s) {
  for (std::string_view w :
       {"None", "True", "False", "inf", "nan", "complex", "layout", "memory_format", "slice"}) {
    if (s == w) return true;
  }
  return dtype_from_name(s).has_value() || device_kind_from_word(s).has_value();
}

// The number in "@objN", the target of a callable that only the host knows.
inline std::optional<uint32_t> object_of_target(std::string_view target) {
  constexpr std::string_view prefix = "@obj";
  uint32_t index = 0;
  if (target.substr(0, prefix.size()) != prefix) return std::nullopt;
  auto r = std::from_chars(target.data() + prefix.size(), target.data() + target.size(), index);
  if (r.ec != std::errc() || r.ptr != target.data() + target.size()) return std::nullopt;
  return index;
}

}  // namespace oxy::ir
