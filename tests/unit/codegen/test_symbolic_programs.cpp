// Random programs with symbolic sizes, compiled once and run at three sizes: what the kernels
// compute is what the interpreter of the schedule's tests computes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "../schedule/interpret.h"
#include "../schedule/random_program.h"
#include "compiled_kernels.h"
#include "schedule/cpu/pass_list.h"
#include "support/check.h"

namespace oxy::codegen::cpp::testing {
namespace {

using schedule::For;
using schedule::Kernel;
using schedule::KernelBuffer;
using test::Memory;
using test::Sizes;

constexpr size_t kMargin = 64;  // bytes around a buffer, which nobody may write
constexpr unsigned char kGuardByte = 0xa5;

int64_t value_of(sym::Expr e, const Sizes& sizes) {
  return e.is_const() ? e.value() : sym::evaluate(e, [&](sym::Expr s) { return sizes.at(s); });
}

int64_t iterations_of(const schedule::Block& block, const Sizes& sizes) {
  const For* f = block.empty() ? nullptr : std::get_if<For>(&block.back().v);
  if (!f || f->kind != schedule::ForKind::Parallel) return 1;
  return value_of(f->size, sizes) * iterations_of(f->body, sizes);
}

// A buffer as a kernel sees it.
class Typed {
 public:
  Typed(ir::DType dtype, const std::vector<double>& data)
      : dtype_(dtype),
        bytes_(data.size() * static_cast<size_t>(ir::byte_size(dtype)) + 2 * kMargin, kGuardByte) {
    for (size_t i = 0; i < data.size(); ++i) {
      if (dtype == ir::DType::F32) put(i, static_cast<float>(data[i]));
      if (dtype == ir::DType::F64) put(i, data[i]);
      if (dtype == ir::DType::I64) put(i, std::isnan(data[i]) ? 0 : static_cast<int64_t>(data[i]));
    }
  }
  void* begin() { return bytes_.data() + kMargin; }
  void read_back(std::vector<double>& data) const {
    for (size_t i = 0; i < kMargin; ++i) {
      ASSERT_EQ(bytes_[i], kGuardByte) << "written in front of a buffer";
      ASSERT_EQ(bytes_[bytes_.size() - 1 - i], kGuardByte) << "written behind a buffer";
    }
    for (size_t i = 0; i < data.size(); ++i) {
      if (dtype_ == ir::DType::F32) data[i] = static_cast<double>(get<float>(i));
      if (dtype_ == ir::DType::F64) data[i] = get<double>(i);
      if (dtype_ == ir::DType::I64) data[i] = static_cast<double>(get<int64_t>(i));
    }
  }

 private:
  template <class T>
  void put(size_t i, T x) {
    std::memcpy(bytes_.data() + kMargin + i * sizeof(T), &x, sizeof(T));
  }
  template <class T>
  T get(size_t i) const {
    T x;
    std::memcpy(&x, bytes_.data() + kMargin + i * sizeof(T), sizeof(T));
    return x;
  }

  ir::DType dtype_;
  std::vector<unsigned char> bytes_;
};

struct Case {
  uint32_t seed;
  loops::Program program;
  schedule::Schedule schedule;
  size_t first = 0;  // number of its first kernel
};

void run_kernel(CompiledKernels& compiled, size_t number, const Case& c, const Kernel& k, Memory& m,
                const Sizes& sizes) {
  // By memory: a temp may lie in the result that takes its place.
  std::map<loops::BufferId, Typed> typed;
  std::vector<void*> buffers;
  for (const KernelBuffer& b : k.buffers) {
    if (b.kind == KernelBuffer::Kind::Local) continue;
    const loops::BufferId memory = loops::memory_of(c.schedule.program, b.buffer);
    buffers.push_back(typed.try_emplace(memory, b.dtype, m.at(memory)).first->second.begin());
  }
  std::vector<int64_t> parameters;
  for (sym::Expr s : k.parameters) parameters.push_back(sizes.at(s));
  const int64_t iterations = iterations_of(k.body, sizes);
  for (auto [begin, end] :
       {std::pair<int64_t, int64_t>{0, iterations / 2}, {iterations / 2, iterations}})
    ASSERT_EQ(compiled.run(number, buffers, begin, end, parameters), 0) << schedule::print(k);
  for (const auto& [memory, t] : typed) t.read_back(m.at(memory));
}

void check(CompiledKernels& compiled, const Case& c, const Sizes& sizes) {
  const loops::Program& p = c.program;
  Memory want = test::initial_memory(p, c.seed, sizes);
  Memory got = test::initial_memory(c.schedule.program, c.seed, sizes);
  test::run(p, want, sizes);
  test::run(c.schedule, got, false, sizes, [&](const Kernel& k) {
    run_kernel(compiled, c.first + static_cast<size_t>(&k - c.schedule.kernels.data()), c, k, got,
               sizes);
  });
  for (const auto& [b, data] : want) {
    if (p.buffers[b].kind != loops::Buffer::Kind::Output) continue;
    for (size_t i = 0; i < data.size(); ++i) {
      const double x = data[i], y = got.at(b)[i];
      const bool same =
          x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= 2e-3 * (1 + std::abs(x));
      ASSERT_TRUE(same) << p.buffers[b].name << "[" << i << "]: " << x << " became " << y
                        << "\nseed " << c.seed << "\n"
                        << loops::print(p) << schedule::print(c.schedule);
    }
  }
}

void check_all(test::RandomOptions o, uint32_t count) {
  o.positions = false;
  std::vector<Case> cases;
  CompiledKernels compiled;
  const Machine target = runnable_targets().back();
  for (uint32_t seed = 0; seed < count; ++seed) {
    Case c{seed, test::random_program(seed, o), {}};
    c.schedule = schedule::make_schedule(c.program, {});
    for (const Kernel& k : c.schedule.kernels) {
      const size_t number = compiled.add(k, target);
      if (&k == c.schedule.kernels.data()) c.first = number;
    }
    cases.push_back(std::move(c));
  }
  compiled.compile("-O1");
  for (const Case& c : cases) {
    for (const std::vector<int64_t>& call : o.calls) {
      Sizes sizes;
      for (size_t i = 0; i < call.size(); ++i)
        sizes[*c.program.pool->find_symbol(o.symbols[i].name)] = call[i];
      check(compiled, c, sizes);
      if (::testing::Test::HasFatalFailure()) {
        FAIL() << "at " << call[0] << ", " << call[1];
        return;
      }
    }
  }
}

}  // namespace

TEST(SymbolicPrograms, Small) {
  test::RandomOptions o;
  o.symbols = {{"s0", {0, INT64_MAX}, 20}, {"s1", {1, INT64_MAX}, 6}};
  o.calls = {{20, 6}, {1, 1}, {0, 3}, {37, 5}};
  check_all(o, 60);
}

TEST(SymbolicPrograms, Large) { check_all(test::large_symbolic(), 30); }

}  // namespace oxy::codegen::cpp::testing
