// Python's view of recording: TorchGraph (Torch IR), AtenGraph (a recording), and the way between
// them.
#include "python/bindings.h"

#include <ATen/ops/pow.h>

#include "ir/graph.h"
#include "ir/specialize.h"
#include "ir/text.h"
#include "python/artefact.h"
#include "python/replay.h"
#include "support/check.h"
#include "torch_bridge/backward_pieces.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

// A node as plain Python data, for making a torch.fx graph of it.
// Values are strings: the names that the caller gives to `reference`.
py::object argument(const ir::Arg& a, const std::vector<py::object>& objects,
                    const py::object& reference) {
  return arg_to_python(
      a, objects, [&](ir::ValueId v) { return reference(v.index); },
      [&](ir::Expr e) { return reference(sym::print(e)); });
}

// The callable or the attribute behind a node of Torch IR.
py::object held_by(const TorchIr& ir, const TorchHost& host, const ir::Node& n) {
  if (n.kind == ir::NodeKind::Attribute) return ir.module ? ir.attribute(n) : py::none();
  const bool bound = n.id.index < host.bound.size() && host.bound[n.id.index];
  return bound ? host.bound[n.id.index] : py::none();
}

py::list describe_outputs(const ir::Graph& g);

py::list describe(const ir::Graph& g, const TorchIr* torch_ir, const TorchHost* host,
                  const py::object& reference);

// One tuple a region: its nodes as described, and its result: of the Torch stage as an argument,
// else as outputs().
py::list describe_regions(const ir::Node& n, const TorchIr* torch_ir, const TorchHost* host,
                          const py::object& reference) {
  py::list out;
  for (size_t i = 0; i < n.regions.size(); ++i) {
    const TorchHost* inner = host ? &host->regions.at(n.id.index).at(i) : nullptr;
    const py::object result = inner ? argument(n.regions[i].result, inner->objects, reference)
                                    : describe_outputs(n.regions[i]);
    out.append(py::make_tuple(describe(n.regions[i], torch_ir, inner, reference), result));
  }
  return out;
}

// (sizes, dtype, strides, requires_grad) of a tensor, else None; sizes that vary as their texts.
py::object describe_type(const ir::Type& type) {
  if (!type.is_tensor()) return py::none();
  const auto numbers = [](const auto& exprs) {
    py::list out;
    for (ir::Expr e : exprs)
      out.append(e.is_const() ? py::object(py::int_(e.value())) : py::str(sym::print(e)));
    return out;
  };
  const ir::TensorType& t = type.tensor;
  return py::make_tuple(numbers(t.sizes), py::str(torch_name(t.dtype)), numbers(t.strides),
                        t.requires_grad);
}

// A node as Python reads it. `held`: what is called, an attribute, or the regions; `outputs`: the
// numbers of the values; `stack`: file, line, function and code of each frame; `type`: of the only
// output.
struct DescribedNode {
  const char* kind;
  std::string target;
  py::object held;
  py::list args = py::list();
  py::dict kwargs = py::dict();
  std::vector<uint32_t> outputs;
  std::vector<int32_t> returns;
  std::string name;
  std::vector<std::tuple<std::string, int64_t, std::string, std::string>> stack;
  py::object type;
};

// `reference(i)` gives the object that stands for value i inside arguments, `reference(text)` that
// for a symbolic number.
py::list describe(const ir::Graph& g, const TorchIr* torch_ir, const TorchHost* host,
                  const py::object& reference) {
  static constexpr const char* kKinds[] = {"input",  "attribute", "function",
                                           "method", "op",        "region"};
  static const std::vector<py::object> kNoObjects;
  const auto& objects = host ? host->objects : kNoObjects;
  py::list out;
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g.node(id);
    if (n.dead) continue;
    DescribedNode d{.kind = kKinds[static_cast<int>(n.kind)],
                    .target = n.target,
                    .held = torch_ir ? held_by(*torch_ir, *host, n) : py::none(),
                    .returns = n.returns,
                    .name = n.name,
                    .type = py::none()};
    for (const ir::Arg& a : n.args) d.args.append(argument(a, objects, reference));
    for (const auto& [key, a] : n.kwargs) d.kwargs[py::str(key)] = argument(a, objects, reference);
    for (ir::ValueId v : n.outputs) d.outputs.push_back(v.index);
    if (g.has_stack(n.stack))
      for (const ir::Frame& f : g.stack(n.stack))
        d.stack.emplace_back(f.file, f.line, f.function, f.code);
    if (n.kind == ir::NodeKind::Region) d.held = describe_regions(n, torch_ir, host, reference);
    if (n.outputs.size() == 1) d.type = describe_type(g.value(n.outputs[0]).type);
    out.append(std::move(d));
  }
  return out;
}

