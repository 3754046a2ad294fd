// Records what a computation does below autograd and functionalisation, on tensors without data.
//
// A Recorder makes fakes for the inputs, wrapped by ATen's Functionalize key; is entered; hears
// every ATen op that runs under it; and is closed with the results, which gives the ATen graph. See
// ARCHITECTURE.md, "Recording".
//
// Anything that cannot be recorded ends in an exception, which torch may turn into a Python one on
// its way; `failure` then is the one that it was. The thread's state (modes, dispatch keys, grad
// mode) is as before behind `Entered`.
#pragma once

#include <map>

#include "torch_bridge/autocast_cache.h"
#include "torch_bridge/interpreter_vtable.h"
#include "torch_bridge/op_recorder.h"
#include "torch_bridge/reached_results.h"
#include "torch_bridge/scalar_program.h"

namespace oxy::bridge {

// How many ops the recordings of this thread have heard, how many of them draw random numbers, and
// how many may have a sparse gradient.
struct Heard {
  size_t ops = 0, draws = 0, sparse = 0;
};
Heard heard();

// What autograd is told of the results of a joint graph.
struct Gradients {
  std::vector<uint32_t> outputs;    // the outputs that tangents are gradients by, in their order
  std::vector<uint32_t> mutations;  // the mutations that those behind them are gradients by
  size_t count() const { return outputs.size() + mutations.size(); }  // of tangents
  std::vector<std::string> names;  // by tangent: of the node of eager's graph
  // Results are numbered as the tangents. What comes to one by others is added to its tangent, by
  // the only reader of that.
  ReachedResults reached;
  // Inputs, in the order in which the engine of eager's graph comes to where their gradients go.
  std::vector<uint32_t> order;
  // By input, and behind these by output: whether the gradients' formulas read it itself, beside
  // that of the op that has made an output. Of others eager keeps views, casts or what the op gave.
  std::vector<bool> read;
  // By input: the dimensions of a leaf's gradient as autograd computes it, from the innermost one
  // outwards, where the leaf's layout is another one; else empty. `gap`: how far it steps over what
  // is inside of it, in wholes of that; 0 where it is expanded.
  struct Dim {
    size_t dim;
    int64_t gap = 1;
  };
  std::vector<std::vector<Dim>> orders;
  // Outputs, of these, that are views beside what is computed of them: for gradients by them, which
  // are those of their places.
  std::vector<uint32_t> views;
  // By output: whether it requires gradients. A view that does not, of what does, is detached.
  std::vector<bool> required;
  std::vector<uint32_t> shown;  // outputs at which all that arrives has to be seen
  size_t forward_nodes = 0;     // of the graph, in front of the backward's
  // Those of them that were recorded without grad mode: what they give has no history.
  std::vector<ir::NodeId> without_grad;
  // Values that tensors were given without grad mode, and those whose history they have kept.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> kept_history;
  // Why autograd's graph of the gradients is not that of the joint graph's ops; empty: it is.
  std::string no_second_order;
  // Of a caller without grad mode whose graph has switched it on: what was recorded without it says
  // so, and results are made in it.
  bool turns_grad_on = false;
};

// The recording of a region: its inputs are the operands of the node that it is for. Of a branch
// whose results require gradients, a joint graph.
struct RecordedRegion {
  ir::Graph graph{ir::Stage::Aten};
  std::vector<at::Tensor> attributes;  // the real tensors behind its attributes
  Gradients gradients;
};

// Whether the op behind the node gives vectors that are known up to a phase alone: eager refuses a
// loss that depends on it, which a recording cannot tell.
bool gives_complex_vectors(const torch::autograd::Node& n);
// Whether it decomposes singular vectors again, as a recorded gradient of a determinant's gradient
// does: their singular values are all 1, and the vectors of these have no derivative.
bool is_of_vectors(const torch::autograd::Node& n);
// A backward of the user's, or of an op, has raised where a joint graph was recorded.
struct BackwardRaises : Unsupported {
  using Unsupported::Unsupported;
};

// Calls a function without Python's lock, which autograd's engine wants nobody to hold. What Python
// code has raised comes back as BackwardRaises.
using Unlocked = void (*)(const std::function<void()>&);
void set_unlocked(Unlocked unlocked);

class Recorder {
 public:
  struct Options {
    // false: every shape from torch's meta kernels (for the test that compares both)
    bool shape_rules = true;
    // What Python code sees on the stack of dispatch modes while the recording runs.
    PyObject* mode_object = nullptr;
    KeptCasts kept_casts = kept_casts_now();
    // Sizes may be symbols: those of the inputs' dimensions that the caller names.
    bool symbolic = false;
    // Also numbers that are read of tensors, and sizes that depend on data.
    OfData of_data;
    // Then: the number behind a tensor that torch made of a symbolic one, whose own value says
    // nothing.
    Recording::NumberOf symbolic_number;
    // Of a branch or loop: the recording that it is in, whose symbols and facts it shares.
    const Recorder* around = nullptr;
  };
  explicit Recorder(Options options);
  ~Recorder();
  C10_DISABLE_COPY_AND_ASSIGN(Recorder);

