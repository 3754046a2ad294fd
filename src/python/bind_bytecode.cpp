// The bytecode layer for its tests.
#include "python/bindings.h"
#include "python/bytecode/code.h"
#include "python/bytecode/resume.h"
#include "python/cpython/handles.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {

namespace {

PyCodeObject* code_in(const py::object& object) {
  if (!PyCode_Check(object.ptr())) throw py::type_error("a code object is needed");
  return reinterpret_cast<PyCodeObject*>(object.ptr());
}

py::object own(PyCodeObject* made) { return steal(reinterpret_cast<PyObject*>(made)); }

int index_at(const Bytecode& bytecode, int offset) {
  for (size_t i = 0; i < bytecode.instructions.size(); ++i)
    if (bytecode.instructions[i].offset == offset) return static_cast<int>(i);
  throw py::value_error("no instruction there");
}

// What a frame has that handles no exception: what is NULL on its stack, its locals.
using State = std::pair<std::vector<bool>, std::vector<int>>;

FrameState state_of(const State& state) {
  return {.null_on_stack = state.first, .locals = state.second};
}

py::object function_of(const py::object& code, const py::dict& globals,
                       const char* name = nullptr) {
  return steal(make_function(code_in(code), globals.ptr(), name));
}

// A function that goes on in front of the instruction at `offset`.
py::object resume(const py::object& object, int offset, const State& state,
                  const py::dict& globals) {
  Bytecode bytecode = disassemble(code_in(object));
  ResumeCode made =
      make_resume_code(code_in(object), bytecode, index_at(bytecode, offset), state_of(state), 0);
  return function_of(own(made.code), globals, made.name.c_str());
}

GraphBreak break_of(const Bytecode& bytecode, int offset, bool calls_top, const State& before,
                    const py::object& next, const std::vector<int>& after_next,
                    const py::object& target, const std::vector<int>& after_jump) {
  GraphBreak out;
  out.index = index_at(bytecode, offset);
  out.calls_top = calls_top;
  out.before = state_of(before);
  out.next = next.is_none() ? nullptr : next.ptr();
  out.target = target.is_none() ? nullptr : target.ptr();
  std::vector<bool> called(before.first.begin(), before.first.end() - (calls_top ? 1 : 0));
  if (calls_top) called.back() = false;
  if (out.next)
    out.after_next = state_of(
        {calls_top ? called : nulls_after(bytecode, out.index, out.before, false), after_next});
  if (out.target)
    out.after_jump = state_of({nulls_after(bytecode, out.index, out.before, true), after_jump});
  return out;
}

// Code that calls `compiled`, executes the instruction at `offset` and goes on in `next` or
// `target` (None for none), which take the stack and these slots.
py::object break_at(const py::object& object, int offset, const py::object& compiled,
                    const State& before, const py::object& next, const std::vector<int>& after_next,
                    const py::object& target, const std::vector<int>& after_jump) {
  Bytecode bytecode = disassemble(code_in(object));
  GraphBreak graph_break =
      break_of(bytecode, offset, false, before, next, after_next, target, after_jump);
  return own(make_break_code(code_in(object), bytecode, graph_break, compiled.ptr()));
}

// A function that is entered at the break, and calls what is on top of the stack instead of the
// instruction if `calls_top`.
py::object inner_break_at(const py::object& object, int offset, bool calls_top, const State& before,
                          const py::object& next, const std::vector<int>& after_next,
                          const py::dict& globals) {
  Bytecode bytecode = disassemble(code_in(object));
  GraphBreak graph_break =
      break_of(bytecode, offset, calls_top, before, next, after_next, py::none(), {});
  return function_of(own(make_inner_break_code(code_in(object), bytecode, graph_break)), globals);
}

}  // namespace

void bind_bytecode(pybind11::module_& m) {
  opcode_info(0);  // imports what the table is made of
  check(PyModule_AddFunctions(m.ptr(), bytecode_functions));
  m.def("bytecode_resume", &resume, py::arg("code"), py::arg("offset"), py::arg("state"),
        py::arg("globals"));
  m.def("bytecode_break", &break_at, py::arg("code"), py::arg("offset"), py::arg("compiled"),
        py::arg("before"), py::arg("next"), py::arg("after_next"), py::arg("target"),
        py::arg("after_jump"));
  m.def("bytecode_inner_break", &inner_break_at, py::arg("code"), py::arg("offset"),
        py::arg("calls_top"), py::arg("before"), py::arg("next"), py::arg("after_next"),
        py::arg("globals"));
}

}  // namespace oxy::python
