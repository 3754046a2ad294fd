// Blocks that come back are handed out again, to requests of nearly the same size too.
#include <gtest/gtest.h>

#include "runtime/memory.h"

namespace oxy::runtime {
namespace {

TEST(BlockPool, NearSizesShareABlock) {
  BlockPool pool;
  AlignedBlock gradient = pool.acquire(384 * 1536 * 4);
  const char* where = gradient.data();
  pool.release(std::move(gradient));
  const AlignedBlock activation = pool.acquire(394 * 1536 * 4);
  EXPECT_EQ(activation.data(), where);
  EXPECT_GE(activation.size(), 394u * 1536 * 4);
  EXPECT_EQ(pool.stats().hits, 1u);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

TEST(BlockPool, OtherSizesDoNot) {
  BlockPool pool;
  pool.release(pool.acquire(1 << 20));
  const AlignedBlock larger = pool.acquire(2 << 20), smaller = pool.acquire(1 << 19);
  EXPECT_EQ(pool.stats().hits, 0u);
  EXPECT_EQ(pool.stats().cached_bytes, 1u << 20);
  pool.trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

TEST(BlockPool, ABlockIsAtLeastWhatWasAskedForAndLittleMore) {
  BlockPool pool;
  for (size_t bytes = BlockPool::kMinBlock; bytes < size_t{64} << 20; bytes = bytes * 9 / 8 + 1) {
    const AlignedBlock block = pool.acquire(bytes);
    EXPECT_GE(block.size(), bytes);
    EXPECT_LE(block.size(), bytes + bytes / 4);
  }
}

// Of huge pages or of small ones, that may become huge ones at the second use.
TEST(BlockPool, LargeBlocksKeepTheirPlaceAndContents) {
  BlockPool pool;
  constexpr size_t kBytes = 9 << 20;
  AlignedBlock block = pool.acquire(kBytes);
  char* const where = block.data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(where) % (2 << 20), 0u);
  for (size_t i = 0; i < block.size(); i += 4096) where[i] = static_cast<char>(i >> 12);
  for (int use = 0; use < 2; ++use) {
    pool.release(std::move(block));
    block = pool.acquire(kBytes);
    ASSERT_EQ(block.data(), where);
    for (size_t i = 0; i < block.size(); i += 4096)
      ASSERT_EQ(where[i], static_cast<char>(i >> 12)) << i;
  }
}

}  // namespace
}  // namespace oxy::runtime
