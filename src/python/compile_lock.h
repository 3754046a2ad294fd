// One capture or compilation at a time in the process: the only lock of ours that is held while Python code runs.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <mutex>

namespace oxy::python {

// A thread that waits for another lets go of the GIL. A thread may take it again: a backend of the user's may call a
// compiled function, and a capture compiles its graph.
class CompileLock {
 public:
  CompileLock() {
    if (mutex().try_lock()) return;
    waited_ = true;
    pybind11::gil_scoped_release released;
    mutex().lock();
  }
  ~CompileLock() { mutex().unlock(); }
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;
  bool waited() const { return waited_; }

 private:
  static std::recursive_mutex& mutex() {
    static auto& m = *new std::recursive_mutex();
    return m;
  }
  bool waited_ = false;
};

}  // namespace oxy::python
