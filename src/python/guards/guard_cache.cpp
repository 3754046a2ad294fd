// Building and checking the cached form of a walk.
#include "python/guards/guard_cache.h"

#include <torch/csrc/autograd/python_variable.h>

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
      moves_(walk.sources().size()) {
  count_object_changes();
  for (uint32_t i = 0; i < walk.nodes().size(); ++i) node_[walk.nodes()[i].id.index] = i;
}

int GuardCache::traverse(visitproc visit, void* arg) const {
  for (const py::object& type : types_) Py_VISIT(type.ptr());
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
    case SourceKind::Key:  // an OrderedDict changes its order without a new version
      return stable(base) && PyDict_Check(value(base)) && !PyODict_Check(value(base));
    default:
      return false;
  }
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
  // Nothing tells of a write to a tensor.
  if (guard.kind == GuardKind::Number || guard.kind == GuardKind::NumberTruth) return false;
  if (guard.other) return stable(guard.source) && stable(guard.other);
  if (!stable(guard.source)) return false;
  PyObject* object = value(guard.source);
  // An OrderedDict changes its order without a new version.
  if (guard.kind == GuardKind::Keys && PyODict_Check(object))
    return PyTuple_GET_SIZE(guard.expected.ptr()) <= 1;
  if (guard.kind == GuardKind::Length && PyTuple_Check(object)) return true;
  return !is_dict_guard(guard.kind) || PyDict_Check(object);
}

void GuardCache::keep(GuardWalk::Values& values, Temporaries& made) {
  values_.swap(values);
  steps_.clear();
  first_step_.clear();
  tags_.clear();
  tag_steps_.clear();
  anchors_.clear();
  live_guards_.clear();
  counted_guards_.clear();
  for (py::object& type : types_) made.push_back(std::move(type));
  types_.clear();
  for (const WalkNode& node : walk_.nodes()) stable_[node.id.index] = find_stable(node);
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
    types_.push_back(borrow(reinterpret_cast<PyObject*>(step.type)));
  }
  auto index = static_cast<uint32_t>(steps_.size());
  if (is_tag(step)) {
    tags_.push_back({step.dict, step.version});
    tag_steps_.push_back(index);
  } else {
    anchors_.push_back({index, static_cast<uint32_t>(tags_.size())});
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
  } else if (object && PyDict_Check(object)) {
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
  uint8_t& moves = moves_[node.id.index];
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
    if (c.step.kind != SourceKind::InstanceDict || !stable(c.id)) continue;
    if (!same_shape(steps_[first_step_[child]])) return false;
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

GuardCache::Verdict GuardCache::check_anchor(Step& step, PyObject* const* locals,
                                             Temporaries& made) {
  if (step.kind == StepKind::Live) return check_live(step, locals, made);
  return stands(step, made) ? Verdict::Holds : Verdict::Stale;
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
  if (level == Level::ObjectsChanged) {
    Verdict verdict = check_everything(locals, made);
    if (verdict != Verdict::Holds) return verdict;
  } else {
    bool written = level == Level::DictsWritten;
    uint32_t tags = 0;
    for (const Anchor& anchor : anchors_) {
      if (written && !tags_stand(std::exchange(tags, anchor.tags), anchor.tags, made))
        return Verdict::Stale;
      Verdict verdict = check_anchor(steps_[anchor.step], locals, made);
      if (verdict != Verdict::Holds) return verdict;
    }
    auto all = static_cast<uint32_t>(tags_.size());
    if (written && !tags_stand(tags, all, made)) return Verdict::Stale;
  }
  for (uint32_t guard : live_guards_)
    if (!walk_.guard_holds(guard, values_)) return Verdict::Fails;
  return Verdict::Holds;
}

bool GuardCache::check_tensors(Fetched& fetched) {
  if (std::exchange(values_moved_, false)) tensors_.keep(values_, stable_);
  return tensors_.check(values_, fetched);
}

// ---- tensors

TensorChecks::TensorChecks(const GuardWalk& walk)
    : walk_(walk), sharing_(walk.tensors().sharing()) {
  for (uint32_t g : walk.tensor_guards()) {
    const Guard& guard = walk.guards()[g];
    tensors_.push_back({.object = nullptr, .type = guard.expected.ptr()});
    sources_.push_back(guard.source.index);
  }
  storages_.resize(tensors_.size());
  const std::vector<SourceId>& fetch = walk.fetch();
  while (fetched_ < std::min(fetch.size(), sources_.size()) &&
         fetch[fetched_].index == sources_[fetched_]) {
    ++fetched_;
  }
}

void TensorChecks::keep(const GuardWalk::Values& values, const std::vector<bool>& stable) {
  live_.clear();
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].object = values[sources_[i]];
    if (!stable[sources_[i]]) live_.push_back(i);
  }
}

void TensorChecks::prefetch(const Tensor& t) {
  constexpr size_t kLine = 64;
  __builtin_prefetch(t.object, 1);
  const char* impl = reinterpret_cast<const char*>(t.impl);
  for (size_t at = 0; at < sizeof(c10::TensorImpl); at += kLine) __builtin_prefetch(impl + at);
  __builtin_prefetch(&t.meta->requires_grad_);
}

bool TensorChecks::holds(size_t i, const c10::TensorImpl& impl) {
  Tensor& t = tensors_[i];
  if (t.image.is_of(impl)) [[likely]]
    return true;
  if (!walk_.tensors().matches(i, impl)) return false;
  t.image.take(impl);
  t.impl = &impl;
  t.meta = bridge::TensorImage::meta(impl);
  return true;
}

bool TensorChecks::check(const GuardWalk::Values& values, Fetched& fetched) {
  constexpr size_t kAhead = 8;
  const std::vector<SourceId>& fetch = walk_.fetch();
  const size_t count = tensors_.size();
  for (uint32_t i : live_) tensors_[i].object = values[sources_[i]];
  fetched.reserve(fetch.size());
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch(tensors_[i + kAhead]);
    const Tensor& t = tensors_[i];
    if (!t.object || reinterpret_cast<PyObject*>(Py_TYPE(t.object)) != t.type) return false;
    const c10::TensorImpl& impl = *THPVariable_Unpack(t.object).unsafeGetTensorImpl();
    if (!holds(i, impl)) return false;
    storages_[i] = bridge::storage_of(impl);
    if (i < fetched_) fetched.add(t.object);
  }
  for (size_t i = fetched_; i < fetch.size(); ++i) fetched.add(values[fetch[i].index]);
  return sharing_.matches_again(storages_);
}

}  // namespace oxy::python
