// Names follow torch.fx: the op's name, with a number from the second use on.
#include "ir/python_text.h"

#include <cmath>
#include <unordered_set>

#include "support/check.h"

namespace oxy::ir {
namespace {

class PythonPrinter {
 public:
  explicit PythonPrinter(const Graph& g, std::string margin = "        ")
      : graph_(g), names_(g.value_count()), margin_(std::move(margin)) {}

  std::string module() {
    std::string out = "class GraphModule(torch.nn.Module):\n    def forward(self";
    parameters(out, ", ");
    body(out);
    results(out);
    return out;
  }

  // A function of this name; `plain`: it returns its one result itself.
  std::string function(const std::string& name, bool plain) {
    std::string out = cat(margin_.substr(4), "def ", name, "(");
    parameters(out, "");
    body(out);
    cat_to(out, margin_, "return ", plain ? "" : "(");
    for (size_t i = 0; i < graph_.outputs.size(); i++) {
      output(out, i);
      out += graph_.outputs[i].kind == OutputSpec::Kind::Input ? ".clone()" : "";
      out += plain ? "" : i + 1 < graph_.outputs.size() ? ", " : ",";
    }
    return out + (plain ? "\n" : ")\n");
  }

  std::string name_of(ValueId v) {
    std::string& name = names_[v.index];
    if (name.empty()) name = fresh(base_name(graph_.def(v)));
    return name;
  }

 private:
  void parameters(std::string& out, std::string_view before) {
    for (NodeId id : graph_.order()) {
      const Node& n = graph_.node(id);
      if (n.dead || !is_parameter(n)) continue;
      cat_to(out, before, name_of(n.outputs[0]), ": \"", print(graph_.value(n.outputs[0]).type),
             "\"");
      before = ", ";
    }
    out += "):\n";
  }

  void body(std::string& out) {
    StackId last;
    for (NodeId id : graph_.order()) {
      const Node& n = graph_.node(id);
      if (n.dead || is_parameter(n)) continue;
      if (n.stack != last && n.stack.valid()) stack_comment(out, graph_.stack(n.stack));
      last = n.stack;
      if (n.kind == NodeKind::Region)
        region_call(out, n);
      else
        call(out, n);
    }
  }

  void results(std::string& out) {
    for (const Mutation& m : graph_.mutations) {
      if (m.metadata) as_strided_in_place(out, name_of(graph_.inputs()[m.input]), m.type);
      if (m.value == graph_.inputs()[m.input]) continue;
      cat_to(out, margin_, "torch.ops.aten.copy_.default(", name_of(graph_.inputs()[m.input]), ", ",
             name_of(m.value), ")\n");
    }
    cat_to(out, margin_, "return (");
    for (size_t i = 0; i < graph_.outputs.size(); i++) {
      output(out, i);
      out += graph_.outputs.size() == 1 ? "," : i + 1 < graph_.outputs.size() ? ", " : "";
    }
    out += ")\n";
  }

  // The regions as functions, then the call that runs them.
  void region_call(std::string& out, const Node& n) {
    const RegionOp& op = region_op(n);
    std::vector<std::string> functions;
    for (size_t i = 0; i < n.regions.size(); i++) {
      functions.push_back(fresh(cat(n.target, "_", op.regions[i])));
      const bool plain = n.target == "while_loop" && i == 0;
      out += PythonPrinter(n.regions[i], margin_ + "    ").function(functions.back(), plain);
    }
    cat_to(out, margin_, "[");
    for (size_t i = 0; i < n.outputs.size(); i++) cat_to(out, i ? ", " : "", name_of(n.outputs[i]));
    out += "] = ";
    auto operands = [&](size_t from, size_t to) {
      sequence(out,
               {n.args.begin() + static_cast<ptrdiff_t>(from),
                n.args.begin() + static_cast<ptrdiff_t>(to)},
               "(", to == from + 1 ? ",)" : ")");
    };
    const size_t end = n.args.size(), split = op.arguments + first_optional_operand(n);
    if (n.target == "checkpoint") {
      cat_to(out, functions[0]);
      sequence(out, n.args, "(", ")\n");
      return;
    }
    cat_to(out, n.target == "loop" ? "run_loop(" : cat("torch.ops.higher_order.", n.target, "("));
    for (size_t i = 0; i < op.arguments; i++) {
      argument(out, n.args[i]);
      out += ", ";
    }
    for (const std::string& f : functions) cat_to(out, f, ", ");
    operands(op.arguments, op.carries ? split : end);
    if (op.carries) {
      out += ", ";
      operands(split, end);
    }
    out += ")\n";
  }

  static bool is_parameter(const Node& n) {
    return n.kind == NodeKind::Input || n.kind == NodeKind::Attribute;
  }

  static std::string base_name(const Node& n) {
    std::string s = n.target;
    if (n.kind == NodeKind::CallOp) {
      size_t first = s.find('.'), last = s.rfind('.');
      s = s.substr(first + 1, last - first - 1);
    }
    for (char& c : s)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) s.insert(0, "_");
    return s;
  }

