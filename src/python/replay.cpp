// Calls the functions of a Torch IR graph in order and keeps what later ones read.
#include "python/replay.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/util/strides.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "python/inner_frames.h"
#include "python/sized_calls.h"
#include "python/transform_levels.h"
#include "support/check.h"

namespace oxy::python {
namespace {

// Methods that hand out the memory itself: never called on fakes.
constexpr std::array<std::string_view, 16> kMemoryMethods = {
    "tolist",        "numpy",           "__array__",      "data_ptr",
    "storage",       "untyped_storage", "__dlpack__",     "_typed_storage",
    "share_memory_", "is_shared",       "pin_memory",     "set_",
    "__setstate__",  "__reduce_ex__",   "const_data_ptr", "_storage"};

// Arithmetic in which a tensor that holds a number stands for the number.
constexpr std::array<std::string_view, 8> kArithmetic = {
    "operator.add", "operator.sub", "operator.mul", "operator.truediv",
    "torch.add",    "torch.sub",    "torch.mul",    "torch.div"};

std::vector<py::object> as_vector(py::handle args) {
  std::vector<py::object> out;
  for (py::handle a : py::reinterpret_borrow<py::sequence>(args)) out.push_back(borrow(a));
  return out;
}

// One walk over the graph. With a recorder the arguments are its fakes and every result is looked
// at.
class Replayer {
 public:
  Replayer(const TorchIr& ir, const ir::Graph& graph, const TorchHost& host,
           bridge::Recorder* recorder, ir::Graph* types)
      : ir_(ir),
        graph_(graph),
        host_(host),
        recorder_(recorder),
        types_(types),
        values_(graph.value_count()) {}

  ir::NodeId* reached = nullptr;
  std::vector<bool> numbers;  // by value: a tensor that holds a number; may be shorter

  py::object run(const std::vector<py::object>& args) {
    const auto& inputs = graph_.inputs();
    if (args.size() != inputs.size())
      throw UserError(cat("the graph takes ", inputs.size(), " inputs, not ", args.size()));
    for (size_t i = 0; i < inputs.size(); ++i) values_[inputs[i].index] = args[i];
    const auto& order = graph_.order();
    for (uint32_t i = 0; i < order.size(); ++i) step(graph_.node(order[i]), i);
    return convert(graph_.result);
  }

 private:
  void step(const ir::Node& n, uint32_t position) {
    if (n.kind == ir::NodeKind::Input) return;
    if (n.kind == ir::NodeKind::Attribute) return set(n, as_recorded(ir_.attribute(n), n.target));
    if (n.kind == ir::NodeKind::CallOp) OXY_FAIL("an ATen node in Torch IR");
    if (recorder_) {
      if (n.kind == ir::NodeKind::CallMethod && std::ranges::count(kMemoryMethods, n.target) > 0)
        throw Unsupported(cat("Tensor.", n.target, ": it hands out memory"));
      const bool has_stack = graph_.has_stack(n.stack);
      recorder_->set_position(has_stack ? graph_.stack(n.stack) : std::vector<ir::Frame>(), n.id);
      if (n.kind == ir::NodeKind::CallFunction) expect_op(*recorder_, n.target);
      recorder_->expect_write(
          n.target, std::ranges::any_of(n.kwargs, [](auto& k) { return k.first == "out"; }));
    }
    if (reached) *reached = n.id;
    if (reads_number(n)) {  // it stays in its tensor
      numbers.resize(graph_.value_count());
      numbers[n.outputs[0].index] = true;
      return set(n, values_[n.args[0].value().index]);
    }
    py::object result = n.kind == ir::NodeKind::Region ? py::object(run_regions(n))
                        : recorder_                    ? recorded_call(n)
                                                       : call(n);
    if (recorder_) {
      const bool is_data =
          n.target == "torch._C._autograd._get_data_attr" && THPVariable_Check(result.ptr());
      if (is_data) result = result.attr("detach")();  // another tensor than what has the memory
      lay_out_as_eager(n.target, result);
      examine(result);
      if (is_data) recorder_->set_unseen(THPVariable_Unpack(result.ptr()));
    }
    set(n, std::move(result));
    // What nobody reads any more goes at once, as in eager.
    auto release = [&](ir::ValueId v) {
      if (host_.last_use[v.index] == position) values_[v.index] = py::object();
    };
    ir::for_each_value(n, release);
    for (ir::ValueId v : n.outputs) release(v);
  }

