// A row for each op whose kernels choose other strides, and the rule for them.
#include <ATen/Parallel.h>
#include <ATen/core/functional.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>

#include "ops/shapes.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/shape_fallback.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {
namespace {

using Args = c10::ArrayRef<c10::IValue>;
using Correct = void (*)(ir::TensorType&, Args);

void row_major(ir::TensorType& t, Args) { t.strides = ir::contiguous_strides(t.sizes); }

// An empty result has the strides of a new tensor.
void column_major(ir::TensorType& t, Args args) {
  row_major(t, args);
  const size_t rank = t.sizes.size();
  if (rank < 2) return;
  t.strides[rank - 2] = 1;
  t.strides[rank - 1] = sym::max(t.sizes[rank - 2], sym::Expr(1));
}

// Dimension 1 innermost, the others in order around it.
void channels_last(ir::TensorType& t) {
  sym::Expr next = t.sizes[1];
  t.strides[1] = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    if (d == 1) continue;
    t.strides[d] = next;
    next = next * t.sizes[d];
  }
}

bool suggests_channels_last(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->is_strides_like_channels_last() ||
         t.unsafeGetTensorImpl()->is_strides_like_channels_last_3d();
}

void like_first(ir::TensorType& t, Args args) {
  if (suggests_channels_last(args[0].toTensor())) channels_last(t);
}

// An operand [N, C, L] of a convolution of one dimension, which runs as one of two over [N, C, 1,
// L].
bool suggests_channels_last_1d(const at::Tensor& t) {
  const auto n = t.sizes(), s = t.strides();
  return c10::is_channels_last_strides_2d<int64_t>({n[0], n[1], 1, n[2]},
                                                   {s[0], s[1], n[2] * s[2], s[2]});
}

std::vector<c10::SymInt> sizes_in(const c10::IValue& v) {
  return c10::fmap(v.toListRef(), [](const c10::IValue& i) { return i.toSymInt(); });
}

// What torch will run says which layout its result has: that depends on sizes, strides and the
// number of threads.
at::native::ConvBackend convolution_backend(Args args) {
  const at::Tensor &x = args[0].toTensor(), &w = args[1].toTensor();
  std::optional<at::Tensor> bias;
  if (args[2].isTensor()) bias = args[2].toTensor();
  return at::native::select_conv_backend(x, w, bias, sizes_in(args[3]), sizes_in(args[4]),
                                         sizes_in(args[5]), args[6].toBool(), sizes_in(args[7]),
                                         args[8].toSymInt(), std::nullopt);
}

