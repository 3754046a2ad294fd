// The instructions of jumps, iterators, calls, with statements and exceptions.
#include "python/capture/instructions.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxRounds = 2'000;  // of a loop with tensors

// A part of a function that is made here: its defaults, those of keywords, annotations, closure.
void set_part(py::handle function, uint32_t bit, py::object part) {
  if (bit == 4 && PyTuple_Check(part.ptr())) {
    py::dict annotations;
    for (Py_ssize_t k = 0; k + 1 < PyTuple_GET_SIZE(part.ptr()); k += 2)
      annotations[py::handle(PyTuple_GET_ITEM(part.ptr(), k))] =
          py::handle(PyTuple_GET_ITEM(part.ptr(), k + 1));
    part = annotations;
  }
  const auto set = bit == 8   ? PyFunction_SetClosure
                   : bit == 4 ? PyFunction_SetAnnotations
                   : bit == 2 ? PyFunction_SetKwDefaults
                              : PyFunction_SetDefaults;
  check(set(function.ptr(), part.ptr()));
}

// An exception of the captured code's, where a class stands for one without arguments.
py::object instance_of(Capture& c, const py::object& o) {
  return PyExceptionClass_Check(o.ptr()) ? c.calls.call(o, {}) : o;
}

// The keywords of a call, whose values are its last arguments.
Keywords take_keywords(Arguments& args, const py::object& names) {
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(names.ptr()));
  Keywords out;
  for (size_t k = 0; k < n; k++)
    out.emplace_back(borrow(PyTuple_GET_ITEM(names.ptr(), k)), args[args.size() - n + k]);
  args.resize(args.size() - n);
  return out;
}

// Where the next instruction calls this function, on top of the stack, with what is pushed now; 0:
// it does not.
size_t call_of(const TracedFrame& f, const py::object& function) {
  const auto& code = f.bytecode->instructions;
  const size_t at = f.next + (code[f.next].op == PRECALL ? 1 : 0);
  const bool calls = code[at].op == CALL || code[at].op == CALL_FUNCTION;
  if (!calls || code[at].arg != 1 || f.stack.size() < (kCallsTakeNull ? 2 : 1)) return 0;
  const auto [callable, self] = callee_below(f, f.stack.size());
  return callable && !self && callable.is(function) ? at : 0;
}

// Whether what is pushed now is what a tensor on the stack is indexed with, or the last part of it.
bool becomes_index(Capture& c, const TracedFrame& f) {
  const auto& code = f.bytecode->instructions;
  const bool in_tuple = code[f.next].op == BUILD_TUPLE;
  const size_t parts = in_tuple ? static_cast<size_t>(code[f.next].arg) : 1;
  const int op = code[f.next + (in_tuple ? 1 : 0)].op;
  return (op == BINARY_SUBSCR || op == STORE_SUBSCR) && parts > 0 && f.stack.size() >= parts &&
         c.heap.is_tensor(f.stack[f.stack.size() - parts]);
}

// What the code makes at once of a range of sizes, without the numbers in it: a loop, an index, its
// length or sum, a test of membership. False where that is something else.
bool use_range(Capture& c, TracedFrame& f, const Arguments& args) {
  const Instruction& next = f.bytecode->instructions[f.next];
  if (next.op == GET_ITER) {
    const py::object rounds = c.sizes.rounds(args);
    if (rounds) push(f, rounds);
    return static_cast<bool>(rounds);
  }
  if (next.op == CONTAINS_OP && !f.stack.empty()) {
    const auto found = c.sizes.is_in_range(f.stack.back(), args);
    if (!found) return false;
    pop_many(f, 1);
    f.next++;
    push(f, py::bool_(*found != (next.arg != 0)));
    return true;
  }
  if (becomes_index(c, f)) {
    const py::object index = c.sizes.range_tensor(args);
    if (index) push(f, index);
    return static_cast<bool>(index);
  }
  const size_t length = call_of(f, member_of<"builtins", "len">());
  const size_t sum = call_of(f, member_of<"builtins", "sum">());
  if (length == 0 && sum == 0) return false;
  py::object number = length != 0 ? c.sizes.count(args) : c.sizes.sum_of_range(args);
  if (!number) return false;
  pop_many(f, kCallsTakeNull ? 2 : 1);
  f.next = std::max(length, sum) + 1;
  push(f, std::move(number));
  return true;
}

