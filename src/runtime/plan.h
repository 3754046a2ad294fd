// The Plan: what runs after compilation, as data that can be printed, parsed, saved and loaded. It
// knows no pointer and no graph: its numbers are slots of a size program, its code is named by the
// hash of its text (runtime/code_table.h); src/torch_bridge runs it on real tensors, run_plan.h
// without torch.
//
// One call: read the inputs' metadata again and compare it with `inputs` (a difference means
// another plan or eager); evaluate the sizes; lease an arena; run the steps in order; if one fails
// (an op raises, a kernel's status is not 0) drop everything and run the Torch IR in eager; then
// the commit point: write the mutated inputs, make the outputs, give the arena back.
#pragma once

#include "runtime/size_program.h"
#include "support/content_hash.h"
#include "support/dtype.h"

namespace oxy::runtime {

// A tensor's metadata. Strides and offset count elements.
struct TensorSlots {
  DType dtype = DType::F32;
  Device device;
  std::vector<Slot> sizes, strides;
  Slot offset;
};

struct PlanBuffer {
  enum class Kind : uint8_t { Input, Attribute, Arena, Extern, Output, View };
  Kind kind = Kind::Arena;
  TensorSlots meta;
  uint32_t source = 0;  // Input, Attribute: which; View: the buffer it lies in
  Slot arena_offset;    // Arena: bytes
  Slot bytes;           // of memory it spans, from the start of its storage
  std::string name;
};

// Code that runs: name it, and the numbers of a launch.
struct PlanKernel {
  std::string name;  // unique in the plan
  ContentHash code;
  Slot range;          // Parallel iterations
  Slot grain;          // at least so many a thread
  Slot scratch_bytes;  // a thread
  // Of what it reads and writes, each element once; an epilogue's without the matrix that it finds
  // in the cache. At the hints where sizes vary.
  int64_t moved_bytes = 0;
  // Sizes that the code takes; where there are any, their address is its first buffer.
  std::vector<Slot> parameters;
};

// A kernel gets, for each buffer, the address of the buffer's first element: its index expressions
// count from there, whatever the storage offset is. Of a View it gets the first element of the
// buffer that it lies in.
struct LaunchStep {
  uint32_t kernel = 0;            // entry of Plan::kernels
  std::vector<uint32_t> buffers;  // in the kernel's order
};

// A gemm or a convolution in a kernel of our own, and the kernel that it runs on each
// block that it has finished (codegen/cpp/gemm.h).
struct GemmStep {
  LaunchStep gemm;
  std::optional<LaunchStep> epilogue;
};

struct BufferArg {
  uint32_t buffer = 0;
};
// An argument of an extern call. Integers are slots; the two ends of 63 bits stand for no bound.
struct PlanArg {
  using List = std::vector<PlanArg>;
  std::variant<std::monostate, BufferArg, Slot, double, std::complex<double>, bool, std::string,
               DType, Device, Layout, MemoryFormat, List>
      v;
};
template <class F>
void for_each_buffer(const PlanArg& a, F&& f) {
  if (auto* b = std::get_if<BufferArg>(&a.v)) f(b->buffer);
  if (auto* l = std::get_if<PlanArg::List>(&a.v))
    for (const PlanArg& x : *l) for_each_buffer(x, f);
}

struct ExternStep {
  std::string op;                // "aten.mm.default"
  std::vector<PlanArg> args;     // in the order of the schema
  std::vector<int32_t> returns;  // lengths of returned lists, -1: a single value; empty: all single
  std::vector<int64_t> outputs;  // buffer per output value; -1: not a tensor or not used
  bool random = false;
  uint32_t origin = 0;  // node of the ATen graph, for messages
};

// A sub-plan or two. Each has the operands as its inputs (Cond: without the first one, the
// predicate), behind them numbers (its sizes that vary), and gives its outputs to `results`.
//   Cond: runs plans[0] where the predicate is true, else plans[1].
//   Loop: while plans[0] (the condition, one output of one element) gives true, plans[1] (the body)
//     makes the next values of the first operands, one a result; the other operands stay.
//   Blocks: ir/graph.h's block_sparse, plans[0] for partial blocks and plans[1] for full ones; the
//     first seven operands are no inputs.
struct RegionStep {
  enum class Kind : uint8_t { Cond, Loop, Blocks };
  // Operands in front of those that are inputs of the plans.
  static constexpr size_t front(Kind k) { return k == Kind::Cond ? 1 : k == Kind::Loop ? 0 : 7; }
  Kind kind = Kind::Cond;
  std::vector<uint32_t> plans;  // entries of Plan::regions
  std::vector<uint32_t> operands;
  std::vector<int64_t> results;  // buffers; -1: nobody reads it
  std::vector<Slot> numbers;
};

struct FreeStep {
  uint32_t buffer = 0;
};

// What a plan relies on, and cannot know before a call: where the slot is 0, eager runs.
struct PlanCheck {
  Slot holds;
  std::string what;  // for messages
};

// Reads sizes and numbers of buffers that the steps before it have made. From here on the late
// slots that depend on nothing else are known, and buffers of these sizes have memory.
struct SizeStep {
  std::vector<Slot> reads;  // each is read by one step
  std::vector<PlanCheck> checks;
};
using PlanStep = std::variant<LaunchStep, GemmStep, ExternStep, RegionStep, FreeStep, SizeStep>;

struct PlanOutput {
  enum class Kind : uint8_t { Value, Input, ViewOfInput, ViewOfOutput, None };
  Kind kind = Kind::Value;
  int64_t buffer = -1;              // Value: a buffer, -1 for a number
  uint32_t index = 0;               // Input, ViewOfInput: the input; ViewOfOutput: the output
  std::optional<TensorSlots> meta;  // views
  std::optional<Slot> number;       // Value that is a size
  bool conj = false, neg = false;   // marked as to be conjugated, negated
  bool piece = false;               // a view: of an op that gives several
  // Views, as ir::OutputSpec has them.
  bool detached = false, itself = false, unseen = false, no_grad = false, derived = false;
  uint32_t alias = 0;
};

struct PlanMutation {
  uint32_t input = 0;
  uint32_t buffer = 0;
  bool in_place = false;              // a kernel has written it already: only the version is bumped
  std::optional<TensorSlots> layout;  // sizes, strides and offset that it gets
  bool same_data = false;             // and nothing else
  bool unseen = false;                // the version stays
};

// Weights as our own gemms want them, made once from a buffer that never changes
// (codegen/cpp/gemm.h): its sizes are known.
struct PlanPacking {
  uint32_t from = 0, to = 0;        // buffers; `to` is an attribute
  int64_t batch = 1, k = 0, n = 0;  // what is packed: matrices of k rows and n columns
  int64_t batch_stride = 0, k_stride = 0, n_stride = 0, offset = 0;  // in `from`
  int64_t width = 0;  // columns of a panel; the last one is filled up with zeros
  friend bool operator==(const PlanPacking&, const PlanPacking&) = default;
};

struct Plan {
  SizeProgram sizes;
  // Metadata the plan was made for. An input that is a number has dtype None and its value in
  // `offset`: another number needs another plan. The storage offset of a tensor may differ at run
  // time: addresses and views are shifted by it.
  std::vector<TensorSlots> inputs;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<Plan> regions;
  std::vector<PlanStep> steps;
  std::vector<PlanOutput> outputs;
  std::vector<PlanMutation> mutations;
  // Inputs whose content the plan was made for, and attributes made from it, in the order of their
  // numbers.
  std::vector<uint32_t> frozen;
  std::vector<PlanPacking> packings;
  Slot arena_bytes;
};

// How deeply plans and lists nest in each other at most, in texts and files.
inline constexpr int kMaxPlanDepth = 32;

// Text, parsed back: print(parse(print(p))) == print(p). See docs/ir.md.
std::string print(const Plan& p);
Plan parse_plan(std::string_view text);  // UserError with line and column
// Throws UserError where a number of the plan names nothing: what comes from a file is checked
// once, and nobody behind it asks again.
void verify(const Plan& p);

// By slot: 0 where it is known when a call begins, else the number of the size step that makes it
// known, from 1.
std::vector<uint32_t> known_from(const Plan& p);
// The same of a buffer: when its metadata and its memory's are.
uint32_t known_from(const Plan& p, const std::vector<uint32_t>& slots, uint32_t buffer);

// The buffer whose memory it is: the base of a View, else itself.
uint32_t memory_of(const Plan& p, uint32_t buffer);
// What a step names but for the results of extern calls and regions.
std::vector<uint32_t> buffers_of(const PlanStep& step);
// Of a launch, or a gemm with its epilogue; 0 of other steps.
int64_t moved_bytes(const Plan& p, const PlanStep& step);

}  // namespace oxy::runtime
