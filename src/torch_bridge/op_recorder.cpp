// Facts from the schema of an op, the calls of it that no graph can have, and its node.
#include "torch_bridge/op_recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "ops/args.h"
#include "ops/shapes.h"
#include "torch_bridge/compat.h"
#include "torch_bridge/eager_refusals.h"
#include "torch_bridge/exact_views.h"
#include "torch_bridge/probed_shapes.h"
#include "torch_bridge/recorder.h"

namespace oxy::bridge {
namespace {

thread_local Heard so_far;

// ---- facts and refusals

bool is_tensor_list(const c10::TypePtr& t) {
  return t->kind() == c10::TypeKind::ListType &&
         t->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
}

OpFacts facts_of(const c10::OperatorHandle& op) {
  OpFacts f;
  const auto& schema = op.schema();
  f.target = target_of(op.operator_name());
  f.info = ops::find(f.target);
  for (const auto& a : schema.arguments()) {
    f.args.push_back(kind_of(a.real_type()));
    f.mutates |= a.alias_info() && a.alias_info()->isWrite();
  }
  if (f.mutates) f.written = written_arguments(schema);
  f.view = f.has(ops::View);
  for (const auto& r : schema.returns()) {
    f.view |= r.alias_info() && !r.alias_info()->isWrite();
    f.only_tensor_returns &=
        r.type()->kind() == c10::TypeKind::TensorType || is_tensor_list(r.type());
  }
  f.data_dependent = op.hasTag(at::Tag::data_dependent_output) || f.has(ops::DataDependent);
  f.dynamic_shape = op.hasTag(at::Tag::dynamic_output_shape);
  return f;
}

using ops::kReadNumber;

// The number in a tensor of one element that is computed of numbers alone.
std::optional<double> constant_in(const Recording& r, const at::Tensor& t) {
  const ir::ValueId* v = r.find(t.unsafeGetTensorImpl());
  const auto program =
      v ? scalar_program(r.graph, *v, [](ir::ValueId) { return std::nullopt; }) : std::nullopt;
  if (!program || program->input) return std::nullopt;
  return evaluate(program->steps, 0);
}

// aten::equal of such (is_scalar_tensor_true, which torch.cov asks).
bool compare_constants(const Recording& r, torch::jit::Stack& s) {
  const at::Tensor a = s[s.size() - 2].toTensor(), b = s.back().toTensor();
  const auto x = constant_in(r, a), y = constant_in(r, b);
  if (!x || !y || a.dim() != b.dim()) return false;
  torch::jit::drop(s, 2);
  s.emplace_back(*x == *y);
  return true;
}

constexpr std::string_view kSparseOf = "aten._sparse_coo_tensor_with_dims_and_tensors.default";

// Unsupported for an op that no graph can have.
void refuse(const OpFacts& f) {
  if (f.data_dependent)
    throw DataDependent(cat(f.target, ": its result depends on data (data-dependent)"),
                        f.target == kReadNumber);
  if (f.mutates && f.written.empty())
    throw Unsupported(cat(f.target, ": mutation that functionalisation does not know"));
}

// Of a tensor whose elements are one in memory, which no write passes: eager calls the functional
// op itself, which draws row by row.
bool is_asked_for_values(const at::Tensor& t) { return type_of(t).may_overlap_itself(); }

// Unsupported where eager draws in the order in which the `written` tensor lies in memory, and that
// is not the order of the functional op's dense result.
void check_drawing_order(const OpFacts& f, const c10::IValue& written) {
  constexpr std::string_view kWrites[] = {"bernoulli", "cauchy",     "exponential",
                                          "geometric", "log_normal", "normal_functional",
                                          "random",    "uniform"};
  const std::string_view name = std::string_view(f.target).substr(5);
  const bool writes =
      std::ranges::find(kWrites, name.substr(0, name.find('.'))) != std::end(kWrites);
  if (!writes || !written.isTensor()) return;
  const at::Tensor& t = written.toTensor();
  if (is_asked_for_values(t)) return;
  if (!t.is_non_overlapping_and_dense())
    throw Unsupported(cat(f.target, ": random numbers for a tensor with gaps"));
  // Its result is row-major, whatever the tensor is; `bernoulli.p` is drawn in order.
  if (name == "bernoulli.Tensor" && !t.is_contiguous())
    throw Unsupported(cat(f.target, ": random numbers for a tensor that is not row-major"));
}

// Whether eager draws in the order in which a dense tensor lies in memory: MKL's generator, which
// ATen takes on some processors, draws in the order of its indices.
bool draws_in_memory_order() {
  static const bool answer = [] {
    const c10::impl::ExcludeDispatchKeyGuard below(kAboveBackend);
    auto drawn = [](const at::Tensor& t) {
      return t.bernoulli_(0.5, at::make_generator<at::CPUGeneratorImpl>(1));
    };
    const at::Tensor by_index = drawn(at::empty({8, 9}, at::kFloat));
    return !at::equal(by_index, drawn(at::empty({9, 8}, at::kFloat).t()));
  }();
  return answer;
}

// Unsupported for an input that the kernel refuses.
void check_group_norm(const OpFacts& f, const at::Tensor& input) {
  if (kGroupNormIsContiguous && !is_symbolic(input) &&
      !input.is_contiguous(input.suggest_memory_format()))
    throw Unsupported(cat(f.target, ": a tensor that is not contiguous"));
}

// No tensor has a negative size or stride: eager raises where ours would be one, also of a result
// that nobody reads.
void require_sizes(const OpFacts& f, const std::vector<PredictedReturn>& results,
                   sym::ShapeFacts* facts) {
  const bool given_strides = f.target.find("strided") != std::string::npos;
  auto require = [&](const std::vector<sym::Expr>& numbers) {
    for (const sym::Expr e : numbers)
      if (e.is_const() ? e.value() < 0 : facts && !facts->decide(sym::at_most(0, e), true))
        throw Unsupported(cat(f.target, " of a negative size or stride"));
  };
  for (const PredictedReturn& r : results)
    for (const PredictedTensor& t : r.tensors) {
      require(t.type.sizes);
      if (given_strides) require(t.type.strides);
    }
}

// Unsupported for an observer of channels that has seen nothing: its state gets another shape.
void check_observer(const OpFacts& f, const torch::jit::Stack& s, size_t base) {
  constexpr size_t kMinimum = 3, kByChannel = 11;
  if (f.target == "aten._fused_moving_avg_obs_fq_helper_functional.default" &&
      s[base + kByChannel].toBool() && s[base + kMinimum].toTensor().sym_numel() == 0)
    throw Unsupported(cat(f.target, ": the first call of an observer"));
}

// "operator.iadd", "Tensor.__iadd__"
bool is_augmented_assignment(std::string_view function) {
  std::string_view word = function.substr(function.rfind('.') + 1);
  if (word.starts_with("__") && word.ends_with("__")) word = word.substr(2, word.size() - 4);
  constexpr std::string_view kWords[] = {"iadd",      "isub",    "imul",   "imatmul", "itruediv",
                                         "ifloordiv", "imod",    "ipow",   "iand",    "ior",
                                         "ixor",      "ilshift", "irshift"};
  return std::ranges::find(kWords, word) != std::end(kWords);
}

bool is_defined(const c10::IValue& v) { return v.isTensor() && v.toTensor().defined(); }

// Whether the call at `base` updates running statistics, without saying so in its schema.
bool writes_running_statistics(const OpFacts& f, const torch::jit::Stack& s, size_t base) {
  return f.target == "aten.native_batch_norm.default" && s[base + 5].toBool() &&
         is_defined(s[base + 3]);
}

// Whether the gradient by the first argument may be a sparse tensor.
bool has_sparse_gradient(const OpFacts& f, const torch::jit::Stack& s, size_t base) {
  if (f.target == "aten.embedding.default") return s[base + 4].toBool();
  if (f.target == "aten._embedding_bag.default") return s[base + 5].toBool();
  return f.target == "aten.gather.default" && s[base + 3].toBool();
}

// What stands for an op's sparse result: a tensor of its size that lies in rows. Nothing for an op
// that gives none.
std::optional<std::vector<PredictedReturn>> stand_in_of_sparse(const OpFacts& f,
                                                               const ops::Args& args) {
  ir::TensorType type;
  if (f.target == kSparseOf) {
    OXY_CHECK(args.exprs(2, type.sizes), "the size of a sparse tensor");
    type.dtype = args.tensor(4)->dtype;
  } else if (f.target == "aten._embedding_bag_backward.default" && args.boolean(9) == true) {
    type.sizes = {args.expr(6).value(), args.tensor(0)->sizes.back()};
    type.dtype = args.tensor(0)->dtype;
  } else {
    return std::nullopt;
  }
  type.strides = ir::contiguous_strides(type.sizes);
  return {{{.is_list = false, .is_tensor = true, .tensors = {{true, type, -1}}, .data = {}}}};
}

ir::Type type_of_data(const c10::IValue& v) {
  if (v.isInt()) return ir::Type::integer(v.toInt());
  if (v.isDouble()) return ir::Type{ir::Type::Kind::Float, {}, 0};
  if (v.isBool()) return ir::Type{ir::Type::Kind::Bool, {}, 0};
  return ir::Type::none();
}

}  // namespace

Heard heard() { return so_far; }

// ---- ops

void OpRecorder::on_op(const c10::OperatorHandle& op, torch::jit::Stack& s) {
  auto keep = [this] {
    if (!r_.failure) r_.failure = std::current_exception();
  };
  // Whose questions about sizes these are.
  struct Asking {
    sym::ShapeFacts* facts;
    ~Asking() {
      if (facts) facts->set_op("");
    }
  } asking{facts_of_sizes()};
  if (asking.facts) asking.facts->set_op(target_of(op.operator_name()));
  try {
    record(op, s);
  } catch (const Unsupported&) {
    keep();
    throw;
  } catch (const InternalError&) {
    keep();
    throw;
  }
}

void OpRecorder::on_copy(const c10::TensorImpl& original,
                         const c10::intrusive_ptr<c10::TensorImpl>& copy) {
  if (const ir::ValueId* v = r_.find(&original)) r_.bind(at::Tensor(copy), *v);
}

void OpRecorder::record(const c10::OperatorHandle& op, torch::jit::Stack& s) {
  grad_mode_seen_ |= c10::GradMode::is_enabled();
  r_.simplify_sizes();
  auto known = facts_.find(op.operator_name());
  if (known == facts_.end()) known = facts_.emplace(op.operator_name(), facts_of(op)).first;
  const OpFacts& f = known->second;
  const size_t n = f.args.size(), base = s.size() - n;
  const bool random = f.has(ops::Random);
  so_far.ops++;
  so_far.draws += random;
  if (f.target == "aten.lift_fresh.default") return lift(s);
  if (f.target == "aten._efficientzerotensor.default") return make_zero(s);
  if (f.target == "aten.mul.Scalar" && s[base].toTensor()._is_zerotensor()) return scale_zero(s);
  if (f.target == "aten.mul.Scalar" && scale_by_quotient(s)) return;
  if (f.target == "aten.add.Tensor" && !r_.sparse.empty() && add_sparse(s)) return;
  if (f.has(ops::MetadataOnly)) return run_on_metadata(op, s);
  if (f.target == "aten._to_copy.default") check_conversion(s, base);
  if (f.target == "aten.native_group_norm.default") check_group_norm(f, s[base].toTensor());
  check_observer(f, s, base);
  if (f.target == kReadNumber && read_number(s)) return;
  if (f.target == "aten.equal.default" && compare_constants(r_, s)) return;
  if (index_by_counted_mask(op, f, s, base)) return;
  const OfDataOp of_data = of_data_op(f, s, base);
  if (of_data == OfDataOp::Number) return read_symbol(s);
  if (of_data == OfDataOp::Masks) return index_by_masks(op, s, base);
  if (of_data == OfDataOp::None) refuse(f);
  if (f.target.starts_with("aten.as_strided")) {
    const c10::StorageImpl* memory = storage_of(s[base].toTensor());
    if (r_.rebuilt.contains(memory))
      throw Unsupported(cat(f.target, ": of an input that was written and has gaps or an offset"));
    r_.strided.insert(memory);
    const c10::IValue& offset = s.back();
    if (offset.isInt() && offset.toInt() < 0)
      throw Unsupported(cat(f.target, " in front of memory"));
    r_.names_places |= !offset.isNone();
  }
  const bool conj = f.target == "aten._conj.default";
  if (conj || f.target == "aten._neg_view.default") {
    const at::Tensor t = s.back().toTensor();
    if (t.unsafeGetTensorImpl()->is_wrapped_number() && !r_.find(t.unsafeGetTensorImpl())) {
      s.back() = conj ? t.conj().resolve_conj() : t.neg();  // a tensor, as in eager
      return lift(s);
    }
    LazyMarks marks = marks_of(t);
    (conj ? marks.conj : marks.neg) ^= true;
    s.back() = r_.marked(t, marks);
    return;
  }
  if (r_.may_need_gradients() && has_sparse_gradient(f, s, base)) {
    if (f.target == "aten.embedding.default" && s[base + 2].toInt() != -1)
      throw Unsupported(cat(f.target, " with a sparse gradient whose size depends on data"));
    so_far.sparse++;
  }
  if (!f.view) resolve_marks(s, base);
  if (random) check_drawing_order(f, s[base]);
  if (f.target == "aten.bernoulli.p" && is_inside_write() && !s[base].toTensor().is_contiguous() &&
      draws_in_memory_order())
    return draw_in_order(op, s, base);
  if (writes_running_statistics(f, s, base)) return batch_norm_in_training(s, base);

  std::vector<ir::Arg> args;
  args.reserve(n);
  std::vector<at::Tensor> tensors;  // the tensor arguments, lists flattened
  auto tensor_arg = [&](const at::Tensor& t) {
    tensors.push_back(t);
    const ir::Arg arg = r_.arg_of(t);
    if (arg.is_value() && r_.sparse.contains(arg.value()))
      throw Unsupported(cat(f.target, " of a sparse gradient"));
    return arg;
  };
  for (size_t i = 0; i < n; ++i) args.push_back(to_arg(s[base + i], f.args[i], tensor_arg));
  while (!args.empty() && args.back().is_none()) args.pop_back();
  place_numbers(f, args, tensors);
  check_numbers(f, args);
  const c10::ArrayRef<c10::IValue> given(s.data() + base, s.size() - base);
  auto sparse =
      r_.graph.stage == ir::Stage::Joint ? stand_in_of_sparse(f, {r_.graph, args}) : std::nullopt;
  auto predicted = of_data == OfDataOp::Sizes ? std::optional(predict_by_data(f, given))
                   : sparse                   ? sparse
                                              : by_rule(f, op.schema(), args, tensors);
  if (!predicted) predicted = complex_by_rule(f, args, tensors);
  // Loops would take a guess for the truth; a call is compared with it. Complex numbers have none.
  // Where a decomposition's rule knows the sizes, the guess is of the layout alone.
  const bool of_complex =
      std::ranges::any_of(tensors, [](const at::Tensor& t) { return t.is_complex(); });
  const bool is_loop =
      f.info && !of_complex && (f.info->element || f.info->reduction || f.info->scatter);
  if (!predicted && r_.shapes && f.target == "aten.convolution_backward.default")
    decide_library(given, *r_.shapes->facts());
  if (!predicted && shape_rules_ && r_.shapes && !f.dynamic_shape && !f.has(ops::View) &&
      !is_loop) {
    const std::vector<sym::Expr> sizes = sizes_by_rule(f, args);
    if (!f.info || of_complex || !f.info->decomposition || !sizes.empty())
      predicted = predict_by_probes({op, given, {}}, sizes, *r_.shapes->facts());
  }
  if (!predicted) predicted = predict_by_torch(op, f, given);
  require_sizes(f, *predicted, facts_of_sizes());
  if (f.only_tensor_returns && !predicted->empty() && !predicted->front().tensors.empty())
    refuse_as_eager(f.target, given, predicted->front().tensors[0].type, facts_of_sizes());
  if (f.target == "aten.mkldnn_rnn_layer.default" && r_.may_need_gradients())
    add_workspace(op, given, *predicted);
  if (c10::get_default_dtype() != caffe2::TypeMeta::Make<float>() &&
      !set_default_dtype(f, op.schema(), args, tensors, *predicted)) {
    for (size_t i = base; i < s.size(); ++i)
      if (is_defined(s[i]) && !s[i].toTensor().unsafeGetTensorImpl()->is_wrapped_number())
        s[i] = as_default_dtype(s[i].toTensor());
    return record(op, s);
  }
  finish(f, s, base, std::move(args), std::move(*predicted), tensors);
  if (!sparse) return;
  auto& parts = r_.sparse[r_.value_of(s.back().toTensor())];
  if (f.target == kSparseOf) parts = {tensors[0], tensors[1]};
}

// Our rules take the default dtype for float32. It is that of the result where no operand but a
// number is of floats: a new tensor is told it, operands of element-wise ops are to be of it first
// (false), and what else computes with integers is left to eager.
bool OpRecorder::set_default_dtype(const OpFacts& f, const c10::FunctionSchema& schema,
                                   std::vector<ir::Arg>& args,
                                   const std::vector<at::Tensor>& tensors, Predicted& predicted) {
  const auto is_number = [](const at::Tensor& t) {
    return !t.defined() || t.unsafeGetTensorImpl()->is_wrapped_number();
  };
  const auto decides = [&](const at::Tensor& t) {
    return !is_number(t) && (t.is_floating_point() || t.is_complex());
  };
  if (!f.info || std::ranges::any_of(tensors, decides)) return true;
  const auto place = schema.argumentIndexWithName("dtype");
  const auto at = static_cast<size_t>(place.value_or(0));
  if (place && at < args.size() && !args[at].is_none()) return true;
  for (PredictedReturn& r : predicted) {
    for (auto& result : r.tensors) {
      const ir::DType d = result.type.dtype;
      if (!ir::is_floating(d) && !ir::is_complex(d)) continue;
      if (f.info->element && !f.target.starts_with("aten.where") &&
          !std::ranges::all_of(tensors, is_number))
        return false;
      if (!place || !tensors.empty() || ir::is_complex(d))
        throw Unsupported(cat(f.target, " of no floats while the default dtype is not float32"));
      result.type.dtype = static_cast<ir::DType>(c10::get_default_dtype_as_scalartype());
      args.resize(std::max(args.size(), at + 1));
      args[at] = result.type.dtype;
    }
  }
  return true;
}

at::Tensor OpRecorder::as_default_dtype(const at::Tensor& t) {
  const c10::IValue none;
  torch::jit::Stack s{t, c10::get_default_dtype_as_scalartype(), none, none, none, false, none};
  record(c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", ""), s);
  return s.back().toTensor();
}

// What our shape rule says, if it knows.
std::optional<OpRecorder::Predicted> OpRecorder::by_rule(const OpFacts& f,
                                                         const c10::FunctionSchema& schema,
                                                         std::span<const ir::Arg> args,
                                                         const std::vector<at::Tensor>& tensors) {
  if (!shape_rules_ || !f.info || !f.info->shape || !f.only_tensor_returns) return std::nullopt;
  std::optional<sym::DecideByHints> deciding;
  if (r_.shapes) deciding.emplace(*r_.shapes->facts());
  ops::Types types;
  if (!f.info->shape(ops::Args(r_.graph, args), types)) return std::nullopt;
  const bool view = f.has(ops::View) && !tensors.empty() && tensors[0].defined();
  const auto& returns = schema.returns();
  Predicted out;
  size_t next = 0;
  for (size_t r = 0; r < returns.size(); ++r) {
    size_t length = 1;
    const bool is_list = is_tensor_list(returns[r].type());
    if (is_list) {
      OXY_CHECK(types.size() + 1 >= next + returns.size() - r, f.target);
      length = types.size() - next - (returns.size() - r - 1);
    }
    PredictedReturn& p = out.emplace_back(PredictedReturn{is_list, true, {}, {}});
    for (size_t i = 0; i < length; ++i) {
      ir::Type& type = types[next++];
      if (r_.shapes) r_.shapes->simplify(type.tensor);
      p.tensors.push_back({type.is_tensor(), std::move(type.tensor), view ? 0 : -1});
    }
  }
  OXY_CHECK(next == types.size(), "the shape rule of ", f.target,
            " gives another number of results");
  return out;
}

// What the shape rule says of an op as if its complex numbers were reals. Torch's kernels that tell
// it are in Python, and take longer to import than a capture.
std::optional<OpRecorder::Predicted> OpRecorder::complex_by_rule(
    const OpFacts& f, std::span<const ir::Arg> args, const std::vector<at::Tensor>& tensors) {
  static const std::unordered_set<std::string_view> known = {
      "abs",        "add",     "angle", "cat",  "cos",  "cosh",   "cumprod",  "cumsum",
      "div",        "eq",      "exp",   "log",  "log2", "mean",   "isfinite", "linalg_vector_norm",
      "log10",      "isnan",   "mul",   "ne",   "neg",  "pow",    "prod",     "rsqrt",
      "reciprocal", "sigmoid", "sin",   "sinh", "sqrt", "square", "sub",      "sum",
      "tan",        "tanh",    "where",
  };
  static const std::unordered_map<std::string_view, std::string_view> alike = {
      {"complex", "aten.mul.Tensor"},
      {"conj_physical", "aten.neg.default"},
      {"polar", "aten.mul.Tensor"}};
  if (!shape_rules_ || !f.target.starts_with("aten.")) return std::nullopt;
  std::string_view word = std::string_view(f.target).substr(std::string_view("aten.").size());
  word = word.substr(0, word.find('.'));
  const auto other = alike.find(word);
  const ops::OpInfo* info = other != alike.end()   ? ops::find(other->second)
                            : known.contains(word) ? f.info
                                                   : nullptr;
  if (!info || !info->shape) return std::nullopt;
  at::native::ResultTypeState state = {};
  for (const at::Tensor& t : tensors)
    if (word != "where" || t.scalar_type() != at::kBool)
      state = at::native::update_result_type_state(t, state);
  at::ScalarType common = at::native::result_type(state);
  if (word == "complex" || word == "polar") {
    const auto is_real = [&](const at::Tensor& t) { return t.scalar_type() == common; };
    if (!c10::isFloatingType(common) || !std::ranges::all_of(tensors, is_real)) return std::nullopt;
    common = c10::toComplexType(common);
  }
  if (common != at::kComplexFloat && common != at::kComplexDouble) return std::nullopt;
  ir::Graph plain(r_.graph.stage, r_.graph.pool);
  bool laid_out = true;
  const auto of_reals = [&](ir::ValueId v) {
    ir::Type type = r_.graph.value(v).type;
    if (!type.is_tensor()) return plain.add_input("", std::move(type));
    ir::TensorType& t = type.tensor;
    // Operands of another dtype are converted first, to a tensor without gaps.
    if (t.dtype != static_cast<ir::DType>(common)) {
      auto converted = ops::empty_like(t);
      laid_out &= converted.has_value();
      if (converted) t = std::move(*converted);
    }
    if (t.dtype == ir::DType::C64) t.dtype = ir::DType::F32;
    if (t.dtype == ir::DType::C128) t.dtype = ir::DType::F64;
    return plain.add_input("", std::move(type));
  };
  std::vector<ir::Arg> given;
  for (const ir::Arg& a : args)
    given.push_back(a.get_if<std::complex<double>>() ? ir::Arg(1.0) : ir::map_values(a, of_reals));
  std::optional<sym::DecideByHints> deciding;
  if (r_.shapes) deciding.emplace(*r_.shapes->facts());
  ops::Types types;
  if (!info->shape(ops::Args(plain, given), types) || !laid_out || types.size() != 1)
    return std::nullopt;
  ir::TensorType& type = types[0].tensor;
  const bool real = word == "abs" || word == "angle" || word == "linalg_vector_norm";
  if (type.dtype != ir::DType::B8)
    type.dtype = static_cast<ir::DType>(real ? c10::toRealValueType(common) : common);
  if (r_.shapes) r_.shapes->simplify(type);
  return Predicted{{false, true, {{true, std::move(type), -1}}, {}}};
}

// The sizes of the results if every tensor were row-major: of an op whose rule leaves other layouts
// to torch.
std::vector<sym::Expr> OpRecorder::sizes_by_rule(const OpFacts& f, std::span<const ir::Arg> args) {
  if (!f.info || !f.info->shape) return {};
  const sym::DecideByHints deciding(*r_.shapes->facts());
  ir::Graph plain(r_.graph.stage, r_.graph.pool);
  auto row_major = [&](ir::ValueId v) {
    ir::Type type = r_.graph.value(v).type;
    if (type.is_tensor()) type.tensor.strides = ir::contiguous_strides(type.tensor.sizes);
    return plain.add_input("", std::move(type));
  };
  std::vector<ir::Arg> of_plain;
  for (const ir::Arg& a : args) of_plain.push_back(ir::map_values(a, row_major));
  ops::Types types;
  std::vector<sym::Expr> out;
  if (f.info->shape(ops::Args(plain, of_plain).for_sizes(), types)) {
    for (const ir::Type& t : types)
      out.insert(out.end(), t.tensor.sizes.begin(), t.tensor.sizes.end());
  }
  return out;
}

// The node, and what the caller gets.
void OpRecorder::finish(const OpFacts& f, torch::jit::Stack& s, size_t base,
                        std::vector<ir::Arg> args, Predicted predicted,
                        const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> written;
  for (size_t i : f.written)
    for_each_tensor(s[base + i], [&](const at::Tensor& t) { written.push_back(t); });
  if (predicted.empty() && written.empty() && !f.has(ops::Effect))
    throw Unsupported(cat(f.target, ": an op that gives nothing back"));
  s.resize(base);
  std::vector<ir::Type> types;
  std::vector<int32_t> lengths;
  bool any_list = !written.empty(), any_tensor = predicted.empty() || !written.empty();
  for (const PredictedReturn& r : predicted) {
    any_list |= r.is_list;
    any_tensor |= r.is_tensor;
    lengths.push_back(r.is_list ? static_cast<int32_t>(r.tensors.size()) : -1);
    for (const PredictedTensor& t : r.tensors)
      types.push_back(t.defined ? ir::Type::of(t.type) : ir::Type::none());
    if (!r.is_tensor) types.push_back(type_of_data(r.data));
  }
  if (!any_tensor) {  // it told something about metadata, which is constant
    for (PredictedReturn& r : predicted) s.push_back(std::move(r.data));
    return;
  }
  for (const at::Tensor& t : written) {
    ir::Type& type = types.emplace_back(r_.graph.value(r_.value_of(t)).type);
    type.tensor.offset = 0;
    type.tensor.requires_grad = false;
    lengths.push_back(-1);
  }
  ir::Node& node = r_.add_call(ir::NodeKind::CallOp, f.target, std::move(args), std::move(types));
  if (any_list) node.returns = std::move(lengths);
  size_t next = 0;
  for (PredictedReturn& r : predicted) {
    std::vector<at::Tensor> list;
    for (const PredictedTensor& t : r.tensors)
      list.push_back(result(t, node.outputs[next++], tensors));
    if (!r.is_tensor)
      ++next, s.push_back(std::move(r.data));
    else if (r.is_list)
      s.emplace_back(std::move(list));
    else
      s.emplace_back(std::move(list[0]));
  }
  // From here on the written fakes stand for what the op left in them.
  for (const at::Tensor& t : written) r_.bind(t, node.outputs[next++]);
}

at::Tensor OpRecorder::result(const PredictedTensor& t, ir::ValueId v,
                              const std::vector<at::Tensor>& tensors) {
  if (!t.defined) return {};
  const at::Tensor* base = t.alias_of < 0 ? nullptr : &tensors[static_cast<size_t>(t.alias_of)];
  at::Tensor fake = r_.new_fake(t.type, base ? &base->storage() : nullptr);
  r_.bind(fake, v);
  if (base && base->_is_zerotensor()) return r_.marked_as_zero(fake);
  // A view has the marks of what it is a view of; torch refuses most views as another dtype.
  const LazyMarks marks = base ? marks_of(*base) : LazyMarks{};
  if (!marks.any()) return fake;
  if (fake.scalar_type() != base->scalar_type())
    throw Unsupported("a view of another dtype of a lazily conjugated or negated tensor");
  set_marks(fake, marks);
  return fake;
}

// ---- lazy views

at::Tensor OpRecorder::with_marks(at::Tensor t, LazyMarks wanted) {
  const LazyMarks has = marks_of(t);
  if (has == wanted) return t;
  if (has.conj != wanted.conj) t = computed("aten::conj_physical", t);
  if (has.neg != wanted.neg) t = computed("aten::neg", t);
  return wanted.any() ? r_.marked(t, wanted) : t;
}

// What the op makes of the memory behind a fake, whatever its marks.
at::Tensor OpRecorder::computed(const char* name, const at::Tensor& t) {
  torch::jit::Stack s{r_.marked(t, {})};
  record(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), s);
  return s.back().toTensor();
}

// Ops that are no views read what the marks mean.
void OpRecorder::resolve_marks(torch::jit::Stack& s, size_t base) {
  auto is_marked = [](const at::Tensor& t) { return marks_of(t).any(); };
  for (size_t i = base; i < s.size(); ++i) {
    if (s[i].isTensor() && is_marked(s[i].toTensor())) {
      s[i] = with_marks(s[i].toTensor(), {});
    } else if (s[i].isTensorList()) {
      std::vector<at::Tensor> list = s[i].toTensorVector();
      if (std::ranges::none_of(list, is_marked)) continue;
      for (at::Tensor& t : list) t = with_marks(t, {});
      s[i] = std::move(list);
    }
  }
}

// ---- numbers

// The number in a tensor that is one.
bool OpRecorder::read_number(torch::jit::Stack& s) const {
  if (const auto number = constant_in(r_, s.back().toTensor())) {
    const c10::ScalarType dtype = s.back().toTensor().scalar_type();
    s.back() = dtype == at::kBool                 ? c10::Scalar(*number != 0)
               : at::isIntegralType(dtype, false) ? c10::Scalar(static_cast<int64_t>(*number))
                                                  : c10::Scalar(*number);
    return true;
  }
  const ir::ValueId* v = r_.find(s.back().toTensor().unsafeGetTensorImpl());
  if (!v) return false;
  if (!runtime_numbers_.contains(v->index)) return false;
  std::optional<double> stand_in;
  for (const auto& [bits, value] : stand_ins_)
    if (value == *v) stand_in = std::bit_cast<double>(bits);
  s.back() = runtime_number(*v, !ir::is_floating(r_.graph.tensor_type(*v).dtype), stand_in);
  return true;
}

// Its sign and magnitude are those of `real`, so that code which checks them decides as for it; the
// lower bits are those of no number that a program has. An f32 holds it: some kernels round theirs.
void OpRecorder::add_runtime_number(ir::ValueId v, double real) {
  add_runtime_number(v);
  const auto narrow = static_cast<float>(real);
  if (!std::isnormal(narrow)) return;
  constexpr uint32_t kLow = (1U << 13) - 1, kFirst = 0x1a5d, kStep = 0x9e2;  // odd ones
  const uint32_t high = std::bit_cast<uint32_t>(narrow) & ~kLow;
  for (uint32_t i = 0; i < kLow / 2; i++) {
    const auto made = std::bit_cast<float>(high | ((kFirst + i * kStep) & kLow));
    if (stand_ins_.emplace(std::bit_cast<uint64_t>(static_cast<double>(made)), v).second) return;
  }
}

// The numbers that stand-ins are for, in their place. In that of a tensor one has a dtype, which
// must not be the result's.
void OpRecorder::place_numbers(const OpFacts& f, std::vector<ir::Arg>& args,
                               std::span<const at::Tensor> tensors) {
  if (stand_ins_.empty()) return;
  auto decides = [](const at::Tensor& t) { return t.dim() > 0 && t.is_floating_point(); };
  for (size_t i = 0; i < args.size(); i++) {
    const auto* number = args[i].get_if<double>();
    if (number == nullptr) continue;
    const auto found = stand_ins_.find(std::bit_cast<uint64_t>(*number));
    if (found == stand_ins_.end()) continue;
    if (f.args[i] == ArgKind::Tensor && std::ranges::none_of(tensors, decides))
      throw Unsupported(cat(f.target, " of a number that varies"));
    args[i] = found->second;
    placed_.insert(found->second.index);
  }
}

void OpRecorder::check_numbers(const OpFacts& f, std::span<const ir::Arg> args) const {
  if (runtime_numbers_.empty()) return;
  using enum ArgKind;
  for (size_t i = 0; i < args.size(); ++i) {
    if (f.args[i] == Tensor || f.args[i] == TensorList || f.args[i] == OptionalTensorList ||
        f.args[i] == Scalar || f.args[i] == Float)
      continue;
    ir::for_each_value(args[i], [&](ir::ValueId) {
      throw Unsupported(cat(f.target, " of a number that varies"));
    });
  }
}

// ---- writes

void OpRecorder::expect_write(std::string_view function, bool out) {
  const bool in_place =
      (function.ends_with("_") && !function.ends_with("__")) || is_augmented_assignment(function);
  expected_write_ = out ? Write::Out : in_place ? Write::InPlace : Write::None;
}

void OpRecorder::check_conversion(const torch::jit::Stack& s, size_t base) const {
  const bool known = expected_write_ == Write::None || !s[base + 1].isInt();
  const bool fine = known || (expected_write_ == Write::InPlace &&
                              c10::canCast(s[base].toTensor().scalar_type(),
                                           static_cast<at::ScalarType>(s[base + 1].toInt())));
  if (!fine) throw Unsupported("a result of another dtype than what it is written to");
}

// Forward AD makes zeros that have no memory, whose mark leaves out ops with them (0 * inf is 0).
// In a graph they are zeros.
void OpRecorder::make_zero(torch::jit::Stack& s) {
  static const c10::OperatorHandle zeros =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", "");
  record(zeros, s);
  s.back() = r_.marked_as_zero(s.back().toTensor());
}

// Eager's product takes the number for a tensor without dimensions of the number's own dtype.
void OpRecorder::scale_zero(torch::jit::Stack& s) {
  const at::Scalar by = torch::jit::pop(s).toScalar();
  const at::Tensor zero = torch::jit::pop(s).toTensor();
  const at::ScalarType dtype = zero.dim() == 0 ? c10::promoteTypes(zero.scalar_type(), by.type())
                                               : at::result_type(zero, by);
  torch::jit::push(s, zero.sym_sizes(), dtype, zero.layout(), zero.device(), false);
  make_zero(s);
}

c10::IValue OpRecorder::called(const char* name, const char* overload, torch::jit::Stack stack) {
  record(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), stack);
  return stack.back();
}

