// The text of a plan: sizes that vary, inputs, buffers, kernels, sub-plans, then steps, then what
// the call hands back. What a line says is described once, for printing and for reading.
#include "runtime/plan.h"
#include "support/check.h"
#include "support/text_form.h"

namespace oxy::runtime {
namespace {

// By number of their enumerators, or of the step in PlanStep.
constexpr std::array<std::string_view, 6> kBufferKinds = {"input",  "attribute", "arena",
                                                          "extern", "output",    "view"};
constexpr std::array<std::string_view, 3> kRegionKinds = {"cond", "loop", "blocks"};
constexpr std::array<std::string_view, 5> kOutputKinds = {"", "input ", "view of input ",
                                                          "view of output ", "None"};
constexpr std::array<std::string_view, 6> kSteps = {"launch ", "gemm ", "", "", "free ", "sizes "};

// Numbers that stand as names; `_` for a buffer of number -1.
template <class N>
struct BufferName {
  N& number;
};
template <class N>
struct KernelName {
  N& number;
};
template <class L>
struct Operands {
  L& buffers;
};
// In front of a step that has any.
template <class L>
struct Results {
  L& buffers;
};
// Of a view: it may stand below.
template <class N>
struct Base {
  N& buffer;
};
// A slot, or a plain number.
template <class N>
struct SizeOperand {
  const SizeOp& op;
  N& number;
};

template <class Form>
void describe(Form& t, Is<SizeInstruction> auto& i) {
  t(i.op, "(", SizeOperand{i.op, i.a}, ", ", SizeOperand{i.op, i.b}, ")");
}

template <class Form>
void describe(Form& t, Is<TensorSlots> auto& m) {
  if (t.choice("number ", m.dtype == DType::None)) {
    t.set(m.dtype, DType::None);
    return t(m.offset);
  }
  t(m.dtype, m.sizes, " strides=", m.strides);
  t.unless_zero(" offset=", m.offset);
  t.device(m.device);
}

template <class Form>
void describe(Form& t, Is<PlanBuffer> auto& b) {
  using enum PlanBuffer::Kind;
  t(b.name, ": ");
  t.word(b.kind, kBufferKinds, "no such kind of buffer");
  if (b.kind == Input || b.kind == Attribute) t(" ", b.source);
  if (b.kind == View) t(" of ", Base{b.source});
  if (b.kind == Arena)
    t(" at ", b.arena_offset);
  else
    t.zero(b.arena_offset);
  t(" ", b.meta, " bytes=", b.bytes);
}

template <class Form>
void describe(Form& t, Is<PlanKernel> auto& k) {
  t(k.name, ": ", k.code, " range=", k.range, " grain=", k.grain, " scratch=", k.scratch_bytes,
    " moves=", k.moved_bytes);
  t.optional(" parameters=", k.parameters);
}

template <class Form>
void describe(Form& t, Is<LaunchStep> auto& s) {
  t(KernelName{s.kernel}, Operands{s.buffers});
}

template <class Form>
void describe(Form& t, Is<GemmStep> auto& s) {
  t(s.gemm);
  t.optional(" epilogue ", s.epilogue);
}

template <class Form>
void describe(Form& t, Is<ExternStep> auto& s) {
  t(Results{s.outputs}, "extern ", Word{s.op});
  t.list("(", s.args, ")");
  t.optional(" returns=", s.returns);
  t.flag(" random", s.random);
  t(" origin=", s.origin);
}

template <class Form>
void describe(Form& t, Is<RegionStep> auto& s) {
  t(Results{s.results});
  t.word(s.kind, kRegionKinds, "no such step");
  t(" ", s.plans, Operands{s.operands});
  t.optional(" numbers=", s.numbers);
}

template <class Form>
void describe(Form& t, Is<FreeStep> auto& s) {
  t(BufferName{s.buffer});
}

template <class Form>
void describe(Form& t, Is<PlanCheck> auto& c) {
  t(c.holds, " ", Word{c.what});
}

template <class Form>
void describe(Form& t, Is<SizeStep> auto& s) {
  t(s.reads);
  t.optional(" checks=", s.checks);
}

template <class Form>
void describe(Form& t, Is<PlanMutation> auto& m) {
  t("input ", m.input);
  if (!t.flag(" in place: ", m.in_place)) t(" <- ");
  t(BufferName{m.buffer});
  t.optional(" as ", m.layout);
  t.flag(" same_data", m.same_data);
  t.flag(" unseen", m.unseen);
}

template <class Form>
void describe(Form& t, Is<PlanOutput> auto& o) {
  using enum PlanOutput::Kind;
  t.flag("neg ", o.neg);
  t.flag("conj ", o.conj);
  t.flag("piece ", o.piece);
  t.flag("detached ", o.detached);
  t.flag("itself ", o.itself);
  t.flag("unseen ", o.unseen);
  t.flag("no_grad ", o.no_grad);
  t.flag("derived ", o.derived);
  t.word(o.kind, kOutputKinds, "no such result");
  if (o.kind == None) return;
  if (o.kind == Value) return t.value(o);
  t(o.index);
  if (t.choice(" alias ", o.alias > 0)) t(o.alias);
  t.optional(": ", o.meta);
}

template <class Form>
void describe(Form& t, Is<PlanPacking> auto& k) {
  t(BufferName{k.from}, " -> ", BufferName{k.to}, " batch=", k.batch, " k=", k.k, " n=", k.n,
    " batch_stride=", k.batch_stride, " k_stride=", k.k_stride, " n_stride=", k.n_stride,
    " offset=", k.offset, " width=", k.width);
}

class PlanWriter : public TextWriter<PlanWriter> {
 public:
  PlanWriter(const Plan& p, std::string indent) : p_(p), indent_(std::move(indent)) {
    for (size_t i = 0, n = 0; i < p.sizes.instructions.size(); i++)
      numbers_.push_back(p.sizes.is_constant(Slot(i)) ? 0 : n++);
  }

