// The printer of the graph text. The parser is parse_text.cpp; the two are tested against each
// other.
#include <algorithm>
#include <unordered_set>

#include "ir/region_ops.h"
#include "ir/text.h"
#include "ir/text_words.h"
#include "support/lexer.h"
#include "symbolic/hints.h"

namespace oxy::ir {
namespace {

// The printed name of every value, made once for a whole graph.
class Names {
 public:
  explicit Names(const Graph& g) : names_(g.value_count()) {
    for (NodeId id : g.order()) {
      const Node& n = g.node(id);
      if (!n.dead) name_outputs(n);
    }
  }

  std::string operator()(ValueId v) const {
    if (!v.valid()) return "%none";
    bool known = v.index < names_.size() && !names_[v.index].empty();
    return known ? names_[v.index] : cat("%dead", v.index);
  }

 private:
  void name_outputs(const Node& n) {
    bool named = n.kind == NodeKind::Input || n.kind == NodeKind::Attribute;
    const std::string& wish = named ? n.target : n.name;
    for (ValueId v : n.outputs) {
      bool numbered = wish.empty() && !named;
      names_[v.index] = cat('%', numbered ? cat(next_number_++) : unique(cleaned(wish)));
    }
  }

  // Letters, digits and _, not starting with a digit, so that no name is a number.
  static std::string cleaned(const std::string& wish) {
    if (is_identifier(wish)) return wish;
    std::string s = wish;
    for (char& c : s) {
      bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!word) c = '_';
    }
    bool bad_start = s.empty() || (s[0] >= '0' && s[0] <= '9');
    return bad_start ? "_" + s : s;
  }

  std::string unique(const std::string& wish) {
    std::string s = wish;
    for (int i = 1; !taken_.insert(s).second; ++i) s = cat(wish, "_", i);
    return s;
  }

  std::vector<std::string> names_;
  std::unordered_set<std::string> taken_;
  uint32_t next_number_ = 0;
};

std::string_view stage_name(Stage s) {
  return s == Stage::Torch ? "torch" : s == Stage::Aten ? "aten" : "joint";
}

std::string word_or_quoted(const std::string& s) { return is_identifier(s) ? s : quote(s); }

std::string object_text(const Graph& g, uint32_t index) {
  return cat('@', index, ' ', quote(index < g.objects.size() ? g.objects[index] : ""));
}

// Begins like an argument of another kind.
bool is_ambiguous(std::string_view expr) {
  if (expr.starts_with('-')) expr.remove_prefix(1);
  size_t end = 0;
  while (end < expr.size() && (std::isalnum(static_cast<unsigned char>(expr[end])) ||
                               expr[end] == '_' || expr[end] == '.')) {
    ++end;
  }
  return is_reserved_word(expr.substr(0, end));
}

struct ArgPrinter {
  const Graph& g;
  const Names& names;
  std::string& out;

  void operator()(None) { append(out, "None"); }
  void operator()(ValueId v) { append(out, names(v)); }
  void operator()(bool b) { append(out, b); }
  void operator()(Expr e) {
    if (e.is_const()) return append(out, e.value());
    std::string text = sym::print(e);
    if (is_ambiguous(text)) text = cat('(', text, ')');
    append(out, text);
  }
  void operator()(double d) { append(out, print_float(d)); }
  void operator()(const std::complex<double>& c) {
    cat_to(out, "complex(", print_float(c.real()), ", ", print_float(c.imag()), ')');
  }
  void operator()(const Str& s) { append(out, quote(s.value)); }
  void operator()(DType d) { append(out, name(d)); }
  void operator()(Device d) { append(out, ir::print(d)); }
  void operator()(Layout l) { word("layout", kLayouts, l.value); }
  void operator()(MemoryFormat m) { word("memory_format", kMemoryFormats, m.value); }
  void operator()(const List& l) { sequence("[", l.items, "]"); }
  void operator()(const Tuple& t) { sequence("(", t.items, t.items.size() == 1 ? ",)" : ")"); }
  void operator()(const Dict& d) {
    append(out, '{');
    for (size_t i = 0; i < d.items.size(); ++i) {
      cat_to(out, i ? ", " : "", quote(d.items[i].first), ": ");
      arg(d.items[i].second);
    }
    append(out, '}');
  }
  void operator()(const std::shared_ptr<const Slice>& s) {
    append(out, "slice(");
    arg(s->start);
    append(out, ", ");
    arg(s->stop);
    append(out, ", ");
    arg(s->step);
    append(out, ')');
  }
  void operator()(Ellipsis) { append(out, "..."); }
  void operator()(Object o) { append(out, object_text(g, o.index)); }

