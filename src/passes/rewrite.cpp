// What passes share.
#include "passes/rewrite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ops/args.h"
#include "ops/contraction.h"
#include "ops/promote.h"

namespace oxy::passes {
namespace {

using ir::DType;

constexpr double kExact = 9007199254740992.0;  // 2^53

bool has_no_effect(const ir::Graph& region) {
  return std::ranges::all_of(region.order(), [&](ir::NodeId id) {
    const ir::Node& n = region.node(id);
    return n.dead || n.kind == ir::NodeKind::Input || is_removable(n);
  });
}

// Its results are no views of anything: a region, or a call whose row says so.
bool makes_memory(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  return n.kind == ir::NodeKind::Region || (info && !info->has(ops::View));
}

std::optional<double> to_integer(double v, double lo, double hi) {
  if (!std::isfinite(v)) return std::nullopt;
  v = std::trunc(v) + 0.0;  // no -0
  if (v < lo || v > hi) return std::nullopt;
  return v;
}

std::optional<double> number_of(const ir::Arg& a) {
  if (auto* d = a.get_if<double>()) return *d;
  if (auto* b = a.get_if<bool>()) return *b;
  const std::optional<int64_t> i = integer(a);
  if (!i || std::abs(static_cast<double>(*i)) > kExact) return std::nullopt;
  return static_cast<double>(*i);
}

bool row_applies(const ir::Graph& g, const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  return info && (info->element || info->reduction) && ops::rules_hold(g, n, *info);
}

bool same_outputs(const ir::Graph& g, const ir::Node& n, const ops::OpInfo& info,
                  const std::vector<ir::Arg>& args) {
  std::vector<ir::Type> types;
  return info.shape && info.shape(ops::Args(g, args), types) &&
         std::ranges::equal(types, n.outputs, [&](const ir::Type& type, ir::ValueId v) {
           return same_place(type, g.value(v).type);
         });
}

}  // namespace

bool is_removable(const ir::Node& n) {
  if (n.outputs.empty()) return false;
  if (n.kind == ir::NodeKind::Region) return std::ranges::all_of(n.regions, has_no_effect);
  if (n.kind != ir::NodeKind::CallOp) return false;
  const ops::OpInfo* info = ops::find(n);
  // What sizes depend on is no reader of its results.
  return !info || !info->has(ops::Random | ops::Effect | ops::DataDependent);
}

bool is_mergeable(const ir::Node& n) {
  if (n.kind == ir::NodeKind::Region || !is_removable(n)) return false;
  const ops::OpInfo* info = ops::find(n);
  // Ops of these namespaces do what their name says; every random one and every one with an effect
  // has a row.
  if (!info) return n.target.starts_with("aten.") || n.target.starts_with("prims.");
  // A creation op that no loop can express leaves its memory as it finds it.
  return !info->has(ops::Creation) || info->element;
}

bool is_view(const ir::Node& n) {
  const ops::OpInfo* info = ops::find(n);
  return info && info->has(ops::View);
}

std::optional<int64_t> integer(const ir::Arg& a) {
  const ir::Expr* e = a.get_if<ir::Expr>();
  return e && e->is_const() ? std::optional(e->value()) : std::nullopt;
}

std::optional<std::vector<int64_t>> integers(const ir::Arg& a) {
  if (std::optional<int64_t> one = integer(a)) return std::vector{*one};
  const std::vector<ir::Arg>* items = a.items();
  if (!items) return std::nullopt;
  std::vector<int64_t> out;
  for (const ir::Arg& x : *items) {
    std::optional<int64_t> v = integer(x);
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

const ir::TensorType* tensor_of(const ir::Graph& g, const ir::Arg& a) {
  if (!a.is_value()) return nullptr;
  const ir::Type& t = g.value(a.value()).type;
  return t.is_tensor() ? &t.tensor : nullptr;
}

std::optional<Uniform> uniform_of(const ir::Graph& g, const ir::Arg& a) {
  std::optional<double> v;
  DType dtype = DType::None;
  if (!a.is_value()) {
    v = number_of(a);
  } else if (const ir::TensorType* type = tensor_of(g, a)) {
    const ir::Node& def = g.def(a.value());
    if (def.kind == ir::NodeKind::CallOp && def.target == "aten.full.default")
      v = number_of(def.arg(1));
    if (v) v = round_to(dtype = type->dtype, *v);
  }
  return v ? std::optional(Uniform{*v, dtype}) : std::nullopt;
}

std::optional<double> round_to(DType dtype, double v) {
  switch (dtype) {
    case DType::F64:
    case DType::F32:
    case DType::BF16:
      return ops::round_to(v, dtype);
    case DType::I64:
      return to_integer(v, -kExact, kExact);
    case DType::I32:
      return to_integer(v, INT32_MIN, INT32_MAX);
    case DType::I16:
      return to_integer(v, INT16_MIN, INT16_MAX);
    case DType::I8:
      return to_integer(v, INT8_MIN, INT8_MAX);
    case DType::U8:
      return to_integer(v, 0, UINT8_MAX);
    case DType::B8:
      return v != 0 ? 1.0 : 0.0;
    default:
      return std::nullopt;
  }
}

ir::ValueId insert_copy(ir::Graph& g, ir::NodeId before, ir::ValueId v, ir::MemoryFormat format,
                        std::vector<ir::Expr> strides) {
  ir::TensorType type = g.tensor_type(v);
  type.strides = std::move(strides);
  type.offset = 0;
  ir::Node& copy = g.insert_call(before, ir::NodeKind::CallOp, "aten.clone.default", {v, format},
                                 {ir::Type::of(std::move(type))});
  copy.stack = g.node(before).stack;
  copy.parent = g.node(before).parent;
  return copy.outputs[0];
}

bool rewrite(ir::Graph& g, ir::Node& n, std::string_view op, std::vector<ir::Arg> args) {
  if (n.target == op && n.args == args) return false;
  const ops::OpInfo* info = ops::find(op);
  if (!info || !same_outputs(g, n, *info, args)) return false;
  bool applied = row_applies(g, n);
  ir::Node before = n;
  n.target = op;
  n.args = std::move(args);
  if (!applied || row_applies(g, n)) return true;
  n = std::move(before);
  return false;
}

Replacements::Replacements(ir::Graph& g)
    : graph_(g), to_(g.value_count()), escapes_(g.value_count()) {
  for (const ir::OutputSpec& o : g.outputs) {
    if (o.kind == ir::OutputSpec::Kind::Value) escapes_[o.value.index] = true;
  }
  for (const ir::Mutation& m : g.mutations) escapes_[m.value.index] = true;
  // Backwards, so that a chain of views is followed to its base. An op without a row may be a view
  // of any operand.
  for (size_t i = g.order().size(); i-- > 0;) {
    const ir::Node& n = g.node(g.order()[i]);
    if (n.dead || makes_memory(n)) continue;
    bool any = std::ranges::any_of(n.outputs, [&](ir::ValueId v) { return escapes_[v.index]; });
    if (any) for_each_value(n, [&](ir::ValueId v) { escapes_[v.index] = true; });
  }
}

bool Replacements::replace(ir::ValueId from, ir::ValueId to) {
  to = resolve(to);
  if (from == to || !same_place(graph_.value(from).type, graph_.value(to).type)) return false;
  if (escapes(from) && (!makes_memory(graph_.def(to)) || escapes(to))) return false;
  replace_unchecked(from, to);
  return true;
}

bool Replacements::replace_node(ir::Node& n, ir::ValueId to) {
  if (n.outputs.size() != 1 || !replace(n.outputs[0], to)) return false;
  return n.dead = true;
}

void Replacements::replace_unchecked(ir::ValueId from, ir::ValueId to) {
  to = resolve(to);
  to_.resize(graph_.value_count());
  escapes_.resize(graph_.value_count());
  to_[from.index] = to;
  if (escapes_[from.index]) escapes_[to.index] = true;
  any_ = true;
}

ir::ValueId Replacements::resolve(ir::ValueId v) const {
  while (v.index < to_.size() && to_[v.index].valid()) v = to_[v.index];
  return v;
}

bool Replacements::apply() {
  if (!any_) return false;
  graph_.replace_uses([this](ir::ValueId v) { return resolve(v); });
  graph_.compact();
  return true;
}

std::optional<ir::ValueId> copy_laid_out(ops::Rewriter& r, ir::ValueId v,
                                         const ir::TensorType& like) {
  std::vector<int64_t> order(like.sizes.size()), back(order.size());
  if (!std::ranges::all_of(like.strides, ops::has_hint)) return std::nullopt;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t d) {
    return sym::hint(like.strides[static_cast<size_t>(d)]);
  });
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  v = r.call("aten.permute.default", {v, ir::Arg(list_of(order))});
  v = r.call("aten.clone.default", {v, ir::Arg(ir::MemoryFormat{0})});
  v = r.call("aten.permute.default", {v, ir::Arg(list_of(back))});
  return same_place(r.type(v), like) ? std::optional(v) : std::nullopt;
}

void kill_from(ir::Graph& g, size_t first) {
  for (size_t i = first; i < g.node_count(); ++i) g.kill(ir::NodeId(i));
}

}  // namespace oxy::passes
