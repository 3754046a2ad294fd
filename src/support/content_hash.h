// The name of a text or of bytes by their content: 128 bits, the same in every process and on every
// machine.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oxy {

struct ContentHash {
  uint64_t high = 0, low = 0;
  friend auto operator<=>(const ContentHash&, const ContentHash&) = default;
};

// FNV-1a (Fowler, Noll, Vo).
ContentHash content_hash(std::string_view bytes);
std::string print(const ContentHash& h);  // 32 hexadecimal digits
std::optional<ContentHash> parse_hash(std::string_view digits);

}  // namespace oxy
