// Gemms of random shapes on machines with caches of several sizes, against sums in doubles: what
// takes a large matrix where caches are large takes a small one where they are small.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codegen/cpp/gemm.h"
#include "compiled_kernels.h"

namespace oxy::codegen::cpp {
namespace {

using testing::CompiledKernels;

struct Matrix {
  int64_t batch, row, column, offset;  // strides
  std::vector<float> values;
  float at(int64_t b, int64_t i, int64_t j) const {
    return values[static_cast<size_t>(offset + b * batch + i * row + j * column)];
  }
};

class GemmCase {
 public:
  GemmCase(std::mt19937& random, const Machine& target) : target_(target) {
    auto upto = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(most));
    };
    const int64_t m = upto(random() % 3 == 0 ? 16 : 200), k = upto(700), n = upto(400),
                  batch = upto(2);
    a_ = matrix(random, batch, m, k, m > 40 && random() % 2 == 0);
    b_ = matrix(random, batch, k, n, random() % 2 == 0);
    c_ = matrix(random, batch, m, n, false);
    bias_.resize(static_cast<size_t>(n));
    for (float& x : bias_) x = number(random);
    gemm_.batch = batch, gemm_.m = m, gemm_.n = n, gemm_.channels = k;
    gemm_.a_batch = a_.batch, gemm_.a_row = a_.row, gemm_.a_k = a_.column;
    gemm_.b_batch = b_.batch, gemm_.b_k = b_.row, gemm_.b_n = b_.column;
    gemm_.c_batch = c_.batch, gemm_.c_row = c_.row;
    gemm_.a_offset = a_.offset, gemm_.b_offset = b_.offset, gemm_.c_offset = c_.offset;
    gemm_.bias = random() % 2 == 0;
    for (const Size& s : gemm_parameters(gemm_, target)) parameters_.push_back(s.constant());
  }

  std::string text() const { return emit_gemm(gemm_, target_); }
  int64_t scratch() const { return gemm_scratch_bytes(gemm_, target_).constant(); }
  const Machine& target() const { return target_; }

  void check(CompiledKernels& kernels, size_t kernel, std::mt19937& random) {
    const std::vector<void*> buffers{parameters_.data(), a_.values.data(), b_.values.data(),
                                     c_.values.data(), bias_.data()};
    const int64_t range = gemm_range(gemm_, target_).constant();
    const int64_t middle = static_cast<int64_t>(random() % static_cast<uint32_t>(range + 1));
    ASSERT_EQ(kernels.run(kernel, buffers, 0, middle), 0);
    ASSERT_EQ(kernels.run(kernel, buffers, middle, range), 0);
    for (int64_t b = 0; b < gemm_.batch.constant(); ++b)
      for (int64_t i = 0; i < gemm_.m.constant(); ++i)
        for (int64_t j = 0; j < gemm_.n.constant(); ++j) {
          double sum = gemm_.bias ? bias_[static_cast<size_t>(j)] : 0;
          for (int64_t k = 0; k < gemm_.channels.constant(); ++k)
            sum += static_cast<double>(a_.at(b, i, k)) * b_.at(b, k, j);
          ASSERT_NEAR(c_.at(b, i, j), sum, 1e-3) << print(gemm_) << " at " << b << ", " << i << ", "
                                                 << j << " with an l2 of " << target_.l2.bytes;
        }
  }

 private:
  static float number(std::mt19937& random) {
    return static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
  }

  // Rows may have gaps, or lie a number of pages apart.
  static Matrix matrix(std::mt19937& random, int64_t batch, int64_t rows, int64_t columns,
                       bool in_columns) {
    int64_t apart = in_columns ? rows : columns;
    if (random() % 3 == 0) apart += static_cast<int64_t>(random() % 20);
    if (random() % 3 == 0) apart = (apart + 1023) / 1024 * 1024;
    Matrix out{apart * (in_columns ? columns : rows),
               in_columns ? 1 : apart,
               in_columns ? apart : 1,
               static_cast<int64_t>(random() % 5),
               {}};
    out.values.resize(static_cast<size_t>(out.offset + batch * out.batch));
    for (float& x : out.values) x = number(random);
    return out;
  }

  Machine target_;
  Gemm gemm_;
  Matrix a_, b_, c_;
  std::vector<float> bias_;
  std::vector<int64_t> parameters_;
};

TEST(Gemms, RandomShapesAndCaches) {
  constexpr int kOfEach = 25;
  std::mt19937 random(1);
  CompiledKernels kernels;
  std::vector<GemmCase> cases;
  for (Machine target : testing::runnable_targets()) {
    if (target.vector_bytes == 0) continue;
    for (const int64_t bytes : {1 << 14, 1 << 16, 1 << 18, 1 << 21}) {
      target.l2.bytes = bytes;
      for (int i = 0; i < kOfEach; ++i) cases.emplace_back(random, target);
    }
  }
  std::map<std::string, std::vector<size_t>> by_text;
  for (size_t i = 0; i < cases.size(); ++i) by_text[cases[i].text()].push_back(i);
  std::vector<size_t> kernel(cases.size());
  for (const auto& [text, users] : by_text) {
    int64_t scratch = 0;
    for (size_t i : users) scratch = std::max(scratch, cases[i].scratch());
    const size_t number = kernels.add(text, cases[users[0]].target(), (scratch + 63) / 64 * 64);
    for (size_t i : users) kernel[i] = number;
  }
  kernels.compile("-O1");
  for (size_t i = 0; i < cases.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(cases[i].check(kernels, kernel[i], random));
}

}  // namespace
}  // namespace oxy::codegen::cpp
