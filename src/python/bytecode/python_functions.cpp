// The module of functions by which tests take code objects apart and put them together.
#include "python/bytecode/assemble.h"
#include "python/bytecode/flow.h"
#include "python/cpython/boundary.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {

namespace {

// A list of what `item(i)` makes: new references, nullptr with an exception set.
template <typename Item>
PyObject* list_of(size_t count, const Item& item) {
  Reference list(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* made = item(i);
    if (!made) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), made);
  }
  return list.release();
}

// None for what is negative.
Reference number(int value) {
  return Reference(value < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(value));
}

PyObject* round_trip(const Bytecode& bytecode, PyCodeObject* code) {
  return reinterpret_cast<PyObject*>(assemble(bytecode, code));
}

PyObject* plain(const Bytecode&, PyCodeObject* code) {
  return reinterpret_cast<PyObject*>(assemble(plain_bytecode(code), code));
}

PyObject* text_of_code(const Bytecode& bytecode, PyCodeObject* code) {
  return PyUnicode_FromString(to_text(bytecode, code).c_str());
}

PyObject* instructions(const Bytecode& bytecode, PyCodeObject*) {
  const Layout layout = lay_out(bytecode);
  return list_of(bytecode.instructions.size(), [&](size_t i) -> PyObject* {
    const Instruction& in = bytecode.instructions[i];
    const Location& at = in.location;
    const Reference target = number(in.target < 0 ? -1 : 2 * layout.start[named_target(in)]);
    const Reference places[] = {number(at.line), number(at.end_line), number(at.column),
                                number(at.end_column)};
    return Py_BuildValue("isIO(OOOO)", in.offset, opcode_info(in.op).name, layout.args[i],
                         target.get(), places[0].get(), places[1].get(), places[2].get(),
                         places[3].get());
  });
}

PyObject* ranges(const Bytecode& bytecode, PyCodeObject*) {
  const Layout layout = lay_out(bytecode);
  return list_of(bytecode.ranges.size(), [&](size_t i) {
    const ExceptionRange& range = bytecode.ranges[i];
    return Py_BuildValue("iiiiO", 2 * layout.start[range.start], 2 * layout.start[range.end],
                         2 * layout.start[range.target], range.depth,
                         range.push_lasti ? Py_True : Py_False);
  });
}

PyObject* depths(const Bytecode& bytecode, PyCodeObject* code) {
  const StackDepths depths = stack_depths(bytecode, code->co_flags);
  std::vector<size_t> reached;
  for (size_t i = 0; i < depths.before.size(); ++i)
    if (depths.before[i] >= 0) reached.push_back(i);
  return list_of(reached.size(), [&](size_t i) {
    return Py_BuildValue("ii", bytecode.instructions[reached[i]].offset, depths.before[reached[i]]);
  });
}

PyObject* live(const Bytecode& bytecode, PyCodeObject* code) {
  const auto sets = live_locals(bytecode, code);
  return list_of(sets.size(), [&](size_t i) {
    std::vector<PyObject*> names;
    for (int slot = 0; slot < slot_count(code); ++slot)
      if (sets[i][static_cast<size_t>(slot)]) names.push_back(slot_name(code, slot));
    PyObject* list = list_of(names.size(), [&](size_t k) { return Py_NewRef(names[k]); });
    return list ? Py_BuildValue("iN", bytecode.instructions[i].offset, list) : nullptr;
  });
}

template <PyObject* (*function)(const Bytecode&, PyCodeObject*)>
PyObject* call(PyObject*, PyObject* object) {
  if (!PyCode_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "a code object is needed");
    return nullptr;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  return boundary([&] { return function(disassemble(code), code); }, nullptr);
}

}  // namespace

PyMethodDef bytecode_functions[] = {{"bytecode_round_trip", call<round_trip>, METH_O, nullptr},
                                    {"bytecode_plain", call<plain>, METH_O, nullptr},
                                    {"bytecode_text", call<text_of_code>, METH_O, nullptr},
                                    {"bytecode_instructions", call<instructions>, METH_O, nullptr},
                                    {"bytecode_ranges", call<ranges>, METH_O, nullptr},
                                    {"bytecode_depths", call<depths>, METH_O, nullptr},
                                    {"bytecode_live", call<live>, METH_O, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};

}  // namespace oxy::python
