#include "python/compiled_function.h"

#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>

#include "python/capture/tracer.h"
#include "python/cpython/dict_version.h"
#include "python/global_state.h"
#include "python/guards/guard_program.h"
#include "support/check.h"

namespace oxy::python {
namespace {

// A capture, or the knowledge that there is none for calls like these (`graph` is null).
struct Entry {
  GlobalState state;
  std::shared_ptr<GuardProgram> guards;
  size_t input_count = 0;
  py::object graph;
  bool calls_graph = true;  // false: nothing but Python's own work, done by `result`
  Rebuild result;
  std::vector<Tracer::Effect> effects;
  bool grad = false;  // runs in eager because gradients are needed
};

struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *function, *compile, *report, *weakrefs;
  bool fullgraph, limit_said;
  size_t limit;
  std::vector<std::shared_ptr<Entry>>* entries;  // most recently used first
};

// The arguments in the order of localsplus, bound as CPython binds them.
struct Bound {
  c10::SmallVector<PyObject*, 16> locals;
  std::vector<py::object> held;
  bool valid = false;

  Bound(PyFunctionObject* f, PyObject* const* args, size_t n, PyObject* kwnames) {
    auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
    const auto positional = static_cast<size_t>(code->co_argcount);
    const size_t named = positional + static_cast<size_t>(code->co_kwonlyargcount);
    const bool rest = code->co_flags & CO_VARARGS, extra = code->co_flags & CO_VARKEYWORDS;
    if (n > positional && !rest) return;
    locals.assign(named + rest + extra, nullptr);
    std::copy_n(args, std::min(n, positional), locals.begin());
    if (rest) {
      py::tuple t(n > positional ? n - positional : 0);
      for (size_t i = positional; i < n; i++) t[i - positional] = py::handle(args[i]);
      locals[named] = keep(std::move(t));
    }
    py::object others;
    if (extra) others = py::reinterpret_steal<py::object>(uncounted_dict());
    if (extra && !others) throw py::error_already_set();
    if (kwnames != nullptr && !bind_keywords(code, args + n, kwnames, named, extra, others)) return;
    if (extra) locals[named + rest] = keep(std::move(others));
    valid = bind_defaults(f, code, positional, named);
  }

 private:
  PyObject* keep(py::object o) {
    held.push_back(std::move(o));
    return held.back().ptr();
  }

  bool bind_keywords(PyCodeObject* code, PyObject* const* values, PyObject* kwnames, size_t named,
                     bool extra, py::object& others) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
      PyObject* name = PyTuple_GET_ITEM(kwnames, k);
      size_t at = static_cast<size_t>(code->co_posonlyargcount);
      while (at < named &&
             PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, at), name) != 0)
        at++;
      if (at < named) {
        if (locals[at] != nullptr) return false;
        locals[at] = values[k];
      } else {
        if (!extra) return false;
        others[py::handle(name)] = py::handle(values[k]);
      }
    }
    return true;
  }

  bool bind_defaults(PyFunctionObject* f, PyCodeObject* code, size_t positional, size_t named) {
    const size_t defaults =
        f->func_defaults ? static_cast<size_t>(PyTuple_GET_SIZE(f->func_defaults)) : 0;
    for (size_t i = 0; i < named; i++) {
      if (locals[i] != nullptr) continue;
      if (i < positional) {
        if (i + defaults < positional) return false;
        locals[i] =
            PyTuple_GET_ITEM(f->func_defaults, static_cast<Py_ssize_t>(i + defaults - positional));
      } else {
        locals[i] = f->func_kwdefaults
                        ? PyDict_GetItemWithError(f->func_kwdefaults,
                                                  PyTuple_GET_ITEM(code->co_localsplusnames, i))
                        : nullptr;
        if (locals[i] == nullptr) return false;
      }
    }
    return true;
  }
};

void say(CompiledFunction* self, const char* kind, const std::string& text,
         const std::vector<ir::Frame>& stack = {}) {
  py::list frames;
  for (const ir::Frame& f : stack) frames.append(py::make_tuple(f.file, f.line, f.function));
  py::handle(self->report)(kind, text, frames);
}

