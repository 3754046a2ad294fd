// The instructions of jumps, iterators, calls, with statements and exceptions.
#include "python/capture/instructions.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxRounds = 2'000;  // of a loop with tensors

// An exception of the captured code's, where a class stands for one without arguments.
py::object instance_of(Capture& c, const py::object& o) {
  return PyExceptionClass_Check(o.ptr()) ? c.calls.call(o, {}) : o;
}

}  // namespace

namespace instructions {

// ----------------------------------------------------------------------------- jumps and iterators

void jump_counted(Capture& c, TracedFrame& f, const Instruction& i) {
  if (++f.rounds[f.next - 1] > kMaxRounds && c.graphs.ir->graph.order().size() > kMaxRounds)
    throw Break(BreakId::long_loop, kMaxRounds, " rounds were captured");
  jump_if(f, i, true);
}

void for_iter(Capture& c, TracedFrame& f, const Instruction& i) {
  f.loops.try_emplace(f.next - 1, f.step);
  const uint8_t next = f.bytecode->instructions[f.next].op;
  if (next == UNPACK_SEQUENCE || next == STORE_FAST) c.numbers.takes = Takes::Deferred;
  py::object item = c.iterators.iter_next(peek(f, 1));
  c.numbers.takes = Takes::Read;
  if (item) return push(f, item);
  pop(f);
  jump_if(f, i, true);
}

void send(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object sent = pop(f), inner = peek(f, 1), item;
  if (sent.is_none())
    item = c.iterators.iter_next(inner);
  else if (LazyIterator* l = c.iterators.lazy(inner); l && l->frame)
    item = c.iterators.resume_generator(*l, sent, {});
  else
    throw Break(BreakId::instruction, "send to an iterator that is no generator");
  if (item) return push(f, item);
  if (!kSendKeepsIterator) pop(f);
  push(f, c.iterators.returned());
  jump_if(f, i, true);
}

// An exception came out of the iterator that `yield from` was waiting for.
void cleanup_throw(Capture&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  if (!PyErr_GivenExceptionMatches(value.ptr(), PyExc_StopIteration)) raise_value(value);
  pop_many(f, 2);
  push(f, py::none());
  push(f, value.attr("value"));
}

void yield_value(Capture&, TracedFrame& f, const Instruction&) {
  f.result = pop(f);
  f.yielded = true;
}

// ----------------------------------------------------------------------------- calls and functions

void call(Capture& c, TracedFrame& f, const Instruction& i) {
  Arguments args = pop_many(f, i.arg);
  Keywords kwargs;
  if (f.kwnames) {
    const auto n = static_cast<size_t>(PyTuple_GET_SIZE(f.kwnames.ptr()));
    for (size_t k = 0; k < n; k++)
      kwargs.emplace_back(borrow(PyTuple_GET_ITEM(f.kwnames.ptr(), k)), args[args.size() - n + k]);
    args.resize(args.size() - n);
    f.kwnames = py::object();
  }
  py::object callable = pop(f), first = pop(f);
  if (first) {  // a method and self, under the arguments
    args.insert(args.begin(), callable);
    callable = first;
  }
  c.frames.direct = true;
  push(f, c.calls.call(callable, std::move(args), std::move(kwargs)));
}

void call_function_ex(Capture& c, TracedFrame& f, const Instruction& i) {
  Keywords kwargs;
  if (i.arg & 1) {
    py::object held = pop(f);
    if (c.numbers.is_packed(held))
      kwargs = c.numbers.unpack_named(held);
    else
      for (auto item : py::reinterpret_borrow<py::dict>(c.heap.contents(held))) {
        if (!PyUnicode_Check(item.first.ptr())) type_error("keywords must be strings");
        kwargs.emplace_back(borrow(item.first.ptr()), borrow(item.second.ptr()));
      }
  }
  const py::object given = pop(f);
  Arguments args;
  if (c.numbers.is_packed(given))
    args = c.numbers.unpack_numbers(given);
  else
    for (py::handle a : c.iterators.list_of(given)) args.push_back(borrow(a));
  py::object callable = pop(f);
  pop(f);  // the null below
  c.frames.direct = true;
  push(f, c.calls.call(callable, std::move(args), std::move(kwargs)));
}

void make_function(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object code = pop(f);
  auto* outer = as_function(f.function);
  py::object made = steal(PyFunction_New(code.ptr(), outer->func_globals));
  auto set = [&](uint32_t bit, int (*setter)(PyObject*, PyObject*)) {
    if (i.arg & bit) setter(made.ptr(), pop(f).ptr());
  };
  set(8, PyFunction_SetClosure);
  if (i.arg & 4) {
    py::object annotations = pop(f);
    if (PyTuple_Check(annotations.ptr())) {
      py::dict d;
      for (Py_ssize_t k = 0; k + 1 < PyTuple_GET_SIZE(annotations.ptr()); k += 2)
        d[py::handle(PyTuple_GET_ITEM(annotations.ptr(), k))] =
            py::handle(PyTuple_GET_ITEM(annotations.ptr(), k + 1));
      annotations = d;
    }
    PyFunction_SetAnnotations(made.ptr(), annotations.ptr());
  }
  set(2, PyFunction_SetKwDefaults);
  set(1, PyFunction_SetDefaults);
  c.heap.entry(made.ptr());  // made here: its defaults and cells have no source
  c.heap.hold(made);
  push(f, made);
}

// ----------------------------------------------------------------------------- with and exceptions

void before_with(Capture& c, TracedFrame& f, const Instruction&) {
  py::object manager = pop(f);
  PyTypeObject* type = Py_TYPE(manager.ptr());
  for (PyObject* method : {names().enter_, names().exit_}) {
    if (c.effects.lookup(type, method) != nullptr) continue;
    c.objects.type_member(type, method);
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol%s",
                 type->tp_name, method == names().exit_ ? " (missed __exit__ method)" : "");
    throw py::error_already_set();
  }
  py::object exit = c.objects.load_attr(manager, names().exit_),
             enter = c.objects.load_attr(manager, names().enter_);
  push(f, exit);
  push(f, c.calls.call(enter, {}));
}

