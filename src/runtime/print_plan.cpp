// The text of a plan, for logs and tests: buffers, then steps, then what the call hands back.
#include "ir/text.h"
#include "runtime/plan.h"

namespace oxy::runtime {
namespace {

constexpr const char* kKinds[] = {"input", "attribute", "arena", "extern", "output", "view"};

void number(std::string& out, int64_t n) { append(out, n); }

std::string print(const TensorMeta& m) {
  if (m.dtype == ir::DType::None) return cat("number ", m.offset);
  std::string s = cat(ir::name(m.dtype), "[", join(m.sizes, ", ", number), "] strides=[",
                      join(m.strides, ", ", number), "]");
  if (m.offset != 0) cat_to(s, " offset=", m.offset);
  return s;
}

class PlanPrinter {
 public:
  explicit PlanPrinter(const Plan& p) : p_(p) {}

  std::string run() {
    cat_to(out_, "plan arena=", p_.arena_bytes, " {\n");
    for (const PlanBuffer& b : p_.buffers) print_buffer(b);
    for (const PlanStep& s : p_.steps) {
      append(out_, "  ");
      std::visit([&](const auto& step) { print_step(step); }, s);
      append(out_, '\n');
    }
    for (const PlanMutation& m : p_.mutations) {
      cat_to(out_, "  mutate input ", m.input, m.in_place ? " in place: " : " <- ", name(m.buffer));
      if (m.layout) cat_to(out_, " as ", print(*m.layout));
      append(out_, '\n');
    }
    for (const PlanOutput& o : p_.outputs) print_output(o);
    append(out_, "}\n");
    return std::move(out_);
  }

 private:
  const std::string& name(size_t b) const { return p_.buffers[b].name; }

  void print_buffer(const PlanBuffer& b) {
    cat_to(out_, "  buffer ", b.name, ": ", kKinds[static_cast<int>(b.kind)]);
    using Kind = PlanBuffer::Kind;
    if (b.kind == Kind::Input || b.kind == Kind::Attribute) cat_to(out_, " ", b.source);
    if (b.kind == Kind::View) cat_to(out_, " of ", name(b.source));
    if (b.kind == Kind::Arena) cat_to(out_, " at ", b.arena_offset);
    cat_to(out_, " ", print(b.meta), "\n");
  }

  void print_step(const KernelStep& s) {
    const PlanKernel& k = p_.kernels[s.kernel];
    print_call(k, s.buffers);
    cat_to(out_, " over ", k.range, " grain ", k.grain);
    if (!s.epilogue) return;
    append(out_, " epilogue ");
    print_call(p_.kernels[*s.epilogue], s.epilogue_buffers);
  }

  void print_call(const PlanKernel& k, const std::vector<uint32_t>& buffers) {
    cat_to(out_, k.name, "(",
           join(buffers, ", ", [&](std::string& o, uint32_t b) { append(o, name(b)); }), ")");
  }

  void print_step(const ExternStep& s) {
    std::string results = join(s.outputs, ", ", [&](std::string& o, int64_t b) {
      append(o, b < 0 ? "_" : name(static_cast<size_t>(b)));
    });
    std::string arguments =
        join(s.args, ", ", [&](std::string& o, const ir::Arg& a) { print_argument(o, a); });
    cat_to(out_, results, " = extern ", s.op, "(", arguments, ")", s.random ? " random" : "");
  }

  void print_step(const FreeStep& s) { cat_to(out_, "free ", name(s.buffer)); }

  void print_argument(std::string& o, const ir::Arg& a) {
    if (a.is_value()) {
      append(o, name(a.value().index));
    } else if (const auto* items = a.items()) {
      cat_to(
          o, "[",
          join(*items, ", ", [&](std::string& i, const ir::Arg& item) { print_argument(i, item); }),
          "]");
    } else {
      append(o, ir::print(data_, a));
    }
  }

  void print_output(const PlanOutput& o) {
    using Kind = ir::OutputSpec::Kind;
    cat_to(out_, "  return ", o.neg ? "neg " : "", o.conj ? "conj " : "");
    switch (o.kind) {
      case Kind::Value:
        if (o.number) {
          append(out_, *o.number);
        } else {
          append(out_, o.buffer < 0 ? "None" : name(static_cast<size_t>(o.buffer)));
        }
        break;
      case Kind::Input:
        cat_to(out_, "input ", o.index);
        break;
      case Kind::ViewOfInput:
        cat_to(out_, "view of input ", o.index, ": ", print(o.meta));
        break;
      case Kind::ViewOfOutput:
        cat_to(out_, "view of output ", o.index, ": ", print(o.meta));
        break;
      case Kind::None:
        append(out_, "None");
        break;
    }
    append(out_, '\n');
  }

  const Plan& p_;
  const ir::Graph data_{ir::Stage::Aten};  // arguments that are data print without a graph
  std::string out_;
};

}  // namespace

std::string print(const Plan& p) { return PlanPrinter(p).run(); }

int64_t moved_bytes(const Plan& p, const KernelStep& step) {
  return p.kernels[step.kernel].moved_bytes +
         (step.epilogue ? p.kernels[*step.epilogue].moved_bytes : 0);
}

}  // namespace oxy::runtime
