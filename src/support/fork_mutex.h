// A mutex that a forked process finds free, and what it guards whole: a fork waits until nobody
// holds one.
//
// For locks that are held for a few instructions, under which no other one is taken, made or
// destroyed. A longer one is known by forks() to be of a thread that the forked process does not
// have.
#pragma once

#include <pthread.h>

#include <mutex>
#include <unordered_set>

namespace oxy {

class ForkMutex {
 public:
  ForkMutex() {
    const std::lock_guard lock(all().mutex);
    all().list.insert(this);
  }
  ~ForkMutex() {
    const std::lock_guard lock(all().mutex);
    all().list.erase(this);
  }
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  // How often this process's line of ancestors has forked since the library was loaded.
  static int forks() { return all().forks; }

 private:
  struct All {
    std::mutex mutex;
    std::unordered_set<ForkMutex*> list;
    int forks = 0;
  };
  static All& all() {
    static All& made = *[] {
      pthread_atfork(lock_all, unlock_all, [] {
        all().forks++;
        unlock_all();
      });
      return new All();
    }();
    return made;
  }
  static void lock_all() {
    all().mutex.lock();
    for (ForkMutex* m : all().list) m->lock();
  }
  static void unlock_all() {
    for (ForkMutex* m : all().list) m->unlock();
    all().mutex.unlock();
  }

  std::mutex mutex_;
};

}  // namespace oxy
