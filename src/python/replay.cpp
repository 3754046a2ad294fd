// Calls the functions of a Torch IR graph in order and keeps what later ones read.
#include "python/replay.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "support/check.h"

namespace oxy::python {
namespace {

// Methods that hand out the memory itself: never called on fakes.
constexpr std::array<std::string_view, 16> kMemoryMethods = {
    "tolist",        "numpy",           "__array__",      "data_ptr",
    "storage",       "untyped_storage", "__dlpack__",     "_typed_storage",
    "share_memory_", "is_shared",       "pin_memory",     "set_",
    "__setstate__",  "__reduce_ex__",   "const_data_ptr", "_storage"};

std::vector<py::object> as_vector(py::handle args) {
  std::vector<py::object> out;
  for (py::handle a : py::reinterpret_borrow<py::sequence>(args)) out.push_back(borrow(a));
  return out;
}

// One walk over the graph. With a recorder the arguments are its fakes and every result is looked
// at.
class Replayer {
 public:
  Replayer(const TorchIr& ir, bridge::Recorder* recorder, ir::Graph* types)
      : Replayer(ir, ir.graph, ir, recorder, types) {}

  ir::NodeId* reached = nullptr;

  py::object run(const std::vector<py::object>& args) {
    const auto& inputs = graph_.inputs();
    if (args.size() != inputs.size()) {
      throw UserError(cat("the graph takes ", inputs.size(), " inputs, not ", args.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) values_[inputs[i].index] = args[i];
    const auto& order = graph_.order();
    for (uint32_t i = 0; i < order.size(); ++i) step(graph_.node(order[i]), i);
    return convert(graph_.result);
  }

 private:
  Replayer(const TorchIr& ir, const ir::Graph& graph, const TorchHost& host,
           bridge::Recorder* recorder, ir::Graph* types)
      : ir_(ir),
        graph_(graph),
        host_(host),
        recorder_(recorder),
        types_(types),
        values_(graph.value_count()) {}

  void step(const ir::Node& n, uint32_t position) {
    switch (n.kind) {
      case ir::NodeKind::Input:
        return;
      case ir::NodeKind::Attribute:
        set(n, attribute(n));
        return;
      case ir::NodeKind::CallFunction:
      case ir::NodeKind::CallMethod:
      case ir::NodeKind::Region:
        break;
      case ir::NodeKind::CallOp:
        OXY_FAIL("an ATen node in Torch IR");
    }
    if (recorder_) {
      if (n.kind == ir::NodeKind::CallMethod &&
          std::ranges::find(kMemoryMethods, n.target) != kMemoryMethods.end()) {
        throw Unsupported(cat("Tensor.", n.target, ": it hands out memory"));
      }
      recorder_->set_position(frames_of(n), n.id);
      if (n.kind == ir::NodeKind::CallFunction) expect_op(*recorder_, n.target);
      recorder_->expect_write(
          n.target, std::ranges::any_of(n.kwargs, [](auto& k) { return k.first == "out"; }));
    }
    if (reached) *reached = n.id;
    py::object result = n.kind == ir::NodeKind::Region ? py::object(run_regions(n))
                        : recorder_                    ? recorded_call(n)
                                                       : call(n);
    if (recorder_) {
      lay_out_as_eager(n.target, result);
      examine(result);
    }
    set(n, std::move(result));
    // What nobody reads any more goes at once, as in eager.
    auto release = [&](ir::ValueId v) {
      if (host_.last_use[v.index] == position) values_[v.index] = py::object();
    };
    ir::for_each_value(n, release);
    for (ir::ValueId v : n.outputs) release(v);
  }

  void set(const ir::Node& n, py::object o) {
    ir::ValueId v = n.outputs.at(0);
    if (types_ && THPVariable_Check(o.ptr())) {
      types_->value(v).type = ir::Type::of(bridge::type_of(THPVariable_Unpack(o.ptr())));
    }
    values_[v.index] = std::move(o);
  }

  std::vector<ir::Frame> frames_of(const ir::Node& n) const {
    return graph_.has_stack(n.stack) ? graph_.stack(n.stack) : std::vector<ir::Frame>();
  }

  py::object attribute(const ir::Node& n) {
    py::object o = ir_.attribute(n);
    if (!recorder_ || !THPVariable_Check(o.ptr())) return o;
    return wrap(recorder_->add_attribute(THPVariable_Unpack(o.ptr()), n.target));
  }

  static py::object wrap(const at::Tensor& t) { return owned(THPVariable_Wrap(t)); }

  py::object convert(const ir::Arg& a) {
    if (a.is_value()) return values_[a.value().index];
    if (auto* o = a.get_if<ir::Object>(); o && recorder_) return object(*o);
    return arg_to_python(a, host_.objects, [this](ir::ValueId v) { return values_[v.index]; });
  }

  // A tensor kept by the graph itself.
  py::object object(ir::Object o) {
    if (o.index >= host_.objects.size())
      throw UserError("the graph names an object that only its maker has");
    const py::object& held = host_.objects[o.index];
    if (!THPVariable_Check(held.ptr())) return held;
    return wrap(recorder_->add_attribute(THPVariable_Unpack(held.ptr()), cat("obj", o.index)));
  }

  py::object call(const ir::Node& n) {
    size_t first = 0;
    py::object callable;
    if (n.kind == ir::NodeKind::CallMethod) {
      if (n.args.empty()) throw UserError(cat("the method ", n.target, " is called on nothing"));
      callable = owned(PyObject_GetAttrString(convert(n.args[0]).ptr(), n.target.c_str()));
      if (!callable) throw py::error_already_set();
      first = 1;
    } else {
      callable = host_.bound[n.id.index];
    }
    py::tuple args(n.args.size() - first);
    for (size_t i = first; i < n.args.size(); ++i) {
      PyTuple_SET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i - first),
                       convert(n.args[i]).release().ptr());
    }
    py::object kwargs;
    if (!n.kwargs.empty()) {
      py::dict d;
      for (const auto& [key, a] : n.kwargs) d[py::str(key)] = convert(a);
      kwargs = std::move(d);
    }
    PyObject* result = PyObject_Call(callable.ptr(), args.ptr(), kwargs.ptr());
    if (!result) throw py::error_already_set();
    return owned(result);
  }

