// What passes share: what may be done with a call, arguments known now, a call rewritten in place,
// values replaced by others.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/rewriter.h"

namespace oxy::passes {

using ops::list_of;

// May be dropped when nothing reads it. Not: random draws (the generator's state moves), effects,
// inputs, attributes (their number is the caller's), calls without a result, regions with one of
// these.
bool is_removable(const ir::Node& n);
// Two calls with equal arguments give equal results: not random, no effect, results defined (unlike
// empty's), and known to us (a custom op may read anything). Regions are not compared.
bool is_mergeable(const ir::Node& n);
// The row of the op is one of a view.
bool is_view(const ir::Node& n);

// An argument as a constant integer.
std::optional<int64_t> integer(const ir::Arg& a);
// An argument as a list of constant integers; a single one counts as a list of one.
std::optional<std::vector<int64_t>> integers(const ir::Arg& a);
// The type of an argument that is a tensor, or nullptr.
const ir::TensorType* tensor_of(const ir::Graph& g, const ir::Arg& a);

// One number everywhere, as a tensor of the dtype holds it; integers are exact up to 2^53.
struct Uniform {
  double value = 0;
  // Of a tensor; DType::None for a plain number, which takes the dtype of what it meets.
  ir::DType dtype = ir::DType::None;
};
// Of a number, or of a value that aten.full makes in a dtype that round_to knows.
std::optional<Uniform> uniform_of(const ir::Graph& g, const ir::Arg& a);
// v converted to the dtype as ATen converts numbers; nothing where that is undefined (NaN to an
// integer, out of range) or not exact in a double, and for dtypes that are not folded (f16, f8,
// complex).
std::optional<double> round_to(ir::DType dtype, double v);

// A copy of `v` in front of `before`, with these strides, which are the memory format's.
ir::ValueId insert_copy(ir::Graph& g, ir::NodeId before, ir::ValueId v, ir::MemoryFormat format,
                        std::vector<ir::Expr> strides);

// Makes `n` a call of `op` with `args`, if the op's shape rule says that its outputs keep their
// layouts (and its row applies to the node where it applied before). Otherwise leaves `n` as it is
// and returns false.
bool rewrite(ir::Graph& g, ir::Node& n, std::string_view op, std::vector<ir::Arg> args);

// Collects replacements and applies them in one walk over the graph, under the rules that keep what
// the caller sees: a value that is returned must stay a tensor of its own, so it may take the place
// of another only where that one is made by a call in this graph, is no view, and is not returned
// or written to an input itself. Layouts are part of a value: dtype, device, sizes, strides and
// offset must be equal.
class Replacements {
 public:
  explicit Replacements(ir::Graph& g);

  // Replaces every use of `from` by `to` if that is allowed; says whether it did.
  bool replace(ir::ValueId from, ir::ValueId to);
  // The same for a node's only output, and removes the node.
  bool replace_node(ir::Node& n, ir::ValueId to);
  // Replaces by a value that was made for this, without asking about layouts.
  void replace_unchecked(ir::ValueId from, ir::ValueId to);
  // The value that stands for `v` now.
  ir::ValueId resolve(ir::ValueId v) const;
  // Returned or written to an input, or the base of a view that is.
  bool escapes(ir::ValueId v) const { return v.index < escapes_.size() && escapes_[v.index]; }

  // Rewrites the graph; says whether anything was replaced. Until then arguments may name replaced
  // values: use resolve().
  bool apply();

 private:
  ir::Graph& graph_;
  std::vector<ir::ValueId> to_;
  std::vector<bool> escapes_;
  bool any_ = false;
};

// A copy of `v`, which is contiguous, with the strides of `like`: its dimensions in another
// order. Nothing where that does not give this layout.
std::optional<ir::ValueId> copy_laid_out(ops::Rewriter& r, ir::ValueId v,
                                         const ir::TensorType& like);

// Removes the nodes that were made since there were `first`.
void kill_from(ir::Graph& g, size_t first);

// What `make` gives. Where the graph has symbols and a shape rule does not know enough of them,
// nothing: the node then stays what it is, which is right for all sizes.
template <class Make>
auto where_shapes_are_known(const ir::Graph& g, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const ops::UnknownShape&) {
    if (g.pool->symbol_count() == 0) throw;
    return {};
  }
}

// What `make(rewriter, call)` gives takes the place of the call's first output, where it has its
// layout; nothing stays where it gives nothing. Says whether there was one.
template <class Make>
bool replace_calls(ir::Graph& g, const Make& make) {
  Replacements replacements(g);
  const std::vector<ir::NodeId> order = g.order();
  for (ir::NodeId id : order) {
    const ir::Node& n = g.node(id);
    if (n.dead || n.kind != ir::NodeKind::CallOp || n.outputs.empty()) continue;
    const size_t first = g.node_count();
    ops::Rewriter r(g, id);
    const std::optional<ir::ValueId> out = where_shapes_are_known(g, [&] { return make(r, n); });
    if (out && same_place(g.value(*out).type, g.value(n.outputs[0]).type)) {
      replacements.replace_unchecked(n.outputs[0], *out);
      g.kill(id);
    } else {
      kill_from(g, first);
    }
  }
  const bool changed = replacements.apply();
  g.compact();
  return changed;
}

}  // namespace oxy::passes
