// If-conversion of masks. `nonzero` of a mask gives the places at which it holds; what is read at
// them (`index`), computed and written back (`index_put`) or folded is read, computed and folded
// everywhere, and a `where` with the mask says what counts. As vector units do with predicates.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "ir/specialize.h"
#include "ops/losses.h"
#include "passes/pass_list.h"
#include "passes/rewrite.h"
#include "support/tuning.h"
#include "symbolic/facts.h"

namespace oxy::passes {
namespace {

using ir::Arg;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using sym::Expr;

constexpr std::string_view kNonzero = "aten.nonzero.default", kSelect = "aten.select.int",
                           kIndex = "aten.index.Tensor", kPut = "aten.index_put.default",
                           kMaskedSelect = "aten.masked_select.default",
                           kMaskedScatter = "aten.masked_scatter.default",
                           kExpand = "aten.expand.default", kWhere = "aten.where.self";

// What stands in a folding for an element that is not selected.
struct Folding {
  std::string_view op;
  double neutral = 0;
  bool whole = false;  // of all dimensions, which no argument names
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Folding kFoldings[] = {{"aten.sum.default", 0, true},
                                 {"aten.sum.dim_IntList", 0},
                                 {"aten.prod.default", 1, true},
                                 {"aten.prod.dim_int", 1},
                                 {"aten.any.default", 0, true},
                                 {"aten.any.dims", 0},
                                 {"aten.any.dim", 0},
                                 {"aten.all.default", 1, true},
                                 {"aten.all.dims", 1},
                                 {"aten.all.dim", 1},
                                 {"aten.amax.default", -kInfinity},
                                 {"aten.amin.default", kInfinity}};

// Raises for what the mask may be there to leave out.
bool may_raise(const Graph& g, const Node& n) {
  static constexpr std::string_view kDivisions[] = {
      "aten.div.Tensor_mode",  "aten.floor_divide.default", "aten.fmod.Tensor",
      "aten.remainder.Tensor", "aten.fmod.Scalar",          "aten.remainder.Scalar"};
  return std::ranges::count(kDivisions, n.target) > 0 &&
         !ir::is_floating(g.tensor_type(n.outputs[0]).dtype);
}

// Losses and their gradients, by where `int reduction` stands among their arguments.
struct Loss {
  std::string_view op;
  size_t reduction = 0;
};
constexpr Loss kLosses[] = {{"aten.smooth_l1_loss.default", 2}, {"aten.huber_loss.default", 2}};
constexpr Loss kLossGradients[] = {{"aten.mse_loss_backward.default", 3},
                                   {"aten.smooth_l1_loss_backward.default", 3},
                                   {"aten.huber_loss_backward.default", 3},
                                   {"aten.binary_cross_entropy_backward.default", 4}};

std::optional<int64_t> reduction_of(const Loss& loss, const Graph& g, const Node& n) {
  return ops::reduction_of(ops::Args(g, n), loss.reduction);
}

void reduce_by(std::vector<Arg>& args, const Loss& loss, ops::LossReduction reduction) {
  if (args.size() <= loss.reduction) args.resize(loss.reduction + 1);
  args[loss.reduction] = int64_t{reduction};
}

bool decompose_loss(const Loss& loss, ops::Rewriter& r, const Node& n, std::vector<ValueId>& out) {
  const auto reduction = reduction_of(loss, r.graph(), n);
  std::vector<Arg> args = n.args;
  reduce_by(args, loss, ops::EachLoss);
  const ValueId each = r.call(n.target, std::move(args));
  const ValueId sum = r.call("aten.sum.default", {each});
  if (reduction == ops::MeanLoss) out.push_back(r.div(sum, Arg(r.type(each).numel())));
  if (reduction == ops::SumLoss) out.push_back(sum);
  return !out.empty();
}

// What a tensor is filled with: by a number, or by an argument.
struct Constant {
  std::string_view op;
  int value = 0;
  size_t argument = 0;
};
constexpr Constant kConstants[] = {
    {"aten.zeros.default"},      {"aten.zeros_like.default"},      {"aten.new_zeros.default"},
    {"aten.ones.default", 1},    {"aten.ones_like.default", 1},    {"aten.new_ones.default", 1},
    {"aten.full.default", 0, 1}, {"aten.full_like.default", 0, 1}, {"aten.new_full.default", 0, 2}};

Arg number(double v, ir::DType dtype) {
  if (dtype == ir::DType::B8) return v != 0;
  return ir::is_floating(dtype) ? Arg(v) : Arg(static_cast<int64_t>(v));
}

// One mask, and all that is selected by it.
class Selection {
 public:
  // `formulas`: of a joint graph, as partition has them.
  Selection(Graph& g, ValueId mask, std::vector<bool>* formulas)
      : graph_(g), mask_(mask), shape_(g.tensor_type(mask).sizes), formulas_(formulas), seen_(g) {}

