// What a full check found, and how to see cheaply that it still stands.
//
// A source is *stable* where something tells of every change of it: items of a dict reached through
// stable sources and attributes of types have versions, tuples, closures and what is pinned do not
// change, and assignments of __class__, __dict__ and __code__ are counted. So is one that a *word*
// of memory says (a slot, a cell, the defaults of a function): the word is compared on every check,
// and what it points to is held, so that nothing else can have its address. The others are *live*
// and looked up on every check; so are the guards that nothing covers. The steps stand in the order
// of the sources, so that an object is only touched after everything that keeps it alive was seen
// to be unchanged. Most are dicts below stable sources, which a model has many of: these have a
// compact list of their own. The other steps are *anchors*.
//
// Where no dict of the process was written, the dicts are passed over, and so are the types:
// whoever changes an attribute or the bases of a type writes a dict.
//
// A version that moved is no reason to start anew: the items that are used are looked up again, and
// where they are what they were, the version is renewed (a module that counts its calls, globals
// that a loop at module level writes).
#pragma once

#include "python/guards/tensor_checks.h"

namespace oxy::python {

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
  enum class StepKind : uint8_t { Live, Word, InstanceDict, Dict, Type };
  struct Step {
    StepKind kind;
    uint32_t node;     // in GuardWalk::nodes
    PyObject* object;  // has the dict, version or word; Live: what it has to be, where that matters
    PyTypeObject* type;  // of `object`
    PyObject* dict;
    uint64_t version;  // of a Word: of `type`, 0 where the word stands whatever the type is
    PyObject* const* at = nullptr;  // a Word's place
    PyObject* has = nullptr;        // and what stands there
  };
  struct Tag {
    PyObject* dict;
    uint64_t version;
  };
  struct Word {
    PyObject* const* at;
    PyObject* has;
    uint32_t step;
  };
  struct Anchor {
    uint32_t step;
    uint32_t before;  // tags, or words, in front of it
  };
  // Building.
  PyObject* value(SourceId id) const { return values_[id.index]; }
  bool stable(SourceId id) const { return stable_[id.index]; }
  void find_stable();
  bool find_stable(const WalkNode& node) const;
  bool has_child(const WalkNode& node, SourceKind kind) const;
  bool covered(const Guard& guard) const;
  void add_live_guards(const WalkNode& node);
  bool is_held(const WalkNode& node, PyObject* value) const;
  std::optional<Step> word_step(const WalkNode& node) const;
  void add_steps(uint32_t index);
  void add_step(Step step);
  bool is_tag(const Step& step) const;

  // Checking.
  Verdict check_live(const Step& step, PyObject* const* locals, Temporaries& made);
  Verdict check_anchor(Step& step, PyObject* const* locals, Temporaries& made);
  Verdict check_quietly(PyObject* const* locals, Temporaries& made);
  Verdict check_versions(PyObject* const* locals, Temporaries& made);
  Verdict check_everything(PyObject* const* locals, Temporaries& made);
  bool tags_stand(uint32_t first, uint32_t last, Temporaries& made);
  bool words_stand(uint32_t first, uint32_t last);
  bool word_stands(Step& step);
  Verdict moved(uint32_t node);
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
  std::vector<Word> words_;
  std::vector<Anchor> anchors_;        // and the tags in front of each
  std::vector<Anchor> quiet_anchors_;  // those that count where no dict was written; words_
  std::vector<uint32_t> live_guards_;
  std::vector<uint32_t> counted_guards_;  // covered by the count of set __class__ and __code__
  TensorChecks tensors_;
  bool values_moved_ = false;                     // a stable source has got another value
  std::vector<bool> stable_;                      // by source
  std::vector<uint32_t> node_;                    // by source
  std::vector<std::vector<uint32_t>> guards_of_;  // of identity, by source
  std::vector<uint32_t> same_as_;                 // SameAs guards
  std::vector<bool> held_elsewhere_;  // by source: stable, and what it has is alive while it stands
  // By source: how often a live one or a word was another object than before.
  std::vector<uint8_t> moves_;
  // Types of what steps touch and what words point to, held so that none is freed and another made
  // in its place.
  std::vector<py::object> held_;
};

}  // namespace oxy::python
