// What a recording has made so far: the ATen graph, and the value that each of its tensors stands
// for. Fakes are the tensors below functionalisation, wrappers those above.
//
// Functionalisation makes values of all writes and views; what the caller is to see of them goes
// beside the graph in the end: which inputs change (ir::Mutation), and which memory each result
// lies in (ir::OutputSpec).
#pragma once

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/edge.h>

#include <unordered_set>

#include "ir/graph.h"
#include "torch_bridge/fake_tensor.h"
#include "torch_bridge/symbolic_shapes.h"

namespace oxy::bridge {

class OpRecorder;
struct Gradients;
struct RecordedRegion;

// An input or an attribute.
struct RecordedSource {
  at::Tensor real, wrapper;
  ir::ValueId value;
  torch::autograd::Edge edge;  // where gradients by it arrive, if it requires them
  bool fresh = false;          // a constant made inside the recording: nobody else holds it
  at::Tensor memory;           // what it came with, where it has been given other data
  const at::Tensor& came_as() const { return memory.defined() ? memory : wrapper; }
};

class Recording {
 public:
  using NumberOf = std::function<std::optional<c10::Scalar>(const at::Tensor&)>;
  // `around`: of the recording of a branch or loop, whose symbols it shares.
  Recording(bool symbolic, NumberOf symbolic_number, const Recording* around = nullptr);
  ~Recording();
  C10_DISABLE_COPY_AND_ASSIGN(Recording);

  ir::Graph graph{ir::Stage::Aten};
  std::vector<RecordedSource> inputs, attributes;
  std::optional<SymbolicShapes> shapes;                      // of a recording with symbolic sizes
  std::unordered_map<ir::ValueId, ir::ValueId> computed_of;  // of written values laid out again
  // Of written inputs whose memory in the graph lacks gaps' contents, or begins elsewhere than
  // eager's.
  std::unordered_set<const c10::StorageImpl*> rebuilt;
  std::unordered_set<const c10::TensorImpl*> admitted;  // see Recorder::admit
  bool names_places = false;                            // see Recorder
  // What Tensor.data has given: versions of their own.
  std::vector<at::Tensor> unseen;
  // Memory with a view by as_strided, which reads gaps.
  std::unordered_set<const c10::StorageImpl*> strided;
  // Splits that autograd does not know: their parts have memory of their own here, and in eager
  // that of what was split. How many nodes there were when a part was first written.
  std::unordered_map<ir::NodeId, std::optional<size_t>> unsafe_splits;
  std::exception_ptr failure;                                     // of ours, the first one
  std::vector<ir::NodeId> without_grad;                           // see Gradients
  std::vector<std::pair<ir::ValueId, ir::ValueId>> kept_history;  // the same
  std::string no_second_order;                                    // the same
  bool is_in_try = false;                                         // see Recorder::set_in_try
  std::vector<ir::NodeId> in_try;
  // Gradients that are sparse tensors when the graph runs, which no op but the one that made them
  // has, and the fakes of what they consist of (undefined where only the op knows).
  struct Sparse {
    at::Tensor indices, values;
  };
  std::unordered_map<ir::ValueId, Sparse> sparse;
  // Of the caller.
  const bool inference = c10::InferenceMode::is_enabled(), grad = c10::GradMode::is_enabled();

  // See Recorder.
  const RecordedSource& add_input(const at::Tensor& real, const std::string& name,
                                  std::span<const DynamicDim> dynamic_dims);
  void add_number(ir::Expr value, const std::string& name);
  RecordedSource& attribute(const at::Tensor& real, const std::string& name);
  // A constant of the recording.
  RecordedSource& constant(const at::Tensor& real) {
    return attribute(real, cat("constant", attributes.size()));
  }
  // What an op has met that the recording has not made: a constant or attribute that it has.
  RecordedSource& met(const at::Tensor& real);

