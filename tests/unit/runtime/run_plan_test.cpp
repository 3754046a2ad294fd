// A plan whose sizes vary, parsed from text, saved, loaded and run at several sizes on the CPU.
#include "runtime/run_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "plan_samples.h"
#include "runtime/pack.h"
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

// Kernels are as good as the text that they are compiled from: what is asked here is what the
// runtime does around them.
int nothing(void* const*, long, long, void*, void* const*) { return 0; }

int refuse_in_plan(void* const*, long, long, void*, void* const*) { return 2; }

CodeTable code(KernelFn second = square, KernelFn first = row_add) {
  CodeTable t;
  auto text = [](const char* s) { return std::make_shared<const std::string>(s); };
  t.add(content_hash(kRowAdd), {first, nullptr, text(kRowAdd)});
  t.add(content_hash(kSquare), {second, nullptr, text(kSquare)});
  return t;
}

Array numbers(const std::vector<int64_t>& sizes) {
  Array a = make_array({DType::F32, {}, sizes, {sizes[1], 1}, 0});
  auto* data = reinterpret_cast<float*>(a.memory.data);
  std::iota(data, data + sizes[0] * sizes[1], 0.0f);
  return a;
}

SizedPlan sized(const Plan& p) {
  return at_sizes(p, std::vector<KernelFn>(p.kernels.size()), evaluate(p.sizes));
}

// Whether a test may walk through it.
bool is_small(const TensorMeta& m) {
  double elements = 1;
  for (int64_t size : m.sizes) elements *= static_cast<double>(size);
  return elements < 1e4 && (m.dtype == DType::None || span_bytes(m) < 1 << 16);
}

std::vector<Array> arrays(const std::vector<TensorMeta>& metas) {
  std::vector<Array> out;
  for (const TensorMeta& m : metas) {
    out.push_back(m.dtype == DType::None ? Array{m, {}} : make_array(m));
    std::fill_n(out.back().memory.data, m.dtype == DType::None ? 0 : span_bytes(m), 1);
  }
  return out;
}

std::vector<Array> attributes_of(const Plan& p, const SizedPlan& sizes) {
  std::vector<TensorMeta> metas;
  for (size_t b = 0; b < p.buffers.size(); b++) {
    if (p.buffers[b].kind != PlanBuffer::Kind::Attribute || p.buffers[b].source > 9) continue;
    metas.resize(std::max<size_t>(metas.size(), p.buffers[b].source + 1));
    metas[p.buffers[b].source] = sizes.buffers[b].meta;
  }
  return arrays(metas);
}

std::vector<Array> attributes_of_static_plan() {
  const Plan p = parse_plan(static_plan());
  return attributes_of(p, sized(p));
}

// Whether it was run: on inputs that look as it says, or on (3, 4) where that varies.
bool run_small(const Plan& p) {
  std::vector<Array> in{numbers({3, 4})};
  SizedPlan sizes;
  if (p.sizes.is_static()) {
    sizes = sized(p);
    if (!std::ranges::all_of(sizes.inputs, is_small)) return false;
    in = arrays(sizes.inputs);
  } else {
    if (p.inputs.size() != 1 || p.inputs[0].sizes.size() != 2) return false;
    const SizeInput read{in[0].meta.sizes.data(), in[0].meta.strides.data(), 0};
    std::vector<int64_t> slots(p.sizes.instructions.size());
    evaluate(p.sizes, {&read, 1}, slots.data());
    sizes = at_sizes(p, std::vector<KernelFn>(p.kernels.size()), slots);
  }
  auto small = [](const SizedBuffer& b) { return is_small(b.meta) && b.bytes < 1 << 16; };
  if (!std::ranges::all_of(sizes.buffers, small) || !std::ranges::all_of(sizes.outputs, is_small) ||
      sizes.arena_bytes > 1 << 16 || sizes.scratch_bytes > 1 << 16)
    return false;
  const CpuDevice cpu(serial_host());
  const std::vector<Array> attributes = attributes_of(p, sizes);
  for (const Array& a : PlanRunner(p, code(nothing, nothing), attributes, cpu).run(in))
    if (a.meta.dtype != DType::None) gather(a);
  for (const PlanPacking& k : p.packings) {
    if (read_elements(k) > 1 << 14 || packed_elements(k) > 1 << 14) continue;
    const std::vector<float> from(static_cast<size_t>(read_elements(k)));
    std::vector<float> to(static_cast<size_t>(packed_elements(k)));
    pack(k, from.data(), to.data());
  }
  return true;
}

class RunPlan : public ::testing::Test {
 protected:
  CpuDevice cpu_{serial_host()};
  PlanRunner runner_{load(save(parse_plan(dynamic_plan()), code(), "")).plan, code(), {}, cpu_};
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
  const PlanRunner runner(parse_plan(dynamic_plan()), code(refuse_in_plan), {}, cpu_);
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

TEST_F(RunPlan, ViewsAndPackings) {
  const PlanRunner runner(parse_plan(static_plan()), code(nothing), attributes_of_static_plan(),
                          cpu_);
  const std::vector<Array> in = arrays(sized(runner.plan()).inputs);
  const std::vector<Array> out = runner.run(in);
  ASSERT_EQ(out.size(), 7u);
  EXPECT_EQ(out[3].memory.data, out[0].memory.data);
  EXPECT_EQ(out[4].memory.data, in[0].memory.data);
}

TEST_F(RunPlan, PackingsAreCounted) {
  PlanPacking p{0, 0, 2, 3, 5, 100, 7, 1, 11, 4};
  EXPECT_EQ(packed_elements(p), 2 * 8 * 3);
  EXPECT_EQ(read_elements(p), 11 + 100 + 14 + 4 + 1);
  p.n = INT64_MAX;
  EXPECT_THROW(packed_elements(p), InternalError);
  EXPECT_THROW(read_elements(p), InternalError);
}

// The hash belongs to the changed body. Under the address sanitizer nothing is read or written that
// is not there.
TEST_F(RunPlan, MutatedBodiesRunOrAreErrors) {
  std::mt19937 random(9);
  int plans = 0, runs = 0;
  for (const std::string& text : {static_plan(), dynamic_plan()}) {
    const std::string body = save_body(parse_plan(text), code(), "m");
    for (int i = 0; i < 10000; i++) {
      std::string changed = body;
      for (size_t k = random() % 2 + 1; k > 0; k--) {
        char& c = changed[random() % changed.size()];
        c = static_cast<char>(random() % 2 ? random() : static_cast<size_t>(c) + random() % 9 - 4);
      }
      try {
        const Plan p = load_body(changed).plan;
        plans++;
        runs += run_small(p);
      } catch (const UserError&) {
      } catch (const Unsupported&) {
      } catch (const InternalError&) {}
    }
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(runs, 300);
}

}  // namespace
}  // namespace oxy::runtime