  bool is_number(ir::ValueId v) const { return v.index < numbers.size() && numbers[v.index]; }

  // Whether it takes such a number out of its tensor. Unsupported where it does anything else with
  // one than arithmetic with a tensor that decides the dtype.
  bool reads_number(const ir::Node& n) const {
    bool found = false;
    ir::for_each_value(n, [&](ir::ValueId v) { found |= is_number(v); });
    if (!found) return false;
    if (n.kind == ir::NodeKind::CallMethod && n.target == "item") return true;
    if (n.kind == ir::NodeKind::CallFunction &&
        host_.bound[n.id.index].is(
            member_of<"torch._functorch.autograd_function", "autograd_function_apply">()))
      return false;  // its code gets the number (oxyfuel/autograd_function.py)
    auto decides = [&](const ir::Arg& a) {
      if (!a.is_value() || is_number(a.value())) return false;
      PyObject* p = values_[a.value().index].ptr();
      if (!THPVariable_Check(p)) return false;
      const at::Tensor& t = THPVariable_Unpack(p);
      return t.dim() > 0 && (t.scalar_type() == c10::kFloat || t.scalar_type() == c10::kDouble);
    };
    if (n.args.size() != 2 || !n.kwargs.empty() || std::ranges::count(kArithmetic, n.target) == 0 ||
        !std::ranges::any_of(n.args, decides))
      throw Unsupported(cat(n.target, " of a number that varies"));
    return false;
  }

  void set(const ir::Node& n, py::object o) {
    ir::ValueId v = n.outputs.at(0);
    if (types_ && THPVariable_Check(o.ptr()))
      types_->value(v).type = ir::Type::of(bridge::type_of(THPVariable_Unpack(o.ptr())));
    values_[v.index] = std::move(o);
  }

  // A tensor that the graph itself reads, as the recording has it.
  py::object as_recorded(py::object o, const std::string& name) {
    if (!recorder_ || !THPVariable_Check(o.ptr())) return o;
    return wrap(recorder_->add_attribute(THPVariable_Unpack(o.ptr()), name));
  }

  static py::object wrap(const at::Tensor& t) { return owned(THPVariable_Wrap(t)); }

  py::object convert(const ir::Arg& a) {
    if (a.is_value()) return values_[a.value().index];
    auto value = [this](ir::ValueId v) { return values_[v.index]; };
    py::object made = arg_to_python(a, host_.objects, value);
    const auto* kept = a.get_if<ir::Object>();
    return kept && recorder_ ? as_recorded(std::move(made), cat("obj", kept->index)) : made;
  }

  py::object call(const ir::Node& n) {
    const size_t self = n.kind == ir::NodeKind::CallMethod ? 1 : 0;
    if (self > n.args.size())
      throw UserError(cat("the method ", n.target, " is called on nothing"));
    const py::object callable =
        self ? steal(PyObject_GetAttrString(convert(n.args[0]).ptr(), n.target.c_str()))
             : host_.bound[n.id.index];
    py::tuple args(n.args.size() - self);
    for (size_t i = self; i < n.args.size(); ++i) args[i - self] = convert(n.args[i]);
    py::object kwargs;
    if (!n.kwargs.empty()) kwargs = py::dict();
    for (const auto& [key, a] : n.kwargs) kwargs[py::str(key)] = convert(a);
    return steal(call_with_sizes(self ? "" : n.target, callable, args, kwargs));
  }

