// How to make again, after the graph has run, what captured code leaves behind: a table of steps, one an object, and what
// is written to objects that were there before.
//
// Objects that cannot change are made whole, from parts that stand earlier in the table. Those that can are made empty and
// filled once every step is made; their parts may stand anywhere, so that cycles are no matter. An object that captured code
// reaches in two ways has one step, and is one object again.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <span>
#include <vector>

namespace oxy::python {

namespace py = pybind11;

struct RebuildStep {
  enum class Kind : uint8_t {
    Constant,  // `object` itself
    Output,    // `index`: position among the graph's outputs
    Fetched,   // `index`: position among what the guards fetched
    Tuple,     // of the class `object`; parts: items
    Call,      // of the function `object`, written in C; parts: arguments
    List,      // made empty
    Set,
    Dict,
    Instance,  // of the class `object`, made by the `__new__` of its builtin base; parts: its arguments
    DictOf,  // the __dict__ of the part
  };
  Kind kind = Kind::Constant;
  uint32_t index = 0;
  py::object object;
  std::vector<uint32_t> parts;  // steps
};

struct RebuildWrite {
  enum class Kind : uint8_t {
    ListExtend,  // parts: items
    SetAdd,      // parts: items
    DictSet,     // parts: key, value, key, value ...; of dict itself, whatever a class says
    DictDelete,  // parts: keys
  };
  Kind kind;
  uint32_t target;  // a step
  std::vector<uint32_t> parts;
};

struct Rebuild {
  std::vector<RebuildStep> steps;
  std::vector<RebuildWrite> fills;    // of what the steps make
  std::vector<RebuildWrite> effects;  // on what was there before
  std::vector<uint32_t> roots;        // steps of the values that were asked for, in order

  // The objects of all steps, filled. Nothing that was there before is written.
  std::vector<py::object> build(std::span<const py::object> outputs,
                                std::span<const py::object> fetched) const;
  // Carries out the effects, with the objects of `build`.
  void apply(std::span<const py::object> built) const;
};

}  // namespace oxy::python
