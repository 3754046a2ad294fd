// Functions that a broken frame calls: they are compiled too, each on its own. The frame evaluator
// is ours only while such a frame runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "python/cpython/handles.h"

namespace oxy::python {

// What holds the arguments of a call and lets go of them as soon as the frame that is called has
// them, so that what it drops dies there and then.
using Handed = std::vector<py::object>;

// Who compiles what a broken frame calls.
class FrameCompiler {
 public:
  virtual ~FrameCompiler() = default;
  virtual bool has_made(PyObject* code) const = 0;
  // The compiled counterpart of a function that a broken frame calls; one for each code and
  // globals.
  virtual py::object inner(py::handle function) = 0;
  // As PyObject_Vectorcall, of such a counterpart. `handed` holds the arguments; it is empty once a
  // frame has them.
  virtual PyObject* call(PyObject* compiled, PyObject* const* args, size_t nargsf,
                         PyObject* kwnames, Handed& handed) = 0;
};

// Marked by oxyfuel.disable or torch.compiler.disable, or what torch.compile has made.
bool is_disabled(PyFunctionObject* function);

// Code of the standard library, of torch and of Oxyfuel, or made by them.
bool is_library_code(PyCodeObject* code);

// Of a package whose functions work on no tensors (NumPy, pandas, SymPy ...).
bool is_without_tensors(PyCodeObject* code);

// Captures do not go into calls of functions of this code. What it calls is compiled as ever.
void leave_call(PyObject* code);
bool is_left_call(PyObject* code);

// Functions of this code run in eager, with all that they call.
void leave_whole(PyObject* code);

// While it lives, Python functions of the user's that this thread calls are compiled by way of the
// table; none with a null table. TorchDynamo, where it is at work around it, sees none of the
// frames inside: neither code that we have made nor our own functions.
class InnerFrames {
 public:
  explicit InnerFrames(std::shared_ptr<FrameCompiler> table);
  ~InnerFrames();
  InnerFrames(const InnerFrames&) = delete;

 private:
  py::object dynamo_;  // its callback for the frames of this thread; null where it has none
  std::shared_ptr<FrameCompiler> outer_;
  bool outer_none_;
};

// From now on the Python functions that any thread calls are compiled by way of the table, apart
// from torch's and ours: for tests of the front end with programs that know nothing of it.
void compile_every_frame(std::shared_ptr<FrameCompiler> table);

// What a capture says of the frames that code written in C begins meanwhile.
struct FrameRules {
  // Whether all that is known of an object is that it was there before the capture, with its class.
  std::function<bool(PyObject*)> exists;
  // Whether the capture itself compares and hashes an object.
  std::function<bool(PyObject*)> answers;
  // What such a method returns, with these parameters: a new reference, or null with an exception.
  std::function<PyObject*(PyFunctionObject*, PyObject* const* parameters)> answer;
};

// While it lives, this thread runs no Python function of the user's: a function written in C that
// calls one while a capture interprets gets an exception in its place, before it could do anything.
// Libraries' own functions run, but those by which C code compares, hashes or shows an object that
// `exists`; so does what audit hooks call. What compares and hashes the capture answers itself.
// Garbage is collected later.
class RefusedFrames {
 public:
  explicit RefusedFrames(const FrameRules* rules);  // null: it runs them again
  ~RefusedFrames();
  RefusedFrames(const RefusedFrames&) = delete;

  struct Refusal {
    const FrameRules* rules = nullptr;  // null: none are refused
    PyFrameObject* from = nullptr;      // the frame that it began in
    int hooks = 0;                      // those that ran when it began
  };

 private:
  Refusal outer_;
};
// Whether the handler of a signal has raised it: no error of the code's.
bool is_raised_by_signal(const py::error_already_set& error);
// The name of the function that was refused since this was last asked, or empty.
std::string take_refused();
// Refuses a function: sets the exception that code written in C gets in its place.
void refuse_frame(PyFunctionObject* function);
// What a module of our Python package has by this name; its import runs where frames are refused.
py::object own_function(const char* module, const char* name);

// In a process that was forked, which has no other threads.
void forget_frames_of_other_threads();

// As PyObject_Vectorcall, of a function written in Python. `handed` is empty once its frame runs.
PyObject* call_handing_over(PyObject* function, PyObject* const* args, size_t nargsf,
                            PyObject* kwnames, Handed& handed);
// The same, whose frame runs as it is. `handed` may be null.
PyObject* call_left_alone(PyObject* function, PyObject* const* args, size_t nargsf,
                          PyObject* kwnames, Handed* handed);

}  // namespace oxy::python
