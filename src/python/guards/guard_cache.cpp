// Building and checking the cached form of a walk.
#include "python/guards/guard_cache.h"

#include <algorithm>
#include <utility>

#include "python/cpython/changes.h"
#include "python/cpython/types.h"
#include "support/check.h"

namespace oxy::python {
namespace {

// After so many changes of an object that others hang on, these are looked up every time (an
// argument that is made anew for every call).
constexpr uint8_t kRestless = 4;

bool is_dict_guard(GuardKind kind) {
  return kind == GuardKind::HasKey || kind == GuardKind::LacksKey || kind == GuardKind::Keys ||
         kind == GuardKind::Length;
}

// `__class__` cannot be assigned on instances of types written in C, modules excepted.
bool keeps_its_class(PyObject* value) {
  return !is_changeable_class(Py_TYPE(value)) && !PyModule_Check(value);
}

bool is_type_with_version(PyObject* value) {
  return value && PyType_Check(value) && type_version(as_type(value)) != 0;
}

}  // namespace

GuardCache::GuardCache(const GuardWalk& walk)
    : walk_(walk),
      tensors_(walk),
      stable_(walk.sources().size()),
      node_(walk.sources().size()),
      guards_of_(walk.sources().size()),
      moves_(walk.sources().size()) {
  count_object_changes();
  for (uint32_t i = 0; i < walk.guards().size(); ++i) {
    const Guard& g = walk.guards()[i];
    if (g.kind == GuardKind::IdIs || g.kind == GuardKind::SameAs)
      guards_of_[g.source.index].push_back(i);
    if (g.kind != GuardKind::SameAs) continue;
    guards_of_[g.other.index].push_back(i);
    same_as_.push_back(i);
  }
  for (uint32_t i = 0; i < walk.nodes().size(); ++i) node_[walk.nodes()[i].id.index] = i;
}

int GuardCache::traverse(visitproc visit, void* arg) const {
  for (const py::object& o : held_) Py_VISIT(o.ptr());
  return 0;
}

bool GuardCache::find_stable(const WalkNode& node) const {
  SourceId base = node.step.base;
  bool steady = base && (stable(base) || moves_[base.index] < kRestless);
  switch (node.step.kind) {
    case SourceKind::Pinned:
      return true;
    case SourceKind::InstanceDict:
      return steady;
    case SourceKind::TypeAttribute:
      return steady && is_type_with_version(value(base));
    case SourceKind::DictItem:
    case SourceKind::Closure:
    case SourceKind::Code:
      return stable(base);
    case SourceKind::Item:
      return stable(base) && PyTuple_Check(value(base));
    case SourceKind::Attribute:
    case SourceKind::CellContents:
    case SourceKind::Default:
      return word_step(node).has_value();
    case SourceKind::Key:  // an OrderedDict changes its order without a new version
      return stable(base) && PyDict_Check(value(base)) && !PyODict_Check(value(base));
    default:
      return false;
  }
}

// Whether the value that was found stays alive as long as the guards hold. The cache holds plain
// ones, the guard what is guarded by identity, and what another stable source has as well lives as
// long as that one stands. Else nothing that is kept of an object keeps it alive.
bool GuardCache::is_held(const WalkNode& node, PyObject* value) const {
  if (is_plain(value)) return true;
  for (const uint32_t i : guards_of_[node.id.index]) {
    const Guard& g = walk_.guards()[i];
    if (g.kind == GuardKind::IdIs && g.expected.ptr() == value) return true;
    if (g.kind != GuardKind::SameAs || !node.children.empty()) continue;
    if (held_elsewhere_[(g.source == node.id ? g.other : g.source).index]) return true;
  }
  return false;
}

// The step of a source that one word of memory says; none where it is looked up instead.
std::optional<GuardCache::Step> GuardCache::word_step(const WalkNode& node) const {
  const SourceId base = node.step.base;
  PyObject* object = base && stable(base) ? value(base) : nullptr;
  if (!object || !value(node.id) || moves_[node.id.index] >= kRestless) return std::nullopt;
  PyObject* const* at = word_of(node.step, object);
  if (!at) return std::nullopt;
  PyObject* has = *at;
  if (has == value(node.id)) {
    if (!is_held(node, has)) return std::nullopt;
  } else if (has) {  // the defaults of a function
    if (!PyTuple_CheckExact(has)) return std::nullopt;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(has); ++i)
      if (!is_plain(PyTuple_GET_ITEM(has, i))) return std::nullopt;
  }
  const bool by_type = node.step.kind == SourceKind::Attribute && !PyFunction_Check(object);
  const uint32_t version = by_type ? type_version(Py_TYPE(object)) : 0;
  if (by_type && version == 0) return std::nullopt;
  return Step{StepKind::Word, node_[node.id.index], object, nullptr, nullptr, version, at, has};
}