// A table that is looked up several times has the sum of their gradients: of sparse ones all
// entries, in a dense one those of a sparse one are added.
bool OpRecorder::add_sparse(torch::jit::Stack& s) {
  const at::Tensor terms[] = {s[s.size() - 3].toTensor(), s[s.size() - 2].toTensor()};
  auto sparse = [&](const at::Tensor& t) -> const Recording::Sparse* {
    const ir::ValueId* v = r_.find(t.unsafeGetTensorImpl());
    const auto it = v ? r_.sparse.find(*v) : r_.sparse.end();
    return it == r_.sparse.end() ? nullptr : &it->second;
  };
  const Recording::Sparse *a = sparse(terms[0]), *b = sparse(terms[1]);
  if ((!a && !b) || !s.back().toScalar().equal(1)) return false;
  const bool both = a && b;
  const Recording::Sparse& first = a ? *a : *b;
  if (!first.indices.defined() || (both && !b->indices.defined())) return false;
  const int64_t dims = first.indices.size(0);
  if (both ? b->indices.size(0) != dims : dims != 1) return false;
  const c10::IValue none;
  c10::IValue sum;
  if (both) {
    const auto joined = [&](const at::Tensor& x, const at::Tensor& y, int64_t dim) {
      return called("aten::cat", "", {c10::List<at::Tensor>({x, y}), dim});
    };
    const at::Tensor& like = terms[0];
    sum = called("aten::_sparse_coo_tensor_with_dims_and_tensors", "",
                 {dims, like.dim() - dims, like.sym_sizes(), joined(a->indices, b->indices, 1),
                  joined(a->values, b->values, 0), like.scalar_type(), c10::kSparse, like.device(),
                  none, none});
  } else {
    const auto places = called("aten::select", "int", {first.indices, 0, 0});
    sum = called("aten::index_add", "", {a ? terms[1] : terms[0], 0, places, first.values, 1});
  }
  torch::jit::drop(s, 3);
  s.push_back(std::move(sum));
  return true;
}

