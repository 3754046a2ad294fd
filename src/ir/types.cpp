// Types: layout questions.
#include "ir/types.h"

namespace oxy::ir {
namespace {

bool known_empty(const TensorType& t) {
  return std::ranges::any_of(t.sizes, [](Expr s) { return s.is_const(0); });
}

}  // namespace

Expr TensorType::numel() const {
  Expr n = 1;
  for (Expr s : sizes) n = n * s;
  return n;
}

bool TensorType::is_row_major() const { return strides == contiguous_strides(sizes); }

bool TensorType::is_contiguous() const {
  if (known_empty(*this) || is_row_major()) return true;
  Expr expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i].is_const(1)) continue;
    if (!(strides[i] == expected)) return false;
    expected = expected * sizes[i];
  }
  return true;
}

bool TensorType::is_dense() const { return known_empty(*this) || is_row_major() || dense_order(); }

std::optional<std::vector<size_t>> TensorType::dense_order() const {
  std::vector<size_t> out, left;  // the latter innermost first in a row-major tensor
  for (size_t i = sizes.size(); i-- > 0;) left.push_back(i);
  Expr expected = 1;
  while (!left.empty()) {
    const auto fits = [&](size_t i) { return strides[i] == expected; };
    const auto is_one = [&](size_t i) { return sizes[i].is_const(1); };
    auto next = std::ranges::find_if(left, [&](size_t i) { return is_one(i) && fits(i); });
    if (next == left.end()) next = std::ranges::find_if(left, fits);
    if (next == left.end()) next = std::ranges::find_if(left, is_one);
    if (next == left.end()) return std::nullopt;
    const size_t i = *next;
    left.erase(next);
    out.push_back(i);
    if (!sizes[i].is_const(0)) expected = expected * sizes[i];
  }
  return out;
}

bool TensorType::may_overlap_itself() const {
  if (known_empty(*this)) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_const(1)) continue;
    if (strides[i].is_const(0)) return true;
    if (!strides[i].is_const() || !sizes[i].is_const()) return false;
    dims.emplace_back(strides[i].value(), sizes[i].value());
  }
  // From the innermost one outwards, each has to step over all that is inside of it.
  std::sort(dims.begin(), dims.end());
  int64_t last = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= last) return true;
    last += stride * (size - 1);
  }
  return false;
}

bool same_layout(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

bool same_place(const TensorType& a, const TensorType& b) {
  return same_layout(a, b) && a.offset == b.offset;
}

bool same_place(const Type& a, const Type& b) {
  if (a.kind != b.kind) return false;
  return a.is_tensor() ? same_place(a.tensor, b.tensor) : a.expr == b.expr;
}

std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size());
  Expr expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = expected;
    // Where a size without a hint is 0, nobody steps.
    const bool plain = sym::origin_of(sizes[i]) != sym::Origin::Hinted ||
                       sym::certain_less(0, sizes[i]).value_or(false);
    expected = expected * (plain ? sizes[i] : sym::max(sizes[i], Expr(1)));
  }
  return strides;
}

}  // namespace oxy::ir