  // Says whether all of it could be made so; else nothing has changed.
  bool convert(const std::vector<NodeId>& order) {
    const size_t first = graph_.node_count();
    const bool done = where_shapes_are_known(graph_, [&] {
      return std::ranges::all_of(order, [&](NodeId id) {
        const bool follows = follow(id);
        // What is new stands where this node did.
        if (formulas_ && !formulas_->empty())
          formulas_->resize(graph_.node_count(), (*formulas_)[id.index]);
        return follows;
      });
    });
    if (!done || results_.empty()) {
      kill_from(graph_, first);
      return false;
    }
    const NodeId start = gone_.front();
    for (NodeId id : gone_) graph_.kill(id);
    if (is_count_read()) give_count(start);
    graph_.replace_uses([&](ValueId v) { return now(v); });
    return true;
  }

 private:
  // A value that has the selected elements in the place of the mask's dimensions, which begin at
  // `at`. `whole`: of all elements, or what is broadcast to them, with the dimensions behind the
  // mask's at most.
  struct Selected {
    ValueId whole;
    size_t at = 0;
  };

  bool follow(NodeId id) {
    const Node n = graph_.node(id);  // a copy: inserting nodes can move the graph's own
    if (n.dead) return true;
    const bool begins = (n.target == kNonzero && n.arg(0) == Arg(mask_)) ||
                        (n.target == kMaskedSelect && n.arg(1) == Arg(mask_));
    bool reads = begins;
    for_each_value(n, [&](ValueId v) { reads |= is_selected(v); });
    reads |= is_uniform(n);
    if (!reads) return true;
    if (n.kind != ir::NodeKind::CallOp || n.outputs.empty()) return false;
    gone_.push_back(id);
    if (!take_over(n, begins)) return false;
    // Of several results (a buffer that the CPU leaves empty) nobody may read but the first.
    lost_.insert(n.outputs.begin() + 1, n.outputs.end());
    return std::ranges::none_of(
        n.outputs, [&](ValueId v) { return seen_.escapes(v) && !results_.contains(v); });
  }

