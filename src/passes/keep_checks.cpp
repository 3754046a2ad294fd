// Checks in the place of calls that nothing reads and that raise for some values.
#include "passes/pass_list.h"

#include <algorithm>
#include <optional>

#include "ops/op_table.h"
#include "ops/promote.h"
#include "passes/rewrite.h"

namespace oxy::passes {
namespace {

using ir::Expr;
using ir::ValueId;

// What a call asks of the values of an operand: that they are places of a dimension of this size,
// counted from the end as well, or another number; without a size, that none of them is 0.
struct Demand {
  ValueId of;
  std::optional<Expr> size;
  bool from_end = false;
  std::optional<Expr> other;
  bool operator==(const Demand&) const = default;
};

// Ops that look places up: where the operand with them stands, and the argument with the number of
// the dimension; without one it is the first.
struct Lookup {
  std::string_view op;
  size_t places;
  int dim;
  bool from_end = false;
};
constexpr Lookup kLookups[] = {
    {"aten.embedding.default", 1, -1},
    {"aten.gather.default", 2, 1},
    {"aten.index_add.default", 2, 1},
    {"aten.index_copy.default", 2, 1},
    {"aten.index_fill.int_Scalar", 2, 1, true},
    {"aten.index_fill.int_Tensor", 2, 1, true},
    {"aten.index_reduce.default", 2, 1},
    {"aten.index_select.default", 2, 1},
    {"aten.scatter.reduce", 2, 1},
    {"aten.scatter.src", 2, 1},
    {"aten.scatter.value", 2, 1},
    {"aten.scatter.value_reduce", 2, 1},
    {"aten.scatter_add.default", 2, 1},
    {"aten.scatter_reduce.two", 2, 1},
};
static_assert(std::ranges::is_sorted(kLookups, {}, &Lookup::op));

constexpr std::string_view kDivisions[] = {
    "aten.div.Scalar_mode",  "aten.div.Tensor_mode", "aten.floor_divide.default",
    "aten.fmod.Scalar",      "aten.fmod.Tensor",     "aten.remainder.Scalar",
    "aten.remainder.Tensor",
};

// Ops that look at values in another way, and raise.
constexpr std::string_view kRaising[] = {
    "aten._ctc_loss.Tensor",
    "aten._ctc_loss.default",
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    "aten._linalg_eigh.default",
    "aten._linalg_eigvals.default",
    "aten._linalg_svd.default",
    "aten.histc.default",
    "aten.histogram.bin_ct",
    "aten.histogram.bins_tensor",
    "aten.linalg_eig.default",
    "aten.linalg_lstsq.default",
    "aten.linalg_pinv.atol_rtol_tensor",
    "aten.max_unpool2d.default",
    "aten.max_unpool3d.default",
    "aten.multi_margin_loss.default",
    "aten.multilabel_margin_loss_forward.default",
    "aten.put.default",
    "aten.segment_reduce.default",
};
static_assert(std::ranges::is_sorted(kRaising));

// Ops that raise where their last argument asks for it.
constexpr std::string_view kChecking[] = {
    "aten._linalg_solve_ex.default",    "aten.linalg_cholesky_ex.default",
    "aten.linalg_inv_ex.default",       "aten.linalg_ldl_factor_ex.default",
    "aten.linalg_lu_factor_ex.default",
};
static_assert(std::ranges::is_sorted(kChecking));

bool is_zero(const ir::Arg& a) {
  const Expr* e = a.get_if<Expr>();
  return e != nullptr && e->is_const(0);
}

// Whether eager may have no kernel for a dtype. Our rules refuse what eager refuses; of what they
// do not know the first operand says it.
bool may_lack_kernel(const ir::Graph& g, const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  if (info == nullptr ? !n.target.starts_with("aten.") : is_view(n)) return false;
  if (info != nullptr && info->element) return !rules_hold(g, n, *info);
  const ir::TensorType* self = n.args.empty() ? nullptr : tensor_of(g, n.arg(0));
  if (self == nullptr) return false;
  const bool has_rule = info != nullptr && info->decomposition;
  return !ops::is_computable(self->dtype) || (self->dtype == ir::DType::B8 && !has_rule);
}

bool raises_otherwise(const ir::Graph& g, const ir::Node& n) {
  if (n.kind != ir::NodeKind::CallOp) return false;
  const auto is_in = [&](const auto& ops) {
    return std::ranges::find(ops, n.target) != std::end(ops);
  };
  if (is_in(kChecking)) {
    const bool* checks = n.args.back().get_if<bool>();
    return checks != nullptr && *checks;
  }
  if (is_in(kDivisions))
    return is_zero(n.arg(1)) && ir::is_integral(g.tensor_type(n.outputs[0]).dtype, false);
  return is_in(kRaising) || may_lack_kernel(g, n);
}

// Whether eager looks at the places where there is nothing to be found, as no kernel of ours does.
bool gives_nothing(const ir::Graph& g, const ir::Node& n) {
  constexpr std::string_view kLooking[] = {"aten.embedding.default", "aten.index_reduce.default",
                                           "aten.index_select.default"};
  if (std::ranges::find(kLooking, n.target) == std::end(kLooking)) return false;
  return g.tensor_type(n.outputs[0]).numel().is_const(0);
}

class Demands {
 public:
  explicit Demands(const ir::Graph& g) : g_(g) {}

