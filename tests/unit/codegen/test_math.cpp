// Accuracy of the inlined functions over the whole range, against the C library in a wider type.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <random>

#include "compiled_kernels.h"
#include "kernel_maker.h"
#include "reference/inverse_erf.h"

namespace oxy::codegen::cpp::testing {
namespace {

constexpr int64_t kBlock = 4096;
constexpr uint32_t kStride = 1009;  // of f32's bit patterns: 4.2 million arguments

// A function of T, its value in a wider type, and the largest error, in units of the last place.
template <class T>
struct Function {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  LoopOp op;
  Wide (*reference)(Wide);
  double max_ulp;
};

const Function<float> kOfF32[] = {
    {LoopOp::Exp, std::exp, 1.1},
    {LoopOp::Log, std::log, 1.0},
    {LoopOp::Sin, std::sin, 1.7},
    {LoopOp::Cos, std::cos, 1.9},
    {LoopOp::Tanh, std::tanh, 1.5},
    {LoopOp::Erf, std::erf, 1.1},
    {LoopOp::Erfc, std::erfc, 4.2},
    {LoopOp::Expm1, std::expm1, 1.1},
    {LoopOp::Log1p, std::log1p, 1.0},
    {LoopOp::Log2, std::log2, 1.5},
    {LoopOp::Log10, std::log10, 1.5},
    {LoopOp::Tan, std::tan, 2.6},
    {LoopOp::Asin, std::asin, 1.8},
    {LoopOp::Acos, std::acos, 1.3},
    {LoopOp::Atan, std::atan, 1.4},
    {LoopOp::Asinh, std::asinh, 1.1},
    {LoopOp::Acosh, std::acosh, 1.1},
    {LoopOp::Atanh, std::atanh, 1.1},
    {LoopOp::Erfinv, ops::inverse_erf, 4.0},
};

const Function<double> kOfF64[] = {
    {LoopOp::Exp, std::exp, 1.1},
    {LoopOp::Log, std::log, 0.7},
    {LoopOp::Log2, std::log2, 0.8},
    {LoopOp::Log10, std::log10, 1.6},  // Sleef's
    {LoopOp::Log1p, std::log1p, 1.0},
    {LoopOp::Sin, std::sin, 0.7},
    {LoopOp::Cos, std::cos, 0.7},
    {LoopOp::Tan, std::tan, 0.7},
    {LoopOp::Asin, std::asin, 1.3},
    {LoopOp::Acos, std::acos, 1.3},
    {LoopOp::Atan, std::atan, 0.9},
    {LoopOp::Tanh, std::tanh, 1.0},
    {LoopOp::Erf, std::erf, 1.0},
    {LoopOp::Asinh, std::asinh, 1.1},
    {LoopOp::Acosh, std::acosh, 1.0},
    {LoopOp::Erfc, std::erfc, 4.0},
    {LoopOp::Expm1, std::expm1, 1.1},
    {LoopOp::Atanh, std::atanh, 1.7},  // Sleef's
    {LoopOp::Erfinv, ops::inverse_erf, 3.0},
};

template <class T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::F32 : DType::F64;

template <class T>
void make(KernelMaker& m, LoopOp op) {
  const uint32_t x = m.in(kDType<T>), y = m.out(kDType<T>);
  const Expr v = m.var("v0");
  m.open(ForKind::Vector, v, kBlock);
  m.store(kDType<T>, y, v, m.op(op, kDType<T>, {m.load(kDType<T>, x, v)}));
  m.close();
}

// Distance from the true value in units of the last place of its neighbour in T.
template <class T>
double ulps(T got, typename Function<T>::Wide want) {
  using Limits = std::numeric_limits<T>;
  const auto rounded = static_cast<T>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : 1e9;
  const int exponent = std::max(std::ilogb(want), Limits::min_exponent - 1);
  return static_cast<double>(
      std::fabs(static_cast<typename Function<T>::Wide>(got) - want) /
      std::ldexp(typename Function<T>::Wide{1}, exponent - Limits::digits + 1));
}

template <class T>
class Samples {
 public:
  Samples(CompiledKernels& kernels, size_t id, const Function<T>& f)
      : kernels_(kernels), id_(id), f_(f) {}

