// Runs a Plan on real tensors.
//
// A call takes a lease (arena, tensors over it, stacks), runs the steps, and commits: inputs are
// written there, or by the last kernels. What results need is made in front of the first write.
// Whatever goes wrong before that leaves no trace, not even in the random generator; the caller
// then runs the graph in eager. Two threads may run one Executable at the same time. No Python, no
// GIL.
#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <atomic>

#include "runtime/code_table.h"
#include "runtime/launch.h"
#include "runtime/memory.h"
#include "support/check.h"
#include "support/fork_mutex.h"
#include "torch_bridge/bound_call.h"
#include "torch_bridge/host.h"
#include "torch_bridge/input_signature.h"

namespace oxy::bridge {

using Outputs = c10::SmallVector<at::Tensor, 4>;

class Backward;
class MeasuredWay;
class BoundRegion;
class BoundSizes;

// Leaves a run that was interrupted (Ctrl-C). No std::exception: nobody takes it for a failure
// after which eager runs.
struct Interrupted {
  std::exception_ptr why;  // what the host's function threw
};
// The host's function, which throws where the program is to stop. Set once, while the library is
// loaded. A long run asks it every few milliseconds: it may have to wait for a lock.
using InterruptPoll = void (*)();
void set_interrupt_poll(InterruptPoll poll);

// How the reason of a run begins that met what its plan relies on not to happen: a check of the
// user's that does not hold, or a size of data that the graph is not for. Eager says what it is.
inline constexpr std::string_view kReliedOn = "the graph relies on ";
// The same of one in which an op has raised, or a kernel has met a number that it does not take.
inline constexpr std::string_view kRaised = "an op raises: ";

// A run that failed when inputs had been written: doing it again in eager would write them twice.
class PartlyWritten : public InternalError {
  using InternalError::InternalError;
};

class Executable {
 public:
  struct Options {
    bool strict = false;  // an extern call whose result is not laid out as predicted is a failure
    runtime::Fence fence = runtime::Fence::Off;
    // The first `own_attributes` of the attributes and the plan's frozen inputs are constants.
    bool frozen = false;
    size_t own_attributes = SIZE_MAX;  // or all of them
    bool offsets = false;              // the recording named places in the memory of inputs
    // By output: whether it requires gradients, where some input does; else empty.
    std::vector<bool> requires_grad = {};
    bool turns_grad_on = false;  // Gradients::turns_grad_on
    bool releases = false;       // callers may give inputs up
  };
  // `example`: inputs the plan was recorded with; those of later calls must look the same.
  // `attributes`: the tensors behind the graph's attributes, then constants that were computed for
  // this plan. Throws InternalError or Unsupported where the plan cannot be run.
  // `code`: what the plan's kernels name.
  Executable(runtime::Plan plan, runtime::CodeTable code, std::vector<at::Tensor> attributes,
             std::span<const Input> example, Options options);
  // A sub-plan of one: its inputs look as it says, so that accepts() is not asked.
  Executable(runtime::Plan plan, const runtime::CodeTable& code, const Options& options);
  ~Executable();

  // Whether these inputs, and the attributes, have the dtypes, sizes and strides that the plan is
  // for.
  bool has_layouts(std::span<const Input> inputs) const;
  // Where results require gradients: what is to be left for their backward. Once, before a call.
  void set_backward(std::shared_ptr<Backward> backward) { backward_ = std::move(backward); }
  const Backward* backward() const { return backward_.get(); }
  // Calls find out whether ATen's ops are faster (measured_way.h). Once, before a call.
  void set_measured_way(std::unique_ptr<MeasuredWay> way);

  // Whether the plan was made for inputs like these.
  bool accepts(std::span<const Input> inputs) const;
  // Whether it matters where in its storage an input begins.
  bool offsets_matter() const { return signature_->options().offsets; }
  // Whether what it takes as constants is what it was. Asked of inputs that it accepts.
  bool is_fresh(std::span<const Input> inputs) const noexcept {
    return !frozen_ || frozen_->unchanged(inputs);
  }

  // One output a PlanOutput; undefined where it is no tensor. An Input output is the input itself.
  // The caller holds references to the inputs. False: nothing has happened, and `reason` says why.
  // `seconds`: gets the time that each kernel step took, 0 where it had nothing to do. `given_up`
  // (Options::releases): the tensors of the inputs, nullptr of a number; each is let go of behind
  // its last reader, also where the run fails later. `thrown`: gets what the run failed by. Throws
  // Interrupted, and nothing has happened then; PartlyWritten, and something has.
  bool run(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
           std::vector<double>* seconds = nullptr, std::span<at::Tensor* const> given_up = {},
           std::exception_ptr* thrown = nullptr);

