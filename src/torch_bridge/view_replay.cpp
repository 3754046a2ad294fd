// Finds slices, a view and a permutation that give a place in memory.
#include "torch_bridge/view_replay.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/split_with_sizes.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

namespace oxy::bridge {
namespace {

using Sizes = c10::SmallVector<int64_t, 8>;

struct Cut {
  int64_t start = 0, length = 0, step = 1;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// What makes a view of a base that has `sizes` (its own, or with dimensions joined).
struct Steps {
  Sizes sizes;
  c10::SmallVector<Cut, 8> cuts;       // of each dimension
  Sizes viewed;                        // sizes behind the cuts, before the permutation
  c10::SmallVector<int64_t, 8> order;  // the dimension of `viewed` for each of the result
};

// Dimensions with more than one element, the outermost in memory first.
c10::SmallVector<int64_t, 8> walked(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::SmallVector<int64_t, 8> dims;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); d++)
    if (sizes[d] != 1) dims.push_back(d);
  std::ranges::stable_sort(dims, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return dims;
}

// `rest`: the offset from the base's first element.
std::optional<Steps> steps_to(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              const ViewPlace& place, int64_t rest) {
  Steps s;
  s.sizes.assign(sizes.begin(), sizes.end());
  for (int64_t size : sizes) s.cuts.push_back({0, size, 1});
  const auto base = walked(sizes, strides), wanted = walked(place.sizes, place.strides);
  std::vector<c10::SmallVector<int64_t, 8>> runs(sizes.size());  // dimensions of the result
  auto next = wanted.begin();
  int64_t outer = -1;  // the stride of the dimension around
  for (int64_t d : base) {
    const int64_t stride = strides[d];
    if (stride <= 0 || (outer >= 0 && stride * sizes[d] > outer)) return std::nullopt;
    outer = stride;
    Cut& cut = s.cuts[d];
    cut = {rest / stride, 1, 1};
    rest %= stride;
    for (; next != wanted.end() && place.strides[*next] >= stride; ++next) {
      const int64_t size = place.sizes[*next], inner = place.strides[*next];
      if (inner % stride != 0 || (cut.length > 1 && cut.step * stride != inner * size))
        return std::nullopt;
      cut.length *= size;
      cut.step = inner / stride;
      runs[d].push_back(*next);
    }
    if (cut.length == 1) cut.step = 1;
    if (cut.start + (cut.length - 1) * cut.step >= sizes[d]) return std::nullopt;
  }
  if (rest != 0 || next != wanted.end()) return std::nullopt;
  s.order.resize(place.sizes.size(), -1);
  for (const auto& run : runs)
    for (int64_t d : run) {
      s.order[d] = static_cast<int64_t>(s.viewed.size());
      s.viewed.push_back(place.sizes[d]);
    }
  for (int64_t& at : s.order) {
    if (at >= 0) continue;
    at = static_cast<int64_t>(s.viewed.size());  // a dimension of one element
    s.viewed.push_back(1);
  }
  return s;
}

// The same on the base as it is, or with neighbours joined that follow each other in memory.
std::optional<Steps> steps_to(const at::Tensor& base, const ViewPlace& place) {
  const int64_t rest = place.offset - base.storage_offset();
  if (rest < 0 || base.numel() == 0 || base.scalar_type() == at::ScalarType::Undefined ||
      std::ranges::count(place.sizes, 0) != 0)
    return std::nullopt;
  if (auto steps = steps_to(base.sizes(), base.strides(), place, rest)) return steps;
  Sizes sizes, strides;
  for (int64_t d = 0; d < base.dim(); d++) {
    const int64_t size = base.size(d), stride = base.stride(d);
    if (!sizes.empty() && strides.back() == stride * size) {
      sizes.back() *= size;
      strides.back() = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  return steps_to(sizes, strides, place, rest);
}

at::Tensor shaped(const at::Tensor& t, c10::IntArrayRef sizes) {
  return t.sizes() == sizes ? t : t.view(sizes);
}

at::Tensor cut(at::Tensor t, const Steps& s, int64_t but = -1) {
  for (int64_t d = 0; d < t.dim(); d++) {
    const Cut& c = s.cuts[d];
    if (d == but || c == Cut{0, t.size(d), 1}) continue;
    t = at::slice(t, d, c.start, c.start + (c.length - 1) * c.step + 1, c.step);
  }
  return t;
}

// Behind the cuts.
at::Tensor arranged(const at::Tensor& t, const Steps& s) {
  const at::Tensor viewed = shaped(t, s.viewed);
  if (std::ranges::is_sorted(s.order)) return viewed;
  return viewed.permute(s.order);
}

bool is_at(const at::Tensor& t, const ViewPlace& place) {
  return t.sizes() == place.sizes && t.strides() == place.strides &&
         t.storage_offset() == place.offset;
}

}  // namespace

at::Tensor view_at(const at::Tensor& base, const ViewPlace& place) {
  // Without a gradient one op is the cheapest.
  if (base.requires_grad() && c10::GradMode::is_enabled()) {
    if (const auto steps = steps_to(base, place)) {
      at::Tensor t = arranged(cut(shaped(base, steps->sizes), *steps), *steps);
      if (is_at(t, place)) return t.is_same(base) ? base.view(base.sizes()) : t;
    }
  }
  return at::as_strided(base, place.sizes, place.strides, place.offset);
}

std::optional<std::vector<at::Tensor>> pieces_at(const at::Tensor& base,
                                                 const std::vector<ViewPlace>& places) {
  std::vector<Steps> all;
  for (const ViewPlace& place : places) {
    auto steps = steps_to(base, place);
    if (!steps || (!all.empty() && steps->sizes != all[0].sizes)) return std::nullopt;
    all.push_back(std::move(*steps));
  }
  // The dimension that is cut into pieces: the only one whose cuts differ or are not whole.
  int64_t across = -1;
  const Sizes& sizes = all[0].sizes;
  for (size_t d = 0; d < sizes.size(); d++) {
    const bool whole =
        std::ranges::all_of(all, [&](const Steps& s) { return s.cuts[d] == Cut{0, sizes[d], 1}; });
    if (whole) continue;
    if (across >= 0) return std::nullopt;
    across = static_cast<int64_t>(d);
  }
  if (across < 0) return std::nullopt;
  std::vector<size_t> order(places.size());
  std::iota(order.begin(), order.end(), 0);
  const auto cut_of = [&](size_t i) -> const Cut& { return all[i].cuts[across]; };
  std::ranges::stable_sort(order, {}, [&](size_t i) { return cut_of(i).start; });
  std::vector<int64_t> lengths;
  std::vector<size_t> piece(places.size());
  int64_t end = 0;
  for (size_t i : order) {
    const Cut& c = cut_of(i);
    if (c.step != 1 || c.start < end) return std::nullopt;
    if (c.start > end) lengths.push_back(c.start - end);  // pieces that nobody returns
    piece[i] = lengths.size();
    lengths.push_back(c.length);
    end = c.start + c.length;
  }
  if (end < sizes[across]) lengths.push_back(sizes[across] - end);
  const auto cuts = at::split_with_sizes(shaped(base, sizes), lengths, across);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < places.size(); i++) {
    out.push_back(arranged(cuts[piece[i]], all[i]));
    if (!is_at(out.back(), places[i])) return std::nullopt;
  }
  return out;
}

}  // namespace oxy::bridge
