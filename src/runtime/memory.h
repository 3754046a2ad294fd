// Memory of a plan: aligned blocks for arenas, the pool that large outputs come from, and a pool of
// what one call at a time may use.
//
// Freshly mapped memory costs a page fault per page at its first write: more than most kernels take
// to fill it. The pool keeps blocks that were warm a moment ago: gradients of the last step are
// activations of the next. It is bounded, and what was not needed for a while goes back to the
// system at the next use of the pool (there is no thread behind it) or with trim().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "support/fork_mutex.h"

namespace oxy::runtime {

inline constexpr size_t kAlignment = 64;

// A block aligned to 64 bytes, to 2 MB from 4 MB on, where huge pages are asked for unless they
// take longer to come by than small ones.
class AlignedBlock {
 public:
  AlignedBlock() = default;
  explicit AlignedBlock(size_t bytes);
  char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  // It is used a second time: the system may make huge pages of small ones in the background.
  void stays();

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
  bool has_small_pages_ = false;
};

// Best fit over segments of the system's memory: a free block is split where a part of it will do,
// and free neighbours are joined (Knuth, The Art of Computer Programming 1, 2.5). Blocks are warm,
// or cold: memory that no page has been given to yet, or none any more.
class BlockPool {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMinBlock = 256 << 10;  // smaller requests do not belong here
  struct Stats {
    size_t cached_bytes = 0, live_bytes = 0;  // warm and free; in use
    uint64_t hits = 0, misses = 0;            // requests served from warm blocks, and the others
  };
  struct Block;
  struct GiveBack {
    void operator()(Block* block) const { block->pool->release(block); }
  };
  using Lease = std::unique_ptr<Block, GiveBack>;

  BlockPool() = default;
  ~BlockPool() { trim(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // At least `bytes`, aligned to 64 of them; given back on any thread, before the pool dies.
  Lease acquire(size_t bytes);
  void trim();  // gives back all that is free
  Stats stats() const;

  // A part of a segment, the whole of it where it has no neighbours.
  struct Block {
    BlockPool* pool;
    char* data;
    size_t size;
    std::shared_ptr<const std::span<char>> segment;
    Block *before = nullptr, *after = nullptr;  // the neighbours in the segment
    bool is_free = false, is_warm = false;
    bool has_small_pages = false;  // huge ones were slow at the first use
    Clock::time_point since = {};  // when it was given back
  };

 private:
  struct Smaller {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : std::less<>()(a->data, b->data);
    }
    bool operator()(const Block* a, size_t size) const { return a->size < size; }
  };
  struct Older {
    bool operator()(const Block* a, const Block* b) const {
      return a->since != b->since ? a->since < b->since : std::less<>()(a->data, b->data);
    }
  };
  using Free = std::set<Block*, Smaller>;
  using Segments = std::vector<std::shared_ptr<const std::span<char>>>;  // unmapped with the last

  static Block* best_fit(const Free& free, size_t size);
  void release(Block* block);
  void split(Block* block, size_t size);
  Block* joined(Block* block);
  void enter(Block* block);  // among the free ones, and back
  void leave(Block* block);
  void evict(Clock::time_point now, Segments& out);
  void cool(size_t bytes, Segments& out);

  mutable ForkMutex mutex_;
  Free warm_, cold_;
  std::set<Block*, Older> warm_by_age_;
  size_t most_ = 0;  // bytes that were in use at once since `turn_`
  Clock::time_point turn_ = Clock::now();
  Stats stats_;
};

// Things that one call at a time may use and that are expensive to make: a call takes one and gives
// it back. As many exist as calls run at the same time; a few stay for the next ones. Where one
// thread calls again and again, taking and giving back are one atomic operation each.
template <class T>
class LeasePool {
 public:
  explicit LeasePool(size_t keep = 4) : keep_(keep) { idle_.reserve(keep); }
  ~LeasePool() { delete last_.load(); }
  LeasePool(const LeasePool&) = delete;
  LeasePool& operator=(const LeasePool&) = delete;

  // An idle one, or nullptr: then the caller makes one.
  std::unique_ptr<T> take() {
    if (T* last = last_.exchange(nullptr, std::memory_order_acquire))
      return std::unique_ptr<T>(last);
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<T> t = std::move(idle_.back());
    idle_.pop_back();
    return t;
  }
  void give_back(std::unique_ptr<T> t) {
    T* none = nullptr;
    if (last_.compare_exchange_strong(none, t.get(), std::memory_order_release)) {
      t.release();
      return;
    }
    std::lock_guard lock(mutex_);
    if (idle_.size() < keep_) idle_.push_back(std::move(t));
  }

 private:
  const size_t keep_;
  std::atomic<T*> last_{nullptr};  // the one that was given back last
  ForkMutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace oxy::runtime
