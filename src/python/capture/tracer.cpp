// The beginning and the end of a capture.
#include "python/capture/tracer.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "python/replay.h"
#include "support/text.h"

namespace oxy::python {
namespace {

py::object borrow(PyObject* o) { return py::reinterpret_borrow<py::object>(o); }

struct BreakRow {
  const char* message;
  const char* hint;
};

constexpr BreakRow kBreaks[] = {
#define OXY_BREAK(id, message, hint) {message, hint},
#include "python/capture/breaks.def"
#undef OXY_BREAK
};

std::string break_text(BreakId id, const std::string& detail) {
  const BreakRow& row = kBreaks[static_cast<size_t>(id)];
  return cat(row.message, detail.empty() ? "" : " (", detail, detail.empty() ? "" : ")",
             "; hint: ", row.hint);
}

}  // namespace

Break::Break(BreakId id, std::string detail) : std::runtime_error(break_text(id, detail)), id(id) {}

Tracer::Tracer() : recorder_(std::make_unique<bridge::Recorder>(recorder_options())) {}
Tracer::~Tracer() = default;

std::vector<ir::Frame> Tracer::user_stack() const {
  std::vector<ir::Frame> out;
  for (const TracedFrame* f : frames_) {
    ir::Frame frame;
    frame.file = py::handle(f->code->co_filename).cast<std::string>();
    frame.function = py::handle(f->code->co_name).cast<std::string>();
    const size_t at = f->next > 0 ? f->next - 1 : 0;
    frame.line = f->bytecode->instructions[at].location.line;
    out.push_back(std::move(frame));
  }
  return out;
}

void Tracer::run(py::handle function, std::span<const py::object> bound) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function.ptr());
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    throw Break(BreakId::async_function, "the compiled function is a generator");
  const bool grad = c10::GradMode::is_enabled();
  struct Restore {
    bool grad;
    ~Restore() { c10::GradMode::set_enabled(grad); }
  } restore{grad};
  TracedFrame frame;
  frame.function = borrow(function.ptr());
  frame.code = code;
  frame.bytecode = bytecode_of(code);
  frame.fast.resize(static_cast<size_t>(code->co_nlocalsplus));
  for (size_t i = 0; i < bound.size(); i++) {
    if (!bound[i]) continue;
    const auto name = borrow(PyTuple_GET_ITEM(code->co_localsplusnames, i)).cast<std::string>();
    frame.fast[i] = wrap(bound[i], sources.local(static_cast<int64_t>(i), name));
  }
  py::object returned = interpret(frame);
  if (c10::GradMode::is_enabled() != grad)
    throw Break(BreakId::side_effect, "the grad mode is another afterwards");
  finish(returned);
}

uint32_t Tracer::fetched(SourceId source) {
  for (size_t i = 0; i < fetch.size(); i++)
    if (fetch[i] == source) return static_cast<uint32_t>(i);
  fetch.push_back(source);
  return static_cast<uint32_t>(fetch.size() - 1);
}