PyObject* run_entry(CompiledFunction* self, const Entry& e, const Fetched& fetched,
                    PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!e.graph) return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
  const std::span objects = fetched.objects();
  std::vector<py::object> outputs;
  if (e.calls_graph) {
    PyObject* made = PyObject_Vectorcall(e.graph.ptr(), objects.data(), e.input_count, nullptr);
    if (made == nullptr) return nullptr;
    auto results = py::reinterpret_steal<py::object>(made);
    PyObject* fast = PySequence_Fast(made, "a backend's callable must return a tuple or a list");
    if (fast == nullptr) return nullptr;
    auto held = py::reinterpret_steal<py::object>(fast);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++)
      outputs.push_back(py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(fast, i)));
  }
  py::object result = e.result.build(outputs, objects);
  std::vector<py::object> values;
  for (const auto& effect : e.effects) values.push_back(effect.value.build(outputs, objects));
  for (size_t i = 0; i < values.size(); i++) {
    const auto& effect = e.effects[i];
    if (PyDict_SetItem(objects[effect.dict], effect.key.ptr(), values[i].ptr()) != 0)
      return nullptr;
  }
  return result.release().ptr();
}

// Captures the call; null where the captured code raises (`raised` says what; eager then raises it). What the capture has learned before a
// break tells calls like this one apart from others.
std::shared_ptr<Entry> make_entry(CompiledFunction* self, const Bound& bound, std::string& raised) {
  auto entry = std::make_shared<Entry>();
  Tracer tracer;
  std::vector<py::object> locals;
  for (PyObject* o : bound.locals) locals.push_back(py::reinterpret_borrow<py::object>(o));
  try {
    tracer.run(self->function, locals);
    const bool needs_grad = entry->state.grad_mode &&
                            (tracer.result_requires_grad ||
                             std::any_of(tracer.example_inputs.begin(), tracer.example_inputs.end(),
                                         [](const py::object& o) {
                                           return THPVariable_Unpack(o.ptr()).requires_grad();
                                         }));
    entry->grad = needs_grad;
    if (!needs_grad) {
      entry->input_count = tracer.input_count;
      entry->result = std::move(tracer.result);
      entry->effects = std::move(tracer.effects);
      const auto& order = tracer.ir->graph.order();
      entry->calls_graph = std::any_of(order.begin(), order.end(), [&](ir::NodeId n) {
        return tracer.ir->graph.node(n).kind != ir::NodeKind::Input;
      });
      py::tuple examples(tracer.example_inputs.size());
      for (size_t i = 0; i < tracer.example_inputs.size(); i++)
        examples[i] = tracer.example_inputs[i];
      entry->graph =
          entry->calls_graph ? py::handle(self->compile)(tracer.ir, examples) : py::none();
    }
  } catch (const Break& b) {
    say(self, "break", b.what(), b.stack);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    raised = e.what();
    return nullptr;
  }
  if (!entry->graph) tracer.fetch.resize(tracer.example_inputs.size());
  entry->guards = std::make_shared<GuardProgram>(tracer.sources, tracer.guards, tracer.fetch);
  entry->input_count = tracer.example_inputs.size();
  self->entries->insert(self->entries->begin(), entry);
  return entry;
}

PyObject* call_checked(CompiledFunction* self, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  auto eager = [&] { return PyObject_Vectorcall(self->function, args, nargsf, kwnames); };
  if (is_observed()) return eager();
  const Bound bound(reinterpret_cast<PyFunctionObject*>(self->function), args,
                    static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
  if (!bound.valid) return eager();
  Fetched fetched;
  auto holds = [&](Entry& e, const GlobalState& state) {
    if (!(e.state == state)) return false;
    return e.guards->check(bound.locals.data(), fetched);
  };
  const GlobalState state;
  auto& entries = *self->entries;
  for (size_t i = 0; i < entries.size(); i++) {
    if (!holds(*entries[i], state)) continue;
    std::shared_ptr<Entry> e = entries[i];
    std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(i),
                entries.begin() + static_cast<ptrdiff_t>(i) + 1);
    if (e->grad) say(self, "grad", "");
    return run_entry(self, *e, fetched, args, nargsf, kwnames);
  }
  if (entries.size() >= self->limit) {
    if (!std::exchange(self->limit_said, true)) {
      auto why = entries.front()->guards->why_not(bound.locals.data());
      say(self, "limit", why ? why->text : "the metadata of a tensor or the global state");
    }
    return eager();
  }
  if (!entries.empty()) {
    auto why = entries.front()->guards->why_not(bound.locals.data());
    say(self, "recompile", why ? why->text : "the metadata of a tensor or the global state");
  }
  std::string raised;
  std::shared_ptr<Entry> entry = make_entry(self, bound, raised);
  if (!entry) {
    auto result = py::reinterpret_steal<py::object>(eager());
    if (result) say(self, "failed", cat("captured code raised what eager does not: ", raised));
    return result.release().ptr();
  }
  if (entry->grad) say(self, "grad", "");
  if (!holds(*entry, state)) throw InternalError("the guards of a new capture do not hold");
  return run_entry(self, *entry, fetched, args, nargsf, kwnames);
}

