// The text of a program, written and read: buffers, then steps in order.
#include <algorithm>
#include <array>
#include <cctype>

#include "ir/text.h"
#include "loops/loop_ir.h"

namespace oxy::loops {

namespace {

// In the order of Buffer::Kind.
constexpr std::array<std::string_view, 6> kBufferKinds = {"input",  "attribute", "temp",
                                                          "extern", "output",    "view"};

std::string list(const std::vector<Expr>& exprs) {
  return cat("[", join(exprs, ", ", [](std::string& s, Expr e) { append(s, e); }), "]");
}

void print_inst(std::string& out, const Program& p, const Loop& loop, uint32_t id) {
  const Inst& i = loop.body[id];
  auto arg = [&](size_t k) { return cat("%", i.args[k]); };
  auto place = [&] { return p.buffers[i.buffer].name + list(i.index); };
  switch (i.op) {
    case LoopOp::Store:
      return cat_to(out, "store ", place(), " = ", arg(0));
    case LoopOp::StoreAdd:
      return cat_to(out, "store_", i.reduce == ReduceKind::Sum ? "add" : ops::name(i.reduce), " ",
                    place(), " = ", arg(0));
    case LoopOp::Check:
      return cat_to(out, "check ", arg(0), " in ", i.index[0]);
    default:
      break;
  }
  cat_to(out, "%", id, " = ", ops::name(i.op), " ", ir::name(i.dtype));
  switch (i.op) {
    case LoopOp::Const:
      cat_to(out, " ", ir::is_floating(i.dtype) ? print_float(i.number) : cat(i.integer));
      break;
    case LoopOp::Index:
      cat_to(out, " ", i.index[0]);
      break;
    case LoopOp::Symbol:
      cat_to(out, " ", i.index[0], " ", arg(0));
      break;
    case LoopOp::Reduce:
      cat_to(out, " ", ops::name(i.reduce), " ", arg(0));
      break;
    case LoopOp::Scan:
      cat_to(out, " ", ops::name(i.reduce), " ", arg(0), " along ", i.index[0]);
      break;
    case LoopOp::Load:
      cat_to(out, " ", place());
      if (!i.args.empty()) cat_to(out, " if ", arg(0), " else ", arg(1));
      break;
    default:
      for (size_t k = 0; k < i.args.size(); ++k) cat_to(out, k ? ", " : " ", arg(k));
  }
}

std::string axis_list(const std::vector<Axis>& axes, bool reduction) {
  std::string out;
  for (const Axis& a : axes) {
    if (a.reduction == reduction) cat_to(out, out.empty() ? "" : ", ", a.var, ": ", a.size);
  }
  return cat("(", out, ")");
}

// The user's line that the loop comes from.
std::string origin_comment(const Program& p, ir::NodeId node) {
  if (!p.graph || !node.valid()) return "";
  const ir::Node& n = p.graph->node(node);
  if (!p.graph->has_stack(n.stack)) return "";
  const ir::Frame& f = p.graph->innermost(n.stack);
  std::string_view file = std::string_view(f.file).substr(f.file.rfind('/') + 1);
  return cat("  # ", file, ":", f.line, f.code.empty() ? "" : ": ", f.code);
}

std::string print_loop(const Program& p, const Loop& l) {
  std::string out = cat("loop ", l.name, " ", axis_list(l.axes, false));
  if (l.has_reduction()) cat_to(out, " reduce ", axis_list(l.axes, true));
  append(out, " {");
  if (!l.origins.empty()) append(out, origin_comment(p, l.origins.back()));
  append(out, "\n");
  for (uint32_t i = 0; i < l.body.size(); ++i) {
    append(out, "  ");
    print_inst(out, p, l, i);
    append(out, "\n");
  }
  append(out, "}\n");
  return out;
}

std::string names(const Program& p, const std::vector<BufferId>& ids) {
  return join(ids, ", ", [&](std::string& s, BufferId b) {
    append(s, b.valid() ? std::string_view(p.buffers[b].name) : "_");
  });
}

std::string print_buffer(const Program& p, const Buffer& b) {
  std::string out = cat("buffer ", b.name, ": ", kBufferKinds[static_cast<size_t>(b.kind)]);
  if (b.kind == Buffer::Kind::Input || b.kind == Buffer::Kind::Attribute)
    cat_to(out, " ", b.source);
  if (b.kind == Buffer::Kind::View) cat_to(out, " of ", p.buffers[b.base].name);
  ir::TensorType type = b.type;
  type.requires_grad = false;
  return cat(out, " ", ir::print(type), "\n");
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {
    program_.pool = std::make_shared<sym::ExprPool>();
    program_.variables = std::make_shared<Variables>(program_.pool);
  }

  Program run() {
    while (!lexer_.at_end()) {
      if (lexer_.accept("buffer"))
        buffer();
      else if (lexer_.accept("loop"))
        loop();
      else if (lexer_.accept("extern"))
        extern_step();
      else if (lexer_.accept("gemm"))
        contraction(ops::Contraction::Kind::Gemm);
      else if (lexer_.accept("convolution"))
        contraction(ops::Contraction::Kind::Convolution);
      else
        lexer_.fail("expected buffer, loop, extern, gemm or convolution");
    }
    return std::move(program_);
  }

 private:
  Expr expr() { return read_expr(lexer_, *program_.pool); }
  // What `one` reads, between brackets and with commas between.
  template <class F>
  void each(std::string_view open, std::string_view close, const F& one) {
    lexer_.expect(open);
    while (!lexer_.is(close)) {
      one();
      if (!lexer_.accept(",")) break;
    }
    lexer_.expect(close);
  }
  DType dtype();
  std::vector<Expr> expr_list();
  ir::TensorType type();
  void buffer();
  void loop();
  void axes(Loop& loop, bool reduction);
  void statement(Loop& loop);
  void value(Loop& loop);
  Inst value_inst(LoopOp op);
  void extern_step();
  void contraction(ops::Contraction::Kind kind);
  BufferId buffer_ref(std::string_view name);
  uint32_t arg();

  Lexer lexer_;
  Program program_;
  std::unordered_map<std::string, BufferId> by_name_;
};

DType Parser::dtype() {
  auto d = ir::dtype_from_name(lexer_.identifier());
  if (!d) lexer_.fail("expected a dtype");
  return *d;
}

std::vector<Expr> Parser::expr_list() {
  std::vector<Expr> out;
  each("[", "]", [&] { out.push_back(expr()); });
  return out;
}

ir::TensorType Parser::type() {
  ir::TensorType t;
  t.dtype = dtype();
  t.sizes = expr_list();
  t.strides = ir::contiguous_strides(t.sizes);
  if (lexer_.accept("strides")) {
    lexer_.expect("=");
    t.strides = expr_list();
  }
  if (lexer_.accept("offset")) {
    lexer_.expect("=");
    t.offset = expr();
  }
  return t;
}

BufferId Parser::buffer_ref(std::string_view name) {
  auto it = by_name_.find(std::string(name));
  if (it == by_name_.end()) lexer_.fail(cat("no buffer ", name));
  return it->second;
}

void Parser::buffer() {
  Buffer b;
  b.name = lexer_.identifier();
  lexer_.expect(":");
  const std::string word = lexer_.identifier();
  const auto kind = std::ranges::find(kBufferKinds, word);
  if (kind == kBufferKinds.end()) lexer_.fail(cat("no kind of buffer: ", word));
  b.kind = static_cast<Buffer::Kind>(kind - kBufferKinds.begin());
  if (b.kind == Buffer::Kind::Input || b.kind == Buffer::Kind::Attribute)
    b.source = static_cast<uint32_t>(lexer_.integer());
  if (b.kind == Buffer::Kind::View) {
    lexer_.expect("of");
    b.base = buffer_ref(lexer_.identifier());
  }
  b.type = type();
  auto [known, fresh] = by_name_.try_emplace(b.name);
  if (!fresh) lexer_.fail(cat("two buffers ", b.name));
  known->second = program_.buffers.add(std::move(b));
}

void Parser::axes(Loop& loop, bool reduction) {
  each("(", ")", [&] {
    const std::string name = lexer_.identifier();
    lexer_.expect(":");
    const Expr size = expr();
    sym::Range range{0, size.is_const() ? std::max<int64_t>(size.value() - 1, 0) : INT64_MAX};
    auto known = program_.pool->find_symbol(name);
    if (known && sym::range_of(*known) != range) lexer_.fail(cat(name, " has two sizes"));
    loop.axes.push_back({known ? *known : program_.pool->symbol(name, range), size, reduction});
  });
}

uint32_t Parser::arg() {
  return static_cast<uint32_t>(std::stoul(lexer_.expect(TokenKind::Percent).text));
}

void Parser::statement(Loop& loop) {
  if (lexer_.is(TokenKind::Percent)) return value(loop);
  Inst i;
  if (lexer_.accept("check")) {
    i.op = LoopOp::Check;
    i.dtype = DType::I64;
    i.args = {arg()};
    lexer_.expect("in");
    i.index = {expr()};
  } else {
    const std::string word = lexer_.identifier();
    if (word != "store") {
      auto kind = word.starts_with("store_") ? ops::reduce_from_name(word.substr(6)) : std::nullopt;
      if (!kind && word != "store_add") lexer_.fail(cat("no such statement: ", word));
      i.op = LoopOp::StoreAdd;
      i.reduce = kind.value_or(ReduceKind::Sum);
    } else {
      i.op = LoopOp::Store;
    }
    i.buffer = buffer_ref(lexer_.identifier());
    i.index = expr_list();
    lexer_.expect("=");
    i.args = {arg()};
    i.dtype = program_.buffers[i.buffer].type.dtype;
  }
  loop.body.push_back(std::move(i));
}

void Parser::value(Loop& loop) {
  if (arg() != loop.body.size()) lexer_.fail("values are numbered in order");
  lexer_.expect("=");
  auto op = ops::loop_op_from_name(lexer_.identifier());
  if (!op) lexer_.fail("no such operation");
  loop.body.push_back(value_inst(*op));
}

Inst Parser::value_inst(LoopOp op) {
  Inst i;
  i.op = op;
  i.dtype = dtype();
  switch (op) {
    case LoopOp::Const:
      if (ir::is_floating(i.dtype))
        i.number = lexer_.number();
      else
        i.integer = lexer_.integer();
      break;
    case LoopOp::Index:
      i.index = {expr()};
      break;
    case LoopOp::Symbol: {
      std::string name = lexer_.identifier();
      auto known = program_.pool->find_symbol(name);
      i.index = {known ? *known : program_.pool->symbol(name, {0, INT64_MAX})};
      i.args = {arg()};
      break;
    }
    case LoopOp::Scan:
    case LoopOp::Reduce: {
      auto kind = ops::reduce_from_name(lexer_.identifier());
      if (!kind) lexer_.fail("no such reduction");
      i.reduce = *kind;
      i.args = {arg()};
      if (op == LoopOp::Scan) {
        lexer_.expect("along");
        i.index = {expr()};
      }
      break;
    }
    case LoopOp::Load:
      i.buffer = buffer_ref(lexer_.identifier());
      i.index = expr_list();
      if (lexer_.accept("if")) {
        i.args = {arg()};
        lexer_.expect("else");
        i.args.push_back(arg());
      }
      break;
    default:
      for (int k = 0; k < ops::arity(op); ++k) {
        if (k) lexer_.expect(",");
        i.args.push_back(arg());
      }
  }
  return i;
}

void Parser::loop() {
  Loop l;
  l.name = lexer_.identifier();
  axes(l, false);
  if (lexer_.accept("reduce")) axes(l, true);
  lexer_.expect("{");
  while (!lexer_.accept("}")) statement(l);
  program_.steps.push_back(std::move(l));
}

void Parser::extern_step() {
  ExternStep e;
  lexer_.identifier();
  lexer_.expect(":");
  lexer_.identifier();
  each("(", ")", [&] { e.reads.push_back(buffer_ref(lexer_.identifier())); });
  lexer_.expect("->");
  do {
    std::string name = lexer_.identifier();
    e.writes.push_back(name == "_" ? BufferId() : buffer_ref(name));
  } while (lexer_.accept(","));
  program_.steps.push_back(std::move(e));
}

void Parser::contraction(ops::Contraction::Kind kind) {
  ContractionStep c;
  c.what.kind = kind;
  lexer_.identifier();
  lexer_.expect(":");
  do {
    if (lexer_.accept("stride"))
      c.what.stride = expr_list();
    else if (lexer_.accept("padding"))
      c.what.padding = expr_list();
    else if (lexer_.accept("dilation"))
      c.what.dilation = expr_list();
    else
      c.reads.push_back(buffer_ref(lexer_.identifier()));
  } while (lexer_.accept(","));
  lexer_.expect("->");
  c.writes.push_back(buffer_ref(lexer_.identifier()));
  lexer_.expect("by");
  const auto provider = ops::provider_from_name(lexer_.identifier());
  if (!provider) lexer_.fail("expected own, onednn or aten");
  c.provider = *provider;
  program_.steps.push_back(std::move(c));
}

}  // namespace

std::string operands_text(const Program& p, const ContractionStep& s) {
  std::string out = names(p, s.reads);
  auto add = [&](const char* word, const std::vector<Expr>& numbers) {
    if (!numbers.empty()) cat_to(out, ", ", word, " ", list(numbers));
  };
  add("stride", s.what.stride);
  add("padding", s.what.padding);
  add("dilation", s.what.dilation);
  return cat(out, " -> ", names(p, s.writes), " by ", ops::name(s.provider));
}

std::string print(const Program& p, const Step& s) {
  if (const auto* l = std::get_if<Loop>(&s)) return print_loop(p, *l);
  size_t at = 0;
  while (at < p.steps.size() && &p.steps[at] != &s) ++at;
  const std::string end = origin_comment(p, call_of(s)->node) + "\n";
  if (const auto* c = std::get_if<ContractionStep>(&s))
    return cat(ops::name(c->what.kind), " op", at, ": ", operands_text(p, *c), end);
  const auto& e = std::get<ExternStep>(s);
  const bool known = p.graph && e.node.valid();
  return cat("extern op", at, ": ", known ? std::string_view(p.graph->node(e.node).target) : "op",
             "(", names(p, e.reads), ") -> ", names(p, e.writes), end);
}

std::string print(const Program& p) {
  std::string out;
  for (const Buffer& b : p.buffers) append(out, print_buffer(p, b));
  for (const Step& s : p.steps) append(out, print(p, s));
  return out;
}

Expr read_expr(Lexer& lexer, sym::ExprPool& pool) {
  auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string_view text = lexer.balanced();
  for (auto at = text.begin(); at != text.end();) {
    auto first = std::find_if(at, text.end(), in_word);
    at = std::find_if_not(first, text.end(), in_word);
    std::string_view word(first, at);
    bool name = !word.empty() && !std::isdigit(static_cast<unsigned char>(word[0])) &&
                word != "min" && word != "max";
    if (name && !pool.find_symbol(word)) pool.symbol(word, {0, INT64_MAX});
  }
  return sym::parse(text, pool);
}

Program parse(std::string_view text) { return Parser(text).run(); }

}  // namespace oxy::loops
