// A graph of symbolic sizes for sizes that are known: what the stages want that compile for one
// shape.
#pragma once

#include "ir/graph.h"

namespace oxy::ir {

// The symbols that occur in a graph and its regions, in the order of their creation (which decides
// how sums are written).
std::vector<Expr> symbols_of(const Graph& g);

// Replaces every expression of symbols, in types, arguments and outputs, by what `f` gives for it.
void map_exprs(Graph& g, const std::function<Expr(Expr)>& f);

// A copy with the value of every symbol filled in. UserError where `value_of` has none for a symbol
// that occurs.
Graph specialize(const Graph& g,
                 const std::function<std::optional<int64_t>(Expr symbol)>& value_of);

// What a caller passes at one input: a tensor's sizes, strides and offset, or a number.
struct InputSizes {
  std::span<const int64_t> sizes, strides;
  int64_t offset = 0;
  int64_t number = 0;
};
// The values of the symbols in the types of the graph's inputs, by symbol index, so that every
// input has the sizes and strides that its type says; nothing where there are none, or where one
// lies outside its symbol's range. The stride of a dimension of one element, or of a tensor without
// elements, does not matter. Only as much of `inputs` is read as an input's type needs.
class SymbolValues {
 public:
  std::optional<int64_t> find(Expr symbol) const;
  void set(Expr symbol, int64_t value);

 private:
  std::vector<std::optional<int64_t>> values_;
};
std::optional<SymbolValues> match_inputs(const Graph& g, std::span<const InputSizes> inputs);

}  // namespace oxy::ir