  // A fake that stands for a real input: same metadata and requires_grad. A tensor that comes twice
  // is two inputs that share memory. Unsupported for what cannot be recorded (sparse, quantized, a
  // subclass). `dynamic_dims`: what is symbols.
  at::Tensor add_input(const at::Tensor& real, const std::string& name,
                       std::span<const DynamicDim> dynamic_dims = {}) {
    return recording_.add_input(real, name, dynamic_dims).wrapper;
  }
  // One for a tensor of the recording around.
  at::Tensor add_operand(const at::Tensor& outside, const std::string& name) {
    return recording_.add_input(recording_.like(outside), name, {}).wrapper;
  }
  // A tensor without dimensions that holds a number: ops that take a Scalar take it too, where
  // their rules allow it.
  at::Tensor add_runtime_number(const at::Tensor& real, const std::string& name);
  // Whether an op has had the plain float that stands for such a number.
  bool is_placed(const at::Tensor& number) const;
  // From now on ops may take this tensor without dimensions, which the computation has made, where
  // they take a Scalar; with `like`, plain floats too: a double of its sign and magnitude stands
  // for the number there.
  void allow_number(const at::Tensor& t, std::optional<double> like = {});
  // From now on the integer in this tensor may be read, whatever else of data may.
  void allow_read(const at::Tensor& t);
  // How a tensor without dimensions is computed of one input, where that is simple arithmetic.
  std::optional<ScalarProgram> scalar_program(const at::Tensor& t) const;
  const at::Tensor& input(size_t i) const { return recording_.inputs.at(i).real; }
  // Results require gradients although no op ran in grad mode.
  void note_grad_mode() { ops_.note_grad_mode(); }
  // An input that is not a tensor: its position counts, its value is taken as constant.
  void add_number(int64_t value, const std::string& name) { recording_.add_number(value, name); }
  // One whose value is a symbol: that of the sizes of a group with this value (0 and 1 are
  // constants), or one of its own. What the computation sees of it.
  c10::SymInt add_symbolic_number(int64_t hint, const std::string& name,
                                  const std::optional<std::string>& group);
  // A tensor that is no input (a module's attribute): lifted as an attribute; the same tensor gives
  // the same fake.
  at::Tensor add_attribute(const at::Tensor& real, const std::string& name) {
    return recording_.attribute(real, name).wrapper;
  }
  // A tensor that becomes an attribute where an op meets it; who calls this guards which one it is.
  void admit(const at::Tensor& real) { recording_.admitted.insert(real.unsafeGetTensorImpl()); }

  // The recording will meet this op ("mylib::foo"): if it writes to its arguments, it is made
  // functional.
  void expect_op(const std::string& name);

  // The function or method of torch that runs next, and whether it was given out=. If its result
  // goes into an argument of a dtype that eager would not convert to, it is refused
  // (functionalisation converts to any); with out= every conversion is.
  void expect_write(std::string_view function, bool out) { ops_.expect_write(function, out); }

  // Takes away the random numbers that were drawn behind the first `from` nodes, with what was
  // computed of them: nothing of it may be in use.
  size_t node_count() const { return recording_.graph.order().size(); }
  void forget_draws(size_t from);
  // Whether what the nodes behind the first `from` have made of these gradients is undefined where
  // they are (autograd::vanish_with).
  bool vanish_with(size_t from, const std::vector<at::Tensor>& gradients,
                   const std::vector<at::Tensor>& results) const;