  bool take_over(const Node& n, bool begins) {
    ops::Rewriter r(graph_, n.id);
    if (n.target == kNonzero) return begins && begin(n.outputs[0]);
    if (n.target == kMaskedSelect)
      return begins && has_rank_of_mask(n.arg(0)) && take(r, n, n.arg(0).value(), 0);
    if (n.target == kSelect) return note_place(n);
    if (n.target == kIndex) {
      const auto at = place_of(n.arg(1));
      return at && take(r, n, n.arg(0).value(), *at);
    }
    if (n.target == kPut) {
      const auto at = place_of(n.arg(1));
      const bool* adds = n.arg(3).get_if<bool>();
      return at && put(r, n, *at, n.arg(2), adds != nullptr && *adds);
    }
    if (n.target == kMaskedScatter)
      return n.arg(1) == Arg(mask_) && has_rank_of_mask(n.arg(0)) &&
             selected_.contains(n.arg(2).value()) && put(r, n, 0, n.arg(2), false);
    if (n.target == kExpand) return broadcast(n);
    const ops::OpInfo* info = ops::find(n);
    if (info == nullptr || info->has(ops::Random | ops::Effect)) return false;
    if (info->has(ops::Creation)) return fill(r, n);
    const auto* loss = std::ranges::find(kLosses, n.target, &Loss::op);
    const bool is_loss = loss != std::end(kLosses);
    if (info->has(ops::Pointwise) || (is_loss && reduction_of(*loss, graph_, n) == ops::EachLoss))
      return compute(r, n, *info);
    if (std::ranges::count(kFoldings, n.target, &Folding::op) > 0) return fold(r, n);
    if (is_loss) return take_apart(n, [&](auto& out) { return decompose_loss(*loss, r, n, out); });
    return info->decomposition && !ops::has_unknown_number(graph_, n, *info) &&
           take_apart(n, [&](auto& out) { return info->decomposition(r, n, out); });
  }

  // What the op is in terms of simpler ones.
  template <class Decompose>
  bool take_apart(const Node& n, const Decompose& decompose) {
    const size_t first = graph_.node_count();
    std::vector<ValueId> out;
    if (n.outputs.size() != 1 || !decompose(out) || !out.at(0).valid()) return false;
    const size_t end = graph_.node_count();
    for (size_t i = first; i < end; i++)
      if (!follow(NodeId(static_cast<uint32_t>(i)))) return false;
    const ValueId v = now(out[0]);
    if (const auto it = selected_.find(v); it != selected_.end()) {
      const Selected same = it->second;
      selected_[n.outputs[0]] = same;
      return true;
    }
    const bool is_new = graph_.value(v).def.index >= first && !is_view(graph_.def(v));
    if (!is_new || !same_place(graph_.tensor_type(v), graph_.tensor_type(n.outputs[0])))
      return false;
    results_[n.outputs[0]] = v;
    return true;
  }

  bool is_selected(ValueId v) const {
    return v == places_ || axes_.contains(v) || selected_.contains(v) || lost_.contains(v);
  }

  // Made for each that is selected, of nothing that is.
  bool is_uniform(const Node& n) const {
    if (!count_ || n.kind != ir::NodeKind::CallOp || n.outputs.size() != 1) return false;
    const ir::Type& t = graph_.value(n.outputs[0]).type;
    const bool known =
        n.target == kExpand || std::ranges::count(kConstants, n.target, &Constant::op);
    return known && t.is_tensor() && std::ranges::count(t.tensor.sizes, *count_) == 1;
  }

  size_t place_of_count(const ir::TensorType& t) const {
    return static_cast<size_t>(std::ranges::find(t.sizes, *count_) - t.sizes.begin());
  }

  bool broadcast(const Node& n) {
    const ir::TensorType& t = graph_.tensor_type(n.outputs[0]);
    const ValueId v = n.arg(0).value();
    if (!is_uniform(n) || is_selected(v)) return false;
    const size_t at = place_of_count(t);
    selected_[n.outputs[0]] = {now(v), at};
    return is_behind(v, t.sizes.size(), at);
  }

  bool fill(ops::Rewriter& r, const Node& n) {
    const auto* constant = std::ranges::find(kConstants, n.target, &Constant::op);
    if (constant == std::end(kConstants) || !count_) return false;
    const ir::TensorType t = graph_.tensor_type(n.outputs[0]);
    const Arg value =
        constant->argument > 0 ? n.arg(constant->argument) : number(constant->value, t.dtype);
    if (value.is_value()) return false;
    const bool each = is_uniform(n);
    const ValueId v = r.full(each ? std::vector<Expr>() : t.sizes, value, t.dtype, t.device);
    if (each)
      selected_[n.outputs[0]] = {v, place_of_count(t)};
    else
      results_[n.outputs[0]] = v;
    return each || same_place(r.type(v), t);
  }

