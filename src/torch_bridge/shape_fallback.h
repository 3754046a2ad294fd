// What an op gives, asked of torch: for ops without a shape rule of ours.
//
// The op runs on meta tensors, below autograd, functionalisation and every mode: a C++ meta kernel,
// a Python one, a custom op's fake implementation, or a composite kernel over those. An op that has
// none of them raises, and the recording ends (the caller runs eager).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "ir/types.h"

namespace oxy::bridge {

// One tensor result. `alias_of`: the argument whose memory it shares (a position among the tensor
// arguments in order, lists flattened), -1 for none.
struct PredictedTensor {
  bool defined = false;
  ir::TensorType type;
  int alias_of = -1;
};
// One return of the schema: tensors (one, or those of a list), or data.
struct PredictedReturn {
  bool is_list = false;
  bool is_tensor = false;
  std::vector<PredictedTensor> tensors;
  c10::IValue data;
};

// `args`: as they came off the stack, fakes for tensors. They are not changed. `sizes_of_data`:
// what the op's fake implementation gets for those that it asks for, in order.
std::vector<PredictedReturn> predict_on_meta(const c10::OperatorHandle& op,
                                             c10::ArrayRef<c10::IValue> args,
                                             std::span<const int64_t> sizes_of_data = {});

// How many sizes of data (torch.library.get_ctx) the op's fake implementation asks for.
size_t sizes_asked_for(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

// Runs what torch.library.register_fake knows of an op on the meta tensors on the stack, and leaves
// the results there. Gives how many sizes of data it asked for, each the next of these; more than
// there are is an exception. 0 also where nothing is known, and then nothing runs.
using RunFake = size_t (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                           std::span<const int64_t> sizes_of_data);
void set_run_fake(RunFake run);

// Where torch's shape rules, which speak of no device, differ from what its CPU kernels give:
// corrects the predicted strides of an op's results. `args`: the fakes that it was called with.
void correct_cpu_layouts(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                         std::vector<PredictedReturn>& returns);

// The ops that it knows.
std::vector<std::string> corrected_ops();

// Of a convolution's gradients whose batch varies: with one thread ATen convolves few images by
// filters of single pixels itself (ConvParams::use_mkldnn), and lays the gradient of such a filter
// out otherwise than oneDNN. Which it does becomes a fact.
void decide_library(c10::ArrayRef<c10::IValue> args, sym::ShapeFacts& facts);

// Runs the backend kernel itself on the fakes: only for ops that read metadata and no data.
void run_on_metadata(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace oxy::bridge
