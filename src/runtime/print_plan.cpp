// The text of a plan: sizes that vary, inputs, buffers, kernels, sub-plans, then steps, then what
// the call hands back.
#include "runtime/plan.h"
#include "runtime/plan_words.h"
#include "support/lexer.h"

namespace oxy::runtime {
namespace {

class PlanPrinter {
 public:
  PlanPrinter(const Plan& p, std::string indent) : p_(p), indent_(std::move(indent)) {
    for (size_t i = 0, n = 0; i < p.sizes.instructions.size(); i++)
      numbers_.push_back(p.sizes.is_constant(Slot(i)) ? 0 : n++);
  }

  std::string run() {
    cat_to(out_, "plan arena=", slot(p_.arena_bytes), " {\n");
    for (size_t i = 0; i < numbers_.size(); i++) print_size(Slot(i));
    for (const TensorSlots& t : p_.inputs) line("input ", meta(t));
    for (const PlanBuffer& b : p_.buffers) print_buffer(b);
    for (const PlanKernel& k : p_.kernels) print_kernel(k);
    for (const Plan& r : p_.regions) line("region ", PlanPrinter(r, indent_ + "  ").run());
    for (const PlanStep& s : p_.steps) std::visit([&](const auto& step) { line(text(step)); }, s);
    for (const PlanMutation& m : p_.mutations) print_mutation(m);
    for (const PlanOutput& o : p_.outputs)
      line("return ", o.neg ? "neg " : "", o.conj ? "conj " : "", text(o));
    if (!p_.frozen.empty()) line("frozen [", list(p_.frozen), "]");
    for (const PlanPacking& k : p_.packings) print_packing(k);
    cat_to(out_, indent_, "}");
    return std::move(out_);
  }

 private:
  template <class... A>
  void line(const A&... a) {
    cat_to(out_, indent_, "  ", a..., "\n");
  }
  const std::string& name(size_t b) const { return p_.buffers[b].name; }

  std::string slot(Slot s) const {
    if (p_.sizes.is_constant(s)) return cat(p_.sizes.constant(s));
    return cat("%", numbers_[s.index]);
  }
  std::string slots(const std::vector<Slot>& list) const {
    return join(list, ", ", [&](std::string& o, Slot s) { append(o, slot(s)); });
  }
  template <class T>
  static std::string list(const std::vector<T>& numbers) {
    return join(numbers, ", ", [](std::string& o, T n) { append(o, n); });
  }
  std::string names(const std::vector<uint32_t>& buffers) const {
    return join(buffers, ", ", [&](std::string& o, uint32_t b) { append(o, name(b)); });
  }
  std::string results(const std::vector<int64_t>& buffers) const {
    return join(buffers, ", ", [&](std::string& o, int64_t b) {
      append(o, b < 0 ? "_" : name(static_cast<size_t>(b)));
    });
  }

  void print_size(Slot s) {
    const SizeInstruction& i = p_.sizes.instructions[s.index];
    if (i.op == SizeOp::Constant) return;
    std::string operands;
    if (reads_slots(i.op))
      operands =
          cat(slot(Slot(static_cast<size_t>(i.a))), ", ", slot(Slot(static_cast<size_t>(i.b))));
    else
      operands = cat(i.a, ", ", i.b);
    line("size ", slot(s), " = ", runtime::name(i.op), "(", operands, ")");
  }

  std::string meta(const TensorSlots& t) const {
    if (t.dtype == DType::None) return cat("number ", slot(t.offset));
    std::string s =
        cat(oxy::name(t.dtype), "[", slots(t.sizes), "] strides=[", slots(t.strides), "]");
    if (slot(t.offset) != "0") cat_to(s, " offset=", slot(t.offset));
    if (t.device != Device()) cat_to(s, " ", oxy::print(t.device));
    return s;
  }

  void print_buffer(const PlanBuffer& b) {
    using Kind = PlanBuffer::Kind;
    std::string where(kBufferKinds[static_cast<size_t>(b.kind)]);
    if (b.kind == Kind::Input || b.kind == Kind::Attribute) cat_to(where, " ", b.source);
    if (b.kind == Kind::View) cat_to(where, " of ", name(b.source));
    if (b.kind == Kind::Arena) cat_to(where, " at ", slot(b.arena_offset));
    line("buffer ", b.name, ": ", where, " ", meta(b.meta), " bytes=", slot(b.bytes));
  }

