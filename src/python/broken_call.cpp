// Makes the functions around a break and hands values from one to the next.
#include "python/broken_call.h"

#include <algorithm>
#include <array>

#include "python/bytecode/flow.h"
#include "python/cpython/boundary.h"
#include "python/cpython/opcodes.h"
#include "python/inner_frames.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {
namespace {

constexpr const char* kTail = "oxyfuel.tail";

struct Target {
  PyMethodDef method;
  std::string name;
  PyObject* compiled;  // the table's
  bool direct;         // called here
  CallCompiled call_once;
  std::weak_ptr<ResumeTable> table;
};

PyObject* tail_to(const Target* target, PyObject* const* arguments, Py_ssize_t n) {
  auto tail = std::make_unique<Tail>();
  tail->target = borrow(target->compiled);
  tail->call = target->call_once;
  for (Py_ssize_t i = 0; i < n; i++) tail->arguments.push_back(borrow(arguments[i]));
  return PyCapsule_New(tail.release(), kTail, [](PyObject* c) {
    boundary([=] { delete static_cast<Tail*>(PyCapsule_GetPointer(c, kTail)); });
  });
}

PyObject* hand_back(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  auto* target = static_cast<Target*>(PyCapsule_GetPointer(self, nullptr));
  if (target->table.expired()) {
    PyErr_SetString(PyExc_RuntimeError, "the compiled function of this frame is gone");
    return nullptr;
  }
  return boundary(
      [&] {
        if (!target->direct) return tail_to(target, arguments, n);
        return follow_tails(
            PyObject_Vectorcall(target->compiled, arguments, static_cast<size_t>(n), nullptr));
      },
      nullptr);
}

// Of an inner frame: a list of its function and its arguments, which is empty then.
PyObject* go_on(PyObject* self, PyObject*) {
  auto body = [&] {
    Handed held;
    std::vector<PyObject*> given;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self); i++) {
      given.push_back(PyList_GET_ITEM(self, i));
      held.push_back(borrow(given.back()));
    }
    PyList_SetSlice(self, 0, PyList_GET_SIZE(self), nullptr);
    const py::object function = held.front();
    return follow_tails(
        call_handing_over(function.ptr(), given.data() + 1, given.size() - 1, nullptr, held));
  };
  return boundary(body, nullptr);
}

py::object globals_of(py::handle function) { return borrow(as_function(function)->func_globals); }

// Nothing is left to do there but to return.
bool only_returns(const Bytecode& bytecode, int index) {
  static constexpr std::array kQuiet = {NOP, POP_TOP, LOAD_CONST, LOAD_FAST, STORE_FAST};
  const auto rest = std::span(bytecode.instructions).subspan(static_cast<size_t>(index));
  const auto last = std::ranges::find_if(
      rest, [](const Instruction& in) { return std::ranges::count(kQuiet, in.op) == 0; });
  return last != rest.end() && (last->op == RETURN_VALUE || last->op == RETURN_CONST);
}

// Whether all that is read behind a loop has a value now, and keeps having one.
bool is_bound_behind_loop(const Bytecode& bytecode, const LeftFrame& frame, int exit) {
  const std::vector<bool>& read = frame.live[static_cast<size_t>(exit)];
  for (size_t slot = 0; slot < read.size(); slot++)
    if (read[slot] && std::ranges::count(frame.state.locals, static_cast<int>(slot)) == 0)
      return false;
  for (int at = frame.loop; at < exit; at++) {
    const Instruction& in = bytecode.instructions[static_cast<size_t>(at)];
    if ((in.op == DELETE_FAST || in.op == LOAD_FAST_AND_CLEAR) && read[in.arg]) return false;
  }
  return true;
}

}  // namespace

Tail* tail_of(PyObject* returned) {
  if (!PyCapsule_CheckExact(returned) || !PyCapsule_IsValid(returned, kTail)) return nullptr;
  return static_cast<Tail*>(PyCapsule_GetPointer(returned, kTail));
}

