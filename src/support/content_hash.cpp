// FNV-1a of 128 bits, and its digits.
#include "support/content_hash.h"

#include "support/text.h"

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
  const auto high = parse_number<uint64_t>(digits.substr(0, kDigits), 16);
  const auto low = parse_number<uint64_t>(digits.substr(kDigits), 16);
  if (!high || !low) return std::nullopt;
  return ContentHash{*high, *low};
}

}  // namespace oxy
