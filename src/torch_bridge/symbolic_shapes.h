// The sizes of one recording that are symbols: which dimensions of the inputs have one, and fakes
// of symbolic sizes. Dimensions with the same hint share a symbol, unless they are of different
// groups; sizes of 0 and 1 are always numbers.
//
// torch sees SymInts whose nodes are our expressions. Arithmetic stays symbolic. A question about a
// size (is it equal, less) is answered at the hints and becomes a fact of the recording; so does
// each size that code asks for as a number, such as a float made of it: code that knows nothing of
// symbols gets right results, for these sizes only. A number that is another one at each call of a
// graph is a Scalar whose value nobody knows: whoever asks for it gets Unsupported.
//
// Sizes and numbers that depend on data, and sizes that a user has marked as unbacked, are symbols
// without a hint: what an op asks about one is taken for granted (sym::ShapeFacts), and each call
// checks it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <span>

#include "ir/graph.h"
#include "symbolic/facts.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::bridge {

// A plain number where the expression is one.
c10::SymInt to_sym_int(sym::Expr e, const std::shared_ptr<sym::ShapeFacts>& facts);
// The expression behind a SymInt, in its simplest form under the facts. Unsupported for a node that
// is not ours.
sym::Expr expr_of(const c10::SymInt& s);
// The recording that it belongs to. Unsupported for a plain number, too.
std::shared_ptr<sym::ShapeFacts> facts_of(const c10::SymInt& s);
// The same of truths.
c10::SymBool to_sym_bool(const sym::Condition& c, const std::shared_ptr<sym::ShapeFacts>& facts);
sym::Condition condition_of(const c10::SymBool& s);
std::shared_ptr<sym::ShapeFacts> facts_of(const c10::SymBool& s);
// Its value at the hints; no fact comes of it.
int64_t hint_of(const c10::SymInt& s);

// The number that `value`, a tensor without dimensions, holds at a call. `stand_in`: what code that
// takes a plain float is given for it, where there is such.
c10::Scalar runtime_number(ir::ValueId value, bool integer, std::optional<double> stand_in);
// The tensor behind such a number; nothing for any other.
std::optional<ir::ValueId> tensor_behind(const c10::Scalar& s);
// Numerator and denominator of a float that is a quotient of sizes; nothing for any other.
std::optional<std::pair<sym::Expr, sym::Expr>> quotient_in(const c10::Scalar& s);
// What stands for a number that varies; of a plain one the number itself. Unsupported where there
// is none.
double stand_in_of(const c10::Scalar& s);

// A dimension whose size is a symbol, perhaps without a hint, or whose stride is, where it is not a
// product of other dimensions.
struct DynamicDim {
  enum class Kind : uint8_t { Size, Unbacked, Stride };
  int64_t dim;             // counts from the end where it is negative
  std::string group = {};  // sizes of a group that have the same hint share a symbol
  Kind kind = Kind::Size;
};

class SymbolicShapes {
 public:
  explicit SymbolicShapes(std::shared_ptr<sym::ExprPool> pool)
      : facts_(std::make_shared<sym::ShapeFacts>(std::move(pool))) {}

  const std::shared_ptr<sym::ShapeFacts>& facts() const { return facts_; }

  // The symbol for a size or a number with this hint, or the number itself.
  sym::Expr symbol_for(int64_t hint, const std::string& group = "");
  // One of its own for a number that is no size: 0 and 1 are nothing special.
  sym::Expr symbol_of_number(int64_t hint);
  // One that a call knows once a step has run: a size, or any number. `guess` is what it may be, at
  // least 2 (what is asked of sizes is mostly whether they are 0 or 1).
  sym::Expr size_of_data(int64_t guess);
  sym::Expr number_of_data();
  // The type of an input of which this is symbols. UserError for dimensions that it does not have.
  ir::TensorType input_type(const at::Tensor& real, std::span<const DynamicDim> dims);
  at::Tensor make_fake(const ir::TensorType& type, const c10::Storage* storage) const;

  void simplify(ir::TensorType& type) const;

 private:
  std::shared_ptr<sym::ShapeFacts> facts_;
  std::map<std::pair<std::string, int64_t>, sym::Expr> symbols_;  // by group and hint
  size_t made_ = 0, unbacked_ = 0;
};

bool is_symbolic(const ir::TensorType& type);
// The metadata of a tensor with symbolic sizes.
void read_symbolic_sizes(const at::Tensor& t, ir::TensorType& type);

// An op on meta tensors of symbolic sizes, run on tensors of their hints: for its errors. What it
// returns are its own arguments where the schema says so, else tensors of the hints' sizes.
bool has_symbolic_sizes(const torch::jit::Stack& stack, size_t arguments);
void run_on_hints(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Symbolic numbers among the arguments as plain ones, what `f` gives for them.
c10::IValue with_values(const c10::IValue& v, const std::function<int64_t(sym::Expr)>& f);
// The same; each becomes a fact.
c10::IValue with_numbers(const c10::IValue& v);

}  // namespace oxy::bridge
