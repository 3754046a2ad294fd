// One capture or compilation at a time in the process: the only lock of ours that is held while
// Python code runs.
#pragma once

namespace oxy::python {

// A thread that waits for another lets go of the GIL. A thread may take it again: a backend of the
// user's may call a compiled function, and a capture compiles its graph.
//
// Python code that runs under it may want a lock that the waiting thread holds (a module's that it
// imports, one of the user's): so a thread that can go without waits for a bounded time.
class CompileLock {
 public:
  enum class Wait { Bounded, Unbounded };
  explicit CompileLock(Wait wait = Wait::Bounded);
  ~CompileLock();
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;
  bool held() const { return held_; }
  bool waited() const { return waited_; }

  // In a process that was forked: another thread that held it is not there.
  static void renew();

 private:
  bool held_, waited_ = false;
};

// While code of the user's runs inside of a capture: it may wait for another thread, and that one
// for the lock.
class CompileUnlocked {
 public:
  CompileUnlocked();
  ~CompileUnlocked();
  CompileUnlocked(const CompileUnlocked&) = delete;
  CompileUnlocked& operator=(const CompileUnlocked&) = delete;

 private:
  int depth_;  // how often this thread has the lock
};

}  // namespace oxy::python