  std::string run() {
    (*this)("plan arena=", p_.arena_bytes, " {\n");
    for (size_t i = 0; i < numbers_.size(); i++)
      if (!p_.sizes.is_constant(Slot(i))) line("size ", Slot(i), " = ", p_.sizes.instructions[i]);
    for (const TensorSlots& t : p_.inputs) line("input ", t);
    for (const PlanBuffer& b : p_.buffers) line("buffer ", b);
    for (const PlanKernel& k : p_.kernels) line("kernel ", k);
    for (const Plan& r : p_.regions) line("region ", PlanWriter(r, indent_ + "  ").run());
    for (const PlanStep& s : p_.steps)
      std::visit([&](const auto& step) { line(kSteps[s.index()], step); }, s);
    for (const PlanMutation& m : p_.mutations) line("mutate ", m);
    for (const PlanOutput& o : p_.outputs) line("return ", o);
    if (!p_.frozen.empty()) line("frozen ", p_.frozen);
    for (const PlanPacking& k : p_.packings) line("pack ", k);
    (*this)(indent_, "}");
    return std::move(out_);
  }

  using TextWriter::field;
  using TextWriter::list;
  void field(const auto& x) { describe(*this, x); }
  void field(Slot s) {
    if (p_.sizes.is_constant(s))
      append(out_, p_.sizes.constant(s));
    else
      cat_to(out_, "%", numbers_[s.index]);
  }
  void field(SizeOp op) { out_ += name(op); }
  void field(const ContentHash& h) { cat_to(out_, "@", oxy::print(h)); }
  template <class N>
  void field(BufferName<N> b) {
    out_ += std::cmp_less(b.number, 0) ? "_" : p_.buffers[static_cast<size_t>(b.number)].name;
  }
  void field(KernelName<const uint32_t> k) { out_ += p_.kernels[k.number].name; }
  void field(Operands<const std::vector<uint32_t>> o) {
    list("(", o.buffers, ")", [this](uint32_t b) { field(BufferName{b}); });
  }
  void field(Results<const std::vector<int64_t>> r) {
    if (!r.buffers.empty()) list("", r.buffers, " = ", [this](int64_t b) { field(BufferName{b}); });
  }
  void field(Base<const uint32_t> b) { field(BufferName{b.buffer}); }
  void field(SizeOperand<const int64_t> s) {
    if (reads_slots(s.op))
      field(Slot(static_cast<size_t>(s.number)));
    else
      append(out_, s.number);
  }
  void field(const PlanArg& a) {
    std::visit([this](const auto& v) { argument(v); }, a.v);
  }
  void list(const char* open, const PlanArg::List& args, const char* close) {
    list(open, args, close, [this](const PlanArg& a) { field(a); });
  }
  void zero(Slot) {}
  void unless_zero(std::string_view text, Slot s) {
    if (!p_.sizes.is_constant(s) || p_.sizes.constant(s) != 0) (*this)(text, s);
  }
  void value(const PlanOutput& o) {
    if (o.number)
      field(*o.number);
    else
      field(BufferName{o.buffer});
  }

