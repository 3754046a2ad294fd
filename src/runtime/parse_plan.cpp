// Reads the text of print_plan.cpp.
#include <algorithm>
#include <charconv>
#include <limits>

#include "runtime/plan.h"
#include "runtime/plan_words.h"
#include "support/lexer.h"

namespace oxy::runtime {
namespace {

class PlanParser {
 public:
  PlanParser(Lexer& lexer, int depth) : lex_(lexer), sizes_(plan_.sizes), depth_(depth) {}

  Plan run() {
    check_depth();
    lex_.expect("plan");
    field("arena");
    // Its size may name slots that are defined below.
    const std::string arena = lex_.is(TokenKind::Percent) ? lex_.next().text : "";
    if (arena.empty()) plan_.arena_bytes = slot();
    lex_.expect("{");
    while (!lex_.accept("}")) parse_line();
    if (!arena.empty()) plan_.arena_bytes = varying(arena);
    for (const auto& [view, base] : bases_)
      plan_.buffers[view].source = find(plan_.buffers, base, "buffer");
    return std::move(plan_);
  }

 private:
  void parse_line() {
    if (lex_.accept("size")) return parse_size();
    if (lex_.accept("input")) return plan_.inputs.push_back(meta());
    if (lex_.accept("buffer")) return parse_buffer();
    if (lex_.accept("kernel")) return parse_kernel();
    if (lex_.accept("region")) return plan_.regions.push_back(PlanParser(lex_, depth_ + 1).run());
    if (lex_.accept("mutate")) return parse_mutation();
    if (lex_.accept("return")) return parse_output();
    if (lex_.accept("frozen")) return void(plan_.frozen = numbers<uint32_t>());
    if (lex_.accept("pack")) return parse_packing();
    plan_.steps.push_back(step());
  }

  // ---- words ----

  void check_depth() const {
    if (depth_ > kMaxPlanDepth) lex_.fail("nested too deeply");
  }

  void field(std::string_view name) {
    lex_.expect(name);
    lex_.expect("=");
  }

  template <class T>
  T number() {
    const int64_t n = lex_.integer();
    if (n < std::numeric_limits<T>::min() || n > std::numeric_limits<T>::max())
      lex_.fail("a number out of range");
    return static_cast<T>(n);
  }

  template <class F>
  void list(std::string_view open, std::string_view close, F&& item) {
    lex_.expect(open);
    if (lex_.accept(close)) return;
    do item();
    while (lex_.accept(","));
    lex_.expect(close);
  }
  template <class T>
  std::vector<T> numbers() {
    std::vector<T> out;
    list("[", "]", [&] { out.push_back(number<T>()); });
    return out;
  }

  Slot varying(const std::string& name) {
    for (size_t i = 0; i < varying_.size(); i++)
      if (name == cat(i)) return varying_[i];
    lex_.fail("no such size: %" + name);
  }
  Slot slot() {
    if (lex_.is(TokenKind::Percent)) return varying(lex_.next().text);
    return sizes_.constant(lex_.integer());
  }
  std::vector<Slot> slots() {
    std::vector<Slot> out;
    list("[", "]", [&] { out.push_back(slot()); });
    return out;
  }

  template <class List>
  uint32_t find(const List& items, const std::string& name, const char* what) {
    const auto it = std::ranges::find(items, name, [](const auto& i) { return i.name; });
    if (it == items.end()) lex_.fail(cat("no such ", what, ": ", name));
    return static_cast<uint32_t>(it - items.begin());
  }
  uint32_t buffer() { return find(plan_.buffers, lex_.identifier(), "buffer"); }
  std::vector<uint32_t> buffers() {
    std::vector<uint32_t> out;
    list("(", ")", [&] { out.push_back(buffer()); });
    return out;
  }
  int64_t result() { return lex_.accept("_") ? -1 : static_cast<int64_t>(buffer()); }

  // ---- declarations ----

  void parse_size() {
    if (lex_.expect(TokenKind::Percent).text != cat(varying_.size()))
      lex_.fail("sizes are numbered in order");
    lex_.expect("=");
    const auto op = size_op_from_name(lex_.identifier());
    if (!op || op == SizeOp::Constant) lex_.fail("no such operation on sizes");
    SizeInstruction i{*op, 0, 0};
    lex_.expect("(");
    i.a = reads_slots(*op) ? slot().index : lex_.integer();
    lex_.expect(",");
    i.b = reads_slots(*op) ? slot().index : lex_.integer();
    lex_.expect(")");
    varying_.push_back(Slot(plan_.sizes.instructions.size()));
    plan_.sizes.instructions.push_back(i);
  }

