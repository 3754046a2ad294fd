// Instructions: the table of handlers, and those of the stack, of locals, names and attributes.
#include "python/capture/instructions.h"

#include <array>
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/types.h"

namespace oxy::python {
namespace {

constexpr size_t kMaxSteps = 2'000'000;

py::handle name_of_slot(const TracedFrame& f, uint32_t slot) {
  return slot_name(f.code, static_cast<int>(slot));
}

// The name, or the constant, that the instruction's argument is the number of.
py::handle name_in_code(const TracedFrame& f, const Instruction& i) {
  return PyTuple_GET_ITEM(f.code->co_names, name_index(i.op, i.arg));
}

py::object constant_in_code(const TracedFrame& f, const Instruction& i) {
  return borrow(PyTuple_GET_ITEM(f.code->co_consts, i.arg));
}

[[noreturn]] void unbound(const TracedFrame& f, uint32_t slot) {
  PyErr_Format(PyExc_UnboundLocalError, kUnboundLocal, name_of_slot(f, slot).ptr());
  throw py::error_already_set();
}

// What stands in a cell or free variable.
void push_deref(Capture& c, TracedFrame& f, uint32_t slot) {
  c.numbers.takes = c.numbers.taken_by_next(f);
  py::object value = c.effects.read_cell(f.fast[slot]);
  if (!value) {
    if (local_kind(f.code, static_cast<int>(slot)) != kFree) unbound(f, slot);
    name_error(name_of_slot(f, slot), kUnboundFree);
  }
  push(f, value);
}

// A name of a class's body, then of the functions around it.
void push_deref_or(Capture& c, TracedFrame& f, uint32_t slot, const py::object& names) {
  if (py::object found = name_in(names, name_of_slot(f, slot)))
    push(f, found);
  else
    push_deref(c, f, slot);
}

// The name by which an import statement's module stands in sys.modules.
py::object absolute_name(Capture& c, const py::object& name, const py::object& level,
                         PyObject* globals) {
  if (level.cast<int>() == 0) return name;
  const py::module_ bootstrap = py::module_::import("importlib._bootstrap");
  const py::object dict = c.objects.existing_dict(globals, c.heap.sources.pinned(globals, "G"));
  const py::object package = c.effects.dict_get(dict, py::str("__package__"));
  if (!package || !PyUnicode_CheckExact(package.ptr()))
    throw Break(BreakId::side_effect, "a relative import outside of a package");
  return bootstrap.attr("_resolve_name")(name, package, level);
}

bool is_initializing(py::handle module) {
  const py::object spec = py::getattr(module, "__spec__", py::none());
  return py::cast<bool>(py::bool_(py::getattr(spec, "_initializing", py::bool_(false))));
}

// Runs the body of a module that nobody has imported; the capture starts again with it there. That
// comes before what the captured code writes, so nothing may be written yet.
[[noreturn]] void import_first(Capture& c, const py::object& name) {
  if (c.effects.count() == 0) {
    const RefusedFrames allowed(nullptr);
    try {
      py::module_::import(text(name).c_str());
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_Exception)) throw;
    }
    if (py::dict(borrow(PyImport_GetModuleDict())).contains(name)) throw StartAgain{};
  }
  throw Break(BreakId::side_effect, "the first import of ", text(name));
}

// The body of the module has run. One whose body runs is waited for by an import, and the thread
// that runs it may wait for this capture.
void require_imported(Capture& c, const py::object& name) {
  const py::dict modules(borrow(PyImport_GetModuleDict()));
  if (!modules.contains(name)) import_first(c, name);
  if (is_initializing(modules[name]))
    throw Break(BreakId::side_effect, "the first import of ", text(name));
}

// The same of `from package import item`, where that is a module.
void require_item(Capture& c, const py::object& package, py::handle item) {
  const py::dict modules(borrow(PyImport_GetModuleDict()));
  const py::object name = py::str("{}.{}").format(package, item), of = modules[package];
  if (modules.contains(name)) return require_imported(c, name);
  const bool may_be_module = PyModule_CheckExact(of.ptr()) && py::hasattr(of, "__path__") &&
                             !PyDict_Contains(PyModule_GetDict(of.ptr()), item.ptr());
  if (may_be_module && !is_text(item.ptr(), "*")) import_first(c, name);
}

void jump_or_pop(TracedFrame& f, const Instruction& i, bool jumps) {
  jump_if(f, i, jumps);
  if (!jumps) pop(f);
}

using Handler = void (*)(Capture&, TracedFrame&, const Instruction&);

