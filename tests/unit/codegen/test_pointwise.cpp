// Pointwise kernels of every size around the vectors' ends.
#include <gtest/gtest.h>

#include <cmath>

#include "compiled_kernels.h"
#include "kernel_maker.h"

namespace oxy::codegen::cpp::testing {
namespace {

constexpr float kUntouched = 12345.0f;

// sin((x + 1) * 2) over n elements, in loops of `n`.
void make_sin(KernelMaker& m, int64_t n, bool streaming) {
  const uint32_t x = m.in(DType::F32);
  const uint32_t y = m.out(DType::F32);
  const Expr v = m.var("v0");
  m.open(ForKind::Vector, v, n);
  const uint32_t a = m.load(DType::F32, x, v);
  const uint32_t b = m.op(LoopOp::Add, DType::F32, {a, m.constant(DType::F32, 1)});
  const uint32_t c = m.op(LoopOp::Mul, DType::F32, {b, m.constant(DType::F32, 2)});
  m.store(DType::F32, y, v, m.op(LoopOp::Sin, DType::F32, {c}), streaming);
  m.close();
}

TEST(Pointwise, SinOfEverySize) {
  CompiledKernels kernels;
  std::vector<int64_t> sizes;
  for (const Machine& t : runnable_targets()) {
    for (int64_t n = 0; n <= 70; n += n < 18 ? 1 : 13) {
      KernelMaker m;
      make_sin(m, n, n % 2 == 0);
      kernels.add(m.kernel, t);
      sizes.push_back(n);
    }
  }
  kernels.compile();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t n = static_cast<size_t>(sizes[i]);
    std::vector<float> x(n), y(n + 8, kUntouched);
    for (size_t k = 0; k < n; ++k) x[k] = static_cast<float>(k) * 0.37f - 3;
    EXPECT_EQ(kernels.run(i, {x.data(), y.data()}, 0, 1), 0);
    for (size_t k = 0; k < n; ++k) {
      const float argument = (x[k] + 1) * 2;
      EXPECT_NEAR(y[k], std::sin(static_cast<double>(argument)), 2e-7) << n << " at " << k;
    }
    for (size_t k = n; k < n + 8; ++k) EXPECT_EQ(y[k], kUntouched) << n << " at " << k;
  }
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