PyObject* call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  std::string failure;
  try {
    return call_checked(self, args, nargsf, kwnames);
  } catch (py::error_already_set& e) {
    e.restore();
    return nullptr;
  } catch (const std::exception& e) {
    failure = e.what();
  }
  PyObject* result = PyObject_Vectorcall(self->function, args, nargsf, kwnames);
  if (result == nullptr) return nullptr;
  PyObject* said = PyObject_CallFunction(self->report, "ss()", "failed", failure.c_str());
  if (said == nullptr) Py_CLEAR(result);
  Py_XDECREF(said);
  return result;
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *function, *compile, *report;
  int fullgraph;
  Py_ssize_t limit;
  if (!PyArg_ParseTuple(args, "O!OOpn", &PyFunction_Type, &function, &compile, &report, &fullgraph,
                        &limit))
    return nullptr;
  auto* self = reinterpret_cast<CompiledFunction*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->function = Py_NewRef(function);
  self->compile = Py_NewRef(compile);
  self->report = Py_NewRef(report);
  self->fullgraph = fullgraph != 0;
  self->limit = static_cast<size_t>(limit);
  self->entries = new std::vector<std::shared_ptr<Entry>>();
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->function);
  Py_VISIT(self->compile);
  Py_VISIT(self->report);
  return 0;
}

int clear(PyObject* o) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  Py_CLEAR(self->function);
  Py_CLEAR(self->compile);
  Py_CLEAR(self->report);
  delete std::exchange(self->entries, nullptr);
  return 0;
}

void dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (reinterpret_cast<CompiledFunction*>(o)->weakrefs != nullptr) PyObject_ClearWeakRefs(o);
  clear(o);
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* forget(PyObject* o, PyObject*) {
  auto* self = reinterpret_cast<CompiledFunction*>(o);
  self->entries->clear();
  self->limit_said = false;
  Py_RETURN_NONE;
}

PyObject* guards(PyObject* o, PyObject*) {
  py::list out;
  for (const auto& e : *reinterpret_cast<CompiledFunction*>(o)->entries)
    out.append(e->guards->text());
  return out.release().ptr();
}

PyObject* guard_programs(PyObject* o, PyObject*) {
  py::list out;
  for (const auto& e : *reinterpret_cast<CompiledFunction*>(o)->entries) out.append(e->guards);
  return out.release().ptr();
}

// As a function's: a compiled function in a class is a method.
PyObject* descriptor_get(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

PyMethodDef methods[] = {{"reset", forget, METH_NOARGS, "Forgets every capture."},
                         {"guards", guards, METH_NOARGS,
                          "The guards of each capture, as text, most recently used first."},
                         {"guard_programs", guard_programs, METH_NOARGS,
                          "The same as GuardPrograms, for tests and measurements."},
                         {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weakrefs), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(CompiledFunction, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// What a function tells of itself: its name, documentation, signature.
PyObject* get_attribute(PyObject* o, PyObject* name) {
  PyObject* own = PyObject_GenericGetAttr(o, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<CompiledFunction*>(o)->function, name);
}

}  // namespace

PyObject* make_compiled_function_type() {
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_descr_get, reinterpret_cast<void*>(descriptor_get)},
                                {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
                                {Py_tp_methods, methods},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"oxyfuel._C.CompiledFunction", sizeof(CompiledFunction), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                             slots};
  return PyType_FromSpec(&spec);
}

}  // namespace oxy::python
