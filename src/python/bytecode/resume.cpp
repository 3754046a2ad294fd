// Code around a graph break: a frame that starts in the middle of the original, and what leads to
// the break, the break, and the original for its handlers.
#include "python/bytecode/resume.h"

#include "python/bytecode/assemble.h"
#include "python/cpython/boundary.h"
#include "python/cpython/code_object.h"
#include "python/cpython/reference.h"
#include "python/cpython/thread_state.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {

namespace {

std::string slot_text(PyCodeObject* code, int slot) {
  return PyUnicode_AsUTF8(slot_name(code, slot));
}

Reference to_tuple(const std::vector<std::string>& names) {
  Reference tuple(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; tuple && i < names.size(); ++i) {
    PyObject* name = PyUnicode_InternFromString(names[i].c_str());
    if (!name) return {};
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), name);
  }
  return tuple;
}

void add_temporaries(std::vector<std::string>& variables, int count) {
  for (int i = 0; i < count; ++i) variables.push_back(cat("___temporary", i));
}

PyObject* parts_of(PyObject*, PyObject* exception) {
  return boundary(
      [=] {
        const Reference trace(PyException_GetTraceback(exception));
        return PyTuple_Pack(3, Py_TYPE(exception), exception, trace ? trace.get() : Py_None);
      },
      nullptr);
}

PyObject* current_exception(PyObject*, PyObject*) {
  return boundary(
      [] {
        PyObject* handled = handled_exception();
        return handled ? handled : Py_NewRef(Py_None);
      },
      nullptr);
}

PyObject* current_exception_function() {
  static PyMethodDef method = {"handled", current_exception, METH_NOARGS, nullptr};
  static PyObject* const function = PyCFunction_New(&method, nullptr);
  return function;
}

// The handlers of the blocks that are open in front of an instruction, the outermost first. None
// where there is a table of ranges.
std::vector<ExceptionRange> open_blocks(const Bytecode& bytecode, int index) {
  std::vector<ExceptionRange> blocks;
  if (!kHasBlocks) return blocks;
  for (const auto* range = bytecode.range_at(static_cast<size_t>(index)); range != nullptr;
       range = bytecode.range_at(static_cast<size_t>(range->target)))
    blocks.push_back(*range);
  std::ranges::reverse(blocks);
  return blocks;
}

bool contains(const std::vector<int>& places, size_t place) {
  return std::ranges::find(places, static_cast<int>(place)) != places.end();
}

// Part of the values that 3.10 has on the stack for an exception, below the one that stands for it
// or above.
bool comes_with_exception(const FrameState& state, size_t place) {
  return kHasBlocks && (contains(state.handling, place + 1) ||
                        contains(state.handling, place + 2) || contains(state.tracebacks, place));
}

// Instructions behind each other, and the original's with their slots moved.
class CodeBuilder {
 public:
  // At the location of the instruction `at`; the new code has so many local variables.
  CodeBuilder(PyCodeObject* original, const Bytecode& bytecode, int at,
              const std::vector<int>& moved, size_t variables)
      : bytecode_(bytecode),
        moved_(moved),
        original_(original),
        location_(bytecode.instructions[at].location) {
    if (kHasBlocks) code.first_cell = static_cast<int>(variables);
  }

  int size() const { return static_cast<int>(code.instructions.size()); }

  int add(uint8_t op, uint32_t arg = 0) {
    code.instructions.push_back({op, arg, -1, -1, location_});
    return size() - 1;
  }

  void load_constant(PyObject* object) {
    constants_.push_back(object);
    add(LOAD_CONST,
        static_cast<uint32_t>(PyTuple_GET_SIZE(original_->co_consts) + constants_.size() - 1));
  }

  // Reads a slot for the last time: nothing stays alive in it.
  void take(int slot) {
    add(LOAD_FAST, slot);
    add(DELETE_FAST, slot);
  }

  void call(int arguments) {
    if (kHasPrecall) add(PRECALL, arguments);
    add(kCallsTakeNull ? CALL : CALL_FUNCTION, arguments);
  }

  // What a call takes below its arguments.
  void load_callable(PyObject* function) {
    if (kCallsTakeNull && !kNullFollows) push_null();
    load_constant(function);
    if (kNullFollows) push_null();
  }

