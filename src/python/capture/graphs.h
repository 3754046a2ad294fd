// The graphs that a capture makes, with their recordings; what goes into them and what comes out.
#pragma once

#include <functional>

#include "python/capture/break.h"
#include "python/capture/heap.h"
#include "python/capture/rebuild.h"
#include "python/replay.h"

namespace oxy::python {

// A graph inside of the graph that a capture makes (inner_graphs.cpp).
struct InnerGraph {
  InnerGraph(size_t number, InnerGraph* around, const bridge::Recorder& recorder_around)
      : number(number), around(around), recorder(options_of_region(recorder_around)) {
    if (recorder.facts()) ir->graph.pool = ir->recorded_pool = recorder.pool();
  }
  const size_t number;  // from 1
  InnerGraph* const around;
  std::shared_ptr<TorchIr> ir = std::make_shared<TorchIr>();
  bridge::Recorder recorder;
  std::unordered_map<PyObject*, py::object> lifted;  // tensors of the graph around it: their inputs
  std::vector<py::object> given;                     // to the inputs, in the graph around it
};

// What there have been of writes to the memory of a tensor of a recording: by its version, which
// `data` does not share, and by the updates that functionalisation keeps.
std::pair<uint32_t, size_t> writes_to(const at::Tensor& t);
size_t writes_to_memory(const c10::Storage& storage);  // the updates

// The nodes of autograd's graph behind these, each behind those that it hands gradients to.
std::vector<c10::intrusive_ptr<torch::autograd::Node>> nodes_behind(
    const std::vector<at::Tensor>& roots);

// A result whose history a recorded backward has used up on the way to `inputs`.
struct SpentResult {
  py::object left;  // the same, with the rest of the history
  Arguments inputs;
  bool has_history = false;
};

class Graphs : public Part {
 public:
  explicit Graphs(Capture& capture);
  ~Graphs();

  TorchIr& ir_now();
  py::object lift(const py::object& tensor);
  py::object call_control_flow(std::string_view name, const Arguments& args);
  py::object record(ir::NodeKind kind, const std::string& target, py::handle callable,
                    const Arguments& args, const Keywords& kwargs);
  Done set_mode(const std::string& name, py::handle callable, const Arguments& args,
                const Keywords& kwargs);
  // Ends the capture: plans `values` and what was written, together; the roots of `rebuild` are the
  // values.
  void finish(std::span<const py::object> values);
  // torch.autograd.grad and backward() (gradients.cpp).
  py::object record_gradients(const Arguments& args, const Keywords& kwargs, bool hooks = true);
  py::object record_backward(const py::object& tensors, const py::object& gradients,
                             const py::object& retain, const py::object& create,
                             const py::object& inputs);
  py::object require_gradient(const py::object& tensor, bool wanted);
  py::object detach_in_place(const py::object& tensor);
  void note_leaf(const py::object& made);
  void refuse_made_leaf(py::handle tensor) const;
  py::object* gradient_kept(py::handle tensor);
  void give_data(const py::object& tensor, const py::object& value);
  // min or max of tensors without dimensions and numbers; null where the graph cannot have it.
  py::object extreme(const py::list& items, bool least);
  void note_custom_function(const py::object& results, bool materializes);
  void note_op(const py::object& results);
  // `handle`: what the code has of it.
  void note_hook(const py::object& tensor, const py::object& hook, bool vanishes,
                 const py::object& handle);
  // Of a hook that is registered with the real tensor, once the graph has run.
  // `of_node`: behind those of the tensor, and what it retains.
  void note_late_hook(const py::object& tensor, const py::object& hook, const py::object& handle,
                      bool of_node = false);
  bool has_hooks_of_node(const py::object& tensor) const;
  // Of what a module's backward hooks are of; in eager these are views.
  void note_copies(const py::object& tensors, const py::object& copies);
  void remove_hook(const py::object& handle, const py::object& tensor);
  bool is_done_hook(const py::object& handle) const;
  bool is_removed_hook(const py::object& handle) const;
  void refuse_hook_in_hook() const;
  void refuse_hooks_of_what_is_written() const;
  py::object hooks_of(const py::object& leaf, const char* kind);
  bool retain_gradient(const py::object& tensor);
  // `dicts`: where torch keeps what has the number, one or a list of them, or null.
  void note_hook_id(const py::object& id, const std::array<py::object, 2>& dicts);
  bool has_hook_ids() const { return !hook_ids_.empty(); }
  void refuse_hook_ids(const TracedFrame& f);
  bool has_one_differentiable(const py::object& tensors);
  bool defers_what_torch_sees();
  bool vanish_with(std::pair<size_t, size_t> since, const py::object& gradients,
                   const py::object& results);
  // Behind which node what is recorded comes, in both graphs; and takes away the random numbers
  // that were drawn since.
  std::pair<size_t, size_t> position();
  void forget_draws(std::pair<size_t, size_t> since);
  bool hooks_late = false;          // of tensors: once the graph has run
  bool fullgraph = false;           // a break is an error
  bool in_hook = false;             // code of a hook runs, or is rehearsed
  bool removes_real_hooks = false;  // of results of other graphs, once this one has run
  std::optional<SpentResult> spent_result(const py::object& of);
  std::optional<Arguments> hidden_result(const py::object& of);
  uint32_t fetched(SourceId source);  // position behind the graph's inputs
  // What code can reach and change that the capture has made itself; `written`: also by what was
  // written.
  using Snapshot = std::unordered_map<PyObject*, std::pair<py::object, std::vector<py::object>>>;
  Snapshot snapshot(const Arguments& roots, bool written = true);
  bool is_unchanged(const Snapshot& before, const Snapshot& after);
  // The levels of torch.func (transforms.cpp).
  void enter_transform();
  py::object switch_transform(const std::string& target, const py::object& function,
                              const Arguments& args, const Keywords& kwargs);
  py::object differentiate_by(const py::object& wrapped);
  static void refuse_in_transform(const char* what);
  void refuse_wrapped(const at::Tensor& t) const;