  void print_kernel(const PlanKernel& k) {
    std::string s =
        cat("kernel ", k.name, ": @", oxy::print(k.code), " range=", slot(k.range),
            " grain=", slot(k.grain), " scratch=", slot(k.scratch_bytes), " moves=", k.moved_bytes);
    if (!k.parameters.empty()) cat_to(s, " parameters=[", slots(k.parameters), "]");
    line(s);
  }

  std::string call(const LaunchStep& l) const {
    return cat(p_.kernels[l.kernel].name, "(", names(l.buffers), ")");
  }
  std::string text(const LaunchStep& s) const { return cat("launch ", call(s)); }
  std::string text(const GemmStep& s) const {
    return cat("gemm ", call(s.gemm), s.epilogue ? cat(" epilogue ", call(*s.epilogue)) : "");
  }
  std::string text(const ExternStep& s) const {
    return cat(results(s.outputs), s.outputs.empty() ? "extern " : " = extern ",
               is_identifier(s.op) ? s.op : quote(s.op), "(", text(s.args), ")",
               s.returns.empty() ? "" : cat(" returns=[", list(s.returns), "]"),
               s.random ? " random" : "", " origin=", s.origin);
  }
  std::string text(const RegionStep& s) const {
    return cat(results(s.results), s.results.empty() ? "" : " = ",
               kRegionKinds[static_cast<size_t>(s.kind)], " [", list(s.plans), "](",
               names(s.operands), ")");
  }
  std::string text(const FreeStep& s) const { return cat("free ", name(s.buffer)); }

  std::string text(const PlanArg::List& args) const {
    return join(args, ", ", [&](std::string& o, const PlanArg& a) {
      std::visit([&](const auto& v) { append(o, argument(v)); }, a.v);
    });
  }
  static std::string argument(std::monostate) { return "None"; }
  std::string argument(BufferArg b) const { return name(b.buffer); }
  std::string argument(Slot s) const { return slot(s); }
  static std::string argument(double d) { return print_float(d); }
  static std::string argument(std::complex<double> c) {
    return cat("complex(", print_float(c.real()), ", ", print_float(c.imag()), ")");
  }
  static std::string argument(bool b) { return b ? "True" : "False"; }
  static std::string argument(const std::string& s) { return quote(s); }
  static std::string argument(DType d) { return std::string(oxy::name(d)); }
  static std::string argument(Device d) { return oxy::print(d); }
  static std::string argument(Layout l) { return word("layout", kLayouts, l.value); }
  static std::string argument(MemoryFormat m) {
    return word("memory_format", kMemoryFormats, m.value);
  }
  std::string argument(const PlanArg::List& l) const { return cat("[", text(l), "]"); }
  template <size_t N>
  static std::string word(const char* of, const std::array<std::string_view, N>& words, int8_t v) {
    const size_t i = static_cast<unsigned char>(v);
    return cat(of, "(", v >= 0 && i < N ? std::string(words[i]) : cat(static_cast<int>(v)), ")");
  }

  void print_mutation(const PlanMutation& m) {
    line("mutate input ", m.input, m.in_place ? " in place: " : " <- ", name(m.buffer),
         m.layout ? " as " + meta(*m.layout) : "", m.same_data ? " same_data" : "");
  }

  std::string text(const PlanOutput& o) const {
    using Kind = PlanOutput::Kind;
    switch (o.kind) {
      case Kind::Value:
        return o.number ? slot(*o.number) : name(static_cast<size_t>(o.buffer));
      case Kind::Input:
        return cat("input ", o.index);
      case Kind::ViewOfInput:
        return cat("view of input ", o.index, ": ", meta(*o.meta));
      case Kind::ViewOfOutput:
        return cat("view of output ", o.index, ": ", meta(*o.meta));
      case Kind::None:
        break;
    }
    return "None";
  }

  void print_packing(const PlanPacking& k) {
    line("pack ", name(k.from), " -> ", name(k.to), " batch=", k.batch, " k=", k.k, " n=", k.n,
         " batch_stride=", k.batch_stride, " k_stride=", k.k_stride, " n_stride=", k.n_stride,
         " offset=", k.offset, " width=", k.width);
  }

  const Plan& p_;
  const std::string indent_;
  std::vector<size_t> numbers_;  // by slot: that of its name, where it varies
  std::string out_;
};

}  // namespace

std::string print(const Plan& p) { return PlanPrinter(p, "").run() + "\n"; }

}  // namespace oxy::runtime
