#include "torch_bridge/bound_call.h"

#include <ATen/core/List.h>
#include <ATen/ops/clone.h>

#include <algorithm>

#include "support/check.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/mutable_ops.h"

namespace oxy::bridge {
namespace {

using c10::IValue;

at::Tensor no_tensor(ir::ValueId) {
  throw Unsupported("a number computed in the graph as an argument");
}

}  // namespace

BoundCall::BoundCall(const runtime::ExternStep& step) : name_(step.op), op_(find_op(step.op)) {
  const c10::FunctionSchema& schema = op_.schema();
  random_ = step.random || op_.hasTag(at::Tag::nondeterministic_seeded);
  OXY_CHECK(step.args.size() <= schema.arguments().size(), "too many arguments for ", name_);
  template_.resize(schema.arguments().size());
  for (size_t i = 0; i < template_.size(); i++) {
    const c10::Argument& formal = schema.arguments()[i];
    if (i < step.args.size()) {
      bind_argument(step.args[i], formal, static_cast<uint32_t>(i));
    } else if (formal.default_value()) {
      template_[i] = *formal.default_value();
    }
  }
  for (size_t i : written_arguments(schema)) {
    const bool given =
        std::any_of(tensors_.begin(), tensors_.end(), [&](auto& t) { return t.first == i; });
    if (given) written_.push_back(static_cast<uint32_t>(i));
  }
  bind_results(step);
}

uint32_t BoundCall::read(const ir::Arg& a) {
  uint32_t b = a.value().index;
  if (std::find(reads_.begin(), reads_.end(), b) == reads_.end()) reads_.push_back(b);
  return b;
}

void BoundCall::bind_argument(const ir::Arg& a, const c10::Argument& formal, uint32_t position) {
  ArgKind kind = kind_of(formal.real_type());
  if (a.is_value() && kind == ArgKind::Tensor) {
    tensors_.emplace_back(position, read(a));
  } else if (a.is_value() && kind == ArgKind::Scalar) {
    numbers_.emplace_back(position, read(a));
  } else if (a.items() != nullptr &&
             (kind == ArgKind::TensorList || kind == ArgKind::OptionalTensorList)) {
    bind_tensor_list(*a.items(), position, kind == ArgKind::OptionalTensorList);
  } else {
    template_[position] = to_ivalue(a, kind, no_tensor);
  }
}

void BoundCall::bind_tensor_list(const std::vector<ir::Arg>& items, uint32_t position,
                                 bool optional) {
  ListArgument list{position, optional, {}};
  for (const ir::Arg& item : items) {
    if (item.is_value()) {
      list.items.push_back({static_cast<int64_t>(read(item)), {}});
    } else {
      list.items.push_back({-1, item.is_none()
                                    ? at::Tensor()
                                    : to_ivalue(item, ArgKind::Tensor, no_tensor).toTensor()});
    }
  }
  lists_.push_back(std::move(list));
}

void BoundCall::bind_results(const runtime::ExternStep& step) {
  std::vector<int32_t> returns = step.returns;
  if (returns.empty()) returns.assign(op_.schema().returns().size() + written_.size(), -1);
  size_t k = 0;
  auto add = [&](uint32_t ret, int32_t item) {
    OXY_CHECK(k < step.outputs.size(), name_, " returns more than the plan says");
    int64_t b = step.outputs[k++];
    if (b >= 0) results_.push_back({ret, item, static_cast<uint32_t>(b)});
  };
  for (uint32_t r = 0; r < returns.size(); r++) {
    if (returns[r] < 0) add(r, -1);
    for (int32_t i = 0; i < returns[r]; i++) add(r, i);
  }
}

void BoundCall::keep_results(const std::vector<bool>& read) {
  std::erase_if(results_, [&](const Result& r) { return !read[r.buffer]; });
}

void BoundCall::call(const std::vector<at::Tensor>& tensors, torch::jit::Stack& stack) const {
  stack.assign(template_.begin(), template_.end());
  for (auto [position, buffer] : tensors_) stack[position] = tensors[buffer];
  for (auto [position, buffer] : numbers_) stack[position] = tensors[buffer].item();
  for (const ListArgument& l : lists_) {
    c10::List<at::Tensor> list;
    c10::List<std::optional<at::Tensor>> optionals;
    for (const auto& [buffer, constant] : l.items) {
      const at::Tensor& t = buffer < 0 ? constant : tensors[static_cast<size_t>(buffer)];
      if (l.optional) {
        optionals.push_back(t.defined() ? std::optional<at::Tensor>(t) : std::nullopt);
      } else {
        list.push_back(t);
      }
    }
    stack[l.position] = l.optional ? IValue(std::move(optionals)) : IValue(std::move(list));
  }
  if (written_.empty()) return op_.callBoxed(&stack);
  std::vector<at::Tensor> copies;
  for (uint32_t position : written_) {
    copies.push_back(stack[position].toTensor().clone());
    stack[position] = copies.back();
  }
  op_.callBoxed(&stack);
  for (at::Tensor& t : copies) stack.emplace_back(std::move(t));
}

at::Tensor BoundCall::take(torch::jit::Stack& stack, const Result& r) const {
  OXY_CHECK(r.ret < stack.size(), name_, " returned fewer values than its schema says");
  IValue& v = stack[r.ret];
  if (r.item < 0) {
    OXY_CHECK(v.isTensor(), name_, " returned no tensor");
    return std::move(v).toTensor();
  }
  auto list = v.toListRef();
  OXY_CHECK(static_cast<size_t>(r.item) < list.size(), name_, " returned a list of ", list.size());
  return list[static_cast<size_t>(r.item)].toTensor();
}

}  // namespace oxy::bridge