// Calls what lies below the arguments, which are popped already.
void call_popped(Capture& c, TracedFrame& f, bool has_self, Arguments args, Keywords kwargs) {
  const auto [callable, self] = callee_below(f, f.stack.size(), has_self);
  pop_many(f, has_self ? 2 : 1);
  if (self) args.insert(args.begin(), self);
  if (callable.is(type_object(&PyRange_Type)) && kwargs.empty() &&
      std::ranges::any_of(args, is_symbolic_int) && use_range(c, f, args))
    return;
  if (kwargs.empty())
    if (py::object text = c.numbers.text_of_call(callable, args)) return push(f, std::move(text));
  c.frames.direct = true;
  push(f, c.calls.call(callable, std::move(args), std::move(kwargs)));
}

// What an iterator yields next; null at its end.
py::object sent_to(Capture& c, py::object inner, const py::object& sent) {
  if (sent.is_none()) return c.iterators.iter_next(inner);
  if (LazyIterator* l = c.iterators.lazy(inner); l && l->frame)
    return c.iterators.resume_generator(*l, sent, {});
  throw Break(BreakId::instruction, "send to an iterator that is no generator");
}

// Whether the code from an instruction on raises, with nothing in between that is decided. Not the
// end of an iteration, which is no error.
bool leads_to_raise(const TracedFrame& f, size_t at) {
  const auto& code = f.bytecode->instructions;
  for (; at < code.size() && code[at].op != RAISE_VARARGS; at++) {
    if (code[at].op == JUMP_FORWARD) {
      at = static_cast<size_t>(code[at].target) - 1;
      continue;
    }
    if (!falls_through(code[at].op) || is_jump(code[at].op) || code[at].op == YIELD_VALUE)
      return false;
    if (code[at].op == LOAD_GLOBAL &&
        is_text(PyTuple_GET_ITEM(f.code->co_names, name_index(LOAD_GLOBAL, code[at].arg)),
                "StopIteration"))
      return false;
  }
  return at < code.size();
}

// The checks of arguments to distributions give back what does not hold, for others to raise.
bool is_of_constraints(const TracedFrame& f) {
  return written_in(as_function(f.function)) == "torch.distributions.constraints";
}

void require_exception_classes(const py::object& type) {
  const py::tuple types = PyTuple_Check(type.ptr()) ? py::tuple(type) : py::make_tuple(type);
  for (py::handle one : types)
    if (!PyExceptionClass_Check(one.ptr()))
      throw Break(BreakId::instruction, "except of what is no exception");
}

// Of an exception, or of its class, which 3.10 asks about.
bool is_of_exception_class(Capture& c, const py::object& raised, const py::object& type) {
  require_exception_classes(type);
  const py::object own = PyExceptionClass_Check(raised.ptr()) ? raised : py::type::of(raised);
  if (!own.is(type)) c.classes.guard_bases(as_type(own));
  return PyErr_GivenExceptionMatches(raised.ptr(), type.ptr()) != 0;
}

}  // namespace

// A loop that only an exception ends would be unrolled without end.
constexpr size_t kMostAssumed = 256;

bool decided(Capture& c, TracedFrame& f, const Instruction& i, bool jumps) {
  const py::object o = pop(f);
  const bool of_tensor = c.heap.is_tensor(o) && !c.numbers.truth_of_state(o) &&
                         !c.numbers.use_number(o) && !c.sizes.number_in_argument(o);
  const bool of_data = c.numbers.is_of_data(o);
  if ((of_tensor || of_data || is_symbolic_bool(o)) && f.assumed < kMostAssumed) {
    const bool there = leads_to_raise(f, static_cast<size_t>(i.target));
    const bool checks = is_of_constraints(f);
    const bool truth = checks || (there ? !jumps : jumps);
    auto assume = [&] {
      return of_data     ? c.numbers.assume_number(o, truth)
             : of_tensor ? c.numbers.assume_truth(o, truth)
                         : c.sizes.assume(o, truth);
    };
    if ((checks || there != leads_to_raise(f, f.next)) && assume()) {
      f.assumed++;
      return truth;
    }
  }
  return c.objects.truth(o);
}

