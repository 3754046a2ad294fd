// Floats that the graph computes, in the code of torch.optim and of batch norms: what an optimizer
// reads of its state (`step_t.item()`) and of settings that vary (a learning rate), and what a
// batch norm does with its count of batches (`momentum=None`), is a GraphNumber there
// (oxyfuel/graph_number.py), a tensor that behaves as a float. Here: where they come from, and what
// calls of torch make of them.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/capture/capture.h"
#include "python/capture/natives.h"
#include "python/guards/evaluate.h"
#include "python/inner_frames.h"
#include "python/transform_levels.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

PyTypeObject* graph_number_class = nullptr;  // once one was made

py::object number_member(const char* name) { return own_function("oxyfuel.graph_number", name); }

bool is_made_number(py::handle o) {
  return graph_number_class != nullptr && Py_TYPE(o.ptr()) == graph_number_class;
}

bool mentions_made_number(py::handle o) {
  if (is_made_number(o)) return true;
  if (!PyList_CheckExact(o.ptr()) && !PyTuple_CheckExact(o.ptr())) return false;
  PyObject** items = PySequence_Fast_ITEMS(o.ptr());
  return std::any_of(items, items + PySequence_Fast_GET_SIZE(o.ptr()), is_made_number);
}

std::string_view module_of_frame(const TracedFrame& f) {
  return written_in(as_function(f.function));
}

// Arguments in which torch wants a number: by name, or of lerp the last one.
bool is_scalar_argument(std::string_view word, size_t position, std::string_view keyword) {
  if (keyword == "alpha" || keyword == "value") return true;
  return word == "lerp" && (position == 2 || keyword == "weight");
}

}  // namespace

bool Numbers::is_graph_float(py::handle o) const { return is_made_number(o); }

py::object Numbers::graph_float(const py::object& tensor) {
  if (graph_number_class == nullptr)
    graph_number_class = as_type(number_member("GraphNumber").release());
  auto* type = graph_number_class;
  py::object out = steal(type->tp_new(type, py::tuple().ptr(), nullptr));
  py::setattr(out, "value", tensor);
  heap().hold(out);
  return out;
}

bool Numbers::in_optimizer() const {
  const auto& stack = frames().stack();
  if (stack.empty()) return false;
  const std::string_view module = module_of_frame(*stack.back());
  // A schedule computes with plain numbers.
  return (module.starts_with("torch.optim.") && module != "torch.optim.lr_scheduler") ||
         module == "oxyfuel.graph_number";
}

bool Numbers::in_batch_norm() const {
  const auto& stack = frames().stack();
  return !stack.empty() && module_of_frame(*stack.back()) == "torch.nn.modules.batchnorm";
}

// What item() gives in an optimizer, where that is a float, and float() in a batch norm.
py::object Numbers::float_in(const py::object& tensor, bool item) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  const bool read = item ? in_optimizer() && at::isFloatingType(t.scalar_type()) : in_batch_norm();
  if (!read || graphs().inner() != nullptr || bridge::is_symbolic(t) || t.numel() != 1) return {};
  py::object copy = calls().call_method(tensor, "detach", {}, {});
  if (t.dim() != 0) copy = calls().call_method(copy, "reshape", {py::tuple()}, {});
  copy = calls().call_method(copy, "to", {member_of<"torch", "float64">()},
                             {{py::str("copy"), py::bool_(true)}});
  if (is_unwritten(tensor)) state_of_number_.emplace(copy.ptr(), tensor);
  return graph_float(copy);
}

// A setting of an optimizer, in one of its dicts or in a tuple there (betas), that was another one
// at an earlier call.
py::object Numbers::varying_float(py::handle real, SourceId source) {
  if (varying.empty() || !PyFloat_CheckExact(real.ptr()) || graphs().inner() != nullptr) return {};
  const Source& at = heap().sources[source];
  const bool in_tuple = at.kind == SourceKind::Item;
  if ((in_tuple ? heap().sources[at.base] : at).kind != SourceKind::DictItem ||
      !is_varying(source) || !in_optimizer())
    return {};
  const NumberDtype f64{at::kDouble, false};
  if (!number_as_tensor(real, f64)) return {};
  const py::object number = deferred_number(real, source);
  py::object out = graph_float(number_input(number, f64));
  found_at_.emplace(out.ptr(), Setting{source, number});
  return out;
}

