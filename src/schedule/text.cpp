// The text of a kernel, printed and read, and that of a schedule.
#include <algorithm>
#include <set>

#include "loops/loop_ir.h"
#include "schedule/schedule.h"
#include "support/lexer.h"

namespace oxy::schedule {

namespace {

// What a statement or buffer says behind its first words, for both ways: a Writer appends what a
// Reader takes. The blanks of words are the Writer's.
template <class Io, class S>
void fields(Io& io, S& s) {
  using T = std::remove_const_t<S>;
  [[maybe_unused]] const auto place = [&](auto& at) {
    io.buffer(at.buffer);
    io.word("[");
    io.expr(at.index);
    io.word("]");
  };
  if constexpr (std::is_same_v<T, KernelBuffer>) {
    io.name(s.name);
    io.word(": ");
    io.kind(s.kind);
    io.word(" ");
    io.dtype(s.dtype);
    io.word("[");
    io.expr(s.elements);
    io.word("]");
  } else if constexpr (std::is_same_v<T, Init>) {
    io.acc(s.acc);
    io.word(" = ");
    io.reduction(s.kind);
    io.word(" ");
    io.dtype(s.dtype);
  } else if constexpr (std::is_same_v<T, Accumulate>) {
    io.acc(s.acc);
    io.word(" ");
    io.value(s.value);
    if (io.option(" at ", !s.index.is_const(0))) io.expr(s.index);
  } else if constexpr (std::is_same_v<T, Result>) {
    io.acc(s.acc);
  } else if constexpr (std::is_same_v<T, Hint>) {
    io.name(s.word);
    io.word(" ");
    place(s);
  } else if (s.op == LoopOp::Check) {
    io.word(" ");
    io.arg(s, 0);
    io.word(" in ");
    io.expr(s.index);
  } else {
    if (!sets_value(s.op)) io.annotations(s.annotations);
    io.word(" ");
    io.dtype(s.dtype);
    io.word(" ");
    switch (s.op) {
      case LoopOp::Store:
      case LoopOp::StoreAdd:
        place(s);
        io.word(" = ");
        return io.arg(s, 0);
      case LoopOp::Const:
        return io.number(s);
      case LoopOp::Index:
        return io.expr(s.index);
      case LoopOp::Symbol:
        io.symbol(s.index);
        io.word(" ");
        return io.arg(s, 0);
      case LoopOp::Load:
        place(s);
        if (!io.option(" if ", !s.args.empty())) return;
        io.arg(s, 0);
        io.word(" else ");
        return io.arg(s, 1);
      default:
        for (size_t k = 0; k < io.arg_count(s); ++k) {
          if (k) io.word(", ");
          io.arg(s, k);
        }
    }
  }
}

class Writer {
 public:
  explicit Writer(const Kernel& k) : k_(k) {}

  std::string run() {
    cat_to(out_, "kernel ", k_.name, "(");
    for (const KernelBuffer& b : k_.buffers) {
      if (&b != k_.buffers.data()) word(", ");
      fields(*this, b);
    }
    word(")");
    if (!k_.parameters.empty()) {
      cat_to(out_, " sizes (",
             join(k_.parameters, ", ", [](std::string& out, Expr e) { append(out, e); }), ")");
    }
    cat_to(out_, " cost ", k_.cost);
    annotations(k_.annotations);
    block(k_.body, 0);
    word("\n");
    return std::move(out_);
  }

  void word(std::string_view w) { append(out_, w); }
  bool option(std::string_view w, bool there) {
    if (there) word(w);
    return there;
  }
  void name(std::string_view s) { word(s); }
  void expr(Expr e) { append(out_, e); }
  void symbol(Expr e) { append(out_, e); }
  void dtype(DType d) { word(ir::name(d)); }
  void reduction(ReduceKind k) { word(ops::name(k)); }
  void kind(KernelBuffer::Kind k) { word(kBufferKinds[static_cast<size_t>(k)]); }
  void buffer(uint32_t b) { word(k_.buffers[b].name); }
  void acc(uint32_t a) { cat_to(out_, '@', a); }
  void value(uint32_t v) { cat_to(out_, '%', v); }
  void arg(const Compute& c, size_t k) { value(c.args[k]); }
  size_t arg_count(const Compute& c) const { return c.args.size(); }
  void number(const Compute& c) {
    word(ir::is_floating(c.dtype) ? print_float(c.number) : cat(c.integer));
  }
  // " tiled panel_loops=2"
  void annotations(const Annotations& annotations) {
    for (const auto& [word, value] : annotations) {
      cat_to(out_, ' ', word);
      if (value != 1) cat_to(out_, '=', value);
    }
  }

