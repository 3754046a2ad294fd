// What gradients have in common: a list of booleans that says which results are wanted.
#pragma once

#include "ops/rewriter.h"
#include "ops/shapes.h"

namespace oxy::ops {

// Argument `at`, of `count` booleans.
inline std::optional<std::vector<bool>> output_mask(const Args& a, size_t at, size_t count) {
  const auto* items = a[at].items();
  std::vector<bool> mask;
  for (size_t i = 0; items && i < items->size(); ++i) {
    const auto* wanted = (*items)[i].get_if<bool>();
    if (!wanted) return std::nullopt;
    mask.push_back(*wanted);
  }
  return items && mask.size() == count ? std::optional(std::move(mask)) : std::nullopt;
}

// A result that is not wanted is not there.
inline bool give_wanted(Types& out, bool wanted, std::optional<ir::TensorType> result) {
  if (wanted) return give(out, std::move(result));
  out.push_back(ir::Type::none());
  return true;
}

template <class Make>
bool give_wanted(std::vector<ir::ValueId>& out, bool wanted, Make&& make) {
  if (wanted) return give(out, make());
  out.emplace_back();
  return true;
}

}  // namespace oxy::ops
