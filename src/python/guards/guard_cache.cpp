// Building and checking the cached form of a walk.
#include "python/guards/guard_cache.h"

#include <torch/csrc/autograd/python_variable.h>

#include "python/cpython/dict_version.h"
#include "support/check.h"

namespace oxy::python {
namespace {

// After so many changes of an object that others hang on, these are looked up every time (an argument that is made
// anew for every call).
constexpr uint8_t kRestless = 4;

bool is_dict_guard(GuardKind kind) {
  return kind == GuardKind::HasKey || kind == GuardKind::LacksKey || kind == GuardKind::Keys ||
         kind == GuardKind::Length;
}

// `__class__` cannot be assigned on instances of types written in C, modules excepted.
bool keeps_its_class(PyObject* value) {
  return !(Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyModule_Check(value);
}

bool is_type_with_version(PyObject* value) {
  return value && PyType_Check(value) && type_version(reinterpret_cast<PyTypeObject*>(value)) != 0;
}

}  // namespace

GuardCache::GuardCache(const GuardWalk& walk)
    : walk_(walk),
      stable_(walk.sources().size()),
      in_step_(walk.sources().size()),
      moves_(walk.sources().size()) {}

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
      return stable(base);
    case SourceKind::Item:
      return stable(base) && PyTuple_Check(value(base));
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

// Whether the steps see everything that could make the guard fail.
bool GuardCache::covered(const Guard& guard) const {
  if (guard.other) return stable(guard.source) && stable(guard.other);
  if (!stable(guard.source)) return false;
  PyObject* object = value(guard.source);
  // An OrderedDict changes its order without a new version.
  if (guard.kind == GuardKind::Keys && PyODict_Check(object)) return false;
  if (is_dict_guard(guard.kind)) return PyDict_Check(object);
  return guard.kind != GuardKind::TypeIs || keeps_its_class(object);
}

void GuardCache::keep(GuardWalk::Values& values, Temporaries& made) {
  values_.swap(values);
  steps_.clear();
  live_guards_.clear();
  tensor_guards_.clear();
  for (py::object& type : types_) made.push_back(std::move(type));
  types_.clear();
  for (const WalkNode& node : walk_.nodes()) stable_[node.id.index] = find_stable(node);
  for (uint32_t i = 0; i < walk_.nodes().size(); ++i) add_steps(i);
  for (const WalkNode& node : walk_.nodes()) add_live_guards(node);
  kept_ = true;
}

void GuardCache::add_live_guards(const WalkNode& node) {
  // A step below looks at the class as well.
  bool classed = stable(node.id) && has_child(node, SourceKind::InstanceDict);
  for (uint32_t i = node.first_guard; i < node.last_guard; ++i) {
    uint32_t guard = walk_.order()[i];
    const Guard& g = walk_.guards()[guard];
    if (g.kind == GuardKind::Tensor) {
      tensor_guards_.push_back({g.source.index, g.number != 0, g.expected.ptr()});
    } else if (!(classed && g.kind == GuardKind::TypeIs) && !covered(g)) {
      live_guards_.push_back(guard);
    }
  }
}

void GuardCache::add_step(Step step) {
  if (step.object) {
    step.type = Py_TYPE(step.object);
    types_.push_back(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(step.type)));
  }
  in_step_[walk_.nodes()[step.node].id.index] = true;
  steps_.push_back(step);
}

void GuardCache::add_steps(uint32_t index) {
  const WalkNode& node = walk_.nodes()[index];
  PyObject* object = value(node.id);
  in_step_[node.id.index] = false;
  bool looked_up = has_child(node, SourceKind::TypeAttribute);
  if (!stable(node.id)) {
    bool matters = looked_up || has_child(node, SourceKind::InstanceDict);
    add_step({StepKind::Live, index, matters ? object : nullptr});
  } else if (node.step.kind == SourceKind::InstanceDict) {
    PyObject* owner = value(node.step.base);
    PyObject** slot = instance_dict_slot(owner);
    add_step({StepKind::InstanceDict, index, owner, slot, object, dict_version(object)});
  } else if (object && PyDict_Check(object)) {
    add_step({StepKind::Dict, index, object, nullptr, object, dict_version(object)});
  }
  if (looked_up) {
    uint32_t version = type_version(reinterpret_cast<PyTypeObject*>(object));
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

bool GuardCache::stands(Step& step, bool quiet, Temporaries& made) {
  if (step.kind == StepKind::Dict) {
    if (quiet) return true;
    if (Py_TYPE(step.object) != step.type) return false;
    return dict_version(step.dict) == step.version || renew(step, made);
  }
  if (Py_TYPE(step.object) != step.type) return false;
  if (step.kind == StepKind::Type) {
    auto* type = reinterpret_cast<PyTypeObject*>(step.object);
    return type_version(type) == step.version || renew(step, made);
  }
  if (*step.slot != step.dict) return false;
  return quiet || dict_version(step.dict) == step.version || renew(step, made);
}

// Looks up again what is used of a dict or type that was written.
bool GuardCache::renew(Step& step, Temporaries& made) {
  const WalkNode& node = walk_.nodes()[step.node];
  if (!walk_.guards_hold(node, values_)) return false;
  SourceKind used = step.kind == StepKind::Type ? SourceKind::TypeAttribute : SourceKind::DictItem;
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    if (c.step.kind == used && stable(c.id) && !same_as_before(c, made)) return false;
  }
  if (step.kind == StepKind::Type) {
    step.version = type_version(reinterpret_cast<PyTypeObject*>(step.object));
    return step.version != 0;
  }
  step.version = dict_version(step.dict);
  return true;
}

// An equal address may be a new object: its guards are checked, and what no version of its own protects.
bool GuardCache::same_as_before(const WalkNode& node, Temporaries& made) {
  PyObject* now = walk_.evaluate_node(node, nullptr, values_, made);
  PyObject*& before = values_[node.id.index];
  if (now != before) {
    bool leaf = node.children.empty() && !node.compared && !in_step_[node.id.index];
    if (!leaf || (now && PyDict_Check(now))) return false;
    before = now;
  }
  if (!now && !node.may_miss) return false;
  if (!walk_.guards_hold(node, values_)) return false;
  for (uint32_t child : node.children) {
    const WalkNode& c = walk_.nodes()[child];
    bool unprotected = c.step.kind == SourceKind::Item || c.step.kind == SourceKind::Closure;
    if (unprotected && stable(c.id) && !same_as_before(c, made)) return false;
  }
  return true;
}

bool GuardCache::live_guards_hold() const {
  for (const TensorGuard& g : tensor_guards_) {
    PyObject* tensor = values_[g.source];
    if (!tensor || reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != g.type) return false;
    if (THPVariable_Unpack(tensor).requires_grad() != g.requires_grad) return false;
  }
  for (uint32_t guard : live_guards_) {
    if (!walk_.guard_holds(guard, values_)) return false;
  }
  return true;
}

GuardCache::Verdict GuardCache::check(PyObject* const* locals, bool quiet, Temporaries& made) {
  for (Step& step : steps_) {
    if (step.kind == StepKind::Live) {
      Verdict verdict = check_live(step, locals, made);
      if (verdict != Verdict::Holds) return verdict;
    } else if (!stands(step, quiet, made)) {
      return Verdict::Stale;
    }
  }
  return live_guards_hold() ? Verdict::Holds : Verdict::Fails;
}

}  // namespace oxy::python