  // The recorder knows what torch's cache of casts would have.
  py::object recorded_call(const ir::Node& n) {
    const bool inside = autocast_nesting() > 0;
    const bool clear = n.target == "torch.clear_autocast_cache";
    py::object result = clear ? py::none() : call(n);
    if (clear || (inside && autocast_nesting() == 0)) recorder_->clear_casts();
    recorder_->end_autocasts();
    return result;
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
    std::vector<py::object> front(args.begin(),
                                  args.begin() + static_cast<ptrdiff_t>(op.arguments));
    args.erase(args.begin(), args.begin() + static_cast<ptrdiff_t>(op.arguments));
    const std::vector<py::object> given = args;
    std::vector<py::object> out;
    if (!op.carries) {
      out = results_of(n, op.name == "cond" && !holds(front[0]) ? 1 : 0, args);
    } else if (op.name == "while_loop") {
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
    if (op.carries)
      out.assign(args.begin(),
                 args.begin() + static_cast<ptrdiff_t>(ir::first_optional_operand(n)));
    return apart(out, given);
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

  // Each region is a recording of its own, on fakes like its operands.
  py::tuple record_regions(const ir::Node& n, const std::vector<py::object>& args) {
    const ir::RegionOp& op = ir::region_op(n);
    if (op.parameters > 0) throw Unsupported(cat("a recording of ", n.target));
    std::vector<at::Tensor> tensors;
    for (const py::object& o : args) {
      if (!THPVariable_Check(o.ptr())) throw Unsupported(cat(n.target, " of what is no tensor"));
      tensors.push_back(THPVariable_Unpack(o.ptr()));
    }
    std::vector<bridge::RecordedRegion> recorded;
    for (size_t i = 0; i < n.regions.size(); ++i)
      recorded.push_back(record_region(n, i, std::span(tensors).subspan(op.arguments)));
    const std::vector<at::Tensor> made =
        recorder_->add_regions(n.target, tensors, std::move(recorded));
    py::tuple out(made.size());
    for (size_t i = 0; i < made.size(); ++i) out[i] = wrap(made[i]);
    return out;
  }

  bridge::RecordedRegion record_region(const ir::Node& n, size_t region,
                                       std::span<const at::Tensor> operands) const {
    bridge::Recorder inner(options_of_region(*recorder_));
    const ir::Graph& graph = n.regions[region];
    std::vector<py::object> fakes;
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::string& name = graph.def(graph.inputs().at(i)).target;
      fakes.push_back(wrap(inner.add_input(bridge::like(operands[i]), name)));
    }
    inner.enter();
    try {
      const TorchHost& host = host_.regions.at(n.id.index).at(region);
      std::vector<at::Tensor> results;
      for (const py::object& o : as_vector(Replayer(ir_, graph, host, &inner, nullptr).run(fakes)))
        results.push_back(THPVariable_Unpack(o.ptr()));
      bridge::RecordedRegion out{inner.finish(results), {}};
      out.attributes = inner.attributes();
      return out;
    } catch (...) {
      inner.leave();
      if (inner.failure()) throw Unsupported(*inner.failure());
      throw;
    }
  }

  // Every tensor that comes back must be the recording's own.
  void examine(py::handle o) const {
    PyObject* p = o.ptr();
    if (THPVariable_Check(p)) {
      const at::Tensor& t = THPVariable_Unpack(p);
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
  static PyObject* type = nullptr;  // made once, kept for the life of the process
  if (!type) {
    py::dict members;
    members["__torch_dispatch__"] =
        py::cpp_function([](const py::args&, const py::kwargs&) -> py::object {
          throw Unsupported("a mode pushed again while oxyfuel records");
        });
    members["__module__"] = "oxyfuel";
    auto metaclass = py::type::of(base);
    type = metaclass("RecordingMode", py::make_tuple(base), members).release().ptr();
  }
  return borrow(type)();
}

// `dynamic`: the symbolic dimensions, or null where all is constant.
py::object fake_input(bridge::Recorder& recorder, py::handle real, const std::string& name,
                      const std::vector<int64_t>* dynamic) {
  PyObject* p = real.ptr();
  if (THPVariable_Check(p)) {
    std::span<const int64_t> dims;
    if (dynamic) dims = *dynamic;
    at::Tensor fake = recorder.add_input(THPVariable_Unpack(p), name, dims);
    return owned(THPVariable_Wrap(fake));
  }
  if (dynamic && PyLong_Check(p) && !PyBool_Check(p)) {
    return py::cast(recorder.add_symbolic_number(real.cast<int64_t>(), name));
  }
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

}  // namespace

py::object replay(const TorchIr& ir, py::handle args, ir::NodeId* reached) {
  Replayer replayer(ir, nullptr, nullptr);
  replayer.reached = reached;
  return replayer.run(as_vector(args));
}

std::optional<Recording> take_captured(TorchIr& ir, py::handle args) {
  const auto captured = std::exchange(ir.captured, nullptr);
  if (!captured || !(captured->state == GlobalState())) return std::nullopt;
  const std::vector<py::object> given = as_vector(args);
  auto same = [](const py::object& a, const py::object& b) { return a.is(b); };
  if (!std::ranges::equal(given, captured->inputs, same)) return std::nullopt;
  return std::move(captured->recording);
}

bridge::Recorder::Options recorder_options(bool shape_rules, bool symbolic) {
  // One for the life of the process: what Python code sees of any recording.
  static PyObject* mode = mode_object().release().ptr();
  return {.shape_rules = shape_rules,
          .mode_object = mode,
          .symbolic = symbolic,
          .symbolic_number = symbolic_number};
}

bridge::Recorder::Options options_of_region(const bridge::Recorder& around) {
  bridge::Recorder::Options options = recorder_options();
  options.kept_casts = around.casts_in_regions();
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
  for (size_t i = 0; i < real.size(); ++i) {
    const std::string& name = ir.graph.def(ir.graph.inputs()[i]).target;
    auto dynamic = options.dynamic.find(i);
    const bool fixed = dynamic == options.dynamic.end();
    if (i < ir.runtime_numbers.size() && ir.runtime_numbers[i]) {
      const at::Tensor fake = recorder.add_runtime_number(THPVariable_Unpack(real[i].ptr()), name);
      fakes.push_back(owned(THPVariable_Wrap(fake)));
      continue;
    }
    fakes.push_back(fake_input(recorder, real[i], name, fixed ? nullptr : &dynamic->second));
  }
  // Arithmetic of symbolic numbers in Python.
  if (symbolic) py::module_::import("torch.fx.experimental.sym_node");
  ir::Graph* types = !symbolic || adopt_symbols(ir, recorder.pool()) ? &ir.graph : nullptr;
  const bool grad = c10::GradMode::is_enabled();
  Recording out;
  recorder.enter();
  try {
    py::object result = Replayer(ir, &recorder, types).run(fakes);
    if (c10::GradMode::is_enabled() != grad)
      throw Unsupported("a graph that leaves another grad mode");
    std::vector<at::Tensor> tensors;
    out.result = take_apart(result, tensors);
    out.visible_outputs = static_cast<uint32_t>(tensors.size());
    out.graph = recorder.finish(tensors);
  } catch (py::error_already_set&) {
    recorder.leave();
    if (recorder.failure()) throw Unsupported(*recorder.failure());
    throw;
  }
  out.graph.name = ir.graph.name;
  out.attributes = recorder.attributes();
  out.facts = recorder.facts();
  return out;
}

namespace {

// What was written has the strides of what was computed until it is taken from its memory again.
void settle(const at::Tensor& t) {
  try {
    at::functionalization::impl::sync(t);
  } catch (const std::exception&) {  // refused: the recorder says so where the tensor is read
  }
}

}  // namespace

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
  if (THPVariable_Check(result.ptr())) settle(THPVariable_Unpack(result.ptr()));
  // Tensors in memory have a kernel of their own for it; a dispatcher hears one for images, whose
  // result can be channels-last.
  const std::string_view word = function.substr(function.rfind('.') + 1);
  if ((word != "max_pool1d" && word != "_max_pool1d") || !THPVariable_Check(result.ptr())) return;
  const at::Tensor& t = THPVariable_Unpack(result.ptr());
  if (t.requires_grad() || t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  // contiguous() takes any stride of a dimension of size 1.
  if (t.strides().equals(c10::contiguous_strides(t.sizes()))) return;
  result = owned(THPVariable_Wrap(t.clone(at::MemoryFormat::Contiguous)));
}

}  // namespace oxy::python
