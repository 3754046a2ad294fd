// The CPU of a process with torch: parallel regions on torch's own OpenMP pool, the vector maths
// that libtorch_cpu exports (Sleef's), and torch's default generator.
//
// at::parallel_for is a template that runs serially unless its file is compiled with -fopenmp
// against the same libgomp; the entry that a compiler would call is looked up among torch's own
// libraries instead, so that there is one pool in the process.
#include "torch_bridge/host.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>

#include "codegen/cpp/emit.h"
#include "support/check.h"

namespace oxy::bridge {
namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);
using OmpNumber = int (*)();

struct OpenMp {
  GompParallel parallel = nullptr;
  OmpNumber thread_num = nullptr, num_threads = nullptr, in_parallel = nullptr;
};

// Among torch's own libraries, loaded already; dependences are searched first, which is where
// torch's libgomp is.
void* find_in_torch(const char* symbol) {
  static void* const torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  return dlsym(torch != nullptr ? torch : RTLD_DEFAULT, symbol);
}

OpenMp find_openmp() {
  OpenMp omp;
  omp.parallel = reinterpret_cast<GompParallel>(find_in_torch("GOMP_parallel"));
  omp.thread_num = reinterpret_cast<OmpNumber>(find_in_torch("omp_get_thread_num"));
  omp.num_threads = reinterpret_cast<OmpNumber>(find_in_torch("omp_get_num_threads"));
  omp.in_parallel = reinterpret_cast<OmpNumber>(find_in_torch("omp_in_parallel"));
  if (!omp.thread_num || !omp.num_threads || !omp.in_parallel) omp.parallel = nullptr;
  return omp;
}

const OpenMp& openmp() {
  static const OpenMp omp = find_openmp();
  return omp;
}

struct Region {
  int64_t range, grain;
  runtime::PieceFn fn;
  void* context;
};

// Runs once in every thread of the team.
void run_share(void* p) {
  const auto& region = *static_cast<const Region*>(p);
  int thread = openmp().thread_num();
  auto ceil_div = [](int64_t a, int64_t b) { return a / b + (a % b != 0); };
  int64_t threads = std::min<int64_t>(openmp().num_threads(), ceil_div(region.range, region.grain));
  int64_t chunk = ceil_div(region.range, threads);
  int64_t begin = thread * chunk;
  if (begin >= region.range) return;
  at::internal::ThreadIdGuard guard(thread);
  region.fn(region.context, begin, std::min(region.range, begin + chunk), thread);
}

void parallel(int64_t range, int64_t grain, runtime::PieceFn fn, void* context) {
  grain = std::max<int64_t>(grain, 1);
  bool alone = range <= grain || at::get_num_threads() == 1 || openmp().parallel == nullptr ||
               openmp().in_parallel();
  if (alone) return fn(context, 0, range, 0);
  Region region{range, grain, fn, context};
  // 0: the team size that torch's own regions have; another size would make libgomp rebuild its
  // pool each time.
  openmp().parallel(&run_share, &region, 0, 0);
}

// The functions that kernels for this machine call, in the order of math_symbols.
std::vector<void*> find_math() {
  std::vector<void*> table;
  for (const std::string& symbol : codegen::cpp::math_symbols(host_machine())) {
    void* f = find_in_torch(symbol.c_str());
    OXY_CHECK(f != nullptr, "libtorch_cpu does not export ", symbol);
    table.push_back(f);
  }
  return table;
}

class TorchCpu : public runtime::CpuDevice {
 public:
  TorchCpu() : CpuDevice(torch_host()) {}

  GeneratorState generator_state() const final {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    return std::make_shared<const at::Tensor>(generator.get_state());
  }
  void restore_generator(const GeneratorState& state) const final {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    generator.set_state(*static_cast<const at::Tensor*>(state.get()));
  }
};

}  // namespace

const runtime::Host& torch_host() {
  static const std::vector<void*> math = find_math();
  static const runtime::Host host{&parallel, [] { return at::get_num_threads(); }, math.data()};
  return host;
}

const runtime::DeviceApi& torch_cpu() {
  static const TorchCpu cpu;
  return cpu;
}

}  // namespace oxy::bridge
