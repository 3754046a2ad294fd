// The graph of the Torch, ATen and joint stages.
//
// Semantics. A graph is a list of nodes in execution order; each node reads values that were made
// before it and makes values of its own (SSA: a value is made once and never changes its type).
//   Torch stage: nodes are Python calls as the user wrote them (call_function, call_method,
//     get_attr); they may mutate and alias their operands, so their order is meaning and nothing
//     may be moved across a mutation.
//   ATen stage: nodes are calls of ATen overloads ("aten.add.Tensor") without mutation of what was
//     passed in and without visible aliasing: two values never share memory as far as a pass can
//     tell. What the user sees of mutation and aliasing is said at the end, by `mutations` and
//     `outputs` (see OutputSpec). An op that draws random numbers or has another effect keeps its
//     place relative to the others of its kind (trait `effect` of the op table).
//   Joint stage: an ATen graph of a forward computation and its backward. Its inputs are the
//     primals, then the tangents (the loss's gradients by results of the forward, then by new
//     values of its inputs); its outputs what the forward gives, then a gradient, or None, by
//     primal.
// Regions. A node of kind Region runs graphs of its own (RegionOp says when). A region is
// isolated: it reads its parameters, which are its inputs, and nothing around it; what it needs
// comes as operands of the node. So each pass, the printer and the compiler take a region as they
// take a graph, which MLIR's IsolatedFromAbove ops and TorchScript's blocks with lifted captures
// have shown to be enough. Its symbols are those of the graph around it. It has no attributes and
// mutates nothing. ATen stage: what the node gives are new tensors, never its operands; a region
// that returns a parameter itself (OutputSpec::Input) gives a copy of it. Arguments of an ATen node
// stand in the order of its schema, keyword-only ones included; trailing None are left out (a
// missing argument means None). Text form: see text.h.
#pragma once

#include <array>
#include <deque>
#include <unordered_map>

#include "ir/types.h"
#include "support/ids.h"

namespace oxy::ir {

struct NodeTag;
struct ValueTag;
struct StackTag;
using NodeId = Id<NodeTag>;
using ValueId = Id<ValueTag>;
using StackId = Id<StackTag>;

struct Arg;
struct List {
  std::vector<Arg> items;
};  // [a, b]
struct Tuple {
  std::vector<Arg> items;
};  // (a, b)
struct Dict {
  std::vector<std::pair<std::string, Arg>> items;
};  // {"k": a}, in order
struct Slice;  // slice(a, b, c)
struct Ellipsis {};
using None = std::monostate;
struct Str {
  std::string value;
};
struct Object {
  uint32_t index;
};  // entry of Graph::objects: something only the host knows

// An argument: a value of the graph, or data known when the graph was made.
struct Arg {
  using Storage = std::variant<None, ValueId, bool, Expr, double, std::complex<double>, Str, DType,
                               Device, Layout, MemoryFormat, List, Tuple, Dict,
                               std::shared_ptr<const Slice>, Ellipsis, Object>;
  Storage v;

  Arg() = default;
  template <class T>
    requires std::is_constructible_v<Storage, T&&>
  Arg(T&& x) : v(std::forward<T>(x)) {}  // NOLINT: an argument is any of these
  Arg(int64_t x) : v(Expr(x)) {}         // NOLINT
  Arg(int x) : v(Expr(x)) {}             // NOLINT
  Arg(const char* s) : v(Str{s}) {}      // NOLINT

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&v);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(v);
  }
  bool is_none() const { return std::holds_alternative<None>(v); }
  bool is_value() const { return std::holds_alternative<ValueId>(v); }
  ValueId value() const { return std::get<ValueId>(v); }
  // A list or tuple's items.
  const std::vector<Arg>* items() const;
};
struct Slice {
  Arg start, stop, step;
};