  TensorSlots meta() {
    TensorSlots t;
    if (lex_.accept("number")) {
      t.dtype = DType::None;
      t.offset = slot();
      return t;
    }
    const auto dtype = dtype_from_name(lex_.identifier());
    if (!dtype) lex_.fail("no such dtype");
    t.dtype = *dtype;
    t.sizes = slots();
    field("strides");
    t.strides = slots();
    if (lex_.is("offset")) {
      field("offset");
      t.offset = slot();
    } else {
      t.offset = sizes_.constant(0);
    }
    if (const auto d = device()) t.device = *d;
    return t;
  }

  std::optional<Device> device() {
    if (!lex_.is(TokenKind::Identifier)) return std::nullopt;
    const auto kind = device_kind_from_word(lex_.peek().text);
    if (!kind) return std::nullopt;
    lex_.next();
    return Device{*kind, lex_.accept(":") ? number<int8_t>() : int8_t{-1}};
  }

  void parse_buffer() {
    using Kind = PlanBuffer::Kind;
    PlanBuffer b;
    b.name = lex_.identifier();
    lex_.expect(":");
    const auto kind = std::ranges::find(kBufferKinds, lex_.identifier());
    if (kind == kBufferKinds.end()) lex_.fail("no such kind of buffer");
    b.kind = static_cast<Kind>(kind - kBufferKinds.begin());
    if (b.kind == Kind::Input || b.kind == Kind::Attribute) b.source = number<uint32_t>();
    if (b.kind == Kind::View) {
      lex_.expect("of");
      bases_.emplace_back(plan_.buffers.size(), lex_.identifier());
    }
    if (b.kind == Kind::Arena) {
      lex_.expect("at");
      b.arena_offset = slot();
    } else {
      b.arena_offset = sizes_.constant(0);
    }
    b.meta = meta();
    field("bytes");
    b.bytes = slot();
    plan_.buffers.push_back(std::move(b));
  }

  void parse_kernel() {
    PlanKernel k;
    k.name = lex_.identifier();
    lex_.expect(":");
    const auto hash = parse_hash(lex_.expect(TokenKind::At).text);
    if (!hash) lex_.fail("a hash has 32 digits");
    k.code = *hash;
    for (auto [name, to] : {std::pair{"range", &k.range}, std::pair{"grain", &k.grain},
                            std::pair{"scratch", &k.scratch_bytes}}) {
      field(name);
      *to = slot();
    }
    field("moves");
    k.moved_bytes = lex_.integer();
    if (lex_.is("parameters")) {
      field("parameters");
      k.parameters = slots();
    }
    plan_.kernels.push_back(std::move(k));
  }

  // ---- steps ----

  LaunchStep launch() {
    LaunchStep l;
    l.kernel = find(plan_.kernels, lex_.identifier(), "kernel");
    l.buffers = buffers();
    return l;
  }

  PlanStep step() {
    if (lex_.accept("launch")) return launch();
    if (lex_.accept("free")) return FreeStep{buffer()};
    if (lex_.accept("gemm")) {
      GemmStep s{launch(), std::nullopt};
      if (lex_.accept("epilogue")) s.epilogue = launch();
      return s;
    }
    std::vector<int64_t> results;
    if (!is_call()) {
      do results.push_back(result());
      while (lex_.accept(","));
      lex_.expect("=");
    }
    if (lex_.accept("extern")) return extern_step(std::move(results));
    return region(std::move(results));
  }
  bool is_call() const {
    return lex_.is("extern") ||
           std::ranges::any_of(kRegionKinds, [&](std::string_view k) { return lex_.is(k); });
  }

  RegionStep region(std::vector<int64_t> results) {
    RegionStep s;
    const auto kind = std::ranges::find(kRegionKinds, lex_.identifier());
    if (kind == kRegionKinds.end()) lex_.fail("no such step");
    s.kind = static_cast<RegionStep::Kind>(kind - kRegionKinds.begin());
    s.plans = numbers<uint32_t>();
    s.operands = buffers();
    s.results = std::move(results);
    return s;
  }

  ExternStep extern_step(std::vector<int64_t> results) {
    ExternStep s;
    s.op = lex_.is(TokenKind::String) ? lex_.next().text : lex_.identifier();
    list("(", ")", [&] { s.args.push_back(argument()); });
    s.outputs = std::move(results);
    if (lex_.is("returns")) {
      field("returns");
      s.returns = numbers<int32_t>();
    }
    s.random = lex_.accept("random");
    field("origin");
    s.origin = number<uint32_t>();
    return s;
  }

