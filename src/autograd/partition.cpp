// Two copies of the joint graph, each cut down to its side.
#include "autograd/partition.h"

#include <algorithm>
#include <unordered_set>

#include "autograd/choose_saved.h"
#include "autograd/compact.h"
#include "autograd/divide_products.h"
#include "autograd/narrow_draws.h"
#include "autograd/normalize_again.h"
#include "autograd/sides.h"
#include "autograd/unread_symbols.h"
#include "ops/op_table.h"
#include "passes/pass_list.h"
#include "support/check.h"

namespace oxy::autograd {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::OutputSpec;
using ir::Type;
using ir::ValueId;
using Kind = OutputSpec::Kind;

std::string name_of(const Graph& joint, std::string_view side) {
  return joint.name == "graph" ? std::string(side) : cat(joint.name, "_", side);
}

Graph copy_for(const Graph& joint, std::string_view side) {
  Graph g = joint;
  g.stage = ir::Stage::Aten;
  g.tangents = 0;
  g.name = name_of(joint, side);
  g.outputs.clear();
  g.mutations.clear();
  return g;
}

// Kills what is not in `order`, which names calls; inputs and attributes stay in front.
void keep(Graph& g, const std::vector<NodeId>& order) {
  std::vector<NodeId> all;
  for (ValueId v : g.inputs()) all.push_back(g.value(v).def);
  for (NodeId id : g.order())
    if (g.node(id).kind == NodeKind::Attribute) all.push_back(id);
  all.insert(all.end(), order.begin(), order.end());
  std::vector<bool> kept(g.node_count());
  for (NodeId id : all) kept[id.index] = true;
  for (NodeId id : g.order()) g.node(id).dead |= !kept[id.index];
  g.set_order(std::move(all));
}

// ---- the forward ----

class Forward {
 public:
  Forward(const Graph& joint, const Sides& sides)
      : joint_(joint), sides_(sides), g_(copy_for(joint, "forward")) {}

  Graph make(std::vector<Choice>& choices) {
    keep(g_, calls(choices));
    for (size_t i = g_.inputs().size(); i-- > joint_.primals();) g_.drop_input(i);
    const size_t results = forward_results(joint_);
    g_.outputs.assign(joint_.outputs.begin(),
                      joint_.outputs.begin() + static_cast<ptrdiff_t>(results));
    g_.mutations = joint_.mutations;
    for (Choice& c : choices) {
      if (c.saved.kind != Saved::Kind::Value) continue;
      give(c.saved, c.copied ? copy_of(c) : c.value);
    }
    return std::move(g_);
  }

  static void give_number(Graph& g, Saved& number) {
    const ir::Expr e = number.type.expr;
    const Node& n =
        g.add_call(NodeKind::CallOp, std::string(ops::kNumber), {e}, {Type::integer(e)});
    give(g, number, n.outputs[0]);
  }

 private:
  // What the forward and the saved values take, in the order of the joint graph.
  std::vector<NodeId> calls(const std::vector<Choice>& choices) const {
    std::vector<bool> taken(g_.node_count());
    for (NodeId id : g_.order()) taken[id.index] = sides_.side[id.index] == Side::Forward;
    for (const Choice& c : choices) taken[g_.value(c.value).def.index] = true;
    std::vector<NodeId> out;
    for (size_t i = g_.order().size(); i-- > 0;) {
      const Node& n = g_.node(g_.order()[i]);
      if (n.dead || !taken[n.id.index]) continue;
      for_each_value(n, [&](ValueId v) { taken[g_.value(v).def.index] = true; });
      if (n.kind != NodeKind::Input && n.kind != NodeKind::Attribute) out.push_back(n.id);
    }
    std::ranges::reverse(out);
    return out;
  }

  ValueId copy_of(const Choice& c) {
    std::vector<ir::Arg> args = {c.value};
    if (c.saved.type.tensor.strides != joint_.tensor_type(c.value).strides)
      args.emplace_back(ir::MemoryFormat{0});  // contiguous
    return g_.add_call(NodeKind::CallOp, "aten.clone.default", std::move(args), {c.saved.type})
        .outputs[0];
  }

  static void give(Graph& g, Saved& saved, ValueId v) {
    saved.index = static_cast<uint32_t>(g.outputs.size());
    g.outputs.push_back({Kind::Value, v, 0, {}});
  }
  void give(Saved& saved, ValueId v) { give(g_, saved, v); }

  const Graph& joint_;
  const Sides& sides_;
  Graph g_;
};

// ---- the backward ----

// The op's name, as torch names values: aten.mm.default gives "mm".
std::string_view short_name(std::string_view target) {
  const size_t first = target.find('.'), last = target.rfind('.');
  return first == last ? target : target.substr(first + 1, last - first - 1);
}

class Backward {
 public:
  // `formulas`: by node of the joint graph, if they are known.
  Backward(const Graph& joint, const Sides& sides, const std::vector<Choice>& choices,
           std::vector<bool> formulas)
      : joint_(joint),
        sides_(sides),
        choices_(choices),
        formulas_(std::move(formulas)),
        g_(copy_for(joint, "backward")) {}