bool runs_channels_last(Args args) {
  const auto format = at::native::_determine_backend_memory_format(
      args[0].toTensor(), args[1].toTensor(), convolution_backend(args));
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

void convolution(ir::TensorType& t, Args args) {
  const at::Tensor &x = args[0].toTensor(), &w = args[1].toTensor();
  if (x.sym_size(1) == 0) {  // no channels come out either
    t.sizes[1] = 0;
    return row_major(t, args);
  }
  const bool known = !is_symbolic(x) && !is_symbolic(w);
  if (known && t.dim() > 3) return runs_channels_last(args) ? channels_last(t) : row_major(t, args);
  if (t.dim() == 3) {
    // The input is made contiguous first.
    if (suggests_channels_last_1d(w) || (x.is_contiguous() && suggests_channels_last_1d(x)))
      channels_last(t);
  } else if (x.scalar_type() != at::kDouble &&
             (suggests_channels_last(x) || suggests_channels_last(w))) {
    channels_last(t);
  }
}

std::vector<c10::IValue> of_forward(Args args) {
  std::vector<c10::IValue> forward{args[1], args[2], c10::IValue()};
  forward.insert(forward.end(), args.begin() + 4, args.begin() + 10);
  return forward;
}

// Both gradients have the forward's format. `like` is the operand of which one is the gradient.
void convolution_gradient(ir::TensorType& t, Args args, const at::Tensor& like) {
  const std::vector<c10::IValue> forward = of_forward(args);
  const at::Tensor &x = args[1].toTensor(), &w = args[2].toTensor();
  if (is_symbolic(x) || is_symbolic(w) || t.dim() < 3 || like.numel() == 0) return;
  const bool last = t.dim() == 3 ? suggests_channels_last_1d(w) ||
                                       (x.is_contiguous() && suggests_channels_last_1d(x))
                                 : runs_channels_last(forward);
  last ? channels_last(t) : row_major(t, args);
}

void convolution_input(ir::TensorType& t, Args args) {
  convolution_gradient(t, args, args[1].toTensor());
}

// Zeros, as zeros_like has them of the images that weights are.
void no_gradient(ir::TensorType& t, const at::Tensor& w) {
  ir::TensorType images = type_of(w);
  const bool one_dimension = w.dim() == 3;
  if (one_dimension) {
    images.strides.insert(images.strides.begin() + 2, images.sizes[2] * images.strides[2]);
    images.sizes.insert(images.sizes.begin() + 2, sym::Expr(1));
  }
  auto strides = ops::preserved_strides(images);
  if (!strides) return;
  if (one_dimension) strides->erase(strides->begin() + 2);
  t.strides = *strides;
}

// ATen's own kernel makes that of the weights in the format that they have by then: those whose
// memory is the same in either format have not been copied.
void convolution_weight(ir::TensorType& t, Args args) {
  const at::Tensor &x = args[1].toTensor(), &w = args[2].toTensor();
  if (type_of(x).sizes[0] == sym::Expr(0)) return no_gradient(t, w);
  convolution_gradient(t, args, w);
  if (is_symbolic(x) || is_symbolic(w) || t.dim() != 4 || w.numel() == 0) return;
  if (w.is_contiguous(at::MemoryFormat::ChannelsLast) && !suggests_channels_last(w) &&
      convolution_backend(of_forward(args)) == at::native::ConvBackend::Slow2d)
    row_major(t, args);
}

// Images that are made anew, in the format of the first argument.
void image_like_first(ir::TensorType& t, Args args) {
  suggests_channels_last(args[0].toTensor()) ? channels_last(t) : row_major(t, args);
}

// Losses of each element, laid out as an argument: the input, or the target, where eager computes
// them in place of 1 - target.
template <size_t Like, size_t Reduction>
void losses_like(ir::TensorType& t, Args args) {
  if (args[Reduction].toInt() != 0) return;
  const ir::TensorType like = type_of(args[Like].toTensor());
  ops::lay_out_like(&like, t);
}

// A flip, whose result is laid out as its input, that is then transposed.
void rotated(ir::TensorType& t, Args args) {
  if (is_symbolic(args[0].toTensor())) return;
  const ir::TensorType x = type_of(args[0].toTensor());
  const int64_t turns = ((args[1].toInt() % 4) + 4) % 4;
  const std::vector<int64_t> dims = args[2].toIntVector();
  const auto strides = ops::preserved_strides(x);
  if (!strides) return;
  if (turns == 0) return row_major(t, args);
  t.strides = *strides;
  if (turns == 2) return;
  const auto place = [&](size_t i) {
    return static_cast<size_t>(c10::maybe_wrap_dim(dims[i], x.dim()));
  };
  std::swap(t.strides[place(0)], t.strides[place(1)]);
}

// Eager copies an empty input as it is.
void unshuffled(ir::TensorType& t, Args args) {
  const at::Tensor& x = args[0].toTensor();
  if (is_symbolic(x) || x.numel() > 0) return like_first(t, args);
  t.sizes.assign(x.sizes().begin(), x.sizes().end());
  t.strides.assign(x.strides().begin(), x.strides().end());
}

// Nothing happens where the sizes are equal and no memory format is asked for.
void resize_as(ir::TensorType& t, Args args) {
  if (!args[2].isNone()) return;
  const at::Tensor& x = args[0].toTensor();
  if (!x.sizes().equals(args[1].toTensor().sizes()) || !x.is_non_overlapping_and_dense()) return;
  for (size_t d = 0; d < t.strides.size(); ++d) t.strides[d] = x.stride(static_cast<int64_t>(d));
}

bool is_channels_last(at::IntArrayRef sizes, at::IntArrayRef strides) {
  return sizes.size() == 4   ? c10::is_channels_last_strides_2d(sizes, strides)
         : sizes.size() == 5 ? c10::is_channels_last_strides_3d(sizes, strides)
                             : false;
}

// Each dimension's roll is a concatenation of two slices, which is channels-last where both are; an
// empty one is not.
void rolled(ir::TensorType& t, Args args) {
  const at::Tensor& x = args[0].toTensor();
  const std::vector<int64_t> dims = args[2].toIntVector();
  if (dims.empty()) return row_major(t, args);  // of all elements in a row
  if (is_symbolic(x) || x.numel() == 0) return;
  const std::vector<int64_t> shifts = args[1].toIntVector();
  if (dims.size() != shifts.size()) return;
  const std::vector<int64_t> sizes = x.sizes().vec();
  bool channels_last = is_channels_last(sizes, x.strides());
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t size = x.size(dims[k]);
    const int64_t begin = ((size - shifts[k]) % size + size) % size;
    const auto d = static_cast<size_t>(c10::maybe_wrap_dim(dims[k], x.dim()));
    for (int64_t part : {size - begin, begin}) {
      std::vector<int64_t> slice = sizes;
      slice[d] = part;
      channels_last = channels_last && is_channels_last(slice, x.strides());
    }
  }
  if (!channels_last) return row_major(t, args);
  const std::vector<int64_t> strides = sizes.size() == 4 ? c10::get_channels_last_strides_2d(sizes)
                                                         : c10::get_channels_last_strides_3d(sizes);
  t.strides.assign(strides.begin(), strides.end());
}