  // The recorder knows what torch's cache of casts would have.
  py::object recorded_call(const ir::Node& n) {
    const bool inside = autocast_nesting() > 0;
    const bool clear = n.target == "torch.clear_autocast_cache";
    if (n.kind == ir::NodeKind::CallFunction) admit_state(host_.bound[n.id.index]);
    py::object result = clear ? py::none() : call(n);
    if (clear || (inside && autocast_nesting() == 0)) recorder_->clear_casts();
    recorder_->end_autocasts();
    return result;
  }

  // The parameters and buffers of a module that is called: whoever has the graph guards them.
  void admit_state(const py::object& called) {
    const py::object module = py::type::of(called).is(member_of<"oxyfuel.lifted", "_Applied">())
                                  ? called.attr("_module")
                                  : called;
    if (!py::isinstance(module, member_of<"torch.nn", "Module">())) return;
    for (const char* list : {"parameters", "buffers"})
      for (py::handle t : module.attr(list)()) recorder_->admit(THPVariable_Unpack(t.ptr()));
  }

  // ---- regions

  py::tuple run_regions(const ir::Node& n) {
    std::vector<py::object> args;
    for (const ir::Arg& a : n.args) args.push_back(convert(a));
    return recorder_ ? record_regions(n, args) : run_on_tensors(n, std::move(args));
  }

  std::vector<py::object> results_of(const ir::Node& n, size_t region,
                                     const std::vector<py::object>& args) const {
    const TorchHost& host = host_.regions.at(n.id.index).at(region);
    const py::object made = Replayer(ir_, n.regions[region], host, nullptr, nullptr).run(args);
    return as_vector(made);
  }

  // See ir/graph.h. What it gives are new tensors.
  py::tuple run_on_tensors(const ir::Node& n, std::vector<py::object> args) const {
    const ir::RegionOp& op = ir::region_op(n);
    auto holds = [](const py::object& o) {
      const int truth = PyObject_IsTrue(o.ptr());
      if (truth < 0 || PyErr_CheckSignals() != 0) throw py::error_already_set();
      return truth == 1;
    };
    const auto first = args.begin() + static_cast<ptrdiff_t>(op.arguments);
    std::vector<py::object> front(args.begin(), first);
    args.erase(args.begin(), first);
    if (op.by_blocks()) return run_blocks(n, front, args);
    if (!op.carries)
      return apart(results_of(n, op.name == "cond" && !holds(front[0]) ? 1 : 0, args), args);
    const std::vector<py::object> given = args;
    if (op.name == "while_loop") {
      while (holds(results_of(n, 0, args).at(0)))
        std::ranges::copy(results_of(n, 1, args), args.begin());
    } else {
      const auto trips = front[0].cast<int64_t>();
      for (int64_t trip = 0; trip < trips && holds(front[1]); ++trip) {
        args.insert(args.begin(), py::int_(trip));
        std::vector<py::object> next = results_of(n, 0, args);
        args.erase(args.begin());
        front[1] = next.at(0);
        std::copy(next.begin() + 1, next.end(), args.begin());
      }
    }
    args.resize(ir::first_optional_operand(n));
    return apart(args, given);
  }

  py::tuple run_blocks(const ir::Node& n, const std::vector<py::object>& front,
                       const std::vector<py::object>& operands) const {
    const auto region = [&](size_t i) {
      return py::cpp_function([this, &n, i](const py::args& given) {
        return tuple_of(results_of(n, i, as_vector(given)));
      });
    };
    return own_function("oxyfuel.attention", "run_blocks")(tuple_of(front), region(0), region(1),
                                                           tuple_of(operands));
  }

  // Copies of those that share memory with what was given, or with one before.
  static py::tuple apart(const std::vector<py::object>& results, std::vector<py::object> taken) {
    py::tuple out(results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      py::object o = results[i];
      auto shares = [&](const py::object& t) {
        return THPVariable_Check(t.ptr()) &&
               THPVariable_Unpack(t.ptr()).is_alias_of(THPVariable_Unpack(o.ptr()));
      };
      if (THPVariable_Check(o.ptr()) && std::ranges::any_of(taken, shares))
        o = wrap(THPVariable_Unpack(o.ptr()).clone());
      taken.push_back(o);
      out[i] = o;
    }
    return out;
  }

