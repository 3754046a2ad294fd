// The parser of the graph text. The printer is print_text.cpp; the grammar is in text.h.

#include "ir/region_ops.h"
#include "ir/text.h"
#include "ir/text_words.h"
#include "support/check.h"
#include "support/lexer.h"

namespace oxy::ir {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : lex_(text), graph_(Stage::Aten) {}

  Graph parse() {
    while (lex_.accept("symbol")) symbol();
    lex_.expect("graph");
    stage();
    if (lex_.is(TokenKind::String)) graph_.name = lex_.next().text;
    block();
    if (!lex_.at_end()) lex_.fail("expected nothing after the graph");
    return std::move(graph_);
  }

 private:
  // From the parameters to the closing brace.
  void block() {
    inputs();
    lex_.expect("{");
    while (!lex_.is("mutate") && !lex_.is("return")) node();
    while (lex_.accept("mutate")) mutation();
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

  void symbol() {
    std::string name = lex_.identifier();
    lex_.expect("in");
    lex_.expect("[");
    int64_t lo = bound(INT64_MIN);
    lex_.expect(",");
    int64_t hi = bound(INT64_MAX);
    lex_.expect("]");
    std::optional<int64_t> hint;
    if (lex_.accept(",")) {
      lex_.expect("hint");
      hint = lex_.integer();
    }
    graph_.pool->symbol(name, sym::Range{lo, hi}, hint);
  }

  int64_t bound(int64_t unbounded) {
    Lexer probe = lex_;
    probe.accept("-");
    if (!probe.accept("inf")) return lex_.integer();
    lex_ = probe;
    return unbounded;
  }

  void stage() {
    if (lex_.accept("torch")) {
      graph_.stage = Stage::Torch;
    } else if (lex_.accept("joint")) {
      graph_.stage = Stage::Joint;
    } else if (!lex_.accept("aten")) {
      lex_.fail("expected the stage, torch, aten or joint");
    }
  }

  void inputs() {
    lex_.expect("(");
    while (!lex_.accept(")")) {
      if (graph_.stage == Stage::Joint && (graph_.tangents > 0 || lex_.is("tangent"))) {
        lex_.expect("tangent");
        ++graph_.tangents;
      }
      Token name = lex_.expect(TokenKind::Percent);
      lex_.expect(":");
      define(name, graph_.add_input(name.text, type()));
      if (!lex_.is(")")) lex_.expect(",");
    }
  }

  void define(const Token& name, ValueId v) {
    if (!values_.emplace(name.text, v).second) {
      lex_.fail_at(name.begin, cat("%", name.text, " is defined twice"));
    }
  }

  ValueId value() {
    Token name = lex_.expect(TokenKind::Percent);
    auto it = values_.find(name.text);
    if (it == values_.end()) lex_.fail_at(name.begin, cat("%", name.text, " is not defined"));
    return it->second;
  }

  // ---- types

  Expr expr() {
    size_t begin = lex_.peek().begin;
    std::string_view text = lex_.balanced();
    try {
      return sym::parse(text, *graph_.pool);
    } catch (const UserError& e) {
      lex_.fail_at(begin, e.what());
    }
  }

  std::vector<Expr> expr_list() {
    std::vector<Expr> out;
    lex_.expect("[");
    while (!lex_.accept("]")) {
      out.push_back(expr());
      if (!lex_.is("]")) lex_.expect(",");
    }
    return out;
  }

  Type type() {
    if (lex_.accept("None")) return Type::none();
    if (lex_.accept("float")) return Type{Type::Kind::Float, {}, 0};
    if (lex_.accept("bool")) return Type{Type::Kind::Bool, {}, 0};
    if (lex_.accept("object")) return Type::opaque();
    if (lex_.accept("int")) {
      lex_.expect("(");
      Type t = Type::integer(expr());
      lex_.expect(")");
      return t;
    }
    return Type::of(tensor_type());
  }

  TensorType tensor_type() {
    TensorType t;
    std::optional<DType> dtype = dtype_from_name(lex_.peek().text);
    if (!dtype) lex_.fail("expected a type");
    lex_.next();
    t.dtype = *dtype;
    t.sizes = expr_list();
    if (lex_.is(TokenKind::Identifier) && device_kind_from_word(lex_.peek().text)) {
      t.device = device();
    }
    t.requires_grad = lex_.accept("requires_grad");
    if (lex_.accept("strides")) {
      lex_.expect("=");
      t.strides = expr_list();
    } else {
      t.strides = contiguous_strides(t.sizes);
    }
    if (lex_.accept("offset")) {
      lex_.expect("=");
      t.offset = expr();
    }
    return t;
  }

  Device device() {
    Device d;
    d.kind = *device_kind_from_word(lex_.identifier());
    if (lex_.accept(":")) d.index = static_cast<int8_t>(lex_.integer());
    return d;
  }

  // ---- nodes

  void node() {
    std::vector<Token> names;
    std::vector<Type> types;
    while (lex_.is(TokenKind::Percent)) {
      names.push_back(lex_.next());
      lex_.expect(":");
      types.push_back(type());
      if (!lex_.accept(",")) {
        lex_.expect("=");
        break;
      }
    }
    Node& n = graph_.stage == Stage::Torch ? torch_call(std::move(types)) : op(std::move(types));
    for (size_t i = 0; i < names.size(); ++i) define(names[i], n.outputs[i]);
    // Numbers are given anew when the graph is printed.
    bool named = graph_.stage == Stage::Torch && !names.empty() && is_identifier(names[0].text);
    if (named && n.kind != NodeKind::Attribute) n.name = names[0].text;
  }

  Node& attribute(std::vector<Type> types) {
    if (types.size() != 1) lex_.fail("an attribute has one value");
    return graph_.def(graph_.add_attribute(word(), std::move(types[0])));
  }

  // An identifier, or any text in quotes.
  std::string word() { return lex_.is(TokenKind::String) ? lex_.next().text : lex_.identifier(); }

  Node& op(std::vector<Type> types) {
    if (lex_.accept("attr")) return attribute(std::move(types));
    if (is_region_op()) return region_call(std::move(types));
    std::string target = word();
    std::vector<int32_t> returns;
    if (lex_.accept("[")) {
      while (!lex_.accept("]")) {
        returns.push_back(static_cast<int32_t>(lex_.integer()));
        if (!lex_.is("]")) lex_.expect(",");
      }
    }
    Node& n = call(NodeKind::CallOp, std::move(target), std::move(types));
    n.returns = std::move(returns);
    return n;
  }

  Node& torch_call(std::vector<Type> types) {
    if (lex_.accept("attr")) return attribute(std::move(types));
    if (is_region_op()) return region_call(std::move(types));
    if (lex_.accept("method")) return call(NodeKind::CallMethod, word(), std::move(types));
    lex_.expect("call");
    if (!lex_.is(TokenKind::At)) return call(NodeKind::CallFunction, word(), std::move(types));
    std::string target = cat("@obj", object().index);
    return call(NodeKind::CallFunction, std::move(target), std::move(types));
  }

  bool is_region_op() const {
    return lex_.is(TokenKind::Identifier) && find_region_op(lex_.peek().text) != nullptr;
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
    lex_.expect("(");
    while (!lex_.accept(")")) {
      if (std::optional<std::string> key = keyword()) {
        kwargs.emplace_back(*key, arg());
      } else {
        args.push_back(arg());
      }
      if (!lex_.is(")")) lex_.expect(",");
    }
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

  // ---- arguments

  Arg arg() {
    switch (lex_.peek().kind) {
      case TokenKind::Percent:
        return value();
      case TokenKind::String:
        return Str{lex_.next().text};
      case TokenKind::At:
        return object();
      case TokenKind::Identifier:
        return word_arg();
      case TokenKind::Float:
        return lex_.number();
      default:
        break;
    }
    if (lex_.is("[")) return List{items("[", "]")};
    if (lex_.is("{")) return dict();
    if (lex_.accept("...")) return Ellipsis{};
    if (lex_.is("(") && is_tuple()) return Tuple{items("(", ")")};
    if (lex_.is("-") && is_negative_float()) return lex_.number();
    return expr();
  }

  Arg word_arg() {
    if (lex_.accept("None")) return None{};
    if (lex_.accept("True")) return true;
    if (lex_.accept("False")) return false;
    if (lex_.is("inf") || lex_.is("nan")) return lex_.number();
    if (lex_.accept("complex")) return complex();
    if (lex_.accept("slice")) return slice();
    if (lex_.accept("layout")) return Layout{numbered_word(kLayouts)};
    if (lex_.accept("memory_format")) return MemoryFormat{numbered_word(kMemoryFormats)};
    if (device_kind_from_word(lex_.peek().text)) return device();
    if (std::optional<DType> d = dtype_from_name(lex_.peek().text)) {
      lex_.next();
      return *d;
    }
    return expr();
  }

  Object object() {
    Token number = lex_.expect(TokenKind::At);
    uint32_t index = 0;
    const char* end = number.text.data() + number.text.size();
    auto r = std::from_chars(number.text.data(), end, index);
    if (r.ec != std::errc() || r.ptr != end || index > 1u << 20) {
      lex_.fail_at(number.begin, "expected the number of an object after @");
    }
    if (graph_.objects.size() <= index) graph_.objects.resize(index + 1);
    graph_.objects[index] = lex_.expect(TokenKind::String).text;
    return Object{index};
  }

  std::complex<double> complex() {
    lex_.expect("(");
    double re = lex_.number();
    lex_.expect(",");
    double im = lex_.number();
    lex_.expect(")");
    return {re, im};
  }

  Arg slice() {
    Slice s;
    lex_.expect("(");
    s.start = arg();
    lex_.expect(",");
    s.stop = arg();
    lex_.expect(",");
    s.step = arg();
    lex_.expect(")");
    return std::make_shared<const Slice>(std::move(s));
  }

  Dict dict() {
    Dict d;
    lex_.expect("{");
    while (!lex_.accept("}")) {
      std::string key = lex_.expect(TokenKind::String).text;
      lex_.expect(":");
      d.items.emplace_back(std::move(key), arg());
      if (!lex_.is("}")) lex_.expect(",");
    }
    return d;
  }

  std::vector<Arg> items(std::string_view open, std::string_view close) {
    std::vector<Arg> out;
    lex_.expect(open);
    while (!lex_.accept(close)) {
      out.push_back(arg());
      if (!lex_.is(close)) lex_.expect(",");
    }
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

  bool is_negative_float() const {
    Lexer probe = lex_;
    probe.next();
    return probe.is(TokenKind::Float) || probe.is("inf");
  }

  template <size_t N>
  int8_t numbered_word(const std::array<std::string_view, N>& words) {
    lex_.expect("(");
    int8_t value = -1;
    if (lex_.is(TokenKind::Identifier)) {
      for (size_t i = 0; i < N; ++i) {
        if (lex_.is(words[i])) value = static_cast<int8_t>(i);
      }
      if (value < 0) lex_.fail("unknown word");
      lex_.next();
    } else {
      value = static_cast<int8_t>(lex_.integer());
    }
    lex_.expect(")");
    return value;
  }

  // ---- the end

  void mutation() {
    Mutation m;
    m.metadata = lex_.accept("metadata");
    m.input = input_index();
    lex_.expect("<-");
    m.value = value();
    if (m.metadata) {
      lex_.expect("as");
      m.type = tensor_type();
    }
    graph_.mutations.push_back(m);
  }

  uint32_t input_index() {
    size_t begin = lex_.peek().begin;
    ValueId v = value();
    const std::vector<ValueId>& inputs = graph_.inputs();
    auto it = std::find(inputs.begin(), inputs.end(), v);
    if (it == inputs.end()) lex_.fail_at(begin, "only inputs can be mutated");
    return static_cast<uint32_t>(it - inputs.begin());
  }

  void results() {
    if (graph_.stage == Stage::Torch) {
      graph_.result = arg();
      return;
    }
    size_t gradients = 0;
    while (!lex_.is("}")) {
      if (graph_.stage == Stage::Joint && (gradients > 0 || lex_.is("gradient"))) {
        lex_.expect("gradient");
        ++gradients;
      }
      graph_.outputs.push_back(output());
      if (!lex_.is("}")) lex_.expect(",");
    }
    if (graph_.stage == Stage::Joint && gradients != graph_.primals())
      lex_.fail(cat("expected a gradient for each of ", graph_.primals(), " primals"));
  }

  OutputSpec output() {
    using Kind = OutputSpec::Kind;
    OutputSpec o;
    o.neg = lex_.accept("neg");
    o.conj = lex_.accept("conj");
    if (lex_.is(TokenKind::Percent)) {
      o.value = value();
      return o;
    }
    if (lex_.accept("None")) {
      o.kind = Kind::None;
      return o;
    }
    if (lex_.accept("input")) {
      o.kind = Kind::Input;
    } else if (lex_.accept("view")) {
      o.kind = Kind::ViewOfInput;
    } else if (lex_.accept("view_of_output")) {
      o.kind = Kind::ViewOfOutput;
    } else {
      lex_.fail("expected a value, input(), view(), view_of_output() or None");
    }
    lex_.expect("(");
    o.index = static_cast<uint32_t>(lex_.integer());
    if (o.kind != Kind::Input) {
      lex_.expect(",");
      o.type = tensor_type();
    }
    lex_.expect(")");
    return o;
  }

  Lexer lex_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace oxy::ir