void with_except_start(Capture& c, TracedFrame& f, const Instruction&) {
  py::object value = peek(f, 1);
  push(f, c.calls.call(peek(f, 4), {borrow((PyObject*)Py_TYPE(value.ptr())), value,
                                    c.frames.traceback_of(value)}));
}

void push_exc_info(Capture&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  push(f, f.handled.empty() ? py::none() : f.handled.back().exception);
  f.handled.push_back({f.stack.size() - 1, value});
  PyErr_SetHandledException(value.ptr());
  push(f, value);
}

void check_exc_match(Capture&, TracedFrame& f, const Instruction&) {
  py::object type = pop(f);
  const py::tuple types = PyTuple_Check(type.ptr()) ? py::tuple(type) : py::make_tuple(type);
  for (py::handle one : types)
    if (!PyExceptionClass_Check(one.ptr()))
      throw Break(BreakId::instruction, "except of what is no exception");
  push(f, py::bool_(PyErr_GivenExceptionMatches(peek(f, 1).ptr(), type.ptr()) != 0));
}

void prep_reraise_star(Capture& c, TracedFrame& f, const Instruction&) {
  const py::object raised = pop(f), group = pop(f);
  push(f, c.frames.left_of_group(group, raised));
}

void pop_except(Capture&, TracedFrame& f, const Instruction&) {
  pop(f);
  f.handled.pop_back();
  PyErr_SetHandledException(
      (f.handled.empty() ? f.handled_outside : f.handled.back().exception).ptr());
}

void raise_varargs(Capture& c, TracedFrame& f, const Instruction& i) {
  if (i.arg == 0) {
    if (const auto handled = owned(PyErr_GetHandledException())) reraise_value(handled);
    throw Break(BreakId::instruction, "raise without an exception");
  }
  py::object cause = i.arg == 2 ? pop(f) : py::object(), value = instance_of(c, pop(f));
  if (!PyExceptionInstance_Check(value.ptr()))
    throw Break(BreakId::instruction, "raise of what is no exception");
  if (PyErr_GivenExceptionMatches(value.ptr(), PyExc_KeyboardInterrupt))
    throw Break(BreakId::instruction, "raise of KeyboardInterrupt");
  if (c.heap.exists(value))
    throw Break(BreakId::instruction, "raise of an exception that was there before");
  if (cause && !cause.is_none()) {
    cause = instance_of(c, cause);
    if (!PyExceptionInstance_Check(cause.ptr()))
      throw Break(BreakId::instruction, "raise from what is no exception");
  }
  if (cause) PyException_SetCause(value.ptr(), cause.is_none() ? nullptr : cause.release().ptr());
  raise_value(value);
}

}  // namespace instructions
}  // namespace oxy::python