// Calls f on the arguments that stand directly in one.
template <class F>
void for_each_child(const Arg& a, F&& f) {
  if (auto* items = a.items())
    for (const Arg& x : *items) f(x);
  else if (auto* dict = a.get_if<Dict>())
    for (const auto& [key, x] : dict->items) f(x);
  else if (auto* slice = a.get_if<std::shared_ptr<const Slice>>())
    for (const Arg* x : {&(*slice)->start, &(*slice)->stop, &(*slice)->step}) f(*x);
}
// A copy with what has none in it replaced.
Arg map_leaves(const Arg& a, const std::function<Arg(const Arg& leaf)>& f);
// Every value inside an argument, nested ones too.
void for_each_value(const Arg& a, const std::function<void(ValueId)>& f);
// A copy with values replaced.
Arg map_values(const Arg& a, const std::function<ValueId(ValueId)>& f);
// Equal as data: same alternative, same content; floats by their bits (nan equals itself, 0.0 is
// not -0.0).
bool operator==(const Arg& a, const Arg& b);
size_t hash_of(const Arg& a);

enum class NodeKind : uint8_t {
  Input,         // target: its name
  Attribute,     // get_attr of the Torch stage, a lifted constant tensor of the ATen stage; target:
                 // its name
  CallFunction,  // target: qualified Python name, or "@objN" for a callable that only the host
                 // knows (objects[N])
  CallMethod,    // target: method name; args[0] is self
  CallOp,        // target: "namespace.op.overload"
  Region,        // target: a RegionOp; in the Torch stage its result is a tuple
};

class Graph;

struct Node {
  NodeId id;
  NodeKind kind = NodeKind::CallOp;
  std::string target;
  std::vector<Arg> args;
  std::vector<std::pair<std::string, Arg>> kwargs;  // Torch stage only
  std::vector<ValueId> outputs;
  // One entry per return of the schema: -1 a single value, n >= 0 a list of n values. Empty means
  // one single value each. The Torch stage has one output: the call's result, with `is_tuple`
  // results indexed by operator.getitem.
  std::vector<int32_t> returns;
  std::vector<Graph> regions;  // Region
  StackId stack;               // the user's stack
  NodeId parent;               // ATen: the node of the Torch graph that it came from
  std::string name;   // Torch stage: the name that torch.fx gave it, kept for the round trip
  bool dead = false;  // removed; skipped by iteration, swept by Graph::compact

  const Arg& arg(size_t i) const;  // None where it was left out
};
// Every value that a node reads, in the order of its arguments; a value read twice is named twice.
void for_each_value(const Node& n, const std::function<void(ValueId)>& f);

struct Value {
  NodeId def;
  uint32_t index = 0;  // position in def's outputs
  Type type;
};

struct Frame {
  std::string file;
  int32_t line = 0;
  std::string function;
  std::string code;  // the source line, stripped
};

// What the caller gets for one position of the graph's result.
struct OutputSpec {
  enum class Kind : uint8_t {
    Value,         // a tensor of its own, or a number: `value`
    Input,         // the very object passed as input `index`
    ViewOfInput,   // a new view of input `index`, with the metadata of `type`
    ViewOfOutput,  // a new view of the memory that output `index` (a Value) has, with the metadata
                   // of `type`
    None,
  };
  Kind kind = Kind::Value;
  ValueId value;
  uint32_t index = 0;
  TensorType type;
  // torch's lazy views: the caller gets what is said above, marked as to be conjugated or negated
  // when it is read.
  bool conj = false, neg = false;
  bool piece = false;  // a view: of an op that gives several (split, unbind)
  // A view of the memory alone (detach). Those of one output or input with the same `alias` are,
  // for autograd, one tensor and views of it; `itself` is that tensor.
  // `unseen`: with a version of its own (Tensor.data).
  bool detached = false, itself = false, unseen = false;
  uint32_t alias = 0;
  // A view made under no_grad, and, `derived`, one made of it with grad mode on of what requires
  // gradients: autograd knows them as views, but no gradients flow.
  bool no_grad = false, derived = false;
  // A Value that passes may lay out as they like: nobody but a backward sees it.
  bool any_layout = false;