bool GuardCache::has_child(const WalkNode& node, SourceKind kind) const {
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    if (c.step.kind == kind && stable(c.id)) return true;
  }
  return false;
}

// Whether the steps see everything that could make the guard fail; of a TypeIs guard, all but a new
// __class__.
bool GuardCache::covered(const Guard& guard) const {
  // Nothing tells of a write to a tensor, or of a dict that is made.
  if (guard.kind == GuardKind::Number || guard.kind == GuardKind::NumberTruth ||
      guard.kind == GuardKind::HasDict)
    return false;
  if (guard.kind == GuardKind::Apart)
    return std::ranges::all_of(guard.all, [this](SourceId id) { return stable(id); });
  if (guard.other) return stable(guard.source) && stable(guard.other);
  if (!stable(guard.source)) return false;
  PyObject* object = value(guard.source);
  // An OrderedDict changes its order without a new version.
  if (guard.kind == GuardKind::Keys && PyODict_Check(object))
    return PyTuple_GET_SIZE(guard.expected.ptr()) <= 1;
  if (guard.kind == GuardKind::Length && PyTuple_Check(object)) return true;
  return !is_dict_guard(guard.kind) || PyDict_Check(object);
}

// What is stable because of what else is: until nothing more is found.
void GuardCache::find_stable() {
  held_elsewhere_.assign(stable_.size(), false);
  for (bool more = true; more;) {
    for (const WalkNode& node : walk_.nodes()) stable_[node.id.index] = find_stable(node);
    more = false;
    for (const uint32_t g : same_as_) {
      for (const SourceId source : {walk_.guards()[g].source, walk_.guards()[g].other}) {
        if (!stable(source) || held_elsewhere_[source.index]) continue;
        held_elsewhere_[source.index] = more = true;
      }
    }
  }
}

void GuardCache::keep(GuardWalk::Values& values, Temporaries& made) {
  values_.swap(values);
  steps_.clear();
  first_step_.clear();
  tags_.clear();
  tag_steps_.clear();
  words_.clear();
  anchors_.clear();
  quiet_anchors_.clear();
  live_guards_.clear();
  counted_guards_.clear();
  for (py::object& o : held_) made.push_back(std::move(o));
  held_.clear();
  find_stable();
  for (uint32_t i = 0; i < walk_.nodes().size(); ++i) add_steps(i);
  first_step_.push_back(static_cast<uint32_t>(steps_.size()));
  for (const WalkNode& node : walk_.nodes()) add_live_guards(node);
  kept_ = values_moved_ = true;
}

void GuardCache::add_live_guards(const WalkNode& node) {
  for (uint32_t i = node.first_guard; i < node.last_guard; ++i) {
    uint32_t guard = walk_.order()[i];
    const Guard& g = walk_.guards()[guard];
    if (is_of_tensor(g.kind)) continue;
    if (!covered(g)) {
      live_guards_.push_back(guard);
    } else if (node.step.kind == SourceKind::Code ||
               (g.kind == GuardKind::TypeIs && !keeps_its_class(value(g.source)))) {
      counted_guards_.push_back(guard);
    }
  }
}

// Whether the version alone tells of every change, as long as no object has got another __class__
// or __dict__.
bool GuardCache::is_tag(const Step& step) const {
  if (step.kind == StepKind::Dict) return true;
  if (step.kind != StepKind::InstanceDict) return false;
  return stable(walk_.nodes()[step.node].step.base) && counts_dict_changes(step.type);
}

void GuardCache::add_step(Step step) {
  if (step.object) {
    step.type = Py_TYPE(step.object);
    held_.push_back(borrow(reinterpret_cast<PyObject*>(step.type)));
  }
  auto index = static_cast<uint32_t>(steps_.size());
  if (is_tag(step)) {
    tags_.push_back({step.dict, step.version});
    tag_steps_.push_back(index);
  } else {
    anchors_.push_back({index, static_cast<uint32_t>(tags_.size())});
    if (step.kind == StepKind::Word) {
      words_.push_back({step.at, step.has, index});
      if (step.has) held_.push_back(borrow(step.has));
    } else if (step.kind == StepKind::InstanceDict) {
      words_.push_back({instance_dict_slot(step.object), step.dict, index});
    } else if (step.kind != StepKind::Type) {
      quiet_anchors_.push_back({index, static_cast<uint32_t>(words_.size())});
    }
  }
  steps_.push_back(step);
}

