// The texts of a kernel and of a schedule.
#include "schedule/schedule.h"
#include "support/lexer.h"

namespace oxy::schedule {

namespace {

// " tiled panel_loops=2"
std::string words(const Annotations& annotations) {
  std::string out;
  for (const auto& [word, value] : annotations) {
    cat_to(out, ' ', word);
    if (value != 1) cat_to(out, '=', value);
  }
  return out;
}

class Printer {
 public:
  explicit Printer(const Kernel& k) : k_(k) {}

  std::string run() {
    cat_to(out_, "kernel ", k_.name, "(");
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const KernelBuffer& b = k_.buffers[i];
      cat_to(out_, i ? ", " : "", b.name, ": ", kBufferKinds[static_cast<size_t>(b.kind)], " ",
             ir::name(b.dtype), "[", b.elements, "]");
    }
    append(out_, ")");
    if (!k_.parameters.empty()) {
      cat_to(out_, " sizes (",
             join(k_.parameters, ", ", [](std::string& out, Expr e) { append(out, e); }), ")");
    }
    cat_to(out_, " cost ", k_.cost, words(k_.annotations), " {\n");
    block(k_.body, 1);
    append(out_, "}\n");
    return std::move(out_);
  }

 private:
  void block(const Block& b, int depth) {
    for (const Stmt& s : b) {
      out_.append(2 * depth, ' ');
      std::visit([&](const auto& x) { statement(x, depth); }, s.v);
      append(out_, "\n");
    }
  }
  void statement(const For& f, int depth) {
    cat_to(out_, kForKinds[static_cast<size_t>(f.kind)], words(f.annotations), ' ', f.var, ": ",
           f.size, " {\n");
    block(f.body, depth + 1);
    out_.append(2 * depth, ' ');
    append(out_, "}");
  }
  void statement(const Init& i, int) {
    cat_to(out_, "acc @", i.acc, " = ", ops::name(i.kind), " ", ir::name(i.dtype));
  }
  void statement(const Accumulate& a, int) {
    cat_to(out_, "accumulate @", a.acc, " %", a.value);
    if (!a.index.is_const(0)) cat_to(out_, " at ", a.index);
  }
  void statement(const Result& r, int) { cat_to(out_, "%", r.value, " = result @", r.acc); }
  void statement(const Hint& h, int) {
    cat_to(out_, "hint ", h.word, ' ', k_.buffers[h.buffer].name, "[", h.index, "]");
  }
  void statement(const Compute& c, int);

  const Kernel& k_;
  std::string out_;
};

void Printer::statement(const Compute& c, int) {
  auto place = [&] { return cat(k_.buffers[c.buffer].name, "[", c.index, "]"); };
  auto arg = [&](size_t k) { return cat("%", c.args[k]); };
  switch (c.op) {
    case LoopOp::Store:
    case LoopOp::StoreAdd:
      cat_to(out_, ops::name(c.op), words(c.annotations), ' ', ir::name(c.dtype), " ", place(),
             " = ", arg(0));
      return;
    case LoopOp::Check:
      cat_to(out_, "check ", arg(0), " in ", c.index);
      return;
    default:
      break;
  }
  cat_to(out_, "%", c.value, " = ", ops::name(c.op), " ", ir::name(c.dtype));
  switch (c.op) {
    case LoopOp::Const:
      append(out_, " ");
      append(out_, ir::is_floating(c.dtype) ? print_float(c.number) : cat(c.integer));
      break;
    case LoopOp::Index:
      cat_to(out_, " ", c.index);
      break;
    case LoopOp::Symbol:
      cat_to(out_, " ", c.index, " ", arg(0));
      break;
    case LoopOp::Load:
      cat_to(out_, " ", place());
      if (!c.args.empty()) cat_to(out_, " if ", arg(0), " else ", arg(1));
      break;
    default:
      for (size_t k = 0; k < c.args.size(); ++k) cat_to(out_, k ? ", " : " ", arg(k));
  }
}

std::string names(const loops::Program& p, const std::vector<loops::BufferId>& ids) {
  return join(ids, ", ", [&](std::string& s, loops::BufferId b) {
    append(s, b.valid() ? std::string_view(p.buffers[b].name) : "_");
  });
}

}  // namespace

std::string print(const Kernel& k) { return Printer(k).run(); }

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
  for (uint32_t b = 0; b < p.buffers.size(); ++b) {
    auto it = s.memory.offset.find(loops::BufferId(b));
    if (it != s.memory.offset.end()) {
      cat_to(out, "temp ", p.buffers[it->first].name, ": ", ir::print(p.buffers[it->first].type),
             " at ", it->second, "\n");
    }
  }
  for (auto [input, buffer] : s.in_place)
    cat_to(out, "input ", input, " in place: ", p.buffers[buffer].name, "\n");
  cat_to(out, "arena ", s.memory.arena_bytes, " bytes\n");
  for (const FusionNote& n : s.notes)
    cat_to(out, "not fused: ", n.first, ", ", n.second, ": ", n.reason, "\n");
  return out;
}

}  // namespace oxy::schedule