PyObject* follow_tails(PyObject* returned) {
  while (returned != nullptr) {
    Tail* tail = tail_of(returned);
    if (tail == nullptr) break;
    const py::object target = std::move(tail->target);
    const CallCompiled call = tail->call;
    Handed handed = std::move(tail->arguments);
    Py_DECREF(returned);
    c10::SmallVector<PyObject*, 16> arguments;
    for (const py::object& o : handed) arguments.push_back(o.ptr());
    returned = call(target.ptr(), arguments.data(), arguments.size(), nullptr, &handed);
  }
  return returned;
}

py::object ResumeTable::make_target(py::handle compiled, const std::string& name, bool direct) {
  auto target = std::make_unique<Target>();
  target->name = name;
  target->compiled = compiled.ptr();
  target->direct = direct;
  target->call_once = compiled_.call_once;
  target->table = weak_from_this();
  target->method = {target->name.c_str(),
                    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(hand_back)),
                    METH_FASTCALL, nullptr};
  PyMethodDef* method = &target->method;
  py::object self = steal(PyCapsule_New(target.release(), nullptr, [](PyObject* c) {
    boundary([=] { delete static_cast<Target*>(PyCapsule_GetPointer(c, nullptr)); });
  }));
  return steal(PyCFunction_New(method, self.ptr()));
}

ResumeTable::Resume ResumeTable::resume(const LeftFrame& frame, int index, FrameState state) {
  PyCodeObject* code = frame.code;
  std::shared_ptr<const Bytecode> bytecode = frame.bytecode;
  // (slot of the code that it is made from, slot of the frame)
  std::vector<std::pair<int, int>> slots;
  if (auto it = origins_.find(reinterpret_cast<PyObject*>(code)); it != origins_.end()) {
    const Origin& origin = it->second;
    code = reinterpret_cast<PyCodeObject*>(origin.code.ptr());
    bytecode = origin.bytecode;
    index -= origin.start;
    for (int slot : state.locals) {
      auto at = std::ranges::find(origin.slots, slot);
      OXY_CHECK(index >= 0 && at != origin.slots.end(), "a break in front of the original");
      slots.emplace_back(static_cast<int>(at - origin.slots.begin()), slot);
    }
  } else {
    for (int slot : state.locals) slots.emplace_back(slot, slot);
  }
  std::sort(slots.begin(), slots.end());
  Resume out;
  state.locals.clear();
  for (auto [slot, here] : slots) {
    state.locals.push_back(slot);
    out.slots.push_back(here);
  }
  py::object globals = globals_of(frame.function);
  const Key key{code, globals.ptr(), index, state};
  auto found = made_.find(key);
  if (found == made_.end()) {
    ResumeCode made = make_resume_code(code, *bytecode, index, state, next_number());
    py::object made_code = steal(made.code);
    add_code(made_code);
    origins_[made_code.ptr()] = {borrow(reinterpret_cast<PyObject*>(code)), bytecode, made.start,
                                 made.slots};
    py::object compiled =
        compiled_.make(steal(make_function(made.code, globals.ptr(), made.name.c_str())));
    const std::string& name = made.name;
    found = made_
                .emplace(key, Made{made_code, compiled, make_target(compiled, name, false),
                                   make_target(compiled, name, true)})
                .first;
  }
  out.target = found->second.target;
  out.direct = found->second.direct;
  return out;
}

size_t ResumeTable::prologue_of(py::handle function) const {
  auto it = origins_.find(as_function(function)->func_code);
  return it == origins_.end() ? 0 : static_cast<size_t>(it->second.start);
}

