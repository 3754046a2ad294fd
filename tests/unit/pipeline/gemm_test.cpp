// The kernel of gemms and convolutions against sums in double, over shapes that hit every edge:
// partial tiles, panels and blocks, several blocks of k, padding, strides, views; in f32, bf16 and
// f16. Memory around the result and the scratch is watched.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <unordered_map>

#include "codegen/cpp/gemm.h"
#include "jit/compiler.h"

namespace oxy::codegen::cpp {
namespace {

constexpr float kGuard = 12288.0f;  // also in bf16
constexpr size_t kMargin = 64;

int64_t value(const Size& s) { return s.constant(); }

// A bf16 or f16 as its bits; numbers here are normal.
float widened(ir::DType dtype, uint16_t bits) {
  if (dtype == ir::DType::BF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const auto magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  return std::bit_cast<float>(magnitude) * 0x1p112f * (bits & 0x8000 ? -1.0f : 1.0f);
}

uint16_t cut(ir::DType dtype, float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (dtype == ir::DType::BF16) return static_cast<uint16_t>(bits >> 16);
  const float magnitude = std::abs(x) * 0x1p-112f;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(magnitude) >> 13 | (x < 0 ? 0x8000 : 0));
}

struct Memory {
  explicit Memory(const Size& n) : Memory(static_cast<size_t>(value(n))) {}
  explicit Memory(size_t n) : data(n + 2 * kMargin, kGuard), size(n) {}
  // The same in two bytes each; what fits in them is left of these.
  std::vector<uint16_t> cut_to(ir::DType dtype) {
    std::vector<uint16_t> out;
    for (float& x : data) out.push_back(cut(dtype, x)), x = widened(dtype, out.back());
    return out;
  }
  void take(ir::DType dtype, const std::vector<uint16_t>& bits) {
    for (size_t i = 0; i < bits.size(); i++) data[i] = widened(dtype, bits[i]);
  }
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
    if (!codes_.empty()) return;
    if (target_.vector_bytes < 32) GTEST_SKIP() << "this machine has no vectors for the kernel";
    std::string why;
    auto compiler = jit::find_external("", why);
    ASSERT_TRUE(compiler) << why;
    Machine without_pairs = target_;
    without_pairs.avx512_bf16 = without_pairs.amx_bf16 = false;
    std::vector<std::string> texts = gemm_texts(target_);
    if (target_.avx512_bf16)
      std::ranges::copy(gemm_texts(without_pairs), std::back_inserter(texts));
    std::ranges::sort(texts);
    texts.erase(std::ranges::unique(texts).begin(), texts.end());
    const auto code = compiler->compile(texts, 2);
    for (size_t i = 0; i < texts.size(); i++) codes_[texts[i]] = code.at(i);
  }

