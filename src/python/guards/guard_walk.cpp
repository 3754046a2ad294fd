// The full walk.
#include "python/guards/guard_walk.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace oxy::python {

GuardWalk::GuardWalk(const SourceTable& sources, const GuardSet& guards,
                     std::span<const SourceId> fetch, const GuardedPlaces& places)
    : sources_(sources), fetch_(fetch.begin(), fetch.end()) {
  std::vector<std::vector<uint32_t>> by_source(sources.size());
  for (const Guard& g : guards.guards()) {
    OXY_CHECK(g.source.index < sources.size(), "source of a guard");
    OXY_CHECK(!g.other || g.other.index < sources.size(), "other source of a guard");
    // A guard on two sources is checked at the later one.
    uint32_t at = g.other ? std::max(g.source.index, g.other.index) : g.source.index;
    by_source[at].push_back(static_cast<uint32_t>(guards_.size()));
    guards_.push_back(prepared(g));
  }
  take_tensors(places);
  place_guards(by_source);
  link_nodes();
}

// What is kept of a tensor does not keep it alive.
void GuardWalk::take_tensors(const GuardedPlaces& places) {
  std::vector<py::object> expected;
  std::vector<bridge::Input> inputs;
  std::vector<bool> varies;
  for (uint32_t i = 0; i < guards_.size(); ++i) {
    Guard& g = guards_[i];
    if (!is_of_tensor(g.kind)) continue;
    OXY_CHECK(THPVariable_Check(g.expected.ptr()), "a Tensor guard without a tensor");
    g.number = static_cast<int64_t>(tensor_guards_.size());
    tensor_guards_.push_back(i);
    inputs.push_back({&THPVariable_Unpack(g.expected.ptr()), 0});
    varies.push_back(g.kind == GuardKind::SizedTensor);
    hidden_.push_back(hidden_members(g.expected.ptr()));
    expected.push_back(std::exchange(g.expected, py::type::of(g.expected)));
  }
  const bridge::InputSignature::Options options{
      .offsets = places.all, .sharing = true, .requires_grad = true, .written = places.written};
  tensors_ = bridge::InputSignature(inputs, options, varies);
  for (uint32_t i = 0; i < tensor_guards_.size(); ++i)
    if (tensors_.sharing().is_shared(i)) beside_others_.push_back(i);
}

bool GuardWalk::tensor_holds(const Guard& guard, PyObject* value) const {
  const auto i = static_cast<size_t>(guard.number);
  return tensors_.matches(i, *THPVariable_Unpack(value).unsafeGetTensorImpl()) &&
         newly_hidden(i, value) == nullptr;
}

bool GuardWalk::are_apart(const Guard& guard, const Values& values) {
  std::vector<const void*> objects;
  for (SourceId id : guard.all) objects.push_back(values[id.index]);
  std::ranges::sort(objects);
  return std::ranges::adjacent_find(objects) == objects.end();
}

std::vector<const void*> GuardWalk::storages(const Values& values) const {
  std::vector<const void*> out;
  for (uint32_t g : tensor_guards_) {
    PyObject* tensor = values[guards_[g].source.index];
    out.push_back(bridge::storage_of(*THPVariable_Unpack(tensor).unsafeGetTensorImpl()));
  }
  return out;
}

std::vector<const void*> GuardWalk::objects(const Values& values) const {
  std::vector<const void*> out;
  for (uint32_t g : tensor_guards_) out.push_back(values[guards_[g].source.index]);
  return out;
}

std::pair<size_t, size_t> GuardWalk::one_object(Tensors tensors) const {
  std::vector<uint32_t> order = beside_others_;
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(tensors[i], i); });
  const auto same = [&](uint32_t i, uint32_t j) { return tensors[i] == tensors[j]; };
  const auto found = std::ranges::adjacent_find(order, same);
  if (found == order.end()) return {0, 0};
  return {found[0], found[1]};
}

bool GuardWalk::sharing_holds(const Values& values) const {
  if (tensor_guards_.empty()) return true;
  if (!tensors_.sharing().matches(storages(values))) return false;
  const auto [i, j] = one_object(objects(values));
  return i == j;
}

int GuardWalk::traverse(visitproc visit, void* arg) const {
  for (const Guard& g : guards_) Py_VISIT(g.expected.ptr());
  return sources_.traverse(visit, arg);
}

void GuardWalk::place_guards(const std::vector<std::vector<uint32_t>>& by_source) {
  std::vector<bool> use(sources_.size());
  for (const Guard& g : guards_) {
    use[g.source.index] = true;
    if (g.other) use[g.other.index] = true;
    for (SourceId id : g.all) use[id.index] = true;
  }
  for (SourceId id : fetch_) use[id.index] = true;
  for (size_t i = use.size(); i-- > 0;) {
    SourceId base = sources_[SourceId(i)].base;
    if (use[i] && base) use[base.index] = true;
  }
  for (size_t i = 0; i < use.size(); ++i) {
    if (!use[i]) continue;
    WalkNode node{SourceId(i), step_of(sources_[SourceId(i)])};
    node.first_guard = static_cast<uint32_t>(order_.size());
    order_.insert(order_.end(), by_source[i].begin(), by_source[i].end());
    node.last_guard = static_cast<uint32_t>(order_.size());
    for (uint32_t g : by_source[i]) node.may_miss |= guards_[g].kind == GuardKind::Missing;
    nodes_.push_back(node);
  }
}

void GuardWalk::link_nodes() {
  std::vector<uint32_t> position(sources_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    position[nodes_[i].id.index] = static_cast<uint32_t>(i);
    SourceId base = nodes_[i].step.base;
    if (base) nodes_[position[base.index]].children.push_back(static_cast<uint32_t>(i));
  }
  for (const Guard& g : guards_) {
    if (!g.other) continue;
    nodes_[position[g.source.index]].compared = true;
    nodes_[position[g.other.index]].compared = true;
    for (SourceId id : g.all) nodes_[position[id.index]].compared = true;
  }
}

bool GuardWalk::run(PyObject* const* locals, Values& values, Temporaries& made) const {
  for (const WalkNode& node : nodes_) {
    PyObject* value = evaluate_node(node, locals, values, made);
    values[node.id.index] = value;
    if (!value && !node.may_miss) return false;
    if (!guards_hold(node, values)) return false;
  }
  return sharing_holds(values);
}

}  // namespace oxy::python
