// Ops that give a number of data, or sizes that depend on it: symbols of their own (OfData). A mask
// as an index is taken apart into its places, which then index as any numbers do. Sizes that the
// fake implementation of an op from outside torch asks for. And a size that only the library behind
// an op knows.
#include <ATen/core/functional.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/probed_shapes.h"

namespace oxy::bridge {
namespace {

using sym::Expr;

constexpr std::string_view kIndex = "aten.index.Tensor", kPut = "aten.index_put.default",
                           kNonzero = "aten.nonzero.default",
                           kNonzeroStatic = "aten.nonzero_static.default",
                           kMaskedSelect = "aten.masked_select.default",
                           kRepeats = "aten.repeat_interleave.Tensor",
                           kBincount = "aten.bincount.default", kCtcLoss = "aten._ctc_loss.Tensor";
constexpr std::string_view kUnique[] = {
    "aten._unique.default", "aten._unique2.default", "aten.unique_consecutive.default",
    "aten.unique_dim.default", "aten.unique_dim_consecutive.default"};

bool gives_sizes(std::string_view target) {
  return target == kNonzero || target == kMaskedSelect || target == kRepeats ||
         target == kBincount || std::ranges::find(kUnique, target) != std::end(kUnique);
}

std::vector<at::Tensor> masks_of(const c10::IValue& indices) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& v : indices.toListRef())
    if (v.isTensor() && v.toTensor().defined() && v.toTensor().scalar_type() == at::kBool)
      out.push_back(v.toTensor());
  return out;
}

ir::TensorType dense_type(DType dtype, std::vector<Expr> sizes) {
  ir::TensorType t;
  t.dtype = dtype;
  t.strides = ir::contiguous_strides(sizes);
  t.sizes = std::move(sizes);
  return t;
}

PredictedReturn one(ir::TensorType type) {
  PredictedReturn r;
  r.is_tensor = true;
  r.tensors.push_back({true, std::move(type), -1});
  return r;
}

at::Tensor call_op(OpRecorder& recorder, const char* name, const char* overload,
                   torch::jit::Stack s) {
  recorder.on_op(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), s);
  return s.back().toTensor();
}

// repeat_interleave with output_size, which its kernel checks.
bool has_size_of_repeats(c10::ArrayRef<c10::IValue> args) {
  return args.size() > 1 && !args[1].isNone();
}

bool flag(c10::ArrayRef<c10::IValue> args, size_t i) { return i < args.size() && args[i].toBool(); }

// unique of all elements, or of the slices along a dimension, which lie in front in memory.
std::vector<PredictedReturn> unique(const ir::TensorType& self, std::optional<int64_t> dim,
                                    bool inverse, bool counts, bool has_counts, Expr size) {
  std::vector<PredictedReturn> out;
  if (!dim) {
    out.push_back(one(dense_type(self.dtype, {size})));
    out.push_back(one(dense_type(DType::I64, inverse ? self.sizes : std::vector<Expr>{0})));
    if (has_counts) out.push_back(one(dense_type(DType::I64, {counts ? size : Expr(0)})));
    return out;
  }
  const auto d = static_cast<size_t>(*dim);
  ir::TensorType slices = dense_type(self.dtype, self.sizes);
  slices.sizes[d] = size;
  Expr stride = 1;
  for (size_t i = slices.sizes.size(); i-- > 0;) {
    if (i == d) continue;
    slices.strides[i] = stride;
    stride = stride * slices.sizes[i];
  }
  slices.strides[d] = stride;
  out.push_back(one(std::move(slices)));
  out.push_back(one(dense_type(DType::I64, {self.sizes[d]})));
  out.push_back(one(dense_type(DType::I64, {size})));
  return out;
}

}  // namespace

