// Running what was captured.
#include "python/artefact.h"

#include <algorithm>

#include "python/cpython/frames.h"
#include "python/cpython/thread_state.h"
#include "torch_bridge/host.h"

namespace oxy::python {
namespace {

py::tuple tuple_of(std::span<PyObject* const> objects) {
  py::tuple out(objects.size());
  for (size_t i = 0; i < objects.size(); i++) out[i] = py::handle(objects[i]);
  return out;
}

void append_items(const py::object& results, OutputObjects& outputs) {
  const py::object fast =
      steal(PySequence_Fast(results.ptr(), "a backend's callable must return a tuple or a list"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.ptr()); i++)
    outputs.push_back(borrow(PySequence_Fast_GET_ITEM(fast.ptr(), i)));
}

// Raises it again.
void set_with_traceback(py::handle exception) {
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr()))),
                Py_NewRef(exception.ptr()), PyException_GetTraceback(exception.ptr()));
}

// Calls every node in order. Where one raises and no argument was written, there is no result and
// torch is as it was: the function that was captured is to run instead, and raises as it does.
// After a write that would do it twice; then the exception has the node's lines in its traceback.
std::optional<py::object> run_captured(const TorchIr& ir, py::handle args) {
  const auto random_numbers = bridge::torch_cpu().generator_state();
  bool counted = true;  // what was made as an inference tensor has no version
  std::vector<std::pair<at::Tensor, int64_t>> versions;
  for (py::handle a : args) {
    if (!THPVariable_Check(a.ptr())) continue;
    const at::Tensor& t = THPVariable_Unpack(a.ptr());
    counted &= t.unsafeGetTensorImpl()->version_counter().enabled();
    if (counted) versions.emplace_back(t, t._version());
  }
  auto as_before = [](const auto& v) { return v.first._version() == v.second; };
  ir::NodeId reached;
  try {
    return replay(ir, args, &reached);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;  // KeyboardInterrupt: eager would begin again
    if (counted && std::ranges::all_of(versions, as_before)) {
      bridge::torch_cpu().restore_generator(random_numbers);
      return std::nullopt;
    }
    const py::object value = e.value();
    if (e.trace()) PyException_SetTraceback(value.ptr(), e.trace().ptr());
    py::list frames;
    const ir::StackId stack = reached.valid() ? ir.graph.node(reached).stack : ir::StackId();
    if (ir.graph.has_stack(stack))
      for (const ir::Frame& f : ir.graph.stack(stack))
        frames.append(py::make_tuple(f.file, f.line, f.function));
    add_user_lines(value, frames);
    set_with_traceback(value);
    throw py::error_already_set();
  }
}

}  // namespace