// What the code has computed and written, for an optimizer that reads it; null for all else.
py::object Numbers::written_setting(const py::object& written) {
  if (!is_symbolic_float(written) || !is_runtime_number(written) || is_of_data(written) ||
      graphs().inner() != nullptr || !in_optimizer())
    return {};
  const NumberDtype f64{at::kDouble, false};
  if (!number_as_tensor(real_of(written), f64)) return {};
  py::object out = graph_float(number_input(written, f64));
  found_at_.emplace(out.ptr(), Setting{SourceId(), written});
  return out;
}

// In the code of a schedule, torch's or the user's, settings that an optimizer has read are plain
// numbers again; nothing where there are none of these.
std::optional<Arguments> Numbers::settings_in_schedule(const Arguments& args) const {
  auto is_setting = [this](const py::object& a) { return found_at_.contains(a.ptr()); };
  if (found_at_.empty() || std::ranges::none_of(args, is_setting) || frames().stack().empty())
    return std::nullopt;
  const std::string_view module = module_of_frame(*frames().stack().back());
  if ((in_optimizer() && module != "torch.optim.swa_utils") || module == "oxyfuel.fused_optimizers")
    return std::nullopt;
  Arguments out;
  for (const py::object& a : args) out.push_back(is_setting(a) ? found_at_.at(a.ptr()).number : a);
  return out;
}

// Where a float came from that is as it came; none for what was computed.
SourceId Numbers::source_of_float(py::handle o) const {
  auto it = found_at_.find(o.ptr());
  return it == found_at_.end() ? SourceId() : it->second.source;
}

// A number that an optimizer's state holds against a constant: that number is guarded.
Done Numbers::compare_state(const py::object& a, const py::object& b, int operation) {
  const bool left = is_made_number(a) && is_number(b.ptr());
  if (!left && !(is_made_number(b) && is_number(a.ptr()))) return std::nullopt;
  const py::object& computed = left ? a : b;
  if (auto setting = found_at_.find(computed.ptr()); setting != found_at_.end())
    return compare_deferred(left ? setting->second.number : a, left ? b : setting->second.number,
                            operation);
  auto it = state_of_number_.find(py::object(computed.attr("value")).ptr());
  if (it == state_of_number_.end()) return std::nullopt;
  const Tracked& k = *heap().tracked(it->second);
  const py::object number = python::number_in(k.original.ptr());
  heap().guard(GuardKind::Number, k.source, number);
  return steal(
      PyObject_RichCompare((left ? number : a).ptr(), (left ? b : number).ptr(), operation));
}

// A truth that is computed of one number in the state of an optimizer or module (RAdam's step count
// against a bound, whether a count of batches is zero): the truth is guarded, so that steps which
// go the same way share a graph. What is computed of constants alone needs no guard.
std::optional<bool> Numbers::truth_of_state(py::handle tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
  if (graphs().inner() != nullptr || is_wrapped(t) || bridge::is_symbolic(t) || t.numel() != 1)
    return std::nullopt;
  const auto program = graphs().recorder().scalar_program(t);
  if (!program) return std::nullopt;
  if (!program->input) return bridge::evaluate(program->steps, 0) != 0;
  const at::Tensor& real = graphs().recorder().input(*program->input);
  for (const auto& [other, fake] : heap().fakes()) {
    const Tracked* k = heap().tracked(fake);
    if (!THPVariable_Unpack(other).is_same(real) || k == nullptr || !k->source.valid()) continue;
    const bool of_module = reads_numbers && heap().is_module_state(k->source);
    if (!in_optimizer() && !of_module) return std::nullopt;
    const py::bytes steps(reinterpret_cast<const char*>(program->steps.data()),
                          program->steps.size() * sizeof(bridge::ScalarStep));
    const auto truth = number_truth(k->original.ptr(), steps);
    if (truth) heap().guard(GuardKind::NumberTruth, k->source, steps, *truth ? 1 : 0);
    return truth;
  }
  return std::nullopt;
}

