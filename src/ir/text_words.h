// Words of the graph text that printer and parser share. Not for other folders.
#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "ir/types.h"

namespace oxy::ir {

// Numbered as c10::Layout and c10::MemoryFormat; others print as numbers.
inline constexpr std::array<std::string_view, 8> kLayouts = {
    "strided",    "sparse",     "sparse_csr", "mkldnn",
    "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};
inline constexpr std::array<std::string_view, 4> kMemoryFormats = {
    "contiguous", "preserve", "channels_last", "channels_last_3d"};

// The kind of a device from the word that print(Device) begins with.
inline std::optional<int8_t> device_kind_from_word(std::string_view s) {
  if (s == "cpu") return static_cast<int8_t>(DeviceKind::CPU);
  if (s == "cuda") return static_cast<int8_t>(DeviceKind::CUDA);
  if (s == "meta") return static_cast<int8_t>(DeviceKind::Meta);
  int8_t kind = 0;
  constexpr std::string_view prefix = "device";
  if (s.substr(0, prefix.size()) != prefix) return std::nullopt;
  auto r = std::from_chars(s.data() + prefix.size(), s.data() + s.size(), kind);
  if (r.ec != std::errc() || r.ptr != s.data() + s.size()) return std::nullopt;
  return kind;
}

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