  bridge::Recorder& recorder() { return *recorder_; }
  InnerGraph* inner() const { return inner_; }  // the graph that ops go to; null: the outermost

  std::shared_ptr<TorchIr> ir = std::make_shared<TorchIr>();  // its result: a tuple of tensors
  std::vector<SourceId> fetch;  // of a hit: the graph's inputs, then what `rebuild` refers to
  size_t input_count = 0;
  std::vector<py::object> example_inputs;
  std::vector<NumberInput> number_inputs;
  std::optional<ModesAfter> modes_after;  // at the end; null: those in front
  // The graph runs in grad mode, which the captured code does not begin in but switches on: its
  // results may require gradients.
  bool turns_grad_on = false;
  std::map<size_t, std::string> left_alone;  // what LeftAlone said
  std::string why_left_alone;                // of the choice that comes next
  // Its roots: the result, or the values of the left frames' states behind each other.
  Rebuild rebuild;
  // Whether it matters where in its storage an input begins, and where those that share one do.
  // Known once the capture has ended.
  bool offsets_matter = false;
  std::vector<const void*> written_storages;  // of inputs that the graph changes

 private:
  // A user's stack by its numbers in both graphs.
  struct StackIds {
    UserStack stack;
    ir::StackId torch, aten;
  };

  struct Captured {
    py::object result;
    std::string form;  // of the result
    std::shared_ptr<TorchIr> ir;
    bridge::RecordedRegion recorded;
    std::vector<ir::TensorType> results;
    std::vector<py::object> given;  // to its inputs
  };

  // A leaf of autograd that the captured code has made.
  struct MadeLeaf {
    py::object gradient;  // by a backward that was recorded, or None
    Place place;
  };

  using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;

  // A call of an autograd.Function of the user's.
  struct CustomFunction {
    NodePtr node;  // null: none that the outermost level has
    Place place;
    bool materializes;  // its backward gets zeros for undefined gradients
    bool has_several;   // results with gradients
  };

  // Of an op from outside torch, with a backward in Python.
  struct CustomOp {
    NodePtr node;
    Place place;
  };

  // A hook that is in the graph.
  struct Hook {
    NodePtr node;
    py::object hooked, handle;
    Place place;
    bool vanishes;  // what it gives is undefined where what it gets is
    py::object hook;
    bool removed = false;
  };