py::object ResumeTable::inner(py::handle function) {
  const auto* f = as_function(function);
  const auto found = inner_.find({f->func_code, f->func_globals});
  if (found != inner_.end()) return found->second.compiled;
  // Others of this code come here too, and `function` may get another one.
  const py::object own = steal(PyFunction_New(f->func_code, f->func_globals));
  py::object compiled = compiled_.make(own);
  inner_.emplace(std::pair(f->func_code, f->func_globals), Inner{own, compiled});
  return compiled;
}

std::vector<py::object> ResumeTable::functions() const {
  std::vector<py::object> out;
  for (const auto& [key, inner] : inner_) out.push_back(inner.compiled);
  for (const auto& [key, made] : made_) out.push_back(made.compiled);
  return out;
}

BrokenCall make_broken_call(ResumeTable& table, std::span<const LeftFrame> left,
                            py::handle compiled) {
  BrokenCall out;
  for (size_t i = 0; i < left.size(); i++) {
    const LeftFrame& frame = left[i];
    const Bytecode& bytecode = *frame.bytecode;
    const bool is_last = i + 1 == left.size();
    const InstructionGroup group = group_of(bytecode, frame.index);
    const Instruction& last = bytecode.instructions[static_cast<size_t>(group.last)];
    const auto& live = frame.live;
    GraphBreak graph_break;
    graph_break.index = frame.index;
    graph_break.calls_top = !is_last;
    graph_break.before = frame.state;
    size_t continuation = SIZE_MAX;
    if (!is_last) {
      continuation = frame.state.value_count() - frame.state.locals.size();
      std::vector<bool>& nulls = graph_break.before.null_on_stack;
      nulls.push_back(false);
      if (kCallsTakeNull) nulls.insert(nulls.end() - (kNullFollows ? 0 : 1), true);
    }
    std::vector<py::object> kept;
    auto go_on_at = [&](int index, bool jumps, PyObject*& function, FrameState& after) {
      if (only_returns(bytecode, index)) return;
      if (is_last) {
        after.null_on_stack = nulls_after(bytecode, frame.index, frame.state, jumps);
        const size_t depth = frame.state.null_on_stack.size();
        after.handling = handling_after(bytecode, frame.index, frame.state.handling, depth);
        after.tracebacks = tracebacks_after(bytecode, frame.index, frame.state.tracebacks, depth);
      } else {
        after.null_on_stack = frame.state.null_on_stack;
        after.handling = frame.state.handling;
        after.tracebacks = frame.state.tracebacks;
        after.null_on_stack.push_back(false);  // the call's result
      }
      std::vector<int> bound = frame.state.locals;
      if (is_last &&
          (last.op == STORE_FAST || last.op == DELETE_FAST || last.op == LOAD_FAST_AND_CLEAR))
        std::erase(bound, static_cast<int>(last.arg));
      // A comprehension may give back that a variable had no value.
      if (is_last && last.op == STORE_FAST && !frame.state.null_on_stack.back())
        bound.push_back(static_cast<int>(last.arg));
      for (int slot : bound)
        if (live[static_cast<size_t>(index)][static_cast<size_t>(slot)] ||
            std::ranges::count(frame.with_finalizer, slot) > 0)
          after.locals.push_back(slot);
      ResumeTable::Resume resume = table.resume(frame, index, after);
      after.locals = resume.slots;
      kept.push_back(resume.target);
      function = resume.target.ptr();
    };
    // The frame stays until what is behind its loop is done: what its locals hold lives as long as
    // in eager.
    auto go_on_behind_loop = [&] {
      graph_break.loop = frame.loop;
      const int exit = bytecode.instructions[static_cast<size_t>(frame.loop)].target;
      if (only_returns(bytecode, exit) || !is_bound_behind_loop(bytecode, frame, exit)) return;
      FrameState& after = graph_break.after_exit;
      const auto depth = static_cast<size_t>(
          stack_depths(bytecode, frame.code->co_flags).before[static_cast<size_t>(frame.loop)] - 1);
      after.null_on_stack.assign(frame.state.null_on_stack.begin(),
                                 frame.state.null_on_stack.begin() + static_cast<ptrdiff_t>(depth));
      for (int place : frame.state.handling)
        if (static_cast<size_t>(place) < depth) after.handling.push_back(place);
      for (int place : frame.state.tracebacks)
        if (static_cast<size_t>(place) < depth) after.tracebacks.push_back(place);
      for (int slot : frame.state.locals)
        if (live[static_cast<size_t>(exit)][static_cast<size_t>(slot)])
          after.locals.push_back(slot);
      ResumeTable::Resume resume = table.resume(frame, exit, after);
      after.locals = resume.slots;
      kept.push_back(resume.direct);
      graph_break.exit = resume.direct.ptr();
    };
    const bool leaves_loop = is_last && frame.loop >= 0;
    if (leaves_loop) go_on_behind_loop();
    if (!leaves_loop && falls_through(last.op))
      go_on_at(group.last + 1, false, graph_break.next, graph_break.after_next);
    if (!leaves_loop && last.target >= 0 && !opens_block(last.op))
      go_on_at(last.target, true, graph_break.target, graph_break.after_jump);

    const py::object code =
        steal(i == 0 ? make_break_code(frame.code, bytecode, graph_break, compiled.ptr())
                     : make_inner_break_code(frame.code, bytecode, graph_break));
    table.add_code(code);
    const py::object globals = globals_of(frame.function);
    py::object inner;
    if (i == 0) {
      out.function = steal(PyFunction_New(code.ptr(), globals.ptr()));
      if (PyObject* closure = as_function(frame.function)->func_closure)
        PyFunction_SetClosure(out.function.ptr(), closure);
    } else {
      inner = steal(make_function(reinterpret_cast<PyCodeObject*>(code.ptr()), globals.ptr()));
    }
    out.frames.push_back({inner, frame.state.value_count(), continuation});
  }
  return out;
}

