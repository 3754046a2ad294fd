// A mutex that a forked process finds free, and what it guards whole: a fork waits until nobody
// holds one.
//
// For locks that are held for a few instructions, or for the link of a kernel (milliseconds), under
// which no other ForkMutex is taken, made or destroyed. A longer one is known by forks() to be of a
// thread that the forked process does not have.
#pragma once

#include <mutex>

namespace oxy {

class ForkMutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  // How often this process's line of ancestors has forked since the library was loaded.
  static int forks();

 private:
  std::mutex mutex_;
};

}  // namespace oxy
