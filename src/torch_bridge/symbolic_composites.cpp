// Sizes are computed in symbols; the ops that take them do the rest. And what torch's code cannot
// do with fakes: losses that look at memory, ops whose meta kernel refuses layouts, checks, writes
// that it leaves out where a mode listens.
#include "torch_bridge/symbolic_composites.h"

#include <ATen/Operators.h>

#include <algorithm>
#include <cmath>

#include "support/check.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

namespace aten = at::_ops;
using Factors = std::optional<c10::ArrayRef<double>>;

c10::DispatchKeySet keys_below;

// As torch computes it: the size times the factor, rounded down.
c10::SymInt scaled(const c10::SymInt& size, double factor) {
  if (auto n = size.maybe_as_int()) return static_cast<int64_t>(static_cast<double>(*n) * factor);
  const c10::SymNode node = size.toSymNode();
  // A factor of many digits: the double that the product is rounded to, as long as both are exact.
  constexpr int kFewDigits = 16, kMostBits = 20;
  const bool few = std::ldexp(factor, kFewDigits) == std::rint(std::ldexp(factor, kFewDigits));
  const int bits = factor > 0 && !few ? std::max(0, std::ilogb(factor)) : kMostBits;
  if (bits < kMostBits) {
    const sym::Expr x = expr_of(size) * (int64_t{1} << bits);
    const auto facts = facts_of(size);
    if (facts->decide(sym::at_most(0, x)) && facts->decide(sym::at_most(x, int64_t{1} << 52)))
      return to_sym_int(sym::scale(x, std::ldexp(factor, -bits)), facts);
  }
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
    return aten::unsafe_chunk::redispatch(keys & keys_below, input, chunks, dim);
  const c10::SymInt size = input.sym_size(dim), part = (size + chunks - 1) / chunks;
  if (part == 0)  // the number of parts would be lost
    return aten::unsafe_split_with_sizes::call(
        input, std::vector<c10::SymInt>(static_cast<size_t>(chunks), 0), dim);
  return aten::unsafe_split_Tensor::call(input, part, dim);
}

// torch has a kernel of its own for plain tensors without gradients; its result lies row by row.
at::Tensor max_pool1d(c10::DispatchKeySet keys, const at::Tensor& input, at::IntArrayRef kernel,
                      at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                      bool ceil) {
  if (!at::isFloatingType(input.scalar_type())) throw Unsupported("max_pool1d of integers");
  if (!is_symbolic(input))
    return aten::max_pool1d::redispatch(keys & keys_below, input, kernel, stride, padding, dilation,
                                        ceil);
  const auto [pooled, indices] =
      aten::max_pool1d_with_indices::call(input, kernel, stride, padding, dilation, ceil);
  return input.requires_grad() && at::GradMode::is_enabled() ? pooled : pooled.contiguous();
}

// Whether torch would let oneDNN run it, which it asks of the number of elements.
bool onednn_takes(const at::Tensor& input, at::TensorList hx) {
  auto plain = [](const at::Tensor& t) { return t.is_cpu() && t.scalar_type() == at::kFloat; };
  auto empty = [](const c10::SymInt& s) { return s.maybe_as_int() == 0; };
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() && input.dim() == 3 &&
         hx.size() == 2 && plain(input) && std::ranges::all_of(hx, plain) && hx[0].dim() == 3 &&
         hx[1].dim() == 3 && std::ranges::none_of(input.sym_sizes(), empty) &&
         hx[0].sym_sizes() == hx[1].sym_sizes();  // without projections
}

