// Things that one call at a time may use and that are dear to make: a call takes one and gives it back. As many exist as
// calls run at the same time; a few stay for the next ones.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace oxy::runtime {

template <class T>
class LeasePool {
 public:
  explicit LeasePool(size_t keep = 4) : keep_(keep) { idle_.reserve(keep); }
  ~LeasePool() { delete first_.load(); }
  LeasePool(const LeasePool&) = delete;
  LeasePool& operator=(const LeasePool&) = delete;

  // An idle one, or nullptr: then the caller makes one.
  std::unique_ptr<T> take() {
    if (T* first = first_.exchange(nullptr)) return std::unique_ptr<T>(first);
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<T> t = std::move(idle_.back());
    idle_.pop_back();
    return t;
  }
  void give_back(std::unique_ptr<T> t) {
    T* none = nullptr;
    if (first_.compare_exchange_strong(none, t.get())) {
      t.release();
      return;
    }
    std::lock_guard lock(mutex_);
    if (idle_.size() + 1 < keep_) idle_.push_back(std::move(t));
  }

 private:
  const size_t keep_;
  std::atomic<T*> first_{nullptr};  // of calls that run one after the other: no lock
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace oxy::runtime