  void push_null() {
    if (kCallsTakeNull) {
      add(PUSH_NULL);
      return;
    }
    // An attribute that is no method comes with a NULL below it.
    load_constant(Py_None);
    add(LOAD_METHOD, static_cast<uint32_t>(PyTuple_GET_SIZE(original_->co_names)));
    add(POP_TOP);
    names_ = {"__class__"};
  }

  // Puts what lies in slots, one for each value from `slot` on, onto the stack again, as it is in
  // front of the original's instruction `at`, with the blocks that are open there. An exception
  // becomes the one that is being handled, and what was so before takes its place.
  void restore_stack(const FrameState& state, int slot, int at, bool nulls_have_slots = false) {
    const std::vector<ExceptionRange> blocks = open_blocks(bytecode_, at);
    auto block = blocks.begin();
    auto open = [&](size_t depth) {
      for (; block != blocks.end() && block->depth == static_cast<int>(depth); ++block) {
        to_original_.push_back(add(SETUP_FINALLY));
        code.instructions.back().target = block->target;
      }
    };
    const size_t depth = state.null_on_stack.size();
    for (size_t place = 0; place < depth; ++place) {
      open(place);
      const bool null = state.null_on_stack[place];
      if (contains(state.handling, place))
        handle_again(slot, contains(state.tracebacks, place + 1));
      else if (!null)
        take(slot);
      else if (!comes_with_exception(state, place))
        push_null();
      if (!null || nulls_have_slots) ++slot;
    }
    open(depth);
  }

  // Where the original starts is known: blocks lead to its handlers.
  void aim_blocks(int start) {
    for (const int at : to_original_) code.instructions[at].target += start;
  }

  // An instruction of the original. Its target stays.
  void copy(const Instruction& in) {
    code.instructions.push_back(in);
    Argument kind = opcode_info(in.op).argument;
    if (kind == Argument::local || kind == Argument::cell)
      code.instructions.back().arg = moved_[in.arg];
  }

  // The whole original with its jumps and ranges; where it starts.
  int copy_all() {
    int start = size();
    for (const Instruction& in : bytecode_.instructions) {
      copy(in);
      if (in.target >= 0) code.instructions.back().target += start;
    }
    for (const ExceptionRange& range : bytecode_.ranges)
      code.ranges.push_back({range.start + start, range.end + start, range.target + start,
                             range.depth, range.push_lasti});
    return start;
  }

  PyCodeObject* make(int arguments, const Reference& variables, const Reference& cells,
                     const Reference& frees, PyObject* qualified_name) const {
    const Reference more_names = to_tuple(names_);
    const Reference names(more_names ? PySequence_Concat(original_->co_names, more_names.get())
                                     : nullptr);
    Reference added(PyTuple_New(static_cast<Py_ssize_t>(constants_.size())));
    for (size_t i = 0; added && i < constants_.size(); ++i)
      PyTuple_SET_ITEM(added.get(), static_cast<Py_ssize_t>(i), Py_NewRef(constants_[i]));
    const Reference constants(added ? PySequence_Concat(original_->co_consts, added.get())
                                    : nullptr);
    if (!variables || !cells || !frees || !constants || !names) return nullptr;
    CodeParts parts = parts_like(original_, cells.get(), frees.get());
    parts.names = names.get();
    parts.arguments = arguments;
    parts.flags &= ~(CO_VARARGS | CO_VARKEYWORDS);
    parts.constants = constants.get();
    parts.variables = variables.get();
    parts.qualified_name = qualified_name;
    return make_code(code, parts, original_);
  }

  Bytecode code;

 protected:
  const Bytecode& bytecode_;
  const std::vector<int>& moved_;  // where each slot of the original is now

  bool opens_blocks() const { return !to_original_.empty(); }
  std::vector<int> to_original_;  // instructions whose target is the original's

