// No-op removal: one table from op to the operand that may stand for its result.
#include "passes/pass_list.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::Graph;
using ir::Node;
using ir::TensorType;

// The argument equal to the node's result, or nothing. Layouts are compared by the caller.
using StandIn = std::optional<Arg> (*)(const Graph&, const Node&);

bool is_list_of(const Arg& a, int64_t v) {
  std::optional<std::vector<int64_t>> xs = integers(a);
  return xs && std::ranges::all_of(*xs, [&](int64_t x) { return x == v; });
}

bool is_uniform(const Graph& g, const Arg& a, double v) {
  std::optional<Uniform> u = uniform_of(g, a);
  return u && u->value == v && std::signbit(u->value) == std::signbit(v);
}

// A second operand scaled by alpha has its sign kept.
bool plain_alpha(const Node& n) { return n.arg(2).is_none() || n.arg(2) == Arg(1); }

// The argument where that holds, else nothing.
std::optional<Arg> when(bool holds, const Arg& a) {
  return holds ? std::optional(a) : std::nullopt;
}

std::optional<Arg> always(const Graph&, const Node& n) { return n.arg(0); }

bool keeps_sizes(const Graph& g, const Node& n, const Arg& a) {
  const TensorType *from = tensor_of(g, a), *to = tensor_of(g, n.outputs[0]);
  return from && to && from->sizes == to->sizes;
}

// Views and copies that cannot move elements when the sizes stay.
std::optional<Arg> same_sizes(const Graph& g, const Node& n) {
  return when(keeps_sizes(g, n, n.arg(0)), n.arg(0));
}

// All of the first operand is overwritten by the second.
std::optional<Arg> overwritten(const Graph& g, const Node& n) {
  return when(keeps_sizes(g, n, n.arg(1)), n.arg(1));
}

// The same value, or the same view of it.
bool same_part(const Graph& g, const Arg& a, const Arg& b) {
  if (a == b) return true;
  if (!a.is_value() || !b.is_value()) return false;
  const Node &x = g.def(a.value()), &y = g.def(b.value());
  return is_view(x) && x.target == y.target && x.args.size() == y.args.size() &&
         x.outputs.size() == 1 && same_part(g, x.arg(0), y.arg(0)) &&
         std::equal(x.args.begin() + 1, x.args.end(), y.args.begin() + 1);
}

// Where what is written is what is there: an operator in place (x[3] += 1) writes its result, and
// the assignment that Python makes of it writes that again.
std::optional<Arg> written_back(const Graph& g, const Node& n) {
  const std::string_view view =
      n.target == "aten.select_scatter.default" ? "aten.select.int" : "aten.slice.Tensor";
  if (!n.arg(1).is_value()) return std::nullopt;
  const Node& read = g.def(n.arg(1).value());
  if (read.target != view || !same_part(g, read.arg(0), n.arg(0))) return std::nullopt;
  const size_t count = std::max(n.args.size(), read.args.size() + 1);
  for (size_t i = 2; i < count; ++i)
    if (n.arg(i) != read.arg(i - 1)) return std::nullopt;
  return n.arg(0);
}

// The places of a dimension that select, slice and their scatters name, of a known size: from
// `begin` in steps, in front of `end`.
struct Places {
  int64_t dim = 0, begin = 0, end = 0, step = 1;
};
std::optional<Places> places(const Graph& g, const Node& n, bool selects, size_t first) {
  const TensorType& t = g.tensor_type(n.arg(0).value());
  const auto dim = n.arg(first).is_none() ? std::optional<int64_t>(0) : integer(n.arg(first));
  const auto begin = n.arg(first + 1).is_none() && !selects ? 0 : integer(n.arg(first + 1));
  if (!dim || !begin || *dim < 0 || *begin < 0) return std::nullopt;
  if (selects) return Places{*dim, *begin, *begin + 1, 1};
  const Expr size = t.sizes[static_cast<size_t>(*dim)];
  const auto step =
      n.arg(first + 3).is_none() ? std::optional<int64_t>(1) : integer(n.arg(first + 3));
  const auto end = n.arg(first + 2).is_none() ? INT64_MAX : integer(n.arg(first + 2));
  if (!step || !end || *end < 0 || (*end == INT64_MAX && !size.is_const())) return std::nullopt;
  return Places{*dim, *begin, size.is_const() ? std::min(*end, size.value()) : *end, *step};
}

