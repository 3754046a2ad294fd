#include "runtime/launch.h"

#include <atomic>

namespace oxy::runtime {
namespace {

constexpr int64_t kAlign = 64;
// Between the scratch of two threads: what one runs through is fetched beyond its end, away from the other.
constexpr int64_t kApart = 4096;

int64_t stride(const PlanKernel& kernel) {
  return kernel.scratch_bytes ? (kernel.scratch_bytes + kAlign - 1) / kAlign * kAlign + kApart : 0;
}

struct Region {
  jit::KernelFn entry;
  void* const* buffers;
  char* scratch;
  int64_t stride;
  void* const* math;
  std::atomic<int> status{0};
};

void run_piece(void* context, int64_t begin, int64_t end, int thread) {
  auto& region = *static_cast<Region*>(context);
  char* scratch = region.scratch + thread * region.stride;
  int status = region.entry(region.buffers, begin, end, scratch, region.math);
  if (status != 0) region.status.store(status, std::memory_order_relaxed);
}

void serial_parallel(int64_t range, int64_t, PieceFn fn, void* context) {
  fn(context, 0, range, 0);
}

}  // namespace

const Host& serial_host() {
  static const Host host{serial_parallel, [] { return 1; }, nullptr};
  return host;
}

int64_t scratch_bytes(const PlanKernel& kernel, int threads) { return stride(kernel) * threads; }

int launch(const PlanKernel& kernel, void* const* buffers, char* scratch, const Host& host) {
  jit::KernelFn entry = kernel.code->entry();
  if (kernel.range <= 0) return 0;
  if (kernel.range <= kernel.grain) return entry(buffers, 0, kernel.range, scratch, host.math);
  Region region{entry, buffers, scratch, stride(kernel), host.math};
  host.parallel(kernel.range, kernel.grain, run_piece, &region);
  return region.status.load(std::memory_order_relaxed);
}

}  // namespace oxy::runtime
