// The text of a program: buffers, then steps in order.
#include "ir/text.h"
#include "loops/loop_ir.h"
#include "loops/words.h"
#include "support/lexer.h"

namespace oxy::loops {

namespace {

std::string index_text(const Program& p, const Inst& i) {
  return cat(p.buffers[i.buffer].name, "[",
             join(i.index, ", ", [](std::string& s, Expr e) { append(s, e); }), "]");
}

std::string const_text(const Inst& i) {
  return ir::is_floating(i.dtype) ? print_float(i.number) : cat(i.integer);
}

void print_inst(std::string& out, const Program& p, const Loop& loop, uint32_t id) {
  const Inst& i = loop.body[id];
  auto arg = [&](size_t k) { return cat("%", i.args[k]); };
  switch (i.op) {
    case LoopOp::Store:
      cat_to(out, "store ", index_text(p, i), " = ", arg(0));
      return;
    case LoopOp::StoreAdd:
      cat_to(out, "store_", i.reduce == ReduceKind::Sum ? "add" : ops::name(i.reduce), " ",
             index_text(p, i), " = ", arg(0));
      return;
    case LoopOp::Check:
      cat_to(out, "check ", arg(0), " in ", i.index[0]);
      return;
    default:
      break;
  }
  cat_to(out, "%", id, " = ", ops::name(i.op), " ", ir::name(i.dtype));
  switch (i.op) {
    case LoopOp::Const:
      cat_to(out, " ", const_text(i));
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
      cat_to(out, " ", index_text(p, i));
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
  size_t slash = f.file.rfind('/');
  std::string_view file(f.file);
  if (slash != std::string::npos) file.remove_prefix(slash + 1);
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

std::string print_contraction(const Program& p, const ContractionStep& c, size_t at) {
  return cat(ops::name(c.what.kind), " op", at, ": ", operands_text(p, c),
             origin_comment(p, c.node), "\n");
}

std::string print_extern(const Program& p, const ExternStep& e, size_t at) {
  bool known = p.graph && e.node.valid();
  std::string out =
      cat("extern op", at, ": ", known ? std::string_view(p.graph->node(e.node).target) : "op", "(",
          names(p, e.reads), ") -> ", names(p, e.writes));
  if (known) append(out, origin_comment(p, e.node));
  return out + "\n";
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

}  // namespace

std::string operands_text(const Program& p, const ContractionStep& s) {
  std::string out = names(p, s.reads);
  auto list = [&](const char* word, const std::vector<Expr>& numbers) {
    if (numbers.empty()) return;
    cat_to(out, ", ", word, " [", join(numbers, ", ", [](std::string& t, Expr e) { append(t, e); }),
           "]");
  };
  list("stride", s.what.stride);
  list("padding", s.what.padding);
  list("dilation", s.what.dilation);
  return cat(out, " -> ", names(p, s.writes), " by ", ops::name(s.provider));
}

std::string print(const Program& p, const Step& s) {
  if (const auto* l = std::get_if<Loop>(&s)) return print_loop(p, *l);
  size_t at = 0;
  while (at < p.steps.size() && &p.steps[at] != &s) ++at;
  if (const auto* c = std::get_if<ContractionStep>(&s)) return print_contraction(p, *c, at);
  return print_extern(p, std::get<ExternStep>(s), at);
}

std::string print(const Program& p) {
  std::string out;
  for (const Buffer& b : p.buffers) append(out, print_buffer(p, b));
  for (const Step& s : p.steps) append(out, print(p, s));
  return out;
}

}  // namespace oxy::loops
