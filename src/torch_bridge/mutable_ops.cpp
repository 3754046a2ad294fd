// Functionalisation of ops from outside torch that write to their arguments: torch's own covers its
// own ops only.
//
// The graph gets one functional node: its outputs are the op's returns, then the new value of each
// written argument, in the order of the schema. Whoever runs the node copies those arguments first
// (bound_call.h).
#include <ATen/core/LegacyTypeDispatch.h>

#include "support/check.h"
#include "torch_bridge/op_recorder.h"

namespace oxy::bridge {
namespace {

namespace functional = at::functionalization::impl;

struct Written {
  c10::IValue& argument;
  at::Tensor wrapper, fake;
};

at::Tensor unwrapped(const at::Tensor& t) {
  if (!functional::isFunctionalTensor(t)) return t;
  functional::sync(t);
  return functional::from_functional_tensor(t);
}

at::Tensor wrapped(const at::Tensor& t) {
  return t.defined() ? functional::to_functional_tensor(t) : t;
}

// A second name for the same value: the recorder gives it the value that the op leaves there.
at::Tensor another_name(const at::Tensor& fake) {
  return at::Tensor(fake.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/0, /*allow_tensor_metadata_change=*/true));
}

void run_functionalized(const c10::OperatorHandle& op, c10::DispatchKeySet,
                        torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t base = stack->size() - schema.arguments().size();
  std::vector<Written> written;
  for (size_t i : written_arguments(schema)) {
    c10::IValue& v = (*stack)[base + i];
    if (!v.isTensor() || !v.toTensor().defined()) continue;
    if (!functional::isFunctionalTensor(v.toTensor()))
      throw Unsupported("an op that writes to a constant");
    written.push_back({v, v.toTensor(), {}});
  }
  for (size_t i = base; i < stack->size(); ++i) (*stack)[i] = map_tensors((*stack)[i], unwrapped);
  {
    at::AutoDispatchSkipFunctionalize below;
    for (Written& w : written) w.argument = w.fake = another_name(w.argument.toTensor());
    op.callBoxed(stack);
  }
  for (Written& w : written) {
    functional::replace_(w.wrapper, w.fake);
    functional::commit_update(w.wrapper);
    functional::sync(w.wrapper);
  }
  for (size_t i = base; i < stack->size(); ++i) (*stack)[i] = map_tensors((*stack)[i], wrapped);
}

}  // namespace

std::vector<size_t> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<size_t> out;
  const std::string& name = schema.name();
  if (name.starts_with("aten::") || name.starts_with("prim::") || name.starts_with("prims::"))
    return out;
  for (const auto& r : schema.returns())
    if (r.alias_info()) return out;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& a = schema.arguments()[i];
    if (!a.alias_info() || !a.alias_info()->isWrite()) continue;
    if (!a.type()->isSubtypeOf(*c10::OptionalType::ofTensor())) return {};
    out.push_back(i);
  }
  return out;
}

std::vector<c10::RegistrationHandleRAII> make_functional(std::string_view name) {
  std::vector<c10::RegistrationHandleRAII> out;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& candidate : dispatcher.getAllOpNames()) {
    if (candidate.name != name) continue;
    auto op = dispatcher.findSchema(candidate);
    if (!op || written_arguments(op->schema()).empty() ||
        op->hasKernelForDispatchKey(c10::DispatchKey::Functionalize))
      continue;
    out.push_back(
        dispatcher.registerImpl(candidate, c10::DispatchKey::Functionalize,
                                c10::KernelFunction::makeFromBoxedFunction<&run_functionalized>(),
                                std::nullopt, nullptr, "oxyfuel, while recording"));
  }
  return out;
}

}  // namespace oxy::bridge
