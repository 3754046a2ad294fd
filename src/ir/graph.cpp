// Graph: its tables, edits that keep them consistent, walks over arguments, and ops with regions.
#include "ir/graph.h"

#include <bit>
#include <unordered_set>

#include "support/check.h"

namespace oxy::ir {

const std::vector<Arg>* Arg::items() const {
  if (auto* l = get_if<List>()) return &l->items;
  if (auto* t = get_if<Tuple>()) return &t->items;
  return nullptr;
}

const Arg& Node::arg(size_t i) const {
  static const Arg none;
  return i < args.size() ? args[i] : none;
}

void for_each_value(const Arg& a, const std::function<void(ValueId)>& f) {
  if (a.is_value()) return f(a.value());
  for_each_child(a, [&](const Arg& x) { for_each_value(x, f); });
}

void for_each_value(const Node& n, const std::function<void(ValueId)>& f) {
  for (const Arg& a : n.args) for_each_value(a, f);
  for (const auto& [key, a] : n.kwargs) for_each_value(a, f);
}

Arg map_leaves(const Arg& a, const std::function<Arg(const Arg&)>& f) {
  auto map_all = [&](const std::vector<Arg>& items) {
    std::vector<Arg> out;
    out.reserve(items.size());
    for (const Arg& x : items) out.push_back(map_leaves(x, f));
    return out;
  };
  if (auto* list = a.get_if<List>()) return List{map_all(list->items)};
  if (auto* tuple = a.get_if<Tuple>()) return Tuple{map_all(tuple->items)};
  if (auto* dict = a.get_if<Dict>()) {
    Dict out;
    for (const auto& [key, x] : dict->items) out.items.emplace_back(key, map_leaves(x, f));
    return out;
  }
  if (auto* slice = a.get_if<std::shared_ptr<const Slice>>()) {
    const auto& [start, stop, step] = **slice;
    return std::make_shared<const Slice>(
        Slice{map_leaves(start, f), map_leaves(stop, f), map_leaves(step, f)});
  }
  return f(a);
}

Arg map_values(const Arg& a, const std::function<ValueId(ValueId)>& f) {
  return map_leaves(a, [&](const Arg& leaf) { return leaf.is_value() ? f(leaf.value()) : leaf; });
}

namespace {

uint64_t bits_of(double d) { return std::bit_cast<uint64_t>(d); }

size_t mix(size_t seed, size_t h) { return (seed ^ h) * 0x9E3779B97F4A7C15ull + (seed >> 29); }

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (requires { a.items; })
    return a.items == b.items;
  else if constexpr (requires { a.value; })
    return a.value == b.value;
  else if constexpr (requires { a.index; })
    return a.index == b.index;
  else
    return a == b;
}
bool same(Ellipsis, Ellipsis) { return true; }
bool same(Device a, Device b) { return a == b; }
bool same(double a, double b) { return bits_of(a) == bits_of(b); }
bool same(const std::complex<double>& a, const std::complex<double>& b) {
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}
bool same(const std::shared_ptr<const Slice>& a, const std::shared_ptr<const Slice>& b) {
  return a->start == b->start && a->stop == b->stop && a->step == b->step;
}

struct ArgHash {
  size_t operator()(None) const { return 1; }
  size_t operator()(Ellipsis) const { return 2; }
  size_t operator()(ValueId v) const { return v.index; }
  size_t operator()(bool b) const { return b; }
  size_t operator()(Expr e) const { return std::hash<Expr>()(e); }
  size_t operator()(double d) const { return bits_of(d); }
  size_t operator()(const std::complex<double>& c) const {
    return mix(bits_of(c.real()), bits_of(c.imag()));
  }
  size_t operator()(const Str& s) const { return std::hash<std::string>()(s.value); }
  size_t operator()(DType d) const { return static_cast<size_t>(d); }
  size_t operator()(Device d) const { return static_cast<size_t>(d.kind) * 256 + d.index; }
  size_t operator()(Layout l) const { return l.value; }
  size_t operator()(MemoryFormat m) const { return m.value; }
  size_t operator()(Object o) const { return o.index; }
  size_t operator()(const auto& list) const { return hash_all(list.items.size(), list.items); }
  size_t operator()(const std::shared_ptr<const Slice>& s) const {
    return mix(mix(hash_of(s->start), hash_of(s->stop)), hash_of(s->step));
  }

