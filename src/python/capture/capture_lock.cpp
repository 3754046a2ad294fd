#include "python/capture/capture_lock.h"

#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <utility>

namespace oxy::python {
namespace {

thread_local int depth = 0;

std::recursive_mutex& mutex() {
  static auto& m = *new std::recursive_mutex();
  return m;
}

// Whether another thread had it.
bool lock() {
  const bool waits = !mutex().try_lock();
  if (waits) {
    pybind11::gil_scoped_release released;
    mutex().lock();
  }
  ++depth;
  return waits;
}

void unlock() {
  --depth;
  mutex().unlock();
}

}  // namespace

CaptureLock::CaptureLock() : waited_(lock()) {}
CaptureLock::~CaptureLock() { unlock(); }

CaptureUnlocked::CaptureUnlocked() : depth_(depth) {
  while (depth > 0) unlock();
}

CaptureUnlocked::~CaptureUnlocked() {
  for (int i = 0; i < depth_; i++) lock();
}

}  // namespace oxy::python
