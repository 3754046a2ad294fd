// The instructions of jumps, iterators, calls, with statements and exceptions.
#include "python/capture/instructions.h"
#include "python/capture/names.h"
#include "python/capture/value_stack.h"
#include "python/cpython/opcodes.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxRounds = 2'000;  // of a loop with tensors

void jump_to_target(TracedFrame& f, const Instruction& i) {
  f.next = static_cast<size_t>(i.target);
}

void jump_or_pop(TracedFrame& f, const Instruction& i, bool jumps) {
  if (jumps)
    jump_to_target(f, i);
  else
    pop(f);
}

// An exception of the captured code's, where a class stands for one without arguments.
py::object instance_of(Tracer& t, const py::object& o) {
  return PyExceptionClass_Check(o.ptr()) ? t.call(o, {}) : o;
}

[[noreturn]] void raise_what_is_handled() {
  py::object value = py::reinterpret_steal<py::object>(PyErr_GetHandledException());
  if (!value) throw Break(BreakId::instruction, "raise without an exception");
  reraise_value(value);
}

[[noreturn]] void no_context_manager(PyTypeObject* type, bool exit) {
  PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol%s",
               type->tp_name, exit ? " (missed __exit__ method)" : "");
  throw py::error_already_set();
}

}  // namespace