  // Each region is a recording of its own, on fakes like its operands. Numbers are no operands: the
  // regions have the symbols of the graph around them.
  py::tuple record_regions(const ir::Node& n, const std::vector<py::object>& args) {
    const ir::RegionOp& op = ir::region_op(n);
    if (op.parameters > 0) throw Unsupported(cat("a recording of ", n.target));
    const size_t optional = op.arguments + ir::first_optional_operand(n);
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < args.size(); ++i) {
      PyObject* p = args[i].ptr();
      if (THPVariable_Check(p))
        tensors.push_back(THPVariable_Unpack(p));
      else if (i < optional || !is_int(p))
        throw Unsupported(cat(n.target, " of what is no tensor"));
    }
    std::vector<bridge::RecordedRegion> recorded;
    for (size_t i = 0; i < n.regions.size(); ++i)
      recorded.push_back(record_region(n, i, std::span(args).subspan(op.arguments)));
    const std::vector<at::Tensor> made =
        recorder_->add_regions(n.target, tensors, std::move(recorded));
    py::tuple out(made.size());
    for (size_t i = 0; i < made.size(); ++i) out[i] = wrap(made[i]);
    return out;
  }

  static bool is_int(PyObject* p) {
    return (PyLong_Check(p) && !PyBool_Check(p)) || torch::is_symint(p);
  }

  bridge::RecordedRegion record_region(const ir::Node& n, size_t region,
                                       std::span<const py::object> operands) const {
    bridge::Recorder inner(options_of_region(*recorder_));
    const ir::Graph& graph = n.regions[region];
    std::vector<py::object> fakes;
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::string& name = graph.def(graph.inputs().at(i)).target;
      PyObject* p = operands[i].ptr();
      fakes.push_back(THPVariable_Check(p) ? wrap(inner.add_operand(THPVariable_Unpack(p), name))
                                           : operands[i]);
    }
    try {
      const bridge::Recorder::Entered entered(inner);
      const TorchHost& host = host_.regions.at(n.id.index).at(region);
      std::vector<at::Tensor> results;
      for (const py::object& o : as_vector(Replayer(ir_, graph, host, &inner, nullptr).run(fakes)))
        results.push_back(THPVariable_Unpack(o.ptr()));
      bridge::RecordedRegion out;
      const bool gradients = n.target == "cond" && c10::GradMode::is_enabled();
      out.graph = inner.finish(results, {}, gradients ? &out.gradients : nullptr);
      out.attributes = inner.attributes();
      return out;
    } catch (...) {
      if (inner.failure()) std::rethrow_exception(inner.failure());
      throw;
    }
  }

  // Every tensor that comes back must be the recording's own.
  void examine(py::handle o) const {
    PyObject* p = o.ptr();
    if (THPVariable_Check(p)) {
      const at::Tensor t = innermost(THPVariable_Unpack(p));
      if (!recorder_->owns(t))
        throw Unsupported("a call returned a tensor that the recording did not make");
      recorder_->seal(t);
    } else if (PyTuple_Check(p) || PyList_Check(p)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); ++i)
        examine(PySequence_Fast_GET_ITEM(p, i));
    } else if (PyDict_Check(p)) {
      for (auto [key, value] : py::reinterpret_borrow<py::dict>(o)) examine(value);
    }
  }

  const TorchIr& ir_;  // whose attributes are read
  const ir::Graph& graph_;
  const TorchHost& host_;
  bridge::Recorder* recorder_;
  ir::Graph* types_;
  std::vector<py::object> values_;
};

