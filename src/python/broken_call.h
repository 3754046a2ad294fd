// A capture that stopped at a graph break, as Python functions: the frame that calls the compiled
// graph and executes what broke, the frames that it stood in, and the resume functions behind them,
// which are compiled in their turn.
//
// No call grows the stack: a resume function is not called by the frame in front of it but handed
// back to whoever called that frame (`Tail`), so that a loop with a break in it runs as deep as it
// does in eager.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <unordered_map>

#include "python/capture/rebuild.h"
#include "python/inner_frames.h"

namespace oxy::python {

// As PyObject_Vectorcall, of a compiled function. `handed`, if not null, holds the arguments; it is
// empty once a frame has them.
using CallCompiled = PyObject* (*)(PyObject* compiled, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames, Handed* handed);

// What to call next, with which arguments; held by the object that a frame returns in the place of
// its result.
struct Tail {
  py::object target;
  CallCompiled call;  // may return another Tail
  std::vector<py::object> arguments;
};
// Null where the object is a result.
Tail* tail_of(PyObject* returned);
// Calls on while what came back is a Tail.
PyObject* follow_tails(PyObject* returned);

// The resume functions of one compiled function, each made once however often the break is met.
class ResumeTable : public FrameCompiler, public std::enable_shared_from_this<ResumeTable> {
 public:
  // How functions are compiled and called. `call_once` may return a Tail, `call` follows it.
  struct Compiled {
    std::function<py::object(py::handle function)> make;
    CallCompiled call, call_once;
  };
  explicit ResumeTable(Compiled compiled) : compiled_(std::move(compiled)) {}

  struct Resume {
    py::object target;       // called by break code; gives a Tail
    py::object direct;       // the same; gives the result
    std::vector<int> slots;  // of the frame that was left, in the order of the arguments
  };
  // Goes on in front of instruction `index` of a frame that has these slots and this stack.
  Resume resume(const LeftFrame& frame, int index, FrameState state);
  // How many instructions of a resume function are in front of the original's; 0 for all else.
  size_t prologue_of(py::handle function) const;
  py::object inner(py::handle function) override;
  bool has_made(PyObject* code) const override { return codes_.contains(code); }
  PyObject* call(PyObject* compiled, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                 Handed& handed) override {
    return compiled_.call(compiled, args, nargsf, kwnames, &handed);
  }
  void add_code(py::object code) { codes_.emplace(code.ptr(), code); }
  std::vector<py::object> functions() const;  // that it has made
  int next_number() { return ++number_; }
  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  struct Origin {  // of a resume code
    py::object code;
    std::shared_ptr<const Bytecode> bytecode;
    int start;
    std::vector<int> slots;
  };
  struct Key {
    PyCodeObject* code;
    PyObject* globals;
    int index;
    FrameState state;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Made {
    py::object code, compiled, target, direct;
  };
  struct Inner {
    py::object function;  // keeps the code and the globals of its key
    py::object compiled;
  };
  py::object make_target(py::handle compiled, const std::string& name, bool direct);

  Compiled compiled_;
  std::unordered_map<PyObject*, Origin> origins_;
  std::map<Key, Made> made_;
  std::map<std::pair<PyObject*, PyObject*>, Inner> inner_;  // by code and globals
  std::unordered_map<PyObject*, py::object> codes_;         // of break and resume functions
  int number_ = 0;
};

// How a hit goes on once the values of the left frames are there.
struct BrokenCall {
  struct Inner {
    py::object function;
    size_t values;        // how many of its arguments are among the values
    size_t continuation;  // the position of the next frame's; SIZE_MAX in the last
  };
  py::object function;  // takes the bound arguments and the object that `compiled` is called with
  std::vector<Inner> frames;  // `function` of the first is null

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse
  // What `compiled` returns to `function`.
  py::object arguments(std::vector<py::object> values) const;
};

BrokenCall make_broken_call(ResumeTable& table, std::span<const LeftFrame> left,
                            py::handle compiled);

}  // namespace oxy::python
