// One extern call of a plan, bound once: the operator is looked up, the constant arguments are
// IValues, and a call only fills in the tensors.
#pragma once

#include <span>

#include "runtime/plan.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/random_draws.h"

namespace oxy::bridge {

class BoundCall {
 public:
  BoundCall(const runtime::ExternStep& step, const runtime::SizeProgram& sizes);

  const std::string& name() const { return name_; }
  bool random() const { return random_; }
  // Buffers among the arguments, each once.
  const std::vector<uint32_t>& reads() const { return reads_; }

  // One result that the plan keeps: return number `ret`, of a list its `item` (-1: no list).
  struct Result {
    uint32_t ret = 0;
    int32_t item = -1;
    uint32_t buffer = 0;
  };
  const std::vector<Result>& results() const { return results_; }
  // Forgets results that nobody reads; what they look like does not matter then.
  void keep_results(const std::vector<bool>& read);

  // An op that writes to arguments works on copies of them, which are results after its returns
  // (mutable_ops.cpp). `tensors` by buffer number, `slots` the sizes of the call; `stack` is
  // emptied first and holds the returns afterwards. The caller has switched autograd off. What the
  // op throws passes through.
  void call(const std::vector<at::Tensor>& tensors, std::span<const int64_t> slots,
            torch::jit::Stack& stack) const;
  at::Tensor take(torch::jit::Stack& stack, const Result& r) const;
  at::Tensor look_at(const torch::jit::Stack& stack, const Result& r) const;  // which stays there

 private:
  struct ListArgument {
    uint32_t position = 0;
    bool optional = false;  // Tensor?[]
    // A buffer, or -1 and a constant (undefined: None).
    std::vector<std::pair<int64_t, at::Tensor>> items;
  };
  // An argument whose value depends on the sizes of the call.
  struct SizedArgument {
    uint32_t position = 0;
    ArgKind kind{};
    runtime::PlanArg value;
  };
  void bind_argument(const runtime::PlanArg& a, const c10::Argument& formal, uint32_t position,
                     const runtime::SizeProgram& sizes);
  void bind_tensor_list(const runtime::PlanArg::List& items, uint32_t position, bool optional,
                        const runtime::SizeProgram& sizes);
  void bind_results(const runtime::ExternStep& step);
  uint32_t read(const runtime::PlanArg& a);

  std::string name_;
  c10::OperatorHandle op_;
  const OwnDraw own_draw_;  // nullptr: the operator is called
  bool random_ = false;
  torch::jit::Stack template_;
  std::vector<std::pair<uint32_t, uint32_t>> tensors_;  // position, buffer
  struct NumberArgument {                               // a Scalar or float that a buffer holds
    uint32_t position;
    ArgKind kind;
    uint32_t buffer;
  };
  std::vector<NumberArgument> numbers_;
  std::vector<ListArgument> lists_;
  std::vector<SizedArgument> sized_;
  std::vector<size_t> written_;  // positions of arguments that the op writes
  std::vector<uint32_t> reads_;
  std::vector<Result> results_;
};

}  // namespace oxy::bridge