py::list sizes_list(const std::vector<ir::Expr>& exprs) {
  py::list out;
  for (ir::Expr e : exprs) out.append(e.value());
  return out;
}

// (kind, value number or -1, index, sizes, strides, offset) a position.
py::list describe_outputs(const ir::Graph& g) {
  static constexpr const char* kKinds[] = {"value", "input", "view_of_input", "view_of_output",
                                           "none"};
  py::list out;
  for (const ir::OutputSpec& o : g.outputs) {
    const bool value = o.kind == ir::OutputSpec::Kind::Value;
    out.append(py::make_tuple(
        kKinds[static_cast<int>(o.kind)], value ? static_cast<int64_t>(o.value.index) : -1, o.index,
        sizes_list(o.type.sizes), sizes_list(o.type.strides), o.type.offset.value()));
  }
  return out;
}

py::list describe_mutations(const ir::Graph& g) {
  py::list out;
  for (const ir::Mutation& m : g.mutations) out.append(py::make_tuple(m.input, m.value.index));
  return out;
}

// (dtype, sizes, strides, offset) of a tensor value, None for another.
py::object describe_type(const ir::Graph& g, uint32_t value) {
  const ir::Type& t = g.value(ir::ValueId(value)).type;
  if (!t.is_tensor()) return py::none();
  return py::make_tuple(std::string(ir::torch_name(t.tensor.dtype)), sizes_list(t.tensor.sizes),
                        sizes_list(t.tensor.strides), t.tensor.offset.value());
}

void bind_torch_graph(py::module_& m) {
  py::class_<DescribedNode>(m, "DescribedNode", "A node of a graph.")
      .def_readonly("kind", &DescribedNode::kind)
      .def_readonly("target", &DescribedNode::target)
      .def_readonly("held", &DescribedNode::held)
      .def_readonly("args", &DescribedNode::args)
      .def_readonly("kwargs", &DescribedNode::kwargs)
      .def_readonly("outputs", &DescribedNode::outputs)
      .def_readonly("returns", &DescribedNode::returns)
      .def_readonly("name", &DescribedNode::name)
      .def_readonly("stack", &DescribedNode::stack)
      .def_readonly("type", &DescribedNode::type);
  m.def("add_user_lines", &add_user_lines, py::arg("exception"), py::arg("frames"),
        "Puts frames (file, line, function), the outermost first, in front of an exception's "
        "traceback.");
  py::class_<TorchIr, std::shared_ptr<TorchIr>>(m, "TorchGraph",
                                                "Torch IR: the calls that the user's code makes.")
      .def_static(
          "from_fx", &torch_ir_from_fx, py::arg("graph_module"),
          py::arg("numbers") = std::vector<size_t>(),
          "Torch IR of a torch.fx.GraphModule. `numbers`: its inputs that are tensors which "
          "hold a number of Python's.")
      .def_static(
          "parse",
          [](const std::string& text, const py::object& module) {
            auto ir = std::make_shared<TorchIr>();
            ir->graph = ir::parse(text);
            if (ir->graph.stage != ir::Stage::Torch) throw UserError("this text is not Torch IR");
            if (!module.is_none()) ir->module = module;
            ir->seal();
            return ir;
          },
          py::arg("text"), py::arg("module") = py::none(),
          "Torch IR from its text; `module` gives the attributes that it reads.")
      .def(
          "text",
          [](const TorchIr& ir, bool stacks) { return ir::print(ir.graph, {.stacks = stacks}); },
          py::arg("stacks") = true)
      .def(
          "replay", [](const TorchIr& ir, py::handle args) { return replay(ir, args); },
          py::arg("args"), "Calls every function of the graph, in order, on these arguments.")
      .def(
          "forget_recording", [](TorchIr& ir) { ir.captured = nullptr; },
          "Drops what the capture recorded underneath, and the inputs that it holds.")
      .def(
          "captured_recording",
          [](TorchIr& ir, const py::object& args) { return take_captured(ir, args); },
          py::arg("example_inputs"),
          "Takes what the capture recorded underneath; None where there is nothing for these "
          "inputs.")
      .def("describe", [](const TorchIr& ir, const py::object& reference) {
        return py::make_tuple(describe(ir.graph, &ir, &ir, reference),
                              argument(ir.graph.result, ir.objects, reference));
      });
}

