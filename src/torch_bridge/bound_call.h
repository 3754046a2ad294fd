// One extern call of a plan, bound once: the operator is looked up, the constant arguments are IValues, and a call only
// fills in the tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "runtime/plan.h"

namespace oxy::bridge {

class BoundCall {
 public:
  explicit BoundCall(const runtime::ExternStep& step);

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

  // An op that writes to arguments works on copies of them, which are results after its returns (mutable_ops.h).
  // `tensors` by buffer number; `stack` is emptied first and holds the returns afterwards. The caller has switched
  // autograd off. What the op throws passes through.
  void call(const std::vector<at::Tensor>& tensors, torch::jit::Stack& stack) const;
  at::Tensor take(torch::jit::Stack& stack, const Result& r) const;

 private:
  struct ListArgument {
    uint32_t position = 0;
    bool optional = false;  // Tensor?[]
    std::vector<std::pair<int64_t, at::Tensor>>
        items;  // a buffer, or -1 and a constant (undefined: None)
  };
  void bind_argument(const ir::Arg& a, const c10::Argument& formal, uint32_t position);
  void bind_tensor_list(const std::vector<ir::Arg>& items, uint32_t position, bool optional);
  void bind_results(const runtime::ExternStep& step);
  uint32_t read(const ir::Arg& a);

  std::string name_;
  c10::OperatorHandle op_;
  bool random_ = false;
  torch::jit::Stack template_;
  std::vector<std::pair<uint32_t, uint32_t>> tensors_;  // position, buffer
  std::vector<std::pair<uint32_t, uint32_t>> numbers_;  // the same of Scalars that buffers hold
  std::vector<ListArgument> lists_;
  std::vector<uint32_t> written_;  // positions of arguments that the op writes
  std::vector<uint32_t> reads_;
  std::vector<Result> results_;
};

}  // namespace oxy::bridge