  // One that is registered once the graph has run.
  struct LateHook {
    NodePtr node;
    py::object hooked, hook, handle;  // no hook: of retain_grad
    Place place;
    uint32_t version;  // of the tensor
    bool of_node;
    bool done = false;  // a backward of the code has called it, and used its graph up
    bool removed = false;
  };

  // In the place of a view: of what would share memory none is written, and only one lives on.
  struct Copied {
    at::Tensor tensor, copy;
    size_t writes, writes_to_copy;
    Place place;
  };

  // A view with a history.
  struct View {
    c10::intrusive_ptr<torch::autograd::Node> node;
    std::vector<size_t> steps;
  };

  // A leaf of before the call whose `requires_grad` the code has changed.
  struct ChangedLeaf {
    py::object tensor;
    bool before;
    Place place;
  };

  struct Autocast {
    ir::ValueId value;  // what `_enter_autocast` gave
    TorchModes before;
  };

  bridge::Recorder& recorder_now();
  std::vector<at::Tensor> tensors_given(const py::object& o);
  std::vector<at::Tensor> tensors_in(const py::object& o);
  void renew_history(const at::Tensor& t);
  Arguments items(const py::object& tensors);
  void spend(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& inputs);
  std::vector<py::object> leaves_behind(const std::vector<at::Tensor>& roots);
  py::object behind_input_hooks(const Arguments& inputs, const py::object& gradients,
                                bool creates_graph);
  void refuse_native_hooks(const py::object& leaf);
  void change_leaf(const py::object& tensor, bool wanted);
  void change_real_leaves();
  void detach_real_inputs();
  void restore_leaves(const std::vector<at::Tensor>& outputs);
  void refuse_custom_functions(const std::vector<at::Tensor>& outputs);
  void refuse_late_hooks(const std::vector<at::Tensor>& outputs);
  void note_view(const at::Tensor& t);
  void refuse_views(const std::vector<at::Tensor>& outputs);
  void refuse_copies(const std::vector<at::Tensor>& outputs) const;
  Arguments late_hooked(const std::vector<at::Tensor>& roots,
                        std::optional<std::vector<at::Tensor>> by = {});
  py::object call_hooks(const char* function, const py::object& hooks, const py::object& given);
  py::object call_late_hooks(const py::object& tensor, const py::object& gradient, bool runs);
  void end_late_hooks(const Arguments& tensors);
  void keep_retained();
  void keep_data();
  void read_data_late(const std::vector<at::Tensor>& outputs);
  void refuse_data() const;
  void refuse_extremes(const std::vector<at::Tensor>& outputs) const;
  py::object record_in_pieces(
      const Arguments& roots, Arguments gradients, const Arguments& by, bool frees,
      const Arguments& stops,
      const std::function<py::object(const py::object&, const py::object&, bool)>& at_stop);
  void watch(torch::autograd::Node& node);
  void refuse_raising_functions(const std::string& why) const;
  void refuse_sparse_calls(const std::string& why) const;
  static void refuse_changed(const LateHook& h);
  void refuse_removed(const std::vector<at::Tensor>& roots) const;
  at::Tensor taker_of_gradients(const at::Tensor& output, const std::vector<at::Tensor>& outputs);
  py::object as_gradient_of(const py::object& leaf, const py::object& gradient,
                            std::unordered_set<const c10::StorageImpl*>& seen);
  py::object lifted(const py::object& o);
  py::object lift_around(const py::object& tensor);
  py::object add_inner_input(const py::object& outside);
  void tensors_in(const py::object& tree, std::vector<py::object>& leaves, std::string& form);
  py::object with_tensors(const py::object& tree, const py::list& leaves, size_t& next);
  void finish_inner(const std::vector<py::object>& leaves, bool gradients, Captured& out);
  Captured capture_inner(const py::object& function, Arguments args, bool fresh);
  Arguments items_of_call(const py::object& sequence);
  py::object record_regions(const char* op, const Arguments& front, size_t carried,
                            std::array<Captured, 2> regions, const py::object& form);
  py::object tensor_of_truth(const py::object& truth);
  py::object choose_in_graph(const Arguments& args);
  py::object repeat_in_graph(const Arguments& args);
  py::object meet_blocks_in_graph(const Arguments& args);
  void note_results(py::handle result, ir::ValueId value);
  StackIds stack_ids(const UserStack& stack);
  struct PlainFloat {  // for a number that varies
    py::object number, stand_in;
    ir::ValueId value;
  };
  PlainFloat as_plain_float(const py::object& number);
  template <Literal module, Literal name>
  ir::ValueId add_mode_call(std::vector<ir::Arg> args);
  bool keeps_autocast_of(std::string_view name, const py::object& device, const py::object& value);
  void guard_autocast_nesting();
  void write_storage_of(py::handle input);
  void bring_graph_to(const TorchModes& modes);
  void end_modes();
  void begin_in_grad_mode();
  static void drop_unused_items(TorchIr& ir);
  // `cuts`: what is left of the history leads no longer to what was freed.
  std::optional<SpentResult> find_spent(const at::Tensor& t, bool cuts);
  void spend_written_inputs();
  void refuse_led_to(const std::vector<at::Tensor>& outputs) const;
  void finish_recording(const std::vector<at::Tensor>& outputs,
                        const std::map<size_t, sym::Expr>& numbers);

