// Both kinds of break code: what leads to the break, the break, and the original for its handlers.
#include <algorithm>

#include "python/bytecode/flow.h"
#include "python/bytecode/layout.h"
#include "python/bytecode/make_code.h"
#include "python/bytecode/resume_layout.h"
#include "python/cpython/code_object.h"
#include "python/cpython/reference.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {

namespace {

size_t temporaries_of(const GraphBreak& b) {
  return std::max({b.before.null_on_stack.size(), b.after_next.null_on_stack.size(),
                   b.after_jump.null_on_stack.size(), b.after_exit.null_on_stack.size()});
}

// The break itself: the instruction (or the call of what is on top), then the resume functions.
class BreakWriter {
 public:
  BreakWriter(PyCodeObject* code, const Bytecode& bytecode, const GraphBreak& graph_break,
              const std::vector<int>& moved, int first_temporary)
      : builder(bytecode.instructions[graph_break.index].location),
        code_(code),
        bytecode_(bytecode),
        break_(graph_break),
        moved_(moved),
        first_temporary_(first_temporary) {}

  void load_constant(PyObject* object) {
    constants_.push_back(object);
    builder.add(LOAD_CONST,
                static_cast<uint32_t>(PyTuple_GET_SIZE(code_->co_consts) + constants_.size() - 1));
  }

  int temporary(size_t i) const { return first_temporary_ + static_cast<int>(i); }

  // With the frame's state in place.
  void write() {
    int begin = builder.size();
    if (break_.calls_top)
      builder.call(0);
    else
      copy_instruction();
    int end = builder.size();
    int index = group_of(bytecode_, break_.index).last, go_on = -1;
    if (break_.next)
      resume(break_.next, break_.after_next);
    else if (falls_through(bytecode_.instructions[index].op))
      go_on = builder.add(JUMP_FORWARD);
    const Instruction last = builder.code.instructions[end - 1];
    const bool jumps = last.target >= 0;
    if (jumps && break_.target) {
      if (named_target(last) != last.target) builder.add(END_FOR);
      builder.code.instructions[end - 1].target = builder.size();
      resume(break_.target, break_.after_jump);
    }
    const bool goes_on = go_on >= 0 || (jumps && !break_.target);
    int original = append_original(begin, end, goes_on);
    if (go_on >= 0) builder.code.instructions[go_on].target = original + index + 1;
    if (jumps && !break_.target) builder.code.instructions[end - 1].target += original;
    if (!break_.exit) return;
    leave_loop(original);
    if (index == break_.loop)
      builder.code.instructions[end - 1].target =
          builder.code.instructions[original + index].target;
  }

  Reference constants() const {
    Reference added(PyTuple_New(static_cast<Py_ssize_t>(constants_.size())));
    for (size_t i = 0; added && i < constants_.size(); ++i)
      PyTuple_SET_ITEM(added.get(), static_cast<Py_ssize_t>(i), Py_NewRef(constants_[i]));
    return added ? Reference(PySequence_Concat(code_->co_consts, added.get())) : Reference();
  }

  CodeBuilder builder;

 private:
  void copy_instruction() {
    InstructionGroup group = group_of(bytecode_, break_.index);
    for (int at = group.first; at <= group.last; ++at) {
      const Instruction& in = bytecode_.instructions[at];
      builder.copy(in, moved_);
      if (!loads_method(in.op, in.arg)) continue;
      // Of its two results the one that is the same on every path.
      Instruction& copied = builder.code.instructions.back();
      if (in.op == LOAD_METHOD)
        copied.op = LOAD_ATTR;
      else
        copied.arg &= ~1U;
      builder.add(PUSH_NULL);
      builder.add(SWAP, 2);
    }
  }

  // Behind the original, where the loop that goes on there jumps to at its end.
  void leave_loop(int original) {
    const Instruction& head = bytecode_.instructions[break_.loop];
    if (named_target(head) != head.target) builder.add(END_FOR);
    builder.code.instructions[original + break_.loop].target = builder.size();
    resume(break_.exit, break_.after_exit);
  }

