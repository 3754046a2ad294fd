// A plan whose sizes vary, parsed from text, saved, loaded and run at several sizes on the CPU.
#include "runtime/run_plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan_samples.h"
#include "runtime/plan_file.h"
#include "support/check.h"

namespace oxy::runtime {
namespace {

// Rows begin .. end-1 of `parameters[1]` columns.
int row_add(void* const* buffers, long begin, long end, void*, void* const*) {
  const auto* parameters = static_cast<const int64_t*>(buffers[0]);
  const auto* in = static_cast<const float*>(buffers[1]);
  auto* out = static_cast<float*>(buffers[2]);
  if (end > parameters[0]) return 1;
  for (long i = begin * parameters[1]; i < end * parameters[1]; i++) out[i] = in[i] + 1;
  return 0;
}

int square(void* const* buffers, long begin, long end, void* scratch, void* const*) {
  const auto* in = static_cast<const float*>(buffers[0]);
  auto* out = static_cast<float*>(buffers[1]);
  for (long i = begin; i < end; i++) {
    *static_cast<float*>(scratch) = in[i];
    out[i] = *static_cast<float*>(scratch) * in[i];
  }
  return 0;
}

int refuse(void* const*, long, long, void*, void* const*) { return 2; }

CodeTable code(KernelFn second = square) {
  CodeTable t;
  auto text = [](const char* s) { return std::make_shared<const std::string>(s); };
  t.add(content_hash(kRowAdd), {row_add, nullptr, text(kRowAdd)});
  t.add(content_hash(kSquare), {second, nullptr, text(kSquare)});
  return t;
}

Array numbers(const std::vector<int64_t>& sizes) {
  Array a = make_array({DType::F32, {}, sizes, {sizes[1], 1}, 0});
  auto* data = reinterpret_cast<float*>(a.memory.data);
  std::iota(data, data + sizes[0] * sizes[1], 0.0f);
  return a;
}

class RunPlan : public ::testing::Test {
 protected:
  CpuDevice cpu_{serial_host()};
  PlanRunner runner_{load(save(parse_plan(dynamic_plan()), code())).plan, code(), {}, cpu_};
};

TEST_F(RunPlan, RunsAtEverySize) {
  for (int64_t n : {1, 3, 1000, 0}) {
    const Array in = numbers({n, 4});
    const std::vector<Array> out = runner_.run({&in, 1});
    ASSERT_EQ(out.size(), 5u);
    EXPECT_EQ(out[0].meta.sizes, (std::vector<int64_t>{n, 4}));
    EXPECT_EQ(out[1].meta.sizes, (std::vector<int64_t>{4 * n}));
    const auto* result = reinterpret_cast<const float*>(out[0].memory.data);
    for (int64_t i = 0; i < 4 * n; i++) EXPECT_EQ(result[i], static_cast<float>((i + 1) * (i + 1)));
    EXPECT_EQ(out[1].memory.data, out[0].memory.data);
    EXPECT_EQ(out[2].meta.dtype, DType::None);
    EXPECT_EQ(out[2].meta.offset, 4 * n);
    EXPECT_EQ(out[3].memory.data, in.memory.data);
  }
}

TEST_F(RunPlan, RefusesOtherInputs) {
  auto fails = [&](const Array& a) { EXPECT_THROW(runner_.run({&a, 1}), UserError); };
  fails(numbers({2, 5}));
  Array in = numbers({2, 4});
  EXPECT_THROW(runner_.run({}), UserError);
  in.meta.dtype = DType::I32;
  fails(in);
  in.meta.dtype = DType::F32;
  in.meta.strides = {1, 2};
  fails(in);
}

TEST_F(RunPlan, AStatusIsAnError) {
  const PlanRunner runner(parse_plan(dynamic_plan()), code(refuse), {}, cpu_);
  const Array in = numbers({2, 4});
  EXPECT_THROW(runner.run({&in, 1}), UserError);
}

TEST_F(RunPlan, ExternCallsNeedTorch) {
  const std::string text = "plan arena=0 {\n  extern aten.mm.default() origin=0\n}\n";
  try {
    const PlanRunner runner(parse_plan(text), {}, {}, cpu_);
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_STREQ(e.what(), "the plan calls aten.mm.default, which needs torch");
  }
}

TEST_F(RunPlan, SwappedInputs) {
  const std::string meta = "f32[2, 4] strides=[4, 1]";
  const std::string text = "plan arena=0 {\n  input " + meta + "\n  input " + meta +
                           "\n  buffer a: input 0 " + meta + " bytes=32\n  buffer b: input 1 " +
                           meta +
                           " bytes=32\n  mutate input 0 <- b\n  mutate input 1 <- a\n  return a\n}";
  const PlanRunner runner(parse_plan(text), {}, {}, cpu_);
  const Array in[] = {numbers({2, 4}), make_array({DType::F32, {}, {2, 4}, {4, 1}, 0})};
  scatter(std::string(32, 0), in[1]);
  const std::string before = gather(in[0]);
  const std::vector<Array> out = runner.run(in);
  EXPECT_EQ(gather(in[1]), before);
  EXPECT_EQ(gather(in[0]), std::string(32, 0));
  EXPECT_EQ(gather(out[0]), before);
}

}  // namespace
}  // namespace oxy::runtime