// A view of what was written into an input, beside the parts that were, is one of the input. Of
// other tensors it would keep what was there before the writes.
bool read_around_writes(const Graph& g, Node& n) {
  const bool selects = n.target == "aten.select.int";
  if ((!selects && n.target != "aten.slice.Tensor") || !n.arg(0).is_value()) return false;
  const auto read = places(g, n, selects, 1);
  ir::ValueId from = n.arg(0).value();
  while (read && g.def(from).kind != ir::NodeKind::Input) {
    const Node& write = g.def(from);
    const bool one = write.target == "aten.select_scatter.default";
    if (!one && write.target != "aten.slice_scatter.default") return false;
    const ir::ValueId into = write.arg(0).value();
    const auto written = places(g, write, one, 2);
    const bool apart = written && read->dim == written->dim &&
                       (read->end <= written->begin || written->end <= read->begin ||
                        (read->begin - written->begin) % std::gcd(read->step, written->step) != 0);
    if (!apart || !same_place(g.value(into).type, g.value(from).type)) return false;
    from = into;
  }
  if (!read || n.arg(0) == Arg(from)) return false;
  n.args[0] = from;
  return true;
}

std::optional<Arg> overwritten_or_back(const Graph& g, const Node& n) {
  const auto all = overwritten(g, n);
  return all ? all : written_back(g, n);
}

std::optional<Arg> permute(const Graph&, const Node& n) {
  std::optional<std::vector<int64_t>> dims = integers(n.arg(1));
  return when(dims && std::ranges::is_sorted(*dims), n.arg(0));
}

std::optional<Arg> cat(const Graph&, const Node& n) {
  const std::vector<Arg>* items = n.arg(0).items();
  return items && items->size() == 1 ? std::optional(items->front()) : std::nullopt;
}

std::optional<Arg> dropout(const Graph&, const Node& n) {
  return when(n.arg(2) == Arg(false), n.arg(0));
}

std::optional<Arg> pad(const Graph&, const Node& n) {
  return when(is_list_of(n.arg(1), 0), n.arg(0));
}

std::optional<Arg> repeat(const Graph&, const Node& n) {
  return when(is_list_of(n.arg(1), 1), n.arg(0));
}

// Of complex numbers the other one has an imaginary part of 0, which eager multiplies and adds as
// any number: inf * 0 is NaN, and -0 + 0 is 0.
bool gives_complex(const Graph& g, const Node& n) {
  const TensorType* to = tensor_of(g, n.outputs[0]);
  return to != nullptr && ir::is_complex(to->dtype);
}

std::optional<Arg> add(const Graph& g, const Node& n) {
  const TensorType* to = tensor_of(g, n.outputs[0]);
  if (!to || !plain_alpha(n) || gives_complex(g, n)) return std::nullopt;
  // x + -0.0 is x for every float; of integers there is one zero.
  double zero = ir::is_floating(to->dtype) ? -0.0 : 0.0;
  if (is_uniform(g, n.arg(1), zero)) return n.arg(0);
  return when(is_uniform(g, n.arg(0), zero), n.arg(1));
}

// Eager refuses to subtract a bool.
std::optional<Arg> sub(const Graph& g, const Node& n) {
  const bool refused = std::holds_alternative<bool>(n.arg(1).v) || gives_complex(g, n);
  return when(!refused && plain_alpha(n) && is_uniform(g, n.arg(1), 0.0), n.arg(0));
}

