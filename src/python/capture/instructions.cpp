// The instructions of CPython 3.11 and 3.12: the table of handlers, and those of the stack, of locals, names and attributes.
#include "python/capture/instructions.h"

#include <array>

#include "python/capture/value_stack.h"
#include "python/cpython/locals.h"
#include "python/cpython/opcodes.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxSteps = 2'000'000;

using Handler = void (*)(Tracer&, TracedFrame&, const Instruction&);

constexpr std::array<Handler, 256> kHandlers = [] {
  std::array<Handler, 256> table{};
  auto add = [&](size_t opcode, Handler handler) {
    if (table.at(opcode) != nullptr) throw std::logic_error("an opcode with two handlers");
    table.at(opcode) = handler;
  };
#define OXY_INSTRUCTION(opcode, handler) add(opcode, instructions::handler);
#include "python/capture/instructions.def"
#undef OXY_INSTRUCTION
  return table;
}();

[[noreturn]] void unbound(const TracedFrame& f, uint32_t slot) {
  PyErr_Format(PyExc_UnboundLocalError,
               "cannot access local variable '%U' where it is not associated with a value",
               PyTuple_GET_ITEM(f.code->co_localsplusnames, slot));
  throw py::error_already_set();
}

py::handle name_of_slot(const TracedFrame& f, uint32_t slot) {
  return PyTuple_GET_ITEM(f.code->co_localsplusnames, slot);
}

// What stands in a cell or free variable.
void push_deref(Tracer& t, TracedFrame& f, uint32_t slot) {
  t.takes_ = t.taken_by_next(f);
  py::object value = t.read_cell(f.fast[slot]);
  if (!value) {
    if (local_kind(f.code, static_cast<int>(slot)) != kFree) unbound(f, slot);
    name_error(name_of_slot(f, slot),
               "cannot access free variable '%U' where it is not associated with a value in "
               "enclosing scope");
  }
  push(f, value);
}

// A name of a class's body, then of the functions around it.
void push_deref_or(Tracer& t, TracedFrame& f, uint32_t slot, const py::object& names) {
  if (py::object found = name_in(names, name_of_slot(f, slot)))
    push(f, found);
  else
    push_deref(t, f, slot);
}

}  // namespace

py::object operator_named(const char* name) {
  static const py::object& module = *new py::object(py::module_::import("operator"));
  return module.attr(name);
}

py::object builtin_named(const char* name) {
  static const py::object& module = *new py::object(py::module_::import("builtins"));
  return module.attr(name);
}

py::handle name_in_code(const TracedFrame& f, const Instruction& i) {
  return PyTuple_GET_ITEM(f.code->co_names, name_index(i.op, i.arg));
}

void name_error(py::handle name, const char* format) {
  const py::object text = steal(PyUnicode_FromFormat(format, name.ptr()));
  const py::object error = py::handle(PyExc_NameError)(text);
  error.attr("name") = name;  // what the interpreter's suggestions go by
  PyErr_SetObject(PyExc_NameError, error.ptr());
  throw py::error_already_set();
}

void execute(Tracer& t, TracedFrame& f, const Instruction& i) {
  const Handler handler = kHandlers[plain_opcode(i.op, i.arg)];
  if (handler == nullptr) throw Break(BreakId::instruction, cat("opcode ", static_cast<int>(i.op)));
  handler(t, f, i);
}

// One instruction.
void Tracer::instruction(TracedFrame& f) {
  if (++steps_ > kMaxSteps) throw Break(BreakId::too_long, "");
  if (PyErr_CheckSignals() != 0) throw Interrupted();
  const Instruction& i = f.bytecode->instructions[f.next++];
  takes_ = Takes::Read;
  execute(*this, f, i);
}

