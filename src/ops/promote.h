// Dtypes of element-wise ops: which one operands are brought to, as torch.result_type says, and
// rounding to the values of one.
#pragma once

#include <optional>

#include "ops/args.h"

namespace oxy::ops {

// The dtypes that loops compute with: real numbers of the usual widths, and bool.
bool is_computable(DType d);
// Those, and the f8 kinds, which are converted from and to f32.
bool is_converted(DType d);

// The smaller dtype that holds both; nothing for a dtype that is not computable.
std::optional<DType> promote(DType a, DType b);

// Half precision is computed in f32.
inline DType opmath(DType d) { return ir::is_reduced_float(d) ? DType::F32 : d; }

// The value of floating dtype `d` nearest to `v`, ties to even; fp16 and bf16 are rounded through
// f32, as eager does. `v` itself for other dtypes.
double round_to(double v, DType d);
// The integer `v` cut to the width of `d`; bool keeps whether it is not 0.
int64_t wrap_to(int64_t v, DType d);

// Tensors with dimensions outrank tensors without, which outrank numbers: a lower class counts only
// where its kind (bool, integer, floating) is higher. A floating-point number counts as f32,
// torch's default dtype; under another one the recorder sees to it (OpRecorder::set_default_dtype).
class ResultType {
 public:
  void add_tensor(const ir::TensorType& t);
  // Adds argument i, tensor or number; false where it is neither.
  bool add(const Args& args, size_t i);
  std::optional<DType> result() const;

 private:
  struct Class {
    std::optional<DType> dtype;
    bool unknown = false;
    void add(DType d);
  };
  Class dimensioned_, scalars_, numbers_;
};

}  // namespace oxy::ops