  // Over before another thread could make use of the time: kernels alone, on little memory.
  // Where sizes vary: as the last call was.
  bool is_brief() const noexcept { return brief_.load(std::memory_order_relaxed); }
  // Whether a step, of a region too, may draw random numbers.
  bool is_random() const noexcept { return random_; }
  const runtime::Plan& plan() const { return plan_; }
  const runtime::CodeTable& code() const { return code_; }
  const Options& options() const { return options_; }
  // Of an output that is a number, from what run() gave for it.
  int64_t number(const at::Tensor& output, const runtime::PlanOutput& o) const;
  // Those of the plan, then its packed weights: what a plan that was saved is loaded with.
  const std::vector<at::Tensor>& attributes() const { return attributes_; }
  // What was worth telling since the last call (layouts that were not as predicted), each said
  // once.
  std::vector<std::string> take_notes();
  bool has_notes() const { return has_notes_.load(std::memory_order_relaxed); }

 private:
  enum class StepKind : uint8_t { Kernel, Extern, Region, Free, View, Sizes, Make, Release };
  struct Step {
    StepKind kind;
    uint32_t index;  // of launches_, calls_, regions_ or sizes_; of the others a buffer
  };
  struct Lease;
  struct Call;

  // Binding, once.
  void check_mutations() const;
  void bind_steps();
  void bind_call(const runtime::ExternStep& step, std::vector<bool>& has_tensor);
  void bind_region(const runtime::RegionStep& step, std::vector<bool>& has_tensor);
  void bind_sizes(const runtime::SizeStep& step, std::vector<bool>& has_tensor);
  void bind_results(std::vector<bool>& has_tensor);
  size_t find_first_write() const;
  void forget_unused_results();
  void need_tensor(uint32_t buffer, std::vector<bool>& has_tensor);
  void need_memory(uint32_t buffer, std::vector<bool>& has_memory);
  void add_releases();
  std::vector<uint32_t> read_by(const Step& step) const;
  void bind_moves();
  uint32_t root(uint32_t buffer) const { return runtime::memory_of(plan_, buffer); }
  const runtime::PlanBuffer& buffer(uint32_t b) const { return plan_.buffers[b]; }
  // Memory that is used again within the call, so that nothing which aliases it may outlive the op
  // that made it.
  bool is_reused(uint32_t b) const;
  void pack_weights(std::span<const Input> example);
  void forget_unused_attributes(size_t first);
  InputSignature::Options signature_options(std::span<const Input> example) const;

  // Running, many times.
  bool run_plan(std::span<const Input> inputs, Outputs& outputs, std::string& reason,
                std::vector<double>* seconds, std::span<at::Tensor* const> given_up,
                std::exception_ptr* thrown);
  void prepare_lease(std::unique_ptr<Lease>& lease, std::span<const Input> inputs);
  std::vector<int64_t> slots_of(std::span<const Input> inputs) const;  // those of layouts_
  std::unique_ptr<Lease> make_lease() const;
  void resize_lease(Lease& lease, bool fresh) const;
  void place_arena(Lease& lease) const;
  void add_arena_tensor(Lease& lease, uint32_t b) const;
  bool can_be_brief(const runtime::SizedPlan& sizes) const;
  void execute(Call& c);
  void begin(Call& c) const;
  void run_kernel(Call& c, const runtime::BoundLaunch& l) const;
  double seconds_of_kernel(Call& c, const runtime::BoundLaunch& l) const;
  int launch_fenced(const Lease& lease, const runtime::BoundLaunch& l) const;
  void run_extern(Call& c, uint32_t number);
  void run_sizes(Call& c, const BoundSizes& sizes);
  void make_output(Call& c, uint32_t b) const;
  void make_scratch(Call& c) const;
  void run_region(Call& c, BoundRegion& region);
  at::Tensor checked(const Call& c, const BoundCall& call, at::Tensor t, uint32_t b);
  bool is_read_by_kernels(uint32_t b) const;
  at::Tensor checked_sparse(const Call& c, const BoundCall& call, at::Tensor t,
                            const runtime::TensorMeta& predicted);
  void make_view(Lease& lease, uint32_t b) const;
  void prepare_results(Call& c, size_t next) const;
  at::Tensor late_copy(Call& c, const at::Tensor& t, const runtime::TensorMeta& m) const;
  void prepare_values(Call& c) const;
  at::Tensor own_value(Call& c, uint32_t b) const;
  void check_writable(const Call& c) const;
  void prepare_writes(Call& c) const;
  std::pair<at::Tensor, int64_t> base_of(const Call& c, const runtime::PlanOutput& o) const;
  bool is_detached(size_t output, const at::Tensor& base) const;
  void make_pieces(Call& c, size_t first) const;
  void make_views_with_gradients(Call& c) const;
  void keep_histories(const Call& c) const;
  void make_view_of_base(Call& c, size_t output) const;
  void make_real_view(Call& c, size_t output) const;
  void make_detached(Call& c, size_t first) const;
  bool is_late(const runtime::PlanOutput& o) const;
  void make_views(Call& c, bool late) const;
  void commit(Call& c) const;
  void bump_versions(const Call& c, bool with_history) const;
  void note(std::string text);