 private:
  static size_t hash_all(size_t seed, const std::vector<Arg>& items) {
    for (const Arg& x : items) seed = mix(seed, hash_of(x));
    return seed;
  }
  static size_t hash_all(size_t seed, const std::vector<std::pair<std::string, Arg>>& items) {
    for (const auto& [key, x] : items)
      seed = mix(mix(seed, std::hash<std::string>()(key)), hash_of(x));
    return seed;
  }
};

}  // namespace

bool operator==(const Arg& a, const Arg& b) {
  auto same_as_b = [&]<class T>(const T& x) { return same(x, b.get<T>()); };
  return a.v.index() == b.v.index() && std::visit(same_as_b, a.v);
}

size_t hash_of(const Arg& a) { return mix(a.v.index(), std::visit(ArgHash{}, a.v)); }

Graph::Graph(Stage stage, std::shared_ptr<sym::ExprPool> pool)
    : stage(stage), pool(std::move(pool)) {}

Node& Graph::make_node(NodeKind kind, std::string target, std::vector<Arg> args,
                       std::vector<Type> types) {
  Node& n = nodes_.emplace_back();
  n.id = NodeId(nodes_.size() - 1);
  n.kind = kind;
  n.target = std::move(target);
  n.args = std::move(args);
  for (Type& t : types) {
    auto index = static_cast<uint32_t>(n.outputs.size());
    values_.push_back(Value{n.id, index, std::move(t)});
    n.outputs.push_back(ValueId(values_.size() - 1));
  }
  return n;
}

ValueId Graph::add_input(std::string name, Type type) {
  Node& n = make_node(NodeKind::Input, std::move(name), {}, {std::move(type)});
  order_.insert(order_.begin() + static_cast<ptrdiff_t>(inputs_.size()), n.id);
  inputs_.push_back(n.outputs[0]);
  return n.outputs[0];
}

void Graph::drop_input(size_t i) {
  order_.erase(order_.begin() + static_cast<ptrdiff_t>(i));
  inputs_.erase(inputs_.begin() + static_cast<ptrdiff_t>(i));
  for (OutputSpec& o : outputs) {
    if (o.kind != OutputSpec::Kind::Input && o.kind != OutputSpec::Kind::ViewOfInput) continue;
    OXY_CHECK(o.index != i, "an input that is returned");
    if (o.index > i) --o.index;
  }
}

void Graph::arrange_inputs(std::vector<ValueId> inputs) {
  OXY_CHECK(inputs.size() == inputs_.size(), "arrange_inputs: other inputs");
  inputs_ = std::move(inputs);
  for (size_t i = 0; i < inputs_.size(); ++i) order_[i] = value(inputs_[i]).def;
}

ValueId Graph::add_attribute(std::string name, Type type) {
  Node& n = make_node(NodeKind::Attribute, std::move(name), {}, {std::move(type)});
  order_.push_back(n.id);
  return n.outputs[0];
}

Node& Graph::add_call(NodeKind kind, std::string target, std::vector<Arg> args,
                      std::vector<Type> output_types) {
  Node& n = make_node(kind, std::move(target), std::move(args), std::move(output_types));
  order_.push_back(n.id);
  return n;
}

Node& Graph::insert_call(NodeId before, NodeKind kind, std::string target, std::vector<Arg> args,
                         std::vector<Type> types) {
  // Insertions come in runs at growing positions, so the search starts where the last one ended.
  size_t at = last_insert_ < order_.size() ? last_insert_ : 0;
  auto it = std::find(order_.begin() + static_cast<ptrdiff_t>(at), order_.end(), before);
  if (it == order_.end()) it = std::find(order_.begin(), order_.end(), before);
  OXY_CHECK(it != order_.end(), "insert_call: the node is not in the order");
  Node& n = make_node(kind, std::move(target), std::move(args), std::move(types));
  last_insert_ = static_cast<size_t>(it - order_.begin());
  order_.insert(it, n.id);
  return n;
}

const TensorType& Graph::tensor_type(ValueId id) const {
  const Type& t = value(id).type;
  OXY_CHECK(t.is_tensor(), "value of node ", def(id).target, " is not a tensor");
  return t.tensor;
}

StackId Graph::add_stack(std::vector<Frame> frames) {
  StackId id;
  for (Frame& f : frames) id = add_frame(id, std::move(f));
  return id;
}

