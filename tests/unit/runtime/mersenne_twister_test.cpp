// The generator against the standard library's, and ones against their definition.
#include "runtime/mersenne_twister.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace oxy::runtime {
namespace {

// Seeded as std::mt19937 is.
MersenneTwister seeded(uint32_t seed) {
  MersenneTwister g;
  g.state[0] = seed;
  for (uint32_t i = 1; i < MersenneTwister::kWords; i++)
    g.state[i] = 1812433253 * (g.state[i - 1] ^ (g.state[i - 1] >> 30)) + i;
  return g;
}

TEST(MersenneTwister, IsTheStandardOne) {
  std::mt19937 expected(5);
  MersenneTwister g = seeded(5);
  for (const size_t count : {1, 2, 621, 1, 700, 0, 2000, 3}) {
    std::vector<uint32_t> drawn(count);
    g.draw(drawn.data(), count);
    for (const uint32_t word : drawn) ASSERT_EQ(word, expected());
  }
}

template <class T>
void check_ones(DType dtype, T one, double p) {
  std::mt19937 expected(9);
  MersenneTwister g = seeded(9);
  expected();
  uint32_t first = 0;
  g.draw(&first, 1);  // draws of two words begin at an odd one
  std::vector<T> out(1500, T(7));
  ASSERT_TRUE(draw_bernoulli(g, p, dtype, out.data(), out.size()));
  for (const T& x : out) {
    const uint64_t high = expected(), low = expected();
    const double fraction = std::ldexp(double((high << 32 | low) & ((uint64_t{1} << 53) - 1)), -53);
    const T wanted = fraction < p ? one : T(0);
    ASSERT_EQ(std::memcmp(&x, &wanted, sizeof(T)), 0);
  }
}

TEST(MersenneTwister, OnesOfEveryDtype) {
  for (const double p : {0.0, 1e-9, 0.1, 0.5, 1.0 / 3, 0.9, 1 - 1e-16, 1.0}) {
    check_ones<float>(DType::F32, 1, p);
    check_ones<double>(DType::F64, 1, p);
    check_ones<uint16_t>(DType::F16, 0x3c00, p);
    check_ones<uint16_t>(DType::BF16, 0x3f80, p);
    check_ones<int64_t>(DType::I64, 1, p);
    check_ones<int32_t>(DType::I32, 1, p);
    check_ones<int16_t>(DType::I16, 1, p);
    check_ones<uint8_t>(DType::U8, 1, p);
    check_ones<uint8_t>(DType::B8, 1, p);
  }
}

TEST(MersenneTwister, OtherDtypesDrawNothing) {
  MersenneTwister g = seeded(1);
  char out[16] = {};
  EXPECT_FALSE(draw_bernoulli(g, 0.5, DType::C64, out, 1));
  EXPECT_EQ(g.used, MersenneTwister::kWords);
}

}  // namespace
}  // namespace oxy::runtime