  // Adds what it needs of sizes to `saved`, which has the choices by now.
  Graph make(std::vector<Saved>& saved) {
    for (ValueId v : joint_.inputs()) names_.insert(joint_.def(v).target);
    std::vector<ValueId> inputs = add_values(saved);
    keep(g_, calls());
    update_view_types(g_, copies_);
    if (!formulas_.empty()) read_before(saved, inputs);
    drop_primals(inputs);
    for (ir::Expr e : unread_symbols(g_, tangents())) inputs.push_back(add_number(saved, e));
    for (ValueId v : tangents()) inputs.push_back(v);
    g_.arrange_inputs(inputs);
    add_gradients();
    for (size_t i = 0; i < g_.value_count(); ++i)
      g_.value(ValueId(i)).type.tensor.requires_grad = false;
    return std::move(g_);
  }

 private:
  std::span<const ValueId> tangents() const {
    return std::span(joint_.inputs()).subspan(joint_.primals());
  }

  std::string new_name(std::string_view base) {
    std::string name(base);
    for (size_t i = 1; !names_.insert(name).second; ++i) name = cat(base, "_", i);
    return name;
  }

  // An input each: a primal's own, or a new one in the place of the saved value.
  std::vector<ValueId> add_values(std::vector<Saved>& saved) {
    std::vector<ValueId> inputs, to(g_.value_count());
    replace_numbers(to);
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ValueId v = choices_[i].value;
      const Node& def = joint_.def(v);
      if (def.kind == NodeKind::Input) {
        saved[i].name = def.target;
        inputs.push_back(v);
        g_.value(v).type = saved[i].type;
      } else {
        saved[i].name = new_name(short_name(def.target));
        inputs.push_back(to[v.index] = g_.add_input(saved[i].name, saved[i].type));
      }
      if (choices_[i].copied && !same_place(saved[i].type, joint_.value(v).type))
        copies_.push_back(inputs.back());
    }
    g_.replace_uses(
        [&](ValueId v) { return v.index < to.size() && to[v.index].valid() ? to[v.index] : v; });
    stands_for_ = std::move(to);
    return inputs;
  }

  // Numbers of the forward are computed from sizes again.
  void replace_numbers(std::vector<ValueId>& to) {
    for (uint32_t i = 0; i < joint_.value_count(); ++i) {
      const Type& t = joint_.value(ValueId(i)).type;
      const Node& def = joint_.def(ValueId(i));
      if (t.kind != Type::Kind::Int || def.dead || def.target == ops::kNumber ||
          sides_.side[def.id.index] == Side::Backward)
        continue;
      to[i] = g_.add_call(NodeKind::CallOp, std::string(ops::kNumber), {t.expr}, {t}).outputs[0];
    }
  }

  // What stands in the backward for a value of the joint graph.
  ValueId input_of(ValueId v) const {
    return stands_for_[v.index].valid() ? stands_for_[v.index] : v;
  }

  // What the gradients take. What is recomputed stands directly in front of its first reader: it
  // should not wait in memory.
  std::vector<NodeId> calls() const {
    std::vector<bool> placed(g_.node_count());
    std::vector<NodeId> out;
    for (NodeId id : joint_.order())
      if (sides_.side[id.index] == Side::Backward && sides_.needed[id.index])
        place(id, placed, out);
    for (size_t i = forward_results(joint_); i < joint_.outputs.size(); ++i)
      if (joint_.outputs[i].kind == Kind::Value)
        place(g_.value(input_of(joint_.outputs[i].value)).def, placed, out);
    return out;
  }

  void place(NodeId wanted, std::vector<bool>& placed, std::vector<NodeId>& out) const {
    std::vector<std::pair<NodeId, bool>> work = {{wanted, false}};
    while (!work.empty()) {
      const auto [id, operands_done] = work.back();
      work.pop_back();
      const Node& n = g_.node(id);
      if (n.kind == NodeKind::Input || n.kind == NodeKind::Attribute || placed[id.index]) continue;
      if (operands_done) {
        placed[id.index] = true;
        out.push_back(id);
        continue;
      }
      work.emplace_back(id, true);
      std::vector<NodeId> operands;
      for_each_value(n, [&](ValueId v) { operands.push_back(g_.value(v).def); });
      for (size_t i = operands.size(); i-- > 0;) work.emplace_back(operands[i], false);
    }
  }

