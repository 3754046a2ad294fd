// Sizes are computed in symbols; the ops that take them do the rest.
#include "torch_bridge/symbolic_composites.h"

#include <ATen/Operators.h>

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

namespace ops = at::_ops;
using Factors = std::optional<c10::ArrayRef<double>>;

c10::DispatchKeySet keys_below;

// As torch computes it: the size times the factor, rounded down.
c10::SymInt scaled(const c10::SymInt& size, double factor) {
  if (auto n = size.maybe_as_int()) return static_cast<int64_t>(static_cast<double>(*n) * factor);
  const c10::SymNode node = size.toSymNode();
  return c10::SymInt(node->sym_float()->mul(node->wrap_float(factor))->floor());
}

std::vector<c10::SymInt> image_sizes(const at::Tensor& input, at::OptionalSymIntArrayRef given,
                                     const Factors& factors) {
  if (given) return given->vec();
  if (!factors) throw UserError("interpolation needs a size or a factor");
  std::vector<c10::SymInt> out;
  for (size_t d = 0; d < factors->size(); ++d)
    out.push_back(scaled(input.sym_size(static_cast<int64_t>(d) + 2), (*factors)[d]));
  return out;
}

std::optional<double> factor(const Factors& factors, size_t d) {
  return factors ? std::optional((*factors)[d]) : std::nullopt;
}

bool symbolic_sizes(const at::Tensor& input, at::OptionalSymIntArrayRef size) {
  return is_symbolic(input) ||
         (size && std::ranges::any_of(*size, &c10::SymInt::is_heap_allocated));
}

// `Plain` takes the size, `flags` and one factor a dimension.
template <class Plain, size_t Dims, class... Flags>
at::Tensor resized(const at::Tensor& input, at::OptionalSymIntArrayRef given,
                   const Factors& factors, Flags... flags) {
  const std::vector<c10::SymInt> size = image_sizes(input, given, factors);
  if constexpr (Dims == 1) return Plain::call(input, size, flags..., factor(factors, 0));
  if constexpr (Dims == 2)
    return Plain::call(input, size, flags..., factor(factors, 0), factor(factors, 1));
  if constexpr (Dims == 3)
    return Plain::call(input, size, flags..., factor(factors, 0), factor(factors, 1),
                       factor(factors, 2));
}

bool varies(const at::Tensor& input, at::OptionalSymIntArrayRef size) {
  auto is_symbol = [](const c10::SymInt& s) { return s.is_symbolic(); };
  return is_symbolic(input) || (size && std::ranges::any_of(*size, is_symbol));
}

template <class Vec, class Plain, size_t Dims>
at::Tensor nearest(c10::DispatchKeySet keys, const at::Tensor& input,
                   at::OptionalSymIntArrayRef size, Factors factors) {
  if (varies(input, size)) return resized<Plain, Dims>(input, size, factors);
  return Vec::redispatch(keys & keys_below, input, size, factors);
}

template <class Vec, class Plain, size_t Dims>
at::Tensor smooth(c10::DispatchKeySet keys, const at::Tensor& input,
                  at::OptionalSymIntArrayRef size, bool corners, Factors factors) {
  if (varies(input, size)) return resized<Plain, Dims>(input, size, factors, corners);
  return Vec::redispatch(keys & keys_below, input, size, corners, factors);
}

// As torch's, of recurrent cells.
std::vector<at::Tensor> unsafe_chunk(c10::DispatchKeySet keys, const at::Tensor& input,
                                     int64_t chunks, int64_t dim) {
  if (!is_symbolic(input) || chunks < 1 || input.dim() == 0)
    return ops::unsafe_chunk::redispatch(keys & keys_below, input, chunks, dim);
  const c10::SymInt size = input.sym_size(dim), part = (size + chunks - 1) / chunks;
  if (part == 0)  // the number of parts would be lost
    return ops::unsafe_split_with_sizes::call(
        input, std::vector<c10::SymInt>(static_cast<size_t>(chunks), 0), dim);
  return ops::unsafe_split_Tensor::call(input, part, dim);
}

// torch has a kernel of its own for plain tensors; its result lies row by row.
at::Tensor max_pool1d(c10::DispatchKeySet keys, const at::Tensor& input, at::IntArrayRef kernel,
                      at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                      bool ceil) {
  if (!is_symbolic(input))
    return ops::max_pool1d::redispatch(keys & keys_below, input, kernel, stride, padding, dilation,
                                       ceil);
  return std::get<0>(
             ops::max_pool1d_with_indices::call(input, kernel, stride, padding, dilation, ceil))
      .contiguous();
}

}  // namespace

void register_symbolic_composites(torch::Library& aten, c10::DispatchKeySet below) {
  keys_below = below;
#define NEAREST(name, dims) \
  aten.impl(#name ".vec", TORCH_FN((nearest<ops::name##_vec, ops::name, dims>)))
#define SMOOTH(name, dims) \
  aten.impl(#name ".vec", TORCH_FN((smooth<ops::name##_vec, ops::name, dims>)))
  NEAREST(upsample_nearest1d, 1);
  NEAREST(upsample_nearest2d, 2);
  NEAREST(upsample_nearest3d, 3);
  NEAREST(_upsample_nearest_exact1d, 1);
  NEAREST(_upsample_nearest_exact2d, 2);
  NEAREST(_upsample_nearest_exact3d, 3);
  SMOOTH(upsample_linear1d, 1);
  SMOOTH(upsample_bilinear2d, 2);
  SMOOTH(upsample_trilinear3d, 3);
  SMOOTH(upsample_bicubic2d, 2);
  SMOOTH(_upsample_bilinear2d_aa, 2);
  SMOOTH(_upsample_bicubic2d_aa, 2);
  aten.impl("unsafe_chunk", TORCH_FN(unsafe_chunk));
  aten.impl("max_pool1d", TORCH_FN(max_pool1d));
#undef NEAREST
#undef SMOOTH
}

}  // namespace oxy::bridge
