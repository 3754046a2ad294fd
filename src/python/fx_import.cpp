// Walks the nodes of a torch.fx graph and writes each as one of Torch IR.
#include <torch/csrc/autograd/python_variable.h>

#include "python/torch_ir.h"
#include "support/check.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

std::string_view strip(std::string_view s) {
  auto first = s.find_first_not_of(" \t"), last = s.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : s.substr(first, last - first + 1);
}

// The frames of a stack trace as torch.fx keeps it in node.meta["stack_trace"], innermost last.
std::vector<ir::Frame> parse_stack_trace(std::string_view text) {
  std::vector<ir::Frame> frames;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size());
    std::string_view line = strip(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = ", in ";
    auto line_at = line.find(kLine);
    if (!line.starts_with(kFile) || line_at == std::string_view::npos) {
      if (!frames.empty() && frames.back().code.empty()) frames.back().code = line;
      continue;
    }
    ir::Frame f;
    f.file = line.substr(kFile.size(), line_at - kFile.size());
    std::string_view rest = line.substr(line_at + kLine.size());
    auto in_at = rest.find(kIn);
    const std::string_view number = rest.substr(0, in_at);
    std::from_chars(number.data(), number.data() + number.size(), f.line);
    if (in_at != std::string_view::npos) f.function = rest.substr(in_at + kIn.size());
    frames.push_back(std::move(f));
  }
  return frames;
}

class FxImporter {
 public:
  explicit FxImporter(const py::object& gm) : module_(gm), out_(std::make_shared<TorchIr>()) {}

  std::shared_ptr<TorchIr> run() {
    const py::object graph = module_.attr("graph");
    const py::list nodes(graph.attr(
        "nodes"));  // its own iterator starts again after the end, which pybind11 trips over
    for (py::handle node : nodes) import_node(node);
    out_->module = module_;
    out_->seal();
    return std::move(out_);
  }

 private:
  void import_node(py::handle node) {
    const auto op = node.attr("op").cast<std::string>();
    py::object target = node.attr("target");
    const auto name = node.attr("name").cast<std::string>();
    if (op == "placeholder") {
      define(node, out_->graph.add_input(name, input_type(node)));
      out_->module_state.push_back(is_module_state(node));
    } else if (op == "get_attr") {
      import_attribute(node, target.cast<std::string>());
    } else if (op == "call_function" && region_op(target)) {
      import_regions(node, region_op(target), name);
    } else if (op == "call_function") {
      import_call(node, ir::NodeKind::CallFunction, function_name(target), target, name);
    } else if (op == "call_method") {
      import_call(node, ir::NodeKind::CallMethod, target.cast<std::string>(), py::object(), name);
    } else if (op == "call_module") {
      py::object submodule = module_.attr("get_submodule")(target);
      import_call(node, ir::NodeKind::CallFunction, object_name(submodule), submodule, name);
    } else if (op == "output") {
      out_->graph.result = convert(py::tuple(node.attr("args"))[0]);
    } else {
      throw Unsupported(cat("a torch.fx node of kind ", op));
    }
  }

  void define(py::handle node, ir::ValueId v) { values_[node.ptr()] = v; }

  // Dynamo notes where it found an input.
  static bool is_module_state(py::handle node) {
    const py::object source = py::getattr(node, "_dynamo_source", py::none());
    if (source.is_none()) return false;
    py::object name = source.attr("name");
    if (!py::isinstance<py::str>(name)) name = name();
    const auto text = name.cast<std::string>();
    return text.find("_parameters[") != std::string::npos ||
           text.find("_buffers[") != std::string::npos;
  }

  // Dynamo notes the example that it traced with.
  ir::Type input_type(py::handle node) {
    py::dict meta = node.attr("meta");
    if (!meta.contains("example_value")) return ir::Type::opaque();
    py::object example = meta["example_value"];
    if (!THPVariable_Check(example.ptr())) return ir::Type::opaque();
    const at::Tensor& t = THPVariable_Unpack(example.ptr());
    if (t.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || t.layout() != c10::kStrided)
      return ir::Type::opaque();
    return ir::Type::of(bridge::type_of(t));
  }

