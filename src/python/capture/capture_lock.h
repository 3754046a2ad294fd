// Functions are captured one at a time, whichever threads call them.
#pragma once

namespace oxy::python {

// A thread that waits for another lets go of the GIL. A backend of the user's may call a compiled function.
class CaptureLock {
 public:
  CaptureLock();
  ~CaptureLock();
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;
  bool waited() const { return waited_; }

 private:
  bool waited_;
};

// While code of the user's runs inside of a capture: it may wait for another thread, and that one for the lock.
class CaptureUnlocked {
 public:
  CaptureUnlocked();
  ~CaptureUnlocked();
  CaptureUnlocked(const CaptureUnlocked&) = delete;
  CaptureUnlocked& operator=(const CaptureUnlocked&) = delete;

 private:
  int depth_;  // how often this thread has the lock
};

}  // namespace oxy::python