Rebuild Tracer::plan_rebuild(py::handle o, std::vector<ir::Arg>& outputs, int depth) {
  PyObject* p = o.ptr();
  Rebuild r;
  auto refuse = [&]() { throw Break(BreakId::result_kind, Py_TYPE(p)->tp_name); };
  auto add = [&](py::handle item) { r.items.push_back(plan_rebuild(item, outputs, depth + 1)); };
  if (depth > 50) refuse();
  Known* k = known(o);
  if (k && k->value) {
    result_requires_grad |= THPVariable_Unpack(p).requires_grad();
    if (k->source.valid()) {
      r.kind = Rebuild::Kind::Fetched;
      r.index = fetched(k->source);
      return r;
    }
    r.kind = Rebuild::Kind::Output;
    auto [it, is_new] = output_of_.try_emplace(p, static_cast<uint32_t>(outputs.size()));
    if (is_new) {
      outputs.push_back(*k->value);
      output_tensors_.push_back(THPVariable_Unpack(p));
    }
    r.index = it->second;
    return r;
  }
  if (THPVariable_Check(p) || generators_.contains(p)) refuse();
  if (k && k->source.valid()) {
    r.kind = Rebuild::Kind::Fetched;
    r.index = fetched(k->source);
    return r;
  }
  // An object that can be changed is made once; two places that hold it would each get their own.
  const bool changeable =
      PyList_Check(p) || PyDict_Check(p) || PyAnySet_Check(p) ||
      ((Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_Check(p) && !PyTuple_Check(p));
  if (changeable && !planned_.insert(p).second) refuse();
  auto instance = [&](py::object content) {
    r.kind = Rebuild::Kind::Instance;
    r.object = borrow(reinterpret_cast<PyObject*>(Py_TYPE(p)));
    add(content);
    PyObject* slots = _PyType_Lookup(Py_TYPE(p), py::str("__slots__").ptr());
    if (slots != nullptr && Py_SIZE(slots) > 0 && !PyTuple_Check(p)) refuse();
    const bool has_dict =
        Py_TYPE(p)->tp_dictoffset != 0 && (Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    py::dict attributes;
    if (has_dict) attributes = py::reinterpret_steal<py::dict>(PyObject_GenericGetDict(p, nullptr));
    add(attributes);
  };
  if (PyTuple_Check(p) || PyList_Check(p)) {
    if (!PyTuple_CheckExact(p) && !PyList_CheckExact(p)) {
      instance(PyTuple_Check(p) ? py::object(py::tuple(py::list(borrow(p))))
                                : py::object(py::list(borrow(p))));
      return r;
    }
    r.kind = PyTuple_Check(p) ? Rebuild::Kind::Tuple : Rebuild::Kind::List;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(p); i++)
      add(PySequence_Fast_GET_ITEM(p, i));
    return r;
  }
  if (PyDict_CheckExact(p)) {
    r.kind = Rebuild::Kind::Dict;
    for (auto item : py::reinterpret_borrow<py::dict>(o)) {
      add(item.first);
      add(item.second);
    }
    return r;
  }
  if (PyDict_Check(p)) {
    py::dict content;
    if (PyDict_Update(content.ptr(), p) != 0) throw py::error_already_set();
    instance(content);
    return r;
  }
  if (PySet_CheckExact(p)) {
    r.kind = Rebuild::Kind::Set;
    for (py::handle item : py::list(borrow(p))) add(item);
    return r;
  }
  if (PyMethod_Check(p)) {
    r.kind = Rebuild::Kind::Method;
    add(PyMethod_GET_FUNCTION(p));
    add(PyMethod_GET_SELF(p));
    return r;
  }
  const bool made_function = PyFunction_Check(p) && k;
  const bool iterator = Py_TYPE(p)->tp_iternext != nullptr;
  if (made_function || iterator || PyCell_Check(p)) refuse();
  const bool plain_object = (Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_Check(p) &&
                            Py_TYPE(p)->tp_new == PyBaseObject_Type.tp_new;
  const bool made_here =
      std::any_of(held_.begin(), held_.end(), [&](const py::object& h) { return h.ptr() == p; });
  if (plain_object && made_here) {
    instance(py::none());
    return r;
  }
  if ((Py_TYPE(p)->tp_flags & Py_TPFLAGS_HEAPTYPE) && made_here && !PyType_Check(p)) refuse();
  r.object = borrow(p);
  return r;
}

void Tracer::plan_effects(std::vector<ir::Arg>& outputs) {
  for (const py::object& dict : written_) {
    const SourceId source = known(dict)->source;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(known(dict)->writes)) {
      const SourceId item = sources.dict_item(source, key);
      if (PyObject* before = PyDict_GetItemWithError(dict.ptr(), key.ptr()))
        if (wrap(before, item).ptr() == value.ptr()) continue;  // as before, and guarded to be so
      effects.push_back({fetched(source), borrow(key.ptr()), plan_rebuild(value, outputs)});
    }
  }
}

void Tracer::finish(py::handle returned) {
  std::vector<ir::Arg> outputs;
  // Before the result: reading what was there may add inputs, which come first in `fetch`.
  const std::vector<py::object> written = written_;
  for (const py::object& dict : written)
    for (auto item : py::reinterpret_borrow<py::dict>(known(dict)->writes))
      if (PyObject* before = PyDict_GetItemWithError(dict.ptr(), item.first.ptr()))
        wrap(before, sources.dict_item(known(dict)->source, item.first));
  input_count = fetch.size();
  result = plan_rebuild(returned, outputs);
  plan_effects(outputs);
  ir->graph.result = ir::Tuple{std::move(outputs)};
  // Parts of results that nobody took.
  std::vector<uint32_t> uses = ir->graph.use_counts();
  const auto& order = ir->graph.order();
  for (size_t i = order.size(); i-- > 0;) {
    ir::Node& n = ir->graph.node(order[i]);
    if (n.dead || n.target != "operator.getitem" || !n.args[0].is_value()) continue;
    if (uses[n.outputs[0].index] > 0 || ir->graph.value(n.args[0].value()).type.is_tensor())
      continue;
    ir->graph.kill(n.id);
    uses[n.args[0].value().index]--;
  }
  ir->graph.compact();
  ir->seal();
  finish_recording();
}

// The ops heard underneath become the ATen graph of `ir`. Where that cannot be, replay will say why.
void Tracer::finish_recording() {
  if (!recorded_all_) return;
  auto captured = std::make_shared<CapturedRecording>();
  Recording& r = captured->recording;
  try {
    r.graph = recorder_->finish(output_tensors_);
  } catch (const std::exception&) {
    recorder_->leave();
    return;
  }
  r.graph.name = ir->graph.name;
  r.attributes = recorder_->attributes();
  r.visible_outputs = static_cast<uint32_t>(output_tensors_.size());
  r.result.kind = ResultTree::Kind::Tuple;
  for (uint32_t i = 0; i < r.visible_outputs; i++) {
    ResultTree& leaf = r.result.items.emplace_back();
    leaf.kind = ResultTree::Kind::Output;
    leaf.output = i;
  }
  captured->inputs = example_inputs;
  ir->captured = std::move(captured);
}

}  // namespace oxy::python
