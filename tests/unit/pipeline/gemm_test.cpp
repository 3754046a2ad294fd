// The kernel of gemms and convolutions against sums in double, over shapes that hit every edge:
// partial tiles, panels and blocks, several blocks of k, padding, strides, views. Memory around the
// result and the scratch is watched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

#include "codegen/cpp/gemm.h"
#include "jit/compiler.h"

namespace oxy::codegen::cpp {
namespace {

constexpr float kGuard = 12345.0f;
constexpr size_t kMargin = 64;

struct Memory {
  explicit Memory(size_t n) : data(n + 2 * kMargin, kGuard), size(n) {}
  float* begin() { return data.data() + kMargin; }
  bool margins_intact() const {
    for (size_t i = 0; i < kMargin; i++)
      if (data[i] != kGuard || data[kMargin + size + i] != kGuard) return false;
    return true;
  }
  std::vector<float> data;
  size_t size;
};

class GemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    target_ = host_machine();
    if (target_.vector_bytes < 32) GTEST_SKIP() << "this machine has no vectors for the kernel";
    std::string why;
    auto compiler = jit::find_external("", why);
    ASSERT_TRUE(compiler) << why;
    auto code = compiler->compile({text_of(100, false), text_of(1, true), text_of(1, false)}, 2);
    packs_ = code.at(0), dots_ = code.at(1), rows_ = code.at(2);
  }

  std::string text_of(int64_t rows, bool transposed) {
    return emit_gemm(gemm(1, rows, 9, 9, transposed, true), target_);
  }

  void fill(Memory& m) {
    for (size_t i = 0; i < m.size; i++)
      m.begin()[i] = std::uniform_real_distribution<float>(-1, 1)(random_);
  }
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // Runs all iterations in two pieces, as two threads would.
  void run(const Gemm& p, Memory& a, Memory& b, Memory& bias, Memory& c) {
    std::vector<int64_t> parameters = gemm_parameters(p, target_);
    const jit::Code* code = (is_dot_gemm(p) ? dots_ : is_row_gemm(p) ? rows_ : packs_).get();
    const auto bytes = static_cast<size_t>(gemm_scratch_bytes(p, target_));
    const int64_t range = gemm_range(p, target_);
    void* buffers[] = {parameters.data(), a.begin(), b.begin(), c.begin(), bias.begin()};
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, range / 2}, {range / 2, range}}) {
      const size_t whole = (bytes + 127) / 64 * 64;
      std::unique_ptr<char, decltype(&std::free)> scratch(
          static_cast<char*>(std::aligned_alloc(64, whole)), &std::free);
      std::fill_n(scratch.get(), whole, 0x5a);
      ASSERT_EQ(code->entry()(buffers, begin, end, scratch.get(), nullptr), 0);
      for (size_t i = bytes; i < whole; i++)
        ASSERT_EQ(scratch.get()[i], 0x5a) << "scratch overrun, " << print(p);
    }
    EXPECT_TRUE(c.margins_intact()) << print(p);
  }

  void check_gemm(Gemm p) {
    Memory a(static_cast<size_t>(p.batch * p.a_batch + p.m * p.a_row + p.channels)),
        b(static_cast<size_t>(p.batch * p.b_batch + p.channels * p.b_k + p.n * p.b_n)),
        bias(static_cast<size_t>(p.n)), c(static_cast<size_t>(p.batch * p.m * p.n));
    fill(a), fill(b), fill(bias);
    run(p, a, b, bias, c);
    for (int64_t i = 0; i < p.batch * p.m * p.n; i++) {
      const int64_t n = i % p.n, m = i / p.n % p.m, at = i / p.n / p.m;
      double sum = p.bias ? bias.begin()[n] : 0;
      for (int64_t k = 0; k < p.channels; k++)
        sum += static_cast<double>(a.begin()[at * p.a_batch + m * p.a_row + k]) *
               b.begin()[at * p.b_batch + k * p.b_k + n * p.b_n];
      ASSERT_NEAR(c.begin()[i], sum, 1e-6 * static_cast<double>(p.channels + 4))
          << print(p) << " at " << i;
    }
  }

  Gemm gemm(int64_t batch, int64_t m, int64_t n, int64_t k, bool transposed, bool bias) {
    Gemm p;
    p.batch = batch, p.m = m, p.n = n, p.channels = k, p.bias = bias;
    p.a_row = k + pick(0, 3), p.a_batch = m * p.a_row;
    p.b_k = transposed ? 1 : n + pick(0, 3), p.b_n = transposed ? k + pick(0, 3) : 1;
    p.b_batch = batch > 1 ? (transposed ? n * p.b_n : k * p.b_k) : 0;
    p.c_row = n, p.c_batch = m * n;
    return p;
  }

  void check_convolution(Gemm p, int64_t out_h) {
    p.a_row = p.channels, p.a_batch = p.in_h * p.in_w * p.channels;
    p.b_k = 1, p.b_n = p.channels * p.taps();
    p.m = out_h * p.out_w, p.c_row = p.n, p.c_batch = p.m * p.n;
    Memory x(static_cast<size_t>(p.batch * p.a_batch)), w(static_cast<size_t>(p.n * p.b_n)),
        bias(static_cast<size_t>(p.n)), y(static_cast<size_t>(p.batch * p.c_batch));
    fill(x), fill(w), fill(bias);
    run(p, x, w, bias, y);
    for (int64_t i = 0; i < p.batch * p.c_batch; i++) {
      const int64_t n = i % p.n, pixel = i / p.n % p.m, image = i / p.n / p.m;
      double sum = p.bias ? bias.begin()[n] : 0;
      for (int64_t h = 0; h < p.kernel_h; h++) {
        for (int64_t v = 0; v < p.kernel_w; v++) {
          const int64_t iy = pixel / p.out_w * p.stride_h - p.pad_h + h * p.dilation_h;
          const int64_t ix = pixel % p.out_w * p.stride_w - p.pad_w + v * p.dilation_w;
          if (iy < 0 || iy >= p.in_h || ix < 0 || ix >= p.in_w) continue;
          for (int64_t k = 0; k < p.channels; k++)
            sum += static_cast<double>(
                       x.begin()[image * p.a_batch + (iy * p.in_w + ix) * p.channels + k]) *
                   w.begin()[((n * p.channels + k) * p.kernel_h + h) * p.kernel_w + v];
        }
      }
      ASSERT_NEAR(y.begin()[i], sum, 1e-6 * static_cast<double>(p.channels * p.taps() + 4))
          << print(p) << " at " << i;
    }
  }

  Machine target_;
  std::shared_ptr<jit::Code> packs_, dots_, rows_;
  std::mt19937 random_{7};
};

