// Blocks that come back are handed out again, to requests of other sizes too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/memory.h"

namespace oxy::runtime {
namespace {

constexpr size_t kMB = 1 << 20;

TEST(BlockPool, FreeNeighboursServeLargerRequests) {
  BlockPool pool;
  auto first = pool.acquire(384 * 1536 * 4), second = pool.acquire(384 * 1536 * 4);
  const char* where = std::min(first->data, second->data);
  first.reset();
  second.reset();
  const auto activation = pool.acquire(394 * 1536 * 4);
  EXPECT_EQ(activation->data, where);
  EXPECT_EQ(pool.stats().hits, 1u);
}

TEST(BlockPool, SmallerRequestsSplitABlock) {
  BlockPool pool;
  pool.acquire(4 * kMB).reset();
  auto first = pool.acquire(kMB), second = pool.acquire(2 * kMB);
  EXPECT_EQ(pool.stats().hits, 2u);
  EXPECT_EQ(second->data, first->data + kMB);
  EXPECT_EQ(pool.stats().cached_bytes, kMB);
  const char* where = first->data;
  first.reset();
  second.reset();
  EXPECT_EQ(pool.acquire(4 * kMB)->data, where);  // joined
}

TEST(BlockPool, WhatDoesNotFitLeavesABlockAlone) {
  BlockPool pool;
  pool.acquire(80 * kMB).reset();  // a segment of its own
  const auto larger = pool.acquire(96 * kMB), far_smaller = pool.acquire(kMB);
  EXPECT_EQ(pool.stats().hits, 0u);
  EXPECT_EQ(pool.stats().cached_bytes, 80 * kMB);
  pool.trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

// The pages of a free part are the system's, and read as zeros when it is asked for again.
TEST(BlockPool, TrimmingAPartLeavesItsNeighbour) {
  BlockPool pool;
  pool.acquire(4 * kMB).reset();
  const auto first = pool.acquire(kMB);
  std::memset(first->data, 1, first->size);
  auto second = pool.acquire(3 * kMB);
  std::memset(second->data, 1, second->size);
  const char* where = second->data;
  second.reset();
  pool.trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  second = pool.acquire(2 * kMB);
  EXPECT_EQ(second->data, where);
  EXPECT_EQ(second->data[0], 0);
  EXPECT_EQ(first->data[first->size - 1], 1);
  second.reset();
  EXPECT_EQ(pool.stats().cached_bytes, 2 * kMB);
}

TEST(BlockPool, ABlockIsAtLeastWhatWasAskedForAndLittleMore) {
  BlockPool pool;
  for (size_t bytes = BlockPool::kMinBlock; bytes < 64 * kMB; bytes = bytes * 9 / 8 + 1) {
    const auto block = pool.acquire(bytes);
    EXPECT_GE(block->size, bytes);
    EXPECT_LE(block->size, bytes + bytes / 16 + BlockPool::kMinBlock);
  }
}

// Of huge pages or of small ones, that may become huge ones at the second use.
TEST(BlockPool, LargeBlocksKeepTheirPlaceAndContents) {
  BlockPool pool;
  auto block = pool.acquire(9 * kMB);
  char* const where = block->data;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(where) % (2 * kMB), 0u);
  for (size_t i = 0; i < block->size; i += 4096) where[i] = static_cast<char>(i >> 12);
  for (int use = 0; use < 2; ++use) {
    block.reset();
    block = pool.acquire(9 * kMB);
    ASSERT_EQ(block->data, where);
    for (size_t i = 0; i < block->size; i += 4096)
      ASSERT_EQ(where[i], static_cast<char>(i >> 12)) << i;
  }
}

// Blocks in use hold what was written to them, whatever is acquired, given back and trimmed.
TEST(BlockPool, BlocksInUseAreApart) {
  std::mt19937 random(7);
  BlockPool pool;
  struct Use {
    BlockPool::Lease block;
    char mark;
  };
  std::vector<Use> uses;
  const auto check = [](const Use& use) {
    for (size_t i = 0; i < use.block->size; i += 4096) ASSERT_EQ(use.block->data[i], use.mark);
    ASSERT_EQ(use.block->data[use.block->size - 1], use.mark);
  };
  for (int turn = 0; turn < 3000; ++turn) {
    if (random() % 100 == 0) pool.trim();
    if (uses.size() > 20 || (!uses.empty() && random() % 2 == 0)) {
      const size_t which = random() % uses.size();
      check(uses[which]);
      std::swap(uses[which], uses.back());
      uses.pop_back();
      continue;
    }
    const size_t bytes = BlockPool::kMinBlock + random() % (BlockPool::kMinBlock << random() % 6);
    Use use{pool.acquire(bytes), static_cast<char>(turn)};
    ASSERT_EQ(reinterpret_cast<uintptr_t>(use.block->data) % kAlignment, 0u);
    for (size_t i = 0; i < use.block->size; i += 4096) use.block->data[i] = use.mark;
    use.block->data[use.block->size - 1] = use.mark;
    uses.push_back(std::move(use));
  }
  for (const Use& use : uses) check(use);
  EXPECT_GT(pool.stats().hits, pool.stats().misses);
  uses.clear();
  EXPECT_EQ(pool.stats().live_bytes, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

}  // namespace
}  // namespace oxy::runtime