// By a float that comes from sizes, as the gradient of a variance is: the graph computes it, as
// eager does, in doubles.
bool OpRecorder::scale_by_quotient(torch::jit::Stack& s) {
  const auto quotient = quotient_in(s.back().toScalar());
  const at::Tensor t = s[s.size() - 2].toTensor();
  if (!quotient || (t.scalar_type() != at::kFloat && t.scalar_type() != at::kDouble)) return false;
  const auto facts = r_.shapes->facts();
  const c10::IValue none;
  auto number = [&](sym::Expr e) {
    return called("aten::scalar_tensor", "",
                  {c10::Scalar(to_sym_int(e, facts)), at::kDouble, none, none, none});
  };
  const c10::IValue exact =
      called("aten::div", "Tensor", {number(quotient->first), number(quotient->second)});
  const c10::IValue factor =
      called("aten::_to_copy", "", {exact, t.scalar_type(), none, none, none, false, none});
  torch::jit::drop(s, 2);
  s.push_back(called("aten::mul", "Tensor", {t, factor}));
  return true;
}

// torch.tensor(...) inside the computation: a constant that nobody else can change.
void OpRecorder::lift(torch::jit::Stack& s) {
  const at::Tensor real = s.back().toTensor();
  if (r_.find(real.unsafeGetTensorImpl())) return;
  const size_t known = r_.attributes.size();
  RecordedSource& source = r_.constant(real);
  source.fresh |= r_.attributes.size() > known;
  s.back() = wrapper_of(source.wrapper)->value();
}

