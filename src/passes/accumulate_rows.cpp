// Adds the gradient of an embedding to what it is added to row by row, instead of making a tensor
// as large as the table for it: where a table is read twice (a tied head), both are its gradient.
#include "passes/pass_list.h"

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::ValueId;

bool is_gradient_of_embedding(const ir::Node& n) {
  return n.target == "aten.embedding_dense_backward.default" && integer(n.arg(3)) &&
         n.arg(4) == ir::Arg(false);  // not scaled by how often a row is read
}

// The rows that are added: zeros at the padding's places, and at negative ones, which index_put
// would count from the end.
ValueId rows_of(ops::Rewriter& r, const ir::Node& n) {
  const ValueId rows = n.arg(0).value();
  ValueId is_place = r.call("aten.ge.Scalar", {n.arg(1), 0});
  if (*integer(n.arg(3)) >= 0) {
    const ValueId is_other = r.call("aten.ne.Scalar", {n.arg(1), n.arg(3)});
    is_place = r.call("aten.logical_and.default", {is_place, is_other});
  }
  is_place = r.call("aten.unsqueeze.default", {is_place, -1});
  const ir::TensorType& t = r.type(rows);
  return r.call("aten.where.self", {is_place, rows, r.full({}, 0.0, t.dtype, t.device)});
}

}  // namespace

bool accumulate_rows(ir::Graph& g) {
  const std::vector<uint32_t> uses = g.use_counts();
  const auto is_read_once = [&](ValueId v) { return v.index < uses.size() && uses[v.index] == 1; };
  return replace_calls(g, [&](ops::Rewriter& r, const ir::Node& n) -> std::optional<ValueId> {
    if (n.target != "aten.add.Tensor" || n.arg(2) != ir::Arg(1)) return std::nullopt;
    const ir::TensorType& out = g.tensor_type(n.outputs[0]);
    if (!ir::is_floating(out.dtype) || ir::is_reduced_float(out.dtype)) return std::nullopt;
    for (const size_t side : {0, 1}) {
      const ir::TensorType* sum = tensor_of(g, n.arg(1 - side));
      if (!sum || !same_place(*sum, out) || !tensor_of(g, n.arg(side))) continue;
      const ValueId gradient = n.arg(side).value();
      const ir::Node& made_by = g.def(gradient);
      if (!is_read_once(gradient) || !is_gradient_of_embedding(made_by)) continue;
      if (!same_place(g.tensor_type(gradient), out)) continue;
      return r.call("aten.index_put.default", {n.arg(1 - side), ir::List{{made_by.arg(1)}},
                                               rows_of(r, made_by), ir::Arg(true)});
    }
    return std::nullopt;
  });
}

}  // namespace oxy::passes