// A product of the first two arguments, which torch's rule takes for a new tensor.
void like_product(ir::TensorType& t, Args args) {
  const ir::TensorType x = type_of(args[0].toTensor()), y = type_of(args[1].toTensor());
  const ir::TensorType* operands[] = {&x, &y};
  if (auto strides = ops::elementwise_strides(t.sizes, operands, false)) t.strides = *strides;
}

void like_operands(ir::TensorType& t, Args args) {
  const ir::TensorType x = type_of(args[0].toTensor()), y = type_of(args[1].toTensor());
  const ir::TensorType* operands[] = {&x, &y};
  if (auto strides = ops::elementwise_strides(t.sizes, operands, false)) t.strides = *strides;
}

// Elementwise of a matrix, a column and a row; torch's rule forgets a matrix that is multiplied by
// 0.
void like_outer(ir::TensorType& t, Args args) {
  const ir::TensorType matrix = type_of(args[0].toTensor()), row = type_of(args[2].toTensor());
  ir::TensorType column = type_of(args[1].toTensor());
  column.sizes.push_back(1);
  column.strides.push_back(1);
  const ir::TensorType* operands[] = {&matrix, &column, &row};
  if (auto strides = ops::elementwise_strides(t.sizes, operands, false)) t.strides = *strides;
}

// The strides of what torch's FFTs with MKL give: dimensions that are not transformed by falling
// strides of the input, then `dims` in their order. Equal strides fall as the standard library's
// algorithms let them, there as here.
std::vector<sym::Expr> fft_strides(const std::vector<sym::Expr>& sizes,
                                   const std::vector<int64_t>& strides,
                                   const std::vector<int64_t>& dims) {
  std::vector<int64_t> order(sizes.size());
  std::ranges::generate(order, [d = int64_t{0}]() mutable { return d++; });
  auto batch_end = std::partition(order.begin(), order.end(), [&](int64_t d) {
    return std::find(dims.begin(), dims.end(), d) == dims.end();
  });
  auto falling = [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  };
  std::sort(order.begin(), batch_end, falling);
  std::ranges::copy(dims, batch_end);
  std::vector<sym::Expr> out(sizes.size());
  sym::Expr next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    out[d] = next;
    next = next * sym::max(sizes[d], sym::Expr(1));
  }
  return out;
}

