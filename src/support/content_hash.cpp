// FNV-1a of 128 bits, and its digits.
#include "support/content_hash.h"

#include <charconv>

namespace oxy {
namespace {

__extension__ using Bits128 = unsigned __int128;

constexpr int kDigits = 16;  // of one half

std::string digits(uint64_t half) {
  char buffer[kDigits];
  auto r = std::to_chars(buffer, buffer + kDigits, half, 16);
  const std::string text(buffer, r.ptr);
  return std::string(kDigits - text.size(), '0') + text;
}

std::optional<uint64_t> half_of(std::string_view digits) {
  uint64_t half = 0;
  auto r = std::from_chars(digits.data(), digits.data() + digits.size(), half, 16);
  if (r.ec != std::errc() || r.ptr != digits.data() + digits.size()) return std::nullopt;
  return half;
}

}  // namespace

ContentHash content_hash(std::string_view bytes) {
  constexpr Bits128 kPrime = (Bits128{1} << 88) + 0x13b;
  Bits128 hash = (Bits128{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return {static_cast<uint64_t>(hash >> 64), static_cast<uint64_t>(hash)};
}

std::string print(const ContentHash& h) { return digits(h.high) + digits(h.low); }

std::optional<ContentHash> parse_hash(std::string_view digits) {
  if (digits.size() != 2 * kDigits) return std::nullopt;
  const auto high = half_of(digits.substr(0, kDigits)), low = half_of(digits.substr(kDigits));
  if (!high || !low) return std::nullopt;
  return ContentHash{*high, *low};
}

}  // namespace oxy
