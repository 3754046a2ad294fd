// Arguments from Python and back, the names of functions both ways, the nodes of a torch.fx graph.
#include "python/torch_ir.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/utils/python_symnode.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <array>
#include <memory>
#include <utility>

#include "python/symbolic_int.h"
#include "support/check.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

constexpr int64_t kIntLow = -(int64_t{1} << 62), kIntHigh = (int64_t{1} << 62) - 1;

// What `holder` has by a name with dots in it; null where there is nothing.
py::object at_path(py::object holder, std::string_view path) {
  for (size_t start = 0; holder && start <= path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    const std::string part(path.substr(start, dot - start));
    holder = owned(PyObject_GetAttrString(holder.ptr(), part.c_str()));
    start = dot + 1;
  }
  if (!holder) PyErr_Clear();
  return holder;
}

std::optional<std::string> string_attr(py::handle o, const char* name) {
  const py::object held = at_path(borrow(o), name);
  if (!held || !py::isinstance<py::str>(held)) return std::nullopt;
  return held.cast<std::string>();
}

ir::Arg object_arg(TorchIr& ir, py::handle o) { return ir::Object{ir.add_object(borrow(o))}; }

ir::Arg int_from_python(TorchIr& ir, py::handle o) {
  int overflow = 0;
  int64_t v = PyLong_AsLongLongAndOverflow(o.ptr(), &overflow);
  if (overflow || v < kIntLow || v > kIntHigh) return object_arg(ir, o);
  return v;
}

template <class Sequence>
ir::Arg sequence_from_python(TorchIr& ir, py::handle o,
                             const std::function<std::optional<ir::ValueId>(py::handle)>& value) {
  Sequence out;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o.ptr());
  for (Py_ssize_t i = 0; i < n; ++i)
    out.items.push_back(arg_from_python(ir, PySequence_Fast_GET_ITEM(o.ptr(), i), value));
  return out;
}

struct ToPython {
  const std::vector<py::object>& objects;
  const std::function<py::object(ir::ValueId)>& value;
  const std::function<py::object(ir::Expr)>& size;

  py::object operator()(ir::None) const { return py::none(); }
  py::object operator()(ir::ValueId v) const { return value(v); }
  py::object operator()(bool b) const { return py::bool_(b); }
  py::object operator()(ir::Expr e) const {
    if (e.is_const()) return py::int_(e.value());
    if (!size) throw Unsupported("a symbolic number in a call");
    return size(e);
  }
  py::object operator()(double d) const { return py::float_(d); }
  py::object operator()(const std::complex<double>& c) const {
    return owned(PyComplex_FromDoubles(c.real(), c.imag()));
  }
  py::object operator()(const ir::Str& s) const { return py::str(s.value); }
  py::object operator()(ir::DType d) const {
    return borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(d))));
  }
  py::object operator()(ir::Device d) const {
    return owned(THPDevice_New(c10::Device(static_cast<c10::DeviceType>(d.kind), d.index)));
  }
  py::object operator()(ir::Layout l) const {
    return borrow(
        reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<c10::Layout>(l.value))));
  }
  py::object operator()(ir::MemoryFormat m) const {
    return borrow(torch::utils::getTHPMemoryFormat(static_cast<c10::MemoryFormat>(m.value)));
  }
  template <class Out>
  py::object sequence(const std::vector<ir::Arg>& items) const {
    Out out(items.size());
    for (size_t i = 0; i < items.size(); ++i) out[i] = std::visit(*this, items[i].v);
    return out;
  }
  py::object operator()(const ir::List& l) const { return sequence<py::list>(l.items); }
  py::object operator()(const ir::Tuple& t) const { return sequence<py::tuple>(t.items); }
  py::object operator()(const ir::Dict& d) const {
    py::dict out;
    for (const auto& [key, x] : d.items) out[py::str(key)] = std::visit(*this, x.v);
    return out;
  }
  py::object operator()(const std::shared_ptr<const ir::Slice>& s) const {
    auto at = [&](const ir::Arg& a) { return std::visit(*this, a.v); };
    return owned(PySlice_New(at(s->start).ptr(), at(s->stop).ptr(), at(s->step).ptr()));
  }
  py::object operator()(ir::Ellipsis) const { return py::ellipsis(); }
  py::object operator()(ir::Object o) const {
    if (o.index >= objects.size())
      throw UserError("the graph names an object that only its maker has");
    return objects[o.index];
  }
};