// `dims` but for the last `kept` by falling strides.
std::vector<int64_t> sorted_dims(std::vector<int64_t> dims, const std::vector<int64_t>& strides,
                                 ptrdiff_t kept) {
  std::sort(dims.begin(), dims.end() - kept, [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  return dims;
}

// torch's own rules sort the last dimension too, which stays where numbers are real (`kept`), or
// have the result row-major, or transform three dimensions at a time, where MKL does all at once.
// Back to real numbers the dimensions in front of the last one are transformed first, as complex
// ones.
template <bool back, ptrdiff_t kept>
void fft(ir::TensorType& t, Args args) {
  const at::Tensor& x = args[0].toTensor();
  if (is_symbolic(x)) return;
  std::vector<int64_t> dims = args[1].toIntVector();
  if (dims.empty()) return;
  for (int64_t& d : dims) d = c10::maybe_wrap_dim(d, x.dim());
  std::vector<int64_t> strides = x.strides().vec();
  if (back && dims.size() > 1) {
    const std::vector<int64_t> front(dims.begin(), dims.end() - 1);
    const std::vector<sym::Expr> sizes(x.sizes().begin(), x.sizes().end());
    const auto between = fft_strides(sizes, strides, sorted_dims(front, strides, 0));
    for (size_t d = 0; d < strides.size(); ++d) strides[d] = between[d].value();
    dims = {dims.back()};
  }
  const auto out =
      fft_strides({t.sizes.begin(), t.sizes.end()}, strides, sorted_dims(dims, strides, kept));
  std::ranges::copy(out, t.strides.begin());
}

// Of a matrix without columns the sum is what is scaled, in its own shape.
void without_products(ir::TensorType& t, Args args) {
  const at::Tensor& sum = args[0].toTensor();
  const c10::Scalar beta = args[3].toScalar();
  if (args[1].toTensor().sym_size(1) != 0 || beta.toComplexDouble() == 0.0) return;
  t.sizes = type_of(sum).sizes;
  row_major(t, args);
}

// An empty batch has no statistics.
void batch_statistics(ir::TensorType& t, Args args) {
  if (args[0].toTensor().sym_numel() != 0) return;
  t.sizes = {sym::Expr(0)};
  row_major(t, args);
}

// ---- embedding_bag: weight, indices, offsets, _, mode, _, weights of samples, whether the last
// offset is the end, the index of padding ----

constexpr int64_t kBagSum = 0, kBagMax = 2;

void resized(ir::TensorType& t, std::vector<c10::SymInt> sizes) {
  t.sizes.clear();
  for (const c10::SymInt& s : sizes) t.sizes.push_back(expr_of(s));
  t.strides = ir::contiguous_strides(t.sizes);
}

c10::SymInt bags(Args args) {
  return args[2].toTensor().sym_size(0) - static_cast<int64_t>(args[7].toBool());
}

// Sums of rows without gaps are taken without the bag of each index.
void bag_of_index(ir::TensorType& t, Args args) {
  const at::Tensor &weight = args[0].toTensor(),
                   scale = args[6].toOptional<at::Tensor>().value_or(at::Tensor());
  const auto dtype = weight.scalar_type();
  const bool fast = (dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16) &&
                    weight.sym_stride(1) == 1 && args[8].toInt() < 0 &&
                    (!scale.defined() || scale.sym_stride(0) == 1);
  const bool none = args[4].toInt() == kBagSum && fast;
  resized(t, {none ? c10::SymInt(0) : args[1].toTensor().sym_size(0)});
}

void bag_sizes(ir::TensorType& t, Args args) { resized(t, {bags(args)}); }

void bag_maxima(ir::TensorType& t, Args args) {
  if (args[4].toInt() == kBagMax)
    resized(t, {bags(args), args[0].toTensor().sym_size(1)});
  else
    resized(t, {bags(args)});
}

// What a kernel says of a result's strides where torch's rules, which are Python code, have their
// own ideas of dimensions of size 1: of new tensors like the first argument, and elementwise.
std::optional<ops::Sizes> strides_by_kernel(const c10::OperatorHandle& op, Args args,
                                            const ops::Sizes& sizes) {
  const auto& formal = op.schema().arguments();
  if (op.schema().name().ends_with("_like") && formal.back().name() == "memory_format") {
    const auto format = args.back().toOptional<at::MemoryFormat>();
    if (format.value_or(at::MemoryFormat::Preserve) != at::MemoryFormat::Preserve) return {};
    return ops::preserved_strides(type_of(args[0].toTensor()));
  }
  if (!op.hasTag(at::Tag::pointwise)) return {};
  std::vector<ir::TensorType> operands;
  bool has_number = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].isTensor() && args[i].toTensor().defined())
      operands.push_back(type_of(args[i].toTensor()));
    has_number |= args[i].isScalar() && (formal[i].name() == "other" || formal[i].name() == "self");
  }
  std::vector<const ir::TensorType*> pointers;
  for (const ir::TensorType& t : operands) pointers.push_back(&t);
  return ops::elementwise_strides(sizes, pointers, has_number);
}