  void arg(const Arg& a) { std::visit(*this, a.v); }
  void sequence(std::string_view open, const std::vector<Arg>& items, std::string_view close) {
    append(out, open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) append(out, ", ");
      arg(items[i]);
    }
    append(out, close);
  }
  template <size_t N>
  void word(std::string_view kind, const std::array<std::string_view, N>& words, int8_t value) {
    bool known = value >= 0 && static_cast<size_t>(value) < N;
    cat_to(out, kind, '(', known ? std::string(words[value]) : cat(static_cast<int>(value)), ')');
  }
};

class Printer {
 public:
  Printer(const Graph& g, const PrintOptions& options, std::string margin = "")
      : g_(g), options_(options), names_(g), margin_(std::move(margin)) {}

  std::string graph() {
    symbols();
    cat_to(out_, "graph ", stage_name(g_.stage));
    if (g_.name != "graph") cat_to(out_, ' ', quote(g_.name));
    append(out_, block());
    append(out_, '\n');
    return std::move(out_);
  }

  // From the parameters to the closing brace.
  std::string block() {
    std::string out = std::exchange(out_, "(");
    for (size_t i = 0; i < g_.inputs().size(); ++i) {
      if (i) append(out_, ", ");
      if (g_.is_tangent(i)) append(out_, "tangent ");
      declare(g_.inputs()[i]);
    }
    append(out_, ") {\n");
    for (NodeId id : g_.order()) {
      const Node& n = g_.node(id);
      if (n.dead || n.kind == NodeKind::Input) continue;
      cat_to(out_, margin_, "  ");
      node(n);
      if (options_.stacks) stack(n);
      append(out_, '\n');
    }
    for (const Mutation& m : g_.mutations) {
      cat_to(out_, margin_, "  mutate ", m.metadata ? "metadata " : "",
             names_(g_.inputs()[m.input]), " <- ", names_(m.value));
      if (m.metadata) cat_to(out_, " as ", ir::print(m.type));
      append(out_, '\n');
    }
    results();
    cat_to(out_, margin_, "}");
    return std::exchange(out_, std::move(out));
  }

  std::string one_node(const Node& n) {
    node(n);
    return std::move(out_);
  }

  std::string one_arg(const Arg& a) {
    arg(a);
    return std::move(out_);
  }

 private:
  void arg(const Arg& a) { ArgPrinter{g_, names_, out_}.arg(a); }

  void declare(ValueId v) { cat_to(out_, names_(v), ": ", ir::print(g_.value(v).type)); }

