// Things that one call at a time may use and that are expensive to make: a call takes one and gives
// it back. As many exist as calls run at the same time; a few stay for the next ones. Where one
// thread calls again and again, taking and giving back are one atomic operation each.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "support/fork_mutex.h"

namespace oxy::runtime {

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