constexpr std::array<Handler, 256> kHandlers = [] {
  std::array<Handler, 256> table{};
  auto add = [&](size_t opcode, Handler handler) {
    if (table.at(opcode) != nullptr) throw std::logic_error("an opcode with two handlers");
    table.at(opcode) = handler;
  };
#define OXY_INSTRUCTION(opcode, handler) add(opcode, instructions::handler);
#define OXY_STEP(opcode, statement)                                            \
  add(opcode, []([[maybe_unused]] Capture& c, [[maybe_unused]] TracedFrame& f, \
                 [[maybe_unused]] const Instruction& i) { statement; });
#include "python/capture/instructions.def"
#undef OXY_INSTRUCTION
#undef OXY_STEP
  return table;
}();

// sys.modules
py::object imported_modules(Capture& c) {
  const py::object modules = borrow(PyImport_GetModuleDict());
  return c.objects.existing_dict(modules, c.heap.sources.pinned(modules, "sys.modules"));
}

}  // namespace

void name_error(py::handle name, const char* format) {
  const py::object text = steal(PyUnicode_FromFormat(format, name.ptr()));
  const py::object error = py::handle(PyExc_NameError)(text);
  error.attr("name") = name;  // what the interpreter's suggestions go by
  raise_with(PyExc_NameError, error);
}

// One instruction.
void Frames::instruction(TracedFrame& f) {
  if (++steps_ > kMaxSteps) throw Break(BreakId::too_long, "");
  if (PyErr_CheckSignals() != 0) throw Interrupted();
  const Instruction& i = f.bytecode->instructions[f.next++];
  numbers().takes = Takes::Read;
  const Handler handler = kHandlers[plain_opcode(i.op, i.arg)];
  if (handler == nullptr) throw Break(BreakId::instruction, opcode_info(i.op).name, " ", i.arg);
  handler(capture_, f, i);
}

namespace instructions {

void copy_free_vars(Capture& c, TracedFrame& f, const Instruction& i) {
  auto* function = as_function(f.function);
  const bool fresh = c.heap.is_made_here(f.function);
  const size_t first = f.fast.size() - i.arg;
  for (size_t k = 0; k < i.arg; k++) {
    PyObject* cell = PyTuple_GET_ITEM(function->func_closure, k);
    f.fast[first + k] = borrow(cell);
    if (fresh) continue;
    Tracked& tracked_cell = c.heap.entry(cell);
    if (!tracked_cell.source.valid())
      tracked_cell.source =
          c.heap.sources.closure(c.heap.source_of(f.function, "F"), static_cast<int64_t>(k));
    c.heap.hold(borrow(cell));
  }
}

void copy(Capture&, TracedFrame& f, const Instruction& i) {
  push(f, peek(f, i.arg));
  if (!f.handled.empty() && f.handled.back().place + 1 + i.arg == f.stack.size()) {
    f.stack[f.handled.back().place] = py::none();  // POP_EXCEPT takes the copy
    f.handled.back().place = f.stack.size() - 1;
  }
}

void swap(Capture&, TracedFrame& f, const Instruction& i) {
  std::swap(peek(f, 1), peek(f, i.arg));
  const size_t top = f.stack.size() - 1, other = f.stack.size() - i.arg;
  if (f.handled.empty()) return;
  size_t& place = f.handled.back().place;
  place = place == top ? other : place == other ? top : place;
}

void rotate(Capture&, TracedFrame& f, const Instruction& i) {
  const uint32_t count = rotated_by(i.op, i.arg);
  std::rotate(f.stack.end() - count, f.stack.end() - 1, f.stack.end());
  const size_t top = f.stack.size() - 1, first = f.stack.size() - count;
  for (TracedFrame::Handled& h : f.handled)
    if (h.place >= first) h.place = h.place == top ? first : h.place + 1;
}

void duplicate_two(Capture&, TracedFrame& f, const Instruction&) {
  for (int i = 0; i < 2; i++) push(f, peek(f, 2));
}

void load_const(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object constant = constant_in_code(f, i);
  if (PyTuple_CheckExact(constant.ptr())) c.heap.fix(constant.ptr());
  push(f, std::move(constant));
}

void load_fast(Capture&, TracedFrame& f, const Instruction& i) {
  if (!f.fast[i.arg]) unbound(f, i.arg);
  push(f, f.fast[i.arg]);
}

void delete_fast(Capture&, TracedFrame& f, const Instruction& i) {
  if (!f.fast[i.arg]) unbound(f, i.arg);
  f.fast[i.arg] = py::object();
}

void make_cell(Capture& c, TracedFrame& f, const Instruction& i) {
  f.fast[i.arg] = steal(PyCell_New(f.fast[i.arg].ptr()));
  c.heap.hold(f.fast[i.arg]);
}

void load_locals(Capture&, TracedFrame& f, const Instruction&) {
  if (!f.names) throw Break(BreakId::instruction, "the names of a scope that is no class");
  push(f, f.names);
}

void setup_annotations(Capture& c, TracedFrame& f, const Instruction&) {
  if (!name_in(f.names, py::str("__annotations__")))
    c.classes.store_name(f, py::str("__annotations__"), py::dict());
}

void load_from_dict_or_globals(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object found = name_in(pop(f), name_in_code(f, i));
  push(f, found ? found : c.frames.load_global(f, name_in_code(f, i)));
}

void load_global(Capture& c, TracedFrame& f, const Instruction& i) {
  c.numbers.takes = c.numbers.taken_by_next(f);
  py::object found = c.frames.load_global(f, name_in_code(f, i));
  if (kGlobalsPushNull && (i.arg & 1)) return push_callable(f, std::move(found));
  push(f, std::move(found));
}

void delete_global(Capture& c, TracedFrame& f, const Instruction& i) {
  if (!c.effects.dict_has(c.frames.globals_of(f), name_in_code(f, i)))
    name_error(name_in_code(f, i));
  c.effects.dict_delete(c.frames.globals_of(f), name_in_code(f, i));
}

void load_attr(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f);
  const bool called = loads_method(i.op, i.arg);
  if (!called) c.numbers.takes = c.numbers.taken_by_next(f);
  py::object found = c.objects.load_attr(o, name_in_code(f, i));
  if (called) return push_callable(f, std::move(found));
  push(f, std::move(found));
}