StackId Graph::add_frame(StackId caller, Frame f) {
  std::string key = cat(caller.index, '\0', f.file, '\0', f.line, '\0', f.function, '\0', f.code);
  auto [it, fresh] = stack_by_text_.try_emplace(std::move(key));
  if (fresh) it->second = stacks_.add({caller, std::move(f)});
  return it->second;
}

std::vector<Frame> Graph::stack(StackId id) const {
  std::vector<Frame> out;
  for (; id.valid(); id = stacks_[id].caller) out.push_back(stacks_[id].frame);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<uint32_t> Graph::use_counts() const {
  std::vector<uint32_t> counts(values_.size());
  auto count = [&](ValueId v) { ++counts[v.index]; };
  for (NodeId id : order_)
    if (!node(id).dead) for_each_value(node(id), count);
  for_each_value(result, count);
  for (const OutputSpec& o : outputs)
    if (o.kind == OutputSpec::Kind::Value) count(o.value);
  for (const Mutation& m : mutations) count(m.value);
  return counts;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  replace_uses([&](ValueId v) { return v == from ? to : v; });
}

void Graph::replace_uses(const std::function<ValueId(ValueId)>& f) {
  auto changes = [&](const Arg& a) {
    bool any = false;
    for_each_value(a, [&](ValueId v) { any |= f(v) != v; });
    return any;
  };
  auto update = [&](Arg& a) {
    if (changes(a)) a = map_values(a, f);
  };
  for (NodeId id : order_) {
    Node& n = node(id);
    if (n.dead) continue;
    for (Arg& a : n.args) update(a);
    for (auto& [key, a] : n.kwargs) update(a);
  }
  update(result);
  for (OutputSpec& o : outputs)
    if (o.kind == OutputSpec::Kind::Value) o.value = f(o.value);
  for (Mutation& m : mutations) m.value = f(m.value);
}

void Graph::kill_with_readers(size_t from, const std::function<bool(const Node&)>& is_wanted) {
  std::unordered_set<uint32_t> gone;  // values
  for (size_t i = from; i < order_.size(); ++i) {
    Node& n = node(order_[i]);
    if (n.dead) continue;
    bool goes = is_wanted(n);
    for_each_value(n, [&](ValueId v) { goes |= gone.contains(v.index); });
    if (!goes) continue;
    for (ValueId v : n.outputs) gone.insert(v.index);
    n.dead = true;
  }
}

void Graph::compact() {
  std::erase_if(order_, [&](NodeId id) { return node(id).dead; });
}

namespace {

template <class G, class F>
void walk_regions(G& g, const F& f) {
  for (NodeId id : g.order()) {
    if (g.node(id).dead) continue;
    for (auto& region : g.node(id).regions) {
      walk_regions(region, f);
      f(region);
    }
  }
}

}  // namespace

void for_each_region(Graph& g, const std::function<void(Graph&)>& f) { walk_regions(g, f); }
void for_each_region(const Graph& g, const std::function<void(const Graph&)>& f) {
  walk_regions(g, f);
}

namespace {

constexpr RegionOp kOps[] = {
    {"block_sparse", {"partial", "full"}, 7, 0, 0, false, 7},
    {"checkpoint", {"body", ""}, 0, 0, 0, false},
    {"cond", {"then", "else"}, 1, 0, 0, false},
    {"loop", {"body", ""}, 2, 1, 1, true},
    {"while_loop", {"while", "do"}, 0, 0, 0, true},
};

}  // namespace

const RegionOp* find_region_op(std::string_view name) {
  const auto* op = std::ranges::find(kOps, name, &RegionOp::name);
  return op == std::end(kOps) ? nullptr : op;
}

const RegionOp& region_op(const Node& n) {
  const RegionOp* op = find_region_op(n.target);
  OXY_CHECK(op != nullptr, "no op with regions: ", n.target);
  return *op;
}

size_t result_count(const Graph& g) {
  if (g.stage != Stage::Torch) return g.outputs.size();
  const std::vector<Arg>* items = g.result.items();
  return items ? items->size() : 0;
}

size_t first_optional_operand(const Node& n) {
  const RegionOp& op = region_op(n);
  return op.fixed + (op.carries ? result_count(n.regions.back()) - op.results : 0);
}

}  // namespace oxy::ir