int ResumeTable::traverse(visitproc visit, void* arg) const {
  for (const auto& [key, made] : made_) {
    Py_VISIT(made.code.ptr());
    Py_VISIT(made.compiled.ptr());
    Py_VISIT(made.target.ptr());
    Py_VISIT(made.direct.ptr());
  }
  for (const auto& [key, inner] : inner_) {
    Py_VISIT(inner.function.ptr());
    Py_VISIT(inner.compiled.ptr());
  }
  for (const auto& [code, origin] : origins_) Py_VISIT(origin.code.ptr());
  for (const auto& [address, code] : codes_) Py_VISIT(code.ptr());
  return 0;
}

int BrokenCall::traverse(visitproc visit, void* arg) const {
  Py_VISIT(function.ptr());
  for (const Inner& frame : frames) Py_VISIT(frame.function.ptr());
  return 0;
}

py::object BrokenCall::arguments(std::vector<py::object> values) const {
  static PyMethodDef method = {"continuation", go_on, METH_NOARGS, nullptr};
  py::object continuation;
  size_t end = values.size();
  for (size_t i = frames.size(); i-- > 0;) {
    const Inner& frame = frames[i];
    OXY_CHECK(frame.values <= end && (!continuation || frame.continuation <= frame.values));
    std::vector<py::object> items(
        std::make_move_iterator(values.begin() + static_cast<ptrdiff_t>(end - frame.values)),
        std::make_move_iterator(values.begin() + static_cast<ptrdiff_t>(end)));
    end -= frame.values;
    if (continuation)
      items.insert(items.begin() + static_cast<ptrdiff_t>(frame.continuation), continuation);
    if (frame.function) items.insert(items.begin(), frame.function);
    py::list list;
    for (const py::object& item : items) list.append(item);
    if (i == 0) return py::tuple(list);
    continuation = steal(PyCFunction_New(&method, list.ptr()));
  }
  OXY_FAIL("a broken call without a frame");
}

}  // namespace oxy::python
