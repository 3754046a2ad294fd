// The layout of a resume function's locals, and its instructions.
#include "python/bytecode/resume.h"

#include <algorithm>

#include "python/bytecode/make_code.h"
#include "python/bytecode/resume_layout.h"
#include "python/cpython/code_object.h"
#include "python/cpython/reference.h"
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

}  // namespace

size_t FrameState::value_count() const {
  return static_cast<size_t>(std::ranges::count(null_on_stack, false)) + locals.size();
}

ResumeLayout::ResumeLayout(PyCodeObject* code, const FrameState& state, int temporaries)
    : code_(code),
      state_(state),
      // super() looks for its object in slot 0, a cell where it is one.
      keeps_first_(reads_first_argument(code)),
      moved_(code->co_nlocalsplus, -1) {
  OXY_CHECK((code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
  place_arguments();
  place_others(temporaries);
}

void ResumeLayout::place_arguments() {
  for (size_t i = 0; i < state_.null_on_stack.size(); ++i)
    if (!state_.null_on_stack[i]) variables_.push_back(cat("___stack", i));
  for (int slot : state_.locals) {
    int at = static_cast<int>(variables_.size());
    bool stays = !is_cell(code_, slot) && !(keeps_first_ && (slot == 0 || at == 0));
    if (stays) moved_[slot] = at;
    variables_.push_back((stays ? "" : "___from_") + slot_text(code_, slot));
    incoming_.push_back(at);
  }
  arguments_ = static_cast<int>(variables_.size());
}

// A parameter's name means nothing to the caller, so slot 0 may take the name of its later value.
void ResumeLayout::place_first() {
  moved_[0] = 0;
  if (variables_.empty()) variables_.emplace_back();
  variables_[0] = slot_text(code_, 0);
  if (is_cell(code_, 0)) cells_.push_back(variables_[0]);
}

void ResumeLayout::place_others(int temporaries) {
  if (keeps_first_) place_first();
  for (int slot = 0; slot < code_->co_nlocalsplus; ++slot) {
    if (moved_[slot] >= 0 || is_cell(code_, slot)) continue;
    moved_[slot] = static_cast<int>(variables_.size());
    variables_.push_back(slot_text(code_, slot));
  }
  first_temporary_ = static_cast<int>(variables_.size());
  for (int i = 0; i < temporaries; ++i) variables_.push_back(cat("___temporary", i));
  // A variable of this frame's own stays one, since the exception for an unbound one says which it
  // is.
  for (const bool free : {false, true}) {
    for (int slot = 0; slot < code_->co_nlocalsplus; ++slot) {
      if (moved_[slot] >= 0 || (local_kind(code_, slot) == kFree) != free) continue;
      moved_[slot] =
          static_cast<int>(variables_.size()) + cells_apart_ + static_cast<int>(frees_.size());
      (free ? frees_ : cells_).push_back(slot_text(code_, slot));
      if (!free) ++cells_apart_;
    }
  }
}

void ResumeLayout::restore_state(CodeBuilder& builder) const {
  if (code_->co_flags & CO_GENERATOR) {
    builder.add(RETURN_GENERATOR);
    builder.add(POP_TOP);
  }
  builder.add(RESUME);
  builder.restore_stack(state_, 0);
  // In the arguments' order: what arrives in slot 0 leaves it before the first argument comes.
  for (size_t i = 0; i < state_.locals.size(); ++i) {
    int slot = moved_[state_.locals[i]];
    if (slot == incoming_[i]) continue;
    builder.take(incoming_[i]);
    builder.add(STORE_FAST, slot);
  }
}

PyCodeObject* ResumeLayout::make(const Bytecode& bytecode, PyObject* name, PyObject* qualified_name,
                                 PyObject* constants) const {
  Reference variables = to_tuple(variables_), frees = to_tuple(frees_), cells = to_tuple(cells_);
  if (!variables || !frees || !cells) return nullptr;
  CodeParts shape = parts_like(code_, cells.get(), frees.get());
  shape.arguments = arguments_;
  shape.flags &= ~(CO_VARARGS | CO_VARKEYWORDS);
  shape.constants = constants;
  shape.variables = variables.get();
  shape.name = name;
  shape.qualified_name = qualified_name;
  return make_code(bytecode, shape, code_);
}

InstructionGroup group_of(const Bytecode& bytecode, int index) {
  const auto& code = bytecode.instructions;
  auto op = [&](int at) { return at >= 0 ? code[at].op : NOP; };
  InstructionGroup group{index, index};
  if (op(group.first) == CALL && op(group.first - 1) == PRECALL) --group.first;
  if ((op(group.first) == PRECALL || op(group.first) == CALL) && op(group.first - 1) == KW_NAMES)
    --group.first;
  if (op(group.last) == KW_NAMES) ++group.last;
  if (op(group.last) == PRECALL) ++group.last;
  return group;
}

ResumeCode make_resume_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                            const FrameState& state, int number) {
  OXY_CHECK((code->co_flags & CO_GENERATOR) == 0);
  int first = group_of(bytecode, index).first;
  ResumeLayout layout(code, state, 0);
  CodeBuilder builder(bytecode.instructions[index].location);
  layout.restore_state(builder);
  int jump = builder.add(JUMP_FORWARD);
  int start = builder.copy_all(bytecode, layout.moved());
  builder.code.instructions[jump].target = start + first;
  return {layout.make(builder.code, code->co_name, qualified_name(code), code->co_consts), start,
          layout.moved(), cat("__resume_at_", bytecode.instructions[first].offset, "_", number)};
}

PyCodeObject* make_generator_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                                  const FrameState& state) {
  OXY_CHECK((code->co_flags & CO_GENERATOR) && bytecode.instructions[index].op == YIELD_VALUE);
  Reference none(PyTuple_Pack(1, Py_None));
  Reference constants(none ? PySequence_Concat(code->co_consts, none.get()) : nullptr);
  if (!constants) return nullptr;
  ResumeLayout layout(code, state, 0);
  CodeBuilder builder(bytecode.instructions[index].location);
  layout.restore_state(builder);
  builder.add(LOAD_CONST, static_cast<uint32_t>(PyTuple_GET_SIZE(code->co_consts)));
  int jump = builder.add(JUMP_FORWARD);
  int start = builder.copy_all(bytecode, layout.moved());
  builder.code.instructions[jump].target = start + index;
  return layout.make(builder.code, code->co_name, qualified_name(code), constants.get());
}

PyObject* make_function(PyCodeObject* code, PyObject* globals, const char* name) {
  Reference function(PyFunction_New(reinterpret_cast<PyObject*>(code), globals));
  Reference closure(PyTuple_New(code->co_nfreevars));
  if (!function || !closure) return nullptr;
  for (int i = 0; i < code->co_nfreevars; ++i) {
    PyObject* cell = PyCell_New(nullptr);
    if (!cell) return nullptr;
    PyTuple_SET_ITEM(closure.get(), i, cell);
  }
  if (code->co_nfreevars && PyFunction_SetClosure(function.get(), closure.get()) < 0)
    return nullptr;
  Reference given(name ? PyUnicode_FromString(name) : nullptr);
  if (name && (!given || PyObject_SetAttrString(function.get(), "__name__", given.get()) < 0))
    return nullptr;
  return function.release();
}

}  // namespace oxy::python