  // STORE_FAST of a NULL is how a NULL leaves the stack: the slot is unbound then.
  void resume(PyObject* function, const FrameState& state) {
    const std::vector<bool>& nulls = state.null_on_stack;
    auto handling = state.handling.rbegin();
    for (size_t i = nulls.size(); i-- > 0;) {
      if (handling == state.handling.rend() || *handling != static_cast<int>(i)) {
        builder.add(STORE_FAST, temporary(i));
        continue;
      }
      // PUSH_EXC_INFO of anything tells what is being handled.
      ++handling;
      load_constant(Py_None);
      builder.add(PUSH_EXC_INFO);
      builder.add(POP_TOP);
      builder.add(STORE_FAST, temporary(i));
      builder.add(POP_EXCEPT);
    }
    builder.add(PUSH_NULL);
    load_constant(function);
    for (size_t i = 0; i < nulls.size(); ++i)
      if (!nulls[i]) builder.take(temporary(i));
    for (int slot : state.locals) builder.add(LOAD_FAST, moved_[slot]);
    builder.call(static_cast<int>(state.value_count()));
    builder.add(RETURN_VALUE);
  }

  // The original behind everything, where it is needed: the broken instruction raises to its
  // handlers.
  int append_original(int begin, int end, bool needed) {
    int range = covering_ranges(bytecode_)[break_.index];
    if (range < 0 && !needed) return -1;
    if (range >= 0) {
      ExceptionRange covered = bytecode_.ranges[range];
      covered.target += builder.size();
      covered.start = begin;
      covered.end = end;
      builder.code.ranges.push_back(covered);
    }
    return builder.copy_all(bytecode_, moved_);
  }

  PyCodeObject* code_;
  const Bytecode& bytecode_;
  const GraphBreak& break_;
  const std::vector<int>& moved_;
  int first_temporary_;
  std::vector<PyObject*> constants_;  // borrowed
};

// The slots: parameters, ___inputs, the original's other locals, temporaries for the stack, the
// cells.
class BreakCode {
 public:
  BreakCode(PyCodeObject* code, const GraphBreak& graph_break)
      : code_(code),
        break_(graph_break),
        variables_(PyCode_GetVarnames(code)),
        temporaries_(static_cast<int>(temporaries_of(graph_break))) {
    parameters_ = code->co_argcount + code->co_kwonlyargcount +
                  ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
    int locals = static_cast<int>(PyTuple_GET_SIZE(variables_.get()));
    for (int slot = 0; slot < code->co_nlocalsplus; ++slot)
      moved.push_back(slot + (slot >= parameters_) + (slot >= locals ? temporaries_ : 0));
    first_temporary = locals + 1;
  }

  void run_compiled(BreakWriter& out, const Bytecode& bytecode, PyObject* compiled) const {
    // Cells are made and arguments are in place behind RESUME.
    for (const Instruction& in : bytecode.instructions) {
      out.builder.copy(in, moved);
      if (in.op == RESUME) break;
    }
    out.builder.add(PUSH_NULL);
    out.load_constant(compiled);
    out.builder.take(parameters_);
    out.builder.call(1);
    const std::vector<bool>& nulls = break_.before.null_on_stack;
    out.builder.add(UNPACK_SEQUENCE, static_cast<uint32_t>(break_.before.value_count()));
    for (size_t i = 0; i < nulls.size(); ++i)
      if (!nulls[i]) out.builder.add(STORE_FAST, out.temporary(i));
    for (int slot : break_.before.locals) out.builder.add(STORE_FAST, moved[slot]);
    // What was given for the others is not kept.
    for (int slot = 0; slot < parameters_; ++slot)
      if (!is_cell(code_, slot) && std::ranges::count(break_.before.locals, slot) == 0)
        out.builder.add(DELETE_FAST, moved[slot]);
    out.builder.restore_stack(break_.before, out.temporary(0), true);
  }

  PyCodeObject* make(const BreakWriter& writer) const {
    Reference variables = all_variables(), constants = writer.constants();
    Reference cells(PyCode_GetCellvars(code_)), frees(PyCode_GetFreevars(code_));
    if (!variables || !constants || !cells || !frees) return nullptr;
    CodeParts shape = parts_like(code_, cells.get(), frees.get());
    shape.arguments = parameters_ + 1;
    shape.flags &= ~(CO_VARARGS | CO_VARKEYWORDS);
    shape.constants = constants.get();
    shape.variables = variables.get();
    return make_code(writer.builder.code, shape, code_);
  }

  std::vector<int> moved;
  int first_temporary = 0;