std::vector<std::string> facts_of(const Recording& r) {
  return r.facts ? r.facts->text() : std::vector<std::string>();
}

std::vector<std::string> fact_positions(const Recording& r) {
  std::vector<std::string> out;
  if (!r.facts) return out;
  for (const auto& f : r.facts->facts()) out.push_back(f.where);
  return out;
}

std::vector<std::string> fact_ops(const Recording& r) {
  std::vector<std::string> out;
  if (!r.facts) return out;
  for (const auto& f : r.facts->facts()) out.push_back(f.op);
  return out;
}

using SymbolMap = std::map<std::string, int64_t>;

std::optional<SymbolMap> match(const Recording& r, const std::vector<py::object>& inputs) {
  std::vector<ir::InputSizes> sizes(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (THPVariable_Check(inputs[i].ptr())) {
      const at::Tensor& t = THPVariable_Unpack(inputs[i].ptr());
      sizes[i] = {t.sizes(), t.strides(), t.storage_offset(), 0};
    } else if (PyLong_Check(inputs[i].ptr())) {
      sizes[i].number = inputs[i].cast<int64_t>();
    }
  }
  auto found = ir::match_inputs(r.graph, sizes);
  if (!found) return std::nullopt;
  auto value_of = [&](sym::Expr symbol) {
    // A symbol that is in no input's type was replaced there by what a fact says it equals.
    const sym::Expr e = found->find(symbol) || !r.facts ? symbol : r.facts->simplify(symbol);
    return sym::evaluate(e, [&](sym::Expr s) {
      auto v = found->find(s);
      if (!v) throw UserError(cat("no input gives the symbol ", s.name()));
      return *v;
    });
  };
  if (r.facts && !r.facts->holds(value_of)) return std::nullopt;
  SymbolMap out;
  for (ir::ValueId v : r.graph.inputs()) {
    std::vector<sym::Expr> symbols;
    const ir::Type& type = r.graph.value(v).type;
    for (sym::Expr e : type.tensor.sizes) sym::collect_symbols(e, symbols);
    sym::collect_symbols(type.expr, symbols);
    for (sym::Expr s : symbols) out[s.name()] = value_of(s);
  }
  return out;
}

std::shared_ptr<Recording> specialize(const Recording& r, const SymbolMap& values) {
  auto value_of = [&](sym::Expr symbol) {
    auto it = values.find(symbol.name());
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  auto out = std::make_shared<Recording>(r);
  out->graph = ir::specialize(r.graph, value_of);
  out->facts = nullptr;
  return out;
}

void bind_aten_graph(py::module_& m) {
  py::class_<Recording, std::shared_ptr<Recording>>(m, "AtenGraph",
                                                    "What a call does, as ATen ops.")
      .def(
          "text",
          [](const Recording& r, bool stacks) { return ir::print(r.graph, {.stacks = stacks}); },
          py::arg("stacks") = true)
      .def("attributes", [](const Recording& r) { return r.attributes; })
      .def("verify", [](const Recording& r) { ir::verify(r.graph); })
      .def("describe",
           [](const Recording& r, const py::object& reference) {
             return describe(r.graph, nullptr, nullptr, reference);
           })
      .def("outputs", [](const Recording& r) { return describe_outputs(r.graph); })
      .def("mutations", [](const Recording& r) { return describe_mutations(r.graph); })
      .def("type_of",
           [](const Recording& r, uint32_t value) { return describe_type(r.graph, value); })
      .def_readonly("visible_outputs", &Recording::visible_outputs)
      .def("facts", &facts_of, "What the recording relies on: conditions over its symbolic sizes.")
      .def("fact_positions", &fact_positions,
           "For each fact the place in the user's code that asked.")
      .def("fact_ops", &fact_ops, "For each fact the op that asked; \"\" where none is known.")
      .def("match", &match, py::arg("inputs"),
           "The values of the symbols for inputs like these, or None where the recording is not "
           "for them.")
      .def("specialize", &specialize, py::arg("values"),
           "The recording for these values of its symbols.")
      .def(
          "build_result",
          [](const Recording& r, const std::vector<py::object>& outputs) {
            return r.result.build(outputs);
          },
          py::arg("outputs"), "What the call returns, with these outputs at the leaves.");
}

// Operations that torch's Python classes of symbolic numbers call on their nodes, and that nodes
// written in C++ lack. All but trunc go through the number at the hints.
void add_missing_operations() {
  const py::object node = py::module_::import("torch._C").attr("_SymNode");
  auto add = [&](const std::string& name, auto function) {
    if (!py::hasattr(node, name.c_str()))
      py::setattr(node, name.c_str(), py::cpp_function(function, py::is_method(node)));
  };
  add("trunc", [](const py::object& self) {
    const py::object sign = self.attr("ge")(self.attr("wrap_float")(0.0));
    return self.attr(sign.attr("bool_")().cast<bool>() ? "floor" : "ceil")();
  });
  auto number = [](const py::object& self) { return self.attr("guard_float")("", 0); };
  add("is_integer", [number](const py::object& self) {
    return self.attr("wrap_bool")(number(self).attr("is_integer")());
  });
  add("round", [number](const py::object& self, const py::object& digits) {
    const py::object rounded = number(self).attr("__round__")(digits);
    return self.attr(PyLong_Check(rounded.ptr()) ? "wrap_int" : "wrap_float")(rounded);
  });
  for (const std::string name :
       {"sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2"}) {
    add("sym_" + name, [number, name](const py::object& self) {
      const py::object function = py::module_::import("math").attr(name.c_str());
      return self.attr("wrap_float")(function(number(self)));
    });
  }
}

}  // namespace