// The layers as torch makes them of oneDNN's.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(c10::DispatchKeySet keys,
                                                    const at::Tensor& input, at::TensorList hx,
                                                    at::TensorList params, bool biases,
                                                    int64_t layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1, weights = biases ? 4 : 2;
  if (!is_symbolic(input) || !onednn_takes(input, hx) ||
      static_cast<int64_t>(params.size()) != layers * directions * weights)
    return aten::lstm_input::redispatch(keys & keys_below, input, hx, params, biases, layers,
                                        dropout, train, bidirectional, batch_first);
  constexpr int64_t kLstm = 2;  // ideep::rnn_kind
  const int64_t hidden = hx[0].sym_size(2).guard_int(__FILE__, __LINE__);
  at::Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  const at::Tensor h = hx[0].contiguous(), c = hx[1].contiguous();
  std::vector<at::Tensor> last_h, last_c;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t at = layer * directions + direction;
      const at::Tensor* w = &params[static_cast<size_t>(at * weights)];
      auto bias = [&](int i) { return biases ? w[2 + i] : at::zeros_like(w[i].select(1, 0)); };
      auto [y, h_n, c_n, workspace] = aten::mkldnn_rnn_layer::call(
          x, w[0], w[1], bias(0), bias(1), h.select(0, at), c.select(0, at), direction == 1, {},
          kLstm, hidden, layers, biases, bidirectional, /*batch_first=*/false, train);
      outputs.push_back(std::move(y));
      last_h.push_back(std::move(h_n));
      last_c.push_back(std::move(c_n));
    }
    x = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout != 0 && train && layer < layers - 1) x = at::dropout(x, dropout, true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(last_h), at::stack(last_c)};
}

// Parts that differ by one element at most, the longer ones first.
std::vector<at::Tensor> tensor_split(c10::DispatchKeySet keys, const at::Tensor& input,
                                     c10::SymInt sections, int64_t dim) {
  const auto parts = sections.maybe_as_int();
  if (!is_symbolic(input) || !parts || *parts < 1 || dim < -input.dim() || dim >= input.dim())
    return aten::tensor_split_sections::redispatch(keys & keys_below, input, std::move(sections),
                                                   dim);
  const c10::SymInt size = input.sym_size(dim), least = size / *parts, longer = size % *parts;
  std::vector<at::Tensor> out;
  auto start = [&](int64_t part) { return least * part + longer.min(part); };
  for (int64_t part = 0; part < *parts; ++part)
    out.push_back(input.slice_symint(dim, start(part), start(part + 1)));
  return out;
}

// As torch's, of what both of its forms share: frames of the signal, times the window, transformed.
at::Tensor stft(c10::DispatchKeySet keys, const at::Tensor& signal, int64_t n_fft,
                std::optional<int64_t> hop, std::optional<int64_t> length,
                const std::optional<at::Tensor>& window, bool normalized,
                std::optional<bool> onesided, std::optional<bool> return_complex,
                std::optional<bool> align_to_window) {
  const int64_t step = hop.value_or(n_fft / 4), width = length.value_or(n_fft);
  const bool windowed = window && window->defined(), real = !signal.is_complex();
  const bool plain =
      signal.dim() >= 1 && signal.dim() <= 2 && n_fft > 0 && step > 0 && width > 0 &&
      width <= n_fft && return_complex.value_or(false) && !align_to_window.value_or(false) &&
      (real ? at::isFloatingType(signal.scalar_type()) : !onesided.value_or(false)) &&
      (!windowed || (window->dim() == 1 && window->sym_size(0) == width &&
                     (at::isFloatingType(window->scalar_type()) || !real)));
  if (!is_symbolic(signal) || !plain || signal.sym_size(-1) < n_fft)
    return aten::stft::redispatch(keys & keys_below, signal, n_fft, hop, length, window, normalized,
                                  onesided, return_complex, align_to_window);
  at::Tensor frames = (signal.dim() == 1 ? signal.unsqueeze(0) : signal).unfold(1, n_fft, step);
  if (windowed || width < n_fft) {
    const int64_t left = (n_fft - width) / 2;
    at::Tensor weights = windowed ? *window : at::ones({width}, signal.options());
    if (width < n_fft) weights = at::constant_pad_nd(weights, {left, n_fft - width - left});
    frames = frames.mul(weights);
  }
  constexpr int64_t kNone = 0, kByRoot = 1;  // native::fft_norm_mode
  const int64_t norm = normalized ? kByRoot : kNone;
  at::Tensor out = real ? at::_fft_r2c(frames, {2}, norm, onesided.value_or(true))
                        : at::_fft_c2c(frames, {2}, norm, /*forward=*/true);
  out = out.transpose(1, 2);
  return signal.dim() == 1 ? out.squeeze(0) : out;
}

