// A timed mutex that a thread may take again, waited for without the GIL.
#include "python/cpython/compile_lock.h"

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <mutex>

namespace oxy::python {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

thread_local int lock_depth = 0;

std::recursive_timed_mutex& mutex() {
  static auto& m = *new std::recursive_timed_mutex();
  return m;
}

}  // namespace

CompileLock::CompileLock(Wait wait) : held_(mutex().try_lock()) {
  if (!held_) {
    waited_ = true;
    pybind11::gil_scoped_release released;
    do held_ = mutex().try_lock_for(kPatience);
    while (!held_ && wait == Wait::Unbounded);
  }
  lock_depth += held_;
}

CompileLock::~CompileLock() {
  if (!held_) return;
  --lock_depth;
  mutex().unlock();
}

void CompileLock::renew() {
  new (&mutex()) std::recursive_timed_mutex();
  for (int i = 0; i < lock_depth; i++) mutex().lock();  // this thread's own
}

CompileUnlocked::CompileUnlocked() : depth_(lock_depth) {
  for (; lock_depth > 0; --lock_depth) mutex().unlock();
}

CompileUnlocked::~CompileUnlocked() {
  if (depth_ == 0) return;
  pybind11::gil_scoped_release released;
  for (; lock_depth < depth_; ++lock_depth) mutex().lock();
}

}  // namespace oxy::python
