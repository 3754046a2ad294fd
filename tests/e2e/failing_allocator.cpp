// An allocator of tensors' memory that has none at a chosen moment, for tests of what a failure
// leaves behind. Called from Python by ctypes.
#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace {

std::atomic<int64_t> left = -1;
std::atomic<bool> failed = false;

struct FailingAllocator : c10::Allocator {
  explicit FailingAllocator(c10::Allocator* a) : real(a) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (left >= 0 && left.fetch_sub(1) == 0) {
      failed = true;
      throw std::bad_alloc();
    }
    return real->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    real->copy_data(to, from, bytes);
  }

  c10::Allocator* real;
};

}  // namespace

extern "C" {

// The n-th allocation from now on (0: the next one) raises; those after it do not. A negative
// number: none does. Stands in front of torch's own allocator for the CPU from its first use on.
C10_EXPORT void fail_allocation(int64_t n) {
  [[maybe_unused]] static const bool installed = [] {
    c10::SetCPUAllocator(new FailingAllocator(c10::GetCPUAllocator()), /*priority=*/UINT8_MAX);
    return true;
  }();
  failed = false;
  left = n;
}

// Whether it has raised since it was last told to.
C10_EXPORT bool allocation_has_failed() { return failed; }
}
