// The tensors of an op of lists, one after the other.
#include "torch_bridge/foreach.h"

#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/select.h>

#include <string_view>

namespace oxy::bridge {
namespace {

constexpr std::string_view kPrefix = "aten::_foreach_";

// One number for each tensor, in a tensor of one dimension: ATen's own loop would read it.
void run_with_scalars(bool divides, torch::jit::Stack& stack) {
  const at::Tensor scalars = torch::jit::pop(stack).toTensor();
  const auto b = torch::jit::pop(stack).toTensorVector();
  const auto a = torch::jit::pop(stack).toTensorVector();
  const auto self = torch::jit::pop(stack).toTensorVector();
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < self.size(); ++i) {
    const at::Tensor scalar = at::select(scalars, 0, static_cast<int64_t>(i)).to(self[i].dtype());
    // In the order of ATen's kernels for the number as a Scalar.
    const at::Tensor weighed = a[i].mul(scalar);
    out.push_back(self[i].add(divides ? weighed.div(b[i]) : weighed.mul(b[i])));
  }
  stack.emplace_back(std::move(out));
}

}  // namespace

bool run_for_each(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::OperatorName& name = op.operator_name();
  if (!name.name.starts_with(kPrefix)) return false;
  const std::string_view word = std::string_view(name.name).substr(kPrefix.size());
  if ((word == "addcdiv" || word == "addcmul") && name.overload_name == "Tensor") {
    run_with_scalars(word == "addcdiv", stack);
    return true;
  }
  // Written to, the tensors are known to functionalisation above.
  if (!op.schema().is_mutable() &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
    return true;
  }
  return false;
}

}  // namespace oxy::bridge