  std::vector<Demand> of(const ir::Node& n) {
    out_.clear();
    if (n.kind != ir::NodeKind::CallOp || n.args.empty()) return {};
    const ir::TensorType* self = tensor_of(g_, n.arg(0));
    if (self == nullptr) return {};
    const auto lookup = std::ranges::find(kLookups, n.target, &Lookup::op);
    if (lookup != std::end(kLookups)) {
      const std::optional<int64_t> dim =
          lookup->dim < 0 ? 0 : integer(n.arg(static_cast<size_t>(lookup->dim)));
      // Nothing is added to nothing.
      if (n.target == "aten.index_add.default" && self->numel().is_const(0)) return {};
      if (dim) add_places(n.arg(lookup->places), *self, *dim, lookup->from_end);
    } else if (n.target == "aten.index.Tensor" || n.target == "aten.index_put.default") {
      add_by_dimension(n, *self);
    } else if (n.target == "aten.take.default") {
      add({n.arg(1).value(), self->numel(), true, {}});
    } else if (n.target.starts_with("aten.nll_loss") && n.target.ends_with("forward.default")) {
      const size_t dim = self->sizes.size() > 1 ? 1 : 0;
      if (const Expr* ignored = n.arg(4).get_if<Expr>())
        add({n.arg(1).value(), self->sizes[dim], false, *ignored});
    } else if (std::ranges::find(kDivisions, n.target) != std::end(kDivisions)) {
      const bool whole = ir::is_integral(g_.tensor_type(n.outputs[0]).dtype, false);
      if (whole && n.arg(1).is_value()) add({n.arg(1).value(), {}, false, {}});
    }
    return std::move(out_);
  }

 private:
  void add(const Demand& d) {
    if (ir::is_integral(g_.tensor_type(d.of).dtype, false)) out_.push_back(d);
  }
  void add_places(const ir::Arg& places, const ir::TensorType& self, int64_t dim, bool from_end) {
    const auto count = static_cast<int64_t>(self.sizes.size());
    if (!places.is_value() || count == 0) return;
    add({places.value(),
         self.sizes[static_cast<size_t>(dim < 0 ? dim + count : dim)],
         from_end,
         {}});
  }
  // Masks stand for places that were found in another way.
  void add_by_dimension(const ir::Node& n, const ir::TensorType& self) {
    const auto* places = n.arg(1).items();
    const auto is_mask = [&](const ir::Arg& a) {
      const ir::TensorType* t = tensor_of(g_, a);
      return t != nullptr && (t->dtype == ir::DType::B8 || t->dtype == ir::DType::U8);
    };
    if (places == nullptr || std::ranges::any_of(*places, is_mask)) return;
    for (size_t d = 0; d < places->size(); ++d)
      add_places((*places)[d], self, static_cast<int64_t>(d), true);
  }

