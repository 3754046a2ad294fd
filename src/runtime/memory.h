// Memory of a plan: aligned blocks for arenas, and the pool that large outputs come from.
//
// Freshly mapped memory costs a page fault per page at its first write: more than most kernels take
// to fill it. The pool keeps blocks that were warm a moment ago. It is bounded, and blocks that
// nobody asked for in a while go back to the system at the next use of the pool (there is no thread
// behind it) or with trim().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "support/fork_mutex.h"

namespace oxy::runtime {

inline constexpr size_t kAlignment = 64;

// A block aligned to 64 bytes, to 2 MB from 4 MB on, where huge pages are asked for.
class AlignedBlock {
 public:
  AlignedBlock() = default;
  explicit AlignedBlock(size_t bytes);
  ~AlignedBlock();
  AlignedBlock(AlignedBlock&& o) noexcept;
  AlignedBlock& operator=(AlignedBlock&& o) noexcept;
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

class BlockPool {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    size_t min_block = 256 << 10;  // smaller requests do not belong here
    size_t max_cached = 1ull << 30;
    Clock::duration idle = std::chrono::seconds(10);
  };
  struct Stats {
    size_t cached_bytes = 0, live_bytes = 0;
    uint64_t hits = 0, misses = 0;
  };

  BlockPool() : BlockPool(Limits{}) {}
  explicit BlockPool(Limits limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // At least `bytes`; the block is given back by release(), from any thread.
  AlignedBlock acquire(size_t bytes);
  void release(AlignedBlock block);
  void trim();  // frees every cached block
  Stats stats() const;

 private:
  struct Cached {
    AlignedBlock block;
    Clock::time_point since;
  };
  // Takes blocks that have been idle for too long, and the oldest ones while more than max_cached
  // is held.
  void evict(Clock::time_point now, std::vector<AlignedBlock>& out);

  const Limits limits_;
  mutable ForkMutex mutex_;
  std::multimap<size_t, Cached> cached_;  // by size
  Stats stats_;
};

}  // namespace oxy::runtime
