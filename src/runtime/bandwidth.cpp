// Times copies of a large buffer on all threads, and writes kernels beside them.
#include "runtime/bandwidth.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "runtime/launch.h"
#include "runtime/memory.h"

namespace oxy::runtime {
namespace {

constexpr size_t kBytes = 128 << 20;
constexpr int64_t kPiece = 64 << 10;
constexpr int kTries = 8;

struct Copy {
  const char* from;
  char* to;
};

// Past the cache, as kernels write large outputs: a plain copy would read what it overwrites.
void copy_pieces(void* context, int64_t begin, int64_t end, int) {
  const Copy& copy = *static_cast<const Copy*>(context);
  const char* from = copy.from + begin * kPiece;
  char* to = copy.to + begin * kPiece;
  const auto bytes = static_cast<size_t>((end - begin) * kPiece);
#if defined(__SSE2__)
  for (size_t i = 0; i < bytes; i += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

struct Blocks {
  Blocks() : from(kBytes), to(kBytes) {
    std::memset(from.data(), 1, kBytes);
    std::memset(to.data(), 1, kBytes);
  }
  AlignedBlock from, to;
};

double bandwidth_of(const Blocks& blocks, const Host& host) {
  using Clock = std::chrono::steady_clock;
  Copy copy{blocks.from.data(), blocks.to.data()};
  const Clock::time_point start = Clock::now();
  host.parallel(kBytes / kPiece, 1, copy_pieces, &copy);
  const std::chrono::duration<double> taken = Clock::now() - start;
  return 2.0 * kBytes / taken.count();
}

std::string row(const Plan& plan, const PlanStep& step, uint32_t kernel, double seconds,
                double copy) {
  char line[160];
  const double bytes = static_cast<double>(moved_bytes(plan, step));
  std::snprintf(line, sizeof line, "%-40.40s %9.3f MB %9.4f ms %7.2f GB/s %4.0f %%\n",
                plan.kernels[kernel].name.c_str(), bytes / 1e6, seconds * 1e3,
                bytes / seconds / 1e9, 100 * bytes / seconds / copy);
  return line;
}

}  // namespace

std::string bandwidth_text(const Plan& plan, std::span<const double> seconds, double copy) {
  std::string out;
  size_t at = 0;
  for (const PlanStep& step : plan.steps) {
    const auto launch = bind_launch(plan, step);
    if (!launch || at >= seconds.size()) continue;
    const double time = seconds[at++];
    if (time > 0) out += row(plan, step, launch->kernel, time, copy);
  }
  char line[80];
  std::snprintf(line, sizeof line, "a copy of %zu MB: %.2f GB/s\n", kBytes >> 20, copy / 1e9);
  return out + line;
}

double copy_bandwidth(const Host& host) {
  static const double bandwidth = [&] {
    const Blocks blocks;
    double best = 0;
    for (int i = 0; i < kTries; ++i) best = std::max(best, bandwidth_of(blocks, host));
    return best;
  }();
  return bandwidth;
}

double copy_once(const Host& host) {
  static const Blocks blocks;
  return bandwidth_of(blocks, host);
}

}  // namespace oxy::runtime