  PlanArg argument() {
    if (lex_.is(TokenKind::String)) return {lex_.next().text};
    if (lex_.is(TokenKind::Float) || lex_.is("inf") || lex_.is("nan")) return {lex_.number()};
    if (lex_.is("-")) return negative();
    if (lex_.is(TokenKind::Percent) || lex_.is(TokenKind::Int)) return {slot()};
    if (lex_.is("[")) {
      PlanArg::List items;
      depth_++;
      check_depth();
      list("[", "]", [&] { items.push_back(argument()); });
      depth_--;
      return {std::move(items)};
    }
    if (lex_.accept("None")) return {};
    if (lex_.accept("True")) return {true};
    if (lex_.accept("False")) return {false};
    if (lex_.accept("complex")) return complex();
    if (lex_.accept("layout")) return {Layout{word(kLayouts)}};
    if (lex_.accept("memory_format")) return {MemoryFormat{word(kMemoryFormats)}};
    if (lex_.is(TokenKind::Identifier)) {
      if (const auto dtype = dtype_from_name(lex_.peek().text)) {
        lex_.next();
        return {*dtype};
      }
    }
    if (const auto d = device()) return {*d};
    return {BufferArg{buffer()}};
  }

  PlanArg negative() {
    lex_.expect("-");
    if (!lex_.is(TokenKind::Int)) return {-lex_.number()};
    const std::string text = "-" + lex_.next().text;
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      lex_.fail("an integer of more than 64 bits");
    return {sizes_.constant(value)};
  }

  PlanArg complex() {
    lex_.expect("(");
    const double real = lex_.number();
    lex_.expect(",");
    const double imag = lex_.number();
    lex_.expect(")");
    return {std::complex<double>(real, imag)};
  }

  template <size_t N>
  int8_t word(const std::array<std::string_view, N>& words) {
    lex_.expect("(");
    int8_t value = 0;
    if (lex_.is(TokenKind::Identifier)) {
      const auto it = std::ranges::find(words, lex_.identifier());
      if (it == words.end()) lex_.fail("no such word");
      value = static_cast<int8_t>(it - words.begin());
    } else {
      value = number<int8_t>();
    }
    lex_.expect(")");
    return value;
  }

  // ---- results ----

  void parse_mutation() {
    PlanMutation m;
    lex_.expect("input");
    m.input = number<uint32_t>();
    m.in_place = lex_.accept("in");
    if (m.in_place) {
      lex_.expect("place");
      lex_.expect(":");
    } else {
      lex_.expect("<-");
    }
    m.buffer = buffer();
    if (lex_.accept("as")) m.layout = meta();
    m.same_data = lex_.accept("same_data");
    plan_.mutations.push_back(std::move(m));
  }

  void parse_output() {
    using Kind = PlanOutput::Kind;
    PlanOutput o;
    o.neg = lex_.accept("neg");
    o.conj = lex_.accept("conj");
    if (lex_.accept("None")) {
      o.kind = Kind::None;
    } else if (lex_.accept("input")) {
      o.kind = Kind::Input;
      o.index = number<uint32_t>();
    } else if (lex_.accept("view")) {
      lex_.expect("of");
      o.kind = lex_.accept("output") ? Kind::ViewOfOutput : Kind::ViewOfInput;
      if (o.kind == Kind::ViewOfInput) lex_.expect("input");
      o.index = number<uint32_t>();
      lex_.expect(":");
      o.meta = meta();
    } else if (lex_.is(TokenKind::Identifier)) {
      o.buffer = buffer();
    } else {
      o.number = slot();
    }
    plan_.outputs.push_back(std::move(o));
  }

  void parse_packing() {
    PlanPacking p;
    p.from = buffer();
    lex_.expect("->");
    p.to = buffer();
    for (auto [name, to] : {std::pair{"batch", &p.batch}, std::pair{"k", &p.k},
                            std::pair{"n", &p.n}, std::pair{"batch_stride", &p.batch_stride},
                            std::pair{"k_stride", &p.k_stride}, std::pair{"n_stride", &p.n_stride},
                            std::pair{"offset", &p.offset}, std::pair{"width", &p.width}}) {
      field(name);
      *to = lex_.integer();
    }
    plan_.packings.push_back(p);
  }

  Lexer& lex_;
  Plan plan_;
  SizeBuilder sizes_;
  std::vector<Slot> varying_;                          // by the number in their name
  std::vector<std::pair<size_t, std::string>> bases_;  // of views: a buffer below may be one
  int depth_;                                          // of plans and lists
};

}  // namespace

Plan parse_plan(std::string_view text) {
  Lexer lexer(text);
  Plan p = PlanParser(lexer, 0).run();
  if (!lexer.at_end()) lexer.fail("text behind the plan");
  verify(p);
  return p;
}

}  // namespace oxy::runtime
