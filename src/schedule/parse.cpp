// Reads the text of a kernel.
#include <algorithm>

#include "loops/read_expr.h"
#include "schedule/kernel.h"
#include "support/lexer.h"

namespace oxy::schedule {

namespace {

class Parser {
 public:
  Parser(std::string_view text, sym::ExprPool& pool) : lexer_(text), pool_(pool) {}

  Kernel run() {
    lexer_.expect("kernel");
    kernel_.name = lexer_.identifier();
    lexer_.expect("(");
    while (!lexer_.is(")")) {
      buffer();
      if (!lexer_.accept(",")) break;
    }
    lexer_.expect(")");
    if (lexer_.accept("sizes")) {
      lexer_.expect("(");
      do kernel_.parameters.push_back(expr());
      while (lexer_.accept(","));
      lexer_.expect(")");
    }
    if (lexer_.accept("cost")) kernel_.cost = lexer_.integer();
    while (lexer_.is(TokenKind::Identifier)) annotation(lexer_.identifier(), kernel_.annotations);
    kernel_.body = block();
    return std::move(kernel_);
  }

 private:
  Expr expr() { return loops::read_expr(lexer_, pool_); }
  DType dtype() {
    auto d = ir::dtype_from_name(lexer_.identifier());
    if (!d) lexer_.fail("expected a dtype");
    return *d;
  }
  uint32_t number_of(TokenKind kind, uint32_t& count) {
    auto n = static_cast<uint32_t>(std::stoul(lexer_.expect(kind).text));
    count = std::max(count, n + 1);
    return n;
  }
  uint32_t value() { return number_of(TokenKind::Percent, kernel_.value_count); }
  uint32_t acc() { return number_of(TokenKind::At, kernel_.acc_count); }
  void buffer();
  Block block();
  Stmt statement();
  For loop(ForKind kind);
  Init init();
  Accumulate accumulate();
  Compute store(LoopOp op);
  Hint hint();
  void annotation(std::string_view word, Annotations& to) {
    to.set(word, lexer_.accept("=") ? lexer_.integer() : 1);
  }
  Stmt assignment();
  void operands(Compute& c);
  void place(Compute& c);

  Lexer lexer_;
  sym::ExprPool& pool_;
  Kernel kernel_;
};

void Parser::buffer() {
  KernelBuffer b;
  b.name = lexer_.identifier();
  lexer_.expect(":");
  const std::string word = lexer_.identifier();
  const auto kind = std::ranges::find(kBufferKinds, word);
  if (kind == kBufferKinds.end()) lexer_.fail(cat("no kind of buffer: ", word));
  b.kind = static_cast<KernelBuffer::Kind>(kind - kBufferKinds.begin());
  b.dtype = dtype();
  lexer_.expect("[");
  b.elements = expr();
  lexer_.expect("]");
  kernel_.buffers.push_back(std::move(b));
}

Block Parser::block() {
  Block b;
  lexer_.expect("{");
  while (!lexer_.accept("}")) b.push_back(statement());
  return b;
}

Stmt Parser::statement() {
  if (lexer_.is(TokenKind::Percent)) return assignment();
  std::string word = lexer_.identifier();
  if (const auto kind = std::ranges::find(kForKinds, word); kind != kForKinds.end())
    return Stmt{loop(static_cast<ForKind>(kind - kForKinds.begin()))};
  if (word == "acc") return Stmt{init()};
  if (word == "accumulate") return Stmt{accumulate()};
  if (word == "store") return Stmt{store(LoopOp::Store)};
  if (word == "store_add") return Stmt{store(LoopOp::StoreAdd)};
  if (word == "hint") return Stmt{hint()};
  if (word != "check") lexer_.fail(cat("no such statement: ", word));
  Compute c;
  c.op = LoopOp::Check;
  c.dtype = DType::I64;
  c.args = {value()};
  lexer_.expect("in");
  c.index = expr();
  return Stmt{std::move(c)};
}

For Parser::loop(ForKind kind) {
  For f;
  f.kind = kind;
  std::string name = lexer_.identifier();
  while (!lexer_.is(":")) {
    annotation(name, f.annotations);
    name = lexer_.identifier();
  }
  lexer_.expect(":");
  f.size = expr();
  int64_t last = sym::range_of(f.size).hi;
  if (last != INT64_MAX) last = std::max<int64_t>(last - 1, 0);
  auto known = pool_.find_symbol(name);
  f.var = known ? *known : pool_.symbol(name, {0, last});
  f.body = block();
  return f;
}

Init Parser::init() {
  Init i;
  i.acc = acc();
  lexer_.expect("=");
  auto kind = ops::reduce_from_name(lexer_.identifier());
  if (!kind) lexer_.fail("no such reduction");
  i.kind = *kind;
  i.dtype = dtype();
  return i;
}

Accumulate Parser::accumulate() {
  Accumulate a;
  a.acc = acc();
  a.value = value();
  if (lexer_.accept("at")) a.index = expr();
  return a;
}

void Parser::place(Compute& c) {
  std::string name = lexer_.identifier();
  while (c.buffer < kernel_.buffers.size() && kernel_.buffers[c.buffer].name != name) ++c.buffer;
  if (c.buffer == kernel_.buffers.size()) lexer_.fail(cat("no buffer ", name));
  lexer_.expect("[");
  c.index = expr();
  lexer_.expect("]");
}

Hint Parser::hint() {
  std::string word = lexer_.identifier();
  Compute c;
  place(c);
  return {std::move(word), c.buffer, c.index};
}

Compute Parser::store(LoopOp op) {
  Compute c;
  c.op = op;
  c.value = UINT32_MAX;
  while (lexer_.is(TokenKind::Identifier) && !ir::dtype_from_name(lexer_.peek().text))
    annotation(lexer_.identifier(), c.annotations);
  c.dtype = dtype();
  place(c);
  lexer_.expect("=");
  c.args = {value()};
  return c;
}

Stmt Parser::assignment() {
  uint32_t v = value();
  lexer_.expect("=");
  if (lexer_.accept("result")) return Stmt{Result{v, acc()}};
  auto op = ops::loop_op_from_name(lexer_.identifier());
  if (!op) lexer_.fail("no such operation");
  Compute c;
  c.value = v;
  c.op = *op;
  c.dtype = dtype();
  operands(c);
  return Stmt{std::move(c)};
}

void Parser::operands(Compute& c) {
  switch (c.op) {
    case LoopOp::Const:
      if (ir::is_floating(c.dtype))
        c.number = lexer_.number();
      else
        c.integer = lexer_.integer();
      return;
    case LoopOp::Index:
      c.index = expr();
      return;
    case LoopOp::Symbol: {
      std::string name = lexer_.identifier();
      auto known = pool_.find_symbol(name);
      c.index = known ? *known : pool_.symbol(name, {0, INT64_MAX});
      c.args = {value()};
      return;
    }
    case LoopOp::Load:
      place(c);
      if (!lexer_.accept("if")) return;
      c.args = {value()};
      lexer_.expect("else");
      c.args.push_back(value());
      return;
    default:
      for (int k = 0; k < ops::arity(c.op); ++k) {
        if (k) lexer_.expect(",");
        c.args.push_back(value());
      }
  }
}

}  // namespace

Kernel parse(std::string_view text, sym::ExprPool& pool) { return Parser(text, pool).run(); }

}  // namespace oxy::schedule
