#include "runtime/pack.h"

#include <algorithm>

namespace oxy::runtime {
namespace {

int64_t panels(const PlanPacking& p) { return (p.n + p.width - 1) / p.width; }

// Rows are taken in pieces whose cache lines are still there when the next column comes.
constexpr int64_t kRows = 64;

void pack_panel(const PlanPacking& p, const float* from, int64_t columns, float* to) {
  for (int64_t first = 0; first < p.k; first += kRows) {
    const int64_t last = std::min(p.k, first + kRows);
    for (int64_t n = 0; n < p.width; ++n) {
      const float* column = from + n * p.n_stride;
      for (int64_t k = first; k < last; ++k)
        to[k * p.width + n] = n < columns ? column[k * p.k_stride] : 0;
    }
  }
}

}  // namespace

int64_t packed_elements(const PlanPacking& p) { return p.batch * panels(p) * p.k * p.width; }

void pack(const PlanPacking& p, const float* from, float* to) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < panels(p); ++i, to += p.k * p.width) {
      const int64_t first = i * p.width;
      pack_panel(p, from + p.offset + b * p.batch_stride + first * p.n_stride,
                 std::min(p.width, p.n - first), to);
    }
  }
}

}  // namespace oxy::runtime