 private:
  // The exception in a slot is what is being handled, and in its place is what was before; in 3.10
  // with its traceback above if that stays.
  void handle_again(int slot, bool with_traceback) {
    if (!kHasBlocks) {
      take(slot);
      add(PUSH_EXC_INFO);
      add(POP_TOP);
      return;
    }
    const int block = add(SETUP_FINALLY);
    load_callable(raised_parts());
    take(slot);
    call(1);
    add(UNPACK_SEQUENCE, 3);
    add(RERAISE);
    code.instructions[block].target = size();
    for (int values = with_traceback ? 2 : 3; values > 0; --values) add(POP_TOP);
  }

  PyCodeObject* original_;
  Location location_;
  std::vector<PyObject*> constants_;  // added to the original's; borrowed
  std::vector<std::string> names_;    // the same
};

// Where a frame that starts in the middle keeps the original's slots: the arguments, then the other
// locals, then temporaries, then the cells and the free variables. No instruction makes the cells,
// and the closure given at its making is overwritten: both arrive as arguments.
class ResumeLayout {
 public:
  ResumeLayout(PyCodeObject* code, const FrameState& state, int temporaries)
      : moved(slot_count(code), -1), code_(code), state_(state) {
    OXY_CHECK((code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
    // super() looks for its object in slot 0, a cell where it is one.
    const bool keeps_first = reads_first_argument(code);
    for (size_t i = 0; i < state.null_on_stack.size(); ++i)
      if (!state.null_on_stack[i]) variables_.push_back(cat("___stack", i));
    for (int slot : state.locals) {
      const int at = static_cast<int>(variables_.size());
      const bool stays = !is_cell(code, slot) && !(keeps_first && (slot == 0 || at == 0));
      if (stays) moved[slot] = at;
      variables_.push_back((stays ? "" : "___from_") + slot_text(code, slot));
      incoming_.push_back(at);
    }
    arguments_ = static_cast<int>(variables_.size());
    // A parameter's name means nothing to the caller: slot 0 may take that of its later value.
    if (keeps_first) {
      moved[0] = 0;
      if (variables_.empty()) variables_.emplace_back();
      variables_[0] = slot_text(code, 0);
      if (is_cell(code, 0)) cells_.push_back(variables_[0]);
    }
    for (int slot = 0; slot < slot_count(code); ++slot) {
      if (moved[slot] >= 0 || is_cell(code, slot)) continue;
      moved[slot] = static_cast<int>(variables_.size());
      variables_.push_back(slot_text(code, slot));
    }
    first_temporary = static_cast<int>(variables_.size());
    add_temporaries(variables_, temporaries);
    // A variable of this frame's own stays one: the exception for an unbound one says which it is.
    int next = static_cast<int>(variables_.size());
    for (const bool free : {false, true}) {
      for (int slot = 0; slot < slot_count(code); ++slot) {
        if (moved[slot] >= 0 || (local_kind(code, slot) == kFree) != free) continue;
        moved[slot] = next++;
        (free ? frees_ : cells_).push_back(slot_text(code, slot));
      }
    }
  }

  // The beginning of each code, then the state as it was in front of the instruction `at`.
  void restore_state(CodeBuilder& builder, int at) const {
    const bool generator = code_->co_flags & CO_GENERATOR;
    if (generator && kHasResume) {
      builder.add(RETURN_GENERATOR);
      builder.add(POP_TOP);
    } else if (generator) {
      builder.add(GEN_START);
    }
    if (kHasResume) builder.add(RESUME);
    // An argument with a cell's name has become the contents of a cell.
    const int first_cell = kCellsMadeAtEntry ? cell_of_parameter(code_, 0) : -1;
    if (first_cell >= 0 && moved[0] == 0 && arguments_ > 0) {
      builder.add(LOAD_DEREF, moved[first_cell]);
      builder.add(STORE_FAST, 0);
    }
    builder.restore_stack(state_, 0, at);
    // In the arguments' order: what arrives in slot 0 leaves it before the first argument comes.
    for (size_t i = 0; i < state_.locals.size(); ++i) {
      int slot = moved[state_.locals[i]];
      if (slot == incoming_[i]) continue;
      builder.take(incoming_[i]);
      builder.add(STORE_FAST, slot);
    }
  }

  PyCodeObject* make(const CodeBuilder& builder, PyObject* qualified_name) const {
    return builder.make(arguments_, to_tuple(variables_), to_tuple(cells_), to_tuple(frees_),
                        qualified_name);
  }

  size_t variable_count() const { return variables_.size(); }

  std::vector<int> moved;  // where each slot of the original is now
  int first_temporary = 0;

 private:
  PyCodeObject* code_;
  const FrameState& state_;
  std::vector<int> incoming_;  // the argument that brings each of state_.locals
  std::vector<std::string> variables_, cells_, frees_;
  int arguments_ = 0;
};

// Restores the state of the frame at `index`, and goes on at `first`; None is on top if `sent`.
ResumeCode resume_at(PyCodeObject* code, const Bytecode& bytecode, int index,
                     const FrameState& state, int first, bool sent) {
  const ResumeLayout layout(code, state, 0);
  CodeBuilder builder(code, bytecode, index, layout.moved, layout.variable_count());
  layout.restore_state(builder, first);
  if (sent) builder.load_constant(Py_None);
  const bool delegates = sent && bytecode.instructions[index].op == YIELD_FROM;
  if (delegates) {  // whoever closes the generator looks for the instruction behind its yield
    builder.add(YIELD_VALUE);
    builder.copy(bytecode.instructions[index]);
  }
  const int jump = builder.add(JUMP_FORWARD), start = builder.copy_all();
  builder.code.instructions[jump].target = start + first + (delegates ? 1 : 0);
  builder.aim_blocks(start);
  return {layout.make(builder, qualified_name(code)), start, layout.moved, {}};
}

int temporaries_of(const GraphBreak& b) {
  return static_cast<int>(
      std::max({b.before.null_on_stack.size(), b.after_next.null_on_stack.size(),
                b.after_jump.null_on_stack.size(), b.after_exit.null_on_stack.size()}));
}

// The break itself: the instruction (or the call of what is on top), then the resume functions.
class BreakWriter : public CodeBuilder {
 public:
  BreakWriter(PyCodeObject* code, const Bytecode& bytecode, const GraphBreak& graph_break,
              const std::vector<int>& moved, size_t variables, int first_temporary)
      : CodeBuilder(code, bytecode, graph_break.index, moved, variables),
        break_(graph_break),
        first_temporary_(first_temporary) {}

  // With the frame's state in place.
  void write() {
    const int begin = size();
    if (kRaisesInFront) add(NOP);
    if (break_.calls_top)
      call(0);
    else
      copy_instruction();
    const int end = size(), index = group_of(bytecode_, break_.index).last;
    int go_on = -1;
    if (!break_.calls_top && opens_block(code.instructions[end - 1].op))
      to_original_.push_back(end - 1);
    if (break_.next)
      resume(break_.next, break_.after_next, index + 1);
    else if (falls_through(bytecode_.instructions[index].op))
      go_on = add(JUMP_FORWARD);
    const Instruction last = code.instructions[end - 1];
    const bool jumps = last.target >= 0 && !opens_block(last.op);
    if (jumps && break_.target) {
      end_loop(last);
      code.instructions[end - 1].target = size();
      resume(break_.target, break_.after_jump, last.target);
    }
    const int original =
        append_original(begin, end, go_on >= 0 || (jumps && !break_.target) || opens_blocks());
    aim_blocks(original);
    if (go_on >= 0) code.instructions[go_on].target = original + index + 1;
    if (jumps && !break_.target) code.instructions[end - 1].target += original;
    if (!break_.exit) return;
    // Behind the original, where the loop that goes on there jumps to at its end.
    const Instruction& head = bytecode_.instructions[break_.loop];
    end_loop(head);
    code.instructions[original + break_.loop].target = size();
    resume(break_.exit, break_.after_exit, head.target);
    if (index == break_.loop)
      code.instructions[end - 1].target = code.instructions[original + index].target;
  }

 private:
  // What the jump skips.
  void end_loop(const Instruction& jump) {
    for (int at = named_target(jump); at < jump.target; ++at)
      add(at == named_target(jump) ? END_FOR : POP_TOP);
  }

  void copy_instruction() {
    InstructionGroup group = group_of(bytecode_, break_.index);
    for (int at = group.first; at <= group.last; ++at) {
      const Instruction& in = bytecode_.instructions[at];
      if (takes_bool(in.op)) add(TO_BOOL);
      copy(in);
      if (!loads_method(in.op, in.arg)) continue;
      // Of its two results the one that is the same on every path.
      Instruction& copied = code.instructions.back();
      if (in.op == LOAD_METHOD)
        copied.op = LOAD_ATTR;
      else
        copied.arg &= ~1U;
      push_null();
      if (kHasBlocks)
        add(ROT_TWO);
      else if (!kNullFollows)
        add(SWAP, 2);
    }
  }

  // Calls what goes on at the original's instruction `at`, out of all blocks. STORE_FAST of a NULL
  // is how a NULL leaves the stack: the slot is unbound then.
  void resume(PyObject* function, const FrameState& state, int at) {
    const std::vector<bool>& nulls = state.null_on_stack;
    auto temporary = [&](size_t i) { return first_temporary_ + static_cast<int>(i); };
    const std::vector<ExceptionRange> blocks = open_blocks(bytecode_, at);
    auto block = blocks.rbegin();
    auto close = [&](size_t depth) {
      for (; block != blocks.rend() && block->depth == static_cast<int>(depth); ++block)
        add(POP_BLOCK);
    };
    for (size_t i = nulls.size(); i-- > 0;) {
      close(i + 1);
      if (contains(state.tracebacks, i)) {
        add(POP_TOP);
      } else if (!contains(state.handling, i)) {
        add(STORE_FAST, temporary(i));
      } else {
        load_handled();
        add(STORE_FAST, temporary(i));
        add(POP_EXCEPT);
        if (kHasBlocks) i -= 2;
      }
    }
    close(0);
    load_callable(function);
    for (size_t i = 0; i < nulls.size(); ++i)
      if (!nulls[i]) take(temporary(i));
    for (int slot : state.locals) add(LOAD_FAST, moved_[slot]);
    call(static_cast<int>(state.value_count()));
    add(RETURN_VALUE);
  }

  // The exception that is being handled.
  void load_handled() {
    if (kHasBlocks) {
      load_callable(current_exception_function());
      return call(0);
    }
    // PUSH_EXC_INFO of anything tells it.
    load_constant(Py_None);
    add(PUSH_EXC_INFO);
    add(POP_TOP);
  }

  // The original, where it is needed: the broken instruction raises to its handlers.
  int append_original(int begin, int end, bool needed) {
    const ExceptionRange* range = bytecode_.range_at(static_cast<size_t>(break_.index));
    if (!range && !needed) return -1;
    if (range)
      code.ranges.push_back({begin, end, range->target + size(), range->depth, range->push_lasti});
    return copy_all();
  }

  const GraphBreak& break_;
  int first_temporary_;
};

}  // namespace

size_t FrameState::value_count() const {
  return static_cast<size_t>(std::ranges::count(null_on_stack, false)) + locals.size();
}

InstructionGroup group_of(const Bytecode& bytecode, int index) {
  const auto& code = bytecode.instructions;
  auto op = [&](int at) { return at >= 0 ? code[at].op : NOP; };
  InstructionGroup group{index, index};
  if (op(group.first) == CALL && op(group.first - 1) == PRECALL) --group.first;
  if ((op(group.first) == PRECALL || op(group.first) == CALL) && op(group.first - 1) == KW_NAMES)
    --group.first;
  while (op(group.first) == SET_FUNCTION_ATTRIBUTE) --group.first;
  if (op(group.first) == MAKE_FUNCTION)
    while (op(group.last + 1) == SET_FUNCTION_ATTRIBUTE) ++group.last;
  if (op(group.last) == KW_NAMES) ++group.last;
  if (op(group.last) == PRECALL) ++group.last;
  return group;
}

ResumeCode make_resume_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                            const FrameState& state, int number) {
  OXY_CHECK((code->co_flags & CO_GENERATOR) == 0);
  const int first = group_of(bytecode, index).first;
  ResumeCode made = resume_at(code, bytecode, index, state, first, false);
  made.name = cat("__resume_at_", bytecode.instructions[first].offset, "_", number);
  return made;
}