 private:
  Reference all_variables() const {
    Reference names(PyList_New(0));
    auto add = [&](Reference name) { return name && PyList_Append(names.get(), name.get()) == 0; };
    bool good = static_cast<bool>(names);
    for (Py_ssize_t i = 0; good && i <= PyTuple_GET_SIZE(variables_.get()); ++i) {
      if (i == parameters_) good = add(Reference(PyUnicode_FromString("___inputs")));
      if (good && i < PyTuple_GET_SIZE(variables_.get()))
        good = add(Reference(Py_NewRef(PyTuple_GET_ITEM(variables_.get(), i))));
    }
    for (int i = 0; good && i < temporaries_; ++i)
      good = add(Reference(PyUnicode_FromFormat("___temporary%d", i)));
    return good ? Reference(PyList_AsTuple(names.get())) : Reference();
  }

  PyCodeObject* code_;
  const GraphBreak& break_;
  Reference variables_;
  int temporaries_ = 0, parameters_ = 0;
};

int effect_of(const Bytecode& bytecode, InstructionGroup group, bool jumps) {
  int effect = 0;
  for (int at = group.first; at <= group.last; ++at) {
    const Instruction& in = bytecode.instructions[at];
    effect += stack_effect(in.op, in.arg, jumps && at == group.last);
  }
  return effect;
}

}  // namespace

std::vector<bool> nulls_after(const Bytecode& bytecode, int index, const FrameState& state,
                              bool jumps) {
  std::vector<bool> before = state.null_on_stack;
  InstructionGroup group = group_of(bytecode, index);
  const Instruction& in = bytecode.instructions[group.last];
  size_t depth = before.size() + static_cast<size_t>(effect_of(bytecode, group, jumps));
  // The NULLs that it takes away.
  size_t taken = in.op == CALL ? in.arg + 2 : in.op == CALL_FUNCTION_EX ? 3 + (in.arg & 1) : 0;
  if (in.op == SWAP) {
    const bool top = before.back(), other = before[depth - in.arg];
    before.back() = other;
    before[depth - in.arg] = top;
  }
  const bool pushes_null = in.op == PUSH_NULL || (in.op == COPY && before[before.size() - in.arg]);
  before.resize(before.size() - taken);
  before.resize(depth, false);
  if (pushes_null) before.back() = true;
  if (in.op == LOAD_FAST_AND_CLEAR) before.back() = std::ranges::count(state.locals, in.arg) == 0;
  if (loads_method(in.op, in.arg) || (in.op == LOAD_GLOBAL && (in.arg & 1)))
    before[depth - 2] = true;
  return before;
}

std::vector<int> handling_after(const Bytecode& bytecode, int index, std::vector<int> before,
                                size_t depth) {
  const Instruction& in = bytecode.instructions[group_of(bytecode, index).last];
  const int top = static_cast<int>(depth) - 1, other = top - static_cast<int>(in.arg) + 1;
  if (in.op == PUSH_EXC_INFO) before.push_back(top);
  if (before.empty()) return before;
  int& last = before.back();
  if (in.op == POP_EXCEPT)
    before.pop_back();
  else if (in.op == COPY && last == other)
    last = top + 1;
  else if (in.op == SWAP)
    last = last == top ? other : last == other ? top : last;
  return before;
}

PyCodeObject* make_break_code(PyCodeObject* code, const Bytecode& bytecode,
                              const GraphBreak& graph_break, PyObject* compiled) {
  OXY_CHECK((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
  BreakCode frame(code, graph_break);
  BreakWriter writer(code, bytecode, graph_break, frame.moved, frame.first_temporary);
  frame.run_compiled(writer, bytecode, compiled);
  writer.write();
  return frame.make(writer);
}

PyCodeObject* make_inner_break_code(PyCodeObject* code, const Bytecode& bytecode,
                                    const GraphBreak& graph_break) {
  OXY_CHECK((code->co_flags & CO_GENERATOR) == 0);
  ResumeLayout layout(code, graph_break.before, static_cast<int>(temporaries_of(graph_break)));
  BreakWriter writer(code, bytecode, graph_break, layout.moved(), layout.first_temporary());
  layout.restore_state(writer.builder);
  writer.write();
  Reference constants = writer.constants();
  if (!constants) return nullptr;
  return layout.make(writer.builder.code, code->co_name, code->co_name, constants.get());
}

}  // namespace oxy::python