  void node(const Node& n) {
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (i) append(out_, ", ");
      declare(n.outputs[i]);
    }
    if (!n.outputs.empty()) append(out_, " = ");
    target(n);
    if (n.kind == NodeKind::Attribute || n.kind == NodeKind::Input) return;
    append(out_, '(');
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) append(out_, ", ");
      arg(n.args[i]);
    }
    for (size_t i = 0; i < n.kwargs.size(); ++i) {
      cat_to(out_, i || !n.args.empty() ? ", " : "", word_or_quoted(n.kwargs[i].first), '=');
      arg(n.kwargs[i].second);
    }
    append(out_, ')');
    for (size_t i = 0; i < n.regions.size(); ++i) {
      const RegionOp* op = find_region_op(n.target);
      const bool known = op != nullptr && i < op->region_count();
      cat_to(out_, ' ', known ? op->regions[i] : "region",
             Printer(n.regions[i], options_, margin_ + "  ").block());
    }
  }

  void target(const Node& n) {
    switch (n.kind) {
      case NodeKind::Input:
        return cat_to(out_, "input ", word_or_quoted(n.target));
      case NodeKind::Attribute:
        return cat_to(out_, "attr ", word_or_quoted(n.target));
      case NodeKind::CallFunction:
        return cat_to(out_, "call ", callable(n.target));
      case NodeKind::CallMethod:
        return cat_to(out_, "method ", word_or_quoted(n.target));
      case NodeKind::CallOp:
      case NodeKind::Region:
        append(out_, word_or_quoted(n.target));
    }
    if (n.returns.empty()) return;
    append(out_, '[');
    for (size_t i = 0; i < n.returns.size(); ++i) cat_to(out_, i ? ", " : "", n.returns[i]);
    append(out_, ']');
  }

  // "@obj3" prints as the object, with its name.
  std::string callable(const std::string& target) {
    std::optional<uint32_t> object = object_of_target(target);
    return object ? object_text(g_, *object) : word_or_quoted(target);
  }

  void stack(const Node& n) {
    if (!n.stack.valid() || n.stack == last_stack_) return;
    last_stack_ = n.stack;
    const Frame& f = g_.innermost(n.stack);
    std::string s =
        cat(f.file, ':', f.line, " in ", f.function, f.code.empty() ? "" : ": ", f.code);
    std::replace(s.begin(), s.end(), '\n', ' ');
    cat_to(out_, "   # ", s);
  }

  void results() {
    cat_to(out_, margin_, "  return");
    if (g_.stage == Stage::Torch) {
      append(out_, ' ');
      arg(g_.result);
    }
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      cat_to(out_, i ? ", " : " ", g_.is_gradient(i) ? "gradient " : "");
      output(g_.outputs[i]);
    }
    append(out_, '\n');
  }

  void output(const OutputSpec& o) {
    cat_to(out_, o.neg ? "neg " : "", o.conj ? "conj " : "");
    switch (o.kind) {
      case OutputSpec::Kind::Value:
        return append(out_, names_(o.value));
      case OutputSpec::Kind::Input:
        return cat_to(out_, "input(", o.index, ')');
      case OutputSpec::Kind::ViewOfInput:
        return cat_to(out_, "view(", o.index, ", ", ir::print(o.type), ')');
      case OutputSpec::Kind::ViewOfOutput:
        return cat_to(out_, "view_of_output(", o.index, ", ", ir::print(o.type), ')');
      case OutputSpec::Kind::None:
        return append(out_, "None");
    }
  }

  // Declares the symbols that occur, with what is known of them.
  void symbols() {
    std::vector<Expr> found;
    symbols_of(g_, found);
    for_each_region(g_, [&](const Graph& region) { symbols_of(region, found); });
    // In the order of their creation, which decides how sums are written.
    std::sort(found.begin(), found.end(),
              [](Expr a, Expr b) { return a.symbol_index() < b.symbol_index(); });
    for (Expr s : found) append(out_, symbol_line(s));
  }

  static void symbols_of(const Graph& g, std::vector<Expr>& found) {
    for (NodeId id : g.order()) {
      const Node& n = g.node(id);
      if (n.dead) continue;
      for (ValueId v : n.outputs) symbols_of(g.value(v).type, found);
      for (const Arg& a : n.args) symbols_of(a, found);
      for (const auto& [key, a] : n.kwargs) symbols_of(a, found);
    }
    symbols_of(g.result, found);
    for (const OutputSpec& o : g.outputs) {
      bool view =
          o.kind == OutputSpec::Kind::ViewOfInput || o.kind == OutputSpec::Kind::ViewOfOutput;
      if (view) symbols_of(Type::of(o.type), found);
    }
    for (const Mutation& m : g.mutations) symbols_of(Type::of(m.type), found);
  }

  static void symbols_of(Expr e, std::vector<Expr>& found) {
    if (!e.is_const()) sym::collect_symbols(e, found);
  }

  static void symbols_of(const Type& t, std::vector<Expr>& found) {
    symbols_of(t.expr, found);
    for (Expr e : t.tensor.sizes) symbols_of(e, found);
    for (Expr e : t.tensor.strides) symbols_of(e, found);
    symbols_of(t.tensor.offset, found);
  }

  static void symbols_of(const Arg& a, std::vector<Expr>& found) {
    if (auto* e = a.get_if<Expr>()) return symbols_of(*e, found);
    if (auto* items = a.items()) {
      for (const Arg& x : *items) symbols_of(x, found);
    } else if (auto* dict = a.get_if<Dict>()) {
      for (const auto& [key, x] : dict->items) symbols_of(x, found);
    } else if (auto* slice = a.get_if<std::shared_ptr<const Slice>>()) {
      for (const Arg* x : {&(*slice)->start, &(*slice)->stop, &(*slice)->step}) {
        symbols_of(*x, found);
      }
    }
  }

  static std::string symbol_line(Expr s) {
    sym::Range r = sym::range_of(s);
    std::string line = cat("symbol ", s.name(), " in [", r.lo == INT64_MIN ? "-inf" : cat(r.lo),
                           ", ", r.hi == INT64_MAX ? "inf" : cat(r.hi), "]");
    if (std::optional<int64_t> hint = sym::symbol_hint(s)) cat_to(line, ", hint ", *hint);
    return line + '\n';
  }

  const Graph& g_;
  const PrintOptions& options_;
  Names names_;
  const std::string margin_;
  StackId last_stack_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& g, const PrintOptions& options) {
  return Printer(g, options).graph();
}
std::string print(const Graph& g, const Node& n) { return Printer(g, {}).one_node(n); }
std::string print(const Graph& g, const Arg& a) { return Printer(g, {}).one_arg(a); }
std::string print(const Graph& g, ValueId v) { return Names(g)(v); }

}  // namespace oxy::ir