  // The value, or what has taken its place.
  ValueId now(ValueId v) const {
    const auto it = results_.find(v);
    return it == results_.end() ? v : it->second;
  }

  bool begin(ValueId places) {
    const Expr count = graph_.tensor_type(places).sizes[0];
    if (places_.valid() || (count_ && *count_ != count)) return false;
    places_ = places;
    count_ = count;
    return true;
  }

  // These ops broadcast the mask.
  bool has_rank_of_mask(const Arg& a) const {
    return graph_.tensor_type(a.value()).sizes.size() == shape_.size();
  }

  bool note_place(const Node& n) {
    if (n.arg(0) != Arg(places_) || integer(n.arg(1)) != 1 || !integer(n.arg(2))) return false;
    axes_.emplace(n.outputs[0], static_cast<size_t>(*integer(n.arg(2))));
    return true;
  }

  bool take(ops::Rewriter& r, const Node& n, ValueId whole, size_t at) {
    if (!is_masked(whole, at)) return false;
    const Expr count = graph_.tensor_type(n.outputs[0]).sizes[at];
    if (count_ && *count_ != count) return false;
    count_ = count;
    whole = now(whole);
    // What eager keeps for the gradient is a copy, whatever is written to the input later.
    if (formulas_) whole = r.call("aten.clone.default", {whole});
    selected_[n.outputs[0]] = {whole, at};
    return true;
  }

  // Whether the mask's dimensions are these of a tensor. What is read or written everywhere must
  // not be much more than the mask.
  bool is_masked(ValueId v, size_t at) const {
    if (is_selected(v)) return false;
    const ir::TensorType& t = graph_.tensor_type(v);
    if (t.sizes.size() < at + shape_.size() ||
        !std::ranges::equal(shape_, std::span(t.sizes).subspan(at, shape_.size())))
      return false;
    return sym::hint(t.numel()) <=
           tuning::predicate_most * sym::hint(graph_.tensor_type(mask_).numel());
  }

  // Where the places stand among the indices; nothing where others are there too.
  std::optional<size_t> place_of(const Arg& indices) const {
    const std::vector<Arg>& all = *indices.items();
    size_t at = 0;
    while (at < all.size() && all[at].is_none()) at++;
    if (all.size() < at + shape_.size()) return std::nullopt;
    for (size_t d = 0; d < all.size() - at; d++) {
      const Arg& i = all[at + d];
      if (d >= shape_.size() ? !i.is_none() : !i.is_value()) return std::nullopt;
      if (d >= shape_.size()) continue;
      const auto axis = axes_.find(i.value());
      if (axis == axes_.end() || axis->second != d) return std::nullopt;
    }
    return at;
  }

  bool compute(ops::Rewriter& r, const Node& n, const ops::OpInfo& info) {
    const size_t rank = graph_.tensor_type(n.outputs[0]).sizes.size();
    std::optional<size_t> at;
    bool fits = !may_raise(graph_, n);
    for_each_value(n, [&](ValueId v) {
      const auto it = selected_.find(v);
      if (it == selected_.end()) return void(fits &= !is_selected(v));
      const size_t own = graph_.tensor_type(v).sizes.size();
      fits &= own == rank && (!at || *at == it->second.at);
      at = it->second.at;
    });
    if (!fits || !at) return false;
    for_each_value(n, [&](ValueId v) { fits &= selected_.contains(v) || is_behind(v, rank, *at); });
    work_ += info.has(ops::Cheap) ? 1 : tuning::predicate_costly;
    if (!fits || work_ > tuning::predicate_most_work) return false;
    std::vector<Arg> args = n.args;
    if (info.has(ops::Positional) && !make_sum(r, n, args)) return false;
    for (Arg& a : args)
      a = ir::map_values(a, [&](ValueId v) {
        const auto it = selected_.find(v);
        return it == selected_.end() ? now(v) : it->second.whole;
      });
    const ValueId whole = r.call_multi(n.target, std::move(args))[0];
    if (r.type(whole).dtype != graph_.tensor_type(n.outputs[0]).dtype) return false;
    selected_[n.outputs[0]] = {whole, *at};
    return true;
  }

