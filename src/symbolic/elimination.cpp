// The elimination, one unknown after the other, the one that makes the fewest inequalities first.
// A row is one number an unknown, and the constant behind them.
#include "symbolic/elimination.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "symbolic/node.h"

namespace oxy::sym {
namespace {

class Elimination {
 public:
  Elimination(size_t unknowns, size_t steps)
      : unknowns_(unknowns), width_(unknowns + 1), steps_(steps) {}

  void add(const Inequality& given) {
    const std::span<int64_t> row = new_row();
    for (const auto& p : given.parts) row[p.unknown] = p.coefficient;
    row[unknowns_] = given.constant;
    keep_row();
  }

  bool run() {
    while (!contradiction_) {
      const std::optional<size_t> unknown = next();
      if (!unknown) break;
      eliminate(*unknown);
    }
    return contradiction_;
  }

 private:
  std::span<const int64_t> row(size_t i) const { return {rows_.data() + i * width_, width_}; }
  size_t count() const { return hashes_.size(); }

  std::span<int64_t> new_row() {
    rows_.resize((count() + 1) * width_);
    const std::span<int64_t> row(rows_.data() + count() * width_, width_);
    std::ranges::fill(row, 0);
    return row;
  }

  // Takes the new row among those that hold.
  void keep_row() {
    const std::span<int64_t> made(rows_.data() + count() * width_, width_);
    const auto coefficients = made.first(unknowns_);
    int64_t& constant = made[unknowns_];
    int64_t g = 0;
    for (int64_t c : coefficients) g = std::gcd(g, c);
    if (g == 0) {
      contradiction_ |= constant > 0;
      return;
    }
    if (g > 1)
      for (int64_t& c : coefficients) c /= g;
    // g*y + c <= 0 is y + ceil(c/g) <= 0.
    constant = -floor_divide(-constant, g);
    uint64_t hash = 0;
    for (int64_t c : coefficients) hash = (hash ^ static_cast<uint64_t>(c)) * 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < count(); ++i) {
      if (hashes_[i] != hash || !std::ranges::equal(row(i).first(unknowns_), coefficients))
        continue;
      int64_t& before = rows_[i * width_ + unknowns_];
      before = std::max(before, constant);
      return;
    }
    hashes_.push_back(hash);
  }

  // Nothing where no unknown is left, or each would take too many steps.
  std::optional<size_t> next() const {
    std::vector<size_t> above(unknowns_), below(unknowns_);
    for (size_t i = 0; i < count(); ++i) {
      for (size_t u = 0; u < unknowns_; ++u) {
        above[u] += row(i)[u] > 0;
        below[u] += row(i)[u] < 0;
      }
    }
    std::optional<size_t> best;
    size_t least = steps_;
    for (size_t u = 0; u < unknowns_; ++u) {
      const size_t price = above[u] * below[u];
      if (above[u] + below[u] == 0 || price > least || (best && price == least)) continue;
      best = u;
      least = price;
    }
    return best;
  }

  void eliminate(size_t unknown) {
    const std::vector<int64_t> before = std::exchange(rows_, {});
    const std::vector<uint64_t> hashes = std::exchange(hashes_, {});
    std::vector<std::span<const int64_t>> above, below;
    for (size_t i = 0; i < hashes.size(); ++i) {
      const std::span<const int64_t> r(before.data() + i * width_, width_);
      if (r[unknown] != 0) {
        (r[unknown] > 0 ? above : below).push_back(r);
        continue;
      }
      rows_.insert(rows_.end(), r.begin(), r.end());
      hashes_.push_back(hashes[i]);
    }
    steps_ -= above.size() * below.size();
    for (const auto a : above)
      for (const auto b : below)
        if (join(a, b, unknown)) keep_row();
  }

  // The sum of multiples of both that lacks the unknown; false where its numbers get too large.
  bool join(std::span<const int64_t> a, std::span<const int64_t> b, size_t unknown) {
    const int64_t g = std::gcd(a[unknown], b[unknown]);
    const int64_t by_a = -b[unknown] / g, by_b = a[unknown] / g;
    const std::span<int64_t> sum = new_row();
    bool fits = true;
    for (size_t u = 0; u < width_; ++u) {
      int64_t x = 0, y = 0;
      fits &= !__builtin_mul_overflow(a[u], by_a, &x) && !__builtin_mul_overflow(b[u], by_b, &y) &&
              !__builtin_add_overflow(x, y, &sum[u]) && sum[u] > -Expr::kMaxConst;
    }
    return fits;
  }

  const size_t unknowns_, width_;
  size_t steps_;
  std::vector<int64_t> rows_;     // and perhaps a new one
  std::vector<uint64_t> hashes_;  // of the coefficients, by row
  bool contradiction_ = false;
};

}  // namespace

bool contradict(std::span<const Inequality> all, size_t unknowns, size_t steps) {
  Elimination e(unknowns, steps);
  for (const Inequality& row : all) e.add(row);
  return e.run();
}

}  // namespace oxy::sym
