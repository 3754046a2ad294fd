// Loops over the state that compilers turn into vectors: what a step reads lies 227 words or more
// from what it writes.
#include "runtime/mersenne_twister.h"

#include <algorithm>
#include <cmath>

namespace oxy::runtime {
namespace {

constexpr uint32_t kShift = 397, kMatrix = 0x9908b0df;
constexpr size_t kElements = 512;  // elements drawn at a time

uint32_t twist(uint32_t u, uint32_t v) {
  return (((u & 0x80000000) | (v & 0x7fffffff)) >> 1) ^ (-(v & 1) & kMatrix);
}

void next_state(uint32_t* s) {
  constexpr uint32_t n = MersenneTwister::kWords;
  for (uint32_t i = 0; i < n - kShift; i++) s[i] = s[i + kShift] ^ twist(s[i], s[i + 1]);
  for (uint32_t i = n - kShift; i < n - 1; i++) s[i] = s[i + kShift - n] ^ twist(s[i], s[i + 1]);
  s[n - 1] = s[kShift - 1] ^ twist(s[n - 1], s[0]);
}

uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680;
  y ^= (y << 15) & 0xefc60000;
  return y ^ (y >> 18);
}

// `drawn`: two words an element.
template <class T>
void write_ones(const uint32_t* drawn, uint64_t below, T one, T* out, size_t count) {
  const auto high = static_cast<uint32_t>(below >> 32), low = static_cast<uint32_t>(below);
  for (size_t i = 0; i < count; i++) {
    const uint32_t h = drawn[2 * i] & 0x1fffff, l = drawn[2 * i + 1];
    const bool is_one = (h < high) | ((h == high) & (l < low));
    out[i] = is_one ? one : T(0);
  }
}

template <class T>
bool draw(MersenneTwister& g, double p, uint64_t one, void* out, size_t count) {
  const auto below = static_cast<uint64_t>(std::ceil(std::ldexp(p, 53)));
  std::array<uint32_t, 2 * kElements> drawn;
  for (size_t i = 0; i < count; i += kElements) {
    const size_t n = std::min(kElements, count - i);
    g.draw(drawn.data(), 2 * n);
    write_ones(drawn.data(), below, static_cast<T>(one), static_cast<T*>(out) + i, n);
  }
  return true;
}

}  // namespace

void MersenneTwister::draw(uint32_t* out, size_t count) {
  while (count > 0) {
    if (used == kWords) {
      next_state(state.data());
      used = 0;
    }
    const size_t n = std::min<size_t>(count, kWords - used);
    std::transform(state.begin() + used, state.begin() + used + n, out, tempered);
    used += static_cast<uint32_t>(n);
    out += n;
    count -= n;
  }
}

bool draw_bernoulli(MersenneTwister& g, double p, DType dtype, void* out, size_t count) {
  switch (dtype) {
    case DType::F64:
      return draw<uint64_t>(g, p, 0x3ff0000000000000, out, count);
    case DType::F32:
      return draw<uint32_t>(g, p, 0x3f800000, out, count);
    case DType::F16:
      return draw<uint16_t>(g, p, 0x3c00, out, count);
    case DType::BF16:
      return draw<uint16_t>(g, p, 0x3f80, out, count);
    case DType::I64:
      return draw<uint64_t>(g, p, 1, out, count);
    case DType::I32:
      return draw<uint32_t>(g, p, 1, out, count);
    case DType::I16:
      return draw<uint16_t>(g, p, 1, out, count);
    case DType::I8:
    case DType::U8:
    case DType::B8:
      return draw<uint8_t>(g, p, 1, out, count);
    default:
      return false;
  }
}

}  // namespace oxy::runtime
