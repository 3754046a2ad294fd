// Interval arithmetic on Range: bounds that may be unbounded, rounded outward. Every function is
// sound: the exact result of any members lies in the result.
#pragma once

#include <algorithm>

#include "symbolic/expr.h"

namespace oxy::sym {

using Wide = __int128;
inline constexpr Wide kInfinity = static_cast<Wide>(1) << 120;

inline Wide widen(int64_t bound) {
  if (bound == INT64_MIN) return -kInfinity;
  if (bound == INT64_MAX) return kInfinity;
  return bound;
}

inline Range narrow(Wide lo, Wide hi) {
  Range r;
  r.lo = lo <= INT64_MIN ? INT64_MIN : static_cast<int64_t>(std::min<Wide>(lo, INT64_MAX - 1));
  r.hi = hi >= INT64_MAX ? INT64_MAX : static_cast<int64_t>(std::max<Wide>(hi, INT64_MIN + 1));
  return r;
}

inline Wide times(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  bool infinite = a == kInfinity || a == -kInfinity || b == kInfinity || b == -kInfinity;
  if (infinite) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return a * b;  // both fit 64 bits
}

inline Wide floor_divide(Wide a, Wide b) {
  Wide q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

inline int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

inline int64_t floor_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// a // b where b > 0 and either may be infinite.
inline Wide divide_bound(Wide a, Wide b) {
  if (a == kInfinity || a == -kInfinity) return a;
  if (b == kInfinity) return a < 0 ? -1 : 0;
  return floor_divide(a, b);
}

inline Range add_ranges(Range a, Range b) {
  return narrow(widen(a.lo) + widen(b.lo), widen(a.hi) + widen(b.hi));
}

inline Range multiply_ranges(Range a, Range b) {
  Wide c[4] = {times(widen(a.lo), widen(b.lo)), times(widen(a.lo), widen(b.hi)),
               times(widen(a.hi), widen(b.lo)), times(widen(a.hi), widen(b.hi))};
  return narrow(*std::min_element(c, c + 4), *std::max_element(c, c + 4));
}

inline Range floordiv_range(Range x, Range d) {
  if (d.lo <= 0) return {};
  Wide lo = widen(x.lo), hi = widen(x.hi);
  return narrow(divide_bound(lo, widen(lo < 0 ? d.lo : d.hi)),
                divide_bound(hi, widen(hi < 0 ? d.hi : d.lo)));
}

// The remainder lies between 0 and the divisor, on the divisor's side.
inline Range mod_range(Range x, Range d) {
  Wide lo = std::min<Wide>(0, widen(d.lo) + 1), hi = std::max<Wide>(0, widen(d.hi) - 1);
  if (d.lo > 0 && x.lo >= 0) hi = std::min(hi, widen(x.hi));
  return narrow(lo, hi);
}

}  // namespace oxy::sym