  // The gradient of a loss's mean as that of a sum: there are others than the selected elements.
  bool make_sum(ops::Rewriter& r, const Node& n, std::vector<Arg>& args) const {
    const auto* loss = std::ranges::find(kLossGradients, n.target, &Loss::op);
    if (loss == std::end(kLossGradients)) return false;
    const auto reduction = reduction_of(*loss, graph_, n);
    if (reduction != ops::MeanLoss) return reduction.has_value();
    const ir::TensorType& gradient = graph_.tensor_type(args[0].value());
    if (!gradient.sizes.empty() || ir::is_reduced_float(gradient.dtype)) return false;
    args[0] = r.div(now(args[0].value()), Arg(graph_.tensor_type(n.outputs[0]).numel()));
    reduce_by(args, *loss, ops::SumLoss);
    return true;
  }

  // Whether a tensor meets those dimensions alone that stand behind the mask's.
  bool is_behind(ValueId v, size_t rank, size_t at) const {
    const ir::Type& t = graph_.value(v).type;
    return !t.is_tensor() || t.tensor.sizes.size() <= rank - at - 1;
  }

  // The mask, beside the dimensions of a tensor of this rank.
  ValueId mask_beside(ops::Rewriter& r, size_t rank, size_t at) {
    ValueId mask = mask_;
    for (size_t d = at + shape_.size(); d < rank; d++)
      mask = r.call("aten.unsqueeze.default", {mask, -1});
    return mask;
  }

  bool put(ops::Rewriter& r, const Node& n, size_t at, const Arg& given, bool adds) {
    if (!given.is_value() || !is_masked(n.arg(0).value(), at)) return false;
    const ValueId into = now(n.arg(0).value());
    const ir::TensorType out = graph_.tensor_type(n.outputs[0]);
    const size_t rank = out.sizes.size(), behind = rank - at - shape_.size();
    ValueId whole = now(given.value());
    if (const auto it = selected_.find(whole); it != selected_.end()) {
      if (it->second.at != at || r.type(whole).sizes.size() != behind + at + 1) return false;
      whole = it->second.whole;
    } else if (is_selected(whole) || r.type(whole).sizes.size() > behind) {
      return false;
    }
    if (adds) whole = r.add(into, whole);
    whole = r.call(kWhere, {mask_beside(r, rank, at), whole, into});
    if (r.type(whole).dtype != out.dtype || r.type(whole).sizes != out.sizes) return false;
    const auto laid_out = r.as(whole, out);
    if (!laid_out || !same_place(r.type(*laid_out), out)) return false;
    results_[n.outputs[0]] = *laid_out;
    return true;
  }