void correct_ones(const c10::OperatorHandle& op, Args args, ir::TensorType& t) {
  const auto is_one = [](const sym::Expr& size) { return size.is_const(1); };
  if (std::ranges::none_of(t.sizes, is_one)) return;
  const auto strides = strides_by_kernel(op, args, t.sizes);
  if (!strides || strides->size() != t.strides.size()) return;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (!is_one(t.sizes[d]) && (*strides)[d] != t.strides[d]) return;
  t.strides = *strides;
}

struct Correction {
  const char* target;
  size_t ret;
  Correct correct;
};

// LAPACK's matrices are column-major.
constexpr Correction kCorrections[] = {
    {"aten._linalg_svd.default", 2, column_major},
    {"aten.linalg_eig.default", 1, column_major},
    {"aten.nonzero_static.default", 0, row_major},
    {"aten.normal.Tensor_Tensor", 0, row_major},
    {"aten.normal.Tensor_float", 0, row_major},
    {"aten.normal.float_Tensor", 0, row_major},
    {"aten.pow.Scalar", 0, row_major},
    {"aten.isin.Tensor_Tensor", 0, row_major},
    {"aten.isin.Tensor_Scalar", 0, row_major},
    {"aten._embedding_bag.default", 1, bag_of_index},
    {"aten._embedding_bag.default", 2, bag_sizes},
    {"aten._embedding_bag.default", 3, bag_maxima},
    {"aten.addmv.default", 0, without_products},
    {"aten.addr.default", 0, like_outer},
    {"aten.any.dims", 0, row_major},
    {"aten.all.dims", 0, row_major},
    {"aten.logical_and.default", 0, like_operands},
    {"aten.logical_or.default", 0, like_operands},
    {"aten.logical_xor.default", 0, like_operands},
    {"aten.convolution.default", 0, convolution},
    {"aten.convolution_backward.default", 0, convolution_input},
    {"aten.convolution_backward.default", 1, convolution_weight},
    {"aten.roll.default", 0, rolled},
    {"aten.rot90.default", 0, rotated},
    {"aten.binary_cross_entropy.default", 0, losses_like<0, 3>},
    {"aten.binary_cross_entropy_with_logits.default", 0, losses_like<1, 4>},
    {"aten.col2im.default", 0, row_major},
    {"aten.grid_sampler_2d.default", 0, row_major},
    {"aten.upsample_bilinear2d.default", 0, image_like_first},
    {"aten.upsample_bicubic2d.default", 0, image_like_first},
    {"aten.max_unpool2d.default", 0, like_first},
    {"aten.reflection_pad2d.default", 0, like_first},
    {"aten.reflection_pad3d.default", 0, like_first},
    {"aten.replication_pad2d.default", 0, like_first},
    {"aten.replication_pad3d.default", 0, like_first},
    {"aten.pixel_shuffle.default", 0, like_first},
    {"aten.pixel_unshuffle.default", 0, unshuffled},
    {"aten.channel_shuffle.default", 0, like_first},
    {"aten.resize_as.default", 0, resize_as},
    {"aten._fft_r2c.default", 0, fft<false, 1>},
    {"aten._fft_c2r.default", 0, fft<true, 1>},
    {"aten._fft_c2c.default", 0, fft<false, 0>},
    {"aten.native_dropout_backward.default", 0, like_product},
    {"aten._native_batch_norm_legit_functional.default", 1, batch_statistics},
    {"aten._native_batch_norm_legit_functional.default", 2, batch_statistics},
};

