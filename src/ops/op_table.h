// THE op table: one row per ATen overload that we know more about than its schema.
//
// Rows stand in src/ops/<family>.def, one family a file, with the rules in <family>.cpp beside it:
//   OP("aten.add.Tensor", "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
//      kArith | Commutative | RuntimeNumber, scaled, add)
// An op without a row, or without a loop rule, is an extern call with the shape that torch's own
// rule gives. A test compares every row's schema with the dispatcher's.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "ops/loop_builder.h"

namespace oxy::ops {

enum Trait : uint32_t {
  Pure = 0,  // same arguments, same result; nothing else happens; may be removed, merged, repeated
  // Draws from a generator: keeps its order among its kind, is never merged or removed.
  Random = 1 << 0,
  Effect = 1 << 1,  // something visible happens (an assertion, a print): order kept, never removed
  View = 1 << 2,    // the result can alias args[0]; the loop rule is a change of index only
  Pointwise = 1 << 3,  // element by element of broadcast operands
  Reduction = 1 << 4,  // has a reduction rule
  Cheap = 1 << 5,      // recomputing costs less than a load from memory
  // Reads no tensor data: safe to run on fakes (size queries, choice of an sdpa kernel).
  MetadataOnly = 1 << 6,
  Creation = 1 << 7,  // fills a new tensor without reading one (full, arange, zeros_like)
  Commutative = 1 << 8,
  DataDependent = 1 << 9,  // the result's shape depends on data (nonzero)
  Scan = 1 << 10,  // the reduction rule names a dimension along which every partial result is kept
  RuntimeNumber = 1 << 11,  // a Scalar argument may be a tensor of no dimensions with the number
  // Pointwise, but what an element becomes depends on where it stands, or on how many there are.
  Positional = 1 << 12,
};

// Nodes that make numbers: an expression of sizes as a value, which has no row; what reads the
// number in a tensor.
inline constexpr std::string_view kNumber = "oxyfuel.number.default";
inline constexpr std::string_view kReadNumber = "aten._local_scalar_dense.default";
// In joint graphs, and backwards before they are compiled, (Tensor self, Tensor[] tangents) ->
// Tensor: what a node of autograd that runs if one of these is defined gets or gives. Undefined if
// none is; else `self`, or zeros where that is undefined (autograd/without_tangents.cpp).
inline constexpr std::string_view kMaterialize = "oxyfuel.materialize.default";

// Shape rule: types of the outputs from the argument list. False: does not know (the bridge asks
// torch). Sizes stay symbolic. Errors of the user are left to torch: return false.
class Args;
using Types = std::vector<ir::Type>;
using ShapeRule = bool (*)(const Args&, Types& out);

// Loop rule of a pointwise op, view or creation op: the element (ops/element.h) of an output at an
// index.
class Element;
using ElementRule = Scalar (*)(Element&);

// Reduction rule: which dimensions of args[0] are folded, how, and the value folded.
struct ReductionSpec {
  ReduceKind kind = ReduceKind::Sum;
  std::vector<int64_t> dims;  // sorted, non-negative; of args[0]
  bool keepdim = false;
  DType accumulate = DType::F32;  // dtype of the accumulator
  DType result = DType::F32;      // cast after the loop
};
using ReductionRule = bool (*)(const ir::Graph&, const ir::Node&, ReductionSpec&);

// Scatter rule: the element rule says what the result begins as. Then each point of an iteration
// space of its own, in row-major order, folds one value into one element of it.
struct ScatterSpec {
  std::vector<Expr> sizes;  // of the space
  ReduceKind kind = ReduceKind::Sum;
};
using ScatterRule = bool (*)(const ir::Graph&, const ir::Node&, ScatterSpec&);
struct ScatterUpdate {
  Index place;  // which element
  Scalar value;
};
using UpdateRule = ScatterUpdate (*)(Element&);  // at a point

// Decomposition: writes simpler ops before `node` and gives the values that take the place of its
// outputs. False: keeps the node as it is.
class Rewriter;
using Decomposition = bool (*)(Rewriter&, const ir::Node&, std::vector<ir::ValueId>& out);

// Whether the rules hold for this node (dtypes, argument forms); nothing means always.
using Applies = bool (*)(const ir::Graph&, const ir::Node&);

struct OpInfo {
  std::string_view name;    // "aten.add.Tensor"
  std::string_view schema;  // "(Tensor self, ...) -> Tensor"
  uint32_t traits = Pure;
  ShapeRule shape = nullptr;
  ElementRule element = nullptr;
  ReductionRule reduction = nullptr;  // `element` is then the value folded, at an index of args[0]
  Decomposition decomposition = nullptr;
  Applies applies = nullptr;
  ScatterRule scatter = nullptr;
  UpdateRule update = nullptr;  // with `scatter`

  bool has(uint32_t trait) const { return traits & trait; }
};

// The row of an op, or nullptr.
const OpInfo* find(std::string_view name);
inline const OpInfo* find(const ir::Node& n) {
  return n.kind == ir::NodeKind::CallOp ? find(n.target) : nullptr;
}
std::span<const OpInfo> all_ops();  // sorted by name

// Whether a tensor without dimensions stands where the schema has a number, and the op's rules and
// decomposition know nothing of such.
bool has_unknown_number(const ir::Graph& g, const ir::Node& n, const OpInfo& info);
// Whether the element and reduction rules hold for this node.
bool rules_hold(const ir::Graph& g, const ir::Node& n, const OpInfo& info);

}  // namespace oxy::ops
