// Finds slices, a view and a permutation that give a place in memory.
#include "torch_bridge/view_replay.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/split.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/unbind.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <algorithm>

#include "torch_bridge/engine_order.h"

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
  // The dimensions as they lie in memory; one of one element where unsqueeze has it, in front of
  // the next one.
  std::vector<int64_t> order;
  for (const auto& run : runs) order.insert(order.end(), run.begin(), run.end());
  for (int64_t d = std::ssize(place.sizes) - 1; d >= 0; d--)
    if (place.sizes[d] == 1) order.insert(std::ranges::find(order, d + 1), d);
  s.order.resize(order.size());
  for (int64_t d : order) {
    s.order[d] = static_cast<int64_t>(s.viewed.size());
    s.viewed.push_back(place.sizes[d]);
  }
  return s;
}

// The same on the base as it is, or with neighbours joined that follow each other in memory.
std::optional<Steps> steps_to(const at::Tensor& base, const ViewPlace& place) {
  const int64_t rest = place.offset - base.storage_offset();
  if (rest < 0 || base.numel() == 0 || std::ranges::count(place.sizes, 0) != 0) return std::nullopt;
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

// The order of the base's dimensions in which they are those of the place.
std::optional<Sizes> permutation_to(const at::Tensor& base, const ViewPlace& place) {
  const auto n = static_cast<int64_t>(place.sizes.size());
  if (base.dim() != n || base.storage_offset() != place.offset) return std::nullopt;
  Sizes order;
  for (int64_t k = 0; k < n; k++) {
    int64_t d = 0;
    while (d < n && (base.size(d) != place.sizes[k] || base.stride(d) != place.strides[k] ||
                     std::ranges::find(order, d) != order.end()))
      d++;
    if (d == n) return std::nullopt;
    order.push_back(d);
  }
  return order;
}

at::Tensor shaped(const at::Tensor& t, c10::IntArrayRef sizes) {
  return t.sizes() == sizes ? t : t.view(sizes);
}

// But for one dimension.
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

// The only dimension that the two cut otherwise, if the second begins there behind the first.
int64_t next_piece_along(const Steps& a, const Steps& b) {
  if (a.sizes != b.sizes) return -1;
  int64_t found = -1;
  for (size_t d = 0; d < a.sizes.size(); d++) {
    const Cut &one = a.cuts[d], &two = b.cuts[d];
    if (one == two) continue;
    const bool follows = one.step == 1 && two.step == 1 && two.start >= one.start + one.length;
    if (found >= 0 || !follows) return -1;
    found = static_cast<int64_t>(d);
  }
  return found;
}

// Where a single piece may have been cut.
int64_t dimension_of_piece(const Steps& s) {
  int64_t whole = -1;
  for (size_t d = 0; d < s.sizes.size(); d++) {
    if (s.cuts[d].step != 1) continue;
    whole = static_cast<int64_t>(d);
    if (s.cuts[d].length != s.sizes[d]) break;
  }
  return whole;
}

// What an op cut into pieces, and which of them are wanted.
struct Pieces {
  std::vector<at::Tensor> all;
  std::vector<size_t> number;
};

Pieces unbound(const at::Tensor& t, int64_t dim, const std::vector<Cut>& cuts) {
  Pieces out{at::unbind(t, dim), {}};
  for (const Cut& c : cuts) out.number.push_back(static_cast<size_t>(c.start));
  return out;
}

// By equal lengths where they are, as most programs do: an error names the op and the piece.
Pieces split(const at::Tensor& t, int64_t dim, const std::vector<Cut>& cuts) {
  const int64_t length = cuts[0].length, size = t.size(dim);
  const auto is_equal = [&](const Cut& c) {
    return c.start % length == 0 && c.length == std::min(length, size - c.start);
  };
  Pieces out;
  if (std::ranges::all_of(cuts, is_equal)) {
    out.all = at::split(t, length, dim);
    for (const Cut& c : cuts) out.number.push_back(static_cast<size_t>(c.start / length));
    return out;
  }
  std::vector<int64_t> lengths;
  int64_t last = 0;
  for (const Cut& c : cuts) {
    if (c.start > last) lengths.push_back(c.start - last);  // what nobody returns
    out.number.push_back(lengths.size());
    lengths.push_back(c.length);
    last = c.start + c.length;
  }
  if (last < size) lengths.push_back(size - last);
  out.all = at::split_with_sizes(t, lengths, dim);
  return out;
}

bool is_at(const at::Tensor& t, const ViewPlace& place) {
  return t.sizes() == place.sizes && t.strides() == place.strides &&
         t.storage_offset() == place.offset;
}

// A place without elements, which may be any.
at::Tensor empty_piece(const at::Tensor& base, const ViewPlace& place) {
  const at::Tensor t = at::as_strided(base, place.sizes, place.strides, place.offset);
  if (t.dim() < base.dim()) return at::unbind(t.unsqueeze(0))[0];
  return at::split(t, t.size(0))[0];
}

// Whether only autograd and one backend's own kernel would see a view of `base` made, and neither
// has more to do with it than `plain_view` does.
bool is_plain(const at::Tensor& base) {
  using c10::DispatchKey, c10::DispatchKeySet;
  constexpr DispatchKeySet above =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  const DispatchKeySet own = base.key_set() - above;
  const DispatchKeySet asked =
      c10::impl::tls_local_dispatch_key_set().included_ - c10::default_included_set - above;
  return (own == DispatchKeySet(DispatchKey::CPU) || own == DispatchKeySet(DispatchKey::CUDA)) &&
         asked.empty() && !c10::AutogradState::get_tls_state().get_view_replay_enabled() &&
         !base._fw_grad(0).defined();
}

// Whether the memory of `base` has all elements of the view.
bool is_inside(const at::Tensor& base, const ViewPlace& place) {
  int64_t end = place.offset + 1;
  for (size_t d = 0; d < place.sizes.size(); d++) {
    if (place.sizes[d] == 0) return true;
    end += (place.sizes[d] - 1) * place.strides[d];
  }
  return static_cast<size_t>(end) * base.itemsize() <= base.storage().nbytes();
}

// What `as_strided` gives where no gradient is asked for, without three layers of the dispatcher.
at::Tensor plain_view(const at::Tensor& base, const ViewPlace& place) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), base.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(place.sizes, place.strides, place.offset);
  const auto [included, excluded] = c10::impl::tls_local_dispatch_key_set();
  if (!((base.key_set() | included) - excluded).has(c10::DispatchKey::ADInplaceOrView)) return view;
  using torch::autograd::CreationMeta;
  const CreationMeta made = c10::InferenceMode::is_enabled() ? CreationMeta::INFERENCE_MODE
                            : c10::GradMode::is_enabled()    ? CreationMeta::DEFAULT
                                                             : CreationMeta::NO_GRAD_MODE;
  return torch::autograd::as_view(base, view, /*is_bw_differentiable=*/true,
                                  /*is_fw_differentiable=*/true, nullptr, nullptr, made);
}

}  // namespace

