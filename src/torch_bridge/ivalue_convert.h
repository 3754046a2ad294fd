// Arguments between torch's dispatcher (IValue) and the IR (ir::Arg), led by the op's schema: an
// IValue alone does not tell a dtype from a number.
//
// Constants of the IR have 63 bits. The two ends of int64, which stand for "no bound" in slices,
// are written as the two ends of 63 bits and read back exactly; other numbers beyond that range are
// Unsupported. A number passed where the schema wants a tensor (x + 1) is a number in the IR too.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "ir/graph.h"

namespace oxy::bridge {

enum class ArgKind : uint8_t {
  Tensor,
  TensorList,
  OptionalTensorList,
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  BoolList,
  Scalar,
  ScalarList,
  OptionalScalarList,
  String,
  Device,
  DType,
  Layout,
  MemoryFormat,
  Generator,
  Other
};
ArgKind kind_of(const c10::TypePtr& schema_type);

ir::Arg to_arg(const c10::IValue& v, ArgKind kind,
               const std::function<ir::Arg(const at::Tensor&)>& tensor);
c10::IValue to_ivalue(const ir::Arg& a, ArgKind kind,
                      const std::function<at::Tensor(ir::ValueId)>& tensor);

// Positions of the tensors and lists of tensors that an op writes. Nothing where it writes none, or
// in a way that we do not model (a result that aliases an argument, an op of torch itself).
std::vector<size_t> written_arguments(const c10::FunctionSchema& schema);
// Whether an element of both may be one in memory (mutable_ops.cpp): at any sizes that symbols may
// stand for, or at their hints.
bool may_share_elements(const at::Tensor& a, const at::Tensor& b, bool at_hints = false);

// The argument with what `f` gives in the place of each tensor; one without tensors as it is.
template <class F>
c10::IValue map_tensors(const c10::IValue& v, F&& f) {
  if (v.isTensor()) return f(v.toTensor());
  if (v.isTensorList()) {
    std::vector<at::Tensor> out = v.toTensorVector();
    for (at::Tensor& t : out) t = f(t);
    return out;
  }
  if (!v.isOptionalTensorList()) return v;
  c10::List<std::optional<at::Tensor>> out;
  for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
    out.push_back(t ? std::optional<at::Tensor>(f(*t)) : t);
  return out;
}

// Each tensor in it that is defined.
template <class F>
void for_each_tensor(const c10::IValue& v, F&& f) {
  map_tensors(v, [&](const at::Tensor& t) {
    if (t.defined()) f(t);
    return t;
  });
}

// The number in a zero-dimensional tensor that takes part in type promotion as a Python number
// does.
ir::Arg number_of(const at::Tensor& wrapped);
ir::Arg to_arg(const c10::Scalar& s);

// "aten.add.Tensor" of a schema's name and overload; "default" where the overload has no name.
std::string target_of(const c10::OperatorName& name);
// The op of a target; Unsupported when the dispatcher does not have it.
c10::OperatorHandle find_op(const std::string& target);

}  // namespace oxy::bridge