  bool fold(ops::Rewriter& r, const Node& n) {
    const auto* folding = std::ranges::find(kFoldings, n.target, &Folding::op);
    if (folding == std::end(kFoldings) || !n.arg(0).is_value()) return false;
    const auto it = selected_.find(n.arg(0).value());
    if (it == selected_.end()) return false;
    const auto [whole, at] = it->second;
    const ir::TensorType type = r.type(whole);
    const size_t rank = type.sizes.size(), more = shape_.size() - 1;
    if (rank != graph_.tensor_type(n.arg(0).value()).sizes.size() + more) return false;
    std::vector<int64_t> dims;
    bool selects = false;
    const auto given = folding->whole ? std::nullopt : integers(n.arg(1));
    for (int64_t d : given.value_or(std::vector<int64_t>())) {
      const auto own = static_cast<int64_t>(rank - more);
      const auto from_front = static_cast<size_t>(d < 0 ? d + own : d);
      selects |= from_front == at;
      for (size_t k = 0; k <= (from_front == at ? more : 0); k++)
        dims.push_back(static_cast<int64_t>(from_front + k + (from_front > at ? more : 0)));
    }
    const bool all = folding->whole || n.arg(1).is_none() || (given && given->empty());
    const bool* keeps = folding->whole ? nullptr : n.arg(2).get_if<bool>();
    if ((!given && !all) || (keeps != nullptr && *keeps && more > 0) || (!all && !selects))
      return false;
    std::vector<Arg> args = n.args;
    if (std::isinf(folding->neutral) && !ir::is_floating(type.dtype)) return false;
    const ValueId other = r.full({}, number(folding->neutral, type.dtype), type.dtype, type.device);
    args[0] = r.call(kWhere, {mask_beside(r, rank, at), whole, other});
    if (!all) {
      const bool takes_list = n.arg(1).items() != nullptr;
      if (!takes_list && dims.size() != 1) return false;
      args[1] = takes_list ? Arg(ops::list_of(dims)) : Arg(dims[0]);
    }
    const ValueId result = r.call(n.target, std::move(args));
    if (!same_place(r.type(result), graph_.tensor_type(n.outputs[0]))) return false;
    results_[n.outputs[0]] = result;
    return true;
  }

  // Whether anything is left that knows how many elements are selected.
  bool is_count_read() const {
    if (!count_ || count_->is_const()) return false;
    const std::vector<Expr> left = ir::symbols_of(graph_);
    if (std::ranges::any_of(left, [&](Expr s) { return sym::contains(*count_, s); })) return true;
    // That it is at most what the mask has need not be checked.
    const Expr all = graph_.tensor_type(mask_).numel();
    return std::ranges::any_of(sym::KnowFacts::checked_now(*graph_.pool), [&](const auto& fact) {
      return sym::contains(fact.condition, *count_) && fact.condition != sym::at_most(*count_, all);
    });
  }

  void give_count(NodeId before) {
    ops::Rewriter r(graph_, before);
    const ValueId count = r.call("aten.sum.dim_IntList", {mask_, Arg(), false});
    graph_.insert_call(before, ir::NodeKind::CallOp, std::string(ops::kReadNumber), {count},
                       {ir::Type::integer(*count_)});
  }

  Graph& graph_;
  const ValueId mask_;
  const std::vector<Expr> shape_;
  std::vector<bool>* const formulas_;  // null where there is no backward
  const Replacements seen_;            // by the caller
  std::optional<Expr> count_;
  ValueId places_;
  int work_ = 0;
  std::vector<NodeId> gone_;
  std::unordered_map<ValueId, size_t> axes_;  // of the places, by dimension of the mask
  std::unordered_map<ValueId, Selected> selected_;
  std::unordered_set<ValueId> lost_;
  std::unordered_map<ValueId, ValueId> results_;
};

bool convert_masks(Graph& g, std::vector<bool>* formulas) {
  std::vector<ValueId> masks;
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (n.dead || (n.target != kNonzero && n.target != kMaskedSelect)) continue;
    const ValueId mask = n.arg(n.target == kNonzero ? 0 : 1).value();
    const ir::TensorType& t = g.tensor_type(mask);
    if (t.dtype == ir::DType::B8 && !t.sizes.empty() && std::ranges::count(masks, mask) == 0)
      masks.push_back(mask);
  }
  bool changed = false;
  for (ValueId mask : masks) {
    changed |= Selection(g, mask, formulas).convert(std::vector(g.order()));
    g.compact();
  }
  return changed;
}

}  // namespace

bool predicate_masks(Graph& g) { return convert_masks(g, nullptr); }

bool predicate_trained_masks(Graph& joint, std::vector<bool>& formulas) {
  return convert_masks(joint, &formulas);
}

}  // namespace oxy::passes