OpRecorder::OfDataOp OpRecorder::of_data_op(const OpFacts& f, const torch::jit::Stack& s,
                                            size_t base) const {
  OfDataOp found = OfDataOp::None;
  if (f.target == kNonzeroStatic ||
      (f.target == kRepeats && has_size_of_repeats(c10::ArrayRef(s).slice(base))))
    return OfDataOp::Sizes;
  if (f.target == ops::kReadNumber) {
    const at::Tensor t = s[base].toTensor();
    if ((of_data_.numbers || read_numbers_.contains(r_.value_of(t).index)) &&
        at::isIntegralType(t.scalar_type(), false))
      found = OfDataOp::Number;
  } else if (of_data_.sizes && gives_sizes(f.target)) {
    found = OfDataOp::Sizes;
  } else if (f.target == kCtcLoss && (of_data_.inner || r_.shapes) &&
             s[base].toTensor().dim() == 3) {
    found = OfDataOp::Sizes;  // of what only the gradient reads
  } else if (of_data_.sizes &&
             (f.target == kIndex || (f.target == kPut && is_symbolic(s[base + 2].toTensor())))) {
    const std::vector<at::Tensor> masks = masks_of(s[base + 1]);
    const bool known = std::ranges::all_of(masks, [](const at::Tensor& m) { return m.dim() > 0; });
    if (!masks.empty() && known) found = OfDataOp::Masks;
  }
  if (found == OfDataOp::None || r_.shapes) return found;
  throw DataDependent(cat(f.target, ": its result depends on data (data-dependent)"),
                      found == OfDataOp::Number, true);
}

void OpRecorder::read_symbol(torch::jit::Stack& s) {
  const ir::ValueId v = r_.value_of(s.back().toTensor());
  auto [known, is_new] = numbers_.try_emplace(v.index);
  if (is_new) {
    known->second = r_.shapes->number_of_data();
    r_.add_call(ir::NodeKind::CallOp, std::string(ops::kReadNumber), {v},
                {ir::Type::integer(known->second)});
  }
  s.back() =
      c10::Scalar(to_sym_int(r_.shapes->facts()->simplify(known->second), r_.shapes->facts()));
}

// How many elements are not 0: the same for each time that is asked.
Expr OpRecorder::count_in(const at::Tensor& mask) {
  const ir::ValueId v = r_.value_of(mask);
  auto [known, is_new] = counts_.try_emplace(v.index);
  if (is_new) {
    const Expr elements = r_.graph.tensor_type(v).numel();
    if (elements.is_const(0)) return known->second = 0;
    known->second = r_.shapes->size_of_data(sym::hint(elements) / 2);
    if (!elements.is_const() || elements.value() >= sym::hint(known->second))
      r_.shapes->facts()->assume(sym::at_most(known->second, elements));
  }
  return r_.shapes->facts()->simplify(known->second);
}

// Behind `t[mask] = values` with several values or none, as many elements of the mask hold: what it
// indexes from then on, the gradient by the values above all, has a known size.
bool OpRecorder::index_by_counted_mask(const c10::OperatorHandle& op, const OpFacts& f,
                                       torch::jit::Stack& s, size_t base) {
  if (f.target != kPut && f.target != kIndex) return false;
  const at::Tensor self = s[base].toTensor();
  const auto given = s[base + 1].toOptionalTensorVector();
  if (given.empty() || !given.back() || masks_of(s[base + 1]).size() != 1) return false;
  const at::Tensor& mask = *given.back();
  const auto whole = static_cast<int64_t>(given.size()) - 1;  // dimensions in front of the mask's
  const int64_t rest = self.dim() - whole - mask.dim();
  if (mask.scalar_type() != at::kBool || mask.dim() == 0 || rest < 0 ||
      std::any_of(given.begin(), given.end() - 1, [](const auto& i) { return i && i->defined(); }))
    return false;
  for (int64_t d = 0; d < mask.dim(); d++)
    if (expr_of(mask.sym_size(d)) != expr_of(self.sym_size(whole + d))) return false;
  const uint32_t value = r_.value_of(mask).index;
  if (f.target == kPut) {
    const at::Tensor& values = s[base + 2].toTensor();
    if (values.dim() <= rest) return false;
    const c10::SymInt count = values.sym_size(-rest - 1);
    const Expr e = expr_of(count);
    if (e.is_const() ? e.value() != 1
                     : sym::origin_of(e) == sym::Origin::Hinted &&
                           r_.shapes->facts()->decide(sym::at_most(2, e)))
      counted_[value] = count;
    return false;
  }
  auto known = counted_.find(value);
  if (known == counted_.end()) return false;
  at::Tensor& places = places_[value];
  if (!places.defined())
    places = call_op(*this, "aten::nonzero_static", "", {mask, known->second, int64_t{-1}});
  c10::List<std::optional<at::Tensor>> indices;
  for (int64_t d = 0; d < whole; d++) indices.push_back(std::nullopt);
  for (int64_t d = 0; d < mask.dim(); d++)
    indices.push_back(call_op(*this, "aten::select", "int", {places, int64_t{1}, d}));
  s[base + 1] = std::move(indices);
  on_op(op, s);
  return true;
}