void GuardCache::add_steps(uint32_t index) {
  const WalkNode& node = walk_.nodes()[index];
  PyObject* object = value(node.id);
  bool looked_up = has_child(node, SourceKind::TypeAttribute);
  first_step_.push_back(static_cast<uint32_t>(steps_.size()));
  if (!stable(node.id)) {
    bool matters = looked_up || has_child(node, SourceKind::InstanceDict);
    add_step({StepKind::Live, index, matters ? object : nullptr});
  } else if (node.step.kind == SourceKind::InstanceDict) {
    PyObject* owner = value(node.step.base);
    add_step({StepKind::InstanceDict, index, owner, nullptr, object, tracked_version(object)});
  } else {
    if (auto word = word_step(node)) add_step(*word);
    if (object && PyDict_Check(object))
      add_step({StepKind::Dict, index, object, nullptr, object, tracked_version(object)});
  }
  if (looked_up) {
    uint32_t version = type_version(as_type(object));
    add_step({StepKind::Type, index, object, nullptr, nullptr, version});
  }
}

GuardCache::Verdict GuardCache::check_live(const Step& step, PyObject* const* locals,
                                           Temporaries& made) {
  const WalkNode& node = walk_.nodes()[step.node];
  PyObject* now = walk_.evaluate_node(node, locals, values_, made);
  values_[node.id.index] = now;
  if (!now && !node.may_miss) return Verdict::Fails;
  if (!step.object || (now == step.object && Py_TYPE(now) == step.type)) return Verdict::Holds;
  return moved(step.node);
}

// Another object than before; soon it is looked up every time.
GuardCache::Verdict GuardCache::moved(uint32_t node) {
  uint8_t& moves = moves_[walk_.nodes()[node].id.index];
  if (moves < kRestless) ++moves;
  return Verdict::Stale;
}

// Whether what the step touches is of the kind that it was, and its dict the same.
bool GuardCache::same_shape(const Step& step) const {
  if (Py_TYPE(step.object) != step.type) return false;
  if (step.kind != StepKind::InstanceDict) return true;
  PyObject** slot = instance_dict_slot(step.object);
  return slot && *slot == step.dict;
}

uint64_t GuardCache::version_now(const Step& step) {
  return step.kind == StepKind::Type ? type_version(as_type(step.object))
                                     : tracked_version(step.dict);
}

// Whether a word lies where it lay, and says what it said. The object has been seen to be the same,
// or its address to be that of another one.
bool GuardCache::word_stands(Step& step) {
  if (Py_TYPE(step.object) != step.type) return false;
  if (step.version != 0 && type_version(step.type) != step.version) {
    if (word_of(walk_.nodes()[step.node].step, step.object) != step.at) return false;
    step.version = type_version(step.type);
    if (step.version == 0) return false;
  }
  return *step.at == step.has;
}

bool GuardCache::stands(Step& step, Temporaries& made) {
  return same_shape(step) && (version_now(step) == step.version || renew(step, made));
}

// Looks up again what is used of a dict or type that was written.
bool GuardCache::renew(Step& step, Temporaries& made) {
  const WalkNode& node = walk_.nodes()[step.node];
  if (!walk_.guards_hold(node, values_)) return false;
  const auto uses = [&](SourceKind kind) {
    if (step.kind == StepKind::Type) return kind == SourceKind::TypeAttribute;
    return kind == SourceKind::DictItem || kind == SourceKind::Key;
  };
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    if (uses(c.step.kind) && stable(c.id) && !same_as_before(c, made)) return false;
  }
  step.version = version_now(step);
  return step.kind != StepKind::Type || step.version != 0;
}

// What the steps of a node and of its __dict__ rely on, their versions apart: these are never given
// out twice.
bool GuardCache::same_steps(const WalkNode& node) const {
  uint32_t index = node_[node.id.index];
  for (uint32_t i = first_step_[index]; i < first_step_[index + 1]; ++i)
    if (!same_shape(steps_[i])) return false;
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    if (!stable(c.id) || first_step_[child] == first_step_[child + 1]) continue;
    const Step& step = steps_[first_step_[child]];
    if (c.step.kind == SourceKind::InstanceDict && !same_shape(step)) return false;
    // What it says is compared where it is reached.
    if (step.kind == StepKind::Word && word_of(c.step, step.object) != step.at) return false;
  }
  return true;
}