  void add(T x) {
    x_.push_back(x);
    if (x_.size() == kBlock) run();
  }
  void run() {
    x_.resize(kBlock, T{1});
    std::vector<T> y(kBlock);
    EXPECT_EQ(kernels_.run(id_, {x_.data(), y.data()}, 0, 1), 0);
    for (size_t i = 0; i < x_.size(); ++i) {
      const double d = ulps<T>(y[i], f_.reference(x_[i]));
      if (d > worst) {
        worst = d;
        where = x_[i];
      }
    }
    x_.clear();
  }
  void report() {
    run();
    std::printf("  %s: %.3f ulp at %.17g\n", std::string(ops::name(f_.op)).c_str(), worst,
                static_cast<double>(where));
    EXPECT_LE(worst, f_.max_ulp) << ops::name(f_.op) << " at " << where;
  }

  double worst = 0;
  T where = 0;

 private:
  CompiledKernels& kernels_;
  size_t id_;
  const Function<T>& f_;
  std::vector<T> x_;
};

TEST(Math, OfF32WithinAnUlpOfTheTrueValue) {
  CompiledKernels kernels;
  const Machine target = runnable_targets().back();
  for (const auto& f : kOfF32) {
    KernelMaker m;
    make<float>(m, f.op);
    kernels.add(m.kernel, target);
  }
  kernels.compile();
  for (size_t k = 0; k < std::size(kOfF32); ++k) {
    Samples<float> samples(kernels, k, kOfF32[k]);
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
    }
    // The everyday range more closely.
    for (int i = 0; i < 1'000'000; ++i) samples.add(static_cast<float>(i - 500'000) * 0.0000401f);
    samples.report();
  }
}

// Each set of vector instructions has its own way to look a table up.
TEST(Math, OfF64WithinAnUlpOfTheTrueValue) {
  for (const Machine& target : runnable_targets()) {
    if (target.vector_bytes == 0) continue;  // the C library's functions
    CompiledKernels kernels;
    for (const auto& f : kOfF64) {
      KernelMaker m;
      make<double>(m, f.op);
      kernels.add(m.kernel, target);
    }
    kernels.compile();
    for (size_t k = 0; k < std::size(kOfF64); ++k) {
      Samples<double> samples(kernels, k, kOfF64[k]);
      for (double x : {0.0,
                       -0.0,
                       5e-324,
                       -5e-324,
                       1e-320,
                       1e-200,
                       0.5,
                       -0.5,
                       0.6,
                       -0.6,
                       0.41421356,
                       0.984375,
                       1.0,
                       1.03125,
                       2.4142135623730951,
                       3.1415926535897931,
                       1.5707963267948966,
                       5.9,
                       5.93,
                       6.0,
                       10.0,
                       -10.0,
                       19.9,
                       20.1,
                       -39.9,
                       -40.1,
                       699.9,
                       700.1}) {
        samples.add(x);
      }
      samples.run();
      for (double x : {-1.0, -0.99999999999999989, -1.1, 1.7e308, double{INFINITY},
                       -double{INFINITY}, double{NAN}, 709.78, 709.79, -708.4, -745.2, 5e-324,
                       2.2250738585072014e-308, 99999999.9, 1e8, 1e30, 1.0, 0.6, -0.0}) {
        samples.add(x);
        samples.run();
      }
      std::mt19937_64 random(7);
      for (int i = 0; i < 300'000; ++i) samples.add(std::bit_cast<double>(random()));
      std::uniform_real_distribution<double> near(-1, 1), positive(0, 2.5), everyday(-25, 25),
          far(-1e8, 1e8);
      for (int i = 0; i < 300'000; ++i) samples.add(near(random));
      for (int i = 0; i < 300'000; ++i) samples.add(positive(random));
      for (int i = 0; i < 300'000; ++i) samples.add(everyday(random));
      for (int i = 0; i < 100'000; ++i) samples.add(far(random));
      for (int i = 0; i < 30'000; ++i) {  // zeros and poles
        const double turned = std::round(far(random) / (1 << i % 26)) * std::numbers::pi / 2;
        for (const double x : {turned, std::nextafter(turned, 0.0), std::nextafter(turned, 1e9)})
          if (std::abs(x) < 1e8) samples.add(x);
      }
      samples.report();
    }
  }
}

template <class T>
void check_roots(CompiledKernels& kernels, size_t id, std::vector<T>& x) {
  x.resize(kBlock, T{1});
  std::vector<T> y(kBlock);
  ASSERT_EQ(kernels.run(id, {x.data(), y.data()}, 0, 1), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    const T want = std::sqrt(x[i]);
    ASSERT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want)))
        << x[i] << ": " << y[i] << ", not " << want;
  }
  x.clear();
}

// The numbers x of 53 bits with x 2^`bits` = m^2 + `off` for an odd m of 54 bits, the middle of two
// numbers: their roots are within |off| 2^-54 ulp of it. Found bit by bit (K. Hensel), scaled to
// [1, 4).
std::vector<double> squares_near_middles(int bits, int64_t off) {
  using Wide = unsigned __int128;
  const Wide size = Wide{1} << bits, wanted = static_cast<Wide>(-off) & (size - 1);
  if (wanted % 8 != 1) return {};
  Wide root = 1;
  for (int bit = 3; bit < bits; ++bit)
    if (((root * root - wanted) >> bit) & 1) root += Wide{1} << (bit - 1);
  std::vector<double> out;
  for (const Wide first : {root, size - root, root + size / 2, size / 2 - root}) {
    for (Wide m = first % size; m < Wide{1} << 54; m += size) {
      const Wide x = (m * m + static_cast<Wide>(off)) >> bits;
      if (m >> 53 == 1 && x >> 52 == 1)
        out.push_back(std::ldexp(static_cast<double>(x), bits - 106));
    }
  }
  return out;
}

TEST(Math, RootsAreTheNearestNumbers) {
  CompiledKernels kernels;
  const Machine target = runnable_targets().back();
  KernelMaker f32, f64;
  make<float>(f32, LoopOp::Sqrt);
  make<double>(f64, LoopOp::Sqrt);
  kernels.add(f32.kernel, target);
  kernels.add(f64.kernel, target);
  kernels.compile();
  // All significands with both parities of the exponent, then the exponents.
  std::vector<float> x;
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; ++bits) {
    x.push_back(std::bit_cast<float>(bits));
    if (x.size() == kBlock) check_roots(kernels, 0, x);
  }
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += kStride) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if (x.size() == kBlock) check_roots(kernels, 0, x);
  }
  check_roots(kernels, 0, x);
  // Any numbers, and those whose roots lie next to the middle of two: within 1e-3 ulp, and the
  // nearest of all.
  std::mt19937_64 random(7);
  std::vector<double> z;
  const auto add = [&](double v) {
    z.push_back(v);
    if (z.size() == kBlock) check_roots(kernels, 1, z);
  };
  for (int i = 0; i < 2'000'000; ++i) add(std::bit_cast<double>(random()));
  std::uniform_real_distribution<double> root(1, 2);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto middle = static_cast<long double>(root(random)) + 0x1p-53L;
    const auto square = static_cast<double>(middle * middle);
    for (double v : {square, std::nextafter(square, 0.0), std::nextafter(square, 5.0)}) add(v);
  }
  for (const int bits : {54, 55})
    for (int64_t off = -4096; off <= 4096; ++off)
      for (const double v : squares_near_middles(bits, off))
        for (const double scale : {1.0, 0x1p-200, 0x1p300}) add(v * scale);
  check_roots(kernels, 1, z);
}

}  // namespace
}  // namespace oxy::codegen::cpp::testing