// x, N, increasing: the powers of x as products, column by column. torch's own kernel writes over
// what its backward needs: there it is to be heard.
void vander(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t base = stack->size() - 3;
  const at::Tensor x = (*stack)[base].toTensor();
  const c10::IValue count = (*stack)[base + 1];
  const bool differentiated = x.requires_grad() && c10::GradMode::is_enabled();
  if ((!is_symbolic(x) && !count.isSymInt()) || x.dim() != 1 || differentiated)
    return op.redispatchBoxed(keys & keys_below, stack);
  const c10::SymInt rows = x.sym_size(0), columns = count.isNone() ? rows : count.toSymInt();
  if (columns < 2) return op.redispatchBoxed(keys & keys_below, stack);
  const auto dtype = at::promote_types(x.scalar_type(), at::kLong);
  const at::Tensor factors = x.unsqueeze(1).expand_symint({rows, columns - 1});
  const at::Tensor ones = at::ones_symint({rows, 1}, x.options().dtype(dtype));
  at::Tensor out = at::cat({ones, at::cumprod(factors, 1, dtype)}, 1);
  if (!(*stack)[base + 2].toBool()) out = out.flip({1});
  stack->resize(base);
  stack->emplace_back(std::move(out));
}

// The kernel behind channel_shuffle. Of the two only that has a meta kernel for every layout, and
// a gradient.
at::Tensor native_channel_shuffle(c10::DispatchKeySet keys, const at::Tensor& input,
                                  c10::SymInt groups) {
  if (input.requires_grad() && at::GradMode::is_enabled())
    return aten::native_channel_shuffle::redispatch(keys & keys_below, input, std::move(groups));
  return aten::channel_shuffle::call(input, std::move(groups));
}

// As torch's, but for the tensor of lengths, which torch would fill in memory that fakes have not.
at::Tensor ctc_loss(c10::DispatchKeySet keys, const at::Tensor& log_probs,
                    const at::Tensor& targets, at::IntArrayRef input_lengths,
                    at::IntArrayRef target_lengths, int64_t blank, int64_t reduction,
                    bool zero_infinity) {
  if (reduction != at::Reduction::Mean)
    return aten::ctc_loss_IntList::redispatch(keys & keys_below, log_probs, targets, input_lengths,
                                              target_lengths, blank, reduction, zero_infinity);
  const at::Tensor by_sequence =
      at::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank,
                   static_cast<int64_t>(at::Reduction::None), zero_infinity);
  at::Tensor lengths;
  {
    const c10::impl::ExcludeDispatchKeyGuard below(
        kAboveBackend | c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode));
    lengths = at::tensor(target_lengths, at::TensorOptions().dtype(by_sequence.scalar_type()));
  }
  return by_sequence.div(at::lift_fresh(lengths).clamp_min(1)).mean();
}

// Functionalisation takes the two results for each other.
at::Tensor& rrelu_out(c10::DispatchKeySet, const at::Tensor&, at::Tensor&, const at::Scalar&,
                      const at::Scalar&, bool, std::optional<at::Generator>, at::Tensor&) {
  throw Unsupported("rrelu_with_noise with out=");
}

// The places of a dimension's elements between -1 and 1, as torch has them in its grids.
at::Tensor places_between(const c10::SymInt& count, bool corners,
                          const at::TensorOptions& options) {
  if (count <= 1) return at::zeros({1}, options);
  static const c10::OperatorHandle linspace =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::linspace", "");
  torch::jit::Stack stack{
      c10::Scalar(-1),  c10::Scalar(1),   count,        c10::typeMetaToScalarType(options.dtype()),
      options.layout(), options.device(), c10::IValue()};
  linspace.callBoxed(stack);
  const at::Tensor places = stack.back().toTensor();
  return corners ? places : places.mul(c10::Scalar(count - 1)).div(c10::Scalar(count));
}

