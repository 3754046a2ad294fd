// Reads the text of a program.
#include <algorithm>

#include "loops/loop_ir.h"
#include "loops/read_expr.h"
#include "loops/words.h"

namespace oxy::loops {

namespace {

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
  lexer_.expect("[");
  while (!lexer_.is("]")) {
    out.push_back(expr());
    if (!lexer_.accept(",")) break;
  }
  lexer_.expect("]");
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
  if (by_name_.contains(b.name)) lexer_.fail(cat("two buffers ", b.name));
  std::string name = b.name;
  by_name_[name] = program_.buffers.add(std::move(b));
}

void Parser::axes(Loop& loop, bool reduction) {
  lexer_.expect("(");
  while (!lexer_.is(")")) {
    Axis a;
    std::string name = lexer_.identifier();
    lexer_.expect(":");
    a.size = expr();
    a.reduction = reduction;
    sym::Range range{0, a.size.is_const() ? std::max<int64_t>(a.size.value() - 1, 0) : INT64_MAX};
    auto known = program_.pool->find_symbol(name);
    if (known && sym::range_of(*known) != range) lexer_.fail(cat(name, " has two sizes"));
    a.var = known ? *known : program_.pool->symbol(name, range);
    loop.axes.push_back(a);
    if (!lexer_.accept(",")) break;
  }
  lexer_.expect(")");
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
  lexer_.expect("(");
  while (!lexer_.is(")")) {
    e.reads.push_back(buffer_ref(lexer_.identifier()));
    if (!lexer_.accept(",")) break;
  }
  lexer_.expect(")");
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

Program parse(std::string_view text) { return Parser(text).run(); }

}  // namespace oxy::loops