 private:
  template <class... A>
  void line(const A&... a) {
    (*this)(indent_, "  ", a..., "\n");
  }
  void argument(const Literal& l) { out_ += print_literal(l); }
  void argument(BufferArg b) { field(BufferName{b.buffer}); }
  void argument(Slot s) { field(s); }
  void argument(const PlanArg::List& items) { list("[", items, "]"); }

  const Plan& p_;
  const std::string indent_;
  std::vector<size_t> numbers_;  // by slot: that of its name, where it varies
};

class PlanReader : public TextReader<PlanReader> {
 public:
  PlanReader(Lexer& lexer, int depth) : TextReader(lexer), sizes_(plan_.sizes), depth_(depth) {}

  Plan run() {
    check_depth();
    (*this)("plan arena=");
    // Its size may name slots that are defined below.
    const std::string arena = lex_.is(TokenKind::Percent) ? lex_.next().text : "";
    if (arena.empty()) field(plan_.arena_bytes);
    lex_.expect("{");
    while (!lex_.accept("}")) line();
    if (!arena.empty()) plan_.arena_bytes = varying(arena);
    for (const auto& [view, base] : bases_)
      plan_.buffers[view].source = find(plan_.buffers, base, "buffer");
    return std::move(plan_);
  }

  using TextReader::field;
  void field(auto& x) { describe(*this, x); }
  void field(Slot& s) {
    s = lex_.is(TokenKind::Percent) ? varying(lex_.next().text) : sizes_.constant(lex_.integer());
  }
  void field(SizeOp& op) {
    const auto read = size_op_from_name(lex_.identifier());
    if (!read || read == SizeOp::Constant) lex_.fail("no such operation on sizes");
    op = *read;
  }
  void field(ContentHash& h) {
    const auto read = parse_hash(lex_.expect(TokenKind::At).text);
    if (!read) lex_.fail("a hash has 32 digits");
    h = *read;
  }
  template <class N>
  void field(BufferName<N> b) {
    if (std::is_signed_v<N> && lex_.accept("_"))
      b.number = static_cast<N>(-1);
    else
      b.number = find(plan_.buffers, lex_.identifier(), "buffer");
  }
  void field(KernelName<uint32_t> k) {
    k.number = find(plan_.kernels, lex_.identifier(), "kernel");
  }
  void field(Operands<std::vector<uint32_t>> o) {
    lex_.list("(", ")", [&] { field(BufferName{o.buffers.emplace_back()}); });
  }
  void field(Results<std::vector<int64_t>> r) { r.buffers = std::exchange(results_, {}); }
  void field(Base<uint32_t>) { bases_.emplace_back(plan_.buffers.size() - 1, lex_.identifier()); }
  void field(SizeOperand<int64_t> s) {
    if (!reads_slots(s.op)) return field(s.number);
    Slot slot;
    field(slot);
    s.number = slot.index;
  }
  void field(PlanArg& a) {
    if (lex_.is("[")) {
      depth_++;
      check_depth();
      list("[", a.v.emplace<PlanArg::List>(), "]");
      depth_--;
    } else if (const auto literal = read_literal(lex_)) {
      std::visit([&](const auto& x) { a.v = x; }, *literal);
    } else if (lex_.is(TokenKind::Identifier)) {
      field(BufferName{a.v.emplace<BufferArg>().buffer});
    } else {
      field(a.v.emplace<Slot>());
    }
  }
  void list(const char* open, PlanArg::List& args, const char* close) {
    lex_.list(open, close, [&] { field(args.emplace_back()); });
  }
  void zero(Slot& s) { s = sizes_.constant(0); }
  void unless_zero(std::string_view text, Slot& s) {
    if (choice(text))
      field(s);
    else
      zero(s);
  }
  void value(PlanOutput& o) {
    if (lex_.is(TokenKind::Identifier))
      field(BufferName{o.buffer});
    else
      field(o.number.emplace());
  }