// Each mask becomes the indices of its elements that hold, a dimension each.
void OpRecorder::index_by_masks(const c10::OperatorHandle& op, torch::jit::Stack& s, size_t base) {
  const at::Tensor self = s[base].toTensor();
  c10::List<std::optional<at::Tensor>> indices;
  int64_t dim = 0;
  for (const c10::IValue& v : s[base + 1].toListRef()) {
    const at::Tensor index = v.isTensor() ? v.toTensor() : at::Tensor();
    if (!index.defined() || index.scalar_type() != at::kBool) {
      indices.push_back(index.defined() ? std::optional(index) : std::nullopt);
      dim++;
      continue;
    }
    if (dim + index.dim() > self.dim()) throw Unsupported("too many indices for a tensor");
    for (int64_t d = 0; d < index.dim(); d++) {
      const Expr size = expr_of(index.sym_size(d)), indexed = expr_of(self.sym_size(dim + d));
      if (!r_.shapes->facts()->decide(sym::equal(size, indexed), true))
        throw Unsupported("a mask of another shape than what it indexes");
    }
    at::Tensor& places = places_[r_.value_of(index).index];
    if (!places.defined()) places = call_op(*this, "aten::nonzero", "", {index});
    for (int64_t d = 0; d < index.dim(); d++, dim++)
      indices.push_back(call_op(*this, "aten::select", "int", {places, int64_t{1}, d}));
  }
  s[base + 1] = std::move(indices);
  on_op(op, s);
}

OpRecorder::Predicted OpRecorder::predict_by_data(const OpFacts& f,
                                                  c10::ArrayRef<c10::IValue> args) {
  const at::Tensor& tensor = args[0].toTensor();
  const ir::TensorType self = type_of(tensor);
  const Expr elements = self.numel();
  auto new_size = [&] { return r_.shapes->size_of_data(sym::hint(elements) / 2); };
  if (f.target == kNonzeroStatic)
    return {one(dense_type(DType::I64, {expr_of(args[1].toSymInt()), self.dim()}))};
  if (f.target == kNonzero) {
    const Expr count = count_in(tensor);
    ir::TensorType t = dense_type(DType::I64, {count, self.dim()});
    t.strides = {1, count};
    return {one(std::move(t))};
  }
  if (f.target == kMaskedSelect) {
    const at::Tensor& mask = args[1].toTensor();
    const bool alike = type_of(mask).sizes == self.sizes;
    return {one(dense_type(self.dtype, {alike ? count_in(mask) : new_size()}))};
  }
  if (f.target == kRepeats) {
    const Expr size = has_size_of_repeats(args) ? expr_of(args[1].toSymInt()) : new_size();
    return {one(dense_type(self.dtype, {size}))};
  }
  if (f.target == kBincount) {
    const bool weights = args.size() > 1 && args[1].isTensor() && args[1].toTensor().defined();
    const DType dtype = !weights                                         ? DType::I64
                        : args[1].toTensor().scalar_type() == at::kFloat ? DType::F32
                                                                         : DType::F64;
    return {one(dense_type(dtype, {new_size()}))};
  }
  if (f.target == kCtcLoss) {  // the loss by sequence, and the forward variables
    const Expr steps = self.sizes[0], batch = self.sizes[1];
    const Expr states = Expr(2) * r_.shapes->size_of_data(sym::hint(steps)) + Expr(1);
    return {one(dense_type(self.dtype, {batch})),
            one(dense_type(self.dtype, {batch, steps, states}))};
  }
  if (f.target == "aten._unique.default")
    return unique(self, std::nullopt, flag(args, 2), false, false, new_size());
  if (f.target == "aten._unique2.default")
    return unique(self, std::nullopt, flag(args, 2), flag(args, 3), true, new_size());
  const bool of_all = f.target == "aten.unique_consecutive.default";
  const c10::IValue dim = of_all ? args[3] : args[1];
  if (dim.isNone())
    return unique(self, std::nullopt, flag(args, 1), flag(args, 2), true, new_size());
  const int64_t d = dim.toInt() < 0 ? dim.toInt() + self.dim() : dim.toInt();
  if (d < 0 || d >= self.dim()) throw Unsupported("a dimension that a tensor does not have");
  return unique(self, d, true, true, true, new_size());
}

