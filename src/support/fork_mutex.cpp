// All mutexes of the process, which a fork locks.
#include "support/fork_mutex.h"

#include <pthread.h>

#include <unordered_set>

namespace oxy {
namespace {

struct All {
  std::mutex mutex;
  std::unordered_set<ForkMutex*> list;
  int forks = 0;
};

All& all();

void lock_all() {
  all().mutex.lock();
  for (ForkMutex* m : all().list) m->lock();
}

void unlock_all() {
  for (ForkMutex* m : all().list) m->unlock();
  all().mutex.unlock();
}

All& all() {
  static All& made = *[] {
    pthread_atfork(lock_all, unlock_all, [] {
      all().forks++;
      unlock_all();
    });
    return new All();
  }();
  return made;
}

}  // namespace

ForkMutex::ForkMutex() {
  const std::lock_guard lock(all().mutex);
  all().list.insert(this);
}

ForkMutex::~ForkMutex() {
  const std::lock_guard lock(all().mutex);
  all().list.erase(this);
}

int ForkMutex::forks() { return all().forks; }

}  // namespace oxy