TEST_F(GemmTest, Gemms) {
  for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 13, 24, 25, 32, 63, 64, 256, 257})
    for (int64_t k : {19, 160}) check_gemm(gemm(1, m, 33, k, true, true));
  for (int64_t n : {1, 3, 9, 600, 1100})
    for (int64_t m : {1, 2, 7, 8}) check_gemm(gemm(1, m, n, 75, false, true));
  for (int64_t n : {1, 3, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 200})
    for (int64_t m : {9, 29})
      for (bool transposed : {false, true}) check_gemm(gemm(1, m, n, 300, transposed, true));
  for (int64_t k : {1, 7, 8, 15, 16, 17, 127, 128, 129, 192, 193, 255, 288, 289, 577, 1000})
    for (int64_t m : {8, 25}) check_gemm(gemm(1, m, 40, k, true, false));
  for (int i = 0; i < 120; i++)
    check_gemm(gemm(pick(1, 3), pick(1, 80), pick(1, 150), pick(1, 400), pick(0, 1) != 0,
                    pick(0, 1) != 0));
}

TEST_F(GemmTest, Convolutions) {
  for (int i = 0; i < 60; i++) {
    Gemm p;
    p.batch = pick(1, 2), p.channels = pick(1, 40), p.n = pick(1, 40), p.bias = pick(0, 1) != 0;
    p.kernel_h = pick(1, 4), p.kernel_w = pick(1, 4), p.stride_h = pick(1, 3),
    p.stride_w = pick(1, 3);
    p.pad_h = pick(0, p.kernel_h / 2), p.pad_w = pick(0, p.kernel_w / 2);
    p.dilation_h = pick(1, 2), p.dilation_w = pick(1, 2);
    const int64_t reach_h = (p.kernel_h - 1) * p.dilation_h + 1,
                  reach_w = (p.kernel_w - 1) * p.dilation_w + 1;
    p.in_h = reach_h + pick(0, 9), p.in_w = reach_w + pick(0, 9);
    p.out_w = (p.in_w + 2 * p.pad_w - reach_w) / p.stride_w + 1;
    check_convolution(p, (p.in_h + 2 * p.pad_h - reach_h) / p.stride_h + 1);
  }
}

TEST_F(GemmTest, OneTextForAllShapes) {
  EXPECT_EQ(text_of(50, true), text_of(90, false));
  EXPECT_EQ(text_of(2, true), text_of(5, true));
  EXPECT_EQ(text_of(2, false), text_of(5, false));
}

}  // namespace
}  // namespace oxy::codegen::cpp
