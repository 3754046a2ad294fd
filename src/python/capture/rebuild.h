// What the code behind a capture gets: how to make again, after the graph has run, what captured
// code leaves behind (a table of steps, one an object, and what is written to objects that were
// there before), the numbers that the graph takes, the frames that are left in front of a break.
//
// Objects that cannot change are made whole, from parts that stand earlier in the table. Those that
// can are made empty and filled once every step is made; their parts may stand anywhere, so that
// cycles are no matter. What looks at the content of its parts (an iterator over a dict) is late:
// made after that. What captured code reaches in two ways has one step, and is one object again.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>

#include "python/bytecode/resume.h"
#include "python/cpython/handles.h"
#include "python/guards/number_tree.h"

namespace oxy::python {

struct RebuildStep {
  enum class Kind : uint8_t {
    Constant,  // `object` itself
    Output,    // `index`: position among the graph's outputs
    Fetched,   // `index`: position among what the guards fetched
    Size,      // `index`: of Sizes::wanted; becomes Fetched at the end of a capture
    Tuple,     // of the class `object`; parts: items
    Call,      // of the function `object`, written in C; parts: arguments
    List,      // made empty
    Set,
    Dict,
    Cell,
    Instance,  // of the class `object`, made by the `__new__` of its builtin base; parts: its
               // arguments
    DictOf,    // the __dict__ of the part
    Iterator,  // of the part, `index` items taken; late
  };
  Kind kind = Kind::Constant;
  uint32_t index = 0;
  py::object object;
  std::vector<uint32_t> parts;  // steps
  bool late = false;
};

struct RebuildWrite {
  enum class Kind : uint8_t {
    ListExtend,       // parts: items
    ListSplice,       // parts: items in the place of those from `from` up to `to`
    SetAdd,           // parts: items
    SetDiscard,       // parts: items
    SetPop,           // parts: the item that pop() takes
    Extend,           // parts: items; of a deque
    DequeAssign,      // parts: items in the place of all
    CellSet,          // parts: content, or none to empty it
    DictSet,          // parts: key, value, key, value ...; of dict itself, whatever a class says
    DictDelete,       // parts: keys
    DictClear,        // no parts
    AttributeSet,     // parts: name, value; as object.__setattr__, or type.__setattr__
    AttributeDelete,  // parts: name
    State,            // parts: what __setstate__ takes
    Call,             // of the target, a function; parts: arguments; its result is dropped
    Advance,          // an iterator written in C: `from` items are taken
    Exception,  // parts: __cause__, __context__, __suppress_context__, __traceback__ (None for
                // none), whether it was raised: then what is being handled may be its context
  };
  Kind kind;
  uint32_t target;  // a step
  std::vector<uint32_t> parts;
  Py_ssize_t from = 0, to = 0;
};

struct Rebuild {
  std::vector<RebuildStep> steps;
  std::vector<RebuildWrite> fills;    // of what the steps make
  std::vector<RebuildWrite> late;     // fills of what is late, or with it
  std::vector<RebuildWrite> effects;  // on what was there before
  std::vector<uint32_t> roots;        // steps of the values that were asked for, in order

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse
  // Nothing but one of the graph's outputs: the usual case.
  bool is_one_output() const {
    return steps.size() == 1 && roots.size() == 1 && effects.empty() &&
           steps[0].kind == RebuildStep::Kind::Output;
  }
  // The objects of all steps, filled. Nothing that was there before is written.
  std::vector<py::object> build(std::span<const py::object> outputs,
                                std::span<PyObject* const> fetched) const;
  // Carries out the effects, with the objects of `build`.
  void apply(std::span<const py::object> built) const;
};

// Of the tensor that a number meets. Beside one without dimensions, which would be promoted, the
// number has the same dtype; else it is f64 or i64.
struct NumberDtype {
  at::ScalarType fits;
  bool same;
  auto operator<=>(const NumberDtype&) const = default;
};

// A number that a graph takes as a tensor without dimensions, so that another value needs no other
// graph.
struct NumberInput {
  uint32_t input;  // position among the graph's inputs
  NumberDtype dtype;
  NumberTree number;
};

// Nothing where eager may refuse the value beside that tensor: it is out of its dtype's range.
std::optional<at::Tensor> number_as_tensor(py::handle number, NumberDtype dtype);

// A frame that was left, in front of an instruction or in the middle of its call of the next frame.
struct LeftFrame {
  py::object function;
  PyCodeObject* code = nullptr;
  std::shared_ptr<const Bytecode> bytecode;
  int index = 0;
  FrameState state;  // of an outer frame: without what the call takes from the stack
  std::vector<std::vector<bool>> live;  // live_locals of its code
  std::vector<int> with_finalizer;      // slots that keep their values although they are dead
  int loop = -1;                        // Break::loop, of the innermost
};

// While it lives, no warning is heard: captured code has not asked an iterator of itertools what it
// holds. Only code written in C runs meanwhile.
class Unwarned {
 public:
  Unwarned();
  ~Unwarned();
  Unwarned(const Unwarned&) = delete;
  Unwarned& operator=(const Unwarned&) = delete;

 private:
  py::object filters_;  // of the module warnings; null where nothing warns
};

}  // namespace oxy::python