namespace instructions {

void nothing(Tracer&, TracedFrame&, const Instruction&) {}

void copy_free_vars(Tracer& t, TracedFrame& f, const Instruction& i) {
  auto* function = reinterpret_cast<PyFunctionObject*>(f.function.ptr());
  const bool fresh = t.known(f.function) && !t.known(f.function)->source.valid();
  const size_t first = f.fast.size() - i.arg;
  for (size_t k = 0; k < i.arg; k++) {
    PyObject* cell = PyTuple_GET_ITEM(function->func_closure, k);
    f.fast[first + k] = borrow(cell);
    if (fresh) continue;
    Tracer::Known& known_cell = t.known_[cell];
    if (!known_cell.source.valid())
      known_cell.source =
          t.sources.closure(t.function_source(f.function, "F"), static_cast<int64_t>(k));
    t.held_.push_back(borrow(cell));
  }
}

void pop_top(Tracer&, TracedFrame& f, const Instruction&) { pop(f); }

void push_null(Tracer&, TracedFrame& f, const Instruction&) { push(f, {}); }

void copy(Tracer&, TracedFrame& f, const Instruction& i) {
  push(f, peek(f, i.arg));
  if (!f.handled.empty() && f.handled.back().place + 1 + i.arg == f.stack.size()) {
    f.stack[f.handled.back().place] = py::none();  // POP_EXCEPT takes the copy
    f.handled.back().place = f.stack.size() - 1;
  }
}

void swap(Tracer&, TracedFrame& f, const Instruction& i) {
  std::swap(peek(f, 1), peek(f, i.arg));
  const size_t top = f.stack.size() - 1, other = f.stack.size() - i.arg;
  if (f.handled.empty()) return;
  size_t& place = f.handled.back().place;
  place = place == top ? other : place == other ? top : place;
}

void load_const(Tracer& t, TracedFrame& f, const Instruction& i) {
  PyObject* constant = PyTuple_GET_ITEM(f.code->co_consts, i.arg);
  if (PyTuple_CheckExact(constant)) t.fixed_.insert(constant);
  push(f, borrow(constant));
}

void load_assertion_error(Tracer&, TracedFrame& f, const Instruction&) {
  push(f, borrow(PyExc_AssertionError));
}

void load_fast(Tracer&, TracedFrame& f, const Instruction& i) {
  if (!f.fast[i.arg]) unbound(f, i.arg);
  push(f, f.fast[i.arg]);
}

void load_closure(Tracer&, TracedFrame& f, const Instruction& i) { push(f, f.fast[i.arg]); }

void load_fast_and_clear(Tracer&, TracedFrame& f, const Instruction& i) {
  push(f, std::exchange(f.fast[i.arg], py::object()));
}

void store_fast(Tracer&, TracedFrame& f, const Instruction& i) { f.fast[i.arg] = pop(f); }

void delete_fast(Tracer&, TracedFrame& f, const Instruction& i) {
  if (!f.fast[i.arg]) unbound(f, i.arg);
  f.fast[i.arg] = py::object();
}

void make_cell(Tracer& t, TracedFrame& f, const Instruction& i) {
  f.fast[i.arg] = steal(PyCell_New(f.fast[i.arg].ptr()));
  t.held_.push_back(f.fast[i.arg]);
}

void load_build_class(Tracer& t, TracedFrame& f, const Instruction&) {
  push(f, t.load_build_class(f));
}

void load_locals(Tracer&, TracedFrame& f, const Instruction&) {
  if (!f.names) throw Break(BreakId::instruction, "the names of a scope that is no class");
  push(f, f.names);
}

void load_name(Tracer& t, TracedFrame& f, const Instruction& i) {
  push(f, t.load_name(f, name_in_code(f, i)));
}

void store_name(Tracer& t, TracedFrame& f, const Instruction& i) {
  t.store_name(f, name_in_code(f, i), pop(f));
}

void delete_name(Tracer& t, TracedFrame& f, const Instruction& i) {
  t.store_name(f, name_in_code(f, i), {});
}

void setup_annotations(Tracer& t, TracedFrame& f, const Instruction&) {
  if (!name_in(f.names, py::str("__annotations__")))
    t.store_name(f, py::str("__annotations__"), py::dict());
}

void load_from_dict_or_globals(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object found = name_in(pop(f), name_in_code(f, i));
  push(f, found ? found : t.load_global(f, name_in_code(f, i)));
}

void load_deref(Tracer& t, TracedFrame& f, const Instruction& i) { push_deref(t, f, i.arg); }

void load_from_dict_or_deref(Tracer& t, TracedFrame& f, const Instruction& i) {
  push_deref_or(t, f, i.arg, pop(f));
}

void load_classderef(Tracer& t, TracedFrame& f, const Instruction& i) {
  push_deref_or(t, f, i.arg, f.names);
}

void store_deref(Tracer& t, TracedFrame& f, const Instruction& i) {
  t.write_cell(f.fast[i.arg], pop(f));
}

void delete_deref(Tracer& t, TracedFrame& f, const Instruction& i) {
  t.write_cell(f.fast[i.arg], {});
}

void load_global(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (i.arg & 1) push(f, {});
  t.takes_ = t.taken_by_next(f);
  push(f, t.load_global(f, name_in_code(f, i)));
}

void store_global(Tracer& t, TracedFrame& f, const Instruction& i) {
  t.dict_write(t.globals_of(f), name_in_code(f, i), pop(f));
}

void delete_global(Tracer& t, TracedFrame& f, const Instruction& i) {
  if (!t.dict_has(t.globals_of(f), name_in_code(f, i))) name_error(name_in_code(f, i));
  t.dict_delete(t.globals_of(f), name_in_code(f, i));
}

void load_attr(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f);
  if (loads_method(i.op, i.arg))
    push(f, {});
  else
    t.takes_ = t.taken_by_next(f);
  push(f, t.load_attr(o, name_in_code(f, i)));
}

void load_super_attr(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object self = pop(f), type = pop(f), super = pop(f);
  if (loads_method(i.op, i.arg)) push(f, {});
  push(f, t.load_attr(t.call(super, {type, self}), name_in_code(f, i)));
}

void store_attr(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f), v = pop(f);
  t.store_attr(o, name_in_code(f, i), v);
}

void delete_attr(Tracer& t, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f);
  t.store_attr(o, name_in_code(f, i), {});
}

void import_name(Tracer&, TracedFrame& f, const Instruction& i) {
  const py::object from = pop(f), level = pop(f);
  const py::handle name = name_in_code(f, i);
  if (level.cast<int>() == 0 &&
      !py::dict(py::module_::import("sys").attr("modules")).contains(name))
    throw Break(BreakId::side_effect, cat("the first import of ", name.cast<std::string>()));
  auto* function = reinterpret_cast<PyFunctionObject*>(f.function.ptr());
  push(f, steal(PyImport_ImportModuleLevelObject(name.ptr(), function->func_globals, nullptr,
                                                 from.ptr(), level.cast<int>())));
}

void import_from(Tracer& t, TracedFrame& f, const Instruction& i) {
  push(f, t.load_attr(peek(f, 1), name_in_code(f, i)));
}

}  // namespace instructions
}  // namespace oxy::python
