// Arguments between torch's dispatcher (IValue) and the IR (ir::Arg), led by the op's schema: an
// IValue alone does not tell a dtype from a number.
//
// Constants of the IR have 63 bits. The two ends of int64, which stand for "no bound" in slices,
// are written as the two ends of 63 bits and read back exactly; other numbers beyond that range are
// Unsupported. A number passed where the schema wants a tensor (x + 1) is a number in the IR too.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

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

int64_t encode_int(int64_t v);
int64_t decode_int(int64_t v);

// A zero-dimensional tensor that takes part in type promotion as a Python number does.
at::Tensor wrapped_number(const c10::Scalar& s);
// The number in such a tensor.
ir::Arg number_of(const at::Tensor& wrapped);
ir::Arg to_arg(const c10::Scalar& s);
c10::Scalar to_scalar(const ir::Arg& a);

// "aten.add.Tensor" of a schema's name and overload; "default" where the overload has no name.
std::string target_of(const c10::OperatorName& name);
// The op of a target; Unsupported when the dispatcher does not have it.
c10::OperatorHandle find_op(const std::string& target);

}  // namespace oxy::bridge