// What a qualified_name() finds; UserError when there is no such thing.
py::object resolve_name(const std::string& name) {
  // The longest prefix that is a module, then attributes.
  for (size_t end = name.rfind('.'); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    PyObject* module = PyImport_ImportModule(name.substr(0, end).c_str());
    if (!module) {
      PyErr_Clear();
      continue;
    }
    py::object found = at_path(owned(module), std::string_view(name).substr(end + 1));
    if (!found) throw UserError(cat("there is no ", name));
    return found;
  }
  throw UserError(cat("there is no ", name));
}

}  // namespace

uint32_t TorchIr::add_object(const py::object& o) {
  for (size_t i = 0; i < objects.size(); ++i)
    if (objects[i].is(o)) return static_cast<uint32_t>(i);
  objects.push_back(o);
  graph.objects.push_back(std::string(Py_TYPE(o.ptr())->tp_name));
  return static_cast<uint32_t>(objects.size() - 1);
}

void TorchHost::seal(const ir::Graph& graph) {
  bound.resize(graph.node_count());
  regions.resize(graph.node_count());
  last_use.assign(graph.value_count(), 0);
  const auto& order = graph.order();
  for (uint32_t i = 0; i < order.size(); ++i) {
    const ir::Node& n = graph.node(order[i]);
    for (ir::ValueId v : n.outputs) last_use[v.index] = i;
    ir::for_each_value(n, [&](ir::ValueId v) { last_use[v.index] = i; });
    regions[n.id.index].resize(n.regions.size());
    for (size_t r = 0; r < n.regions.size(); ++r) regions[n.id.index][r].seal(n.regions[r]);
    py::object& b = bound[n.id.index];
    if (b) continue;
    if (n.kind == ir::NodeKind::CallFunction) b = resolve_name(n.target);
  }
  ir::for_each_value(graph.result, [&](ir::ValueId v) { last_use[v.index] = UINT32_MAX; });
}

py::object TorchIr::attribute(const ir::Node& n) const {
  if (!module)
    throw UserError(
        cat("the graph reads the attribute ", n.target, " of a module that is not there"));
  return py::module_::import("operator").attr("attrgetter")(n.target)(module);
}

std::string qualified_name(py::handle callable) {
  // Ops of the dispatcher: torch.ops.aten.add.Tensor, torch.ops.mylib.foo (any overload).
  const std::string type = Py_TYPE(callable.ptr())->tp_name;
  if (type == "OpOverload" || type == "OpOverloadPacket") {
    std::string name = "torch.ops." + py::str(callable).cast<std::string>();
    PyErr_Clear();
    return name;
  }
  auto name = string_attr(callable, "__qualname__");
  auto simple = string_attr(callable, "__name__");
  static constexpr std::array kHomes = {
      "torch",        "operator", "torch.nn.functional",    "torch._C._nn",
      "math",         "builtins", "torch.special",          "torch.fft",
      "torch.linalg", "torch._C", "torch.amp.autocast_mode"};
  auto found = [&](const std::string& home) -> std::optional<std::string> {
    const py::object module = item_in(PyImport_GetModuleDict(), py::str(home));
    if (!module) return std::nullopt;
    for (const auto& n : {name, simple})
      if (n && at_path(module, *n).is(callable)) return cat(home, ".", *n);
    return std::nullopt;
  };
  auto home = string_attr(callable, "__module__");
  if (home && *home != "_operator") {
    if (auto q = found(*home)) return *q;
  }
  for (const char* h : kHomes)
    if (auto q = found(h)) return *q;
  return {};
}

