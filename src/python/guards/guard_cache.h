// What a full check found, and how to see cheaply that it still stands.
//
// A source is *stable* where something tells of every change of it: items of a dict reached through
// stable sources and attributes of types have versions, tuples, closures and what is pinned do not
// change, and assignments of __class__, __dict__ and __code__ are counted. The others are *live*
// and looked up on every check; so are the guards that nothing covers. The steps stand in the order
// of the sources, so that an object is only touched after everything that keeps it alive was seen
// to be unchanged. Most are dicts below stable sources, which a model has many of: these have a
// compact list of their own, and where no dict of the process was written they are passed over. The
// other steps are *anchors*.
//
// A version that moved is no reason to start anew: the items that are used are looked up again, and
// where they are what they were, the version is renewed (a module that counts its calls, globals
// that a loop at module level writes).
#pragma once

#include "python/guards/guard_walk.h"
#include "torch_bridge/tensor_image.h"

namespace oxy::python {

// The Tensor guards of a program on the hot path: every tensor is looked at in every call, and
// there may be hundreds. What takes the time is waiting for memory (a tensor is half a dozen cache
// lines in three places), so what is known of one lies together, and those to come are prefetched.
class TensorChecks {
 public:
  explicit TensorChecks(const GuardWalk& walk);

  // From now on the tensors are those among `values`; those of live sources may be others on every
  // check.
  void keep(const GuardWalk::Values& values, const std::vector<bool>& stable);

  // Whether all guards hold and storages are shared as they were. New references to what the walk
  // fetches go to `fetched`, whatever the answer.
  bool check(const GuardWalk::Values& values, Fetched& fetched);

 private:
  struct Tensor {
    PyObject* object;
    PyObject* type;
    // Where things lay the last time: only ever prefetched.
    const c10::TensorImpl* impl = nullptr;
    const torch::autograd::AutogradMeta* meta = nullptr;
    bridge::TensorImage image;  // of a tensor that was found to be right
  };
  static void prefetch(const Tensor& t);
  bool holds(size_t i, const c10::TensorImpl& impl);

  const GuardWalk& walk_;
  std::vector<Tensor> tensors_;
  std::vector<uint32_t> sources_;
  std::vector<uint32_t> live_;  // tensors of sources that are looked up on every check
  std::vector<const void*> storages_;
  bridge::StorageSharing sharing_;
  size_t fetched_ = 0;  // how many of walk_.fetch() are, in order, the sources of the first tensors
};

class GuardCache {
 public:
  enum class Verdict : uint8_t {
    Holds,
    Fails,  // for sure: what was looked at was the real state
    Stale,  // only a full walk can tell
  };
  // What it takes to find that the Python structure is as it was.
  enum class Level : uint8_t {
    NothingWritten,  // no dict of the process was written since
    DictsWritten,    // the versions of the dicts
    ObjectsChanged,  // these, the __class__ and the __dict__ of every object
    Walk,            // all from the start
  };

  explicit GuardCache(const GuardWalk& walk);

  // Keeps what a full walk that succeeded has found; what was held for the last one goes to `made`.
  void keep(GuardWalk::Values& values, Temporaries& made);
  bool kept() const { return kept_; }

  // All but the tensors; these after it.
  Verdict check_structure(PyObject* const* locals, Level level, Temporaries& made);
  // New references to what is fetched go to `fetched`, whatever the answer.
  bool check_tensors(Fetched& fetched);

  int traverse(visitproc visit, void* arg) const;  // as tp_traverse

 private:
  enum class StepKind : uint8_t { Live, InstanceDict, Dict, Type };
  struct Step {
    StepKind kind;
    uint32_t node;       // in GuardWalk::nodes
    PyObject* object;    // has the dict or version; Live: what it has to be, where that matters
    PyTypeObject* type;  // of `object`
    PyObject* dict;
    uint64_t version;
  };
  struct Tag {
    PyObject* dict;
    uint64_t version;
  };
  struct Anchor {
    uint32_t step;
    uint32_t tags;  // those before it
  };
  // Building.
  PyObject* value(SourceId id) const { return values_[id.index]; }
  bool stable(SourceId id) const { return stable_[id.index]; }
  bool find_stable(const WalkNode& node) const;
  bool has_child(const WalkNode& node, SourceKind kind) const;
  bool covered(const Guard& guard) const;
  void add_live_guards(const WalkNode& node);
  void add_steps(uint32_t index);
  void add_step(Step step);
  bool is_tag(const Step& step) const;

  // Checking.
  Verdict check_live(const Step& step, PyObject* const* locals, Temporaries& made);
  Verdict check_anchor(Step& step, PyObject* const* locals, Temporaries& made);
  Verdict check_everything(PyObject* const* locals, Temporaries& made);
  bool tags_stand(uint32_t first, uint32_t last, Temporaries& made);
  bool same_shape(const Step& step) const;
  static uint64_t version_now(const Step& step);
  bool stands(Step& step, Temporaries& made);
  bool renew(Step& step, Temporaries& made);
  bool same_as_before(const WalkNode& node, Temporaries& made);
  bool same_steps(const WalkNode& node) const;

  const GuardWalk& walk_;
  bool kept_ = false;
  GuardWalk::Values values_;
  std::vector<Step> steps_;
  std::vector<uint32_t> first_step_;  // by node, and the end
  std::vector<Tag> tags_;
  std::vector<uint32_t> tag_steps_;
  std::vector<Anchor> anchors_;
  std::vector<uint32_t> live_guards_;
  std::vector<uint32_t> counted_guards_;  // covered by the count of set __class__ and __code__
  TensorChecks tensors_;
  bool values_moved_ = false;   // a stable source has got another value
  std::vector<bool> stable_;    // by source
  std::vector<uint32_t> node_;  // by source
  std::vector<uint8_t> moves_;  // by source: how often a live one was another object than before
  // Of what steps touch, held so that none is freed and another made in its place.
  std::vector<py::object> types_;
};

}  // namespace oxy::python
