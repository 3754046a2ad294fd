// A Kernel: fused loops as a tree, in the order in which they run. The schedule's result and the
// emitters' input; it names loops and which of their iterations may run at once, not the threads or
// vectors of a machine.
//
// Semantics. `body` runs once. A For runs its children for var = 0 .. size-1, in order unless
// `kind` allows more:
//   Parallel  iterations are independent and may run on different threads; only at the top,
//             directly nested, outermost first; together they are the range that the launcher
//             splits
//   Serial    in order
//   Vector    iterations are independent, with nothing but Serial loops inside: an emitter runs
//             several at once
//   Reduce    carries the accumulators that its Accumulate statements update; iterations may be
//             reassociated
//   VectorReduce  as Reduce, innermost and contiguous: an emitter keeps several partial
//                 accumulators
// An Inst statement is a LoopOp of loop_ir.h on scalars (Reduce, Scan and Symbol excepted: Symbol
// binds index[0], the others do not occur). StoreAdd adds to the element, also where several
// iterations meet in one; scatters that fold in another way are loads and stores in order. Values
// are numbered in one space per kernel, each set once; a value set inside a For is visible there
// only.
//
// Accumulators are declared by Init outside the loops that update them and read by Result after,
// or inside (a scan: what has been folded so far); where the Init stands in a Vector loop, each
// lane has its own.
//
// Statements in front of a Parallel loop run before its first iteration, or the first that a thread
// gets: they fill Local buffers, or are constants in front of all loops. A Local buffer belongs to
// one run of the innermost Parallel iteration around its store (or the kernel, where there is
// none): a row that stays in cache. Index expressions are flat offsets in elements from the start
// of the buffer's memory.
#pragma once

#include <array>

#include "loops/loop_ir.h"

namespace oxy::schedule {

using ir::DType;
using loops::Buffer;
using loops::BufferId;
using ops::LoopOp;
using ops::ReduceKind;
using sym::Expr;

enum class ForKind : uint8_t { Parallel, Serial, Vector, Reduce, VectorReduce };
// The words of the text, here and for buffers.
inline constexpr std::array<std::string_view, 5> kForKinds = {"parallel", "serial", "vector",
                                                              "reduce", "vector_reduce"};

// The symbols of an expression, each once.
inline std::vector<Expr> symbols_of(Expr e) {
  std::vector<Expr> symbols;
  sym::collect_symbols(e, symbols);
  return symbols;
}
bool is_any(LoopOp op, std::same_as<LoopOp> auto... of) { return ((op == of) || ...); }
inline bool touches_memory(LoopOp op) {
  return is_any(op, LoopOp::Load, LoopOp::Store, LoopOp::StoreAdd);
}
inline bool sets_value(LoopOp op) {
  return !is_any(op, LoopOp::Store, LoopOp::StoreAdd, LoopOp::Check);
}

// What a device's passes leave for its emitter: words with a number each
// (schedule/cpu/annotations.h). Nothing here asks what they mean; the text shows them. A loop that
// has any may run in another order than it says.
class Annotations {
 public:
  int64_t get(std::string_view word) const {  // 0 where it is not there
    for (const auto& [w, value] : words_)
      if (w == word) return value;
    return 0;
  }
  void set(std::string_view word, int64_t value = 1) {
    std::erase_if(words_, [&](const auto& x) { return x.first == word; });
    if (value != 0) words_.emplace_back(word, value);
  }
  bool empty() const { return words_.empty(); }
  auto begin() const { return words_.begin(); }
  auto end() const { return words_.end(); }

 private:
  std::vector<std::pair<std::string, int64_t>> words_;
};

struct Stmt;
using Block = std::vector<Stmt>;

struct For {
  ForKind kind = ForKind::Serial;
  Expr var;
  Expr size;
  Annotations annotations;
  Block body;
};

struct Compute {       // value = op(args)
  uint32_t value = 0;  // unused by Store, StoreAdd, Check
  LoopOp op = LoopOp::Const;
  DType dtype = DType::F32;
  std::vector<uint32_t> args;
  uint32_t buffer = 0;  // Load, Store, StoreAdd: entry of Kernel::buffers
  Expr index = 0;       // Load, Store, StoreAdd: flat offset; Index, Check, Symbol: the expression
  double number = 0;
  int64_t integer = 0;
  Annotations annotations;
};

struct Init {
  uint32_t acc = 0;
  ReduceKind kind = ReduceKind::Sum;
  DType dtype = DType::F32;  // of the folded values; of ArgMax and ArgMin too, whose result is i64
};
// Folds `value` into the accumulator. ArgMax and ArgMin: `index` is the element's position; the
// first extreme wins and NaN is the extreme, as ATen.
struct Accumulate {
  uint32_t acc = 0;
  uint32_t value = 0;
  Expr index = 0;
};
struct Result {
  uint32_t value = 0;
  uint32_t acc = 0;
};  // dtype of the accumulator; i64 for ArgMax and ArgMin
// Says something about the memory of an element, perhaps behind the buffer's end, to an emitter
// that knows the word. Without effect and value.
struct Hint {
  std::string word;
  uint32_t buffer = 0;
  Expr index = 0;
};

struct Stmt {
  std::variant<For, Compute, Init, Accumulate, Result, Hint> v;
};

struct KernelBuffer {
  enum class Kind : uint8_t { Read, Write, ReadWrite, Local };
  std::string name;  // as in the program; kernels are compared with names made canonical
  Kind kind = Kind::Read;
  DType dtype = DType::F32;
  Expr elements = 0;  // Local: how many; else how many the buffer's memory spans
  BufferId buffer;    // Read, Write, ReadWrite: which; invalid for Local

  bool is_local() const { return kind == Kind::Local; }
};
inline constexpr std::array<std::string_view, 4> kBufferKinds = {"read", "write", "read_write",
                                                                 "local"};

struct Kernel {
  std::string name;  // "fused_add_gelu_0"
  // Symbols whose values it gets with each call: the sizes that are not constant. free_symbols()
  // finds them.
  std::vector<Expr> parameters;
  std::vector<KernelBuffer> buffers;
  Block body;
  uint32_t value_count = 0;  // values and accumulators are numbered below this
  uint32_t acc_count = 0;
  std::vector<ir::NodeId> origins;
  Annotations annotations;
  int64_t cost =
      0;  // about how many bytes and operations one Parallel iteration costs: the launcher's grain
};

// Calls f on the statements of kind S (Stmt: on all) in a block and its loops, in order; a loop
// comes before what is in it.
template <class S, class B, class F>
void walk(B& block, F&& f) {
  for (auto& s : block) {
    if constexpr (std::is_same_v<S, Stmt>)
      f(s);
    else if (auto* x = std::get_if<S>(&s.v))
      f(*x);
    if (auto* loop = std::get_if<For>(&s.v)) walk<S>(loop->body, f);
  }
}

// Text, parsed back. See docs/ir.md.
//   kernel fused_add_sum_0(in0: read f32[32], buf1: write f32[4], t0: local f32[8]) cost 72 {
//     parallel p0: 4 {
//       acc @0 = sum f32
//       vector_reduce r0: 8 {
//         %0 = load f32 in0[8*p0 + r0]
//         accumulate @0 %0
//       }
//       %1 = result @0
//       store f32 buf1[p0] = %1
//     }
//   }
// With parameters: `) sizes (s0, s1) cost 72 {`.
std::string print(const Kernel& k);
Kernel parse(std::string_view text, sym::ExprPool& pool);
void verify(const Kernel& k);  // what is true for every device; an InternalError names the kernel

}  // namespace oxy::schedule
