// The frames that are interpreted: their instructions, their exceptions, where they can be left.
#pragma once

#include <exception>
#include <optional>
#include <unordered_set>

#include "python/bytecode/code.h"
#include "python/capture/break.h"
#include "python/capture/part.h"
#include "python/capture/rebuild.h"
#include "python/cpython/opcodes.h"
#include "python/guards/guard.h"

namespace oxy::python {

// Exceptions that were raised, with the places that they have passed, innermost first.
struct RaisedAt {
  py::object code, globals;
  int offset, line;
  int left;              // the offset of the frame's last instruction
  py::object traceback;  // that the code has been given, and that ends here; or null
};

// Of an exception: what it has of code that really ran, or null, and the places behind that.
struct Traceback {
  py::object real;
  std::optional<std::vector<RaisedAt>> places;  // none where nothing is known of them
};

// A function being interpreted. localsplus as in CPython: locals, cells, free variables.
struct TracedFrame {
  explicit TracedFrame(py::handle called);

  int32_t traced_line = -1;  // by the artefact trace_source
  py::object function;
  PyCodeObject* code = nullptr;
  std::shared_ptr<const Bytecode> bytecode;
  std::vector<py::object> fast, stack;
  size_t next = 0;          // instruction
  UserStack caller, place;  // where the caller stands; where this one stood at `placed`
  size_t placed = SIZE_MAX;
  size_t step = 0;      // the count of instructions in front of the current one
  bool direct = false;  // what it returns is what the caller's call instruction gives
  py::object kwnames;   // of the call that follows
  bool yielded = false;
  // Exceptions that the frame's handlers deal with, and where on the stack what POP_EXCEPT takes
  // stands.
  struct Handled {
    size_t place;
    py::object exception;
    size_t raised_at = 0;  // the instruction
    Traceback caught_with{};
    bool has_other_traceback = false;  // by now: code has assigned it
  };
  std::vector<Handled> handled;
  std::unordered_map<size_t, size_t> rounds;  // of loops, by the instruction that jumps back
  size_t assumed = 0;                         // truths that were taken for granted
  std::unordered_map<size_t, size_t> loops;   // the step at which a FOR_ITER was come to first
  py::object handled_outside;                 // by whoever entered the frame last, or null
  py::object names;                           // of the body of a class: what it has bound
  py::object locals;                          // what locals() has given, or null
  py::object shown;                           // the frame object that stands for it, or null
  py::object result;                          // that it returns or yields next
};

// What a call finds below its first argument, which stands at `place`; `self` null where it is none
// of a method. Calls of functions alone have no NULL in its place in 3.10.
struct Callee {
  py::object callable, self;
};
inline Callee callee_below(const TracedFrame& f, size_t place, bool has_self = kCallsTakeNull) {
  const py::object& upper = f.stack[place - 1];
  if (!has_self) return {upper, {}};
  const py::object& lower = f.stack[place - 2];
  return lower ? Callee{lower, upper} : Callee{upper, {}};
}

// What the call that comes next calls, with `count` arguments.
inline Callee next_callee(const TracedFrame& f, size_t count) {
  const bool is_method = f.bytecode->instructions[f.next].op == CALL_METHOD;
  return callee_below(f, f.stack.size() - count, kCallsTakeNull || is_method);
}

// The instruction at which a generator that is suspended stands.
inline size_t suspended_at(const TracedFrame& f) {
  const auto& code = f.bytecode->instructions;
  return f.next < code.size() && code[f.next].op == YIELD_FROM ? f.next : f.next - 1;
}

// What stands on the stack of 3.10 for the traceback of an exception that is handled.
const py::object& traceback_mark();

struct Stopped {};
struct FrameRules;

class Frames : public Part {
 public:
  using Part::Part;

