// The printer and the parser of the graph text. What a type, a result or a mutation is called is
// described once for both.
#include "ir/text.h"

#include <unordered_set>

#include "ir/specialize.h"
#include "support/check.h"
#include "support/text_form.h"

namespace oxy::ir {
namespace {

// By number of their enumerators.
constexpr std::array<std::string_view, 3> kStages = {"torch", "aten", "joint"};
constexpr std::array<std::string_view, 6> kTypes = {"None", "", "int", "float", "bool", "object"};
constexpr std::array<std::string_view, 6> kNodes = {"input ", "attr ", "call ", "method ", "", ""};
constexpr std::array<std::string_view, 5> kOutputs = {"", "input", "view", "view_of_output",
                                                      "None"};

constexpr std::array<std::string_view, 3> kOrigins = {"", ", unbacked", ", data"};

struct SymbolLine {
  std::string name;
  sym::Range range;
  std::optional<int64_t> hint;
  sym::Origin origin{};
};
// One end of a range.
template <class N>
struct Bound {
  N& number;
};
// The number of an input, by its name.
template <class N>
struct InputName {
  N& number;
};

template <class Form>
void describe(Form& t, Is<SymbolLine> auto& s) {
  t("symbol ", s.name, " in [", Bound{s.range.lo}, ", ", Bound{s.range.hi}, "]");
  t.optional(", hint ", s.hint);
  t.word(s.origin, kOrigins, "");
}

template <class Form>
void describe(Form& t, Is<TensorType> auto& x) {
  t(x.dtype, x.sizes);
  t.device(x.device);
  t.flag(" requires_grad", x.requires_grad);
  if (t.choice(" strides=", !x.is_row_major()))
    t(x.strides);
  else
    t.row_major(x);
  if (t.choice(" offset=", !x.offset.is_const(0))) t(x.offset);
}

template <class Form>
void describe(Form& t, Is<Type> auto& x) {
  t.word(x.kind, kTypes, "expected a type");
  if (x.kind == Type::Kind::Tensor) t(x.tensor);
  if (x.kind == Type::Kind::Int) t("(", x.expr, ")");
}

template <class Form>
void describe(Form& t, Is<Mutation> auto& m) {
  t.flag("unseen ", m.unseen);
  t.flag("metadata ", m.metadata);
  t(InputName{m.input}, " <- ", m.value);
  if (m.metadata) t(" as ", m.type);
}

template <class Form>
void describe(Form& t, Is<OutputSpec> auto& o) {
  using enum OutputSpec::Kind;
  t.flag("neg ", o.neg);
  t.flag("conj ", o.conj);
  t.flag("piece ", o.piece);
  t.flag("detached ", o.detached);
  t.flag("itself ", o.itself);
  t.flag("unseen ", o.unseen);
  t.flag("no_grad ", o.no_grad);
  t.flag("derived ", o.derived);
  t.flag("any_layout ", o.any_layout);
  t.word(o.kind, kOutputs, "");
  if (o.kind == None) return;
  if (o.kind == Value) return t.result(o.value);
  t("(", o.index);
  if (o.kind != Input) t(", ", o.type);
  if (t.choice(", alias ", o.alias > 0)) t(o.alias);
  t(")");
}

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
  static std::string cleaned(std::string s) {
    if (is_identifier(s)) return s;
    auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (char& c : s)
      if (!is_digit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) c = '_';
    return s.empty() || is_digit(s[0]) ? "_" + s : s;
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

// Begins like an argument of another kind.
bool is_ambiguous(std::string_view expr) {
  if (expr.starts_with('-')) expr.remove_prefix(1);
  const auto end = std::ranges::find_if_not(
      expr, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
  const std::string_view word(expr.begin(), end);
  for (std::string_view w :
       {"None", "True", "False", "inf", "nan", "complex", "layout", "memory_format", "slice"})
    if (word == w) return true;
  return dtype_from_name(word).has_value() || device_kind_from_word(word).has_value();
}

// The number in "@objN", the target of a callable that only the host knows.
std::optional<uint32_t> object_of_target(std::string_view target) {
  return target.starts_with("@obj") ? parse_number<uint32_t>(target.substr(4)) : std::nullopt;
}

// What has no values in it.
class TypeWriter : public TextWriter<TypeWriter> {
 public:
  using TextWriter::field;
  void field(const auto& x) { describe(*this, x); }
  void field(Expr e) { append(out_, e); }
  void row_major(const TensorType&) {}
  std::string text(const auto& x) {
    field(x);
    return std::move(out_);
  }
};

class GraphWriter : public TextWriter<GraphWriter> {
 public:
  GraphWriter(const Graph& g, const PrintOptions& options, std::string margin = "")
      : g_(g), options_(options), names_(g), margin_(std::move(margin)) {}

  std::string graph() {
    for (Expr s : symbols_of(g_))
      (*this)(SymbolLine{s.name(), sym::range_of(s), sym::symbol_hint(s), sym::origin_of(s)}, "\n");
    (*this)("graph ");
    word(g_.stage, kStages, "");
    if (g_.name != "graph") cat_to(out_, ' ', quote(g_.name));
    append(out_, block());
    append(out_, '\n');
    return std::move(out_);
  }

  // From the parameters to the closing brace.
  std::string block() {
    std::string out = std::exchange(out_, "");
    list("(", g_.inputs(), ") {\n", [&, i = size_t{0}](ValueId v) mutable {
      choice("tangent ", g_.is_tangent(i++));
      declare(v);
    });
    for (NodeId id : g_.order()) {
      const Node& n = g_.node(id);
      if (n.dead || n.kind == NodeKind::Input) continue;
      (*this)(margin_, "  ", n);
      if (options_.stacks) stack(n);
      append(out_, '\n');
    }
    for (const Mutation& m : g_.mutations) (*this)(margin_, "  mutate ", m, "\n");
    results();
    cat_to(out_, margin_, "}");
    return std::exchange(out_, std::move(out));
  }

  template <class T>
  std::string one(const T& x) {
    field(x);
    return std::move(out_);
  }

  using TextWriter::field;
  void field(const auto& x) { describe(*this, x); }
  void field(ValueId v) { append(out_, names_(v)); }
  void field(const TensorType& t) { append(out_, ir::print(t)); }
  void field(Bound<const int64_t> b) {
    if (b.number == INT64_MIN || b.number == INT64_MAX)
      append(out_, b.number < 0 ? "-inf" : "inf");
    else
      append(out_, b.number);
  }
  void field(InputName<const uint32_t> i) { field(g_.inputs()[i.number]); }
  void field(const Arg& a) {
    std::visit([this](const auto& x) { argument(x); }, a.v);
  }
  void field(const Node& n) {
    if (!n.outputs.empty()) list("", n.outputs, " = ", [this](ValueId v) { declare(v); });
    target(n);
    if (n.kind == NodeKind::Attribute || n.kind == NodeKind::Input) return;
    items("(", n.args, "");
    for (size_t i = 0; const auto& [key, a] : n.kwargs)
      (*this)(i++ > 0 || !n.args.empty() ? ", " : "", Word{key}, "=", a);
    append(out_, ')');
    for (size_t i = 0; i < n.regions.size(); ++i) {
      const RegionOp* op = find_region_op(n.target);
      const bool known = op != nullptr && i < op->region_count();
      cat_to(out_, ' ', known ? op->regions[i] : "region",
             GraphWriter(n.regions[i], options_, margin_ + "  ").block());
    }
  }
  void result(ValueId v) { field(v); }

 private:
  void items(std::string_view open, const std::vector<Arg>& args, std::string_view close) {
    list(open, args, close, [this](const Arg& a) { field(a); });
  }

  void argument(const Literal& l) { append(out_, print_literal(l)); }
  void argument(ValueId v) { field(v); }
  void argument(Expr e) {
    if (e.is_const()) return append(out_, e.value());
    std::string text = sym::print(e);
    if (is_ambiguous(text)) text = cat('(', text, ')');
    append(out_, text);
  }
  void argument(const Str& s) { append(out_, quote(s.value)); }
  void argument(const List& l) { items("[", l.items, "]"); }
  void argument(const Tuple& t) { items("(", t.items, t.items.size() == 1 ? ",)" : ")"); }
  void argument(const Dict& d) {
    list("{", d.items, "}", [this](const auto& x) { (*this)(quote(x.first), ": ", x.second); });
  }
  void argument(const std::shared_ptr<const Slice>& s) {
    (*this)("slice(", s->start, ", ", s->stop, ", ", s->step, ")");
  }
  void argument(Ellipsis) { append(out_, "..."); }
  void argument(Object o) {
    cat_to(out_, '@', o.index, ' ', quote(o.index < g_.objects.size() ? g_.objects[o.index] : ""));
  }

  void declare(ValueId v) { cat_to(out_, names_(v), ": ", ir::print(g_.value(v).type)); }

  void target(const Node& n) {
    word(n.kind, kNodes, "");
    const bool function = n.kind == NodeKind::CallFunction;
    if (const auto object = function ? object_of_target(n.target) : std::nullopt)
      argument(Object{*object});  // with its name
    else
      field(Word{n.target});
    optional("", n.returns);
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
    if (g_.stage == Stage::Torch) (*this)(" ", g_.result);
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      (*this)(i ? ", " : " ", g_.is_gradient(i) ? "gradient " : "", g_.outputs[i]);
    append(out_, '\n');
  }

  const Graph& g_;
  const PrintOptions& options_;
  Names names_;
  const std::string margin_;
  StackId last_stack_;
};

class GraphReader : public TextReader<GraphReader> {
 public:
  explicit GraphReader(Lexer& lexer) : TextReader(lexer), graph_(Stage::Aten) {}

  Graph graph() {
    while (lex_.is("symbol")) {
      SymbolLine s;
      field(s);
      graph_.pool->symbol(s.name, s.range, s.hint, s.origin);
    }
    lex_.expect("graph");
    word(graph_.stage, kStages, "expected the stage, torch, aten or joint");
    if (lex_.is(TokenKind::String)) graph_.name = lex_.next().text;
    block();
    if (!lex_.at_end()) lex_.fail("expected nothing after the graph");
    return std::move(graph_);
  }

  using TextReader::field;
  void field(auto& x) { describe(*this, x); }
  void field(ValueId& v) { v = value(); }
  void field(Expr& e) { e = expr(); }
  void field(Arg& a) { a = arg(); }
  void field(Bound<int64_t> b) {
    if (choice("-inf"))
      b.number = INT64_MIN;
    else if (choice("inf"))
      b.number = INT64_MAX;
    else
      field(b.number);
  }
  void field(InputName<uint32_t> i) {
    const size_t begin = lex_.peek().begin;
    const std::vector<ValueId>& inputs = graph_.inputs();
    auto it = std::ranges::find(inputs, value());
    if (it == inputs.end()) lex_.fail_at(begin, "only inputs can be mutated");
    i.number = static_cast<uint32_t>(it - inputs.begin());
  }
  void row_major(TensorType& t) { t.strides = contiguous_strides(t.sizes); }
  void result(ValueId& v) {
    if (!lex_.is(TokenKind::Percent))
      lex_.fail("expected a value, input(), view(), view_of_output() or None");
    v = value();
  }

 private:
  // From the parameters to the closing brace.
  void block() {
    lex_.list("(", ")", [&] { input(); });
    lex_.expect("{");
    while (!lex_.is("mutate") && !lex_.is("return")) node();
    while (lex_.accept("mutate")) field(graph_.mutations.emplace_back());
    lex_.expect("return");
    results();
    lex_.expect("}");
  }

  Graph region() {
    const Stage stage = graph_.stage == Stage::Torch ? Stage::Torch : Stage::Aten;
    Graph around = std::exchange(graph_, Graph(stage, graph_.pool));
    auto values = std::exchange(values_, {});
    block();
    values_ = std::move(values);
    return std::exchange(graph_, std::move(around));
  }

  void input() {
    if (graph_.stage == Stage::Joint && (graph_.tangents > 0 || lex_.is("tangent"))) {
      lex_.expect("tangent");
      ++graph_.tangents;
    }
    const auto [name, type] = declaration();
    define(name, graph_.add_input(name.text, type));
  }

  std::pair<Token, Type> declaration() {
    std::pair<Token, Type> d{lex_.expect(TokenKind::Percent), {}};
    (*this)(": ", d.second);
    return d;
  }

  void define(const Token& name, ValueId v) {
    if (!values_.emplace(name.text, v).second)
      lex_.fail_at(name.begin, cat("%", name.text, " is defined twice"));
  }

  ValueId value() {
    Token name = lex_.expect(TokenKind::Percent);
    auto it = values_.find(name.text);
    if (it == values_.end()) lex_.fail_at(name.begin, cat("%", name.text, " is not defined"));
    return it->second;
  }

  Expr expr() {
    size_t begin = lex_.peek().begin;
    std::string_view text = lex_.balanced();
    try {
      return sym::parse(text, *graph_.pool);
    } catch (const UserError& e) {
      lex_.fail_at(begin, e.what());
    }
  }

  void node() {
    std::vector<Token> names;
    std::vector<Type> types;
    while (lex_.is(TokenKind::Percent)) {
      auto [name, type] = declaration();
      names.push_back(std::move(name));
      types.push_back(std::move(type));
      if (!lex_.accept(",")) {
        lex_.expect("=");
        break;
      }
    }
    Node& n = call(std::move(types));
    for (size_t i = 0; i < names.size(); ++i) define(names[i], n.outputs[i]);
    // Numbers are given anew when the graph is printed.
    bool named = graph_.stage == Stage::Torch && !names.empty() && is_identifier(names[0].text);
    if (named && n.kind != NodeKind::Attribute) n.name = names[0].text;
  }

  Node& call(std::vector<Type> types) {
    if (lex_.accept("attr")) {
      if (types.size() != 1) lex_.fail("an attribute has one value");
      return graph_.def(graph_.add_attribute(lex_.word(), std::move(types[0])));
    }
    if (lex_.is(TokenKind::Identifier) && find_region_op(lex_.peek().text))
      return region_call(std::move(types));
    if (graph_.stage == Stage::Torch) {
      if (lex_.accept("method")) return call(NodeKind::CallMethod, lex_.word(), std::move(types));
      lex_.expect("call");
      return call(NodeKind::CallFunction,
                  lex_.is(TokenKind::At) ? cat("@obj", object().index) : lex_.word(),
                  std::move(types));
    }
    std::string target = lex_.word();
    std::vector<int32_t> returns;
    if (lex_.is("[")) field(returns);
    Node& n = call(NodeKind::CallOp, std::move(target), std::move(types));
    n.returns = std::move(returns);
    return n;
  }

  Node& region_call(std::vector<Type> types) {
    const std::string name = lex_.identifier();
    Node& n = call(NodeKind::Region, name, std::move(types));
    for (std::string_view word : find_region_op(name)->regions) {
      if (word.empty()) break;
      lex_.expect(word);
      n.regions.push_back(region());
    }
    return n;
  }

  Node& call(NodeKind kind, std::string target, std::vector<Type> types) {
    std::vector<Arg> args;
    std::vector<std::pair<std::string, Arg>> kwargs;
    lex_.list("(", ")", [&] {
      if (std::optional<std::string> key = keyword())
        kwargs.emplace_back(*key, arg());
      else
        args.push_back(arg());
    });
    Node& n = graph_.add_call(kind, std::move(target), std::move(args), std::move(types));
    n.kwargs = std::move(kwargs);
    return n;
  }

  // `name =`, taken if it stands here.
  std::optional<std::string> keyword() {
    if (!lex_.is(TokenKind::Identifier) && !lex_.is(TokenKind::String)) return std::nullopt;
    Lexer probe = lex_;
    std::string key = probe.next().text;
    if (!probe.accept("=")) return std::nullopt;
    lex_ = probe;
    return key;
  }

  Arg arg() {
    if (lex_.is(TokenKind::Percent)) return value();
    if (lex_.is(TokenKind::At)) return object();
    if (lex_.is("[")) return List{items("[", "]")};
    if (lex_.is("(") && is_tuple()) return Tuple{items("(", ")")};
    if (lex_.is("{")) return dict();
    if (lex_.accept("...")) return Ellipsis{};
    if (lex_.accept("slice")) {
      Slice s;
      (*this)("(", s.start, ", ", s.stop, ", ", s.step, ")");
      return std::make_shared<const Slice>(std::move(s));
    }
    std::optional<Literal> literal = read_literal(lex_);
    if (!literal) return expr();
    auto as_arg = []<class T>(const T& x) -> Arg {
      if constexpr (std::same_as<T, std::string>)
        return Str{x};
      else
        return x;
    };
    return std::visit(as_arg, *literal);
  }

  Object object() {
    Token number = lex_.expect(TokenKind::At);
    const auto index = parse_number<uint32_t>(number.text);
    if (!index || *index > 1u << 20)
      lex_.fail_at(number.begin, "expected the number of an object after @");
    if (graph_.objects.size() <= *index) graph_.objects.resize(*index + 1);
    graph_.objects[*index] = lex_.expect(TokenKind::String).text;
    return Object{*index};
  }

  Dict dict() {
    Dict d;
    lex_.list("{", "}", [&] {
      auto& [key, x] = d.items.emplace_back(lex_.expect(TokenKind::String).text, Arg());
      (*this)(": ", x);
    });
    return d;
  }

  std::vector<Arg> items(std::string_view open, std::string_view close) {
    std::vector<Arg> out;
    lex_.list(open, close, [&] { out.push_back(arg()); });
    return out;
  }

  // A tuple is empty or has a comma of its own; other parentheses belong to an expression.
  bool is_tuple() const {
    Lexer probe = lex_;
    probe.next();
    if (probe.is(")")) return true;
    for (int depth = 1; depth > 0 && !probe.at_end();) {
      Token t = probe.next();
      if (t.kind != TokenKind::Punct) continue;
      if (t.text == "," && depth == 1) return true;
      depth += t.text == "(" || t.text == "[" || t.text == "{";
      depth -= t.text == ")" || t.text == "]" || t.text == "}";
    }
    return false;
  }

  void results() {
    if (graph_.stage == Stage::Torch) return field(graph_.result);
    size_t gradients = 0;
    while (!lex_.is("}")) {
      if (graph_.stage == Stage::Joint && (gradients > 0 || lex_.is("gradient"))) {
        lex_.expect("gradient");
        ++gradients;
      }
      field(graph_.outputs.emplace_back());
      if (!lex_.is("}")) lex_.expect(",");
    }
    if (graph_.stage == Stage::Joint && gradients != graph_.primals())
      lex_.fail(cat("expected a gradient for each of ", graph_.primals(), " primals"));
  }

  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

std::string print(const TensorType& t) { return TypeWriter().text(t); }
std::string print(const Type& t) { return TypeWriter().text(t); }

std::string print(const Graph& g, const PrintOptions& options) {
  return GraphWriter(g, options).graph();
}
std::string print(const Graph& g, const Node& n) { return GraphWriter(g, {}).one(n); }
std::string print(const Graph& g, const Arg& a) { return GraphWriter(g, {}).one(a); }
std::string print(const Graph& g, ValueId v) { return Names(g)(v); }

Graph parse(std::string_view text) {
  Lexer lexer(text);
  return GraphReader(lexer).graph();
}

}  // namespace oxy::ir
