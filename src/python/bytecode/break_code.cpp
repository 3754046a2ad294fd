// The break code's slots: the original's locals, then temporaries for the stack, then the cells.
#include <algorithm>

#include "python/bytecode/code_builder.h"
#include "python/bytecode/flow.h"
#include "python/bytecode/make_code.h"
#include "python/bytecode/resume.h"
#include "python/cpython/locals.h"
#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {

namespace {

class BreakCode {
 public:
  BreakCode(PyCodeObject* code, const Bytecode& bytecode, const GraphBreak& graph_break)
      : code_(code),
        bytecode_(bytecode),
        break_(graph_break),
        group_(group_of(bytecode, graph_break.index)),
        variables_(PyCode_GetVarnames(code)),
        builder_(bytecode.instructions[graph_break.index].location) {
    temporaries_ = static_cast<int>(
        std::max({break_.before.null_on_stack.size(), break_.after_next.null_on_stack.size(),
                  break_.after_jump.null_on_stack.size()}));
    int locals = static_cast<int>(PyTuple_GET_SIZE(variables_.get()));
    for (int slot = 0; slot < code->co_nlocalsplus; ++slot)
      moved_.push_back(slot < locals ? slot : slot + temporaries_);
    first_temporary_ = locals;
  }

  PyCodeObject* make() {
    entry();
    run_compiled();
    int begin = builder_.size();
    for (int at = group_.first; at <= group_.last; ++at)
      builder_.copy(bytecode_.instructions[at], moved_);
    int end = builder_.size();
    if (break_.next) resume(break_.next, break_.after_next);
    if (break_.target) {
      builder_.code.instructions[end - 1].target = builder_.size();
      resume(break_.target, break_.after_jump);
    }
    append_original(begin, end);
    return finish();
  }

 private:
  // Cells are made and arguments are in place behind RESUME.
  void entry() {
    for (const Instruction& in : bytecode_.instructions) {
      builder_.copy(in, moved_);
      if (in.op == RESUME) return;
    }
  }

  void load_constant(PyObject* object) {
    constants_.push_back(object);
    builder_.add(LOAD_CONST,
                 static_cast<uint32_t>(PyTuple_GET_SIZE(code_->co_consts) + constants_.size() - 1));
  }

  void run_compiled() {
    builder_.add(PUSH_NULL);
    load_constant(break_.compiled);
    for (int slot : break_.inputs) builder_.add(LOAD_FAST, moved_[slot]);
    builder_.call(static_cast<int>(break_.inputs.size()));
    const std::vector<bool>& nulls = break_.before.null_on_stack;
    size_t values = std::count(nulls.begin(), nulls.end(), false) + break_.before.locals.size();
    builder_.add(UNPACK_SEQUENCE, static_cast<uint32_t>(values));
    for (size_t i = 0; i < nulls.size(); ++i)
      if (!nulls[i]) builder_.add(STORE_FAST, temporary(i));
    for (int slot : break_.before.locals) builder_.add(STORE_FAST, moved_[slot]);
    for (size_t i = 0; i < nulls.size(); ++i) {
      if (nulls[i])
        builder_.add(PUSH_NULL);
      else
        builder_.take(temporary(i));
    }
  }

  // STORE_FAST of a NULL is how a NULL leaves the stack: the slot is unbound then.
  void resume(PyObject* function, const FrameState& state) {
    const std::vector<bool>& nulls = state.null_on_stack;
    for (size_t i = nulls.size(); i-- > 0;) builder_.add(STORE_FAST, temporary(i));
    builder_.add(PUSH_NULL);
    load_constant(function);
    for (size_t i = 0; i < nulls.size(); ++i)
      if (!nulls[i]) builder_.take(temporary(i));
    for (int slot : state.locals) builder_.add(LOAD_FAST, moved_[slot]);
    builder_.call(
        static_cast<int>(std::count(nulls.begin(), nulls.end(), false) + state.locals.size()));
    builder_.add(RETURN_VALUE);
  }

  // The original behind everything, for its handlers; the broken instruction raises to them.
  void append_original(int begin, int end) {
    int range = covering_ranges(bytecode_)[group_.first];
    if (range < 0) {
      builder_.copy_all(bytecode_, moved_);
      return;
    }
    ExceptionRange covered = bytecode_.ranges[range];
    covered.target += builder_.size();
    covered.start = begin;
    covered.end = end;
    builder_.code.ranges.push_back(covered);
    builder_.copy_all(bytecode_, moved_);
  }

  Reference with_temporaries() {
    Reference names(PyTuple_New(temporaries_));
    for (int i = 0; names && i < temporaries_; ++i) {
      PyObject* name = PyUnicode_FromFormat("___temporary%d", i);
      if (!name) return {};
      PyTuple_SET_ITEM(names.get(), i, name);
    }
    return names ? Reference(PySequence_Concat(variables_.get(), names.get())) : Reference();
  }

  Reference with_constants() {
    Reference added(PyTuple_New(static_cast<Py_ssize_t>(constants_.size())));
    for (size_t i = 0; added && i < constants_.size(); ++i) {
      Py_INCREF(constants_[i]);
      PyTuple_SET_ITEM(added.get(), static_cast<Py_ssize_t>(i), constants_[i]);
    }
    return added ? Reference(PySequence_Concat(code_->co_consts, added.get())) : Reference();
  }

  PyCodeObject* finish() {
    Reference variables = with_temporaries(), constants = with_constants();
    Reference cells(PyCode_GetCellvars(code_)), frees(PyCode_GetFreevars(code_));
    if (!variables || !constants || !cells || !frees) return nullptr;
    CodeShape shape;
    shape.arguments = code_->co_argcount;
    shape.positional_only = code_->co_posonlyargcount;
    shape.keyword_only = code_->co_kwonlyargcount;
    shape.flags = code_->co_flags;
    shape.constants = constants.get();
    shape.names = code_->co_names;
    shape.variables = variables.get();
    shape.cell_variables = cells.get();
    shape.free_variables = frees.get();
    shape.name = code_->co_name;
    shape.qualified_name = code_->co_qualname;
    return make_code(builder_.code, shape, code_);
  }

  int temporary(size_t i) const { return first_temporary_ + static_cast<int>(i); }

  PyCodeObject* code_;
  const Bytecode& bytecode_;
  const GraphBreak& break_;
  InstructionGroup group_;
  Reference variables_;
  std::vector<int> moved_;
  int temporaries_ = 0, first_temporary_ = 0;
  std::vector<PyObject*> constants_;  // borrowed
  CodeBuilder builder_;
};

}  // namespace

PyCodeObject* make_break_code(PyCodeObject* code, const Bytecode& bytecode,
                              const GraphBreak& graph_break) {
  OXY_CHECK((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == 0);
  return BreakCode(code, bytecode, graph_break).make();
}

}  // namespace oxy::python