  std::string fresh(std::string base) {
    static const std::unordered_set<std::string> reserved = {
        "abs", "all", "and", "any",   "complex", "float", "hash",  "is",  "max",  "min",
        "not", "or",  "pow", "round", "self",    "set",   "slice", "sum", "torch"};
    int& n = used_[base];
    std::string name = n == 0 && !reserved.contains(base) ? base : cat(base, "_", n == 0 ? 1 : n);
    n = n == 0 && reserved.contains(base) ? 2 : n + 1;
    return taken_.insert(name).second ? name : fresh(std::move(base));
  }

  void stack_comment(std::string& out, const std::vector<Frame>& frames) const {
    if (frames.empty()) return;
    const Frame& f = frames.back();
    cat_to(out, margin_, "# File: ", f.file, ":", f.line, " in ", f.function, ", code: ", f.code,
           "\n");
  }

  void call(std::string& out, const Node& n) {
    bool lists = false;
    for (int32_t r : n.returns) lists |= r >= 0;
    out += margin_;
    bool plain = n.outputs.size() == 1 && !lists;
    if (plain) {
      cat_to(out, name_of(n.outputs[0]), ": \"", print(graph_.value(n.outputs[0]).type), "\" = ");
    } else if (!n.outputs.empty()) {
      targets(out, n);
      out += " = ";
    }
    cat_to(out, "torch.ops.", n.target, "(");
    arguments(out, n);
    out += ")\n";
  }

  // The left side of a call with several results: one name each, lists in brackets.
  void targets(std::string& out, const Node& n) {
    std::vector<int32_t> returns = n.returns;
    if (returns.empty()) returns.assign(n.outputs.size(), -1);
    size_t next = 0;
    for (size_t r = 0; r < returns.size(); r++) {
      if (r) out += ", ";
      if (returns[r] < 0) {
        out += name_of(n.outputs[next++]);
        continue;
      }
      out += "[";
      for (int32_t i = 0; i < returns[r]; i++)
        cat_to(out, i ? ", " : "", name_of(n.outputs[next++]));
      out += "]";
    }
  }

  // Schema order, by position: torch.ops calls take keyword-only arguments by name only, so those
  // are found through the overload's schema at run time by `_call`.
  void arguments(std::string& out, const Node& n) {
    for (size_t i = 0; i < n.args.size(); i++) {
      if (i) out += ", ";
      argument(out, n.args[i]);
    }
  }

  void sequence(std::string& out, const std::vector<Arg>& items, const char* open,
                const char* close) {
    out += open;
    for (size_t i = 0; i < items.size(); i++) {
      if (i) out += ", ";
      argument(out, items[i]);
    }
    out += close;
  }

  static void number(std::string& out, double d) {
    if (std::isnan(d)) {
      out += "float('nan')";
    } else if (std::isinf(d)) {
      out += d < 0 ? "float('-inf')" : "float('inf')";
    } else {
      size_t start = out.size();
      append(out, d);
      if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
    }
  }

  void argument(std::string& out, const Arg& a) {
    static constexpr const char* kLayouts[] = {"strided", "sparse_coo", "sparse_csr", "_mkldnn"};
    static constexpr const char* kFormats[] = {"contiguous_format", "preserve_format",
                                               "channels_last", "channels_last_3d"};
    if (a.is_none() || a.get_if<Object>() || a.get_if<Dict>())
      out += "None";
    else if (a.is_value())
      out += name_of(a.value());
    else if (auto* b = a.get_if<bool>())
      append(out, *b);
    else if (auto* e = a.get_if<Expr>())
      append(out, *e);
    else if (auto* d = a.get_if<double>())
      number(out, *d);
    else if (auto* c = a.get_if<std::complex<double>>())
      cat_to(out, "complex(", c->real(), ", ", c->imag(), ")");
    else if (auto* s = a.get_if<Str>())
      cat_to(out, "'", s->value, "'");
    else if (auto* t = a.get_if<DType>())
      cat_to(out, "torch.", torch_name(*t));
    else if (auto* dev = a.get_if<Device>())
      cat_to(out, "torch.device('", print(*dev), "')");
    else if (auto* l = a.get_if<Layout>())
      cat_to(out, "torch.", kLayouts[l->value & 3]);
    else if (auto* m = a.get_if<MemoryFormat>())
      cat_to(out, "torch.", kFormats[m->value & 3]);
    else if (auto* items = a.items())
      sequence(out, *items, "[", "]");
    else if (auto* sl = a.get_if<std::shared_ptr<const Slice>>())
      sequence(out, {(*sl)->start, (*sl)->stop, (*sl)->step}, "slice(", ")");
    else
      out += "...";
  }

  static std::string list(const std::vector<Expr>& xs) {
    return join(xs, ", ", [](std::string& s, Expr e) { append(s, e); });
  }