// An equal address may be a new object: its guards are checked, and what no version of its own
// protects.
bool GuardCache::same_as_before(const WalkNode& node, Temporaries& made) {
  PyObject* now = walk_.evaluate_node(node, nullptr, values_, made);
  PyObject*& before = values_[node.id.index];
  uint32_t index = node_[node.id.index];
  if (now != before) {
    bool has_step = first_step_[index] != first_step_[index + 1];
    bool leaf = node.children.empty() && !node.compared && !has_step;
    if (!leaf || (now && PyDict_Check(now))) return false;
    before = now;
    values_moved_ = true;
  }
  if (!now) return node.may_miss && walk_.guards_hold(node, values_);
  if (!same_steps(node) || !walk_.guards_hold(node, values_)) return false;
  for (const uint32_t i :
       guards_of_[node.id.index]) {  // words may rely on the object being the same
    const Guard& g = walk_.guards()[i];
    if (g.kind != GuardKind::SameAs) continue;
    const SourceId other = g.source == node.id ? g.other : g.source;
    if (value(other) != now || !walk_.guards_hold(walk_.nodes()[node_[other.index]], values_))
      return false;
  }
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    bool unprotected = c.step.kind == SourceKind::Item || c.step.kind == SourceKind::Closure ||
                       c.step.kind == SourceKind::Code;
    if (unprotected && stable(c.id) && !same_as_before(c, made)) return false;
  }
  return true;
}

bool GuardCache::tags_stand(uint32_t first, uint32_t last, Temporaries& made) {
  for (Tag *tag = tags_.data() + first, *end = tags_.data() + last; tag != end; ++tag) {
    if (dict_version(tag->dict) == tag->version) [[likely]]
      continue;
    Step& step = steps_[tag_steps_[static_cast<size_t>(tag - tags_.data())]];
    if (!renew(step, made)) return false;
    tag->version = step.version;
  }
  return true;
}

bool GuardCache::words_stand(uint32_t first, uint32_t last) {
  for (const Word *word = words_.data() + first, *end = words_.data() + last; word != end; ++word) {
    if (*word->at == word->has) [[likely]]
      continue;
    moved(steps_[word->step].node);
    return false;
  }
  return true;
}

GuardCache::Verdict GuardCache::check_anchor(Step& step, PyObject* const* locals,
                                             Temporaries& made) {
  if (step.kind == StepKind::Live) return check_live(step, locals, made);
  if (step.kind == StepKind::Word) return word_stands(step) ? Verdict::Holds : moved(step.node);
  return stands(step, made) ? Verdict::Holds : Verdict::Stale;
}

// No dict was written, nor any type changed.
GuardCache::Verdict GuardCache::check_quietly(PyObject* const* locals, Temporaries& made) {
  uint32_t words = 0;
  for (const Anchor& anchor : quiet_anchors_) {
    if (!words_stand(std::exchange(words, anchor.before), anchor.before)) return Verdict::Stale;
    Verdict verdict = check_anchor(steps_[anchor.step], locals, made);
    if (verdict != Verdict::Holds) return verdict;
  }
  auto all = static_cast<uint32_t>(words_.size());
  return words_stand(words, all) ? Verdict::Holds : Verdict::Stale;
}

GuardCache::Verdict GuardCache::check_versions(PyObject* const* locals, Temporaries& made) {
  uint32_t tags = 0;
  for (const Anchor& anchor : anchors_) {
    if (!tags_stand(std::exchange(tags, anchor.before), anchor.before, made)) return Verdict::Stale;
    Verdict verdict = check_anchor(steps_[anchor.step], locals, made);
    if (verdict != Verdict::Holds) return verdict;
  }
  auto all = static_cast<uint32_t>(tags_.size());
  return tags_stand(tags, all, made) ? Verdict::Holds : Verdict::Stale;
}

// The whole way, looking at every type and every __dict__.
GuardCache::Verdict GuardCache::check_everything(PyObject* const* locals, Temporaries& made) {
  for (Step& step : steps_) {
    Verdict verdict = check_anchor(step, locals, made);
    if (verdict != Verdict::Holds) return verdict;
  }
  for (size_t i = 0; i < tags_.size(); ++i) tags_[i].version = steps_[tag_steps_[i]].version;
  for (uint32_t guard : counted_guards_) {
    const SourceId source = walk_.guards()[guard].source;
    const WalkNode& node = walk_.nodes()[node_[source.index]];
    if (node.step.kind == SourceKind::Code)
      values_[source.index] = walk_.evaluate_node(node, locals, values_, made);
    if (!walk_.guard_holds(guard, values_)) return Verdict::Fails;
  }
  return Verdict::Holds;
}

GuardCache::Verdict GuardCache::check_structure(PyObject* const* locals, Level level,
                                                Temporaries& made) {
  Verdict verdict = level == Level::NothingWritten ? check_quietly(locals, made)
                    : level == Level::DictsWritten ? check_versions(locals, made)
                                                   : check_everything(locals, made);
  if (verdict != Verdict::Holds) return verdict;
  for (uint32_t guard : live_guards_)
    if (!walk_.guard_holds(guard, values_)) return Verdict::Fails;
  return Verdict::Holds;
}

bool GuardCache::check_tensors(Fetched& fetched) {
  if (std::exchange(values_moved_, false)) tensors_.keep(values_, stable_);
  return tensors_.check(values_, fetched);
}

}  // namespace oxy::python
