// Splits a kernel's range among threads and joins their status words; the CPU as a device.
#include "runtime/launch.h"

#include "runtime/device.h"
#include "runtime/memory.h"

namespace oxy::runtime {
namespace {

constexpr int64_t kAlign = 64;
// Between the scratch of two threads: what one runs through is prefetched beyond its end, away from
// the other.
constexpr int64_t kApart = 4096;

int64_t stride(const SizedKernel& kernel) {
  return kernel.scratch_bytes ? (kernel.scratch_bytes + kAlign - 1) / kAlign * kAlign + kApart : 0;
}

struct Region {
  KernelFn entry;
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

void** add_parameters(const SizedKernel& kernel, void** to) {
  if (!kernel.parameters.empty()) *to++ = const_cast<int64_t*>(kernel.parameters.data());
  return to;
}

}  // namespace

const Host& serial_host() {
  static const Host host{serial_parallel, [] { return 1; }, nullptr};
  return host;
}

std::optional<BoundLaunch> bind_launch(const Plan& p, const PlanStep& step) {
  const auto* gemm = std::get_if<GemmStep>(&step);
  const LaunchStep* l = gemm ? &gemm->gemm : std::get_if<LaunchStep>(&step);
  if (!l) return std::nullopt;
  BoundLaunch out;
  out.kernel = l->kernel;
  for (uint32_t b : l->buffers) out.memory.push_back(memory_of(p, b));
  out.own = static_cast<uint32_t>(out.memory.size());
  if (gemm && gemm->epilogue) {
    out.epilogue = gemm->epilogue->kernel;
    for (uint32_t b : gemm->epilogue->buffers) out.memory.push_back(memory_of(p, b));
  }
  return out;
}

void Arguments::fill(const BoundLaunch& l, const SizedPlan& p, void* const* addresses) {
  const SizedKernel& kernel = p.kernels[l.kernel];
  list_.resize(l.memory.size() + 3);  // the parameters of both, the epilogue
  void** to = add_parameters(kernel, list_.data());
  for (size_t i = 0; i < l.own; i++) *to++ = addresses[l.memory[i]];
  if (!l.epilogue) return;
  const SizedKernel& epilogue = p.kernels[*l.epilogue];
  *to++ = &epilogue_;
  epilogue_ = {epilogue.entry, to};
  to = add_parameters(epilogue, to);
  for (size_t i = l.own; i < l.memory.size(); i++) *to++ = addresses[l.memory[i]];
}

int64_t scratch_bytes(const SizedKernel& kernel, int threads) { return stride(kernel) * threads; }

int launch(const SizedKernel& kernel, void* const* buffers, char* scratch, const Host& host) {
  const KernelFn entry = kernel.entry;
  if (kernel.range <= 0) return 0;
  if (kernel.range <= kernel.grain) return entry(buffers, 0, kernel.range, scratch, host.math);
  Region region{entry, buffers, scratch, stride(kernel), host.math};
  host.parallel(kernel.range, kernel.grain, run_piece, &region);
  return region.status.load(std::memory_order_relaxed);
}

Memory CpuDevice::allocate(int64_t bytes, Queue) const {
  auto block = std::make_shared<AlignedBlock>(static_cast<size_t>(bytes));
  return {block->data(), block};
}

void CpuDevice::keep(const Memory& memory) const {
  if (auto* block = static_cast<AlignedBlock*>(memory.owner.get())) block->stays();
}

int CpuDevice::launch(const SizedKernel& kernel, void* const* arguments, char* scratch,
                      Queue) const {
  return runtime::launch(kernel, arguments, scratch, host_);
}

}  // namespace oxy::runtime
