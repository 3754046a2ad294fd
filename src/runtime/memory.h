// Memory of a plan: aligned blocks for arenas, the pool that large outputs come from, and a pool of
// what one call at a time may use.
//
// Freshly mapped memory costs a page fault per page at its first write: more than most kernels take
// to fill it. The pool keeps blocks that were warm a moment ago. It is bounded, and blocks that
// nobody asked for in a while go back to the system at the next use of the pool (there is no thread
// behind it) or with trim().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
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

class BlockPool {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMinBlock = 256 << 10;  // smaller requests do not belong here
  struct Stats {
    size_t cached_bytes = 0, live_bytes = 0;
    uint64_t hits = 0, misses = 0;
  };

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
  // Takes blocks that have been idle for too long, and the oldest ones while too much is held.
  void evict(Clock::time_point now, std::vector<AlignedBlock>& out);

  mutable ForkMutex mutex_;
  std::multimap<size_t, Cached> cached_;  // by size
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