// As torch's: the grid of the identity, transposed, times the gradient.
at::Tensor affine_grid_backward(c10::DispatchKeySet keys, const at::Tensor& grad,
                                c10::SymIntArrayRef size, bool corners) {
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  auto is_symbol = [](const c10::SymInt& s) { return s.is_symbolic(); };
  if ((dims != 2 && dims != 3) || std::ranges::none_of(size, is_symbol))
    return aten::affine_grid_generator_backward::redispatch(keys & keys_below, grad, size, corners);
  const c10::SymIntArrayRef spatial = size.slice(2);
  std::vector<at::Tensor> columns;
  c10::SymInt points = 1;
  for (int64_t d = dims - 1; d >= 0; --d) {
    std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
    shape[static_cast<size_t>(d)] = -1;
    const c10::SymInt& count = spatial[static_cast<size_t>(d)];
    columns.push_back(
        places_between(count, corners, grad.options()).view(shape).expand_symint(spatial));
    points = points * count;
  }
  columns.push_back(at::ones_like(columns[0]));
  const at::Tensor grid = at::stack(columns, -1)
                              .reshape_symint({1, points, dims + 1})
                              .expand_symint({size[0], points, dims + 1});
  return grid.transpose(1, 2).bmm(grad.reshape_symint({size[0], points, dims})).transpose(1, 2);
}

// Where a mode listens torch leaves out to look at what it is given for `q`.
template <class Op>
at::Tensor quantile(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& q,
                    std::optional<int64_t> dim, bool keepdim, c10::string_view interpolation) {
  if (self.is_cpu() && at::isFloatingType(q.scalar_type()))
    at::_assert_async(q.detach().ge(0).logical_and(q.detach().le(1)).all(),
                      "quantile() q values must be in the range [0, 1]");
  return Op::redispatch(keys & keys_below, self, q, dim, keepdim, interpolation);
}

// Where a mode listens torch computes vectors as well, to be differentiated: half as long again.
at::Tensor eigvals(c10::DispatchKeySet keys, const at::Tensor& self) {
  if (!self.is_cpu() || (at::GradMode::is_enabled() && self.requires_grad()))
    return aten::linalg_eigvals::redispatch(keys & keys_below, self);
  return at::_linalg_eigvals(self);
}

}  // namespace

void register_symbolic_composites(torch::Library& aten, c10::DispatchKeySet below) {
  keys_below = below;
#define NEAREST(name, dims) \
  aten.impl(#name ".vec", TORCH_FN((nearest<aten::name##_vec, aten::name, dims>)))
#define SMOOTH(name, dims) \
  aten.impl(#name ".vec", TORCH_FN((smooth<aten::name##_vec, aten::name, dims>)))
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
  aten.impl("lstm.input", TORCH_FN(lstm));
  aten.impl("ctc_loss.IntList", TORCH_FN(ctc_loss));
  aten.impl("tensor_split.sections", TORCH_FN(tensor_split));
  aten.impl("native_channel_shuffle", TORCH_FN(native_channel_shuffle));
  aten.impl("stft", TORCH_FN(stft));
  aten.impl("affine_grid_generator_backward", TORCH_FN(affine_grid_backward));
  aten.impl("rrelu_with_noise.out", TORCH_FN(rrelu_out));
  aten.impl("quantile", TORCH_FN(quantile<aten::quantile>));
  aten.impl("nanquantile", TORCH_FN(quantile<aten::nanquantile>));
  aten.impl("linalg_eigvals", TORCH_FN(eigvals));
  aten.impl("vander", torch::CppFunction::makeFromBoxedFunction<&vander>());
#undef NEAREST
#undef SMOOTH
}

}  // namespace oxy::bridge
