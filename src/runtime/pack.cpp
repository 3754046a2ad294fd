// Copies columns of weights into panels, in parallel.
#include "runtime/pack.h"

#include <algorithm>

namespace oxy::runtime {
namespace {

int64_t panels(const PlanPacking& p) { return p.n / p.width + (p.n % p.width != 0); }

// Rows are taken in pieces whose cache lines are still there when the next column comes.
constexpr int64_t kRowsAtOnce = 64;

void pack_panel(const PlanPacking& p, const float* from, int64_t columns, float* to) {
  if (p.n_stride == 1 && columns == p.width) {
    for (int64_t k = 0; k < p.k; ++k) std::copy_n(from + k * p.k_stride, p.width, to + k * p.width);
    return;
  }
  for (int64_t first = 0; first < p.k; first += kRowsAtOnce) {
    const int64_t last = std::min(p.k, first + kRowsAtOnce);
    for (int64_t n = 0; n < p.width; ++n) {
      const float* column = from + n * p.n_stride;
      for (int64_t k = first; k < last; ++k)
        to[k * p.width + n] = n < columns ? column[k * p.k_stride] : 0;
    }
  }
}

struct Packing {
  const PlanPacking& p;
  const float* from;
  float* to;
};

// Panels, those of all matrices in a row.
void pack_panels(void* context, int64_t begin, int64_t end, int) {
  const auto& [p, from, to] = *static_cast<const Packing*>(context);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i % panels(p) * p.width;
    pack_panel(p, from + p.offset + i / panels(p) * p.batch_stride + first * p.n_stride,
               std::min(p.width, p.n - first), to + i * p.k * p.width);
  }
}

}  // namespace

int64_t packed_elements(const PlanPacking& p) {
  return checked_mul(checked_mul(p.batch, panels(p)), checked_mul(p.k, p.width));
}

int64_t read_elements(const PlanPacking& p) {
  if (p.batch == 0 || p.k == 0 || p.n == 0) return 0;
  int64_t last = p.offset;
  last = checked_add(last, checked_mul(p.batch - 1, p.batch_stride));
  last = checked_add(last, checked_mul(p.k - 1, p.k_stride));
  last = checked_add(last, checked_mul(p.n - 1, p.n_stride));
  return checked_add(last, 1);
}

void pack(const PlanPacking& p, const float* from, float* to, const Host& host) {
  Packing packing{p, from, to};
  host.parallel(p.batch * panels(p), 1, pack_panels, &packing);
}

}  // namespace oxy::runtime