  // torch's own ops for branches and loops; null for other functions.
  static const char* region_op(const py::object& target) {
    const py::object home = py::getattr(target, "__module__", py::none());
    if (!home.equal(py::str("torch.ops.higher_order"))) return nullptr;
    const auto name = target.attr("__name__").cast<std::string>();
    return name == "cond" ? "cond" : name == "while_loop" ? "while_loop" : nullptr;
  }

  // cond(pred, then, else, operands); while_loop(while, do, carried, others)
  void import_regions(py::handle node, const char* op, const std::string& name) {
    const py::tuple args(node.attr("args"));
    const bool loop = std::string_view(op) == "while_loop";
    std::vector<ir::Arg> operands;
    if (!loop) operands.push_back(convert(args[0]));
    for (size_t i = loop ? 2 : 3; i < args.size(); ++i)
      for (py::handle o : args[i]) operands.push_back(convert(borrow(o)));
    ir::Node& n =
        out_->graph.add_call(ir::NodeKind::Region, op, std::move(operands), {ir::Type::opaque()});
    for (size_t i = loop ? 0 : 1; i < (loop ? 2U : 3U); ++i) {
      auto inner = FxImporter(module_.attr("get_submodule")(args[i].attr("target"))).run();
      if (inner->graph.result.items() == nullptr)
        inner->graph.result = ir::Tuple{{inner->graph.result}};
      n.regions.push_back(std::move(inner->graph));
      out_->regions_of(n.id).push_back(std::move(*inner));
    }
    n.name = name;
    n.stack = stack_of(node);
    define(node, n.outputs[0]);
  }

  void import_attribute(py::handle node, const std::string& path) {
    const py::object held = py::getattr(module_, path.c_str(), py::none());
    if (py::hasattr(held, "graph")) return;  // of a branch or loop
    auto [it, is_new] = attributes_.try_emplace(path);
    if (is_new) it->second = out_->graph.add_attribute(path, ir::Type::opaque());
    define(node, it->second);
  }

  std::string object_name(const py::object& o) { return cat("@obj", out_->add_object(o)); }

  std::string function_name(const py::object& target) {
    auto [it, is_new] = names_.try_emplace(target.ptr());
    if (is_new) {
      it->second = qualified_name(target);
      if (it->second.empty()) it->second = object_name(target);
    }
    return it->second;
  }

  ir::Arg convert(const py::object& o) {
    return arg_from_python(*out_, o, [this](py::handle h) -> std::optional<ir::ValueId> {
      auto it = values_.find(h.ptr());
      return it == values_.end() ? std::nullopt : std::optional(it->second);
    });
  }

  void import_call(py::handle node, ir::NodeKind kind, std::string target,
                   const py::object& callable, const std::string& name) {
    std::vector<ir::Arg> args;
    for (py::handle a : py::tuple(node.attr("args"))) args.push_back(convert(borrow(a)));
    ir::Node& n =
        out_->graph.add_call(kind, std::move(target), std::move(args), {ir::Type::opaque()});
    for (auto [key, a] : py::dict(node.attr("kwargs")))
      n.kwargs.emplace_back(key.cast<std::string>(), convert(borrow(a)));
    n.name = name;
    n.stack = stack_of(node);
    if (callable) out_->bound_of(n.id) = callable;
    define(node, n.outputs[0]);
  }

  ir::StackId stack_of(py::handle node) {
    py::dict meta = node.attr("meta");
    PyObject* text = PyDict_GetItemString(meta.ptr(), "stack_trace");
    if (!text || !PyUnicode_Check(text)) return {};
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text, &size);
    if (!data) {
      PyErr_Clear();
      return {};
    }
    auto [it, is_new] = stacks_.try_emplace(std::string(data, size));
    if (is_new) {
      auto frames = parse_stack_trace(it->first);
      if (!frames.empty()) it->second = out_->graph.add_stack(std::move(frames));
    }
    return it->second;
  }

  py::object module_;
  std::shared_ptr<TorchIr> out_;
  std::unordered_map<PyObject*, ir::ValueId> values_;  // fx nodes; the module keeps them alive
  std::unordered_map<PyObject*, std::string> names_;
  std::unordered_map<std::string, ir::ValueId> attributes_;
  std::unordered_map<std::string, ir::StackId> stacks_;
};

}  // namespace

std::shared_ptr<TorchIr> torch_ir_from_fx(const py::object& graph_module) {
  return FxImporter(graph_module).run();
}

}  // namespace oxy::python
