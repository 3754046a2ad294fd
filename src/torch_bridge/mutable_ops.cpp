// Functionalisation of ops from outside torch that write to their arguments: torch's own covers its
// own ops only.
//
// The graph gets one functional node: its outputs are the op's returns, then the new value of each
// written tensor, in the order of the schema. Whoever runs the node copies those tensors first
// (bound_call.h), so that none may be part of another argument.
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "support/check.h"
#include "torch_bridge/op_recorder.h"

namespace oxy::bridge {
namespace {

namespace functional = at::functionalization::impl;

struct Written {
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

bool has_hints(const at::Tensor& t) {
  const ir::TensorType type = type_of(t);
  const auto has_hint = [](const sym::Expr& e) { return sym::origin_of(e) == sym::Origin::Hinted; };
  return std::ranges::all_of(type.sizes, has_hint) && std::ranges::all_of(type.strides, has_hint) &&
         has_hint(type.offset);
}

// Where a tensor lies in its storage, symbols at their hints.
struct Place {
  explicit Place(const at::Tensor& t) : element(static_cast<int64_t>(t.element_size())) {
    const ir::TensorType type = type_of(t);
    for (const sym::Expr& e : type.sizes) sizes.push_back(sym::hint(e));
    for (const sym::Expr& e : type.strides) strides.push_back(sym::hint(e));
    offset = sym::hint(type.offset);
  }
  bool is_empty() const { return std::ranges::find(sizes, 0) != sizes.end(); }
  // The bytes from its first element to its last one.
  std::pair<int64_t, int64_t> bytes() const {
    int64_t last = offset;
    for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
    return {offset * element, (last + 1) * element};
  }

  std::vector<int64_t> sizes, strides;
  int64_t offset = 0, element;
};

// How far apart two elements may be in the dimensions of this stride: by `least` to `most` steps.
struct Steps {
  int64_t stride, least, most;
};

// Whether steps in these dimensions, the wide ones first, add up to a distance; true also where
// that takes too long to find out.
bool reaches(int64_t distance, std::span<const Steps> dims, int& tries) {
  if (dims.empty() || --tries < 0) return distance == 0 || tries < 0;
  const auto [stride, least, most] = dims[0];
  int64_t rest = 0;  // what the others add at most
  for (const Steps& s : dims.subspan(1)) rest += s.stride * std::max(-s.least, s.most);
  for (int64_t k = least; k <= most; ++k)
    if (std::abs(distance - k * stride) <= rest &&
        reaches(distance - k * stride, dims.subspan(1), tries))
      return true;
  return false;
}

// Of tensors of one dtype: interleaved ones do not overlap.
bool overlap_by_steps(const Place& a, const Place& b) {
  constexpr int kTries = 1000;
  std::map<int64_t, Steps, std::greater<>> by_stride;
  const auto of = [&](int64_t stride) -> Steps& {
    return by_stride.try_emplace(stride, Steps{stride, 0, 0}).first->second;
  };
  for (size_t d = 0; d < a.sizes.size(); ++d) of(a.strides[d]).most += a.sizes[d] - 1;
  for (size_t d = 0; d < b.sizes.size(); ++d) of(b.strides[d]).least -= b.sizes[d] - 1;
  by_stride.erase(0);
  std::vector<Steps> dims;
  for (const auto& [stride, steps] : by_stride) dims.push_back(steps);
  int tries = kTries;
  return reaches(b.offset - a.offset, dims, tries);
}

}  // namespace

bool may_share_elements(const at::Tensor& a, const at::Tensor& b, bool at_hints) {
  if (!a.is_alias_of(b)) return false;
  if (!at_hints && (is_symbolic(a) || is_symbolic(b))) return true;
  if (!has_hints(a) || !has_hints(b)) return true;
  const Place p(a), q(b);
  if (p.is_empty() || q.is_empty()) return false;
  const auto [p_begin, p_end] = p.bytes();
  const auto [q_begin, q_end] = q.bytes();
  if (p_end <= q_begin || q_end <= p_begin) return false;
  return a.dtype() != b.dtype() || overlap_by_steps(p, q);
}

namespace {

// Unsupported where the op would see in one argument what it writes to another one.
void check_apart(const std::vector<Written>& written, c10::ArrayRef<c10::IValue> args) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& v : args)
    for_each_tensor(v, [&](const at::Tensor& t) { all.push_back(t); });
  for (const Written& w : written)
    if (std::ranges::count_if(
            all, [&](const at::Tensor& t) { return may_share_elements(t, w.wrapper); }) > 1)
      throw Unsupported("an op that writes to what shares memory with another argument");
}

void run_functionalized(const c10::OperatorHandle& op, c10::DispatchKeySet,
                        torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t base = stack->size() - schema.arguments().size();
  std::vector<Written> written;
  const std::vector<size_t> positions = written_arguments(schema);
  for (size_t i : positions)
    for_each_tensor((*stack)[base + i], [&](const at::Tensor& t) {
      if (!functional::isFunctionalTensor(t)) throw Unsupported("an op that writes to a constant");
      written.push_back({t, {}});
    });
  check_apart(written, c10::ArrayRef(*stack).slice(base));
  for (size_t i = base; i < stack->size(); ++i) (*stack)[i] = map_tensors((*stack)[i], unwrapped);
  {
    at::AutoDispatchSkipFunctionalize below;
    auto next = written.begin();
    for (size_t i : positions)
      (*stack)[base + i] = map_tensors((*stack)[base + i], [&](const at::Tensor& t) {
        return t.defined() ? (next++)->fake = another_name(t) : t;
      });
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
    const ArgKind kind = kind_of(a.real_type());
    if (kind != ArgKind::Tensor && kind != ArgKind::TensorList) return {};
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