// Of an op whose fake implementation asks for sizes of data, each is the size of a result.
OpRecorder::Predicted OpRecorder::predict_by_torch(const c10::OperatorHandle& op, const OpFacts& f,
                                                   c10::ArrayRef<c10::IValue> args) {
  try {
    return predict_on_meta(op, args);
  } catch (const std::exception&) {
    const size_t asked = f.info == nullptr && !f.dynamic_shape ? sizes_asked_for(op, args) : 0;
    if (asked == 0 && !f.dynamic_shape) throw;
    const std::string what = cat(f.target,
                                 ": the shape of its result depends on data "
                                 "(data-dependent)");
    const bool possible = asked > 0 && of_data_.sizes;
    if (!possible || !r_.shapes) throw DataDependent(what, false, possible);
    constexpr int64_t kGuess = 8;
    std::vector<Expr> sizes;
    for (size_t i = 0; i < asked; i++) sizes.push_back(r_.shapes->size_of_data(kGuess));
    auto predicted = predict_by_probes({op, args, sizes}, {}, *r_.shapes->facts());
    if (!predicted) throw DataDependent(what, false);
    for (Expr size : sizes) {
      bool is_result = false;
      for (const PredictedReturn& r : *predicted)
        for (const PredictedTensor& t : r.tensors)
          is_result |= std::ranges::find(t.type.sizes, size) != t.type.sizes.end();
      if (!is_result) throw DataDependent(what, false);
    }
    return std::move(*predicted);
  }
}

// What oneDNN leaves for the gradient of a recurrent layer, which torch's shape rule calls empty.
// It is asked for the size; where sizes vary, that is a symbol of its own.
void OpRecorder::add_workspace(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                               Predicted& predicted) const {
  constexpr size_t kWorkspace = 3;
  auto varies = [](const c10::IValue& v) {
    return v.isTensor() && v.toTensor().defined() && is_symbolic(v.toTensor());
  };
  Expr size;
  if (std::ranges::any_of(args, varies)) {
    constexpr int64_t kKept = 6 * sizeof(float);  // gates and states, by element of the result
    size = r_.shapes->size_of_data(sym::hint(predicted[0].tensors[0].type.numel()) * kKept);
  } else {
    const c10::impl::ExcludeDispatchKeyGuard below(kAboveBackend);
    const c10::AutoGradMode for_gradients(true);
    torch::jit::Stack real;
    for (const c10::IValue& v : args)
      real.push_back(map_tensors(v, [](const at::Tensor& t) {
        return t.defined() ? at::zeros(t.sizes(), t.dtype()) : t;
      }));
    op.callBoxed(real);
    size = real[kWorkspace].toTensor().numel();
  }
  predicted[kWorkspace].tensors[0] = {true, dense_type(DType::U8, {size}), -1};
}

}  // namespace oxy::bridge
