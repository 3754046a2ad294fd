// Plain floats that functions of torch take (a slope, an epsilon, a rate), where the number is
// another one at each call: the graph has it as an input, and what records the function's ops is
// given a double that stands for it there (OpRecorder::add_runtime_number).
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>

#include "python/capture/capture.h"
#include "python/inner_frames.h"

namespace oxy::python {
namespace {

// The numbers for which a function does the same; one outside is a constant of the capture. Rate:
// between 0 and 1. NoGradient: where the gradient, which computes with it, is not wanted. Operand:
// beside a tensor that has the result's dtype. Fused: of the fused kernel alone. Norm: of a norm
// for which torch has no code of its own.
enum class Range : uint8_t { All, Positive, Rate, NoGradient, Operand, Fused, Norm };

// Arguments that torch hands on to its ops as they are, and decides nothing by within the range.
struct PlainFloat {
  std::string_view functions;  // also in place
  size_t position;
  std::string_view keyword;
  Range range = Range::All;
};

constexpr size_t kByName = SIZE_MAX;

// Those that torch takes as a Scalar, where an int is one of another dtype.
constexpr PlainFloat kScalars[] = {
    {"leaky_relu", 1, "negative_slope", Range::Positive},
    {"elu", 1, "alpha", Range::Positive},
    {"elu", 3, "input_scale", Range::Positive},
    {"hardshrink softshrink", 1, "lambd", Range::Positive},
    {"softplus", 1, "beta", Range::Positive},
    {"softplus threshold", 2, "threshold"},
    {"threshold", 1, "threshold"},
    {"threshold", 2, "value"},
    {"hardtanh", 1, "min_val"},
    {"hardtanh", 2, "max_val"},
    {"add sub addmm addmv addr addbmm baddbmm", kByName, "alpha"},
    {"addmm addmv addr addbmm baddbmm", kByName, "beta"},
    {"addcmul addcdiv", kByName, "value"},
    {"lerp", 2, "weight", Range::NoGradient},
    {"index_fill scatter", 3, "value"},
    {"fill_diagonal", 1, "fill_value"},
    {"rsub copysign", 1, "other", Range::Operand},
    {"xlogy", 0, "self", Range::Operand},
    {"constant_pad_nd", 2, "value"},
    {"renorm", 3, "maxnorm", Range::Positive},
    {"multi_margin_loss", 3, "margin"},
    {"linspace logspace", 0, "start"},
    {"linspace logspace", 1, "end"},
    {"rrelu_with_noise", 2, "lower"},
    {"rrelu_with_noise", 3, "upper"},
    {"histc", 2, "min"},
    {"histc", 3, "max"},
    {"bucketize", 0, "input"},
    {"searchsorted", 1, "input"},
};

// Those that are floats to it.
constexpr PlainFloat kFloats[] = {
    {"pad", 3, "value"},
    {"nan_to_num", 1, "nan"},
    {"nan_to_num", 2, "posinf"},
    {"nan_to_num", 3, "neginf"},
    {"layer_norm", 4, "eps", Range::Positive},
    {"rms_norm", 3, "eps", Range::Positive},
    {"group_norm", 4, "eps", Range::Positive},
    {"batch_norm instance_norm", 6, "momentum", Range::Rate},
    {"batch_norm instance_norm", 7, "eps", Range::Positive},
    {"scaled_dot_product_attention", kByName, "scale", Range::Fused},
    {"bernoulli", 1, "p", Range::Rate},
    {"uniform", 1, "from"},
    {"uniform", 2, "to"},
    {"normal", 1, "mean"},
    {"normal", 2, "std", Range::Positive},
    {"exponential", 1, "lambd", Range::Positive},
    {"cauchy", 1, "median"},
    {"cauchy", 2, "sigma", Range::Positive},
    {"log_normal", 1, "mean"},
    {"log_normal", 2, "std", Range::Positive},
    {"geometric", 1, "p", Range::Rate},
    {"embedding_renorm", 2, "max_norm", Range::Positive},
    {"embedding_renorm", 3, "norm_type", Range::Positive},
    {"smooth_l1_loss", 3, "beta", Range::Positive},
    {"huber_loss", 3, "delta", Range::Positive},
    {"margin_ranking_loss triplet_margin_loss cosine_embedding_loss", 3, "margin"},
    {"hinge_embedding_loss", 2, "margin"},
    {"poisson_nll_loss", 4, "eps", Range::Positive},
    {"pairwise_distance", 3, "eps", Range::Positive},
    {"logit", 1, "eps", Range::Rate},
    {"cosine_similarity", 3, "eps", Range::Positive},
    {"isclose allclose", 2, "rtol", Range::Positive},
    {"isclose allclose", 3, "atol", Range::Positive},
    {"upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa", 3, "scales_h",
     Range::Positive},
    {"upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa", 4, "scales_w",
     Range::Positive},
    {"cdist", 2, "p", Range::Norm},
    {"pdist", 1, "p", Range::Norm},
};

template <size_t N>
const PlainFloat* row_of(const PlainFloat (&table)[N], std::string_view word, size_t position,
                         std::string_view keyword) {
  const auto* found = std::ranges::find_if(table, [&](const PlainFloat& a) {
    return (keyword.empty() ? a.position == position : a.keyword == keyword) &&
           has_word(a.functions, word);
  });
  return found == std::end(table) ? nullptr : found;
}

// Functions of torch that compute with this argument, and the same as Python code
// (oxyfuel/varying_numbers.py).
struct InPython {
  std::string_view name;
  const char* function;
  size_t position;
  std::string_view keyword;
};
constexpr InPython kInPython[] = {
    {"torch.arange", "arange", 0, "start"},
    {"torch.arange", "arange", 1, "end"},
    {"torch.arange", "arange", 2, "step"},
    {"torch.logspace", "logspace", 3, "base"},
    {"torch.pinverse", "pinv", 1, "rcond"},
    {"torch._C._linalg.linalg_pinv", "pinv", 1, "rcond"},
    {"torch._C._linalg.linalg_pinv", "pinv", kByName, "atol"},
    {"torch._C._linalg.linalg_pinv", "pinv", kByName, "rtol"},
    {"torch._C._linalg.linalg_matrix_rank", "matrix_rank", 1, "tol"},
    {"torch._C._linalg.linalg_matrix_rank", "matrix_rank", kByName, "atol"},
    {"torch._C._linalg.linalg_matrix_rank", "matrix_rank", kByName, "rtol"},
    {"torch.dropout", "dropout", 1, "p"},
    {"torch.dropout_", "dropout_", 1, "p"},
    {"torch.alpha_dropout", "alpha_dropout", 1, "p"},
    {"torch.alpha_dropout_", "alpha_dropout_", 1, "p"},
    {"torch.feature_dropout", "feature_dropout", 1, "p"},
    {"torch.feature_dropout_", "feature_dropout_", 1, "p"},
    {"torch.feature_alpha_dropout", "feature_alpha_dropout", 1, "p"},
    {"torch.feature_alpha_dropout_", "feature_alpha_dropout_", 1, "p"},
    {"torch.celu", "celu", 1, "alpha"},
    {"torch.rrelu", "rrelu", 1, "lower"},
    {"torch.rrelu", "rrelu", 2, "upper"},
    {"torch.clamp_", "clamp_", 1, "min"},
    {"torch.clamp_", "clamp_", 2, "max"},
    {"torch.clip_", "clamp_", 1, "min"},
    {"torch.clip_", "clamp_", 2, "max"},
    {"torch.float_power", "float_power", 0, "self"},
    {"torch.float_power", "float_power", 1, "exponent"},
    {"torch.norm", "norm", 1, "p"},
    {"torch.functional.norm", "norm", 1, "p"},
    {"torch.linalg.vector_norm", "vector_norm", 1, "ord"},
    {"torch._C._linalg.linalg_vector_norm", "vector_norm", 1, "ord"},
    {"torch.dist", "dist", 2, "p"},
    {"torch.pairwise_distance", "pairwise_distance", 2, "p"},
    {"torch.triplet_margin_loss", "triplet_margin_loss", 4, "p"},
    {"torch.triplet_margin_loss", "triplet_margin_loss", 5, "eps"},
    {"torch.renorm", "renorm", 1, "p"},
    {"torch.normal", "normal", 0, "mean"},
    {"torch.normal", "normal", 1, "std"},
    {"torch.var", "var", kByName, "correction"},
    {"torch.std", "std", kByName, "correction"},
    {"torch.quantile", "quantile", 1, "q"},
    {"torch.nanquantile", "nanquantile", 1, "q"},
    {"torch._C._nn.cross_entropy_loss", "cross_entropy_loss", 5, "label_smoothing"},
    {"torch._C._nn.scaled_dot_product_attention", "scaled_dot_product_attention", 4, "dropout_p"},
    {"torch._C._nn.scaled_dot_product_attention", "scaled_dot_product_attention", kByName, "scale"},
    {"torch.nn.functional.interpolate", "interpolate", 2, "scale_factor"},
};

// Functions that take sizes as plain ints, and the same as Python code (oxyfuel/varying_sizes.py).
// `keyword`: of the argument that matters, if not any of them; of `input` the sizes of tensors do,
// and of `tensors` those of any.
struct OfSizes {
  std::string_view name;
  const char* function;
  std::string_view keyword = "";
  size_t position = kByName;
};
constexpr OfSizes kOfSizes[] = {
    {"torch.unfold", "unfold"},
    {"torch.diagonal", "diagonal"},
    {"torch.diag", "diag"},
    {"torch.diag_embed", "diag_embed"},
    {"torch.pixel_shuffle", "pixel_shuffle"},
    {"torch.pixel_unshuffle", "pixel_unshuffle"},
    {"torch.avg_pool1d", "avg_pool1d"},
    {"torch._C._nn.avg_pool2d", "avg_pool2d"},
    {"torch._C._nn.avg_pool3d", "avg_pool3d"},
    {"torch.max_pool1d", "max_pool1d"},
    {"torch.max_pool2d", "max_pool2d"},
    {"torch.max_pool3d", "max_pool3d"},
    {"torch.nn.functional.max_pool1d", "max_pool1d"},
    {"torch.nn.functional.max_pool2d", "max_pool2d"},
    {"torch.nn.functional.max_pool3d", "max_pool3d"},
    {"torch.adaptive_avg_pool1d", "adaptive_avg_pool1d"},
    {"torch.nn.functional.unfold", "blocks"},
    {"torch._C._nn.im2col", "im2col"},
    {"torch.group_norm", "group_norm", "num_groups", 1},
    {"torch.rot90", "rot90", "k", 1},
    {"torch._C._fft.fft_fftfreq", "fftfreq"},
    {"torch._C._fft.fft_rfftfreq", "rfftfreq"},
    {"torch._C._fft.fft_fftshift", "fftshift", "input", 0},
    {"torch._C._fft.fft_ifftshift", "ifftshift", "input", 0},
    {"torch.kaiser_window", "kaiser_window"},
    {"torch._C._nn.pad_sequence", "pad_sequence", "input", 0},
    {"torch.arange", "arange", "step", 2},
    {"torch.logspace", "logspace", "base", 3},
    {"torch.histc", "histc", "bins", 1},
    {"torch.functional.stft", "stft"},
    {"torch.kron", "kron", "tensors"},
    {"torch.functional.block_diag", "block_diag", "tensors"},
    {"torch.take_along_dim", "take_along_dim", "tensors"},
    {"torch._C._linalg.linalg_matrix_rank", "matrix_rank", "input", 0},
    {"torch._C._linalg.linalg_matrix_norm", "matrix_norm", "input", 0},
    {"torch.cov", "cov", "input", 0},
    {"torch.corrcoef", "corrcoef", "input", 0},
};

}  // namespace

static bool is_size(py::handle o) { return is_symbolic_int(o) && has_hint(o); }

static bool is_symbolic_tensor(py::handle o) {
  return THPVariable_Check(o.ptr()) && bridge::is_symbolic(THPVariable_Unpack(o.ptr()));
}

bool Numbers::is_within(const py::object& number, double least, double most) {
  if (is_of_data(number)) {
    const py::object tensor = graph_number(number);
    return assume_truth(objects().compare(tensor, py::float_(least), Py_GT), true) &&
           assume_truth(objects().compare(tensor, py::float_(most), Py_LT), true);
  }
  auto holds = [&](double bound, int operation) {
    const py::object answer = compared(number, py::float_(bound), operation);
    return answer && objects().truth(answer);
  };
  return holds(least, Py_GT) && (std::isinf(most) || holds(most, Py_LT));
}

// Of query, key, value, mask, rate of dropout and whether it is causal: whether torch takes its
// fused kernel.
bool Numbers::is_fused_attention(std::span<const py::object> args) {
  if (args.size() != 6 || !PyFloat_Check(args[4].ptr()) || !PyBool_Check(args[5].ptr()))
    return false;
  auto tensor = [](const py::object& o) { return THPVariable_Unpack(o.ptr()); };
  for (const py::object& a : args.first(3))
    if (!heap().is_tensor(a)) return false;
  std::optional<at::Tensor> mask;
  if (heap().is_tensor(args[3])) mask = tensor(args[3]);
  if (mask && mask->requires_grad()) return false;  // the op, below autograd, does not see that
  const bridge::Recorder::Entered entered(graphs().recorder());
  const int64_t choice =
      at::_fused_sdp_choice(tensor(args[0]), tensor(args[1]), tensor(args[2]), mask,
                            PyFloat_AS_DOUBLE(args[4].ptr()), args[5].ptr() == Py_True);
  return choice == static_cast<int64_t>(sdp::SDPBackend::flash_attention);
}

// The number for this argument of the function, as a tensor that the graph is given; null where it
// has to be read.
py::object Numbers::plain_float(const std::string& target, std::span<const py::object> args,
                                size_t position, std::string_view keyword, py::object o) {
  if (graphs().inner() != nullptr || !have_runtime_numbers()) return {};
  std::string_view word = std::string_view(target).substr(target.rfind('.') + 1);
  if (word.ends_with('_') && !word.ends_with("__")) word.remove_suffix(1);
  const PlainFloat* scalar = row_of(kScalars, word, position, keyword);
  const PlainFloat* argument = scalar ? scalar : row_of(kFloats, word, position, keyword);
  if (argument == nullptr) return {};
  if (!scalar && o && is_symbolic_int(o) && has_hint(o))
    o = combined(type_object(&PyFloat_Type), {o});
  if (!o || !is_symbolic_float(o) || !is_runtime_number(o) ||
      !std::isnormal(PyFloat_AS_DOUBLE(real_of(o).ptr())))
    return {};
  const auto met = met_dtype(args);
  const bool floating = met && at::isFloatingType(met->fits);
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  bool fits = true;
  switch (argument->range) {
    case Range::All:
      break;
    case Range::Positive:
    case Range::Rate:
      fits = is_within(o, 0, argument->range == Range::Rate ? 1 : kNoBound);
      break;
    case Range::NoGradient:
      fits = !at::GradMode::is_enabled() || std::ranges::none_of(args, [this](const py::object& a) {
        return heap().is_tensor(a) && THPVariable_Unpack(a.ptr()).requires_grad();
      });
      break;
    case Range::Operand:
      fits = floating && !met->same;
      break;
    case Range::Norm:
      fits = !is_of_data(o) && is_within(o, 0, kNoBound);
      for (const double own : {1.0, 2.0})
        fits = fits && objects().truth(compare(o, py::float_(own), Py_NE));
      break;
    case Range::Fused:
      fits = is_fused_attention(args) && is_within(o, 0, kNoBound);
      break;
  }
  if (!fits) return {};
  // What eager refuses to convert to the tensor's dtype is a constant.
  NumberDtype dtype{scalar ? at::get_default_dtype_as_scalartype() : at::kDouble, false};
  if (scalar && floating) dtype.fits = met->fits;
  if (!number_as_tensor(real_of(o), dtype)) return {};
  return number_input(o, dtype, true);
}

// A call in which torch computes with numbers, where they vary.
Done Numbers::call_in_python(std::string_view name, const Arguments& args, const Keywords& kwargs) {
  auto varies = [&](const InPython& row) {
    if (row.name != name) return false;
    py::object o = row.position < args.size() ? args[row.position] : py::object();
    for (const auto& [key, value] : kwargs)
      if (text(key) == row.keyword) o = value;
    if (!o || is_symbolic_float(o)) return static_cast<bool>(o);
    // torch divides it by the number of classes.
    if (row.name.ends_with("cross_entropy_loss") && PyFloat_Check(o.ptr()) && !args.empty() &&
        heap().is_tensor(args[0])) {
      const at::Tensor& scores = THPVariable_Unpack(args[0].ptr());
      const double smoothing = PyFloat_AS_DOUBLE(o.ptr());
      return 0 < smoothing && smoothing <= 1 && scores.dim() > 0 &&
             scores.sym_size(scores.dim() == 1 ? 0 : 1).is_symbolic();
    }
    if (!row.name.ends_with("interpolate")) return false;
    return mentions(o, [](py::handle f) { return is_symbolic_float(f) || is_size(f); }, false);
  };
  auto of_sizes = [&](const OfSizes& row) {
    if (row.name != name) return false;
    auto matters = [&](size_t position, std::string_view keyword, const py::object& o) {
      const bool of_all = row.keyword == "tensors";
      if (!row.keyword.empty() && !of_all && row.position != position && row.keyword != keyword)
        return false;
      return of_all || row.keyword == "input"
                 ? mentions(heap().deep_contents(o), is_symbolic_tensor, false)
                 : !heap().is_tensor(o) && mentions(o, is_size, false);
    };
    for (size_t i = 0; i < args.size(); i++)
      if (matters(i, "", args[i])) return true;
    return std::ranges::any_of(kwargs, [&](const auto& item) {
      return matters(SIZE_MAX - 1, text(item.first), item.second);
    });
  };
  constexpr std::string_view kForEach = "torch._foreach_";
  auto has_float = [](py::handle o) { return mentions(o, is_symbolic_float, false); };
  if (name.starts_with(kForEach) && any_argument(args, kwargs, has_float)) {
    Arguments all = args;
    all.insert(all.begin(), py::str(std::string(name.substr(kForEach.size()))));
    return calls().call(own_function("oxyfuel.varying_numbers", "for_each"), all, kwargs);
  }
  const char *module = nullptr, *word = nullptr;
  if (const auto* row = std::ranges::find_if(kInPython, varies); row != std::end(kInPython))
    module = "oxyfuel.varying_numbers", word = row->function;
  else if (const auto* sized = std::ranges::find_if(kOfSizes, of_sizes);
           sized != std::end(kOfSizes))
    module = "oxyfuel.varying_sizes", word = sized->function;
  if (word == nullptr) return std::nullopt;
  const py::object function = own_function(module, word);
  const py::object code = function.attr("__code__");
  const auto parameters =
      code.attr("co_argcount").cast<ssize_t>() + code.attr("co_kwonlyargcount").cast<ssize_t>();
  const py::object names = py::tuple(code.attr("co_varnames"))[py::slice(0, parameters, 1)];
  const bool takes_all =
      std::ranges::all_of(kwargs, [&](const auto& item) { return names.contains(item.first); });
  if (!takes_all) return std::nullopt;
  return calls().call(function, args, kwargs);
}

}  // namespace oxy::python