  std::string text_of(int64_t rows, bool transposed) {
    return emit_gemm(gemm(1, rows, 40, 160, transposed, true), target_);
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
    std::vector<int64_t> parameters;
    for (const Size& x : gemm_parameters(p, target_)) parameters.push_back(value(x));
    const bool halves_in = p.dtype != ir::DType::F32;
    const auto code = codes_.find(emit_gemm(p, target_));
    ASSERT_NE(code, codes_.end()) << print(p);
    const auto bytes = static_cast<size_t>(value(gemm_scratch_bytes(p, target_)));
    const int64_t range = value(gemm_range(p, target_));
    void* buffers[] = {parameters.data(), a.begin(), b.begin(), c.begin(), bias.begin()};
    std::vector<uint16_t> halves[4];
    if (halves_in) {
      Memory* all[] = {&a, &b, &c, &bias};
      for (size_t i = 0; i < 4; i++) {
        if (i == 2 && p.to_f32) continue;
        halves[i] = all[i]->cut_to(p.dtype);
        buffers[i + 1] = halves[i].data() + kMargin;
      }
    }
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, range / 2}, {range / 2, range}}) {
      const size_t whole = (bytes + 127) / 64 * 64;
      std::unique_ptr<char, decltype(&std::free)> scratch(
          static_cast<char*>(std::aligned_alloc(64, whole)), &std::free);
      std::fill_n(scratch.get(), whole, 0x5a);
      ASSERT_EQ(code->second->entry()(buffers, begin, end, scratch.get(), nullptr), 0);
      for (size_t i = bytes; i < whole; i++)
        ASSERT_EQ(scratch.get()[i], 0x5a) << "scratch overrun, " << print(p);
    }
    if (halves_in && !p.to_f32) c.take(p.dtype, halves[2]);
    EXPECT_TRUE(c.margins_intact()) << print(p);
  }

  void check_gemm(Gemm p) {
    Memory a(p.batch * p.a_batch + p.m * p.a_row + p.channels * p.a_k),
        b(p.batch * p.b_batch + p.channels * p.b_k + p.n * p.b_n), bias(p.n),
        c(p.batch * p.m * p.n);
    fill(a), fill(b), fill(bias);
    run(p, a, b, bias, c);
    const int64_t rows = value(p.m), columns = value(p.n), depth = value(p.channels);
    for (int64_t i = 0; i < value(p.batch) * rows * columns; i++) {
      const int64_t n = i % columns, m = i / columns % rows, at = i / columns / rows;
      double sum = p.bias ? bias.begin()[n] : 0;
      for (int64_t k = 0; k < depth; k++)
        sum += static_cast<double>(
                   a.begin()[at * value(p.a_batch) + m * value(p.a_row) + k * value(p.a_k)]) *
               b.begin()[at * value(p.b_batch) + k * value(p.b_k) + n * value(p.b_n)];
      const double rounding = p.dtype == ir::DType::F32 || p.to_f32 ? 0
                              : p.dtype == ir::DType::BF16          ? 0x1p-9
                                                                    : 0x1p-12;
      ASSERT_NEAR(c.begin()[i], sum,
                  1e-6 * static_cast<double>(depth + 4) + rounding * 2 * std::abs(sum))
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

  // The left operand in columns, `apart` values apart.
  Gemm in_columns(Gemm p, int64_t apart) {
    p.a_row = 1, p.a_k = apart, p.a_batch = p.channels * p.a_k;
    return p;
  }

  void check_convolution(Gemm p, int64_t out_h) {
    p.a_row = p.channels, p.a_batch = p.in_h * p.in_w * p.channels;
    p.b_k = 1, p.b_n = p.channels * p.taps();
    p.m = out_h * p.out_w, p.c_row = p.n, p.c_batch = p.m * p.n;
    Memory x(p.batch * p.a_batch), w(p.n * p.b_n), bias(p.n), y(p.batch * p.c_batch);
    fill(x), fill(w), fill(bias);
    run(p, x, w, bias, y);
    const int64_t columns = value(p.n), pixels = value(p.m), depth = value(p.channels);
    const int64_t height = value(p.in_h), width = value(p.in_w), out_w = value(p.out_w);
    const int64_t kernel_h = value(p.kernel_h), kernel_w = value(p.kernel_w);
    for (int64_t i = 0; i < value(p.batch * p.c_batch); i++) {
      const int64_t n = i % columns, pixel = i / columns % pixels, image = i / columns / pixels;
      double sum = p.bias ? bias.begin()[n] : 0;
      for (int64_t h = 0; h < kernel_h; h++) {
        for (int64_t v = 0; v < kernel_w; v++) {
          const int64_t iy = pixel / out_w * value(p.stride_h) - value(p.pad_h) +
                             h * value(p.dilation_h),
                        ix = pixel % out_w * value(p.stride_w) - value(p.pad_w) +
                             v * value(p.dilation_w);
          if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
          for (int64_t k = 0; k < depth; k++)
            sum += static_cast<double>(
                       x.begin()[image * value(p.a_batch) + (iy * width + ix) * depth + k]) *
                   w.begin()[((n * depth + k) * kernel_h + h) * kernel_w + v];
        }
      }
      ASSERT_NEAR(y.begin()[i], sum, 1e-6 * static_cast<double>(depth * kernel_h * kernel_w + 4))
          << print(p) << " at " << i;
    }
  }

  Machine target_;
  static inline std::unordered_map<std::string, std::shared_ptr<jit::Code>> codes_;  // by text
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

TEST_F(GemmTest, Columns) {
  for (int64_t m : {17, 64, 250, 300})
    for (int64_t n : {64, 130})
      for (int64_t k : {1, 7, 100, 700})
        for (ir::DType dtype : {ir::DType::F32, ir::DType::F16}) {
          Gemm p = in_columns(gemm(n == 130 ? 2 : 1, m, n, k, k == 100, m == 64), m + pick(0, 9));
          p.dtype = dtype;
          check_gemm(p);
        }
}

TEST_F(GemmTest, Halves) {
  for (ir::DType dtype : {ir::DType::BF16, ir::DType::F16}) {
    auto check = [&](Gemm p) {
      p.dtype = dtype;
      check_gemm(p);
      p.to_f32 = true, p.bias = false;
      check_gemm(p);
    };
    for (int64_t m : {1, 2, 5, 6, 7, 13, 25, 63, 257})
      for (int64_t k : {1, 2, 19, 31, 32, 33, 160}) check(gemm(1, m, 33, k, true, true));
    for (int64_t n : {1, 2, 9, 16, 17, 63, 64, 65, 200})
      for (int64_t m : {1, 3, 29, 30})
        for (bool transposed : {false, true})
          for (int64_t k : {299, 300, 900}) check(gemm(1, m, n, k, transposed, true));
    for (int64_t n : {1, 9, 16})
      for (int64_t m : {29, 500})
        for (int64_t k : {1, 3, 16, 17, 100, 256}) check(gemm(2, m, n, k, m == 29, true));
    for (int64_t k : {1024, 2047, 2048}) {
      Gemm p = gemm(1, 70, 70, k, true, false);
      p.a_row = 2048;  // whose rows collide
      check(p);
    }
    for (int i = 0; i < 120; i++)
      check(gemm(pick(1, 3), pick(1, 80), pick(1, 150), pick(1, 900), pick(0, 1) != 0,
                 pick(0, 1) != 0));
  }
}

TEST_F(GemmTest, Convolutions) {
  for (int i = 0; i < 60; i++) {
    Gemm p;
    p.batch = pick(1, 2), p.channels = pick(1, 40), p.n = pick(1, 40), p.bias = pick(0, 1) != 0;
    const int64_t kernel_h = pick(1, 4), kernel_w = pick(1, 4), stride_h = pick(1, 3),
                  stride_w = pick(1, 3);
    const int64_t pad_h = pick(0, kernel_h / 2), pad_w = pick(0, kernel_w / 2);
    const int64_t dilation_h = pick(1, 2), dilation_w = pick(1, 2);
    const int64_t reach_h = (kernel_h - 1) * dilation_h + 1,
                  reach_w = (kernel_w - 1) * dilation_w + 1;
    const int64_t in_h = reach_h + pick(0, 9), in_w = reach_w + pick(0, 9);
    p.kernel_h = kernel_h, p.kernel_w = kernel_w, p.stride_h = stride_h, p.stride_w = stride_w;
    p.pad_h = pad_h, p.pad_w = pad_w, p.dilation_h = dilation_h, p.dilation_w = dilation_w;
    p.in_h = in_h, p.in_w = in_w, p.out_w = (in_w + 2 * pad_w - reach_w) / stride_w + 1;
    check_convolution(p, (in_h + 2 * pad_h - reach_h) / stride_h + 1);
  }
}

// What follows from sizes that are slots is what follows from their values.
TEST_F(GemmTest, SizesAsSlots) {
  for (const bool transposed : {false, true})
    for (const auto rows : {Gemm::Rows::Few, Gemm::Rows::Many}) {
      runtime::SizeProgram program;
      runtime::SizeBuilder builder(program);
      auto read = [&](size_t d, int64_t hint) {
        return Size(builder, builder.input(runtime::SizeOp::InputSize, 0, d), hint);
      };
      auto shape = [&](const Size& m, const Size& k, const Size& batch) {
        Gemm p;
        p.batch = batch, p.m = m, p.n = k + 30, p.channels = k, p.bias = true, p.rows = rows;
        p.a_row = k, p.a_batch = m * k;
        p.b_k = transposed ? Size(1) : p.n, p.b_n = transposed ? k : Size(1);
        p.b_batch = k * p.n, p.c_row = p.n, p.c_batch = m * p.n;
        return p;
      };
      const Gemm varying = shape(read(0, 100), read(1, 768), read(2, 2));
      std::vector<Size> sizes = gemm_parameters(varying, target_);
      sizes.push_back(gemm_range(varying, target_));
      sizes.push_back(gemm_scratch_bytes(varying, target_));
      for (int64_t m : {1, 2, 5, 12, 13, 100, 256, 257, 1000})
        for (int64_t k : {1, 64, 300, 768, 1024, 3072})
          for (int64_t batch : {1, 12}) {
            const Gemm fixed = shape(m, k, batch);
            // A sum of one value is another kernel's, where that is known.
            if (reads_as_it_lies(fixed, target_) != reads_as_it_lies(varying, target_)) continue;
            std::vector<Size> wanted = gemm_parameters(fixed, target_);
            wanted.push_back(gemm_range(fixed, target_));
            wanted.push_back(gemm_scratch_bytes(fixed, target_));
            const int64_t read_sizes[] = {m, k, batch};
            const runtime::SizeInput input{read_sizes, nullptr, 0};
            std::vector<int64_t> slots(program.instructions.size());
            runtime::evaluate(program, {&input, 1}, slots.data());
            ASSERT_EQ(sizes.size(), wanted.size());
            for (size_t i = 0; i < sizes.size(); i++) {
              const int64_t is = sizes[i].is_constant() ? sizes[i].constant()
                                                        : slots[sizes[i].slot(builder).index];
              ASSERT_EQ(is, value(wanted[i])) << i << " of " << print(fixed);
            }
          }
      // Nothing to do where there is nothing.
      const int64_t none[] = {0, 64, 1};
      const runtime::SizeInput input{none, nullptr, 0};
      std::vector<int64_t> slots(program.instructions.size());
      runtime::evaluate(program, {&input, 1}, slots.data());
      EXPECT_EQ(slots[gemm_range(varying, target_).slot(builder).index], 0);
    }
}

TEST_F(GemmTest, OneTextForAllShapes) {
  EXPECT_EQ(text_of(50, true), text_of(90, false));
  EXPECT_EQ(text_of(2, true), text_of(5, true));
  EXPECT_EQ(text_of(2, false), text_of(5, false));
}

}  // namespace
}  // namespace oxy::codegen::cpp