  void as_strided_in_place(std::string& out, const std::string& tensor, const TensorType& t) const {
    cat_to(out, margin_, tensor, ".as_strided_([", list(t.sizes), "], [", list(t.strides), "], ",
           t.offset, ")\n");
  }

  static void strided(std::string& out, const std::string& base, DType dtype, const TensorType& t) {
    const std::string typed =
        dtype == t.dtype ? base : cat(base, ".flatten().view(torch.", torch_name(t.dtype), ")");
    cat_to(out, "torch.as_strided(", typed, ", [", list(t.sizes), "], [", list(t.strides), "], ",
           t.offset, ")");
  }

  void output(std::string& out, size_t i) {
    const OutputSpec& o = graph_.outputs[i];
    out += o.neg ? "torch._neg_view(" : "";
    out += o.conj ? "torch.conj(" : "";
    unmarked_output(out, o);
    out += o.conj ? ")" : "";
    out += o.neg ? ")" : "";
  }

  void unmarked_output(std::string& out, const OutputSpec& o) {
    switch (o.kind) {
      case OutputSpec::Kind::Value:
        out += name_of(o.value);
        break;
      case OutputSpec::Kind::Input:
        out += name_of(graph_.inputs()[o.index]);
        break;
      case OutputSpec::Kind::ViewOfInput:
        strided(out, name_of(graph_.inputs()[o.index]),
                graph_.tensor_type(graph_.inputs()[o.index]).dtype, o.type);
        break;
      case OutputSpec::Kind::ViewOfOutput:
        strided(out, name_of(graph_.outputs[o.index].value),
                graph_.tensor_type(graph_.outputs[o.index].value).dtype, o.type);
        break;
      case OutputSpec::Kind::None:
        out += "None";
        break;
    }
  }

  const Graph& graph_;
  std::vector<std::string> names_;
  const std::string margin_;
  std::unordered_map<std::string, int> used_;
  std::unordered_set<std::string> taken_;
};

void input_line(std::string& out, const Type& type) {
  if (type.kind == Type::Kind::Int) {
    cat_to(out, "    ", sym::hint(type.expr), ",\n");
    return;
  }
  auto list = [](const std::vector<Expr>& xs) {
    return join(xs, ", ", [](std::string& s, Expr e) { append(s, sym::hint(e)); });
  };
  const TensorType& t = type.tensor;
  cat_to(out, "    make([", list(t.sizes), "], [", list(t.strides), "], ", sym::hint(t.offset),
         ", torch.", torch_name(t.dtype), "),\n");
}

}  // namespace

std::string python_module(const Graph& g) {
  OXY_CHECK(g.stage != Stage::Torch, "python_module prints ATen graphs");
  return PythonPrinter(g).module();
}

std::string python_program(const Graph& g) {
  std::string out = R"(import torch


class _Overload:
    """torch.ops.X.Y.Z with all arguments by position, in the schema's order."""

    def __init__(self, op):
        self.op, self.arguments = op, op._schema.arguments

    def __call__(self, *args):
        named = {a.name: v for a, v in zip(self.arguments, args) if a.kwarg_only}
        return self.op(*[v for a, v in zip(self.arguments, args) if not a.kwarg_only], **named)


def run_loop(trips, condition, body, carried, others):
    """At most so many trips, while the condition holds: what the body gives is carried on."""
    for trip in range(trips):
        if not condition:
            break
        condition, *carried = body(trip, *carried, *others)
    return carried


def make(sizes, strides, offset, dtype):
    """A tensor of this metadata with small random numbers."""
    reach = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if 0 not in sizes else 0
    integer = not (dtype.is_floating_point or dtype.is_complex)
    memory = torch.randint(0, 2, (reach,)) if integer else torch.randn(reach)
    return torch.as_strided(memory.to(dtype), sizes, strides, offset)


)";
  std::string module = python_module(g);
  // Every call goes through _Overload.
  for (size_t at = 0; (at = module.find("torch.ops.", at)) != std::string::npos;) {
    size_t open = module.find('(', at);
    std::string target = module.substr(at, open - at);
    if (target.starts_with("torch.ops.higher_order.")) {
      at = open;
      continue;
    }
    std::string call = cat("_Overload(", target, ")");
    module.replace(at, target.size(), call);
    at += call.size();
  }
  out += module;
  out += "\n\ntorch.manual_seed(0)\ninputs = [\n";
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (!n.dead && (n.kind == NodeKind::Input || n.kind == NodeKind::Attribute))
      input_line(out, g.value(n.outputs[0]).type);
  }
  out += R"(]
with torch.no_grad():
    results = GraphModule()(*inputs)
for i, result in enumerate(results):
    if isinstance(result, torch.Tensor):
        norm = result.float().norm().item() if result.numel() else 0
        print(i, result.dtype, tuple(result.shape), norm)
    else:
        print(i, result)
)";
  return out;
}

}  // namespace oxy::ir
