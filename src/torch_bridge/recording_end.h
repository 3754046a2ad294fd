// The end of a recording. Functionalisation has made values of all writes and views; what the
// caller is to see of them goes beside the graph: which inputs change (ir::Mutation), and which
// memory each result lies in (ir::OutputSpec).
#pragma once

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <unordered_map>

#include "ir/graph.h"
#include "torch_bridge/lazy_views.h"

namespace oxy::bridge {

// An input or an attribute.
struct RecordedSource {
  at::Tensor real, wrapper;
  ir::ValueId value;
  bool fresh = false;  // a constant made inside the recording: nobody else holds it
};

// What has been recorded. Fakes are those below functionalisation.
struct Recording {
  virtual ~Recording() = default;
  virtual ir::ValueId value_of(const at::Tensor& fake) const = 0;
  virtual at::Tensor another_fake(ir::ValueId v) = 0;
  // A tensor of these marks with the values of `fake`.
  virtual at::Tensor with_marks(at::Tensor fake, LazyMarks wanted) = 0;

  ir::Graph graph{ir::Stage::Aten};
  std::vector<RecordedSource> inputs, attributes;
  std::unordered_map<ir::ValueId, ir::ValueId> computed_of;  // of written values laid out again
  bool grad_mode_seen = false;
  const bool inference = c10::InferenceMode::is_enabled();  // of the caller
};

// Null for a tensor that is not functional.
inline at::FunctionalTensorWrapper* wrapper_of(const at::Tensor& t) {
  namespace functional = at::functionalization::impl;
  return functional::isFunctionalTensor(t) ? functional::unsafeGetFunctionalWrapper(t) : nullptr;
}

inline const c10::StorageImpl* storage_of(const at::Tensor& t) {
  return t.storage().unsafeGetStorageImpl();
}

// The value in the layout that eager would give it: functionalisation rebuilds written tensors,
// which can change their strides.
ir::ValueId laid_out_as(ir::Graph& graph, const ir::TensorType& wanted, ir::ValueId v);

// The input whose memory this is.
std::optional<size_t> input_with_storage(const Recording& r, const c10::StorageImpl* storage);
// Each input is its own memory here: a change of one that others see is not in the graph. Null
// where it may be written.
const char* why_unwritable(const Recording& r, size_t input);
bool may_overlap(const at::Tensor& a, const at::Tensor& b);

void add_mutations(Recording& r);
void add_outputs(Recording& r, const std::vector<at::Tensor>& results);

}  // namespace oxy::bridge