PyCodeObject* make_generator_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                                  const FrameState& state) {
  [[maybe_unused]] const uint8_t op = bytecode.instructions[index].op;
  OXY_CHECK((code->co_flags & CO_GENERATOR) && (op == YIELD_VALUE || op == YIELD_FROM));
  return resume_at(code, bytecode, index, state, index, true).code;
}

PyObject* make_function(PyCodeObject* code, PyObject* globals, const char* name) {
  Reference function(PyFunction_New(reinterpret_cast<PyObject*>(code), globals));
  const int frees = free_count(code);
  Reference closure(PyTuple_New(frees));
  if (!function || !closure) return nullptr;
  for (int i = 0; i < frees; ++i) {
    PyObject* cell = PyCell_New(nullptr);
    if (!cell) return nullptr;
    PyTuple_SET_ITEM(closure.get(), i, cell);
  }
  if (frees > 0 && PyFunction_SetClosure(function.get(), closure.get()) < 0) return nullptr;
  Reference given(name ? PyUnicode_FromString(name) : nullptr);
  if (name && (!given || PyObject_SetAttrString(function.get(), "__name__", given.get()) < 0))
    return nullptr;
  return function.release();
}

// The slots: parameters, ___inputs, other locals, temporaries for the stack, cells.
PyCodeObject* make_break_code(PyCodeObject* code, const Bytecode& bytecode,
                              const GraphBreak& graph_break, PyObject* compiled) {
  OXY_CHECK((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
  const int parameters = parameter_count(code);
  const int temporaries = temporaries_of(graph_break), first_temporary = code->co_nlocals + 1;
  std::vector<int> moved;
  for (int slot = 0; slot < slot_count(code); ++slot)
    moved.push_back(slot + (slot >= parameters) + (slot >= code->co_nlocals ? temporaries : 0));
  std::vector<std::string> variables;
  for (int slot = 0; slot < code->co_nlocals; ++slot) variables.push_back(slot_text(code, slot));
  variables.insert(variables.begin() + parameters, "___inputs");
  add_temporaries(variables, temporaries);
  BreakWriter writer(code, bytecode, graph_break, moved, variables.size(), first_temporary);
  // Cells are made and arguments are in place behind RESUME.
  for (const Instruction& in : bytecode.instructions) {
    if (!kHasResume) break;
    writer.copy(in);
    if (in.op == RESUME) break;
  }
  writer.load_callable(compiled);
  writer.take(parameters);
  writer.call(1);
  const FrameState& before = graph_break.before;
  writer.add(UNPACK_SEQUENCE, static_cast<uint32_t>(before.value_count()));
  for (size_t i = 0; i < before.null_on_stack.size(); ++i)
    if (!before.null_on_stack[i]) writer.add(STORE_FAST, first_temporary + static_cast<int>(i));
  for (int slot : before.locals) writer.add(STORE_FAST, moved[slot]);
  // What was given for the others is not kept.
  for (int slot = 0; slot < parameters; ++slot)
    if (cell_of_parameter(code, slot) < 0 && std::ranges::count(before.locals, slot) == 0)
      writer.add(DELETE_FAST, moved[slot]);
  writer.restore_stack(before, first_temporary, graph_break.index, true);
  writer.write();
  return writer.make(parameters + 1, to_tuple(variables), cell_names(code), free_names(code),
                     qualified_name(code));
}

PyCodeObject* make_inner_break_code(PyCodeObject* code, const Bytecode& bytecode,
                                    const GraphBreak& graph_break) {
  OXY_CHECK((code->co_flags & CO_GENERATOR) == 0);
  const ResumeLayout layout(code, graph_break.before, temporaries_of(graph_break));
  BreakWriter writer(code, bytecode, graph_break, layout.moved, layout.variable_count(),
                     layout.first_temporary);
  layout.restore_state(writer, graph_break.index);
  writer.write();
  return layout.make(writer, code->co_name);
}

PyObject* raised_parts() {
  static PyMethodDef method = {"parts_of_exception", parts_of, METH_O, nullptr};
  static PyObject* const function = PyCFunction_New(&method, nullptr);
  return function;
}

}  // namespace oxy::python