void load_super_attr(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object self = pop(f), type = pop(f), super = pop(f);
  // What a module calls `super` finds its class and object for itself, as the real one can.
  const bool given = (i.arg & 2) != 0 || super.is(member_of<"builtins", "super">());
  const Arguments args = given ? Arguments{type, self} : Arguments{};
  py::object found = c.objects.load_attr(c.calls.call(super, args), name_in_code(f, i));
  if (loads_method(i.op, i.arg)) return push_callable(f, std::move(found));
  push(f, std::move(found));
}

void store_attr(Capture& c, TracedFrame& f, const Instruction& i) {
  py::object o = pop(f), v = pop(f);
  c.objects.store_attr(o, name_in_code(f, i), v);
}

void import_name(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object from = pop(f), level = pop(f);
  const py::object name = borrow(name_in_code(f, i));
  auto* function = as_function(f.function);
  const py::object module = absolute_name(c, name, level, function->func_globals);
  require_imported(c, module);
  py::object gives = module;
  if (py::isinstance<py::tuple>(from)) {
    for (py::handle item : from) require_item(c, module, item);
  } else {
    gives = module.attr("partition")(".")[py::int_(0)];
    require_imported(c, gives);
  }
  for (const py::object& one : {module, gives})  // guards that they stay these
    c.effects.dict_get(imported_modules(c), one);
  push(f, steal(PyImport_ImportModuleLevelObject(name.ptr(), function->func_globals, nullptr,
                                                 from.ptr(), level.cast<int>())));
}

// `from module import name`: an attribute, or a module of a package that has not got it yet.
void import_from(Capture& c, TracedFrame& f, const Instruction& i) {
  const py::object module = peek(f, 1), name = borrow(name_in_code(f, i));
  try {
    return push(f, c.objects.load_attr(module, name));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_AttributeError)) throw;
  }
  const py::object of_it = py::getattr(module, "__dict__", py::none());
  if (!PyModule_CheckExact(module.ptr()) || !c.heap.tracked(of_it))
    throw Break(BreakId::attribute_protocol, "from ... import of what is no module");
  const auto part = [&](const char* member) {
    const py::object found = c.effects.dict_get(of_it, py::str(member));
    return found ? found : py::none();
  };
  const py::object package = part("__name__");
  if (!PyUnicode_CheckExact(package.ptr()))
    throw Break(BreakId::attribute_protocol, "from ... import ", text(name));
  const py::object full = py::str("{}.{}").format(package, name);
  if (py::object found = c.effects.dict_get(imported_modules(c), full)) return push(f, found);
  // From 3.12 on the error says more.
  if (PY_VERSION_HEX >= 0x030C0000)
    throw Break(BreakId::attribute_protocol, "from ", text(package), " import ", text(name));
  const py::object initializing =
      c.calls.call(member_of<"builtins", "getattr">(),
                   {part("__spec__"), py::str("_initializing"), py::bool_(false)});
  if (initializing.ptr() != Py_False)
    throw Break(BreakId::attribute_protocol, "from ... import of a module that is being imported");
  const py::object file = part("__file__");
  const bool known = PyUnicode_Check(file.ptr());
  const py::object message =
      py::str("cannot import name {!r} from {!r} ({})")
          .format(name, package, known ? file : py::object(py::str("unknown location")));
  PyErr_SetImportError(message.ptr(), package.ptr(), known ? file.ptr() : nullptr);
  throw py::error_already_set();
}

}  // namespace instructions
}  // namespace oxy::python