  const ir::Graph& g_;
  std::vector<Demand> out_;
};

void insert_check(ir::Graph& g, ir::NodeId at, const Demand& d) {
  ops::Rewriter r(g, at);
  ValueId holds;
  if (d.size) {
    const Expr low = d.from_end ? Expr(0) - *d.size : Expr(0);
    holds = r.call("aten.bitwise_and.Tensor", {r.call("aten.ge.Scalar", {d.of, low}),
                                               r.call("aten.lt.Scalar", {d.of, *d.size})});
    if (d.other)
      holds = r.call("aten.bitwise_or.Tensor", {holds, r.call("aten.eq.Scalar", {d.of, *d.other})});
  } else {
    holds = r.call("aten.ne.Scalar", {d.of, 0});
  }
  const ValueId all = r.call("aten.all.default", {holds});
  ir::Node& check = g.insert_call(at, ir::NodeKind::CallOp, "aten._assert_async.msg",
                                  {all, ir::Str{cat(g.node(at).target, " raises")}}, {});
  check.stack = g.node(at).stack;
  check.parent = g.node(at).parent;
}

// Reads a tensor that the node gives. `behind`: it stands in front of this one, or last.
void add_reader(ir::Graph& g, ir::NodeId of, std::optional<ir::NodeId> behind) {
  const auto& outputs = g.node(of).outputs;
  const auto tensor =
      std::ranges::find_if(outputs, [&](ValueId v) { return g.value(v).type.is_tensor(); });
  if (tensor == outputs.end()) return;
  const std::string target = "aten._assert_tensor_metadata.default";
  std::vector<ir::Arg> args = {*tensor};
  ir::Node& reader = behind
                         ? g.insert_call(*behind, ir::NodeKind::CallOp, target, std::move(args), {})
                         : g.add_call(ir::NodeKind::CallOp, target, std::move(args), {});
  reader.stack = g.node(of).stack;
  reader.parent = g.node(of).parent;
}

}  // namespace

bool keep_checks(ir::Graph& g, const std::vector<ir::NodeId>& in_try) {
  std::vector<uint32_t> uses = g.use_counts();
  const std::vector<ir::NodeId> order = g.order();
  Demands demands(g);
  std::vector<Demand> met;
  std::vector<std::pair<ir::NodeId, Demand>> dropped;                  // which no call makes
  std::vector<std::pair<ir::NodeId, std::optional<ir::NodeId>>> kept;  // and the next node
  for (size_t i = order.size(); i-- > 0;) {
    const ir::Node& n = g.node(order[i]);
    if (n.dead) continue;
    const bool read = std::ranges::any_of(n.outputs, [&](ValueId v) { return uses[v.index] > 0; });
    const bool stays = read || !is_removable(n);
    const bool is_caught = n.kind == ir::NodeKind::CallOp && !is_view(n) &&
                           std::ranges::find(in_try, n.id) != in_try.end();
    if (stays || raises_otherwise(g, n) || is_caught) {
      if (!stays)
        kept.emplace_back(n.id, i + 1 < order.size() ? std::optional(order[i + 1]) : std::nullopt);
      for (const Demand& d : demands.of(n)) {
        if (gives_nothing(g, n))
          dropped.emplace_back(n.id, d);
        else
          met.push_back(d);
      }
      continue;
    }
    for_each_value(n, [&](ValueId v) { --uses[v.index]; });
    for (const Demand& d : demands.of(n)) {
      ++uses[d.of.index];
      dropped.emplace_back(n.id, d);
    }
  }
  bool changed = !kept.empty();
  for (const auto& [id, next] : kept) add_reader(g, id, next);
  for (const auto& [at, d] : dropped) {
    if (std::ranges::find(met, d) != met.end()) continue;
    met.push_back(d);
    insert_check(g, at, d);
    changed = true;
  }
  return changed;
}

}  // namespace oxy::passes
