#include "torch_bridge/failing_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace oxy::bridge {
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

void fail_allocation(int64_t n) {
  [[maybe_unused]] static const bool installed = [] {
    c10::SetCPUAllocator(new FailingAllocator(c10::GetCPUAllocator()), /*priority=*/UINT8_MAX);
    return true;
  }();
  failed = false;
  left = n;
}

bool allocation_has_failed() { return failed; }

}  // namespace oxy::bridge
