// What the recorder needs to know of ops, and the calls of them that it refuses.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "ops/op_table.h"
#include "torch_bridge/ivalue_convert.h"
#include "torch_bridge/shape_fallback.h"

namespace oxy::bridge {

// Of one op, looked up once a recording.
struct OpFacts {
  std::string target;
  const ops::OpInfo* info = nullptr;
  std::vector<ArgKind> args;
  bool mutates = false;
  std::vector<size_t> written;  // with `mutates`: the arguments, where we can model it
  bool data_dependent = false;
  bool dynamic_shape = false;  // data-dependent for some arguments: torch's meta kernel raises
  bool only_tensor_returns = true;
  bool view = false;  // a result is a view of an argument
};

OpFacts facts_of(const c10::OperatorHandle& op);
bool is_tensor_list(const c10::TypePtr& t);

// Unsupported for an op that no graph can have.
void refuse(const OpFacts& f);
// Unsupported where eager draws in the order in which the `written` tensor lies in memory, and that
// is not the order of the functional op's dense result.
void check_drawing_order(const OpFacts& f, const c10::IValue& written);
// Whether the call at `base` updates running statistics, without saying so in its schema.
bool writes_running_statistics(const OpFacts& f, const torch::jit::Stack& s, size_t base);
std::vector<PredictedReturn> predict(const c10::OperatorHandle& op, const OpFacts& f,
                                     c10::ArrayRef<c10::IValue> args);

}  // namespace oxy::bridge
