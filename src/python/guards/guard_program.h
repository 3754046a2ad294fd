// The guards of a captured frame as a flat program: one walk that checks them and fetches the graph's inputs.
//
// Most of what a frame relies on hangs on dicts (module attributes, globals). Every dict has a version (CPython 3.11:
// ma_version_tag) that changes with every write. After a full check the versions of all dicts on the way are kept; while
// the roots are the same objects and the versions stand, everything behind them does. Where no dict of the process changed
// at all since the last success (the global counter that gives out versions, read through a dict of our own), not even
// these are compared. What no version covers (arguments, items of lists, cells, slots, the class of an object) is
// looked at every time. A tensor's metadata is not: see torch_bridge/input_signature.h.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <span>

#include "python/guards/guard.h"

namespace oxy::python {

class GuardProgram {
 public:
  // `fetch`: sources whose objects a hit hands over (inputs of the graph, objects that the result needs).
  // `locals`: the bound arguments for which everything holds now.
  GuardProgram(const SourceTable& sources, const GuardSet& guards, std::span<const SourceId> fetch);
  ~GuardProgram();

  // New references to the objects of `fetch`, in order.
  using Fetched = c10::SmallVector<py::object, 16>;

  // Whether every guard holds; on true, `fetched` is filled. Runs no Python code, never raises. Needs the GIL.
  bool check(PyObject* const* locals, Fetched& fetched);
  // The same without what was kept from earlier checks: the reference for tests.
  bool check_fully(PyObject* const* locals, Fetched& fetched) const;

  struct Failure {
    size_t guard;      // position in the set
    std::string text;  // "L['x'] is a float, was an int", with both values
  };
  // The first guard that does not hold, for a human. Nothing if all do.
  std::optional<Failure> why_not(PyObject* const* locals) const;

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

  std::string text() const;  // a guard a line, with the user's line that asked for it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace oxy::python