  // While it lives, the thread records.
  class Entered {
   public:
    explicit Entered(Recorder& r) : recorder_(r) { r.enter(); }
    ~Entered() { recorder_.leave(); }
    C10_DISABLE_COPY_AND_ASSIGN(Entered);

   private:
    Recorder& recorder_;
  };

  // The outermost context of autocast ends.
  void clear_casts() { casts_.clear(recording_.graph); }
  // Behind a call that may have entered and left contexts of its own.
  void end_autocasts();
  // Whether clear_casts would leave a trace: there are casts that it drops, or those of the caller.
  bool has_casts() const { return casts_.any(); }
  KeptCasts casts_in_regions() const { return casts_.in_regions(); }

  // Position of what runs next: its stack and the Torch node it comes from.
  void set_position(std::vector<ir::Frame> stack, ir::NodeId torch_node) {
    set_position(recording_.graph.add_stack(std::move(stack)), torch_node);
  }
  void set_position(ir::StackId stack, ir::NodeId torch_node) {  // of add_frame
    recording_.set_position(stack, torch_node);
  }
  // Whether the code may deal with what the ops that come next raise: they are called also where
  // nobody reads what they give.
  void set_in_try(bool in_try) { recording_.is_in_try = in_try; }
  ir::StackId add_frame(ir::StackId caller, ir::Frame innermost) {
    return recording_.graph.add_frame(caller, std::move(innermost));
  }

  // A branch, loop or checkpoint (ir/graph.h) of these tensors, and what it gives. Constants
  // of the regions become operands. Unsupported for a region that writes to an operand, draws
  // random numbers or gives what shares memory.
  std::vector<at::Tensor> add_regions(const std::string& op, const std::vector<at::Tensor>& args,
                                      std::vector<RecordedRegion> regions);

  // Whether the recording made this tensor (or it is undefined). Anything else came from code that
  // it did not hear.
  bool owns(const at::Tensor& t) const;
  // What `Tensor.data` gives: autograd does not see that it is written.
  void set_unseen(const at::Tensor& t);
  // In front of `input.data = value`, after which the input has the memory of another tensor.
  void keep_memory(const at::Tensor& input);
  // Makes data access on tensors that a torch function has just returned throw.
  void seal(const at::Tensor& t) const { forbid_data(t); }

  // The first exception of ours while an op was recorded: Unsupported, DataDependent or
  // InternalError. Null where torch itself has raised.
  const std::exception_ptr& failure() const { return recording_.failure; }

  // Closes the graph and leaves. `results`: what the computation returned, each tensor object once.
  // The graph's outputs are these, in order, followed by memory that several of them are views of
  // (OutputSpec::ViewOfOutput). In the place of an undefined result stands the number of `numbers`
  // that has its position.
  // `gradients`: null refuses results that require gradients; else, where there are such, the graph
  // is a joint one, and it gets what belongs to it: also for a caller under no_grad.
  ir::Graph finish(const std::vector<at::Tensor>& results,
                   const std::map<size_t, sym::Expr>& numbers = {}, Gradients* gradients = nullptr);
  // The real tensors behind the graph's attribute nodes, in their order.
  std::vector<at::Tensor> attributes() const;
  // What the recording relies on (Options::symbolic), else null.
  std::shared_ptr<sym::ShapeFacts> facts() const {
    return recording_.shapes ? recording_.shapes->facts() : nullptr;
  }
  // Whether an op had a place in memory as an argument (as_strided with an offset): for inputs that
  // begin elsewhere in theirs the recording is another one.
  bool names_places() const { return recording_.names_places; }
  // The tensors that stand for its inputs and attributes.
  std::vector<at::Tensor> sources() const;
  // The pool of the graph's symbols.
  const std::shared_ptr<sym::ExprPool>& pool() const { return recording_.graph.pool; }

 private:
  class ThreadState;

  void enter();
  void leave();  // a second call does nothing

  Recording recording_;
  OpRecorder ops_;
  AutocastCasts casts_;
  std::shared_ptr<Mode> mode_;
  std::unique_ptr<ThreadState> state_;  // while it is entered
  std::unordered_map<std::string, std::vector<c10::RegistrationHandleRAII>> mutable_ops_;
};

}  // namespace oxy::bridge
