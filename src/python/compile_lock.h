// One capture or compilation at a time in the process: the only lock of ours that is held while Python code runs.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <mutex>

namespace oxy::python {

// A thread that waits for another lets go of the GIL. A thread may take it again: a backend of the user's may call a
// compiled function, and a capture compiles its graph.
//
// Python code that runs under it may want a lock that the waiting thread holds (a module's that it imports, one of the
// user's): so a thread waits for a bounded time, and goes without if it can.
class CompileLock {
 public:
  CompileLock() : held_(mutex().try_lock()) {
    if (held_) return;
    waited_ = true;
    pybind11::gil_scoped_release released;
    held_ = mutex().try_lock_for(kPatience);
  }
  ~CompileLock() {
    if (held_) mutex().unlock();
  }
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;
  bool held() const { return held_; }
  bool waited() const { return waited_; }

  // In a process that was forked: the thread that held it is not there.
  static void renew() { new (&mutex()) std::recursive_timed_mutex(); }

 private:
  static constexpr auto kPatience = std::chrono::seconds(5);
  static std::recursive_timed_mutex& mutex() {
    static auto& m = *new std::recursive_timed_mutex();
    return m;
  }
  bool held_, waited_ = false;
};

}  // namespace oxy::python