  // Nodes of autograd that a recorded backward has run; where others led to them (spent_result).
  std::unordered_map<const torch::autograd::Node*, c10::intrusive_ptr<torch::autograd::Node>>
      spent_;
  std::unordered_map<const torch::autograd::Node*,
                     std::vector<c10::intrusive_ptr<torch::autograd::Node>>>
      cut_off_;
  const py::dict hidden_results_;
  std::vector<at::Tensor> hidden_;  // with their histories (hidden_result)
  // Written inputs whose new history is used up: the graph leaves them without one.
  std::vector<at::Tensor> spent_inputs_;
  std::unordered_map<PyObject*, MadeLeaf> made_leaves_;
  std::vector<ChangedLeaf> changed_leaves_;
  std::unordered_set<PyObject*> changed_;                      // their tensors
  std::map<uint32_t, std::pair<py::object, Place>> detached_;  // inputs, in place; by source
  std::vector<py::object> hook_ids_;  // in the place of the numbers of handles
  Arguments hook_dicts_;              // whose keys these may be
  // Gradients of tensors that retain them, or None.
  std::unordered_map<PyObject*, py::object> retained_;
  std::vector<Copied> copied_;
  std::vector<View> views_;
  std::vector<CustomFunction> custom_functions_;
  std::vector<CustomOp> custom_ops_;
  std::vector<Hook> hooks_;
  std::vector<LateHook> late_hooks_;
  std::optional<Place> sparse_call_;  // the first one
  // Of functions and ops, the node that a backward is in.
  const std::shared_ptr<const torch::autograd::Node*> running_ =
      std::make_shared<const torch::autograd::Node*>(nullptr);
  struct DataGiven {  // by an assignment to `data`, the first one
    py::object tensor;
    c10::Storage memory;  // that it came with
    sym::Expr offset = 0;
    Place place;
  };
  std::vector<DataGiven> data_given_;
  // In the place of one of the tensors and numbers that it was chosen of.
  std::vector<std::pair<at::Tensor, Place>> extremes_;
  std::set<ir::NodeId> draws_;  // calls that drew random numbers
  std::unordered_map<SourceId, uint32_t> fetched_;
  std::unordered_map<const void*, StackIds> stack_ids_;  // by UserStack::id
  std::unique_ptr<bridge::Recorder> recorder_;
  const GlobalState state_;          // in front
  bool recorded_all_ = true;         // every op that was heard belongs to a node of `ir`
  TorchModes graph_modes_;           // at the graph's end so far
  std::vector<Autocast> autocasts_;  // that the graph stands in
  int autocast_nesting_ = 0;         // by which it has changed
  bool nesting_guarded_ = false;
  bool casts_end_ = false;  // the outermost context of autocast has, but the graph does not know
  Place transforms_;        // where the outermost ones have begun; the last one's stack
  InnerGraph* inner_ = nullptr;      // the graph that ops go to; null: `ir`
  bool gives_itself_ = false;        // what a branch gives is no copy
  std::vector<size_t> inner_steps_;  // by number: the step of the outermost choice or loop
};

}  // namespace oxy::python