// As the op that gives the new statistics as results, which then are what the old ones hold.
void OpRecorder::batch_norm_in_training(torch::jit::Stack& s, size_t base) {
  static const c10::OperatorHandle with_results = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_native_batch_norm_legit_functional", "");
  if (!is_defined(s[base + 4]))
    throw Unsupported("batch norm in training mode without a running variance");
  const at::Tensor mean = s[base + 3].toTensor(), var = s[base + 4].toTensor();
  if (storage_of(mean) == storage_of(var))
    throw Unsupported("running statistics of a batch norm that share memory");
  record(with_results, s);
  r_.write_back(var, torch::jit::pop(s).toTensor());
  r_.write_back(mean, torch::jit::pop(s).toTensor());
}

// For the tensor with its dimensions in the order in which they lie in memory, the outermost first.
void OpRecorder::draw_in_order(const c10::OperatorHandle& op, torch::jit::Stack& s, size_t base) {
  const at::Tensor t = s[base].toTensor();
  const std::vector<sym::Expr> strides = r_.graph.tensor_type(r_.value_of(t)).strides;
  std::vector<int64_t> order(static_cast<size_t>(t.dim())), back(order.size());
  std::iota(order.begin(), order.end(), 0);
  auto stride = [&](int64_t d) { return strides[static_cast<size_t>(d)]; };
  std::ranges::stable_sort(order, std::greater(), [&](int64_t d) { return sym::hint(stride(d)); });
  if (sym::ShapeFacts* facts = facts_of_sizes())
    for (size_t i = 1; i < order.size(); ++i)
      facts->decide(sym::at_most(stride(order[i]), stride(order[i - 1])));
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  s[base] = permuted(t, order);
  if (!s[base].toTensor().is_contiguous())
    throw Unsupported("random numbers for a tensor that is not row-major");
  record(op, s);
  s.back() = permuted(s.back().toTensor(), back);
}

at::Tensor OpRecorder::permuted(const at::Tensor& t, const std::vector<int64_t>& order) {
  static const c10::OperatorHandle permute =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::permute", "");
  torch::jit::Stack s{t, order};
  record(permute, s);
  return s.back().toTensor();
}

}  // namespace oxy::bridge
