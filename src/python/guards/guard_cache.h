// What a full check found, and how to see cheaply that it still stands.
//
// A source is *stable* where a version tells of every change of it: items of a dict reached through stable sources,
// attributes of types, items of tuples and closures below those, what is pinned. The others are *live* and looked up on
// every check; so are the guards that no version covers. The steps stand in the order of the sources, so that an object
// is only touched after everything that keeps it alive was seen to be unchanged.
//
// A version that moved is no reason to start anew: the items that are used are looked up again, and where they are what
// they were, the version is renewed (a module that counts its calls, globals that a loop at module level writes).
#pragma once

#include "python/guards/guard_walk.h"

namespace oxy::python {

class GuardCache {
 public:
  enum class Verdict : uint8_t {
    Holds,
    Fails,  // for sure: what was looked at was the real state
    Stale,  // only a full walk can tell
  };

  explicit GuardCache(const GuardWalk& walk);

  // Keeps what a full walk that succeeded has found; what was held for the last one goes to `made`.
  void keep(GuardWalk::Values& values, Temporaries& made);
  bool kept() const { return kept_; }

  // `quiet`: no dict of the process was written since the last time that all held.
  Verdict check(PyObject* const* locals, bool quiet, Temporaries& made);

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

  const GuardWalk::Values& values() const { return values_; }

 private:
  enum class StepKind : uint8_t { Live, InstanceDict, Dict, Type };
  struct Step {
    StepKind kind;
    uint32_t node;  // in GuardWalk::nodes
    PyObject*
        object;  // what has the dict or the version; Live: what it has to be, where that matters
    PyObject** slot;  // InstanceDict: where `object` has its dict
    PyObject* dict;
    uint64_t version;
    PyTypeObject* type;  // of `object`
  };

  // A Tensor guard apart: there may be hundreds.
  struct TensorGuard {
    uint32_t source;
    bool requires_grad;
    PyObject* type;
  };

  PyObject* value(SourceId id) const { return values_[id.index]; }
  bool stable(SourceId id) const { return stable_[id.index]; }
  bool find_stable(const WalkNode& node) const;
  bool has_child(const WalkNode& node, SourceKind kind) const;
  bool covered(const Guard& guard) const;
  void add_live_guards(const WalkNode& node);
  void add_steps(uint32_t index);
  void add_step(Step step);

  bool live_guards_hold() const;
  Verdict check_live(const Step& step, PyObject* const* locals, Temporaries& made);
  bool stands(Step& step, bool quiet, Temporaries& made);
  bool renew(Step& step, Temporaries& made);
  bool same_as_before(const WalkNode& node, Temporaries& made);

  const GuardWalk& walk_;
  bool kept_ = false;
  GuardWalk::Values values_;
  std::vector<Step> steps_;
  std::vector<uint32_t> live_guards_;
  std::vector<TensorGuard> tensor_guards_;
  std::vector<bool> stable_;    // by source
  std::vector<bool> in_step_;   // by source: a step has its address
  std::vector<uint8_t> moves_;  // by source: how often a live one was another object than before
  std::vector<py::object>
      types_;  // of what steps touch, held so that none is freed and another made in its place
};

}  // namespace oxy::python