  // What is computed again reads primals in the memory that they had.
  void read_before(std::vector<Saved>& saved, std::vector<ValueId>& inputs) {
    std::vector<bool> by_formula(g_.value_count()), computed_again(g_.value_count());
    for (size_t i = forward_results(joint_); i < joint_.outputs.size(); ++i)
      if (joint_.outputs[i].kind == Kind::Value)
        by_formula[input_of(joint_.outputs[i].value).index] = true;
    for (NodeId id : g_.order())
      for_each_value(g_.node(id), [&](ValueId v) {
        (is_formula(id) ? by_formula : computed_again)[v.index] = true;
      });
    std::vector<ValueId> to(g_.value_count());
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ValueId v = inputs[i];
      const bool may_change = saved[i].kind == Saved::Kind::Primal || saved[i].written;
      if (!may_change || !computed_again[v.index]) continue;
      if (!by_formula[v.index]) {
        read_before(saved[i]);
        continue;
      }
      Saved& twin = saved.emplace_back(saved[i]);
      twin.name = new_name(twin.name);
      twin.direct = false;
      read_before(twin);
      inputs.push_back(to[v.index] = g_.add_input(twin.name, twin.type));
    }
    for (NodeId id : g_.order()) {
      if (is_formula(id)) continue;
      for (ir::Arg& a : g_.node(id).args)
        a = ir::map_values(a, [&](ValueId v) {
          return v.index < to.size() && to[v.index].valid() ? to[v.index] : v;
        });
    }
  }

  static void read_before(Saved& s) {
    s.before = s.kind == Saved::Kind::Primal;
    s.written.reset();
  }

  // A checkpoint runs on the tensors that it was given.
  bool is_formula(NodeId id) const {
    const Node& n = g_.node(id);
    return (id.index < formulas_.size() && formulas_[id.index]) ||
           (n.kind == NodeKind::Region && n.target == "checkpoint");
  }

  void drop_primals(const std::vector<ValueId>& inputs) {
    for (size_t i = g_.inputs().size(); i-- > 0;) {
      const ValueId v = g_.inputs()[i];
      const bool stays = std::ranges::find(inputs, v) != inputs.end() ||
                         std::ranges::find(tangents(), v) != tangents().end();
      if (!stays) g_.drop_input(i);
    }
  }

  ValueId add_number(std::vector<Saved>& saved, ir::Expr e) {
    Saved& s = saved.emplace_back();
    s.type = Type::integer(e);
    s.kind = Saved::Kind::Number;
    s.name = new_name(sym::print(e));
    s.reason = "a size that nothing saved has";
    for (size_t i = 0; i < joint_.primals(); ++i) {
      const Type& t = joint_.value(joint_.inputs()[i]).type;
      if (t.kind != Type::Kind::Int || t.expr != e) continue;
      s.kind = Saved::Kind::Primal;
      s.index = static_cast<uint32_t>(i);
    }
    return g_.add_input(s.name, s.type);
  }

  void add_gradients() {
    for (size_t i = forward_results(joint_); i < joint_.outputs.size(); ++i) {
      OutputSpec o = joint_.outputs[i];
      if (o.kind == Kind::Value) {
        o.value = input_of(o.value);
        const auto input = std::ranges::find(g_.inputs(), o.value);
        if (input != g_.inputs().end())
          o = {Kind::Input, {}, static_cast<uint32_t>(input - g_.inputs().begin()), {}};
      }
      g_.outputs.push_back(o);
    }
  }

  const Graph& joint_;
  const Sides& sides_;
  const std::vector<Choice>& choices_;
  const std::vector<bool> formulas_;
  Graph g_;
  std::unordered_set<std::string> names_;
  std::vector<ValueId> stands_for_;  // by value of the joint graph
  std::vector<ValueId> copies_;      // inputs that are laid out as they were not
};

}  // namespace

Partition partition(const Graph& recorded, const PartitionOptions& options) {
  OXY_CHECK(recorded.stage == ir::Stage::Joint, "only joint graphs are cut");
  std::vector<bool> formulas(options.forward_nodes ? recorded.node_count() : 0);
  for (size_t i = options.forward_nodes.value_or(recorded.order().size());
       i < recorded.order().size(); ++i)
    formulas[recorded.order()[i].index] = true;
  Graph joint = recorded;
  divide_products(joint, formulas);
  passes::predicate_trained_masks(joint, formulas);
  if (options.machine) passes::expand_trained_attention(joint, formulas, *options.machine);
  if (options.policy == Policy::MinCut) {
    normalize_again(joint);
    narrow_draws(joint);
  }
  const Sides sides = sides_of(joint);
  std::vector<Choice> choices = choose_saved(joint, sides, options);
  Partition out{Forward(joint, sides).make(choices),
                forward_results(joint),
                Graph(ir::Stage::Aten, joint.pool),
                {}};
  for (const Choice& c : choices) out.saved.push_back(c.saved);
  out.backward = Backward(joint, sides, choices, std::move(formulas)).make(out.saved);
  for (Saved& s : out.saved)
    if (s.kind == Saved::Kind::Number) Forward::give_number(out.forward, s);
  return out;
}

}  // namespace oxy::autograd