void add_user_lines(py::handle exception, const py::list& frames) {
  set_with_traceback(exception);
  for (size_t i = frames.size(); i-- > 0;) {
    const auto [file, line, function] = frames[i].cast<std::tuple<std::string, int, std::string>>();
    add_traceback_line(function.c_str(), file.c_str(), line);
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (trace) PyException_SetTraceback(exception.ptr(), trace);
  // In 3.10 a handler keeps the traceback that it began with, apart from the exception.
  if (const auto handled = owned(handled_exception()); handled.is(exception))
    set_handled_exception(exception.ptr());
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

RunnableGraph::RunnableGraph(std::shared_ptr<TorchIr> ir, py::handle compile, py::handle report,
                             const py::tuple& examples, bool turns_grad_on)
    : ir_(std::move(ir)),
      compile_(borrow(compile)),
      report_(borrow(report)),
      turns_grad_on_(turns_grad_on) {
  this->compile(examples);
}

void RunnableGraph::compile(const py::tuple& examples) {
  const c10::AutoGradMode grad(turns_grad_on_ || c10::GradMode::is_enabled());
  const InnerFrames none(nullptr);  // what compiles is no code of the user's
  const py::object made = compile_(ir_, examples, thaws_.freezing());
  plan_ = nullptr;
  if (py::isinstance<CompiledPlan>(made)) {
    plan_ = made.cast<std::shared_ptr<CompiledPlan>>();
  } else if (py::isinstance<py::tuple>(made)) {
    const auto [kind, why] = made.cast<std::pair<std::string, std::string>>();
    none_ = {kind == "failed" ? "failed graph" : kind, why};
  } else if (!py::isinstance<TorchIr>(made)) {
    callable_ = made;
  }
}

bool RunnableGraph::run(std::span<PyObject* const> inputs, OutputObjects& outputs, NotRun& why) {
  if (plan_) [[likely]]
    return run_plan(inputs, outputs, why);
  if (!none_.kind.empty()) {
    why = none_;
    return false;
  }
  const TorchModesGuard modes;  // for graphs that raise
  if (turns_grad_on_) c10::GradMode::set_enabled(true);
  if (callable_) {
    append_items(steal(PyObject_Vectorcall(callable_.ptr(), inputs.data(), inputs.size(), nullptr)),
                 outputs);
    const size_t wanted = ir::result_count(ir_->graph);
    if (outputs.size() >= wanted) return true;
    PyErr_Format(PyExc_TypeError, "a backend's callable returned %zu of the graph's %zu outputs",
                 outputs.size(), wanted);
    throw py::error_already_set();
  }
  const auto made = run_captured(*ir_, tuple_of(inputs));
  if (made) append_items(*made, outputs);
  return made.has_value();
}

bool RunnableGraph::run_plan(std::span<PyObject* const> inputs, OutputObjects& outputs,
                             NotRun& why) {
  CompiledPlan& plan = *plan_;
  const bool brief = plan.executable.is_brief();
  // While others run another one may take its place.
  const auto held = brief && !plan.executable.options().frozen ? nullptr : plan_;
  if (plan.executable.backward() != nullptr && saved_values_may_change()) {
    why = {};
    return false;
  }
  c10::SmallVector<bridge::Input, 16> given;
  c10::SmallVector<at::Tensor, 16> kept;
  given.reserve(inputs.size());
  if (!brief) kept.reserve(inputs.size());
  for (PyObject* o : inputs) {
    if (!THPVariable_Check(o)) {  // a number that the guards have looked at
      given.push_back({nullptr, PyLong_AsLongLong(o)});
      continue;
    }
    const at::Tensor& t = THPVariable_Unpack(o);
    // Without the GIL it is kept from a thread that exchanges what the object stands for.
    if (!brief) kept.push_back(t);
    given.push_back({brief ? &t : &kept.back(), 0});
  }
  if (!plan.executable.is_fresh(given)) {  // what the plan took for constants has changed
    {
      const InnerFrames none(nullptr);
      report_("thawed", thaws_.count());
    }
    compile(tuple_of(inputs));
    return run(inputs, outputs, why);
  }
  bridge::Outputs tensors;
  std::string reason;
  if (!run_executable(plan.executable, given, tensors, reason, !brief)) {
    const bool relied = reason.starts_with(bridge::kReliedOn) ||
                        (ir_->handles_errors && reason.starts_with(bridge::kRaised));
    why = {relied ? "relied" : "failed graph", std::move(reason)};
    return false;
  }
  behind_run([&] { wrap_outputs(plan, inputs, tensors, outputs); });
  return true;
}

void RunnableGraph::wrap_outputs(const CompiledPlan& plan, std::span<PyObject* const> inputs,
                                 bridge::Outputs& tensors, OutputObjects& outputs) {
  if (plan.executable.has_notes()) {
    const InnerFrames none(nullptr);
    for (const std::string& text : plan.executable.take_notes()) report_("note", text);
  }
  auto wrapped = [&](size_t k, at::Tensor tensor) {
    return wrap_output(inputs, plan.executable, k, std::move(tensor));
  };
  if (plan.flat && plan.result.items.size() == 1) {
    const uint32_t k = plan.result.items[0].output;
    outputs.push_back(wrapped(k, std::move(tensors[k])));
    return;
  }
  if (plan.flat) {
    for (const ResultTree& leaf : plan.result.items)
      outputs.push_back(wrapped(leaf.output, tensors[leaf.output]));
    return;
  }
  std::vector<py::object> objects;
  for (size_t k = 0; k < tensors.size(); k++) objects.push_back(wrapped(k, tensors[k]));
  append_items(plan.result.build(objects), outputs);
}

int RunnableGraph::traverse(visitproc visit, void* arg) const {
  Py_VISIT(compile_.ptr());
  Py_VISIT(report_.ptr());
  Py_VISIT(callable_.ptr());
  return 0;
}

bool Artefact::holds_with_draws(std::span<PyObject* const> locals, Fetched& fetched,
                                GeneratorStates& before) const {
  Draws::Arguments drawn;
  if (draws.draw(locals, before, drawn) && guards->check(drawn.locals.data(), fetched)) return true;
  before.restore();
  return false;
}

void Artefact::with_draws(std::span<PyObject* const> locals,
                          const std::function<void(PyObject* const*)>& look) const {
  if (draws.empty()) return look(locals.data());
  GeneratorStates before;
  Draws::Arguments drawn;
  draws.draw(locals, before, drawn);
  look(drawn.locals.data());
}

bool Artefact::run(std::span<PyObject* const> fetched, OutputObjects& outputs, NotRun& why) {
  if (!graph) return true;
  const auto given = fetched.first(input_count);
  if (numbers.empty()) return graph->run(given, outputs, why);
  // Tensors in the place of numbers.
  c10::SmallVector<PyObject*, 16> inputs(given.begin(), given.end());
  c10::SmallVector<py::object, 2> made;
  for (const NumberInput& n : numbers) {
    const py::object number = n.number.value(fetched);
    const auto tensor = number ? number_as_tensor(number, n.dtype) : std::nullopt;
    if (!tensor) return false;  // only eager can deal with it
    inputs[n.input] = made.emplace_back(owned(THPVariable_Wrap(*tensor))).ptr();
  }
  return graph->run(inputs, outputs, why);
}

std::vector<py::object> Artefact::results(OutputObjects& outputs,
                                          std::span<PyObject* const> fetched) const {
  std::vector<py::object> out;
  const auto built = rebuild.build(outputs, fetched);
  rebuild.apply(built);
  for (uint32_t root : rebuild.roots) out.push_back(built[root]);
  return out;
}

int Artefact::traverse(visitproc visit, void* arg) const {
  Py_VISIT(code.ptr());
  if (guards.use_count() == 1)  // else Python has them too
    if (int stop = guards->traverse(visit, arg)) return stop;
  if (int stop = draws.traverse(visit, arg)) return stop;
  if (graph)
    if (int stop = graph->traverse(visit, arg)) return stop;
  if (broken)
    if (int stop = broken->traverse(visit, arg)) return stop;
  for (const NumberInput& n : numbers)
    if (int stop = n.number.traverse(visit, arg)) return stop;
  return rebuild.traverse(visit, arg);
}

}  // namespace oxy::python