  bool is_view() const { return kind == Kind::ViewOfInput || kind == Kind::ViewOfOutput; }
};

// Input `input` holds `value` after the call. All happen at the commit point, after the last step
// that can raise.
struct Mutation {
  uint32_t input = 0;
  ValueId value;
  // Before that the input gets the sizes, strides and offset of `type` (t_, squeeze_, as_strided_
  // ...).
  bool metadata = false;
  TensorType type;
  bool unseen = false;  // autograd does not see it: the version stays (a write through Tensor.data)
};

enum class Stage : uint8_t { Torch, Aten, Joint };

class Graph {
 public:
  explicit Graph(Stage stage,
                 std::shared_ptr<sym::ExprPool> pool = std::make_shared<sym::ExprPool>());

  Stage stage;
  std::string name = "graph";
  std::shared_ptr<sym::ExprPool> pool;

  // Inputs come first, in the order in which the caller passes them.
  ValueId add_input(std::string name, Type type);
  // Takes away an input that nobody reads.
  void drop_input(size_t i);
  // The same inputs in another order, while no output names one by number.
  void arrange_inputs(std::vector<ValueId> inputs);
  ValueId add_attribute(std::string name, Type type);
  // Appends a call; its outputs get the given types. References to nodes and values stay valid
  // while others are added.
  Node& add_call(NodeKind kind, std::string target, std::vector<Arg> args,
                 std::vector<Type> output_types);
  // The same, before `before` in the order.
  Node& insert_call(NodeId before, NodeKind kind, std::string target, std::vector<Arg> args,
                    std::vector<Type> types);

  Node& node(NodeId id) { return nodes_[id.index]; }
  const Node& node(NodeId id) const { return nodes_[id.index]; }
  Value& value(ValueId id) { return values_[id.index]; }
  const Value& value(ValueId id) const { return values_[id.index]; }
  const TensorType& tensor_type(ValueId id) const;
  Node& def(ValueId id) { return node(value(id).def); }
  const Node& def(ValueId id) const { return node(value(id).def); }
  size_t value_count() const { return values_.size(); }
  size_t node_count() const { return nodes_.size(); }

  // The nodes in execution order, dead ones included (check Node::dead). Iterate over a copy when
  // you add nodes.
  const std::vector<NodeId>& order() const { return order_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }

  // Result of the graph. Torch stage: `result` (any nesting of values and data). ATen: `outputs`,
  // flat.
  Arg result;
  std::vector<OutputSpec> outputs;
  std::vector<Mutation> mutations;

  // Joint stage: the last so many inputs are tangents; as many outputs as there are primals are
  // gradients.
  uint32_t tangents = 0;
  size_t primals() const { return inputs_.size() - tangents; }
  bool is_tangent(size_t input) const { return input >= primals(); }
  bool is_gradient(size_t output) const {
    return stage == Stage::Joint && output + primals() >= outputs.size();
  }

  // Things only the host knows, by number; the graph holds a printable name each.
  std::vector<std::string> objects;

  // Equal stacks share an id.
  StackId add_stack(std::vector<Frame> frames);        // innermost last
  StackId add_frame(StackId caller, Frame innermost);  // onto a stack, or onto nothing
  std::vector<Frame> stack(StackId id) const;          // innermost last
  const Frame& innermost(StackId id) const { return stacks_[id].frame; }
  bool has_stack(StackId id) const { return id.valid(); }

  // Readers of every value: how often each is read by live nodes, outputs and mutations.
  std::vector<uint32_t> use_counts() const;
  void replace_uses(ValueId from, ValueId to);  // in live nodes, result, outputs and mutations
  void replace_uses(
      const std::function<ValueId(ValueId)>& f);  // the same for many values in one walk
  void kill(NodeId id) { node(id).dead = true; }
  // Those behind the first `from` nodes that `is_wanted` names, and all that is computed of them.
  void kill_with_readers(size_t from, const std::function<bool(const Node&)>& is_wanted);
  void compact();  // drops dead nodes from the order
  void set_order(std::vector<NodeId> order) { order_ = std::move(order); }