// What Python code sees of our mode: an instance of a subclass of TorchDispatchMode. torch never
// calls its handler, as our interpreter tag does; code that pops the mode and pushes it again does,
// and hears that it cannot.
py::object mode_object() {
  auto base = py::module_::import("torch.utils._python_dispatch").attr("TorchDispatchMode");
  py::dict members;
  members["__torch_dispatch__"] =
      py::cpp_function([](const py::args&, const py::kwargs&) -> py::object {
        throw Unsupported("a mode pushed again while oxyfuel records");
      });
  members["__module__"] = "oxyfuel";
  return py::type::of(base)("RecordingMode", py::make_tuple(base), members)();
}

// `dynamic`: what is symbolic of it, or null where all is constant.
py::object fake_input(bridge::Recorder& recorder, py::handle real, const std::string& name,
                      const DynamicInput* dynamic) {
  PyObject* p = real.ptr();
  if (THPVariable_Check(p)) {
    const auto dims = dynamic ? std::span(dynamic->dims) : std::span<const bridge::DynamicDim>();
    return owned(THPVariable_Wrap(recorder.add_input(THPVariable_Unpack(p), name, dims)));
  }
  if (dynamic && PyLong_Check(p) && !PyBool_Check(p))
    return py::cast(
        recorder.add_symbolic_number(real.cast<int64_t>(), name, dynamic->number_group));
  if (PyBool_Check(p) || p == Py_None || PyFloat_Check(p)) {
    recorder.add_number(0, name);
    return borrow(real);
  }
  if (PyLong_Check(p) || torch::is_symint(real)) {
    py::int_ number(borrow(real));
    recorder.add_number(number.cast<int64_t>(), name);
    return number;
  }
  throw Unsupported(cat("an input of type ", Py_TYPE(p)->tp_name));
}

// torch puts a symbolic number that meets a tensor into a tensor of a made-up value, with the
// number as an attribute.
std::optional<c10::Scalar> symbolic_number(const at::Tensor& t) {
  py::gil_scoped_acquire gil;
  auto held = owned(THPVariable_Wrap(t));
  if (!py::hasattr(held, "_wrapped_number")) return std::nullopt;
  py::object number = held.attr("_wrapped_number");
  if (torch::is_symint(number)) return c10::Scalar(number.cast<c10::SymInt>());
  if (torch::is_symfloat(number)) return c10::Scalar(number.cast<c10::SymFloat>());
  throw Unsupported("a symbolic truth value that meets a tensor");
}

// The Torch IR takes over the recording's symbols for the types of its values, unless its own text
// has some.
bool adopt_symbols(TorchIr& ir, const std::shared_ptr<sym::ExprPool>& pool) {
  if (ir.graph.pool != ir.recorded_pool && ir.graph.pool->symbol_count() > 0) return false;
  for (uint32_t i = 0; i < ir.graph.value_count(); ++i) {
    ir::Type& type = ir.graph.value(ir::ValueId(i)).type;
    if (type.is_tensor()) type = ir::Type::opaque();
  }
  ir.graph.pool = ir.recorded_pool = pool;
  return true;
}

// Symbolic numbers among the constants of a result: an int goes to `numbers`, others are what they
// are in this call.
void take_numbers(ResultTree& tree, std::vector<sym::Expr>& numbers) {
  for (ResultTree& item : tree.items) take_numbers(item, numbers);
  if (tree.kind != ResultTree::Kind::Constant) return;
  if (torch::is_symint(tree.constant)) {
    tree.kind = ResultTree::Kind::Number;
    tree.output = static_cast<uint32_t>(numbers.size());
    numbers.push_back(bridge::expr_of(tree.constant.cast<c10::SymInt>()));
  } else if (torch::is_symfloat(tree.constant)) {
    tree.constant = py::float_(tree.constant);
  } else if (torch::is_symbool(tree.constant)) {
    tree.constant = py::bool_(tree.constant);
  }
}

}  // namespace

