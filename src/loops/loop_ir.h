// Loop IR: what is computed, element by element, before anything is said about fusion, order or
// memory.
//
// Semantics. A Program is a list of Steps in an order that respects their dependences. A Loop step
// runs its body once for each iteration of its axes, in any order and in parallel; the body is SSA
// over scalars and sees memory through Load and Store only. A loop writes each element of its
// buffer exactly once and never reads it (StoreAdd apart, which folds into a buffer that an earlier
// step wrote; iterations that fold into one element do so in row-major order of the axes). Index
// expressions are logical: one a dimension of the buffer, each within bounds; the layout (strides,
// offset) belongs to the buffer. Floating-point arithmetic is IEEE in the instruction's dtype,
// without reassociation except inside Reduce; NaN and infinity as ATen; integers wrap. Axes with
// `reduction` are folded by the body's Reduce instructions: what depends on no Reduce runs at each
// iteration of all axes, what depends on one runs once the fold is complete, at each iteration of
// the other axes. Scan folds its operand along one axis that is not folded away, from 0 on, and
// gives each partial result: its order is part of the meaning.
// Aliasing: two buffers never overlap, except that a View buffer lies in its base's memory.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <variant>
#include <vector>

#include "ops/contraction.h"
#include "ops/loop_builder.h"
#include "support/lexer.h"

namespace oxy::loops {

using ir::DType;
using ops::Index;
using ops::LoopOp;
using ops::ReduceKind;
using sym::Expr;

// Whether a symbol is an axis or a loaded index, and no size: names that begin with p, r or i
// belong to loops.
bool is_variable(Expr symbol);
// Whether no variable occurs: the same at all iterations of a call.
bool is_size(Expr e);

// Names of loop variables. Loops that have axes of equal size share their symbols (the n-th axis of
// that size in one loop is always the same symbol), so equal layers of a model give equal
// expressions and, later, equal kernels.
class Variables {
 public:
  explicit Variables(std::shared_ptr<sym::ExprPool> pool) : pool_(std::move(pool)) {}

  // The `ordinal`-th variable of this size, a symbol with range [0, size). Prefix: 'p' parallel
  // axis, 'r' reduction axis, 'i' loaded index.
  Expr get(char prefix, Expr size, uint32_t ordinal);

 private:
  std::shared_ptr<sym::ExprPool> pool_;
  std::map<std::tuple<char, uint64_t, uint32_t>, Expr> known_;
  std::map<char, uint32_t> next_;
};

// Hands out the variables of one loop: each call for the same size gives the next ordinal that is
// not taken.
class VariableScope {
 public:
  explicit VariableScope(Variables& all) : all_(all) {}
  Expr get(char prefix, Expr size);
  // Notes a variable that has its place already; false where it was noted or handed out before.
  bool take(Expr variable) { return taken_.insert(variable).second; }

 private:
  Variables& all_;
  std::map<std::pair<char, uint64_t>, uint32_t> next_;
  std::unordered_set<Expr> taken_;
};

struct BufferTag;
using BufferId = Id<BufferTag>;

struct Buffer {
  enum class Kind : uint8_t {
    Input,      // memory of graph input `source`
    Attribute,  // memory of a lifted constant tensor, `source` counts them
    Temp,    // lives between steps of one call, in the arena (or nowhere, when fusion removes it)
    Extern,  // allocated by the extern step that makes it
    Output,  // escapes to the caller: from the output pool
    View,    // a strided view of `base`'s memory: type gives sizes, strides and offset; the offset
             // counts from the base's first element, and the base is never itself a View
  };
  std::string name;  // "in0", "buf3": unique
  Kind kind = Kind::Temp;
  ir::TensorType type;
  uint32_t source = 0;
  BufferId base;      // View
  ir::ValueId value;  // the graph value that it holds
};

struct Axis {
  Expr var;  // a symbol with range [0, size)
  Expr size;
  bool reduction = false;
};

struct Inst {
  LoopOp op = LoopOp::Const;
  DType dtype = DType::F32;    // of the result; of the stored value for Store
  std::vector<uint32_t> args;  // earlier instructions of the body
  BufferId buffer;             // Load, Store, StoreAdd
  Index index;  // Load, Store, StoreAdd: one a dimension; Index, Check, Symbol, Scan: index[0]
  double number = 0;                    // Const of floating dtype
  int64_t integer = 0;                  // Const of other dtypes
  ReduceKind reduce = ReduceKind::Sum;  // Reduce, Scan, StoreAdd
};
using Body = std::vector<Inst>;

struct Loop {
  std::string name;        // "op3_add"
  std::vector<Axis> axes;  // logical order of the result's dimensions, then the reduction axes
  Body body;
  std::vector<ir::NodeId> origins;  // nodes of the ATen graph

