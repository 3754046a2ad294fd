// Specialised graphs, and matching a graph's inputs against real sizes.
#include "ir/specialize.h"

#include "support/check.h"

namespace oxy::ir {
namespace {

using Replace = std::function<Expr(Expr)>;

void collect(const TensorType& t, std::vector<Expr>& found) {
  for (Expr e : t.sizes) sym::collect_symbols(e, found);
  for (Expr e : t.strides) sym::collect_symbols(e, found);
  sym::collect_symbols(t.offset, found);
}

void collect(const Arg& a, std::vector<Expr>& found) {
  if (auto* e = a.get_if<Expr>()) return sym::collect_symbols(*e, found);
  for_each_child(a, [&](const Arg& x) { collect(x, found); });
}

void collect(const Graph& g, std::vector<Expr>& found) {
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (n.dead) continue;
    for (ValueId v : n.outputs) {
      collect(g.value(v).type.tensor, found);
      sym::collect_symbols(g.value(v).type.expr, found);
    }
    for (const Arg& a : n.args) collect(a, found);
    for (const auto& [key, a] : n.kwargs) collect(a, found);
    for (const Graph& region : n.regions) collect(region, found);
  }
  collect(g.result, found);
  for (const OutputSpec& o : g.outputs)
    if (o.is_view()) collect(o.type, found);
  for (const Mutation& m : g.mutations) collect(m.type, found);
}

class Mapper {
 public:
  explicit Mapper(const Replace& f) : f_(f) {}

  void operator()(Expr& e) const {
    if (!e.is_const()) e = f_(e);
  }

  void operator()(TensorType& t) const {
    for (Expr& e : t.sizes) (*this)(e);
    for (Expr& e : t.strides) (*this)(e);
    (*this)(t.offset);
  }

  void operator()(Type& t) const {
    (*this)(t.tensor);
    (*this)(t.expr);
  }

  void operator()(Arg& a) const {
    a = map_leaves(a, [this](Arg leaf) {
      if (auto* e = std::get_if<Expr>(&leaf.v)) (*this)(*e);
      return leaf;
    });
  }

 private:
  const Replace& f_;
};

// Solves one equation `e == value` after another for the symbols in them.
class Matcher {
 public:
  // False: no values make them equal. Left for later where two symbols in it are still free.
  bool equate(Expr e, int64_t value) {
    Expr rest = fill_in(e);
    if (rest.is_const()) return rest.value() == value;
    std::vector<Expr> free;
    sym::collect_symbols(rest, free);
    auto linear = free.size() == 1 ? sym::linear_in(rest, free[0]) : std::nullopt;
    if (!linear || !linear->first.is_const()) {
      later_.emplace_back(e, value);
      return true;
    }
    const int64_t factor = linear->first.value(), wanted = value - linear->second.value();
    const sym::Range range = sym::range_of(free[0]);
    if (wanted % factor != 0 || wanted / factor < range.lo || wanted / factor > range.hi)
      return false;
    values.set(free[0], wanted / factor);
    return true;
  }

  // What was left for later, again; true when nothing is left.
  bool settle() {
    while (!later_.empty()) {
      auto waiting = std::exchange(later_, {});
      for (auto [e, value] : waiting)
        if (!equate(e, value)) return false;
      if (later_.size() == waiting.size()) return false;
    }
    return true;
  }

  SymbolValues values;

 private:
  Expr fill_in(Expr e) const {
    if (e.is_const()) return e;
    return sym::substitute(e, [this](Expr symbol) {
      auto v = values.find(symbol);
      return v ? Expr(*v) : symbol;
    });
  }

  std::vector<std::pair<Expr, int64_t>> later_;
};

bool match_sizes(Matcher& m, const TensorType& t, const InputSizes& in) {
  if (t.sizes.size() != in.sizes.size()) return false;
  for (size_t i = 0; i < t.sizes.size(); ++i)
    if (!m.equate(t.sizes[i], in.sizes[i])) return false;
  return true;
}

bool match_strides(Matcher& m, const TensorType& t, const InputSizes& in) {
  for (int64_t size : in.sizes)
    if (size == 0) return m.equate(t.offset, in.offset);
  for (size_t i = 0; i < t.strides.size(); ++i)
    if (in.sizes[i] != 1 && !m.equate(t.strides[i], in.strides[i])) return false;
  return m.equate(t.offset, in.offset);
}

}  // namespace

std::vector<Expr> symbols_of(const Graph& g) {
  std::vector<Expr> found;
  collect(g, found);
  std::ranges::sort(found, {}, &Expr::symbol_index);
  return found;
}

void map_exprs(Graph& g, const Replace& f) {
  const Mapper map(f);
  for (uint32_t i = 0; i < g.value_count(); ++i) map(g.value(ValueId(i)).type);
  for (NodeId id : g.order()) {
    Node& n = g.node(id);
    for (Arg& a : n.args) map(a);
    for (auto& [key, a] : n.kwargs) map(a);
    for (Graph& region : n.regions) map_exprs(region, f);
  }
  map(g.result);
  for (OutputSpec& o : g.outputs) map(o.type);
  for (Mutation& m : g.mutations) map(m.type);
}

Graph specialize(const Graph& g, const std::function<std::optional<int64_t>(Expr)>& value_of) {
  Graph out = g;
  const Replace fill_in = [&](Expr symbol) -> Expr {
    auto v = value_of(symbol);
    if (!v) throw UserError(cat("no value for the symbol ", symbol.name()));
    return *v;
  };
  map_exprs(out, [&](Expr e) { return sym::substitute(e, fill_in); });
  return out;
}

std::optional<int64_t> SymbolValues::find(Expr symbol) const {
  return symbol.symbol_index() < values_.size() ? values_[symbol.symbol_index()] : std::nullopt;
}

void SymbolValues::set(Expr symbol, int64_t value) {
  if (values_.size() <= symbol.symbol_index()) values_.resize(symbol.symbol_index() + 1);
  values_[symbol.symbol_index()] = value;
}

std::optional<SymbolValues> match_inputs(const Graph& g, std::span<const InputSizes> inputs) {
  if (inputs.size() != g.inputs().size()) return std::nullopt;
  Matcher m;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& t = g.value(g.inputs()[i]).type;
    if (t.is_tensor() && !match_sizes(m, t.tensor, inputs[i])) return std::nullopt;
    if (t.kind == Type::Kind::Int && !m.equate(t.expr, inputs[i].number)) return std::nullopt;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& t = g.value(g.inputs()[i]).type;
    if (t.is_tensor() && !match_strides(m, t.tensor, inputs[i])) return std::nullopt;
  }
  if (!m.settle()) return std::nullopt;
  return std::move(m.values);
}

}  // namespace oxy::ir