// Where torch's own rules promote otherwise than its kernels.
std::optional<at::ScalarType> dtype_by_kernel(std::string_view target, Args args) {
  constexpr std::string_view kAsFirst[] = {"aten.huber_loss.default", "aten.normal.Tensor_Tensor",
                                           "aten.soft_margin_loss.default"};
  if (std::ranges::find(kAsFirst, target) != std::end(kAsFirst))
    return args[0].toTensor().scalar_type();
  if (target == "aten.soft_margin_loss_backward.default") return args[1].toTensor().scalar_type();
  if (target == "aten.block_diag.default") return at::native::result_type(args[0].toTensorVector());
  if (target == "aten.ldexp.Tensor") {
    const auto common = at::native::result_type(args[0].toTensor(), args[1].toTensor());
    return c10::isIntegralType(common, true) ? at::get_default_dtype_as_scalartype() : common;
  }
  if (target != "aten.addr.default") return std::nullopt;
  // The matrix is expanded first: whatever its rank, it has a say.
  const auto products = at::native::result_type(args[1].toTensor(), args[2].toTensor());
  return c10::promoteTypes(args[0].toTensor().scalar_type(), products);
}

// Without the symbols that facts have made numbers.
at::Tensor with_facts(const at::Tensor& t) {
  if (!t.defined() || !is_symbolic(t)) return t;
  const ir::TensorType type = type_of(t);
  return is_symbolic(type) ? t : make_fake(type);
}

}  // namespace

void decide_library(Args args, sym::ShapeFacts& facts) {
  constexpr int64_t kMany = 16;
  const ir::TensorType x = type_of(args[1].toTensor()), w = type_of(args[2].toTensor());
  const auto single = [&](size_t d) { return w.sizes[d].is_const(1); };
  if (at::get_num_threads() == 1 && w.dim() == 4 && single(2) && single(3) &&
      !x.sizes[0].is_const())
    facts.decide(sym::at_most(kMany, x.sizes[0]));
}

std::vector<std::string> corrected_ops() {
  std::vector<std::string> out;
  for (const Correction& c : kCorrections) out.emplace_back(c.target);
  return out;
}

void correct_cpu_layouts(const c10::OperatorHandle& op, Args args,
                         std::vector<PredictedReturn>& returns) {
  const std::string target = target_of(op.operator_name());
  // Weights that nobody asks for are not there.
  if (target == "aten._native_multi_head_attention.default" &&
      (!args[10].toBool() || args[0].toTensor().sym_numel() == 0))
    returns[1].tensors[0].defined = false;
  if (const auto dtype = dtype_by_kernel(target, args))
    returns[0].tensors[0].type.dtype = static_cast<ir::DType>(*dtype);
  std::vector<c10::IValue> settled;
  for (const Correction& c : kCorrections) {
    if (target != c.target || c.ret >= returns.size()) continue;
    if (settled.empty())
      for (const c10::IValue& v : args) settled.push_back(map_tensors(v, with_facts));
    for (PredictedTensor& t : returns[c.ret].tensors)
      if (t.defined && t.type.device.is_cpu() && t.type.dim() > 0) c.correct(t.type, settled);
  }
  for (PredictedReturn& r : returns)
    for (PredictedTensor& t : r.tensors)
      if (t.defined && t.alias_of < 0 && t.type.device.is_cpu()) correct_ones(op, args, t.type);
}

}  // namespace oxy::bridge