  at::Tensor new_fake(const ir::TensorType& type, const c10::Storage* storage = nullptr) const;
  at::Tensor another_fake(ir::ValueId v);
  // A fake in the place of another tensor, fake or not.
  at::Tensor like(const at::Tensor& t) const;
  // The same memory and value under other marks.
  at::Tensor marked(const at::Tensor& fake, LazyMarks marks);
  at::Tensor marked_as_zero(const at::Tensor& fake);  // torch._efficientzerotensor
  // Whether grad mode is on, and something that enters requires gradients.
  bool may_need_gradients() const;
  // From now on the fake stands for this value. It lives as long as the recording, so that its
  // address names it.
  void bind(const at::Tensor& fake, ir::ValueId v);
  const ir::ValueId* find(const c10::TensorImpl* fake) const;
  ir::ValueId value_of(const at::Tensor& fake) const;
  ir::Arg arg_of(const at::Tensor& t);
  // The value in front of the graph, of a tensor from outside of it.
  std::optional<ir::ValueId> entering(const at::Tensor& wrapper) const;

  // Position of what runs next: its stack and the Torch node it comes from.
  void set_position(ir::StackId stack, ir::NodeId torch_node);
  // From now on that of the call whose gradient autograd's engine computes.
  void begin_backward() { in_backward_ = true; }
  ir::Node& add_call(ir::NodeKind kind, const std::string& target, std::vector<ir::Arg> args,
                     std::vector<ir::Type> types);
  // New facts may say more of sizes recorded before.
  void simplify_sizes();

  // A write below functionalisation: told to the wrapper of an input; of a tensor made in the
  // recording, no view may be left that would not see it.
  void write_back(const at::Tensor& old, const at::Tensor& now);
  // Refuses a write to memory that others see, too.
  void check_write(const at::Tensor& wrapper);
  // Unsupported where somebody would see what was written to a part of an unsafe split.
  void check_written_splits() const;
  [[noreturn]] void give_up(const char* why);

 private:
  RecordedSource make_source(const at::Tensor& real, const std::string& name, bool is_input,
                             std::span<const DynamicDim> dynamic_dims);
  std::string print_position() const;

  const NumberOf symbolic_number_;
  const bool owns_facts_;
  std::unordered_map<const c10::TensorImpl*, ir::ValueId> values_;   // of fakes; never walked
  std::vector<at::Tensor> kept_;                                     // every fake
  std::unordered_map<const c10::TensorImpl*, size_t> attribute_of_;  // of real tensors
  size_t facts_applied_ = 0;
  struct Position {
    ir::StackId stack;
    ir::NodeId parent;
  };
  Position position_;
  bool in_backward_ = false;
  std::unordered_map<uint64_t, Position> position_of_;  // by sequence number of autograd's nodes
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

// Where gradients by a fake arrive that stands for a tensor which requires them. The fake of one
// that is no leaf is none either: it may be written in place.
torch::autograd::Edge require_gradients(const at::Tensor& wrapper, bool leaf);

// See Recorder::add_regions.
std::vector<at::Tensor> add_regions(Recording& r, const std::string& op,
                                    std::vector<at::Tensor> args,
                                    std::vector<RecordedRegion> regions);
// Gives, by mutation, what add_outputs gives by output.
std::vector<at::Tensor> add_mutations(Recording& r, OpRecorder& ops, bool gradients);
// Gives, by output, the tensor by which gradients enter it; undefined where it does not require
// any. `gradients`: false refuses results that do.
std::vector<at::Tensor> add_outputs(Recording& r, OpRecorder& ops,
                                    const std::vector<at::Tensor>& results, bool gradients);
// Adds the views among the results that others are computed of (`required`: by output), which are
// returned. `written`: what add_mutations has given.
std::vector<uint32_t> add_roots_of_views(const Recording& r, const std::vector<at::Tensor>& results,
                                         const std::vector<bool>& required,
                                         const std::vector<at::Tensor>& written,
                                         std::vector<at::Tensor>& roots);
// Runs autograd's engine from these roots and makes a joint graph of the recording. Unsupported for
// a backward that cannot be recorded, or raises.
void add_backward(Recording& r, OpRecorder& ops, const std::vector<at::Tensor>& of_outputs,
                  const std::vector<at::Tensor>& of_mutations, Gradients& gradients);

}  // namespace oxy::bridge