 private:
  void block(const Block& b, int depth) {
    word(" {\n");
    for (const Stmt& s : b) {
      out_.append(2 * depth + 2, ' ');
      std::visit([&](const auto& x) { statement(x, depth + 1); }, s.v);
      word("\n");
    }
    out_.append(2 * depth, ' ');
    word("}");
  }
  void statement(const For& f, int depth) {
    word(kForKinds[static_cast<size_t>(f.kind)]);
    annotations(f.annotations);
    cat_to(out_, ' ', f.var, ": ", f.size);
    block(f.body, depth);
  }
  void statement(const auto& s, int) {
    begin(s);
    fields(*this, s);
  }
  void begin(const Init&) { word("acc "); }
  void begin(const Accumulate&) { word("accumulate "); }
  void begin(const Result& r) { cat_to(out_, '%', r.value, " = result "); }
  void begin(const Hint&) { word("hint "); }
  void begin(const Compute& c) {
    if (sets_value(c.op)) cat_to(out_, '%', c.value, " = ");
    word(ops::name(c.op));
  }

  const Kernel& k_;
  std::string out_;
};

class Reader {
 public:
  Reader(std::string_view text, sym::ExprPool& pool) : lexer_(text), pool_(pool) {}

  Kernel run() {
    word("kernel");
    name(kernel_.name);
    word("(");
    while (!lexer_.is(")")) {
      fields(*this, kernel_.buffers.emplace_back());
      if (!lexer_.accept(",")) break;
    }
    word(")");
    if (lexer_.accept("sizes")) {
      word("(");
      do expr(kernel_.parameters.emplace_back());
      while (lexer_.accept(","));
      word(")");
    }
    if (lexer_.accept("cost")) kernel_.cost = lexer_.integer();
    annotations(kernel_.annotations);
    kernel_.body = block();
    return std::move(kernel_);
  }

  void word(std::string_view w) {
    if (const std::string_view text = without_blanks(w); !text.empty()) lexer_.expect(text);
  }
  bool option(std::string_view w, bool) { return lexer_.accept(without_blanks(w)); }
  void name(std::string& s) { s = lexer_.identifier(); }
  void expr(Expr& e) { e = loops::read_expr(lexer_, pool_); }
  void symbol(Expr& e) { e = symbol_of(lexer_.identifier(), INT64_MAX); }
  void dtype(DType& d) { d = known(ir::dtype_from_name(lexer_.identifier()), "expected a dtype"); }
  void reduction(ReduceKind& k) {
    k = known(ops::reduce_from_name(lexer_.identifier()), "no such reduction");
  }
  void kind(KernelBuffer::Kind& k) {
    const std::string word = lexer_.identifier();
    const auto at = std::ranges::find(kBufferKinds, word);
    if (at == kBufferKinds.end()) lexer_.fail(cat("no kind of buffer: ", word));
    k = static_cast<KernelBuffer::Kind>(at - kBufferKinds.begin());
  }
  void buffer(uint32_t& b) {
    const std::string name = lexer_.identifier();
    const auto at = std::ranges::find(kernel_.buffers, name, &KernelBuffer::name);
    if (at == kernel_.buffers.end()) lexer_.fail(cat("no buffer ", name));
    b = static_cast<uint32_t>(at - kernel_.buffers.begin());
  }
  void acc(uint32_t& a) { number_of(TokenKind::At, a, kernel_.acc_count); }
  void value(uint32_t& v) { number_of(TokenKind::Percent, v, kernel_.value_count); }
  void arg(Compute& c, size_t) { value(c.args.emplace_back()); }
  size_t arg_count(const Compute& c) const { return static_cast<size_t>(ops::arity(c.op)); }
  void number(Compute& c) {
    if (ir::is_floating(c.dtype))
      c.number = lexer_.number();
    else
      c.integer = lexer_.integer();
  }
  void annotations(Annotations& to) {
    while (lexer_.is(TokenKind::Identifier) && !ir::dtype_from_name(lexer_.peek().text))
      annotation(lexer_.identifier(), to);
  }

 private:
  static std::string_view without_blanks(std::string_view w) {
    while (w.starts_with(' ')) w.remove_prefix(1);
    while (w.ends_with(' ')) w.remove_suffix(1);
    return w;
  }
  template <class T>
  T known(std::optional<T> found, std::string_view problem) {
    if (!found) lexer_.fail(problem);
    return *found;
  }
  Expr symbol_of(std::string_view name, int64_t last) {
    const auto known = pool_.find_symbol(name);
    return known ? *known : pool_.symbol(name, {0, last});
  }
  void number_of(TokenKind kind, uint32_t& n, uint32_t& count) {
    n = static_cast<uint32_t>(std::stoul(lexer_.expect(kind).text));
    count = std::max(count, n + 1);
  }
  void annotation(std::string_view word, Annotations& to) {
    to.set(word, lexer_.accept("=") ? lexer_.integer() : 1);
  }

