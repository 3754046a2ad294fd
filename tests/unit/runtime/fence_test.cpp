// The fence around a kernel's buffers: what lies inside can be used, the first byte outside ends
// the process.
#include "runtime/launch.h"

#include <gtest/gtest.h>

#include <numeric>

namespace oxy::runtime {
namespace {

// Kernels over the buffers {in, out} of `kItems` floats.
constexpr long kItems = 24;

int copy(void* const* buffers, long begin, long end, void*, void* const*) {
  auto *in = static_cast<float*>(buffers[0]), *out = static_cast<float*>(buffers[1]);
  for (long i = begin; i < end; i++) out[i] = in[i] + 1;
  return 0;
}

int read_behind(void* const* buffers, long, long end, void*, void* const*) {
  if (end == kItems)
    static_cast<float*>(buffers[1])[0] = static_cast<volatile float*>(buffers[0])[kItems];
  return 0;
}

int write_before(void* const* buffers, long, long, void*, void* const*) {
  static_cast<volatile float*>(buffers[1])[-1] = 0;
  return 0;
}

int read_scratch_behind(void* const* buffers, long, long, void* scratch, void* const*) {
  static_cast<float*>(buffers[1])[0] = static_cast<volatile float*>(scratch)[16];
  return 0;
}

int refuse(void* const* buffers, long begin, long end, void* scratch, void* const* math) {
  copy(buffers, begin, end, scratch, math);
  return begin == 0 ? 7 : 0;
}

class FenceTest : public ::testing::TestWithParam<Fence> {
 protected:
  FenceTest() { std::iota(in_.begin(), in_.end(), 0.0f); }

  int launch(KernelFn entry, Fence fence) {
    const SizedKernel kernel{entry, kItems, 1, 64, {}};
    constexpr int64_t kBytes = kItems * sizeof(float);
    const FencedBuffer buffers[] = {{in_.data(), kBytes}, {out_.data(), kBytes}};
    return launch_fenced(kernel, buffers, fence, serial_host());
  }

  std::vector<float> in_ = std::vector<float>(kItems), out_ = std::vector<float>(kItems);
};

TEST_P(FenceTest, GivesWhatTheKernelWrites) {
  EXPECT_EQ(launch(copy, GetParam()), 0);
  for (long i = 0; i < kItems; i++) {
    EXPECT_EQ(in_[i], static_cast<float>(i));
    EXPECT_EQ(out_[i], in_[i] + 1);
  }
}

TEST_P(FenceTest, GivesTheStatusOfAnyPiece) { EXPECT_EQ(launch(refuse, GetParam()), 7); }

INSTANTIATE_TEST_SUITE_P(Fences, FenceTest,
                         ::testing::Values(Fence::Start, Fence::End, Fence::Heap));

TEST_F(FenceTest, EndsTheProcessBehindABuffer) {
  EXPECT_DEATH(launch(read_behind, Fence::End), "");
}

TEST_F(FenceTest, EndsTheProcessBeforeABuffer) {
  EXPECT_DEATH(launch(write_before, Fence::Start), "");
}

TEST_F(FenceTest, EndsTheProcessBehindTheScratchMemory) {
  EXPECT_DEATH(launch(read_scratch_behind, Fence::End), "");
}

// The plan gave the result memory that the argument no longer needs.
TEST_F(FenceTest, BuffersMayShareMemory) {
  const SizedKernel kernel{copy, kItems, 1, 0, {}};
  std::vector<float> memory(kItems + 1);
  std::iota(memory.begin(), memory.end(), 0.0f);
  constexpr int64_t kBytes = kItems * sizeof(float);
  const FencedBuffer buffers[] = {{memory.data() + 1, kBytes}, {memory.data(), kBytes}};
  launch_fenced(kernel, buffers, Fence::End, serial_host());
  for (long i = 0; i < kItems; i++) EXPECT_EQ(memory[i], static_cast<float>(i) + 2);
}

}  // namespace
}  // namespace oxy::runtime