  UserStack user_stack() const;
  py::object interpret(TracedFrame& frame, py::object sent = {}, py::object thrown = {});
  py::object interpret_alone(TracedFrame& frame);
  // Of the capture; null in front of interpret_alone.
  const FrameRules* rules() const { return rules_; }
  void instruction(TracedFrame& frame);
  py::object globals_of(const TracedFrame& frame);
  py::object load_global(TracedFrame& frame, py::handle name);
  // As `__traceback__` tells and takes them.
  py::object traceback_of(py::handle exception);
  void set_traceback(py::handle exception, py::handle traceback);
  // As RERAISE and `raise` alone do: in 3.10 with the traceback that it was caught with.
  [[noreturn]] void raise_again(const py::object& exception);
  // What one shows that traceback_of has given; null for any other.
  const std::vector<RaisedAt>* places_of_traceback(py::handle traceback) const;
  void match_group(TracedFrame& frame);
  py::object left_of_group(const py::object& group, const py::list& raised);
  void place(Break& b) const;
  void leave_package(Break& b) const;
  std::vector<size_t> places_to_stop() const;
  // Whether a handler of the frames may deal with what the instructions that run raise.
  bool is_in_try() const;
  Place here() const { return {user_stack().frames(), places_to_stop()}; }
  FrameState state_left(const TracedFrame& frame, const std::vector<bool>& live,
                        std::vector<py::object>& values, std::vector<int>& with_finalizer);
  py::object locals() { return locals(*frames_.back()); }  // as the builtin function gives them
  // As sys._getframe: a frame object that stands for one of the frames, so many callers away.
  py::object frame_object(const py::object& depth);
  // Of what frame_object has given; nothing for other frames.
  std::optional<py::object> frame_attr(py::handle frame, py::handle name);

  // No frame is left between the two: where a capture may stop is in front of the outermost close.
  void close();
  void open() { closed_--; }
  void refuse_closed_end() const;

  // At the start of a capture.
  void begin(size_t stop_at);
  void note_arguments(const TracedFrame& frame) { arguments_ = frame.fast; }
  // Whether each argument of the captured function stands where it came.
  bool keeps_arguments() const;
  // Whether a local, a cell that the code has made or a stack has the object.
  bool holds(py::handle o) const;
  const std::vector<TracedFrame*>& stack() const { return frames_; }
  const auto& codes() const { return codes_; }
  const auto& raised() const { return raised_; }
  // Of the exception that was raised last: where a capture may stop in front of it.
  const std::vector<size_t>& steps_in_front_of_exception() const { return raised_steps_; }

  size_t break_at = SIZE_MAX;    // a step that breaks, for tests
  int loop_left = -1;            // Break::loop of the break in front of which the run stops
  bool meets_weak = false;       // weak references are made in it, or behind it by what breaks
  std::vector<LeftFrame> left;   // outermost first; empty: the function returned
  bool handled_outside = false;  // the code around the call deals with an exception
  bool direct = false;           // of the frame that comes next

 private:
  PyObject* answer(PyFunctionObject* function, PyObject* const* parameters);
  void trace_source(TracedFrame& frame);
  void note_raised(const TracedFrame& frame, size_t at, py::handle value);
  Traceback known_traceback(const py::object& exception) const;
  void step(TracedFrame& frame);
  void make_cells(TracedFrame& frame);
  void refuse_existing(py::handle exception);
  py::object frame_object(std::span<TracedFrame* const> frames, long depth);
  py::object locals(TracedFrame& frame);
  [[noreturn]] void stop();

  std::vector<TracedFrame*> frames_;
  std::vector<py::object> arguments_;
  std::unordered_set<PyCodeObject*> codes_;  // that were interpreted
  std::unordered_map<PyObject*, std::vector<RaisedAt>> raised_, tracebacks_;
  std::unordered_set<PyObject*> shown_;  // frame objects
  std::vector<size_t> raised_steps_;
  const FrameRules* rules_ = nullptr;
  std::exception_ptr failed_answer_;  // what code written in C had to be kept from
  size_t steps_ = 0, stop_at_ = SIZE_MAX;
  size_t closed_ = 0;
  std::vector<size_t> closed_steps_;
  bool traces_source_ = false;
};

}  // namespace oxy::python