 private:
  Node& make_node(NodeKind kind, std::string target, std::vector<Arg> args,
                  std::vector<Type> types);

  std::deque<Node> nodes_;  // deques, so that a reference survives the making of other nodes
  std::deque<Value> values_;
  struct StackNode {
    StackId caller;
    Frame frame;
  };
  IdMap<StackId, StackNode> stacks_;
  std::unordered_map<std::string, StackId> stack_by_text_;
  std::vector<NodeId> order_;
  std::vector<ValueId> inputs_;
  size_t last_insert_ = 0;
};

// Every region of a graph's live nodes, those inside of it first.
void for_each_region(Graph& g, const std::function<void(Graph&)>& f);
void for_each_region(const Graph& g, const std::function<void(const Graph&)>& f);

// The ops that own regions, a row each.
//
//   cond(pred, operands...) then else         one region runs: the first where pred holds
//   while_loop(carried..., others...) while do  as long as the first gives true, the second gives
//                                               what is carried on
//   loop(trips, condition, carried..., others...) body   TorchScript's: at most so many trips,
//                                             while the condition holds; the body gets the trip's
//                                             number too, and gives the next condition too
//   checkpoint(operands...) body              runs once; a backward graph may run it again instead
//                                             of keeping its values
//   block_sparse(lists..., query, key, value, tiles..., state..., others...) partial full
//                                             attention by blocks: see below
//
// block_sparse has for each block of rows of `query` (batch, heads, rows, size) a list of the
// blocks of `key` and `value` that it meets. `lists`: how many to meet by `partial`, which ones,
// how many to meet by `full`, which ones, each i32 (batch or 1, heads or 1, row blocks[, column
// blocks]). The regions take tiles of query, key and value (of one batch, some heads, a block), the
// i32 places of their first elements (batch, head, row, column) with the column from which on the
// tile counts, and three tensors (1, heads, rows, n), the state, whose next values they give. It
// starts anew for each block of rows, with the operands' values; what it is behind the last block
// is what the node gives, for all rows. The operands have the sizes and strides of tiles. The last
// block of a dimension may begin earlier than its place says, so that it is as long as the others.
struct RegionOp {
  std::string_view name;
  std::array<std::string_view, 2> regions;  // their words in the text; empty where there is none
  size_t arguments;   // of the node, in front of the operands, which every region gets
  size_t parameters;  // of a region, in front of the operands
  size_t results;     // of the last region, in front of what the node gives
  bool carries;       // the first operands are the first values of what the node gives
  size_t fixed = 0;   // operands, besides those that are carried, that are there also unread

  bool by_blocks() const { return name == "block_sparse"; }
  size_t region_count() const { return regions[1].empty() ? 1 : 2; }
};
const RegionOp* find_region_op(std::string_view name);
const RegionOp& region_op(const Node& n);  // of a node of kind Region

// How many results a graph has, in either stage.
size_t result_count(const Graph& g);
// Operands from here on are there only where a region reads them.
size_t first_optional_operand(const Node& n);

// Checks the invariants of a graph; throws InternalError naming the node.
//   every value is defined once, before its use; outputs point back to their node; inputs precede
//   calls; the types of tensors have as many strides as sizes; ATen stage: targets are
//   "ns.op.overload", no kwargs, output specs are in range, `returns` matches the number of
//   outputs; no live node reads a dead node's value.
//   Regions: only nodes of kind Region have them, as many as their op says; each is a graph that
//   verifies, of the same pool, with a parameter by operand and as many results as its place asks
//   for, in the types of operands and outputs (ATen); it has no attributes and no mutations; its
//   results are values, each once, or its parameters. What says whether to go on is a boolean, or a
//   tensor of one.
//   Joint stage: the ATen stage's invariants; tangents are tensors and only primals are mutated; a
//   gradient is None or a tensor of its primal's sizes.
void verify(const Graph& g);

}  // namespace oxy::ir