// A call of torch with such numbers among its arguments; nullopt where there are none.
Done Numbers::record_graph_numbers(ir::NodeKind kind, const std::string& target,
                                   py::handle callable, const Arguments& args,
                                   const Keywords& kwargs) {
  if (graph_number_class == nullptr || !any_argument(args, kwargs, mentions_made_number))
    return std::nullopt;
  std::string word = target.substr(target.rfind('.') + 1);
  auto value_of = [](const py::object& o) { return py::object(o.attr("value")); };
  if (word.starts_with("_foreach_")) {
    Arguments given{py::str(word.substr(9))};
    given.insert(given.end(), args.begin(), args.end());
    static const py::object& foreach = *new py::object(number_member("foreach"));
    return calls().call(foreach, std::move(given), kwargs);
  }
  if (target == "torch.nn.functional.batch_norm")
    return calls().call(number_member("batch_norm"), args, kwargs);
  if (target == "operator.truediv" && is_made_number(args[0]))  // as torch.Tensor.__rtruediv__
    return objects().operate(member_of<"operator", "mul">(),
                             {calls().call_method(args[1], "reciprocal", {}, {}), args[0]});
  if (word == "as_tensor")
    return calls().call_method(value_of(args[0]), "to", {member_of<"torch", "float32">()}, {});
  const bool in_place = word.ends_with('_') && !word.ends_with("__");
  if (in_place) word.pop_back();
  const auto met = met_dtype(args);
  bool scalars = false;
  auto inside = [&](const py::object& o, size_t position, std::string_view keyword) -> py::object {
    if (!is_made_number(o))
      return with_items(
          o, [&](const py::object& item) { return is_made_number(item) ? value_of(item) : item; });
    py::object value = value_of(o);
    if (is_scalar_argument(word, position, keyword)) {
      graphs().recorder().allow_number(THPVariable_Unpack(value.ptr()));
      scalars = true;
    } else if (met && met->same) {
      value = calls().call_method(
          value, "to", {borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(met->fits)))}, {});
    }
    return value;
  };
  Arguments given;
  for (const py::object& a : args) given.push_back(inside(a, given.size(), ""));
  Keywords named;
  for (const auto& [key, a] : kwargs) named.emplace_back(key, inside(a, 0, text(key)));
  if (!scalars || !in_place) return record_with_numbers(kind, target, callable, given, named);
  // Torch asks Python for the shape of what it writes in place, and cannot have the number there.
  const py::object made =
      calls().call_method(given[0], word, {given.begin() + 1, given.end()}, named);
  return calls().call_method(given[0], "copy_", {made}, {});
}

// The function in a wrapper that keeps TorchDynamo, and nobody else, out of it: by
// torch._disable_dynamo, or put there once TorchDynamo is used. Null where there is none.
static py::object hidden_function(PyFunctionObject* f) {
  const bool lazily = written_in(f) == "torch._compile";
  if ((!lazily && !is_disabled(f)) || f->func_dict == nullptr) return {};
  for (const char* name : {"_torchdynamo_orig_callable", "__wrapped__"})
    if (PyObject* found = PyDict_GetItemString(f->func_dict, name);
        found != nullptr && PyFunction_Check(found))
      return borrow(found);
  return {};
}

// Functions of torch.optim, also in wrappers of torch's (profiles, no_grad), known by the names
// that functools.wraps copies.
Done Calls::call_of_optimizer(PyFunctionObject* f, const Arguments& args, const Keywords& kwargs) {
  if (wrappers().is_answering())  // below what TorchDynamo sees
    if (const py::object inside = hidden_function(f)) return call(inside, args, kwargs);
  if (!view_of(f->func_module).starts_with("torch.optim.") || !written_in(f).starts_with("torch."))
    return std::nullopt;
  if (const py::object inside = hidden_function(f)) return call(inside, args, kwargs);
  // Whose steps go by the values of tensors in every line, or work on sparse ones.
  const std::string_view name = view_of(f->func_qualname);
  if (name == "LBFGS.step" || name == "SparseAdam.step")
    throw Break(BreakId::torch_call, std::string(name));
  return std::nullopt;
}

// A scaler skips steps whose gradients are not finite: a call that finds some is eager's.
Done Calls::step_if_finite(const Arguments& args, const Keywords& kwargs) {
  const py::object found = call(number_member("found_inf"), {args[2]}, {});
  if (!heap().is_tensor(found) || !numbers().assume_truth(found, false)) return std::nullopt;
  return call(number_member("step"), {args.begin() + 1, args.end()}, kwargs);
}

bool Calls::is_profiled() {
  const py::object& listens = member_of<"torch._C._autograd", "_profiler_enabled">();
  return ask_torch(Folded::Asked, "torch._C._autograd._profiler_enabled", listens, {}, {}).ptr() ==
         Py_True;
}

bool Calls::is_in_optimizer() const {
  const auto& stack = frames().stack();
  return !stack.empty() && module_of_frame(*stack.back()) == "torch.optim.optimizer";
}

}  // namespace oxy::python
