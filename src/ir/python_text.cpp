// Names follow torch.fx: the op's name, with a number from the second use on.
#include "ir/python_text.h"

#include <cmath>
#include <unordered_set>

#include "ir/specialize.h"
#include "support/check.h"
#include "support/lexer.h"

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

  // As torch's AOTAutograd shows a joint graph.
  std::string joint_module() {
    std::string out =
        "class joint_helper(torch.nn.Module):\n    def forward(self, primals, tangents):\n";
    std::string types, all;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ValueId v = graph_.inputs()[i];
      const bool tangent = graph_.is_tangent(i);
      names_[v.index] = fresh(
          cat(tangent ? "tangents_" : "primals_", tangent ? i - graph_.primals() + 1 : i + 1));
      cat_to(types, margin_, names_[v.index], ": \"", print(graph_.value(v).type), "\"\n");
      cat_to(all, names_[v.index], ", ");
    }
    cat_to(out, types, margin_, all,
           "= fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)\n");
    body(out);
    writes(out);
    const std::string results = join(
        graph_.outputs, ", ", [&](std::string& o, const auto& spec) { append(o, output(spec)); });
    return cat(out, margin_, "return pytree.tree_unflatten([", results, "], self._out_spec)\n");
  }

  // A function of this name; `plain`: it returns its one result itself.
  std::string function(const std::string& name, bool plain) {
    std::string out = cat(margin_.substr(4), "def ", name, "(");
    parameters(out, "");
    body(out);
    const std::string results = join(graph_.outputs, ", ", [&](std::string& o, const auto& spec) {
      cat_to(o, output(spec), spec.kind == OutputSpec::Kind::Input ? ".clone()" : "");
    });
    const char* end = graph_.outputs.empty() ? ")" : ",)";
    return cat(out, margin_, "return ", plain ? "" : "(", results, plain ? "" : end, "\n");
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

  void writes(std::string& out) {
    for (const Mutation& m : graph_.mutations) {
      if (m.metadata) as_strided_in_place(out, name_of(graph_.inputs()[m.input]), m.type);
      if (m.value == graph_.inputs()[m.input]) continue;
      cat_to(out, margin_, "torch.ops.aten.copy_.default(", name_of(graph_.inputs()[m.input]), ", ",
             name_of(m.value), ")\n");
    }
  }

  void results(std::string& out) {
    writes(out);
    const std::string all = join(
        graph_.outputs, ", ", [&](std::string& o, const auto& spec) { append(o, output(spec)); });
    cat_to(out, margin_, "return (", all, graph_.outputs.size() == 1 ? "," : "", ")\n");
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
    cat_to(out, margin_, "[", names(n.outputs), "] = ");
    const std::span<const Arg> args(n.args);
    if (n.target == "checkpoint") return cat_to(out, functions[0], "(", sequence(args), ")\n");
    cat_to(out, n.target == "loop" ? "run_loop("
                : op.by_blocks()   ? "run_blocks("
                                   : cat("torch.ops.higher_order.", n.target, "("));
    for (const Arg& a : args.first(op.arguments)) cat_to(out, argument(a), ", ");
    for (const std::string& f : functions) cat_to(out, f, ", ");
    auto tuple = [&](std::span<const Arg> items) {
      return cat("(", sequence(items), items.size() == 1 ? ",)" : ")");
    };
    const auto operands = args.subspan(op.arguments);
    const size_t carried = op.carries ? first_optional_operand(n) : operands.size();
    cat_to(out, tuple(operands.first(carried)));
    if (op.carries) cat_to(out, ", ", tuple(operands.subspan(carried)));
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

  // Schema order, by position: torch.ops calls take keyword-only arguments by name only, so those
  // are found through the overload's schema at run time by `_call`.
  void call(std::string& out, const Node& n) {
    const bool lists = std::ranges::any_of(n.returns, [](int32_t r) { return r >= 0; });
    out += margin_;
    if (n.outputs.size() == 1 && !lists)
      cat_to(out, name_of(n.outputs[0]), ": \"", print(graph_.value(n.outputs[0]).type), "\" = ");
    else if (!n.outputs.empty())
      cat_to(out, targets(n), " = ");
    cat_to(out, "torch.ops.", n.target, "(", sequence(n.args), ")\n");
  }

  // The left side of a call with several results: one name each, lists in brackets.
  std::string targets(const Node& n) {
    if (n.returns.empty()) return names(n.outputs);
    std::span<const ValueId> rest(n.outputs);
    return join(n.returns, ", ", [&](std::string& out, int32_t r) {
      const auto some = rest.first(r < 0 ? 1 : static_cast<size_t>(r));
      rest = rest.subspan(some.size());
      cat_to(out, r < 0 ? "" : "[", names(some), r < 0 ? "" : "]");
    });
  }

  std::string names(std::span<const ValueId> values) {
    return join(values, ", ", [&](std::string& out, ValueId v) { append(out, name_of(v)); });
  }

  std::string sequence(std::span<const Arg> items) {
    return join(items, ", ", [&](std::string& out, const Arg& a) { append(out, argument(a)); });
  }

  static std::string number(double d) {
    if (std::isfinite(d)) return print_float(d);
    return std::isnan(d) ? "float('nan')" : d < 0 ? "float('-inf')" : "float('inf')";
  }

  std::string argument(const Arg& a) {
    static constexpr const char* kLayouts[] = {"strided", "sparse_coo", "sparse_csr", "_mkldnn"};
    static constexpr const char* kFormats[] = {"contiguous_format", "preserve_format",
                                               "channels_last", "channels_last_3d"};
    if (a.is_none() || a.get_if<Object>() || a.get_if<Dict>()) return "None";
    if (a.is_value()) return name_of(a.value());
    if (auto* b = a.get_if<bool>()) return cat(*b);
    if (auto* e = a.get_if<Expr>()) return print(*e);
    if (auto* d = a.get_if<double>()) return number(*d);
    if (auto* c = a.get_if<std::complex<double>>())
      return cat("complex(", c->real(), ", ", c->imag(), ")");
    if (auto* s = a.get_if<Str>()) return cat("'", s->value, "'");
    if (auto* t = a.get_if<DType>()) return cat("torch.", torch_name(*t));
    if (auto* dev = a.get_if<Device>()) return cat("torch.device('", print(*dev), "')");
    if (auto* l = a.get_if<Layout>()) return cat("torch.", kLayouts[l->value & 3]);
    if (auto* m = a.get_if<MemoryFormat>()) return cat("torch.", kFormats[m->value & 3]);
    if (auto* items = a.items()) return cat("[", sequence(*items), "]");
    if (auto* s = a.get_if<std::shared_ptr<const Slice>>())
      return cat("slice(", argument((*s)->start), ", ", argument((*s)->stop), ", ",
                 argument((*s)->step), ")");
    return "...";
  }

  static std::string list(const std::vector<Expr>& xs) {
    return join(xs, ", ", [](std::string& s, Expr e) { append(s, e); });
  }

  void as_strided_in_place(std::string& out, const std::string& tensor, const TensorType& t) const {
    cat_to(out, margin_, tensor, ".as_strided_([", list(t.sizes), "], [", list(t.strides), "], ",
           t.offset, ")\n");
  }

  // A view in the memory of `base`.
  std::string strided(ValueId base, const TensorType& t) {
    const bool same = graph_.tensor_type(base).dtype == t.dtype;
    return cat("torch.as_strided(", name_of(base),
               same ? "" : cat(".flatten().view(torch.", torch_name(t.dtype), ")"), ", [",
               list(t.sizes), "], [", list(t.strides), "], ", t.offset, ")");
  }

  std::string output(const OutputSpec& o) {
    return cat(o.neg ? "torch._neg_view(" : "", o.conj ? "torch.conj(" : "", unmarked_output(o),
               o.conj ? ")" : "", o.neg ? ")" : "");
  }

  std::string unmarked_output(const OutputSpec& o) {
    using enum OutputSpec::Kind;
    if (o.kind == Value) return name_of(o.value);
    if (o.kind == Input) return name_of(graph_.inputs()[o.index]);
    if (o.kind == ViewOfInput) return strided(graph_.inputs()[o.index], o.type);
    return o.kind == None ? "None" : strided(graph_.outputs[o.index].value, o.type);
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
  return g.stage == Stage::Joint ? PythonPrinter(g).joint_module() : PythonPrinter(g).module();
}

std::string python_program(const Graph& symbolic) {
  // A symbol of data may have no hint; no input has it.
  const Graph g = specialize(symbolic, [](Expr s) { return sym::symbol_hint(s).value_or(1); });
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
