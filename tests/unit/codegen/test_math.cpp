// Accuracy of the inlined functions over the whole range of f32, against the C library in double
// precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>

#include "compiled_kernels.h"
#include "kernel_maker.h"

namespace oxy::codegen::cpp::testing {
namespace {

struct Function {
  LoopOp op;
  double (*reference)(double);
  double max_ulp;
};

constexpr int64_t kBlock = 4096;
constexpr uint32_t kStride = 1009;  // of bit patterns: 4.2 million arguments

const Function kFunctions[] = {
    {LoopOp::Exp, std::exp, 1.1},     {LoopOp::Log, std::log, 1.0},
    {LoopOp::Sin, std::sin, 2.0},     {LoopOp::Cos, std::cos, 2.0},
    {LoopOp::Tanh, std::tanh, 1.5},   {LoopOp::Erf, std::erf, 1.1},
    {LoopOp::Expm1, std::expm1, 1.1}, {LoopOp::Log1p, std::log1p, 1.0},
    {LoopOp::Log2, std::log2, 1.5},   {LoopOp::Log10, std::log10, 1.5},
    {LoopOp::Tan, std::tan, 2.6},     {LoopOp::Asin, std::asin, 1.8},
    {LoopOp::Acos, std::acos, 1.3},   {LoopOp::Atan, std::atan, 1.4},
};

void make(KernelMaker& m, LoopOp op) {
  const uint32_t x = m.in(DType::F32), y = m.out(DType::F32);
  const Expr v = m.var("v0");
  m.open(ForKind::Vector, v, kBlock);
  m.store(DType::F32, y, v, m.op(op, DType::F32, {m.load(DType::F32, x, v)}));
  m.close();
}

// Distance from the true value in units of the last place of its f32 neighbour.
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : 1e9;
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

class Samples {
 public:
  void add(float x) { x_.push_back(x); }
  bool full() const { return x_.size() == kBlock; }
  // The largest distance, and where.
  void run(CompiledKernels& kernels, size_t id, const Function& f, double& worst, float& where) {
    x_.resize(kBlock, 1.0f);
    std::vector<float> y(kBlock);
    EXPECT_EQ(kernels.run(id, {x_.data(), y.data()}, 0, 1), 0);
    for (size_t i = 0; i < x_.size(); ++i) {
      const double d = ulps(y[i], f.reference(static_cast<double>(x_[i])));
      if (d > worst) {
        worst = d;
        where = x_[i];
      }
    }
    x_.clear();
  }

 private:
  std::vector<float> x_;
};

TEST(Math, WithinAnUlpOfTheTrueValue) {
  CompiledKernels kernels;
  const Machine target = runnable_targets().back();
  for (const Function& f : kFunctions) {
    KernelMaker m;
    make(m, f.op);
    kernels.add(m.kernel, target);
  }
  kernels.compile();
  for (size_t k = 0; k < std::size(kFunctions); ++k) {
    const Function& f = kFunctions[k];
    double worst = 0;
    float where = 0;
    Samples samples;
    // The usual way and the way of special values, each with lanes of its own.
    for (float x : {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-20f, 0.6f, -0.6f, 1.0f, 0.9f, 3.95f,
                    3.14159274f, 1.57079637f, 10.0f, -10.0f, 86.9f, -86.9f}) {
      samples.add(x);
    }
    for (float x : {0.0f,        -0.0f,      -1.0f,        -0.99999994f, -1.1f,
                    3e38f,       INFINITY,   -INFINITY,    NAN,          88.72284f,
                    88.7228317f, -87.33655f, -103.972084f, 1e-45f,       1.17549435e-38f,
                    0.6f,        -0.6f,      0.9f,         3.95f,        30000.0f,
                    1e30f,       1.0f,       3.14159274f,  1.57079637f}) {
      samples.add(x);
    }
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += kStride) {
      samples.add(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      if (samples.full()) samples.run(kernels, k, f, worst, where);
    }
    // The everyday range more closely.
    for (int i = 0; i < 1'000'000; ++i) {
      samples.add(static_cast<float>(i - 500'000) * 0.0000401f);
      if (samples.full()) samples.run(kernels, k, f, worst, where);
    }
    samples.run(kernels, k, f, worst, where);
    std::printf("  %s: %.3f ulp at %.9g\n", std::string(ops::name(f.op)).c_str(), worst,
                static_cast<double>(where));
    EXPECT_LE(worst, f.max_ulp) << ops::name(f.op) << " at " << where;
  }
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