ir::Arg arg_from_python(TorchIr& ir, py::handle o,
                        const std::function<std::optional<ir::ValueId>(py::handle)>& value) {
  PyObject* p = o.ptr();
  if (p == Py_None) return {};
  if (auto v = value(o)) return *v;
  if (PyBool_Check(p)) return p == Py_True;
  if (PyLong_CheckExact(p)) return int_from_python(ir, o);
  if (PyFloat_CheckExact(p)) return PyFloat_AS_DOUBLE(p);
  if (PyComplex_CheckExact(p))
    return std::complex<double>(PyComplex_RealAsDouble(p), PyComplex_ImagAsDouble(p));
  if (PyUnicode_CheckExact(p)) return ir::Str{o.cast<std::string>()};
  if (PyList_Check(p)) return sequence_from_python<ir::List>(ir, o, value);
  if (PyTuple_Check(p)) return sequence_from_python<ir::Tuple>(ir, o, value);
  if (PyDict_Check(p)) {
    ir::Dict out;
    for (auto [key, x] : py::reinterpret_borrow<py::dict>(o)) {
      if (!py::isinstance<py::str>(key)) return object_arg(ir, o);
      out.items.emplace_back(key.cast<std::string>(), arg_from_python(ir, x, value));
    }
    return out;
  }
  if (PySlice_Check(p)) {
    auto part = [&](const char* name) { return arg_from_python(ir, o.attr(name), value); };
    return std::make_shared<const ir::Slice>(ir::Slice{part("start"), part("stop"), part("step")});
  }
  if (p == Py_Ellipsis) return ir::Ellipsis{};
  if (THPDtype_Check(p)) return static_cast<ir::DType>(reinterpret_cast<THPDtype*>(p)->scalar_type);
  if (THPDevice_Check(p)) {
    auto d = reinterpret_cast<THPDevice*>(p)->device;
    return ir::Device{static_cast<int8_t>(d.type()), static_cast<int8_t>(d.index())};
  }
  if (THPLayout_Check(p))
    return ir::Layout{static_cast<int8_t>(reinterpret_cast<THPLayout*>(p)->layout)};
  if (THPMemoryFormat_Check(p)) {
    return ir::MemoryFormat{
        static_cast<int8_t>(reinterpret_cast<THPMemoryFormat*>(p)->memory_format)};
  }
  if (is_symbolic_int(o)) return expr_of(o);
  if (torch::is_symint(o)) return int_from_python(ir, py::int_(borrow(o)));
  return object_arg(ir, o);
}

