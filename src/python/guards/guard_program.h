// The guards of a captured frame as a flat program: one walk that checks them and fetches the
// graph's inputs.
//
// Most of what a frame relies on hangs on dicts (module attributes, globals). Every dict has a
// version (CPython 3.11: ma_version_tag) that changes with every write. After a full check the
// versions of all dicts on the way are kept; while the roots are the same objects and the versions
// stand, everything behind them does. Where no dict of the process changed at all since the last
// success (the global counter that gives out versions, read through a dict of our own), not even
// these are compared, and a model of any depth costs the same. What no version covers (arguments,
// items of lists, cells, slots) is looked at every time, and so is every tensor: nothing tells of
// `p.data = ...`.
#pragma once

#include "python/guards/guard_cache.h"
#include "python/guards/shape_guards.h"

namespace oxy::python {

class GuardProgram {
 public:
  // `fetch`: sources whose objects a hit hands over (inputs of the graph, objects that the result
  // needs). `locals`: the bound arguments for which everything holds now.
  // `shapes`: of a capture whose sizes vary, else null; what it computes comes behind `fetch`.
  GuardProgram(const SourceTable& sources, const GuardSet& guards, std::span<const SourceId> fetch,
               std::shared_ptr<const ShapeGuards> shapes = nullptr,
               const GuardedPlaces& places = {.all = true, .written = {}})
      : walk_(sources, guards, fetch, places), cache_(walk_), shapes_(std::move(shapes)) {}
  GuardProgram(const GuardProgram&) = delete;

  // Whether every guard holds; on true `fetched` has the objects of `fetch`, in order. Runs no
  // Python code, never raises. Needs the GIL.
  bool check(PyObject* const* locals, Fetched& fetched);
  // The same without what was kept from earlier checks: the reference for tests.
  bool check_fully(PyObject* const* locals, Fetched& fetched) const;

  using Level = GuardCache::Level;
  // What the last check() took to find that the Python structure is as it was.
  Level last_level() const { return level_; }
  // check() without the tensors, for measuring.
  bool check_structure(PyObject* const* locals);

  struct Failure {
    size_t guard;         // position in the set
    std::string text;     // "L['x'] is a float, was an int", with both values
    std::string stack;    // of the user, that asked for the guard: a line a frame
    bool number = false;  // a tensor holds another number
    int64_t local = -1;   // the argument that its source begins at
  };
  // The first guard that does not hold, for a human. Nothing if all do.
  std::optional<Failure> why_not(PyObject* const* locals) const;
  // The sources, as texts, of numbers that are other ones of the same type; whether they are ints.
  std::vector<std::pair<std::string, bool>> changed_numbers(PyObject* const* locals) const;
  // Tensors that are as guards want them but for their rank, or sizes or strides of dimensions.
  struct ChangedSizes {
    std::string source;
    std::vector<int64_t> dims, before;  // and their sizes in the call that was captured
    std::vector<int64_t> strides;       // the dimensions that have other ones
    int64_t ranks;                      // of another rank: the larger one, else 0
  };
  std::vector<ChangedSizes> changed_sizes(PyObject* const* locals) const;
  std::vector<std::string> tensor_sources() const;  // of all tensors that guards look at

  // Where true, measure() is called for what is captured: explain asks for it.
  static inline bool measured = false;
  // Takes the time of each guard, with the step that finds its object, for locals for which all
  // hold.
  void measure(PyObject* const* locals);
  // In the order of text(); empty before measure().
  const std::vector<double>& nanoseconds() const { return nanoseconds_; }

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

  // All guards with their kinds and the user's stack.
  std::string log_text() const;
  std::string text() const;  // a guard a line, with the user's line that asked for it
  // See ShapeGuards::dimensions; empty where nothing is symbolic.
  std::vector<std::string> dimensions() const {
    return shapes_ ? shapes_->dimensions() : std::vector<std::string>();
  }

 private:
  GuardCache::Verdict check_structure(PyObject* const* locals, Temporaries& made);
  bool start_anew(PyObject* const* locals, Temporaries& made);
  GuardWalk::Values all_values(PyObject* const* locals, Temporaries& made) const;

  GuardWalk walk_;
  GuardCache cache_;
  const std::shared_ptr<const ShapeGuards> shapes_;
  uint64_t last_writes_ = 0, last_changes_ = 0;  // when the structure was last seen to hold
  Level level_ = Level::Walk;
  std::vector<double> nanoseconds_;
};

}  // namespace oxy::python