namespace instructions {

// --------------------------------------------------------------------------------------------------- jumps and iterators

void jump(Tracer&, TracedFrame& f, const Instruction& i) { jump_to_target(f, i); }

void jump_counted(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (++f.rounds[f.next - 1] > kMaxRounds && t.ir->graph.order().size() > kMaxRounds)
    throw Break(BreakId::long_loop, cat(kMaxRounds, " rounds were captured"));
  jump_to_target(f, i);
}

void pop_jump_if_true(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (t.truth(pop(f))) jump_to_target(f, i);
}

void pop_jump_if_false(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (!t.truth(pop(f))) jump_to_target(f, i);
}

void pop_jump_if_none(Tracer&, TracedFrame& f, const Instruction& i) {
  if (pop(f).is_none()) jump_to_target(f, i);
}

void pop_jump_if_not_none(Tracer&, TracedFrame& f, const Instruction& i) {
  if (!pop(f).is_none()) jump_to_target(f, i);
}

void jump_if_true_or_pop(Tracer& t, TracedFrame& f, const Instruction& i) {
  jump_or_pop(f, i, t.truth(peek(f, 1)));
}

void jump_if_false_or_pop(Tracer& t, TracedFrame& f, const Instruction& i) {
  jump_or_pop(f, i, !t.truth(peek(f, 1)));
}

void get_iter(Tracer& t, TracedFrame& f, const Instruction&) {
  py::object o = pop(f);
  push(f, t.iterate(o));
}

void for_iter(Tracer& t, TracedFrame& f, const Instruction& i) {
  f.loops.try_emplace(f.next - 1, f.step);
  const uint8_t next = f.bytecode->instructions[f.next].op;
  if (next == UNPACK_SEQUENCE || next == STORE_FAST) t.takes_ = Tracer::Takes::Unread;
  py::object item = t.iter_next(peek(f, 1));
  t.takes_ = Tracer::Takes::Read;
  if (item) return push(f, item);
  pop(f);
  jump_to_target(f, i);
}

void send(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object sent = pop(f), inner = peek(f, 1), item;
  if (sent.is_none())
    item = t.iter_next(inner);
  else if (Tracer::LazyIterator* l = t.lazy(inner); l && l->frame)
    item = t.resume_generator(*l, sent, {});
  else
    throw Break(BreakId::instruction, "send to an iterator that is no generator");
  if (item) return push(f, item);
  if (!kSendKeepsIterator) pop(f);
  push(f, t.returned_);
  jump_to_target(f, i);
}

void end_send(Tracer&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  peek(f, 1) = value;
}

// An exception came out of the iterator that `yield from` was waiting for.
void cleanup_throw(Tracer&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  if (!PyErr_GivenExceptionMatches(value.ptr(), PyExc_StopIteration)) raise_value(value);
  pop_many(f, 2);
  push(f, py::none());
  push(f, value.attr("value"));
}

void return_generator(Tracer&, TracedFrame& f, const Instruction&) {
  push(f, py::none());  // the caller made the generator
}

void yield_value(Tracer&, TracedFrame& f, const Instruction&) {
  f.result = pop(f);
  f.yielded = true;
}

void return_value(Tracer&, TracedFrame& f, const Instruction&) { f.result = pop(f); }

void return_const(Tracer&, TracedFrame& f, const Instruction& i) {
  f.result = borrow(PyTuple_GET_ITEM(f.code->co_consts, i.arg));
}

// ----------------------------------------------------------------------------------------------- calls and functions

void kw_names(Tracer&, TracedFrame& f, const Instruction& i) {
  f.kwnames = borrow(PyTuple_GET_ITEM(f.code->co_consts, i.arg));
}

void call(Tracer& t, TracedFrame& f, const Instruction& i) {
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
  t.direct_ = true;
  push(f, t.call(callable, std::move(args), std::move(kwargs)));
}

void call_function_ex(Tracer& t, TracedFrame& f, const Instruction& i) {
  Keywords kwargs;
  if (i.arg & 1) {
    py::object held = pop(f);
    if (t.is_packed(held))
      kwargs = t.unpack_named(held);
    else
      for (auto item : py::reinterpret_borrow<py::dict>(t.contents(held)))
        kwargs.emplace_back(borrow(item.first.ptr()), borrow(item.second.ptr()));
  }
  const py::object given = pop(f);
  Arguments args;
  if (t.is_packed(given))
    args = t.unpack_numbers(given);
  else
    for (py::handle a : t.list_of(given)) args.push_back(borrow(a.ptr()));
  py::object callable = pop(f);
  pop(f);  // the null below
  t.direct_ = true;
  push(f, t.call(callable, std::move(args), std::move(kwargs)));
}

void make_function(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object code = pop(f);
  auto* outer = reinterpret_cast<PyFunctionObject*>(f.function.ptr());
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
  t.known_[made.ptr()];  // made here: its defaults and cells have no source
  t.held_.push_back(made);
  push(f, made);
}

// -------------------------------------------------------------------------------------------------- with and exceptions

void before_with(Tracer& t, TracedFrame& f, const Instruction&) {
  py::object manager = pop(f);
  for (PyObject* method : {names().enter_, names().exit_}) {
    if (t.lookup(Py_TYPE(manager.ptr()), method) != nullptr) continue;
    t.type_member(Py_TYPE(manager.ptr()), method);
    no_context_manager(Py_TYPE(manager.ptr()), method == names().exit_);
  }
  py::object exit = t.load_attr(manager, names().exit_),
             enter = t.load_attr(manager, names().enter_);
  push(f, exit);
  push(f, t.call(enter, {}));
}

void with_except_start(Tracer& t, TracedFrame& f, const Instruction&) {
  py::object value = peek(f, 1);
  push(f,
       t.call(peek(f, 4), {borrow((PyObject*)Py_TYPE(value.ptr())), value, t.traceback_of(value)}));
}

void push_exc_info(Tracer&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  push(f, f.handled.empty() ? py::none() : f.handled.back().exception);
  f.handled.push_back({f.stack.size() - 1, value});
  PyErr_SetHandledException(value.ptr());
  push(f, value);
}

void check_exc_match(Tracer&, TracedFrame& f, const Instruction&) {
  py::object type = pop(f);
  const py::tuple types = PyTuple_Check(type.ptr()) ? py::tuple(type) : py::make_tuple(type);
  for (py::handle one : types)
    if (!PyExceptionClass_Check(one.ptr()))
      throw Break(BreakId::instruction, "except of what is no exception");
  push(f, py::bool_(PyErr_GivenExceptionMatches(peek(f, 1).ptr(), type.ptr()) != 0));
}

void check_eg_match(Tracer& t, TracedFrame& f, const Instruction&) { t.match_group(f); }

void prep_reraise_star(Tracer& t, TracedFrame& f, const Instruction&) {
  const py::object raised = pop(f), group = pop(f);
  push(f, t.left_of_group(group, raised));
}

void pop_except(Tracer&, TracedFrame& f, const Instruction&) {
  pop(f);
  f.handled.pop_back();
  PyErr_SetHandledException(
      (f.handled.empty() ? f.handled_outside : f.handled.back().exception).ptr());
}

void reraise(Tracer&, TracedFrame& f, const Instruction&) { reraise_value(pop(f)); }

void raise_varargs(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (i.arg == 0) raise_what_is_handled();
  py::object cause = i.arg == 2 ? pop(f) : py::object(), value = instance_of(t, pop(f));
  if (!PyExceptionInstance_Check(value.ptr()))
    throw Break(BreakId::instruction, "raise of what is no exception");
  if (PyErr_GivenExceptionMatches(value.ptr(), PyExc_KeyboardInterrupt))
    throw Break(BreakId::instruction, "raise of KeyboardInterrupt");
  if (t.exists(value))
    throw Break(BreakId::instruction, "raise of an exception that was there before");
  if (cause && !cause.is_none()) {
    cause = instance_of(t, cause);
    if (!PyExceptionInstance_Check(cause.ptr()))
      throw Break(BreakId::instruction, "raise from what is no exception");
  }
  if (cause) PyException_SetCause(value.ptr(), cause.is_none() ? nullptr : cause.release().ptr());
  raise_value(value);
}

}  // namespace instructions
}  // namespace oxy::python
