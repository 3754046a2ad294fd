// The resume code's slots: the arguments, then the other locals, then every cell as a free variable
// (the closure given at its making is overwritten by the cells that arrive).
#include "python/bytecode/resume.h"

#include <algorithm>

#include "python/bytecode/code_builder.h"
#include "python/bytecode/make_code.h"
#include "python/cpython/locals.h"
#include "python/cpython/reference.h"
#include "support/check.h"
#include "support/text.h"

namespace oxy::python {

namespace {

std::string slot_name(PyCodeObject* code, int slot) {
  return PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_localsplusnames, slot));
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

class ResumeCode {
 public:
  ResumeCode(PyCodeObject* code, const Bytecode& bytecode, int index, const FrameState& state)
      : code_(code),
        bytecode_(bytecode),
        index_(group_of(bytecode, index).first),
        state_(state),
        // super() looks for its object in slot 0, a cell where it is one.
        keeps_first_(reads_first_argument(code)),
        moved_(code->co_nlocalsplus, -1),
        builder_(bytecode.instructions[index].location) {}

  PyCodeObject* make(int number) {
    place_arguments();
    place_others();
    prologue();
    std::string name = cat("__resume_at_", bytecode_.instructions[index_].offset, "_", number);
    return finish(name);
  }

 private:
  void place_arguments() {
    for (size_t i = 0; i < state_.null_on_stack.size(); ++i)
      if (!state_.null_on_stack[i]) variables_.push_back(cat("___stack", i));
    for (int slot : state_.locals) {
      int at = static_cast<int>(variables_.size());
      bool stays = !is_cell(code_, slot) && !(keeps_first_ && (slot == 0 || at == 0));
      if (stays) moved_[slot] = at;
      variables_.push_back((stays ? "" : "___from_") + slot_name(code_, slot));
      incoming_.push_back(at);
    }
    arguments_ = static_cast<int>(variables_.size());
  }

  // A parameter's name means nothing to the caller, so slot 0 may take the name of its later value.
  void place_first() {
    moved_[0] = 0;
    if (variables_.empty()) variables_.emplace_back();
    variables_[0] = slot_name(code_, 0);
    if (is_cell(code_, 0)) cells_.push_back(variables_[0]);
  }

  void place_others() {
    if (keeps_first_) place_first();
    for (int slot = 0; slot < code_->co_nlocalsplus; ++slot) {
      if (moved_[slot] >= 0 || is_cell(code_, slot)) continue;
      moved_[slot] = static_cast<int>(variables_.size());
      variables_.push_back(slot_name(code_, slot));
    }
    for (int slot = 0; slot < code_->co_nlocalsplus; ++slot) {
      if (moved_[slot] >= 0) continue;
      OXY_CHECK(std::count(state_.locals.begin(), state_.locals.end(), slot) == 1,
                slot_name(code_, slot), " is a cell and has to be given");
      moved_[slot] = static_cast<int>(variables_.size() + frees_.size());
      frees_.push_back(slot_name(code_, slot));
    }
  }

  void prologue() {
    builder_.add(RESUME);
    int argument = 0;
    for (bool null : state_.null_on_stack) {
      if (null)
        builder_.add(PUSH_NULL);
      else
        builder_.take(argument++);
    }
    // In the arguments' order: what arrives in slot 0 leaves it before the first argument comes.
    for (size_t i = 0; i < state_.locals.size(); ++i) restore(state_.locals[i], incoming_[i]);
    int jump = builder_.add(JUMP_FORWARD);
    int start = builder_.copy_all(bytecode_, moved_);
    builder_.code.instructions[jump].target = start + index_;
  }

  void restore(int slot, int from) {
    if (moved_[slot] == from) return;
    builder_.take(from);
    builder_.add(STORE_FAST, moved_[slot]);
  }

  PyCodeObject* finish(const std::string& name) {
    Reference variables = to_tuple(variables_), frees = to_tuple(frees_);
    Reference cells = to_tuple(cells_);
    Reference name_object(PyUnicode_FromString(name.c_str()));
    if (!variables || !frees || !cells || !name_object) return nullptr;
    CodeShape shape;
    shape.arguments = arguments_;
    shape.flags = code_->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS);
    shape.constants = code_->co_consts;
    shape.names = code_->co_names;
    shape.variables = variables.get();
    shape.cell_variables = cells.get();
    shape.free_variables = frees.get();
    shape.name = shape.qualified_name = name_object.get();
    return make_code(builder_.code, shape, code_);
  }

  PyCodeObject* code_;
  const Bytecode& bytecode_;
  int index_;
  const FrameState& state_;
  bool keeps_first_;
  std::vector<int> moved_;     // where each slot of the original is now
  std::vector<int> incoming_;  // the argument that brings each of state_.locals
  std::vector<std::string> variables_, cells_, frees_;
  int arguments_ = 0;
  CodeBuilder builder_;
};

}  // namespace

InstructionGroup group_of(const Bytecode& bytecode, int index) {
  const auto& code = bytecode.instructions;
  auto op = [&](int at) { return at >= 0 ? code[at].op : NOP; };
  InstructionGroup group{index, index};
  if (op(group.first) == CALL && op(group.first - 1) == PRECALL) --group.first;
  if (op(group.first) == PRECALL && op(group.first - 1) == KW_NAMES) --group.first;
  if (op(group.last) == KW_NAMES) ++group.last;
  if (op(group.last) == PRECALL) ++group.last;
  return group;
}

PyCodeObject* make_resume_code(PyCodeObject* code, const Bytecode& bytecode, int index,
                               const FrameState& state, int number) {
  OXY_CHECK((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
  return ResumeCode(code, bytecode, index, state).make(number);
}

PyObject* make_function(PyCodeObject* code, PyObject* globals) {
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
  return function.release();
}

}  // namespace oxy::python