  const runtime::Plan plan_;
  const runtime::CodeTable code_;
  const std::vector<runtime::KernelFn> entries_;
  std::vector<at::Tensor> attributes_;
  const Options options_;
  const runtime::DeviceApi& device_ = torch_cpu();
  const std::unique_ptr<const runtime::SizedPlan> static_sizes_;  // nullptr where sizes vary
  const std::optional<runtime::SizeEvaluator> evaluator_;         // where they do
  const std::optional<runtime::SizeEvaluator> layouts_;           // of inputs and attributes alone
  const std::vector<uint32_t> inputs_read_;                       // whose sizes they depend on
  const std::optional<runtime::SizeChanges> changes_;
  std::vector<BoundCall> calls_;
  std::vector<BoundSizes> sizes_;
  // By call: which of `sizes_` reads its results, -1 for none.
  std::vector<int32_t> sizes_of_call_;
  std::vector<std::unique_ptr<BoundRegion>> regions_;
  std::vector<runtime::BoundLaunch> launches_;
  std::vector<Step> steps_;
  // Arena buffers, and views of them, that need a tensor: made once a lease.
  std::vector<uint32_t> arena_tensors_;
  std::vector<uint32_t> temporaries_;  // buffers whose tensors last until the steps are done
  std::vector<uint32_t> results_;      // those whose tensors are needed after that
  struct Entering {
    uint32_t buffer = 0, input = 0;
    bool written = false, tensor = false;  // a step or the end of the call wants the tensor
  };
  std::vector<Entering> entering_;  // buffers that are inputs
  std::vector<uint32_t> kept_;      // Attribute buffers
  std::vector<uint32_t> cleared_;   // whose tensors are let go of after a call
  // By detached output: the next one that is, for autograd, a view of the same tensor, or the end.
  std::vector<uint32_t> next_detached_;
  std::vector<bool> moved_;  // by output: its tensor is wanted by nobody else
  // The step from which on inputs are written in place: nothing raises any more. Behind the last
  // step where none are.
  size_t first_write_ = 0;
  bool random_ = false;
  std::atomic<bool> brief_{false};
  bool dispatches_ = true;  // false: kernels alone, and results that are new tensors
  std::shared_ptr<Backward> backward_;
  std::unique_ptr<MeasuredWay> measured_way_;
  std::unique_ptr<const FrozenTensors> frozen_;
  std::unique_ptr<InputSignature> signature_, attribute_signature_;
  runtime::LeasePool<Lease> leases_;
  std::atomic<bool> has_notes_{false};
  ForkMutex notes_mutex_;
  std::vector<std::string> notes_, noted_;
};

// A size step, bound: what is read, what is computed of it, and what has other sizes then.
class BoundSizes {
 public:
  // The `number`-th of the plan, from 1.
  BoundSizes(const runtime::Plan& plan, const runtime::SizeStep& step, uint32_t number);

  // Slots are written, the checks asked, and the rest of `sized` laid out. InternalError.
  void update(const std::vector<at::Tensor>& tensors, runtime::SizedPlan& sized) const;
  const std::vector<uint32_t>& numbers() const { return numbers_; }  // buffers that are read
  const std::vector<uint32_t>& sizes() const { return read_; }       // whose sizes are
  const std::vector<uint32_t>& made() const { return made_; }        // buffers to be allocated
  const std::vector<uint32_t>& views() const { return views_; }      // views that are known now

 private:
  const runtime::SizeProgram& program_;
  const runtime::SizeStep step_;
  runtime::SizeChanges changes_;
  std::vector<uint32_t> computed_;  // slots
  std::vector<uint32_t> numbers_, read_, made_, views_;
};

// A branch or a loop of a plan: its sub-plans, run on the tensors of the call around it.
class BoundRegion {
 public:
  BoundRegion(const runtime::Plan& plan, const runtime::RegionStep& step,
              const runtime::CodeTable& code, const Executable::Options& options);

  const std::vector<uint32_t>& operands() const { return step_.operands; }
  const std::vector<int64_t>& results() const { return step_.results; }
  bool is_random() const { return plans_[0]->is_random() || plans_[1]->is_random(); }

  // New tensors, one a result: never an operand, and no two in one memory. `tensors`: by buffer;
  // `slots`: the sizes of the call. An exception where a sub-plan fails, Interrupted from between
  // two rounds of a loop.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& tensors,
                              std::span<const int64_t> slots);
  // What the sub-plans noted.
  std::vector<std::string> take_notes();

 private:
  using Slots = std::span<const int64_t>;
  void run_plan(size_t which, std::span<const at::Tensor> given, Slots slots, Outputs& out);
  void run_loop(std::vector<at::Tensor> now, Slots slots, Outputs& out);
  // See ir/graph.h's block_sparse.
  void run_blocks(std::span<const at::Tensor> given, Slots slots, Outputs& out);

  const runtime::RegionStep step_;
  std::array<std::unique_ptr<Executable>, 2> plans_;
};

}  // namespace oxy::bridge
