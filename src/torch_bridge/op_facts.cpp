// Facts from the schema of an op, asked once; the refusals; what its results will be.
#include "torch_bridge/op_facts.h"

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/mutable_ops.h"

namespace oxy::bridge {

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
  f.view = f.info && f.info->has(ops::View);
  for (const auto& r : schema.returns()) {
    f.view |= r.alias_info() && !r.alias_info()->isWrite();
    f.only_tensor_returns &=
        r.type()->kind() == c10::TypeKind::TensorType || is_tensor_list(r.type());
  }
  f.data_dependent =
      op.hasTag(at::Tag::data_dependent_output) || (f.info && f.info->has(ops::DataDependent));
  f.dynamic_shape = op.hasTag(at::Tag::dynamic_output_shape);
  return f;
}

void refuse(const OpFacts& f) {
  if (f.data_dependent)
    throw Unsupported(cat(f.target, ": its result depends on data (data-dependent)"));
  if (f.mutates && f.written.empty())
    throw Unsupported(cat(f.target, ": mutation that functionalisation does not know"));
}

void check_drawing_order(const OpFacts& f, const c10::IValue& written) {
  constexpr std::string_view kWrites[] = {"bernoulli", "cauchy",     "exponential",
                                          "geometric", "log_normal", "normal_functional",
                                          "random",    "uniform"};
  const std::string_view name = std::string_view(f.target).substr(5);
  const bool writes =
      std::ranges::find(kWrites, name.substr(0, name.find('.'))) != std::end(kWrites);
  if (!writes || !written.isTensor()) return;
  const at::Tensor& t = written.toTensor();
  if (!t.is_non_overlapping_and_dense())
    throw Unsupported(cat(f.target, ": random numbers for a tensor with gaps"));
  // Its result is row-major, whatever the tensor is.
  const bool row_major = name == "bernoulli.p" || name == "bernoulli.Tensor";
  if (row_major && !t.is_contiguous())
    throw Unsupported(cat(f.target, ": random numbers for a tensor that is not row-major"));
}

bool writes_running_statistics(const OpFacts& f, const torch::jit::Stack& s, size_t base) {
  return f.target == "aten.native_batch_norm.default" && s[base + 5].toBool() &&
         s[base + 3].isTensor() && s[base + 3].toTensor().defined();
}

std::vector<PredictedReturn> predict(const c10::OperatorHandle& op, const OpFacts& f,
                                     c10::ArrayRef<c10::IValue> args) {
  if (!f.dynamic_shape) return predict_on_meta(op, args);
  try {
    return predict_on_meta(op, args);
  } catch (const std::exception&) {
    throw Unsupported(cat(f.target, ": the shape of its result depends on data (data-dependent)"));
  }
}

}  // namespace oxy::bridge