void bind_recording(py::module_& m) {
  add_missing_operations();
  const auto& unsupported =
      py::register_exception<Unsupported>(m, "Unsupported", PyExc_RuntimeError);
  py::register_exception<sym::Undecided>(m, "Undecided", unsupported);
  py::register_exception<UserError>(m, "UserError", PyExc_ValueError);
  m.def(
      "power",
      [](const at::Tensor& base, const at::Tensor& exponent) {
        return at::pow(base, exponent.item());
      },
      py::arg("base"), py::arg("exponent"),
      "base ** the number that `exponent` holds, with eager's short cuts for some numbers.");
  m.def(
      "backward_piece",
      [](const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& stops,
         const std::vector<at::Tensor>& by, size_t piece, bool frees,
         const std::vector<std::optional<at::Tensor>>& given) {
        auto edges = [](const std::vector<at::Tensor>& tensors) {
          torch::autograd::edge_list out;
          for (const at::Tensor& t : tensors)
            out.push_back(torch::autograd::impl::gradient_edge(t));
          return out;
        };
        bridge::BackwardPieces::Tensors arrived;
        for (const auto& t : given) arrived.push_back(t.value_or(at::Tensor()));
        bridge::BackwardPieces pieces(edges(roots), edges(stops), edges(by));
        const auto out = pieces.run(piece, std::move(arrived), frees);
        py::tuple found(out.size());
        for (size_t i = 0; i < out.size(); i++)
          found[i] = out[i].defined() ? py::cast(out[i]) : py::object(py::none());
        return found;
      },
      py::arg("roots"), py::arg("stops"), py::arg("by"), py::arg("piece"), py::arg("frees"),
      py::arg("given"), "A piece of a backward between hooks: see torch_bridge/backward_pieces.h.");
  m.def(
      "plain_float", [](const at::Tensor& number) { return bridge::stand_in_of(number.item()); },
      py::arg("number"), "The float that a tensor holds; while a graph is recorded one like it.");
  m.def("autocast_nesting", &autocast_nesting);
  bind_torch_graph(m);
  bind_aten_graph(m);
  m.def(
      "record",
      [](TorchIr& ir, const py::object& args, bool shape_rules,
         const std::map<size_t, std::vector<int64_t>>& dynamic) {
        RecordOptions options{.shape_rules = shape_rules, .dynamic = {}};
        for (const auto& [input, dims] : dynamic)
          for (auto& into = options.dynamic[input].dims; const int64_t d : dims)
            into.push_back({d});
        return record(ir, args, options);
      },
      py::arg("graph"), py::arg("example_inputs"), py::arg("shape_rules") = true,
      py::arg("dynamic") = py::dict(),
      "Records one call as ATen ops. Raises Unsupported where that cannot be done. `dynamic` maps "
      "an input's position to its dimensions of symbolic size (a number's to an empty list).");
}

}  // namespace oxy::python