bool is_view_of_function(const at::Tensor& t) {
  using torch::autograd::CreationMeta;
  const auto* view = torch::autograd::impl::get_view_autograd_meta(t);
  if (view == nullptr || !view->has_bw_view()) return false;
  if (view->get_creation_meta() == CreationMeta::IN_CUSTOM_FUNCTION) return true;
  // Of several results autograd says what it says of those of torch's ops.
  if (view->get_creation_meta() != CreationMeta::MULTI_OUTPUT_NODE) return false;
  const auto base = torch::autograd::impl::gradient_edge(at::Tensor(t._base())).function;
  const torch::autograd::Node* n = view->grad_fn_.get();
  while (n != nullptr && n != base.get() && !is_of_python(*n))
    n = n->num_outputs() > 0 ? n->next_edge(0).function.get() : nullptr;
  return n != nullptr && n != base.get();
}

bool is_piece(const at::Tensor& t) {
  namespace functional = at::functionalization::impl;
  return functional::isFunctionalTensor(t) &&
         std::ranges::any_of(functional::unsafeGetFunctionalWrapper(t)->view_metas(),
                             [](const auto& m) { return m->is_multi_output; });
}

at::Tensor view_at(const at::Tensor& base, const ViewPlace& place) {
  // Without a gradient one op is the cheapest.
  if (base.requires_grad() && c10::GradMode::is_enabled()) {
    if (const auto order = permutation_to(base, place))
      return std::ranges::is_sorted(*order) ? base.view(base.sizes()) : base.permute(*order);
    if (const auto steps = steps_to(base, place)) {
      at::Tensor t = arranged(cut(shaped(base, steps->sizes), *steps), *steps);
      if (is_at(t, place)) return t;
    }
  } else if (is_plain(base) && is_inside(base, place)) {
    return plain_view(base, place);
  }
  return at::as_strided(base, place.sizes, place.strides, place.offset);
}

std::vector<at::Tensor> pieces_at(const at::Tensor& base, const std::vector<ViewPlace>& places) {
  std::vector<std::optional<Steps>> steps;
  for (const ViewPlace& place : places) steps.push_back(steps_to(base, place));
  std::vector<at::Tensor> out(places.size());
  for (size_t first = 0, end = 0; first < places.size(); first = end) {
    end = first + 1;
    if (std::ranges::count(places[first].sizes, 0) != 0) {
      at::Tensor t = empty_piece(base, places[first]);
      if (is_at(t, places[first])) out[first] = std::move(t);
    }
    if (!steps[first]) continue;
    int64_t across = -1;  // the dimension that is cut into pieces
    for (; end < places.size() && steps[end]; ++end) {
      const int64_t d = next_piece_along(*steps[end - 1], *steps[end]);
      if (d < 0 || (across >= 0 && d != across)) break;
      across = d;
    }
    if (across < 0) across = dimension_of_piece(*steps[first]);
    if (across < 0) continue;
    const Steps& one = *steps[first];
    const at::Tensor whole = cut(shaped(base, one.sizes), one, across);
    std::vector<Cut> cuts;
    bool drops = true;  // the dimension that is cut
    for (size_t i = first; i < end; i++) {
      cuts.push_back(steps[i]->cuts[across]);
      drops &= cuts.back().length == 1 && places[i].sizes.size() + 1 == one.sizes.size();
    }
    const Pieces made = drops ? unbound(whole, across, cuts) : split(whole, across, cuts);
    for (size_t i = first; i < end; i++) {
      at::Tensor t = made.all[made.number[i - first]];
      if (!is_at(t, places[i])) t = arranged(t, *steps[i]);
      if (is_at(t, places[i])) out[i] = std::move(t);
    }
  }
  return out;
}

}  // namespace oxy::bridge