py::object ResultTree::build(const std::vector<py::object>& outputs,
                             std::span<const int64_t> numbers) const {
  if (kind == Kind::Output) return outputs[output];
  if (kind == Kind::Number) return py::int_(numbers[output]);
  if (kind == Kind::Constant) return constant;
  py::list made(items.size());
  for (size_t i = 0; i < items.size(); ++i) made[i] = items[i].build(outputs, numbers);
  if (kind == Kind::List) return std::move(made);
  if (kind == Kind::Tuple) return py::tuple(made);
  if (kind == Kind::NamedTuple) return constant(py::tuple(made));
  py::dict out;
  for (size_t i = 0; i < items.size(); ++i) out[keys[i]] = made[i];
  return std::move(out);
}

ResultTree take_apart(py::handle result, std::vector<at::Tensor>& tensors) {
  ResultTree tree;
  PyObject* p = result.ptr();
  if (THPVariable_Check(p)) {
    const at::Tensor& t = THPVariable_Unpack(p);
    tree.kind = ResultTree::Kind::Output;
    for (tree.output = 0; tree.output < tensors.size(); ++tree.output)
      if (tensors[tree.output].is_same(t)) return tree;
    tensors.push_back(t);
  } else if (PyTuple_CheckExact(p) || PyList_Check(p)) {
    tree.kind = PyTuple_Check(p) ? ResultTree::Kind::Tuple : ResultTree::Kind::List;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); ++i)
      tree.items.push_back(take_apart(PySequence_Fast_GET_ITEM(p, i), tensors));
  } else if (PyDict_Check(p)) {
    tree.kind = ResultTree::Kind::Dict;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(result)) {
      tree.keys.push_back(borrow(key));
      tree.items.push_back(take_apart(value, tensors));
    }
  } else if (PyTuple_Check(p)) {
    // A collections.namedtuple, or one written in C (torch.return_types, torch.Size).
    const py::object type = py::type::of(result);
    tree.kind = ResultTree::Kind::NamedTuple;
    tree.constant = py::hasattr(type, "_make") ? py::object(type.attr("_make")) : type;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p); ++i)
      tree.items.push_back(take_apart(PyTuple_GET_ITEM(p, i), tensors));
  } else {
    tree.constant = borrow(result);
  }
  return tree;
}

py::object replay(const TorchIr& ir, py::handle args, ir::NodeId* reached) {
  Replayer replayer(ir, ir.graph, ir, nullptr, nullptr);
  replayer.reached = reached;
  return replayer.run(as_vector(args));
}

std::optional<Recording> take_captured(TorchIr& ir, py::handle args, bool again) {
  const auto captured = std::exchange(ir.captured, nullptr);
  if (!captured || !(captured->state == GlobalState())) return std::nullopt;
  auto same = [](const py::object& a, const py::object& b) { return a.is(b); };
  if (captured->inputs && !std::ranges::equal(as_vector(args), *captured->inputs, same))
    return std::nullopt;
  if (!again || !captured->recording.facts) return std::move(captured->recording);
  captured->inputs.reset();
  ir.captured = captured;
  return captured->recording;
}

bridge::Recorder::Options recorder_options(bool shape_rules, bool symbolic,
                                           bridge::OfData of_data) {
  // One for the life of the process: what Python code sees of any recording.
  static PyObject* mode = mode_object().release().ptr();
  return {.shape_rules = shape_rules,
          .mode_object = mode,
          .symbolic = symbolic,
          .of_data = of_data,
          .symbolic_number = symbolic_number};
}

bridge::Recorder::Options options_of_region(const bridge::Recorder& around) {
  bridge::Recorder::Options options = recorder_options(true, around.facts() != nullptr);
  options.kept_casts = around.casts_in_regions();
  options.around = &around;
  return options;
}