  Block block() {
    Block b;
    word("{");
    while (!lexer_.accept("}")) b.push_back(statement());
    return b;
  }
  Stmt statement() {
    if (lexer_.is(TokenKind::Percent)) return assignment();
    const std::string word = lexer_.identifier();
    if (const auto kind = std::ranges::find(kForKinds, word); kind != kForKinds.end())
      return Stmt{loop(static_cast<ForKind>(kind - kForKinds.begin()))};
    if (word == "acc") return read(Init());
    if (word == "accumulate") return read(Accumulate());
    if (word == "hint") return read(Hint());
    if (word == "store") return read(Compute{.value = UINT32_MAX, .op = LoopOp::Store});
    if (word == "store_add") return read(Compute{.value = UINT32_MAX, .op = LoopOp::StoreAdd});
    if (word == "check") return read(Compute{.op = LoopOp::Check, .dtype = DType::I64});
    lexer_.fail(cat("no such statement: ", word));
  }
  Stmt assignment() {
    uint32_t v = 0;
    value(v);
    word("=");
    if (lexer_.accept("result")) return read(Result{.value = v});
    const auto op = ops::loop_op_from_name(lexer_.identifier());
    return read(Compute{.value = v, .op = known(op, "no such operation")});
  }
  template <class S>
  Stmt read(S s) {
    fields(*this, s);
    return Stmt{std::move(s)};
  }
  For loop(ForKind kind) {
    For f{.kind = kind};
    std::string name = lexer_.identifier();
    for (; !lexer_.is(":"); name = lexer_.identifier()) annotation(name, f.annotations);
    word(":");
    expr(f.size);
    const int64_t most = sym::range_of(f.size).hi;
    f.var = symbol_of(name, most != INT64_MAX ? std::max<int64_t>(most - 1, 0) : most);
    f.body = block();
    return f;
  }

  Lexer lexer_;
  sym::ExprPool& pool_;
  Kernel kernel_;
};

std::string names(const loops::Program& p, const std::vector<BufferId>& ids) {
  return join(ids, ", ", [&](std::string& s, BufferId b) {
    append(s, b.valid() ? std::string_view(p.buffers[b].name) : "_");
  });
}

}  // namespace

std::string print(const Kernel& k) { return Writer(k).run(); }
Kernel parse(std::string_view text, sym::ExprPool& pool) { return Reader(text, pool).run(); }

std::string print(const Schedule& s) {
  std::string out;
  const loops::Program& p = s.program;
  for (const ScheduledStep& step : s.steps) {
    if (const auto* k = std::get_if<KernelCall>(&step)) {
      append(out, print(s.kernels[k->kernel]));
    } else if (const auto* e = std::get_if<ExternCall>(&step)) {
      bool known = p.graph && e->step.node.valid();
      cat_to(out, "extern ", known ? std::string_view(p.graph->node(e->step.node).target) : "op",
             "(", names(p, e->step.reads), ") -> ", names(p, e->step.writes), "\n");
    } else if (const auto* c = std::get_if<ContractionCall>(&step)) {
      cat_to(out, ops::name(c->step.what.kind), " ", operands_text(p, c->step));
      if (c->epilogue) cat_to(out, ", epilogue ", print(s.kernels[*c->epilogue]));
      if (!c->epilogue) append(out, "\n");
    } else {
      cat_to(out, "free ", p.buffers[std::get<Free>(step).buffer].name, "\n");
    }
  }
  std::set<BufferId> in_kernels;
  for (const Kernel& k : s.kernels)
    for (const KernelBuffer& b : k.buffers) in_kernels.insert(b.buffer);
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& buffer = p.buffers[BufferId(b)];
    const std::string temp = cat("temp ", buffer.name, ": ", ir::print(buffer.type));
    if (auto it = s.memory.offset.find(BufferId(b)); it != s.memory.offset.end())
      cat_to(out, temp, " at ", it->second, "\n");
    else if (buffer.kind == Buffer::Kind::View && in_kernels.contains(BufferId(b)))
      cat_to(out, temp, " in ", p.buffers[buffer.base].name, "\n");
  }
  for (auto [input, buffer] : s.in_place)
    cat_to(out, "input ", input, " in place: ", p.buffers[buffer].name, "\n");
  cat_to(out, "arena ", s.memory.arena_bytes, " bytes\n");
  for (const FusionNote& n : s.notes)
    cat_to(out, "not fused: ", n.first, ", ", n.second, ": ", n.reason, "\n");
  return out;
}

}  // namespace oxy::schedule
