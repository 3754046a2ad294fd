// Python's view of guards and of the bytecode layer: for tests, and for looking at them.
#include <chrono>

#include "python/bindings.h"
#include "python/bytecode/code.h"
#include "python/bytecode/resume.h"
#include "python/cpython/opcodes.h"
#include "python/global_state.h"
#include "python/guards/guard_program.h"
#include "torch_bridge/shape_fallback.h"
#include "torch_bridge/tensor_image.h"

namespace oxy::python {
namespace {

SourceId source_id(uint32_t index) { return index == UINT32_MAX ? SourceId() : SourceId(index); }

std::vector<PyObject*> pointers(const py::tuple& locals) {
  PyObject** items = PySequence_Fast_ITEMS(locals.ptr());
  return {items, items + locals.size()};
}

// What a check hands over; None where a guard does not hold.
template <auto check>
py::object checked(GuardProgram& program, const py::tuple& locals) {
  Fetched fetched;
  if (!(program.*check)(pointers(locals).data(), fetched)) return py::none();
  py::list out;
  for (PyObject* o : fetched.objects()) out.append(py::handle(o));
  return out;
}

// Nanoseconds of one check, over `rounds`; before each, `written` gets a new value where it is a
// dict.
double nanoseconds(GuardProgram& program, const py::tuple& locals, int64_t rounds,
                   const py::object& written, bool tensors) {
  std::vector<PyObject*> roots = pointers(locals);
  py::str key("written");
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < rounds; ++i) {
    Fetched fetched;
    if (!written.is_none()) PyDict_SetItem(written.ptr(), key.ptr(), i % 2 ? Py_True : Py_False);
    bool holds =
        tensors ? program.check(roots.data(), fetched) : program.check_structure(roots.data());
    if (!holds) throw py::value_error("a guard does not hold");
  }
  std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(rounds);
}

template <class... A>
auto numbered(SourceId (SourceTable::*make)(SourceId, A...)) {
  return [make](SourceTable& t, uint32_t base, A... a) {
    return (t.*make)(source_id(base), a...).index;
  };
}

void bind_sources(py::module_& m) {
  py::class_<SourceTable> table(m, "SourceTable");
  table.def(py::init<>())
      .def("local", [](SourceTable& t, int64_t i,
                       const std::string& name) { return t.local(i, name).index; })
      .def("pinned", [](SourceTable& t, py::handle o,
                        const std::string& name) { return t.pinned(o, name).index; })
      .def("text", [](const SourceTable& t, uint32_t id) { return t.text(source_id(id)); })
      .def("__len__", &SourceTable::size);
#define OXY_SOURCE(kind, method, parameter, text) \
  table.def(#method, numbered(&SourceTable::method));
#include "python/guards/kinds.def"
}

// file, line, function, code
using StackEntry = std::tuple<std::string, int32_t, std::string, std::string>;

void bind_set(py::module_& m) {
  py::enum_<GuardKind> kinds(m, "GuardKind");
  for (size_t i = 0; i < std::size(kGuardKinds); i++)
    kinds.value(kGuardKinds[i], static_cast<GuardKind>(i));
  auto add = [](GuardSet& set, GuardKind kind, uint32_t source, py::object expected, int64_t number,
                uint32_t other, const std::vector<StackEntry>& stack) {
    std::vector<ir::Frame> frames;
    for (const auto& [file, line, function, code] : stack)
      frames.push_back({file, line, function, code});
    set.add({kind, source_id(source), std::move(expected), number, source_id(other),
             UserStack(std::move(frames))});
  };
  py::class_<GuardSet>(m, "GuardSet")
      .def(py::init<>())
      .def("add", add, py::arg("kind"), py::arg("source"), py::arg("expected") = py::none(),
           py::arg("number") = 0, py::arg("other") = UINT32_MAX,
           py::arg("stack") = std::vector<StackEntry>())
      .def("__len__", [](const GuardSet& set) { return set.guards().size(); });
}

void bind_program(py::module_& m) {
  auto make = [](const SourceTable& sources, const GuardSet& guards,
                 const std::vector<uint32_t>& fetch) {
    std::vector<SourceId> ids;
    for (uint32_t id : fetch) ids.push_back(source_id(id));
    return std::make_shared<GuardProgram>(sources, guards, ids);
  };
  auto why_not = [](const GuardProgram& p, const py::tuple& locals) -> py::object {
    auto failure = p.why_not(pointers(locals).data());
    if (!failure) return py::none();
    return py::make_tuple(failure->guard, failure->text);
  };
  m.def(
      "folded_functions",
      [] {
        constexpr const char* kGuards[] = {"Compared", "OfDevice", "Asked", "Fixed"};
        std::map<std::string, std::string> out;
        for (const auto& [name, guarded_by] : folded_functions())
          out.emplace(name, kGuards[static_cast<size_t>(guarded_by)]);
        return out;
      },
      "Functions of torch whose answers capture takes for constants, and what guards them.");
  m.def("measure_guards", [](bool on) { return std::exchange(GuardProgram::measured, on); });
  py::enum_<GuardProgram::Level>(m, "GuardLevel")
      .value("NothingWritten", GuardProgram::Level::NothingWritten)
      .value("DictsWritten", GuardProgram::Level::DictsWritten)
      .value("ObjectsChanged", GuardProgram::Level::ObjectsChanged)
      .value("Walk", GuardProgram::Level::Walk);
  py::class_<GuardProgram, std::shared_ptr<GuardProgram>>(m, "GuardProgram")
      .def(py::init(make), py::arg("sources"), py::arg("guards"),
           py::arg("fetch") = std::vector<uint32_t>())
      .def("check", &checked<&GuardProgram::check>)
      .def("check_fully", &checked<&GuardProgram::check_fully>)
      .def("why_not", why_not)
      .def("nanoseconds", nanoseconds, py::arg("locals"), py::arg("rounds"),
           py::arg("written") = py::none(), py::arg("tensors") = true)
      .def("costs", [](const GuardProgram& p) { return p.nanoseconds(); })
      .def_property_readonly("last_level", &GuardProgram::last_level)
      .def("log_text", &GuardProgram::log_text)
      .def("dimensions", &GuardProgram::dimensions)
      .def("text", &GuardProgram::text);
}

// ---- bytecode

PyCodeObject* code_in(const py::object& object) {
  if (!PyCode_Check(object.ptr())) throw py::type_error("a code object is needed");
  return reinterpret_cast<PyCodeObject*>(object.ptr());
}

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
  Bytecode bytecode = plain_bytecode(code_in(object));
  ResumeCode made =
      make_resume_code(code_in(object), bytecode, index_at(bytecode, offset), state_of(state), 0);
  return function_of(steal(made.code), globals, made.name.c_str());
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
  std::vector<bool> called(before.first.begin(),
                           before.first.end() - (calls_top && kCallsTakeNull ? 1 : 0));
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
  Bytecode bytecode = plain_bytecode(code_in(object));
  GraphBreak graph_break =
      break_of(bytecode, offset, false, before, next, after_next, target, after_jump);
  return steal(make_break_code(code_in(object), bytecode, graph_break, compiled.ptr()));
}

// A function that is entered at the break, and calls what is on top of the stack instead of the
// instruction if `calls_top`.
py::object inner_break_at(const py::object& object, int offset, bool calls_top, const State& before,
                          const py::object& next, const std::vector<int>& after_next,
                          const py::dict& globals) {
  Bytecode bytecode = plain_bytecode(code_in(object));
  GraphBreak graph_break =
      break_of(bytecode, offset, calls_top, before, next, after_next, py::none(), {});
  return function_of(steal(make_inner_break_code(code_in(object), bytecode, graph_break)), globals);
}

}  // namespace

void bind_internals(py::module_& m) {
  bind_sources(m);
  bind_set(m);
  bind_program(m);
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
  m.def(
      "corrected_ops", &bridge::corrected_ops,
      "The ops whose results torch's CPU kernels lay out otherwise than its rules for shapes say.");
  m.def(
      "keeps_image",
      [](const at::Tensor& t) {
        const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
        const auto image = bridge::TensorImage::of(impl);
        return image && image->is_of(impl, bridge::TensorImage::Owned(impl));
      },
      py::arg("tensor"), "Whether guards compare this tensor's memory.");
}

}  // namespace oxy::python