Recording record(TorchIr& ir, py::handle args, const RecordOptions& options) {
  const bool symbolic = !options.dynamic.empty();
  bridge::Recorder recorder(recorder_options(options.shape_rules, symbolic));
  const std::vector<py::object> real = as_vector(args);
  if (real.size() != ir.graph.inputs().size()) {
    throw UserError(
        cat("the graph takes ", ir.graph.inputs().size(), " inputs, not ", real.size()));
  }
  std::vector<py::object> fakes;
  std::vector<bool> numbers(ir.graph.value_count());
  for (size_t i = 0; i < real.size(); ++i) {
    const std::string& name = ir.graph.def(ir.graph.inputs()[i]).target;
    if (i < ir.runtime_numbers.size() && ir.runtime_numbers[i]) {
      const at::Tensor& number = THPVariable_Unpack(real[i].ptr());
      numbers[ir.graph.inputs()[i].index] = static_cast<bool>(ir.module);  // Dynamo's take them out
      fakes.push_back(owned(THPVariable_Wrap(recorder.add_runtime_number(number, name))));
    } else {
      const auto dynamic = options.dynamic.find(i);
      const bool fixed = dynamic == options.dynamic.end();
      fakes.push_back(fake_input(recorder, real[i], name, fixed ? nullptr : &dynamic->second));
    }
  }
  // Arithmetic of symbolic numbers in Python.
  if (symbolic) py::module_::import("torch.fx.experimental.sym_node");
  ir::Graph* types = !symbolic || adopt_symbols(ir, recorder.pool()) ? &ir.graph : nullptr;
  const bool grad = c10::GradMode::is_enabled();
  Recording out;
  try {
    const bridge::Recorder::Entered entered(recorder);
    Replayer replayer(ir, ir.graph, ir, &recorder, types);
    replayer.numbers = std::move(numbers);
    py::object result = replayer.run(fakes);
    if (c10::GradMode::is_enabled() != grad)
      throw Unsupported("a graph that leaves another grad mode");
    std::vector<at::Tensor> tensors;
    out.result = take_apart(result, tensors);
    if (symbolic) take_numbers(out.result, out.numbers);
    out.visible_outputs = static_cast<uint32_t>(tensors.size());
    out.graph = recorder.finish(tensors, {}, &out.gradients);
  } catch (py::error_already_set&) {
    if (recorder.failure()) std::rethrow_exception(recorder.failure());
    throw;
  }
  out.graph.name = ir.graph.name;
  out.attributes = recorder.attributes();
  out.facts = recorder.facts();
  out.names_places = recorder.names_places();
  return out;
}

std::string one_line(const py::error_already_set& e) {
  const auto message = py::str(e.value()).cast<std::string>();
  return cat(e.type().attr("__name__").cast<std::string>(), ": ",
             message.substr(0, message.find('\n')));
}

void expect_op(bridge::Recorder& recorder, std::string_view function) {
  constexpr std::string_view kOps = "torch.ops.", kAten = "torch.ops.aten.";
  if (!function.starts_with(kOps) || function.starts_with(kAten)) return;
  function.remove_prefix(kOps.size());
  const size_t dot = function.find('.');
  if (dot == function.npos) return;
  const std::string_view name = function.substr(dot + 1, function.find('.', dot + 1) - dot - 1);
  recorder.expect_op(cat(function.substr(0, dot), "::", name));
}

void lay_out_as_eager(std::string_view function, py::object& result) {
  if (!THPVariable_Check(result.ptr())) return;
  const at::Tensor& t = THPVariable_Unpack(result.ptr());
  // What was written has the strides of what was computed until it is taken from its memory again.
  try {
    at::functionalization::impl::sync(t);
  } catch (const std::exception&) {  // refused: the recorder says so where the tensor is read
  }
  // Tensors in memory have a kernel of their own for it; a dispatcher hears one for images, whose
  // result can be channels-last.
  const std::string_view word = function.substr(function.rfind('.') + 1);
  if (word != "max_pool1d" && word != "_max_pool1d") return;
  if (t.requires_grad() || t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  // contiguous() takes any stride of a dimension of size 1.
  if (t.strides().equals(c10::contiguous_strides(t.sizes()))) return;
  result = owned(THPVariable_Wrap(t.clone(at::MemoryFormat::Contiguous)));
}

}  // namespace oxy::python
