// The Plan: what runs after compilation. Data, with no symbolic sizes left and no pointer into the process but the code
// of its kernels; src/torch_bridge runs it on real tensors.
//
// One call: read the inputs' metadata again and compare it with `inputs` (a difference means another plan or eager);
// lease an arena; run the steps in order; if one fails (an op raises, a kernel's status is not 0) drop everything and
// run the Torch IR in eager; then the commit point: write the mutated inputs, make the outputs, give the arena back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "jit/compiler.h"

namespace oxy::runtime {

// A tensor's metadata with all sizes known.
struct TensorMeta {
  ir::DType dtype = ir::DType::F32;
  ir::Device device;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

struct PlanBuffer {
  enum class Kind : uint8_t { Input, Attribute, Arena, Extern, Output, View };
  Kind kind = Kind::Arena;
  TensorMeta meta;
  uint32_t source = 0;       // Input, Attribute: which; View: the buffer it lies in
  int64_t arena_offset = 0;  // Arena: bytes
  int64_t bytes = 0;         // of memory it spans
  std::string name;
};

// A kernel gets, for each buffer, the address of the buffer's first element: its index expressions count from there,
// whatever the storage offset is. Of a View it gets the first element of the buffer that it lies in.
struct KernelStep {
  uint32_t kernel = 0;            // entry of Plan::kernels
  std::vector<uint32_t> buffers;  // in the kernel's order
  // Of a product: the kernel that it runs on each block that it has finished (codegen/cpp/product.h).
  std::optional<uint32_t> epilogue;
  std::vector<uint32_t> epilogue_buffers;
};

// An argument of an extern call.
struct ExternStep {
  std::string op;                // "aten.mm.default"
  std::vector<ir::Arg> args;     // ValueId means buffer number
  std::vector<int32_t> returns;  // as ir::Node::returns
  std::vector<int64_t> outputs;  // buffer number per output value; -1: not a tensor or not used
  bool random = false;
  uint32_t origin = 0;  // node of the ATen graph, for messages
};

struct FreeStep {
  uint32_t buffer = 0;
};
using PlanStep = std::variant<KernelStep, ExternStep, FreeStep>;

struct PlanKernel {
  std::string name;
  std::shared_ptr<jit::Code> code;
  int64_t range = 1;          // Parallel points
  int64_t grain = 1;          // at least so many a thread
  int64_t scratch_bytes = 0;  // a thread
  // Of what it reads and writes, each element once; an epilogue's without the matrix that it finds in the cache.
  int64_t moved_bytes = 0;
  // Sizes of a kernel that serves many shapes; where there are any, their address is its first buffer.
  std::vector<int64_t> parameters;
};

struct PlanOutput {
  ir::OutputSpec::Kind kind = ir::OutputSpec::Kind::Value;
  int64_t buffer = -1;             // Value: a buffer; ViewOfOutput: unused
  uint32_t index = 0;              // Input, ViewOfInput: the input; ViewOfOutput: the output
  TensorMeta meta;                 // views
  std::optional<int64_t> number;   // Value that is a size
  bool conj = false, neg = false;  // marked as to be conjugated, negated
};

struct PlanMutation {
  uint32_t input = 0;
  uint32_t buffer = 0;
  bool in_place = false;             // a kernel has written it already: only the version is bumped
  std::optional<TensorMeta> layout;  // sizes, strides and offset that it gets
  bool same_data = false;            // and nothing else
};

// Weights as our own products want them, made once from a buffer that never changes (codegen/cpp/product.h).
struct PlanPacking {
  uint32_t from = 0, to = 0;        // buffers; `to` is an attribute
  int64_t batch = 1, k = 0, n = 0;  // what is packed: matrices of k rows and n columns
  int64_t batch_stride = 0, k_stride = 0, n_stride = 0, offset = 0;  // in `from`
  int64_t width = 0;  // columns of a panel; the last one is filled up with zeros
  friend bool operator==(const PlanPacking&, const PlanPacking&) = default;
};

struct Plan {
  // Metadata the plan was made for. An input that is a number has dtype None and its value in `offset`: another number
  // needs another plan. The storage offset of a tensor may differ at run time: addresses and views are shifted by it.
  std::vector<TensorMeta> inputs;
  std::vector<std::vector<uint32_t>>
      aliases;  // groups of inputs that must share storage (others must not, where mutated)
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::vector<PlanOutput> outputs;
  std::vector<PlanMutation> mutations;
  // Inputs whose content the plan was made for, and attributes made from it, in the order of their numbers.
  std::vector<uint32_t> frozen;
  std::vector<PlanPacking> packings;
  int64_t arena_bytes = 0;
};

std::string print(const Plan& p);
int64_t moved_bytes(const Plan& p, const KernelStep& step);

}  // namespace oxy::runtime