py::object arg_to_python(const ir::Arg& a, const std::vector<py::object>& objects,
                         const std::function<py::object(ir::ValueId)>& value,
                         const std::function<py::object(ir::Expr)>& size) {
  return std::visit(ToPython{objects, value, size}, a.v);
}

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
    import_nodes(module_);
    out_->module = module_;
    out_->seal();
    return std::move(out_);
  }

 private:
  void import_nodes(const py::object& module) {
    // A list: nodes' own iterator starts again after the end, which pybind11 trips over.
    for (py::handle node : py::list(module.attr("graph").attr("nodes"))) import_node(node);
  }

  void import_node(py::handle node) {
    const auto op = node.attr("op").cast<std::string>();
    py::object target = node.attr("target");
    const auto name = node.attr("name").cast<std::string>();
    const size_t operands = op == "call_function" ? first_operand(target) : 0;
    if (operands > 0) {
      import_inlined(node, operands);
    } else if (op == "call_function" && is_item_of_inlined(node, target)) {
      define(node, item_of_inlined(node));
    } else if (op == "placeholder" && inlined_) {
      if (inlined_->next == inlined_->args.size())
        throw Unsupported("the arguments of an inlined module");
      define(node, inlined_->args[inlined_->next++]);
    } else if (op == "output" && inlined_) {
      inlined_->result = convert(py::tuple(node.attr("args"))[0]);
    } else if (op == "placeholder") {
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
      py::object submodule = submodule_of(target);
      import_call(node, ir::NodeKind::CallFunction, object_name(submodule), submodule, name);
    } else if (op == "output") {
      out_->graph.result = convert(py::tuple(node.attr("args"))[0]);
    } else {
      throw Unsupported(cat("a torch.fx node of kind ", op));
    }
  }

  void define(py::handle node, ir::ValueId v) { values_[node.ptr()] = v; }

  py::object submodule_of(const py::object& target) {
    std::string path = prefix_ + target.cast<std::string>();
    if (path.ends_with('.')) path.pop_back();
    return module_.attr("get_submodule")(path);
  }

  // A call of what torch.utils.checkpoint or torch.compiler.nested_compile_region was given, as
  // TorchDynamo writes it: the module that it calls, whose nodes become ours, and what they give.
  struct Inlined {
    std::vector<ir::ValueId> args;
    size_t next = 0;
    ir::Arg result;
  };

  static bool is_higher_order(const py::object& target, const char* name) {
    const py::object home = py::getattr(target, "__module__", py::none());
    return home.equal(py::str("torch.ops.higher_order")) &&
           py::object(target.attr("__name__")).equal(py::str(name));
  }

  // Where the operands of such a call begin, behind the module; 0 for other functions.
  static size_t first_operand(const py::object& target) {
    if (is_higher_order(target, "tag_activation_checkpoint")) return 1;
    return is_higher_order(target, "invoke_subgraph") ? 2 : 0;
  }

  // What is kept for the backward, the partition decides.
  void import_inlined(py::handle node, size_t first) {
    const py::tuple args(node.attr("args"));
    auto inner = std::make_unique<Inlined>();
    for (size_t i = first; i < args.size(); ++i) {
      auto it = values_.find(args[i].ptr());
      if (it == values_.end()) throw Unsupported("a module inlined with what is no tensor");
      inner->args.push_back(it->second);
    }
    const py::object target = args[0].attr("target"), module = submodule_of(target);
    inlined_.swap(inner);
    const std::string outer = std::exchange(prefix_, cat(prefix_, target.cast<std::string>(), "."));
    import_nodes(module);
    prefix_ = outer;
    inlined_.swap(inner);
    inlined_results_[node.ptr()] = std::move(inner->result);
  }

  bool is_item_of_inlined(py::handle node, const py::object& target) {
    return !inlined_results_.empty() && target.is(member_of<"operator", "getitem">()) &&
           inlined_results_.contains(py::tuple(node.attr("args"))[0].ptr());
  }

  ir::ValueId item_of_inlined(py::handle node) {
    const py::tuple args(node.attr("args"));
    const std::vector<ir::Arg>* items = inlined_results_.at(args[0].ptr()).items();
    const auto i = args[1].cast<size_t>();
    if (items == nullptr || i >= items->size() || !(*items)[i].is_value())
      throw Unsupported("a module inlined that returns what is no tensor");
    return (*items)[i].value();
  }

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
    for (const char* name : {"cond", "while_loop"})
      if (is_higher_order(target, name)) return name;
    return nullptr;
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
      auto inner = FxImporter(submodule_of(args[i].attr("target"))).run();
      if (inner->graph.result.items() == nullptr)
        inner->graph.result = ir::Tuple{{inner->graph.result}};
      n.regions.push_back(std::move(inner->graph));
      out_->regions_of(n.id).push_back(std::move(*inner));
    }
    n.name = name;
    n.stack = stack_of(node);
    define(node, n.outputs[0]);
  }

  void import_attribute(py::handle node, const std::string& name) {
    const std::string path = prefix_ + name;
    const py::object inside = prefix_.empty() ? module_ : submodule_of(py::str());
    const py::object held = py::getattr(inside, name.c_str(), py::none());
    if (py::hasattr(held, "graph")) {  // of a branch, a loop or a function of autograd
      modules_.emplace(node.ptr(), held);
      return;
    }
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
    for (py::handle a : py::tuple(node.attr("args"))) {
      auto module = modules_.find(a.ptr());
      args.push_back(module == modules_.end() ? convert(borrow(a))
                                              : object_arg(*out_, module->second));
    }
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
  std::unique_ptr<Inlined> inlined_;  // while the nodes of a module are imported
  std::string prefix_;                // its path
  std::unordered_map<PyObject*, ir::Arg> inlined_results_;
  std::unordered_map<PyObject*, py::object>
      modules_;  // graphs that calls are given, by their nodes
};

}  // namespace

std::shared_ptr<TorchIr> torch_ir_from_fx(const py::object& graph_module,
                                          const std::vector<size_t>& numbers) {
  auto ir = FxImporter(graph_module).run();
  ir->runtime_numbers.resize(ir->graph.inputs().size());
  for (const size_t i : numbers) ir->runtime_numbers.at(i) = true;
  return ir;
}

}  // namespace oxy::python