  bool has_reduction() const;
};

// A step that is no loop: what it computes is a matter of its kind, what it does to memory is not.
struct Call {
  ir::NodeId node;
  std::vector<BufferId> reads;
  // One an output value of the node that is a tensor; invalid where it is not.
  std::vector<BufferId> writes;
};

// An op run by the dispatcher. Its arguments are the node's; buffers stand for the values.
struct ExternStep : Call {};

// A gemm or a convolution. It reads a, b and, where there is one, the bias, and writes c; sizes and
// strides are those of the buffers. Of our own kernels (Provider::Own) c is planned memory, else
// the provider allocates it.
struct ContractionStep : Call {
  ops::Contraction what;
  ops::Provider provider = ops::Provider::Aten;

  BufferId a() const { return reads[0]; }
  BufferId b() const { return reads[1]; }
  BufferId bias() const { return reads.size() > 2 ? reads[2] : BufferId(); }
  BufferId c() const { return writes[0]; }
  bool is_own() const { return provider == ops::Provider::Own; }
};

using Step = std::variant<Loop, ExternStep, ContractionStep>;

struct Program {
  const ir::Graph* graph = nullptr;
  std::shared_ptr<sym::ExprPool> pool;
  std::shared_ptr<Variables> variables;  // names of loop variables, shared by all loops
  IdMap<BufferId, Buffer> buffers;
  std::vector<Step> steps;
  std::unordered_map<ir::ValueId, BufferId> buffer_of;  // where a graph value lives
  // Of results and new values of inputs that have memory of their own beside it: calls that read
  // the value run before that is written.
  std::unordered_map<ir::ValueId, BufferId> copy_of;
  // Symbols that a call of the program makes known: the node of the call.
  std::unordered_map<Expr, ir::NodeId> known_by;
};

// Where the caller finds a value: nullptr for one without memory.
const BufferId* result_of(const Program& p, ir::ValueId v);
// The offset of the element at a logical index, in elements from the buffer's first element. Of a
// View: from the first element of its base.
Expr flat_offset(const Buffer& b, const Index& index);
// The step as a call; null where it is a loop.
const Call* call_of(const Step& s);
// Sizes and strides of a contraction, from the types of its buffers.
ops::ContractionLayout layout_of(const Program& p, const ContractionStep& s);
// The buffer whose memory it is: the base of a View, else itself.
BufferId memory_of(const Program& p, BufferId b);
// Whether all that is computed is moved, compared, chosen or whole numbers: then ATen's ops give
// the same bits (but for the sign of a zero that is a maximum or minimum).
bool is_exact(const Program& p);
// Whether it has functions of as many steps as their operands ask for, which lanes take together.
bool has_iterated(const Program& p);
// Bytes from the first element to the end of the last one.
Expr byte_extent(const ir::TensorType& type);

// Text, parsed back by parse(). See docs/ir.md.
//   buffer in0: input 0 f32[4, 8]
//   buffer buf0: temp f32[4, 8]
//   loop op0_add (p0: 4, p1: 8) {        # model.py:3
//     %0 = load f32 in0[p0, p1]
//     %1 = const f32 1.0
//     %2 = add f32 %0, %1
//     store buf0[p0, p1] = %2
//   }
//   loop op1_sum (p0: 4) reduce (r0: 8) {
//     %0 = load f32 buf0[p0, r0]
//     %1 = reduce f32 sum %0
//     store buf1[p0] = %1
//   }
//   extern op2: aten.mm.default(buf0, in1) -> buf2     # reads, then writes; `_` for a result that
//                                                      is no tensor
//   gemm op3: buf2, in1, in2 -> buf3 by own     # a, b and perhaps the bias; by own, onednn or aten
//   convolution op4: in3, in4, stride [1, 1], padding [0, 0], dilation [1, 1] -> buf4 by aten
std::string print(const Program& p);
std::string print(const Program& p, const Step& s);
// What a contraction reads, writes and is computed by: "buf2, in1 -> buf3 by own".
std::string operands_text(const Program& p, const ContractionStep& s);
Program parse(std::string_view text);  // calls parse to steps without a node
// The expression up to the next `,` `)` `]` `}` `:` `=` `{` or the end of the line. Unknown names
// become symbols that are at least 0: the sizes of a text that stands alone.
Expr read_expr(Lexer& lexer, sym::ExprPool& pool);
void verify(const Program& p);

}  // namespace oxy::loops
