// Binds arguments of a call to a stack of IValues, and compares results with what was predicted.
#include "torch_bridge/bound_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "support/check.h"

namespace oxy::bridge {
namespace {

using c10::IValue;
using runtime::BufferArg;
using runtime::PlanArg;
using runtime::Slot;

at::Tensor no_tensor(ir::ValueId) {
  throw Unsupported("a number computed in the graph as an argument");
}

bool is_buffer(const PlanArg& a) { return std::holds_alternative<BufferArg>(a.v); }

// Data as the graph had it; `size` gives the value of a slot.
ir::Arg data_of(const PlanArg& a, const std::function<int64_t(Slot)>& size) {
  auto convert = [&]<class T>(const T& v) -> ir::Arg {
    if constexpr (std::is_same_v<T, std::monostate>)
      return {};
    else if constexpr (std::is_same_v<T, BufferArg>)
      return ir::ValueId(v.buffer);
    else if constexpr (std::is_same_v<T, Slot>)
      return size(v);
    else if constexpr (std::is_same_v<T, std::string>)
      return ir::Str{v};
    else if constexpr (std::is_same_v<T, PlanArg::List>) {
      ir::List out;
      for (const PlanArg& x : v) out.items.push_back(data_of(x, size));
      return out;
    } else
      return v;
  };
  return std::visit(convert, a.v);
}

bool varies(const PlanArg& a, const runtime::SizeProgram& sizes) {
  if (const auto* s = std::get_if<Slot>(&a.v)) return !sizes.is_constant(*s);
  const auto* l = std::get_if<PlanArg::List>(&a.v);
  return l && std::ranges::any_of(*l, [&](const PlanArg& x) { return varies(x, sizes); });
}

// No expression: as data it may be any int64.
IValue ivalue_of(int64_t number, ArgKind kind) {
  switch (kind) {
    case ArgKind::Int:
      return number;
    case ArgKind::Bool:
      return number != 0;
    case ArgKind::Float:
      return static_cast<double>(number);
    case ArgKind::Scalar:
      return c10::Scalar(number);
    case ArgKind::IntList:
      return std::vector<int64_t>{number};
    case ArgKind::Tensor: {
      at::Tensor wrapped = at::scalar_to_tensor(number);
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      return wrapped;
    }
    default:
      throw Unsupported("an argument of a kind that has no size");
  }
}

// With the same strides, also where there are gaps.
at::Tensor copy_of(const at::Tensor& t) {
  if (t.is_non_overlapping_and_dense()) return t.clone();
  return at::empty_strided(t.sizes(), t.strides(), t.options()).copy_(t);
}

}  // namespace

BoundCall::BoundCall(const runtime::ExternStep& step, const runtime::SizeProgram& sizes)
    : name_(step.op), op_(find_op(step.op)), own_draw_(own_draw_of(step.op)) {
  const c10::FunctionSchema& schema = op_.schema();
  random_ = step.random || op_.hasTag(at::Tag::nondeterministic_seeded);
  OXY_CHECK(step.args.size() <= schema.arguments().size(), "too many arguments for ", name_);
  template_.resize(schema.arguments().size());
  for (size_t i = 0; i < template_.size(); i++) {
    const c10::Argument& formal = schema.arguments()[i];
    if (i < step.args.size()) {
      bind_argument(step.args[i], formal, static_cast<uint32_t>(i), sizes);
    } else if (formal.default_value()) {
      template_[i] = *formal.default_value();
    }
  }
  written_ = written_arguments(schema);
  bind_results(step);
}

uint32_t BoundCall::read(const PlanArg& a) {
  const uint32_t b = std::get<BufferArg>(a.v).buffer;
  if (std::ranges::find(reads_, b) == reads_.end()) reads_.push_back(b);
  return b;
}

void BoundCall::bind_argument(const PlanArg& a, const c10::Argument& formal, uint32_t position,
                              const runtime::SizeProgram& sizes) {
  const ArgKind kind = kind_of(formal.real_type());
  const auto* items = std::get_if<PlanArg::List>(&a.v);
  if (is_buffer(a) && kind == ArgKind::Tensor) {
    tensors_.emplace_back(position, read(a));
  } else if (is_buffer(a) && (kind == ArgKind::Scalar || kind == ArgKind::Float)) {
    numbers_.push_back({position, kind, read(a)});
  } else if (items && (kind == ArgKind::TensorList || kind == ArgKind::OptionalTensorList)) {
    bind_tensor_list(*items, position, kind == ArgKind::OptionalTensorList, sizes);
  } else if (varies(a, sizes)) {
    sized_.push_back({position, kind, a});
  } else {
    const ir::Arg data = data_of(a, [&](Slot s) { return sizes.constant(s); });
    template_[position] = to_ivalue(data, kind, no_tensor);
  }
}

void BoundCall::bind_tensor_list(const PlanArg::List& items, uint32_t position, bool optional,
                                 const runtime::SizeProgram& sizes) {
  ListArgument list{position, optional, {}};
  for (const PlanArg& item : items) {
    if (is_buffer(item)) {
      list.items.push_back({static_cast<int64_t>(read(item)), {}});
    } else {
      const ir::Arg data = data_of(item, [&](Slot s) { return sizes.constant(s); });
      const bool none = std::holds_alternative<std::monostate>(item.v);
      list.items.push_back(
          {-1, none ? at::Tensor() : to_ivalue(data, ArgKind::Tensor, no_tensor).toTensor()});
    }
  }
  lists_.push_back(std::move(list));
}

void BoundCall::bind_results(const runtime::ExternStep& step) {
  std::vector<int32_t> returns = step.returns;
  if (returns.empty()) returns.assign(op_.schema().returns().size(), -1);
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

void BoundCall::call(const std::vector<at::Tensor>& tensors, std::span<const int64_t> slots,
                     torch::jit::Stack& stack) const {
  stack.assign(template_.begin(), template_.end());
  for (const SizedArgument& a : sized_) {
    const auto* slot = std::get_if<Slot>(&a.value.v);
    if (slot) {
      stack[a.position] = ivalue_of(slots[slot->index], a.kind);
      continue;
    }
    const ir::Arg data = data_of(a.value, [&](Slot s) { return slots[s.index]; });
    stack[a.position] = to_ivalue(data, a.kind, no_tensor);
  }
  for (auto [position, buffer] : tensors_) stack[position] = tensors[buffer];
  for (const auto& [position, kind, buffer] : numbers_) {
    const c10::Scalar number = tensors[buffer].item();
    stack[position] = kind == ArgKind::Float ? IValue(number.toDouble()) : IValue(number);
  }
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
  if (own_draw_ && own_draw_(stack)) return;
  if (written_.empty()) return op_.callBoxed(&stack);
  std::vector<at::Tensor> copies;
  for (size_t position : written_)
    stack[position] = map_tensors(stack[position], [&](const at::Tensor& t) {
      return t.defined() ? copies.emplace_back(copy_of(t)) : t;
    });
  op_.callBoxed(&stack);
  for (at::Tensor& t : copies) stack.emplace_back(std::move(t));
}

at::Tensor BoundCall::look_at(const torch::jit::Stack& stack, const Result& r) const {
  torch::jit::Stack copy = stack;
  return take(copy, r);
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
