// The random generator of torch's CPU, MT19937 (Matsumoto and Nishimura, "Mersenne Twister: A
// 623-dimensionally equidistributed uniform pseudorandom number generator", 1998), many numbers at
// a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/dtype.h"

namespace oxy::runtime {

struct MersenneTwister {
  static constexpr uint32_t kWords = 624;
  std::array<uint32_t, kWords> state{};
  uint32_t used = kWords;  // words of the state that have been drawn

  void draw(uint32_t* out, size_t count);
};

// Ones with probability `p`, from 0 to 1, else zeros. One element takes two draws, the first of
// which has the upper 32 bits of an integer; it is one where the lower 53 of these bits, as a
// fraction, are below `p`. False, and nothing is drawn, for dtypes that it does not know.
bool draw_bernoulli(MersenneTwister& generator, double p, DType dtype, void* out, size_t count);

}  // namespace oxy::runtime