 private:
  void line() {
    if (lex_.accept("size")) return size();
    if (lex_.accept("input")) return field(plan_.inputs.emplace_back());
    if (lex_.accept("buffer")) return field(plan_.buffers.emplace_back());
    if (lex_.accept("kernel")) return field(plan_.kernels.emplace_back());
    if (lex_.accept("region")) return plan_.regions.push_back(PlanReader(lex_, depth_ + 1).run());
    if (lex_.accept("mutate")) return field(plan_.mutations.emplace_back());
    if (lex_.accept("return")) return field(plan_.outputs.emplace_back());
    if (lex_.accept("frozen")) return field(plan_.frozen);
    if (lex_.accept("pack")) return field(plan_.packings.emplace_back());
    PlanStep& s = plan_.steps.emplace_back();
    if (lex_.accept("launch")) return field(s.emplace<LaunchStep>());
    if (lex_.accept("gemm")) return field(s.emplace<GemmStep>());
    if (lex_.accept("free")) return field(s.emplace<FreeStep>());
    if (lex_.accept("sizes")) return field(s.emplace<SizeStep>());
    if (!is_call()) {
      do field(BufferName{results_.emplace_back()});
      while (lex_.accept(","));
      lex_.expect("=");
    }
    if (lex_.is("extern")) return field(s.emplace<ExternStep>());
    field(s.emplace<RegionStep>());
  }
  bool is_call() const {
    return lex_.is("extern") ||
           std::ranges::any_of(kRegionKinds, [&](std::string_view k) { return lex_.is(k); });
  }

  void size() {
    if (lex_.expect(TokenKind::Percent).text != cat(varying_.size()))
      lex_.fail("sizes are numbered in order");
    lex_.expect("=");
    SizeInstruction i;
    field(i);
    varying_.push_back(Slot(plan_.sizes.instructions.size()));
    plan_.sizes.instructions.push_back(i);
  }

  void check_depth() const {
    if (depth_ > kMaxPlanDepth) lex_.fail("nested too deeply");
  }
  Slot varying(const std::string& name) const {
    for (size_t i = 0; i < varying_.size(); i++)
      if (name == cat(i)) return varying_[i];
    lex_.fail("no such size: %" + name);
  }
  template <class List>
  uint32_t find(const List& items, const std::string& name, const char* what) const {
    const auto it = std::ranges::find(items, name, [](const auto& i) { return i.name; });
    if (it == items.end()) lex_.fail(cat("no such ", what, ": ", name));
    return static_cast<uint32_t>(it - items.begin());
  }

  Plan plan_;
  SizeBuilder sizes_;
  std::vector<Slot> varying_;                          // by the number in their name
  std::vector<std::pair<size_t, std::string>> bases_;  // of views: a buffer below may be one
  std::vector<int64_t> results_;                       // in front of the step
  int depth_;                                          // of plans and lists
};

}  // namespace

std::string print(const Plan& p) { return PlanWriter(p, "").run() + "\n"; }

Plan parse_plan(std::string_view text) {
  Lexer lexer(text);
  Plan p = PlanReader(lexer, 0).run();
  if (!lexer.at_end()) lexer.fail("text behind the plan");
  verify(p);
  return p;
}

}  // namespace oxy::runtime