// To the power of 1, which eager copies.
std::optional<Arg> second_is_one(const Graph& g, const Node& n) {
  return when(is_uniform(g, n.arg(1), 1.0), n.arg(0));
}

std::optional<Arg> div(const Graph& g, const Node& n) {
  return gives_complex(g, n) ? std::nullopt : second_is_one(g, n);
}

std::optional<Arg> mul(const Graph& g, const Node& n) {
  if (gives_complex(g, n)) return std::nullopt;
  if (is_uniform(g, n.arg(1), 1.0)) return n.arg(0);
  return when(is_uniform(g, n.arg(0), 1.0), n.arg(1));
}

struct Row {
  std::string_view op;
  StandIn stand_in;
};
constexpr Row kRows[] = {
    {"aten._to_copy.default", same_sizes},
    {"aten._unsafe_view.default", same_sizes},
    {"aten.add.Scalar", add},
    {"aten.add.Tensor", add},
    {"aten.alias.default", always},
    {"aten.cat.default", cat},
    {"aten.clone.default", same_sizes},
    {"aten.constant_pad_nd.default", pad},
    {"aten.contiguous.default", same_sizes},
    {"aten.copy.default", overwritten},
    {"aten.detach.default", always},
    {"aten.div.Scalar", div},
    {"aten.div.Tensor", div},
    {"aten.dropout.default", dropout},
    {"aten.expand.default", same_sizes},
    {"aten.lift_fresh.default", always},
    {"aten.lift_fresh_copy.default", always},
    {"aten.mul.Scalar", mul},
    {"aten.mul.Tensor", mul},
    {"aten.permute.default", permute},
    {"aten.positive.default", always},
    {"aten.pow.Tensor_Scalar", second_is_one},
    {"aten.repeat.default", repeat},
    {"aten.reshape.default", same_sizes},
    {"aten.resize.default", same_sizes},
    {"aten.resize_as.default", same_sizes},
    {"aten.select_scatter.default", written_back},
    {"aten.slice.Tensor", same_sizes},
    {"aten.slice_scatter.default", overwritten_or_back},
    {"aten.split.Tensor", same_sizes},
    {"aten.split_with_sizes.default", same_sizes},
    {"aten.squeeze.default", same_sizes},
    {"aten.squeeze.dim", same_sizes},
    {"aten.squeeze.dims", same_sizes},
    {"aten.sub.Scalar", sub},
    {"aten.sub.Tensor", sub},
    {"aten.to.device", same_sizes},
    {"aten.to.dtype", same_sizes},
    {"aten.to.dtype_layout", same_sizes},
    {"aten.view.default", same_sizes},
    {"aten.view.dtype", same_sizes},
    {"prims.convert_element_type.default", same_sizes},
};
static_assert(std::ranges::is_sorted(kRows, {}, &Row::op));

std::optional<Arg> stand_in(const Graph& g, const Node& n) {
  if (n.kind != ir::NodeKind::CallOp || n.outputs.size() != 1) return std::nullopt;
  const Row* row = std::ranges::lower_bound(kRows, n.target, {}, &Row::op);
  if (row == std::end(kRows) || row->op != n.target) return std::nullopt;
  return row->stand_in(g, n);
}

}  // namespace

bool remove_noops(ir::Graph& g) {
  Replacements replacements(g);
  bool changed = false;
  for (ir::NodeId id : g.order()) {
    ir::Node& n = g.node(id);
    if (n.dead) continue;
    for (Arg& a : n.args)
      a = ir::map_values(a, [&](ir::ValueId v) { return replacements.resolve(v); });
    changed |= read_around_writes(g, n);
    std::optional<Arg> a = stand_in(g, n);
    if (a && a->is_value()) replacements.replace_node(n, a->value());
  }
  return replacements.apply() || changed;
}

}  // namespace oxy::passes
