// Fills buffers, runs both sides, and compares what they have written.
#include "kernel_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "interpreter.h"

namespace oxy::codegen::cpp::testing {

namespace {

double default_value(size_t buffer, int64_t at) {
  const auto mixed =
      static_cast<uint64_t>(at + 1) * 0x9E3779B97F4A7C15ull + buffer * 0xBF58476D1CE4E5B9ull;
  return (static_cast<double>(mixed >> 40 & 1023) - 511.5) / 128;
}

double epsilon(DType d) {
  switch (d) {
    case DType::BF16:
      return 1.0 / 128;
    case DType::F16:
      return 1.0 / 1024;
    case DType::F64:
      return 2.3e-16;
    default:
      return 1.2e-7;
  }
}

constexpr int64_t kGuard = 16;  // elements behind each buffer that must not change

}  // namespace

void CaseList::add(std::string name, const std::function<void(KernelMaker&)>& make,
                   std::vector<int64_t> sizes, double tolerance, Fill fill, long iterations) {
  auto maker = std::make_unique<KernelMaker>();
  make(*maker);
  cases_.push_back({std::move(name), std::move(maker), std::move(sizes), tolerance, std::move(fill),
                    iterations});
}

void CaseList::add_made(std::string name, const std::function<void(KernelMaker&)>& make,
                        const std::vector<int64_t>& sizes, const long& iterations) {
  auto maker = std::make_unique<KernelMaker>();
  make(*maker);
  cases_.push_back({std::move(name), std::move(maker), sizes, 0, {}, iterations});
}

void CaseList::check() {
  CompiledKernels kernels;
  std::vector<std::pair<size_t, Machine>> runs;
  for (size_t i = 0; i < cases_.size(); ++i) {
    for (const Machine& t : runnable_targets()) {
      kernels.add(cases_[i].maker->kernel, t);
      runs.push_back({i, t});
    }
  }
  kernels.compile("-O1");
  for (size_t k = 0; k < runs.size(); ++k)
    check_one(kernels, k, cases_[runs[k].first], runs[k].second);
}

void CaseList::check_one(CompiledKernels& kernels, size_t id, const Case& c,
                         const Machine& target) {
  const schedule::Kernel& kernel = c.maker->kernel;
  std::vector<std::vector<char>> expected, got;
  std::vector<const schedule::KernelBuffer*> described;
  for (const schedule::KernelBuffer& b : kernel.buffers) {
    if (b.kind == schedule::KernelBuffer::Kind::Local) continue;
    const size_t which = described.size();
    described.push_back(&b);
    const int64_t n = c.sizes[which];
    std::vector<char> bytes(static_cast<size_t>((n + kGuard) * ir::byte_size(b.dtype)));
    for (int64_t i = 0; i < n + kGuard; ++i) {
      double v = c.fill ? c.fill(which, i) : default_value(which, i);
      if (b.dtype == DType::B8) v = static_cast<int64_t>(std::floor(v * 16)) & 1;
      write_number(b.dtype, bytes.data(), i, v);
    }
    expected.push_back(bytes);
    got.push_back(bytes);
  }
  std::vector<void*> a, b;
  for (size_t i = 0; i < got.size(); ++i) {
    a.push_back(expected[i].data());
    b.push_back(got[i].data());
  }
  const int status = interpret(kernel, a);
  int ran = 0;
  const long middle = c.iterations / 3;
  ran |= kernels.run(id, b, 0, middle);
  ran |= kernels.run(id, b, middle, c.iterations);
  EXPECT_EQ(ran, status) << c.name << " width " << target.vector_bytes;
  if (status & 1) return;
  for (size_t i = 0; i < got.size(); ++i) {
    const DType d = described[i]->dtype;
    for (int64_t k = 0; k < c.sizes[i] + kGuard; ++k) {
      const double x = read_number(d, expected[i].data(), k), y = read_number(d, got[i].data(), k);
      if (std::isnan(x) && std::isnan(y)) continue;
      const double slack = ir::is_floating(d) && std::isfinite(x)
                               ? c.tolerance * epsilon(d) * std::max(std::fabs(x), 1e-3)
                               : 0;
      const bool equal = x == y || std::fabs(x - y) <= slack;
      ASSERT_TRUE(equal) << c.name << " width " << target.vector_bytes << ": buffer " << i << " at "
                         << k << " is " << y << ", not " << x << '\n'
                         << kernels.text(id);
    }
  }
}

}  // namespace oxy::codegen::cpp::testing