namespace instructions {

// ----------------------------------------------------------------------------- jumps and iterators

void jump_counted(Capture& c, TracedFrame& f, const Instruction& i) {
  if (++f.rounds[f.next - 1] > kMaxRounds && c.graphs.ir->graph.order().size() > kMaxRounds)
    throw Break(BreakId::long_loop, kMaxRounds, " rounds were captured");
  jump_if(f, i, true);
}

// What takes a bool asks for the value's truth itself: a graph break stands there, as in versions
// without this instruction.
void to_bool(Capture& c, TracedFrame& f, const Instruction&) {
  if (takes_bool(f.bytecode->instructions[f.next].op)) return;
  push(f, py::bool_(c.objects.truth(pop(f))));
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
  const py::object sent = pop(f), item = sent_to(c, peek(f, 1), sent);
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

// SEND and YIELD_VALUE in one: what comes back from the yield is sent on.
void yield_from(Capture& c, TracedFrame& f, const Instruction&) {
  const py::object sent = pop(f), item = sent_to(c, peek(f, 1), sent);
  if (!item) {
    peek(f, 1) = c.iterators.returned();
    return;
  }
  f.result = item;
  f.yielded = true;
  f.next--;
}

void yield_value(Capture&, TracedFrame& f, const Instruction&) {
  f.result = pop(f);
  f.yielded = true;
}

// ----------------------------------------------------------------------------- calls and functions

void call(Capture& c, TracedFrame& f, const Instruction& i) {
  Arguments args = pop_many(f, i.arg);
  Keywords kwargs;
  if (f.kwnames) kwargs = take_keywords(args, std::exchange(f.kwnames, {}));
  call_popped(c, f, true, std::move(args), std::move(kwargs));
}

void call_function(Capture& c, TracedFrame& f, const Instruction& i) {
  call_popped(c, f, false, pop_many(f, i.arg), {});
}

void call_kw(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object names = pop(f);
  Arguments args = pop_many(f, i.arg);
  Keywords kwargs = take_keywords(args, names);
  call_popped(c, f, kCallsTakeNull, std::move(args), std::move(kwargs));
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
    for (py::handle a : c.iterators.list_of(given, true)) args.push_back(borrow(a));
  call_popped(c, f, kCallsTakeNull, std::move(args), std::move(kwargs));
}

void make_function(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object name = kHasQualifiedNames ? py::object() : pop(f);
  py::object code = pop(f);
  auto* outer = as_function(f.function);
  py::object made = steal(PyFunction_NewWithQualName(code.ptr(), outer->func_globals, name.ptr()));
  for (const uint32_t bit : {8U, 4U, 2U, 1U})
    if (i.arg & bit) set_part(made, bit, pop(f));
  const auto& next = f.bytecode->instructions;
  while (next[f.next].op == SET_FUNCTION_ATTRIBUTE) set_part(made, next[f.next++].arg, pop(f));
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
    if (!kNamesContextProtocol) raise_with(PyExc_AttributeError, borrow(method));
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
  py::object value = peek(f, kHasBlocks ? 2 : 1), exit = peek(f, kHasBlocks ? 7 : 4);
  push(f, c.calls.call(exit, {borrow((PyObject*)Py_TYPE(value.ptr())), value,
                              c.frames.traceback_of(value)}));
}

void push_exc_info(Capture&, TracedFrame& f, const Instruction&) {
  py::object value = pop(f);
  push(f, f.handled.empty() ? py::none() : f.handled.back().exception);
  f.handled.push_back({f.stack.size() - 1, value});
  set_handled_exception(value.ptr());
  push(f, value);
}

void check_exc_match(Capture& c, TracedFrame& f, const Instruction&) {
  py::object type = pop(f);
  push(f, py::bool_(is_of_exception_class(c, peek(f, 1), type)));
}

void jump_if_not_exc_match(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object type = pop(f), raised = pop(f);
  jump_if(f, i, !is_of_exception_class(c, raised, type));
}

// In 3.10 with its class above and its traceback below.
void reraise(Capture& c, TracedFrame& f, const Instruction&) {
  if (kHasBlocks) pop(f);
  const py::object value = pop(f);
  if (kHasBlocks) pop(f);
  c.frames.raise_again(value);
}

void prep_reraise_star(Capture& c, TracedFrame& f, const Instruction&) {
  const py::object raised = pop(f), group = pop(f);
  push(f, c.frames.left_of_group(group, raised));
}

void pop_except(Capture&, TracedFrame& f, const Instruction&) {
  pop_many(f, kHasBlocks ? 3 : 1);
  f.handled.pop_back();
  set_handled_exception((f.handled.empty() ? f.handled_outside : f.handled.back().exception).ptr());
}

void raise_varargs(Capture& c, TracedFrame& f, const Instruction& i) {
  if (i.arg == 0) {
    if (const auto handled = owned(handled_exception())) c.frames.raise_again(handled);
    throw Break(BreakId::instruction, "raise without an exception");
  }
  py::object cause = i.arg == 2 ? pop(f) : py::object(), value = instance_of(c, pop(f));
  if (!PyExceptionInstance_Check(value.ptr()))
    throw Break(BreakId::instruction, "raise of what is no exception");
  if (PyErr_GivenExceptionMatches(value.ptr(), PyExc_KeyboardInterrupt))
    throw Break(BreakId::instruction, "raise of KeyboardInterrupt");
  const auto is_same = [&](const TracedFrame::Handled& h) { return h.exception.is(value); };
  if (kHasBlocks && c.heap.exists(value) && std::ranges::any_of(f.handled, is_same))
    throw Break(BreakId::frame_access, "the traceback that an exception was caught with");
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
